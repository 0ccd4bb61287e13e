//! `replacement`: applications save whole documents that they read before, while others update by operators.

use bson::{Document, doc};

use super::writer::{Operation, Writer};
use super::{Stored, WRITERS, Workload, written_once};
use crate::journal::Outcome;
use crate::verify::integer;

/// Stored documents that all writers change.
const DOCUMENTS: i32 = 4;

/// `reject`: pushed items survive, and of several first saves of a document one inserts.
pub(super) struct Reject;

impl Workload for Reject {
    fn name(&self) -> &'static str {
        "replacement-reject"
    }

    fn settings(&self, _block: usize) -> String {
        "replacement: { policy: reject }".into()
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.insert(self.name(), (0..DOCUMENTS).map(|id| doc! { "_id": id, "tokens": [] })).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        let (token, key) = (writer.token(), doc! { "_id": writer.below(DOCUMENTS as usize) as i32 });
        match writer.below(3) {
            0 => {
                let change = doc! { "$push": { "tokens": &token } };
                writer.record("push", [token], doc! {}, |writer| writer.update(key, change));
            }
            1 => {
                let Some(mut saved) = writer.find(key.clone()) else { return };
                saved.insert("saved", &token);
                writer.record("save", [token], doc! {}, |writer| writer.replace(key, saved, false));
            }
            // The writers count in the same way, so they pick the same documents.
            _ => {
                let key = doc! { "_id": format!("new-{}", writer.history.len()) };
                let document = doc! { "first": &token };
                writer.record("first save", [token], doc! {}, |writer| writer.replace(key, document, true));
            }
        }
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let documents = stored.of(self.name());
        let pushed = documents.iter().filter_map(|document| document.get_array("tokens").ok()).flatten();
        let pushed = pushed.map(|token| token.as_str().unwrap().to_owned());
        let texts = |field: &'static str| documents.iter().filter_map(move |document| document.get_str(field).ok());
        written_once(history, pushed.chain(texts("saved").chain(texts("first")).map(str::to_owned)))
    }

    fn anomaly(&self) -> &'static str {
        "is there 0 times: Acknowledged"
    }
}

/// `merge`: each writer saves a document with the fields it knows, and the other fields survive.
pub(super) struct Merge;

impl Workload for Merge {
    fn name(&self) -> &'static str {
        "replacement-merge"
    }

    fn settings(&self, _block: usize) -> String {
        "replacement: { policy: merge }".into()
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.insert(self.name(), (0..DOCUMENTS).map(|id| doc! { "_id": id })).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        let (token, id) = (writer.token(), writer.below(DOCUMENTS as usize) as i32);
        let saves = writer.below(2) == 0;
        let field = format!("{}{}", if saves { "saved" } else { "set" }, writer.number);
        let fields = doc! { &field: &token };
        let details = doc! { "id": id, "field": field, "value": token };
        let key = doc! { "_id": id };
        match saves {
            true => writer.record("save", [], details, |writer| writer.replace(key, fields, false)),
            false => writer.record("set", [], details, |writer| writer.update(key, doc! { "$set": fields })),
        };
    }

    /// Each field has one writer, so it holds the last acknowledged value, or one whose writer got no reply.
    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let mut faults = Vec::new();
        for document in stored.of(self.name()) {
            let id = document.get_i32("_id").unwrap();
            let fields = (0..WRITERS).flat_map(|writer| ["saved", "set"].map(|kind| format!("{kind}{writer}")));
            for field in fields {
                let of_field = |operation: &&Operation| {
                    operation.details.get("id") == document.get("_id")
                        && operation.details.get_str("field").is_ok_and(|name| name == field)
                };
                let writes: Vec<&Operation> = history.iter().filter(of_field).collect();
                let last = writes.iter().rfind(|operation| operation.reply.is_acknowledged());
                let may_be = |operation: &&&Operation| operation.reply.outcome == Outcome::Unknown;
                let values = last.into_iter().chain(writes.iter().filter(may_be));
                let value = document.get_str(&field).ok();
                let mut values = values.map(|operation| operation.details.get_str("value").ok());
                let is_possible = value.is_none() && last.is_none() || values.any(|possible| possible == value);
                if !is_possible {
                    faults.push(format!("{field} of document {id} is {value:?} after {last:?}"));
                }
            }
        }
        faults
    }

    fn anomaly(&self) -> &'static str {
        " is None after Some"
    }
}

/// `check_version`: every write increments the version, and a save with an older version than the stored one is
/// rejected.
pub(super) struct CheckVersion;

impl Workload for CheckVersion {
    fn name(&self) -> &'static str {
        "replacement-check-version"
    }

    fn settings(&self, _block: usize) -> String {
        "replacement: { policy: check_version, version: version }".into()
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.insert(self.name(), (0..DOCUMENTS).map(|id| doc! { "_id": id, "tokens": [] })).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        let (token, mut key) = (writer.token(), doc! { "_id": writer.below(DOCUMENTS as usize) as i32 });
        if writer.below(4) == 0 {
            let change = doc! { "$push": { "tokens": { "token": &token } } };
            writer.record("push", [token], doc! {}, |writer| writer.update(key, change));
            return;
        }
        let Some(mut saved) = writer.find(key.clone()) else { return };
        let version = saved.get("version").cloned();
        let read = version.as_ref().and_then(integer).unwrap_or(0);
        saved.get_array_mut("tokens").unwrap().push(doc! { "token": &token, "read": read }.into());
        // Some check the version themselves.
        let kind = match version.filter(|_| writer.below(3) == 0) {
            Some(version) => {
                key.insert("version", version);
                "checked save"
            }
            None => "save",
        };
        writer.record(kind, [token], doc! {}, |writer| writer.replace(key, saved, false));
    }

    /// Each write pushes one token and increments the version once, so the version that a save read is its token's
    /// index.
    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let tokens = |document: &Document| document.get_array("tokens").unwrap().clone();
        let all = stored.of(self.name()).iter().flat_map(tokens);
        let all = all.map(|one| one.as_document().unwrap().get_str("token").unwrap().to_owned());
        let mut faults = written_once(history, all);
        for document in stored.of(self.name()) {
            let tokens = tokens(document);
            let version = document.get("version").and_then(integer).unwrap_or(0);
            if version != tokens.len() as i64 {
                faults.push(format!(
                    "{} writes make version {version} of {}",
                    tokens.len(),
                    document.get("_id").unwrap()
                ));
            }
            for (place, token) in (0_i64..).zip(&tokens) {
                let token = token.as_document().unwrap();
                if token.get("read").and_then(integer).is_some_and(|read| read != place) {
                    faults.push(format!("write number {place} had not read the version before it: {token}"));
                }
            }
        }
        faults
    }

    fn anomaly(&self) -> &'static str {
        "is there 0 times: Acknowledged"
    }
}
