//! Errors of the server for a part of the client's command, or for a query of docward's own in its place.
//!
//! A label lets the client's driver send the whole command again. So the client gets one only if that is right: if
//! nothing was executed, or if the server recognises what was (a retryable write), or if its transaction is aborted.

use memchr::memmem;
use smallvec::SmallVec;

use crate::command::{Command, Reply, WriteForm, code};
use crate::document::{Document, Value};

/// The label that makes drivers retry a write with the same number.
pub(super) const RETRYABLE_WRITE: &str = "RetryableWriteError";
pub(super) const TRANSIENT: &str = "TransientTransactionError";
pub(super) const UNKNOWN_COMMIT: &str = "UnknownTransactionCommitResult";
/// The server has not begun the command, so any command can be repeated (driver specification "Client Backpressure").
const RETRYABLE: &str = "RetryableError";
pub(super) const NO_WRITES: &str = "NoWritesPerformed";

pub(super) fn has_label(reply: &Reply<'_>, label: &str) -> bool {
    labels(reply).any(|one| one == label)
}

fn labels<'r>(reply: &Reply<'r>) -> impl Iterator<Item = &'r str> {
    let labels = reply.body.get("errorLabels").and_then(Value::as_array).unwrap_or(Document::EMPTY);
    labels.values().filter_map(Value::as_str)
}

/// Whether the server is no longer primary or is shutting down: another member, or the same one later, knows the
/// transaction's outcome. The codes are from the driver specifications (SDAM, "State Change Errors").
pub(super) fn is_state_change(reply: &Reply<'_>) -> bool {
    reply.code().is_some_and(is_state_change_code)
}

/// See [`is_state_change`].
pub(super) fn is_state_change_code(code: i32) -> bool {
    matches!(code, 91 | 189 | 10107 | 11600 | 11602 | 13435 | 13436 | 10058)
}

/// Whether a retry may succeed where the command failed.
pub(super) fn is_passing(reply: &Reply<'_>) -> bool {
    /// The other codes of the driver specification "Retryable Writes".
    const NETWORK: [i32; 5] = [6, 7, 89, 262, 9001];
    is_state_change(reply)
        || reply.code().is_some_and(|code| NETWORK.contains(&code))
        || [RETRYABLE, RETRYABLE_WRITE, TRANSIENT].into_iter().any(|label| has_label(reply, label))
}

/// Whether a member was lost behind a router, docward's or a mongos, before or after it executed the command: the next
/// command goes to another one.
pub(super) fn is_lost_member(reply: &Reply<'_>) -> bool {
    let concern = reply.write_concern_error().and_then(Value::as_document);
    let of_concern = concern.and_then(|concern| concern.get("code")?.as_i32());
    of_concern.or_else(|| reply.code()) == Some(code::HOST_UNREACHABLE)
}

/// The same for a reply that is not parsed.
pub(super) fn is_lost_member_frame(frame: &[u8]) -> bool {
    Reply::parse(frame).is_ok_and(|reply| is_lost_member(&reply))
}

/// Whether a cursor is gone because its member is.
pub(super) fn is_lost_cursor(reply: &Reply<'_>) -> bool {
    !reply.is_ok() && (reply.code() == Some(code::CURSOR_NOT_FOUND) || is_lost_member(reply))
}

/// Returns why a command failed in a transaction, as half a sentence: where there are none.
pub(super) fn without_transactions(code: i32) -> Option<&'static str> {
    match code {
        code::ILLEGAL_OPERATION => Some("only replica sets and sharded clusters have (one member is enough)"),
        code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION => {
            Some("this collection does not have: it is capped, a time series or of the server's own")
        }
        _ => None,
    }
}

/// Whether the server ended the command from outside, so that the error shows nothing about it.
pub(super) fn is_interruption(reply: &Reply<'_>) -> bool {
    /// MaxTimeMSExpired, ClientDisconnect, Interrupted, ClientMarkedKilled.
    const ENDED: [i32; 4] = [50, 279, 11601, 46841];
    reply.code().is_some_and(|code| ENDED.contains(&code))
}

/// Whether the server has not begun the command, because it is overloaded.
pub(super) fn is_overload(reply: &Reply<'_>) -> bool {
    !reply.is_ok() && has_label(reply, RETRYABLE)
}

/// The same for a reply that is not parsed, which is seldom such an error.
pub(super) fn is_overload_frame(frame: &[u8]) -> bool {
    memmem::find(frame, RETRYABLE.as_bytes()).is_some() && Reply::parse(frame).is_ok_and(|reply| is_overload(&reply))
}

/// Returns an error as the client's own command gets it. `is_half_done`: a part of it has been executed, and if it
/// belongs to a transaction, docward aborts that.
pub(super) fn for_client(command: &Command<'_>, reply: &Reply<'_>, is_half_done: bool) -> Vec<u8> {
    let session = command.session();
    let is_kept = |label: &&str| match *label {
        TRANSIENT => session.in_transaction,
        RETRYABLE_WRITE => session.is_retryable_write(),
        RETRYABLE | NO_WRITES => !is_half_done,
        UNKNOWN_COMMIT => false,
        _ => true,
    };
    let mut kept: SmallVec<[&str; 4]> = labels(reply).filter(is_kept).collect();
    if is_passing(reply) && !kept.contains(&RETRYABLE) {
        let added = match session {
            _ if session.in_transaction => Some(TRANSIENT),
            _ if session.is_retryable_write() => Some(RETRYABLE_WRITE),
            _ => None,
        };
        kept.extend(added.filter(|added| !labels(reply).any(|label| label == *added)));
    }
    // A query finds that it needs a primary where a write finds that this is none.
    let is_write = WriteForm::for_class(command.class).is_some();
    let is_renamed = is_write && matches!(reply.code(), Some(13435 | 13436));
    reply.with_body(command.message.header.request_id, |w| {
        for element in reply.body.elements() {
            match (element.key, element.value.as_str()) {
                (b"errorLabels", _) => {}
                (b"code", _) if is_renamed => w.int32("code", code::NOT_WRITABLE_PRIMARY),
                (b"codeName", _) if is_renamed => {
                    w.string("codeName", code::name(code::NOT_WRITABLE_PRIMARY).unwrap_or_default());
                }
                // Without `helloOk` the server's errors have the older word.
                (b"errmsg", Some(text)) if is_renamed => {
                    w.string("errmsg", if text.contains("master") { "not master" } else { "not primary" });
                }
                _ => w.element(element),
            }
        }
        if !kept.is_empty() {
            w.array("errorLabels", |labels| kept.iter().for_each(|label| labels.string(label)));
        }
    })
}
