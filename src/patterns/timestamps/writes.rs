//! What a statement writes, by path, in the order in which the server's operators add fields: by name.

use std::cmp::Ordering;

use super::super::Rejection;
use super::settings::Time;
use crate::document::{Value, Writer};

/// What a write does to one path.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change<'v> {
    Put(Put<'v>),
    /// The same, unless the path's timestamp is newer than this.
    ProtectedPut(Put<'v>, Time),
    Add(Value<'v>),
}

/// What is at a path afterwards, whatever is there before.
#[derive(Debug, Clone, Copy)]
pub(super) enum Put<'v> {
    Value(Value<'v>),
    Nothing,
    /// The server's clock.
    Now,
}

/// A change of one path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write<'v> {
    pub(super) path: &'v str,
    pub(super) change: Change<'v>,
}

/// Writes in any order.
pub(super) type WriteList<'v> = Vec<Write<'v>>;

impl Write<'_> {
    /// The write's time, if a timestamp guards it.
    pub(super) fn time(&self) -> Option<Time> {
        match self.change {
            Change::ProtectedPut(_, time) => Some(time),
            _ => None,
        }
    }
}

/// Writes to distinct paths, none of them inside another; sorted.
#[derive(Debug)]
pub(super) struct Writes<'v>(WriteList<'v>);

/// The writes in one document: those whose paths begin alike, up to `depth` bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tree<'w> {
    writes: &'w [Write<'w>],
    depth: usize,
}

/// What is written at one field of a document.
#[derive(Debug, Clone, Copy)]
pub(super) enum Child<'w> {
    Leaf(&'w Write<'w>),
    Inner(Tree<'w>),
}

impl<'v> Writes<'v> {
    /// # Errors
    /// Two writes to one path, or one inside another, which mongod refuses too (ConflictingUpdateOperators).
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

    pub(super) fn tree(&self) -> Tree<'_> {
        Tree { writes: &self.0, depth: 0 }
    }
}

/// The order of paths by their parts' names: everything inside a field stands right behind it.
fn by_names(one: &str, other: &str) -> Ordering {
    // The end of a name comes before all that a name can go on with.
    let rank = |byte: &u8| if *byte == b'.' { 0 } else { *byte };
    let differing = one.as_bytes().iter().zip(other.as_bytes()).find(|(one, other)| one != other);
    differing.map_or_else(|| one.len().cmp(&other.len()), |(one, other)| rank(one).cmp(&rank(other)))
}

/// Whether `outer` is `inner`, or holds it.
fn is_around(outer: &str, inner: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl<'w> Tree<'w> {
    /// Fields of this document that are written, or something in them is; sorted by name.
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
            Some((name, Child::Inner(Tree { writes: inner, depth: around.len() + 1 })))
        })
    }

    pub(super) fn len(self) -> usize {
        self.writes.len()
    }

    /// The writes that would create their paths.
    pub(super) fn creating(self) -> impl Iterator<Item = &'w Write<'w>> + Clone {
        let unset = |change| matches!(change, Change::Put(Put::Nothing) | Change::ProtectedPut(Put::Nothing, _));
        self.writes.iter().filter(move |write| !unset(write.change))
    }

    /// Writes the values that are put as plain nested documents.
    pub(super) fn write_values(self, w: &mut Writer<'_>) {
        for (name, child) in self.children() {
            match child {
                Child::Leaf(Write { change: Change::Put(Put::Value(value)), .. }) => w.value(name, *value),
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
        let write = |path: &&'static str| Write { path, change: Change::Put(Put::Value(value)) };
        let paths: Vec<&'static str> =
            paths.iter().map(|path| &*Box::leak((*path).to_owned().into_boxed_str())).collect();
        let writes = Writes::new(paths.iter().map(write).collect()).map_err(|rejection| rejection.reason)?;
        let nested = document(|w| writes.tree().write_values(w));
        Ok(bson::Document::from_reader(nested.as_slice()).unwrap())
    }

    #[test]
    fn paths_become_documents_in_the_order_of_their_names() {
        let found = written(&["b", "a.c.d", "a-b", "a.b", "a.c.a", "ab.c"]).unwrap();
        // '-' stands before '.' among the bytes, but not before the end of a name.
        let expected = bson::doc! {
            "a": {"b": 1, "c": {"a": 1, "d": 1}}, "a-b": 1, "ab": {"c": 1}, "b": 1,
        };
        assert_eq!(found.to_string(), expected.to_string());
    }

    #[test]
    fn a_path_inside_another_is_found_wherever_it_stands() {
        for paths in [["a", "x", "a"], ["a.b", "a-b", "a"], ["a", "a-b", "a.b.c"]] {
            assert!(written(&paths).is_err_and(|reason| reason.starts_with("it writes 'a' twice")), "{paths:?}");
        }
    }
}
