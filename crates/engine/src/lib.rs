//! Applies rules to client messages: plans what to send upstream and builds the client's reply.
//!
//! Does no I/O. [`RequestHead`] and [`triage`] read a frame's first bytes; [`Plan`] carries out one message step by step. The caller
//! sends messages, performs lookups and passes the results back. Time, lookup results and replies are arguments, so
//! the proxy, the command line and the tests run the same code.

mod applicable_rules;
mod authentication;
mod backoff;
mod batch;
mod batch_evaluation;
mod collection_query;
mod composition;
pub mod coverage;
mod definitions;
mod dry_run;
mod evaluation;
mod explain;
pub mod handshake;
mod indirect_writes;
mod inputs;
pub mod lookup;
mod merge;
mod message_error;
mod message_plan;
mod optimistic_numbers;
mod outcome;
pub mod permits;
mod plan;
mod port;
mod prerequisites;
mod privileges;
pub mod queries;
mod rejection_text;
mod request_head;
mod retried;
pub mod routing;
mod server_errors;
mod server_times;
pub mod sharing;
pub mod step;
#[cfg(test)]
mod tests;
mod trace_context;
mod triage;
mod unreadable;
mod validators;

pub use authentication::{has_logged_in, read_users, requires_login};
pub use composition::incompatible_rules;
pub use docward_protocol::command::own::{login_question, users_question};
pub use dry_run::{
    AssumedDocuments, AssumedLookup, DryRun, DryRunOutcome, command_of_frame, command_start, dry_run, dry_run_with,
    statement_count, statements,
};
pub use outcome::{OutcomeKind, RuleOutcome};
pub use plan::{MAX_EVALUATION_LENGTH, Plan, evaluation_length};
pub use privileges::Privileges;
pub use queries::{ListenerKind, QueryAdmission, QueryRejection};
pub use request_head::RequestHead;
pub use retried::{Retried, retried};
pub use server_times::ServerTimes;
pub use step::{Input, Step};
pub use trace_context::TraceContext;
pub use triage::{Triage, triage};
pub use validators::explain_validators;

/// The engine's state of one client connection.
#[derive(Debug, Default)]
pub struct ClientState {
    /// `client.application.name` of the handshake; see [`ClientState::app_name`]. No longer than the server accepts.
    pub app_name: Option<Box<str>>,
    /// The server has not yet accepted the hello that contains `app_name`.
    pub app_name_is_claimed: bool,
    /// Its driver sends a command again that got an overload error: its hello has `backpressure`.
    pub retries_overload: bool,
    /// The authenticated users as (authentication database, name); `None` until the server has been queried.
    pub users: Option<Vec<(String, String)>>,
    /// The server requires authentication and the connection has not authenticated yet.
    pub must_log_in: bool,
    /// The privileges of the users.
    pub privileges: Privileges,
    /// The client's address ("127.0.0.1:50000"), for logs.
    pub client: Box<str>,
    /// The connection's number in its process, for logs.
    pub connection: u64,
    /// What its listener admits.
    pub listener_kind: ListenerKind,
    pub own: OwnSession,
}

impl ClientState {
    /// Returns the application's name once the server has accepted it.
    #[must_use]
    pub fn app_name(&self) -> Option<&str> {
        self.app_name.as_deref().filter(|_| !self.app_name_is_claimed)
    }
}

/// The server session for docward's own transactions, used where it cannot be derived from the client's session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnSession {
    /// A random UUID, different for each connection.
    pub id: [u8; 16],
    /// The last transaction number used.
    pub last_number: u32,
    /// The server is a mongos, according to its last hello reply.
    pub routed: bool,
}

impl OwnSession {
    /// Takes the next transaction number. After the last number it continues with another session id.
    fn next_number(&mut self) {
        self.last_number = self.last_number.checked_add(1).unwrap_or_else(|| {
            self.id = u128::from_be_bytes(self.id).wrapping_add(1).to_be_bytes();
            1
        });
    }
}

/// The wall-clock time, passed in by the caller.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Milliseconds since 1970 UTC.
    pub milliseconds: i64,
}

use docward_protocol::{command, document, effect, fnv, text, wire};
use docward_rules::{config, patterns, rules, shell};
