//! Writes docward's own commands. Those beside a client's command run as the client's user, and in its session where the
//! command needs that. Those of monitors, pools and logins stand alone.

use std::time::Duration;

use super::encode::{OwnTransaction, write_read_concern};
use super::{Command, Namespace};
use crate::document::{Document, Element, Kind, Value, Writer};
use crate::wire::compressed::Compressor;
use crate::wire::op_msg;

/// The database for docward's own work, besides that in the collections of rules.
pub const DATABASE: &str = "docward";

/// A literal that begins with [`MARK`].
#[macro_export]
macro_rules! marked {
    ($purpose:literal) => {
        concat!("by docward: ", $purpose)
    };
}

/// Begins a text in docward's own commands on the collections of rules, which distinguishes them from those of applications
/// in the server's log and profile. Only `find` has it as its comment: older servers reject other commands with one.
pub const MARK: &str = marked!("");
/// The application name of docward's own connections, beside those of a pool.
pub const APP: &str = "docward service";

/// Whether a command is one of docward's own.
#[must_use]
pub fn is_own(app: Option<&str>, command: &[u8]) -> bool {
    app == Some(APP) || memchr::memmem::find(command, MARK.as_bytes()).is_some()
}

/// The session and transaction of docward's own command.
#[derive(Debug, Clone, Copy)]
pub enum CommandSession {
    /// The client's transaction if it has one, and else its session.
    Client {
        /// An earlier command has started the transaction.
        begun: bool,
    },
    /// The client's session and the number of its retryable write.
    Write,
    /// The client's session, with its read preference and read concern. The client's command is a read.
    Read,
    /// A transaction of docward's own.
    Own(OwnTransaction),
}

impl CommandSession {
    /// `finds`: the command is a find, whose read concern would otherwise be the deployment's default.
    fn write(self, client: &Command<'_>, finds: bool, w: &mut Writer<'_>) {
        // The number of a retryable write belongs to the write alone.
        let in_transaction = client.session().in_transaction;
        let names_concern = finds && !in_transaction && matches!(self, Self::Client { .. });
        for element in client.body.elements() {
            let applies = match (self, element.key) {
                (_, b"$clusterTime") => true,
                (Self::Own(_), _) => false,
                (_, b"lsid") => true,
                (Self::Write, b"txnNumber") => true,
                (Self::Client { .. }, b"txnNumber" | b"autocommit") => in_transaction,
                (_, b"readConcern") if names_concern => false,
                // The server accepts both only in the first command of a transaction.
                (Self::Client { begun }, b"startTransaction" | b"readConcern") => !begun,
                (Self::Read, b"$readPreference" | b"readConcern" | b"maxTimeMS") => true,
                _ => false,
            };
            if applies {
                w.element(element);
            }
        }
        if let Self::Own(own) = self {
            own.write(client, w);
        } else if names_concern {
            // The find must see what is stored, like the write that it is for.
            write_read_concern(w, "local", client);
        }
    }
}

/// The documents that a find returns, in one batch.
#[derive(Debug, Clone, Copy)]
pub struct Find<'f> {
    pub namespace: Namespace<'f>,
    pub filter: Document<'f>,
    pub projection: Document<'f>,
    pub limit: i32,
}

impl Find<'_> {
    /// Writes the fields of the command.
    pub fn write(&self, w: &mut Writer<'_>) {
        w.string("find", self.namespace.collection);
        w.value("filter", Value::document(self.filter));
        w.value("projection", Value::document(self.projection));
        w.int32("limit", self.limit);
        w.int32("batchSize", self.limit);
        w.boolean("singleBatch", true);
    }
}

/// Returns a command with the fields that `write` writes, beside the client's command.
pub fn own_command(
    client: &Command<'_>,
    session: CommandSession,
    database: &str,
    write: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    beside(client, session, database, false, write)
}

fn beside(
    client: &Command<'_>,
    session: CommandSession,
    database: &str,
    finds: bool,
    write: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    message(client.message.header.request_id, database, |w| {
        write(w);
        if finds {
            w.string("comment", marked!("reads"));
        }
        session.write(client, finds, w);
        client.api_parameters().for_each(|element| w.element(element));
    })
}

/// Returns a find with further fields that `more` writes.
pub fn find(
    client: &Command<'_>,
    session: CommandSession,
    find: Find<'_>,
    more: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    cursor(client, session, find.namespace.database, |w| {
        find.write(w);
        more(w);
    })
}

/// Returns a find with the fields that `write` writes; it may need several batches.
pub fn cursor(
    client: &Command<'_>,
    session: CommandSession,
    database: &str,
    write: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    beside(client, session, database, true, write)
}

/// Returns a getMore for the results of a bulkWrite.
pub fn more_bulk_results(client: &Command<'_>, cursor: i64) -> Vec<u8> {
    own_command(client, CommandSession::Client { begun: true }, "admin", |w| {
        w.slot("getMore").int64(cursor);
        w.string("collection", "$cmd.bulkWrite");
    })
}

/// Returns an abortTransaction for the session's transaction.
pub fn abort_transaction(client: &Command<'_>, session: CommandSession) -> Vec<u8> {
    own_command(client, session, "admin", |w| w.int32("abortTransaction", 1))
}

/// Returns a command without a session that tests on an unauthenticated connection whether the server requires a login.
/// It counts a collection that does not exist: every login may do so, an unauthenticated client may not.
#[must_use]
pub fn login_question(request_id: i32) -> Vec<u8> {
    message(request_id, "admin", |w| w.string("count", "docward.none"))
}

/// Returns a command without a session that queries the authenticated users of a connection.
#[must_use]
pub fn users_question(request_id: i32) -> Vec<u8> {
    message(request_id, "admin", |w| w.int32("connectionStatus", 1))
}

/// Returns a command without a session that queries the users and their privileges.
pub fn privileges_question(client: &Command<'_>) -> Vec<u8> {
    outside_session(client, "admin", |w| {
        w.int32("connectionStatus", 1);
        w.boolean("showPrivileges", true);
    })
}

/// Returns a command without a session that needs the privileges `insert` and `update`, and changes nothing: the server
/// only plans it.
pub fn privileges_probe(client: &Command<'_>, namespace: Namespace<'_>) -> Vec<u8> {
    outside_session(client, namespace.database, |w| {
        w.nested("explain", |w| {
            w.string("update", namespace.collection);
            w.array("updates", |updates| {
                updates.nested(|w| {
                    w.nested("q", |w| {
                        w.int32("_id", 0);
                        w.string("$comment", marked!("tests the privileges"));
                    });
                    w.nested("u", |w| w.nested("$setOnInsert", |w| w.int32("_id", 0)));
                    w.boolean("upsert", true);
                });
            });
        });
        w.string("verbosity", "queryPlanner");
    })
}

/// Leaves out `apiStrict`, which does not permit `connectionStatus`.
fn outside_session(client: &Command<'_>, database: &str, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let is_version = |element: &Element<'_>| element.key == b"apiVersion";
    message(client.message.header.request_id, database, |w| {
        write(w);
        client.api_parameters().filter(is_version).for_each(|element| w.element(element));
    })
}

/// Returns the first message on a connection of a pool. It names docward as the application, because requests of many
/// clients use the connection. `helloOk`: as for current drivers, the server's errors contain "not primary", and not "not
/// master".
#[must_use]
pub fn pool_hello(request_id: i32, compressors: &[Compressor]) -> Vec<u8> {
    message(request_id, "admin", |w| {
        w.int32("hello", 1);
        w.boolean("helloOk", true);
        w.nested("client", |w| {
            w.nested("application", |w| w.string("name", "docward"));
            w.nested("driver", |w| {
                w.string("name", "docward");
                w.string("version", env!("CARGO_PKG_VERSION"));
            });
            w.nested("os", |w| w.string("type", std::env::consts::OS));
        });
        w.array("compression", |a| compressors.iter().for_each(|compressor| a.string(compressor.name())));
    })
}

/// Returns a hello that asks only for the mechanisms of a user, given as `database.name`.
#[must_use]
pub fn mechanisms_question(request_id: i32, user: &str) -> Vec<u8> {
    message(request_id, "admin", |w| {
        w.int32("hello", 1);
        w.string("saslSupportedMechs", user);
    })
}

/// Returns a command that reads what the server stores of a user.
#[must_use]
pub fn identity_question(request_id: i32, database: &str, user: &str) -> Vec<u8> {
    message(request_id, "admin", |w| {
        w.nested("usersInfo", |w| {
            w.string("user", user);
            w.string("db", database);
        });
        w.boolean("showCredentials", true);
    })
}

/// Returns the first message of a login.
#[must_use]
pub fn sasl_start(
    request_id: i32,
    database: &str,
    mechanism: &str,
    payload: &[u8],
    skips_empty_exchange: bool,
) -> Vec<u8> {
    message(request_id, database, |w| {
        w.int32("saslStart", 1);
        w.string("mechanism", mechanism);
        write_binary(w, "payload", payload);
        w.nested("options", |w| w.boolean("skipEmptyExchange", skips_empty_exchange));
    })
}

/// Returns a later message of a login.
#[must_use]
pub fn sasl_continue(request_id: i32, database: &str, conversation: i32, payload: &[u8]) -> Vec<u8> {
    message(request_id, database, |w| {
        w.int32("saslContinue", 1);
        w.int32("conversationId", conversation);
        write_binary(w, "payload", payload);
    })
}

/// Returns the hello of a monitor. With `topology_version` the server replies when its topology changes or after
/// `await_for`.
#[must_use]
pub fn member_hello(topology_version: Option<&[u8]>, await_for: Duration) -> Vec<u8> {
    message(1, "admin", |w| {
        w.int32("hello", 1);
        if let Some(version) = topology_version {
            w.value("topologyVersion", Value { kind: Kind::Document, bytes: version });
            w.integer("maxAwaitTimeMS", i64::try_from(await_for.as_millis()).unwrap_or(i64::MAX));
        }
    })
}

/// Returns a ping.
#[must_use]
pub fn ping(request_id: i32) -> Vec<u8> {
    message(request_id, "admin", |w| w.int32("ping", 1))
}

/// The length, the subtype and the bytes of a BSON binary.
fn write_binary(w: &mut Writer<'_>, key: &str, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
    let bytes = [&length[..], &[0], payload].concat();
    w.value(key, Value { kind: Kind::Binary, bytes: &bytes });
}

/// Returns a command without a client's command beside it, with the fields that `write` writes.
pub fn message(request_id: i32, database: &str, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut writer = op_msg::MessageWriter::new(request_id, 0, 0, 512);
    writer.body(|out| {
        Writer::document(out, |w| {
            write(w);
            w.string("$db", database);
        });
    });
    writer.finish()
}
