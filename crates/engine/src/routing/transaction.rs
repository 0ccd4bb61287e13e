//! The transaction that a client of a service has open: a service behind a load balancer ends it with the connection (driver
//! specification "Load Balancers").

use super::destination::{Destination, DestinationKind};
use crate::command::{Reply, own};
use crate::document::{Kind, Value, Writer};
use crate::fnv::hash_of;
use crate::request_head::RequestHead;
use crate::server_errors::{TRANSIENT, has_label};

/// The longest `lsid` that is kept, in bytes.
const MAX_SESSION_LENGTH: usize = 256;

/// A transaction in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTransaction {
    /// The `lsid` document.
    session: Vec<u8>,
    number: i64,
}

/// What a request does to the client's transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionStep {
    /// It begins or continues one.
    Continues(OpenTransaction),
    Ends,
}

impl TransactionStep {
    /// Returns `None` for a request outside of transactions.
    #[must_use]
    pub fn of_request(head: &RequestHead<'_>) -> Option<Self> {
        let fields = head.fields();
        if !fields.has_autocommit {
            return None;
        }
        if matches!(head.name(), Some(b"commitTransaction" | b"abortTransaction")) {
            return Some(Self::Ends);
        }
        let session = fields.session?.as_document()?.as_bytes();
        // A session's id has 29 bytes, with the hash of its user 70.
        let session = Some(session).filter(|session| session.len() <= MAX_SESSION_LENGTH)?.to_vec();
        Some(Self::Continues(OpenTransaction { session, number: fields.transaction_number?.as_integer()? }))
    }
}

/// Returns whether a reply shows that the server has ended the transaction of its request (driver specification
/// "Transactions": `TransientTransactionError`).
#[must_use]
pub fn ends_transaction(reply: &[u8]) -> bool {
    Reply::parse(reply).is_ok_and(|reply| has_label(&reply, TRANSIENT))
}

impl OpenTransaction {
    /// Where its requests go.
    #[must_use]
    pub fn destination(&self) -> Destination {
        Destination { kind: DestinationKind::Primary, session: hash_of(&self.session) }
    }

    /// Returns the message that aborts it.
    #[must_use]
    pub fn abort(&self, request_id: i32) -> Vec<u8> {
        own::message(request_id, "admin", |w: &mut Writer<'_>| {
            w.int32("abortTransaction", 1);
            w.value("lsid", Value { kind: Kind::Document, bytes: &self.session });
            w.slot("txnNumber").int64(self.number);
            w.boolean("autocommit", false);
        })
    }
}
