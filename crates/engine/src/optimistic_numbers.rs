//! Numbers of the optimistic strategy: the query of the largest one, and errors because a number is taken.

use super::lookup::Maximum;
use crate::command::own::{self, CommandSession, Find};
use crate::command::{Command, Namespace, Reply, code};
use crate::document::{CowDocument, Document, OwnedValue, Path, PathLookup as At, Value};
use crate::effect::is_same_number;

/// Returns the lookup of the largest number on `namespace`.
pub(super) fn maximum(field: &Path, namespace: Namespace<'_>) -> Maximum {
    Maximum {
        database: namespace.database.to_owned(),
        collection: namespace.collection.to_owned(),
        field: field.as_str().to_owned(),
    }
}

/// Whether a duplicate key error is about this number in the field's unique index.
pub(super) fn is_taken(field: &Path, number: i64, error: Document<'_>) -> bool {
    let Some(values) = error.get("keyValue").and_then(Value::as_document) else { return false };
    let number = OwnedValue::integer(number);
    values.get(field.as_str()).is_some_and(|value| is_same_number(value, number.as_value()))
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
        // Without a limit a server's default for reads would apply, which does not limit writes.
        w.int32("maxTimeMS", 0);
    })
}

/// Reads the reply to [`find_maximum`].
pub(super) fn read_maximum(reply: &Reply<'_>, field: &str) -> Option<i64> {
    let first = reply.first_batch().and_then(|batch| batch.values().next()).and_then(Value::as_document);
    first.and_then(|document| match Path::parse(field)?.lookup(document) {
        At::Found(value) => value.floor(),
        At::Missing | At::Blocked(_) => None,
    })
}
