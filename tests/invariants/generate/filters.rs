//! Filters with equalities in every form, and other conditions.

use bson::{Bson, Document, Regex, doc};

use super::super::case::NEVER;
use super::super::values::{at, equal, id, put, small_number};
use super::Generator;

impl Generator<'_> {
    pub(super) fn filter(&mut self, upsert: bool) -> Document {
        let mut filter = doc! {};
        match self.dice.below(10) {
            0 => {}
            1..7 => {
                let known = if upsert && self.dice.percent(60) { 4..8 } else { 1..4 };
                let id: i32 = known.start + self.dice.below(3) as i32;
                filter = self.equality("_id", id.into());
            }
            _ => {
                let id = id(self.dice);
                filter = self.equality("_id", id);
            }
        }
        let others = self.dice.pick(&[0, 0, 1, 1, 2]);
        for _ in 0..others {
            let condition = self.condition();
            filter = self.joined(filter, condition);
        }
        // The server sees that it matches nothing, and takes no equality from it.
        match self.dice.below(if upsert { 100 } else { 400 }) {
            0 => _ = filter.insert(NEVER, doc! { "$all": [] }),
            1 => _ = filter.insert("$alwaysFalse", 1),
            2 => _ = filter.insert(NEVER, doc! { "$in": [] }),
            _ => {}
        }
        filter
    }

    pub(super) fn joined(&mut self, mut one: Document, other: Document) -> Document {
        if one.is_empty() {
            return other;
        }
        let clash = other.keys().any(|key| one.contains_key(key));
        if clash || self.dice.percent(15) {
            return doc! { "$and": [one, other] };
        }
        one.extend(other);
        one
    }

    fn condition(&mut self) -> Document {
        let path = self.path();
        let value = self.known_value(&path);
        match self.dice.below(12) {
            0..7 => self.equality(&path, value),
            _ => self.comparison(&path, value),
        }
    }

    pub(super) fn known_equality(&mut self, path: &str) -> Document {
        let value = self.known_value(path);
        self.equality(path, value)
    }

    /// Usually a value that a stored document has there.
    fn known_value(&mut self, path: &str) -> Bson {
        let known = if self.known.is_empty() { None } else { at(&self.dice.pick(&self.known), path).cloned() };
        match known {
            Some(value) if self.dice.percent(60) => value,
            _ => self.value(path),
        }
    }

    /// Every form of a condition that this field equals this value.
    pub(super) fn equality(&mut self, path: &str, value: Bson) -> Document {
        let form = if path == "_id" { self.dice.pick(&[0, 0, 0, 0, 0, 0, 1, 2, 4, 6, 8]) } else { self.dice.below(24) };
        match form {
            1 => doc! { path: { "$eq": value } },
            2 => doc! { path: { "$in": [value] } },
            3 => {
                let other = self.value(path);
                doc! { path: { "$in": [value, other] } }
            }
            4 => doc! { path: { "$all": [value] } },
            5 => {
                let other = self.value(path);
                doc! { path: { "$all": [value, other] } }
            }
            6 => doc! { "$and": [{ path: value }] },
            7 => {
                let other = self.comparison_path();
                doc! { "$and": [{ path: value }, other] }
            }
            8 => doc! { "$or": [{ path: value }] },
            9 => {
                let other = self.value(path);
                doc! { "$or": [{ path: value }, { path: other }] }
            }
            10 => doc! { "$and": [{ "$or": [{ path: { "$eq": value } }] }] },
            11 if path.contains('.') => {
                let mut whole = doc! {};
                put(&mut whole, path, value);
                whole
            }
            12 => doc! { path: { "$elemMatch": { "$eq": value } } },
            13 | 17..=19 => doc! { "$or": [{ path: value.clone() }, { path: value }] },
            14 => {
                let other = self.comparison_path();
                doc! { "$or": [{ "$and": [{ path: { "$eq": value.clone() } }, other] }, { path: value }] }
            }
            15 => {
                let equal = equal(self.dice, &value);
                doc! { path: { "$in": [value, equal] } }
            }
            16 => doc! { path: { "$not": { "$not": { "$eq": value } } } },
            20 => {
                let never = self.never();
                let branches = [doc! { path: value }, never];
                doc! { "$or": if self.dice.percent(50) { branches.to_vec() } else { branches.into_iter().rev().collect() } }
            }
            _ => doc! { path: value },
        }
    }

    /// A condition of which a server may see that nothing matches it.
    fn never(&mut self) -> Document {
        match self.dice.below(6) {
            0 => doc! { NEVER: { "$all": [] } },
            1 => doc! { "$alwaysFalse": 1 },
            2 => {
                let other = self.comparison_path();
                doc! { "$and": [other, { "$alwaysFalse": 1 }] }
            }
            3 => doc! { "$or": [{ "$alwaysFalse": 1 }] },
            4 => doc! { NEVER: { "$in": [] } },
            _ => doc! { "$or": [{ NEVER: { "$all": [] } }, { "$alwaysFalse": 1 }] },
        }
    }

    fn comparison_path(&mut self) -> Document {
        let path = self.path();
        let value = self.value(&path);
        self.comparison(&path, value)
    }

    fn comparison(&mut self, path: &str, value: Bson) -> Document {
        let literal = doc! { "$literal": value.clone() };
        match self.dice.below(14) {
            0 => doc! { path: { "$gt": value } },
            1 => doc! { path: { "$gte": value } },
            2 => doc! { path: { "$lt": value } },
            3 => doc! { path: { "$lte": value } },
            4 => doc! { path: { "$ne": value } },
            5 => doc! { path: { "$exists": self.dice.percent(50) } },
            6 => doc! { path: Regex { pattern: "^x".try_into().unwrap(), options: "i".try_into().unwrap() } },
            7 => doc! { path: { "$not": { "$gt": value } } },
            8 => doc! { "$nor": [{ path: value }] },
            9 => doc! { path: { "$type": "number" } },
            10 => {
                self.with_let = true;
                doc! { "$expr": { "$gte": [format!("${path}"), "$$x"] } }
            }
            11 => doc! { "$expr": { "$eq": [format!("${path}"), literal] } },
            12 => doc! { path: { "$gte": small_number(self.dice) } },
            _ => doc! { path: { "$gt": 0 } },
        }
    }
}
