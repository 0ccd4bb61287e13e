//! `bounds`: the field is absent or a number in range.

use bson::{Bson, Document};

use super::super::case::Statement;
use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::values::{as_number, put, reachable, small_number, take};
use super::queue::{ATTEMPTS, Queue};

#[derive(Clone, Debug)]
pub(in super::super) struct Bounds {
    pub(in super::super) field: &'static str,
    pub(in super::super) min: Option<f64>,
    pub(in super::super) max: Option<f64>,
    pub(in super::super) reject: bool,
    /// A statement without room is an error, not n: 0.
    pub(in super::super) reports: bool,
}

impl Bounds {
    pub(in super::super) fn random(dice: &mut Dice) -> Bounds {
        let field = dice.pick(&["b", "b", "a.n", "a.n", "count", "version", "try", "c.d", "no", "a.n.x"]);
        let (min, max) = (dice.pick(&[0.0, 0.0, 1.0, -2.0, 0.5]), dice.pick(&[10.0, 10.0, 5.0, 100.0, 2.5]));
        let (min, max) = match dice.below(4) {
            0 => (Some(min), None),
            1 => (None, Some(max)),
            _ => (Some(min), Some(max)),
        };
        Bounds { field, min, max, reject: dice.percent(15), reports: dice.percent(30) }
    }

    fn contains(&self, value: &Bson) -> bool {
        let kept = |number: f64| self.min.is_none_or(|min| number >= min) && self.max.is_none_or(|max| number <= max);
        as_number(value).is_some_and(|number| number.is_finite() && kept(number))
    }

    /// Whether the statement increments the field, and its filter has a condition that leaves room.
    pub(in super::super) fn is_kept_by(&self, statement: &Statement) -> bool {
        // Sums close to a bound may be rounded beyond it.
        const MARGIN: f64 = 1e-6;
        let is_increment = |(operator, path, _): &(String, String, Bson)| operator == "$inc" && path == self.field;
        let amount = statement.writes().into_iter().find(is_increment).and_then(|(_, _, value)| as_number(&value));
        let (Some(amount), Some(condition)) = (amount, statement.filter.get(self.field)) else { return false };
        let towards = if amount < 0.0 { "$gte" } else { "$lte" };
        let number = match condition {
            Bson::Document(operators) => operators.get(towards).or(operators.get("$eq")),
            value => Some(value),
        };
        let leaves_room =
            |number: f64| [-MARGIN, MARGIN].iter().all(|by| self.contains(&Bson::Double(number + amount + by)));
        number.and_then(as_number).is_some_and(leaves_room)
    }

    /// The distance from the range; `None` if it cannot be computed.
    fn distance(&self, value: &Bson) -> Option<f64> {
        let number = as_number(value).filter(|number| number.is_finite())?;
        let below = self.min.map_or(0.0, |min| min - number);
        let above = self.max.map_or(0.0, |max| number - max);
        Some(below.max(above).max(0.0))
    }
}

impl Promise for Bounds {
    fn name(&self) -> &'static str {
        "bounds"
    }

    fn settings(&self) -> String {
        let bound =
            |name: &str, bound: Option<f64>| bound.map(|bound| format!(", {name}: {bound}")).unwrap_or_default();
        let policy = if self.reject { ", policy: reject" } else { "" };
        let on_no_room = if self.reports { ", on_no_room: error" } else { "" };
        let (min, max) = (bound("min", self.min), bound("max", self.max));
        format!("bounds: {{ field: {}{min}{max}{policy}{on_no_room} }}", self.field)
    }

    fn fields(&self) -> Vec<String> {
        vec![self.field.to_owned()]
    }

    fn tidy(&self, dice: &mut Dice, document: &mut Document) {
        if dice.percent(15) {
            take(document, self.field);
            return;
        }
        let drawn = std::iter::repeat_with(|| small_number(dice)).take(40).find(|number| self.contains(number));
        if let Some(number) = drawn {
            put(document, self.field, number);
        }
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        change.changed().find_map(|(before, after)| {
            let (old, new) =
                (before.map_or(Vec::new(), |before| reachable(before, self.field)), reachable(after, self.field));
            let wrong = new.iter().find(|value| !self.contains(value))?;
            // A number that was out of range may move towards it.
            let nearer = || match (&old[..], &new[..]) {
                ([old], [new]) => {
                    matches!((self.distance(old), self.distance(new)), (Some(old), Some(new)) if new <= old)
                }
                _ => false,
            };
            let same = old.len() == new.len() && old.iter().zip(&new).all(|(old, new)| same(old, new));
            (!same && !nearer())
                .then(|| format!("'{}' is out of range: {}", self.field, super::super::show::value(wrong)))
        })
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        // A number out of range is not incremented, even if the sum is rounded to the same number.
        let increments = |statement: &Statement| {
            statement.writes().iter().any(|(operator, path, _)| operator == "$inc" && path == self.field)
        };
        let is_outside =
            |document: &Document| reachable(document, self.field).iter().any(|value| !self.contains(value));
        let rounds = direct.statements.iter().any(increments) && direct.before.iter().any(is_outside);
        // A claim increments the attempt number of `queue`.
        let is_full = |job: &Document| {
            let next = job.get(ATTEMPTS).and_then(as_number).map(|number| Bson::Double(number + 1.0));
            next.is_some_and(|next| !self.contains(&next))
        };
        let claims_full = self.field == ATTEMPTS
            && direct.statements.iter().any(Queue::may_claim)
            && direct.before.iter().any(is_full);
        self.broken(direct).is_none()
            && !rounds
            && !claims_full
            && !direct.statements.iter().any(|statement| self.refuses(statement))
    }
}

/// Documented rejections that do not depend on the stored documents.
impl Bounds {
    fn refuses(&self, statement: &Statement) -> bool {
        let operators = statement.update.as_ref().and_then(Bson::as_document);
        let upsert_only = operators.and_then(|update| update.get_document("$setOnInsert").ok());
        let inserted = upsert_only.into_iter().flatten().any(|(path, value)| self.is_left_by(path, value));
        let replacing = statement.replacement().map_or(Vec::new(), |document| reachable(document, self.field));
        let replaced = replacing.into_iter().any(|value| !self.contains(value));
        let written = statement.writes().into_iter().any(|(operator, path, value)| match operator.as_str() {
            "$set" => self.is_left_by(&path, &value),
            _ => false,
        });
        let stage_fields =
            |stage: &'_ Document| ["$set", "$addFields"].iter().find_map(|name| stage.get_document(name).ok().cloned());
        let constant =
            |value: &Bson| value.as_document().and_then(|value| value.get("$literal")).unwrap_or(value).clone();
        let mut set = statement.stages().filter_map(stage_fields);
        let computed = set.any(|fields| fields.iter().any(|(path, value)| self.is_left_by(path, &constant(value))));
        written || computed || replaced || inserted
    }

    /// Whether a value at this path, of the field or one around it, is out of range.
    fn is_left_by(&self, path: &str, value: &Bson) -> bool {
        if path == self.field {
            return !self.contains(value);
        }
        let below = self.field.strip_prefix(path).and_then(|below| below.strip_prefix('.'));
        let inside = below.zip(value.as_document()).map_or(Vec::new(), |(below, value)| reachable(value, below));
        inside.into_iter().any(|value| !self.contains(value))
    }
}

/// Treats NaN as equal to itself, and an infinity as equal to that of another type.
fn same(one: &Bson, other: &Bson) -> bool {
    let infinity = |value: &Bson| as_number(value).filter(|number| number.is_infinite());
    one == other
        || infinity(one).is_some() && infinity(one) == infinity(other)
        || super::super::show::value(one) == super::super::show::value(other)
}
