//! Renders a tally as a text table and as JSON (docs/audit.md documents its fields).

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::tally::{AuditTally, Example, OutcomeCounts, ReportedOutcome, RuleTally};
use crate::rules::Mode;
use crate::rules::{Rule, RuleSet};
use crate::text::one_line;

/// The most applications and shapes in the text; JSON has all.
const SHOWN: usize = 5;

/// A file that was read.
#[derive(Debug, Clone, Default)]
pub struct TrafficFile {
    pub name: String,
    /// "mongod log", "system.profile", "mongod log, system.profile", "capture"
    pub kind: &'static str,
    pub bytes: u64,
    /// Entries that could not be read.
    pub unreadable: u64,
    /// Lines with other content than entries.
    pub skipped: u64,
    /// Entries of docward's and the server's own work, which are omitted.
    pub own: u64,
    /// What is wrong with the file, or with its first unreadable entry.
    pub note: Option<String>,
}

impl TrafficFile {
    /// "2 entries cannot be read, 1 line with other content was skipped: the entry at byte 5 is too long"; empty if
    /// nothing is wrong.
    #[must_use]
    pub fn flaws(&self) -> String {
        let unreadable = match self.unreadable {
            0 => None,
            1 => Some("1 entry cannot be read".to_owned()),
            count => Some(format!("{count} entries cannot be read")),
        };
        let skipped = match self.skipped {
            0 => None,
            1 => Some("1 line with other content was skipped".to_owned()),
            count => Some(format!("{count} lines with other content were skipped")),
        };
        let own = match self.own {
            0 => None,
            1 => Some("1 entry of docward's or the server's own work was omitted".to_owned()),
            count => Some(format!("{count} entries of docward's or the server's own work were omitted")),
        };
        let counts: Vec<String> = [unreadable, skipped, own].into_iter().flatten().collect();
        let parts: Vec<String> = [counts.join(", ")].into_iter().chain(self.note.clone()).collect();
        one_line(&parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": "))
    }
}

/// `{sources, from, to, commands, rules, notes}`
#[must_use]
pub fn to_json(tally: &AuditTally, rules: &RuleSet, sources: &[TrafficFile]) -> Value {
    let time = |milliseconds: i64| bson::DateTime::from_millis(milliseconds).try_to_rfc3339_string().ok();
    let source = |source: &TrafficFile| {
        json!({
            "file": source.name,
            "kind": source.kind,
            "bytes": source.bytes,
            "unreadable": source.unreadable,
            "skipped": source.skipped,
            "own": source.own,
            "note": source.note,
        })
    };
    json!({
        "sources": sources.iter().map(source).collect::<Vec<_>>(),
        "from": tally.times.and_then(|(first, _)| time(first)),
        "to": tally.times.and_then(|(_, last)| time(last)),
        "commands": tally.commands,
        "rules": active(rules, tally).map(|(rule, tally)| rule_json(rule, tally)).collect::<Vec<_>>(),
        "notes": notes(tally, rules, sources),
    })
}

fn rule_json(rule: &Rule, tally: &RuleTally) -> Value {
    json!({
        "name": &*rule.name.value,
        "pattern": rule.pattern.name(),
        "mode": rule.mode.as_str(),
        "counts": tally.counts,
        "apps": tally.apps().into_iter().map(|(app, counts)| json!({"app": app, "counts": counts})).collect::<Vec<_>>(),
        "examples": tally.examples(),
    })
}

/// The table, then the applications and examples of each rule.
#[must_use]
pub fn to_text(tally: &AuditTally, rules: &RuleSet, sources: &[TrafficFile]) -> String {
    let mut out = String::new();
    for source in sources {
        let flaws = source.flaws();
        let flaws = if flaws.is_empty() { flaws } else { format!(": {flaws}") };
        line(&mut out, format_args!("{} ({}){flaws}", source.name, source.kind));
    }
    line(&mut out, format_args!("{} commands on the rules' collections\n", tally.commands));
    out.push_str(&table(&active(rules, tally).collect::<Vec<_>>()));
    for (rule, tally) in active(rules, tally) {
        write_details(rule, tally, &mut out);
    }
    for note in notes(tally, rules, sources) {
        line(&mut out, format_args!("\nnote: {note}"));
    }
    out
}

fn table(rules: &[(&Rule, &RuleTally)]) -> String {
    let width = rules.iter().map(|(rule, _)| rule.name.value.len()).max().unwrap_or(0).max(4);
    let mut out = String::new();
    line(
        &mut out,
        format_args!(
            "{:width$}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>11}  {:>10}  {:>10}  {:>10}  {:>10}",
            "rule",
            "reject",
            "rewrite",
            "check",
            "conflict",
            "no_match",
            "cannot_tell",
            "warn",
            "allow",
            "except",
            "forward"
        ),
    );
    for (rule, tally) in rules {
        let OutcomeCounts {
            reject, rewrite, check, conflict, no_match, warn, allow, cannot_tell, except, forward, ..
        } = tally.counts;
        line(
            &mut out,
            format_args!(
                "{:width$}  {reject:>10}  {rewrite:>10}  {check:>10}  {conflict:>10}  {no_match:>10}  {cannot_tell:>11}  {warn:>10}  {allow:>10}  {except:>10}  {forward:>10}",
                rule.name.value
            ),
        );
    }
    out
}

/// Writes the applications and examples of a rule.
fn write_details(rule: &Rule, tally: &RuleTally, out: &mut String) {
    let apps = tally.apps();
    if apps.is_empty() {
        return;
    }
    line(out, format_args!("\nrule '{}' ({})", rule.name.value, rule.pattern.name()));
    for (app, counts) in apps.iter().take(SHOWN) {
        line(out, format_args!("  {}: {}", one_line(app), in_words(counts)));
    }
    if apps.len() > SHOWN {
        line(out, format_args!("  and {} more applications", apps.len() - SHOWN));
    }
    let examples = tally.examples();
    let mut shown = 0;
    let mut last = None;
    for example in &examples {
        shown = if last == Some(example.outcome) { shown + 1 } else { 1 };
        last = Some(example.outcome);
        if shown <= SHOWN {
            example_text(example, out);
        }
    }
}

fn example_text(example: &Example, out: &mut String) {
    let Example { namespace, shape, statements, reason, text, .. } = example;
    let outcome = words(example.outcome);
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let what = one_line(&format!("{namespace} {shape}{reason}"));
    line(out, format_args!("  {outcome} {statements} × {what}"));
    match (&text.given, &text.sent) {
        (Some(given), Some(sent)) => {
            line(out, format_args!("    - {}", one_line(given)));
            line(out, format_args!("    + {}", one_line(sent)));
        }
        (Some(given), None) => line(out, format_args!("      {}", one_line(given))),
        (None, _) => {}
    }
}

fn in_words(counts: &OutcomeCounts) -> String {
    let parts =
        counts.by_outcome().into_iter().filter(|(outcome, count)| *count > 0 && *outcome != ReportedOutcome::Forward);
    parts.map(|(outcome, count)| format!("{} {count}", words(outcome))).collect::<Vec<_>>().join(", ")
}

fn words(outcome: ReportedOutcome) -> &'static str {
    match outcome {
        ReportedOutcome::Reject => "would reject",
        ReportedOutcome::Rewrite => "would rewrite",
        ReportedOutcome::Check => "would check",
        ReportedOutcome::Conflict => "reports a conflict for",
        ReportedOutcome::NoMatch => "no match for",
        ReportedOutcome::Stale => "stale",
        ReportedOutcome::Warn => "warns about",
        ReportedOutcome::Allow => "allows",
        ReportedOutcome::CannotTell => "cannot tell",
        ReportedOutcome::Except => "exempts",
        ReportedOutcome::Forward => "forwards",
    }
}

/// Notes on the limits of the counts.
fn notes(tally: &AuditTally, rules: &RuleSet, sources: &[TrafficFile]) -> Vec<String> {
    let mut notes = Vec::new();
    let by_user = active(rules, tally).any(|(rule, _)| rule.names_users());
    if tally.users_unknown && by_user {
        notes.push(
            "a rule names users (in except or only), but some sources do not contain the authenticated user; what the \
             rule would do to their statements is not known"
                .to_owned(),
        );
    }
    if tally.commands == 0 && sources.iter().any(|source| source.kind != "capture") {
        let note = match sources.iter().any(|source| source.unreadable > 0) {
            true => "no command on the rules' collections could be read",
            false => {
                "there is no command on the rules' collections. mongod logs only slow commands; all are logged after \
                 db.setProfilingLevel(0, {slowms: -1})"
            }
        };
        notes.push(note.to_owned());
    }
    let incomplete = sources.iter().any(|source| source.kind != "capture");
    if incomplete && active(rules, tally).any(|(_, tally)| tally.counts.cannot_tell > 0) {
        notes.push(
            "logs and profiles do not contain inserted documents and long commands; a capture of docward record does"
                .to_owned(),
        );
    }
    for (rule, RuleTally { unconfirmed, .. }) in active(rules, tally).filter(|(_, tally)| tally.unconfirmed > 0) {
        notes.push(format!(
            "{unconfirmed} of the statements that rule '{}' would rewrite or reject have another outcome if no stored document \
             matches them, also with the rule's condition; the sources do not show it",
            rule.name.value
        ));
    }
    notes
}

fn active<'a>(rules: &'a RuleSet, tally: &'a AuditTally) -> impl Iterator<Item = (&'a Rule, &'a RuleTally)> {
    rules.rules().iter().zip(&tally.rules).filter(|(rule, _)| rule.mode != Mode::Disabled)
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
    out.push('\n');
}
