//! The arguments of a method. They are read one by one; a missing, wrong or additional argument is reported with its
//! span.

use std::ops::Range;

use super::ShellError;
use super::error::did_you_mean;
use super::term::{Term, TermContent, TermField};

/// The arguments of one method.
#[derive(Debug)]
pub(super) struct MethodArguments {
    method: String,
    method_span: Range<usize>,
    terms: std::vec::IntoIter<Term>,
    /// The closing parenthesis, the span of errors about missing arguments.
    end: Range<usize>,
}

impl MethodArguments {
    pub(super) fn new(method: &str, method_span: Range<usize>, terms: Vec<Term>, end: Range<usize>) -> Self {
        Self { method: method.to_owned(), method_span, terms: terms.into_iter(), end }
    }

    /// Returns the next argument of any type. Null counts as missing.
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

    /// Returns the next argument as a filter; an empty document if it is missing.
    pub(super) fn filter(&mut self) -> Result<Term, ShellError> {
        Ok(self.document("a filter")?.unwrap_or_else(|| Term::document(Vec::new())))
    }

    pub(super) fn document(&mut self, what: &str) -> Result<Option<Term>, ShellError> {
        self.any().map(|term| self.as_document(term, what)).transpose()
    }

    pub(super) fn required_array(&mut self, what: &str) -> Result<Vec<Term>, ShellError> {
        let term = self.required(what)?;
        match term.content {
            TermContent::Array(terms) => Ok(terms),
            _ => Err(self.wrong(&term, what)),
        }
    }

    pub(super) fn required_text(&mut self, what: &str) -> Result<String, ShellError> {
        let term = self.required(what)?;
        term.as_str().map(str::to_owned).ok_or_else(|| self.wrong(&term, what))
    }

    /// Returns the options, which are the last argument.
    pub(super) fn options(&mut self) -> Result<Options, ShellError> {
        let fields = match self.document("options")? {
            Some(Term { content: TermContent::Document(fields), .. }) => fields,
            _ => Vec::new(),
        };
        self.finish()?;
        Ok(Options { method: self.method.clone(), fields, known: Vec::new() })
    }

    /// Skips all arguments, for methods that docward ignores.
    pub(super) fn skip(&mut self) {
        self.terms.by_ref().for_each(drop);
    }

    /// Checks that no argument is left.
    pub(super) fn finish(&mut self) -> Result<(), ShellError> {
        match self.terms.next() {
            None => Ok(()),
            Some(term) => Err(ShellError::new(term.span, format!("`{}` does not take this argument", self.method))),
        }
    }

    /// Puts an argument back, if it may be options or an argument of an older shell.
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
        if matches!(term.content, TermContent::Document(_)) { Ok(term) } else { Err(self.wrong(&term, what)) }
    }
}

/// Named options, which are taken one by one.
#[derive(Debug)]
pub(super) struct Options {
    method: String,
    fields: Vec<TermField>,
    /// All requested names, which are the options that the method knows.
    known: Vec<&'static str>,
}

impl Options {
    /// Wraps the fields of a document that holds all parameters: findAndModify's argument, an operation of bulkWrite.
    pub(super) fn from_fields(method: &str, fields: Vec<TermField>) -> Self {
        Self { method: method.to_owned(), fields, known: Vec::new() }
    }

    /// Takes the option with this name. Null counts as missing.
    pub(super) fn take(&mut self, name: &'static str) -> Option<Term> {
        self.known.push(name);
        let position = self.fields.iter().position(|field| field.key == name)?;
        Some(self.fields.remove(position).term).filter(|term| !term.is_null())
    }

    /// Appends the given options to `fields`, in the order of `names`.
    pub(super) fn copy(&mut self, names: &[&'static str], fields: &mut Vec<TermField>) {
        for name in names {
            if let Some(term) = self.take(name) {
                fields.push(TermField::new(name, term));
            }
        }
    }

    /// Takes a flag. Values other than true and false are errors.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, ShellError> {
        let Some(term) = self.take(name) else { return Ok(None) };
        let flag = term.as_bool();
        let wrong =
            || ShellError::new(term.span.clone(), format!("`{name}` must be true or false, not {}", term.describe()));
        flag.map(Some).ok_or_else(wrong)
    }

    /// Reports unknown options as errors; mongosh ignores them silently.
    pub(super) fn finish(self) -> Result<(), ShellError> {
        let Some(left) = self.fields.first() else { return Ok(()) };
        let message = format!("`{}` has no option `{}`", self.method, left.key);
        let error = ShellError::new(left.key_span.clone(), message);
        let suggestion = did_you_mean(&left.key, self.known.iter().copied());
        Err(error.help(suggestion.unwrap_or_else(|| format!("valid options: {}", self.known.join(", ")))))
    }
}
