//! Writes BSON values as mongosh text, and as Extended JSON if JavaScript cannot express them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::date;
use super::layout::Piece;
use super::lexer::{Lexer, is_name_part, is_name_start};
use super::term::array_index;
use crate::document::{Document, Kind, Value};

/// Returns the value in mongosh syntax, or `None` if mongosh would parse the text as another value. The depth of
/// checked documents bounds the recursion ([`MAX_DEPTH`](crate::document::MAX_DEPTH)).
pub(super) fn piece(value: Value<'_>) -> Option<Piece> {
    Some(match value.kind {
        Kind::Document => return document(value.as_document()?),
        Kind::Array => {
            let items = value.as_array()?.values().map(piece).collect::<Option<_>>()?;
            Piece::Group { open: "[".to_owned(), items, close: "]" }
        }
        Kind::JavaScriptWithScope => {
            let (code, scope) = scoped_code(value)?;
            Piece::call("Code", vec![Piece::atom(quoted(code)), document(scope)?])
        }
        _ => Piece::Atom(scalar(value)?),
    })
}

/// Returns a document such as `{a: 1, "b.c": 2}`.
pub(super) fn document(document: Document<'_>) -> Option<Piece> {
    let mut items = Vec::new();
    let mut last_index = None;
    for element in document.elements() {
        let name = std::str::from_utf8(element.key).ok().filter(|name| *name != "__proto__")?;
        // JavaScript moves array indexes to the front, in ascending order.
        match array_index(name) {
            Some(index) if items.is_empty() || last_index.is_some_and(|last| index > last) => last_index = Some(index),
            Some(_) => return None,
            None => last_index = None,
        }
        items.push(Piece::Row(vec![Piece::Atom(format!("{}: ", key(name))), piece(element.value)?]));
    }
    document.reject_duplicates().ok()?;
    Some(Piece::Group { open: "{".to_owned(), items, close: "}" })
}

pub(super) fn is_plain_name(name: &str) -> bool {
    name.starts_with(is_name_start) && name.chars().all(is_name_part)
}

fn key(name: &str) -> String {
    if is_plain_name(name) { name.to_owned() } else { quoted(name) }
}

/// Returns the text in double quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                out.push_str(&format!("\\u{:04x}", c as u32))
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn scalar(value: Value<'_>) -> Option<String> {
    Some(match value.kind {
        Kind::Double => double(value.as_f64()?),
        Kind::String => quoted(value.as_str()?),
        Kind::ObjectId => format!("ObjectId(\"{}\")", hex::encode(value.bytes)),
        Kind::Boolean => value.as_bool()?.to_string(),
        Kind::Null => "null".to_owned(),
        Kind::Int32 => value.as_i32()?.to_string(),
        Kind::Int64 => format!("Long(\"{}\")", value.as_raw_i64()?),
        Kind::Decimal128 => format!("Decimal128(\"{}\")", decimal(value)?),
        Kind::MinKey => "MinKey()".to_owned(),
        Kind::MaxKey => "MaxKey()".to_owned(),
        Kind::DateTime => {
            let milliseconds = value.as_raw_i64()?;
            match date::to_iso(milliseconds) {
                Some(text) => format!("ISODate(\"{text}\")"),
                None => format!("new Date({milliseconds})"),
            }
        }
        Kind::Timestamp => {
            let (seconds, counter) = timestamp(value)?;
            format!("Timestamp({{t: {seconds}, i: {counter}}})")
        }
        Kind::Binary => {
            let (subtype, content) = binary(value)?;
            match <[u8; 16]>::try_from(content) {
                Ok(bytes) if subtype == 4 => format!("UUID(\"{}\")", uuid(bytes)),
                _ => format!("BinData({subtype}, \"{}\")", STANDARD.encode(content)),
            }
        }
        Kind::Regex => {
            let (pattern, options) = regular_expression(value)?;
            regex_literal(pattern, options)
                .unwrap_or_else(|| format!("BSONRegExp({}, {})", quoted(pattern), quoted(options)))
        }
        Kind::JavaScript => format!("Code({})", quoted(string(value)?)),
        Kind::Symbol => format!("BSONSymbol({})", quoted(string(value)?)),
        Kind::Undefined | Kind::DbPointer | Kind::Document | Kind::Array | Kind::JavaScriptWithScope => return None,
    })
}

fn double(number: f64) -> String {
    /// JavaScript uses exponents outside this range, too.
    const PLAIN: std::ops::Range<f64> = 1e-6..1e21;
    let fits_int = number.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number);
    match number {
        _ if number.is_nan() => "NaN".to_owned(),
        _ if number.is_infinite() => if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        0.0 if number.is_sign_negative() => "-0".to_owned(),
        _ if fits_int => format!("Double({number})"),
        _ if PLAIN.contains(&number.abs()) => number.to_string(),
        _ => format!("{number:e}"),
    }
}

/// Returns `/pattern/options`, or `None` if that text would be parsed as another value.
fn regex_literal(pattern: &str, options: &str) -> Option<String> {
    let flags: String = options.chars().map(|option| if option == 's' { 'g' } else { option }).collect();
    let literal = format!("/{pattern}/{flags}");
    // An empty pattern would begin a comment.
    let (read, span) =
        Lexer::new(&literal).regex().ok().filter(|_| !pattern.is_empty() && !pattern.starts_with('*'))?;
    (span.end == literal.len() && read.pattern == pattern && read.options == options).then_some(literal)
}

// === the parts of values ===

/// Returns a string. The bytes of code and of symbols have the same format.
fn string(value: Value<'_>) -> Option<&str> {
    Value { kind: Kind::String, bytes: value.bytes }.as_str()
}

fn scoped_code(value: Value<'_>) -> Option<(&str, Document<'_>)> {
    let rest = value.bytes.get(4..)?;
    let length = 4 + u32::from_le_bytes(*rest.first_chunk()?) as usize;
    let code = string(Value { kind: Kind::JavaScript, bytes: rest.get(..length)? })?;
    let scope = Value { kind: Kind::Document, bytes: rest.get(length..)? };
    Some((code, scope.as_document()?))
}

fn decimal(value: Value<'_>) -> Option<String> {
    Some(bson::Decimal128::from_bytes(value.bytes.try_into().ok()?).to_string())
}

fn timestamp(value: Value<'_>) -> Option<(u32, u32)> {
    let bits = value.as_raw_i64()? as u64;
    Some(((bits >> 32) as u32, bits as u32))
}

fn binary(value: Value<'_>) -> Option<(u8, &[u8])> {
    let content = value.bytes.get(5..)?;
    match value.bytes.get(4)? {
        // The old generic subtype contains a second length.
        2 => Some((2, content.get(4..)?)),
        subtype => Some((*subtype, content)),
    }
}

fn regular_expression(value: Value<'_>) -> Option<(&str, &str)> {
    let (pattern, rest) = value.bytes.split_at_checked(value.bytes.iter().position(|byte| *byte == 0)?)?;
    let options = rest.get(1..rest.len().checked_sub(1)?)?;
    Some((std::str::from_utf8(pattern).ok()?, std::str::from_utf8(options).ok()?))
}

fn uuid(bytes: [u8; 16]) -> String {
    bson::Uuid::from_bytes(bytes).to_string()
}

// === Extended JSON ===

/// Returns the document in canonical Extended JSON (version 2). Invalid UTF-8 becomes replacement characters. Of two
/// fields with the same name only the last one is kept.
#[must_use]
pub fn extended_json(document: Document<'_>) -> serde_json::Value {
    fields(document, extended_scalar)
}

/// Like [`extended_json`], but relaxed: numbers and dates as people and other programs read them.
#[must_use]
pub fn relaxed_json(document: Document<'_>) -> serde_json::Value {
    fields(document, relaxed_scalar)
}

type ScalarWriter = fn(Value<'_>) -> Option<serde_json::Value>;

fn fields(document: Document<'_>, scalar: ScalarWriter) -> serde_json::Value {
    let fields = document.elements();
    serde_json::Value::Object(
        fields
            .map(|element| (String::from_utf8_lossy(element.key).into_owned(), extended(element.value, scalar)))
            .collect(),
    )
}

fn extended(value: Value<'_>, scalar: ScalarWriter) -> serde_json::Value {
    if let Some(document) = value.as_document() {
        return fields(document, scalar);
    }
    if let Some(array) = value.as_array() {
        return array.values().map(|value| extended(value, scalar)).collect();
    }
    scalar(value).unwrap_or_else(|| json!(String::from_utf8_lossy(value.as_string_bytes().unwrap_or_default())))
}

fn relaxed_scalar(value: Value<'_>) -> Option<serde_json::Value> {
    match value.kind {
        Kind::Int32 => Some(json!(value.as_i32()?)),
        Kind::Int64 => Some(json!(value.as_raw_i64()?)),
        Kind::Double if value.as_f64()?.is_finite() => Some(json!(value.as_f64()?)),
        Kind::DateTime if value.as_raw_i64()? >= 0 => match date::to_iso(value.as_raw_i64()?) {
            Some(text) => Some(json!({"$date": text})),
            None => extended_scalar(value),
        },
        _ => extended_scalar(value),
    }
}

fn extended_scalar(value: Value<'_>) -> Option<serde_json::Value> {
    Some(match value.kind {
        Kind::Double => json!({"$numberDouble": extended_double(value.as_f64()?)}),
        Kind::String => json!(value.as_str()?),
        Kind::Binary => {
            let (subtype, content) = binary(value)?;
            json!({"$binary": {"base64": STANDARD.encode(content), "subType": format!("{subtype:02x}")}})
        }
        Kind::Undefined => json!({"$undefined": true}),
        Kind::ObjectId => json!({"$oid": hex::encode(value.bytes)}),
        Kind::Boolean => json!(value.as_bool()?),
        Kind::DateTime => json!({"$date": {"$numberLong": value.as_raw_i64()?.to_string()}}),
        Kind::Null => serde_json::Value::Null,
        Kind::Regex => {
            let (pattern, options) = regular_expression(value)?;
            json!({"$regularExpression": {"pattern": pattern, "options": options}})
        }
        Kind::DbPointer => {
            let (namespace, id) = value.bytes.split_at_checked(value.bytes.len().checked_sub(12)?)?;
            let namespace = string(Value { kind: Kind::String, bytes: namespace })?;
            json!({"$dbPointer": {"$ref": namespace, "$id": {"$oid": hex::encode(id)}}})
        }
        Kind::JavaScript => json!({"$code": string(value)?}),
        Kind::Symbol => json!({"$symbol": string(value)?}),
        Kind::JavaScriptWithScope => {
            let (code, scope) = scoped_code(value)?;
            json!({"$code": code, "$scope": extended_json(scope)})
        }
        Kind::Int32 => json!({"$numberInt": value.as_i32()?.to_string()}),
        Kind::Timestamp => {
            let (seconds, counter) = timestamp(value)?;
            json!({"$timestamp": {"t": seconds, "i": counter}})
        }
        Kind::Int64 => json!({"$numberLong": value.as_raw_i64()?.to_string()}),
        Kind::Decimal128 => json!({"$numberDecimal": decimal(value)?}),
        Kind::MinKey => json!({"$minKey": 1}),
        Kind::MaxKey => json!({"$maxKey": 1}),
        Kind::Document | Kind::Array => return None,
    })
}

fn extended_double(number: f64) -> String {
    match number {
        _ if number.is_nan() => "NaN".to_owned(),
        _ if number.is_infinite() => if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        _ => format!("{number:?}"),
    }
}
