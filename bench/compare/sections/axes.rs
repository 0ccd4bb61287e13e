//! The cost of a message as a function of the number of rules, the number of connections, and the message size.

use anyhow::Result;

use super::canned::{CONNECTIONS, around, find, rate};
use crate::contenders::{self, Contender, Upstream};
use crate::cycle::Cycle;
use crate::frames;
use crate::report::{Goal, Report};
use crate::rounds::{FEW, MANY, Results, Rounds, RowId, cpu};
use docward::plot::{Axis, ChartLine, Plot, number};

const RULES: [usize; 5] = [1, 10, 100, 1_000, 10_000];
const CLIENTS: [usize; 5] = [1, 4, 16, 64, 256];
const MIB: usize = 1 << 20;
const SIZES: [usize; 5] = [256, 4 << 10, 64 << 10, 256 << 10, MIB];
/// Connections that send large messages: one per core would leave the proxies idle.
const SENDERS: usize = 4;

/// The rows of one line, with the value at which each was measured.
type Measured = Vec<(usize, RowId)>;

/// Rules that match none of the messages.
pub(super) fn rules() -> Result<Option<Report>> {
    let upstream = Upstream::canned()?;
    let start = |count| Contender::docward(&upstream, &frames::unrelated_rules(count));
    let docwards = RULES.map(|count| (count, start(count)));
    let mut rounds = Rounds::new(MANY);
    let rows: Measured = docwards
        .iter()
        .map(|(count, docward)| {
            (*count, rounds.closed(&format!("rules: {}", number(*count as f64)), docward, CONNECTIONS, find))
        })
        .collect();
    let results = rounds.run()?;
    let mut report = Report::new("rules");
    if let [_, (_, few), .., (_, many)] = rows.as_slice() {
        let ratio = results.ratio(*many, *few, rate);
        report.goal("operations per second with 10,000 rules, of those with 10", Goal::AtLeast(0.97), ratio);
    }
    report.text(&results.table());
    let rows = vec![("docward".to_owned(), rows)];
    report.plot("rules", &costs("CPU of a message against the number of rules", "rules", &rows, &results));
    Ok(Some(report))
}

/// The available proxies in front of an upstream, with the labels of their lines.
fn proxies(upstream: &Upstream) -> Result<Vec<(&'static str, Contender)>> {
    let relay = Some(("bare tokio relay", Contender::relay(upstream)?));
    let haproxy = Contender::haproxy(upstream)?.map(|haproxy| ("HAProxy", haproxy));
    let docward = Some(("docward", Contender::docward(upstream, &contenders::thousand_rules())));
    Ok([relay, haproxy, docward].into_iter().flatten().collect())
}

/// Small finds over few and many connections.
pub(super) fn connections() -> Result<Option<Report>> {
    let upstream = Upstream::canned()?;
    let proxies = proxies(&upstream)?;
    let mut rounds = Rounds::new(FEW);
    let mut rows = Vec::new();
    for (name, proxy) in &proxies {
        let row = |count| (count, rounds.closed(&format!("{name}, connections: {count}"), proxy, count, find));
        rows.push(((*name).to_owned(), CLIENTS.map(row).to_vec()));
    }
    let results = rounds.run()?;
    let mut report = Report::new("connections");
    report.text(&results.table());
    let title = "CPU of a message against the number of connections";
    report.plot("connections", &costs(title, "connections", &rows, &results));
    Ok(Some(report))
}

/// Large messages in either direction.
pub(super) fn sizes() -> Result<Option<Report>> {
    let upstream = Upstream::canned()?;
    let proxies = proxies(&upstream)?;
    let mut rounds = Rounds::new(FEW);
    let mut rows = Vec::new();
    for (name, proxy) in &proxies {
        let mut sent = Measured::new();
        let mut found = Measured::new();
        for size in SIZES {
            let bytes = number(size as f64);
            let insert = move |_| Cycle::of(frames::insert("devices", size));
            sent.push((size, rounds.closed(&format!("{name}, insert of {bytes} bytes"), proxy, SENDERS, insert)));
            let find = move |_| Cycle::of(frames::find_much(size));
            found.push((size, rounds.closed(&format!("{name}, find of {bytes} bytes"), proxy, SENDERS, find)));
        }
        rows.push((format!("{name}, insert"), sent));
        rows.push((format!("{name}, find"), found));
    }
    let results = rounds.run()?;
    let mut report = Report::new("sizes");
    let last = |name: &str| rows.iter().find(|(line, _)| line == name).and_then(|(_, rows)| rows.last());
    for what in ["insert", "find"] {
        if let (Some((_, base)), Some((_, row))) =
            (last(&format!("HAProxy, {what}")), last(&format!("docward, {what}")))
        {
            let ratio = results.ratio(*row, *base, rate);
            report.goal(&format!("{what} of 1 MiB: operations per second, of HAProxy's"), Goal::AtLeast(1.0), ratio);
        }
    }
    report.text(&results.table());
    let inserts: Vec<_> = rows.into_iter().filter(|(name, _)| name.ends_with("insert")).collect();
    report.plot("sizes", &costs("CPU of an insert against its bytes", "bytes", &inserts, &results));
    Ok(Some(report))
}

/// CPU time per operation over a value, with one tick per measurement.
fn costs(title: &str, label: &str, rows: &[(String, Measured)], results: &Results) -> Plot {
    let line = |(name, rows): &(String, Measured)| ChartLine {
        name: name.clone(),
        points: rows.iter().map(|(value, row)| (*value as f64, results.of(*row, cpu).median)).collect(),
    };
    let lines: Vec<ChartLine> = rows.iter().map(line).collect();
    let ticks = rows.iter().flat_map(|(_, rows)| rows.iter().map(|(value, _)| *value as f64));
    let mut ticks: Vec<(f64, String)> = ticks.map(|value| (value, number(value))).collect();
    ticks.truncate(rows.first().map_or(0, |(_, rows)| rows.len()));
    let most = lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y).fold(0.0, f64::max);
    let y = match most {
        ..100.0 => Axis::linear("CPU µs", most),
        _ => {
            let powers = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0];
            Axis::logarithmic("CPU µs", around(&powers, &lines))
        }
    };
    Plot { title: title.to_owned(), x: Axis::logarithmic(label, ticks), y, lines }
}
