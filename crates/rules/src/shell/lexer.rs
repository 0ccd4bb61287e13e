//! Splits a text into tokens, one at a time on demand, because only the parser knows whether a slash divides or
//! begins a regular expression. Strings, numbers, regular expressions and functions have their own files.

use std::ops::Range;

use super::{ShellError, function, number, regex, string};

/// The tokens of a text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    End,
    /// A name or a keyword: `db`, `new`, `$set`.
    Name(String),
    Number(number::ShellNumber),
    String(String),
    /// One of `{}[]():;,.+-/` or any other character.
    Sign(char),
}

/// A position in a text.
#[derive(Debug, Clone)]
pub(super) struct Lexer<'t> {
    text: &'t str,
    /// Offset of the next character.
    at: usize,
    /// Offset of the end of the last token.
    last_end: usize,
}

impl Token {
    /// Returns a description for messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::End => "the end".to_owned(),
            Self::Name(name) => format!("`{name}`"),
            Self::Number(_) => "a number".to_owned(),
            Self::String(_) => "a string".to_owned(),
            Self::Sign(sign) => format!("`{sign}`"),
        }
    }
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0, last_end: 0 }
    }

    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    /// Returns the offset of the end of the last token.
    pub(super) fn last_end(&self) -> usize {
        self.last_end
    }

    /// Returns the next token and its span, and moves behind it.
    ///
    /// # Errors
    /// [`ShellError`] for a malformed comment, string or number.
    pub(super) fn next(&mut self) -> Result<(Token, Range<usize>), ShellError> {
        self.skip_space()?;
        let start = self.at;
        let token = match self.peek_char() {
            None => Token::End,
            Some('"' | '\'' | '`') => Token::String(string::parse(self)?),
            Some(c) if c.is_ascii_digit() => Token::Number(number::parse(self)?),
            Some('.') if self.rest().as_bytes().get(1).is_some_and(u8::is_ascii_digit) => {
                Token::Number(number::parse(self)?)
            }
            Some(c) if is_name_start(c) => Token::Name(self.take_while(is_name_part).to_owned()),
            Some(c) => {
                self.bump();
                Token::Sign(c)
            }
        };
        self.last_end = self.at;
        Ok((token, start..self.at))
    }

    /// Returns the next token without moving.
    pub(super) fn peek(&self) -> Result<(Token, Range<usize>), ShellError> {
        self.clone().next()
    }

    /// Moves behind the next token if it is this sign.
    pub(super) fn take_sign(&mut self, sign: char) -> Result<bool, ShellError> {
        let mut ahead = self.clone();
        let found = ahead.next()?.0 == Token::Sign(sign);
        if found {
            *self = ahead;
        }
        Ok(found)
    }

    /// Returns the span of the next token, which must be this sign.
    pub(super) fn expect_sign(&mut self, sign: char, wanted: &str) -> Result<Range<usize>, ShellError> {
        let (token, span) = self.next()?;
        if token == Token::Sign(sign) { Ok(span) } else { Err(ShellError::expected(span, wanted, &token.describe())) }
    }

    /// Parses the regular expression whose first slash comes next.
    pub(super) fn regex(&mut self) -> Result<(regex::Regex, Range<usize>), ShellError> {
        self.skip_space()?;
        let start = self.at;
        let regex = regex::parse(self)?;
        self.last_end = self.at;
        Ok((regex, start..self.at))
    }

    /// Returns the source of the next function, whose first word is at `begin`.
    pub(super) fn function(&mut self, begin: Range<usize>) -> Result<(&'t str, Range<usize>), ShellError> {
        self.skip_space()?;
        let start = self.at;
        function::skip(self, begin)?;
        self.last_end = self.at;
        Ok((self.text.get(start..self.at).unwrap_or_default(), start..self.at))
    }

    pub(super) fn skip_space(&mut self) -> Result<(), ShellError> {
        loop {
            self.take_while(|c| c.is_whitespace() || c == '\u{feff}');
            let start = self.at;
            if self.rest().starts_with("//") {
                self.take_while(|c| c != '\n');
            } else if self.rest().starts_with("/*") {
                let Some(end) = self.rest().get(2..).and_then(|comment| comment.find("*/")) else {
                    return Err(ShellError::new(start..start + 2, "this comment is not closed").help("write */"));
                };
                self.at += end + 4;
            } else {
                return Ok(());
            }
        }
    }

    // === characters, for the files that parse single tokens ===

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn peek_char(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn bump(&mut self) -> Option<char> {
        let next = self.peek_char()?;
        self.at += next.len_utf8();
        Some(next)
    }

    pub(super) fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let length = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }
}

pub(super) fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_' || c == '$'
}

pub(super) fn is_name_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}
