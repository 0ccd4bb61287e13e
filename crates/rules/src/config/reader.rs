//! Reads mappings strictly and collects all mistakes.
//!
//! A [`MapReader`] reads one mapping with a [`ReadContext`]. The keys of rule files are declared, as [`super::keys`] shows;
//! those of `docward.yaml` are read by their names, and every key that is read is allowed. Read every key before the first
//! `?`, so that one load reports every mistake.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::code::Code;
use super::context::{ELEMENT, PatternSettings, ReadContext};
use super::diagnostic::Diagnostic;
use super::keys::{Keys, Mapping, Presence, ReadValue, Setting, ValueList};
use super::node::{Located, MappingKey, Node, NodeValue};
use super::renamed;
use super::source::Span;
use crate::suggest;

impl<'a> ReadContext<'a> {
    /// Reads `node` as a mapping and reports any other type. Missing keys are reported at its first key, those of
    /// a pattern's settings at the pattern's key.
    pub fn map<'n>(&mut self, node: &'n Node) -> Option<MapReader<'n, '_, 'a>> {
        match self.settings() {
            Some(PatternSettings { span, key, .. }) if span == node.span => {
                let (what, span) = (format!("`{}`", key.text), key.span);
                self.named_map(node, &what, span)
            }
            _ => self.named_map(node, ELEMENT, span_of(node)),
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

    /// Like [`Self::map`], for a mapping that messages call `what`. Missing keys are reported at `span`.
    fn named_map<'n>(&mut self, node: &'n Node, what: &str, span: Span) -> Option<MapReader<'n, '_, 'a>> {
        let entries = self.entries(node, what)?;
        Some(MapReader::new(entries, span, self))
    }
}

/// Where a mapping's missing keys are reported: at its first key.
fn span_of(node: &Node) -> Span {
    match &node.value {
        NodeValue::Map(entries) => entries.first().map_or(node.span, |(key, _)| key.span),
        _ => node.span,
    }
}

/// Reads one mapping.
#[derive(Debug)]
#[must_use = "call `finish` to report unknown keys"]
pub struct MapReader<'n, 'c, 'a> {
    entries: &'n [(MappingKey, Node)],
    /// Where to report missing keys: the first key, or the empty mapping.
    span: Span,
    /// The keys that the mapping may have: those declared, and those read so far.
    allowed: Vec<&'static str>,
    context: &'c mut ReadContext<'a>,
}

impl<'n, 'c, 'a> MapReader<'n, 'c, 'a> {
    fn new(entries: &'n [(MappingKey, Node)], span: Span, context: &'c mut ReadContext<'a>) -> Self {
        Self { entries, span, allowed: Vec::new(), context }
    }

    /// Declares the keys that the mapping may have, for [`Self::get`].
    pub fn declared(mut self, keys: &Keys) -> Self {
        self.allowed.extend(keys.settings.iter().map(|setting| setting.name()));
        self
    }

    /// The value of a declared key, or its default. Reports a missing key and an invalid value, and returns `None`.
    pub fn get<K: ReadValue>(&mut self, setting: &Setting<K>) -> Option<K::Value> {
        match self.declared_node(setting) {
            Some(node) => setting.kind.read(self.context, setting.name, node),
            None => self.default(setting),
        }
    }

    /// Like [`Self::get`], with the default in place of an invalid value too. So the other mistakes of the file are
    /// found, and the report prevents loading anyway.
    pub fn get_or_default<K: ReadValue>(&mut self, setting: &Setting<K>) -> Option<K::Value> {
        self.get(setting).or_else(|| self.default(setting))
    }

    /// The default of a key, if it has one.
    fn default<K: ReadValue>(&mut self, setting: &Setting<K>) -> Option<K::Value> {
        let Presence::Default(value) = setting.presence else { return None };
        let node = Node { value: value.into(), span: self.span };
        setting.kind.read(self.context, setting.name, &node)
    }

    /// The value of a declared key as it is written; reports a required key that is missing.
    pub fn declared_node<S>(&mut self, setting: &Setting<S>) -> Option<&'n Node> {
        debug_assert!(self.allowed.contains(&setting.name), "{} is not declared for its mapping", setting.name);
        let node = self.node(setting.name);
        if node.is_none() && matches!(setting.presence, Presence::Required) && !self.is_misspelled(setting.name) {
            let mut mistake = missing(setting.name, self.span);
            if let Some(example) = setting.examples.first() {
                let quote = if example.contains(": ") { "'" } else { "" };
                mistake = mistake.help(format!("for example `{}: {quote}{example}{quote}`", setting.name));
            }
            self.context.push(mistake);
        }
        node
    }

    /// Whether an unknown key is probably this one; [`Self::finish`] reports it.
    fn is_misspelled(&self, key: &str) -> bool {
        let nearest = |written: &str| suggest::nearest(written, self.allowed.iter().copied());
        unknown(self.entries, &self.allowed).any(|unknown| nearest(&unknown.text) == Some(key))
    }

    /// Whether a declared key is written, or probably meant by an unknown one.
    pub fn has<S>(&mut self, setting: &Setting<S>) -> bool {
        self.node(setting.name).is_some() || self.is_misspelled(setting.name)
    }

    /// A reader of the mapping at a declared key, which needs its own `finish`. Its missing keys are reported at the key.
    pub fn nested(&mut self, setting: &Setting<Mapping>) -> Option<MapReader<'n, '_, 'a>> {
        self.declared_node(setting)?;
        Some(self.map(setting.name)?.declared(setting.kind.0))
    }

    /// Like [`Self::nested`]; an empty mapping if the key is missing or has another value.
    pub fn nested_or_empty(&mut self, setting: &Setting<Mapping>) -> MapReader<'n, '_, 'a> {
        let (span, entries): (Span, &'n [(MappingKey, Node)]) = match self.entry(setting.name) {
            Some((key, node)) => (key.span, self.context.entries(node, &format!("`{}`", key.text)).unwrap_or_default()),
            None => (self.span, &[]),
        };
        MapReader::new(entries, span, self.context).declared(setting.kind.0)
    }

    /// The elements of the list at a declared key.
    pub fn list(&mut self, setting: &Setting<ValueList>) -> Option<&'n [Node]> {
        let node = self.declared_node(setting)?;
        self.context.list(node, &format!("`{}`", setting.name))
    }

    /// Where missing keys are reported.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// The context, for reading nested nodes and reporting mistakes.
    pub fn context(&mut self) -> &mut ReadContext<'a> {
        self.context
    }

    /// The value of `key`, of any type.
    pub fn node(&mut self, key: &'static str) -> Option<&'n Node> {
        self.entry(key).map(|(_, node)| node)
    }

    /// Warns of each of these keys that the mapping has. `because`: with or without which setting they have no effect.
    pub fn warn_without_effect(&mut self, keys: &[&'static str], because: &str) {
        for key in keys {
            if let Some((found, _)) = self.entry(key) {
                let message = format!("`{key}` has no effect {because}");
                self.context.push(Diagnostic::warning(Code::NeverActs, found.span, message).help("remove it"));
            }
        }
    }

    /// The key and value of `key`.
    pub fn entry(&mut self, key: &'static str) -> Option<(&'n MappingKey, &'n Node)> {
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
        self.context.push(missing(key, self.span));
        None
    }

    /// [`Self::text`] of a required key.
    pub fn required_text(&mut self, key: &'static str) -> Option<Located<String>> {
        self.required(key, Self::text)
    }

    /// Reports every key that was not read as unknown.
    pub fn finish(self) {
        let settings = self.context.settings();
        for key in unknown(self.entries, &self.allowed) {
            let mut mistake = unknown_key(key, &self.allowed);
            if let Some(settings) = settings.filter(|settings| settings.beside.contains(&key.text.as_str())) {
                mistake = mistake.note(format!("a key of the rule: move it beside `{}`", settings.key.text));
            }
            self.context.push(mistake);
        }
    }

    /// Like [`Self::finish`], for a caller that reports the unknown keys itself. Returns the context, the unknown
    /// keys and the allowed ones.
    pub(crate) fn finish_quietly(self) -> (&'c mut ReadContext<'a>, Vec<&'n MappingKey>, Vec<&'static str>) {
        let unknown = unknown(self.entries, &self.allowed).collect();
        (self.context, unknown, self.allowed)
    }
}

fn missing(key: &str, span: Span) -> Diagnostic {
    Diagnostic::error(Code::MissingKey, span, format!("`{key}` is missing"))
}

fn unknown<'n>(entries: &'n [(MappingKey, Node)], allowed: &[&'static str]) -> impl Iterator<Item = &'n MappingKey> {
    let keys = entries.iter().map(|(key, _)| key);
    keys.filter(|key| !allowed.contains(&key.text.as_str()))
}

/// The diagnostic for a key that is not one of `allowed`.
pub(crate) fn unknown_key(key: &MappingKey, allowed: &[&'static str]) -> Diagnostic {
    if let Some(new) = renamed::new_key(&key.text, allowed) {
        let message = format!("`{}` has a new name", key.text);
        return Diagnostic::error(Code::UnknownKey, key.span, message).note(format!("write `{new}`"));
    }
    let message = format!("unknown key `{}`", key.text);
    let mistake = Diagnostic::error(Code::UnknownKey, key.span, message);
    let mistake = mistake.did_you_mean(&key.text, allowed.iter().copied());
    let mut allowed = allowed.to_vec();
    allowed.sort_unstable();
    mistake.help(format!("allowed keys: {}", suggest::all_of(allowed)))
}
