//! Parses YAML text into a tree of [`Node`]s.
//!
//! Only this file imports the YAML parser, so that it can be replaced. It accepts the subset of YAML that the
//! rule language uses: no anchors, merge keys or custom tags, one document, bounded size and depth. It does not
//! know rules, and reads no settings: serde's derive would stop at the first mistake.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{Error, Location, MessageFormatter, Spanned};

use super::code::Code;
use super::diagnostic::{Diagnostic, DiagnosticLocation};
use super::names::{is_invisible, visible};
use super::node::{MappingKey, Node, NodeValue};
use super::source::{FileId, Span};

/// The largest rule file, in bytes. Ten thousand rules take one or two MiB. A larger file is
/// probably not a rule file, and parsing it would stall a reload.
pub const MAX_FILE_BYTES: usize = 8 << 20;
/// The deepest nesting in a rule file. The language needs eight levels. The tree is walked
/// recursively, so this also bounds the stack.
const MAX_DEPTH: usize = 16;
/// The most values in one file; a rule has ten to forty. Together with [`MAX_FILE_BYTES`] this bounds
/// the memory and time for a file.
const MAX_NODES: usize = 1 << 18;

/// Reads the one document in `text`; adds mistakes to `found`. A file that is empty or has only comments is
/// [`NodeValue::Null`]. `None` where `text` is not YAML, or uses YAML that is not supported: the parser stops at the first
/// such mistake.
pub(crate) fn parse(file: FileId, text: &str, found: &mut Vec<Diagnostic>) -> Option<Node> {
    if text.len() > MAX_FILE_BYTES {
        found.push(too_large(file));
        return None;
    }
    let options = serde_yaml::options! {
        strict_booleans: true,
        // The converter reports these two, and continues.
        duplicate_keys: serde_yaml::DuplicateKeyPolicy::LastWins,
        non_finite_float_policy: serde_yaml::NonFiniteFloatPolicy::PassThrough,
        merge_keys: serde_yaml::MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        with_snippet: false,
        budget: serde_yaml::budget! {
            max_depth: MAX_DEPTH,
            max_anchors: 0,
            max_aliases: 0,
            max_nodes: MAX_NODES,
            // A scalar is one event, a list or mapping is two. The document adds a few.
            max_events: 2 * MAX_NODES + 8,
        },
    };
    match serde_yaml::from_str_with_options(text, options) {
        Ok(raw) => Some(Converter { file, text, found }.node(raw)),
        Err(error) => {
            found.push(explain(file, text, &error));
            None
        }
    }
}

/// The diagnostic for a file of more than [`MAX_FILE_BYTES`].
pub(crate) fn too_large(file: FileId) -> Diagnostic {
    let message = format!("the file is larger than the limit of {MAX_FILE_BYTES} bytes");
    Diagnostic::error(Code::TooLarge, DiagnosticLocation::File(file), message).help("split it into several files")
}

/// A value as the parser returns it.
enum RawValue {
    Leaf(NodeValue),
    List(Vec<Spanned<RawValue>>),
    Map(Vec<(Spanned<RawValue>, Spanned<RawValue>)>),
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = RawValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of a rule file")
    }

    fn visit_unit<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Leaf(NodeValue::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<RawValue, E> {
        Ok(RawValue::Leaf(NodeValue::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<RawValue, E> {
        Ok(RawValue::Leaf(NodeValue::Integer(value)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<RawValue, E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            // The parser itself converts whole numbers beyond 64 bits in this way.
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E>(self, value: f64) -> Result<RawValue, E> {
        Ok(RawValue::Leaf(NodeValue::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<RawValue, E> {
        Ok(RawValue::Leaf(NodeValue::Text(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<RawValue, E> {
        Ok(RawValue::Leaf(NodeValue::Text(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(RawValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawValue, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(RawValue::Map(map))
    }
}

/// Converts the parser's locations to spans. The parser knows only the start of a list or mapping;
/// its end is the end of its last element.
struct Converter<'a> {
    file: FileId,
    text: &'a str,
    found: &'a mut Vec<Diagnostic>,
}

impl Converter<'_> {
    fn node(&mut self, raw: Spanned<RawValue>) -> Node {
        let mut span = span_of(self.file, self.text, Some(raw.referenced));
        let value = match raw.value {
            RawValue::Leaf(value) => {
                let digits = self.slice(span).trim_start_matches(['+', '-']);
                let has_zero = |digits: &str| {
                    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit())
                };
                if matches!(value, NodeValue::Float(_) | NodeValue::Integer(_)) && has_zero(digits) {
                    let message =
                        format!("`{}` begins with a zero: some programs read it as an octal number", self.slice(span));
                    let mistake = Diagnostic::error(Code::InvalidValue, span, message);
                    self.found.push(mistake.help("remove the zero, or put it in quotes to make it text"));
                }
                if matches!(value, NodeValue::Float(number) if !number.is_finite()) {
                    let message = format!("`{}` is not a finite number", self.slice(span));
                    let mistake = Diagnostic::error(Code::InvalidValue, span, message);
                    self.found.push(mistake.help("write a finite number; to set no limit, remove the key"));
                }
                value
            }
            RawValue::List(items) => NodeValue::List(items.into_iter().map(|item| self.node(item)).collect()),
            RawValue::Map(entries) => NodeValue::Map(self.entries(entries)),
        };
        let last = match &value {
            NodeValue::List(items) => items.last(),
            NodeValue::Map(entries) => entries.last().map(|(_, node)| node),
            _ => None,
        };
        if let Some(last) = last {
            span.end = self.end_after(span.start, last.span.end);
        }
        Node { span, value }
    }

    /// The end of a list or mapping whose last value ends at `end`: after the closing bracket, if it starts
    /// with a bracket. Only spaces, commas and comments are between.
    fn end_after(&self, start: u32, end: u32) -> u32 {
        let bracket = match self.text.as_bytes().get(start as usize) {
            Some(b'[') => ']',
            Some(b'{') => '}',
            _ => return end,
        };
        let rest = self.text.get(end as usize..).unwrap_or_default();
        let length = rest.find(bracket).map_or(0, |at| at + 1);
        clamp(end as u64 + length as u64, self.text)
    }

    /// The entries of a mapping; reports keys that are no text or that occur twice, of which it returns the first.
    fn entries(&mut self, entries: Vec<(Spanned<RawValue>, Spanned<RawValue>)>) -> Vec<(MappingKey, Node)> {
        let mut first = HashMap::new();
        let mut read = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let (span, node) = (span_of(self.file, self.text, Some(key.referenced)), self.node(value));
            let text = match key.value {
                RawValue::Leaf(NodeValue::Text(text)) => text,
                // As it is spelled.
                RawValue::Leaf(NodeValue::Bool(_) | NodeValue::Integer(_) | NodeValue::Float(_)) => {
                    self.slice(span).to_owned()
                }
                RawValue::Leaf(NodeValue::Null) => {
                    let written = self.slice(span).trim();
                    let (message, help) = match written {
                        "" | ":" | "?" => ("a key is missing".to_owned(), "write the key before the colon"),
                        _ => (format!("`{written}` is not a text in YAML"), "put it in quotes to make it text"),
                    };
                    self.found.push(Diagnostic::error(Code::UnknownKey, span, message).help(help));
                    continue;
                }
                _ => {
                    self.found.push(Diagnostic::error(Code::UnknownKey, span, "a key must be text"));
                    continue;
                }
            };
            match first.entry(text.clone()) {
                Entry::Occupied(earlier) => {
                    let mistake = Diagnostic::error(Code::DuplicateKey, span, format!("duplicate key `{text}`"));
                    let mistake = mistake.label(*earlier.get(), "first here");
                    self.found.push(mistake.help("remove one of the two"));
                }
                Entry::Vacant(vacant) => {
                    vacant.insert(span);
                    read.push((MappingKey { span, text }, node));
                }
            }
        }
        read
    }

    fn slice(&self, span: Span) -> &str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or_default()
    }
}

/// The parser always has character offsets, but byte offsets only for complete tokens.
fn span_of(file: FileId, text: &str, location: Option<Location>) -> Span {
    let Some(location) = location else {
        return Span::new(file, 0, 0);
    };
    let span = location.span();
    if let (Some(start), Some(len)) = (span.byte_offset(), span.byte_len()) {
        return Span::new(file, clamp(start, text), clamp(start + len, text));
    }
    let byte_at = |character: u64| {
        let index = usize::try_from(character).unwrap_or(usize::MAX);
        text.char_indices().nth(index).map_or(text.len(), |(at, _)| at)
    };
    let start = byte_at(span.offset());
    let end = byte_at(span.offset().saturating_add(span.len()));
    Span::new(file, clamp(start as u64, text), clamp(end as u64, text))
}

/// Offsets fit `u32` because a file has at most [`MAX_FILE_BYTES`].
fn clamp(offset: u64, text: &str) -> u32 {
    u32::try_from(offset.min(text.len() as u64)).unwrap_or(u32::MAX)
}

fn explain(file: FileId, text: &str, error: &Error) -> Diagnostic {
    let explanation = YamlMistake::from_error(error);
    let line = error.location().map_or(0, |location| location.line());
    match wrong_indentation(text, line).filter(|_| explanation.code == Code::Syntax) {
        Some((at, character)) => {
            let end = at + character.len_utf8();
            let span = Span::new(file, clamp(at as u64, text), clamp(end as u64, text));
            let found = match character {
                '\t' => "a tab".to_owned(),
                _ => format!("the character {}, which is not a space,", visible(&character.to_string())),
            };
            let mistake = Diagnostic::error(Code::Syntax, span, format!("{found} in the indentation"));
            mistake.help("indent YAML with spaces only")
        }
        None => explanation.at(file, text, error.location()),
    }
}

/// The first character other than a space in the indentation of this line, the one before or the next one. The parser
/// treats it as part of a token and reports the error at another line.
fn wrong_indentation(text: &str, line: u64) -> Option<(usize, char)> {
    let mut start = 0;
    let lines = text.split_inclusive('\n').map(|line| {
        let at = start;
        start += line.len();
        (at, line)
    });
    let near = lines.skip(usize::try_from(line.saturating_sub(2)).ok()?).take(3);
    let mut wrong = near.filter_map(|(start, line)| {
        let (at, character) = line.char_indices().find(|(_, c)| *c != ' ')?;
        let is_wrong = character == '\t' || is_invisible(character) && !character.is_control();
        is_wrong.then_some((start + at, character))
    });
    wrong.next()
}

/// How messages of the parser begin, and what to do.
const SYNTAX_HELP: [(&str, &str); 8] = [
    (
        "simple key expected",
        "write a colon and a space after the key; the further lines of a text are indented more than its first one",
    ),
    (
        "mapping values are not allowed",
        "check the indentation, write a space after the colon of each key, and quote text that contains `: `",
    ),
    ("invalid indentation in multiline quoted scalar", "check the lines above for an unclosed quote"),
    ("illegal placement of ':'", "check the lines above for an unclosed `[` or `{`"),
    (
        "while parsing a block collection, did not find expected '-'",
        "check the indentation: all keys of one element begin below its first key, after the `- `",
    ),
    ("block sequence entries are not allowed", "begin the list on the next line, or write it as `[a, b]`"),
    ("misplaced bracket", "remove it, or check the lines above for the bracket that it closes"),
    ("unexpected character", "put text that begins with this character in quotes"),
];

/// The parser's error, in the terms of the rule language.
struct YamlMistake {
    code: Code,
    message: String,
    help: Option<&'static str>,
}

impl YamlMistake {
    fn new(code: Code, message: impl Into<String>, help: &'static str) -> Self {
        let message = message.into();
        let help = Some(help);
        Self { code, message, help }
    }

    fn from_error(error: &Error) -> Self {
        match error.without_snippet() {
            Error::MultipleDocuments { .. } => Self::new(
                Code::UnsupportedYaml,
                "a second YAML document starts here",
                "a file has one document; remove the `---` line, or use two files",
            ),
            Error::MergeKeyNotAllowed { .. } => Self::new(
                Code::UnsupportedYaml,
                "YAML merge keys (`<<`) are not supported",
                "write the settings in full; one rule can list several namespaces",
            ),
            Error::UnsupportedTag { tag, .. } => Self::new(
                Code::UnsupportedYaml,
                format!("the YAML tag `{tag}` is not supported"),
                "remove it, or quote the value if it starts with an exclamation mark",
            ),
            Error::UnknownAnchor { .. } => Self::anchors(),
            Error::Budget { breach, .. } => Self::of_breach(breach),
            other => Self::of_syntax(other),
        }
    }

    fn too_deep() -> Self {
        let message = format!("more than {MAX_DEPTH} levels of nesting");
        Self::new(Code::TooLarge, message, "check for unclosed brackets")
    }

    fn of_syntax(error: &Error) -> Self {
        let message = serde_yaml::DefaultMessageFormatter.format_message(error);
        if message.contains("recursion limit exceeded") {
            return Self::too_deep();
        }
        let help = SYNTAX_HELP.iter().find(|(start, _)| message.starts_with(start)).map(|(_, help)| *help);
        Self { code: Code::Syntax, message: message.into_owned(), help }
    }

    fn of_breach(breach: &serde_yaml::budget::BudgetBreach) -> Self {
        use serde_yaml::budget::BudgetBreach;
        match breach {
            BudgetBreach::Anchors { .. } | BudgetBreach::Aliases { .. } => Self::anchors(),
            BudgetBreach::Depth { .. } => Self::too_deep(),
            _ => Self::new(Code::TooLarge, "the file has too many values", "split it into several files"),
        }
    }

    fn anchors() -> Self {
        Self::new(
            Code::UnsupportedYaml,
            "YAML anchors and aliases (`&name`, `*name`) are not supported",
            "write the value in full; quote text that starts with `*` or `&`: \"*.orders\"",
        )
    }

    fn at(self, file: FileId, text: &str, location: Option<Location>) -> Diagnostic {
        let span = span_of(file, text, location);
        let diagnostic = Diagnostic::error(self.code, span, self.message);
        match self.help {
            Some(help) => diagnostic.help(help),
            None => diagnostic,
        }
    }
}
