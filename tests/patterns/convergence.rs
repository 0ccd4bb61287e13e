//! The guarantee of `timestamps`: timestamped updates that are delivered in any order and any number of times, by
//! eight concurrent writers and through every kind of write, result in the document that the source-time order gives.
//! `Case::expected` is an independent model; nothing here uses docward's code. `$DOCWARD_TEST_SCALE` makes it run
//! longer (`support::driver::scaled`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use bson::{Bson, Document, doc};
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR};
use mongodb::{Collection, Database};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use support::driver::{scaled, write_errors};
use support::mongod::Mongod;
use support::proxy::Docward;

const WRITERS: usize = 8;
/// Distinguishes the documents of all cases.
static NEXT_ID: AtomicI64 = AtomicI64::new(1);

/// A rule under test, with the name of its collection.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    settings: &'static str,
    /// The paths that the case writes, apart from the source time `at`.
    registers: &'static [&'static str],
    /// Whether writes are whole documents.
    whole: bool,
    timestamp: fn(i64) -> Bson,
}

const PER_FIELD: Kind = Kind {
    name: "per_field",
    settings: "source: at",
    registers: &["a", "b", "c"],
    whole: false,
    timestamp: |time| Bson::DateTime(bson::DateTime::from_millis(1_000_000 + time)),
};
const PATHS: Kind = Kind {
    name: "paths",
    settings: "source: at, type: long, fields: [a, n.b, n.c, d.x.y], store: timestamps",
    registers: &["a", "n.b", "n.c", "d.x.y"],
    whole: false,
    timestamp: Bson::Int64,
};
const PER_DOCUMENT: Kind = Kind {
    name: "per_document",
    settings: "source: at, type: timestamp, per: document",
    registers: &["a", "b", "c"],
    whole: true,
    timestamp: |time| Bson::Timestamp(bson::Timestamp { time: 7, increment: time as u32 + 1 }),
};
const KINDS: [Kind; 3] = [PER_FIELD, PATHS, PER_DOCUMENT];

impl Kind {
    fn store(&self) -> &'static str {
        if self.settings.contains("store: timestamps") { "timestamps" } else { "last_modified" }
    }
}

/// How writes are sent.
#[derive(Clone, Copy, Debug)]
enum Transport {
    Single,
    FindAndModify,
    Ordered,
    Unordered,
    Transaction,
}

/// For each event, the value that it sets in each field, or that it unsets the field.
type Writes = BTreeMap<&'static str, Option<Bson>>;

#[derive(Clone, Debug)]
struct Case {
    /// In source-time order; an event's time is its index.
    history: Vec<Writes>,
    /// Whether the first event is an insert that arrives before all others.
    inserted: bool,
    /// Indexes of events, each at least once.
    deliveries: Vec<usize>,
    /// How the deliveries are split into batches.
    transports: Vec<(Transport, usize)>,
}

impl Case {
    /// The result of applying the events in the order of their times.
    fn expected(&self, kind: Kind, id: i64) -> Document {
        let (mut document, mut timestamps) = (doc! { "_id": id }, Document::new());
        for (time, writes) in self.history.iter().enumerate() {
            let time = (kind.timestamp)(time as i64);
            if kind.whole {
                document = replacement(writes, id, time.clone());
                document.insert(kind.store(), time);
                continue;
            }
            for (path, value) in writes.iter().map(|(path, value)| (*path, value)).chain([("at", &Some(time.clone()))])
            {
                match value {
                    Some(value) => set(&mut document, path, value.clone()),
                    None => unset(&mut document, path),
                }
                // An insert timestamps its fields.
                if value.is_some() || !(self.inserted && time == (kind.timestamp)(0)) {
                    set(&mut timestamps, path, time.clone());
                }
            }
        }
        if !kind.whole {
            document.insert(kind.store(), timestamps);
        }
        document
    }

    /// The deliveries as the writers send them.
    fn parcels(&self) -> Vec<(Transport, Vec<usize>)> {
        let mut parcels = Vec::new();
        let mut left = self.deliveries.as_slice();
        for (transport, size) in self.transports.iter().cycle() {
            if left.is_empty() {
                break;
            }
            let (parcel, rest) = left.split_at((*size).min(left.len()));
            parcels.push((*transport, parcel.to_vec()));
            left = rest;
        }
        parcels
    }
}

fn set(document: &mut Document, path: &str, value: Bson) {
    match path.split_once('.') {
        None => drop(document.insert(path, value)),
        Some((name, below)) => {
            let nested = document.entry(name.to_owned()).or_insert_with(|| Bson::Document(Document::new()));
            set(nested.as_document_mut().unwrap(), below, value);
        }
    }
}

/// Like the operator, creates no documents on the path.
fn unset(document: &mut Document, path: &str) {
    match path.split_once('.') {
        None => drop(document.remove(path)),
        Some((name, below)) => {
            if let Ok(nested) = document.get_document_mut(name) {
                unset(nested, below);
            }
        }
    }
}

fn replacement(writes: &Writes, id: i64, time: Bson) -> Document {
    let mut document = doc! { "_id": id, "at": time };
    for (path, value) in writes {
        if let Some(value) = value {
            set(&mut document, path, value.clone());
        }
    }
    document
}

/// The operators, or the replacement, of an event.
fn modification(kind: Kind, writes: &Writes, id: i64, time: Bson) -> Document {
    if kind.whole {
        return replacement(writes, id, time);
    }
    let (mut sets, mut unsets) = (doc! { "at": time }, Document::new());
    for (path, value) in writes {
        match value {
            Some(value) => drop(sets.insert(*path, value.clone())),
            None => drop(unsets.insert(*path, "")),
        }
    }
    let mut update = doc! { "$set": sets };
    if !unsets.is_empty() {
        update.insert("$unset", unsets);
    }
    update
}

fn values() -> impl Strategy<Value = Bson> {
    prop_oneof![
        4 => (0..1000i32).prop_map(Bson::Int32),
        1 => Just(Bson::Null),
        1 => "[$a-c.]{0,4}".prop_map(Bson::String),
        1 => (0..9i32).prop_map(|n| Bson::Document(doc! { "x": n, "$y": "$a" })),
        1 => vec(0..9i32, 0..3).prop_map(Bson::from),
    ]
}

fn writes(kind: Kind) -> impl Strategy<Value = Writes> {
    let chosen = subsequence(kind.registers, 1..=kind.registers.len());
    chosen.prop_flat_map(|paths| {
        let values = vec(proptest::option::weighted(0.8, values()), paths.len());
        values.prop_map(move |values| paths.iter().copied().zip(values).collect())
    })
}

fn cases(kind: Kind) -> impl Strategy<Value = Case> {
    let transport = prop_oneof![
        2 => Just(Transport::Single),
        1 => Just(Transport::FindAndModify),
        1 => Just(Transport::Ordered),
        1 => Just(Transport::Unordered),
        1 => Just(Transport::Transaction),
    ];
    let parts =
        (vec(writes(kind), 2..16), any::<bool>(), vec(any::<Index>(), 0..16), vec((transport, 1..5usize), 1..8));
    parts.prop_flat_map(|(history, inserted, repeated, transports)| {
        let repeated = repeated.iter().map(|index| index.index(history.len()));
        let deliveries: Vec<usize> = (0..history.len()).chain(repeated).collect();
        // The insert has arrived already, and is not repeated.
        let deliveries: Vec<usize> = deliveries.into_iter().filter(|event| !inserted || *event > 0).collect();
        (Just(history), Just(inserted), Just(deliveries).prop_shuffle(), Just(transports))
            .prop_map(|(history, inserted, deliveries, transports)| Case { history, inserted, deliveries, transports })
    })
}

/// Sends one batch in one writer's way. A transaction that the server asks to repeat is repeated.
async fn send(
    database: &Database,
    kind: Kind,
    id: i64,
    transport: Transport,
    updates: Vec<Document>,
) -> Result<(), Error> {
    let collection: Collection<Document> = database.collection(kind.name);
    let filter = doc! { "_id": id };
    match transport {
        Transport::Single => {
            for update in updates {
                match kind.whole {
                    true => collection.replace_one(filter.clone(), update).upsert(true).await?,
                    false => collection.update_one(filter.clone(), update).upsert(true).await?,
                };
            }
        }
        Transport::FindAndModify => {
            for update in updates {
                match kind.whole {
                    true => collection.find_one_and_replace(filter.clone(), update).upsert(true).await?,
                    false => collection.find_one_and_update(filter.clone(), update).upsert(true).await?,
                };
            }
        }
        Transport::Ordered | Transport::Unordered => {
            let updates: Vec<_> = updates.iter().map(|u| doc! { "q": &filter, "u": u, "upsert": true }).collect();
            let ordered = matches!(transport, Transport::Ordered);
            let command = doc! { "update": kind.name, "updates": &updates, "ordered": ordered };
            let reply = database.run_command(command).await?;
            assert_eq!(write_errors(&reply), [], "{reply}");
            assert_eq!(reply.get_i32("n").unwrap() as usize, updates.len(), "{reply}");
        }
        Transport::Transaction => {
            let mut session = database.client().start_session().await?;
            let body = async |session: &mut mongodb::ClientSession| {
                session.start_transaction().await?;
                for update in &updates {
                    match kind.whole {
                        true => {
                            collection.replace_one(filter.clone(), update).upsert(true).session(&mut *session).await?
                        }
                        false => {
                            collection
                                .update_one(filter.clone(), update.clone())
                                .upsert(true)
                                .session(&mut *session)
                                .await?
                        }
                    };
                }
                session.commit_transaction().await
            };
            while let Err(error) = body(&mut session).await {
                if !error.contains_label(TRANSIENT_TRANSACTION_ERROR) {
                    return Err(error);
                }
                let _ = session.abort_transaction().await;
            }
        }
    }
    Ok(())
}

/// Delivers a case by concurrent writers and returns the stored document.
async fn deliver(database: &Database, kind: Kind, case: &Case, id: i64) -> Result<Document, Error> {
    let collection: Collection<Document> = database.collection(kind.name);
    if case.inserted {
        collection.insert_one(replacement(&case.history[0], id, (kind.timestamp)(0))).await?;
    }
    let mut writers: tokio::task::JoinSet<Result<(), Error>> = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (database, case) = (database.clone(), case.clone());
        writers.spawn(async move {
            for (transport, events) in case.parcels().into_iter().skip(writer).step_by(WRITERS) {
                let update =
                    |event: usize| modification(kind, &case.history[event], id, (kind.timestamp)(event as i64));
                send(&database, kind, id, transport, events.into_iter().map(update).collect()).await?;
            }
            Ok(())
        });
    }
    while let Some(outcome) = writers.join_next().await {
        outcome.unwrap()?;
    }
    Ok(collection.find_one(doc! { "_id": id }).await?.unwrap_or_default())
}

/// docward with the rules of all kinds in front of the shared mongod, and a database with their collections.
struct Fixture {
    runtime: tokio::runtime::Runtime,
    _docward: Docward,
    database: Database,
}

impl Fixture {
    fn new(protected: bool) -> Fixture {
        let rule = |kind: &Kind| {
            format!(
                "  - {{name: {}, namespace: \"*.{}\", timestamps: {{{}}}}}\n",
                kind.name.replace('_', "-"),
                kind.name,
                kind.settings
            )
        };
        let rules: String = KINDS.iter().map(rule).collect();
        let rules = if protected { format!("version: 1\nrules:\n{rules}") } else { String::new() };
        // At the level info, docward logs every rewrite.
        let docward = Docward::before(&Mongod::shared().uri()).rules(&rules).environment("RUST_LOG", "warn").start();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let database = runtime.block_on(async {
            let database = docward.client().await.database(&Mongod::shared().fresh_database());
            // Transactions that all create the collection concurrently would only wait for each other.
            for kind in KINDS {
                database.create_collection(kind.name).await.unwrap();
            }
            database
        });
        Fixture { runtime, _docward: docward, database }
    }

    fn outcome(&self, kind: Kind, case: &Case) -> (Document, Result<Document, Error>) {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        (case.expected(kind, id), self.runtime.block_on(deliver(&self.database, kind, case, id)))
    }
}

fn converges(kind: Kind) {
    let fixture = Fixture::new(true);
    let config = Config { cases: scaled(60), failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    let outcome = TestRunner::new(config).run(&cases(kind), |case| {
        let (expected, stored) = fixture.outcome(kind, &case);
        let stored = stored.map_err(|error| TestCaseError::fail(format!("an error reached a client: {error}")))?;
        // Compares documents without regard to field order.
        prop_assert_eq!(stored, expected);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn fields_converge_with_one_timestamp_each() {
    converges(PER_FIELD);
}

#[test]
fn fields_converge_by_dotted_paths() {
    converges(PATHS);
}

#[test]
fn whole_documents_converge_by_one_timestamp() {
    converges(PER_DOCUMENT);
}

/// Delivered newest first; shows that convergence depends on the rule.
#[test]
fn the_same_history_diverges_without_the_rule() {
    let (protected, bare) = (Fixture::new(true), Fixture::new(false));
    for kind in KINDS {
        let path = kind.registers[0];
        let history = (0..6).map(|value| Writes::from([(path, Some(Bson::Int32(value)))])).collect();
        let case = Case {
            history,
            inserted: false,
            deliveries: (0..6).rev().collect(),
            transports: vec![(Transport::Ordered, 6)],
        };
        let (expected, stored) = protected.outcome(kind, &case);
        assert_eq!(stored.unwrap(), expected);
        let (expected, stored) = bare.outcome(kind, &case);
        assert_ne!(stored.unwrap().get(path), expected.get(path), "{} converged without its rule", kind.name);
    }
}

/// Of two events with one source time the later delivery wins, and may be repeated.
#[test]
fn an_event_with_the_stored_timestamp_wins() {
    let fixture = Fixture::new(true);
    for kind in KINDS {
        let collection: Collection<Document> = fixture.database.collection(kind.name);
        let (id, path) = (NEXT_ID.fetch_add(1, Ordering::Relaxed), kind.registers[0]);
        fixture.runtime.block_on(async {
            for (time, value, wins) in [(5, 1, 1), (5, 2, 2), (4, 3, 2), (5, 1, 1), (5, 1, 1), (6, 4, 4), (5, 5, 4)] {
                let update =
                    modification(kind, &Writes::from([(path, Some(Bson::Int32(value)))]), id, (kind.timestamp)(time));
                send(&fixture.database, kind, id, Transport::Single, vec![update]).await.unwrap();
                let stored = collection.find_one(doc! { "_id": id }).await.unwrap().unwrap();
                assert_eq!(stored.get_i32(path).unwrap(), wins, "{stored}");
            }
        });
    }
}
