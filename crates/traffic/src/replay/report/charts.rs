//! The charts of a report.

use super::ReplayReport;
use crate::plot::{Axis, ChartLine, Plot, number};
use crate::replay::Latencies;

/// Points of a line over time.
const POINTS: usize = 120;
/// Bars of a histogram for each power of ten.
const PER_DECADE: f64 = 6.0;

/// The commands per second over the time of the replay, beside the recorded ones.
pub(super) fn throughput(report: &ReplayReport) -> Plot {
    let mut lines: Vec<ChartLine> = Vec::new();
    let recorded = report.recorded.timeline.rates(POINTS);
    lines.push(ChartLine { name: "recorded".to_owned(), points: recorded });
    for played in &report.played {
        lines.push(ChartLine { name: played.target.clone(), points: played.tally.timeline.rates(POINTS) });
    }
    let most =
        |of: fn(&(f64, f64)) -> f64| lines.iter().flat_map(|line| line.points.iter().map(of)).fold(1.0, f64::max);
    let (x, y) = (
        Axis::linear("seconds since the start", most(|point| point.0)),
        Axis::linear("commands/s", most(|point| point.1)),
    );
    Plot { title: "Throughput".to_owned(), x, y, lines }
}

/// The latencies of one command: the share of each latency.
pub(super) fn latencies(report: &ReplayReport, name: &str) -> Plot {
    let of = report.columns(name);
    let ends = of
        .iter()
        .flat_map(|(_, latencies)| latencies.buckets())
        .fold((u64::MAX, 1), |(least, most), (from, to, _)| (least.min(from.max(1)), most.max(to)));
    let first = (ends.0.min(ends.1) as f64).log10().floor() as i32;
    let last = ((ends.1 as f64).log10().ceil() as i32).max(first + 1);
    let ticks = (first..=last).map(|power| (10f64.powi(power), label(power))).collect();
    let lines: Vec<ChartLine> = of.iter().map(|(title, latencies)| histogram(title, latencies, first, last)).collect();
    let most = lines.iter().flat_map(|line| line.points.iter().map(|point| point.1)).fold(1.0, f64::max);
    Plot {
        title: format!("Latency of {name}"),
        x: Axis::logarithmic("latency", ticks),
        y: Axis::linear("% of the commands", most),
        lines,
    }
}

/// A histogram as a line with steps.
fn histogram(title: &str, latencies: &Latencies, first: i32, last: i32) -> ChartLine {
    let count = ((last - first) as f64 * PER_DECADE) as usize;
    let mut shares = vec![0.0; count + 1];
    let all = latencies.count().max(1) as f64;
    for (from, to, count) in latencies.buckets() {
        let middle = (f64::midpoint(from as f64, to as f64)).max(1.0);
        let bar = ((middle.log10() - f64::from(first)) * PER_DECADE).max(0.0) as usize;
        shares.get_mut(bar).into_iter().for_each(|share| *share += count as f64 * 100.0 / all);
    }
    let edge = |bar: usize| 10f64.powf(f64::from(first) + bar as f64 / PER_DECADE);
    let points = shares.iter().enumerate().flat_map(|(bar, share)| [(edge(bar), *share), (edge(bar + 1), *share)]);
    ChartLine { name: format!("{title} ({})", number(latencies.count() as f64)), points: points.collect() }
}

/// A power of ten in microseconds.
fn label(power: i32) -> String {
    match power {
        ..3 => format!("{} µs", 10i64.pow(power.max(0).unsigned_abs())),
        3..6 => format!("{} ms", 10i64.pow((power - 3).unsigned_abs())),
        _ => format!("{} s", 10i64.pow((power - 6).min(9).unsigned_abs())),
    }
}
