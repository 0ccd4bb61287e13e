//! Whether a rule would break the application whose traffic gave the reason for it.

use crate::audit::evaluation::RuleKnowledge;
use crate::audit::tally::{AuditTally, Example, OutcomeCounts, ReportedOutcome};
use crate::text::plural;

/// One in this many rewritten statements may meet a version conflict or match nothing: a race that the rule prevents.
/// More of them are the application's normal work.
const RARE: u64 = 5;

/// What a rule would have done to the traffic.
#[derive(Debug)]
pub(super) struct CandidateTally {
    tally: AuditTally,
    known: RuleKnowledge,
}

impl CandidateTally {
    pub(super) fn new((tally, known): (AuditTally, Vec<RuleKnowledge>)) -> Self {
        Self { tally, known: known.first().copied().unwrap_or_default() }
    }

    fn counts(&self) -> OutcomeCounts {
        self.tally.rules.first().map(|tally| tally.counts).unwrap_or_default()
    }

    fn example(&self, outcomes: &[ReportedOutcome]) -> Option<&Example> {
        let examples = self.tally.rules.first()?.examples();
        examples.into_iter().find(|example| outcomes.contains(&example.outcome))
    }

    /// Why the rule breaks the application, as a clause; `None` if it does not. `needs_confirmation`: it is not known
    /// to work either.
    pub(super) fn reason_against(&self, needs_confirmation: bool) -> Option<String> {
        let OutcomeCounts { reject, rewrite, conflict, no_match, .. } = self.counts();
        let total = self.counts().total();
        let with = |outcomes: &[ReportedOutcome], clause: String| {
            let example = self.example(outcomes);
            let example = example.map(|one| format!(": {} ({})", one.shape, one.reason)).unwrap_or_default();
            Some(format!("{clause}{example}"))
        };
        let lost = conflict + no_match;
        if reject > 0 {
            return with(&[ReportedOutcome::Reject], format!("it would reject {reject} of {total} statements"));
        }
        if self.known.broken > 0 {
            let clause = format!(
                "{} of {total} statements would match nothing, because the rule changes the version between the \
                 application's reads and its own versioned writes",
                self.known.broken
            );
            return with(&[ReportedOutcome::NoMatch], clause);
        }
        if conflict * RARE > lost + rewrite {
            let clause = format!("{conflict} of {} statements would meet a version conflict", lost + rewrite);
            return with(&[ReportedOutcome::Conflict], clause);
        }
        if lost * RARE > lost + rewrite {
            return with(
                &[ReportedOutcome::NoMatch],
                format!("{lost} of {} statements would change nothing", lost + rewrite),
            );
        }
        let unknown = needs_confirmation && self.known.confirmed == 0;
        unknown.then(|| "the traffic does not show the versions of the stored documents".to_owned())
    }

    /// "In this traffic it would rewrite 4 of 5 statements, and reject none."
    pub(super) fn summary(&self) -> String {
        let OutcomeCounts { rewrite, conflict, no_match, cannot_tell, except, .. } = self.counts();
        let total = self.counts().total();
        let statements = plural(total, "statement");
        let mut parts = vec![match rewrite {
            0 => format!("neither reject nor change any of {statements}"),
            _ => format!("rewrite {rewrite} of {statements} and reject none"),
        }];
        for (count, words) in [
            (conflict, "version conflicts, which are lost updates today"),
            (no_match, "would change nothing, because the condition would not be satisfied"),
            (self.known.unknown, "rewritten with a condition that the traffic cannot confirm"),
            (except, "exempt"),
            (cannot_tell, "cannot be decided, because the traffic does not show the data"),
        ] {
            parts.extend((count > 0).then(|| format!("{count} {words}")));
        }
        format!("In this traffic it would {}.", parts.join("; "))
    }
}
