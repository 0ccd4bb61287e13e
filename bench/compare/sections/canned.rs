//! The proxies in front of a server that answers at once, which shows the cost of the proxies themselves.

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::contenders::{self, Contender, Upstream};
use crate::cycle::Cycle;
use crate::frames;
use crate::load::Measure;
use crate::report::{Goal, Report};
use crate::rounds::{MANY, Rounds, cpu};
use docward::plot::{Axis, ChartLine, Plot, number};

/// Connections of a closed loop: the pool size of a small application.
pub(super) const CONNECTIONS: usize = 16;
/// Messages per second of the open loop: about half of the slowest proxy's capacity on two cores.
const RATE: f64 = 20_000.0;

pub(super) fn find(_: i64) -> Cycle {
    Cycle::of(frames::find("devices", 1))
}

pub(super) fn rate(measure: &Measure) -> f64 {
    measure.rate
}

/// Messages that no rule matches.
pub(super) fn unmatched() -> Result<Option<Report>> {
    let upstream = Upstream::canned()?;
    let direct = Contender::direct(&upstream);
    let relay = Contender::relay(&upstream)?;
    let haproxy = Contender::haproxy(&upstream)?;
    let docward = Contender::docward(&upstream, &contenders::thousand_rules());
    let mut rounds = Rounds::new(MANY);
    rounds.closed("direct", &direct, CONNECTIONS, find);
    let relayed = rounds.closed("bare tokio relay", &relay, CONNECTIONS, find);
    let balanced = haproxy.as_ref().map(|haproxy| rounds.closed("HAProxy", haproxy, CONNECTIONS, find));
    let protected = rounds.closed("docward, 1,000 rules", &docward, CONNECTIONS, find);
    let results = rounds.run()?;
    let mut report = Report::new("unmatched");
    let ratio = results.ratio(protected, relayed, rate);
    report.goal("operations per second, of the bare relay's", Goal::AtLeast(0.9), ratio);
    if let Some(balanced) = balanced {
        let ratio = results.ratio(protected, balanced, rate);
        report.goal("operations per second, of HAProxy's", Goal::AtLeast(1.25), ratio);
        report.goal("CPU of an operation, of HAProxy's", Goal::AtMost(0.8), results.ratio(protected, balanced, cpu));
    }
    report.text(&results.table());
    Ok(Some(report))
}

/// Reply latency: for one client that waits for each reply, and for many independent clients.
pub(super) fn latency() -> Result<Option<Report>> {
    let upstream = Upstream::canned()?;
    let relay = Contender::relay(&upstream)?;
    let haproxy = Contender::haproxy(&upstream)?;
    let docward = Contender::docward(&upstream, &contenders::thousand_rules());
    let ways = [("bare tokio relay", Some(&relay)), ("HAProxy", haproxy.as_ref()), ("docward", Some(&docward))];
    let ways: Vec<_> = ways.into_iter().filter_map(|(name, way)| Some((name, way?))).collect();
    let mut rounds = Rounds::new(MANY);
    let mut rows = Vec::new();
    for (name, way) in &ways {
        let alone = rounds.closed(&format!("{name}, 1 connection"), way, 1, find);
        let named = format!("{name}, 64 connections, {}/s", number(RATE));
        rows.push((*name, alone, rounds.open(&named, way, 64, RATE, &frames::find("devices", 1))));
    }
    let results = rounds.run()?;
    let mut report = Report::new("latency");
    if let [.., ("HAProxy", alone, together), (_, ours_alone, ours_together)] = rows.as_slice() {
        for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
            for (row, base, what) in [(ours_alone, alone, "1 connection"), (ours_together, together, "64 connections")]
            {
                let ratio = results.ratio(*row, *base, |measure| measure.percentile(share));
                report.goal(&format!("{name} at {what}, of HAProxy's"), Goal::AtMost(1.0), ratio);
            }
        }
    }
    report.text(&results.table());
    let lines = rows.iter().map(|(name, _, together)| Ok((*name, results.latencies(*together)?)));
    report.plot("latency", &percentiles(lines.collect::<Result<Vec<_>>>()?));
    Ok(Some(report))
}

fn percentiles(rows: Vec<(&str, Histogram<u64>)>) -> Plot {
    let shares = [0.5, 0.9, 0.99, 0.999, 0.9999];
    // On this axis each further nine has the same width.
    let place = |share: f64| 1.0 / (1.0 - share);
    let ticks = shares.map(|share| (place(share), format!("{}%", number(share * 100.0))));
    let points = |latencies: &Histogram<u64>| {
        let steps = (0..=40).map(|step| 1.0 - 0.5 * 0.0002f64.powf(f64::from(step) / 40.0));
        steps.map(|share| (place(share), latencies.value_at_quantile(share) as f64 / 1e3)).collect::<Vec<_>>()
    };
    let line = |(name, latencies): &(&str, _)| ChartLine { name: (*name).to_owned(), points: points(latencies) };
    let lines: Vec<ChartLine> = rows.iter().map(line).collect();
    let powers: Vec<f64> = (1..7).flat_map(|power| [1.0, 3.0].map(|digit| digit * 10f64.powi(power))).collect();
    Plot {
        title: format!("Latency at 64 connections, {} messages a second by schedule", number(RATE)),
        x: Axis::logarithmic("share of the messages", ticks.to_vec()),
        y: Axis::logarithmic("µs", around(&powers, &lines)),
        lines,
    }
}

/// The axis values that enclose all points.
pub(super) fn around(values: &[f64], lines: &[ChartLine]) -> Vec<(f64, String)> {
    let heights = || lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y);
    let (least, most) = (heights().fold(f64::INFINITY, f64::min), heights().fold(0.0, f64::max));
    let from = values.iter().rposition(|value| *value <= least).unwrap_or(0);
    let to = values.iter().position(|value| *value >= most).unwrap_or(values.len() - 1);
    values[from..=to].iter().map(|value| (*value, number(*value))).collect()
}

/// Statements that a rule rewrites, compared with the same statement on a collection without a rule.
pub(super) fn rewritten() -> Result<Option<Report>> {
    type Make = fn(&str, i64) -> Vec<u8>;
    let patterns: [(&str, &str, Make); 3] = [
        ("timestamps", "timestamped", |collection, id| frames::update(collection, id, 1, &frames::state())),
        ("bounds", "bounded", |collection, id| frames::update(collection, id, 1, &frames::taken())),
        ("replacement: version check", "versioned", |collection, id| {
            frames::update(collection, id, 1, &frames::versioned())
        }),
    ];
    let upstream = Upstream::canned()?;
    let docward = Contender::docward(&upstream, &contenders::thousand_rules());
    let mut rounds = Rounds::new(MANY);
    let mut rows = Vec::new();
    for (name, protected, make) in patterns {
        let plain = rounds.closed(&format!("{name}: the statement without a rule"), &docward, CONNECTIONS, |id| {
            Cycle::of(make("devices", id))
        });
        let ruled =
            rounds.closed(&format!("{name}: rewritten"), &docward, CONNECTIONS, |id| Cycle::of(make(protected, id)));
        rows.push((name, plain, ruled));
    }
    let results = rounds.run()?;
    let mut report = Report::new("rewritten");
    for (name, plain, ruled) in rows {
        let ratio = results.ratio(ruled, plain, rate);
        report.goal(&format!("{name}: operations per second, of those without a rule"), Goal::AtLeast(0.8), ratio);
        report.goal(&format!("{name}: more CPU a statement, µs"), Goal::AtMost(3.0), results.more_cpu(ruled, plain));
    }
    report.text(&results.table());
    Ok(Some(report))
}
