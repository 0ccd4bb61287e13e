//! `limits`: an array has at most a number of elements, and a document at most a size, or neither grows.

use bson::{Bson, Document, doc};

use super::super::case::{Kind, Statement};
use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::values::{put, reachable, small_number};

#[derive(Clone, Debug)]
pub(in super::super) struct Limits {
    pub(in super::super) array: &'static str,
    pub(in super::super) most: usize,
    pub(in super::super) document: Option<usize>,
}

/// The `_id` that the document still gets, and the field that fills it up.
const OWN_LENGTH: usize = 9 + 11;

/// docward may count this many bytes more than a statement adds, beside `timestamps`.
const SLACK: usize = 1000;

impl Limits {
    pub(in super::super) fn random(dice: &mut Dice) -> Limits {
        let array = dice.pick(&["messages", "messages", "b", "a.n", "c.d"]);
        let document = dice.percent(40).then(|| dice.pick(&[200, 300, 700, 1600]));
        Limits { array, most: dice.pick(&[1, 2, 3, 5]), document }
    }

    /// The number of items; `None` if the array is inside another one.
    fn items(&self, document: &Document) -> usize {
        match reachable(document, self.array)[..] {
            [Bson::Array(items)] => items.len(),
            _ => 0,
        }
    }

    fn fits(&self, document: &Document, slack: usize) -> bool {
        self.items(document) <= self.most && self.document.is_none_or(|most| length(document) + slack <= most)
    }

    /// Whether the statement itself has an array beyond the limit: rejected whatever is stored.
    fn refuses(&self, statement: &Statement) -> bool {
        statement.update.iter().any(|update| self.has_long(update))
    }

    fn has_long(&self, value: &Bson) -> bool {
        match value {
            Bson::Array(items) => items.len() > self.most || items.iter().any(|item| self.has_long(item)),
            Bson::Document(fields) => fields.values().any(|field| self.has_long(field)),
            _ => false,
        }
    }
}

fn length(document: &Document) -> usize {
    document.to_vec().unwrap().len()
}

impl Promise for Limits {
    fn name(&self) -> &'static str {
        "limits"
    }

    fn settings(&self) -> String {
        let document = self.document.map(|most| format!(", document: {most}B")).unwrap_or_default();
        format!("limits: {{ items: {{ {}: {} }}{document} }}", self.array, self.most)
    }

    fn fields(&self) -> Vec<String> {
        vec![self.array.to_owned()]
    }

    fn tidy(&self, dice: &mut Dice, document: &mut Document) {
        let items: Vec<Bson> = (0..dice.below(self.most + 1)).map(|_| small_number(dice)).collect();
        put(document, self.array, items.into());
        while !self.fits(document, 0) {
            let Some(name) = document.keys().filter(|name| *name != "_id").last().cloned() else { break };
            document.remove(&name);
        }
        // Often there is room for a few bytes only.
        let room = self.document.and_then(|most| most.checked_sub(length(document) + OWN_LENGTH + dice.below(24)));
        if let Some(room) = room.filter(|_| dice.percent(30) && !document.contains_key("note")) {
            document.insert("note", "x".repeat(room));
        }
    }

    fn idiom(&self, dice: &mut Dice) -> Option<(Document, Document)> {
        let each: Vec<Bson> = (0..dice.below(self.most + 2)).map(|_| small_number(dice)).collect();
        let array = self.array;
        let name = "x".repeat(dice.pick(&[1, 30, 150]));
        let change = match dice.below(13) {
            6 => doc! { "$addToSet": { array: { "a": name, "$each": each } } },
            7 => doc! { "$push": { array: { "$slice": dice.pick(&[-3, 2, 9]), "$each": each } } },
            8 => doc! { "$push": { format!("{array}.$[].{name}"): { "$each": each } } },
            9 => doc! { "$addToSet": { format!("{array}.0.{name}"): { "$each": [] } } },
            10 => doc! { "$set": { format!("{array}.$[].{}", dice.pick(&[0, 3, 90])): name } },
            11 => doc! { "$push": { array: doc! {} } },
            12 => doc! { "$set": { format!("{array}.$[].k.{name}"): 1 } },
            0 => doc! { "$push": { self.array: small_number(dice) } },
            1 => doc! { "$push": { self.array: { "$each": each } } },
            2 => doc! { "$push": { self.array: { "$each": each, "$slice": dice.pick(&[-3, -1, 0, 2, 9]) } } },
            3 => doc! { "$addToSet": { self.array: { "$each": each } } },
            4 => doc! { "$addToSet": { self.array: small_number(dice) } },
            _ => doc! { "$set": { format!("{}.{}", self.array, dice.below(self.most + 2)): 1 } },
        };
        let mut filter = doc! { "_id": dice.below(4) as i32 };
        if dice.percent(30) {
            // The rule's own condition, and what only looks like it.
            let position = dice.pick(&["0", "00", "1", "01", "2", "002", "4"]);
            filter.insert(format!("{array}.{position}"), doc! { "$exists": false });
        }
        Some((filter, change))
    }

    fn alters(&self, statement: &Statement) -> bool {
        statement.kind == Kind::Update && (self.document.is_some() || statement.upsert || statement.touches(self.array))
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        change.changed().find_map(|(before, after)| {
            let items = self.items(after);
            if items > self.most && before.is_none_or(|before| self.items(before) < items) {
                return Some(format!("'{}' has more items than the limit", self.array));
            }
            let long = self.document.is_some_and(|most| length(after) > most);
            let longer = before.is_none_or(|before| length(before) < length(after));
            (long && longer).then(|| "a document is longer than the limit".to_owned())
        })
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        let known = direct.before.iter().chain(direct.after).all(|document| self.fits(document, SLACK));
        known && self.broken(direct).is_none() && !direct.statements.iter().any(|statement| self.refuses(statement))
    }
}
