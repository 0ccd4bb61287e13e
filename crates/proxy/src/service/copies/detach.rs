//! Removes references to deleted originals, for rules with `on_delete: unset`.
//!
//! Unlike a stale value, a removed reference cannot be restored later. So each removal is a transaction that reads the
//! original once more, because an application may insert it again at any time. A concurrent write to a copy conflicts
//! with the transaction. So the removal comes first: it begins the snapshot and holds the documents, and a collection
//! that others write all the time leaves no gap between the two.

use bson::{Document as Reply, RawDocumentBuf, doc};
use mongodb::ClientSession;
use mongodb::error::{Error, ErrorKind, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::{ReadConcern, WriteConcern};
use tokio::time::{Duration, sleep};

use super::repairer::{Repairer, write_update};
use super::statements;
use crate::document::{Document, OwnedValue, Value, document};
use crate::patterns::collation::write_simple_collation;
use crate::patterns::copies::{CopiesEntry, OnOriginalDelete};
use crate::service::error_kind::is_passing;
use crate::service::listing::count;
use crate::service::own_reads;
use crate::service::worker::{Stop, raw};

/// Documents in one transaction.
const BATCH: usize = 500;
/// Attempts of a transaction that conflicts with others.
const MAX_ATTEMPTS: u32 = 50;
/// The same for several documents. Alone, each of them has fewer conflicts.
const MAX_BATCH_ATTEMPTS: u32 = 5;
/// The pause before the first retry; later ones are longer.
const PAUSE: Duration = Duration::from_millis(5);

/// The result of a transaction.
enum DetachResult {
    /// Number of documents changed; zero if the original exists again.
    Done(u64),
    /// The server rejects a change, for instance because of a validator. Of several documents: each must be tried alone,
    /// also if they conflict with other writes again and again.
    Rejected(Reply),
}

impl Repairer<'_> {
    /// Removes all references to an original, unless it exists again.
    pub(super) async fn detach(&self, id: &OwnedValue) -> Result<(), Stop> {
        for entry in self.copies.entries.iter().filter(|entry| entry.on_delete == OnOriginalDelete::Unset) {
            let command = document(|w| {
                w.string("find", &entry.into.name);
                w.nested("filter", |w| w.nested(entry.key.as_str(), |w| w.value("$eq", id.as_value())));
                w.nested("projection", |w| w.int32("_id", 1));
                write_simple_collation(w);
                own_reads::write(w, own_reads::LOCAL);
            });
            let mut cursor = self.client.database(&entry.into.database).run_raw_cursor_command(raw(command)?).await?;
            let mut batch = Vec::new();
            let mut changed = 0;
            while cursor.advance().await? {
                let copy = Document::parse(cursor.current().as_bytes()).ok().and_then(|copy| copy.get("_id"));
                batch.extend(copy.map(OwnedValue::from));
                if batch.len() == BATCH {
                    changed += self.detach_batch(entry, id.as_value(), &batch).await?;
                    batch.clear();
                }
            }
            changed += self.detach_batch(entry, id.as_value(), &batch).await?;
            tracing::debug!(rule = self.rule, changed, "removed references to a deleted original");
        }
        Ok(())
    }

    /// Removes references in one batch. If the server rejects it, each document is tried alone.
    async fn detach_batch(&self, entry: &CopiesEntry, id: Value<'_>, copies: &[OwnedValue]) -> Result<u64, Stop> {
        if copies.is_empty() {
            return Ok(0);
        }
        match self.detach_in_transaction(entry, id, copies).await? {
            DetachResult::Done(changed) => return Ok(changed),
            // A removal that the server rejects does not look for the original.
            DetachResult::Rejected(_) if !self.originals(&[id.into()], None).await?.is_empty() => return Ok(0),
            DetachResult::Rejected(error) if copies.len() == 1 => self.log_rejected(entry, &error),
            DetachResult::Rejected(_) => {}
        }
        let mut changed = 0;
        for copy in copies.iter().filter(|_| copies.len() > 1) {
            match self.detach_in_transaction(entry, id, std::slice::from_ref(copy)).await? {
                DetachResult::Done(one) => changed += one,
                DetachResult::Rejected(error) => self.log_rejected(entry, &error),
            }
        }
        Ok(changed)
    }

    async fn detach_in_transaction(
        &self,
        entry: &CopiesEntry,
        id: Value<'_>,
        copies: &[OwnedValue],
    ) -> Result<DetachResult, Stop> {
        let mut session = self.client.start_session().await?;
        let mut attempts = 0;
        loop {
            let error = match self.transaction(&mut session, entry, id, copies).await {
                Ok(end) => return Ok(end),
                Err(error) => error,
            };
            // The driver keeps a failed transaction open, and the session starts no other one beside it. The server has
            // aborted it already or will do so, so the result does not matter.
            let _ = session.abort_transaction().await;
            // Removing a reference twice changes nothing.
            let again = error.contains_label(TRANSIENT_TRANSACTION_ERROR)
                || error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT);
            attempts += 1;
            if again && copies.len() > 1 && attempts == MAX_BATCH_ATTEMPTS {
                return Ok(DetachResult::Rejected(doc! {"errmsg": error.to_string()}));
            }
            if !again || attempts == MAX_ATTEMPTS {
                return match &*error.kind {
                    ErrorKind::Command(command) if !again && !is_passing(&error) => {
                        Ok(DetachResult::Rejected(doc! {"errmsg": &command.message, "code": command.code}))
                    }
                    _ => Err(error.into()),
                };
            }
            sleep(PAUSE * attempts).await;
        }
    }

    async fn transaction(
        &self,
        session: &mut ClientSession,
        entry: &CopiesEntry,
        id: Value<'_>,
        copies: &[OwnedValue],
    ) -> Result<DetachResult, Error> {
        // A member's snapshot may lack recently acknowledged writes, but contains all majority-committed ones. The
        // change that causes this call is majority-committed, so the snapshot contains the deletion and all earlier
        // references. A later reference is either not touched or causes a conflict; its own change event triggers
        // another check.
        let majority = session.start_transaction().write_concern(WriteConcern::majority());
        majority.read_concern(ReadConcern::snapshot()).await?;
        let statements: Vec<Vec<u8>> =
            statements::shapes(entry).map(|shape| statements::detach(entry, shape, id, copies)).collect();
        let change = document(|w| write_update(w, entry, statements.iter().map(Vec::as_slice)));
        let changed = self.client.database(&entry.into.database);
        let changed = changed.run_raw_command(RawDocumentBuf::from_bytes(change)?).session(&mut *session).await?;
        let error = changed.get_array("writeErrors").ok().and_then(|errors| errors.first()?.as_document().cloned());
        if let Some(error) = error {
            session.abort_transaction().await?;
            return Ok(DetachResult::Rejected(error));
        }
        let originals = &self.copies.originals;
        let query = document(|w| {
            w.string("find", &originals.name);
            w.nested("filter", |w| w.nested("_id", |w| w.value("$eq", id)));
            w.nested("projection", |w| w.int32("_id", 1));
            w.int32("limit", 1);
            w.boolean("singleBatch", true);
            w.int32("maxTimeMS", 0);
        });
        let found = self.client.database(&originals.database);
        let found = found.run_raw_command(RawDocumentBuf::from_bytes(query)?).session(&mut *session).await?;
        let found = found.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        if found.map_or(true, |found| !found.is_empty()) {
            session.abort_transaction().await?;
            return Ok(DetachResult::Done(0));
        }
        session.commit_transaction().await?;
        Ok(DetachResult::Done(count(&changed, "nModified")))
    }
}
