//! Compares the tables of `verdicts` with a real mongod: sending a statement through docward stores the same as
//! sending the table's result directly. So a forwarded statement has its usual effect, a rejected one changes
//! nothing, and a rewritten one has the effect of the table's statement.

use bson::{Bson, Document, doc};
use docward::document::CowDocument;
use docward::shell;

use super::forms::STORED;
use super::verdicts::{Evaluated, Section, Verdict, sections};
use support::mongod::Mongod;
use support::proxy::Docward;
use support::raw::Client;

/// A section's rule, loaded in a docward.
struct Fixture<'s> {
    section: &'s Section,
    through: Client,
    directly: Client,
    /// Held because dropping it stops docward.
    _docward: Docward,
}

/// The stored documents, and whether one of the replies had an error.
type State = (Vec<Document>, bool);

impl Fixture<'_> {
    fn of(section: &Section) -> Fixture<'_> {
        let mongod = Mongod::shared();
        let docward = Docward::start(mongod, &section.rule_file);
        let (through, directly) = (Client::connect(&docward.address()), Client::connect(&mongod.address()));
        Fixture { section, through, directly, _docward: docward }
    }

    /// Creates the collection with documents of these ids only.
    fn store(&mut self, ids: &[i32]) {
        let Section { database, collection, fields, .. } = self.section;
        let all = doc! { "q": {}, "limit": 0 };
        self.directly.command(database, doc! { "drop": "renamed" });
        self.directly.command(database, doc! { "delete": collection, "deletes": [all] });
        let document = |id: &i32| {
            let mut document = parsed(STORED);
            document.insert("_id", *id);
            for (path, value) in fields {
                let Bson::Document(value) = parsed(&format!("{{value: {value}}}")).into() else { unreachable!() };
                set(&mut document, path, value.get("value").unwrap().clone());
            }
            document
        };
        let documents: Vec<Document> = ids.iter().map(document).collect();
        let reply = self.directly.command(database, doc! { "insert": collection, "documents": documents });
        assert!(!has_error(&reply), "{reply}");
    }

    fn stored(&mut self) -> Vec<Document> {
        let Section { database, collection, varies, .. } = self.section;
        let find = doc! { "find": collection, "sort": { "_id": 1 }, "batchSize": 100 };
        let reply = self.directly.command(database, find);
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch.iter().map(|document| comparable(document.as_document().unwrap(), varies.as_deref())).collect()
    }

    /// Sends the commands one after the other until one fails, as mongosh does.
    fn run<'c>(&mut self, through: bool, commands: impl IntoIterator<Item = &'c CowDocument<'static>>) -> State {
        let mut failed = false;
        for command in commands {
            let mut command = Document::from_reader(command.as_document().as_bytes()).unwrap();
            let Some(Bson::String(database)) = command.remove("$db") else { panic!("no $db: {command}") };
            let client = if through { &mut self.through } else { &mut self.directly };
            if has_error(&client.command(&database, command)) {
                failed = true;
                break;
            }
        }
        (self.stored(), failed)
    }

    /// Whether one of docward's finds returns a document.
    fn finds(&mut self, question: &CowDocument<'static>) -> bool {
        let mut find = Document::from_reader(question.as_document().as_bytes()).unwrap();
        find.remove("$db");
        let reply = self.directly.command(&self.section.database, find);
        !reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().is_empty()
    }

    /// Whether the statement changed the stored documents.
    fn check(&mut self, evaluated: &Evaluated, ids: &[i32]) -> bool {
        let place = format!("{}: {} with {ids:?} stored", self.section.place, evaluated.text);
        self.store(ids);
        let before = self.stored();
        let verdict = evaluated.verdict();
        let questions: Vec<_> = evaluated.questions().cloned().collect();
        let passes = verdict == Verdict::RejectsStored && !questions.iter().any(|question| self.finds(question));
        let (expected, fails) = self.run(false, evaluated.sent());
        self.store(ids);
        let (stored, failed) = self.run(true, &evaluated.commands);
        match verdict {
            // The table does not show the document that the rule inserts in this case.
            Verdict::RejectsStored if passes => assert!(!failed, "{place} is rejected"),
            Verdict::Rejects | Verdict::RejectsStored => {
                assert!(failed, "{place} is not rejected");
                assert_eq!(stored, expected, "{place}: {verdict:?}");
            }
            Verdict::Forwards => assert_eq!((&stored, failed), (&expected, fails), "{place}: {verdict:?}"),
            Verdict::Checks => {
                // A statement before it may have inserted.
                let is_rejected = failed && before.iter().all(|document| stored.contains(document));
                let is_same = (without_settled(&stored), failed) == (without_settled(&expected), fails);
                assert!(is_rejected || is_same, "{place}: {stored:?}, not {expected:?}");
            }
            // A failed condition may be reported as an error.
            Verdict::Rewrites | Verdict::Decides => assert_eq!(stored, expected, "{place}: {verdict:?}"),
        }
        stored != before
    }
}

fn has_error(reply: &Document) -> bool {
    reply.get_f64("ok").unwrap() != 1.0 || reply.contains_key("writeErrors")
}

fn parsed(text: &str) -> Document {
    let command = shell::parse(&format!("db.c.insertOne({text})"), "d");
    let command = command.unwrap_or_else(|error| panic!("{text}: {}", error.message)).commands.remove(0);
    let mut command = Document::from_reader(command.as_document().as_bytes()).unwrap();
    let Some(Bson::Array(documents)) = command.remove("documents") else { panic!("{command}") };
    documents[0].as_document().unwrap().clone()
}

fn set(document: &mut Document, path: &str, value: Bson) {
    match path.split_once('.') {
        None => drop(document.insert(path, value)),
        Some((name, below)) => {
            let nested = document.entry(name.to_owned()).or_insert_with(|| Document::new().into());
            set(nested.as_document_mut().unwrap(), below, value);
        }
    }
}

/// Removes values that differ from run to run: times, server-made ids, and the field that varies.
fn comparable(document: &Document, varies: Option<&str>) -> Document {
    let value = |name: &str, value: &Bson| match value {
        Bson::DateTime(_) => Bson::String("a time".into()),
        Bson::ObjectId(_) => Bson::String("an id".into()),
        Bson::Document(inner) => comparable(inner, None).into(),
        _ if varies == Some(name) => Bson::String("a value".into()),
        other => other.clone(),
    };
    document.iter().map(|(name, of)| (name.clone(), value(name, of))).collect()
}

#[test]
fn shown_verdicts_hold_on_a_real_mongod() {
    let (mut checked, mut changed) = (0, 0);
    for section in &sections() {
        let mut fixture = Fixture::of(section);
        for evaluated in section.evaluated() {
            let upserts = evaluated.text.contains("upsert: true");
            // An upsert with a condition is sent in two parts; the table shows the first.
            let stores: &[&[i32]] = match evaluated.verdict() {
                // The verdict depends on stored documents, in a transaction: these patterns' own tests check it.
                Verdict::Decides => &[],
                Verdict::Rewrites if upserts => &[&[1, 2]],
                _ if upserts => &[&[1], &[1, 2]],
                _ => &[&[1]],
            };
            for ids in stores {
                changed += usize::from(fixture.check(&evaluated, ids));
                checked += 1;
            }
        }
    }
    assert!(checked > 800 && changed > 300, "{checked} statements, of which {changed} changed something");
}

/// The documents without what rules set after a checked statement.
fn without_settled(documents: &[Document]) -> Vec<Document> {
    const SETTLED: [&str; 7] = ["count", "time", "locked", "tlocked", "try", "version", "newest"];
    let mut documents = documents.to_vec();
    documents.iter_mut().for_each(|document| SETTLED.iter().for_each(|field| drop(document.remove(*field))));
    documents
}
