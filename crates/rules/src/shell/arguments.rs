//! The call of a method and its arguments. They are read one by one; a missing or wrong argument is reported with its
//! span, and so is everything that was not read ([`MethodCall::read_call`], [`Options::read_fields`]).

use std::ops::Range;

use super::ShellError;
use super::error::did_you_mean;
use super::term::{Term, TermContent, TermField};
use crate::command::may_name_database;

/// The name of a method and its arguments.
#[derive(Debug)]
pub(super) struct MethodCall {
    pub(super) name: String,
    pub(super) span: Range<usize>,
    pub(super) arguments: MethodArguments,
}

/// The arguments of one method.
#[derive(Debug)]
pub(super) struct MethodArguments {
    method: String,
    method_span: Range<usize>,
    terms: std::vec::IntoIter<Term>,
    /// The closing parenthesis, the span of errors about missing arguments.
    end: Range<usize>,
}

impl MethodCall {
    pub(super) fn new(name: String, span: Range<usize>, terms: Vec<Term>, end: Range<usize>) -> Self {
        let (method, method_span) = (name.clone(), span.clone());
        Self { name, span, arguments: MethodArguments { method, method_span, terms: terms.into_iter(), end } }
    }

    /// Reads the call. An argument that `read` does not take is an error.
    pub(super) fn read_call<T>(
        mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ShellError>,
    ) -> Result<T, ShellError> {
        let result = read(&mut self)?;
        self.arguments.finish()?;
        Ok(result)
    }

    /// Returns the error for an unknown method of `owner`.
    pub(super) fn unknown(&self, owner: &str, known: &[&str], instead: &str) -> ShellError {
        let message = format!("docward does not support the method `{}` of {owner}", self.name);
        let error = ShellError::new(self.span.clone(), message);
        error.help(did_you_mean(&self.name, known.iter().copied()).unwrap_or_else(|| instead.to_owned()))
    }
}

impl MethodArguments {
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

    /// Returns the next argument, the name of a database.
    pub(super) fn database(&mut self) -> Result<String, ShellError> {
        const WHAT: &str = "the name of a database";
        let term = self.required(WHAT)?;
        let name = term.as_str().filter(|name| may_name_database(name));
        name.map(str::to_owned).ok_or_else(|| self.wrong(&term, WHAT))
    }

    /// Returns the next argument as a flag; `None` if it is missing.
    pub(super) fn flag(&mut self) -> Result<Option<bool>, ShellError> {
        let Some(term) = self.any() else { return Ok(None) };
        term.as_bool().map(Some).ok_or_else(|| self.wrong(&term, "true or false"))
    }

    /// Reads the options, which are the next argument.
    pub(super) fn options<T>(
        &mut self,
        read: impl FnOnce(&mut Options) -> Result<T, ShellError>,
    ) -> Result<T, ShellError> {
        let fields = match self.document("options")? {
            Some(Term { content: TermContent::Document(fields), .. }) => fields,
            _ => Vec::new(),
        };
        Options::read_fields(&self.method, fields, read)
    }

    /// Checks that no argument is left.
    fn finish(&mut self) -> Result<(), ShellError> {
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
    /// Reads the fields of a document that holds parameters: options, findAndModify's argument, an operation of
    /// bulkWrite. A field that `read` does not take is an error; mongosh ignores it silently.
    pub(super) fn read_fields<T>(
        method: &str,
        fields: Vec<TermField>,
        read: impl FnOnce(&mut Self) -> Result<T, ShellError>,
    ) -> Result<T, ShellError> {
        let mut options = Self { method: method.to_owned(), fields, known: Vec::new() };
        let result = read(&mut options)?;
        options.finish()?;
        Ok(result)
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

    fn finish(self) -> Result<(), ShellError> {
        let Some(left) = self.fields.first() else { return Ok(()) };
        let message = format!("`{}` has no option `{}`", self.method, left.key);
        let error = ShellError::new(left.key_span.clone(), message);
        let suggestion = did_you_mean(&left.key, self.known.iter().copied());
        Err(error.help(suggestion.unwrap_or_else(|| format!("valid options: {}", self.known.join(", ")))))
    }
}
