//! Values: what stands in arguments, arrays and documents. Recursive descent, never deeper than
//! [`MAX_NESTING`].

use std::collections::HashSet;
use std::ops::Range;

use super::constructor;
use super::number::Number;
use super::scanner::{Scanner, Token};
use super::term::{Content, Field, Term, boolean, in_javascript_order};
use super::{MAX_NESTING, ShellError, Surroundings};
use crate::document::{Kind, OwnedValue, Value};

/// How objects are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Objects {
    /// As JavaScript keeps them.
    JavaScript,
    /// Field by field, as they are written.
    AsWritten,
}

/// Reads values from a scanner.
#[derive(Debug)]
pub(super) struct Values<'t> {
    pub(super) scanner: Scanner<'t>,
    pub(super) surroundings: Surroundings<'t>,
    objects: Objects,
    nesting: usize,
    /// Ids that `ObjectId()` made so far.
    ids: u32,
}

const VALUE: &str = "a value";

impl<'t> Values<'t> {
    pub(super) fn new(scanner: Scanner<'t>, surroundings: Surroundings<'t>, objects: Objects) -> Self {
        Self { scanner, surroundings, objects, nesting: 0, ids: 0 }
    }

    /// The value that comes next.
    pub(super) fn value(&mut self) -> Result<Term, ShellError> {
        let (token, span) = self.scanner.peek()?;
        match token {
            Token::Sign('/') => {
                let (regex, span) = self.scanner.regex()?;
                Ok(Term::scalar(span.clone(), constructor::regex_value(&regex.pattern, &regex.options, &span)?))
            }
            Token::Sign('{') => self.nested(Self::object),
            Token::Sign('[') => self.nested(Self::array),
            Token::Sign('(') => self.nested(Self::parenthesised),
            Token::Sign(sign @ ('-' | '+')) => {
                self.scanner.next()?;
                self.nested(|values| values.signed(sign, span))
            }
            Token::Number(number) => {
                self.scanner.next()?;
                Ok(Term::scalar(span.clone(), number_value(number, &span)?))
            }
            Token::String(text) => {
                self.scanner.next()?;
                Ok(Term::scalar(span, OwnedValue::string(text)))
            }
            Token::Name(name) => self.named(&name, span),
            other => Err(ShellError::expected(span, VALUE, &other.describe())),
        }
    }

    /// `read` one level further down.
    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<Term, ShellError>) -> Result<Term, ShellError> {
        if self.nesting >= MAX_NESTING {
            let (_, span) = self.scanner.peek()?;
            return Err(ShellError::new(span, format!("values nest deeper than {MAX_NESTING} levels")));
        }
        self.nesting += 1;
        let term = read(self);
        self.nesting -= 1;
        term
    }

    fn parenthesised(&mut self) -> Result<Term, ShellError> {
        self.scanner.next()?;
        let term = self.value()?;
        self.scanner.expect_sign(')', "`)`")?;
        Ok(term)
    }

    fn signed(&mut self, sign: char, sign_span: Range<usize>) -> Result<Term, ShellError> {
        let (token, span) = self.scanner.peek()?;
        let whole = sign_span.start..span.end;
        let factor = if sign == '-' { -1.0 } else { 1.0 };
        let value = match token {
            Token::Number(Number::Plain(number)) => double_or_int(factor * number),
            Token::Number(Number::Big(number)) if sign == '-' => big_value(-number, &whole)?,
            Token::Name(name) if name == "Infinity" => OwnedValue::double(factor * f64::INFINITY),
            Token::Sign('(' | '-' | '+') => return self.signed_expression(factor, whole),
            other => return Err(ShellError::expected(span, "a number", &other.describe())),
        };
        self.scanner.next()?;
        Ok(Term::scalar(whole, value))
    }

    /// `-(5)`
    fn signed_expression(&mut self, factor: f64, span: Range<usize>) -> Result<Term, ShellError> {
        let term = self.value()?;
        match (term.as_number(), term.as_value().map(|value| value.kind)) {
            (Some(number), Some(Kind::Int32 | Kind::Double)) => Ok(Term::scalar(span, double_or_int(factor * number))),
            _ => Err(ShellError::expected(term.span.clone(), "a number", term.describe())),
        }
    }

    fn array(&mut self) -> Result<Term, ShellError> {
        let start = self.scanner.next()?.1.start;
        let mut terms = Vec::new();
        loop {
            if self.scanner.take_sign(']')? {
                break;
            }
            let (token, span) = self.scanner.peek()?;
            if token == Token::Sign(',') {
                // A hole, as in [1, , 2].
                self.scanner.next()?;
                terms.push(Term::scalar(span, OwnedValue::null()));
                continue;
            }
            terms.push(self.value()?);
            if !self.scanner.take_sign(',')? {
                self.scanner.expect_sign(']', "`,` or `]`")?;
                break;
            }
        }
        Ok(Term { span: start..self.scanner.last_end(), content: Content::Array(terms) })
    }

    fn object(&mut self) -> Result<Term, ShellError> {
        let start = self.scanner.next()?.1.start;
        let mut fields = Vec::new();
        while !self.scanner.take_sign('}')? {
            let (key, key_span) = self.key()?;
            self.scanner.expect_sign(':', "`:` and a value")?;
            fields.push(Field { key, key_span, term: self.value()? });
            if !self.scanner.take_sign(',')? {
                self.scanner.expect_sign('}', "`,` or `}`")?;
                break;
            }
        }
        match self.objects {
            Objects::JavaScript => fields = in_javascript_order(fields),
            Objects::AsWritten => refuse_twins(&fields)?,
        }
        Ok(Term { span: start..self.scanner.last_end(), content: Content::Document(fields) })
    }

    fn key(&mut self) -> Result<(String, Range<usize>), ShellError> {
        let (token, span) = self.scanner.next()?;
        let key = match token {
            Token::Name(name) => name,
            Token::String(text) => text,
            Token::Number(Number::Plain(number)) if number.fract() == 0.0 && number < 1e21 => format!("{number:.0}"),
            Token::Number(Number::Plain(number)) if (1e-6..1e21).contains(&number) => number.to_string(),
            Token::Sign('[') => return self.computed_key(),
            other => return Err(ShellError::expected(span, "a field name or `}`", &other.describe())),
        };
        if key.contains('\0') {
            return Err(ShellError::new(span, "a field name cannot contain NUL"));
        }
        if key == "__proto__" && self.objects == Objects::JavaScript {
            return Err(ShellError::new(span, "`__proto__` is no field to JavaScript: it would be lost"));
        }
        Ok((key, span))
    }

    fn computed_key(&mut self) -> Result<(String, Range<usize>), ShellError> {
        let (token, span) = self.scanner.next()?;
        let Token::String(key) = token else {
            return Err(ShellError::expected(span, "a string", &token.describe()));
        };
        self.scanner.expect_sign(']', "`]`")?;
        if key.contains('\0') {
            return Err(ShellError::new(span, "a field name cannot contain NUL"));
        }
        Ok((key, span))
    }

    /// A value that begins with a name.
    fn named(&mut self, name: &str, span: Range<usize>) -> Result<Term, ShellError> {
        let value = match name {
            "true" | "false" => boolean(name == "true"),
            // Drivers write null for undefined.
            "null" | "undefined" => OwnedValue::null(),
            "Infinity" => OwnedValue::double(f64::INFINITY),
            "NaN" => OwnedValue::double(f64::NAN),
            "function" | "async" => {
                let (source, span) = self.scanner.function()?;
                return Ok(Term::scalar(span, constructor::code_value(source)));
            }
            _ => return self.nested(Self::constructed),
        };
        self.scanner.next()?;
        Ok(Term::scalar(span, value))
    }

    /// `ObjectId("…")`, `new Date(…)`, `MinKey`, `Long.fromString("…")`
    fn constructed(&mut self) -> Result<Term, ShellError> {
        let (mut token, start) = self.scanner.next()?;
        let is_new = token == Token::Name("new".to_owned());
        let mut span = start.clone();
        if is_new {
            (token, span) = self.scanner.next()?;
        }
        let Token::Name(mut name) = token else {
            return Err(ShellError::expected(span, "the name of a type", &token.describe()));
        };
        while self.scanner.take_sign('.')? {
            let (token, part) = self.scanner.next()?;
            let Token::Name(member) = token else {
                return Err(ShellError::expected(part, "a name", &token.describe()));
            };
            name = format!("{name}.{member}");
            span.end = part.end;
        }
        let called = self.scanner.peek()?.0 == Token::Sign('(');
        let arguments = if called { Some(self.arguments()?.0) } else { None };
        let call = constructor::Call { name: &name, name_span: span, is_new, arguments };
        let value = call.value(self.surroundings, &mut self.ids)?;
        Ok(Term { span: start.start..self.scanner.last_end(), content: value })
    }

    /// `(a, b)`: the arguments, and the place of the closing parenthesis.
    pub(super) fn arguments(&mut self) -> Result<(Vec<Term>, Range<usize>), ShellError> {
        self.scanner.expect_sign('(', "`(`")?;
        let mut terms = Vec::new();
        loop {
            let (token, span) = self.scanner.peek()?;
            if token == Token::Sign(')') {
                self.scanner.next()?;
                return Ok((terms, span));
            }
            terms.push(self.value()?);
            if !self.scanner.take_sign(',')? {
                let end = self.scanner.expect_sign(')', "`,` or `)`")?;
                return Ok((terms, end));
            }
        }
    }
}

fn number_value(number: Number, span: &Range<usize>) -> Result<OwnedValue, ShellError> {
    match number {
        Number::Plain(number) => Ok(double_or_int(number)),
        Number::Big(number) => big_value(number, span),
    }
}

fn big_value(number: i128, span: &Range<usize>) -> Result<OwnedValue, ShellError> {
    let long = i64::try_from(number).map(OwnedValue::int64);
    long.map_err(|_| ShellError::new(span.clone(), "this number does not fit into a long"))
}

/// The type that drivers give a JavaScript number: int where it fits, else double.
pub(super) fn double_or_int(number: f64) -> OwnedValue {
    let whole = number.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number);
    let negative_zero = number == 0.0 && number.is_sign_negative();
    if whole && !negative_zero { OwnedValue::int32(number as i32) } else { OwnedValue::double(number) }
}

/// A value of a kind whose bytes are at hand.
pub(super) fn of_kind(kind: Kind, bytes: &[u8]) -> OwnedValue {
    OwnedValue::from(Value { kind, bytes })
}

/// JavaScript takes the last of two fields of one name; a command with both would be ambiguous.
fn refuse_twins(fields: &[Field]) -> Result<(), ShellError> {
    let mut seen = HashSet::with_capacity(fields.len());
    match fields.iter().find(|field| !seen.insert(field.key.as_str())) {
        Some(twin) => Err(ShellError::new(twin.key_span.clone(), format!("the field `{}` is there already", twin.key))),
        None => Ok(()),
    }
}
