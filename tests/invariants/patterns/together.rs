//! `together`: a statement writes all of the fields or none; an inserted or replaced document has all or none.

use bson::{Bson, Document};

use super::super::case::{Kind, Statement, first, has_position};
use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::show::value;
use super::super::values::{fitting, put, reachable, related, take};

#[derive(Clone, Debug)]
pub(in super::super) struct Together {
    pub(in super::super) fields: Vec<&'static str>,
}

impl Together {
    pub(in super::super) fn random(dice: &mut Dice) -> Together {
        const SETS: [&[&str]; 9] = [
            &["a", "b"],
            &["a.n", "b"],
            &["a.n", "a.m"],
            &["c.d", "c.e"],
            &["b", "count"],
            &["sku", "b", "note"],
            &["version", "note"],
            &["a.n.x", "messages"],
            &["a.n.x", "a.m.x"],
        ];
        Together { fields: dice.pick(&SETS).to_vec() }
    }

    /// Whether it is a later statement of a batch that writes all fields, or removes some by name.
    fn allows_removal(&self, statement: &Statement) -> bool {
        statement.kind == Kind::Update && self.fields.iter().all(|field| statement.touches(field))
    }

    /// Whether the statement may have made this change and writes all fields, or none.
    fn allows(&self, statement: &Statement, changed: &[bool]) -> bool {
        let untouched = || self.fields.iter().zip(changed).all(|(_, changed)| !changed);
        match statement.kind {
            Kind::Update => self.fields.iter().all(|field| reaches(statement, field)) || untouched(),
            _ => untouched(),
        }
    }

    /// Whether it takes elements or parts from one of the fields, which may be missing: documented as a change of the field.
    fn shrinks(&self, statement: &Statement) -> bool {
        const SHRINKING: [&str; 4] = ["$pull", "$pullAll", "$pop", "$unset"];
        let shrinks = |(operator, path, _): &(String, String, Bson)| {
            SHRINKING.contains(&operator.as_str()) && self.fields.iter().any(|field| related(path, field))
        };
        statement.writes().iter().any(shrinks)
    }
}

/// Whether the statement writes the field, a part of it or a field around it. A number counts as a position in an array
/// unless the statement also writes a field by name beside it.
fn reaches(statement: &Statement, field: &str) -> bool {
    let writes = statement.writes();
    let is_name = |path: &str| {
        let parts: Vec<&str> = path.split('.').collect();
        let position = parts.iter().skip(1).position(|part| has_position(part)).map_or(parts.len(), |at| at + 1);
        writes.iter().any(|(_, other, _)| {
            let other: Vec<&str> = other.split('.').collect();
            other.len() > position && other[..position] == parts[..position] && !has_position(other[position])
        })
    };
    let is_reached = |path: &str| match has_position(path) {
        true => first(path) == first(field) && !is_name(path),
        false => related(path, field),
    };
    match statement.replacement() {
        None if statement.is_pipeline() => {
            statement.stage_names().is_none_or(|names| names.iter().any(|name| related(name, field)))
        }
        None => writes.iter().any(|(_, path, _)| is_reached(path)),
        _ => true,
    }
}

impl Promise for Together {
    fn name(&self) -> &'static str {
        "together"
    }

    fn settings(&self) -> String {
        format!("together: [{}]", self.fields.join(", "))
    }

    fn fields(&self) -> Vec<String> {
        self.fields.iter().map(|field| (*field).to_owned()).collect()
    }

    fn tidy(&self, dice: &mut Dice, document: &mut Document) {
        let all = dice.percent(70);
        for field in &self.fields {
            if all {
                put(document, field, fitting(dice, field));
            } else {
                take(document, field);
            }
        }
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        change.changed().find_map(|(before, after)| {
            let held = |document: &Document, field: &str| -> Vec<String> {
                reachable(document, field).into_iter().map(value).collect()
            };
            let is_there: Vec<bool> = self.fields.iter().map(|field| !held(after, field).is_empty()).collect();
            let mixed = is_there.contains(&true) && is_there.contains(&false);
            let Some(before) = before else {
                // A later statement of a batch may have changed what an earlier one inserted.
                let changed_since = || change.statements.iter().skip(1).any(|statement| self.allows_removal(statement));
                return (mixed && !changed_since()).then(|| format!("inserted with some of {:?} only", self.fields));
            };
            let changed: Vec<bool> =
                self.fields.iter().map(|field| held(before, field) != held(after, field)).collect();
            if !changed.contains(&true) {
                return None;
            }
            let replaced = matches!(change.statements, [statement] if statement.replacement().is_some());
            if mixed && replaced {
                return Some(format!("replaced by a document with some of {:?} only", self.fields));
            }
            let was_there: Vec<bool> = self.fields.iter().map(|field| !held(before, field).is_empty()).collect();
            let was_mixed = was_there.contains(&true) && was_there.contains(&false);
            if mixed && !was_mixed && matches!(change.statements, [statement] if !self.shrinks(statement)) {
                return Some(format!("left with some of {:?} only", self.fields));
            }
            let allowed = change.statements.iter().any(|statement| self.allows(statement, &changed));
            (!allowed).then(|| format!("some of {:?} changed alone", self.fields))
        })
    }
}
