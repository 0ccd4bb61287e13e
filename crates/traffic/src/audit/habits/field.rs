//! Guesses the purpose of a field from its name and value.

use crate::document::{Kind, Value};

/// The probable purpose of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::audit) enum FieldPurpose {
    /// A counter of changes, for optimistic concurrency.
    Version,
    /// When the document changed at its source.
    Time,
}

const VERSIONS: [&str; 7] = ["version", "_version", "__v", "rev", "_rev", "revision", "etag_version"];
const TIMES: [&str; 10] = [
    "updatedat",
    "modifiedat",
    "lastmodified",
    "lastupdated",
    "lastupdate",
    "changedat",
    "publishedat",
    "measuredat",
    "eventtime",
    "sourcetime",
];

/// The probable purpose of a top-level field; `None` if it has none of these.
pub(super) fn purpose(name: &str, value: Value<'_>) -> Option<FieldPurpose> {
    let whole = value.as_integer().is_some() && value.kind != Kind::DateTime;
    if VERSIONS.contains(&name) && whole {
        return Some(FieldPurpose::Version);
    }
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    (TIMES.contains(&plain.as_str()) && value.kind == Kind::DateTime).then_some(FieldPurpose::Time)
}
