//! What a field's name and value say about what it is for.

use crate::document::{Kind, Value};

/// What a field may be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Purpose {
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

/// What a top-level field looks like; `None` for all others.
pub(super) fn purpose(name: &str, value: Value<'_>) -> Option<Purpose> {
    let whole = value.as_integer().is_some() && value.kind != Kind::DateTime;
    if VERSIONS.contains(&name) && whole {
        return Some(Purpose::Version);
    }
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    (TIMES.contains(&plain.as_str()) && value.kind == Kind::DateTime).then_some(Purpose::Time)
}
