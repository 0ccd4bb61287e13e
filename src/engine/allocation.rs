//! Numbers of the optimistic strategy: the query of the largest one, and errors because a number is taken.

use super::lookup::Maximum;
use crate::command::own::{self, CommandSession, Find};
use crate::command::{Command, Namespace, Reply, code};
use crate::document::{CowDocument, Document, Path, PathLookup as At, Value};

/// Returns the lookup of the largest number on `namespace`.
pub(super) fn maximum(field: &Path, namespace: Namespace<'_>) -> Maximum {
    Maximum {
        database: namespace.database.to_owned(),
        collection: namespace.collection.to_owned(),
        field: field.as_str().to_owned(),
    }
}

/// Whether a write error is a duplicate of the number in its unique index.
pub(super) fn is_taken(field: &Path, error: Document<'_>) -> bool {
    let keys = error.get("keyPattern").and_then(Value::as_document).unwrap_or(Document::EMPTY);
    is_duplicate_key(error) && keys.elements().any(|key| key.key == field.as_str().as_bytes())
}

/// Returns the duplicate number that the server's error names.
pub(super) fn taken_number(field: &Path, error: Document<'_>) -> Option<i64> {
    error.get("keyValue")?.as_document()?.get(field.as_str())?.floor()
}

pub(super) fn is_duplicate_key(error: Document<'_>) -> bool {
    error.get("code").and_then(Value::as_integer) == Some(i64::from(code::DUPLICATE_KEY))
}

/// Returns a find for the maximum, inside the client's transaction.
pub(super) fn find_maximum(command: &Command<'_>, maximum: &Maximum, transaction_begun: bool) -> Vec<u8> {
    let Maximum { database, collection, field } = maximum;
    let filter = CowDocument::build(|w| maximum.write_filter(w));
    let projection = CowDocument::build(|w| {
        w.int32(field, 1);
        if field != "_id" {
            w.int32("_id", 0);
        }
    });
    let namespace = Namespace { database, collection };
    let find = Find { namespace, filter: filter.as_document(), projection: projection.as_document(), limit: 1 };
    own::find(command, CommandSession::Client { begun: transaction_begun }, find, |w| {
        w.nested("sort", |w| w.int32(field, -1));
    })
}

/// Parses the reply to [`find_maximum`]; `None` if it is an error.
pub(super) fn read_maximum(reply: &[u8], field: &str) -> Option<Option<i64>> {
    let reply = Reply::parse(reply).ok().filter(Reply::is_ok)?;
    let first = reply.first_batch().and_then(|batch| batch.values().next()).and_then(Value::as_document);
    Some(first.and_then(|document| match Path::parse(field)?.lookup(document) {
        At::Found(value) => value.floor(),
        At::Missing | At::Blocked(_) => None,
    }))
}
