//! JavaScript functions inside a command (`$where`, mapReduce): their source is kept as it is, so only their
//! end must be found.

use super::ShellError;
use super::regex::skip_pattern;
use super::scanner::{Scanner, is_name_part};
use super::string;

/// Goes behind the function that comes next: behind the brace that closes its body.
pub(super) fn skip(scanner: &mut Scanner<'_>) -> Result<(), ShellError> {
    let start = scanner.at();
    let mut open: usize = 0;
    // What stood before decides whether a slash divides or begins a regular expression.
    let mut after_value = false;
    loop {
        scanner.skip_space()?;
        if skip_literal(scanner, after_value)? {
            after_value = true;
            continue;
        }
        let word = scanner.take_while(is_name_part);
        if !word.is_empty() {
            after_value = !matches!(word, "return" | "typeof" | "case" | "in" | "of" | "void" | "delete" | "else");
            continue;
        }
        let sign = scanner.bump();
        match sign {
            Some('{' | '(' | '[') => open += 1,
            Some('}') if open <= 1 => return Ok(()),
            Some('}' | ')' | ']') => open = open.saturating_sub(1),
            Some(_) => {}
            None => {
                let span = start..start + "function".len();
                return Err(ShellError::new(span, "this function has no end").help("close its braces"));
            }
        }
        after_value = matches!(sign, Some(')' | ']'));
    }
}

/// Goes behind a string or regular expression, if one comes next.
fn skip_literal(scanner: &mut Scanner<'_>, after_value: bool) -> Result<bool, ShellError> {
    let at = scanner.at();
    match scanner.peek_char() {
        Some('"' | '\'' | '`') => _ = string::read(scanner)?,
        Some('/') if !after_value => {
            scanner.bump();
            skip_pattern(scanner)
                .ok_or_else(|| ShellError::new(at..at + 1, "this regular expression has no closing /"))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}
