//! Reading settings out of a tree, strictly, with all mistakes collected.
//!
//! A [`MapReader`] takes one mapping. Ask it for every key it may hold, call
//! [`MapReader::finish`], and only then decide with `?`, so that one load reports every mistake:
//!
//! ```ignore
//! let mut settings = context.map(node)?;
//! let field = settings.required_text("field");
//! let unguarded = settings.choice("unguarded", &[("guard", Unguarded::Guard), ("reject", Unguarded::Reject)]);
//! settings.finish();
//! Some(Bounds { field: field?.value, unguarded: unguarded.map_or(Unguarded::Guard, |word| word.value) })
//! ```
//!
//! A value of the wrong type is reported where it is and read as `None`, like an absent one; that
//! the defaults then apply does no harm, since a report with an error keeps everything from loading.

use std::ops::{Deref, RangeInclusive};
use std::time::Duration;

use super::code::Code;
use super::diagnostic::Diagnostic;
use super::namespace::NamespacePattern;
use super::node::{Key, Node, Value};
use super::source::Span;
use super::suggest;

/// A value and where it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Its place.
    pub span: Span,
}

impl<T> Located<T> {
    /// The same place with another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Located<U> {
        let span = self.span;
        let value = change(self.value);
        Located { value, span }
    }
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A number as the file spells it: a bound of 5 stays an integer, one of 0.5 is a double.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number.
    Integer(i64),
    /// Any other finite number.
    Float(f64),
}

/// What a reader needs besides the tree: where mistakes go, and the rule it reads for.
#[derive(Debug)]
pub struct ReadContext<'a> {
    diagnostics: &'a mut Vec<Diagnostic>,
    namespaces: &'a [Located<NamespacePattern>],
    /// The settings of the pattern being read, and their key, at which what they lack is reported.
    settings: Option<(Span, Span)>,
}

impl<'a> ReadContext<'a> {
    /// For everything but a pattern's settings.
    pub(super) fn new(diagnostics: &'a mut Vec<Diagnostic>) -> Self {
        Self { diagnostics, namespaces: &[], settings: None }
    }

    /// For the `settings` under `key`, in a rule for `namespaces`.
    pub(super) fn for_settings(
        diagnostics: &'a mut Vec<Diagnostic>,
        namespaces: &'a [Located<NamespacePattern>],
        key: &Key,
        settings: &Node,
    ) -> Self {
        Self { diagnostics, namespaces, settings: Some((settings.span, key.span)) }
    }

    /// The namespaces of the rule that is being read; empty when they themselves are wrong.
    #[must_use]
    pub fn namespaces(&self) -> &'a [Located<NamespacePattern>] {
        self.namespaces
    }

    /// Reports a mistake.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Reports an error of kind `code` at `span`. For help and labels: [`Self::push`].
    pub fn error(&mut self, code: Code, span: Span, message: impl Into<String>) {
        self.push(Diagnostic::error(code, span, message));
    }

    /// Reads `node` as a mapping; anything else is reported. What it lacks is reported at its first
    /// key, what a pattern's settings lack at the pattern's key; [`MapReader::at`] changes that.
    pub fn map<'n>(&mut self, node: &'n Node) -> Option<MapReader<'n, '_, 'a>> {
        match &node.value {
            Value::Map(entries) => {
                Some(MapReader { entries, place: self.place_of(node.span, entries), asked: Vec::new(), context: self })
            }
            Value::Null => {
                let found = Value::Null.describe();
                self.push(wrong_type(node.span, "a mapping", &found).help("write `{}` for the defaults"));
                None
            }
            other => {
                self.push(wrong_type(node.span, "a mapping", &other.describe()));
                None
            }
        }
    }

    fn place_of(&self, span: Span, entries: &[(Key, Node)]) -> Span {
        match self.settings {
            Some((settings, key)) if settings == span => key,
            _ => entries.first().map_or(span, |(key, _)| key.span),
        }
    }

    /// Reads `node` as a list; anything else is reported. `what` names the list: "`rules`".
    pub fn list<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n [Node]> {
        match &node.value {
            Value::List(items) => Some(items),
            other => {
                let expected = format!("{what} must be a list");
                self.push(wrong_type_sentence(node.span, &expected, &other.describe()));
                None
            }
        }
    }

    /// Reads `node` as text that is not empty. `what` names it: "`field`".
    pub fn text(&mut self, node: &Node, what: &str) -> Option<Located<String>> {
        let span = node.span;
        match &node.value {
            Value::Text(text) if text.is_empty() => {
                self.error(Code::InvalidValue, span, format!("{what} must not be empty"));
                None
            }
            Value::Text(text) => Some(Located { value: text.clone(), span }),
            other => {
                let sentence = format!("{what} must be text");
                let mut mistake = wrong_type_sentence(span, &sentence, &other.describe());
                if let Value::Bool(_) | Value::Integer(_) | Value::Float(_) = other {
                    mistake = mistake.help("put it in quotes if it is meant as text");
                }
                self.push(mistake);
                None
            }
        }
    }

    /// Reads `node` as one text or a list of them, none empty, none twice. `what` names it.
    pub fn texts(&mut self, node: &Node, what: &str) -> Option<Vec<Located<String>>> {
        let Value::List(items) = &node.value else {
            return self.text(node, what).map(|text| vec![text]);
        };
        if items.is_empty() {
            let message = format!("{what} must not be an empty list");
            self.error(Code::InvalidValue, node.span, message);
            return None;
        }
        let element = format!("each of {what}");
        let mut texts: Vec<Located<String>> = Vec::with_capacity(items.len());
        let mut complete = true;
        for item in items {
            let Some(text) = self.text(item, &element) else {
                complete = false;
                continue;
            };
            if let Some(first) = texts.iter().find(|other| other.value == text.value) {
                let message = format!("`{}` is in the list twice", text.value);
                let mistake = Diagnostic::error(Code::InvalidValue, text.span, message);
                self.push(mistake.label(first.span, "first here"));
                complete = false;
            }
            texts.push(text);
        }
        complete.then_some(texts)
    }
}

/// One mapping being read. See the module's documentation for how to use it.
#[derive(Debug)]
#[must_use = "call `finish`, or unknown keys go unnoticed"]
pub struct MapReader<'n, 'c, 'a> {
    entries: &'n [(Key, Node)],
    /// Where to report what is missing: the first key, or the empty mapping.
    place: Span,
    /// The keys asked for: all that the mapping may hold.
    asked: Vec<&'static str>,
    context: &'c mut ReadContext<'a>,
}

impl<'n, 'c, 'a> MapReader<'n, 'c, 'a> {
    /// Reports what is missing at `span` instead of at the first key: usually the mapping's own key.
    pub fn at(mut self, span: Span) -> Self {
        self.place = span;
        self
    }

    /// Where the mapping is: what [`Self::at`] said, or its first key.
    #[must_use]
    pub fn place(&self) -> Span {
        self.place
    }

    /// For reading what is inside, and for reporting mistakes.
    pub fn context(&mut self) -> &mut ReadContext<'a> {
        self.context
    }

    /// The value of `key`, whatever it is.
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

    /// A mapping, to be read and finished in its turn. What it lacks is reported at `key`.
    pub fn map(&mut self, key: &'static str) -> Option<MapReader<'n, '_, 'a>> {
        let (key, node) = self.entry(key)?;
        Some(self.context.map(node)?.at(key.span))
    }

    /// Text that is not empty.
    pub fn text(&mut self, key: &'static str) -> Option<Located<String>> {
        let node = self.node(key)?;
        self.context.text(node, &format!("`{key}`"))
    }

    /// One text or a list of them, none empty, none twice.
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
            ref other => self.wrong_type(key, span, "a whole number", other),
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
            ref other => return self.wrong_type(key, span, "a number", other),
        };
        Some(Located { value, span })
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, key: &'static str) -> Option<Located<bool>> {
        let node = self.node(key)?;
        let span = node.span;
        match node.value {
            Value::Bool(value) => Some(Located { value, span }),
            ref other => self.wrong_type(key, span, "`true` or `false`", other),
        }
    }

    /// A length of time: a whole number and one of `ms`, `s`, `m`, `h`, `d`, as in `5m`. More than none.
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
        let found = node.value.describe();
        let mistake = wrong_type_sentence(span, &format!("`{key}` must be a length of time"), &found);
        let help = "write a number and a unit (`ms`, `s`, `m`, `h`, `d`): `90s`, `5m`";
        self.context.push(mistake.help(help));
        None
    }

    /// One of some words, each with what it means.
    pub fn choice<T: Copy>(&mut self, key: &'static str, words: &[(&'static str, T)]) -> Option<Located<T>> {
        let node = self.node(key)?;
        let span = node.span;
        let allowed = || words.iter().map(|(word, _)| *word);
        let Value::Text(written) = &node.value else {
            return self.wrong_type(key, span, &suggest::one_of(allowed()), &node.value);
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| word == written) {
            return Some(Located { value: *value, span });
        }
        let message = format!("`{written}` is nothing `{key}` can be");
        let mut mistake = Diagnostic::error(Code::UnknownWord, span, message);
        if let Some(word) = suggest::nearest(written, allowed()) {
            mistake = mistake.note(format!("did you mean `{word}`?"));
        }
        let help = format!("`{key}` is {}", suggest::one_of(allowed()));
        self.context.push(mistake.help(help));
        None
    }

    /// Like `read`, but the key must be there: `settings.required("lease", MapReader::duration)`.
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

    /// [`Self::text`] that must be there.
    pub fn required_text(&mut self, key: &'static str) -> Option<Located<String>> {
        self.required(key, Self::text)
    }

    /// [`Self::texts`] that must be there.
    pub fn required_texts(&mut self, key: &'static str) -> Option<Vec<Located<String>>> {
        self.required(key, Self::texts)
    }

    /// [`Self::integer`] that must be there.
    pub fn required_integer(&mut self, key: &'static str) -> Option<Located<i64>> {
        self.required(key, Self::integer)
    }

    /// [`Self::node`] that must be there.
    pub fn required_node(&mut self, key: &'static str) -> Option<&'n Node> {
        self.required(key, Self::node)
    }

    /// [`Self::choice`] that must be there.
    pub fn required_choice<T: Copy>(&mut self, key: &'static str, words: &[(&'static str, T)]) -> Option<Located<T>> {
        self.required(key, |reader, key| reader.choice(key, words))
    }

    /// Reports every key that was never asked for.
    pub fn finish(self) {
        for key in unknown(self.entries, &self.asked) {
            self.context.push(unknown_key(key, &self.asked));
        }
    }

    /// Instead of [`Self::finish`], for a caller that has more to say about the keys never asked
    /// for: the context, those keys, and the ones asked for.
    pub(super) fn finish_quietly(self) -> (&'c mut ReadContext<'a>, Vec<&'n Key>, Vec<&'static str>) {
        let unknown = unknown(self.entries, &self.asked).collect();
        (self.context, unknown, self.asked)
    }

    fn wrong_type<T>(&mut self, key: &str, span: Span, expected: &str, found: &Value) -> Option<T> {
        let sentence = format!("`{key}` must be {expected}");
        let mistake = wrong_type_sentence(span, &sentence, &found.describe());
        self.context.push(mistake);
        None
    }
}

fn unknown<'n>(entries: &'n [(Key, Node)], asked: &[&'static str]) -> impl Iterator<Item = &'n Key> {
    let keys = entries.iter().map(|(key, _)| key);
    keys.filter(|key| !asked.contains(&key.text.as_str()))
}

/// The mistake of a key that is not one of `allowed`.
pub(super) fn unknown_key(key: &Key, allowed: &[&'static str]) -> Diagnostic {
    let message = format!("`{}` means nothing here", key.text);
    let mut mistake = Diagnostic::error(Code::UnknownKey, key.span, message);
    if let Some(word) = suggest::nearest(&key.text, allowed.iter().copied()) {
        mistake = mistake.note(format!("did you mean `{word}`?"));
    }
    let mut allowed = allowed.to_vec();
    allowed.sort_unstable();
    mistake.help(format!("this mapping takes {}", suggest::all_of(allowed)))
}

fn wrong_type(span: Span, expected: &str, found: &str) -> Diagnostic {
    wrong_type_sentence(span, &format!("this must be {expected}"), found)
}

fn wrong_type_sentence(span: Span, sentence: &str, found: &str) -> Diagnostic {
    Diagnostic::error(Code::WrongType, span, sentence).note(format!("found {found}"))
}

fn parse_duration(text: &str) -> Option<Duration> {
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
