//! What rules said about statements, logged and counted. Names only: documents never reach the log.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::engine::{Observation, Said, Session};

/// Counts per rule and verdict since the process started.
#[derive(Debug, Default)]
pub(super) struct Observations {
    /// A plain mutex: held for one addition, and only by messages that a rule spoke about.
    counts: Mutex<HashMap<(String, &'static str), u64>>,
}

impl Observations {
    pub(super) fn note(&self, observations: Vec<Observation>, session: &Session) {
        for observation in observations {
            log(&observation, session);
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            *counts.entry((observation.rule_name, observation.said.as_str())).or_default() += observation.statements;
        }
    }

    /// Rule, verdict and how often, sorted.
    pub(super) fn counts(&self) -> Vec<(String, &'static str, u64)> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sorted: Vec<_> = counts.iter().map(|((rule, verdict), n)| (rule.clone(), *verdict, *n)).collect();
        sorted.sort_unstable();
        sorted
    }
}

/// Rewrites are a rule's daily work; what an application or a DBA has to look at stands out from them.
fn log(observation: &Observation, session: &Session) {
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                rule = observation.rule_name,
                pattern = observation.pattern,
                namespace = observation.namespace,
                verdict = observation.said.as_str(),
                statements = observation.statements,
                reason = observation.reason,
                client = session.client,
                app = session.app_name,
                "rule spoke"
            )
        };
    }
    match observation.said {
        Said::Rewrite => line!(debug),
        Said::Allow | Said::Conflict | Said::ShadowRewrite | Said::ShadowReject => line!(info),
        Said::Reject | Said::Warn | Said::ExceptRewrite | Said::ExceptReject => line!(warn),
    }
}
