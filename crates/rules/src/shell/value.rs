//! Parses values in arguments, arrays and documents by recursive descent, limited to [`MAX_NESTING`] levels.

use std::collections::HashSet;
use std::ops::Range;

use super::constructor;
use super::lexer::{Lexer, Token};
use super::number::ShellNumber;
use super::term::{Term, TermContent, TermField, boolean, in_javascript_order};
use super::{MAX_NESTING, ShellContext, ShellError};
use crate::document::{Kind, OwnedValue, Value};

/// How objects are parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Objects {
    /// In the order of JavaScript's object properties.
    JavaScript,
    /// In the written order.
    AsWritten,
}

/// Parses values from a lexer.
#[derive(Debug)]
pub(super) struct Values<'t> {
    pub(super) lexer: Lexer<'t>,
    pub(super) context: ShellContext<'t>,
    objects: Objects,
    nesting: usize,
    /// Number of ids that `ObjectId()` has generated.
    ids: u32,
}

const VALUE: &str = "a value";

impl<'t> Values<'t> {
    pub(super) fn new(lexer: Lexer<'t>, context: ShellContext<'t>, objects: Objects) -> Self {
        Self { lexer, context, objects, nesting: 0, ids: 0 }
    }

    /// Parses the next value.
    pub(super) fn value(&mut self) -> Result<Term, ShellError> {
        let (token, span) = self.lexer.peek()?;
        match token {
            Token::Sign('/') => {
                let (regex, span) = self.lexer.regex()?;
                Ok(Term::scalar(span.clone(), constructor::regex_value(&regex.pattern, &regex.options, &span)?))
            }
            Token::Sign('{') => self.nested(Self::object),
            Token::Sign('[') => self.nested(Self::array),
            Token::Sign('(') => self.nested(Self::parenthesised),
            Token::Sign(sign @ ('-' | '+')) => {
                self.lexer.next()?;
                self.nested(|values| values.signed(sign, span))
            }
            Token::Number(number) => {
                self.lexer.next()?;
                Ok(Term::scalar(span.clone(), number_value(number, &span)?))
            }
            Token::String(text) => {
                self.lexer.next()?;
                Ok(Term::scalar(span, OwnedValue::string(text)))
            }
            Token::Name(name) => self.named(&name, span),
            other => Err(ShellError::expected(span, VALUE, &other.describe())),
        }
    }

    /// Calls `read` one nesting level deeper.
    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<Term, ShellError>) -> Result<Term, ShellError> {
        if self.nesting >= MAX_NESTING {
            let (_, span) = self.lexer.peek()?;
            return Err(ShellError::new(span, format!("values nest deeper than {MAX_NESTING} levels")));
        }
        self.nesting += 1;
        let term = read(self);
        self.nesting -= 1;
        term
    }

    fn parenthesised(&mut self) -> Result<Term, ShellError> {
        self.lexer.next()?;
        let term = self.value()?;
        self.lexer.expect_sign(')', "`)`")?;
        Ok(term)
    }

    fn signed(&mut self, sign: char, sign_span: Range<usize>) -> Result<Term, ShellError> {
        let (token, span) = self.lexer.peek()?;
        let whole = sign_span.start..span.end;
        let factor = if sign == '-' { -1.0 } else { 1.0 };
        let value = match token {
            Token::Number(ShellNumber::Plain(number)) => double_or_int(factor * number),
            Token::Number(ShellNumber::Big(number)) if sign == '-' => big_value(-number, &whole)?,
            Token::Name(name) if name == "Infinity" => OwnedValue::double(factor * f64::INFINITY),
            Token::Sign('(' | '-' | '+') => return self.signed_expression(factor, whole),
            other => return Err(ShellError::expected(span, "a number", &other.describe())),
        };
        self.lexer.next()?;
        Ok(Term::scalar(whole, value))
    }

    /// Parses the expression after a sign: `-(5)`.
    fn signed_expression(&mut self, factor: f64, span: Range<usize>) -> Result<Term, ShellError> {
        let term = self.value()?;
        match (term.as_number(), term.as_value().map(|value| value.kind)) {
            (Some(number), Some(Kind::Int32 | Kind::Double)) => Ok(Term::scalar(span, double_or_int(factor * number))),
            _ => Err(ShellError::expected(term.span.clone(), "a number", term.describe())),
        }
    }

    fn array(&mut self) -> Result<Term, ShellError> {
        let start = self.lexer.next()?.1.start;
        let mut terms = Vec::new();
        loop {
            if self.lexer.take_sign(']')? {
                break;
            }
            let (token, span) = self.lexer.peek()?;
            if token == Token::Sign(',') {
                // A missing element, as in [1, , 2].
                self.lexer.next()?;
                terms.push(Term::scalar(span, OwnedValue::null()));
                continue;
            }
            terms.push(self.value()?);
            if !self.lexer.take_sign(',')? {
                self.lexer.expect_sign(']', "`,` or `]`")?;
                break;
            }
        }
        Ok(Term { span: start..self.lexer.last_end(), content: TermContent::Array(terms) })
    }

    fn object(&mut self) -> Result<Term, ShellError> {
        let start = self.lexer.next()?.1.start;
        let mut fields = Vec::new();
        while !self.lexer.take_sign('}')? {
            let (key, key_span) = self.key()?;
            self.lexer.expect_sign(':', "`:` and a value")?;
            fields.push(TermField { key, key_span, term: self.value()? });
            if !self.lexer.take_sign(',')? {
                self.lexer.expect_sign('}', "`,` or `}`")?;
                break;
            }
        }
        match self.objects {
            Objects::JavaScript => fields = in_javascript_order(fields),
            Objects::AsWritten => check_distinct(&fields)?,
        }
        Ok(Term { span: start..self.lexer.last_end(), content: TermContent::Document(fields) })
    }

    fn key(&mut self) -> Result<(String, Range<usize>), ShellError> {
        let (token, span) = self.lexer.next()?;
        let key = match token {
            Token::Name(name) => name,
            Token::String(text) => text,
            Token::Number(ShellNumber::Plain(number)) if number.fract() == 0.0 && number < 1e21 => {
                format!("{number:.0}")
            }
            Token::Number(ShellNumber::Plain(number)) if (1e-6..1e21).contains(&number) => number.to_string(),
            Token::Sign('[') => return self.computed_key(),
            other => return Err(ShellError::expected(span, "a field name or `}`", &other.describe())),
        };
        if key.contains('\0') {
            return Err(ShellError::new(span, "a field name cannot contain NUL"));
        }
        if key == "__proto__" && self.objects == Objects::JavaScript {
            return Err(ShellError::new(span, "JavaScript does not store `__proto__` as a field, so it would be lost"));
        }
        Ok((key, span))
    }

    fn computed_key(&mut self) -> Result<(String, Range<usize>), ShellError> {
        let (token, span) = self.lexer.next()?;
        let Token::String(key) = token else {
            return Err(ShellError::expected(span, "a string", &token.describe()));
        };
        self.lexer.expect_sign(']', "`]`")?;
        if key.contains('\0') {
            return Err(ShellError::new(span, "a field name cannot contain NUL"));
        }
        Ok((key, span))
    }

    /// Parses a value that begins with a name.
    fn named(&mut self, name: &str, span: Range<usize>) -> Result<Term, ShellError> {
        let value = match name {
            "true" | "false" => boolean(name == "true"),
            // Drivers encode undefined as null.
            "null" | "undefined" => OwnedValue::null(),
            "Infinity" => OwnedValue::double(f64::INFINITY),
            "NaN" => OwnedValue::double(f64::NAN),
            "function" | "async" => {
                let (source, span) = self.lexer.function(span)?;
                return Ok(Term::scalar(span, constructor::code_value(source)));
            }
            _ => return self.nested(Self::constructed),
        };
        self.lexer.next()?;
        Ok(Term::scalar(span, value))
    }

    /// Parses `ObjectId("…")`, `new Date(…)`, `MinKey` or `Long.fromString("…")`.
    fn constructed(&mut self) -> Result<Term, ShellError> {
        let (mut token, start) = self.lexer.next()?;
        let is_new = token == Token::Name("new".to_owned());
        let mut span = start.clone();
        if is_new {
            (token, span) = self.lexer.next()?;
        }
        let Token::Name(mut name) = token else {
            return Err(ShellError::expected(span, "the name of a type", &token.describe()));
        };
        while self.lexer.take_sign('.')? {
            let (token, part) = self.lexer.next()?;
            let Token::Name(member) = token else {
                return Err(ShellError::expected(part, "a name", &token.describe()));
            };
            name = format!("{name}.{member}");
            span.end = part.end;
        }
        let called = self.lexer.peek()?.0 == Token::Sign('(');
        let arguments = if called { Some(self.arguments()?.0) } else { None };
        let call = constructor::Call { name: &name, name_span: span, is_new, arguments };
        let value = call.value(self.context, &mut self.ids)?;
        Ok(Term { span: start.start..self.lexer.last_end(), content: value })
    }

    /// Parses `(a, b)`. Returns the arguments and the span of the closing parenthesis.
    pub(super) fn arguments(&mut self) -> Result<(Vec<Term>, Range<usize>), ShellError> {
        self.lexer.expect_sign('(', "`(`")?;
        let mut terms = Vec::new();
        loop {
            let (token, span) = self.lexer.peek()?;
            if token == Token::Sign(')') {
                self.lexer.next()?;
                return Ok((terms, span));
            }
            terms.push(self.value()?);
            if !self.lexer.take_sign(',')? {
                let end = self.lexer.expect_sign(')', "`,` or `)`")?;
                return Ok((terms, end));
            }
        }
    }
}

fn number_value(number: ShellNumber, span: &Range<usize>) -> Result<OwnedValue, ShellError> {
    match number {
        ShellNumber::Plain(number) => Ok(double_or_int(number)),
        ShellNumber::Big(number) => big_value(number, span),
    }
}

fn big_value(number: i128, span: &Range<usize>) -> Result<OwnedValue, ShellError> {
    let long = i64::try_from(number).map(OwnedValue::int64);
    long.map_err(|_| ShellError::new(span.clone(), "this number does not fit into a long"))
}

/// Encodes a JavaScript number as drivers do: an int if it fits, otherwise a double.
pub(super) fn double_or_int(number: f64) -> OwnedValue {
    let whole = number.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number);
    let negative_zero = number == 0.0 && number.is_sign_negative();
    if whole && !negative_zero { OwnedValue::int32(number as i32) } else { OwnedValue::double(number) }
}

/// Returns a value with this kind and these bytes.
pub(super) fn of_kind(kind: Kind, bytes: &[u8]) -> OwnedValue {
    OwnedValue::from(Value { kind, bytes })
}

/// Checks that the field names are distinct. JavaScript would use the last of two fields with the same name, but a
/// command with both is ambiguous.
fn check_distinct(fields: &[TermField]) -> Result<(), ShellError> {
    let mut seen = HashSet::with_capacity(fields.len());
    match fields.iter().find(|field| !seen.insert(field.key.as_str())) {
        Some(duplicate) => {
            let message = format!("the field `{}` occurs twice", duplicate.key);
            Err(ShellError::new(duplicate.key_span.clone(), message))
        }
        None => Ok(()),
    }
}
