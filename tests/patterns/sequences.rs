//! The pattern `sequence` in front of a real mongod, through the official driver. `race`: sixteen writers over two
//! docward processes get no number twice, even if processes are killed; `optimistic`: the same without a counter;
//! `examples`: each setting; `provided`: numbers that clients set themselves; `kept`: replacements and upserts;
//! `restored`: a restore through docward. The protected collections have a unique index only if the strategy needs one,
//! so that duplicates would show. `$DOCWARD_TEST_SCALE` makes it run longer (`support::driver::scaled`).

mod examples;
mod kept;
mod optimistic;
mod provided;
mod race;
mod restored;

use std::sync::OnceLock;

use bson::{Bson, Document, doc};
use mongodb::error::Error;
use mongodb::options::IndexOptions;
use mongodb::{Collection, Database, IndexModel};
use support::driver::{Views, write_errors};
use support::mongod::Mongod;
use support::proxy::Docward;

/// One rule for each setting, with the name of its collection.
const RULES: &str = r#"
version: 1
rules:
  - { name: single, namespace: "*.single", sequence: { field: no, counter: single } }
  - { name: blocks, namespace: "*.blocks", sequence: { field: no, counter: blocks, block: 50 } }
  - { name: later, namespace: "*.later", sequence: { field: no, counter: later, start: 1000, collection: numbers } }
  - { name: behind, namespace: "*.behind", sequence: { field: meta.no, counter: behind, start: after_max } }
  - { name: left, namespace: "*.left", sequence: { field: no, counter: both, start: after_max } }
  - { name: right, namespace: "*.right", sequence: { field: meta.no, counter: both, start: 50 } }
  - { name: parts, namespace: "*.part-*", sequence: { field: no, counter: parts, start: after_max } }
  - { name: upserting, namespace: "*.upserting", sequence: { field: no, counter: upserting, on_upsert: true } }
  - { name: ids, namespace: "*.ids", sequence: { field: _id, counter: ids, replace_generated: true } }
  - { name: nested, namespace: "*.nested", sequence: { field: a.n, counter: nested, on_upsert: true } }
  - { name: plain, namespace: "*.plain", sequence: { field: no, counter: plain } }
  - { name: strict, namespace: "*.strict", sequence: { field: no, counter: strict, on_upsert: true, provided: reject } }
  - { name: own, namespace: "*.own", sequence: { field: no, counter: own, on_upsert: true, provided: replace } }
  - { name: timestamped-numbers, namespace: "*.timestamped", sequence: { field: no, counter: timestamped, on_upsert: true } }
  - { name: timestamped, namespace: "*.timestamped", timestamps: { source: t, type: long, per: document } }
  - { name: versioned-numbers, namespace: "*.versioned", sequence: { field: no, counter: versioned, on_upsert: true } }
  - { name: versioned, namespace: "*.versioned", replacement: { policy: check_version, version: version } }
  - { name: optimistic, namespace: "*.optimistic", sequence: { field: no, strategy: optimistic } }
"#;

fn start() -> Docward {
    Docward::before(&Mongod::shared().uri()).rules(RULES).environment("RUST_LOG", "warn").start()
}

/// One docward for the tests that do not kill theirs.
fn docward() -> &'static Docward {
    static DOCWARD: OnceLock<Docward> = OnceLock::new();
    DOCWARD.get_or_init(start)
}

async fn views() -> Views {
    Views::of(Mongod::shared(), docward()).await
}

fn numbers(documents: &[Document]) -> Vec<i64> {
    let number = |document: &Document| match document.get("no") {
        Some(Bson::Int32(number)) => i64::from(*number),
        Some(Bson::Int64(number)) => *number,
        other => panic!("{other:?} in {document}"),
    };
    documents.iter().map(number).collect()
}

/// The index that the optimistic strategy needs.
fn unique_index() -> IndexModel {
    let unique = IndexOptions::builder().unique(true).build();
    IndexModel::builder().keys(doc! { "no": 1 }).options(unique).build()
}

/// The numbers, sorted; panics if one occurs twice.
fn unique(documents: &[Document]) -> Vec<i64> {
    let mut numbers = numbers(documents);
    numbers.sort_unstable();
    let repeated: Vec<_> = numbers.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(repeated.is_empty(), "assigned twice: {repeated:?}");
    numbers
}

/// One insert in one of an application's ways; returns the `_id`s of the acknowledged documents.
async fn insert(database: &Database, collection: &str, writer: u32, round: u32) -> Result<Vec<String>, Error> {
    let documents: Collection<Document> = database.collection(collection);
    let batch = |size: u32| (0..size).map(|n| format!("{writer}.{round}.{n}")).collect::<Vec<_>>();
    let of = |ids: &[String]| ids.iter().map(|id| doc! { "_id": id }).collect::<Vec<_>>();
    let ids = batch([1, 3, 5][(round % 3) as usize]);
    match round % 3 {
        0 => documents.insert_one(doc! { "_id": &ids[0] }).await.map(drop)?,
        1 => documents.insert_many(of(&ids)).ordered(writer.is_multiple_of(2)).await.map(drop)?,
        _ => {
            let command = doc! { "insert": collection, "documents": of(&ids), "ordered": false };
            let reply = database.run_command(command).await?;
            assert_eq!(write_errors(&reply), [], "{reply}");
        }
    }
    Ok(ids)
}
