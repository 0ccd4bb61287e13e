//! `replacement`: no save erases what it has not read. Under `reject` no unversioned replacement changes a stored
//! document; under `merge` fields that the replacement does not name survive; with a version each save matches the
//! version that was read, and increments it.

use bson::{Bson, Document, doc};

use super::super::case::{Kind, Statement, first};
use super::super::dice::Dice;
use super::super::rules::{Change, Promise, can_load};
use super::super::values::{as_number, at, put, reachable, take};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Policy {
    Reject,
    Merge,
    Check,
}

/// The server cannot increment it.
const LARGEST: Bson = Bson::Int64(i64::MAX);
/// By the page: an update that is sent in several forms leaves it.
const SECOND_LARGEST: Bson = Bson::Int64(i64::MAX - 1);

#[derive(Clone, Debug)]
pub(in super::super) struct Replacement {
    pub(in super::super) policy: Policy,
    pub(in super::super) version: Option<&'static str>,
    pub(in super::super) ignore: bool,
    pub(in super::super) count_updates: bool,
}

impl Replacement {
    pub(in super::super) fn random(dice: &mut Dice) -> Replacement {
        let policy = dice.pick(&[Policy::Reject, Policy::Merge, Policy::Check, Policy::Check]);
        let has_version = policy == Policy::Check || dice.percent(30);
        Replacement {
            policy,
            version: has_version.then(|| dice.pick(&["version", "version", "a.n", "no"])),
            ignore: has_version && dice.percent(30),
            count_updates: dice.percent(60),
        }
    }

    fn version_of<'a>(&self, document: &'a Document) -> Option<&'a Bson> {
        at(document, self.version?).filter(|version| **version != Bson::Null)
    }

    /// Whether docward increments a version that is NaN, which stays NaN.
    pub(in super::super) fn has_nan(&self, document: &Document) -> bool {
        self.count_updates && self.version_of(document).and_then(as_number).is_some_and(f64::is_nan)
    }

    /// A whole number that can be incremented.
    fn whole(version: Option<&Bson>) -> Option<f64> {
        let version = version?;
        let is_exact =
            |number: &f64| number.fract() == 0.0 && (number.abs() < 9e15 || matches!(version, Bson::Int64(_)));
        as_number(version).filter(is_exact).filter(|_| !matches!(version, Bson::Decimal128(_) | Bson::Int64(i64::MAX)))
    }

    /// A whole number, or a decimal that the client wrote.
    fn written(version: Option<&Bson>) -> Option<f64> {
        version.and_then(as_number).filter(|number| number.fract() == 0.0)
    }

    fn is_checked(&self, statement: &Statement) -> bool {
        let states = |version: &str| {
            let around = version.split_once('.').and_then(|(outer, below)| {
                statement.equality(outer).and_then(Bson::as_document).and_then(|document| at(document, below))
            });
            statement.equality(version).is_some() || around.is_some()
        };
        self.version.is_some_and(states)
    }

    /// Forbidden changes of a stored document by a replacement.
    fn replaced(&self, statement: &Statement, before: &Document, after: &Document) -> Option<String> {
        let checked = self.is_checked(statement);
        match self.policy {
            Policy::Reject if !checked => Some("a replacement without a check changed a stored document".to_owned()),
            Policy::Merge if !checked => {
                // A document around the version is merged too.
                let around = self.version.filter(|version| version.contains('.')).map_or("", first);
                let inside = before.get(around).and_then(Bson::as_document);
                let is_lost_inside = |key: &&String| at(after, &format!("{around}.{key}")).is_none();
                let lost = before.keys().find(|key| !after.contains_key(*key));
                let lost = lost.or_else(|| inside.and_then(|inside| inside.keys().find(is_lost_inside)));
                let erased = lost.map(|lost| format!("a merged replacement erased '{lost}'"));
                erased.or_else(|| self.updated(before, after).filter(|_| self.counts()))
            }
            Policy::Check if !checked => {
                let (sent, stored) = (self.version_of(statement.replacement()?), self.version_of(before));
                // Null counts as no version.
                let some = |version: &&Bson| **version != Bson::Null;
                let is_sent = |stored: Option<&Bson>| {
                    let (sent, stored) = (sent.filter(some), stored.filter(some));
                    match (sent.and_then(as_number), stored.and_then(as_number)) {
                        // Neighbouring longs can be the same double.
                        _ if matches!((sent, stored), (Some(Bson::Int64(_)), Some(Bson::Int64(_)))) => sent == stored,
                        (Some(sent), Some(stored)) => sent == stored,
                        _ => sent == stored,
                    }
                };
                // Limits: the server compares each element of an array.
                let values = self.version.map_or(Vec::new(), |version| reachable(before, version));
                let each = |value: &'_ Bson| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
                let mut elements = values.into_iter().flat_map(each);
                let same = is_sent(stored) || elements.any(|element| is_sent(Some(&element)));
                if !same {
                    return Some("a save of another version changed a stored document".to_owned());
                }
                self.uncounted(before, after)
            }
            _ => self.uncounted(before, after),
        }
    }

    fn uncounted(&self, before: &Document, after: &Document) -> Option<String> {
        let old = self.version_of(before);
        match (Self::whole(old), Self::written(self.version_of(after))) {
            (Some(_), Some(_)) if self.is_higher(before, after) => None,
            (Some(_), _) => Some("the version is not higher after a save".to_owned()),
            (None, _) if old.is_some() => None,
            (None, Some(_)) => None,
            (None, None) if self.version_of(after).is_some() => None,
            (None, None) => Some("a saved document has no version".to_owned()),
        }
    }

    /// Changes of the version by an update with operators.
    fn updated(&self, before: &Document, after: &Document) -> Option<String> {
        let version = self.version_of(before).filter(|version| **version != SECOND_LARGEST);
        Self::whole(version)?;
        (!self.is_higher(before, after)).then(|| "an update did not count the version up".to_owned())
    }

    fn is_higher(&self, before: &Document, after: &Document) -> bool {
        let (old, new) = (self.version_of(before), self.version_of(after));
        // Neighbouring longs can be the same double.
        match old.and_then(Bson::as_i64).zip(new.and_then(Bson::as_i64)) {
            Some((old, new)) => new > old,
            None => Self::whole(old).zip(Self::written(new)).is_some_and(|(old, new)| new > old),
        }
    }

    fn counts(&self) -> bool {
        self.version.is_some() && self.count_updates && knows_count_updates()
    }
}

fn knows_count_updates() -> bool {
    static KNOWS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *KNOWS.get_or_init(|| {
        can_load(&["replacement: { policy: check_version, version: version, count_updates: true }".to_owned()])
    })
}

impl Promise for Replacement {
    fn name(&self) -> &'static str {
        "replacement"
    }

    fn settings(&self) -> String {
        let policy = match self.policy {
            Policy::Reject => "reject",
            Policy::Merge => "merge",
            Policy::Check => "check_version",
        };
        let version = self.version.map(|version| format!(", version: {version}")).unwrap_or_default();
        let conflict = if self.ignore { ", on_conflict: ignore" } else { "" };
        let count = match self.version {
            Some(_) if knows_count_updates() => format!(", count_updates: {}", self.count_updates),
            _ => String::new(),
        };
        format!("replacement: {{ policy: {policy}{version}{conflict}{count} }}")
    }

    fn fields(&self) -> Vec<String> {
        vec![self.version.unwrap_or("note").to_owned()]
    }

    fn tidy(&self, dice: &mut Dice, document: &mut Document) {
        let Some(version) = self.version else { return };
        match dice.below(20) {
            0..4 => drop(take(document, version)),
            4..7 => put(document, version, Bson::Int64(dice.below(3) as i64)),
            7 => put(document, version, dice.pick(&[LARGEST, SECOND_LARGEST])),
            _ => put(document, version, Bson::Int32(dice.below(4) as i32)),
        }
    }

    fn idiom(&self, dice: &mut Dice) -> Option<(Document, Document)> {
        let mut filter = doc! { "_id": 1 + dice.below(3) as i32 };
        let mut update = doc! { "note": dice.below(100) as i32 };
        if let Some(version) = self.version.filter(|_| dice.percent(70)) {
            let known = dice.below(4) as i32;
            let odd = dice.percent(5).then(|| dice.pick(&[doc! { "$gt": 0 }, doc! { "$exists": true }]));
            put(&mut update, version, odd.map_or(known.into(), Bson::from));
            if dice.percent(30) {
                filter.insert(version, known);
            }
        }
        Some((
            filter,
            if dice.percent(70) {
                update
            } else {
                doc! { "$set": update }
            },
        ))
    }

    fn alters(&self, statement: &Statement) -> bool {
        statement.kind == Kind::Update && (statement.replacement().is_some() || self.version.is_some())
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        let changed = change.changed().filter_map(|(before, after)| Some((before?, after)));
        let [statement] = change.statements else {
            let are_updates = change.statements.iter().all(|statement| !statement.writes().is_empty());
            return changed
                .filter(|_| self.counts() && are_updates)
                .find_map(|(before, after)| self.updated(before, after));
        };
        if statement.replacement().is_some() {
            return changed.into_iter().find_map(|(before, after)| self.replaced(statement, before, after));
        }
        let counts = self.counts() && !statement.is_pipeline();
        changed.filter(|_| counts).find_map(|(before, after)| self.updated(before, after))
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        let [statement] = direct.statements else {
            // A later statement may match the version that an earlier one has incremented.
            let looks = |version| direct.statements.iter().any(|statement| statement.queries(version));
            let saves = direct.statements.iter().skip(1).any(|statement| statement.replacement().is_some());
            return !(self.version.is_some_and(looks) || saves && self.policy == Policy::Check);
        };
        let Some(document) = statement.replacement() else {
            let is_lost = |before: &Document, after: &Document| before.keys().any(|key| !after.contains_key(key));
            let is_kept = |(before, after): (Option<&Document>, &Document)| {
                let Some(before) = before else { return true };
                let is_lower = |version: &Bson| {
                    !self.is_higher(before, after)
                        && as_number(version).is_some()
                        && self.version_of(after) != Some(version)
                };
                let sets_back = self.version_of(before).is_some_and(is_lower);
                !(sets_back || statement.is_pipeline() && is_lost(before, after))
            };
            let names = self.version.is_some_and(|version| statement.touches(version));
            return direct.changed().all(is_kept) && (!names || statement.computes());
        };
        // A document with a version was read before, so it must not be inserted.
        let inserts = direct.after.len() > direct.before.len();
        if inserts && self.policy == Policy::Check && self.version_of(document).is_some() {
            return false;
        }
        let mut changed = direct.changed().filter_map(|(before, after)| Some((before?, after)));
        // By the page: a document around the version is merged field by field.
        let around = self.version.filter(|version| version.contains('.') && self.policy == Policy::Merge).map(first);
        let is_other = |stored: &Document| around.is_some_and(|around| stored.get_document(around).is_err());
        if around.is_some_and(|around| document.contains_key(around)) && direct.before.iter().any(is_other) {
            return false;
        }
        changed.all(|(before, after)| {
            let wrong = self.replaced(statement, before, after);
            wrong.is_none_or(|what| what.contains("version is not") || what.contains("has no version"))
        })
    }

    fn deciding(&self) -> Vec<String> {
        self.version.map(str::to_owned).into_iter().collect()
    }

    fn strip(&self, document: &mut Document) {
        if let Some(version) = self.version {
            super::clear(document, version);
        }
        // By the page: the `_id` keeps its numeric type.
        if let Some(id) = document.get("_id").filter(|_| self.policy == Policy::Merge).and_then(as_number) {
            document.insert("_id", id);
        }
    }

    fn splits(&self, documents: &[Document]) -> bool {
        if documents.len() < 2 {
            return false;
        }
        let is_other = |document: &Document| {
            let around = self.version.and_then(|version| document.get(first(version)));
            let version = self.version_of(document);
            let is_largest = [Some(&LARGEST), Some(&SECOND_LARGEST)].contains(&version);
            around.is_some() && (Self::written(version).is_none() || is_largest)
        };
        self.counts() && documents.len() > 1 && documents.iter().any(is_other)
    }

    fn modifies(&self) -> bool {
        self.version.is_some() || self.policy == Policy::Merge
    }
}
