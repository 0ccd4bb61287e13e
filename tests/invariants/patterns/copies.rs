//! `copies`: every reference has the fields that are copied with it, in one document or in each element of an array.
//! There are no originals here, so no worker writes while a case runs; `super::super::originals` has them.

use bson::{Bson, Document, doc};

use super::super::case::{Statement, first};
use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::show;
use super::super::values::take;

/// The document, or the array of documents, with the key and the copy.
const HOLDER: &str = "ref";
const KEY: &str = "ref.id";
const COPY: &str = "ref.name";

#[derive(Clone, Debug)]
pub(in super::super) struct Copies {
    pub(in super::super) on_delete: &'static str,
}

/// A key with the copy beside it.
struct Reference<'d> {
    key: &'d Bson,
    copy: Option<&'d Bson>,
}

fn references(document: &Document) -> Vec<Reference<'_>> {
    let holders: Vec<&Document> = match document.get(HOLDER) {
        Some(Bson::Document(holder)) => vec![holder],
        Some(Bson::Array(elements)) => elements.iter().filter_map(Bson::as_document).collect(),
        _ => Vec::new(),
    };
    let is_key = |key: &&Bson| **key != Bson::Null && key.as_array().is_none();
    let read = |holder: &&'_ Document| holder.get("id").filter(is_key).is_some();
    holders.into_iter().filter(read).map(|holder| Reference { key: &holder["id"], copy: holder.get("name") }).collect()
}

/// The copies beside one key, in any order. Keys are compared as text, because NaN is not equal to itself.
fn copies_of(document: &Document, key: &Bson) -> Vec<String> {
    let key = show::value(key);
    let with_key = references(document).into_iter().filter(|reference| show::value(reference.key) == key);
    let mut copies: Vec<String> = with_key.map(|reference| reference.copy.map_or(String::new(), show::value)).collect();
    copies.sort();
    copies
}

/// Whether it may write a copy: in any form except by the path of a key.
fn writes_copy(statement: &Statement) -> bool {
    let is_key = |path: &str| path.ends_with(".id");
    let writes = statement.writes();
    statement.replacement().is_some()
        || statement.is_pipeline()
        || writes.iter().any(|(_, path, _)| first(path) == HOLDER && !is_key(path))
}

impl Copies {
    pub(in super::super) fn random(dice: &mut Dice) -> Copies {
        Copies { on_delete: dice.pick(&["keep", "unset", "reject", "reject"]) }
    }
}

impl Promise for Copies {
    fn name(&self) -> &'static str {
        "copies"
    }

    fn collection(&self, collection: &str) -> String {
        format!("{collection}_originals")
    }

    fn settings(&self) -> String {
        let on_delete = self.on_delete;
        format!(
            "copies: [{{ into: protected.COLLECTION, key: {KEY}, fields: {{ name: {COPY} }}, on_delete: {on_delete} }}]"
        )
    }

    fn fields(&self) -> Vec<String> {
        [KEY, COPY, HOLDER].map(str::to_owned).to_vec()
    }

    fn tidy(&self, dice: &mut Dice, document: &mut Document) {
        let element = |dice: &mut Dice| doc! { "id": 1 + dice.below(4) as i32, "name": "Ada" };
        match dice.below(10) {
            0..3 => drop(take(document, HOLDER)),
            3..6 => {
                let elements: Vec<Document> = (0..dice.below(4)).map(|_| element(dice)).collect();
                document.insert(HOLDER, elements);
            }
            _ => drop(document.insert(HOLDER, element(dice))),
        }
    }

    fn idiom(&self, dice: &mut Dice) -> Option<(Document, Document)> {
        let (id, other) = (1 + dice.below(4) as i32, 1 + dice.below(4) as i32);
        let element = doc! { "id": id, "name": "Bea" };
        let alone = doc! { "id": id };
        let elements = vec![element.clone(), if dice.percent(50) { alone.clone() } else { element.clone() }];
        let update = match dice.below(14) {
            0 => doc! { "$push": { HOLDER: element } },
            1 => doc! { "$push": { HOLDER: alone } },
            2 => doc! { "$push": { HOLDER: { "$each": elements } } },
            3 => doc! { "$addToSet": { HOLDER: { "$each": elements } } },
            4 => doc! { "$set": { HOLDER: elements } },
            5 => doc! { "$set": { HOLDER: element } },
            6 => doc! { "$set": { "ref.0.id": id } },
            7 => doc! { "$set": { "ref.1.id": id, "ref.1.name": "Bea" } },
            8 => doc! { "$set": { "ref.$.id": id, "ref.$.name": "Bea" } },
            9 => doc! { "$set": { "ref.$[].name": "Bea" } },
            10 => doc! { "$set": { "ref.0": dice.pick(&[element, alone]) } },
            11 => doc! { "$pull": { HOLDER: { "id": id } } },
            12 => doc! { "$set": { "ref.0.since": id } },
            _ => doc! { "$set": { KEY: id, COPY: "Bea" } },
        };
        let mut filter = doc! { "_id": other };
        if dice.percent(50) {
            filter.insert(KEY, id);
        }
        Some((filter, update))
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        change.changed().find_map(|(before, after)| {
            references(after).into_iter().find_map(|Reference { key, copy }| {
                let known = before.map(|before| copies_of(before, key)).unwrap_or_default();
                let is_new = known.is_empty();
                // An application that names the original in its filter may update the copies itself.
                let updates_copies = || !is_new && change.statements.iter().any(|statement| statement.queries(KEY));
                let is_lost = is_new || known.iter().all(|copy| !copy.is_empty());
                if copy.is_none() && is_lost && !updates_copies() {
                    return Some("a reference is stored without its copied field".to_owned());
                }
                let [statement] = change.statements else { return None };
                let alone = before.is_some() && is_new && !writes_copy(statement);
                alone.then(|| "a reference changed without its copied field".to_owned())
            })
        })
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        let same_copies = direct.changed().all(|(before, after)| {
            let kept = |before: &Document| {
                references(after).iter().all(|Reference { key, .. }| {
                    let known = copies_of(before, key);
                    known.is_empty() || known == copies_of(after, key)
                })
            };
            before.is_none_or(kept)
        });
        same_copies && self.broken(direct).is_none()
    }
}
