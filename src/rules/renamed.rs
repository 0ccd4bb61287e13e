//! Keys and words of the rule language's first draft. They are not read; the error names what to write instead.

/// An old key, a key that only the mapping it stood in takes, and what is written today.
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

/// Old words, and what they are today.
const WORDS: &[(&str, &str)] = &[("guard", "check_version"), ("guard", "add_condition")];

/// What is written today instead of the key `old`, in a mapping that takes the keys `allowed`.
pub(super) fn key(old: &str, allowed: &[&str]) -> Option<&'static str> {
    let found = KEYS.iter().find(|(name, beside, _)| *name == old && allowed.contains(beside));
    found.map(|(_, _, new)| *new)
}

/// Which of the words `allowed` is written today instead of `old`.
pub(super) fn word(old: &str, mut allowed: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    allowed.find(|new| WORDS.contains(&(old, *new)))
}
