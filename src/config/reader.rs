//! Reads settings from a tree strictly and collects all mistakes.
//!
//! A [`ReadContext`] reads single nodes and collects the diagnostics. A [`MapReader`] reads one mapping with it. The
//! keys of rule files are declared, as [`super::keys`] shows; those of `docward.yaml` are read by their names, and every
//! key that is read is allowed. Read every key before the first `?`, so that one load reports every mistake.
//!
//! A value of the wrong type is reported at its place and read as `None`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::code::Code;
use super::diagnostic::Diagnostic;
use super::keys::{Keys, Kind, List, Mapping, Presence, Setting};
use super::namespace::NamespacePattern;
use super::node::{Key, Located, Node, Number, Value};
use super::renamed;
use super::source::Span;
use crate::suggest;

/// The context of reading a tree: the collected diagnostics, and the rule being read.
#[derive(Debug)]
pub struct ReadContext<'a> {
    diagnostics: &'a mut Vec<Diagnostic>,
    namespaces: &'a [Located<NamespacePattern>],
    /// The settings of the pattern being read, and their key. Missing keys are reported at that key.
    settings: Option<(Span, &'a Key)>,
}

impl<'a> ReadContext<'a> {
    /// A context for everything except a pattern's settings.
    pub(crate) fn new(diagnostics: &'a mut Vec<Diagnostic>) -> Self {
        Self { diagnostics, namespaces: &[], settings: None }
    }

    /// A context for the `settings` under `key`, in a rule for `namespaces`.
    pub(crate) fn for_settings(
        diagnostics: &'a mut Vec<Diagnostic>,
        namespaces: &'a [Located<NamespacePattern>],
        key: &'a Key,
        settings: &Node,
    ) -> Self {
        Self { diagnostics, namespaces, settings: Some((settings.span, key)) }
    }

    /// The namespaces of the rule being read; empty if they are invalid.
    #[must_use]
    pub fn namespaces(&self) -> &'a [Located<NamespacePattern>] {
        self.namespaces
    }

    /// Reports a mistake.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Reports an error of kind `code` at `span`. Use [`Self::push`] to add help and labels.
    pub fn error(&mut self, code: Code, span: Span, message: impl Into<String>) {
        self.push(Diagnostic::error(code, span, message));
    }

    /// Reads `node` as a mapping and reports any other type. Missing keys are reported at its first key, those of
    /// a pattern's settings at the pattern's key; [`MapReader::at`] changes that.
    pub fn map<'n>(&mut self, node: &'n Node) -> Option<MapReader<'n, '_, 'a>> {
        match &self.settings {
            Some((span, key)) if *span == node.span => {
                let (what, place) = (format!("`{}`", key.text), key.span);
                self.named_map(node, &what, place)
            }
            _ => self.named_map(node, "this", place_of(node)),
        }
    }

    /// Reads `node` as a mapping with these keys: `read` reads their values. Reports all other keys.
    pub fn mapping<T>(
        &mut self,
        node: &Node,
        keys: &'static Keys,
        read: impl FnOnce(&mut MapReader<'_, '_, '_>) -> Option<T>,
    ) -> Option<T> {
        let mut reader = self.map(node)?.declared(keys);
        let value = read(&mut reader);
        reader.finish();
        value
    }

    /// Like [`Self::map`], for a mapping that messages call `what`. Missing keys are reported at `place`.
    fn named_map<'n>(&mut self, node: &'n Node, what: &str, place: Span) -> Option<MapReader<'n, '_, 'a>> {
        let entries = self.entries(node, what)?;
        Some(MapReader::new(entries, place, self))
    }

    /// The entries of the mapping `node`; reports any other type.
    fn entries<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n [(Key, Node)]> {
        if let Value::Map(entries) = &node.value {
            return Some(entries);
        }
        let mut mistake = wrong_type(node, &format!("{what} must be a mapping"));
        if node.value == Value::Null {
            mistake = mistake.help("write `{}` for an empty mapping");
        }
        self.push(mistake);
        None
    }

    /// Reads `node` as a list and reports any other type. Messages call the list `what`: "`rules`".
    pub fn list<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n [Node]> {
        match &node.value {
            Value::List(items) => Some(items),
            _ => {
                self.push(wrong_type(node, &format!("{what} must be a list")));
                None
            }
        }
    }

    /// Reads `node` as text that is not empty. Messages call it `what`: "`field`".
    pub fn text(&mut self, node: &Node, what: &str) -> Option<Located<String>> {
        let span = node.span;
        match &node.value {
            Value::Text(text) if text.is_empty() => {
                self.error(Code::InvalidValue, span, format!("{what} must not be empty"));
                None
            }
            Value::Text(text) => Some(Located { value: text.clone(), span }),
            other => {
                let mut mistake = wrong_type(node, &format!("{what} must be text"));
                if let Value::Bool(_) | Value::Integer(_) | Value::Float(_) = other {
                    mistake = mistake.help("put it in quotes to make it text");
                }
                self.push(mistake);
                None
            }
        }
    }

    /// The value of `text` in `words`; reports any other text. Messages call it `what`: "`mode`".
    pub fn word<T: Copy>(&mut self, text: &Located<String>, what: &str, words: &[(&'static str, T)]) -> Option<T> {
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text.value) {
            return Some(*value);
        }
        let known = || words.iter().map(|(word, _)| *word);
        if let Some(new) = renamed::word(&text.value, known()) {
            let message = format!("`{}` has a new name", text.value);
            self.push(Diagnostic::error(Code::UnknownWord, text.span, message).note(format!("write `{new}`")));
            return None;
        }
        let message = format!("{what} cannot be `{}`", text.value);
        let mut mistake = Diagnostic::error(Code::UnknownWord, text.span, message);
        if let Some(word) = suggest::nearest(&text.value, known()) {
            mistake = mistake.note(format!("did you mean `{word}`?"));
        }
        self.push(mistake.help(format!("{what} must be {}", suggest::one_of(known()))));
        None
    }

    /// Reads `node` as one text or a list of texts, without empty ones and duplicates. Messages call it `what`.
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
        // Valid texts are returned nevertheless, so that the caller can report further mistakes in them.
        let mut texts: Vec<Located<String>> = Vec::with_capacity(items.len());
        let mut first: HashMap<String, Span> = HashMap::with_capacity(items.len());
        for item in items {
            let Some(text) = self.text(item, &element) else {
                continue;
            };
            match first.entry(text.value.clone()) {
                Entry::Occupied(first) => {
                    let message = format!("`{}` is listed twice", text.value);
                    let mistake = Diagnostic::error(Code::InvalidValue, text.span, message);
                    self.push(mistake.label(*first.get(), "first here"));
                }
                Entry::Vacant(vacant) => {
                    vacant.insert(text.span);
                    texts.push(text);
                }
            }
        }
        Some(texts)
    }

    /// The whole number `node` of `key`, which must be in `range`.
    pub(super) fn integer_in(&mut self, key: &str, node: &Node, range: &RangeInclusive<i64>) -> Option<Located<i64>> {
        let Value::Integer(value) = node.value else {
            return self.wrong_type(key, node, "a whole number");
        };
        let span = node.span;
        if range.contains(&value) {
            return Some(Located { value, span });
        }
        let message = match (*range.start(), *range.end()) {
            (start, i64::MAX) => format!("`{key}` must be at least {start}"),
            (start, end) => format!("`{key}` must be from {start} to {end}"),
        };
        self.error(Code::InvalidValue, span, message);
        None
    }

    pub(super) fn number(&mut self, key: &str, node: &Node) -> Option<Located<Number>> {
        let value = match node.value {
            Value::Integer(value) => Number::Integer(value),
            Value::Float(value) => Number::Float(value),
            _ => return self.wrong_type(key, node, "a number"),
        };
        Some(Located { value, span: node.span })
    }

    pub(super) fn boolean(&mut self, key: &str, node: &Node) -> Option<Located<bool>> {
        match node.value {
            Value::Bool(value) => Some(Located { value, span: node.span }),
            _ => self.wrong_type(key, node, "`true` or `false`"),
        }
    }

    pub(super) fn duration(&mut self, key: &str, node: &Node) -> Option<Located<Duration>> {
        let parsed = match &node.value {
            Value::Text(text) => parse_duration(text),
            _ => None,
        };
        if let Some(value) = parsed {
            return Some(Located { value, span: node.span });
        }
        let mistake = wrong_type(node, &format!("`{key}` must be a duration"));
        let help = "write a number and a unit (`ms`, `s`, `m`, `h`, `d`): `90s`, `5m`";
        self.push(mistake.help(help));
        None
    }

    /// The value of the word `node` in `words`.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &str,
        node: &Node,
        words: &[(&'static str, T)],
    ) -> Option<Located<T>> {
        let Value::Text(written) = &node.value else {
            return self.wrong_type(key, node, &suggest::one_of(words.iter().map(|(word, _)| *word)));
        };
        let written = Located { value: written.clone(), span: node.span };
        let value = self.word(&written, &format!("`{key}`"), words)?;
        Some(written.map(|_| value))
    }

    fn wrong_type<T>(&mut self, key: &str, node: &Node, expected: &str) -> Option<T> {
        let mistake = wrong_type(node, &format!("`{key}` must be {expected}"));
        self.push(mistake);
        None
    }
}

/// Where a mapping's missing keys are reported: at its first key.
fn place_of(node: &Node) -> Span {
    match &node.value {
        Value::Map(entries) => entries.first().map_or(node.span, |(key, _)| key.span),
        _ => node.span,
    }
}

/// The diagnostic for a `node` of the wrong type; `sentence` is what it must be.
fn wrong_type(node: &Node, sentence: &str) -> Diagnostic {
    let found = node.value.describe();
    Diagnostic::error(Code::WrongType, node.span, sentence).note(format!("found {found}"))
}

/// Reads one mapping; the module's documentation shows how.
#[derive(Debug)]
#[must_use = "call `finish` to report unknown keys"]
pub struct MapReader<'n, 'c, 'a> {
    entries: &'n [(Key, Node)],
    /// Where to report missing keys: the first key, or the empty mapping.
    place: Span,
    /// The keys that the mapping may have: those declared, and those read so far.
    allowed: Vec<&'static str>,
    context: &'c mut ReadContext<'a>,
}

impl<'n, 'c, 'a> MapReader<'n, 'c, 'a> {
    fn new(entries: &'n [(Key, Node)], place: Span, context: &'c mut ReadContext<'a>) -> Self {
        Self { entries, place, allowed: Vec::new(), context }
    }

    /// Declares the keys that the mapping may have, for [`Self::get`].
    pub fn declared(mut self, keys: &Keys) -> Self {
        self.allowed.extend(keys.settings.iter().map(|setting| setting.name()));
        self
    }

    /// The value of a declared key, or its default. Reports a missing key and an invalid value, and returns `None`.
    pub fn get<K: Kind>(&mut self, setting: &Setting<K>) -> Option<K::Value> {
        match self.declared_node(setting) {
            Some(node) => setting.kind.read(self.context, setting.name, node),
            None => self.default(setting),
        }
    }

    /// Like [`Self::get`], with the default in place of an invalid value too. So the other mistakes of the file are
    /// found, and the report prevents loading anyway.
    pub fn get_or_default<K: Kind>(&mut self, setting: &Setting<K>) -> Option<K::Value> {
        self.get(setting).or_else(|| self.default(setting))
    }

    /// The default of a key, if it has one.
    fn default<K: Kind>(&mut self, setting: &Setting<K>) -> Option<K::Value> {
        let Presence::Default(value) = setting.presence else { return None };
        let node = Node { value: value.into(), span: self.place };
        setting.kind.read(self.context, setting.name, &node)
    }

    /// The value of a declared key as it is written; reports a required key that is missing.
    pub fn declared_node<S>(&mut self, setting: &Setting<S>) -> Option<&'n Node> {
        debug_assert!(self.allowed.contains(&setting.name), "{} is not declared for its mapping", setting.name);
        let node = self.node(setting.name);
        if node.is_none() && matches!(setting.presence, Presence::Required) {
            self.report_missing(setting.name);
        }
        node
    }

    /// Whether a declared key is written.
    pub fn has<S>(&mut self, setting: &Setting<S>) -> bool {
        self.node(setting.name).is_some()
    }

    /// A reader of the mapping at a declared key, which needs its own `finish`. Its missing keys are reported at the key.
    pub fn nested(&mut self, setting: &Setting<Mapping>) -> Option<MapReader<'n, '_, 'a>> {
        self.declared_node(setting)?;
        Some(self.map(setting.name)?.declared(setting.kind.0))
    }

    /// Like [`Self::nested`]; an empty mapping if the key is missing or has another value.
    pub fn nested_or_empty(&mut self, setting: &Setting<Mapping>) -> MapReader<'n, '_, 'a> {
        let (place, entries): (Span, &'n [(Key, Node)]) = match self.entry(setting.name) {
            Some((key, node)) => (key.span, self.context.entries(node, &format!("`{}`", key.text)).unwrap_or_default()),
            None => (self.place, &[]),
        };
        MapReader::new(entries, place, self.context).declared(setting.kind.0)
    }

    /// The elements of the list at a declared key.
    pub fn list(&mut self, setting: &Setting<List>) -> Option<&'n [Node]> {
        let node = self.declared_node(setting)?;
        self.context.list(node, &format!("`{}`", setting.name))
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
        if !self.allowed.contains(&key) {
            self.allowed.push(key);
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

    /// A whole number in `range`.
    pub fn integer_in(&mut self, key: &'static str, range: RangeInclusive<i64>) -> Option<Located<i64>> {
        let node = self.node(key)?;
        self.context.integer_in(key, node, &range)
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, key: &'static str) -> Option<Located<bool>> {
        let node = self.node(key)?;
        self.context.boolean(key, node)
    }

    /// A duration above zero: a whole number and one of `ms`, `s`, `m`, `h`, `d`, as in `5m`.
    pub fn duration(&mut self, key: &'static str) -> Option<Located<Duration>> {
        let node = self.node(key)?;
        self.context.duration(key, node)
    }

    /// One of `words`, as the value paired with it.
    pub fn choice<T: Copy>(&mut self, key: &'static str, words: &[(&'static str, T)]) -> Option<Located<T>> {
        let node = self.node(key)?;
        self.context.choice(key, node, words)
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
        self.report_missing(key);
        None
    }

    fn report_missing(&mut self, key: &'static str) {
        self.context.error(Code::MissingKey, self.place, format!("`{key}` is missing"));
    }

    /// [`Self::text`] of a required key.
    pub fn required_text(&mut self, key: &'static str) -> Option<Located<String>> {
        self.required(key, Self::text)
    }

    /// Reports every key that was not read as unknown.
    pub fn finish(self) {
        for key in unknown(self.entries, &self.allowed) {
            self.context.push(unknown_key(key, &self.allowed));
        }
    }

    /// Like [`Self::finish`], for a caller that reports the unknown keys itself. Returns the context, the unknown
    /// keys and the allowed ones.
    pub(crate) fn finish_quietly(self) -> (&'c mut ReadContext<'a>, Vec<&'n Key>, Vec<&'static str>) {
        let unknown = unknown(self.entries, &self.allowed).collect();
        (self.context, unknown, self.allowed)
    }
}

fn unknown<'n>(entries: &'n [(Key, Node)], allowed: &[&'static str]) -> impl Iterator<Item = &'n Key> {
    let keys = entries.iter().map(|(key, _)| key);
    keys.filter(|key| !allowed.contains(&key.text.as_str()))
}

/// The diagnostic for a key that is not one of `allowed`.
pub(crate) fn unknown_key(key: &Key, allowed: &[&'static str]) -> Diagnostic {
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
