//! Replaces `${NAME}` in the texts of a settings file, so that secrets need not be in it.

use std::env::VarError;

use super::code::Code;
use super::diagnostic::{Diagnostic, DiagnosticLocation};
use super::node::{Node, NodeValue};
use super::shown::MIN_WORD_BYTES;
use super::source::Span;
use crate::secret::percent_encoded;

/// Returns the value of an environment variable.
pub type Environment = fn(&str) -> Result<String, VarError>;

const HELP: &str = "`${NAME}` stands for an environment variable; write `$${` for the text `${`";

/// What was replaced in a file.
#[derive(Debug, Default)]
pub(super) struct Variables {
    /// The texts with variables.
    pub(super) replaced: Vec<Span>,
    /// Texts with a variable that has no value.
    failed: Vec<Span>,
    /// Names and values, as they are in the replaced texts.
    values: Vec<(String, String)>,
}

impl Variables {
    /// Replaces the variables in all texts below `node`, which was read from `source`. Reports those that have no value.
    pub(super) fn replace(
        &mut self,
        node: &mut Node,
        source: &str,
        environment: Environment,
        found: &mut Vec<Diagnostic>,
    ) {
        match &mut node.value {
            NodeValue::Text(text) if text.contains("${") => match self.replaced(text, environment) {
                Ok(replaced) => {
                    *text = replaced;
                    self.replaced.push(node.span);
                }
                Err((written, message)) => {
                    let mistake = Diagnostic::error(Code::InvalidValue, find(written, node.span, source), message);
                    found.push(mistake.help(HELP));
                    self.failed.push(node.span);
                }
            },
            NodeValue::List(items) => {
                items.iter_mut().for_each(|item| self.replace(item, source, environment, found));
            }
            NodeValue::Map(entries) => {
                entries.iter_mut().for_each(|(_, value)| self.replace(value, source, environment, found));
            }
            _ => {}
        }
    }

    /// `text` with the values of its variables.
    ///
    /// # Errors
    /// The first variable without a value, as it is written, and a message.
    fn replaced<'t>(&mut self, text: &'t str, environment: Environment) -> Result<String, (&'t str, String)> {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(start) = text[at..].find("${").map(|start| at + start) {
            let inside = start + "${".len();
            if text[at..start].ends_with('$') {
                out += &text[at..start];
                out.push('{');
                at = inside;
                continue;
            }
            out += &text[at..start];
            let end = text[inside..].find('}').map(|end| inside + end);
            let Some(end) = end.filter(|end| is_name(&text[inside..*end])) else {
                let message = "after `${` there must be the name of an environment variable and `}`";
                return Err(("${", message.to_owned()));
            };
            let (name, after) = (&text[inside..end], &text[end + 1..]);
            let problem = |what| (&text[start..=end], format!("the environment variable `{name}` {what}"));
            let value = match environment(name) {
                Ok(value) if value.is_empty() => return Err(problem("is empty")),
                Ok(value) => value,
                Err(VarError::NotPresent) => return Err(problem("is not set")),
                Err(VarError::NotUnicode(_)) => return Err(problem("is not UTF-8")),
            };
            self.values.push((name.to_owned(), value.clone()));
            let value = if is_encoded(&out, after) { percent_encoded(&value) } else { value };
            out += &value;
            self.values.push((name.to_owned(), value));
            at = end + 1;
        }
        Ok(out + &text[at..])
    }

    /// Removes what was reported about texts whose value is not known, and writes `${NAME}` for values in the other
    /// diagnostics.
    pub(super) fn hide(&mut self, reported: usize, found: &mut Vec<Diagnostic>) {
        let is_in = |location, text: &Span| match location {
            DiagnosticLocation::At(span) => text.start <= span.start && span.end <= text.end,
            DiagnosticLocation::File(_) => false,
        };
        let others = found.split_off(reported);
        found.extend(others.into_iter().filter(|one| !self.failed.iter().any(|text| is_in(one.location, text))));
        self.values.retain(|(_, value)| value.len() >= MIN_WORD_BYTES);
        // Longest first: one value may be a part of another.
        self.values.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        for text in found.iter_mut().skip(reported).flat_map(Diagnostic::texts_mut) {
            for (name, value) in self.values.iter().filter(|(_, value)| !value.is_empty()) {
                *text = text.replace(value.as_str(), &format!("${{{name}}}"));
            }
        }
    }
}

/// Whether what is between these is a user or password in a URL, or the value of an option: an `@`, `/` or `&` would end it.
fn is_encoded(before: &str, after: &str) -> bool {
    let url = before.split_once("://");
    let options = url.and_then(|(_, rest)| rest.split_once('?'));
    let in_value =
        options.is_some_and(|(_, options)| options.rsplit('&').next().is_some_and(|last| last.contains('=')));
    in_value || url.is_some() && after.contains('@')
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Where `written` is in the text at `span`; the text itself if it is written with escapes.
fn find(written: &str, span: Span, source: &str) -> Span {
    let text = source.get(span.start as usize..span.end as usize).unwrap_or_default();
    let offset = |bytes: usize| u32::try_from(bytes).unwrap_or_default();
    text.find(written).map_or(span, |at| {
        let start = span.start + offset(at);
        Span { start, end: start + offset(written.len()), ..span }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Result<String, VarError> {
        match name {
            "PASSWORD" => Ok("p@s/s%w:rd".to_owned()),
            "HOSTS" => Ok("a:1,b:2".to_owned()),
            "URL" => Ok("mongodb://a/?c=d".to_owned()),
            "EMPTY" => Ok(String::new()),
            _ => Err(VarError::NotPresent),
        }
    }

    #[test]
    fn variables_are_replaced_and_encoded_in_credentials_and_options() {
        for (text, expected) in [
            ("a$b $$ {c}", "a$b $$ {c}"),
            ("$${HOSTS} $$${HOSTS}", "${HOSTS} $${HOSTS}"),
            ("${HOSTS}", "a:1,b:2"),
            ("${PASSWORD}", "p@s/s%w:rd"),
            ("mongodb://u:${PASSWORD}@${HOSTS}/", "mongodb://u:p%40s%2Fs%25w%3Ard@a:1,b:2/"),
            ("mongodb://${HOSTS}/", "mongodb://a:1,b:2/"),
            ("mongodb://a/?b=c&d=x${PASSWORD}&e=f", "mongodb://a/?b=c&d=xp%40s%2Fs%25w%3Ard&e=f"),
            ("mongodb://a/?${HOSTS}", "mongodb://a/?a:1,b:2"),
            ("${URL}&b=${PASSWORD}", "mongodb://a/?c=d&b=p%40s%2Fs%25w%3Ard"),
        ] {
            assert_eq!(Variables::default().replaced(text, environment).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_nothing_replaces_is_named() {
        for (text, written, words) in [
            ("a ${UNSET_1}", "${UNSET_1}", "`UNSET_1` is not set"),
            ("${HOSTS} ${EMPTY}", "${EMPTY}", "`EMPTY` is empty"),
            ("${HOSTS", "${", "there must be the name"),
            ("${}", "${", "there must be the name"),
            ("${a-b}", "${", "there must be the name"),
            ("${1a}", "${", "there must be the name"),
        ] {
            let (found, message) = Variables::default().replaced(text, environment).unwrap_err();
            assert_eq!(found, written, "{text}");
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}
