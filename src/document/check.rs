//! Checks the structure, lengths and depth of a whole document, without recursion. The same pass records whether two
//! fields of one document may have the same name.

use smallvec::SmallVec;

use super::cursor::{Document, DuplicateField, c_string_length, int32, scan_name};
use super::value::Kind;

/// The maximum nesting depth of documents: mongod's default (`BSONDepth`, 200 levels since 3.6).
pub const MAX_DEPTH: usize = 200;
/// Bytes of an empty document: length prefix and terminator.
pub(super) const MIN_LENGTH: usize = 5;

/// The reason why bytes are not a valid document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("a length field does not match the surrounding bytes")]
    Length,
    #[error("type tag {0:#04x} does not exist")]
    UnknownType(u8),
    #[error("a field name has no terminator")]
    UnterminatedName,
    #[error("a string has no terminator")]
    UnterminatedString,
    #[error("a boolean is neither 0 nor 1")]
    Boolean,
    #[error("documents nest deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// A checked document.
#[derive(Debug, Clone, Copy)]
pub struct Checked<'a> {
    document: Document<'a>,
    /// Two names in one of the documents have the same hash bits. If this is false, no name occurs twice.
    possible_duplicates: bool,
}

/// A document or array around the current position.
struct Level<'a> {
    /// Its remaining fields, without the terminator.
    rest: &'a [u8],
    names: FieldNameHashes,
}

/// The hashes of the field names of a document so far, each as one of 256 bits.
#[derive(Clone, Copy)]
struct FieldNameHashes([u64; 4]);

impl FieldNameHashes {
    const NONE: Self = Self([0; 4]);

    /// Adds the hash of a name. Returns true if the bit was already set.
    #[inline(always)]
    fn add(&mut self, hash: u64) -> bool {
        let bit = 1 << (hash & 63);
        // The index is always below 4.
        let Some(word) = self.0.get_mut((hash >> 6 & 3) as usize) else { return true };
        let seen = *word & bit != 0;
        *word |= bit;
        seen
    }
}

impl<'a> Checked<'a> {
    /// Checks that `bytes` is exactly one document.
    ///
    /// # Errors
    /// [`Malformed`] if a length, type or terminator is wrong.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        // The sender chooses the depth, so the levels are on an explicit stack instead of recursion.
        let mut around = SmallVec::<[Level<'a>; 8]>::new();
        let mut here = Level { rest: open(bytes)?, names: FieldNameHashes::NONE };
        let mut possible_duplicates = false;
        loop {
            let Some((tag, named)) = here.rest.split_first() else {
                let Some(above) = around.pop() else { break };
                here = above;
                continue;
            };
            let kind = Kind::from_tag(*tag).ok_or(Malformed::UnknownType(*tag))?;
            let (name_length, hash) = scan_name(named)?;
            let rest = named.get(name_length..).unwrap_or_default();
            let (value, rest) = rest.split_at_checked(value_length(kind, rest)?).ok_or(Malformed::Length)?;
            here.rest = rest;
            possible_duplicates |= here.names.add(hash);
            let nested = match kind {
                Kind::Document | Kind::Array => value,
                Kind::JavaScriptWithScope => scope(value)?,
                _ => continue,
            };
            if around.len() == MAX_DEPTH {
                return Err(Malformed::TooDeep);
            }
            let below = Level { rest: open(nested)?, names: FieldNameHashes::NONE };
            around.push(std::mem::replace(&mut here, below));
        }
        Ok(Self { document: Document::trusted(bytes), possible_duplicates })
    }

    /// Returns the document. Field names may occur twice.
    pub fn document(self) -> Document<'a> {
        self.document
    }

    /// Returns the document if its top-level field names are distinct.
    ///
    /// # Errors
    /// [`DuplicateField`] if two top-level fields have the same name.
    pub fn distinct(self) -> Result<Document<'a>, DuplicateField> {
        if self.possible_duplicates {
            self.document.reject_duplicates()?;
        }
        Ok(self.document)
    }

    /// Returns the document if the field names of every nested document are distinct.
    ///
    /// # Errors
    /// [`DuplicateField`] if two fields of one document have the same name.
    pub fn distinct_throughout(self) -> Result<Document<'a>, DuplicateField> {
        if self.possible_duplicates {
            self.document.check_nested_duplicates()?;
        }
        Ok(self.document)
    }
}

/// Returns the fields of the document in `bytes`, without its terminator.
#[inline(always)]
fn open(bytes: &[u8]) -> Result<&[u8], Malformed> {
    let claimed = int32(bytes).ok_or(Malformed::Length)?;
    match bytes {
        [_, _, _, _, fields @ .., 0] if usize::try_from(claimed) == Ok(bytes.len()) => Ok(fields),
        _ => Err(Malformed::Length),
    }
}

/// Returns the scope of code with scope, which follows the total length and a string.
fn scope(value: &[u8]) -> Result<&[u8], Malformed> {
    let code = value.get(4..).ok_or(Malformed::Length)?;
    code.get(string_length(code)?..).ok_or(Malformed::Length)
}

/// Returns the length in bytes of the value at the start of `rest`. `rest` ends with the enclosing document.
#[inline(always)]
pub(super) fn value_length(kind: Kind, rest: &[u8]) -> Result<usize, Malformed> {
    let length = match kind {
        Kind::Undefined | Kind::Null | Kind::MinKey | Kind::MaxKey => 0,
        Kind::Boolean => match rest.first() {
            Some(0 | 1) => 1,
            Some(_) => return Err(Malformed::Boolean),
            None => return Err(Malformed::Length),
        },
        Kind::Int32 => 4,
        Kind::Double | Kind::DateTime | Kind::Timestamp | Kind::Int64 => 8,
        Kind::ObjectId => 12,
        Kind::Decimal128 => 16,
        Kind::String | Kind::JavaScript | Kind::Symbol => string_length(rest)?,
        Kind::DbPointer => string_length(rest)? + 12,
        Kind::Document | Kind::Array => prefixed(rest, MIN_LENGTH)?,
        Kind::JavaScriptWithScope => prefixed(rest, 4 + 5 + MIN_LENGTH)?,
        Kind::Binary => prefixed(rest, 0)?.saturating_add(5),
        Kind::Regex => {
            let pattern = c_string_length(rest)?;
            pattern + c_string_length(rest.get(pattern..).unwrap_or_default())?
        }
    };
    if length <= rest.len() { Ok(length) } else { Err(Malformed::Length) }
}

#[inline(always)]
fn prefixed(rest: &[u8], least: usize) -> Result<usize, Malformed> {
    let length = int32(rest).and_then(|length| usize::try_from(length).ok()).ok_or(Malformed::Length)?;
    if length < least { Err(Malformed::Length) } else { Ok(length) }
}

/// Returns the length in bytes of a length-prefixed string, including prefix and terminator.
#[inline(always)]
fn string_length(rest: &[u8]) -> Result<usize, Malformed> {
    let length = prefixed(rest, 1)?;
    match rest.get(3 + length) {
        Some(0) => Ok(4 + length),
        Some(_) => Err(Malformed::UnterminatedString),
        None => Err(Malformed::Length),
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, raw::RawDocumentBuf};
    use proptest::prelude::*;

    use super::*;

    /// Returns a document with these field names.
    fn named(names: &[String]) -> Vec<u8> {
        let mut document = RawDocumentBuf::new();
        names.iter().for_each(|name| document.append(bson::raw::CString::try_from(name.as_str()).unwrap(), 1));
        document.into_bytes()
    }

    #[test]
    fn duplicates_are_reported_at_the_requested_depth() {
        let twice = named(&["a".to_owned(), "a".to_owned()]);
        let around = |nested: &[u8]| {
            let nested = RawDocumentBuf::from_bytes(nested.to_vec()).unwrap();
            bson::rawdoc! {"x": 1, "in": [nested]}.into_bytes()
        };
        let checked = Checked::parse(&twice).unwrap();
        assert_eq!(checked.distinct().unwrap_err(), DuplicateField("a".to_owned()));
        let nested = around(&twice);
        let checked = Checked::parse(&nested).unwrap();
        assert!(checked.distinct().is_ok());
        assert_eq!(checked.distinct_throughout().unwrap_err(), DuplicateField("a".to_owned()));
    }

    #[test]
    fn one_name_at_two_levels_is_no_duplicate() {
        let bytes = RawDocumentBuf::try_from(&doc! {"a": {"a": {"a": 1}, "b": 1}, "b": [{"a": 1}, {"a": 1}]}).unwrap();
        assert!(!Checked::parse(bytes.as_bytes()).unwrap().possible_duplicates);
    }

    proptest! {
        /// Every repeated name is found, at any position and alignment.
        #[test]
        fn a_repeated_name_is_found(
            mut names in prop::collection::vec("[a-c]{0,20}", 1..30), at in any::<prop::sample::Index>()
        ) {
            names.sort();
            names.dedup();
            let once = named(&names);
            prop_assert!(Checked::parse(&once).unwrap().distinct().is_ok());
            names.push(names[at.index(names.len())].clone());
            let twice = named(&names);
            prop_assert!(Checked::parse(&twice).unwrap().distinct().is_err());
        }
    }
}
