//! The report as text for a terminal.

use std::fmt::Write;

use super::{ReplayReport, code_name, duration};
use crate::plot::number;
use crate::text::plural;

/// Returns the report as text.
#[must_use]
pub fn to_text(report: &ReplayReport) -> String {
    let mut out = String::new();
    report.facts().iter().for_each(|(name, fact)| _ = writeln!(out, "{name}: {fact}"));
    let recorded = &report.recorded;
    let _ = writeln!(
        out,
        "recorded: {} on {} in {:.1} s ({} commands/s)",
        plural(recorded.commands, "command"),
        plural(recorded.connections as u64, "connection"),
        recorded.seconds(),
        number((recorded.commands as f64 / recorded.seconds().max(1e-3)).round())
    );
    for played in &report.played {
        let tally = &played.tally;
        let _ = writeln!(
            out,
            "{}: {} in {:.1} s at {} ({} commands/s), {} failed",
            played.target,
            plural(tally.count(), "command"),
            played.seconds,
            report.speed,
            number(played.rate().round()),
            tally.failed()
        );
        if tally.late > 0 {
            let latest = duration(tally.latest);
            let _ = writeln!(out, "  sent more than 100 ms late: {}, at most {latest}", plural(tally.late, "command"));
        }
        if tally.without_reply > 0 {
            let _ = writeln!(
                out,
                "  without a reply, because the connection was lost: {}",
                plural(tally.without_reply, "command")
            );
        }
        if tally.without_cursor > 0 {
            let _ = writeln!(
                out,
                "  not sent, because their cursor was closed: {}",
                plural(tally.without_cursor, "command")
            );
        }
    }
    if let Some(stopped) = &report.stopped {
        let _ = writeln!(out, "stopped: {stopped}");
    }
    for (reason, count) in &report.not_sent {
        let _ = writeln!(out, "not sent: {}: {}", plural(*count, "command"), reason.reason());
    }
    latencies(report, &mut out);
    for played in &report.played {
        for (code, count) in &played.tally.errors {
            let _ = writeln!(out, "{}: error {code} {}: {count}", played.target, code_name(*code));
        }
        for (rule, count) in &played.tally.rejections {
            let _ = writeln!(out, "{}: rejected by rule '{rule}': {count}", played.target);
        }
    }
    comparison(report, &mut out);
    let _ = writeln!(out, "{}", report.sentence());
    out
}

fn latencies(report: &ReplayReport, out: &mut String) {
    const SHARES: [(f64, &str); 3] = [(0.5, "p50"), (0.95, "p95"), (0.99, "p99")];
    let width = report.played.iter().map(|played| played.target.chars().count()).max().unwrap_or(0).max(9);
    let _ = write!(out, "\n{:<18} {:<width$} {:>9}", "command", "", "count");
    SHARES.iter().for_each(|(_, title)| _ = write!(out, " {title:>10}"));
    out.push_str("        max\n");
    for name in report.commands() {
        for (at, (title, latencies)) in report.columns(name).into_iter().enumerate() {
            let shown = if at == 0 { name } else { "" };
            let _ = write!(out, "{shown:<18} {title:<width$} {:>9}", latencies.count());
            SHARES.iter().for_each(|(share, _)| _ = write!(out, " {:>10}", duration(latencies.percentile(*share))));
            let _ = writeln!(out, " {:>10}", duration(latencies.longest()));
        }
    }
    out.push('\n');
}

fn comparison(report: &ReplayReport, out: &mut String) {
    let Some(comparison) = &report.comparison else { return };
    let _ = writeln!(out, "compared replies: {} of {} are equal", comparison.equal, comparison.compared);
    let mut differences: Vec<_> = comparison.differences.iter().collect();
    differences.sort_by_key(|(_, difference)| std::cmp::Reverse(difference.count));
    for ((name, namespace, what), difference) in differences {
        let _ = writeln!(out, "  {} × {name} {namespace}: {what}\n      {}", difference.count, difference.example);
    }
    if comparison.more > 0 {
        let _ = writeln!(out, "  and {} more", comparison.more);
    }
    let equal = comparison.stored.iter().filter(|stored| stored.is_equal()).count();
    let _ = writeln!(out, "compared collections: {equal} of {} are equal", comparison.stored.len());
    for stored in comparison.stored.iter().filter(|stored| !stored.is_equal() || stored.note.is_some()) {
        let ([first, second], [only_first, only_second]) = (stored.counts, stored.only);
        let _ = writeln!(
            out,
            "  {}: {first} and {second} documents; {only_first} only at the first, {only_second} only at the second \
             target, {} different",
            stored.namespace, stored.different
        );
        if !stored.fields.is_empty() {
            let fields: Vec<String> = stored.fields.iter().map(|(field, count)| format!("{field} ({count})")).collect();
            let _ = writeln!(out, "      fields that differ: {}", fields.join(", "));
        }
        if !stored.examples.is_empty() {
            let _ = writeln!(out, "      _id: {}", stored.examples.join(", "));
        }
        stored.note.iter().for_each(|note| _ = writeln!(out, "      {note}"));
    }
}
