//! Single decisions of rules, for the log and for live subscribers. It is a bounded sample that counts how much it
//! leaves out. It contains names and shapes only; values of documents appear only if the log is configured to include
//! them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Serialize, Serializer};
use tokio::sync::broadcast::{Receiver, Sender, channel};

use crate::document::{Value, excerpt};
use crate::engine::{ClientState, OutcomeKind, RuleOutcome, command_start};
use crate::shell::render;
use crate::text::shorten;

/// Decisions kept for new subscribers.
const RECENT: usize = 200;
/// Rejections and conflicts kept for one rule, and for all rules together.
const STOPPED_PER_RULE: usize = 20;
const STOPPED: usize = 1000;
/// Decisions a subscriber may lag behind before it misses some.
const MAX_LAG: usize = 256;
/// Bytes of a command that is logged with its documents.
const MAX_COMMAND_LENGTH: usize = 4096;

/// Bytes of user names in a log line.
const MAX_USERS_LENGTH: usize = 512;

/// One decision: the outcome of one rule on one message.
#[derive(Debug, Clone, Serialize)]
pub struct Decision {
    /// Number of the kept decision, from 1.
    pub number: u64,
    /// In milliseconds since 1970 UTC.
    #[serde(serialize_with = "milliseconds")]
    pub at: SystemTime,
    pub rule: String,
    pub pattern: &'static str,
    /// "database.collection"
    pub namespace: String,
    /// "reject", "shadow-reject".
    pub outcome: &'static str,
    pub statements: u64,
    /// The command without its values; for a batch, of its first statement.
    pub shape: String,
    pub reason: String,
    pub hint: String,
    pub app: Option<String>,
    /// "authDb.name" of every authenticated user; `None`: unknown.
    pub users: Option<Vec<String>>,
    /// The client's address.
    pub client: String,
    /// The number of its connection in this process.
    pub connection: u64,
    /// Decisions of the same rule and outcome that were suppressed before this one.
    pub suppressed: u64,
    /// The command with its documents, in mongosh syntax. Set only if the log is configured to include it, and never
    /// sent to subscribers.
    #[serde(skip)]
    command: Option<String>,
    #[serde(skip)]
    kind: OutcomeKind,
}

impl Decision {
    /// Creates a decision on a command of this shape; `command`: its text, if its documents are to be logged.
    pub(in crate::proxy) fn new(
        outcome: RuleOutcome,
        client_state: &ClientState,
        (shape, command): (String, Option<String>),
        suppressed: u64,
    ) -> Self {
        let named = |users: &Vec<(String, String)>| users.iter().map(|(at, name)| format!("{at}.{name}")).collect();
        Self {
            number: 0,
            at: SystemTime::now(),
            pattern: outcome.pattern,
            outcome: outcome.kind.as_str(),
            kind: outcome.kind,
            statements: outcome.statements,
            shape,
            command,
            rule: outcome.rule_name.to_string(),
            namespace: outcome.namespace,
            reason: outcome.reason.into_owned(),
            hint: outcome.hint,
            app: client_state.app_name().map(str::to_owned),
            users: client_state.users.as_ref().map(named),
            client: client_state.client.to_string(),
            connection: client_state.connection,
            suppressed,
        }
    }

    /// Logs the decision in a line of at most about 8 kB; `outcome_counters` allows 100 lines a second.
    ///
    /// Routine rewrites are logged at debug level, so that decisions that need attention stand out.
    pub(in crate::proxy) fn log(&self) {
        let users = self.users.as_ref().map(|users| {
            let mut users = users.join(" ");
            shorten(&mut users, MAX_USERS_LENGTH);
            users
        });
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    rule = self.rule,
                    pattern = self.pattern,
                    namespace = self.namespace,
                    outcome = self.outcome,
                    statements = self.statements,
                    shape = self.shape,
                    command = self.command,
                    reason = self.reason,
                    client = self.client,
                    connection = self.connection,
                    app = self.app,
                    users,
                    suppressed = self.suppressed,
                    "rule matched"
                )
            };
        }
        match self.kind {
            kind if kind.is_routine() => line!(debug),
            kind if kind.is_shadow() => line!(info),
            OutcomeKind::Allow | OutcomeKind::Conflict => line!(info),
            _ => line!(warn),
        }
    }
}

/// The command in mongosh syntax, truncated if it is long. Only an excerpt is rendered: rendering takes many times the
/// memory of the command, which the budget of large messages does not count.
pub(super) fn text_of(frame: &[u8]) -> Option<String> {
    let command = command_start(frame, MAX_COMMAND_LENGTH)?;
    let database = command.as_document().get("$db").and_then(Value::as_str).unwrap_or_default().to_owned();
    let command = excerpt(command.as_document(), MAX_COMMAND_LENGTH);
    let mut text = render(command.as_document(), &database);
    shorten(&mut text, MAX_COMMAND_LENGTH);
    Some(text)
}

fn milliseconds<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    serializer.serialize_u64(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The last decisions and a channel for new ones.
#[derive(Debug)]
pub(in crate::proxy) struct DecisionTail {
    recent: Mutex<RecentDecisions>,
    subscribers: Sender<Arc<Decision>>,
}

/// The last decisions of all rules, and of each rule the last rejections and conflicts: a rule that often rewrites
/// must not displace them.
#[derive(Debug, Default)]
struct RecentDecisions {
    last_number: u64,
    decisions: VecDeque<Arc<Decision>>,
    /// The rejections and conflicts by number.
    stopped: BTreeMap<u64, Arc<Decision>>,
    /// Their numbers, by rule.
    stopped_by: HashMap<String, VecDeque<u64>>,
}

impl RecentDecisions {
    fn push(&mut self, decision: Arc<Decision>) {
        if decision.kind.stops() {
            self.push_stopped(decision.clone());
        }
        if self.decisions.len() == RECENT {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision);
    }

    fn push_stopped(&mut self, decision: Arc<Decision>) {
        let own = self.stopped_by.entry(decision.rule.clone()).or_default();
        own.push_back(decision.number);
        if own.len() > STOPPED_PER_RULE
            && let Some(oldest) = own.pop_front()
        {
            self.stopped.remove(&oldest);
        }
        self.stopped.insert(decision.number, decision);
        if self.stopped.len() > STOPPED
            && let Some((_, oldest)) = self.stopped.pop_first()
            && let Some(own) = self.stopped_by.get_mut(&oldest.rule)
        {
            own.pop_front();
            if own.is_empty() {
                self.stopped_by.remove(&oldest.rule);
            }
        }
    }

    /// All kept decisions, the oldest first.
    fn all(&self) -> Vec<Arc<Decision>> {
        let first_recent = self.decisions.front().map_or(u64::MAX, |first| first.number);
        let older = self.stopped.range(..first_recent).map(|(_, decision)| decision);
        older.chain(&self.decisions).cloned().collect()
    }
}

impl Default for DecisionTail {
    fn default() -> Self {
        Self { recent: Mutex::default(), subscribers: channel(MAX_LAG).0 }
    }
}

impl DecisionTail {
    pub(in crate::proxy) fn push(&self, mut decision: Decision) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.last_number += 1;
        decision.number = recent.last_number;
        let decision = Arc::new(decision);
        recent.push(decision.clone());
        // Sent while the lock is held, so that a new subscriber neither misses a decision nor gets it twice. An error
        // means that there is no subscriber.
        let _ = self.subscribers.send(decision);
    }

    /// Returns the kept decisions, the oldest first, and a receiver for new ones: the last ones of all rules, and
    /// older rejections and conflicts.
    pub(in crate::proxy) fn follow(&self) -> (Vec<Arc<Decision>>, Receiver<Arc<Decision>>) {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        (recent.all(), self.subscribers.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(rule: usize, kind: OutcomeKind) -> Decision {
        Decision {
            number: 0,
            at: SystemTime::UNIX_EPOCH,
            rule: format!("rule-{rule}"),
            pattern: "bounds",
            namespace: String::new(),
            outcome: kind.as_str(),
            statements: 1,
            shape: String::new(),
            reason: String::new(),
            hint: String::new(),
            app: None,
            users: None,
            client: String::new(),
            connection: 1,
            suppressed: 0,
            command: None,
            kind,
        }
    }

    fn kept(tail: &DecisionTail) -> Vec<(u64, String)> {
        tail.follow().0.iter().map(|one| (one.number, format!("{} {}", one.rule, one.outcome))).collect()
    }

    #[test]
    fn rewrites_displace_no_rejection_and_one_rule_displaces_no_other() {
        let tail = DecisionTail::default();
        tail.push(decision(1, OutcomeKind::Reject));
        tail.push(decision(1, OutcomeKind::Conflict));
        (0..2 * STOPPED_PER_RULE).for_each(|_| tail.push(decision(2, OutcomeKind::Reject)));
        (0..3 * RECENT).for_each(|_| tail.push(decision(2, OutcomeKind::Rewrite)));
        let kept = kept(&tail);
        assert_eq!(kept.len(), 2 + STOPPED_PER_RULE + RECENT);
        assert_eq!(kept[..2], [(1, "rule-1 reject".to_owned()), (2, "rule-1 conflict".to_owned())]);
        assert!(kept.is_sorted_by_key(|(number, _)| *number));
        // A decision in both lists is listed once.
        tail.push(decision(1, OutcomeKind::Reject));
        assert_eq!(tail.follow().0.iter().filter(|one| one.rule == "rule-1").count(), 3);
    }

    #[test]
    fn the_kept_rejections_are_bounded_for_any_number_of_rules() {
        let tail = DecisionTail::default();
        (0..3 * STOPPED).for_each(|rule| tail.push(decision(rule, OutcomeKind::Reject)));
        let recent = tail.recent.lock().unwrap();
        assert_eq!((recent.stopped.len(), recent.stopped_by.len()), (STOPPED, STOPPED));
        assert_eq!(recent.all().len(), STOPPED);
    }
}
