//! Compares the effect model with a real mongod: for generated filters, updates and documents, the server stores what
//! the model predicts, or something that the model leaves open. `DOCWARD_TEST_SCALE` makes it run longer;
//! `DOCWARD_TEST_SEED` gives other cases, and repeats the case of a failure as the first one.

mod compare;
mod generate;

use bson::{Bson, Document as Bsons, RawDocumentBuf, doc};
use docward::command::{Command, Modification, Operation, WriteBatch, WriteForm};
use docward::document::{Document, Path, Value};
use docward::effect::{
    Change, IdLength, InsertedLength, change, equalities_agree, equality, growths, inserted_length, stored_id_length,
};
use generate::{Generator, Statement};
use support::driver::scaled;
use support::frame::Message;
use support::mongod::Mongod;
use support::raw::Client;

/// The paths that are compared, whatever a statement writes.
const PATHS: [&str; 17] = [
    "a", "b", "c", "a.n", "a.m", "a.k", "a.n.k", "b.n", "b.n.m", "c.d", "c.d.n", "a.0", "b.0", "a.0.n", "_id", "_id.x",
    "0",
];
const CASES: u32 = 3000;
/// Commands that are sent before their replies are read.
const BATCH: usize = 100;
/// The failures that are printed.
const PRINTED: usize = 8;

/// Runs `examine` for each case, in batches of their seeds, and fails with what it reports.
fn for_each_case(mut examine: impl FnMut(&[u64], &mut Vec<String>)) {
    let first = seed();
    let seeds: Vec<u64> = (0..u64::from(scaled(CASES))).map(|case| first.wrapping_add(case)).collect();
    let mut failures = Vec::new();
    for batch in seeds.chunks(BATCH) {
        examine(batch, &mut failures);
    }
    let printed = &failures[..failures.len().min(PRINTED)];
    assert!(
        failures.is_empty(),
        "{} of {} cases, from seed {first}:\n{}",
        failures.len(),
        seeds.len(),
        printed.join("\n")
    );
}

/// The same in every run, unless a seed is given.
fn seed() -> u64 {
    std::env::var("DOCWARD_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_122)
}

struct Server {
    client: Client,
    database: String,
}

impl Server {
    fn new() -> Server {
        let mongod = Mongod::shared();
        Server { client: Client::connect(&mongod.address()), database: mongod.fresh_database() }
    }

    /// Sends all commands before it reads the replies.
    fn run(&mut self, commands: impl IntoIterator<Item = Bsons>) -> Vec<Bsons> {
        let sent = commands.into_iter().map(|mut command| {
            if !command.contains_key("find") {
                command.insert("writeConcern", doc! { "w": 1, "j": false });
            }
            command.insert("$db", &self.database);
            self.client.send(&Message::new(command))
        });
        let sent: Vec<i32> = sent.collect();
        let replies = sent.into_iter().map(|request| {
            let frame = self.client.receive();
            assert_eq!(frame.response_to, request);
            Message::parse(&frame).body().clone()
        });
        replies.collect()
    }
}

fn bytes(document: &Bsons) -> Vec<u8> {
    RawDocumentBuf::try_from(document).unwrap().into_bytes()
}

fn paths() -> [Path; PATHS.len()] {
    PATHS.map(|path| Path::parse(path).unwrap())
}

/// Calls `examine` with the operation as docward reads it from the command.
fn as_read<T>(statement: &Statement, examine: impl FnOnce(&Operation<'_>) -> T) -> T {
    let mut command = statement.command();
    command.insert("$db", "test");
    let frame = Message::new(command).to_frame(1, 0).to_bytes();
    let batch = WriteBatch::parse(&Command::parse(&frame).unwrap(), WriteForm::FindAndModify).unwrap();
    let statement = batch.statements.first().unwrap();
    examine(&statement.as_operators().as_ref().unwrap_or(statement).operation)
}

/// The document of a findAndModify's reply.
fn value_of(reply: &Bsons) -> Option<Bsons> {
    reply.get_document("value").ok().cloned()
}

#[test]
fn an_upsert_inserts_no_more_bytes_than_predicted() {
    let mut server = Server::new();
    let (mut made, mut lengths) = (0, 0);
    for_each_case(|seeds, failures| {
        let statements: Vec<Statement> = seeds.iter().map(|seed| Generator::new(*seed).upsert()).collect();
        let empty = || doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] };
        let replies = server.run(statements.iter().flat_map(|statement| [statement.command(), empty()]));
        for ((seed, statement), reply) in seeds.iter().zip(&statements).zip(replies.iter().step_by(2)) {
            let mut fail = |text: String| {
                failures.push(format!("seed {seed}: {text}\n  {}\n  -> {reply}", statement.command()));
            };
            as_read(statement, |operation| {
                let Operation::Update(update) = operation else { unreachable!() };
                let by_operators = matches!(update.modification, Modification::Operators(_));
                let conflict = reply.get_str("errmsg").is_ok_and(|error| error.contains("cannot infer query fields"));
                if by_operators && conflict && equalities_agree(update.filter.as_document()) {
                    fail("no conflict is predicted in the filter".to_owned());
                }
                let Some(after) = value_of(reply) else { return };
                made += 1;
                let length = bytes(&after).len();
                match inserted_length(operation) {
                    InsertedLength::AtMost(most) if length > most => {
                        fail(format!("{most} bytes are predicted for {length}"));
                    }
                    InsertedLength::None => fail("no length is predicted".to_owned()),
                    InsertedLength::AtMost(_) => lengths += 1,
                    InsertedLength::Unknown => {}
                }
            });
        }
    });
    // Most cases must have a definite prediction, because a model that leaves everything open is always right.
    let cases = scaled(CASES) as usize;
    eprintln!("{made} of {cases} upserts inserted, {lengths} lengths");
    assert!(made * 10 > cases * 3, "only {made} of {cases} upserts inserted");
    assert!(lengths * 10 > made * 6, "only {lengths} of {made} lengths were predicted");
}

#[test]
fn an_update_stores_what_the_model_predicts() {
    let (mut server, paths) = (Server::new(), paths());
    let (mut made, mut changed, mut unclear) = (0, 0, 0);
    for_each_case(|seeds, failures| {
        let cases: Vec<(Bsons, Statement)> = seeds
            .iter()
            .zip(0..)
            .map(|(seed, id)| {
                let mut generator = Generator::new(*seed);
                let stored = generator.document(id);
                let statement = generator.update(&stored);
                (stored, statement)
            })
            .collect();
        let stored: Vec<Bsons> = cases.iter().map(|(stored, _)| stored.clone()).collect();
        let inserted = server.run([
            doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] },
            doc! { "insert": "c", "documents": stored },
            doc! { "find": "c", "batchSize": BATCH as i32 },
        ]);
        let stored = inserted[2].get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        let replies = server.run(cases.iter().map(|(_, statement)| statement.command()));
        for ((seed, (own, statement)), reply) in seeds.iter().zip(&cases).zip(&replies) {
            let Some(after) = value_of(reply) else { continue };
            if !reply.get_document("lastErrorObject").unwrap().get_bool("updatedExisting").unwrap() {
                continue;
            }
            // The server has set empty timestamps to the time.
            let is_own = |stored: &&Bsons| stored.get("_id") == own.get("_id");
            let before = stored.iter().filter_map(Bson::as_document).find(is_own).unwrap();
            made += 1;
            let mut fail = |text: String| {
                failures.push(format!("seed {seed}: {text}\n  {before}\n  {}\n  -> {after}", statement.command()));
            };
            let (raw_before, raw_after) = (bytes(before), bytes(&after));
            let (old, new) = (Document::parse(&raw_before).unwrap(), Document::parse(&raw_after).unwrap());
            as_read(statement, |operation| {
                for path in &paths {
                    let predicted = change(operation, path);
                    changed += usize::from(predicted != Change::Untouched);
                    unclear += usize::from(matches!(predicted, Change::Unclear(_)));
                    if !compare::follows(predicted, path, old, new) {
                        fail(format!("'{path}' is predicted as {predicted:?}"));
                    }
                }
                if let Some(text) = check_sizes(operation, old, new) {
                    fail(text);
                }
            });
        }
    });
    let cases = scaled(CASES) as usize;
    eprintln!("{made} of {cases} updates, {changed} changes, {unclear} unclear");
    assert!(made * 10 > cases * 3, "only {made} of {cases} updates");
    assert!(changed > cases / 4, "only {changed} changes");
    assert!(unclear * 2 < changed, "{unclear} of {changed} changes are unclear");
}

/// What is wrong with the predicted lengths of arrays and of the document.
fn check_sizes(operation: &Operation<'_>, old: Document<'_>, new: Document<'_>) -> Option<String> {
    let Operation::Update(update) = operation else { return None };
    let added = new.as_bytes().len() as i64 - old.as_bytes().len() as i64;
    match &update.modification {
        Modification::Operators(operators) => {
            let operators = operators.as_document();
            let most = compare::growth(&growths(operators)?, old)?;
            (added > most).then(|| format!("{most} more bytes are predicted"))
        }
        Modification::Replacement(document) => {
            let own = document.as_document();
            let IdLength::AtMost(id) = stored_id_length(update.filter.as_document()) else { return None };
            let most = own.as_bytes().len() + if own.get("_id").is_some() { 0 } else { id };
            (new.as_bytes().len() > most).then(|| format!("{most} bytes are predicted"))
        }
        Modification::Pipeline(_) | Modification::ClientPipeline(_) => None,
    }
}

#[test]
fn an_equality_holds_for_every_document_that_matches() {
    let mut server = Server::new();
    let mut generator = Generator::new(seed());
    let documents: Vec<Bsons> = (0..60).map(|id| generator.document(id)).collect();
    server.run([doc! { "insert": "c", "documents": documents }]);
    let mut found = 0;
    for_each_case(|seeds, failures| {
        let mut finds = Vec::new();
        for seed in seeds {
            let filter = Generator::new(*seed).filter(0);
            let q = bytes(&filter);
            for field in ["a", "b", "a.n", "c"] {
                let Some(value) = equality(Document::parse(&q).unwrap(), field) else { continue };
                // No document matches the filter without the equal value.
                let others = doc! { "$and": [filter.clone(), { "$nor": [{ field: { "$eq": as_bson(value) } }] }] };
                finds.push((seed, doc! { "find": "c", "filter": others, "limit": 1 }));
            }
        }
        found += finds.len();
        let replies = server.run(finds.iter().map(|(_, find)| find.clone()));
        for ((seed, find), reply) in finds.iter().zip(replies) {
            let Ok(cursor) = reply.get_document("cursor") else { continue };
            if let Some(found) = cursor.get_array("firstBatch").unwrap().first() {
                failures.push(format!("seed {seed}: {find} finds {found}"));
            }
        }
    });
    assert!(found > scaled(CASES) as usize / 20, "only {found} equalities");
}

fn as_bson(value: Value<'_>) -> Bson {
    let written = docward::document::document(|w| w.value("v", value));
    Bsons::from_reader(written.as_slice()).unwrap().remove("v").unwrap()
}
