//! A command as Extended JSON, version 2, canonical or relaxed: `{"update": "orders", "updates": […]}`.
//!
//! The text is parsed like a mongosh literal, so quotes may be missing. Then documents that represent values
//! (`{"$oid": "…"}`) are converted, and numbers get the types that Extended JSON specifies.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ShellError;
use super::constructor::{binary_value, code_value, regex_value, scoped_code};
use super::date;
use super::term::{Term, TermContent, TermField};
use super::value::of_kind;
use crate::document::{Kind, OwnedValue, Value};

/// Converts a term that was parsed from `text`.
///
/// # Errors
/// [`ShellError`] for a document with a key such as `$oid` and an invalid value.
pub(super) fn convert(term: Term, text: &str) -> Result<Term, ShellError> {
    let Term { span, content } = term;
    let content = match content {
        TermContent::Scalar(value) => TermContent::Scalar(number(value, text.get(span.clone()).unwrap_or_default())),
        TermContent::Array(terms) => {
            TermContent::Array(terms.into_iter().map(|term| convert(term, text)).collect::<Result<_, _>>()?)
        }
        TermContent::Document(fields) => {
            let fields: Vec<TermField> = fields
                .into_iter()
                .map(|field| Ok(TermField { term: convert(field.term, text)?, ..field }))
                .collect::<Result<_, _>>()?;
            match Wrapper::from_fields(&fields) {
                Wrapper::None => TermContent::Document(fields),
                Wrapper::Value(value) => TermContent::Scalar(value),
                Wrapper::Broken(key) => {
                    let error = ShellError::new(span, format!("invalid value of `{key}` in Extended JSON"));
                    return Err(error.help(format!("write {}", example(key))));
                }
            }
        }
    };
    Ok(Term { span, content })
}

/// The written form decides whether a JSON number is an integer.
fn number(value: OwnedValue, written: &str) -> OwnedValue {
    let kind = value.as_value().kind;
    if !matches!(kind, Kind::Int32 | Kind::Double) || !written.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return value;
    }
    match (written.parse::<i64>(), written.parse::<f64>()) {
        (Ok(whole), _) => OwnedValue::integer(whole),
        (_, Ok(double)) => OwnedValue::double(double),
        _ => value,
    }
}

/// The meaning of a document.
enum Wrapper {
    /// A plain document.
    None,
    Value(OwnedValue),
    Broken(&'static str),
}

/// A key that makes a document represent a value, and an example.
const KEYS: [(&str, &str); 14] = [
    ("$oid", r#"{"$oid": "507f1f77bcf86cd799439011"}"#),
    ("$date", r#"{"$date": "2026-01-31T12:00:00Z"}"#),
    ("$numberInt", r#"{"$numberInt": "5"}"#),
    ("$numberLong", r#"{"$numberLong": "5"}"#),
    ("$numberDouble", r#"{"$numberDouble": "0.5"}"#),
    ("$numberDecimal", r#"{"$numberDecimal": "0.5"}"#),
    ("$binary", r#"{"$binary": {"base64": "AP8=", "subType": "00"}}"#),
    ("$uuid", r#"{"$uuid": "01234567-89ab-cdef-0123-456789abcdef"}"#),
    ("$regularExpression", r#"{"$regularExpression": {"pattern": "^a", "options": "i"}}"#),
    ("$timestamp", r#"{"$timestamp": {"t": 5, "i": 1}}"#),
    ("$code", r#"{"$code": "function() {}"}"#),
    ("$symbol", r#"{"$symbol": "a"}"#),
    ("$minKey", r#"{"$minKey": 1}"#),
    ("$maxKey", r#"{"$maxKey": 1}"#),
];

fn example(key: &str) -> &'static str {
    KEYS.iter()
        .find(|(known, _)| *known == key)
        .map_or(r#"{"$dbPointer": {"$ref": "a.b", "$id": {"$oid": "…"}}}"#, |(_, example)| example)
}

impl Wrapper {
    /// Returns the meaning of a document with these fields, which have been converted.
    fn from_fields(fields: &[TermField]) -> Self {
        let Some(TermField { key, term, .. }) = fields.first() else { return Self::None };
        let made = match (key.as_str(), fields.len()) {
            ("$undefined", 1) => Some(of_kind(Kind::Undefined, &[])),
            ("$dbPointer", 1) => db_pointer(term),
            ("$code", 2) => with_scope(term, fields.get(1)),
            (_, 1) if KEYS.iter().any(|(known, _)| known == key) => value(key, term),
            _ => return Self::None,
        };
        let known = KEYS.iter().find(|(known, _)| known == key).map_or("$dbPointer", |(known, _)| known);
        made.map_or(Self::Broken(known), Self::Value)
    }
}

fn value(key: &str, term: &Term) -> Option<OwnedValue> {
    Some(match key {
        "$oid" => of_kind(Kind::ObjectId, &hex::decode(term.as_str()?).ok().filter(|bytes| bytes.len() == 12)?),
        "$date" => match term.as_str() {
            Some(text) => OwnedValue::date(date::javascript_date(text).ok()?),
            None => OwnedValue::date(term.as_value()?.as_integer()?),
        },
        "$numberInt" => OwnedValue::int32(term.as_str()?.parse().ok()?),
        "$numberLong" => OwnedValue::int64(term.as_str()?.parse().ok()?),
        "$numberDouble" => OwnedValue::double(term.as_str()?.parse().ok()?),
        "$numberDecimal" => of_kind(Kind::Decimal128, &term.as_str()?.parse::<bson::Decimal128>().ok()?.bytes()),
        "$binary" => {
            let subtype = u8::from_str_radix(member(term, "subType")?.as_str()?, 16).ok()?;
            binary_value(subtype, &STANDARD.decode(member(term, "base64")?.as_str()?).ok()?)
        }
        "$uuid" => {
            let bytes = hex::decode(term.as_str()?.replace('-', "")).ok()?;
            OwnedValue::uuid(bytes.try_into().ok()?)
        }
        "$regularExpression" => {
            let (pattern, options) = (member(term, "pattern")?.as_str()?, member(term, "options")?.as_str()?);
            regex_value(pattern, options, &term.span).ok()?
        }
        "$timestamp" => {
            let part = |key| u32::try_from(member(term, key)?.as_value()?.as_integer()?).ok();
            OwnedValue::timestamp(part("t")?, part("i")?)
        }
        "$code" => code_value(term.as_str()?),
        "$symbol" => of_kind(Kind::Symbol, OwnedValue::string(term.as_str()?).as_value().bytes),
        "$minKey" => of_kind(Kind::MinKey, &[]),
        "$maxKey" => of_kind(Kind::MaxKey, &[]),
        _ => return None,
    })
}

fn member<'t>(term: &'t Term, key: &str) -> Option<&'t Term> {
    match &term.content {
        TermContent::Document(fields) => fields.iter().find(|field| field.key == key).map(|field| &field.term),
        _ => None,
    }
}

fn with_scope(code: &Term, scope: Option<&TermField>) -> Option<OwnedValue> {
    let (Some(TermField { key, term: Term { content: TermContent::Document(scope), .. }, .. }), Some(code)) =
        (scope, code.as_str())
    else {
        return None;
    };
    (key == "$scope").then(|| scoped_code(OwnedValue::string(code).as_value().bytes, scope))
}

fn db_pointer(term: &Term) -> Option<OwnedValue> {
    let namespace = OwnedValue::string(member(term, "$ref")?.as_str()?);
    let id = member(term, "$id")?.as_value().filter(|id: &Value<'_>| id.kind == Kind::ObjectId)?;
    Some(of_kind(Kind::DbPointer, &[namespace.as_value().bytes, id.bytes].concat()))
}
