//! `reads`: collections that the query listener may read from secondaries.
//!
//! A rule of this pattern evaluates nothing on any listener. It names collections for the query listener, and how far
//! the secondary may be behind the primary. `crate::engine::queries` decides which commands are allowed there.

use std::time::Duration;

use super::{Concern, Pattern};
use crate::command::{Namespace, StatementKind};
use crate::config::{Code, MapReader, Node, ReadContext};

/// The default: the shortest that MongoDB's drivers allow.
const STALENESS: Duration = Duration::from_secs(90);
/// The minimum. docward cannot measure less: a primary without writes advances its last write only every ten seconds,
/// and members are asked for theirs every two seconds.
const SHORTEST_STALENESS: Duration = Duration::from_secs(15);

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Reads {
    max_staleness: Duration,
}

impl Pattern for Reads {
    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, Self::read_keys)
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn evaluates(&self) -> bool {
        false
    }

    fn concern(&self, _: StatementKind, _: Namespace<'_>) -> Concern {
        Concern::Nothing
    }
}

impl Reads {
    /// How far the secondary may be behind the primary.
    pub fn max_staleness(&self) -> Duration {
        self.max_staleness
    }

    fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        reader.choice("prefer", &[("secondary", ())]);
        let Some(written) = reader.duration("max_staleness") else { return Some(Self { max_staleness: STALENESS }) };
        if written.value < SHORTEST_STALENESS {
            let message = format!("`max_staleness` must be at least {}s", SHORTEST_STALENESS.as_secs());
            reader.context().error(Code::InvalidValue, written.span, message);
            return None;
        }
        Some(Self { max_staleness: written.value })
    }
}
