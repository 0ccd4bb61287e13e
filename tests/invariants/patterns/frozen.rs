//! `frozen`: a document that has a value in one of the fields keeps it, whatever happens to the document.

use bson::{Bson, Document, doc};

use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::show::value;
use super::super::values::{fitting, put, reachable, take};

#[derive(Clone, Debug)]
pub(in super::super) struct Frozen {
    fields: Vec<&'static str>,
}

impl Frozen {
    pub(in super::super) fn random(dice: &mut Dice) -> Frozen {
        const SETS: [&[&str]; 10] = [
            &["a"],
            &["a.n"],
            &["a.n.x", "b"],
            &["a.m", "sku"],
            &["b"],
            &["c.d", "c.e"],
            &["ref.id"],
            &["messages"],
            &["no"],
            &["version", "note"],
        ];
        Frozen { fields: dice.pick(&SETS).to_vec() }
    }
}

/// A usual value, or one of a few, so that statements often write what is stored.
fn some(dice: &mut Dice, field: &str) -> Bson {
    if dice.percent(50) { dice.pick(&[1.into(), "x".into(), Bson::Null]) } else { fitting(dice, field) }
}

impl Promise for Frozen {
    fn name(&self) -> &'static str {
        "frozen"
    }

    fn settings(&self) -> String {
        format!("frozen: [{}]", self.fields.join(", "))
    }

    fn fields(&self) -> Vec<String> {
        self.fields.iter().map(|field| (*field).to_owned()).collect()
    }

    fn tidy(&self, dice: &mut Dice, document: &mut Document) {
        for field in &self.fields {
            match dice.below(10) {
                0..4 => put(document, field, some(dice, field)),
                4..7 => drop(take(document, field)),
                _ => {}
            }
        }
    }

    fn idiom(&self, dice: &mut Dice) -> Option<(Document, Document)> {
        let field = dice.pick(&self.fields);
        let (id, value) = (1 + dice.below(6) as i32, some(dice, field));
        let update = match dice.below(5) {
            0 => doc! { "$setOnInsert": { field: value }, "$set": { "other": 1 } },
            1 => {
                let mut document = doc! { "other": 2 };
                put(&mut document, field, value);
                document
            }
            2 => doc! { "$unset": { field: "" } },
            _ => doc! { "$set": { field: value, "other": 3 } },
        };
        Some((doc! { "_id": id }, update))
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        let kept = |document: &Document, field: &str| -> Vec<String> {
            reachable(document, field).into_iter().map(value).collect()
        };
        change.changed().find_map(|(before, after)| {
            let written_again = |field: &&&str| {
                let earlier = before.map(|before| kept(before, field)).unwrap_or_default();
                !earlier.is_empty() && earlier != kept(after, field)
            };
            self.fields.iter().find(written_again).map(|field| format!("'{field}' was written again"))
        })
    }
}
