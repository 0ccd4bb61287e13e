//! Syntax errors.

use std::ops::Range;

use crate::config::{Code, Diagnostic, Span};
use crate::suggest;

/// The first error in a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ShellError {
    /// The byte range of the error; empty at the end of the text.
    pub span: Range<usize>,
    /// What is wrong, lower case, without a full stop.
    pub message: String,
    /// The correction to make.
    pub help: Option<String>,
}

impl ShellError {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), help: None }
    }

    /// Reports another token than `expected` at `span`.
    pub(super) fn expected(span: Range<usize>, expected: &str, found: &str) -> Self {
        Self::new(span, format!("expected {expected}, found {found}"))
    }

    /// The diagnostic for a command in a file.
    #[must_use]
    pub fn diagnostic(&self, span: Span) -> Diagnostic {
        let mistake = Diagnostic::error(Code::InvalidCommand, span, &self.message);
        match &self.help {
            Some(help) => mistake.help(help),
            None => mistake,
        }
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Returns "did you mean `x`?" if one of `known` is similar to `word`.
pub(super) fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    suggest::nearest(word, known).map(|nearest| format!("did you mean `{nearest}`?"))
}
