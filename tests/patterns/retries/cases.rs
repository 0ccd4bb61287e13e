//! Each statement of the table as a retryable write that is sent several times. After the first execution, no other send
//! executes it again.

use std::collections::BTreeMap;
use std::ops::Range;

use bson::{Document, doc};
use docward::shell;
use support::driver::write_errors;
use support::mongod::Mongod;
use support::proxy::Docward;
use support::raw::Client;

use super::statements::{PROTECTED, Protected};

/// The rules of all collections, each with these settings.
pub(super) fn rules(database: &str, settings: &str) -> String {
    let mut text = "version: 1\nrules:\n".to_owned();
    for Protected { collection, rules, .. } in PROTECTED {
        for (number, rule) in rules.iter().enumerate() {
            let rule = rule.replace("DATABASE", database);
            let line = format!("name: {collection}-{number}, namespace: {database}.{collection}, {settings}, {rule}");
            text += &format!("  - {{ {line} }}\n");
        }
    }
    text
}

/// A retryable write in a session of its own.
struct Case {
    /// In mongosh syntax.
    text: String,
    command: Document,
    lsid: Document,
    is_rejected: bool,
    /// The reply when it was carried out.
    carried_out: Option<Document>,
    /// The numbers in its statements.
    numbers: Range<usize>,
}

/// All statements of the table, each as several commands.
pub(super) struct Cases {
    database: String,
    app: Option<&'static str>,
    cases: Vec<Case>,
    next_number: usize,
    /// How often the cases were sent.
    sends: i32,
    wrong: Vec<String>,
}

fn bson(text: &str) -> Document {
    let found = shell::named_value("value", text, "").unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let found = Document::from_reader(found.as_document().as_bytes()).unwrap();
    found.get_document("value").unwrap().clone()
}

fn with_number(text: &str, number: usize) -> String {
    text.replace('#', &number.to_string())
}

/// The update as a findAndModify.
fn find_and_modify(collection: &str, statement: &Document) -> Document {
    let mut command = doc! { "findAndModify": collection, "query": statement.get("q") };
    match statement.get("u") {
        Some(update) => command.insert("update", update),
        None => command.insert("remove", true),
    };
    command.extend(statement.get("upsert").map(|upsert| doc! { "upsert": upsert }).unwrap_or_default());
    command
}

fn statements_of(command: &Document) -> Vec<Document> {
    let statements = ["updates", "deletes"].iter().find_map(|name| command.get_array(name).ok());
    statements.into_iter().flatten().map(|one| one.as_document().unwrap().clone()).collect()
}

impl Cases {
    pub(super) fn new(database: &str, app: Option<&'static str>) -> Self {
        Mongod::shared().command(database, doc! { "dropDatabase": 1 });
        let mut cases =
            Self { database: database.to_owned(), app, cases: Vec::new(), next_number: 1, sends: 0, wrong: Vec::new() };
        for protected in PROTECTED {
            let first = cases.next_number;
            cases.add_all(protected);
            // Copies have an original with the number 0.
            let numbers = (first..cases.next_number).chain([0]);
            let stored = |number| protected.stored.iter().map(move |text| bson(&with_number(text, number)));
            let documents: Vec<Document> = numbers.flat_map(stored).collect();
            if !documents.is_empty() {
                let insert = doc! { "insert": protected.collection, "documents": documents };
                Mongod::shared().command(database, insert);
            }
        }
        cases
    }

    fn add_all(&mut self, protected: &Protected) {
        for (texts, is_rejected) in [(protected.plain, false), (protected.checked, false), (protected.rejected, true)] {
            for text in texts {
                let (command, numbers) = self.command(protected, text);
                self.add(text, command, is_rejected, numbers);
                let (command, numbers) = self.command(protected, text);
                if let [statement] = &statements_of(&command)[..] {
                    let command = find_and_modify(protected.collection, statement);
                    self.add(text, command, is_rejected, numbers);
                }
            }
        }
        // Plain and checked statements in one command.
        let (mut updates, first) = (Vec::new(), self.next_number);
        for text in protected.plain.iter().chain(protected.checked) {
            let (command, _) = self.command(protected, text);
            updates.extend(command.contains_key("updates").then(|| statements_of(&command)).into_iter().flatten());
        }
        if updates.len() > 1 {
            let command = doc! { "update": protected.collection, "updates": updates, "ordered": first % 2 == 0 };
            self.add("all of them", command, false, first..self.next_number);
        }
    }

    /// Returns a statement's command with a new number.
    fn command(&mut self, protected: &Protected, text: &str) -> (Document, Range<usize>) {
        let number = self.next_number;
        self.next_number += 1;
        let text = format!("db.{}.{}", protected.collection, with_number(text, number));
        let command = shell::parse(&text, "d").unwrap_or_else(|error| panic!("{text}: {error:?}")).commands;
        let mut command = Document::from_reader(command[0].as_document().as_bytes()).unwrap();
        command.remove("$db");
        (command, number..number + 1)
    }

    fn add(&mut self, text: &str, command: Document, is_rejected: bool, numbers: Range<usize>) {
        let collection = command.values().next().unwrap().as_str().unwrap();
        let text = format!("{collection}.{text} as {}", command.keys().next().unwrap());
        let lsid = doc! { "id": bson::Uuid::new() };
        self.cases.push(Case { text, command, lsid, is_rejected, carried_out: None, numbers });
    }

    /// Sends all once more. What was carried out must not change anything. Between two sends another client changes
    /// all documents, so that a replacement that is carried out again is seen.
    pub(super) fn send(&mut self, docward: &Docward, what: &str) {
        self.sends += 1;
        for Protected { collection, .. } in PROTECTED {
            let change = doc! { "q": {}, "u": { "$set": { "between": self.sends } }, "multi": true };
            Mongod::shared().command(&self.database, doc! { "update": *collection, "updates": [change] });
        }
        let before = self.stored();
        let mut client = connect(docward, self.app);
        let mut executed = Vec::new();
        for case in &mut self.cases {
            let mut command = case.command.clone();
            command.extend(doc! { "lsid": case.lsid.clone(), "txnNumber": 1_i64 });
            let reply = client.command(&self.database, command);
            let is_repeated = case.carried_out.is_some();
            if let Err(text) = case.check_reply(reply) {
                self.wrong.push(format!("{what}: {}: {text}", case.text));
            }
            executed.push(case.carried_out.is_some() && !is_repeated);
        }
        let after = self.stored();
        for (case, is_executed) in self.cases.iter().zip(executed) {
            let documents = |all: &BTreeMap<usize, Vec<Document>>| {
                case.numbers.clone().filter_map(|number| all.get(&number).cloned()).collect::<Vec<_>>()
            };
            let (before, after) = (documents(&before), documents(&after));
            if (before != after) != is_executed {
                let text = if is_executed { "not carried out" } else { "carried out again" };
                self.wrong.push(format!("{what}: {}: {text}: {before:?}, then {after:?}", case.text));
            }
        }
    }

    /// The documents of each number.
    fn stored(&self) -> BTreeMap<usize, Vec<Document>> {
        let mut stored = BTreeMap::<_, Vec<Document>>::new();
        for Protected { collection, .. } in PROTECTED {
            let find = doc! { "find": *collection, "sort": { "_id": 1 }, "batchSize": 10_000 };
            let found = Mongod::shared().command(&self.database, find);
            for document in found.get_document("cursor").unwrap().get_array("firstBatch").unwrap() {
                let document = document.as_document().unwrap();
                let number = document
                    .get_i32("owner")
                    .or_else(|_| document.get_i32("_id"))
                    .unwrap_or_else(|_| panic!("{collection}: {document}"));
                stored.entry(number as usize).or_default().push(document.clone());
            }
        }
        stored
    }

    /// Each was carried out by one of the sends.
    pub(super) fn finish(self, what: &str) {
        let never = self.cases.iter().filter(|case| case.carried_out.is_none());
        let never = never.map(|case| format!("{}: never carried out: {}", case.text, case.command));
        let wrong: Vec<_> = self.wrong.iter().cloned().chain(never).collect();
        assert!(wrong.is_empty(), "{what}: {} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    }
}

impl Case {
    fn check_reply(&mut self, reply: Document) -> Result<(), String> {
        let n = |reply: &Document| reply.get_document("lastErrorObject").unwrap_or(reply).get_i32("n").unwrap_or(-1);
        let result = |reply: &Document| (n(reply), reply.get("value").cloned());
        let error = reply.get_i32("code").ok().or(write_errors(&reply).first().map(|(_, code)| *code));
        let has_more_than_counts =
            self.command.contains_key("findAndModify") || self.command.to_string().contains("upsert");
        match (&self.carried_out, error) {
            (Some(first), None) if result(first) == result(&reply) => Ok(()),
            // The reply is not known any more, or the server's record is the insert of a new bucket.
            (Some(_), Some(217)) if has_more_than_counts => Ok(()),
            (Some(_), Some(40608)) if self.text.contains("owner: #}, {$push") => Ok(()),
            (None, None) => {
                self.carried_out = Some(reply).filter(|reply| n(reply) > 0);
                Ok(())
            }
            (None, Some(_)) if self.is_rejected => Ok(()),
            (first, _) => Err(format!("{}: {reply}, after {first:?}", self.command)),
        }
    }
}

fn connect(docward: &Docward, app: Option<&str>) -> Client {
    let mut client = Client::connect(&docward.address());
    if let Some(name) = app {
        let driver = doc! { "name": "raw", "version": "1" };
        let about = doc! { "application": { "name": name }, "driver": driver, "os": { "type": "Linux" } };
        client.command("admin", doc! { "hello": 1, "client": about });
    }
    client
}
