//! Strings in single, double and back quotes, with JavaScript's escapes.

use super::ShellError;
use super::lexer::Lexer;

/// Parses the string whose quote comes next.
pub(super) fn parse(lexer: &mut Lexer<'_>) -> Result<String, ShellError> {
    let start = lexer.at();
    let Some(quote) = lexer.bump() else { return Ok(String::new()) };
    let mut content = String::new();
    loop {
        let at = lexer.at();
        match lexer.bump() {
            Some(c) if c == quote => return Ok(content),
            Some('\\') => escape(lexer, at, &mut content)?,
            Some('$') if quote == '`' && lexer.peek_char() == Some('{') => {
                let message = "a template string with a substitution is not a constant";
                return Err(ShellError::new(at..at + 2, message).help("write the value itself"));
            }
            None | Some('\n') if quote != '`' => return Err(unterminated(start, quote)),
            None => return Err(unterminated(start, quote)),
            Some(c) => content.push(c),
        }
    }
}

fn unterminated(start: usize, quote: char) -> ShellError {
    ShellError::new(start..start + 1, format!("this string has no closing {quote}"))
}

/// Parses an escape sequence after the backslash at `at`.
fn escape(lexer: &mut Lexer<'_>, at: usize, content: &mut String) -> Result<(), ShellError> {
    let escaped = match lexer.bump() {
        Some('n') => '\n',
        Some('t') => '\t',
        Some('r') => '\r',
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('v') => '\u{b}',
        Some('0') if !lexer.peek_char().is_some_and(|c| c.is_ascii_digit()) => '\0',
        Some('0'..='9') => {
            return Err(ShellError::new(at..lexer.at(), "octal escapes are not allowed").help("write \\xHH or \\uHHHH"));
        }
        Some('x') => hexadecimal(lexer, at, 2)?,
        Some('u') => unicode(lexer, at)?,
        Some('\n') => return Ok(()),
        Some('\r') => {
            if lexer.peek_char() == Some('\n') {
                lexer.bump();
            }
            return Ok(());
        }
        Some(other) => other,
        None => return Ok(()),
    };
    content.push(escaped);
    Ok(())
}

fn hexadecimal(lexer: &mut Lexer<'_>, at: usize, digits: usize) -> Result<char, ShellError> {
    let code = code_unit(lexer, at, digits)?;
    char::from_u32(code).ok_or_else(|| no_character(at, lexer))
}

fn code_unit(lexer: &mut Lexer<'_>, at: usize, digits: usize) -> Result<u32, ShellError> {
    let text = lexer.rest().get(..digits).unwrap_or_default().to_owned();
    let code = u32::from_str_radix(&text, 16).ok().filter(|_| text.bytes().all(|b| b.is_ascii_hexdigit()));
    let Some(code) = code else {
        return Err(ShellError::new(at..at + 2, format!("this escape needs {digits} hexadecimal digits")));
    };
    (0..digits).for_each(|_| _ = lexer.bump());
    Ok(code)
}

/// Parses `\uHHHH`, `\u{H…}`, or a pair of surrogates.
fn unicode(lexer: &mut Lexer<'_>, at: usize) -> Result<char, ShellError> {
    if lexer.peek_char() == Some('{') {
        lexer.bump();
        let digits = lexer.take_while(|c| c.is_ascii_hexdigit());
        let code = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
        return match (code, lexer.bump()) {
            (Some(character), Some('}')) => Ok(character),
            _ => Err(no_character(at, lexer)),
        };
    }
    let first = code_unit(lexer, at, 4)?;
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(first).ok_or_else(|| no_character(at, lexer));
    }
    if !lexer.rest().starts_with("\\u") {
        return Err(no_character(at, lexer));
    }
    lexer.bump();
    lexer.bump();
    let second = code_unit(lexer, at, 4)?;
    let pair = char::decode_utf16([first as u16, second as u16]).next();
    pair.and_then(Result::ok).ok_or_else(|| no_character(at, lexer))
}

fn no_character(at: usize, lexer: &Lexer<'_>) -> ShellError {
    ShellError::new(at..lexer.at().max(at + 1), "this escape is not a valid character")
}
