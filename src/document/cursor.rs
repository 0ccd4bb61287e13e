//! Walking BSON bytes: cheap iteration over documents that passed the check of `check.rs`.
//!
//! The `bson` crate is the oracle in the tests; this cursor exists because its check bounds depth, finds
//! duplicates and is several times faster on the way of every message.

use super::check::{Checked, MIN_LENGTH, Malformed, value_length};
use super::value::Extent;
use super::{Kind, Value};

/// A field name that occurs twice at one level; readers disagree which of the two counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field '{0}' occurs twice")]
pub struct DuplicateField(pub String);

/// The bytes of a document whose structure has been checked to the bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document<'a> {
    bytes: &'a [u8],
}

/// One field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element<'a> {
    /// The name's bytes; no NUL, not checked to be UTF-8.
    pub key: &'a [u8],
    pub value: Value<'a>,
}

impl<'a> Document<'a> {
    /// The document without fields.
    pub const EMPTY: Document<'static> = Document { bytes: &[5, 0, 0, 0, 0] };

    /// Checks `bytes` to be exactly one document, to the bottom.
    ///
    /// # Errors
    /// [`Malformed`]; where a length is wrong there is no telling what the sender meant.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Checked::parse(bytes).map(Checked::document)
    }

    /// For bytes inside a checked document, and for what [`Writer`](super::Writer) wrote.
    pub(super) fn trusted(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    pub fn is_empty(self) -> bool {
        self.bytes.len() == MIN_LENGTH
    }

    pub fn elements(self) -> Elements<'a> {
        Elements { rest: self.bytes.get(4..self.bytes.len().saturating_sub(1)).unwrap_or_default() }
    }

    pub fn values(self) -> impl Iterator<Item = Value<'a>> + Clone {
        self.elements().map(|element| element.value)
    }

    /// The first field of this name. Where a duplicate would matter the caller asks
    /// [`refuse_duplicates`](Self::refuse_duplicates) first.
    pub fn get(self, key: impl AsRef<[u8]>) -> Option<Value<'a>> {
        let key = key.as_ref();
        self.elements().find(|element| element.key == key).map(|element| element.value)
    }

    #[inline]
    pub fn first(self) -> Option<Element<'a>> {
        self.elements().next()
    }

    /// # Errors
    /// [`DuplicateField`] when two fields at the top level have one name.
    pub fn refuse_duplicates(self) -> Result<(), DuplicateField> {
        self.visit_distinct(|_| {})
    }

    /// The same for every document in it, however deep; arrays are entered, their keys mean nothing.
    ///
    /// # Errors
    /// [`DuplicateField`] when two fields of one document have one name.
    pub fn refuse_nested_duplicates(self) -> Result<(), DuplicateField> {
        let mut unread = smallvec::SmallVec::<[Value<'a>; 8]>::new();
        unread.push(Value::document(self));
        while let Some(value) = unread.pop() {
            let mut enter = |value: Value<'a>| {
                if matches!(value.kind, Kind::Document | Kind::Array) {
                    unread.push(value);
                }
            };
            match (value.as_document(), value.as_array()) {
                (Some(document), _) => document.visit_distinct(enter)?,
                (None, Some(array)) => array.values().for_each(&mut enter),
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Shows the value of every field, unless two have one name.
    fn visit_distinct(self, mut visit: impl FnMut(Value<'a>)) -> Result<(), DuplicateField> {
        /// Up to here comparing all pairs is cheaper than sorting.
        const FEW: usize = 16;
        let mut keys = smallvec::SmallVec::<[&[u8]; FEW]>::new();
        let mut few_checked = 0;
        for element in self.elements() {
            if keys.len() < FEW {
                if keys.contains(&element.key) {
                    return Err(DuplicateField(lossy(element.key)));
                }
                few_checked += 1;
            }
            keys.push(element.key);
            visit(element.value);
        }
        if keys.len() > few_checked {
            keys.sort_unstable();
            if let Some(pair) = keys.windows(2).find(|pair| pair.first() == pair.last()) {
                return Err(DuplicateField(pair.first().map(|key| lossy(key)).unwrap_or_default()));
            }
        }
        Ok(())
    }
}

/// Iterates over the fields of a checked document.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    /// The fields to come, without the document's terminator.
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    /// The fields to come.
    pub(super) fn as_bytes(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    // The document is checked, so this only measures: walking over fields is much of what a evaluated message costs.
    #[inline(always)]
    fn next(&mut self) -> Option<Element<'a>> {
        let (tag, named) = self.rest.split_first()?;
        let name = c_string_length(named).ok()?;
        let (key, rest) = (named.get(..name - 1)?, named.get(name..)?);
        let kind = Kind::from_tag(*tag)?;
        let (bytes, rest) = rest.split_at_checked(checked_length(kind, rest)?)?;
        self.rest = rest;
        Some(Element { key, value: Value { kind, bytes } })
    }
}

/// Bytes of the value that `rest` begins with, in a checked document.
#[inline(always)]
fn checked_length(kind: Kind, rest: &[u8]) -> Option<usize> {
    match kind.extent() {
        Extent::Fixed(length) => Some(length),
        Extent::Prefixed(beside) => Some(usize::try_from(int32(rest)?).ok()? + beside),
        Extent::CStrings => value_length(kind, rest).ok(),
    }
}

/// Walks the top level of a document that may not be here whole and has not been checked: yields the
/// fields that are complete and stops at the first that is not. For the fast path, which only wants names.
pub fn peek(bytes: &[u8]) -> impl Iterator<Item = Element<'_>> {
    let claimed = int32(bytes).and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    let end = bytes.len().min(claimed.saturating_sub(1));
    let mut rest = bytes.get(4..end).unwrap_or_default();
    std::iter::from_fn(move || {
        let (element, after) = first_of(rest)?;
        rest = after;
        Some(element)
    })
}

/// The field that unchecked bytes begin with, and what follows it.
// Inlined by force, as what it calls: walking over fields is much of what a evaluated message costs, and calls that give
// results in memory double it.
#[inline(always)]
fn first_of(fields: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (tag, named) = fields.split_first()?;
    let kind = Kind::from_tag(*tag)?;
    let name = c_string_length(named).ok()?;
    let (key, rest) = (named.get(..name - 1)?, named.get(name..)?);
    let (bytes, rest) = rest.split_at_checked(value_length(kind, rest).ok()?)?;
    Some((Element { key, value: Value { kind, bytes } }, rest))
}

/// Bytes of the C string that `text` begins with, terminator included.
#[inline(always)]
pub(super) fn c_string_length(text: &[u8]) -> Result<usize, Malformed> {
    name(text).map(|(length, _)| length)
}

/// The same, and a mark that equal strings have in common, and few others.
///
/// Names are short: eight bytes at a time find their end in a step or two, where a search with vectors would still be
/// setting up.
#[inline(always)]
pub(super) fn name(text: &[u8]) -> Result<(usize, u64), Malformed> {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH_BITS: u64 = ONES << 7;
    let mut rest = text;
    let mut mark = 0;
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        // Each zero byte gets its high bit; a byte above a zero may too, but the lowest one is right.
        let zeros = word.wrapping_sub(ONES) & !word & HIGH_BITS;
        if zeros != 0 {
            let bits = zeros.trailing_zeros() - 7;
            let mark = mix(mark, word & ((1 << bits) - 1));
            return Ok((text.len() - rest.len() + bits as usize / 8 + 1, mark));
        }
        mark = mix(mark, word);
        rest = after;
    }
    let nul = rest.iter().position(|byte| *byte == 0).ok_or(Malformed::UnterminatedName)?;
    let word = rest.iter().take(nul).rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    Ok((text.len() - rest.len() + nul + 1, mix(mark, word)))
}

/// The mark of a text that goes on with `word`. Its lower byte is well mixed.
#[inline(always)]
fn mix(mark: u64, word: u64) -> u64 {
    /// 2^64 divided by the golden ratio.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    (mark ^ word).wrapping_mul(FACTOR).rotate_left(8)
}

#[inline(always)]
pub(super) fn int32(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().map(|b| i32::from_le_bytes(*b))
}

fn lossy(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

#[cfg(test)]
mod tests {
    use bson::{RawDocument, doc, raw::RawDocumentBuf, rawdoc};
    use proptest::prelude::*;

    use super::super::MAX_DEPTH;
    use super::*;

    fn bytes(document: &bson::Document) -> Vec<u8> {
        RawDocumentBuf::try_from(document).unwrap().into_bytes()
    }

    fn everything() -> bson::Document {
        use bson::{Binary, Bson, Decimal128, JavaScriptCodeWithScope, Regex, Timestamp, oid::ObjectId};
        doc! {
            "double": 1.5, "string": "häß", "document": {"a": {"b": []}}, "array": [1, [2, {"c": 3}]],
            "binary": Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0, 1, 2] },
            "undefined": Bson::Undefined, "oid": ObjectId::from_bytes([7; 12]), "true": true, "null": Bson::Null,
            "date": bson::DateTime::from_millis(-1), "code": Bson::JavaScriptCode("f()".into()),
            "regex": Regex { pattern: bson::raw::cstr!("^a").into(), options: bson::raw::cstr!("i").into() },
            "symbol": Bson::Symbol("s".into()),
            "scoped": JavaScriptCodeWithScope { code: "g()".into(), scope: doc! {"x": {"y": 1}} },
            "i32": 1, "ts": Timestamp { time: 1, increment: 2 }, "i64": 1i64,
            "decimal": Decimal128::from_bytes([1; 16]), "min": Bson::MinKey, "max": Bson::MaxKey,
        }
    }

    #[test]
    fn every_type_is_walked_as_the_bson_crate_walks_it() {
        let bytes = bytes(&everything());
        let ours = Document::parse(&bytes).unwrap();
        let oracle = RawDocument::from_bytes(&bytes).unwrap();
        let mut count = 0;
        for (element, theirs) in ours.elements().zip(oracle.iter_elements()) {
            let theirs = theirs.unwrap();
            assert_eq!(element.key, theirs.key().as_str().as_bytes());
            assert_eq!(element.value.kind as u8, theirs.element_type() as u8);
            assert_eq!(element.value.bytes.len(), theirs.size(), "{}", theirs.key());
            count += 1;
        }
        assert_eq!(count, 20);
    }

    #[test]
    fn every_cut_and_every_wrong_length_is_refused() {
        let whole = bytes(&everything());
        for end in 0..whole.len() {
            assert!(Document::parse(&whole[..end]).is_err(), "cut at {end}");
        }
        let nested = bytes(&doc! {"a": {"b": 1}});
        for length in [0u8, 4, 5, 11, 13, 255] {
            let mut wrong = nested.clone();
            wrong[7] = length;
            assert_eq!(Document::parse(&wrong), Err(Malformed::Length), "{length}");
        }
    }

    #[test]
    fn nesting_without_end_is_refused_and_never_recursed_into() {
        let nest = |depth: usize| {
            let mut document = rawdoc! {};
            for _ in 1..depth {
                document = rawdoc! {"a": document};
            }
            document.into_bytes()
        };
        assert!(Document::parse(&nest(MAX_DEPTH)).is_ok());
        assert_eq!(Document::parse(&nest(MAX_DEPTH + 2)), Err(Malformed::TooDeep));
        assert_eq!(Document::parse(&nest(20_000)), Err(Malformed::TooDeep));
    }

    #[test]
    fn duplicates_are_found_among_few_and_many_fields() {
        for fields in [2usize, 16, 17, 300] {
            let mut twice = RawDocumentBuf::new();
            for i in 0..fields {
                twice.append(bson::raw::CString::try_from(format!("f{i}")).unwrap(), 1);
            }
            let once = twice.clone();
            twice.append(bson::raw::CString::try_from(format!("f{}", fields / 2)).unwrap(), 1);
            assert!(Document::parse(once.as_bytes()).unwrap().refuse_duplicates().is_ok(), "{fields}");
            let found = Document::parse(twice.as_bytes()).unwrap().refuse_duplicates();
            assert_eq!(found, Err(DuplicateField(format!("f{}", fields / 2))), "{fields}");
        }
    }

    #[test]
    fn peek_yields_what_is_whole() {
        let whole = bytes(&doc! {"find": "books", "filter": {"a": 1}, "$db": "library"});
        let names =
            |end: usize| peek(&whole[..end]).map(|e| String::from_utf8_lossy(e.key).into_owned()).collect::<Vec<_>>();
        assert_eq!(names(whole.len()), ["find", "filter", "$db"]);
        assert_eq!(names(whole.len() - 2), ["find", "filter"]);
        assert_eq!(names(25), ["find"]);
        assert!(names(3).is_empty());
    }

    proptest! {
        /// Whatever bytes come: no panic, and what we accept the oracle accepts.
        #[test]
        fn mutations_are_accepted_only_when_the_oracle_can_walk_them(
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)
        ) {
            let mut bytes = bytes(&everything());
            for (index, byte) in edits {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(document) = Document::parse(&bytes) {
                let oracle = RawDocument::from_bytes(&bytes).unwrap();
                let walked = oracle.iter_elements().take_while(Result::is_ok).count();
                // The oracle also refuses names that are not UTF-8; it never walks further than we do.
                prop_assert!(walked <= document.elements().count());
            }
            let _ = peek(&bytes).count();
        }
    }
}
