//! Rows that are measured in turns, and what came of them: medians, spread, ratios.
//!
//! A ratio is the median of the rounds' own ratios, because what disturbs a round disturbs both its sides.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;

use super::contenders::Contender;
use super::cycle::Cycle;
use super::load::{Load, Measure, histogram};
use super::open_loop;

/// Rounds in which every row has its turn, where a goal is to be evaluated by few per cent.
pub(crate) const MANY: usize = 121;
/// And where a curve is to be seen.
pub(crate) const FEW: usize = 41;
/// How long one turn is measured, after the warm-up. Many short turns: a shared machine stands still for some
/// milliseconds now and then, and most turns are to be without.
const TURN: Duration = Duration::from_millis(150);
const WARM_UP: Duration = Duration::from_millis(50);

/// Rows to be measured.
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

/// Names a row in the results.
#[derive(Clone, Copy)]
pub(crate) struct RowId(usize);

/// Each row's measures, one a round.
pub(crate) struct Results {
    names: Vec<String>,
    measures: Vec<Vec<Measure>>,
}

/// The median of the rounds' values, and between which they lie.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// Between these the median of any number of rounds would be, with 95 %; all values, when there are fewer than six.
    pub(crate) certain: (f64, f64),
}

impl<'c> Rounds<'c> {
    /// So many rounds; at least one.
    pub(crate) fn new(rounds: usize) -> Self {
        Self { rounds, rows: Vec::new() }
    }

    /// Clients that each wait for their reply.
    pub(crate) fn closed(
        &mut self,
        name: &str,
        contender: &'c Contender,
        connections: usize,
        cycle: impl Fn(i64) -> Cycle,
    ) -> RowId {
        self.add(name, contender, Sends::Closed(Load::new(connections, cycle)))
    }

    /// Clients that send so many messages a second, whatever happens.
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

    /// Measures all rows in turn, round by round.
    pub(crate) fn run(self) -> Result<Results> {
        let Self { rounds, mut rows } = self;
        let mut measures: Vec<Vec<Measure>> = rows.iter().map(|_| Vec::new()).collect();
        for round in 0..rounds {
            // Every round begins elsewhere, so that nobody always follows the same neighbour.
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
    /// What `of` gives for a row, over the rounds.
    pub(crate) fn of(&self, row: RowId, of: impl Fn(&Measure) -> f64) -> Spread {
        Spread::of(self.measures[row.0].iter().map(of).collect())
    }

    /// The rounds' ratios of a row to another.
    pub(crate) fn ratio(&self, row: RowId, base: RowId, of: impl Fn(&Measure) -> f64) -> Spread {
        self.pairs(row, base, |one, other| of(one) / of(other))
    }

    /// CPU time of the process in between for one operation, in microseconds, beyond that of another row.
    pub(crate) fn more_cpu(&self, row: RowId, base: RowId) -> Spread {
        self.pairs(row, base, |one, other| cpu(one) - cpu(other))
    }

    fn pairs(&self, row: RowId, base: RowId, of: impl Fn(&Measure, &Measure) -> f64) -> Spread {
        let pairs = self.measures[row.0].iter().zip(&self.measures[base.0]);
        Spread::of(pairs.map(|(one, other)| of(one, other)).collect())
    }

    /// All rounds' latencies of a row.
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

/// CPU time of the process in between for one operation, in microseconds; not a number where nothing is in between.
pub(crate) fn cpu(measure: &Measure) -> f64 {
    measure.cpu.unwrap_or(f64::NAN)
}

impl Spread {
    /// `values` are not empty.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let (count, outside) = (values.len(), outside(values.len()));
        let certain = (values[outside], values[count - 1 - outside]);
        Self { median: values[count / 2], least: values[0], most: values[count - 1], certain }
    }
}

/// How many of so many values lie outside the interval of their median at either end: each is above the true median
/// or below it like a coin, whatever their distribution, so that counting tells how sure the interval is.
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
