//! Reads originals and writes what their copies lack.
//!
//! Copies are written by `$set` and `$unset` of what the original says; the server itself leaves alone, and
//! out of its oplog, what has that value already. Values go from reply to command as bytes.

use std::collections::HashMap;

use bson::{Document as Reply, RawDocumentBuf};
use mongodb::Client;

use super::Stop;
use crate::document::{Document, Kind, Lookup, OwnedValue, Path, Value, Writer, document};
use crate::patterns::copies::{Copies, Entry};
use crate::service::mongo::is_passing_code;

/// `_id`s in one question.
const IDS: usize = 1000;
/// Statements in one update; the server takes a hundred times as many.
const STATEMENTS: usize = 1000;
/// Bytes of statements in one update; the server takes 16 MiB, and one statement may be almost that large.
const STATEMENT_BYTES: usize = 4 << 20;

/// Keeps the copies of one rule.
pub(super) struct Mender<'m> {
    pub(super) client: &'m Client,
    pub(super) copies: &'m Copies,
    /// The rule's name, for the log.
    pub(super) rule: &'m str,
}

/// An `_id` to look things up by. Whole numbers are equal whatever their type, as they are to the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Id {
    Whole(i64),
    Other(u8, Vec<u8>),
}

impl From<Value<'_>> for Id {
    fn from(value: Value<'_>) -> Self {
        match value.as_integer() {
            Some(whole) => Self::Whole(whole),
            None => Self::Other(value.kind as u8, value.bytes.to_vec()),
        }
    }
}

/// An original's fields that have copies, and its `_id`.
pub(super) struct Original(RawDocumentBuf);

impl Original {
    pub(super) fn document(&self) -> Document<'_> {
        // The driver has found its length to be right, and the server wrote it.
        Document::parse(self.0.as_bytes()).unwrap_or(Document::EMPTY)
    }

    fn id(&self) -> Option<Value<'_>> {
        self.document().get("_id")
    }
}

impl<'m> Mender<'m> {
    /// The originals with these `_id`s as they are now, or at least as they were at cluster time `after`.
    pub(super) async fn originals(
        &self,
        ids: &[OwnedValue],
        after: Option<&OwnedValue>,
    ) -> Result<HashMap<Id, Original>, Stop> {
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
                if let Some(after) = after {
                    w.nested("readConcern", |w| {
                        w.string("level", "majority");
                        w.value("afterClusterTime", after.as_value());
                    });
                }
            });
            let mut cursor = self.client.database(&originals.database).run_raw_cursor_command(raw(command)?).await?;
            while cursor.advance().await? {
                let original = Original(cursor.current().to_owned());
                if let Some(id) = original.id().map(Id::from) {
                    found.insert(id, original);
                }
            }
        }
        Ok(found)
    }

    pub(super) fn work(&self) -> Work<'_, 'm> {
        Work { mender: self, statements: Vec::new() }
    }
}

/// What came of writes, in documents.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Written {
    pub(super) changed: u64,
    /// The server did not take them: a validator, a unique index.
    pub(super) refused: u64,
}

/// Writes to be made.
pub(super) struct Work<'w, 'm> {
    mender: &'w Mender<'m>,
    statements: Vec<(&'w Entry, Vec<u8>)>,
}

impl<'w> Work<'w, '_> {
    /// Makes the copies of `original` true: all of them, or the document with the `_id` `only` if it is one.
    pub(super) fn add(&mut self, entry: &'w Entry, original: &Original, only: Option<&OwnedValue>) {
        let Some(id) = original.id() else { return };
        self.statements.push((entry, statement(entry, id, original.document(), only)));
    }

    pub(super) async fn write(self) -> Result<Written, Stop> {
        let mut written = Written::default();
        let mut rest = self.statements.as_slice();
        while let Some(((entry, first), _)) = rest.split_first() {
            let mut bytes = first.len();
            let fits = |(other, statement): &&(&Entry, Vec<u8>)| {
                bytes += statement.len();
                std::ptr::eq(*other, *entry) && bytes <= STATEMENT_BYTES
            };
            let more = rest.iter().skip(1).take(STATEMENTS - 1).take_while(fits).count();
            let (now, later) = rest.split_at(1 + more);
            let Written { changed, refused } = self.mender.update(entry, now).await?;
            written.changed += changed;
            written.refused += refused;
            rest = later;
        }
        Ok(written)
    }
}

impl Mender<'_> {
    async fn update(&self, entry: &Entry, statements: &[(&Entry, Vec<u8>)]) -> Result<Written, Stop> {
        let command = document(|w| {
            w.string("update", &entry.into.name);
            w.array("updates", |a| {
                for (_, statement) in statements {
                    a.value(Value { kind: Kind::Document, bytes: statement });
                }
            });
            w.boolean("ordered", false);
            w.nested("writeConcern", |w| w.string("w", "majority"));
        });
        let reply = self.client.database(&entry.into.database).run_raw_command(raw(command)?).await?;
        if let Ok(error) = reply.get_document("writeConcernError") {
            return Err(Stop::Failed(format!("writing copies into {}: {error}", entry.into)));
        }
        // A copy that the server refuses (a validator, a unique index) must not keep the others waiting.
        let errors = reply.get_array("writeErrors").ok().into_iter().flatten();
        let mut refused = 0;
        for error in errors.filter_map(|error| error.as_document()) {
            if error.get_i32("code").is_ok_and(is_passing_code) {
                return Err(Stop::Failed(format!("writing copies into {}: {error}", entry.into)));
            }
            refused += 1;
            let text = error.get_str("errmsg").unwrap_or_default();
            tracing::error!(rule = self.rule, "a copy in {} cannot be made true: {text}", entry.into);
        }
        Ok(Written { changed: number(&reply, "nModified"), refused })
    }
}

/// `{q: {KEY: id, $expr: ...}, u: {$set: ..., $unset: ...}, multi: true}`
fn statement(entry: &Entry, id: Value<'_>, original: Document<'_>, only: Option<&OwnedValue>) -> Vec<u8> {
    let said = |path: &Path| match path.lookup(original) {
        Lookup::Found(value) => Some(value),
        Lookup::Missing | Lookup::Blocked(_) => None,
    };
    let (there, gone): (Vec<_>, Vec<_>) = entry.fields.iter().partition(|field| said(&field.original).is_some());
    document(|w| {
        w.nested("q", |w| {
            if let Some(only) = only {
                w.value("_id", only.as_value());
            }
            w.nested(entry.key.as_str(), |w| w.value("$eq", id));
            w.nested("$expr", |w| can_carry(w, entry));
        });
        w.nested("u", |w| {
            if !there.is_empty() {
                w.nested("$set", |w| {
                    for field in &there {
                        if let Some(value) = said(&field.original) {
                            w.value(field.copied.as_str(), value);
                        }
                    }
                });
            }
            if !gone.is_empty() {
                w.nested("$unset", |w| gone.iter().for_each(|field| w.string(field.copied.as_str(), "")));
            }
        });
        w.boolean("multi", true);
    })
}

/// One reference, and only documents on the way to key and copies: anything else would fail the whole statement.
fn can_carry(w: &mut Writer<'_>, entry: &Entry) {
    let paths = entry.fields.iter().map(|field| &field.copied).chain([&entry.key]);
    let mut on_the_way: Vec<&str> =
        paths.flat_map(|path| path.as_str().match_indices('.').filter_map(|(at, _)| path.as_str().get(..at))).collect();
    on_the_way.sort_unstable();
    on_the_way.dedup();
    let type_of = |w: &mut Writer<'_>, path: &str| w.string("$type", format!("${path}"));
    w.array("$and", |a| {
        a.nested(|w| {
            w.array("$ne", |a| {
                a.nested(|w| type_of(w, entry.key.as_str()));
                a.string("array");
            });
        });
        for path in on_the_way {
            a.nested(|w| {
                w.array("$in", |a| {
                    a.nested(|w| type_of(w, path));
                    a.array(|a| ["object", "missing"].iter().for_each(|kind| a.string(kind)));
                });
            });
        }
    });
}

/// Whole top-level fields, as overlapping paths cannot be asked for.
pub(super) fn project<'p>(w: &mut Writer<'_>, paths: impl Iterator<Item = &'p Path>) {
    let mut roots: Vec<&str> = paths.map(Path::root).collect();
    roots.sort_unstable();
    roots.dedup();
    roots.into_iter().for_each(|root| w.int32(root, 1));
}

/// A command for the driver.
pub(super) fn raw(command: Vec<u8>) -> Result<RawDocumentBuf, Stop> {
    RawDocumentBuf::from_bytes(command).map_err(|error| Stop::Failed(format!("a command for the server: {error}")))
}

fn number(reply: &Reply, field: &str) -> u64 {
    let number = reply.get_i32(field).map(i64::from).or_else(|_| reply.get_i64(field));
    number.ok().and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}
