//! Progress of long work as lines on stderr.

use std::fmt::Display;
use std::time::{Duration, Instant};

use super::logging;

/// How often a line is printed.
const INTERVAL: Duration = Duration::from_secs(2);

/// Prints at most one line each two seconds.
#[derive(Debug)]
pub(super) struct Lines {
    printed: Instant,
}

impl Default for Lines {
    fn default() -> Self {
        Self { printed: Instant::now() }
    }
}

impl Lines {
    pub(super) fn show(&mut self, progress: impl Display) {
        if self.printed.elapsed() > INTERVAL {
            logging::print_progress(&progress.to_string());
            self.printed = Instant::now();
        }
    }
}
