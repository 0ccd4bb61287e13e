//! What a method is called with: read one after the other, with what is missing, wrong or left over reported at
//! its place.

use std::ops::Range;

use super::ShellError;
use super::error::did_you_mean;
use super::term::{Content, Field, Term};

/// The arguments of one method.
#[derive(Debug)]
pub(super) struct Arguments {
    method: String,
    method_span: Range<usize>,
    terms: std::vec::IntoIter<Term>,
    /// The closing parenthesis, where a missing argument would be.
    end: Range<usize>,
}

impl Arguments {
    pub(super) fn new(method: &str, method_span: Range<usize>, terms: Vec<Term>, end: Range<usize>) -> Self {
        Self { method: method.to_owned(), method_span, terms: terms.into_iter(), end }
    }

    /// The next one, whatever it is; null counts as none.
    pub(super) fn any(&mut self) -> Option<Term> {
        self.terms.next().filter(|term| !term.is_null())
    }

    pub(super) fn required(&mut self, what: &str) -> Result<Term, ShellError> {
        self.any().ok_or_else(|| ShellError::new(self.end.clone(), format!("`{}` needs {what}", self.method)))
    }

    pub(super) fn required_document(&mut self, what: &str) -> Result<Term, ShellError> {
        let term = self.required(what)?;
        self.as_document(term, what)
    }

    /// A document, or an empty one.
    pub(super) fn filter(&mut self) -> Result<Term, ShellError> {
        Ok(self.document("a filter")?.unwrap_or_else(|| Term::document(Vec::new())))
    }

    pub(super) fn document(&mut self, what: &str) -> Result<Option<Term>, ShellError> {
        self.any().map(|term| self.as_document(term, what)).transpose()
    }

    pub(super) fn required_array(&mut self, what: &str) -> Result<Vec<Term>, ShellError> {
        let term = self.required(what)?;
        match term.content {
            Content::Array(terms) => Ok(terms),
            _ => Err(self.wrong(&term, what)),
        }
    }

    pub(super) fn required_text(&mut self, what: &str) -> Result<String, ShellError> {
        let term = self.required(what)?;
        term.as_str().map(str::to_owned).ok_or_else(|| self.wrong(&term, what))
    }

    /// The options, which come last.
    pub(super) fn options(&mut self) -> Result<Options, ShellError> {
        let fields = match self.document("options")? {
            Some(Term { content: Content::Document(fields), .. }) => fields,
            _ => Vec::new(),
        };
        self.finish()?;
        Ok(Options { method: self.method.clone(), fields, asked: Vec::new() })
    }

    /// For methods whose arguments do not matter.
    pub(super) fn skip(&mut self) {
        self.terms.by_ref().for_each(drop);
    }

    /// Nothing may be left over.
    pub(super) fn finish(&mut self) -> Result<(), ShellError> {
        match self.terms.next() {
            None => Ok(()),
            Some(term) => Err(ShellError::new(term.span, format!("`{}` takes no further argument", self.method))),
        }
    }

    /// Arguments that could be options, or something of an older shell.
    pub(super) fn put_back(&mut self, term: Term) {
        let terms: Vec<Term> = std::iter::once(term).chain(self.terms.by_ref()).collect();
        self.terms = terms.into_iter();
    }

    pub(super) fn wrong(&self, term: &Term, what: &str) -> ShellError {
        ShellError::new(term.span.clone(), format!("`{}` takes {what} here, not {}", self.method, term.describe()))
    }

    pub(super) fn method_span(&self) -> Range<usize> {
        self.method_span.clone()
    }

    fn as_document(&self, term: Term, what: &str) -> Result<Term, ShellError> {
        if matches!(term.content, Content::Document(_)) { Ok(term) } else { Err(self.wrong(&term, what)) }
    }
}

/// Named options, taken out one by one.
#[derive(Debug)]
pub(super) struct Options {
    method: String,
    fields: Vec<Field>,
    /// All names asked for: what the method knows.
    asked: Vec<&'static str>,
}

impl Options {
    /// For what is written as one document: findAndModify's argument, an operation of bulkWrite.
    pub(super) fn of(method: &str, fields: Vec<Field>) -> Self {
        Self { method: method.to_owned(), fields, asked: Vec::new() }
    }

    /// The option of this name; null counts as none.
    pub(super) fn take(&mut self, name: &'static str) -> Option<Term> {
        self.asked.push(name);
        let place = self.fields.iter().position(|field| field.key == name)?;
        Some(self.fields.remove(place).term).filter(|term| !term.is_null())
    }

    /// Appends those of `names` that are there to `fields`, in this order.
    pub(super) fn copy(&mut self, names: &[&'static str], fields: &mut Vec<Field>) {
        for name in names {
            if let Some(term) = self.take(name) {
                fields.push(Field::new(name, term));
            }
        }
    }

    /// A flag; anything but true or false is reported.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, ShellError> {
        let Some(term) = self.take(name) else { return Ok(None) };
        let flag = term.as_bool();
        let wrong =
            || ShellError::new(term.span.clone(), format!("`{name}` is true or false, not {}", term.describe()));
        flag.map(Some).ok_or_else(wrong)
    }

    /// What was not asked for has no meaning; mongosh would ignore it in silence.
    pub(super) fn finish(self) -> Result<(), ShellError> {
        let Some(left) = self.fields.first() else { return Ok(()) };
        let message = format!("`{}` has no option `{}`", self.method, left.key);
        let error = ShellError::new(left.key_span.clone(), message);
        let suggestion = did_you_mean(&left.key, self.asked.iter().copied());
        Err(error.help(suggestion.unwrap_or_else(|| format!("it takes {}", self.asked.join(", ")))))
    }
}
