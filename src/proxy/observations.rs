//! What rules said about statements: counted, and said on as decisions. Names only.
//!
//! Counts belong to a rule as it is written, by its name and a fingerprint of its text, so they outlive a reload; a
//! rule that was changed begins anew. Of rules in shadow mode the shapes of commands are kept too: it is the
//! report of `docward audit`, live. Single decisions go on in [`super::decisions`].

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::broadcast::Receiver;

use super::decisions::{Decision, Tail};
use super::history::History;
use super::policy::{Policy, RuleLabel, WrittenRule};
use super::throttle::Budget;
use crate::audit::{Effect, Noted, RuleTally, shape_of_frame};
use crate::engine::{Observation, Said, Session};

/// Rules remembered that are no longer loaded; of more the oldest are forgotten.
const MAX_RETIRED: usize = 1000;
/// Decisions in a second that are said on, of one rule with one verdict, and of all.
const SAID_OF_ONE: u32 = 10;
const SAID_OF_ALL: u32 = 100;

/// Counts per rule since each was first loaded.
#[derive(Debug, Default)]
pub(super) struct Observations {
    /// A plain mutex: held for one addition, and only by messages that a rule spoke about.
    kept: Mutex<Kept>,
    tail: Tail,
    /// Decisions are logged with the documents they are about.
    in_full: bool,
}

#[derive(Debug, Default)]
struct Kept {
    /// The set that `current` is about.
    version: Option<u64>,
    /// Places of the set's rules in `rules`, by their numbers.
    current: Vec<usize>,
    rules: Vec<LiveRule>,
    said: Budget,
}

/// What one rule has said since it was first loaded.
#[derive(Debug, Clone)]
pub struct LiveRule {
    pub label: RuleLabel,
    /// As it is written; of a rule that is no longer loaded, as it was.
    pub written: Arc<WrittenRule>,
    pub since: SystemTime,
    /// Whether it is in force now.
    pub loaded: bool,
    /// By what it said: "reject", "shadow-reject".
    pub verdicts: BTreeMap<&'static str, u64>,
    /// When it last said anything.
    pub last: Option<SystemTime>,
    /// With applications; with examples where it is only tried.
    pub tally: RuleTally,
    pub history: History,
    said: BTreeMap<&'static str, Budget>,
}

impl Observations {
    /// `in_full`: decisions are logged with the documents they are about.
    pub(super) fn new(in_full: bool) -> Self {
        Self { in_full, ..Self::default() }
    }

    /// Counts what was said about `frame`, a whole message, by a plan of `policy`.
    pub(super) fn note<P: Policy>(&self, observations: Vec<Observation>, session: &Session, policy: &P, frame: &[u8]) {
        for observation in observations {
            let tried = matches!(observation.said, Said::ShadowReject | Said::ShadowRewrite);
            let shape = tried.then(|| shape_of_frame(frame));
            let said_on = self.lock().note(&observation, shape, session, policy);
            if let Some(left_out) = said_on {
                let decision = Decision::new(observation, session, frame, left_out, self.in_full);
                decision.log();
                self.tail.push(decision);
            }
        }
    }

    /// The last decisions, the oldest first, and those to come. A receiver that falls behind loses some.
    pub(super) fn follow(&self) -> (Vec<Arc<Decision>>, Receiver<Arc<Decision>>) {
        self.tail.follow()
    }

    /// Every rule in the order of the files, then those that were loaded before.
    pub(super) fn report<P: Policy>(&self, policy: &P) -> Vec<LiveRule> {
        let mut kept = self.lock();
        kept.load(policy);
        let (mut loaded, mut retired) = (Vec::new(), Vec::new());
        loaded.extend(kept.current.iter().filter_map(|place| kept.rules.get(*place).cloned()));
        retired.extend(kept.rules.iter().filter(|rule| !rule.loaded).cloned());
        loaded.append(&mut retired);
        loaded
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Counts; `Some` when the decision is to be said on, with how many like it were not since the last one.
    fn note<P: Policy>(
        &mut self,
        observation: &Observation,
        shape: Option<String>,
        session: &Session,
        policy: &P,
    ) -> Option<u64> {
        let noted = Noted {
            effect: Effect::of(observation.said),
            statements: observation.statements,
            app: session.app_name.as_deref(),
            namespace: &observation.namespace,
            reason: &observation.reason,
        };
        self.load(policy);
        let place = *self.current.get(observation.rule.index())?;
        let rule = self.rules.get_mut(place)?;
        rule.note(&noted, observation.said.as_str(), shape);
        rule.may_say(observation.said.as_str(), &mut self.said)
    }

    /// Makes `policy` the set that numbers are about.
    fn load<P: Policy>(&mut self, policy: &P) {
        if self.version == Some(policy.version()) {
            return;
        }
        self.version = Some(policy.version());
        self.forget();
        let mut places: HashMap<RuleLabel, usize> =
            self.rules.iter().enumerate().map(|(place, rule)| (rule.label.clone(), place)).collect();
        self.rules.iter_mut().for_each(|rule| rule.loaded = false);
        self.current.clear();
        for (label, written) in policy.written() {
            let place = *places.entry(label.clone()).or_insert(self.rules.len());
            let written = Arc::new(written);
            match self.rules.get_mut(place) {
                Some(rule) => (rule.loaded, rule.written) = (true, written),
                None => self.rules.push(LiveRule::new(label, written)),
            }
            self.current.push(place);
        }
    }

    fn forget(&mut self) {
        let retired = self.rules.iter().filter(|rule| !rule.loaded).count();
        let mut surplus = retired.saturating_sub(MAX_RETIRED);
        self.rules.retain(|rule| {
            let forgotten = !rule.loaded && surplus > 0;
            surplus -= usize::from(forgotten);
            !forgotten
        });
    }
}

impl LiveRule {
    fn new(label: RuleLabel, written: Arc<WrittenRule>) -> Self {
        Self {
            label,
            written,
            since: SystemTime::now(),
            loaded: true,
            verdicts: BTreeMap::new(),
            last: None,
            tally: RuleTally::default(),
            history: History::default(),
            said: BTreeMap::new(),
        }
    }

    fn note(&mut self, noted: &Noted<'_>, verdict: &'static str, shape: Option<String>) {
        let now = SystemTime::now();
        let minute = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / 60;
        *self.verdicts.entry(verdict).or_default() += noted.statements;
        self.last = Some(now);
        self.history.add(minute, noted.effect, noted.statements);
        match shape {
            Some(shape) => self.tally.note(noted, shape, || None),
            None => self.tally.count(noted),
        }
    }

    /// `all` is what all rules may say together.
    fn may_say(&mut self, verdict: &'static str, all: &mut Budget) -> Option<u64> {
        let own = self.said.entry(verdict).or_default();
        let left_out = own.take(SAID_OF_ONE)?;
        match all.take(SAID_OF_ALL) {
            Some(_) => Some(left_out),
            None => {
                own.leave_out(left_out + 1);
                None
            }
        }
    }

    /// One line for each thing it said; for a rule that is tried also applications and examples.
    pub(super) fn log(&self) {
        let Self { label: RuleLabel { name: rule, .. }, tally, .. } = self;
        let since = self.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        for (verdict, count) in &self.verdicts {
            tracing::info!(rule, verdict, count, since, "rule's verdicts since it was first loaded");
        }
        let examples = tally.examples();
        if examples.is_empty() {
            return;
        }
        for (app, counts) in tally.apps() {
            let (rejected, rewritten) = (counts.rejected, counts.rewritten);
            tracing::info!(rule, app, rejected, rewritten, "what the rule would have done, by application");
        }
        for example in examples {
            let (statements, namespace, shape) = (example.statements, &example.namespace, &example.shape);
            let (reason, app) = (&example.reason, &example.app);
            let effect = example.effect.as_str();
            tracing::info!(rule, effect, statements, namespace, shape, app, reason, "what the rule would have done");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Input, Now, Step};
    use crate::patterns::RuleSet;
    use crate::rules::Source;
    use crate::wire::op_msg;

    fn rules(text: &str) -> RuleSet {
        RuleSet::from_sources(vec![Source { name: "r.yaml".to_owned(), text: format!("version: 1\nrules:\n{text}") }])
            .unwrap()
    }

    fn rule(name: &str, more: &str) -> String {
        format!("  - name: {name}\n    namespace: d.c\n    mode: shadow\n    {more}\n")
    }

    /// A replacement on d.c by this application.
    fn replace(observations: &Observations, rules: &RuleSet, app: &str) {
        let body = bson::doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"a": 1}}], "$db": "d"};
        let mut writer = op_msg::Writer::new(1, 0, 0, 128);
        let body = bson::raw::RawDocumentBuf::try_from(&body).unwrap();
        writer.body(|out| out.extend_from_slice(body.as_bytes()));
        let frame = writer.finish();
        let mut session = Session { app_name: Some(app.to_owned()), ..Session::default() };
        let mut plan = crate::engine::Plan::new(&frame, rules, Now { milliseconds: 0 });
        assert!(matches!(plan.next(Input::Start, &mut session), Step::ForwardOriginal { .. }));
        observations.note(plan.take_observations(), &session, rules, &frame);
    }

    #[test]
    fn counts_survive_a_reload_and_begin_anew_with_a_changed_rule() {
        let observations = Observations::default();
        let first = rules(&rule("r", "replacement: {}"));
        replace(&observations, &first, "one");
        // Another rule before it gives it another number; comments and empty lines are not the rule.
        let text = format!(
            "\n  # why\n{}# and this\n\n{}",
            rule("other", "bounds: { field: n, min: 0 }"),
            rule("r", "replacement: {}")
        );
        let second = rules(&text);
        replace(&observations, &second, "two");
        let report = observations.report(&second);
        let counted: Vec<_> =
            report.iter().map(|rule| (rule.label.name.as_str(), rule.loaded, rule.tally.counts.rejected)).collect();
        assert_eq!(counted, [("other", true, 0), ("r", true, 2)]);
        let live = report.last().unwrap();
        assert_eq!(live.tally.apps().iter().map(|(app, _)| *app).collect::<Vec<_>>(), ["one", "two"]);
        let examples = live.tally.examples();
        assert_eq!((examples[0].shape.as_str(), examples[0].statements), ("replaceOne({_id}, {a})", 2));
        assert_eq!(live.verdicts.get("shadow-reject"), Some(&2));

        let third = rules(&rule("r", "replacement: { unguarded: merge }"));
        replace(&observations, &third, "one");
        let report = observations.report(&third);
        let counted: Vec<_> = report
            .iter()
            .map(|rule| {
                (rule.label.name.as_str(), rule.loaded, rule.tally.counts.rejected, rule.tally.counts.rewritten)
            })
            .collect();
        assert_eq!(counted, [("r", true, 0, 1), ("r", false, 2, 0), ("other", false, 0, 0)]);
    }
}
