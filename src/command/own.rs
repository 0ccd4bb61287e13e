//! Writes docward's own commands on a client's server connection. They run as the client's user, and in its session
//! where the command needs that.

use super::encode::OwnTransaction;
use super::{Command, Namespace};
use crate::document::{Document, Element, Value, Writer};
use crate::wire::op_msg;

/// The session and transaction of docward's own command.
#[derive(Debug, Clone, Copy)]
pub enum CommandSession {
    /// The client's transaction if it has one, and else its session.
    Client {
        /// An earlier command has started the transaction.
        begun: bool,
    },
    /// The client's session, with its read preference and read concern. The client's command is a read.
    Read,
    /// A transaction of docward's own.
    Own(OwnTransaction),
}

impl CommandSession {
    fn write(self, client: &Command<'_>, w: &mut Writer<'_>) {
        // The number of a retryable write belongs to the write alone.
        let in_transaction = client.session().in_transaction;
        for element in client.body.elements() {
            let applies = match (self, element.key) {
                (_, b"$clusterTime") => true,
                (Self::Own(_), _) => false,
                (_, b"lsid") => true,
                (Self::Client { .. }, b"txnNumber" | b"autocommit") => in_transaction,
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
            own.write(w);
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
    message(client.message.header.request_id, database, |w| {
        write(w);
        session.write(client, w);
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
    own_command(client, session, find.namespace.database, |w| {
        find.write(w);
        more(w);
    })
}

/// Returns a getMore for the results of a bulkWrite.
pub fn more_bulk_results(client: &Command<'_>, cursor: i64) -> Vec<u8> {
    own_command(client, CommandSession::Client { begun: true }, "admin", |w| {
        w.slot("getMore").int64(cursor);
        w.string("collection", "$cmd.bulkWrite");
    })
}

/// Returns an abortTransaction for the client's transaction.
pub fn abort_transaction(client: &Command<'_>) -> Vec<u8> {
    own_command(client, CommandSession::Client { begun: true }, "admin", |w| w.int32("abortTransaction", 1))
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
                    w.nested("q", |w| w.int32("_id", 0));
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
