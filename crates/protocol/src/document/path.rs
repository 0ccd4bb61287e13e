//! Dotted field paths and their lookup in documents.

use super::{Document, Kind, Value};

/// A dotted path such as `state.temperature`. No part of it is empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path {
    text: String,
}

/// The result of looking up a path in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathLookup<'a> {
    Found(Value<'a>),
    /// The field is missing, and `$set` could create it.
    Missing,
    /// A parent of the field is not a document; it has this kind.
    Blocked(Kind),
}

impl Path {
    /// Returns `None` if a part is empty, contains NUL or begins with `$`.
    pub fn parse(text: &str) -> Option<Self> {
        let fine = |part: &str| !part.is_empty() && !part.starts_with('$') && !part.contains('\0');
        text.split('.').all(fine).then(|| Self { text: text.to_owned() })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.text.split('.')
    }

    pub fn is_top_level(&self) -> bool {
        !self.text.contains('.')
    }

    /// Returns the first part, the top-level field of this path.
    pub fn root(&self) -> &str {
        self.text.split('.').next().unwrap_or(&self.text)
    }

    /// Returns the paths of the fields around this one, as `parents`.
    pub fn parents(&self) -> impl Iterator<Item = &str> {
        parents(&self.text)
    }

    /// Returns whether `other` is this path or below it.
    pub fn covers(&self, other: &[u8]) -> bool {
        is_at_or_below(other, self.text.as_bytes())
    }

    /// Returns whether `other` is a parent of this path.
    pub fn is_below(&self, other: &[u8]) -> bool {
        rest_below(self.text.as_bytes(), other).is_some()
    }

    /// Returns the rest of this path below its parent `other`.
    pub fn below(&self, other: &[u8]) -> Option<Self> {
        std::str::from_utf8(rest_below(self.text.as_bytes(), other)?).ok().and_then(Self::parse)
    }

    /// Returns whether a write to one of the two paths changes a value at the other.
    pub fn overlaps(&self, other: &[u8]) -> bool {
        paths_overlap(self.text.as_bytes(), other)
    }

    /// Looks up the path in nested documents. It does not enter arrays.
    pub fn lookup<'a>(&self, document: Document<'a>) -> PathLookup<'a> {
        look_below(self.text.as_bytes(), Value::document(document))
    }
}

/// Returns the value at the path `rest` below `value`. It does not enter arrays.
pub fn look_below<'u>(rest: &[u8], value: Value<'u>) -> PathLookup<'u> {
    let mut found = value;
    for part in rest.split(|byte| *byte == b'.') {
        let Some(here) = found.as_document() else { return PathLookup::Blocked(found.kind) };
        let Some(value) = here.get(part) else { return PathLookup::Missing };
        found = value;
    }
    PathLookup::Found(found)
}

/// Returns the paths of the fields around the field at a dotted path, outermost first: `a` and `a.b` of `a.b.c`.
pub fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('.').filter_map(|(dot, _)| path.get(..dot))
}

/// Returns the first part of a dotted path.
pub fn root_of(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == b'.').next().unwrap_or(path)
}

/// Returns the rest of the dotted path `inner` below `outer`; `None` if it is not below it.
pub fn rest_below<'p>(inner: &'p [u8], outer: &[u8]) -> Option<&'p [u8]> {
    inner.strip_prefix(outer)?.strip_prefix(b".")
}

/// Returns whether the dotted path `inner` is `outer` or below it.
pub fn is_at_or_below(inner: &[u8], outer: &[u8]) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.first().is_none_or(|next| *next == b'.'))
}

/// Returns whether both dotted paths are one, or one is inside the other.
pub fn paths_overlap(one: &[u8], other: &[u8]) -> bool {
    is_at_or_below(one, other) || is_at_or_below(other, one)
}

impl std::fmt::Display for Path {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::document;

    #[test]
    fn invalid_paths_are_not_parsed() {
        for text in ["", ".", "a.", ".a", "a..b", "$a", "a.$", "a\0b"] {
            assert_eq!(Path::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn parents_and_children_of_a_path_overlap_it() {
        let path = Path::parse("a.b").unwrap();
        for (other, overlaps) in
            [("a", true), ("a.b", true), ("a.b.c", true), ("a.bc", false), ("ab", false), ("a.c", false)]
        {
            assert_eq!(path.overlaps(other.as_bytes()), overlaps, "{other}");
        }
        assert!(path.covers(b"a.b.c") && !path.covers(b"a"));
        assert!(path.is_below(b"a") && !path.is_below(b"a.b"));
    }

    #[test]
    fn the_parents_of_a_path_are_the_paths_around_it() {
        assert_eq!(parents("a.b.c").collect::<Vec<_>>(), ["a", "a.b"]);
        assert_eq!(parents("a").next(), None);
    }

    #[test]
    fn lookups_enter_documents_only() {
        let bytes = document(|w| {
            w.nested("a", |w| w.int32("b", 1));
            w.array("l", |a| a.nested(|w| w.int32("b", 2)));
            w.null("n");
        });
        let doc = Document::parse(&bytes).unwrap();
        let look = |text: &str| Path::parse(text).unwrap().lookup(doc);
        assert!(matches!(look("a.b"), PathLookup::Found(value) if value.as_i32() == Some(1)));
        assert_eq!(look("a.c"), PathLookup::Missing);
        assert_eq!(look("x.y"), PathLookup::Missing);
        assert_eq!(look("l.b"), PathLookup::Blocked(Kind::Array));
        assert_eq!(look("n.b"), PathLookup::Blocked(Kind::Null));
    }
}
