//! Checks that the client itself may write before docward requests numbers as its own user. Otherwise a client
//! without privileges could use up a counter.
//!
//! The check runs on the client's own connection, once for each login: `connectionStatus` lists the privileges of the
//! logged-in users. If they do not suffice, the server may still not enforce access control: then it lists no
//! privileges, or only those that would be granted. An `explain` decides: it requires the missing privilege and
//! changes nothing.

use super::ClientState;
use super::port::Port;
use super::server_errors;
use crate::command::own;
use crate::command::{Command, Namespace, Operation, Reply, Statement, Update, code, error_reply};
use crate::document::{Document, Value};

/// Clients use few namespaces with sequences. Beyond this many, the check is repeated.
const MOST_REMEMBERED: usize = 32;

/// The known privileges of a connection's users.
#[derive(Debug, Clone, Default)]
pub struct Privileges {
    /// The server does not enforce access control, or there is no server.
    everything: bool,
    granted: Vec<CollectionAccess>,
}

/// A kind of write to one collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CollectionAccess {
    database: String,
    collection: String,
    kind: WriteKind,
}

/// The kinds of writes that need different privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteKind {
    Insert,
    Update,
    /// Both.
    Upsert,
}

impl WriteKind {
    pub(super) fn from_statement(statement: &Statement<'_>) -> Self {
        match &statement.operation {
            Operation::Insert(_) => Self::Insert,
            Operation::Update(Update { upsert: true, .. }) => Self::Upsert,
            Operation::Update(_) | Operation::Delete(_) => Self::Update,
        }
    }

    fn actions(self) -> &'static [&'static str] {
        match self {
            Self::Insert => &["insert"],
            Self::Update => &["update"],
            Self::Upsert => &["insert", "update"],
        }
    }
}

impl Privileges {
    pub(super) fn covers(&self, namespace: Namespace<'_>, kind: WriteKind) -> bool {
        let is_same = |access: &CollectionAccess| {
            access.database == namespace.database
                && access.collection == namespace.collection
                && (access.kind == kind || access.kind == WriteKind::Upsert)
        };
        self.everything || self.granted.iter().any(is_same)
    }

    /// Returns all privileges, for use without a server.
    #[must_use]
    pub fn all() -> Self {
        Self { everything: true, granted: Vec::new() }
    }

    fn grant(&mut self, access: CollectionAccess) {
        if self.granted.len() >= MOST_REMEMBERED {
            self.granted.remove(0);
        }
        self.granted.push(access);
    }
}

impl ClientState {
    /// Forgets the users and their privileges, because the login may have changed.
    pub fn forget_users(&mut self) {
        self.users = None;
        self.privileges = Privileges::default();
    }
}

impl CollectionAccess {
    pub(super) fn new(namespace: Namespace<'_>, kind: WriteKind) -> Self {
        let Namespace { database, collection } = namespace;
        Self { database: database.to_owned(), collection: collection.to_owned(), kind }
    }

    /// Stores the access in the client's privileges, or returns the reply to the client: nothing is written.
    /// `command` is the client's command.
    pub(super) async fn require(self, command: &Command<'_>, port: &Port) -> Result<(), Vec<u8>> {
        let status = port.exchange(own::privileges_question(command)).await;
        if let Some(error) = no_answer(command, &status) {
            return Err(error);
        }
        let Status { logged_in, privileges } = Status::parse(&status);
        if privileges.is_some_and(|list| self.is_granted(list)) {
            port.client_state(|client_state, _| client_state.privileges.grant(self)).await;
            return Ok(());
        }
        let reply = port.exchange(own::privileges_probe(command, self.namespace())).await;
        let denied = match Reply::parse(&reply) {
            Ok(error) if error.code() == Some(code::UNAUTHORIZED) => Some(self.unauthorized_error(command, logged_in)),
            // Otherwise the server checks privileges first.
            _ => no_answer(command, &reply),
        };
        if denied.is_none() {
            port.client_state(|client_state, _| client_state.privileges.everything = true).await;
        }
        denied.map_or(Ok(()), Err)
    }

    fn is_granted(&self, privileges: Document<'_>) -> bool {
        let on_this = |privilege: &Document<'_>| {
            let resource = privilege.get("resource").and_then(Value::as_document);
            resource.is_some_and(|resource| self.is_within(resource))
        };
        let privileges: Vec<Document<'_>> =
            privileges.values().filter_map(Value::as_document).filter(on_this).collect();
        let has = |wanted: &str| {
            let lists = privileges.iter().filter_map(|privilege| privilege.get("actions")?.as_array());
            let mut names = lists.flat_map(|actions| actions.values().filter_map(Value::as_str));
            names.any(|name| name == wanted || name == "anyAction")
        };
        self.kind.actions().iter().all(|action| has(action))
    }

    /// Decides as mongod does (`AuthorizationSessionImpl`, `buildResourceSearchList`): an empty name matches all.
    /// mongod makes exceptions for its own collections, which no rule can name. An unknown kind of resource counts as
    /// a match, so that a client does not lose its numbers because of it.
    fn is_within(&self, resource: Document<'_>) -> bool {
        let name = |key: &str| resource.get(key).and_then(Value::as_str);
        match (name("db"), name("collection")) {
            (Some(database), Some(collection)) => {
                (database.is_empty() || database == self.database)
                    && (collection.is_empty() || collection == self.collection)
            }
            _ => resource.get("cluster").is_none() && resource.get("system_buckets").is_none(),
        }
    }

    fn namespace(&self) -> Namespace<'_> {
        Namespace { database: &self.database, collection: &self.collection }
    }

    /// Repeats the server's error text, with the client's command in it.
    fn unauthorized_error(&self, command: &Command<'_>, logged_in: bool) -> Vec<u8> {
        let Self { database, collection, .. } = self;
        let name = command.name;
        let text = match logged_in {
            true => format!("not authorized on {database} to execute command {{ {name}: {collection:?} }}"),
            false => format!("command {name} requires authentication"),
        };
        error_reply(command.message.header, code::UNAUTHORIZED, &text, |_| {})
    }
}

/// Returns the error for the client if the server did not answer a question: it is about to stop or step down, it is
/// overloaded, or somebody has ended the question.
fn no_answer(command: &Command<'_>, reply: &[u8]) -> Option<Vec<u8>> {
    let error = Reply::parse(reply).ok().filter(|reply| !reply.is_ok())?;
    let is_no_answer = server_errors::is_passing(&error) || server_errors::is_interruption(&error);
    is_no_answer.then(|| server_errors::for_client(command, &error, false))
}

/// The result of `connectionStatus`. A server that does not support the option returns no privileges.
struct Status<'r> {
    logged_in: bool,
    privileges: Option<Document<'r>>,
}

impl<'r> Status<'r> {
    fn parse(reply: &'r [u8]) -> Self {
        let info = Reply::parse(reply).ok().filter(Reply::is_ok);
        let info = info.and_then(|reply| reply.body.get("authInfo")?.as_document());
        let list = |name: &str| info.and_then(|info| info.get(name)?.as_array());
        Self {
            logged_in: list("authenticatedUsers").is_some_and(|users| users.first().is_some()),
            privileges: list("authenticatedUserPrivileges"),
        }
    }
}
