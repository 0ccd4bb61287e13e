//! `deny` and `defaults`: statements that must be rejected, or must stop after a time limit.

use bson::doc;

use super::writer::{Operation, Writer};
use super::{Stored, Workload, written_once};

/// Inserts, and statements without their filter.
pub(super) struct Deny;

impl Workload for Deny {
    fn name(&self) -> &'static str {
        "deny"
    }

    fn settings(&self, _block: usize) -> String {
        "deny: { operations: [delete, update], when: { filter: empty } }".into()
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.create(self.name(), None);
    }

    fn step(&self, writer: &mut Writer) {
        match writer.below(4) {
            0 => drop(writer.record("delete", [], doc! {}, |writer| writer.delete_many(doc! {}))),
            1 => {
                let change = doc! { "$set": { "changed": true } };
                writer.record("update", [], doc! {}, |writer| writer.update_many(doc! {}, change));
            }
            _ => {
                let token = writer.token();
                let document = doc! { "token": &token };
                writer.record("insert", [token], doc! {}, |writer| writer.insert(self.name(), [document]));
            }
        }
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let documents = stored.of(self.name());
        let tokens = documents.iter().map(|document| document.get_str("token").unwrap().to_owned());
        let mut faults = written_once(history, tokens);
        let changed = documents.iter().filter(|document| document.contains_key("changed"));
        faults.extend(changed.map(|document| format!("changed by an update without a filter: {document}")));
        faults
    }

    fn anomaly(&self) -> &'static str {
        "is there 0 times: Acknowledged"
    }
}

/// Quick updates, and updates whose filter takes longer than the rule allows.
pub(super) struct Defaults;

impl Workload for Defaults {
    fn name(&self) -> &'static str {
        "defaults"
    }

    fn settings(&self, _block: usize) -> String {
        "defaults: { maxTimeMS: 500 }".into()
    }

    fn prepare(&self, writer: &mut Writer) {
        let logs = (0..super::WRITERS).map(|writer| doc! { "_id": writer as i32, "log": [] });
        writer.insert(self.name(), logs).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        let (token, mut key) = (writer.token(), doc! { "_id": writer.number as i32 });
        let change = doc! { "$push": { "log": &token } };
        if writer.below(4) > 0 {
            writer.record("quick", [token], doc! {}, |writer| writer.update(key, change));
            return;
        }
        key.insert("$where", "function() { sleep(1500); return true; }");
        writer.record("slow", [], doc! { "token": token }, |writer| writer.update(key, change));
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let logs = stored.of(self.name()).iter().flat_map(|document| document.get_array("log").unwrap());
        let logged = logs.map(|token| token.as_str().unwrap().to_owned());
        let slow = history.iter().filter_map(|operation| operation.details.get_str("token").ok());
        let slow: Vec<&str> = slow.collect();
        let (slow, quick): (Vec<String>, Vec<String>) = logged.partition(|token| slow.contains(&token.as_str()));
        let mut faults = written_once(history, quick);
        faults.extend(slow.iter().map(|token| format!("{token} took longer than it may")));
        faults
    }

    fn anomaly(&self) -> &'static str {
        "took longer than it may"
    }
}
