//! The writes of a statement by path, sorted by field name: the order in which the server's operators add fields.

use std::cmp::Ordering;

use super::super::Rejection;
use super::settings::TimestampBytes;
use crate::document::{Value, Writer};

/// The effect of a write on one path.
#[derive(Debug, Clone, Copy)]
pub(super) enum PathChange<'v> {
    Put(NewValue<'v>),
    /// Writes it unless the path's timestamp is newer than this time.
    ProtectedPut(NewValue<'v>, TimestampBytes),
    Add(Value<'v>),
}

/// The new value of a path, independent of the old one.
#[derive(Debug, Clone, Copy)]
pub(super) enum NewValue<'v> {
    Value(Value<'v>),
    Nothing,
    /// The server's clock.
    Now,
}

/// A change of one path.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathWrite<'v> {
    pub(super) path: &'v str,
    pub(super) change: PathChange<'v>,
}

/// Writes in any order.
pub(super) type WriteList<'v> = Vec<PathWrite<'v>>;

impl PathWrite<'_> {
    /// Returns the write's time, if the path has a timestamp.
    pub(super) fn time(&self) -> Option<TimestampBytes> {
        match self.change {
            PathChange::ProtectedPut(_, time) => Some(time),
            _ => None,
        }
    }
}

/// Sorted writes to distinct paths, none of them inside another.
#[derive(Debug)]
pub(super) struct PathWrites<'v>(WriteList<'v>);

/// The writes in one document: all have the same path up to `depth` bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteTree<'w> {
    writes: &'w [PathWrite<'w>],
    depth: usize,
}

/// The writes at one field of a document.
#[derive(Debug, Clone, Copy)]
pub(super) enum Child<'w> {
    Leaf(&'w PathWrite<'w>),
    Inner(WriteTree<'w>),
}

impl<'v> PathWrites<'v> {
    /// Sorts the writes.
    ///
    /// # Errors
    /// There are two writes to one path, or one inside another: mongod rejects these too (ConflictingUpdateOperators).
    pub(super) fn new(mut writes: WriteList<'v>) -> Result<Self, Rejection> {
        writes.sort_unstable_by(|one, other| by_names(one.path, other.path));
        for pair in writes.windows(2) {
            if let [outer, inner] = pair
                && is_around(outer.path, inner.path)
            {
                return Err(Rejection::new(
                    format!("it writes '{}' twice, or writes a field inside it too", outer.path),
                    "Write each path once.",
                ));
            }
        }
        Ok(Self(writes))
    }

    pub(super) fn tree(&self) -> WriteTree<'_> {
        WriteTree { writes: &self.0, depth: 0 }
    }
}

/// Compares paths by the names of their parts. A field is directly followed by everything inside it.
fn by_names(one: &str, other: &str) -> Ordering {
    // The end of a name sorts before every continuation of the name.
    let rank = |byte: &u8| if *byte == b'.' { 0 } else { *byte };
    let differing = one.as_bytes().iter().zip(other.as_bytes()).find(|(one, other)| one != other);
    differing.map_or_else(|| one.len().cmp(&other.len()), |(one, other)| rank(one).cmp(&rank(other)))
}

/// Returns whether `outer` is `inner`, or contains it.
fn is_around(outer: &str, inner: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl<'w> WriteTree<'w> {
    /// Returns the fields of this document that are written, or contain a written field; sorted by name.
    pub(super) fn children(self) -> impl Iterator<Item = (&'w str, Child<'w>)> {
        let Self { mut writes, depth } = self;
        std::iter::from_fn(move || {
            let (first, others) = writes.split_first()?;
            let below = first.path.get(depth..)?;
            let Some(end) = below.bytes().position(|byte| byte == b'.') else {
                writes = others;
                return Some((below, Child::Leaf(first)));
            };
            let (name, around) = (below.get(..end)?, first.path.get(..depth + end)?);
            let inside = others.iter().take_while(|write| is_around(around, write.path)).count();
            let (inner, rest) = writes.split_at_checked(1 + inside)?;
            writes = rest;
            Some((name, Child::Inner(WriteTree { writes: inner, depth: around.len() + 1 })))
        })
    }

    pub(super) fn len(self) -> usize {
        self.writes.len()
    }

    /// Returns the writes that would create their paths.
    pub(super) fn creating(self) -> impl Iterator<Item = &'w PathWrite<'w>> + Clone {
        let unset = |change| {
            matches!(change, PathChange::Put(NewValue::Nothing) | PathChange::ProtectedPut(NewValue::Nothing, _))
        };
        self.writes.iter().filter(move |write| !unset(write.change))
    }

    /// Writes the values that are put as plain nested documents.
    pub(super) fn write_values(self, w: &mut Writer<'_>) {
        for (name, child) in self.children() {
            match child {
                Child::Leaf(PathWrite { change: PathChange::Put(NewValue::Value(value)), .. }) => w.value(name, *value),
                Child::Leaf(_) => {}
                Child::Inner(tree) => w.nested(name, |w| tree.write_values(w)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Document, document};

    fn written(paths: &[&str]) -> Result<bson::Document, String> {
        let one = document(|w| w.int32("v", 1));
        let value = Document::parse(&one).unwrap().get("v").unwrap();
        let write = |path: &&'static str| PathWrite { path, change: PathChange::Put(NewValue::Value(value)) };
        let paths: Vec<&'static str> =
            paths.iter().map(|path| &*Box::leak((*path).to_owned().into_boxed_str())).collect();
        let writes = PathWrites::new(paths.iter().map(write).collect()).map_err(|rejection| rejection.reason)?;
        let nested = document(|w| writes.tree().write_values(w));
        Ok(bson::Document::from_reader(nested.as_slice()).unwrap())
    }

    #[test]
    fn paths_become_documents_in_the_order_of_their_names() {
        let found = written(&["b", "a.c.d", "a-b", "a.b", "a.c.a", "ab.c"]).unwrap();
        // As bytes '-' sorts before '.', but not before the end of a name.
        let expected = bson::doc! {
            "a": {"b": 1, "c": {"a": 1, "d": 1}}, "a-b": 1, "ab": {"c": 1}, "b": 1,
        };
        assert_eq!(found.to_string(), expected.to_string());
    }

    #[test]
    fn a_path_inside_another_is_found_at_any_position() {
        for paths in [["a", "x", "a"], ["a.b", "a-b", "a"], ["a", "a-b", "a.b.c"]] {
            assert!(written(&paths).is_err_and(|reason| reason.starts_with("it writes 'a' twice")), "{paths:?}");
        }
    }
}
