//! `limits`: arrays and documents that many writers push to.

use bson::{Bson, Document, doc};

use super::writer::{Operation, Writer};
use super::{Stored, Workload, written_once};

pub(super) struct Limits;

const DOCUMENTS: i32 = 40;
const ITEMS: usize = 12;
const BYTES: usize = 400;

impl Workload for Limits {
    fn name(&self) -> &'static str {
        "limits"
    }

    fn settings(&self, _block: usize) -> String {
        format!("limits: {{ items: {{ items: {ITEMS} }}, document: {BYTES}B }}")
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.insert(self.name(), (0..DOCUMENTS).map(|id| doc! { "_id": id, "items": [] })).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        // Half of the writes meet at one document, so that it is full soon, also on a slow machine.
        let id = if writer.below(2) == 0 { 0 } else { writer.below(DOCUMENTS as usize) as i32 };
        let (token, key) = (writer.token(), doc! { "_id": id });
        let push = || doc! { "$push": { "items": &token } };
        match writer.below(6) {
            0 => {
                let tokens = (0..3).map(|part| format!("{token}/{part}"));
                let pushed = doc! { "$push": { "items": { "$each": tokens.clone().collect::<Vec<_>>() } } };
                writer.record("three", tokens, doc! {}, |writer| writer.update(key, pushed));
            }
            1 => {
                let added = doc! { "$addToSet": { "items": &token } };
                writer.record("set", [token], doc! {}, |writer| writer.update(key, added));
            }
            2 => {
                let pushed = push();
                writer
                    .record("find", [token], doc! {}, |writer| writer.find_and_update(self.name(), key, pushed, false));
            }
            3 => {
                let pushed = push();
                writer.record("upsert", [token], doc! {}, |writer| writer.upsert(key, pushed));
            }
            _ => {
                let pushed = push();
                writer.record("push", [token], doc! {}, |writer| writer.update(key, pushed));
            }
        }
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let documents = stored.of(self.name());
        let items = |document: &Document| document.get_array("items").cloned().unwrap_or_default();
        let text = |item: Bson| item.as_str().unwrap_or_default().to_owned();
        let mut faults = written_once(history, documents.iter().flat_map(items).map(text));
        for document in documents {
            let (count, bytes) = (items(document).len(), document.to_vec().unwrap().len());
            if count > ITEMS || bytes > BYTES {
                faults.push(format!(
                    "beyond the limit: {count} items, {bytes} bytes in {}",
                    document.get("_id").unwrap()
                ));
            }
        }
        faults
    }

    fn anomaly(&self) -> &'static str {
        "beyond the limit"
    }
}
