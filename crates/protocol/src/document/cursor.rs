//! Iterates over the fields of documents that `check.rs` has checked.
//!
//! The tests compare it with the `bson` crate. docward has its own cursor because it bounds the depth, finds
//! duplicates and is several times faster, and every message passes through it.

use super::check::{Checked, MIN_LENGTH, Malformed, value_length};
use super::value::LengthRule;
use super::{Kind, Value};

/// A name that leaves open which of two values a reader uses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AmbiguousName {
    /// Parsers disagree on which of the two fields is used.
    #[error("field '{0}' occurs twice")]
    Twice(String),
    /// The server stores the name. Paths such as `items.0` find elements by their names, other readers count them.
    #[error("element {position} of an array has the name '{name}' instead of '{position}'")]
    Element { position: u64, name: String },
}

/// The bytes of a document whose whole structure has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document<'a> {
    bytes: &'a [u8],
}

/// One field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element<'a> {
    /// The bytes of the name. They do not contain NUL, but may be invalid UTF-8.
    pub key: &'a [u8],
    pub value: Value<'a>,
}

impl<'a> Document<'a> {
    /// The document without fields.
    pub const EMPTY: Document<'static> = Document { bytes: &[5, 0, 0, 0, 0] };

    /// Checks that `bytes` is exactly one document, including nested documents.
    ///
    /// # Errors
    /// [`Malformed`] if a length, type or terminator is wrong.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Checked::parse(bytes).map(Checked::document)
    }

    /// Wraps bytes from inside a checked document, or bytes that [`Writer`](super::Writer) wrote.
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

    /// Returns the first field with this name. If duplicates matter, call
    /// [`reject_duplicates`](Self::reject_duplicates) first.
    pub fn get(self, key: impl AsRef<[u8]>) -> Option<Value<'a>> {
        let key = key.as_ref();
        self.elements().find(|element| element.key == key).map(|element| element.value)
    }

    #[inline]
    pub fn first(self) -> Option<Element<'a>> {
        self.elements().next()
    }

    /// Checks that the top-level field names are distinct.
    ///
    /// # Errors
    /// [`AmbiguousName`] if two top-level fields have the same name.
    pub fn reject_duplicates(self) -> Result<(), AmbiguousName> {
        self.visit_distinct(|_| {})
    }

    /// Checks that the elements of this array have their positions as names: `0`, `1`, `2`.
    ///
    /// # Errors
    /// [`AmbiguousName`] for the first one that has another name.
    pub fn check_positions(self) -> Result<(), AmbiguousName> {
        let mut elements = (0..).zip(self.elements());
        match elements.find(|(position, element)| !is_position(element.key, *position)) {
            Some((position, element)) => Err(AmbiguousName::Element { position, name: lossy(element.key) }),
            None => Ok(()),
        }
    }

    /// Checks that the field names of every nested document are distinct, and those of arrays are positions.
    ///
    /// # Errors
    /// [`AmbiguousName`] for a name that is not.
    pub fn check_names_throughout(self) -> Result<(), AmbiguousName> {
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
                (None, Some(array)) => {
                    array.check_positions()?;
                    array.values().for_each(&mut enter);
                }
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Calls `visit` with the value of every field, and fails if two fields have the same name.
    fn visit_distinct(self, mut visit: impl FnMut(Value<'a>)) -> Result<(), AmbiguousName> {
        /// Up to this number of fields, comparing all pairs is faster than sorting.
        const FEW: usize = 16;
        let mut keys = smallvec::SmallVec::<[&[u8]; FEW]>::new();
        let mut few_checked = 0;
        for element in self.elements() {
            if keys.len() < FEW {
                if keys.contains(&element.key) {
                    return Err(AmbiguousName::Twice(lossy(element.key)));
                }
                few_checked += 1;
            }
            keys.push(element.key);
            visit(element.value);
        }
        if keys.len() > few_checked {
            keys.sort_unstable();
            if let Some(pair) = keys.windows(2).find(|pair| pair.first() == pair.last()) {
                return Err(AmbiguousName::Twice(pair.first().map(|key| lossy(key)).unwrap_or_default()));
            }
        }
        Ok(())
    }
}

/// Iterates over the fields of a checked document.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    /// The remaining fields, without the terminator of the document.
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    /// Returns the remaining fields.
    pub(super) fn as_bytes(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    // The document is checked, so this only measures lengths. Iteration is a large part of the cost of an evaluated
    // message.
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

/// Returns the length in bytes of the value at the start of `rest`, in a checked document.
#[inline(always)]
fn checked_length(kind: Kind, rest: &[u8]) -> Option<usize> {
    match kind.extent() {
        LengthRule::Fixed(length) => Some(length),
        LengthRule::Prefixed(beside) => Some(usize::try_from(int32(rest)?).ok()? + beside),
        LengthRule::CStrings => value_length(kind, rest).ok(),
    }
}

/// Iterates over the top-level fields of a document that may be incomplete and has not been checked. It stops at the
/// first incomplete field. The fast path uses it to read names only.
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

/// Returns the first field of unchecked bytes, and the bytes after it.
// Inlined, like the functions it calls: iteration is a large part of the cost of an evaluated message, and results
// that are returned through memory double it.
#[inline(always)]
fn first_of(fields: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (tag, named) = fields.split_first()?;
    let kind = Kind::from_tag(*tag)?;
    let name = c_string_length(named).ok()?;
    let (key, rest) = (named.get(..name - 1)?, named.get(name..)?);
    let (bytes, rest) = rest.split_at_checked(value_length(kind, rest).ok()?)?;
    Some((Element { key, value: Value { kind, bytes } }, rest))
}

/// Returns the length in bytes of the C string at the start of `text`, including its terminator.
#[inline(always)]
pub(super) fn c_string_length(text: &[u8]) -> Result<usize, Malformed> {
    scan_name(text).map(|(length, _)| length)
}

/// Returns the length in bytes of the C string at the start of `text`, including its terminator, and a hash of it.
///
/// Names are short, so reading eight bytes at a time finds their end faster than a vectorised search.
#[inline(always)]
pub(super) fn scan_name(text: &[u8]) -> Result<(usize, u64), Malformed> {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH_BITS: u64 = ONES << 7;
    let mut rest = text;
    let mut hash = 0;
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        // Sets the high bit of each zero byte. It may also set that of a byte above one, but the lowest one is
        // correct.
        let zeros = word.wrapping_sub(ONES) & !word & HIGH_BITS;
        if zeros != 0 {
            let bits = zeros.trailing_zeros() - 7;
            let hash = mix(hash, word & ((1 << bits) - 1));
            return Ok((text.len() - rest.len() + bits as usize / 8 + 1, hash));
        }
        hash = mix(hash, word);
        rest = after;
    }
    let nul = rest.iter().position(|byte| *byte == 0).ok_or(Malformed::UnterminatedName)?;
    let word = rest.iter().take(nul).rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    Ok((text.len() - rest.len() + nul + 1, mix(hash, word)))
}

/// Adds `word` to the hash. The lower byte of the result is well mixed.
#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    /// 2^64 divided by the golden ratio.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    (hash ^ word).wrapping_mul(FACTOR).rotate_left(8)
}

#[inline(always)]
pub(super) fn int32(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().map(|b| i32::from_le_bytes(*b))
}

/// Returns whether a name is this position in decimal digits.
#[inline(always)]
pub(super) fn is_position(name: &[u8], position: u64) -> bool {
    let mut rest = position;
    for byte in name.iter().rev() {
        if u64::from(*byte) != u64::from(b'0') + rest % 10 {
            return false;
        }
        rest /= 10;
    }
    rest == 0 && (name.len() == 1 || name.first().is_some_and(|first| *first != b'0'))
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
    fn every_type_is_read_as_the_bson_crate_reads_it() {
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
    fn truncations_and_wrong_lengths_are_errors() {
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
    fn deep_nesting_is_an_error_without_recursion() {
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
            assert!(Document::parse(once.as_bytes()).unwrap().reject_duplicates().is_ok(), "{fields}");
            let found = Document::parse(twice.as_bytes()).unwrap().reject_duplicates();
            assert_eq!(found, Err(AmbiguousName::Twice(format!("f{}", fields / 2))), "{fields}");
        }
    }

    #[test]
    fn peek_yields_complete_fields() {
        let whole = bytes(&doc! {"find": "books", "filter": {"a": 1}, "$db": "library"});
        let names =
            |end: usize| peek(&whole[..end]).map(|e| String::from_utf8_lossy(e.key).into_owned()).collect::<Vec<_>>();
        assert_eq!(names(whole.len()), ["find", "filter", "$db"]);
        assert_eq!(names(whole.len() - 2), ["find", "filter"]);
        assert_eq!(names(25), ["find"]);
        assert!(names(3).is_empty());
    }

    proptest! {
        /// No bytes cause a panic, and the bson crate accepts every document that docward accepts.
        #[test]
        fn accepted_documents_are_accepted_by_the_bson_crate(
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
                // The bson crate also rejects names that are not UTF-8, so it may stop earlier.
                prop_assert!(walked <= document.elements().count());
            }
            let _ = peek(&bytes).count();
        }
    }
}
