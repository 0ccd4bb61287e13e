//! `frozen`: several writers give each document an owner, and the first one stays.

use bson::doc;

use super::writer::{Operation, Writer};
use super::{Stored, Workload};
use crate::journal::Outcome;

pub(super) struct Frozen;

const DOCUMENTS: usize = 400;

impl Workload for Frozen {
    fn name(&self) -> &'static str {
        "frozen"
    }

    fn settings(&self, _block: usize) -> String {
        "frozen: owner".into()
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.insert(self.name(), (0..DOCUMENTS).map(|id| doc! { "_id": id as i32 })).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        let (owner, id) = (writer.token(), writer.below(DOCUMENTS) as i32);
        let (key, details) = (doc! { "_id": id }, doc! { "id": id, "owner": &owner });
        match writer.below(6) {
            0 => {
                let document = doc! { "owner": owner };
                writer.record("save", [], details, |writer| writer.replace(key, document, true));
            }
            1 => {
                let owner = doc! { "$concat": ["", owner] };
                let change = vec![doc! { "$set": { "owner": owner } }];
                writer.record("pipeline", [], details, |writer| writer.update(key, change));
            }
            2 => {
                let change = doc! { "$set": { "owner": owner } };
                writer.record("find", [], details, |writer| writer.find_and_update(self.name(), key, change, false));
            }
            3 => {
                let change = doc! { "$unset": { "owner": "" } };
                writer.record("unset", [], doc! {}, |writer| writer.update(key, change));
            }
            4 => {
                let change = doc! { "$inc": { "visits": 1 } };
                writer.record("visit", [], doc! {}, |writer| writer.update(key, change));
            }
            _ => {
                let change = doc! { "$set": { "owner": owner } };
                writer.record("set", [], details, |writer| writer.update(key, change));
            }
        }
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let owner_of = |id: i32| {
            let document =
                stored.of(self.name()).iter().find(|document| document.get_i32("_id").is_ok_and(|known| known == id));
            document.and_then(|document| document.get_str("owner").ok())
        };
        let claims = history.iter().filter_map(|operation| {
            let details = &operation.details;
            Some((operation, details.get_i32("id").ok()?, details.get_str("owner").ok()?))
        });
        let mut faults = Vec::new();
        for (operation, id, owner) in claims {
            let is_stored = owner_of(id) == Some(owner);
            match operation.reply.outcome {
                Outcome::Acknowledged if !is_stored => {
                    faults.push(format!("the owner of {id} was written again, now {:?}: {operation:?}", owner_of(id)));
                }
                Outcome::Rejected if is_stored => faults.push(format!("it was rejected: {operation:?}")),
                _ => {}
            }
        }
        faults
    }

    fn anomaly(&self) -> &'static str {
        "was written again"
    }
}
