//! Batches of replacements for which docward looks up whether documents match: many statements need few commands, and
//! each has the same result as alone.

use bson::{Document, doc};

use super::RULES;
use support::driver::{scaled, write_errors};
use support::mongod::{Kind, Mongod};
use support::proxy::Docward;
use support::random::Random;
use support::raw::Client;

/// The number of commands of this kind that the server has received.
fn commands(mongod: &Mongod, name: &str) -> i64 {
    let status = mongod.command("admin", doc! { "serverStatus": 1 });
    let of_kind = status.get_document("metrics").unwrap().get_document("commands").unwrap().get_document(name);
    of_kind.unwrap().get_i64("total").unwrap()
}

#[test]
fn a_thousand_statements_take_few_commands() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    let docward = Docward::start(&mongod, RULES);
    let documents: Vec<Document> = (0..1000).step_by(2).map(|id| doc! { "_id": id, "a": id }).collect();
    mongod.command("d", doc! { "insert": "strict", "documents": documents });
    let mut client = Client::connect(&docward.address());
    let mut number = 0i64;
    for upsert in [false, true] {
        // All upserts match a document.
        let id = |index: i32| if upsert { index / 2 * 2 } else { index };
        let statement = |index| doc! { "q": { "_id": id(index) }, "u": { "b": 1 }, "upsert": upsert };
        let updates: Vec<Document> = (0..1000).map(statement).collect();
        let before = commands(&mongod, "find") + commands(&mongod, "update");
        number += 1;
        let session = doc! { "id": bson::Uuid::from_bytes([7; 16]) };
        let batch =
            doc! { "update": "strict", "updates": updates, "ordered": false, "lsid": session, "txnNumber": number };
        let reply = client.command("d", batch);
        let taken = commands(&mongod, "find") + commands(&mongod, "update") - before;
        assert!(taken <= 30, "{taken} commands");
        let rejected: Vec<(i32, i32)> =
            (0..1000).filter(|index| upsert || index % 2 == 0).map(|index| (index, 121)).collect();
        assert_eq!((reply.get_i32("n").unwrap(), write_errors(&reply)), (0, rejected));
    }
    let replaced = doc! { "count": "strict", "query": { "b": { "$exists": true } } };
    assert_eq!(mongod.command("d", replaced).get_i32("n").unwrap(), 0);
}

/// A statement of an application; whether some of them match depends on earlier statements.
fn statement(random: &mut Random) -> Document {
    let number = random.below(12) as i32;
    let filter = match random.below(24) {
        0..8 => doc! { "_id": number },
        8..14 => doc! { "k": number },
        14 => doc! {},
        15 => doc! { "$bad": 1 },
        16 => doc! { "$where": format!("this.k == {number}") },
        17 => doc! { "$expr": { "$eq": ["$k", "$$wanted"] } },
        18 => doc! { "$expr": { "$eq": ["$k", "$$unknown"] } },
        19 => doc! { "_id": number, "at": { "$near": [0, 0] } },
        20 => doc! { "$or": [{ "_id": number }, { "k": number }] },
        _ => doc! { "name": (if number < 6 { "ADA" } else { "BOB" }) },
    };
    let has_equality = filter.contains_key("_id") || filter.contains_key("k");
    let inserted = match filter.get("k") {
        Some(k) => doc! { "k": k.clone(), "by": random.below(100) as i32 },
        None => doc! { "name": "Ada", "by": random.below(100) as i32 },
    };
    let mut statement = doc! { "q": filter, "u": inserted };
    if has_equality && random.below(3) == 0 {
        statement.insert("upsert", true);
    }
    match random.below(12) {
        0 => _ = statement.insert("hint", doc! { "_id": 1 }),
        1 => _ = statement.insert("hint", "nowhere"),
        2 | 3 => _ = statement.insert("collation", doc! { "locale": "en", "strength": 1 }),
        4 => _ = statement.insert("collation", doc! { "locale": "nowhere" }),
        5 => statement = doc! { "q": { "_id": number }, "u": { "$set": { "k": random.below(12) as i32 } } },
        6 => statement = doc! { "q": { "_id": number }, "u": { "$set": { "k": 3 } }, "upsert": true },
        _ => {}
    }
    statement
}

/// The result: `n`, the indexes of inserts, and the errors' indexes and codes.
type Outcome = (i32, Vec<i32>, Vec<(i32, i32)>);

fn outcome(reply: &Document) -> Outcome {
    let upserted = reply.get_array("upserted").cloned().unwrap_or_default();
    let places = upserted.iter().map(|entry| entry.as_document().unwrap().get_i32("index").unwrap()).collect();
    (reply.get_i32("n").unwrap_or_else(|_| panic!("{reply}")), places, write_errors(reply))
}

/// Removes `_id`s that the server makes.
fn stored(mongod: &Mongod, database: &str) -> Vec<Document> {
    let find = doc! { "find": "strict", "sort": { "by": 1, "k": 1, "_id": 1 }, "batchSize": 1000 };
    let reply = mongod.command(database, find);
    let found = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let mut found: Vec<Document> = found.iter().map(|one| one.as_document().unwrap().clone()).collect();
    found.iter_mut().filter(|one| one.get_object_id("_id").is_ok()).for_each(|one| _ = one.remove("_id"));
    found
}

struct Lab<'t> {
    mongod: &'t Mongod,
    client: Client,
    session: Document,
    number: i64,
}

impl Lab<'_> {
    fn prepare(&self) -> String {
        let database = self.mongod.fresh_database();
        let documents: Vec<Document> =
            (0..6).map(|id| doc! { "_id": id, "k": id + 3, "name": "Ada", "by": 1000 + id }).collect();
        self.mongod.command(&database, doc! { "insert": "strict", "documents": documents });
        database
    }

    fn update(&mut self, database: &str, updates: &[Document], ordered: bool, retryable: bool) -> Document {
        let mut command = doc! { "update": "strict", "updates": updates, "ordered": ordered, "let": { "wanted": 4 } };
        if retryable {
            self.number += 1;
            command.extend(doc! { "lsid": self.session.clone(), "txnNumber": self.number });
        }
        self.client.command(database, command)
    }

    /// Sends the same statements one after the other, each in its own command.
    fn one_by_one(&mut self, updates: &[Document], ordered: bool, retryable: bool) -> (Outcome, Vec<Document>) {
        let database = self.prepare();
        let (mut n, mut upserted, mut errors) = (0, Vec::new(), Vec::new());
        for (place, update) in updates.iter().enumerate() {
            let reply = self.update(&database, std::slice::from_ref(update), ordered, retryable);
            let place = place as i32;
            let (one, inserts, failed) = match reply.get_f64("ok").unwrap() {
                1.0 => outcome(&reply),
                // The error of docward's find becomes the statement's error.
                _ => (0, vec![], vec![(0, reply.get_i32("code").unwrap())]),
            };
            n += one;
            upserted.extend(inserts.iter().map(|_| place));
            errors.extend(failed.iter().map(|(_, code)| (place, *code)));
            if ordered && !failed.is_empty() {
                break;
            }
        }
        ((n, upserted, errors), stored(self.mongod, &database))
    }
}

#[test]
fn statements_in_batches_have_the_same_results_as_alone() {
    let mongod = Mongod::shared();
    let docward = Docward::start(mongod, RULES);
    let session = doc! { "id": bson::Uuid::new() };
    let mut lab = Lab { mongod, client: Client::connect(&docward.address()), session, number: 0 };
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..scaled(40) {
        let (ordered, retryable) = (random.below(3) == 0, random.below(2) == 0);
        let updates: Vec<Document> = (0..2 + random.below(30)).map(|_| statement(&mut random)).collect();
        // In an unordered batch other statements may run before or after those with a lookup.
        let is_replacement = |update: &Document| !update.get_document("u").unwrap().contains_key("$set");
        let updates: Vec<Document> = updates.into_iter().filter(|one| ordered || is_replacement(one)).collect();
        let alone = lab.one_by_one(&updates, ordered, retryable);
        let database = lab.prepare();
        let reply = lab.update(&database, &updates, ordered, retryable);
        let together = (outcome(&reply), stored(mongod, &database));
        assert_eq!(together, alone, "round {round}, ordered {ordered}, retryable {retryable}: {updates:#?}");
    }
}

#[test]
fn a_retried_batch_gets_the_first_reply() {
    let mongod = Mongod::shared();
    let docward = Docward::start(mongod, RULES);
    let session = doc! { "id": bson::Uuid::new() };
    let mut lab = Lab { mongod, client: Client::connect(&docward.address()), session, number: 0 };
    for ordered in [false, true] {
        let database = lab.prepare();
        let upsert = |id: i32| doc! { "q": { "_id": id }, "u": { "by": id }, "upsert": true };
        // In an ordered batch no statement runs after the first rejected one.
        let rejected = if ordered { vec![] } else { vec![upsert(2), upsert(3)] };
        let updates: Vec<Document> = (50..60).map(upsert).chain(rejected).chain((60..70).map(upsert)).collect();
        let first = lab.update(&database, &updates, ordered, true);
        assert_eq!(first.get_i32("n").unwrap(), 20, "{first}");
        let stored_first = stored(mongod, &database);
        lab.number -= 1;
        let again = lab.update(&database, &updates, ordered, true);
        assert_eq!(outcome(&again), outcome(&first));
        assert_eq!(stored(mongod, &database), stored_first);
    }
}
