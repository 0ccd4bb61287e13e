//! Regular expressions: JavaScript literals and their BSON form.

use super::ShellError;
use super::lexer::{Lexer, is_name_part};

/// A regular expression in BSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Regex {
    pub(super) pattern: String,
    pub(super) options: String,
}

/// Parses the literal whose first slash comes next.
pub(super) fn parse(lexer: &mut Lexer<'_>) -> Result<Regex, ShellError> {
    let start = lexer.at();
    lexer.bump();
    let pattern = skip_pattern(lexer)
        .ok_or_else(|| ShellError::new(start..start + 1, "this regular expression has no closing /"))?;
    let flags_at = lexer.at();
    let flags = lexer.take_while(is_name_part);
    let options =
        options(flags).ok_or_else(|| ShellError::new(flags_at..lexer.at(), format!("invalid flags `{flags}`")))?;
    Ok(Regex { pattern: pattern.to_owned(), options })
}

/// Returns the pattern up to its closing slash and moves behind it. Returns `None` if the line ends first.
pub(super) fn skip_pattern<'t>(lexer: &mut Lexer<'t>) -> Option<&'t str> {
    let start = lexer.at();
    let mut in_class = false;
    loop {
        let at = lexer.at();
        match lexer.bump()? {
            '\n' => return None,
            '\\' => {
                lexer.bump().filter(|c| *c != '\n')?;
            }
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return lexer.text().get(start..at),
            _ => {}
        }
    }
}

/// Returns the BSON options that drivers use for JavaScript flags: `g` becomes `s`, and flags without a counterpart
/// are dropped. Returns `None` for invalid flags.
pub(super) fn options(flags: &str) -> Option<String> {
    let known = flags.chars().all(|flag| "dgimsuvy".contains(flag));
    let once = flags.chars().all(|flag| flags.matches(flag).count() == 1);
    let options = [('i', 'i'), ('g', 's'), ('m', 'm')];
    let chosen = options.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, option)| *option);
    (known && once).then(|| chosen.collect())
}

/// Returns the `source` property of `new RegExp(pattern)`, the pattern of an equal literal.
pub(super) fn source(pattern: &str) -> String {
    if pattern.is_empty() {
        return "(?:)".to_owned();
    }
    let mut source = String::with_capacity(pattern.len());
    let (mut escaped, mut in_class) = (false, false);
    for c in pattern.chars() {
        match c {
            '/' if !escaped && !in_class => source.push_str("\\/"),
            '\n' if escaped => source.push('n'),
            '\n' => source.push_str("\\n"),
            other => source.push(other),
        }
        in_class = match c {
            '[' if !escaped => true,
            ']' if !escaped => false,
            _ => in_class,
        };
        escaped = c == '\\' && !escaped;
    }
    source
}
