//! Why a text cannot be read.

use std::ops::Range;

use crate::suggest;

/// The first mistake in a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ShellError {
    /// The bytes of the text that are wrong; empty at its end.
    pub span: Range<usize>,
    /// What is wrong, lower case, without a full stop.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl ShellError {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), help: None }
    }

    /// `expected` is what may stand at `span`.
    pub(super) fn expected(span: Range<usize>, expected: &str, found: &str) -> Self {
        Self::new(span, format!("expected {expected}, found {found}"))
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// "did you mean `x`?", when one of `known` is near.
pub(super) fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    suggest::nearest(word, known).map(|nearest| format!("did you mean `{nearest}`?"))
}
