//! The results of a section, for the terminal and for `bench/RESULTS.md`: goals, tables, plots.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::rounds::Spread;
use docward::plot::Plot;

/// The results of one section.
pub(crate) struct Report {
    section: &'static str,
    goals: String,
    body: String,
    plots: Vec<(String, String)>,
}

/// The expected range of a value.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Report {
    pub(crate) fn new(section: &'static str) -> Self {
        Self { section, goals: String::new(), body: String::new(), plots: Vec::new() }
    }

    /// A row of the table of goals. A goal is met or missed only if the whole confidence interval of the median is;
    /// otherwise the row leaves it open.
    pub(crate) fn goal(&mut self, what: &str, goal: Goal, reached: Spread) {
        let (low, high) = reached.certain;
        let (wanted, surely, perhaps) = match goal {
            Goal::AtLeast(least) => (format!("≥ {least}"), low >= least, high >= least),
            Goal::AtMost(most) => (format!("≤ {most}"), high <= most, low <= most),
        };
        let met = match (surely, perhaps) {
            (true, _) => "yes",
            (false, true) => "not shown",
            (false, false) => "**no**",
        };
        let Spread { median, least, most, .. } = reached;
        self.goals +=
            &format!("| {what} | {wanted} | {median:.2} | {low:.2} – {high:.2} | {least:.2} – {most:.2} | {met} |\n");
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.body += text;
        self.body.push('\n');
    }

    /// A plot, stored under this name.
    pub(crate) fn plot(&mut self, name: &str, plot: &Plot) {
        let _ = writeln!(self.body, "![{}](plots/{name}.svg)\n", plot.title);
        self.plots.push((name.to_owned(), plot.svg()));
    }

    fn markdown(&self) -> String {
        let head = "| | goal | median | 95 % | rounds | met |\n|---|---|---|---|---|---|\n";
        let goals = if self.goals.is_empty() { String::new() } else { format!("{head}{}\n", self.goals) };
        format!("{goals}{}", self.body)
    }

    pub(crate) fn print(&self) {
        println!("\n## {}\n\n{}", self.section, self.markdown());
    }

    /// Writes the results between the section's markers in this folder's `RESULTS.md`, and the plots beside it.
    ///
    /// # Errors
    /// The file cannot be read or written, or the markers are missing.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let file = folder.join("RESULTS.md");
        let text = std::fs::read_to_string(&file).context("bench/RESULTS.md")?;
        let (begin, end) = (format!("<!-- {} -->\n", self.section), format!("<!-- end of {} -->\n", self.section));
        let (before, rest) = text.split_once(&begin).with_context(|| format!("no {begin}"))?;
        let (_, after) = rest.split_once(&end).with_context(|| format!("no {end}"))?;
        std::fs::write(&file, format!("{before}{begin}{}{end}{after}", self.markdown()))?;
        for (name, svg) in &self.plots {
            std::fs::write(folder.join("plots").join(name).with_extension("svg"), svg)?;
        }
        Ok(())
    }
}
