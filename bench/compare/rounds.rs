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

/// Rounds in which every row has its turn.
const ROUNDS: usize = 15;
/// How long one turn is measured, after the warm-up.
const TURN: Duration = Duration::from_millis(450);
const WARM_UP: Duration = Duration::from_millis(100);

/// Rows to be measured.
pub(crate) struct Rounds<'c>(Vec<Row<'c>>);

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
}

impl<'c> Rounds<'c> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
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
        self.0.push(Row { name: name.to_owned(), contender, sends });
        RowId(self.0.len() - 1)
    }

    /// Measures all rows in turn, round by round.
    pub(crate) fn run(mut self) -> Result<Results> {
        let mut measures: Vec<Vec<Measure>> = self.0.iter().map(|_| Vec::new()).collect();
        for round in 0..ROUNDS {
            // Every round begins elsewhere, so that nobody always follows the same neighbour.
            for offset in 0..self.0.len() {
                let at = (round + offset) % self.0.len();
                measures[at].push(self.0[at].turn()?);
            }
            eprintln!("round {} of {ROUNDS}", round + 1);
        }
        Ok(Results { names: self.0.into_iter().map(|row| row.name).collect(), measures })
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
        Self { median: values[values.len() / 2], least: values[0], most: values[values.len() - 1] }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2} – {:.2})", self.median, self.least, self.most)
    }
}
