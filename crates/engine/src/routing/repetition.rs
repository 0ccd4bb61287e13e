//! Which requests a router sends again after the member that had them stopped being primary or was lost, and what
//! clients get for the others.

use super::destination::is_read_of_server;
use crate::command::{Reply, code, error_reply};
use crate::document::{Document, Element, Value, Writer};
use crate::request_head::RequestHead;
use crate::retried;
use crate::server_errors::{NO_WRITES, RETRYABLE_WRITE, TRANSIENT, is_state_change, is_state_change_code};
use crate::wire::{Header, OpCode};

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
fn repetition(head: &RequestHead<'_>) -> Repetition {
    match head.name() {
        // A driver sends it again with write concern "majority" (driver specification "Transactions").
        Some(b"commitTransaction") => Repetition::Never,
        // The pipeline may write, in the body or in a section after it, and what it wrote would be written twice.
        Some(b"aggregate") if !head.ends_with_body() || retried(head).is_none() => Repetition::Never,
        Some(b"getMore" | b"mapReduce" | b"mapreduce") => Repetition::Never,
        _ if retried(head).is_some() => Repetition::Safe,
        _ if head.fields().has_autocommit => Repetition::Never,
        Some(b"killCursors") => Repetition::Safe,
        Some(name) if is_read_of_server(name) => Repetition::Safe,
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
            of_statement.chain(of_concern).chain(of_command).any(is_state_change_code)
        }
    }
}

fn code_of(error: Document<'_>) -> Option<i32> {
    error.get("code")?.as_i32()
}

/// NotWritablePrimary and NotPrimaryNoSecondaryOk.
fn is_before_execution(error: i32) -> bool {
    matches!(error, code::NOT_WRITABLE_PRIMARY | 13435)
}

/// Returns the reply with another code, if it is one by which drivers take a server for no primary any more, or for one
/// that shuts down: the router is neither. The labels, which tell the driver what to do, stay.
#[must_use]
pub fn without_state_change(reply: &[u8]) -> Option<Vec<u8>> {
    let reply = Reply::parse(reply).ok()?;
    let concern = reply.write_concern_error().and_then(Value::as_document);
    let is_hidden = is_state_change(&reply) && !reply.is_ok();
    if !is_hidden && !concern.and_then(code_of).is_some_and(is_state_change_code) {
        return None;
    }
    let write = |w: &mut Writer<'_>, element: Element<'_>| match element.key {
        b"code" => w.int32("code", code::HOST_UNREACHABLE),
        b"codeName" => w.string("codeName", code::name(code::HOST_UNREACHABLE).unwrap_or_default()),
        b"errmsg" => {
            let text = element.value.as_str().unwrap_or_default();
            w.string("errmsg", format!("docward: the member stopped being primary, or shut down: {text}"));
        }
        _ => w.element(element),
    };
    Some(reply.with_body(reply.message.header.response_to, |w| {
        for element in reply.body.elements() {
            match (element.key, element.value.as_document()) {
                (b"writeConcernError", Some(concern)) if code_of(concern).is_some_and(is_state_change_code) => {
                    w.nested("writeConcernError", |w| concern.elements().for_each(|element| write(w, element)));
                }
                // The member's, not the router's.
                (b"topologyVersion", _) => {}
                _ if is_hidden => write(w, element),
                _ => w.element(element),
            }
        }
    }))
}

/// Whether a request belongs to a transaction, which is gone with its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InTransaction {
    No,
    /// It begins, continues or commits one.
    Yes,
    Aborts,
}

/// What becomes of a request whose member was lost after the request had been sent, and before it replied.
#[derive(Debug, Clone, Copy)]
pub struct AfterLoss {
    /// Of the request.
    pub header: Header,
    pub repetition: Repetition,
    label: Option<&'static str>,
    pub in_transaction: InTransaction,
}

impl AfterLoss {
    /// Returns `None` if the request has no header, or its body is not all here.
    #[must_use]
    pub fn of_request(head: &RequestHead<'_>) -> Option<Self> {
        let fields = head.fields();
        let label = match head.name() {
            Some(b"commitTransaction" | b"abortTransaction") => Some(RETRYABLE_WRITE),
            _ if fields.has_autocommit => Some(TRANSIENT),
            Some(b"getMore") => Some(RESUMABLE),
            _ if fields.transaction_number.is_some() => Some(RETRYABLE_WRITE),
            _ => None,
        };
        let in_transaction = match head.name() {
            _ if !fields.has_autocommit => InTransaction::No,
            Some(b"abortTransaction") => InTransaction::Aborts,
            _ => InTransaction::Yes,
        };
        let header = head.header?;
        if header.op_code == OpCode::Msg && head.whole_body().is_none() {
            return None;
        }
        Some(Self { header, repetition: repetition(head), label, in_transaction })
    }

    /// Returns whether it is a write that a driver numbers and sends again.
    #[must_use]
    pub fn is_numbered_write(&self) -> bool {
        self.label == Some(RETRYABLE_WRITE) && self.in_transaction == InTransaction::No
    }

    /// Returns the reply to a request that is not sent again. Whether it was executed is unknown. Code 6 leaves the
    /// driver's other connections as they are.
    #[must_use]
    pub fn reply(&self) -> Vec<u8> {
        self.with_text(
            "the member that had the request was lost before it replied; whether the request was executed is unknown",
        )
    }

    /// Returns the reply to a getMore whose cursor no member has that answers, while others do not. CursorNotFound would mean
    /// that it is gone.
    #[must_use]
    pub fn reply_without_cursor(&self) -> Vec<u8> {
        self.with_text("no member that answers has the cursor, and a member does not answer; nothing was executed")
    }

    fn with_text(&self, text: &str) -> Vec<u8> {
        labelled_error(self.header, code::HOST_UNREACHABLE, &format!("docward: {text}"), self.label.as_slice())
    }

    /// Returns an error for want of a connection as the client gets it; `None`: as it is. `was_sent`: docward has sent the
    /// request before. Otherwise it was not executed, but a driver may repeat an earlier attempt that was. If no member could
    /// be asked (code 133), what became of a commit is unknown, which some drivers know by the code only, and for a numbered
    /// write drivers report the first error (`NoWritesPerformed`, driver specification "Retryable Writes"; without
    /// `RetryableWriteError` beside it, Go's took a first attempt for executed, GODRIVER-4088).
    #[must_use]
    pub fn labelled(&self, reply: &[u8], was_sent: bool) -> Option<Vec<u8>> {
        let reply = Reply::parse(reply).ok()?;
        if reply.is_ok() {
            return None;
        }
        if was_sent {
            return Some(self.reply());
        }
        let is_plain = reply.body.get("errorLabels").is_none();
        if !is_plain || reply.code() != Some(code::FAILED_TO_SATISFY_READ_PREFERENCE) {
            return None;
        }
        let (error_code, labels): (i32, &[&str]) = match (self.in_transaction, self.label?) {
            (InTransaction::Yes, RETRYABLE_WRITE) => (code::HOST_UNREACHABLE, &[RETRYABLE_WRITE]),
            (InTransaction::No, RETRYABLE_WRITE) => {
                (code::FAILED_TO_SATISFY_READ_PREFERENCE, &[RETRYABLE_WRITE, NO_WRITES])
            }
            (InTransaction::Aborts, _) => return None,
            (_, label) => (code::FAILED_TO_SATISFY_READ_PREFERENCE, &[label]),
        };
        let text = reply.body.get("errmsg").and_then(Value::as_str).unwrap_or_default();
        Some(labelled_error(self.header, error_code, text, labels))
    }
}

fn labelled_error(request: Header, error_code: i32, text: &str, labels: &[&str]) -> Vec<u8> {
    error_reply(request, error_code, text, |w| {
        if !labels.is_empty() {
            w.array("errorLabels", |array| labels.iter().for_each(|label| array.string(label)));
        }
    })
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
            (doc! { "connectionStatus": 1 }, Repetition::Safe),
            (doc! { "killCursors": "c", "cursors": [1_i64] }, Repetition::Safe),
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
    fn no_client_takes_the_router_for_a_member_that_is_gone() {
        let of = |body: &bson::Document| {
            let hidden = without_state_change(&message(body))?;
            Some(bson::Document::from_reader(crate::wire::op_msg::Message::parse(&hidden).unwrap().body).unwrap())
        };
        for code in [91, 189, 10107, 11600, 11602, 13435, 13436, 10058] {
            let error = doc! {
                "ok": 0.0, "errmsg": "over", "code": code, "codeName": "X", "errorLabels": ["L"], "topologyVersion": {},
                "operationTime": 1,
            };
            let expected = doc! {
                "ok": 0.0, "errmsg": "docward: the member stopped being primary, or shut down: over", "code": 6,
                "codeName": "HostUnreachable", "errorLabels": ["L"], "operationTime": 1,
            };
            assert_eq!(of(&error), Some(expected));
            let concern = doc! { "ok": 1.0, "n": 1, "writeConcernError": { "code": code, "errmsg": "over" } };
            let hidden = of(&concern).unwrap();
            assert_eq!((hidden.get_i32("n").unwrap(), hidden.get_f64("ok").unwrap()), (1, 1.0));
            assert_eq!(hidden.get_document("writeConcernError").unwrap().get_i32("code").unwrap(), 6);
        }
        for passed in [
            doc! { "ok": 1.0, "n": 1 },
            doc! { "ok": 0.0, "code": 11000 },
            doc! { "ok": 1.0, "writeConcernError": { "code": 64 } },
        ] {
            assert_eq!(of(&passed), None, "{passed}");
        }
    }

    #[test]
    fn errors_have_the_labels_of_their_request() {
        let (retryable, transient) = (vec!["RetryableWriteError"], vec!["TransientTransactionError"]);
        let resumable = vec!["ResumableChangeStreamError"];
        for (body, lost, not_sent) in [
            (doc! { "commitTransaction": 1, "autocommit": false }, retryable.clone(), (6, retryable.clone())),
            (doc! { "abortTransaction": 1, "autocommit": false }, retryable.clone(), (133, vec![])),
            (
                doc! { "insert": "c", "txnNumber": 1_i64 },
                retryable.clone(),
                (133, vec!["RetryableWriteError", "NoWritesPerformed"]),
            ),
            (
                doc! { "insert": "c", "txnNumber": 1_i64, "autocommit": false },
                transient.clone(),
                (133, transient.clone()),
            ),
            (doc! { "getMore": 1_i64 }, resumable.clone(), (133, resumable)),
            (doc! { "getMore": 1_i64, "autocommit": false }, transient.clone(), (133, transient)),
            (doc! { "insert": "c" }, vec![], (133, vec![])),
            (doc! { "find": "c" }, vec![], (133, vec![])),
        ] {
            let request = message(&body);
            let request = AfterLoss::of_request(&RequestHead::new(&request)).unwrap();
            let plain = error_reply(request.header, 133, "no primary", |_| {});
            let labelled = |was_sent| request.labelled(&plain, was_sent).unwrap_or_else(|| plain.clone());
            let lost = (6, lost);
            for (reply, expected) in [(request.reply(), &lost), (labelled(true), &lost), (labelled(false), &not_sent)] {
                let reply = crate::wire::op_msg::Message::parse(&reply).unwrap().body;
                let reply = bson::Document::from_reader(reply).unwrap();
                let labels = reply.get_array("errorLabels").ok().into_iter().flatten();
                let labels = labels.map(|label| label.as_str().unwrap()).collect();
                assert_eq!(&(reply.get_i32("code").unwrap(), labels), expected, "{body}");
            }
            for other in [50, 462] {
                let other = error_reply(request.header, other, "", |_| {});
                assert_eq!(request.labelled(&other, false), None, "{body}");
                assert_eq!(request.labelled(&other, true), Some(request.reply()), "{body}");
            }
        }
    }
}
