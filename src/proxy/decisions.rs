//! What rules decided, one by one: for the log and for whoever looks on. A sample of bounded size, whatever the
//! traffic, that says how much it leaves out. Names and shapes only, never a value of a document unless the log is told
//! to have them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Serialize, Serializer};
use tokio::sync::broadcast::{Receiver, Sender, channel};

use crate::audit::shape_of_frame;
use crate::command::shorten;
use crate::document::Value;
use crate::engine::{OutcomeKind, RuleOutcome, Session, command_of_frame};
use crate::shell::render;

/// Decisions remembered, for who begins to look.
const RECENT: usize = 200;
/// Decisions that somebody who looks on may be behind, before some are left out for them.
const BEHIND: usize = 256;
/// Bytes of a command that are logged with its documents.
const MAX_COMMAND_LENGTH: usize = 4096;

/// Bytes of users' names in a line.
const MAX_USERS_LENGTH: usize = 512;

/// One rule's word on one message.
#[derive(Debug, Clone, Serialize)]
pub struct Decision {
    /// Counts those that were kept, from 1.
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
    /// The command without its values; of a batch its first statement.
    pub shape: String,
    pub reason: String,
    pub hint: String,
    pub app: Option<String>,
    /// "authDb.name" of everybody who is authenticated; `None`: it is not known.
    pub users: Option<Vec<String>>,
    /// The client's address.
    pub client: String,
    /// The number of its connection in this process.
    pub connection: u64,
    /// Decisions of the same rule and verdict that were left out before this one.
    pub left_out: u64,
    /// Its documents too, in mongosh syntax; only where the log is to have them, and nobody else gets it.
    #[serde(skip)]
    command: Option<String>,
    #[serde(skip)]
    said: OutcomeKind,
}

impl Decision {
    /// `frame` is the whole message; `in_full`: its documents are to be logged.
    pub(super) fn new(outcome: RuleOutcome, session: &Session, frame: &[u8], left_out: u64, in_full: bool) -> Self {
        let named = |users: &Vec<(String, String)>| users.iter().map(|(at, name)| format!("{at}.{name}")).collect();
        Self {
            number: 0,
            at: SystemTime::now(),
            pattern: outcome.pattern,
            verdict: outcome.said.as_str(),
            said: outcome.said,
            statements: outcome.statements,
            shape: shape_of_frame(frame),
            command: if in_full { text_of(frame) } else { None },
            rule: outcome.rule_name,
            namespace: outcome.namespace,
            reason: outcome.reason,
            hint: outcome.hint,
            app: session.app_name().map(str::to_owned),
            users: session.users.as_ref().map(named),
            client: session.client.to_string(),
            connection: session.connection,
            left_out,
        }
    }

    /// A line has at most some 8 kB, and 100 a second are logged (`outcomes`).
    ///
    /// Rewrites are a rule's daily work; what an application or a DBA has to look at stands out from them.
    pub(super) fn log(&self) {
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
                    left_out = self.left_out,
                    "rule spoke"
                )
            };
        }
        match self.said {
            OutcomeKind::Rewrite => line!(debug),
            OutcomeKind::Allow | OutcomeKind::Conflict | OutcomeKind::ShadowRewrite | OutcomeKind::ShadowReject => {
                line!(info)
            }
            OutcomeKind::Reject | OutcomeKind::Warn | OutcomeKind::ExceptRewrite | OutcomeKind::ExceptReject => {
                line!(warn)
            }
        }
    }
}

/// The command as mongosh has it, its end cut off if it is long.
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

/// The last decisions, and those to come.
#[derive(Debug)]
pub(super) struct Tail {
    recent: Mutex<Recent>,
    news: Sender<Arc<Decision>>,
}

#[derive(Debug, Default)]
struct Recent {
    last_number: u64,
    decisions: VecDeque<Arc<Decision>>,
}

impl Default for Tail {
    fn default() -> Self {
        Self { recent: Mutex::default(), news: channel(BEHIND).0 }
    }
}

impl Tail {
    pub(super) fn push(&self, mut decision: Decision) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.last_number += 1;
        decision.number = recent.last_number;
        if recent.decisions.len() == RECENT {
            recent.decisions.pop_front();
        }
        let decision = Arc::new(decision);
        recent.decisions.push_back(decision.clone());
        // Under the lock, so that who begins to look neither misses one nor sees one twice. An error: nobody looks.
        let _ = self.news.send(decision);
    }

    /// The last ones, the oldest first, and those to come.
    pub(super) fn follow(&self) -> (Vec<Arc<Decision>>, Receiver<Arc<Decision>>) {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        (recent.decisions.iter().cloned().collect(), self.news.subscribe())
    }
}
