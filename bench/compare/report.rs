//! What a section found out, for the terminal and for `bench/RESULTS.md`: which goals are reached, tables, plots.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::plot::Plot;
use super::rounds::Spread;

/// One section's findings.
pub(crate) struct Report {
    section: &'static str,
    goals: String,
    body: String,
    plots: Vec<(String, String)>,
}

/// What a value is to be.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Report {
    pub(crate) fn new(section: &'static str) -> Self {
        Self { section, goals: String::new(), body: String::new(), plots: Vec::new() }
    }

    /// A row of the table of goals. The median decides.
    pub(crate) fn goal(&mut self, what: &str, goal: Goal, reached: Spread) {
        let (wanted, met) = match goal {
            Goal::AtLeast(least) => (format!("≥ {least}"), reached.median >= least),
            Goal::AtMost(most) => (format!("≤ {most}"), reached.median <= most),
        };
        self.goals += &format!("| {what} | {wanted} | {reached} | {} |\n", if met { "yes" } else { "**no**" });
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.body += text;
        self.body.push('\n');
    }

    /// A plot, kept under this name.
    pub(crate) fn plot(&mut self, name: &str, plot: &Plot) {
        let _ = writeln!(self.body, "![{}](plots/{name}.svg)\n", plot.title);
        self.plots.push((name.to_owned(), plot.svg()));
    }

    fn markdown(&self) -> String {
        let head = "| | goal | reached (spread) | met |\n|---|---|---|---|\n";
        let goals = if self.goals.is_empty() { String::new() } else { format!("{head}{}\n", self.goals) };
        format!("{goals}{}", self.body)
    }

    pub(crate) fn print(&self) {
        println!("\n## {}\n\n{}", self.section, self.markdown());
    }

    /// Puts the findings between the section's marks in `RESULTS.md` of this folder, and its plots beside it.
    ///
    /// # Errors
    /// The file cannot be read or written, or lacks the marks.
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
