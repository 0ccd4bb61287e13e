//! The server's error 121 of a validator that holds what rules require (`docward validators`), with the rule's own text.
//!
//! The server names the clause that a document fails, and the clause names its rule. The server's details stay beside
//! docward's.

use memchr::memmem;

use super::rejection_text::{RejectedBy, message_about, write_error_info};
use crate::command::{Reply, code};
use crate::document::{Document, Element, Value, Writer};
use crate::patterns::{MEANING_VARIABLE, RULE_VARIABLE, Rejection, TITLE, rule_in_title};
use crate::rules::RuleSet;

/// Returns the reply with the rules' own texts if such a validator has rejected a document; `None`: the reply is no such one.
#[must_use]
pub fn explain_validators(reply: &[u8], rules: &RuleSet) -> Option<Vec<u8>> {
    // Nearly every reply ends here.
    memmem::find(reply, TITLE.as_bytes())?;
    let reply = Reply::parse(reply).ok()?;
    let is_explained = |error: Document<'_>| rejection(error, rules).is_some();
    let results = reply.first_batch().filter(|_| reply.cursor().is_some_and(is_of_bulk_write));
    let mut errors = reply.write_errors().values().chain(results.unwrap_or(Document::EMPTY).values());
    if !is_explained(reply.body) && !errors.any(|error| error.as_document().is_some_and(is_explained)) {
        return None;
    }
    Some(reply.with_body(reply.message.header.response_to, |w| write_explained(w, reply.body, rules)))
}

/// Writes an error, or a document with errors in it.
fn write_explained(w: &mut Writer<'_>, document: Document<'_>, rules: &RuleSet) {
    let rejected = rejection(document, rules);
    for Element { key, value } in document.elements() {
        match (key, &rejected, value.as_document(), value.as_array()) {
            (b"errmsg", Some(rejected), ..) => w.string(key, message_about(rejected, "document")),
            (b"errInfo", Some(rejected), Some(details), _) => write_error_info(w, rejected, details),
            (b"cursor", None, Some(cursor), _) if is_of_bulk_write(cursor) => {
                w.nested(key, |w| write_explained(w, cursor, rules))
            }
            (b"writeErrors" | b"firstBatch", None, _, Some(errors)) => w.array(key, |a| {
                for error in errors.values() {
                    match error.as_document() {
                        Some(error) => a.nested(|w| write_explained(w, error, rules)),
                        None => a.value(error),
                    }
                }
            }),
            _ => w.value(key, value),
        }
    }
}

/// Whether the documents of a cursor are the results of a bulkWrite (server 8.0), and not what a client reads.
fn is_of_bulk_write(cursor: Document<'_>) -> bool {
    cursor.get("ns").and_then(Value::as_str) == Some("admin.$cmd.bulkWrite")
}

/// Returns the rejection by the first rule whose clause the server names in an error.
fn rejection<'r>(error: Document<'_>, rules: &'r RuleSet) -> Option<RejectedBy<'r>> {
    let is_failure =
        error.get("code").and_then(Value::as_integer) == Some(i64::from(code::DOCUMENT_VALIDATION_FAILURE));
    let info = error.get("errInfo").filter(|_| is_failure)?.as_document()?;
    // Another docward may have explained it.
    let details = info.get("details").filter(|_| info.get("docward").is_none())?.as_document()?;
    let failed = details.get("clausesNotSatisfied").and_then(Value::as_array).unwrap_or(Document::EMPTY);
    // One clause alone is not in a list.
    let clauses = failed.values().filter_map(|clause| clause.as_document()?.get("details")?.as_document());
    clauses.chain([details]).find_map(|clause| {
        let (title, meaning) = text(clause, "title", "description").or_else(|| {
            let path = ["specifiedAs", "$expr", "$let", "vars"];
            let vars = path.into_iter().try_fold(clause, |document, key| document.get(key)?.as_document())?;
            text(vars, RULE_VARIABLE, MEANING_VARIABLE)
        })?;
        let name = rule_in_title(title)?;
        let rule = rules.rules().iter().find(|rule| *rule.name.value == *name)?;
        let reason = format!("the collection's validator demands that {meaning}");
        Some(RejectedBy::new(rule, Rejection::new(reason, "Send a change after which this holds.")))
    })
}

/// The title and the meaning of a clause, which has them in these fields.
fn text<'d>(document: Document<'d>, rule: &str, meaning: &str) -> Option<(&'d str, &'d str)> {
    Some((document.get(rule)?.as_str()?, document.get(meaning)?.as_str()?))
}
