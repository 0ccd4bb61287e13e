//! Values and cases as text for failed tests: in mongosh syntax, with their types.

use bson::{Bson, Document};

pub(super) fn document(document: &Document) -> String {
    let fields: Vec<String> = document.iter().map(|(name, held)| format!("{}: {}", key(name), value(held))).collect();
    format!("{{{}}}", fields.join(", "))
}

pub(super) fn documents(list: &[Document]) -> String {
    let lines: Vec<String> = list.iter().map(|entry| format!("\n    {}", document(entry))).collect();
    if lines.is_empty() { " (none)".to_owned() } else { lines.concat() }
}

fn key(name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$');
    if plain && !name.starts_with(|c: char| c.is_ascii_digit()) { name.to_owned() } else { format!("{name:?}") }
}

pub(super) fn value(held: &Bson) -> String {
    match held {
        Bson::Document(nested) => document(nested),
        Bson::Array(items) => format!("[{}]", items.iter().map(value).collect::<Vec<_>>().join(", ")),
        Bson::Int32(n) => n.to_string(),
        Bson::Int64(n) => format!("Long(\"{n}\")"),
        Bson::Double(n) if n.fract() == 0.0 && n.abs() < 1e9 => format!("Double({n:?})"),
        Bson::Double(n) => format!("{n:?}"),
        Bson::Decimal128(n) => format!("Decimal128(\"{n}\")"),
        Bson::DateTime(time) => format!("new Date({})", time.timestamp_millis()),
        Bson::String(text) => format!("{text:?}"),
        Bson::Boolean(is) => is.to_string(),
        Bson::Null => "null".to_owned(),
        Bson::ObjectId(id) => format!("ObjectId(\"{id}\")"),
        Bson::RegularExpression(regex) => format!("/{}/{}", regex.pattern, regex.options),
        Bson::MinKey => "MinKey()".to_owned(),
        other => other.to_string(),
    }
}
