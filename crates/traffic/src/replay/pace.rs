//! When an action is due.

use std::fmt;
use std::time::Duration;

/// How fast recorded traffic is played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// This many times as fast as it was recorded.
    Times(f64),
    /// Each connection sends its next command when the reply to the last one has arrived.
    Max,
}

impl Speed {
    /// Parses `4x`, `0.5x` or `max`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "max" {
            return Some(Self::Max);
        }
        let times: f64 = text.strip_suffix('x')?.parse().ok()?;
        (times.is_finite() && times > 0.0).then_some(Self::Times(times))
    }

    /// Returns the time from the start of the replay at which a command is due that was recorded this long after the
    /// first one; `None`: at once.
    #[must_use]
    pub fn due(self, milliseconds: i64) -> Option<Duration> {
        let Self::Times(times) = self else { return None };
        Duration::try_from_secs_f64(milliseconds.max(0) as f64 / 1e3 / times).ok()
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(times) => write!(f, "{times}x"),
            Self::Max => f.write_str("max"),
        }
    }
}
