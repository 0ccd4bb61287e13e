//! The result of a replay: as text, as JSON, and as a page with charts.

mod charts;
mod html;
mod json;
mod sentence;
mod text;

use std::collections::BTreeMap;

use super::{Comparison, Latencies, NotSent, ReplayTally, Speed, Timeline};
use crate::command::{CommandName, code};
use crate::shell::iso;
use crate::text::plural;

pub use html::to_html;
pub use json::to_json;
pub use text::to_text;

/// The recorded traffic, as far as it was read.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// Commands that a target was sent.
    pub commands: u64,
    pub connections: usize,
    /// Milliseconds since 1970 UTC of the first and the last command.
    pub span: Option<(i64, i64)>,
    /// Recorded latencies by command; empty if the recording has none.
    pub latencies: BTreeMap<&'static str, Latencies>,
    /// Commands over the time of the recording.
    pub timeline: Timeline,
}

/// What one target answered.
#[derive(Debug, Clone)]
pub struct TargetReport {
    /// The hosts of its connection string.
    pub target: String,
    pub tally: ReplayTally,
    /// How long it was played to, in seconds.
    pub seconds: f64,
}

/// The rules of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedRules {
    pub files: Vec<String>,
    pub count: usize,
    /// Hash of the rule set, as the console shows it.
    pub hash: String,
}

/// The result of a replay.
#[derive(Debug, Clone)]
pub struct ReplayReport {
    pub files: Vec<String>,
    /// When it began, in milliseconds since 1970 UTC.
    pub began: i64,
    /// The rules of the docward that is a target, if they are known.
    pub rules: Option<ReportedRules>,
    pub speed: Speed,
    /// The most connections, if limited.
    pub connections: Option<usize>,
    pub recorded: Recorded,
    pub not_sent: BTreeMap<NotSent, u64>,
    /// One target, or two.
    pub played: Vec<TargetReport>,
    pub comparison: Option<Comparison>,
    /// Why not everything was played.
    pub stopped: Option<String>,
}

impl Recorded {
    /// Notes a command that is sent.
    pub fn command(&mut self, milliseconds: i64) {
        self.commands += 1;
        let (first, last) = self.span.unwrap_or((milliseconds, milliseconds));
        let (first, last) = (first.min(milliseconds), last.max(milliseconds));
        self.span = Some((first, last));
        self.timeline.add(u64::try_from(milliseconds - first).unwrap_or_default());
    }

    /// Notes a recorded reply.
    pub fn reply(&mut self, name: CommandName, microseconds: u64) {
        self.latencies.entry(name.as_str()).or_default().add(microseconds);
    }

    /// Returns the seconds between the first and the last command.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.span.map_or(0.0, |(first, last)| (last - first) as f64 / 1e3)
    }
}

impl ReplayReport {
    /// The commands that were played, the most frequent first.
    fn commands(&self) -> Vec<&'static str> {
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for played in &self.played {
            for (name, command) in &played.tally.commands {
                *counts.entry(name).or_default() += command.played.count();
            }
        }
        let mut names: Vec<(&'static str, u64)> = counts.into_iter().collect();
        names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        names.into_iter().map(|(name, _)| name).collect()
    }

    /// The latencies of a command: the recorded ones, if there are any, and those of each target.
    fn columns(&self, name: &str) -> Vec<(String, Latencies)> {
        let mut columns = Vec::new();
        if !self.recorded.latencies.is_empty() {
            columns.push(("recorded".to_owned(), self.recorded.latencies.get(name).cloned().unwrap_or_default()));
        }
        columns.extend(self.played.iter().map(|played| {
            let command = played.tally.commands.get(name);
            (played.target.clone(), command.map(|command| command.played.clone()).unwrap_or_default())
        }));
        columns
    }
}

impl ReportedRules {
    /// "orders.yaml (3 rules, set 8f6c…)"
    fn text(&self) -> String {
        let Self { files, count, hash } = self;
        format!("{} ({}, set {hash})", files.join(", "), plural(*count as u64, "rule"))
    }
}

impl ReplayReport {
    /// What identifies the replay, each with its name.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let (first, last) = self.recorded.span.unwrap_or_default();
        let connections = plural(self.recorded.connections as u64, "connection");
        let files = self.files.join(", ");
        let recorded = format!("{files}, recorded from {} to {}, {connections}", iso(first), iso(last));
        let limit = self.connections.map_or_else(String::new, |limit| format!(", at most {limit} connections"));
        let targets: Vec<&str> = self.played.iter().map(|played| &*played.target).collect();
        let mut facts = vec![("capture", recorded), ("targets", targets.join(" and "))];
        facts.extend(self.rules.as_ref().map(|rules| ("rules", rules.text())));
        facts.push(("replay", format!("{} at {}{limit}", iso(self.began), self.speed)));
        facts
    }
}

impl TargetReport {
    fn rate(&self) -> f64 {
        self.tally.count() as f64 / self.seconds.max(1e-3)
    }
}

/// The name of an error code, or an empty text.
fn code_name(code: i32) -> &'static str {
    code::name(code).unwrap_or_default()
}

/// Microseconds as text: `830 µs`, `12.3 ms`, `1.50 s`.
fn duration(microseconds: u64) -> String {
    match microseconds {
        0..1_000 => format!("{microseconds} µs"),
        1_000..1_000_000 => format!("{:.1} ms", microseconds as f64 / 1e3),
        _ => format!("{:.2} s", microseconds as f64 / 1e6),
    }
}
