//! `schema_version`: old and new code save the same documents.

use bson::{Bson, doc};

use super::writer::{Operation, Writer};
use super::{Stored, Workload};

pub(super) struct SchemaVersion;

const DOCUMENTS: i32 = 60;

impl Workload for SchemaVersion {
    fn name(&self) -> &'static str {
        "schema-version"
    }

    fn settings(&self, _block: usize) -> String {
        "schema_version: { field: v, current: 3, minimum: 2 }".into()
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.insert(self.name(), (0..DOCUMENTS).map(|id| doc! { "_id": id, "v": 2, "name": "" })).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        let (token, id) = (writer.token(), writer.below(DOCUMENTS as usize) as i32);
        let (key, details) = (doc! { "_id": id }, doc! { "id": id });
        match writer.below(12) {
            0 => {
                let new = doc! { "v": 3, "first": token };
                writer.record("new", [], details, |writer| writer.replace(key, new, true));
            }
            1 => {
                let new = doc! { "$set": { "v": 3, "first": token } };
                writer.record("new", [], details, |writer| writer.update(key, new));
            }
            2..6 => {
                let old = doc! { "v": 2, "name": token };
                writer.record("old", [], doc! {}, |writer| writer.replace(key, old, true));
            }
            6..8 => {
                let old = doc! { "$set": { "name": token } };
                writer.record("old", [], doc! {}, |writer| writer.find_and_update(self.name(), key, old, false));
            }
            _ => {
                let old = doc! { "$set": { "v": 2, "name": token } };
                writer.record("old", [], doc! {}, |writer| writer.update(key, old));
            }
        }
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let is_new = |id: Option<&Bson>| {
            let new = |operation: &&Operation| operation.kind == "new" && operation.reply.is_acknowledged();
            history.iter().filter(new).any(|operation| operation.details.get("id") == id)
        };
        let mut faults = Vec::new();
        for document in stored.of(self.name()) {
            let version = document.get_i32("v").unwrap_or_default();
            if is_new(document.get("_id")) && version < 3 {
                faults.push(format!("old code wrote over new code: {document}"));
            }
            // Saves of new code do not keep the old name.
            if version == 3 && !document.contains_key("first") {
                faults.push(format!("old code wrote over new code: {document}"));
            }
        }
        faults
    }

    fn anomaly(&self) -> &'static str {
        "old code wrote over new code"
    }
}
