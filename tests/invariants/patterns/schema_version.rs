//! `schema_version`: a stored version is in range, and never decreases; a statement of an older version changes nothing
//! in newer documents.

use bson::{Bson, Document, doc};

use super::super::case::{Kind, Statement};
use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::values::{as_number, put, reachable, related};

#[derive(Clone, Debug)]
pub(in super::super) struct SchemaVersion {
    pub(in super::super) field: &'static str,
    pub(in super::super) minimum: i32,
    pub(in super::super) current: i32,
    /// A statement of an older version on newer documents is n: 0, not an error.
    pub(in super::super) ignores: bool,
}

impl SchemaVersion {
    pub(in super::super) fn random(dice: &mut Dice) -> SchemaVersion {
        let field = dice.pick(&["version", "version", "b", "a.n", "c.d"]);
        let minimum = dice.pick(&[0, 1, 1, 2]);
        SchemaVersion { field, minimum, current: minimum + dice.pick(&[0, 1, 2]), ignores: dice.percent(30) }
    }

    /// The version; `None` if it is no number.
    fn version(&self, document: &Document) -> Option<f64> {
        match reachable(document, self.field)[..] {
            [value] => as_number(value).filter(|number| !number.is_nan()),
            _ => None,
        }
    }

    fn is_written_version(&self, value: &Bson) -> bool {
        let number = as_number(value).filter(|number| number.fract() == 0.0);
        let is_decimal = matches!(value, Bson::Decimal128(_));
        number.is_some_and(|number| number >= self.minimum.into() && number <= self.current.into()) && !is_decimal
    }

    /// The version that its operators set.
    fn set_by(&self, statement: &Statement) -> Option<f64> {
        let is_it = |(operator, path, _): &(String, String, Bson)| operator == "$set" && path == self.field;
        statement.writes().into_iter().find(is_it).and_then(|(_, _, value)| as_number(&value))
    }

    /// Whether the statement is rejected whatever is stored.
    fn refuses(&self, statement: &Statement) -> bool {
        let written = statement.writes().into_iter().any(|(operator, path, value)| {
            let sets = matches!(operator.as_str(), "$set" | "$max" | "$setOnInsert");
            sets && related(&path, self.field) && !(path == self.field && self.is_written_version(&value))
        });
        let replaced = statement.replacement().is_some_and(|document| !self.has_version(document));
        written || replaced
    }

    fn has_version(&self, document: &Document) -> bool {
        matches!(reachable(document, self.field)[..], [value] if self.is_written_version(value))
    }
}

impl Promise for SchemaVersion {
    fn name(&self) -> &'static str {
        "schema_version"
    }

    fn settings(&self) -> String {
        let SchemaVersion { field, minimum, current, ignores } = self;
        let on_newer = if *ignores { ", on_newer: ignore" } else { "" };
        format!("schema_version: {{ field: {field}, current: {current}, minimum: {minimum}{on_newer} }}")
    }

    fn fields(&self) -> Vec<String> {
        vec![self.field.to_owned()]
    }

    fn tidy(&self, dice: &mut Dice, document: &mut Document) {
        let version = self.minimum - 1 + dice.below((self.current - self.minimum + 2) as usize) as i32;
        put(document, self.field, dice.pick(&[Bson::Int32(version), Bson::Double(version.into())]));
    }

    fn idiom(&self, dice: &mut Dice) -> Option<(Document, Document)> {
        let version = self.minimum + dice.below((self.current - self.minimum + 1) as usize) as i32;
        let id = || doc! { "_id": 2 };
        Some(match dice.below(5) {
            0 => (id(), doc! { "$set": { self.field: version, "note": "x" } }),
            1 => (id(), doc! { "$max": { self.field: version }, "$set": { "note": "x" } }),
            2 => (doc! { self.field: { "$lte": version } }, doc! { "$set": { "note": "x" } }),
            3 => (doc! { self.field: version }, doc! { "$set": { "note": "x" } }),
            _ => (id(), doc! { "$set": { "note": "x" } }),
        })
    }

    /// A statement that does not set the version is older than others.
    fn alters(&self, statement: &Statement) -> bool {
        statement.kind == Kind::Update
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        let text = change.reply.map(ToString::to_string).unwrap_or_default();
        // What other operators do with the version is seen only afterwards: a client's transaction then ends with an error.
        let is_seen_before = |statement: &Statement| {
            let mut writes = statement.writes().into_iter().filter(|(_, path, _)| related(path, self.field));
            let is_set = |(operator, path, _): (String, String, Bson)| {
                path == self.field && matches!(operator.as_str(), "$set" | "$max")
            };
            let is_odd = statement.upsert && statement.filter.keys().any(|key| key.starts_with('$'));
            !is_odd && !statement.is_pipeline() && writes.all(is_set)
        };
        if self.ignores
            && change.statements.iter().all(is_seen_before)
            && text.contains(&format!("the stored document has '{}'", self.field))
        {
            return Some("a newer document is an error in spite of on_newer: ignore".to_owned());
        }
        change.changed().find_map(|(before, after)| {
            let Some(before) = before else {
                return (!self.has_version(after)).then(|| "it inserted a document without a valid version".to_owned());
            };
            let (old, new) = (self.version(before)?, self.version(after));
            if new.is_none_or(|new| new < old) {
                return Some("a version decreased".to_owned());
            }
            if matches!(change.statements, [statement] if self.set_by(statement) > new) {
                return Some("a statement changed a document and did not set its version".to_owned());
            }
            let names_it = |statement: &Statement| {
                let in_filter = statement.queries(self.field);
                let written = statement.touches(self.field);
                // An upsert knows the version that it would insert.
                let update = statement.update.as_ref().and_then(Bson::as_document);
                let on_insert = update.and_then(|update| update.get_document("$setOnInsert").ok());
                let inserts = statement.upsert && on_insert.is_some_and(|fields| fields.contains_key(self.field));
                in_filter
                    || written
                    || inserts
                    || statement.replacement().is_some_and(|document| self.has_version(document))
            };
            let is_newer = old > self.minimum.into() && !change.statements.iter().any(names_it);
            is_newer.then(|| "a statement without a version changed a newer document".to_owned())
        })
    }

    fn deciding(&self) -> Vec<String> {
        vec![self.field.to_owned()]
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        // Only documents that any statement may change.
        let old = |document: &Document| self.version(document).is_some_and(|version| version <= self.minimum.into());
        direct.before.iter().all(old)
            && self.broken(direct).is_none()
            && !direct.statements.iter().any(|statement| self.refuses(statement))
    }
}
