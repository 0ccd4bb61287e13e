//! The report as one HTML file that needs no other: charts are inline SVG, and there are no scripts.

use std::fmt::Write;

use super::{ReplayReport, TargetReport, charts, code_name, duration};
use crate::plot::number;
use crate::text::plural;

/// Commands with a chart of their own.
const CHARTS: usize = 12;

/// On a narrow screen each row of a table is a block whose cells have the titles of their columns. The dark colours are
/// those of the console.
const STYLE: &str = "\
:root{--ground:#fff;--text:#1a1a1a;--muted:#555;--line:#ddd;--code:#f4f4f4}\
@media screen and (prefers-color-scheme:dark){\
:root{--ground:#0d1117;--text:#e7ecf2;--muted:#a0abb8;--line:#2f3742;--code:#151b23}\
svg .ground{fill:var(--ground)}svg text{fill:var(--text)}svg .grid{stroke:var(--line)}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--ground);max-width:900px;margin:2rem auto;\
padding:0 1rem;overflow-wrap:anywhere}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem;break-after:avoid}\
.result{font-size:1.2rem;line-height:1.4;border-inline-start:4px solid #0072b2;padding:.25rem 0 .25rem .9rem}\
dt{color:var(--muted)}dd{margin:0 0 .3rem}\
@media print{@page{margin:14mm}body{font-size:10pt;margin:0;max-width:none;padding:0}}\
table{border-collapse:collapse;margin:.5rem 0}th,td{padding:.25rem .7rem;border-bottom:1px solid var(--line);text-align:left}\
th{font-weight:600}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}th,td.n{white-space:nowrap}td:where(:not(.n)){min-width:6rem}td:where(:nth-child(2):not(.n)){min-width:11rem}\
svg{display:block;width:720px;max-width:100%;height:auto;break-inside:avoid}tr{break-inside:avoid}\
code{background:var(--code);padding:0 .2rem}.note{color:var(--muted)}\
@media screen and (max-width:45rem){table,tbody{display:block}thead{display:none}\
tbody tr{display:flex;flex-wrap:wrap;gap:0 1rem;padding:.4rem 0;border-bottom:1px solid var(--line)}\
td,td.n{padding:0;min-width:0;border:0;text-align:left}td:first-child{flex-basis:100%;font-weight:600}td:empty{display:none}\
td:not(:first-child)::before{content:attr(data-label)' ';color:var(--muted)}}";

/// Returns the page.
#[must_use]
pub fn to_html(report: &ReplayReport) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>docward replay</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>Replay of {}</h1>\n<p class=\"result\">{}</p>\n<dl>\n",
        escaped(&report.files.join(", ")),
        escaped(&report.sentence())
    );
    for (name, fact) in report.facts() {
        let _ = writeln!(out, "<dt>{name}</dt><dd>{}</dd>", escaped(&fact));
    }
    out.push_str("</dl>\n");
    summary(report, &mut out);
    out.push_str(&charts::throughput(report).svg());
    latencies(report, &mut out);
    errors(report, &mut out);
    comparison(report, &mut out);
    let charted = report.commands().into_iter().take(CHARTS);
    charted.for_each(|name| out.push_str(&charts::latencies(report, name).svg()));
    out + "</body>\n</html>\n"
}

fn summary(report: &ReplayReport, out: &mut String) {
    let recorded = &report.recorded;
    let seconds = recorded.seconds();
    let mut rows = vec![vec![
        "recorded".to_owned(),
        number(recorded.commands as f64),
        format!("{seconds:.1} s"),
        number((recorded.commands as f64 / seconds.max(1e-3)).round()),
        String::new(),
        String::new(),
        String::new(),
    ]];
    rows.extend(report.played.iter().map(|TargetReport { target, tally, seconds }| {
        let rate = number((tally.count() as f64 / seconds.max(1e-3)).round());
        let counts = [tally.failed(), tally.without_reply, tally.late].map(|count| number(count as f64));
        let [failed, without_reply, late] = counts;
        let commands = number(tally.count() as f64);
        vec![target.clone(), commands, format!("{seconds:.1} s"), rate, failed, without_reply, late]
    }));
    table(out, &["", "commands", "time", "commands/s", "failed", "without a reply", "late"], &rows);
    let limit = report.connections.map_or_else(String::new, |limit| format!(", at most {limit} at a time"));
    paragraph(
        out,
        &format!(
            "Speed {}. {}{limit}. A command is late if it was sent more than 100 ms after its time.",
            report.speed,
            plural(recorded.connections as u64, "recorded connection")
        ),
    );
    report.stopped.iter().for_each(|stopped| paragraph(out, &format!("Stopped: {stopped}.")));
    for (reason, count) in &report.not_sent {
        paragraph(out, &format!("Not sent: {}: {}.", plural(*count, "command"), reason.reason()));
    }
}

fn latencies(report: &ReplayReport, out: &mut String) {
    out.push_str("<h2>Latency</h2>\n");
    let mut rows = Vec::new();
    for name in report.commands() {
        for (at, (title, latencies)) in report.columns(name).into_iter().enumerate() {
            let shown = if at == 0 { name.to_owned() } else { String::new() };
            let percentiles = [0.5, 0.95, 0.99, 1.0].map(|share| duration(latencies.percentile(share)));
            let mut row = vec![shown, title, number(latencies.count() as f64)];
            row.extend(percentiles);
            rows.push(row);
        }
    }
    table(out, &["command", " at", "count", "p50", "p95", "p99", "longest"], &rows);
}

fn errors(report: &ReplayReport, out: &mut String) {
    let rows = |of: fn(&TargetReport) -> Vec<(String, u64)>| {
        let each = report.played.iter().flat_map(move |played| of(played).into_iter().map(|one| (&played.target, one)));
        each.map(|(target, (what, count))| vec![what, target.clone(), number(count as f64)]).collect::<Vec<_>>()
    };
    let errors = rows(|played| {
        let named = |(code, count): (&i32, &u64)| (format!("{code} {}", code_name(*code)), *count);
        played.tally.errors.iter().map(named).collect()
    });
    if !errors.is_empty() {
        out.push_str("<h2>Errors</h2>\n");
        table(out, &["code", " at", "count"], &errors);
    }
    let rejections =
        rows(|played| played.tally.rejections.iter().map(|(rule, count)| (rule.clone(), *count)).collect());
    if !rejections.is_empty() {
        out.push_str("<h2>Rejected by rules</h2>\n");
        table(out, &["rule", " at", "statements"], &rejections);
    }
}

fn comparison(report: &ReplayReport, out: &mut String) {
    let Some(comparison) = &report.comparison else { return };
    out.push_str("<h2>Differences</h2>\n");
    paragraph(out, &format!("{} of {} replies are equal.", comparison.equal, comparison.compared));
    let mut differences: Vec<_> = comparison.differences.iter().collect();
    differences.sort_by_key(|(_, difference)| std::cmp::Reverse(difference.count));
    let rows = differences.into_iter().map(|((name, namespace, what), difference)| {
        let count = number(difference.count as f64);
        vec![(*name).to_owned(), namespace.to_string(), what.clone(), difference.example.clone(), count]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        table(out, &["command", " in", " difference", " for example", "count"], &rows);
    }
    let rows: Vec<_> = comparison
        .stored
        .iter()
        .map(|stored| {
            let fields: Vec<String> = stored.fields.iter().map(|(field, count)| format!("{field} ({count})")).collect();
            let fields = fields.into_iter().chain(stored.note.clone()).collect::<Vec<_>>().join(", ");
            let counts = [stored.counts[0], stored.counts[1], stored.only[0], stored.only[1], stored.different];
            let mut row = vec![stored.namespace.clone(), fields];
            row.extend(counts.map(|count| number(count as f64)));
            row
        })
        .collect();
    if !rows.is_empty() {
        let heads = ["collection", " fields that differ", "first", "second", "only first", "only second", "different"];
        table(out, &heads, &rows);
    }
}

/// A table. The first column, and those whose title begins with a space, are text; the others are numbers.
fn table(out: &mut String, heads: &[&str], rows: &[Vec<String>]) {
    let class = |at: usize| {
        if at == 0 || heads.get(at).is_some_and(|head| head.starts_with(' ')) { "" } else { " class=\"n\"" }
    };
    out.push_str("<table>\n<thead><tr>");
    heads.iter().enumerate().for_each(|(at, head)| _ = write!(out, "<th{}>{}</th>", class(at), head.trim()));
    out.push_str("</tr></thead>\n<tbody>\n");
    let label = |at: usize| heads.get(at).map(|head| escaped(head.trim())).unwrap_or_default();
    for row in rows {
        out.push_str("<tr>");
        row.iter().enumerate().for_each(|(at, cell)| {
            _ = write!(out, "<td{} data-label=\"{}\">{}</td>", class(at), label(at), escaped(cell));
        });
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n");
}

fn paragraph(out: &mut String, text: &str) {
    let _ = writeln!(out, "<p class=\"note\">{}</p>", escaped(text));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
