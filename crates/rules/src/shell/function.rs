//! JavaScript functions in a command (`$where`, mapReduce). The source is kept unchanged, so only its end is
//! searched.

use std::ops::Range;

use super::ShellError;
use super::lexer::{Lexer, is_name_part};
use super::regex::skip_pattern;
use super::string;

/// Moves behind the next function, after the brace that closes its body. Its first word is at `begin`.
pub(super) fn skip(lexer: &mut Lexer<'_>, begin: Range<usize>) -> Result<(), ShellError> {
    let mut open: usize = 0;
    // The previous token decides whether a slash divides or begins a regular expression.
    let mut after_value = false;
    loop {
        lexer.skip_space()?;
        if skip_literal(lexer, after_value)? {
            after_value = true;
            continue;
        }
        let word = lexer.take_while(is_name_part);
        if !word.is_empty() {
            after_value = !matches!(word, "return" | "typeof" | "case" | "in" | "of" | "void" | "delete" | "else");
            continue;
        }
        let sign = lexer.bump();
        match sign {
            Some('{' | '(' | '[') => open += 1,
            Some('}') if open <= 1 => return Ok(()),
            Some('}' | ')' | ']') => open = open.saturating_sub(1),
            Some(_) => {}
            None => {
                return Err(ShellError::new(begin, "this function is not closed").help("add the missing `}`"));
            }
        }
        after_value = matches!(sign, Some(')' | ']'));
    }
}

/// Moves behind a string or regular expression, if one comes next.
fn skip_literal(lexer: &mut Lexer<'_>, after_value: bool) -> Result<bool, ShellError> {
    let at = lexer.at();
    match lexer.peek_char() {
        Some('"' | '\'' | '`') => _ = string::parse(lexer)?,
        Some('/') if !after_value => {
            lexer.bump();
            skip_pattern(lexer)
                .ok_or_else(|| ShellError::new(at..at + 1, "this regular expression has no closing /"))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}
