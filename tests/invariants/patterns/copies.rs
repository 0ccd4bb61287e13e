//! `copies`: every reference has the fields that are copied with it, in one document or in each element of an array.
//! There are no originals here, so no worker writes while a case runs; `super::super::originals` has them.

use bson::{Bson, Document, doc};

use super::super::case::{Statement, first};
use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::show;
use super::super::values::{put, reachable, take};

/// The paths of documents, or arrays of documents, with `id` and `name`: the key and the copy.
const HOLDERS: [&str; 4] = ["ref", "ref", "ref", "deep.ref"];

#[derive(Clone, Debug)]
pub(in super::super) struct Copies {
    pub(in super::super) on_delete: &'static str,
    pub(in super::super) holder: &'static str,
}

/// A key with the copy beside it.
struct Reference<'d> {
    key: &'d Bson,
    copy: Option<&'d Bson>,
}

fn references<'d>(holder: &str, document: &'d Document) -> Vec<Reference<'d>> {
    let held = reachable(document, holder).into_iter().flat_map(|held| match held {
        Bson::Document(holder) => vec![holder],
        Bson::Array(elements) => elements.iter().filter_map(Bson::as_document).collect(),
        _ => Vec::new(),
    });
    let holders: Vec<&Document> = held.collect();
    let is_key = |key: &&Bson| **key != Bson::Null && key.as_array().is_none();
    let read = |holder: &&'_ Document| holder.get("id").filter(is_key).is_some();
    holders.into_iter().filter(read).map(|holder| Reference { key: &holder["id"], copy: holder.get("name") }).collect()
}

/// The copies beside one key, in any order. Keys are compared as text, because NaN is not equal to itself.
fn copies_of(holder: &str, document: &Document, key: &Bson) -> Vec<String> {
    let key = show::value(key);
    let with_key = references(holder, document).into_iter().filter(|reference| show::value(reference.key) == key);
    let mut copies: Vec<String> = with_key.map(|reference| reference.copy.map_or(String::new(), show::value)).collect();
    copies.sort();
    copies
}

/// Whether it may write a copy: in any form except by the path of a key.
fn writes_copy(holder: &str, statement: &Statement) -> bool {
    let is_key = |path: &str| path.ends_with(".id");
    let writes = statement.writes();
    statement.replacement().is_some()
        || statement.is_pipeline()
        || writes.iter().any(|(_, path, _)| first(path) == first(holder) && !is_key(path))
}

impl Copies {
    pub(in super::super) fn random(dice: &mut Dice) -> Copies {
        Copies { on_delete: dice.pick(&["keep", "unset", "reject", "reject"]), holder: dice.pick(&HOLDERS) }
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
        let Copies { on_delete, holder } = self;
        format!(
            "copies: [{{ into: protected.COLLECTION, key: {holder}.id, fields: {{ name: {holder}.name }}, on_delete: {on_delete} }}]"
        )
    }

    fn fields(&self) -> Vec<String> {
        let holder = self.holder;
        vec![format!("{holder}.id"), format!("{holder}.name"), holder.to_owned()]
    }

    fn tidy(&self, dice: &mut Dice, document: &mut Document) {
        let element = |dice: &mut Dice| doc! { "id": 1 + dice.below(4) as i32, "name": "Ada" };
        match dice.below(10) {
            0..3 => drop(take(document, self.holder)),
            3..6 => {
                let elements: Vec<Document> = (0..dice.below(4)).map(|_| element(dice)).collect();
                put(document, self.holder, elements.into());
            }
            _ => put(document, self.holder, element(dice).into()),
        }
        // The document around it may be in an array, too.
        if let Some(outer) = document.get("deep").filter(|_| self.holder.contains('.') && dice.percent(30)).cloned() {
            document.insert("deep", vec![outer]);
        }
    }

    fn idiom(&self, dice: &mut Dice) -> Option<(Document, Document)> {
        let (id, other) = (1 + dice.below(4) as i32, 1 + dice.below(4) as i32);
        let element = doc! { "id": id, "name": "Bea" };
        let alone = doc! { "id": id };
        let elements = vec![element.clone(), if dice.percent(50) { alone.clone() } else { element.clone() }];
        let at = |rest: &str| format!("{}{rest}", self.holder);
        let update = match dice.below(14) {
            0 => doc! { "$push": { self.holder: element } },
            1 => doc! { "$push": { self.holder: alone } },
            2 => doc! { "$push": { self.holder: { "$each": elements } } },
            3 => doc! { "$addToSet": { self.holder: { "$each": elements } } },
            4 => doc! { "$set": { self.holder: elements } },
            5 => doc! { "$set": { self.holder: element } },
            6 => doc! { "$set": { at(".0.id"): id } },
            7 => doc! { "$set": { at(".1.id"): id, at(".1.name"): "Bea" } },
            8 => doc! { "$set": { at(".$.id"): id, at(".$.name"): "Bea" } },
            9 => doc! { "$set": { at(".$[].name"): "Bea" } },
            10 => doc! { "$set": { at(".0"): dice.pick(&[element, alone]) } },
            11 => doc! { "$pull": { self.holder: { "id": id } } },
            12 => doc! { "$set": { at(".0.since"): id } },
            _ => doc! { "$set": { at(".id"): id, at(".name"): "Bea" } },
        };
        let mut filter = doc! { "_id": other };
        if dice.percent(50) {
            filter.insert(at(".id"), id);
        }
        Some((filter, update))
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        change.changed().find_map(|(before, after)| {
            references(self.holder, after).into_iter().find_map(|Reference { key, copy }| {
                let known = before.map(|before| copies_of(self.holder, before, key)).unwrap_or_default();
                let is_new = known.is_empty();
                // An application that names the original in its filter may update the copies itself.
                let updates_copies =
                    || !is_new && change.statements.iter().any(|statement| statement.queries(self.holder));
                let is_lost = is_new || known.iter().all(|copy| !copy.is_empty());
                if copy.is_none() && is_lost && !updates_copies() {
                    return Some("a reference is stored without its copied field".to_owned());
                }
                let [statement] = change.statements else { return None };
                let alone = before.is_some() && is_new && !writes_copy(self.holder, statement);
                alone.then(|| "a reference changed without its copied field".to_owned())
            })
        })
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        let same_copies = direct.changed().all(|(before, after)| {
            let kept = |before: &Document| {
                references(self.holder, after).iter().all(|Reference { key, .. }| {
                    let known = copies_of(self.holder, before, key);
                    known.is_empty() || known == copies_of(self.holder, after, key)
                })
            };
            before.is_none_or(kept)
        });
        same_copies && self.broken(direct).is_none()
    }
}
