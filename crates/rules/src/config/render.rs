//! Renders diagnostics as text for terminals and as JSON for editors and CI.
//!
//! The text looks like rustc's and is made by rust-lang's annotate-snippets. It gets only the relevant lines, so a
//! report on a large file stays cheap. The types: `diagnostic.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use annotate_snippets::{AnnotationKind, Element, Group, Level, Origin, Renderer, Snippet};
use serde_json::json;

use super::diagnostic::{Diagnostic, DiagnosticLocation, Report, Severity};
use super::source::{FileId, SourceFiles, Span, Window};
use crate::secret::redact;

impl Report {
    /// The diagnostics as text, one block each, with ANSI colours if `coloured`.
    #[must_use]
    pub fn render(&self, coloured: bool) -> String {
        let renderer = if coloured { Renderer::styled() } else { Renderer::plain() };
        let files: BTreeSet<FileId> = self.diagnostics.iter().flat_map(files).collect();
        let shown = ShownSources {
            sources: &self.sources,
            texts: files.iter().map(|file| (*file, self.sources.shown(*file))).collect(),
        };
        let mut text = String::new();
        for diagnostic in &self.diagnostics {
            text.push_str(&renderer.render(&[group(diagnostic, &shown)]));
            text.push_str("\n\n");
        }
        text.push_str(&self.summary());
        redact(&text).into_owned()
    }

    /// A list of `{severity, code, file, line, column, message, help}`. `line` and `column`
    /// are null if the file could not be read; `help` is null if there is none.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let diagnostics = self.diagnostics.iter();
        diagnostics.map(|one| to_json(one, &self.sources)).collect()
    }

    fn summary(&self) -> String {
        let count = |severity| {
            let found = self.diagnostics.iter().filter(|d| d.severity == severity);
            match (found.count(), severity.as_str()) {
                (0, _) => None,
                (1, word) => Some(format!("1 {word}")),
                (many, word) => Some(format!("{many} {word}s")),
            }
        };
        let counts = [count(Severity::Error), count(Severity::Warning)];
        let counts: Vec<_> = counts.into_iter().flatten().collect();
        if counts.is_empty() {
            return String::new();
        }
        format!("{}\n", counts.join(", "))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Report {}

/// The files that a diagnostic points into.
fn files(diagnostic: &Diagnostic) -> impl Iterator<Item = FileId> {
    let labels = diagnostic.labels.iter().map(|label| label.span.file);
    std::iter::once(diagnostic.location.file()).chain(labels)
}

/// The texts that source lines are printed from.
struct ShownSources<'a> {
    sources: &'a SourceFiles,
    /// With secrets hidden.
    texts: BTreeMap<FileId, String>,
}

fn group<'a>(diagnostic: &'a Diagnostic, shown: &'a ShownSources<'_>) -> Group<'a> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(&*diagnostic.message);
    let title = title.id(diagnostic.code.as_str());
    let mut group = match diagnostic.location {
        DiagnosticLocation::File(file) => title.element(Origin::path(shown.sources.name(file))),
        DiagnosticLocation::At(_) => title.elements(snippets(diagnostic, shown)),
    };
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(&**help));
    }
    group
}

/// The most source text in one snippet, in bytes. Longer text is usually generated.
const MAX_SNIPPET_BYTES: usize = 16 << 10;

/// A location to underline, and the text there.
type Mark<'a> = (Span, AnnotationKind, &'a str);

/// One snippet for each file, the file of the mistake first.
fn snippets<'a>(diagnostic: &'a Diagnostic, shown: &'a ShownSources<'_>) -> Vec<Element<'a>> {
    let mut marks: Vec<Mark<'a>> = Vec::new();
    if let DiagnosticLocation::At(span) = diagnostic.location {
        marks.push((span, AnnotationKind::Primary, &diagnostic.note));
    }
    for label in &diagnostic.labels {
        marks.push((label.span, AnnotationKind::Context, &label.text));
    }
    let mut by_file: Vec<Vec<Mark<'a>>> = Vec::new();
    for mark in marks {
        match by_file.iter_mut().find(|file| file[0].0.file == mark.0.file) {
            Some(file) => file.push(mark),
            None => by_file.push(vec![mark]),
        }
    }
    let mut elements = Vec::new();
    for marks in by_file {
        if window(&marks, shown).text.len() <= MAX_SNIPPET_BYTES {
            elements.push(snippet(&marks, shown));
        } else {
            // The marks are far apart: one snippet for each.
            elements.extend(marks.iter().map(|mark| snippet(&[*mark], shown)));
        }
    }
    elements
}

fn window<'a>(marks: &[Mark<'_>], shown: &'a ShownSources<'_>) -> Window<'a> {
    let spans: Vec<_> = marks.iter().map(|(span, ..)| *span).collect();
    let file = spans[0].file;
    shown.sources.window(file, shown.texts.get(&file).map_or("", String::as_str), &spans)
}

fn snippet<'a>(marks: &[Mark<'a>], shown: &'a ShownSources<'_>) -> Element<'a> {
    let (first, ..) = marks[0];
    let sources = shown.sources;
    let window = window(marks, shown);
    if window.text.len() > MAX_SNIPPET_BYTES {
        let at = sources.location(first);
        return Origin::path(sources.name(first.file)).line(at.line as usize).char_column(at.column as usize).into();
    }
    // The renderer drops trailing line breaks and cannot mark locations after them.
    let length = window.text.trim_end_matches(['\r', '\n']).len();
    let annotate = |(span, kind, text): &Mark<'a>| {
        // A mapping covers many lines; only its first one is underlined.
        let end = span.end.min(sources.line_end(*span)).max(span.start) as usize;
        // The renderer panics within a character.
        let within = |at: usize| window.text.floor_char_boundary((at - window.start).min(length));
        let range = within(span.start as usize)..within(end);
        let label = (!text.is_empty()).then_some(*text);
        kind.span(range).label(label)
    };
    Snippet::source(window.text)
        .line_start(window.line)
        .path(sources.name(first.file))
        .annotations(marks.iter().map(annotate))
        .into()
}

fn to_json(diagnostic: &Diagnostic, sources: &SourceFiles) -> serde_json::Value {
    let location = match diagnostic.location {
        DiagnosticLocation::At(span) => Some(sources.location(span)),
        DiagnosticLocation::File(_) => None,
    };
    json!({
        "severity": diagnostic.severity.as_str(),
        "code": diagnostic.code.as_str(),
        "file": redact(sources.name(diagnostic.location.file())),
        "line": location.as_ref().map(|at| at.line),
        "column": location.as_ref().map(|at| at.column),
        "message": redact(&diagnostic.message),
        "help": diagnostic.help.as_deref().map(redact),
    })
}
