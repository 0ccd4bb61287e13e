//! Reads single nodes of a tree strictly and collects all mistakes.
//!
//! A value of the wrong type is reported at its location and read as `None`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::code::Code;
use super::diagnostic::Diagnostic;
use super::namespace::NamespaceGlob;
use super::node::{Located, MappingKey, Node, NodeValue, Number};
use super::renamed;
use super::source::Span;
use crate::suggest;

/// The context of reading a tree: the collected diagnostics, and the rule being read.
#[derive(Debug)]
pub struct ReadContext<'a> {
    diagnostics: &'a mut Vec<Diagnostic>,
    namespaces: &'a [Located<NamespaceGlob>],
    /// The settings of the pattern being read. Missing keys are reported at that key.
    settings: Option<PatternSettings<'a>>,
    /// Texts in which variables were replaced.
    replaced: &'a [Span],
}

/// How messages call an element of a list.
pub(super) const ELEMENT: &str = "this";

/// The settings of a pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatternSettings<'a> {
    pub(crate) span: Span,
    pub(crate) key: &'a MappingKey,
    /// Correct settings.
    pub(crate) example: &'static str,
    /// The keys beside it.
    pub(crate) beside: &'a [&'static str],
}

impl<'a> ReadContext<'a> {
    /// A context for everything except a pattern's settings.
    pub fn new(diagnostics: &'a mut Vec<Diagnostic>) -> Self {
        Self { diagnostics, namespaces: &[], settings: None, replaced: &[] }
    }

    /// A context for a settings file, in which the variables of the `replaced` texts were replaced.
    pub(super) fn for_texts(diagnostics: &'a mut Vec<Diagnostic>, replaced: &'a [Span]) -> Self {
        Self { replaced, ..Self::new(diagnostics) }
    }

    /// A context for the `settings` of a pattern, in a rule for `namespaces`.
    pub(crate) fn for_settings(
        diagnostics: &'a mut Vec<Diagnostic>,
        namespaces: &'a [Located<NamespaceGlob>],
        settings: PatternSettings<'a>,
    ) -> Self {
        Self { namespaces, settings: Some(settings), ..Self::new(diagnostics) }
    }

    /// The namespaces of the rule being read; empty if they are invalid.
    #[must_use]
    pub fn namespaces(&self) -> &'a [Located<NamespaceGlob>] {
        self.namespaces
    }

    /// The pattern's settings that are being read.
    pub(super) fn settings(&self) -> Option<PatternSettings<'a>> {
        self.settings
    }

    /// Whether the text at `span` had variables.
    #[must_use]
    pub fn is_replaced(&self, span: Span) -> bool {
        self.replaced.contains(&span)
    }

    /// Reports a mistake.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Reports an error of kind `code` at `span`. Use [`Self::push`] to add help and labels.
    pub fn error(&mut self, code: Code, span: Span, message: impl Into<String>) {
        self.push(Diagnostic::error(code, span, message));
    }

    /// The entries of the mapping `node`; reports any other type.
    pub(super) fn entries<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n [(MappingKey, Node)]> {
        if let NodeValue::Map(entries) = &node.value {
            return Some(entries);
        }
        let settings = self.settings.filter(|settings| settings.span == node.span);
        let example =
            settings.map(|PatternSettings { key, example, .. }| format!(", for example `{}: {example}`", key.text));
        let message = format!("{what} must be a mapping{}", example.as_deref().unwrap_or_default());
        let mut mistake = wrong_type(node, &message);
        if node.value == NodeValue::Null && example.is_none() {
            mistake = mistake.help(match what {
                ELEMENT => "write its keys after the `- `, or remove the line",
                _ => "write its keys on the lines below it, indented more, or remove it",
            });
        }
        self.push(mistake);
        None
    }

    /// Reads `node` as a list and reports any other type. Messages call the list `what`: "`rules`".
    pub fn list<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n [Node]> {
        match &node.value {
            NodeValue::List(items) => Some(items),
            _ => {
                let mut mistake = wrong_type(node, &format!("{what} must be a list"));
                if let NodeValue::Map(_) = node.value {
                    mistake = mistake.help("begin each element with `- `");
                }
                self.push(mistake);
                None
            }
        }
    }

    /// Reads `node` as text that is not empty. Messages call it `what`: "`field`".
    pub fn text(&mut self, node: &Node, what: &str) -> Option<Located<String>> {
        let span = node.span;
        match &node.value {
            NodeValue::Text(text) if text.is_empty() => {
                self.error(Code::InvalidValue, span, format!("{what} must not be empty"));
                None
            }
            NodeValue::Text(text) => Some(Located { value: text.clone(), span }),
            other => {
                let mut mistake = wrong_type(node, &format!("{what} must be text"));
                if *other == NodeValue::Null && (span.end - span.start) as usize == "null".len() {
                    mistake = mistake.note("found `null`").help("put it in quotes if it is a name");
                } else if let NodeValue::Bool(_) | NodeValue::Integer(_) | NodeValue::Float(_) = other {
                    mistake = mistake.help("put it in quotes to make it text");
                }
                self.push(mistake);
                None
            }
        }
    }

    /// Reads the text as a namespace of a rule.
    pub fn namespace(&mut self, text: &Located<String>) -> Option<NamespaceGlob> {
        let read = NamespaceGlob::parse(text);
        if let Err(error) = &read {
            let mut mistake = Diagnostic::error(Code::InvalidNamespace, text.span, error.to_string());
            mistake.help = error.help();
            self.push(mistake);
        }
        read.ok()
    }

    /// The value of `text` in `words`; reports any other text. Messages call it `what`: "`mode`".
    pub fn word<T: Copy>(&mut self, text: &Located<String>, what: &str, words: &[(&'static str, T)]) -> Option<T> {
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text.value) {
            return Some(*value);
        }
        let known = || words.iter().map(|(word, _)| *word);
        if let Some(new) = renamed::new_word(&text.value, known()) {
            let message = format!("`{}` has a new name", text.value);
            self.push(Diagnostic::error(Code::UnknownWord, text.span, message).note(format!("write `{new}`")));
            return None;
        }
        let message = format!("{what} cannot be `{}`", text.value);
        let mut mistake = Diagnostic::error(Code::UnknownWord, text.span, message);
        let several: Vec<&str> = text.value.split(',').map(str::trim).collect();
        if several.len() > 1 && several.iter().all(|one| known().any(|word| word == *one)) {
            mistake = mistake.note(format!("write a list: [{}]", several.join(", ")));
        } else {
            mistake = mistake.did_you_mean(&text.value, known());
        }
        self.push(mistake.help(format!("{what} must be {}", suggest::one_of(known()))));
        None
    }

    /// Reads `node` as one text or a list of texts, without empty ones and duplicates. Messages call it `what`.
    pub fn texts(&mut self, node: &Node, what: &str) -> Option<Vec<Located<String>>> {
        let items = match &node.value {
            NodeValue::List(items) => items,
            NodeValue::Map(_) => {
                let mistake = wrong_type(node, &format!("{what} must be text or a list of texts"));
                self.push(mistake.help("write a list: [a, b]"));
                return None;
            }
            _ => return self.text(node, what).map(|text| vec![text]),
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
    pub fn integer_in(&mut self, key: &str, node: &Node, range: &RangeInclusive<i64>) -> Option<Located<i64>> {
        let NodeValue::Integer(value) = node.value else {
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
            NodeValue::Integer(value) => Number::Integer(value),
            NodeValue::Float(value) => Number::Float(value),
            _ => return self.wrong_type(key, node, "a number"),
        };
        Some(Located { value, span: node.span })
    }

    pub(super) fn boolean(&mut self, key: &str, node: &Node) -> Option<Located<bool>> {
        match node.value {
            NodeValue::Bool(value) => Some(Located { value, span: node.span }),
            _ => self.wrong_type(key, node, "`true` or `false`"),
        }
    }

    pub(super) fn duration(&mut self, key: &str, node: &Node) -> Option<Located<Duration>> {
        let help =
            format!("write a number and a unit (`ms`, `s`, `m`, `h`, `d`): `90s`, `5m`; at most `{LONGEST_DAYS}d`");
        self.quantity(key, node, parse_duration, "a duration", &help)
    }

    pub(super) fn size(&mut self, key: &str, node: &Node) -> Option<Located<usize>> {
        self.quantity(key, node, parse_size, "a size", "write a number and a unit (`B`, `KiB`, `MiB`): `64KiB`, `1MiB`")
    }

    fn quantity<T>(
        &mut self,
        key: &str,
        node: &Node,
        parse: fn(&str) -> Option<T>,
        what: &str,
        help: &str,
    ) -> Option<Located<T>> {
        let parsed = match &node.value {
            NodeValue::Text(text) => parse(text),
            _ => None,
        };
        if parsed.is_none() {
            self.push(wrong_type(node, &format!("`{key}` must be {what} above 0")).help(help));
        }
        Some(Located { value: parsed?, span: node.span })
    }

    /// The value of the word `node` in `words`.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &str,
        node: &Node,
        words: &[(&'static str, T)],
    ) -> Option<Located<T>> {
        let NodeValue::Text(written) = &node.value else {
            return self.wrong_type(key, node, &suggest::one_of(words.iter().map(|(word, _)| *word)));
        };
        let written = Located { value: written.clone(), span: node.span };
        let value = self.word(&written, &format!("`{key}`"), words)?;
        Some(written.map(|_| value))
    }

    fn wrong_type<T>(&mut self, key: &str, node: &Node, expected: &str) -> Option<T> {
        let mut mistake = wrong_type(node, &format!("`{key}` must be {expected}"));
        match &node.value {
            NodeValue::Text(text) if node.value.is_quoted_number() || text.parse::<bool>().is_ok() => {
                mistake = mistake.help("remove the quotes: they make it text");
            }
            NodeValue::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
                mistake = mistake.help(format!("write `{number}`"));
            }
            _ => {}
        }
        self.push(mistake);
        None
    }
}

/// The diagnostic for a `node` of the wrong type; `sentence` is what it must be.
fn wrong_type(node: &Node, sentence: &str) -> Diagnostic {
    let found = node.value.describe();
    Diagnostic::error(Code::WrongType, node.span, sentence).note(format!("found {found}"))
}

/// The longest duration, in days: a hundred years.
const LONGEST_DAYS: u64 = 36_500;

/// Parses a whole number above zero and one of `ms`, `s`, `m`, `h`, `d`; at most [`LONGEST_DAYS`].
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
    let total = count.checked_mul(milliseconds).filter(|total| (1..=LONGEST_DAYS * 86_400_000).contains(total))?;
    Some(Duration::from_millis(total))
}

/// Parses a whole number above zero and one of `B`, `KiB`, `MiB`, `GiB`; returns bytes.
pub fn parse_size(text: &str) -> Option<usize> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("B", 0)];
    let parsed = units.iter().find_map(|(unit, shift)| {
        let digits = text.strip_suffix(unit)?.trim_end();
        let number: usize = digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        number.checked_mul(1 << shift)
    });
    parsed.filter(|bytes| *bytes > 0)
}
