//! Number literals: decimal, hexadecimal, octal, binary, with separators, and BigInt (`10n`).

use super::ShellError;
use super::lexer::{Lexer, is_name_part};

/// A JavaScript number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ShellNumber {
    Plain(f64),
    /// The range is checked when it is written to a document.
    Big(i128),
}

/// Parses the number whose first digit or dot comes next.
pub(super) fn parse(lexer: &mut Lexer<'_>) -> Result<ShellNumber, ShellError> {
    let start = lexer.at();
    let literal = take(lexer);
    let span = start..lexer.at();
    let wrong = || ShellError::new(span.clone(), "invalid number");
    if literal.starts_with('_') || literal.ends_with('_') || literal.contains("__") {
        return Err(wrong());
    }
    let digits: String = literal.chars().filter(|c| *c != '_').collect();
    let (plain, big) = match digits.strip_suffix('n') {
        Some(plain) => (plain, true),
        None => (digits.as_str(), false),
    };
    let radix = match plain.get(..2) {
        Some("0x" | "0X") => 16,
        Some("0o" | "0O") => 8,
        Some("0b" | "0B") => 2,
        _ => 10,
    };
    if radix != 10 || big {
        let digits = if radix == 10 { plain } else { plain.get(2..).unwrap_or_default() };
        let whole = u64::from_str_radix(digits, radix).map_err(|_| wrong())?;
        return Ok(if big { ShellNumber::Big(i128::from(whole)) } else { ShellNumber::Plain(whole as f64) });
    }
    let leading_zero =
        plain.len() > 1 && plain.starts_with('0') && plain.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    if leading_zero {
        return Err(wrong().help("remove the leading zero, or write 0o for an octal number"));
    }
    plain.parse().map(ShellNumber::Plain).map_err(|_| wrong())
}

/// Takes all characters that may belong to the number.
fn take<'t>(lexer: &mut Lexer<'t>) -> &'t str {
    let start = lexer.at();
    let radix = matches!(lexer.rest().get(..2), Some("0x" | "0X" | "0o" | "0O" | "0b" | "0B"));
    lexer.take_while(is_name_part);
    if !radix {
        if lexer.peek_char() == Some('.') {
            lexer.bump();
            lexer.take_while(is_name_part);
        }
        let so_far = lexer.text().get(start..lexer.at()).unwrap_or_default();
        if so_far.ends_with(['e', 'E']) && matches!(lexer.peek_char(), Some('+' | '-')) {
            lexer.bump();
            lexer.take_while(is_name_part);
        }
    }
    lexer.text().get(start..lexer.at()).unwrap_or_default()
}
