//! `reads`: collections that the query listener may read from secondaries.
//!
//! A rule of this pattern evaluates nothing on any listener. It names collections for the query listener, and how far
//! the secondary may be behind the primary. `crate::engine::queries` decides which commands are allowed there.

use std::time::Duration;

use super::{Concern, Evaluate, Pattern, Phase, Rule, RuleSet};
use crate::command::{Namespace, StatementKind};
use crate::rules::{Code, MapReader, Mode};

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

impl Evaluate for Reads {
    fn name(&self) -> &'static str {
        "reads"
    }

    fn phase(&self) -> Phase {
        Phase::Reads
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
    pub(super) fn read(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
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

/// Returns the enforced rule that lets the query listener read this collection.
pub fn naming<'r>(rules: &'r RuleSet, namespace: Namespace<'_>) -> Option<&'r Rule> {
    let found = rules.naming(namespace.database, namespace.collection)?;
    found.iter().find(|rule| rule.mode == Mode::Enforce)
}

/// Returns the shortest staleness of all enforced rules, because one secondary serves all collections of a connection.
/// `None` without a rule.
pub fn max_staleness(rules: &RuleSet) -> Option<Duration> {
    let enforced = rules.rules().iter().filter(|rule| rule.mode == Mode::Enforce);
    let allowed = enforced.filter_map(|rule| match &rule.pattern {
        Pattern::Reads(reads) => Some(reads.max_staleness),
        _ => None,
    });
    allowed.min()
}
