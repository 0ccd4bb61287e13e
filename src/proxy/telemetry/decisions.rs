//! Single decisions of rules, for the log and for live subscribers. It is a bounded sample that counts how much it
//! leaves out. It contains names and shapes only; values of documents appear only if the log is configured to include
//! them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Serialize, Serializer};
use tokio::sync::broadcast::{Receiver, Sender, channel};

use crate::audit::shape_of_frame;
use crate::document::Value;
use crate::engine::{ClientState, OutcomeKind, RuleOutcome, command_of_frame};
use crate::shell::render;
use crate::text::shorten;

/// Decisions kept for new subscribers.
const RECENT: usize = 200;
/// Decisions a subscriber may lag behind before it misses some.
const MAX_LAG: usize = 256;
/// Bytes of a command that is logged with its documents.
const MAX_COMMAND_LENGTH: usize = 4096;

/// Bytes of user names in a log line.
const MAX_USERS_LENGTH: usize = 512;

/// One decision: the verdict of one rule on one message.
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
    pub verdict: &'static str,
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
    /// Decisions of the same rule and verdict that were suppressed before this one.
    pub suppressed: u64,
    /// The command with its documents, in mongosh syntax. Set only if the log is configured to include it, and never
    /// sent to subscribers.
    #[serde(skip)]
    command: Option<String>,
    #[serde(skip)]
    kind: OutcomeKind,
}

impl Decision {
    /// Creates a decision from the whole message `frame`; `in_full`: its documents are to be logged.
    pub(in crate::proxy) fn new(
        outcome: RuleOutcome,
        client_state: &ClientState,
        frame: &[u8],
        suppressed: u64,
        in_full: bool,
    ) -> Self {
        let named = |users: &Vec<(String, String)>| users.iter().map(|(at, name)| format!("{at}.{name}")).collect();
        Self {
            number: 0,
            at: SystemTime::now(),
            pattern: outcome.pattern,
            verdict: outcome.kind.as_str(),
            kind: outcome.kind,
            statements: outcome.statements,
            shape: shape_of_frame(frame),
            command: if in_full { text_of(frame) } else { None },
            rule: outcome.rule_name,
            namespace: outcome.namespace,
            reason: outcome.reason,
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
                    verdict = self.verdict,
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
            OutcomeKind::Allow | OutcomeKind::Conflict | OutcomeKind::ShadowRewrite | OutcomeKind::ShadowReject => {
                line!(info)
            }
            _ => line!(warn),
        }
    }
}

/// The command in mongosh syntax, truncated if it is long.
fn text_of(frame: &[u8]) -> Option<String> {
    let command = command_of_frame(frame)?;
    let database = command.as_document().get("$db").and_then(Value::as_str).unwrap_or_default().to_owned();
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
pub(in crate::proxy) struct Tail {
    recent: Mutex<Recent>,
    subscribers: Sender<Arc<Decision>>,
}

#[derive(Debug, Default)]
struct Recent {
    last_number: u64,
    decisions: VecDeque<Arc<Decision>>,
}

impl Default for Tail {
    fn default() -> Self {
        Self { recent: Mutex::default(), subscribers: channel(MAX_LAG).0 }
    }
}

impl Tail {
    pub(in crate::proxy) fn push(&self, mut decision: Decision) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.last_number += 1;
        decision.number = recent.last_number;
        if recent.decisions.len() == RECENT {
            recent.decisions.pop_front();
        }
        let decision = Arc::new(decision);
        recent.decisions.push_back(decision.clone());
        // Sent while the lock is held, so that a new subscriber neither misses a decision nor gets it twice. An error
        // means that there is no subscriber.
        let _ = self.subscribers.send(decision);
    }

    /// Returns the last decisions, the oldest first, and a receiver for new ones.
    pub(in crate::proxy) fn follow(&self) -> (Vec<Arc<Decision>>, Receiver<Arc<Decision>>) {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        (recent.decisions.iter().cloned().collect(), self.subscribers.subscribe())
    }
}
