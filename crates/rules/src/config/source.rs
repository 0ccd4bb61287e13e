//! Rule files as text, and locations in them.
//!
//! A [`Span`] is a location in one of the loaded files. It is small and `Copy`. Every value keeps its span, so
//! that any later check can point at it. Nothing here accesses the file system (`files.rs` does) or knows
//! YAML (`yaml.rs` does).

use std::fmt;
use std::sync::Arc;

use super::shown::{self, TextKind};

/// One rule file as read: a name for diagnostics (its path) and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The name shown in diagnostics, usually the path as the user gave it.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// Which of the loaded sources: an index into [`SourceFiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// A range of bytes in one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The source the bytes are in.
    pub file: FileId,
    /// The first byte.
    pub start: u32,
    /// One past the last byte; `start <= end`.
    pub end: u32,
}

impl Span {
    /// The bytes from `start` up to `end`.
    #[must_use]
    pub const fn new(file: FileId, start: u32, end: u32) -> Self {
        Self { file, start, end }
    }
}

/// A location as editors print it: `rules/orders.yaml:4:11`. Line and column (in characters) count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The source's name.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// All sources of one load; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SourceFiles(Arc<[IndexedSource]>);

#[derive(Debug)]
struct IndexedSource {
    name: Arc<str>,
    text: String,
    /// The byte at which each line starts; the first is 0.
    line_starts: Vec<u32>,
    /// Decides which parts of it may be printed.
    kind: TextKind,
}

impl SourceFiles {
    /// Indexes the lines of `sources`, whose order gives each its [`FileId`].
    #[must_use]
    pub fn new(sources: Vec<SourceFile>) -> Self {
        Self::of_kind(sources, TextKind::Text)
    }

    /// Like [`Self::new`], for files of `kind`, parts of which may not be printed.
    #[must_use]
    pub(crate) fn of_kind(sources: Vec<SourceFile>, kind: TextKind) -> Self {
        Self(sources.into_iter().map(|source| IndexedSource::new(source, kind)).collect())
    }

    /// Every file, in order.
    pub fn files(&self) -> impl Iterator<Item = FileId> + use<> {
        (0..u32::try_from(self.0.len()).unwrap_or(u32::MAX)).map(FileId)
    }

    /// The name of a file.
    #[must_use]
    pub fn name(&self, file: FileId) -> &str {
        &self.0[file.0 as usize].name
    }

    /// The text of a file.
    #[must_use]
    pub fn text(&self, file: FileId) -> &str {
        &self.0[file.0 as usize].text
    }

    /// The text of a file for printing: `*` replaces each byte that may be secret.
    pub(crate) fn shown(&self, file: FileId) -> String {
        let source = &self.0[file.0 as usize];
        shown::shown(&source.text, source.kind)
    }

    /// The text a span covers.
    #[must_use]
    pub fn slice(&self, span: Span) -> &str {
        self.text(span.file).get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// The lines from `first` up to `end`, both from 1, without the line `end`.
    pub(crate) fn lines(&self, file: FileId, first: u32, end: u32) -> &str {
        let source = &self.0[file.0 as usize];
        let start_of = |line: u32| {
            let start = source.line_starts.get(line.saturating_sub(1) as usize);
            start.map_or(source.text.len(), |start| *start as usize)
        };
        source.text.get(start_of(first)..start_of(end)).unwrap_or_default()
    }

    /// Where a span starts: file, line and column.
    #[must_use]
    pub fn location(&self, span: Span) -> Location {
        let source = &self.0[span.file.0 as usize];
        let line = source.line_of(span.start);
        let line_start = source.line_starts[line] as usize;
        let before = source.text.get(line_start..span.start as usize);
        let column = before.unwrap_or_default().chars().count() + 1;
        Location {
            file: Arc::clone(&source.name),
            line: u32::try_from(line + 1).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        }
    }

    /// The lines of `shown` ([`Self::shown`] of `file`) that contain the starts of all `spans`, with the byte and the
    /// line (from 1) at which they start.
    pub(crate) fn window<'t>(&self, file: FileId, shown: &'t str, spans: &[Span]) -> Window<'t> {
        let source = &self.0[file.0 as usize];
        let first = spans.iter().map(|s| source.line_of(s.start)).min();
        let last = spans.iter().map(|s| source.line_of(s.start)).max();
        let (first, last) = (first.unwrap_or(0), last.unwrap_or(0));
        let start = source.line_starts[first] as usize;
        let text = shown.get(start..source.line_end(last)).unwrap_or_default();
        Window { text, start, line: first + 1 }
    }

    /// The end of the line that contains the start of `span`, without its line break.
    pub(crate) fn line_end(&self, span: Span) -> u32 {
        let source = &self.0[span.file.0 as usize];
        let end = source.line_end(source.line_of(span.start));
        u32::try_from(end).unwrap_or(u32::MAX)
    }
}

/// Some lines of a source.
pub(crate) struct Window<'a> {
    pub(crate) text: &'a str,
    /// The byte of the source at which `text` starts.
    pub(crate) start: usize,
    /// The line number of the first line, from 1.
    pub(crate) line: usize,
}

impl IndexedSource {
    fn new(source: SourceFile, kind: TextKind) -> Self {
        let breaks = source.text.bytes().zip(1_u32..);
        let line_starts =
            std::iter::once(0).chain(breaks.filter(|(byte, _)| *byte == b'\n').map(|(_, at)| at)).collect();
        Self { name: source.name.into(), text: source.text, line_starts, kind }
    }

    /// The index of the line that contains the byte `at`.
    fn line_of(&self, at: u32) -> usize {
        self.line_starts.partition_point(|start| *start <= at).saturating_sub(1)
    }

    fn line_end(&self, line: usize) -> usize {
        let next = self.line_starts.get(line + 1);
        let end = next.map_or(self.text.len(), |start| *start as usize);
        let start = self.line_starts[line] as usize;
        start + self.text[start..end].trim_end_matches(['\n', '\r']).len()
    }
}
