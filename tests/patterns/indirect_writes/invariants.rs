//! No sequence of commands changes a protected collection in a way that its rule forbids. The test checks the stored
//! documents after every command, and never the replies. Without docward the same sequences break every invariant, so
//! the check can fail.

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};

use super::random::{COLLECTIONS, Generator, seeds, time};
use super::table::elsewhere;
use super::{Link, Setting, docward, mongod};
use support::driver::scaled;

/// Commands of one sequence.
const LENGTH: usize = 400;
const SEQUENCES: u32 = 3;
const BUCKET_LIMIT: usize = 5;

/// What is wrong with the stored documents, given those before the command.
fn violation(collection: &str, before: &[Document], after: &[Document]) -> Option<String> {
    let wrong = after.iter().find_map(|document| {
        let earlier = before.iter().find(|earlier| earlier.get("_id") == document.get("_id"));
        match collection {
            "bounded" => out_of_range(document),
            "pairs" => (document.get("a") != document.get("b")).then_some("a and b are not the same"),
            "invoices" => rewritten(earlier, document),
            "timestamped" => wrongly_timestamped(earlier, document),
            "jobs" => completed_with_wrong_attempt(earlier, document),
            "buckets" => overfull(document),
            "nodes" => misplaced(document, after),
            _ => None,
        }
        .map(|what| format!("{what}: {document}"))
    });
    let vanished = match collection {
        "readonly" => (after != seeds(collection)).then_some("it changed"),
        "blind" => seeds(collection)
            .iter()
            .any(|seed| !after.iter().any(|d| d.get("_id") == seed.get("_id") && d.get("keep") == seed.get("keep")))
            .then_some("a field of another's is gone"),
        _ => None,
    };
    wrong.or(vanished.map(str::to_owned))
}

fn out_of_range(document: &Document) -> Option<&'static str> {
    let fine = match document.get("n") {
        None => true,
        Some(Bson::Int32(n)) => (0..=10).contains(n),
        Some(Bson::Int64(n)) => (0..=10).contains(n),
        Some(Bson::Double(n)) => (0.0..=10.0).contains(n),
        Some(Bson::Decimal128(n)) => n.to_string().parse::<f64>().is_ok_and(|n| (0.0..=10.0).contains(&n)),
        Some(_) => false,
    };
    (!fine).then_some("n is out of range")
}

fn rewritten(earlier: Option<&Document>, document: &Document) -> Option<&'static str> {
    let stored = earlier.and_then(|earlier| earlier.get("a"));
    (stored.is_some() && stored != document.get("a")).then_some("a was written again")
}

/// Every writer sets `a` to the number of its source time.
fn wrongly_timestamped(earlier: Option<&Document>, document: &Document) -> Option<&'static str> {
    let timestamp = |document: &Document| document.get_document("last_modified").ok()?.get_datetime("a").ok().copied();
    let number = match document.get("a") {
        None => return None,
        Some(Bson::Int32(n)) => i64::from(*n),
        Some(Bson::Int64(n)) => *n,
        Some(_) => return Some("a is no number"),
    };
    if timestamp(document).map(Bson::DateTime) != Some(time(number)) {
        return Some("a does not have its time");
    }
    (earlier.and_then(timestamp) > timestamp(document)).then_some("the timestamp went back")
}

/// A worker that completes a job names the attempt that it claimed.
fn completed_with_wrong_attempt(earlier: Option<&Document>, document: &Document) -> Option<&'static str> {
    let number = |document: &Document, field: &str| document.get(field).and_then(Bson::as_i32);
    let attempt = number(document, "try");
    if attempt.is_none() {
        return Some("the attempt is gone");
    }
    if earlier.and_then(|earlier| number(earlier, "try")) > attempt {
        return Some("the attempt went back");
    }
    let done_again = earlier.is_some_and(|earlier| earlier.get("done_by") != document.get("done_by"));
    // No worker can lose a job that was never claimed: any statement may change it.
    let was_claimed = earlier.is_some_and(|earlier| {
        number(earlier, "try") > Some(0) || earlier.get("locked") != Some(&Bson::Boolean(false))
    });
    (done_again && was_claimed && number(document, "done_by") != attempt).then_some("a worker without the lease did it")
}

fn overfull(document: &Document) -> Option<&'static str> {
    let length = match document.get("list") {
        None => 0,
        Some(Bson::Array(list)) => list.len(),
        Some(_) => return Some("the list is none"),
    };
    let count = match document.get("n") {
        None => 0,
        Some(Bson::Int32(n)) => *n as usize,
        Some(Bson::Int64(n)) => *n as usize,
        Some(_) => return Some("the count is none"),
    };
    match (length > BUCKET_LIMIT, count != length) {
        (true, _) => Some("more than the limit"),
        (_, true) => Some("the count is wrong"),
        _ => None,
    }
}

fn misplaced(node: &Document, all: &[Document]) -> Option<&'static str> {
    let path = match node.get("parent") {
        None | Some(Bson::Null) => Bson::Null,
        Some(parent) => {
            let Some(above) = all.iter().find(|above| above.get("_id") == Some(parent)) else {
                return Some("there is no such parent");
            };
            let parent = parent.as_str().unwrap_or("?");
            match above.get("path") {
                Some(Bson::String(path)) => format!("{path}{parent},").into(),
                _ => format!(",{parent},").into(),
            }
        }
    };
    let stored = node.get("path").cloned().unwrap_or(Bson::Null);
    (stored != path).then_some("the path is not the parent's")
}

/// Sends one sequence over `link`; counts the violations of each collection, or fails the test.
fn run(setting: &mut Setting, link: &mut Link, seed: u64, allowed: bool) -> BTreeMap<&'static str, usize> {
    let mut generator = Generator::new(seed, &setting.database);
    let mut stored: BTreeMap<&str, Vec<Document>> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for collection in COLLECTIONS {
        setting.seed(collection, seeds(collection));
        stored.insert(collection, setting.stored(collection));
        assert_eq!(violation(collection, &stored[collection], &stored[collection]), None, "the seeds of {collection}");
    }
    for index in 0..LENGTH {
        restore_sources(setting, index);
        let command = generator.next(|collection| uuid_of(setting, collection));
        link.deliver(&command.frames);
        let collection = command.collection;
        let after = setting.stored(collection);
        let found = violation(collection, &stored[collection], &after);
        if let Some(what) = &found {
            *counts.entry(collection).or_default() += 1;
            let bytes: String = command.frames.concat().iter().map(|byte| format!("{byte:02x}")).collect();
            let report = format!("seed {seed}, command {index} on {collection}: {}\n{what}\n", command.name);
            assert!(allowed, "{report}before: {:?}\nafter: {after:?}\nframes: {bytes}", stored[collection]);
        }
        let after = if found.is_some() || after.len() < 2 {
            setting.seed(collection, seeds(collection));
            setting.stored(collection)
        } else {
            after
        };
        stored.insert(collection, after);
    }
    counts
}

/// Restores the documents that indirect writes read; some of them remove the source.
pub(super) fn restore_sources(setting: &mut Setting, index: usize) {
    if index.is_multiple_of(20) {
        let source = || vec![doc! { "_id": 1, "stolen": true }, doc! { "_id": 3 }];
        setting.seed("source", source());
        setting.direct.command(&elsewhere(&setting.database), doc! { "insert": "source", "documents": source() });
    }
}

/// Null if the collection does not exist at the moment.
pub(super) fn uuid_of(setting: &mut Setting, collection: &str) -> Bson {
    let command = doc! { "listCollections": 1, "filter": { "name": collection } };
    let reply = setting.direct.command(&setting.database, command);
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let info = batch.first().and_then(Bson::as_document).and_then(|entry| entry.get_document("info").ok());
    info.and_then(|info| info.get("uuid").cloned()).unwrap_or(Bson::Null)
}

/// `DOCWARD_TEST_SEED` gives other seeds, to search for new failures.
pub(super) fn first_seed() -> u64 {
    std::env::var("DOCWARD_TEST_SEED").map_or(1, |text| text.parse().unwrap())
}

#[test]
fn no_sequence_of_commands_breaks_an_invariant() {
    for seed in 0..u64::from(scaled(SEQUENCES)) {
        let mut setting = Setting::new();
        run(&mut setting, &mut Link::new(docward().address()), first_seed() + seed, false);
    }
}

#[test]
fn without_docward_the_same_sequences_break_every_invariant() {
    let mut broken = BTreeMap::new();
    for seed in 0..u64::from(SEQUENCES) {
        let mut setting = Setting::new();
        for (collection, count) in run(&mut setting, &mut Link::new(mongod().address()), 1 + seed, true) {
            *broken.entry(collection).or_insert(0) += count;
        }
    }
    for collection in COLLECTIONS {
        let count = broken.get(collection).copied().unwrap_or(0);
        assert!(count >= 5, "{collection} was broken {count} times: these sequences show little");
    }
}
