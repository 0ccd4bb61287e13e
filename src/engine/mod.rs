//! A message and the rules → what is to be done; what came of it → the client's reply.
//!
//! Sans-I/O: [`triage`] looks at a frame's first bytes, [`Plan`] carries out a evaluated message step by step;
//! the caller sends, looks up and feeds the results back. Time, answers and replies come in as arguments, so
//! the proxy, the command line and the tests run the same code. Next floor: `crate::proxy`.

mod allocation;
mod authentication;
mod batch;
mod collection_query;
mod composition;
pub mod coverage;
mod dry_run;
mod evaluation;
mod explain;
pub mod handshake;
mod indirect_writes;
pub mod lookup;
mod merge;
mod outcome;
mod plan;
mod privileges;
pub mod queries;
mod rejection_text;
#[cfg(test)]
mod tests;
mod trace_context;
mod transactions;
mod triage;

use serde::{Deserialize, Serialize};

pub use authentication::{has_logged_in, login_question, means_login_demanded, read_users, users_question};
pub use composition::impossible;
pub use dry_run::{DryRun, Need, Outcome, command_of_frame, dry_run, statements};
pub use outcome::{OutcomeKind, RuleOutcome};
pub use plan::{Input, Plan, Step, evaluation_length};
pub use privileges::Privileges;
pub use queries::{Admission, ListenerKind, QueryRejection};
pub use trace_context::TraceContext;
pub use transactions::{Transaction, TransactionId, transaction};
pub use triage::{Triage, class_of_head, triage};

/// What the engine remembers of one client connection.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Session {
    /// `client.application.name` of the handshake; see [`Session::app_name`]. At most as long as a server takes.
    pub app_name: Option<String>,
    /// The server has not accepted the hello that `app_name` is from.
    pub app_name_is_claimed: bool,
    /// (authentication database, name) of everybody who is authenticated; `None` until it was asked for.
    pub users: Option<Vec<(String, String)>>,
    /// The server demands a login, and there has been none on this connection.
    pub must_log_in: bool,
    /// What the server lets them do. The next process asks again.
    #[serde(skip)]
    pub privileges: Privileges,
    /// "127.0.0.1:50000", for logs.
    pub client: Box<str>,
    /// The connection's number in its process, for logs.
    #[serde(skip)]
    pub connection: u64,
    /// Told by the listener, so it is not passed on to another process.
    #[serde(skip)]
    pub listener_kind: ListenerKind,
    pub own: OwnSession,
}

impl Session {
    /// The application's name, once the server has accepted it.
    #[must_use]
    pub fn app_name(&self) -> Option<&str> {
        self.app_name.as_deref().filter(|_| !self.app_name_is_claimed)
    }
}

/// The server session that docward's own transactions run in, where none of the client's tells which.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnSession {
    /// A random UUID, another for each connection.
    pub id: [u8; 16],
    /// The last transaction number that was used.
    pub last_number: u32,
    /// The server is a mongos, as far as its hello has told.
    #[serde(default)]
    pub routed: bool,
}

impl OwnSession {
    /// Takes the next transaction number; behind the last one another session begins.
    fn next_number(&mut self) {
        self.last_number = self.last_number.checked_add(1).unwrap_or_else(|| {
            self.id = u128::from_be_bytes(self.id).wrapping_add(1).to_be_bytes();
            1
        });
    }
}

/// Wall clock, handed in.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Milliseconds since 1970 UTC.
    pub milliseconds: i64,
}
