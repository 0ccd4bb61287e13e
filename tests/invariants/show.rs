//! Values and cases as text: in mongosh syntax with their types, as `docward::shell::document` reads it.

use bson::{Bson, Document};

/// The length of a line of a case.
const WIDTH: usize = 120;

/// A case with each field on its own line, and so the parts of a field that is too long for one.
pub(super) fn case(fields: &Document) -> String {
    let mut text = "{\n".to_owned();
    fields.iter().for_each(|(name, held)| lines(&format!("  {}: ", key(name)), held, ",\n", &mut text));
    text + "},\n"
}

fn lines(before: &str, held: &Bson, after: &str, text: &mut String) {
    let line = format!("{before}{}{after}", value(held));
    let indent = &before[..before.len() - before.trim_start().len()];
    let mut parts = |open: char, close: char, parts: Vec<(String, &Bson)>| {
        *text += &format!("{before}{open}\n");
        parts.iter().for_each(|(name, held)| lines(&format!("{indent}  {name}"), held, ",\n", text));
        *text += &format!("{indent}{close}{after}");
    };
    match held {
        _ if line.len() <= WIDTH => *text += &line,
        Bson::Document(nested) => {
            parts('{', '}', nested.iter().map(|(name, held)| (format!("{}: ", key(name)), held)).collect());
        }
        Bson::Array(items) if items.len() == 1 => lines(&format!("{before}["), &items[0], &format!("]{after}"), text),
        Bson::Array(items) => parts('[', ']', items.iter().map(|item| (String::new(), item)).collect()),
        _ => *text += &line,
    }
}

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
        Bson::Double(n) if n.is_infinite() => if *n > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        Bson::Double(n) if n.fract() == 0.0 => format!("Double({n:?})"),
        Bson::Double(n) => format!("{n:?}"),
        Bson::Decimal128(n) => format!("Decimal128(\"{n}\")"),
        Bson::DateTime(time) => format!("new Date({})", time.timestamp_millis()),
        Bson::Timestamp(bson::Timestamp { time, increment }) => format!("Timestamp({time}, {increment})"),
        Bson::String(text) => format!("{text:?}"),
        Bson::Boolean(is) => is.to_string(),
        Bson::Null => "null".to_owned(),
        Bson::ObjectId(id) => format!("ObjectId(\"{id}\")"),
        Bson::RegularExpression(regex) => format!("/{}/{}", regex.pattern, regex.options),
        Bson::MinKey => "MinKey()".to_owned(),
        Bson::MaxKey => "MaxKey()".to_owned(),
        other => {
            let whole = bson::doc! { "v": other.clone() }.to_vec().unwrap();
            let whole = docward::document::Document::parse(&whole).unwrap();
            docward::shell::extended_json(whole)["v"].to_string()
        }
    }
}
