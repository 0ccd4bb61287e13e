//! Strings in single, double and back quotes, with JavaScript's escapes.

use super::ShellError;
use super::scanner::Scanner;

/// Parses the string whose quote comes next.
pub(super) fn parse(scanner: &mut Scanner<'_>) -> Result<String, ShellError> {
    let start = scanner.at();
    let Some(quote) = scanner.bump() else { return Ok(String::new()) };
    let mut content = String::new();
    loop {
        let at = scanner.at();
        match scanner.bump() {
            Some(c) if c == quote => return Ok(content),
            Some('\\') => escape(scanner, at, &mut content)?,
            Some('$') if quote == '`' && scanner.peek_char() == Some('{') => {
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
fn escape(scanner: &mut Scanner<'_>, at: usize, content: &mut String) -> Result<(), ShellError> {
    let escaped = match scanner.bump() {
        Some('n') => '\n',
        Some('t') => '\t',
        Some('r') => '\r',
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('v') => '\u{b}',
        Some('0') if !scanner.peek_char().is_some_and(|c| c.is_ascii_digit()) => '\0',
        Some('0'..='9') => {
            return Err(
                ShellError::new(at..scanner.at(), "octal escapes are not allowed").help("write \\xHH or \\uHHHH")
            );
        }
        Some('x') => hexadecimal(scanner, at, 2)?,
        Some('u') => unicode(scanner, at)?,
        Some('\n') => return Ok(()),
        Some('\r') => {
            if scanner.peek_char() == Some('\n') {
                scanner.bump();
            }
            return Ok(());
        }
        Some(other) => other,
        None => return Ok(()),
    };
    content.push(escaped);
    Ok(())
}

fn hexadecimal(scanner: &mut Scanner<'_>, at: usize, digits: usize) -> Result<char, ShellError> {
    let code = code_unit(scanner, at, digits)?;
    char::from_u32(code).ok_or_else(|| no_character(at, scanner))
}

fn code_unit(scanner: &mut Scanner<'_>, at: usize, digits: usize) -> Result<u32, ShellError> {
    let text = scanner.rest().get(..digits).unwrap_or_default().to_owned();
    let code = u32::from_str_radix(&text, 16).ok().filter(|_| text.bytes().all(|b| b.is_ascii_hexdigit()));
    let Some(code) = code else {
        return Err(ShellError::new(at..at + 2, format!("this escape needs {digits} hexadecimal digits")));
    };
    (0..digits).for_each(|_| _ = scanner.bump());
    Ok(code)
}

/// Parses `\uHHHH`, `\u{H…}`, or a pair of surrogates.
fn unicode(scanner: &mut Scanner<'_>, at: usize) -> Result<char, ShellError> {
    if scanner.peek_char() == Some('{') {
        scanner.bump();
        let digits = scanner.take_while(|c| c.is_ascii_hexdigit());
        let code = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
        return match (code, scanner.bump()) {
            (Some(character), Some('}')) => Ok(character),
            _ => Err(no_character(at, scanner)),
        };
    }
    let first = code_unit(scanner, at, 4)?;
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(first).ok_or_else(|| no_character(at, scanner));
    }
    if !scanner.rest().starts_with("\\u") {
        return Err(no_character(at, scanner));
    }
    scanner.bump();
    scanner.bump();
    let second = code_unit(scanner, at, 4)?;
    let pair = char::decode_utf16([first as u16, second as u16]).next();
    pair.and_then(Result::ok).ok_or_else(|| no_character(at, scanner))
}

fn no_character(at: usize, scanner: &Scanner<'_>) -> ShellError {
    ShellError::new(at..scanner.at().max(at + 1), "this escape is not a valid character")
}
