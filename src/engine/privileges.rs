//! Whether the client itself may write where docward would ask for numbers as its own user. Otherwise a client that
//! mongod refuses could use up a counter.
//!
//! The server is asked on the client's own connection, once for each login: `connectionStatus` lists the privileges of
//! the logged-in users. Where they do not suffice, the server may not enforce access control at all, and lists
//! nothing, or only what would be granted. An `explain` tells: it needs the missing privilege and changes nothing.

use super::Session;
use super::batch::is_gone;
use crate::command::{Command, Namespace, Operation, Reply, Statement, Update, code, error_reply};
use crate::document::{Document, Value, Writer};
use crate::wire::op_msg;

/// A client uses few namespaces with sequences; who uses more is asked again.
const MOST_REMEMBERED: usize = 32;

/// What the server has said that the users of a connection may do.
#[derive(Debug, Clone, Default)]
pub struct Privileges {
    /// The server does not enforce access control, or there is none.
    everything: bool,
    granted: Vec<Access>,
}

/// Writes to one collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Access {
    database: String,
    collection: String,
    means: Means,
}

/// What mongod demands privileges for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Means {
    Insert,
    Update,
    /// Both.
    Upsert,
}

impl Means {
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

/// A question to the server that has not been answered yet.
#[derive(Debug)]
pub(super) struct PrivilegeCheck {
    access: Access,
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

/// What a reply to [`PrivilegeCheck`] comes to.
#[derive(Debug)]
pub(super) enum Answer {
    Granted,
    /// Send this and come back with the reply.
    Ask(PrivilegeCheck, Vec<u8>),
    /// The client gets this reply; nothing is sent.
    Refused(Vec<u8>),
}

impl Privileges {
    pub(super) fn covers(&self, namespace: Namespace<'_>, means: Means) -> bool {
        let is_same = |access: &Access| {
            access.database == namespace.database
                && access.collection == namespace.collection
                && (access.means == means || access.means == Means::Upsert)
        };
        self.everything || self.granted.iter().any(is_same)
    }

    /// All of them, where there is no server to ask.
    #[must_use]
    pub fn all() -> Self {
        Self { everything: true, granted: Vec::new() }
    }

    fn grant(&mut self, access: Access) {
        if self.granted.len() >= MOST_REMEMBERED {
            self.granted.remove(0);
        }
        self.granted.push(access);
    }
}

impl Session {
    /// The users may be others from now on: what the server said of them does not hold any more.
    pub fn forget_users(&mut self) {
        self.users = None;
        self.privileges = Privileges::default();
    }
}

impl PrivilegeCheck {
    /// With the first question.
    pub(super) fn about(namespace: Namespace<'_>, means: Means, command: &Command<'_>) -> (Self, Vec<u8>) {
        let access =
            Access { database: namespace.database.to_owned(), collection: namespace.collection.to_owned(), means };
        let question = ask(command, "admin", |w| {
            w.int32("connectionStatus", 1);
            w.boolean("showPrivileges", true);
        });
        (Self { access, question: Question::Status }, question)
    }

    /// `command`: what the client wants; `privileges` keeps what is granted.
    pub(super) fn take(self, reply: &[u8], command: &Command<'_>, privileges: &mut Privileges) -> Answer {
        match self.question {
            Question::Status => {
                let status = Status::read(reply);
                if status.privileges.is_some_and(|list| self.access.is_granted(list)) {
                    privileges.grant(self.access);
                    return Answer::Granted;
                }
                let probe = self.access.probe(command);
                Answer::Ask(Self { question: Question::Probe { logged_in: status.logged_in }, ..self }, probe)
            }
            Question::Probe { logged_in } => match Reply::parse(reply) {
                Ok(error) if error.code() == Some(code::UNAUTHORIZED) => {
                    Answer::Refused(self.access.refusal(command, logged_in))
                }
                // The server looks at privileges before anything else, unless it is about to stop or step down.
                Ok(error) if is_gone(&error) => Answer::Refused(reply.to_vec()),
                _ => {
                    privileges.everything = true;
                    Answer::Granted
                }
            },
        }
    }
}

/// A server that does not know the command says nothing about privileges.
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

impl Access {
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
        self.means.actions().iter().all(|action| has(action))
    }

    /// As mongod decides it (`AuthorizationSessionImpl`, `buildResourceSearchList`): an empty name stands for all. That
    /// it does not for what belongs to the server makes no difference, since no rule can name that. A kind of resource
    /// that is not known counts as this one: a client must not lose its numbers for it.
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

    /// mongod demands `insert` and `update` for it, and only plans it.
    fn probe(&self, command: &Command<'_>) -> Vec<u8> {
        ask(command, &self.database, |w| {
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

    /// In the words of the server, which are about the command that was asked about.
    fn refusal(&self, command: &Command<'_>, logged_in: bool) -> Vec<u8> {
        let Self { database, collection, .. } = self;
        let name = command.name;
        let text = match logged_in {
            true => format!("not authorized on {database} to execute command {{ {name}: {collection:?} }}"),
            false => format!("command {name} requires authentication"),
        };
        error_reply(command.message.header, code::UNAUTHORIZED, &text, |_| {})
    }
}

/// Without `apiStrict`, to which `connectionStatus` does not belong.
fn ask(command: &Command<'_>, database: &str, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
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
