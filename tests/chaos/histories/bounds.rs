//! `bounds` and `together`: numbers that stay in range, and fields that change in one statement or not at all.

use bson::doc;

use super::writer::{Operation, Writer};
use super::{Stored, Workload, written_once};
use crate::journal::Outcome;
use crate::verify::stock;

const DOCUMENTS: i32 = 4;

/// Increments that record what they did.
pub(super) struct Bounds;

impl Workload for Bounds {
    fn name(&self) -> &'static str {
        "bounds"
    }

    fn settings(&self, _block: usize) -> String {
        "bounds: { field: available, min: 0, max: 10 }".into()
    }

    fn prepare(&self, writer: &mut Writer) {
        let item = |id| doc! { "_id": id, "available": 5, "moves": [] };
        writer.insert(self.name(), (0..DOCUMENTS).map(item)).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        let (token, key) = (writer.token(), doc! { "_id": writer.below(DOCUMENTS as usize) as i32 });
        if writer.below(10) == 0 {
            let change = doc! { "$set": { "available": 11, "set": &token } };
            writer.record("set", [token], doc! {}, |writer| writer.update(key, change));
            return;
        }
        let delta = [-3, -2, -1, 1, 2, 3][writer.below(6)];
        let change = |token: &str, delta: i32| {
            doc! { "$inc": { "available": delta }, "$push": { "moves": { "token": token, "delta": delta } } }
        };
        let (one, other) = (change(&token, delta), change(&format!("{token}/other"), -delta));
        match writer.below(3) {
            // Takes from one item what it adds to the next one.
            0 => {
                let next = doc! { "_id": (key.get_i32("_id").unwrap() + 1) % DOCUMENTS };
                let tokens = [token.clone(), format!("{token}/other")];
                let updates = [(key, one), (next, other)];
                writer.record("transaction", tokens, doc! {}, |writer| writer.update_together(updates))
            }
            1 => writer.record("increment", [token], doc! {}, |writer| writer.update(key, one)),
            _ => writer.record("find", [token], doc! {}, |writer| writer.find_and_update(self.name(), key, one, false)),
        };
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let items = stored.of(self.name());
        let moves = items.iter().flat_map(|item| item.get_array("moves").unwrap());
        let moves = moves.map(|one| one.as_document().unwrap().get_str("token").unwrap());
        let set = items.iter().filter_map(|item| item.get_str("set").ok());
        let mut faults = written_once(history, moves.chain(set).map(str::to_owned));
        faults.extend(stock(items));
        faults
    }

    fn anomaly(&self) -> &'static str {
        "out of bounds"
    }
}

/// Writers of both fields, and writers that omit one of them.
pub(super) struct Together;

impl Workload for Together {
    fn name(&self) -> &'static str {
        "together"
    }

    fn settings(&self, _block: usize) -> String {
        "together: [a, b]".into()
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.insert(self.name(), (0..DOCUMENTS).map(|id| doc! { "_id": id, "a": "", "b": "" })).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        let (token, key) = (writer.token(), doc! { "_id": writer.below(DOCUMENTS as usize) as i32 });
        let (both, one) = (doc! { "a": &token, "b": &token }, doc! { "a": &token });
        // A pipeline is checked in a transaction.
        let appended = |field: &str| {
            let stored = doc! { "$ifNull": [format!("${field}"), ""] };
            doc! { "$concat": [stored, " ", &token] }
        };
        let append_one = vec![doc! { "$set": { "a": appended("a") } }];
        let append_both = vec![doc! { "$set": { "a": appended("a"), "b": appended("b") } }];
        let details = doc! { "value": token };
        match writer.below(9) {
            6 => writer.record("append one", [], details, |writer| writer.update(key, append_one)),
            7 | 8 => writer.record("append both", [], details, |writer| writer.update(key, append_both)),
            0 => writer.record("one", [], details, |writer| writer.update(key, doc! { "$set": one })),
            1 => writer.record("save one", [], details, |writer| writer.replace(key, one, true)),
            2 => writer.record("unset", [], doc! {}, |writer| writer.update(key, doc! { "$unset": both })),
            3 => writer.record("save", [], details, |writer| writer.replace(key, both, true)),
            _ => writer.record("both", [], details, |writer| writer.update(key, doc! { "$set": both })),
        };
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let mut faults = Vec::new();
        for document in stored.of(self.name()) {
            if document.get("a") != document.get("b") {
                faults.push(format!("the fields disagree: {document}"));
            }
            let mut values: Vec<&str> = document.get_str("a").unwrap_or_default().split_whitespace().collect();
            let of_it =
                |operation: &&Operation| operation.details.get_str("value").is_ok_and(|value| values.contains(&value));
            let rejected = history.iter().find(of_it).filter(|operation| is_rejected(operation));
            faults.extend(rejected.map(|operation| format!("it was rejected: {operation:?}: {document}")));
            let count = values.len();
            values.sort_unstable();
            values.dedup();
            if values.len() < count {
                faults.push(format!("a write took effect twice: {document}"));
            }
        }
        faults
    }

    fn anomaly(&self) -> &'static str {
        "disagree"
    }
}

fn is_rejected(operation: &Operation) -> bool {
    operation.reply.outcome == Outcome::Rejected
}
