//! One writer of a history: operations through the official driver, as an application sends them, with the result of
//! each. Blocking, so that a workload reads like a script. The driver itself retries what is retryable.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bson::{Bson, Document, doc};
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::{ReturnDocument, UpdateModifications};
use mongodb::results::UpdateResult;
use mongodb::{Collection, Database};
use tokio::runtime::Handle;

use crate::journal::Outcome;
use crate::workload::{server_code, short};
use support::random::Random;

/// The result of an operation.
#[derive(Clone, Debug)]
pub(super) struct ClientOutcome {
    pub(super) outcome: Outcome,
    /// The document that a findAndModify returned.
    pub(super) document: Option<Document>,
    /// The driver's error for a failed operation.
    pub(super) error: Option<String>,
}

/// One operation of a history.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) kind: &'static str,
    /// Unique texts that the operation writes; empty if it writes none.
    pub(super) tokens: Vec<String>,
    /// Data for the workload's checker.
    pub(super) details: Document,
    pub(super) writer: usize,
    pub(super) reply: ClientOutcome,
    pub(super) began: Instant,
    pub(super) ended: Instant,
}

/// A writer at work.
pub(super) struct Writer {
    /// Less than `WRITERS`; equal to it for the writer that works after the events.
    pub(super) number: usize,
    /// Whether it writes through docward.
    pub(super) is_protected: bool,
    pub(super) history: Vec<Operation>,
    database: Database,
    /// The workload's first collection.
    name: &'static str,
    runtime: Handle,
    random: Random,
    count: usize,
}

impl Writer {
    pub(super) fn new(
        number: usize,
        database: Database,
        name: &'static str,
        runtime: Handle,
        seed: u64,
        is_protected: bool,
    ) -> Writer {
        // Mixed, because neighbouring small seeds give similar numbers.
        let seed = (seed ^ (number as u64 + 1) << 32 ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Writer { number, is_protected, history: Vec::new(), database, name, runtime, random: Random(seed), count: 0 }
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit)
    }

    /// A text that no other operation of the history uses.
    pub(super) fn token(&mut self) -> String {
        self.count += 1;
        format!("w{}-{}", self.number, self.count)
    }

    /// A source time that no other operation of the history uses, up to 50 ms in the past.
    pub(super) fn time(&mut self) -> i64 {
        self.count += 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
        let late = now - self.below(50) as i64;
        (late * 1000 + self.count as i64 % 1000) * 16 + self.number as i64
    }

    /// Runs an operation and adds it to the history.
    pub(super) fn record(
        &mut self,
        kind: &'static str,
        tokens: impl IntoIterator<Item = String>,
        details: Document,
        operate: impl FnOnce(&Writer) -> ClientOutcome,
    ) -> ClientOutcome {
        let began = Instant::now();
        let reply = operate(self);
        self.history.push(Operation {
            kind,
            tokens: tokens.into_iter().collect(),
            details,
            writer: self.number,
            reply: reply.clone(),
            began,
            ended: Instant::now(),
        });
        reply
    }

    /// One `insertOne` or one ordered `insertMany`.
    pub(super) fn insert(&self, collection: &str, documents: impl IntoIterator<Item = Document>) -> ClientOutcome {
        let mut documents: Vec<Document> = documents.into_iter().collect();
        let collection = self.collection(collection);
        let inserted = match documents.len() {
            1 => self.wait(async { collection.insert_one(documents.remove(0)).await.map(drop) }),
            _ => self.wait(async { collection.insert_many(documents).await.map(drop) }),
        };
        ClientOutcome::of(inserted.map(|()| true))
    }

    pub(super) fn update(&self, filter: Document, change: impl Into<UpdateModifications>) -> ClientOutcome {
        self.update_in(self.name, filter, change)
    }

    pub(super) fn update_in(
        &self,
        collection: &str,
        filter: Document,
        change: impl Into<UpdateModifications>,
    ) -> ClientOutcome {
        let update = self.collection(collection);
        let updated = self.wait(async { update.update_one(filter, change).await });
        ClientOutcome::of(updated.map(has_written))
    }

    /// Several updates in one transaction, which aborts if one of them matches nothing or fails.
    pub(super) fn update_together(&self, updates: impl IntoIterator<Item = (Document, Document)>) -> ClientOutcome {
        let collection = self.collection(self.name);
        self.wait(async {
            let mut session = match collection.client().start_session().await {
                Ok(session) => session,
                Err(error) => return ClientOutcome::of(Err(error)),
            };
            session.start_transaction().await.unwrap();
            for (filter, change) in updates {
                let updated = collection.update_one(filter, change).session(&mut session).await;
                if !updated.as_ref().is_ok_and(|updated| updated.matched_count > 0) {
                    let _ = session.abort_transaction().await;
                    let error = updated.err().map(|error| short(&error));
                    return ClientOutcome { outcome: Outcome::Rejected, document: None, error };
                }
            }
            loop {
                match session.commit_transaction().await {
                    Err(error) if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) => {}
                    Err(error) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) => {
                        return ClientOutcome::of(Ok(false));
                    }
                    result => return ClientOutcome::of(result.map(|()| true)),
                }
            }
        })
    }

    pub(super) fn update_many(&self, filter: Document, change: Document) -> ClientOutcome {
        let update = self.collection(self.name);
        let updated = self.wait(async { update.update_many(filter, change).await });
        ClientOutcome::of(updated.map(has_written))
    }

    /// `updateOne` with `upsert: true`.
    pub(super) fn upsert(&self, filter: Document, change: Document) -> ClientOutcome {
        let update = self.collection(self.name);
        let updated = self.wait(async { update.update_one(filter, change).upsert(true).await });
        ClientOutcome::of(updated.map(has_written))
    }

    pub(super) fn replace(&self, filter: Document, document: Document, upsert: bool) -> ClientOutcome {
        let update = self.collection(self.name);
        let replaced = self.wait(async { update.replace_one(filter, document).upsert(upsert).await });
        ClientOutcome::of(replaced.map(has_written))
    }

    /// `findOneAndUpdate` that returns the new document.
    pub(super) fn find_and_update(
        &self,
        collection: &str,
        filter: Document,
        change: Document,
        upsert: bool,
    ) -> ClientOutcome {
        let collection = self.collection(collection);
        let update = collection.find_one_and_update(filter, change);
        let updated = self.wait(async { update.upsert(upsert).return_document(ReturnDocument::After).await });
        match updated {
            Ok(document) => ClientOutcome { document: document.clone(), ..ClientOutcome::of(Ok(document.is_some())) },
            Err(error) => ClientOutcome::of(Err(error)),
        }
    }

    pub(super) fn delete(&self, filter: Document) -> ClientOutcome {
        let collection = self.collection(self.name);
        let deleted = self.wait(async { collection.delete_one(filter).await });
        ClientOutcome::of(deleted.map(|deleted| deleted.deleted_count > 0))
    }

    pub(super) fn delete_many(&self, filter: Document) -> ClientOutcome {
        let collection = self.collection(self.name);
        let deleted = self.wait(async { collection.delete_many(filter).await });
        ClientOutcome::of(deleted.map(|deleted| deleted.deleted_count > 0))
    }

    /// A document of the workload's first collection; `None` also if the read fails.
    pub(super) fn find(&self, filter: Document) -> Option<Document> {
        let collection = self.collection(self.name);
        self.wait(async { collection.find_one(filter).await }).ok().flatten()
    }

    /// The largest value of a field; `None` also if the read fails.
    pub(super) fn largest(&self, field: &str) -> Option<Bson> {
        let collection = self.collection(self.name);
        let found = self.wait(async { collection.find_one(doc! {}).sort(doc! { field: -1 }).await });
        found.ok().flatten()?.remove(field)
    }

    /// Creates a collection, and a unique index on `field` if one is given.
    pub(super) fn create(&self, collection: &str, unique: Option<&str>) {
        self.wait(async {
            self.database.create_collection(collection).await.unwrap();
            if let Some(field) = unique {
                let options = mongodb::options::IndexOptions::builder().unique(true).build();
                let index = mongodb::IndexModel::builder().keys(doc! { field: 1 }).options(options).build();
                self.database.collection::<Document>(collection).create_index(index).await.unwrap();
            }
        });
    }

    fn collection(&self, name: &str) -> Collection<Document> {
        self.database.collection(name)
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

impl ClientOutcome {
    /// The result of an operation that reports whether it found a document.
    fn of(result: Result<bool, Error>) -> ClientOutcome {
        let (outcome, error) = match result {
            Ok(true) => (Outcome::Acknowledged, None),
            Ok(false) => (Outcome::Rejected, None),
            Err(error) if was_rejected(&error) => (Outcome::Rejected, Some(short(&error))),
            Err(error) => (Outcome::Unknown, Some(format!("{} {:?}", short(&error), error.labels()))),
        };
        ClientOutcome { outcome, document: None, error }
    }

    pub(super) fn is_acknowledged(&self) -> bool {
        self.outcome == Outcome::Acknowledged
    }

    /// For operations that must succeed.
    pub(super) fn unwrap(self) {
        assert!(self.is_acknowledged(), "{self:?}");
    }
}

/// Whether a document was written. A rule may insert one even if the application requested no upsert.
fn has_written(result: UpdateResult) -> bool {
    result.matched_count > 0 || result.upserted_id.is_some()
}

/// Whether the error means that nothing was stored: a rule's rejection, a version conflict, a duplicate key. A partly
/// stored batch, or a write with unknown durability, has no such code.
fn was_rejected(error: &Error) -> bool {
    matches!(server_code(error), Some(112 | 121 | 11000))
}
