//! The report of what rules did since they were first loaded, in the log: on SIGUSR1 and at the end of `serve`. As text
//! it is a table like that of `audit`; in a JSON log it is one line for each count and example.

use std::fmt::Write as _;
use std::time::SystemTime;

use super::logging;
use super::mode::shown_time;
use super::words;
use crate::audit::{self, Example};
use crate::proxy::LiveRule;
use crate::text::one_line;

/// The most applications and examples of a rule in the text.
const SHOWN: usize = 5;

pub(super) fn log(rules: &[LiveRule]) {
    if logging::is_json() {
        return rules.iter().for_each(log_lines);
    }
    let matched: Vec<&LiveRule> = rules.iter().filter(|rule| !rule.counts.outcomes.is_empty()).collect();
    if matched.is_empty() {
        tracing::info!("report: no rule has matched a statement yet");
    } else {
        tracing::info!("report: what rules did since they were first loaded\n{}", text(&matched));
    }
}

fn text(rules: &[&LiveRule]) -> String {
    let width = rules.iter().map(|rule| rule.label.name.len()).max().unwrap_or(0).max(4);
    let mut out = format!(
        "{:width$}  {:8}  {:20}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}",
        "rule",
        "mode",
        "since",
        "reject",
        "rewrite",
        "check",
        "conflict",
        "no_match",
        "stale",
        "warn",
        "allow",
        "except"
    );
    for rule in rules {
        let audit::OutcomeCounts { reject, rewrite, check, conflict, no_match, stale, warn, allow, except, .. } =
            rule.counts.of_all_modes().counts;
        write!(
            out,
            "\n{:width$}  {:8}  {:20}  {reject:>9}  {rewrite:>9}  {check:>9}  {conflict:>9}  {no_match:>9}  {stale:>9}  \
             {warn:>9}  {allow:>9}  {except:>9}",
            rule.label.name,
            rule.written.mode,
            date(rule.since)
        )
        .unwrap_or_default();
    }
    for (rule, found) in rules.iter().filter_map(|rule| Some((rule, rule.written.mode_override.as_ref()?))) {
        write!(out, "\n{}", words::overridden(&rule.label.name, found)).unwrap_or_default();
    }
    for rule in rules {
        details(rule, &mut out);
    }
    out.push_str("\nA rule in mode shadow only counts what it would have done.");
    out
}

/// Adds the applications and examples of a rule.
fn details(rule: &LiveRule, out: &mut String) {
    let examples: Vec<_> = rule.counts.examples().take(SHOWN).collect();
    if examples.is_empty() {
        return;
    }
    write!(out, "\nrule '{}' ({}, mode {})", rule.label.name, rule.written.pattern, rule.written.mode)
        .unwrap_or_default();
    let tally = rule.counts.of_all_modes();
    let apps = tally.apps();
    for (app, counts) in apps.iter().take(SHOWN) {
        write!(out, "\n  {}: {}", one_line(app), in_words(counts)).unwrap_or_default();
    }
    if apps.len() > SHOWN {
        write!(out, "\n  and {} more applications", apps.len() - SHOWN).unwrap_or_default();
    }
    for (outcome, Example { namespace, shape, statements, reason, .. }) in examples {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let what = one_line(&format!("{namespace} {shape}{reason}"));
        write!(out, "\n  {outcome} {statements} × {what}").unwrap_or_default();
    }
}

/// The counts that are not zero.
fn in_words(counts: &audit::OutcomeCounts) -> String {
    let counted = counts.by_outcome().into_iter().filter(|(_, count)| *count > 0);
    counted.map(|(outcome, count)| format!("{} {count}", outcome.as_str())).collect::<Vec<_>>().join(", ")
}

/// One line for each outcome, application and example.
fn log_lines(live: &LiveRule) {
    let (rule, mode, since) = (&live.label.name, live.written.mode, date(live.since));
    // Only if another mode than the one in the file applies.
    let found = live.written.mode_override.as_ref();
    let override_until = found.map(|found| shown_time(found.until));
    let override_only = found.filter(|found| !found.only.is_empty()).map(|found| found.only.to_string());
    for (outcome, statements) in &live.counts.outcomes {
        tracing::info!(
            rule,
            mode,
            override_until,
            override_only,
            outcome,
            statements,
            since,
            "report: a rule's outcomes since it was first loaded"
        );
    }
    let examples: Vec<_> = live.counts.examples().collect();
    if examples.is_empty() {
        return;
    }
    for (app, counts) in live.counts.of_all_modes().apps() {
        let audit::OutcomeCounts { reject, rewrite, check, conflict, no_match, stale, .. } = counts;
        tracing::info!(
            rule,
            mode,
            app,
            reject,
            rewrite,
            check,
            conflict,
            no_match,
            stale,
            "report: what the rule did, by application"
        );
    }
    for (outcome, Example { statements, namespace, shape, reason, app, users, .. }) in examples {
        tracing::info!(
            rule,
            mode,
            outcome,
            statements,
            namespace,
            shape,
            app,
            users,
            reason,
            "report: what the rule did, by shape"
        );
    }
}

/// In UTC, to the second.
fn date(time: SystemTime) -> String {
    shown_time(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs().saturating_mul(1000))
}
