//! `timestamps`: writes that arrive out of the order of their source times.

use bson::{Document, doc};

use super::writer::{Operation, Writer};
use super::{Stored, Workload};
use crate::journal::Outcome;

const DOCUMENTS: i32 = 4;

/// One timestamp for each of two fields. The value of a field is its source time.
pub(super) struct PerField;

impl Workload for PerField {
    fn name(&self) -> &'static str {
        "timestamps-field"
    }

    fn settings(&self, _block: usize) -> String {
        "timestamps: { source: at, type: long, fields: [a, b], store: timestamps }".into()
    }

    fn prepare(&self, writer: &mut Writer) {
        let document = |id| doc! { "_id": id, "a": 0_i64, "b": 0_i64, "at": 0_i64 };
        writer.insert(self.name(), (0..DOCUMENTS).map(document)).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        let (time, id) = (writer.time(), writer.below(DOCUMENTS as usize) as i32);
        let (key, next) = (doc! { "_id": id }, (id + 1) % DOCUMENTS);
        let details = |ids: &[i32], fields: &[&str]| doc! { "ids": ids, "fields": fields, "time": time };
        match writer.below(5) {
            0 => {
                let change = doc! { "$set": { "a": time, "at": time } };
                writer.record("one", [], details(&[id], &["a"]), |writer| writer.update(key, change));
            }
            1 => {
                let change = doc! { "$set": { "a": time, "b": time, "at": time } };
                writer.record("both", [], details(&[id], &["a", "b"]), |writer| writer.update(key, change));
            }
            2 => {
                let change = doc! { "$set": { "b": time, "at": time } };
                let update = |writer: &Writer| writer.find_and_update(self.name(), key, change, false);
                writer.record("find", [], details(&[id], &["b"]), update);
            }
            3 => {
                let change = doc! { "$set": { "a": time, "at": time } };
                let both = doc! { "_id": { "$in": [id, next] } };
                writer.record("many", [], details(&[id, next], &["a"]), |writer| writer.update_many(both, change));
            }
            // An application that writes the timestamps itself.
            _ => {
                let change = doc! { "$set": { "b": time, "timestamps.b": time } };
                writer.record("own", [], details(&[id], &["b"]), |writer| writer.update(key, change));
            }
        }
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let mut faults = Vec::new();
        for document in stored.of(self.name()) {
            for field in ["a", "b"] {
                faults.extend(newest(history, document, field));
                let timestamp =
                    document.get_document("timestamps").and_then(|timestamps| timestamps.get_i64(field)).ok();
                if timestamp != document.get_i64(field).ok() {
                    faults.push(format!("the timestamp of {field} is not that of its value: {document}"));
                }
            }
        }
        faults
    }

    fn anomaly(&self) -> &'static str {
        "older"
    }
}

/// The field holds the newest acknowledged time, or a newer one whose writer got no reply.
fn newest(history: &[Operation], document: &Document, field: &str) -> Option<String> {
    let (id, stored) = (document.get("_id").unwrap(), document.get_i64(field).unwrap_or(-1));
    let writes_it = |operation: &&Operation| {
        let names = |list: &str, wanted: &bson::Bson| operation.details.get_array(list).unwrap().contains(wanted);
        names("ids", id) && names("fields", &field.into())
    };
    let time = |operation: &Operation| operation.details.get_i64("time").unwrap();
    let writes: Vec<&Operation> = history.iter().filter(writes_it).collect();
    let acknowledged = writes.iter().filter(|operation| operation.reply.is_acknowledged());
    let newest = acknowledged.map(|operation| time(operation)).max().unwrap_or(0);
    let possible = |operation: &&Operation| operation.reply.outcome != Outcome::Rejected && time(operation) == stored;
    if stored < newest {
        return Some(format!("an older write of {field} won over {newest}: {document}"));
    }
    (stored != 0 && !writes.iter().any(possible)).then(|| format!("no operation wrote this {field}: {document}"))
}

/// One timestamp for the whole document, including saves.
pub(super) struct PerDocument;

impl Workload for PerDocument {
    fn name(&self) -> &'static str {
        "timestamps-document"
    }

    fn settings(&self, _block: usize) -> String {
        "timestamps: { source: at, type: long, per: document, store: timestamp }".into()
    }

    fn prepare(&self, writer: &mut Writer) {
        let document = |id| doc! { "_id": id, "a": 0_i64, "b": 0_i64, "at": 0_i64 };
        writer.insert(self.name(), (0..DOCUMENTS).map(document)).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        let (time, id) = (writer.time(), writer.below(DOCUMENTS as usize) as i32);
        let key = doc! { "_id": id };
        let fields = doc! { "a": time, "b": time, "at": time };
        let details = doc! { "ids": [id], "fields": ["a", "b"], "time": time };
        match writer.below(3) {
            0 => writer.record("save", [], details, |writer| writer.replace(key, fields, true)),
            1 => writer.record("set", [], details, |writer| writer.update(key, doc! { "$set": fields })),
            _ => writer.record("upsert", [], details, |writer| writer.upsert(key, doc! { "$set": fields })),
        };
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let mut faults = Vec::new();
        for document in stored.of(self.name()) {
            faults.extend(newest(history, document, "a"));
            let value = document.get("a");
            if ["b", "at", "timestamp"].iter().any(|field| document.get(field) != value) {
                faults.push(format!("parts of several writes: {document}"));
            }
        }
        faults
    }

    fn anomaly(&self) -> &'static str {
        "older"
    }
}
