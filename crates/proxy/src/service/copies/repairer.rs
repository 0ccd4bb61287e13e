//! Reads originals and corrects their copies.
//!
//! Copies are corrected with `$set` and `$unset` from the original. The server itself skips fields that already have
//! the value, and does not write them to its oplog. Values are passed from reply to command as bytes.

use std::collections::HashMap;

use bson::Document as Reply;
use mongodb::Client;

use super::original::Original;
use super::statements;
use crate::document::{Kind, OwnedValue, Path, Value, Writer, document};
use crate::patterns::copies::{Copies, CopiesEntry};
use crate::rate_limit::{RateLimit, quoted};
use crate::service::error_kind::is_passing_code;
use crate::service::id::IdKey;
use crate::service::listing::count;
use crate::service::own_reads;
use crate::service::worker::{Stop, raw};

/// `_id`s in one query.
const IDS: usize = 1000;
/// Statements in one update; the server accepts a hundred times as many.
const STATEMENTS: usize = 1000;
/// Bytes of statements in one update; the server accepts 16 MiB, and one statement may be almost that large.
const STATEMENT_BYTES: usize = 4 << 20;

/// Reads originals and writes copies for one rule.
pub(super) struct Repairer<'m> {
    pub(super) client: &'m Client,
    pub(super) copies: &'m Copies,
    /// The rule's name, for the log.
    pub(super) rule: &'m str,
    /// Rate limit of log lines about corrections that the server rejects.
    pub(super) rejections: RateLimit,
}

impl<'m> Repairer<'m> {
    pub(super) fn new(client: &'m Client, copies: &'m Copies, rule: &'m str) -> Self {
        Self { client, copies, rule, rejections: RateLimit::default() }
    }

    /// The originals with these `_id`s as they are now; with `after`, at least as of that cluster time.
    pub(super) async fn originals(
        &self,
        ids: &[OwnedValue],
        after: Option<&OwnedValue>,
    ) -> Result<HashMap<IdKey, Original>, Stop> {
        let originals = &self.copies.originals;
        let mut found = HashMap::new();
        for ids in ids.chunks(IDS) {
            let roots = self.copies.entries.iter().flat_map(|entry| &entry.fields).map(|field| &field.original);
            let command = document(|w| {
                w.string("find", &originals.name);
                w.nested("filter", |w| {
                    w.nested("_id", |w| w.array("$in", |a| ids.iter().for_each(|id| a.value(id.as_value()))));
                });
                w.nested("projection", |w| project(w, roots));
                w.int32("maxTimeMS", 0);
                w.nested("readConcern", |w| {
                    w.string("level", if after.is_some() { own_reads::MAJORITY } else { own_reads::LOCAL });
                    if let Some(after) = after {
                        w.value("afterClusterTime", after.as_value());
                    }
                });
            });
            let mut cursor = self.client.database(&originals.database).run_raw_cursor_command(raw(command)?).await?;
            while cursor.advance().await? {
                let original = Original::new(cursor.current().to_owned());
                if let Some(id) = original.id().map(IdKey::from) {
                    found.insert(id, original);
                }
            }
        }
        Ok(found)
    }

    pub(super) fn work(&self) -> PendingWrites<'_, 'm> {
        PendingWrites { repairer: self, statements: Vec::new() }
    }
}

/// The result of writes, in documents.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WriteCounts {
    pub(super) changed: u64,
    /// Rejected by the server, for instance by a validator or a unique index.
    pub(super) rejected: u64,
}

/// Pending writes.
pub(super) struct PendingWrites<'w, 'm> {
    repairer: &'w Repairer<'m>,
    statements: Vec<(&'w CopiesEntry, Vec<u8>)>,
}

impl<'w> PendingWrites<'w, '_> {
    /// Adds the correction of `original`'s copies: of all, or of the document with the `_id` `only`.
    pub(super) fn add(&mut self, entry: &'w CopiesEntry, original: &Original, only: Option<&OwnedValue>) {
        let Some(id) = original.id() else { return };
        for shape in statements::shapes(entry) {
            self.statements.push((entry, statements::correct(entry, shape, id, original, only)));
        }
    }

    pub(super) async fn write(self) -> Result<WriteCounts, Stop> {
        let mut written = WriteCounts::default();
        let mut rest = self.statements.as_slice();
        while let Some(((entry, first), _)) = rest.split_first() {
            let mut bytes = first.len();
            let fits = |(other, statement): &&(&CopiesEntry, Vec<u8>)| {
                bytes += statement.len();
                std::ptr::eq(*other, *entry) && bytes <= STATEMENT_BYTES
            };
            let more = rest.iter().skip(1).take(STATEMENTS - 1).take_while(fits).count();
            let (now, later) = rest.split_at(1 + more);
            let WriteCounts { changed, rejected } = self.repairer.update(entry, now).await?;
            written.changed += changed;
            written.rejected += rejected;
            rest = later;
        }
        Ok(written)
    }
}

impl Repairer<'_> {
    async fn update(&self, entry: &CopiesEntry, statements: &[(&CopiesEntry, Vec<u8>)]) -> Result<WriteCounts, Stop> {
        let command = document(|w| {
            write_update(w, entry, statements.iter().map(|(_, statement)| statement.as_slice()));
            w.boolean("ordered", false);
            w.nested("writeConcern", |w| w.string("w", "majority"));
        });
        let reply = self.client.database(&entry.into.database).run_raw_command(raw(command)?).await?;
        if let Ok(error) = reply.get_document("writeConcernError") {
            return Err(Stop::Failed(format!("copies cannot be written to {}: {error}", entry.into)));
        }
        // A copy that the server rejects (a validator, a unique index) must not delay the others.
        let errors = reply.get_array("writeErrors").ok().into_iter().flatten();
        let mut rejected = 0;
        for error in errors.filter_map(|error| error.as_document()) {
            if error.get_i32("code").is_ok_and(is_passing_code) {
                return Err(Stop::Failed(format!("copies cannot be written to {}: {error}", entry.into)));
            }
            rejected += 1;
            self.log_rejected(entry, error);
        }
        Ok(WriteCounts { changed: count(&reply, "nModified"), rejected })
    }

    pub(super) fn log_rejected(&self, entry: &CopiesEntry, error: &Reply) {
        let Some(suppressed) = self.rejections.line() else { return };
        tracing::error!(
            rule = self.rule,
            suppressed,
            "the server rejected the correction of a copy in {}: {}",
            entry.into,
            quoted(&described(error))
        );
    }
}

/// Returns a server's error for the log: its text, its code, and the details of a validator in `errInfo`.
fn described(error: &Reply) -> String {
    let code = error.get("code").map(|code| format!(" (code {code})")).unwrap_or_default();
    let details = error.get("errInfo").map(|details| format!(": {details}")).unwrap_or_default();
    format!("{}{code}{details}", error.get_str("errmsg").unwrap_or_default())
}

/// Writes the first fields of an update command.
pub(super) fn write_update<'s>(w: &mut Writer<'_>, entry: &CopiesEntry, statements: impl Iterator<Item = &'s [u8]>) {
    w.string("update", &entry.into.name);
    w.array("updates", |a| {
        statements.for_each(|bytes| a.value(Value { kind: Kind::Document, bytes }));
    });
}

/// Projects whole top-level fields, since overlapping paths cannot be projected.
pub(super) fn project<'p>(w: &mut Writer<'_>, paths: impl Iterator<Item = &'p Path>) {
    let mut roots: Vec<&str> = paths.map(Path::root).collect();
    roots.sort_unstable();
    roots.dedup();
    roots.into_iter().for_each(|root| w.int32(root, 1));
}
