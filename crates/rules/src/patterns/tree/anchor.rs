//! Evaluates reads with a regular expression on the path that cannot use an index, because it does not start at the
//! root.
//! before: `find({path: /,Programming,/})`; after, where "Programming" lies below "Books":
//! `find({path: /^,Books,Programming,/})`
//!
//! Both return the same documents, because a node's `_id` is at one position in paths only: after the node's own path.
//! docward cannot predict the matches of other expressions, so it only reports them.

use std::sync::Arc;

use super::id::NodeId;
use super::layout::TreeFields;
use crate::command::CommandClass;
use crate::document::{CowDocument, Document, Kind, OwnedValue, Value, Writer, document};
use crate::patterns::{CollectionQuery, CommandVerdict, Rejection, WholeCommand};

/// The action for a read with an unanchored expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unanchored {
    Warn,
    Reject,
    /// docward anchors it if the result is the same; otherwise it warns.
    Rewrite,
}

pub(super) fn evaluate(layout: &TreeFields, unanchored: Unanchored, command: &WholeCommand<'_>) -> CommandVerdict {
    let Some(filter) = filter_of(command) else { return CommandVerdict::Forward };
    let Some(found) = expressions(filter, layout.path.as_str()).find(|found| !found.is_anchored()) else {
        return CommandVerdict::Forward;
    };
    let field = &layout.path;
    let report = Rejection::new(
        format!("its regular expression on '{field}' is not anchored at the root, so it cannot use an index"),
        format!("Start it with ^ and the full path from the root, as in /^{0}Books{0}/.", layout.separator),
    );
    match unanchored {
        Unanchored::Reject => CommandVerdict::Reject(report),
        Unanchored::Warn => CommandVerdict::Warn(report),
        Unanchored::Rewrite => match (filter_key(command.class), found.literal(layout.separator)) {
            (Some(key), Some(literal)) if is_whole_condition(filter, field.as_str()) => {
                CommandVerdict::Query(Arc::new(AnchorRun { layout: layout.clone(), key, literal, report }))
            }
            _ => CommandVerdict::Warn(report),
        },
    }
}

/// Looks for the node whose `_id` is the first segment of the expression.
#[derive(Debug)]
struct AnchorRun {
    layout: TreeFields,
    /// The command's field that holds the filter.
    key: &'static str,
    /// The text that the expression matches: whole segments between separators.
    literal: String,
    report: Rejection,
}

impl CollectionQuery for AnchorRun {
    fn filter(&self) -> CowDocument<'static> {
        let first = self.layout.segments(&self.literal).and_then(|segments| segments.first().copied());
        let ids = first.map(NodeId::with_text).unwrap_or_default();
        CowDocument::build(|w| {
            w.nested("_id", |w| w.array("$in", |a| ids.iter().for_each(|id| a.value(id.value().as_value()))))
        })
    }

    fn fields(&self) -> CowDocument<'static> {
        self.layout.fields()
    }

    fn conclude(&self, command: &WholeCommand<'_>, found: &[Document<'_>]) -> CommandVerdict {
        let node = match found {
            [node] => self.layout.node(*node).ok(),
            // Nodes with the same text have different paths.
            _ => None,
        };
        let (Some(node), Some(filter)) = (node, filter_of(command)) else {
            return CommandVerdict::Warn(self.report.clone());
        };
        // The node's own path ends with the separator that the literal begins with.
        let path = node.path.as_deref().and_then(|path| path.strip_suffix(self.layout.separator)).unwrap_or_default();
        let pattern = format!("^{}{}", escaped(path), escaped(&self.literal));
        let field = self.layout.path.as_str();
        let rewritten = document(|w| {
            for element in filter.elements() {
                if element.key == field.as_bytes() {
                    write_regex(w, field, &pattern);
                } else {
                    w.element(element);
                }
            }
        });
        CommandVerdict::Set(self.key, OwnedValue::document(&rewritten))
    }
}

/// A regular expression as a filter holds it.
#[derive(Debug, Clone, Copy)]
struct Expression<'f> {
    pattern: &'f str,
    options: &'f str,
}

impl Expression<'_> {
    /// Returns whether an index on the path can limit the search: whether the server finds literal text at its start
    /// (`getRegexPrefixMatch` in the server's `analyze_regex.cpp`, 6.0).
    fn is_anchored(&self) -> bool {
        let (rest, has_lines) = match (self.pattern.strip_prefix('^'), self.pattern.strip_prefix("\\A")) {
            (Some(rest), _) => (rest, true),
            (None, Some(rest)) => (rest, false),
            (None, None) => return false,
        };
        let allows = |option| matches!(option, 's' | 'x') || option == 'm' && !has_lines;
        let is_free_spacing = self.options.contains('x');
        !may_have_alternatives(rest) && self.options.chars().all(allows) && begins_literally(rest, is_free_spacing)
    }

    /// Returns the text it matches, if that is only whole segments between separators.
    fn literal(&self, separator: char) -> Option<String> {
        let mut literal = String::new();
        let mut rest = self.pattern.chars();
        while let Some(next) = rest.next() {
            match next {
                '\\' => literal.push(rest.next().filter(char::is_ascii_punctuation)?),
                // An unescaped separator that is a metacharacter, such as `|` or `.`, is not a separator here.
                meta if META.contains(meta) => return None,
                plain => literal.push(plain),
            }
        }
        let whole = literal.len() > 2 && literal.starts_with(separator) && literal.ends_with(separator);
        (whole && self.options.is_empty()).then_some(literal)
    }
}

/// Returns whether a `|` may separate alternatives. The server also takes one in a character class for it.
fn may_have_alternatives(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    let before = |at: usize, distance: usize| at.checked_sub(distance).and_then(|at| bytes.get(at));
    let is_escaped = |at: usize| before(at, 1) == Some(&b'\\') && before(at, 2) != Some(&b'\\');
    bytes.iter().enumerate().any(|(at, byte)| *byte == b'|' && !is_escaped(at))
}

/// Returns whether the server finds literal text at the start of what follows the anchor.
fn begins_literally(pattern: &str, is_free_spacing: bool) -> bool {
    let mut bytes = 0;
    let mut rest = pattern.chars();
    while let Some(next) = rest.next() {
        match next {
            // The last byte is optional.
            '*' | '?' => return bytes > 1,
            '\\' => match rest.next() {
                Some('Q') => {
                    let quoted = rest.as_str();
                    let end = quoted.find("\\E");
                    bytes += end.unwrap_or(quoted.len());
                    rest = end.and_then(|end| quoted.get(end + 2..)).unwrap_or_default().chars();
                }
                None => break,
                Some(class) if class.is_ascii_alphanumeric() => break,
                Some(escaped) => bytes += escaped.len_utf8(),
            },
            '^' | '$' | '.' | '[' | '(' | ')' | '+' | '{' => break,
            '#' if is_free_spacing => break,
            space if is_free_spacing && space.is_ascii_whitespace() => {}
            plain => bytes += plain.len_utf8(),
        }
    }
    bytes > 0
}

const META: &str = "\\^$.|?*+()[]{}";

fn escaped(text: &str) -> String {
    let escape = |c: char| META.contains(c).then_some('\\').into_iter().chain([c]);
    text.chars().flat_map(escape).collect()
}

fn write_regex(w: &mut Writer<'_>, field: &str, pattern: &str) {
    // An `_id` can contain a NUL, which would end a BSON regex; `$regex` takes a string.
    w.nested(field, |w| w.string("$regex", pattern));
}

/// Returns the command's field with its filter, if docward can replace it.
fn filter_key(class: CommandClass) -> Option<&'static str> {
    match class {
        CommandClass::Find => Some("filter"),
        CommandClass::Count | CommandClass::Distinct | CommandClass::MapReduce => Some("query"),
        _ => None,
    }
}

/// Returns the filter of a read; an aggregation's filter is its first `$match`.
fn filter_of<'c>(command: &WholeCommand<'c>) -> Option<Document<'c>> {
    match command.class {
        CommandClass::Aggregate => {
            let stages = command.body.get("pipeline")?.as_array()?;
            stages.values().next()?.as_document()?.get("$match")?.as_document()
        }
        class => command.body.get(filter_key(class)?)?.as_document(),
    }
}

/// Returns all expressions on `field`, also inside `$and`, `$or` and `$nor`, and in operators on the field.
fn expressions<'f>(filter: Document<'f>, field: &str) -> impl Iterator<Item = Expression<'f>> {
    let (mut found, mut unread) = (Vec::new(), vec![filter]);
    while let Some(document) = unread.pop() {
        for element in document.elements() {
            if element.key == field.as_bytes() {
                collect(element.value, &mut found);
            } else if matches!(element.key, b"$and" | b"$or" | b"$nor") {
                let branches = element.value.as_array().unwrap_or(Document::EMPTY);
                unread.extend(branches.values().filter_map(Value::as_document));
            }
        }
    }
    found.into_iter()
}

fn collect<'f>(condition: Value<'f>, found: &mut Vec<Expression<'f>>) {
    if let Some(expression) = bson_regex(condition) {
        found.push(expression);
        return;
    }
    let Some(operators) = condition.as_document() else { return };
    if let Some(regex) = operators.get("$regex") {
        let options = operators.get("$options").and_then(Value::as_str);
        let pattern = bson_regex(regex).map_or_else(|| regex.as_str(), |expression| Some(expression.pattern));
        let inner = bson_regex(regex).map_or("", |expression| expression.options);
        found.extend(pattern.map(|pattern| Expression { pattern, options: options.unwrap_or(inner) }));
    }
    for operator in operators.elements() {
        match operator.key {
            b"$in" | b"$nin" | b"$all" => {
                let listed = operator.value.as_array().unwrap_or(Document::EMPTY);
                listed.values().for_each(|value| collect(value, found));
            }
            b"$not" | b"$elemMatch" => collect(operator.value, found),
            _ => {}
        }
    }
}

/// Reads a BSON regex: two strings, each with a terminating NUL.
fn bson_regex(value: Value<'_>) -> Option<Expression<'_>> {
    if value.kind != Kind::Regex {
        return None;
    }
    let mut strings = std::str::from_utf8(value.bytes).ok()?.split('\0');
    Some(Expression { pattern: strings.next()?, options: strings.next()? })
}

/// Returns whether the filter's condition on `field` is one expression at the top level and nothing else.
fn is_whole_condition(filter: Document<'_>, field: &str) -> bool {
    if expressions(filter, field).count() != 1 {
        return false;
    }
    match filter.get(field) {
        Some(value) if value.kind == Kind::Regex => true,
        Some(value) => value.as_document().is_some_and(|operators| {
            operators.get("$regex").is_some() && operators.elements().all(|e| matches!(e.key, b"$regex" | b"$options"))
        }),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchored_expressions_can_use_the_index() {
        let anchored = |pattern, options| Expression { pattern, options }.is_anchored();
        for pattern in ["^,Books,", "\\A,Books,", "^\\.Books", "^/a", "^\\Q.a"] {
            assert!(anchored(pattern, ""), "{pattern}");
        }
        for pattern in
            [",Books,", "Books", "", "^", "^.*,Books,", "^(,Books,)", "^\\d", "^,A,|,B,", "^,?Books", "^\\/*Books"]
        {
            assert!(!anchored(pattern, ""), "{pattern}");
        }
        assert!(!anchored("^,books,", "i"));
    }

    #[test]
    fn expressions_are_found_in_every_operator() {
        let expression = || bson::Regex { pattern: ",B,".try_into().unwrap(), options: "".try_into().unwrap() };
        for condition in [
            bson::bson!({"p": expression()}),
            bson::bson!({"p": {"$regex": ",B,"}}),
            bson::bson!({"p": {"$in": [1, expression()]}}),
            bson::bson!({"p": {"$all": [expression()]}}),
            bson::bson!({"p": {"$nin": [expression()]}}),
            bson::bson!({"p": {"$not": {"$regex": ",B,"}}}),
            bson::bson!({"p": {"$elemMatch": {"$regex": ",B,"}}}),
            bson::bson!({"$nor": [{"$or": [{"p": expression()}]}]}),
        ] {
            let bytes = bson::serialize_to_vec(condition.as_document().unwrap()).unwrap();
            let found: Vec<_> = expressions(Document::parse(&bytes).unwrap(), "p").map(|one| one.pattern).collect();
            assert_eq!(found, [",B,"], "{condition}");
        }
    }

    #[test]
    fn only_whole_segments_are_a_literal() {
        let literal = |pattern, options| Expression { pattern, options }.literal(',');
        assert_eq!(literal(",Programming,", "").as_deref(), Some(",Programming,"));
        assert_eq!(literal("\\,C\\+\\+,", "").as_deref(), Some(",C++,"));
        for (pattern, options) in
            [(",Programming", ""), ("Programming,", ""), (",", ""), (",Prog.*,", ""), (",A,", "i"), (",a\\d,", "")]
        {
            assert_eq!(literal(pattern, options), None, "{pattern}");
        }
    }
}
