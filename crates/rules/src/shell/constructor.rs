//! The BSON types that have no JavaScript literal: `ObjectId("…")`, `ISODate("…")`, `NumberLong("…")` and others,
//! with all their names in mongosh.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::did_you_mean;
use super::term::{Term, TermContent, TermField, to_document};
use super::value::of_kind;
use super::{ShellContext, ShellError, date, regex};
use crate::document::{Kind, OwnedValue, Value};

/// A parsed constructor call.
#[derive(Debug)]
pub(super) struct Call<'c> {
    /// `Long`, `Long.fromString`
    pub(super) name: &'c str,
    pub(super) name_span: Range<usize>,
    /// Whether `new` precedes it.
    pub(super) is_new: bool,
    /// `None` if there are no parentheses.
    pub(super) arguments: Option<Vec<Term>>,
}

/// The names, for suggestions.
const NAMES: [&str; 24] = [
    "BSONRegExp",
    "BSONSymbol",
    "BinData",
    "Code",
    "DBRef",
    "Date",
    "Decimal128",
    "Double",
    "HexData",
    "ISODate",
    "Int32",
    "Long",
    "MD5",
    "MaxKey",
    "MinKey",
    "NumberDecimal",
    "NumberInt",
    "NumberLong",
    "ObjectId",
    "RegExp",
    "Timestamp",
    "UUID",
    "null",
    "true",
];

type Constructed = Result<TermContent, ShellError>;

impl Call<'_> {
    /// Returns the constructed value. `ids` counts the generated ids.
    pub(super) fn value(&self, context: ShellContext<'_>, ids: &mut u32) -> Constructed {
        let Some(arguments) = &self.arguments else {
            return match self.name {
                "MinKey" | "MaxKey" => self.key_value(),
                "Long.MAX_VALUE" => scalar(OwnedValue::int64(i64::MAX)),
                "Long.MIN_VALUE" => scalar(OwnedValue::int64(i64::MIN)),
                _ => Err(self.unknown()),
            };
        };
        match self.name {
            "ObjectId" | "ObjectID" => match arguments.as_slice() {
                [] => scalar(generated_id(context.now, ids)),
                _ => self.object_id(arguments),
            },
            "ISODate" | "Date" => self.date(arguments, context.now),
            "NumberLong" | "Long" | "Long.fromString" | "Long.fromNumber" => self.long(arguments),
            "NumberInt" | "Int32" | "Int32.fromString" => self.int(arguments),
            "NumberDecimal" | "Decimal128" | "Decimal128.fromString" => self.decimal(arguments),
            "Double" | "Double.fromString" => self.double(arguments),
            "Timestamp" => self.timestamp(arguments),
            "UUID" | "MD5" | "HexData" | "Binary.createFromHexString" => self.hexadecimal(arguments),
            "BinData" | "Binary.createFromBase64" => self.binary(arguments),
            "MinKey" | "MaxKey" => self.key_value(),
            "Code" => self.code(arguments),
            "BSONSymbol" => {
                scalar(of_kind(Kind::Symbol, OwnedValue::string(self.text(arguments, 0)?).as_value().bytes))
            }
            "BSONRegExp" => {
                let mut options: Vec<char> = self.optional_text(arguments, 1)?.chars().collect();
                options.sort_unstable();
                let options: String = options.into_iter().collect();
                scalar(regex_value(self.text(arguments, 0)?, &options, &self.name_span)?)
            }
            "RegExp" => self.regular_expression(arguments),
            "DBRef" => self.reference(arguments),
            _ => Err(self.unknown()),
        }
    }

    fn unknown(&self) -> ShellError {
        let error = ShellError::new(self.name_span.clone(), format!("docward does not know the value `{}`", self.name));
        let constants = || "write a constant; docward does not evaluate variables and calculations".to_owned();
        error.help(did_you_mean(self.name, NAMES).unwrap_or_else(constants))
    }

    fn wrong(&self, term: &Term, expected: &str) -> ShellError {
        ShellError::new(term.span.clone(), format!("`{}` takes {expected}", self.name))
    }

    fn argument<'a>(&self, arguments: &'a [Term], at: usize, expected: &str) -> Result<&'a Term, ShellError> {
        let missing = || ShellError::new(self.name_span.clone(), format!("`{}` takes {expected}", self.name));
        arguments.get(at).ok_or_else(missing)
    }

    fn text<'a>(&self, arguments: &'a [Term], at: usize) -> Result<&'a str, ShellError> {
        let term = self.argument(arguments, at, "a string")?;
        term.as_str().ok_or_else(|| self.wrong(term, "a string"))
    }

    fn optional_text<'a>(&self, arguments: &'a [Term], at: usize) -> Result<&'a str, ShellError> {
        if arguments.len() > at { self.text(arguments, at) } else { Ok("") }
    }

    fn object_id(&self, arguments: &[Term]) -> Constructed {
        let expected = "24 hexadecimal digits";
        let term = self.argument(arguments, 0, expected)?;
        let bytes = term.as_str().and_then(|digits| hex::decode(digits).ok()).filter(|bytes| bytes.len() == 12);
        scalar(of_kind(Kind::ObjectId, &bytes.ok_or_else(|| self.wrong(term, expected))?))
    }

    fn date(&self, arguments: &[Term], now: i64) -> Constructed {
        if self.name == "Date" && !self.is_new {
            let error = ShellError::new(self.name_span.clone(), "`Date` without `new` returns a string");
            return Err(error.help("write `new Date(…)` or `ISODate(…)`"));
        }
        let Some(term) = arguments.first() else { return scalar(OwnedValue::date(now)) };
        if let Some(second) = arguments.get(1) {
            let message = "a date from year, month and day depends on the local time zone";
            let error = ShellError::new(second.span.clone(), message);
            return Err(error.help("write ISODate(\"2026-01-31T12:00:00Z\")"));
        }
        if let Some(milliseconds) = term.as_number() {
            return match date::of_number(milliseconds) {
                Some(milliseconds) => scalar(OwnedValue::date(milliseconds)),
                None => Err(self.wrong(term, "milliseconds since 1970")),
            };
        }
        let text = self.text(arguments, 0)?;
        let parsed = if self.name == "ISODate" { date::iso_date(text) } else { date::javascript_date(text) };
        parsed.map(OwnedValue::date).map_or_else(
            |message| Err(ShellError::new(term.span.clone(), message).help("write it as \"2026-01-31T12:00:00Z\"")),
            scalar,
        )
    }

    fn long(&self, arguments: &[Term]) -> Constructed {
        let expected = "a whole number from -2^63 to 2^63 - 1";
        if let [low, high] = arguments
            && let (Some(low), Some(high)) = (low.as_number(), high.as_number())
        {
            let long = (i64::from(high as i32) << 32) | i64::from(low as i32 as u32);
            return scalar(OwnedValue::int64(long));
        }
        let Some(term) = arguments.first() else { return scalar(OwnedValue::int64(0)) };
        scalar(OwnedValue::int64(whole(term).ok_or_else(|| self.wrong(term, expected))?))
    }

    fn int(&self, arguments: &[Term]) -> Constructed {
        let expected = "a whole number from -2147483648 to 2147483647";
        let Some(term) = arguments.first() else { return scalar(OwnedValue::int32(0)) };
        let int = whole(term).and_then(|whole| i32::try_from(whole).ok());
        scalar(OwnedValue::int32(int.ok_or_else(|| self.wrong(term, expected))?))
    }

    fn decimal(&self, arguments: &[Term]) -> Constructed {
        let expected = "a decimal number in a string";
        let term = self.argument(arguments, 0, expected)?;
        let text = match (term.as_str(), term.as_number()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(number)) => number.to_string(),
            _ => return Err(self.wrong(term, expected)),
        };
        let decimal: bson::Decimal128 = text.parse().map_err(|_| self.wrong(term, expected))?;
        scalar(of_kind(Kind::Decimal128, &decimal.bytes()))
    }

    fn double(&self, arguments: &[Term]) -> Constructed {
        let term = self.argument(arguments, 0, "a number")?;
        let number = term.as_number().or_else(|| term.as_str().and_then(|text| text.trim().parse().ok()));
        scalar(OwnedValue::double(number.ok_or_else(|| self.wrong(term, "a number"))?))
    }

    fn timestamp(&self, arguments: &[Term]) -> Constructed {
        let expected = "seconds and a counter, as (t, i) or ({t: …, i: …})";
        let part = |term: &Term| {
            let number =
                term.as_number().filter(|number| number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(number));
            number.map(|number| number as u32).ok_or_else(|| self.wrong(term, expected))
        };
        if let [Term { content: TermContent::Document(fields), span }] = arguments {
            let of = |key: &str| fields.iter().find(|field| field.key == key);
            let (Some(seconds), Some(counter), 2) = (of("t"), of("i"), fields.len()) else {
                return Err(ShellError::new(span.clone(), format!("`{}` takes {expected}", self.name)));
            };
            return scalar(OwnedValue::timestamp(part(&seconds.term)?, part(&counter.term)?));
        }
        match arguments {
            [] => scalar(OwnedValue::timestamp(0, 0)),
            [long] if long.as_value().is_some_and(|value| value.kind == Kind::Int64) => {
                let bits = long.as_value().and_then(Value::as_raw_i64).unwrap_or_default() as u64;
                scalar(OwnedValue::timestamp((bits >> 32) as u32, bits as u32))
            }
            [seconds] => scalar(OwnedValue::timestamp(part(seconds)?, 0)),
            [seconds, counter, ..] => scalar(OwnedValue::timestamp(part(seconds)?, part(counter)?)),
        }
    }

    fn hexadecimal(&self, arguments: &[Term]) -> Constructed {
        let (subtype, at, length) = match self.name {
            "UUID" => (4, 0, Some(16)),
            "MD5" => (5, 0, Some(16)),
            "HexData" => (self.subtype(arguments, 0)?, 1, None),
            _ if arguments.len() > 1 => (self.subtype(arguments, 1)?, 0, None),
            _ => (0, 0, None),
        };
        let expected = if length.is_some() { "32 hexadecimal digits" } else { "hexadecimal digits" };
        let term = self.argument(arguments, at, expected)?;
        let digits =
            term.as_str().map(|text| if self.name == "UUID" { text.replace('-', "") } else { text.to_owned() });
        let bytes = digits.as_deref().and_then(|digits| hex::decode(digits).ok());
        let bytes = bytes.filter(|bytes| length.is_none_or(|length| bytes.len() == length));
        scalar(binary_value(subtype, &bytes.ok_or_else(|| self.wrong(term, expected))?))
    }

    fn binary(&self, arguments: &[Term]) -> Constructed {
        let (subtype, at) = match self.name {
            "BinData" => (self.subtype(arguments, 0)?, 1),
            _ if arguments.len() > 1 => (self.subtype(arguments, 1)?, 0),
            _ => (0, 0),
        };
        let term = self.argument(arguments, at, "base64 in a string")?;
        let bytes = term.as_str().and_then(|text| STANDARD.decode(text).ok());
        scalar(binary_value(subtype, &bytes.ok_or_else(|| self.wrong(term, "base64 in a string"))?))
    }

    fn subtype(&self, arguments: &[Term], at: usize) -> Result<u8, ShellError> {
        let expected = "a subtype from 0 to 255";
        let term = self.argument(arguments, at, expected)?;
        let subtype = whole(term).and_then(|whole| u8::try_from(whole).ok());
        subtype.ok_or_else(|| self.wrong(term, expected))
    }

    fn key_value(&self) -> Constructed {
        scalar(of_kind(if self.name == "MinKey" { Kind::MinKey } else { Kind::MaxKey }, &[]))
    }

    fn code(&self, arguments: &[Term]) -> Constructed {
        let term = self.argument(arguments, 0, "a function or a string")?;
        let source = match term.as_value() {
            Some(Value { kind: Kind::String | Kind::JavaScript, bytes }) => bytes,
            _ => return Err(self.wrong(term, "a function or a string")),
        };
        match arguments.get(1) {
            None => scalar(of_kind(Kind::JavaScript, source)),
            Some(Term { content: TermContent::Document(scope), .. }) => scalar(scoped_code(source, scope)),
            Some(other) => Err(self.wrong(other, "a document as its scope")),
        }
    }

    fn regular_expression(&self, arguments: &[Term]) -> Constructed {
        let term = self.argument(arguments, 0, "a pattern")?;
        let flags = self.optional_text(arguments, 1)?;
        let options = regex::options(flags);
        let options =
            options.ok_or_else(|| ShellError::new(self.name_span.clone(), format!("invalid flags `{flags}`")))?;
        match term.as_value() {
            Some(value) if value.kind == Kind::Regex => scalar(value.into()),
            Some(value) => {
                let pattern = value.as_str().ok_or_else(|| self.wrong(term, "a pattern"))?;
                scalar(regex_value(&regex::source(pattern), &options, &term.span)?)
            }
            None => Err(self.wrong(term, "a pattern")),
        }
    }

    /// Returns `{$ref, $id, $db}` and the fields of a fourth argument.
    fn reference(&self, arguments: &[Term]) -> Constructed {
        let collection = self.text(arguments, 0)?;
        let id = self.argument(arguments, 1, "a collection and an _id")?;
        let mut fields = vec![TermField::new("$ref", Term::string(collection)), TermField::new("$id", id.clone())];
        if arguments.len() > 2 {
            fields.push(TermField::new("$db", Term::string(self.text(arguments, 2)?)));
        }
        match arguments.get(3) {
            Some(Term { content: TermContent::Document(more), .. }) => fields.extend(more.iter().cloned()),
            Some(other) => return Err(self.wrong(other, "a document of further fields")),
            None => {}
        }
        Ok(TermContent::Document(fields))
    }
}

fn scalar(value: OwnedValue) -> Constructed {
    Ok(TermContent::Scalar(value))
}

/// Returns the integer in a number or a string.
fn whole(term: &Term) -> Option<i64> {
    let value = term.as_value()?;
    match value.kind {
        Kind::String => value.as_str()?.trim().parse().ok(),
        _ => value.as_integer(),
    }
}

/// Returns an id that begins with the time, as all ids do, and has a counter in place of random bytes.
fn generated_id(now: i64, ids: &mut u32) -> OwnedValue {
    let mut bytes = [0; 12];
    let (seconds, counter) = (((now / 1000) as u32).to_be_bytes(), ids.to_be_bytes());
    bytes.iter_mut().zip(seconds).for_each(|(byte, part)| *byte = part);
    bytes.iter_mut().skip(8).zip(counter).for_each(|(byte, part)| *byte = part);
    *ids = ids.wrapping_add(1);
    of_kind(Kind::ObjectId, &bytes)
}

pub(super) fn binary_value(subtype: u8, content: &[u8]) -> OwnedValue {
    /// The old generic subtype contains a second length.
    const OLD: u8 = 2;
    let inner = (subtype == OLD).then(|| (content.len() as i32).to_le_bytes());
    let length = content.len() + inner.map_or(0, |inner| inner.len());
    let mut bytes = (length as i32).to_le_bytes().to_vec();
    bytes.push(subtype);
    bytes.extend(inner.into_iter().flatten());
    bytes.extend_from_slice(content);
    of_kind(Kind::Binary, &bytes)
}

pub(super) fn regex_value(pattern: &str, options: &str, span: &Range<usize>) -> Result<OwnedValue, ShellError> {
    if pattern.contains('\0') || options.contains('\0') {
        return Err(ShellError::new(span.clone(), "a regular expression cannot contain NUL"));
    }
    let bytes = [pattern.as_bytes(), &[0], options.as_bytes(), &[0]].concat();
    Ok(of_kind(Kind::Regex, &bytes))
}

pub(super) fn code_value(source: &str) -> OwnedValue {
    of_kind(Kind::JavaScript, OwnedValue::string(source).as_value().bytes)
}

/// Returns code with scope. `source` is an encoded BSON string.
pub(super) fn scoped_code(source: &[u8], scope: &[TermField]) -> OwnedValue {
    let scope = to_document(scope);
    let scope = scope.as_document().as_bytes();
    let length = 4 + source.len() + scope.len();
    of_kind(Kind::JavaScriptWithScope, &[&(length as i32).to_le_bytes(), source, scope].concat())
}
