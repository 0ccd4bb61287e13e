//! Cases that once broke a promise: the files in `corpus`, in mongosh syntax, in the form in which the smallest case of
//! a finding is printed. Each case has its rules, the documents that are stored before, the steps of a client, each with
//! its replies, and the documents that are stored after them. Another reply or document fails the test, which prints
//! the case as it is then.
//!
//! `{$now: "id"}` is an id that is generated while the test runs; `"date"`, `"long"` and `"timestamp"` are times then.
//! `COLLECTION` in a rule is the name of the case's collection. `message` is a part of an error's message, and
//! `seconds` the time in which each command must be done. `session` and `race` of a step are those of `case.rs`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bson::{Bson, Document, doc};

use super::case::{End, Session, Step};
use super::dice::Dice;
use super::generate;
use super::lab::{PROTECTED, Side, documents, server, unique_index};
use super::race::insert_during;
use super::rules::loaded;
use super::show;
use support::driver::ok;
use support::proxy::Docward;
use support::raw::Client;

const FIELDS: [&str; 9] = ["name", "must", "rules", "unique", "stored", "steps", "after", "message", "seconds"];

/// Fields of a reply that differ between runs and servers, or are texts.
const OMITTED: [&str; 9] = [
    "$clusterTime",
    "operationTime",
    "electionId",
    "opTime",
    "errmsg",
    "codeName",
    "command",
    "serverInfo",
    "serverParameters",
];

/// Attempts of a transaction.
const ATTEMPTS: usize = 3;

/// A time this near to the present is one of the test.
const NOW: Duration = Duration::from_secs(600);

/// Reads the cases of a file with this name.
fn read(name: &str, text: &str) -> Vec<(String, Document)> {
    let text = format!("{{cases: {text}}}");
    let read = docward::shell::document(&text).unwrap_or_else(|error| {
        let line = text[..error.span.start].matches('\n').count() + 1;
        panic!("{name}:{line}: {error}")
    });
    let read = Document::from_reader(read.as_document().as_bytes()).unwrap();
    let cases = list(&read, "cases");
    for field in cases.iter().flat_map(Document::keys) {
        assert!(FIELDS.contains(&field.as_str()), "{name}: a case has no field {field}");
    }
    cases.into_iter().map(|case| (name.to_owned(), case)).collect()
}

fn list(fields: &Document, name: &str) -> Vec<Document> {
    let items = fields.get_array(name).unwrap_or_else(|error| panic!("{fields}: {error}"));
    items.iter().map(|item| item.as_document().unwrap().clone()).collect()
}

/// The rules of a case on this collection, as a part of a rule file.
fn rules(case: &Document, collection: &str) -> String {
    let settings = case.get_array("rules").unwrap().iter().map(|rule| rule.as_str().unwrap());
    let rule = |(number, settings): (usize, &str)| {
        let namespace = if settings.starts_with("namespace:") { "" } else { "namespace: protected.COLLECTION, " };
        format!("  - {{ name: {collection}-{number}, {namespace}{settings} }}\n").replace("COLLECTION", collection)
    };
    settings.enumerate().map(rule).collect()
}

fn rule_file<'a>(cases: impl IntoIterator<Item = &'a Document>) -> String {
    let rules = cases.into_iter().enumerate().map(|(index, case)| rules(case, &format!("k{index}")));
    format!("version: 1\nrules:\n{}", rules.collect::<String>())
}

fn is_transient(reply: &Document) -> bool {
    let labels = reply.get_array("errorLabels").into_iter().flatten();
    labels.filter_map(Bson::as_str).any(|label| label == "TransientTransactionError")
}

/// Sends a step; the replies to it, and to what follows it in its session.
fn exchange(
    direct: &mut Client,
    through: &mut Side,
    collection: &str,
    step: &Step,
) -> (Vec<(&'static str, Document)>, Duration) {
    let answer = match &step.race {
        Some(race) => insert_during(direct, collection, race, || through.send(collection, step)).1,
        None => through.send(collection, step),
    };
    let mut replies = vec![("reply", answer.reply.unwrap_or_default())];
    match step.session {
        Session::Resent => replies.push(("again", through.send_again(collection, step).unwrap_or_default())),
        Session::Transaction(End::Commit) => replies.push(("commit", through.commit().unwrap_or_default())),
        Session::Transaction(End::Abort) => through.abort(),
        Session::None | Session::Retryable | Session::Transaction(End::More) => {}
    }
    (replies, answer.took)
}

/// Runs a case on its collection, whose rules docward has loaded. Returns the case as it is seen, and all replies.
fn run(case: &Document, collection: &str, docward: &Docward) -> (Document, Vec<Document>) {
    let mut direct = Client::connect(&server().address());
    // A transaction cannot use a collection that a majority does not have yet.
    let majority = doc! { "w": "majority" };
    direct.command(PROTECTED, doc! { "create": collection, "writeConcern": &majority });
    for field in case.get_array("unique").into_iter().flatten().filter_map(Bson::as_str) {
        assert!(ok(&direct.command(PROTECTED, unique_index(collection, field))));
    }
    let stored = list(case, "stored");
    if !stored.is_empty() {
        let reply =
            direct.command(PROTECTED, doc! { "insert": collection, "documents": stored, "writeConcern": majority });
        assert!(ok(&reply), "{reply}");
    }
    let mut through = Side::new(docward.address(), PROTECTED);
    let (mut steps, mut all, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
    for step in list(case, "steps").iter().map(Step::from_written) {
        let is_whole = !through.in_transaction && step.session != Session::Transaction(End::More);
        let mut received = exchange(&mut direct, &mut through, collection, &step);
        // As drivers do: the server may abort a transaction for a reason of its own. An error of docward comes again.
        for _ in 1..ATTEMPTS {
            if is_whole && received.0.iter().any(|(_, reply)| is_transient(reply)) {
                received = exchange(&mut direct, &mut through, collection, &step);
            }
        }
        let (replies, took) = received;
        let mut written = step.written();
        written.extend(replies.iter().map(|(name, reply)| ((*name).to_owned(), stable(&result(reply), collection))));
        steps.push(written);
        all.extend(replies.into_iter().map(|(_, reply)| reply));
        longest = longest.max(took);
    }
    let stored = documents(&direct.command(PROTECTED, doc! { "find": collection, "sort": { "_id": 1 } }));
    let after: Vec<Bson> = stored.into_iter().map(|document| stable(&document.into(), collection)).collect();
    let mut seen = case.clone();
    seen.extend(doc! { "steps": steps, "after": after });
    let is_in = |part: &str| all.iter().any(|reply| reply.to_string().contains(part));
    if case.get_str("message").is_ok_and(|part| !is_in(part)) {
        seen.insert("message", "another one");
    }
    if case.get_i32("seconds").is_ok_and(|seconds| longest.as_secs() >= seconds as u64) {
        seen.insert("seconds", longest.as_secs() as i32 + 1);
    }
    (seen, all)
}

/// What a case states of a reply: errors by code, and by the pattern whose rule rejects the statement.
fn result(reply: &Document) -> Bson {
    let fields = reply.iter().filter(|(name, _)| !OMITTED.contains(&name.as_str()));
    let stated = fields.map(|(name, held)| match (name.as_str(), held) {
        ("ok", Bson::Double(ok)) => (name.clone(), Bson::Int32(*ok as i32)),
        ("queryPlanner", _) => (name.clone(), doc! { "$any": "document" }.into()),
        ("errInfo", Bson::Document(info)) if info.contains_key("docward") => {
            let pattern = info.get_document("docward").unwrap().get_str("pattern").unwrap_or_default();
            ("pattern".to_owned(), pattern.into())
        }
        ("writeErrors", Bson::Array(errors)) => {
            (name.clone(), errors.iter().map(|error| result(error.as_document().unwrap())).collect::<Vec<_>>().into())
        }
        _ => (name.clone(), held.clone()),
    });
    Bson::Document(stated.collect())
}

/// The value with placeholders for generated ids and the present time, and without the name of the case's collection.
fn stable(held: &Bson, collection: &str) -> Bson {
    let present = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let is_now = |milliseconds: i64| u128::from(milliseconds.max(0) as u64).abs_diff(present) < NOW.as_millis();
    let now = |kind: &str| doc! { "$now": kind }.into();
    match held {
        Bson::Document(nested) => {
            Bson::Document(nested.iter().map(|(name, held)| (name.clone(), stable(held, collection))).collect())
        }
        Bson::Array(items) => Bson::Array(items.iter().map(|item| stable(item, collection)).collect()),
        Bson::String(text) => {
            let [own, stated] = [collection, "c"].map(|name| format!("{PROTECTED}.{name}"));
            text.replace(&own, &stated).into()
        }
        Bson::ObjectId(id) if is_now(id.timestamp().timestamp_millis()) => now("id"),
        Bson::DateTime(time) if is_now(time.timestamp_millis()) => now("date"),
        Bson::Int64(number) if is_now(*number) => now("long"),
        Bson::Timestamp(timestamp) if is_now(i64::from(timestamp.time) * 1000) => now("timestamp"),
        _ => held.clone(),
    }
}

fn cases() -> Vec<(String, Document)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/invariants/corpus");
    let files = folder.read_dir().unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> = files.collect();
    files.iter().flat_map(|name| read(name, &std::fs::read_to_string(folder.join(name)).unwrap())).collect()
}

/// The names of the cases that fail, with what is seen.
pub(super) fn failures() -> Vec<(String, String)> {
    let cases = cases();
    for (_, case) in &cases {
        // Rules that docward does not load would test nothing.
        assert!(loaded(rule_file([case])).is_some(), "docward does not load the rules of {}", show::case(case));
    }
    let rules = rule_file(cases.iter().map(|(_, case)| case));
    let docward = Docward::before(&server().uri()).rules(&rules).environment("RUST_LOG", "error").start();
    let tried = cases.iter().enumerate().map(|(index, (file, case))| {
        let (seen, replies) = run(case, &format!("k{index}"), &docward);
        (file, show::case(case), show::case(&seen), replies)
    });
    let failed = tried.filter(|(_, stated, seen, _)| stated != seen);
    failed.map(|(file, stated, seen, replies)| described(file, &stated, &seen, &replies)).collect()
}

fn described(file: &str, stated: &str, seen: &str, replies: &[Document]) -> (String, String) {
    let name = stated.lines().nth(1).unwrap_or_default().trim().to_owned();
    let other: String =
        stated.lines().filter(|line| !seen.lines().any(|seen| seen == *line)).map(|line| format!("{line}\n")).collect();
    let replies = show::documents(replies);
    (name, format!("{file}: seen:\n{seen}where the file states:\n{other}all replies:{replies}\n"))
}

/// A finding can be added to the corpus as it is printed.
#[test]
fn a_printed_case_is_read_as_the_same() {
    for seed in 0..300 {
        let dice = &mut Dice::new(seed);
        let set = generate::set(dice);
        let case = generate::case(dice, &set);
        let printed = format!("[{case}]");
        let (_, found) = read("printed", &printed).swap_remove(0);
        let steps: Vec<Step> = list(&found, "steps").iter().map(Step::from_written).collect();
        let expected: Vec<Step> = (0..case.steps.len()).map(|index| case.step(index)).collect();
        let shown = |steps: &[Step]| steps.iter().map(|step| show::document(&step.written())).collect::<Vec<_>>();
        assert_eq!(shown(&steps), shown(&expected), "{printed}");
        assert_eq!(show::documents(&list(&found, "stored")), show::documents(&case.stored), "{printed}");
        assert!(loaded(rule_file([&found])).is_some(), "{printed}");
    }
}
