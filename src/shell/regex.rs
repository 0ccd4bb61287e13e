//! Regular expressions: JavaScript's literals, and what drivers make of them in BSON.

use super::ShellError;
use super::scanner::{Scanner, is_name_part};

/// As BSON has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Regex {
    pub(super) pattern: String,
    pub(super) options: String,
}

/// Reads the literal whose first slash comes next.
pub(super) fn read(scanner: &mut Scanner<'_>) -> Result<Regex, ShellError> {
    let start = scanner.at();
    scanner.bump();
    let pattern = skip_pattern(scanner)
        .ok_or_else(|| ShellError::new(start..start + 1, "this regular expression has no closing /"))?;
    let flags_at = scanner.at();
    let flags = scanner.take_while(is_name_part);
    let options =
        options(flags).ok_or_else(|| ShellError::new(flags_at..scanner.at(), format!("`{flags}` are no flags")))?;
    Ok(Regex { pattern: pattern.to_owned(), options })
}

/// The pattern up to its closing slash, the scanner behind that; `None` when the line ends before.
pub(super) fn skip_pattern<'t>(scanner: &mut Scanner<'t>) -> Option<&'t str> {
    let start = scanner.at();
    let mut in_class = false;
    loop {
        let at = scanner.at();
        match scanner.bump()? {
            '\n' => return None,
            '\\' => {
                scanner.bump().filter(|c| *c != '\n')?;
            }
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return scanner.text().get(start..at),
            _ => {}
        }
    }
}

/// The BSON options that drivers make of JavaScript's flags: `g` becomes `s`, what has no counterpart is left out.
pub(super) fn options(flags: &str) -> Option<String> {
    let known = flags.chars().all(|flag| "dgimsuvy".contains(flag));
    let once = flags.chars().all(|flag| flags.matches(flag).count() == 1);
    let options = [('i', 'i'), ('g', 's'), ('m', 'm')];
    let chosen = options.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, option)| *option);
    (known && once).then(|| chosen.collect())
}

/// The `source` of `new RegExp(pattern)`: what a literal of it would read.
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
