//! Rows that are measured in turn, and their results: medians, spread, ratios.
//!
//! A ratio is the median of the per-round ratios, because a disturbance in one round affects both sides.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;

use super::contenders::Contender;
use super::cycle::Cycle;
use super::load::{Load, Measure, histogram};
use super::open_loop;

/// Rounds for goals that differ by a few per cent.
pub(crate) const MANY: usize = 121;
/// Rounds for a curve in a plot.
pub(crate) const FEW: usize = 41;
/// Length of one measurement after the warm-up. Turns are short and many because a shared machine pauses for some
/// milliseconds now and then; most turns then contain no pause.
const TURN: Duration = Duration::from_millis(150);
const WARM_UP: Duration = Duration::from_millis(50);

/// Rows to measure.
pub(crate) struct Rounds<'c> {
    rounds: usize,
    rows: Vec<Row<'c>>,
}

struct Row<'c> {
    name: String,
    contender: &'c Contender,
    sends: Sends,
}

enum Sends {
    Closed(Load),
    Open { load: Load, rate: f64 },
}

/// Identifies a row in the results.
#[derive(Clone, Copy)]
pub(crate) struct RowId(usize);

/// The measurements of each row, one per round.
pub(crate) struct Results {
    names: Vec<String>,
    measures: Vec<Vec<Measure>>,
}

/// The median over the rounds, and its interval.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// The 95 % confidence interval of the median; the range of all values if there are fewer than six.
    pub(crate) certain: (f64, f64),
}

impl RowId {
    /// The row at this index.
    pub(crate) fn at(index: usize) -> Self {
        Self(index)
    }
}

impl<'c> Rounds<'c> {
    /// This many rounds, and at least one.
    pub(crate) fn new(rounds: usize) -> Self {
        Self { rounds, rows: Vec::new() }
    }

    /// Clients that wait for each reply.
    pub(crate) fn closed(
        &mut self,
        name: &str,
        contender: &'c Contender,
        connections: usize,
        cycle: impl Fn(i64) -> Cycle,
    ) -> RowId {
        self.add(name, contender, Sends::Closed(Load::new(connections, cycle)))
    }

    /// Clients that send this many messages per second without waiting.
    pub(crate) fn open(
        &mut self,
        name: &str,
        contender: &'c Contender,
        connections: usize,
        rate: f64,
        frame: &[u8],
    ) -> RowId {
        self.add(name, contender, Sends::Open { load: Load::new(connections, |_| Cycle::of(frame.to_vec())), rate })
    }

    fn add(&mut self, name: &str, contender: &'c Contender, sends: Sends) -> RowId {
        self.rows.push(Row { name: name.to_owned(), contender, sends });
        RowId(self.rows.len() - 1)
    }

    /// Measures all rows in turn, in each round.
    pub(crate) fn run(self) -> Result<Results> {
        let Self { rounds, mut rows } = self;
        let mut measures: Vec<Vec<Measure>> = rows.iter().map(|_| Vec::new()).collect();
        for round in 0..rounds {
            // Every round starts at another row, so that no row always follows the same one.
            for offset in 0..rows.len() {
                let at = (round + offset) % rows.len();
                measures[at].push(rows[at].turn()?);
            }
            eprintln!("round {} of {rounds}", round + 1);
        }
        Ok(Results { names: rows.into_iter().map(|row| row.name).collect(), measures })
    }
}

impl Row<'_> {
    fn turn(&mut self) -> Result<Measure> {
        let contender = self.contender;
        let mut run = |duration| match &mut self.sends {
            Sends::Closed(load) => load.run(contender, duration),
            Sends::Open { load, rate } => open_loop::run(load, contender, *rate, duration),
        };
        run(WARM_UP)?;
        run(TURN)
    }
}

impl Results {
    /// The measurements of rows that were measured elsewhere, one per round.
    pub(crate) fn new(names: Vec<String>, measures: Vec<Vec<Measure>>) -> Self {
        Self { names, measures }
    }

    /// The value `of` of a row, over the rounds.
    pub(crate) fn of(&self, row: RowId, of: impl Fn(&Measure) -> f64) -> Spread {
        Spread::of(self.measures[row.0].iter().map(of).collect())
    }

    /// The per-round ratios of one row to another.
    pub(crate) fn ratio(&self, row: RowId, base: RowId, of: impl Fn(&Measure) -> f64) -> Spread {
        self.pairs(row, base, |one, other| of(one) / of(other))
    }

    /// CPU time of the proxy process per operation, in microseconds, minus that of another row.
    pub(crate) fn more_cpu(&self, row: RowId, base: RowId) -> Spread {
        self.pairs(row, base, |one, other| cpu(one) - cpu(other))
    }

    fn pairs(&self, row: RowId, base: RowId, of: impl Fn(&Measure, &Measure) -> f64) -> Spread {
        let pairs = self.measures[row.0].iter().zip(&self.measures[base.0]);
        Spread::of(pairs.map(|(one, other)| of(one, other)).collect())
    }

    /// The latencies of a row over all rounds.
    pub(crate) fn latencies(&self, row: RowId) -> Result<Histogram<u64>> {
        let mut all = histogram()?;
        for measure in &self.measures[row.0] {
            all.add(&measure.latencies)?;
        }
        Ok(all)
    }

    /// All rows as a table in Markdown.
    pub(crate) fn table(&self) -> String {
        let mut text = "| | operations/s | CPU µs | p50 µs | p99 µs |\n|---|---|---|---|---|\n".to_owned();
        for (at, name) in self.names.iter().enumerate() {
            let row = RowId(at);
            let rate = self.of(row, |measure| measure.rate);
            let cpu = self.of(row, cpu);
            let cpu = if cpu.median.is_nan() { String::new() } else { format!("{:.2}", cpu.median) };
            let percentile = |share| self.of(row, |measure| measure.percentile(share)).median;
            text += &format!(
                "| {name} | {:.0} ({:.0} – {:.0}) | {cpu} | {:.0} | {:.0} |\n",
                rate.median,
                rate.least,
                rate.most,
                percentile(0.5),
                percentile(0.99)
            );
        }
        text
    }
}

/// CPU time of the proxy process per operation, in microseconds; NaN without a proxy.
pub(crate) fn cpu(measure: &Measure) -> f64 {
    measure.cpu.unwrap_or(f64::NAN)
}

impl Spread {
    /// `values` must not be empty.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let (count, outside) = (values.len(), outside(values.len()));
        let certain = (values[outside], values[count - 1 - outside]);
        Self { median: values[count / 2], least: values[0], most: values[count - 1], certain }
    }
}

/// How many of this many sorted values lie outside the median's interval at either end. Each value is above or below
/// the true median with equal probability, whatever the distribution, so a binomial count gives the confidence.
fn outside(count: usize) -> usize {
    let mut chance = 0.5f64.powi(count as i32);
    let mut below = 0.0;
    for outside in 0..count / 2 {
        below += chance;
        if below > 0.025 {
            return outside.saturating_sub(1);
        }
        chance *= (count - outside) as f64 / (outside + 1) as f64;
    }
    0
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2} – {:.2})", self.median, self.least, self.most)
    }
}
