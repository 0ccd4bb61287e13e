//! Counts the outcomes of rules and publishes decisions. It contains names only.
//!
//! Counters belong to a version of a rule, identified by its name and a fingerprint of its text. So they survive a
//! reload, and a changed rule starts at zero. For rules in shadow mode the shapes of commands are kept too: this is
//! the live equivalent of the `docward audit` report. [`crate::proxy::telemetry::decisions`] publishes single decisions.

mod counts;
mod known_rules;

use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::sync::broadcast::Receiver;

use self::counts::CountsByRule;
pub use self::counts::RuleCounts;
use self::known_rules::{KnownRule, KnownRules};
use crate::audit::{CountedOutcome, ReportedOutcome, shape_of_frame};
use crate::engine::{ClientState, OutcomeKind, RuleOutcome};
use crate::proxy::telemetry::decisions::{Decision, DecisionTail, text_of};
use crate::proxy::telemetry::sharded::Sharded;
use crate::proxy::telemetry::written_rule::{RuleLabel, WrittenRule};
use crate::rules::RuleSet;

/// Counters per rule since each was first loaded.
#[derive(Debug, Default)]
pub(in crate::proxy) struct OutcomeCounters {
    /// Plain mutexes, because contention is rare: one thread adds to each, and only reports read them. Locked before
    /// the register.
    counts: Sharded<Mutex<CountsByRule>>,
    register: Mutex<KnownRules>,
    tail: DecisionTail,
    /// Decisions are logged with their documents.
    in_full: bool,
}

/// Counters of one rule since it was first loaded.
#[derive(Debug, Clone)]
pub struct LiveRule {
    pub label: RuleLabel,
    /// The rule as written, or as it was when it was last loaded.
    pub written: Arc<WrittenRule>,
    pub since: SystemTime,
    /// Whether it is loaded now.
    pub loaded: bool,
    pub counts: RuleCounts,
}

impl OutcomeCounters {
    /// `in_full`: decisions are logged with their documents.
    pub(in crate::proxy) fn new(in_full: bool) -> Self {
        Self { in_full, ..Self::default() }
    }

    /// Begins to count for the rules of `rules`.
    pub(in crate::proxy) fn note_loaded(&self, rules: &RuleSet) {
        self.register.lock().unwrap_or_else(PoisonError::into_inner).load(rules);
    }

    /// Counts the outcomes of a plan of `rules` for the whole message `frame`.
    pub(in crate::proxy) fn publish(
        &self,
        outcomes: Vec<RuleOutcome>,
        client_state: &ClientState,
        rules: &RuleSet,
        frame: &[u8],
    ) {
        // Once for all rules: a message may have outcomes of many.
        let shape = LazyCell::new(|| shape_of_frame(frame));
        let command = LazyCell::new(|| if self.in_full { text_of(frame) } else { None });
        for outcome in outcomes {
            // Rewrites of enforced rules are too frequent for examples.
            let example = (outcome.kind != OutcomeKind::Rewrite).then(|| shape.clone());
            let published = self.count(&outcome, example, client_state, rules);
            if let Some(suppressed) = published {
                let decision = Decision::new(outcome, client_state, (shape.clone(), command.clone()), suppressed);
                decision.log();
                self.tail.push(decision);
            }
        }
    }

    /// Counts an outcome. Returns `Some` if its decision is to be published, with the number of similar ones
    /// suppressed since the last one.
    fn count(
        &self,
        outcome: &RuleOutcome,
        shape: Option<String>,
        client_state: &ClientState,
        rules: &RuleSet,
    ) -> Option<u64> {
        let noted = CountedOutcome {
            outcome: ReportedOutcome::from_kind(outcome.kind),
            statements: outcome.statements,
            app: client_state.app_name(),
            users: client_state.users.as_deref(),
            at: None,
            namespace: &outcome.namespace,
            reason: &outcome.reason,
        };
        let mut counts = self.counts.mine().lock().unwrap_or_else(PoisonError::into_inner);
        let (key, counts) = counts.counters_of(outcome.rule.index(), rules, &self.register)?;
        let suppressed = counts.count(&noted, outcome.kind, shape)?;
        // Taken at most ten times a second.
        let mut register = self.register.lock().unwrap_or_else(PoisonError::into_inner);
        register.may_publish(key, outcome.kind, suppressed)
    }

    /// See [`DecisionTail::follow`]. A receiver that lags too far behind misses some.
    pub(in crate::proxy) fn follow(&self) -> (Vec<Arc<Decision>>, Receiver<Arc<Decision>>) {
        self.tail.follow()
    }

    /// Returns every loaded rule in the order of the files, then previously loaded ones.
    pub(in crate::proxy) fn report(&self, rules: &RuleSet) -> Vec<LiveRule> {
        let (keys, mut rules): (Vec<_>, Vec<_>) = {
            let mut register = self.register.lock().unwrap_or_else(PoisonError::into_inner);
            register.load(rules);
            register.in_order().into_iter().map(|known| (known.key, LiveRule::without_counts(known))).unzip()
        };
        let indexes: HashMap<_, _> = keys.into_iter().zip(0..).collect();
        for counts in self.counts.iter() {
            for (key, counts) in counts.lock().unwrap_or_else(PoisonError::into_inner).all() {
                if let Some(rule) = indexes.get(&key).and_then(|index: &usize| rules.get_mut(*index)) {
                    rule.counts.merge(counts);
                }
            }
        }
        rules
    }
}
impl LiveRule {
    /// A rule without outcomes.
    fn without_counts(known: &KnownRule) -> Self {
        Self {
            label: known.label.clone(),
            written: known.written.clone(),
            since: known.since,
            loaded: known.loaded,
            counts: RuleCounts::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SourceFile;
    use crate::engine::{Input, Now, Step};
    use crate::wire::op_msg;

    fn rules(text: &str) -> RuleSet {
        RuleSet::from_sources(vec![SourceFile {
            name: "r.yaml".to_owned(),
            text: format!("version: 1\nrules:\n{text}"),
        }])
        .unwrap()
    }

    fn rule(name: &str, more: &str) -> String {
        format!("  - name: {name}\n    namespace: d.c\n    mode: shadow\n    {more}\n")
    }

    /// Notes the outcomes of a replacement on d.c by this application.
    fn replace(outcomes: &OutcomeCounters, rules: &RuleSet, app: &str) {
        let body = bson::doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"a": 1}}], "$db": "d"};
        let mut writer = op_msg::MessageWriter::new(1, 0, 0, 128);
        let body = bson::raw::RawDocumentBuf::try_from(&body).unwrap();
        writer.body(|out| out.extend_from_slice(body.as_bytes()));
        let frame = writer.finish();
        let mut client_state = ClientState { app_name: Some(app.into()), ..ClientState::default() };
        let mut plan = crate::engine::Plan::new(&frame, rules, Now { milliseconds: 0 });
        assert!(matches!(plan.next(Input::Start, &mut client_state), Step::ForwardOriginal { .. }));
        outcomes.publish(plan.take_outcomes(), &client_state, rules, &frame);
    }

    #[test]
    fn counts_survive_a_reload_and_restart_for_a_changed_rule() {
        let outcomes = OutcomeCounters::default();
        let first = rules(&rule("r", "replacement: {}"));
        replace(&outcomes, &first, "one");
        // A preceding rule changes its index; comments and empty lines do not belong to the rule.
        let text = format!(
            "\n  # why\n{}# and this\n\n{}",
            rule("other", "bounds: { field: n, min: 0 }"),
            rule("r", "replacement: {}")
        );
        let second = rules(&text);
        replace(&outcomes, &second, "two");
        let report = outcomes.report(&second);
        let counted: Vec<_> = report
            .iter()
            .map(|rule| (rule.label.name.as_str(), rule.loaded, rule.counts.shadow.counts.reject))
            .collect();
        assert_eq!(counted, [("other", true, 0), ("r", true, 2)]);
        let live = report.last().unwrap();
        assert_eq!(live.counts.shadow.apps().iter().map(|(app, _)| *app).collect::<Vec<_>>(), ["one", "two"]);
        let examples = live.counts.shadow.examples();
        assert_eq!((examples[0].shape.as_str(), examples[0].statements), ("replaceOne({_id}, {a})", 2));
        assert_eq!(live.counts.outcomes.get("shadow-reject"), Some(&2));

        let third = rules(&rule("r", "replacement: { policy: merge }"));
        replace(&outcomes, &third, "one");
        let report = outcomes.report(&third);
        let counted: Vec<_> = report
            .iter()
            .map(|rule| {
                (
                    rule.label.name.as_str(),
                    rule.loaded,
                    rule.counts.shadow.counts.reject,
                    rule.counts.shadow.counts.rewrite,
                )
            })
            .collect();
        assert_eq!(counted, [("r", true, 0, 1), ("r", false, 2, 0), ("other", false, 0, 0)]);
    }

    #[test]
    fn counts_of_threads_are_merged_and_threads_share_the_rate_limit() {
        let (outcomes, rules) = (OutcomeCounters::default(), rules(&rule("r", "replacement: {}")));
        let began = std::time::Instant::now();
        std::thread::scope(|scope| {
            for app in ["one", "two", "one", "two"] {
                let (outcomes, rules) = (&outcomes, &rules);
                scope.spawn(move || (0..50).for_each(|_| replace(outcomes, rules, app)));
            }
        });
        let seconds = began.elapsed().as_secs() + 1;
        let report = outcomes.report(&rules);
        let counts = &report[0].counts;
        assert_eq!(counts.outcomes.get("shadow-reject"), Some(&200));
        assert_eq!(counts.shadow.apps().iter().map(|(_, counts)| counts.reject).collect::<Vec<_>>(), [100, 100]);
        assert_eq!(counts.shadow.examples()[0].statements, 200);
        let (decisions, _) = outcomes.follow();
        let suppressed: u64 = decisions.iter().map(|decision| decision.suppressed).sum();
        assert!(decisions.len() as u64 <= 10 * seconds && decisions.len() as u64 + suppressed <= 200, "{decisions:?}");
    }
}
