//! `copies`: names beside references while originals are renamed, and originals that are deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::{Document, doc};

use super::writer::{Operation, Writer};
use super::{PROTECTED, Stored, Workload, written_once};
use support::process::TIMEOUT;

/// Copies that follow their originals.
pub(super) struct Followed;

const PAGES: &str = "copies-pages";
const PEOPLE: i32 = 4;

impl Workload for Followed {
    fn name(&self) -> &'static str {
        "copies"
    }

    fn settings(&self, _block: usize) -> String {
        format!("copies: [{{ into: {PROTECTED}.{PAGES}, key: friend.id, fields: {{ name: friend.name }} }}]")
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.insert(self.name(), (0..PEOPLE).map(|id| doc! { "_id": id, "name": "first" })).unwrap();
        writer.insert(PAGES, (0..10).map(|id| doc! { "_id": format!("page-{id}") })).unwrap();
    }

    fn step(&self, writer: &mut Writer) {
        let (token, id) = (writer.token(), writer.below(PEOPLE as usize) as i32);
        let page = doc! { "_id": format!("page-{}", writer.below(10)) };
        // A stale name, as an application read it earlier.
        let friend = doc! { "id": id, "name": "first" };
        match writer.below(4) {
            0 => {
                let page = doc! { "_id": &token, "friend": friend };
                writer.record("page", [token], doc! {}, |writer| writer.insert(PAGES, [page]));
            }
            1 => {
                let change = doc! { "$set": { "friend": friend } };
                writer.record("refer", [], doc! {}, |writer| writer.update_in(PAGES, page, change));
            }
            2 if writer.is_protected => {
                let change = doc! { "$set": { "friend.name": "forged", "forged": true } };
                writer.record("forge", [], doc! {}, |writer| writer.update_in(PAGES, page, change));
            }
            _ => {
                let change = doc! { "$set": { "name": token } };
                writer.record("rename", [], doc! {}, |writer| writer.update(doc! { "_id": id }, change));
            }
        }
    }

    fn settles_within(&self) -> Duration {
        TIMEOUT
    }

    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let names: BTreeMap<i32, &str> = stored
            .of(self.name())
            .iter()
            .map(|person| (person.get_i32("_id").unwrap(), person.get_str("name").unwrap()))
            .collect();
        let pages = stored.of(PAGES);
        let inserted = pages.iter().map(|page| page.get_str("_id").unwrap());
        let inserted = inserted.filter(|id| !id.starts_with("page-")).map(str::to_owned);
        let mut faults = written_once(history, inserted);
        let is_stale = |page: &&Document| {
            let friend = page.get_document("friend").ok();
            friend.is_some_and(|friend| friend.get_str("name").ok() != Some(names[&friend.get_i32("id").unwrap()]))
        };
        faults.extend(pages.iter().filter(is_stale).map(|page| format!("a stale name: {page}, {names:?}")));
        let is_forged = |page: &&Document| page.contains_key("forged");
        faults.extend(pages.iter().filter(is_forged).map(|page| format!("a forged name: {page}")));
        faults
    }

    fn anomaly(&self) -> &'static str {
        "stale"
    }
}

/// `on_delete: reject`: an original with a reference is not deleted. No original is inserted twice.
pub(super) struct Referenced;

const REFERENCES: &str = "copies-referenced-from";
const ORIGINALS: i32 = 2000;

impl Workload for Referenced {
    fn name(&self) -> &'static str {
        "copies-referenced"
    }

    fn settings(&self, _block: usize) -> String {
        let fields = "fields: { name: of.name }, on_delete: reject";
        format!("copies: [{{ into: {PROTECTED}.{REFERENCES}, key: of.id, {fields} }}]")
    }

    fn prepare(&self, writer: &mut Writer) {
        writer.insert(self.name(), (0..ORIGINALS).map(|id| doc! { "_id": id, "name": "n" })).unwrap();
        writer.create(REFERENCES, None);
    }

    fn step(&self, writer: &mut Writer) {
        // The writers count in the same way, so they pick the same originals.
        let id = (writer.history.len() / 4 + writer.below(3)) as i32 % ORIGINALS;
        let details = doc! { "id": id };
        if writer.below(4) > 0 {
            writer.record("delete", [], details, |writer| writer.delete(doc! { "_id": id }));
            return;
        }
        let token = writer.token();
        let reference = doc! { "token": &token, "of": { "id": id, "name": "n" } };
        writer.record("refer", [token], details, |writer| writer.insert(REFERENCES, [reference]));
    }

    /// An original with a reference from before the delete must still exist.
    fn faults(&self, history: &[Operation], stored: &Stored) -> Vec<String> {
        let tokens = stored.of(REFERENCES).iter().map(|one| one.get_str("token").unwrap().to_owned());
        let mut faults = written_once(history, tokens);
        let acknowledged = |kind: &'static str| {
            history.iter().filter(move |operation| operation.kind == kind && operation.reply.is_acknowledged())
        };
        let id = |operation: &Operation| operation.details.get_i32("id").unwrap();
        let deleted: BTreeMap<i32, &Operation> =
            acknowledged("delete").map(|operation| (id(operation), operation)).collect();
        for reference in acknowledged("refer") {
            if deleted.get(&id(reference)).is_some_and(|delete| reference.ended < delete.began) {
                faults.push(format!("{} was deleted although {:?} refers to it", id(reference), reference.tokens));
            }
        }
        faults
    }

    fn anomaly(&self) -> &'static str {
        "was deleted although"
    }
}
