//! What a reader needs besides the tree: where mistakes go, and the rule it reads for.
//!
//! A [`ReadContext`] reads single nodes; mappings are read by the [`MapReader`] of `reader.rs`,
//! which it makes. It knows nothing of what the settings mean.

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
    settings: Option<(Span, &'a Key)>,
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
        key: &'a Key,
        settings: &Node,
    ) -> Self {
        Self { diagnostics, namespaces, settings: Some((settings.span, key)) }
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
        match &self.settings {
            Some((span, key)) if *span == node.span => {
                let (what, place) = (format!("`{}`", key.text), key.span);
                self.named_map(node, &what, place)
            }
            _ => self.named_map(node, "this", place_of(node)),
        }
    }

    /// The same for a mapping known as `what`, which lacks what it lacks at `place`.
    pub(super) fn named_map<'n>(&mut self, node: &'n Node, what: &str, place: Span) -> Option<MapReader<'n, '_, 'a>> {
        if let Value::Map(entries) = &node.value {
            return Some(MapReader::new(entries, place, self));
        }
        let mut mistake = wrong_type(node, &format!("{what} must be a mapping"));
        if node.value == Value::Null {
            mistake = mistake.help("write `{}` if nothing is to be said");
        }
        self.push(mistake);
        None
    }

    /// Reads `node` as a list; anything else is reported. `what` names the list: "`rules`".
    pub fn list<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n [Node]> {
        match &node.value {
            Value::List(items) => Some(items),
            _ => {
                self.push(wrong_type(node, &format!("{what} must be a list")));
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
                let mut mistake = wrong_type(node, &format!("{what} must be text"));
                if let Value::Bool(_) | Value::Integer(_) | Value::Float(_) = other {
                    mistake = mistake.help("put it in quotes if it is meant as text");
                }
                self.push(mistake);
                None
            }
        }
    }

    /// The one of `words` that `text` is; any other is reported. `what` names its place: "`mode`".
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
        self.push(mistake.help(format!("{what} is {}", suggest::one_of(known()))));
        None
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
        // Those that are right are read on, so that what is wrong with them comes out too.
        let mut texts: Vec<Located<String>> = Vec::with_capacity(items.len());
        let mut first: HashMap<String, Span> = HashMap::with_capacity(items.len());
        for item in items {
            let Some(text) = self.text(item, &element) else {
                continue;
            };
            match first.entry(text.value.clone()) {
                Entry::Occupied(first) => {
                    let message = format!("`{}` is in the list twice", text.value);
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

/// Where what a mapping lacks is reported: at its first key.
fn place_of(node: &Node) -> Span {
    match &node.value {
        Value::Map(entries) => entries.first().map_or(node.span, |(key, _)| key.span),
        _ => node.span,
    }
}

/// The mistake of `node` not being what `sentence` says it must be.
pub(super) fn wrong_type(node: &Node, sentence: &str) -> Diagnostic {
    let found = node.value.describe();
    Diagnostic::error(Code::WrongType, node.span, sentence).note(format!("found {found}"))
}
