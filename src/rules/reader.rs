//! Reads settings from a tree strictly and collects all mistakes.
//!
//! A [`MapReader`] reads one mapping. Read every allowed key, call [`MapReader::finish`],
//! and only then use `?`, so that one load reports every mistake:
//!
//! ```ignore
//! let mut settings = context.map(node)?;
//! let field = settings.required_text("field");
//! let policy = settings.choice("policy", &[("add_condition", Policy::AddCondition), ("reject", Policy::Reject)]);
//! settings.finish();
//! Some(Bounds { field: field?.value, policy: policy.map_or(Policy::AddCondition, |word| word.value) })
//! ```
//!
//! A value of the wrong type is reported at its place and read as `None`, like an absent one. The caller may
//! then use the default: a report with an error prevents loading anyway.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::code::Code;
use super::context::{Located, Number, ReadContext, wrong_type};
use super::diagnostic::Diagnostic;
use super::node::{Key, Node, Value};
use super::renamed;
use super::source::Span;
use crate::suggest;

/// Reads one mapping; the module's documentation shows how.
#[derive(Debug)]
#[must_use = "call `finish` to report unknown keys"]
pub struct MapReader<'n, 'c, 'a> {
    entries: &'n [(Key, Node)],
    /// Where to report missing keys: the first key, or the empty mapping.
    place: Span,
    /// The keys read so far: all that the mapping may have.
    asked: Vec<&'static str>,
    context: &'c mut ReadContext<'a>,
}

impl<'n, 'c, 'a> MapReader<'n, 'c, 'a> {
    pub(super) fn new(entries: &'n [(Key, Node)], place: Span, context: &'c mut ReadContext<'a>) -> Self {
        Self { entries, place, asked: Vec::new(), context }
    }

    /// Reports missing keys at `span`, usually the mapping's own key, instead of at the first key.
    pub fn at(mut self, span: Span) -> Self {
        self.place = span;
        self
    }

    /// Where missing keys are reported: the span given to [`Self::at`], or the first key.
    #[must_use]
    pub fn place(&self) -> Span {
        self.place
    }

    /// The context, for reading nested nodes and reporting mistakes.
    pub fn context(&mut self) -> &mut ReadContext<'a> {
        self.context
    }

    /// The value of `key`, of any type.
    pub fn node(&mut self, key: &'static str) -> Option<&'n Node> {
        self.entry(key).map(|(_, node)| node)
    }

    /// The key and value of `key`.
    pub fn entry(&mut self, key: &'static str) -> Option<(&'n Key, &'n Node)> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        let entry = self.entries.iter().find(|(found, _)| found.text == key)?;
        Some((&entry.0, &entry.1))
    }

    /// A reader of the mapping at `key`, which needs its own `finish`. Its missing keys are reported at `key`.
    pub fn map(&mut self, key: &'static str) -> Option<MapReader<'n, '_, 'a>> {
        let (key, node) = self.entry(key)?;
        self.context.named_map(node, &format!("`{}`", key.text), key.span)
    }

    /// A text that is not empty.
    pub fn text(&mut self, key: &'static str) -> Option<Located<String>> {
        let node = self.node(key)?;
        self.context.text(node, &format!("`{key}`"))
    }

    /// One text or a list of texts, without empty ones and duplicates.
    pub fn texts(&mut self, key: &'static str) -> Option<Vec<Located<String>>> {
        let node = self.node(key)?;
        self.context.texts(node, &format!("`{key}`"))
    }

    /// A whole number.
    pub fn integer(&mut self, key: &'static str) -> Option<Located<i64>> {
        let node = self.node(key)?;
        let span = node.span;
        match node.value {
            Value::Integer(value) => Some(Located { value, span }),
            _ => self.wrong_type(key, node, "a whole number"),
        }
    }

    /// A whole number in `range`.
    pub fn integer_in(&mut self, key: &'static str, range: RangeInclusive<i64>) -> Option<Located<i64>> {
        let found = self.integer(key)?;
        if range.contains(&found.value) {
            return Some(found);
        }
        let message = match (*range.start(), *range.end()) {
            (start, i64::MAX) => format!("`{key}` must be at least {start}"),
            (start, end) => format!("`{key}` must be from {start} to {end}"),
        };
        self.context.error(Code::InvalidValue, found.span, message);
        None
    }

    /// A number, whole or not.
    pub fn number(&mut self, key: &'static str) -> Option<Located<Number>> {
        let node = self.node(key)?;
        let span = node.span;
        let value = match node.value {
            Value::Integer(value) => Number::Integer(value),
            Value::Float(value) => Number::Float(value),
            _ => return self.wrong_type(key, node, "a number"),
        };
        Some(Located { value, span })
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, key: &'static str) -> Option<Located<bool>> {
        let node = self.node(key)?;
        let span = node.span;
        match node.value {
            Value::Bool(value) => Some(Located { value, span }),
            _ => self.wrong_type(key, node, "`true` or `false`"),
        }
    }

    /// A duration above zero: a whole number and one of `ms`, `s`, `m`, `h`, `d`, as in `5m`.
    pub fn duration(&mut self, key: &'static str) -> Option<Located<Duration>> {
        let node = self.node(key)?;
        let span = node.span;
        let parsed = match &node.value {
            Value::Text(text) => parse_duration(text),
            _ => None,
        };
        if let Some(value) = parsed {
            return Some(Located { value, span });
        }
        let mistake = wrong_type(node, &format!("`{key}` must be a duration"));
        let help = "write a number and a unit (`ms`, `s`, `m`, `h`, `d`): `90s`, `5m`";
        self.context.push(mistake.help(help));
        None
    }

    /// One of `words`, as the value paired with it.
    pub fn choice<T: Copy>(&mut self, key: &'static str, words: &[(&'static str, T)]) -> Option<Located<T>> {
        let node = self.node(key)?;
        let Value::Text(written) = &node.value else {
            return self.wrong_type(key, node, &suggest::one_of(words.iter().map(|(word, _)| *word)));
        };
        let written = Located { value: written.clone(), span: node.span };
        let value = self.context.word(&written, &format!("`{key}`"), words)?;
        Some(written.map(|_| value))
    }

    /// Like `read`, for a required key: `settings.required("lease", MapReader::duration)`.
    pub fn required<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Self, &'static str) -> Option<T>,
    ) -> Option<T> {
        if self.entry(key).is_some() {
            return read(self, key);
        }
        let message = format!("`{key}` is missing");
        self.context.error(Code::MissingKey, self.place, message);
        None
    }

    /// [`Self::text`] of a required key.
    pub fn required_text(&mut self, key: &'static str) -> Option<Located<String>> {
        self.required(key, Self::text)
    }

    /// [`Self::texts`] of a required key.
    pub fn required_texts(&mut self, key: &'static str) -> Option<Vec<Located<String>>> {
        self.required(key, Self::texts)
    }

    /// [`Self::integer`] of a required key.
    pub fn required_integer(&mut self, key: &'static str) -> Option<Located<i64>> {
        self.required(key, Self::integer)
    }

    /// [`Self::node`] of a required key.
    pub fn required_node(&mut self, key: &'static str) -> Option<&'n Node> {
        self.required(key, Self::node)
    }

    /// [`Self::choice`] of a required key.
    pub fn required_choice<T: Copy>(&mut self, key: &'static str, words: &[(&'static str, T)]) -> Option<Located<T>> {
        self.required(key, |reader, key| reader.choice(key, words))
    }

    /// Reports every key that was not read as unknown.
    pub fn finish(self) {
        for key in unknown(self.entries, &self.asked) {
            self.context.push(unknown_key(key, &self.asked));
        }
    }

    /// Like [`Self::finish`], for a caller that reports the unknown keys itself. Returns the context, the unknown
    /// keys and the allowed ones.
    pub(super) fn finish_quietly(self) -> (&'c mut ReadContext<'a>, Vec<&'n Key>, Vec<&'static str>) {
        let unknown = unknown(self.entries, &self.asked).collect();
        (self.context, unknown, self.asked)
    }

    fn wrong_type<T>(&mut self, key: &str, node: &Node, expected: &str) -> Option<T> {
        let mistake = wrong_type(node, &format!("`{key}` must be {expected}"));
        self.context.push(mistake);
        None
    }
}

fn unknown<'n>(entries: &'n [(Key, Node)], asked: &[&'static str]) -> impl Iterator<Item = &'n Key> {
    let keys = entries.iter().map(|(key, _)| key);
    keys.filter(|key| !asked.contains(&key.text.as_str()))
}

/// The diagnostic for a key that is not one of `allowed`.
pub(super) fn unknown_key(key: &Key, allowed: &[&'static str]) -> Diagnostic {
    if let Some(new) = renamed::key(&key.text, allowed) {
        let message = format!("`{}` has a new name", key.text);
        return Diagnostic::error(Code::UnknownKey, key.span, message).note(format!("write `{new}`"));
    }
    let message = format!("unknown key `{}`", key.text);
    let mut mistake = Diagnostic::error(Code::UnknownKey, key.span, message);
    if let Some(word) = suggest::nearest(&key.text, allowed.iter().copied()) {
        mistake = mistake.note(format!("did you mean `{word}`?"));
    }
    let mut allowed = allowed.to_vec();
    allowed.sort_unstable();
    mistake.help(format!("allowed keys: {}", suggest::all_of(allowed)))
}

/// Parses a whole number above zero and one of `ms`, `s`, `m`, `h`, `d`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let unit_start = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(unit_start);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let count: u64 = count.parse().ok()?;
    let total = count.checked_mul(milliseconds).filter(|total| *total > 0)?;
    Some(Duration::from_millis(total))
}
