//! The context of reading a tree: the collected diagnostics, and the rule being read.
//!
//! A [`ReadContext`] reads single nodes. For mappings it makes a [`MapReader`] (`reader.rs`). It does not know
//! what the settings mean.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Deref;

use super::code::Code;
use super::diagnostic::Diagnostic;
use super::namespace::NamespacePattern;
use super::node::{Key, Node, Value};
use super::reader::MapReader;
use super::renamed;
use super::source::Span;
use crate::suggest;

/// A value and its place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Its place.
    pub span: Span,
}

impl<T> Located<T> {
    /// Changes the value and keeps the place.
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

/// A number as the file spells it: 5 stays an integer, 0.5 is a double.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number.
    Integer(i64),
    /// Any other finite number.
    Float(f64),
}

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
    pub(super) fn new(diagnostics: &'a mut Vec<Diagnostic>) -> Self {
        Self { diagnostics, namespaces: &[], settings: None }
    }

    /// A context for the `settings` under `key`, in a rule for `namespaces`.
    pub(super) fn for_settings(
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

    /// Like [`Self::map`], for a mapping that messages call `what`. Missing keys are reported at `place`.
    pub(super) fn named_map<'n>(&mut self, node: &'n Node, what: &str, place: Span) -> Option<MapReader<'n, '_, 'a>> {
        if let Value::Map(entries) = &node.value {
            return Some(MapReader::new(entries, place, self));
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
}

/// Where a mapping's missing keys are reported: at its first key.
fn place_of(node: &Node) -> Span {
    match &node.value {
        Value::Map(entries) => entries.first().map_or(node.span, |(key, _)| key.span),
        _ => node.span,
    }
}

/// The diagnostic for a `node` of the wrong type; `sentence` is what it must be.
pub(super) fn wrong_type(node: &Node, sentence: &str) -> Diagnostic {
    let found = node.value.describe();
    Diagnostic::error(Code::WrongType, node.span, sentence).note(format!("found {found}"))
}
