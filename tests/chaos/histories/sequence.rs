//! `sequence`: numbers for documents that many writers insert concurrently.

use bson::{Document, doc};

use super::writer::{Operation, Writer};
use super::{Stored, Workload, written_once};
use crate::verify::{integer, numbers};

/// Without docward the application itself takes the largest number + 1, a common approach.
fn numbered(writer: &Writer, mut document: Document) -> Document {
    if !writer.is_protected {
        let largest = writer.largest("no").as_ref().and_then(integer);
        document.insert("no", largest.unwrap_or(0) + 1);
    }
    document
}

fn insert_one(writer: &mut Writer, collection: &str) {
    let token = writer.token();
    let document = numbered(writer, doc! { "token": &token });
    writer.record("one", [token], doc! {}, |writer| writer.insert(collection, [document]));
}

fn insert_four(writer: &mut Writer, collection: &str) {
    let token = writer.token();
    let tokens = (0..4).map(|part| format!("{token}/{part}"));
    let documents: Vec<Document> = tokens.clone().map(|token| numbered(writer, doc! { "token": token })).collect();
    writer.record("four", tokens, doc! {}, |writer| writer.insert(collection, documents));
}

fn tokens(documents: &[Document]) -> impl Iterator<Item = String> {
    documents.iter().map(|document| document.get_str("token").unwrap().to_owned())
}

/// Numbers from a counter, shared with applications that increment the counter themselves.
pub(super) struct Counter;

const COUNTERS: &str = "sequence-counter-counters";

impl Workload for Counter {
    fn name(&self) -> &'static str {
        "sequence-counter"
    }

    fn settings(&self, block: usize) -> String {
        format!("sequence: {{ field: no, counter: orders, collection: {COUNTERS}, block: {block}, on_upsert: true }}")
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.create(self.name(), None);
        writer.create(COUNTERS, None);
    }

    fn step(&self, writer: &mut Writer) {
        match writer.below(4) {
            0 => insert_four(writer, self.name()),
            1 => {
                let token = writer.token();
                let (key, change) = (doc! { "_id": &token }, numbered(writer, doc! { "token": &token }));
                writer.record("upsert", [token], doc! {}, |writer| writer.upsert(key, doc! { "$set": change }));
            }
            2 if writer.is_protected => {
                let next = doc! { "$inc": { "seq": 1 } };
                let key = doc! { "_id": "orders" };
                let counted =
                    writer.record("count", [], doc! {}, |writer| writer.find_and_update(COUNTERS, key, next, true));
                let Some(number) = counted.document.and_then(|counter| counter.get("seq").and_then(integer)) else {
                    return;
                };
                let token = writer.token();
                let document = doc! { "token": &token, "no": number };
                writer.record("own number", [token], doc! {}, |writer| writer.insert(self.name(), [document]));
            }
            _ => insert_one(writer, self.name()),
        }
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let documents = stored.of(self.name());
        let mut faults = written_once(history, tokens(documents));
        faults.extend(numbers(documents));
        faults
    }

    fn anomaly(&self) -> &'static str {
        "twice or missing"
    }
}

/// The largest number + 1, protected by a unique index, so the numbers have no gaps either.
pub(super) struct Optimistic;

impl Workload for Optimistic {
    fn name(&self) -> &'static str {
        "sequence-optimistic"
    }

    fn settings(&self, _block: usize) -> String {
        "sequence: { field: no, strategy: optimistic }".into()
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.create(self.name(), writer.is_protected.then_some("no"));
    }

    fn step(&self, writer: &mut Writer) {
        match writer.below(4) {
            0 => insert_four(writer, self.name()),
            _ => insert_one(writer, self.name()),
        }
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let documents = stored.of(self.name());
        let mut faults = written_once(history, tokens(documents));
        faults.extend(numbers(documents));
        let largest = documents.iter().filter_map(|document| document.get("no").and_then(integer)).max();
        if largest.unwrap_or(0) != documents.len() as i64 {
            faults.push(format!("{} documents have numbers up to {largest:?}", documents.len()));
        }
        faults
    }

    fn anomaly(&self) -> &'static str {
        "twice or missing"
    }
}
