//! `history`: documents that many writers change. Each acknowledged state is stored, or was, and then has one entry.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::{Document, doc};

use super::writer::{Operation, Writer};
use super::{PROTECTED, Stored, Workload, written_once};
use support::process::TIMEOUT;

pub(super) struct History;

const ENTRIES: &str = "history-entries";
const DOCUMENTS: i32 = 10;

impl Workload for History {
    fn name(&self) -> &'static str {
        "history"
    }

    fn settings(&self, block: usize) -> String {
        format!("history: {{ into: {PROTECTED}.{ENTRIES}, keep: {} }}", 1_000_000 + block)
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.insert(self.name(), (0..DOCUMENTS).map(|id| doc! { "_id": id })).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        let (token, key) = (writer.token(), doc! { "_id": writer.below(DOCUMENTS as usize) as i32 });
        let change = doc! { "$set": { "token": &token } };
        match writer.below(4) {
            0 => {
                let document = doc! { "token": &token, "text": "x".repeat(100) };
                writer.record("replace", [token], doc! {}, |writer| writer.replace(key, document, false));
            }
            1 => {
                let name = self.name();
                writer.record("find", [token], doc! {}, |writer| writer.find_and_update(name, key, change, false));
            }
            _ => _ = writer.record("update", [token], doc! {}, |writer| writer.update(key, change)),
        }
    }

    fn settles_within(&self) -> Duration {
        TIMEOUT
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let entries = stored.of(ENTRIES);
        let token = |document: &Document| document.get_str("token").ok().map(str::to_owned);
        let previous = entries.iter().filter_map(|entry| token(entry.get_document("document").ok()?));
        let mut faults = written_once(history, previous.chain(stored.of(self.name()).iter().filter_map(token)));
        let gaps = entries.iter().filter(|entry| entry.get_document("_id").unwrap().contains_key("gap")).skip(1);
        faults.extend(gaps.map(|gap| format!("a gap: {gap}")));
        let operations: BTreeMap<&String, &Operation> =
            history.iter().filter_map(|operation| Some((operation.tokens.first()?, operation))).collect();
        for id in 0..DOCUMENTS {
            let mut before: Option<(i64, &Operation)> = None;
            for (index, entry) in of_document(entries, id).into_iter().enumerate() {
                let revision = revision(entry);
                if revision != index as i64 + 1 {
                    faults.push(format!("a revision is missing or double: {entry}"));
                    break;
                }
                let state = entry.get_document("document").ok().and_then(token);
                let Some(operation) = state.as_ref().and_then(|token| operations.get(token)) else { continue };
                if let Some((earlier, _)) = before.filter(|(_, before)| operation.ended < before.began) {
                    faults.push(format!("revisions {earlier} and {revision} of {id} are in the wrong order"));
                }
                before = Some((revision, operation));
            }
        }
        faults
    }

    fn anomaly(&self) -> &'static str {
        "is there 0 times"
    }
}

fn revision(entry: &Document) -> i64 {
    let revision = entry.get_document("_id").unwrap().get("revision").unwrap();
    revision.as_i64().or_else(|| revision.as_i32().map(i64::from)).unwrap()
}

fn of_document(entries: &[Document], id: i32) -> Vec<&Document> {
    let is_its = |entry: &&Document| entry.get_document("_id").unwrap().get_i32("of").is_ok_and(|of| of == id);
    let mut entries: Vec<&Document> = entries.iter().filter(is_its).collect();
    entries.sort_by_key(|entry| revision(entry));
    entries
}
