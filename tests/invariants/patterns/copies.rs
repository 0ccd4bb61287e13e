//! `copies`: every reference has the fields that are copied with it. There are no originals here, so no worker writes
//! while a case runs.

use bson::{Bson, Document};

use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::values::{at, put, take};

const KEY: &str = "ref.id";
const COPY: &str = "ref.name";

#[derive(Clone, Debug)]
pub(in super::super) struct Copies;

fn key(document: &Document) -> Option<&Bson> {
    at(document, KEY).filter(|key| **key != Bson::Null && key.as_array().is_none())
}

impl Promise for Copies {
    fn name(&self) -> &'static str {
        "copies"
    }

    fn namespace(&self, collection: &str) -> String {
        format!("protected.{collection}_originals")
    }

    fn settings(&self) -> String {
        format!("copies: [{{ into: protected.COLLECTION, key: {KEY}, fields: {{ name: {COPY} }} }}]")
    }

    fn fields(&self) -> Vec<String> {
        [KEY, COPY, "ref"].map(str::to_owned).to_vec()
    }

    fn tidy(&self, dice: &mut Dice, document: &mut Document) {
        if dice.percent(30) {
            take(document, "ref");
        } else {
            put(document, KEY, Bson::Int32(1 + dice.below(4) as i32));
            put(document, COPY, "Ada".into());
        }
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        change.changed().find_map(|(before, after)| {
            let reference = key(after)?;
            let is_new = before.and_then(key) != Some(reference);
            // An application that names the original in its filter may update the copies itself.
            let updates_copies = || !is_new && change.statements.iter().any(|statement| statement.queries(KEY));
            let is_lost = is_new || before.is_some_and(|before| at(before, COPY).is_some());
            if at(after, COPY).is_none() && is_lost && !updates_copies() {
                return Some("a reference is stored without its copied field".to_owned());
            }
            let [statement] = change.statements else { return None };
            let alone = before.is_some() && is_new && !statement.touches(COPY);
            alone.then(|| "a reference changed without its copied field".to_owned())
        })
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        let same_copy = direct.changed().all(|(before, after)| {
            before.is_none_or(|before| key(before) != key(after) || at(before, COPY) == at(after, COPY))
        });
        same_copy && self.broken(direct).is_none()
    }
}
