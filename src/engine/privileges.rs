//! Checks that the client itself may write before docward requests numbers as its own user. Otherwise a client
//! without privileges could use up a counter.
//!
//! The check runs on the client's own connection, once for each login: `connectionStatus` lists the privileges of the
//! logged-in users. If they do not suffice, the server may still not enforce access control: then it lists no
//! privileges, or only those that would be granted. An `explain` decides: it requires the missing privilege and
//! changes nothing.

use super::ClientState;
use super::batch::is_state_change_error;
use crate::command::{Command, Namespace, Operation, Reply, Statement, Update, code, error_reply};
use crate::document::{Document, Value, Writer};
use crate::wire::op_msg;

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
    pub(super) fn of(statement: &Statement<'_>) -> Self {
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

/// A query to the server that is not answered yet.
#[derive(Debug)]
pub(super) struct PrivilegeCheck {
    access: CollectionAccess,
    question: Question,
}

#[derive(Debug)]
enum Question {
    Status,
    /// Whether the server enforces access control.
    Probe {
        logged_in: bool,
    },
}

/// The result of a reply to a [`PrivilegeCheck`].
#[derive(Debug)]
pub(super) enum PrivilegeReply {
    Granted,
    /// Send this message and pass the reply to the next check.
    Ask(PrivilegeCheck, Vec<u8>),
    /// Send this reply to the client; nothing is written.
    Denied(Vec<u8>),
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

impl PrivilegeCheck {
    /// Returns the check and its first message.
    pub(super) fn about(namespace: Namespace<'_>, kind: WriteKind, command: &Command<'_>) -> (Self, Vec<u8>) {
        let access = CollectionAccess {
            database: namespace.database.to_owned(),
            collection: namespace.collection.to_owned(),
            kind,
        };
        let question = query(command, "admin", |w| {
            w.int32("connectionStatus", 1);
            w.boolean("showPrivileges", true);
        });
        (Self { access, question: Question::Status }, question)
    }

    /// Takes the server's reply. `command` is the client's command; `privileges` stores what is granted.
    pub(super) fn take(self, reply: &[u8], command: &Command<'_>, privileges: &mut Privileges) -> PrivilegeReply {
        match self.question {
            Question::Status => {
                let status = Status::read(reply);
                if status.privileges.is_some_and(|list| self.access.is_granted(list)) {
                    privileges.grant(self.access);
                    return PrivilegeReply::Granted;
                }
                let probe = self.access.probe(command);
                PrivilegeReply::Ask(Self { question: Question::Probe { logged_in: status.logged_in }, ..self }, probe)
            }
            Question::Probe { logged_in } => match Reply::parse(reply) {
                Ok(error) if error.code() == Some(code::UNAUTHORIZED) => {
                    PrivilegeReply::Denied(self.access.unauthorized_error(command, logged_in))
                }
                // The server checks privileges first, unless it is about to stop or step down.
                Ok(error) if is_state_change_error(&error) => PrivilegeReply::Denied(reply.to_vec()),
                _ => {
                    privileges.everything = true;
                    PrivilegeReply::Granted
                }
            },
        }
    }
}

/// The result of `connectionStatus`. A server that does not support the option returns no privileges.
struct Status<'r> {
    logged_in: bool,
    privileges: Option<Document<'r>>,
}

impl<'r> Status<'r> {
    fn read(reply: &'r [u8]) -> Self {
        let info = Reply::parse(reply).ok().filter(Reply::is_ok);
        let info = info.and_then(|reply| reply.body.get("authInfo")?.as_document());
        let list = |name: &str| info.and_then(|info| info.get(name)?.as_array());
        Self {
            logged_in: list("authenticatedUsers").is_some_and(|users| users.first().is_some()),
            privileges: list("authenticatedUserPrivileges"),
        }
    }
}

impl CollectionAccess {
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

    /// mongod requires `insert` and `update` for this command, and only plans it.
    fn probe(&self, command: &Command<'_>) -> Vec<u8> {
        query(command, &self.database, |w| {
            w.nested("explain", |w| {
                w.string("update", &self.collection);
                w.array("updates", |updates| {
                    updates.nested(|w| {
                        w.nested("q", |w| w.int32("_id", 0));
                        w.nested("u", |w| w.nested("$setOnInsert", |w| w.int32("_id", 0)));
                        w.boolean("upsert", true);
                    });
                });
            });
            w.string("verbosity", "queryPlanner");
        })
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

/// Leaves out `apiStrict`, which does not permit `connectionStatus`.
fn query(command: &Command<'_>, database: &str, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut writer = op_msg::Writer::new(command.message.header.request_id, 0, 0, 256);
    writer.body(|out| {
        Writer::document(out, |w| {
            write(w);
            command
                .api_parameters()
                .filter(|element| element.key == b"apiVersion")
                .for_each(|element| w.element(element));
            w.string("$db", database);
        });
    });
    writer.finish()
}
