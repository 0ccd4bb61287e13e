//! Rows that are measured in turns, and what is printed of them: medians, spread, ratios.
//!
//! A ratio is the median of the rounds' own ratios, because what disturbs a round disturbs both its sides.

use anyhow::Result;

use super::contenders::Contender;
use super::load::{Load, Measure};
use super::{ROUNDS, turn};

/// Rows to be measured.
pub(crate) struct Table<'c> {
    title: &'static str,
    rows: Vec<Row<'c>>,
    ratio: &'static str,
}

struct Row<'c> {
    name: String,
    contender: &'c Contender,
    load: Load,
}

/// Names a row in the results.
#[derive(Clone, Copy)]
pub(crate) struct RowId(usize);

/// Each row's measures, one a round.
pub(crate) struct Results(Vec<Vec<Measure>>);

impl<'c> Table<'c> {
    /// `ratio` names the last column: each row's rate beside that of the row it is compared with.
    pub(crate) fn new(title: &'static str, ratio: &'static str) -> Self {
        Self { title, rows: Vec::new(), ratio }
    }

    pub(crate) fn row(&mut self, name: &str, contender: &'c Contender, load: Load) -> RowId {
        self.rows.push(Row { name: name.to_owned(), contender, load });
        RowId(self.rows.len() - 1)
    }

    /// Measures all rows in turn, round by round, and prints them. The last column compares with `base`, or
    /// with the direct row of the same word when there is none.
    pub(crate) fn run(mut self, base: Option<RowId>) -> Result<Results> {
        let mut measures: Vec<Vec<Measure>> = self.rows.iter().map(|_| Vec::new()).collect();
        for round in 0..ROUNDS {
            // Every round begins elsewhere, so that nobody always follows the same neighbour.
            for offset in 0..self.rows.len() {
                let at = (round + offset) % self.rows.len();
                let row = &mut self.rows[at];
                measures[at].push(turn(row.contender, &mut row.load)?);
            }
        }
        let results = Results(measures);
        println!("{}, median of {ROUNDS} rounds", self.title);
        println!(
            "  {:<42} {:>8} {:>17} {:>7} {:>8} {:>8} {:>13}",
            "", "ops/s", "min – max", "CPU us", "p50 us", "p99 us", self.ratio
        );
        for (at, row) in self.rows.iter().enumerate() {
            let word = |name: &str| name.split(':').next().map(str::to_owned);
            let direct = || self.rows.iter().position(|other| word(&other.name) == word(&row.name)).map(RowId);
            let ratio = base.or_else(direct).map_or(f64::NAN, |base| results.ratio(RowId(at), base, |m| m.rate));
            println!("  {:<42} {} {ratio:>13.2}", row.name, results.line(at));
        }
        Ok(results)
    }
}

impl Results {
    fn line(&self, at: usize) -> String {
        let values = |of: fn(&Measure) -> f64| sorted(self.0[at].iter().map(of).collect());
        let rates = values(|m| m.rate);
        let spread = format!("{:.0} – {:.0}", rates[0], rates[rates.len() - 1]);
        let cpu = values(|m| m.cpu.unwrap_or(f64::NAN));
        let cpu = if cpu.iter().any(|cpu| cpu.is_nan()) { String::new() } else { format!("{:.2}", middle(&cpu)) };
        let (p50, p99) = (values(|m| m.p50), values(|m| m.p99));
        format!("{:>8.0} {spread:>17} {cpu:>7} {:>8.0} {:>8.0}", middle(&rates), middle(&p50), middle(&p99))
    }

    fn ratio(&self, row: RowId, base: RowId, of: impl Fn(&Measure) -> f64) -> f64 {
        middle(&sorted(self.0[row.0].iter().zip(&self.0[base.0]).map(|(one, other)| of(one) / of(other)).collect()))
    }

    /// "0.97 x the rate of the bare relay, 1.06 x its CPU (+0.30 us)"
    pub(crate) fn compare(&self, row: RowId, base: RowId, what: &str) -> String {
        let rate = format!("{:.2} x the rate of {what}", self.ratio(row, base, |m| m.rate));
        let cpus = |id: RowId| self.0[id.0].iter().map(|m| m.cpu).collect::<Option<Vec<f64>>>();
        match (cpus(row), cpus(base)) {
            (Some(one), Some(other)) => {
                let ratio = self.ratio(row, base, |m| m.cpu.unwrap_or(f64::NAN));
                let more = middle(&sorted(one.iter().zip(&other).map(|(one, other)| one - other).collect()));
                format!("{rate}, {ratio:.2} x its CPU ({more:+.2} us an operation)")
            }
            _ => rate,
        }
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The median; `values` are sorted and not empty.
fn middle(values: &[f64]) -> f64 {
    values[values.len() / 2]
}
