//! Walking BSON bytes: one bounded check of a whole document, then cheap iteration over what passed.
//!
//! The `bson` crate is the oracle in the tests; this cursor exists because it bounds depth, finds
//! duplicates and is several times faster on the way of every message.

use super::value::Extent;
use super::{Kind, Value};

/// How deep documents may nest: mongod's own default (`BSONDepth`, 200 levels since 3.6).
pub const MAX_DEPTH: usize = 200;
/// Bytes of the smallest document: length prefix and terminator.
const MIN_LENGTH: usize = 5;

/// What is wrong with bytes that claim to be a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("a length does not fit the bytes around it")]
    Length,
    #[error("type tag {0:#04x} does not exist")]
    UnknownType(u8),
    #[error("a field name has no end")]
    UnterminatedName,
    #[error("a string has no terminator")]
    UnterminatedString,
    #[error("a boolean is neither 0 nor 1")]
    Boolean,
    #[error("documents nest deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

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

    /// Checks `bytes` to be exactly one document, to the bottom, without recursion.
    ///
    /// # Errors
    /// [`Malformed`]; where a length is wrong there is no telling what the sender meant.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        // The ends of the documents around the cursor; a fixed stack, because depth is the sender's choice.
        let mut ends = [0usize; MAX_DEPTH];
        let mut depth: usize = 0;
        let mut at = open(bytes, 0, bytes.len())?;
        let mut end = bytes.len() - 1;
        loop {
            if at == end {
                at += 1;
                let Some(above) = depth.checked_sub(1) else { return Ok(Self { bytes }) };
                depth = above;
                end = *ends.get(depth).ok_or(Malformed::TooDeep)?;
                continue;
            }
            let (kind, value_at) = element_head(bytes, at, end)?;
            let length = value_length(kind, bytes, value_at, end)?;
            let nested = match kind {
                Kind::Document | Kind::Array => Some((value_at, value_at + length)),
                // int32 total, then a string, then the scope document to the end.
                Kind::JavaScriptWithScope => {
                    let code = string_length(bytes, value_at + 4, value_at + length)?;
                    Some((value_at + 4 + code, value_at + length))
                }
                _ => None,
            };
            match nested {
                None => at = value_at + length,
                Some((from, to)) => {
                    *ends.get_mut(depth).ok_or(Malformed::TooDeep)? = end;
                    depth += 1;
                    at = open(bytes, from, to)?;
                    end = to - 1;
                }
            }
        }
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

    pub fn values(self) -> impl Iterator<Item = Value<'a>> {
        self.elements().map(|element| element.value)
    }

    /// The first field of this name. Where a duplicate would matter the caller asks
    /// [`refuse_duplicates`](Self::refuse_duplicates) first.
    pub fn get(self, key: &str) -> Option<Value<'a>> {
        self.elements().find(|element| element.key == key.as_bytes()).map(|element| element.value)
    }

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

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    // The document is checked, so this only measures: walking over fields is much of what a judged message costs.
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
        Extent::Prefixed(beside) => Some(usize::try_from(int32(rest, 0)?).ok()? + beside),
        Extent::CStrings => value_length(kind, rest, 0, rest.len()).ok(),
    }
}

/// Walks the top level of a document that may not be here whole and has not been checked: yields the
/// fields that are complete and stops at the first that is not. For the fast path, which only wants names.
pub fn peek(bytes: &[u8]) -> impl Iterator<Item = Element<'_>> {
    let claimed = int32(bytes, 0).and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    let end = bytes.len().min(claimed.saturating_sub(1));
    let mut at = 4;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (element, after) = element_at(bytes, at, end).ok()?;
        at = after;
        Some(element)
    })
}

// Inlined by force, as what it calls: walking over fields is much of what a judged message costs, and calls that give
// results in memory double it.
#[inline(always)]
fn element_at(bytes: &[u8], at: usize, end: usize) -> Result<(Element<'_>, usize), Malformed> {
    let (kind, value_at) = element_head(bytes, at, end)?;
    let after = value_at + value_length(kind, bytes, value_at, end)?;
    let key = bytes.get(at + 1..value_at - 1).ok_or(Malformed::Length)?;
    let value = bytes.get(value_at..after).ok_or(Malformed::Length)?;
    Ok((Element { key, value: Value { kind, bytes: value } }, after))
}

/// Tag and name at `at`: the kind, and where the value starts.
#[inline(always)]
fn element_head(bytes: &[u8], at: usize, end: usize) -> Result<(Kind, usize), Malformed> {
    let tag = *bytes.get(at).ok_or(Malformed::Length)?;
    let kind = Kind::from_tag(tag).ok_or(Malformed::UnknownType(tag))?;
    Ok((kind, at + 1 + c_string_length_at(bytes, at + 1, end)?))
}

/// Checks length prefix and terminator of the document in `from..to`; gives the place of its first field.
fn open(bytes: &[u8], from: usize, to: usize) -> Result<usize, Malformed> {
    let length = to.checked_sub(from).ok_or(Malformed::Length)?;
    let claimed = int32(bytes, from).ok_or(Malformed::Length)?;
    if length < MIN_LENGTH || usize::try_from(claimed) != Ok(length) || bytes.get(to - 1) != Some(&0) {
        return Err(Malformed::Length);
    }
    Ok(from + 4)
}

/// Bytes of the value at `at`, which must end at or before `end`.
#[inline(always)]
fn value_length(kind: Kind, bytes: &[u8], at: usize, end: usize) -> Result<usize, Malformed> {
    let length = match kind {
        Kind::Undefined | Kind::Null | Kind::MinKey | Kind::MaxKey => 0,
        Kind::Boolean => match bytes.get(at) {
            Some(0 | 1) => 1,
            Some(_) => return Err(Malformed::Boolean),
            None => return Err(Malformed::Length),
        },
        Kind::Int32 => 4,
        Kind::Double | Kind::DateTime | Kind::Timestamp | Kind::Int64 => 8,
        Kind::ObjectId => 12,
        Kind::Decimal128 => 16,
        Kind::String | Kind::JavaScript | Kind::Symbol => string_length(bytes, at, end)?,
        Kind::DbPointer => string_length(bytes, at, end)? + 12,
        Kind::Document | Kind::Array => prefixed(bytes, at, MIN_LENGTH)?,
        Kind::JavaScriptWithScope => prefixed(bytes, at, 4 + 5 + MIN_LENGTH)?,
        Kind::Binary => prefixed(bytes, at, 0)?.saturating_add(5),
        Kind::Regex => {
            let pattern = c_string_length_at(bytes, at, end)?;
            pattern + c_string_length_at(bytes, at + pattern, end)?
        }
    };
    match at.checked_add(length) {
        Some(after) if after <= end => Ok(length),
        _ => Err(Malformed::Length),
    }
}

#[inline]
fn prefixed(bytes: &[u8], at: usize, least: usize) -> Result<usize, Malformed> {
    let length = int32(bytes, at).and_then(|length| usize::try_from(length).ok()).ok_or(Malformed::Length)?;
    if length < least { Err(Malformed::Length) } else { Ok(length) }
}

/// Bytes of a length-prefixed string, prefix and terminator included.
#[inline]
fn string_length(bytes: &[u8], at: usize, end: usize) -> Result<usize, Malformed> {
    let length = prefixed(bytes, at, 1)?;
    let last = at.checked_add(3 + length).filter(|last| *last < end).ok_or(Malformed::Length)?;
    match bytes.get(last) {
        Some(0) => Ok(4 + length),
        Some(_) => Err(Malformed::UnterminatedString),
        None => Err(Malformed::Length),
    }
}

/// Bytes of the C string that `text` begins with, terminator included.
///
/// Names are short: eight bytes at a time find their end in a step or two, where a search with vectors would still be
/// setting up.
#[inline(always)]
fn c_string_length(text: &[u8]) -> Result<usize, Malformed> {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH_BITS: u64 = ONES << 7;
    let mut rest = text;
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        // Each zero byte gets its high bit; a byte above a zero may too, but the lowest one is right.
        let zeros = word.wrapping_sub(ONES) & !word & HIGH_BITS;
        if zeros != 0 {
            return Ok(text.len() - rest.len() + zeros.trailing_zeros() as usize / 8 + 1);
        }
        rest = after;
    }
    let nul = rest.iter().position(|byte| *byte == 0).ok_or(Malformed::UnterminatedName)?;
    Ok(text.len() - rest.len() + nul + 1)
}

/// The same within `at..end` of `bytes`.
#[inline(always)]
fn c_string_length_at(bytes: &[u8], at: usize, end: usize) -> Result<usize, Malformed> {
    c_string_length(bytes.get(at..end).ok_or(Malformed::UnterminatedName)?)
}

#[inline]
fn int32(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().map(|b| i32::from_le_bytes(*b))
}

fn lossy(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

#[cfg(test)]
mod tests {
    use bson::{RawDocument, doc, raw::RawDocumentBuf, rawdoc};
    use proptest::prelude::*;

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
