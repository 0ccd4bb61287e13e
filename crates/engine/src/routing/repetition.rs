//! Which requests a router sends again after the member that had them stopped being primary or was lost, and what
//! clients get for the others.

use crate::command::{Reply, code, error_reply};
use crate::document::{Document, Value};
use crate::request_head::RequestHead;
use crate::retried;
use crate::server_errors::{RETRYABLE_WRITE, TRANSIENT};

/// When a request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repetition {
    /// In any case: a read, or what the server executes once.
    Safe,
    /// If the reply shows that nothing was executed.
    IfNotExecuted,
    /// Never: the transaction or cursor that it belongs to has ended, or only the driver can send it again.
    Never,
}

/// The label by which drivers resume a change stream (driver specification "Change Streams").
const RESUMABLE: &str = "ResumableChangeStreamError";

/// Returns when the request may be sent again.
#[must_use]
pub fn repetition(head: &RequestHead<'_>) -> Repetition {
    match head.name() {
        // A driver sends it again with write concern "majority" (driver specification "Transactions").
        Some(b"commitTransaction") => Repetition::Never,
        // The pipeline may write, in the body or in a section after it, and what it wrote would be written twice.
        Some(b"aggregate") if !head.ends_with_body() || retried(head).is_none() => Repetition::Never,
        Some(b"getMore" | b"mapReduce" | b"mapreduce") => Repetition::Never,
        _ if retried(head).is_some() => Repetition::Safe,
        _ if head.fields().has_autocommit => Repetition::Never,
        _ => Repetition::IfNotExecuted,
    }
}

/// Returns whether the request must be sent again instead of returning this reply to it.
#[must_use]
pub fn is_to_be_repeated(reply: &[u8], repetition: Repetition) -> bool {
    let Ok(reply) = Reply::parse(reply) else { return false };
    match repetition {
        Repetition::Never => false,
        // The server checks this before it executes anything.
        Repetition::IfNotExecuted => !reply.is_ok() && reply.code().is_some_and(is_before_execution),
        Repetition::Safe => {
            let of_statement = reply.write_errors().values().filter_map(Value::as_document).filter_map(code_of);
            let of_concern = reply.write_concern_error().and_then(Value::as_document).and_then(code_of);
            let of_command = reply.code().filter(|_| !reply.is_ok());
            of_statement.chain(of_concern).chain(of_command).any(is_state_change)
        }
    }
}

/// Returns whether the member does not have the cursor of a getMore. It has executed nothing.
#[must_use]
pub fn is_cursor_elsewhere(reply: &[u8]) -> bool {
    Reply::parse(reply).is_ok_and(|reply| !reply.is_ok() && reply.code() == Some(code::CURSOR_NOT_FOUND))
}

fn code_of(error: Document<'_>) -> Option<i32> {
    error.get("code")?.as_i32()
}

/// NotWritablePrimary and NotPrimaryNoSecondaryOk.
fn is_before_execution(error: i32) -> bool {
    matches!(error, code::NOT_WRITABLE_PRIMARY | 13435)
}

/// The codes by which a driver takes a server for no primary any more, or for one that shuts down (driver specification
/// "Server Discovery And Monitoring", "not writable primary" and "node is recovering").
fn is_state_change(error: i32) -> bool {
    matches!(error, 91 | 189 | 10058 | 11600 | 11602 | 13436) || is_before_execution(error)
}

/// Returns the reply to a request whose member was lost after the request had been sent, and before it replied. Whether
/// it was executed is unknown. Code 6 leaves the driver's other connections as they are.
#[must_use]
pub fn lost_reply(head: &RequestHead<'_>) -> Option<Vec<u8>> {
    let label = match head.name()? {
        b"commitTransaction" | b"abortTransaction" => Some(RETRYABLE_WRITE),
        b"getMore" => Some(RESUMABLE),
        _ if head.fields().has_autocommit => Some(TRANSIENT),
        _ if head.fields().transaction_number.is_some() => Some(RETRYABLE_WRITE),
        _ => None,
    };
    let text = "docward: the member that had the request was lost before it replied; whether the request was executed is \
                unknown";
    Some(error_reply(head.header?, code::HOST_UNREACHABLE, text, |w| {
        if let Some(label) = label {
            w.array("errorLabels", |labels| labels.string(label));
        }
    }))
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, doc};

    use super::*;
    use crate::wire::op_msg::MessageWriter;

    fn message(body: &bson::Document) -> Vec<u8> {
        let mut writer = MessageWriter::new(1, 0, 0, 0);
        writer.body(|out| out.extend_from_slice(RawDocumentBuf::try_from(body).unwrap().as_bytes()));
        writer.finish()
    }

    #[test]
    fn what_may_be_sent_again_depends_on_the_request() {
        for (body, expected) in [
            (doc! { "find": "c" }, Repetition::Safe),
            (doc! { "insert": "c", "txnNumber": 1_i64 }, Repetition::Safe),
            (doc! { "abortTransaction": 1, "autocommit": false }, Repetition::Safe),
            (doc! { "commitTransaction": 1, "autocommit": false }, Repetition::Never),
            (doc! { "insert": "c" }, Repetition::IfNotExecuted),
            (doc! { "aggregate": "c", "pipeline": [] }, Repetition::Safe),
            (doc! { "aggregate": "c", "pipeline": [{ "$out": "d" }] }, Repetition::Never),
            (doc! { "mapReduce": "c", "out": "d" }, Repetition::Never),
            (doc! { "createIndexes": "c" }, Repetition::IfNotExecuted),
            (doc! { "insert": "c", "txnNumber": 1_i64, "autocommit": false }, Repetition::Never),
            (doc! { "getMore": 1_i64, "collection": "c" }, Repetition::Never),
        ] {
            assert_eq!(repetition(&RequestHead::new(&message(&body))), expected, "{body}");
        }
    }

    #[test]
    fn only_what_was_not_executed_is_sent_again_unless_it_is_safe() {
        let error = |code: i32| doc! { "ok": 0.0, "code": code };
        let statement = |code: i32| doc! { "ok": 1.0, "n": 1, "writeErrors": [{ "index": 1, "code": code }] };
        let concern = |code: i32| doc! { "ok": 1.0, "n": 1, "writeConcernError": { "code": code } };
        for (reply, safe, not_executed) in [
            (error(10107), true, true),
            (error(13435), true, true),
            (error(11602), true, false),
            (error(189), true, false),
            (error(91), true, false),
            (statement(189), true, false),
            (statement(10107), true, false),
            (concern(11602), true, false),
            (concern(64), false, false),
            (statement(11000), false, false),
            (error(112), false, false),
            (error(43), false, false),
            (doc! { "ok": 1.0, "n": 1 }, false, false),
        ] {
            let frame = message(&reply);
            assert_eq!(is_to_be_repeated(&frame, Repetition::Safe), safe, "{reply}");
            assert_eq!(is_to_be_repeated(&frame, Repetition::IfNotExecuted), not_executed, "{reply}");
            assert!(!is_to_be_repeated(&frame, Repetition::Never), "{reply}");
        }
    }

    #[test]
    fn the_reply_of_a_lost_member_has_the_label_of_its_request() {
        for (body, label) in [
            (doc! { "commitTransaction": 1, "autocommit": false }, Some("RetryableWriteError")),
            (doc! { "insert": "c", "txnNumber": 1_i64 }, Some("RetryableWriteError")),
            (doc! { "insert": "c", "txnNumber": 1_i64, "autocommit": false }, Some("TransientTransactionError")),
            (doc! { "getMore": 1_i64 }, Some("ResumableChangeStreamError")),
            (doc! { "insert": "c" }, None),
        ] {
            let reply = lost_reply(&RequestHead::new(&message(&body))).unwrap();
            let reply = bson::Document::from_reader(crate::wire::op_msg::Message::parse(&reply).unwrap().body).unwrap();
            assert_eq!(reply.get_i32("code").unwrap(), 6);
            let labels = reply.get_array("errorLabels").ok().map(|labels| labels[0].as_str().unwrap());
            assert_eq!(labels, label, "{body}");
        }
    }
}
