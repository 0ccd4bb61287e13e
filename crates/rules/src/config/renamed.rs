//! Former keys and words of the rule language. They are errors that name the current ones.

/// The former key, a current key of the mapping it belonged to, and the replacement.
const KEYS: &[(&str, &str, &str)] = &[
    ("unguardable", "unsupported", "unsupported"),
    ("unguarded", "policy", "policy"),
    ("guard", "on_conflict", "version"),
    ("conflict", "on_conflict", "on_conflict"),
    ("missing", "without_source", "without_source"),
    ("missing", "without", "without"),
    ("locked", "max_attempts", "fields: { locked: … }"),
    ("since", "max_attempts", "fields: { locked_at: … }"),
    ("attempts", "max_attempts", "fields: { attempts: … }"),
];

/// Former words and their replacements.
const WORDS: &[(&str, &str)] = &[("guard", "check_version"), ("guard", "add_condition")];

/// The replacement of the key `old` in a mapping that takes the keys `allowed`.
pub(crate) fn new_key(old: &str, allowed: &[&str]) -> Option<&'static str> {
    let found = KEYS.iter().find(|(name, beside, _)| *name == old && allowed.contains(beside));
    found.map(|(_, _, new)| *new)
}

/// The one of the `allowed` words that replaces `old`.
pub(crate) fn new_word(old: &str, mut allowed: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    allowed.find(|new| WORDS.contains(&(old, *new)))
}
