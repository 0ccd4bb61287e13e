//! Checks the structure, lengths and depth of a whole document, without recursion. The same pass records whether a
//! name may be ambiguous.

use smallvec::SmallVec;

use super::cursor::{AmbiguousName, Document, c_string_length, int32, is_position, scan_name};
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
    /// Two names in one of the documents have the same hash bits, or an element of an array has another name than its
    /// position. If this is false, no name is ambiguous.
    possibly_ambiguous: bool,
}

/// A document or array around the current position.
struct Level<'a> {
    /// Its remaining fields, without the terminator.
    rest: &'a [u8],
    is_array: bool,
    names: FieldNameHashes,
    /// The number of elements so far, if it is an array.
    elements: u32,
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

impl<'a> Level<'a> {
    fn open(value: &'a [u8], is_array: bool) -> Result<Self, Malformed> {
        Ok(Self { rest: open(value)?, is_array, names: FieldNameHashes::NONE, elements: 0 })
    }

    /// Checks the fields up to the next document or array in them, and returns that one.
    #[inline(always)]
    fn next_nested<const ARRAY: bool>(&mut self, ambiguous: &mut bool) -> Result<Option<(Kind, &'a [u8])>, Malformed> {
        while let Some((tag, named)) = self.rest.split_first() {
            let kind = Kind::from_tag(*tag).ok_or(Malformed::UnknownType(*tag))?;
            let (name_length, hash) = scan_name(named)?;
            let rest = named.get(name_length..).unwrap_or_default();
            let (value, rest) = rest.split_at_checked(value_length(kind, rest)?).ok_or(Malformed::Length)?;
            self.rest = rest;
            if ARRAY {
                let name = named.get(..name_length - 1).unwrap_or_default();
                *ambiguous |= !is_position(name, u64::from(self.elements));
                // This cannot overflow: an element has at least two bytes, and the length of an array is an int32.
                self.elements += 1;
            } else {
                *ambiguous |= self.names.add(hash);
            }
            match kind {
                Kind::Document | Kind::Array => return Ok(Some((kind, value))),
                Kind::JavaScriptWithScope => return Ok(Some((kind, scope(value)?))),
                _ => {}
            }
        }
        Ok(None)
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
        let mut here = Level::open(bytes, false)?;
        let mut possibly_ambiguous = false;
        loop {
            // Two loops, so that the fields of documents pay nothing for arrays.
            let nested = match here.is_array {
                false => here.next_nested::<false>(&mut possibly_ambiguous)?,
                true => here.next_nested::<true>(&mut possibly_ambiguous)?,
            };
            let Some((kind, nested)) = nested else {
                let Some(above) = around.pop() else { break };
                here = above;
                continue;
            };
            if around.len() == MAX_DEPTH {
                return Err(Malformed::TooDeep);
            }
            let below = Level::open(nested, kind == Kind::Array)?;
            around.push(std::mem::replace(&mut here, below));
        }
        Ok(Self { document: Document::trusted(bytes), possibly_ambiguous })
    }

    /// Returns the document. Field names may occur twice.
    pub fn document(self) -> Document<'a> {
        self.document
    }

    /// Returns the document if its top-level field names are distinct.
    ///
    /// # Errors
    /// [`AmbiguousName`] if two top-level fields have the same name.
    pub fn distinct(self) -> Result<Document<'a>, AmbiguousName> {
        if self.possibly_ambiguous {
            self.document.reject_duplicates()?;
        }
        Ok(self.document)
    }

    /// Returns the document if the field names of every nested document are distinct, and those of arrays are positions.
    ///
    /// # Errors
    /// [`AmbiguousName`] for a name that is not.
    pub fn unambiguous(self) -> Result<Document<'a>, AmbiguousName> {
        if self.possibly_ambiguous {
            self.document.check_names_throughout()?;
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
        assert_eq!(checked.distinct().unwrap_err(), AmbiguousName::Twice("a".to_owned()));
        let nested = around(&twice);
        let checked = Checked::parse(&nested).unwrap();
        assert!(checked.distinct().is_ok());
        assert_eq!(checked.unambiguous().unwrap_err(), AmbiguousName::Twice("a".to_owned()));
    }

    #[test]
    fn elements_with_other_names_than_their_positions_are_found() {
        let array = |names: &[&str]| {
            let mut bytes = named(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
            let length = i32::try_from(bytes.len() + 8).unwrap().to_le_bytes();
            bytes.splice(0..0, [&length[..], b"\x04a\0"].concat());
            bytes.push(0);
            bytes
        };
        let many: Vec<String> = (0..1_200).map(|position| position.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for names in [&[][..], &["0"], &many] {
            assert!(Checked::parse(&array(names)).unwrap().unambiguous().is_ok());
        }
        let others =
            [&["1"][..], &[""], &["00"], &["0", "01"], &["0", "0"], &["0", "1", "3"], &["-0"], &["0x"], &many[1..]];
        for names in others {
            let bytes = array(names);
            let checked = Checked::parse(&bytes).unwrap();
            assert!(checked.distinct().is_ok(), "{names:?}");
            assert!(matches!(checked.unambiguous(), Err(AmbiguousName::Element { .. })), "{names:?}");
        }
    }

    #[test]
    fn one_name_at_two_levels_is_no_duplicate() {
        let bytes = RawDocumentBuf::try_from(&doc! {"a": {"a": {"a": 1}, "b": 1}, "b": [{"a": 1}, {"a": 1}]}).unwrap();
        assert!(!Checked::parse(bytes.as_bytes()).unwrap().possibly_ambiguous);
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
