//! Eight writers read a document, add their own mark, and save the whole document. Under `policy: check_version` the
//! final document has every acknowledged mark, and every lost race was reported; the same run without the rule loses
//! marks.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::{Document, doc};
use mongodb::error::Error;
use mongodb::{Collection, Database};
use tokio::task::JoinSet;

use super::views;
use support::driver::{Views, code, scaled, write_errors};
use support::mongod::Mongod;
use support::proxy::Docward;

const WRITERS: u32 = 8;
const WRITE_CONFLICT: i32 = 112;

/// The results that the writers got, and the final document.
#[derive(Debug, Default)]
struct Outcome {
    acknowledged: BTreeSet<String>,
    reported: BTreeSet<String>,
    stored: Document,
}

impl Outcome {
    fn marks(&self) -> Vec<String> {
        let marks = self.stored.get_array("marks").unwrap();
        marks.iter().map(|mark| mark.as_str().unwrap().to_owned()).collect()
    }

    fn lost(&self) -> usize {
        let stored: BTreeSet<String> = self.marks().into_iter().collect();
        self.acknowledged.difference(&stored).count()
    }
}

/// Saves the whole document in one of an application's ways; returns false if docward reported a lost race.
async fn save(database: &Database, collection: &str, way: u32, read: &Document) -> Result<bool, Error> {
    let shared: Collection<Document> = database.collection(collection);
    let filter = doc! { "_id": "shared" };
    let saved = match way % 4 {
        0 => shared.replace_one(filter, read).await.map(|result| assert_eq!(result.matched_count, 1)),
        1 => shared.find_one_and_replace(filter, read).await.map(|before| assert!(before.is_some())),
        _ => {
            // Unrelated statements around it in the same batch.
            let count = || doc! { "q": { "_id": "count" }, "u": { "$inc": { "n": 1 } }, "upsert": true };
            let updates = vec![count(), doc! { "q": filter, "u": read }, count()];
            let ordered = way % 4 == 2;
            let reply = database.run_command(doc! { "update": collection, "updates": updates, "ordered": ordered });
            let reply = reply.await?;
            let errors = write_errors(&reply);
            assert!(errors.iter().all(|error| *error == (1, WRITE_CONFLICT)), "{reply}");
            let went_on = if errors.is_empty() || !ordered { 2 } else { 1 };
            assert_eq!(reply.get_i32("n").unwrap(), went_on + i32::from(errors.is_empty()), "{reply}");
            return Ok(errors.is_empty());
        }
    };
    match saved {
        Ok(()) => Ok(true),
        Err(error) if code(&error) == WRITE_CONFLICT => Ok(false),
        Err(error) => Err(error),
    }
}

async fn race(views: &Views, collection: &'static str, rounds: u32) -> Outcome {
    views.store(collection, [doc! { "_id": "shared", "marks": [] }, doc! { "_id": "count", "n": 0 }]).await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let database = views.through.clone();
        writers.spawn(async move {
            let shared: Collection<Document> = database.collection(collection);
            let (mut acknowledged, mut reported) = (BTreeSet::new(), BTreeSet::new());
            for round in 0..rounds {
                for attempt in 0.. {
                    let mark = format!("{writer}.{round}.{attempt}");
                    let mut read = shared.find_one(doc! { "_id": "shared" }).await.unwrap().unwrap();
                    read.get_array_mut("marks").unwrap().push(mark.clone().into());
                    tokio::time::sleep(Duration::from_millis(u64::from(writer % 3))).await;
                    if save(&database, collection, writer + round, &read).await.unwrap() {
                        acknowledged.insert(mark);
                        break;
                    }
                    reported.insert(mark);
                }
            }
            (acknowledged, reported)
        });
    }
    let mut outcome = Outcome::default();
    while let Some(marks) = writers.join_next().await {
        let (acknowledged, reported) = marks.unwrap();
        outcome.acknowledged.extend(acknowledged);
        outcome.reported.extend(reported);
    }
    outcome.stored = views.stored(collection).await.pop().unwrap();
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_replacement_is_lost() {
    let rounds = scaled(15);
    let outcome = race(&views().await, "checking", rounds).await;
    let (marks, distinct): (Vec<_>, BTreeSet<_>) = (outcome.marks(), outcome.marks().into_iter().collect());
    assert_eq!(distinct, outcome.acknowledged);
    assert_eq!(marks.len(), distinct.len(), "a write was applied twice: {marks:?}");
    assert!(!outcome.reported.is_empty(), "no race was lost");
    assert_eq!(outcome.stored.get_i32("version").unwrap(), (WRITERS * rounds) as i32);
}

/// Shows that the rule is needed. A single run may succeed by chance; ten do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_rule_acknowledged_replacements_are_lost() {
    let bare = Docward::start(Mongod::shared(), "");
    let mut lost = 0;
    for _ in 0..10 {
        let outcome = race(&Views::of(Mongod::shared(), &bare).await, "checking", 5).await;
        assert!(outcome.reported.is_empty(), "a conflict was reported without a rule: {outcome:?}");
        lost += outcome.lost();
        if lost > 0 {
            return;
        }
    }
    panic!("no write was lost in ten runs");
}
