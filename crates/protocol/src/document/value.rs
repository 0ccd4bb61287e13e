//! BSON values as bytes with a type tag (bsonspec.org, version 1.1).

use super::Document;

/// BSON type tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    Double = 0x01,
    String = 0x02,
    Document = 0x03,
    Array = 0x04,
    Binary = 0x05,
    Undefined = 0x06,
    ObjectId = 0x07,
    Boolean = 0x08,
    DateTime = 0x09,
    Null = 0x0a,
    Regex = 0x0b,
    DbPointer = 0x0c,
    JavaScript = 0x0d,
    Symbol = 0x0e,
    JavaScriptWithScope = 0x0f,
    Int32 = 0x10,
    Timestamp = 0x11,
    Int64 = 0x12,
    Decimal128 = 0x13,
    MinKey = 0xff,
    MaxKey = 0x7f,
}

/// The rule for the length of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum LengthRule {
    /// A fixed number of bytes.
    Fixed(usize),
    /// The int32 prefix plus this number of bytes.
    Prefixed(usize),
    /// Two C strings.
    CStrings,
}

impl Kind {
    /// Returns the length rule of a checked value.
    #[inline(always)]
    pub(super) fn extent(self) -> LengthRule {
        match self {
            Self::Undefined | Self::Null | Self::MinKey | Self::MaxKey => LengthRule::Fixed(0),
            Self::Boolean => LengthRule::Fixed(1),
            Self::Int32 => LengthRule::Fixed(4),
            Self::Double | Self::DateTime | Self::Timestamp | Self::Int64 => LengthRule::Fixed(8),
            Self::ObjectId => LengthRule::Fixed(12),
            Self::Decimal128 => LengthRule::Fixed(16),
            Self::Document | Self::Array | Self::JavaScriptWithScope => LengthRule::Prefixed(0),
            Self::String | Self::JavaScript | Self::Symbol => LengthRule::Prefixed(4),
            Self::Binary => LengthRule::Prefixed(5),
            Self::DbPointer => LengthRule::Prefixed(16),
            Self::Regex => LengthRule::CStrings,
        }
    }

    #[inline(always)]
    pub fn from_tag(tag: u8) -> Option<Self> {
        Some(match tag {
            0x01 => Self::Double,
            0x02 => Self::String,
            0x03 => Self::Document,
            0x04 => Self::Array,
            0x05 => Self::Binary,
            0x06 => Self::Undefined,
            0x07 => Self::ObjectId,
            0x08 => Self::Boolean,
            0x09 => Self::DateTime,
            0x0a => Self::Null,
            0x0b => Self::Regex,
            0x0c => Self::DbPointer,
            0x0d => Self::JavaScript,
            0x0e => Self::Symbol,
            0x0f => Self::JavaScriptWithScope,
            0x10 => Self::Int32,
            0x11 => Self::Timestamp,
            0x12 => Self::Int64,
            0x13 => Self::Decimal128,
            0x7f => Self::MaxKey,
            0xff => Self::MinKey,
            _ => return None,
        })
    }

    pub fn is_number(self) -> bool {
        matches!(self, Self::Int32 | Self::Int64 | Self::Double | Self::Decimal128)
    }

    /// Returns the alias that `$type` uses. Messages show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::String => "string",
            Self::Document => "object",
            Self::Array => "array",
            Self::Binary => "binData",
            Self::Undefined => "undefined",
            Self::ObjectId => "objectId",
            Self::Boolean => "bool",
            Self::DateTime => "date",
            Self::Null => "null",
            Self::Regex => "regex",
            Self::DbPointer => "dbPointer",
            Self::JavaScript => "javascript",
            Self::Symbol => "symbol",
            Self::JavaScriptWithScope => "javascriptWithScope",
            Self::Int32 => "int",
            Self::Timestamp => "timestamp",
            Self::Int64 => "long",
            Self::Decimal128 => "decimal",
            Self::MinKey => "minKey",
            Self::MaxKey => "maxKey",
        }
    }
}

/// A value in a checked document. `bytes` has exactly the length that its kind and content require.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Value<'a> {
    pub kind: Kind,
    pub bytes: &'a [u8],
}

impl<'a> Value<'a> {
    pub fn document(document: Document<'a>) -> Self {
        Self { kind: Kind::Document, bytes: document.as_bytes() }
    }

    pub fn as_document(self) -> Option<Document<'a>> {
        (self.kind == Kind::Document).then(|| Document::trusted(self.bytes))
    }

    /// Returns an array as the document that encodes it. Its keys have no meaning.
    pub fn as_array(self) -> Option<Document<'a>> {
        (self.kind == Kind::Array).then(|| Document::trusted(self.bytes))
    }

    /// Returns a document, or an array as the document that encodes it.
    pub fn as_document_or_array(self) -> Option<Document<'a>> {
        self.as_document().or_else(|| self.as_array())
    }

    /// Returns the bytes of a string without length prefix and terminator. They may be invalid UTF-8, because mongod
    /// does not check them.
    pub fn as_string_bytes(self) -> Option<&'a [u8]> {
        if self.kind != Kind::String {
            return None;
        }
        self.bytes.get(4..self.bytes.len().saturating_sub(1))
    }

    /// Returns a string if it is valid UTF-8.
    pub fn as_str(self) -> Option<&'a str> {
        std::str::from_utf8(self.as_string_bytes()?).ok()
    }

    /// Returns the bytes of a string or of a symbol. Servers accept both as the name of a collection.
    pub fn as_name_bytes(self) -> Option<&'a [u8]> {
        let kind = if self.kind == Kind::Symbol { Kind::String } else { self.kind };
        Self { kind, ..self }.as_string_bytes()
    }

    /// Returns a string or a symbol if it is valid UTF-8.
    pub fn as_name(self) -> Option<&'a str> {
        std::str::from_utf8(self.as_name_bytes()?).ok()
    }

    pub fn as_bool(self) -> Option<bool> {
        match (self.kind, self.bytes) {
            (Kind::Boolean, [byte]) => Some(*byte != 0),
            _ => None,
        }
    }

    pub fn as_i32(self) -> Option<i32> {
        match self.kind {
            Kind::Int32 => self.bytes.first_chunk().map(|b| i32::from_le_bytes(*b)),
            _ => None,
        }
    }

    /// Returns an int64, the milliseconds of a date, or the 64 bits of a timestamp.
    pub fn as_raw_i64(self) -> Option<i64> {
        match self.kind {
            Kind::Int64 | Kind::DateTime | Kind::Timestamp => self.bytes.first_chunk().map(|b| i64::from_le_bytes(*b)),
            _ => None,
        }
    }

    pub fn as_f64(self) -> Option<f64> {
        match self.kind {
            Kind::Double => self.bytes.first_chunk().map(|b| f64::from_le_bytes(*b)),
            _ => None,
        }
    }

    /// Returns an integer in any type that drivers use: int, long, or a double without a fraction within ±2⁵³
    /// (JavaScript numbers above 2³¹).
    pub fn as_integer(self) -> Option<i64> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match self.kind {
            Kind::Int32 => self.as_i32().map(i64::from),
            Kind::Int64 => self.as_raw_i64(),
            Kind::Double => self.as_f64().filter(|v| v.fract() == 0.0 && v.abs() <= EXACT).map(|v| v as i64),
            _ => None,
        }
    }

    /// A UUID (binary subtype 4).
    pub fn as_uuid(self) -> Option<[u8; 16]> {
        match (self.kind, self.bytes.split_first_chunk::<5>()) {
            (Kind::Binary, Some(([16, 0, 0, 0, 4], uuid))) => uuid.try_into().ok(),
            _ => None,
        }
    }

    /// Binary data (subtype 0).
    pub fn as_binary(self) -> Option<&'a [u8]> {
        match (self.kind, self.bytes.split_first_chunk::<5>()) {
            (Kind::Binary, Some(([.., 0], data))) => Some(data),
            _ => None,
        }
    }

    /// Returns a date in milliseconds since 1970 UTC.
    pub fn as_date(self) -> Option<i64> {
        if self.kind == Kind::DateTime { self.as_raw_i64() } else { None }
    }

    /// Returns whether the server takes an optional field of a command with this value for missing
    /// (`IDLParserContext::checkAndAssertTypes`, seen with 6.0.5).
    pub fn is_absent(self) -> bool {
        matches!(self.kind, Kind::Null | Kind::Undefined)
    }

    /// Returns a value that a command accepts as a flag: a bool, or a number (old shells send `ordered: 1`).
    pub fn as_flag(self) -> Option<bool> {
        match self.kind {
            Kind::Boolean => self.as_bool(),
            Kind::Int32 => self.as_i32().map(|v| v != 0),
            Kind::Int64 => self.as_raw_i64().map(|v| v != 0),
            Kind::Double => self.as_f64().map(|v| v != 0.0),
            _ => None,
        }
    }
}

/// A value that owns its bytes. Up to 8 bytes (numbers, dates) need no allocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnedValue {
    kind: Kind,
    bytes: smallvec::SmallVec<[u8; 8]>,
}

impl OwnedValue {
    pub fn int32(number: i32) -> Self {
        Self::fixed(Kind::Int32, &number.to_le_bytes())
    }

    pub fn int64(number: i64) -> Self {
        Self::fixed(Kind::Int64, &number.to_le_bytes())
    }

    pub fn double(number: f64) -> Self {
        Self::fixed(Kind::Double, &number.to_le_bytes())
    }

    pub fn boolean(truth: bool) -> Self {
        Self::fixed(Kind::Boolean, &[u8::from(truth)])
    }

    pub fn null() -> Self {
        Self::fixed(Kind::Null, &[])
    }

    pub fn string(text: impl AsRef<[u8]>) -> Self {
        let text = text.as_ref();
        let mut bytes = smallvec::SmallVec::with_capacity(text.len() + 5);
        bytes.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
        bytes.extend_from_slice(text);
        bytes.push(0);
        Self { kind: Kind::String, bytes }
    }

    /// A UUID (binary subtype 4).
    pub fn uuid(uuid: [u8; 16]) -> Self {
        Self::binary_of(4, &uuid)
    }

    /// Binary data (subtype 0).
    pub fn binary(data: &[u8]) -> Self {
        Self::binary_of(0, data)
    }

    fn binary_of(subtype: u8, data: &[u8]) -> Self {
        let mut bytes = smallvec::SmallVec::with_capacity(data.len() + 5);
        bytes.extend_from_slice(&(data.len() as u32).to_le_bytes());
        bytes.push(subtype);
        bytes.extend_from_slice(data);
        Self { kind: Kind::Binary, bytes }
    }

    /// Milliseconds since 1970 UTC.
    pub fn date(milliseconds: i64) -> Self {
        Self::fixed(Kind::DateTime, &milliseconds.to_le_bytes())
    }

    /// A BSON timestamp: `seconds` since 1970 UTC, and the number of the operation within that second.
    pub fn timestamp(seconds: u32, increment: u32) -> Self {
        let bits = (u64::from(seconds) << 32) | u64::from(increment);
        Self::fixed(Kind::Timestamp, &bits.to_le_bytes())
    }

    /// The bytes of a document that [`Writer`](super::Writer) wrote.
    pub fn document(bytes: &[u8]) -> Self {
        Self::fixed(Kind::Document, bytes)
    }

    /// Returns an int32 if the number fits, otherwise an int64.
    pub fn integer(number: i64) -> Self {
        i32::try_from(number).map_or_else(|_| Self::int64(number), Self::int32)
    }

    fn fixed(kind: Kind, bytes: &[u8]) -> Self {
        Self { kind, bytes: smallvec::SmallVec::from_slice(bytes) }
    }

    pub fn as_value(&self) -> Value<'_> {
        Value { kind: self.kind, bytes: &self.bytes }
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        Self::fixed(value.kind, value.bytes)
    }
}
