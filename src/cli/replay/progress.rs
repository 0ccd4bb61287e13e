//! Shows the progress of a replay on stderr: a bar on a terminal, else a line every ten seconds.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::cli::logging;
use crate::player::Watch;
use crate::plot::number;

const BAR: Duration = Duration::from_millis(500);
const LINE: Duration = Duration::from_secs(10);

/// A running display.
#[derive(Debug)]
pub(super) struct ProgressDisplay {
    task: JoinHandle<()>,
    bar: ProgressBar,
}

impl ProgressDisplay {
    /// `total`: the number of commands for all targets.
    pub(super) fn start(total: u64, watches: Vec<Watch>) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} commands  {msg}");
        let bar = ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let task = tokio::spawn(show(total, watches, bar.clone()));
        Self { task, bar }
    }

    pub(super) fn end(&self) {
        self.task.abort();
        self.bar.finish_and_clear();
    }
}

async fn show(total: u64, watches: Vec<Watch>, bar: ProgressBar) {
    let is_terminal = std::io::stderr().is_terminal();
    let every = if is_terminal { BAR } else { LINE };
    let mut ticks = interval(every);
    ticks.tick().await;
    let mut before = 0;
    loop {
        ticks.tick().await;
        let tallies: Vec<_> = watches.iter().map(Watch::tally).collect();
        let sum = |of: fn(&crate::replay::ReplayTally) -> u64| tallies.iter().map(of).sum::<u64>();
        let done = sum(|tally| tally.count() + tally.without_reply + tally.without_cursor);
        let rate = done.saturating_sub(before) as f64 / every.as_secs_f64();
        before = done;
        let failed = sum(crate::replay::ReplayTally::failed);
        let rejected = sum(|tally| tally.rejections.values().sum());
        let p99 = tallies.iter().map(|tally| tally.latencies().percentile(0.99)).max().unwrap_or_default();
        let text = format!(
            "{} commands/s  p99 {:.1} ms  {failed} failed  {rejected} rejected by rules  {} late",
            number(rate.round()),
            p99 as f64 / 1e3,
            sum(|tally| tally.late)
        );
        bar.set_position(done);
        bar.set_message(text.clone());
        if !is_terminal {
            logging::print_progress(&format!("{done} of {total} commands  {text}"));
        }
    }
}
