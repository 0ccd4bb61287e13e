//! Reads replies: errors, docward's own rejections, and what two replies have in common.

use bson::{Bson, Document};

use super::check::Finding;
use super::show;

/// docward's reason for not sending a statement.
pub(super) struct Rejection {
    pub(super) index: i32,
    pub(super) pattern: String,
    pub(super) reason: String,
}

impl Rejection {
    pub(super) fn finding(&self) -> Finding {
        Finding::new("rejected although harmless", &self.pattern, self.reason.clone())
    }
}

/// The reply without the fields that differ in every reply, the one that marks a retry, and the texts of errors, some of
/// which contain the time or a reserved number.
pub(super) fn without_times(reply: Option<&Document>) -> String {
    let Some(mut reply) = reply.cloned() else { return "nothing".to_owned() };
    for name in ["$clusterTime", "operationTime", "electionId", "opTime", "retriedStmtIds", "retriedStmtId"] {
        reply.remove(name);
    }
    let without_text = |error: &mut Document| {
        error.remove("errmsg");
        error.remove("errInfo");
    };
    without_text(&mut reply);
    let entries = reply.get_array_mut("writeErrors").into_iter().flatten();
    entries.filter_map(Bson::as_document_mut).for_each(without_text);
    show::document(&reply)
}

/// The reply as it would be to a command with only the `kept` statements.
pub(super) fn without_rejections(reply: &Document, kept: &[usize]) -> Document {
    let mut reply = reply.clone();
    for name in ["writeErrors", "upserted"] {
        let Ok(entries) = reply.get_array_mut(name) else { continue };
        entries.retain(|entry| !entry.as_document().is_some_and(is_rejection));
        for entry in entries.iter_mut().filter_map(Bson::as_document_mut) {
            // An entry of a statement that must not be executed gets an index that no direct reply has.
            let index = entry.get_i32("index").ok().and_then(|index| usize::try_from(index).ok());
            let position = kept.iter().position(|kept| Some(*kept) == index);
            entry.insert("index", position.map_or(-2, |position| position as i32));
        }
        if entries.is_empty() {
            reply.remove(name);
        }
    }
    reply
}

pub(super) fn codes(errors: &[(i32, i32)]) -> Vec<i32> {
    errors.iter().map(|(_, code)| *code).collect()
}

/// Index and code of every error in a reply; -1 for the command's own error.
pub(super) fn errors(reply: &Document) -> Vec<(i32, i32)> {
    let mut found = Vec::new();
    if !support::driver::ok(reply) {
        found.push((-1, reply.get_i32("code").unwrap_or(0)));
    }
    for error in reply.get_array("writeErrors").into_iter().flatten().filter_map(Bson::as_document) {
        found.push((error.get_i32("index").unwrap_or(-2), error.get_i32("code").unwrap_or(0)));
    }
    found
}

/// The indexes of the statements that docward has rejected.
pub(super) fn rejected_statements(reply: &Document) -> Vec<usize> {
    rejections(reply).into_iter().filter_map(|rejection| usize::try_from(rejection.index).ok()).collect()
}

pub(super) fn rejections(reply: &Document) -> Vec<Rejection> {
    all_errors(reply).filter(|error| is_rejection(error)).filter_map(rejection).collect()
}

/// The first rejection of a validator, whose text is a rule's.
pub(super) fn rejection_of_validator(reply: &Document) -> Option<Rejection> {
    let has_details = |error: &&Document| error.get_document("errInfo").is_ok_and(|info| info.contains_key("details"));
    all_errors(reply).filter(has_details).find_map(rejection)
}

fn all_errors(reply: &Document) -> impl Iterator<Item = &Document> {
    let errors = reply.get_array("writeErrors").into_iter().flatten().filter_map(Bson::as_document);
    std::iter::once(reply).chain(errors)
}

fn rejection(error: &Document) -> Option<Rejection> {
    let info = error.get_document("errInfo").ok()?.get_document("docward").ok()?;
    let text = |name: &str| info.get_str(name).unwrap_or("").to_owned();
    Some(Rejection { index: error.get_i32("index").unwrap_or(0), pattern: text("pattern"), reason: text("reason") })
}

/// Whether it is an error of docward's own, as a reply or as an entry of `writeErrors`.
fn is_rejection(error: &Document) -> bool {
    let has_reason = error.get_document("errInfo").is_ok_and(|info| info.contains_key("docward"));
    has_reason && matches!(error.get_i32("code"), Ok(121))
}
