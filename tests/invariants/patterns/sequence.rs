//! `sequence`: an inserted document has a unique number, and keeps it.

use bson::{Bson, Document};

use super::super::case::{Kind, Statement, first};
use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::show;
use super::super::values::{as_number, at, put, take};

/// Compares whole numbers exactly.
fn same_number(one: Option<&Bson>, other: Option<&Bson>) -> bool {
    let whole = |number: Option<&Bson>| match number? {
        Bson::Int64(number) => Some(*number),
        Bson::Double(number) if number.fract() == 0.0 && number.abs() < 9e18 => Some(*number as i64),
        _ => None,
    };
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one.and_then(as_number) == other.and_then(as_number),
    }
}

#[derive(Clone, Debug)]
pub(in super::super) struct Sequence {
    pub(in super::super) field: &'static str,
    pub(in super::super) on_upsert: bool,
    pub(in super::super) optimistic: bool,
    /// `provided`: what happens to a number that a client sets.
    pub(in super::super) provided: &'static str,
}

impl Sequence {
    pub(in super::super) fn random(dice: &mut Dice) -> Sequence {
        let field = dice.pick(&["no", "no", "no", "a.n", "c.d"]);
        let provided = dice.pick(&["keep", "keep", "keep", "reject", "replace"]);
        Sequence { field, on_upsert: dice.percent(65), optimistic: dice.percent(25), provided }
    }

    /// Whether the client itself may set the number: its statement names the field, or one around it.
    fn has_own_number(&self, statement: &Statement) -> bool {
        let outer = first(self.field);
        let update = statement.update.as_ref().map(show::value).unwrap_or_default();
        let inserted = statement.inserted.as_ref().map(show::document).unwrap_or_default();
        [update, inserted, show::document(&statement.filter)].iter().any(|text| text.contains(outer))
    }

    /// Whether a replacement brings its number, which is then kept.
    fn brings_another(&self, statement: &Statement) -> bool {
        let own = statement.replacement().and_then(|document| at(document, self.field));
        self.provided == "keep" && own.is_some()
    }
}

impl Promise for Sequence {
    fn name(&self) -> &'static str {
        "sequence"
    }

    fn settings(&self) -> String {
        let upserts = if self.on_upsert { ", on_upsert: true" } else { "" };
        let counter = match self.optimistic {
            true => "strategy: optimistic",
            false => "counter: COLLECTION, collection: counters, start: after_max",
        };
        format!("sequence: {{ field: {}, {counter}{upserts}, provided: {} }}", self.field, self.provided)
    }

    fn fields(&self) -> Vec<String> {
        vec![self.field.to_owned()]
    }

    fn tidy(&self, dice: &mut Dice, document: &mut Document) {
        if dice.percent(20) {
            take(document, self.field);
        } else {
            put(document, self.field, Bson::Int32(1 + dice.below(200) as i32));
        }
    }

    /// The unique index allows one document with each number; only the first document may have another value.
    fn tidy_all(&self, _: &mut Dice, documents: &mut [Document]) {
        const BASE: i32 = 500;
        for (index, document) in documents.iter_mut().enumerate().skip(1).filter(|_| self.optimistic) {
            document.remove(first(self.field));
            put(document, self.field, Bson::Int32(BASE + index as i32));
        }
    }

    fn alters(&self, statement: &Statement) -> bool {
        statement.kind == Kind::Insert || statement.touches(self.field) || statement.upsert
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        let inserts = change.statements.iter().all(|statement| statement.kind == Kind::Insert);
        if change.statements.len() > 1 && !inserts {
            return None;
        }
        let has_own_number = change.statements.iter().any(|statement| self.has_own_number(statement));
        change.changed().find_map(|(before, after)| {
            let number = at(after, self.field);
            let Some(before) = before else {
                let brings = |inserted: &Document| at(inserted, self.field).and_then(as_number).is_some();
                let sent = match change.statements {
                    [statement] => statement.inserted.as_ref().filter(|inserted| brings(inserted)),
                    _ => None,
                };
                if let Some(sent) = sent.filter(|_| self.provided != "keep") {
                    let same = |other: &&Document| same_number(at(other, self.field), number);
                    let is_own = at(sent, self.field) == number;
                    let taken = change.after.iter().filter(same).count() > 1;
                    return (self.provided == "reject" || is_own && taken || number.is_none())
                        .then(|| format!("a number that the client sets is stored with provided: {}", self.provided));
                }
                if (inserts || self.on_upsert) && number.is_none() {
                    return Some("inserted without a number".to_owned());
                }
                let same = |other: &&Document| same_number(at(other, self.field), number);
                let taken = number.is_some() && change.after.iter().filter(same).count() > 1;
                return (taken && !has_own_number).then(|| "inserted with the number of another".to_owned());
            };
            let stored = at(before, self.field).filter(|stored| as_number(stored).is_some())?;
            // Compared as text, because NaN is not equal to itself.
            let kept = number.is_some_and(|number| show::value(number) == show::value(stored));
            let brings_another = change.statements.iter().any(|statement| self.brings_another(statement));
            (!kept && !brings_another).then(|| "the number changed".to_owned())
        })
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        // Later statements that use the number see another value, or a value where there was none.
        let uses_it = |statement: &Statement| statement.queries(self.field) || statement.touches(self.field);
        let brings = |statement: &Statement| self.provided != "keep" && self.has_own_number(statement);
        self.broken(direct).is_none()
            && !direct.statements.iter().any(brings)
            && !direct.statements.iter().skip(1).any(uses_it)
    }

    fn strip(&self, document: &mut Document) {
        super::clear(document, self.field);
    }

    /// A replacement without the number may change nothing.
    fn modifies(&self) -> bool {
        true
    }

    fn counter(&self) -> bool {
        !self.optimistic
    }

    fn unique(&self) -> Option<&str> {
        self.optimistic.then_some(self.field)
    }
}
