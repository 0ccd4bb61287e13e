//! What is wrong in a rule file, where, and how to correct it.
//!
//! A [`Diagnostic`] is one mistake with its location. A [`Report`] has all mistakes of one load,
//! with the texts they point into. `render.rs` prints them, `code.rs` lists their kinds.

use std::collections::BTreeSet;

use super::code::Code;
use super::shown;
use super::source::{FileId, SourceFiles, Span};
use crate::suggest;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Prevents loading.
    Error,
    /// The rules load, but may not do what their author intends.
    Warning,
}

impl Severity {
    /// The word used in output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// The location of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiagnosticLocation {
    /// At these bytes.
    At(Span),
    /// The whole file: it could not be read as text.
    File(FileId),
}

impl From<Span> for DiagnosticLocation {
    fn from(span: Span) -> Self {
        Self::At(span)
    }
}

impl DiagnosticLocation {
    /// The file the location is in.
    #[must_use]
    pub const fn file(self) -> FileId {
        match self {
            Self::At(span) => span.file,
            Self::File(file) => file,
        }
    }
}

/// A second location that explains the first, with a short text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The other location.
    pub span: Span,
    /// A few words, lower case: "first rule is here".
    pub text: String,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The kind of mistake.
    pub code: Code,
    /// Where.
    pub location: DiagnosticLocation,
    /// What is wrong: lower case, without a full stop.
    pub message: String,
    /// A few words at the underlined location; may be empty.
    pub note: String,
    /// Related locations.
    pub labels: Vec<Label>,
    /// What to write instead.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error of kind `code` at `location`.
    pub fn error(code: Code, location: impl Into<DiagnosticLocation>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            location: location.into(),
            message: message.into(),
            note: String::new(),
            labels: Vec::new(),
            help: None,
        }
    }

    /// A warning of kind `code` at `location`; the rules load nevertheless.
    pub fn warning(code: Code, location: impl Into<DiagnosticLocation>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, location, message) }
    }

    /// Sets the text at the underlined location.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Names the one of `known` that is similar to `word`, if there is one.
    #[must_use]
    pub fn did_you_mean<'k>(self, word: &str, known: impl IntoIterator<Item = &'k str>) -> Self {
        match suggest::nearest(word, known) {
            Some(near) => self.note(format!("did you mean `{near}`?")),
            None => self,
        }
    }

    /// Adds a related location.
    #[must_use]
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        let text = text.into();
        self.labels.push(Label { span, text });
        self
    }

    /// All its texts.
    pub(super) fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let labels = self.labels.iter_mut().map(|label| &mut label.text);
        [&mut self.message, &mut self.note].into_iter().chain(&mut self.help).chain(labels)
    }

    /// Sets the help: what to write instead.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// All diagnostics of one load. Print it with [`Report::render`] or [`Report::to_json`].
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Sorted by file and location.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts that the diagnostics point into.
    pub sources: SourceFiles,
}

impl Report {
    /// Sorts `diagnostics` by location and hides the secrets of `sources` in them.
    #[must_use]
    pub fn new(mut diagnostics: Vec<Diagnostic>, sources: SourceFiles) -> Self {
        let files: BTreeSet<FileId> = diagnostics.iter().map(|one| one.location.file()).collect();
        for file in files {
            let here = diagnostics.iter_mut().filter(|one| one.location.file() == file);
            shown::hide_words(sources.text(file), &sources.shown(file), here);
        }
        diagnostics.sort_by_key(|diagnostic| match diagnostic.location {
            DiagnosticLocation::At(span) => (span.file, span.start),
            DiagnosticLocation::File(file) => (file, 0),
        });
        Self { diagnostics, sources }
    }

    /// Whether it has an error, so that the rules do not load.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        let mut severities = self.diagnostics.iter().map(|one| one.severity);
        severities.any(|severity| severity == Severity::Error)
    }

    /// Whether it has no diagnostics.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.diagnostics.is_empty()
    }
}
