//! How a request may share a server connection with other clients' requests.
//!
//! The server binds transactions, retryable writes and cursors to the logical session and the user, not to the
//! connection. So consecutive requests of a client may use different connections of the same user.

use std::sync::LazyLock;
use std::time::Duration;

use memchr::memmem::Finder;

use crate::command::{CommandClass, WriteForm};
use crate::document::Value;
use crate::fnv::hash_of;
use crate::request_head::RequestHead;
use crate::wire::op_msg::EXHAUST_ALLOWED;

/// How a request may share a server connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    Ordinary,
    /// It continues or ends something that the server holds open and that others may wait for, such as a transaction.
    Continuation,
    /// A getMore that waits for new documents.
    Awaiting,
    /// The client needs a connection of its own from this request on.
    Pinned(Pin),
}

/// Why a client has a server connection of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pin {
    /// It sent a command that docward does not know, which may change the state of the connection.
    UnknownCommand,
    /// It accepts several replies to one request.
    Exhaust,
    /// Its hello has `loadBalanced: true`.
    LoadBalanced,
    /// It logs in by a mechanism whose user docward cannot determine in advance.
    Mechanism,
}

impl Pin {
    pub const ALL: [Self; 4] = [Self::UnknownCommand, Self::Exhaust, Self::LoadBalanced, Self::Mechanism];

    /// Returns the label for metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownCommand => "unknown_command",
            Self::Exhaust => "exhaust",
            Self::LoadBalanced => "load_balanced",
            Self::Mechanism => "mechanism",
        }
    }
}

/// Bytes of the body that are searched. Documents to write follow the body in sequences, so bodies are shorter in
/// practice.
const SEARCHED: usize = 4096;
/// The longest body in which fields are looked for.
pub const MAX_BODY_LENGTH: usize = 1 << 20;

static CHANGE_STREAM: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"$changeStream\0"));
static AWAIT_DATA: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"awaitData\0"));

/// Returns whether `head` is enough for [`sharing`]: it contains the whole body, or as much of it as is looked at.
#[must_use]
pub fn is_enough(head: &RequestHead<'_>) -> bool {
    if head.body_is_first != Some(true) {
        return true;
    }
    let length = head.body_length().unwrap_or(0);
    head.body_and_rest().len() >= length || length > MAX_BODY_LENGTH
}

/// Returns how the request may share a connection. `waits` returns whether a cursor waits for new documents.
#[must_use]
pub fn sharing(head: &RequestHead<'_>, waits: impl Fn(i64) -> bool) -> Sharing {
    if head.body_is_first != Some(true) {
        return Sharing::Pinned(Pin::UnknownCommand);
    }
    let Some(first) = head.first else { return Sharing::Ordinary };
    if head.has_flags(EXHAUST_ALLOWED) {
        return Sharing::Pinned(Pin::Exhaust);
    }
    match first.key {
        b"getMore" if first.value.as_integer().is_some_and(waits) => Sharing::Awaiting,
        // The server accepts maxTimeMS only for cursors that wait (manual, "getMore").
        b"getMore" if head.fields().has_time_limit => Sharing::Awaiting,
        b"abortTransaction" | b"commitTransaction" | b"endSessions" | b"killCursors" => Sharing::Continuation,
        _ if head.class() == Some(CommandClass::Unknown) => Sharing::Pinned(Pin::UnknownCommand),
        _ if head.fields().has_autocommit && !head.fields().starts_transaction => Sharing::Continuation,
        _ => Sharing::Ordinary,
    }
}

/// Returns a hash of the request's session, in which its driver sends it again after an overload error; `None`: it has
/// none, or is a write without a number, and the driver may have `retryWrites` off. Nothing shows `retryReads`.
#[must_use]
pub fn retried_in(head: &RequestHead<'_>) -> Option<u64> {
    let fields = head.fields();
    let is_write = head.class().is_some_and(|class| WriteForm::for_class(class).is_some());
    let session = fields.session.filter(|_| !is_write || fields.transaction_number.is_some());
    session.map(|session| hash_of(session.bytes))
}

/// Returns how long the client waits for the server to carry out the request. That of a getMore is the time that its
/// cursor waits for new documents.
#[must_use]
pub fn time_limit(head: &RequestHead<'_>) -> Option<Duration> {
    let limit = head.time_limit().filter(|_| head.name() != Some(b"getMore"));
    let limit = limit.and_then(Value::as_integer).and_then(|limit| u64::try_from(limit).ok());
    limit.filter(|limit| *limit > 0).map(Duration::from_millis)
}

/// Returns whether the reply to the request may contain the id of a cursor.
#[must_use]
pub fn opens_cursor(head: &RequestHead<'_>) -> bool {
    matches!(head.name(), Some(b"aggregate" | b"find" | b"listCollections" | b"listIndexes"))
}

/// Returns whether the request opens a cursor that waits for new documents.
#[must_use]
pub fn opens_waiting_cursor(head: &RequestHead<'_>) -> bool {
    let body = head.body_and_rest();
    let searched = body.get(..SEARCHED).unwrap_or(body);
    match head.name() {
        Some(b"aggregate") => CHANGE_STREAM.find(searched).is_some(),
        Some(b"find") => AWAIT_DATA.find(searched).is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, doc};

    use super::*;
    use crate::wire::op_msg::MessageWriter;

    fn frame(flags: u32, body: &bson::Document) -> Vec<u8> {
        let mut writer = MessageWriter::new(1, 0, flags, 0);
        writer.body(|out| out.extend_from_slice(RawDocumentBuf::try_from(body).unwrap().as_bytes()));
        writer.finish()
    }

    #[test]
    fn requests_share_connections_by_what_they_continue() {
        let mut begins = doc! {"insert": "c", "txnNumber": 1_i64, "autocommit": false, "$db": "d"};
        let continues = begins.clone();
        begins.insert("startTransaction", true);
        for (body, expected) in [
            (doc! {"find": "c", "$db": "d"}, Sharing::Ordinary),
            (begins, Sharing::Ordinary),
            (continues, Sharing::Continuation),
            (doc! {"find": "c", "filter": {"autocommit": false}, "$db": "d"}, Sharing::Ordinary),
            (doc! {"commitTransaction": 1, "$db": "admin"}, Sharing::Continuation),
            (doc! {"abortTransaction": 1, "$db": "admin"}, Sharing::Continuation),
            (doc! {"killCursors": "c", "cursors": [1_i64], "$db": "d"}, Sharing::Continuation),
            (doc! {"endSessions": [], "$db": "admin"}, Sharing::Continuation),
            (doc! {"getMore": 7_i64, "collection": "c", "$db": "d"}, Sharing::Ordinary),
            (
                doc! {"getMore": 7_i64, "collection": "c", "txnNumber": 1_i64, "autocommit": false, "$db": "d"},
                Sharing::Continuation,
            ),
            (doc! {"getMore": 8_i64, "collection": "c", "$db": "d"}, Sharing::Awaiting),
            (doc! {"getMore": 7_i64, "collection": "c", "maxTimeMS": 5, "$db": "d"}, Sharing::Awaiting),
            (doc! {"noSuchCommand": 1, "$db": "d"}, Sharing::Pinned(Pin::UnknownCommand)),
        ] {
            assert_eq!(sharing(&RequestHead::new(&frame(0, &body)), |cursor| cursor == 8), expected, "{body}");
        }
        let exhaust = frame(EXHAUST_ALLOWED, &doc! {"getMore": 7_i64, "collection": "c", "$db": "d"});
        assert_eq!(sharing(&RequestHead::new(&exhaust), |_| false), Sharing::Pinned(Pin::Exhaust));
        assert_eq!(sharing(&RequestHead::new(&[0; 20]), |_| false), Sharing::Pinned(Pin::UnknownCommand));
        let mut body_last = MessageWriter::new(1, 0, 0, 0);
        body_last.sequence("documents", |_| {});
        body_last.body(|out| out.extend_from_slice(RawDocumentBuf::try_from(&doc! {"ping": 1}).unwrap().as_bytes()));
        assert_eq!(sharing(&RequestHead::new(&body_last.finish()), |_| false), Sharing::Pinned(Pin::UnknownCommand));
    }

    #[test]
    fn a_long_statement_of_a_transaction_is_recognized_when_its_body_has_arrived() {
        let many: Vec<String> = (0..500).map(|number| format!("{number:0>100}")).collect();
        let body = doc! {"find": "c", "filter": {"a": {"$in": many}}, "txnNumber": 1_i64, "autocommit": false};
        let long = frame(0, &body);
        assert!(is_enough(&RequestHead::new(&long)));
        assert_eq!(sharing(&RequestHead::new(&long), |_| false), Sharing::Continuation);
        assert!(!is_enough(&RequestHead::new(&long[..long.len() - 1])));
        let mut with_documents = MessageWriter::new(1, 0, 0, 0);
        with_documents.body(|out| {
            let body = RawDocumentBuf::try_from(&doc! {"insert": "c", "$db": "d"}).unwrap();
            out.extend_from_slice(body.as_bytes());
        });
        with_documents.sequence("documents", |out| out.extend_from_slice(&[0; 1000]));
        let with_documents = with_documents.finish();
        assert!(is_enough(&RequestHead::new(&with_documents[..100])), "the documents after the body do not matter");
        let text = "a".repeat(MAX_BODY_LENGTH);
        assert!(is_enough(&RequestHead::new(&frame(0, &doc! {"find": "c", "filter": {"a": text}})[..100])));
    }

    #[test]
    fn cursors_that_wait_are_recognized_when_they_are_opened() {
        for (body, expected) in [
            (doc! {"aggregate": 1, "pipeline": [{"$changeStream": {}}], "$db": "d"}, true),
            (doc! {"aggregate": "c", "pipeline": [{"$match": {}}], "$db": "d"}, false),
            (doc! {"find": "c", "tailable": true, "awaitData": true, "$db": "d"}, true),
            (doc! {"find": "c", "$db": "d"}, false),
            (doc! {"insert": "c", "comment": "$changeStream", "$db": "d"}, false),
        ] {
            assert_eq!(opens_waiting_cursor(&RequestHead::new(&frame(0, &body))), expected, "{body}");
        }
    }
}
