//! `timestamps`: a protected field changes together with its timestamp, which is the source time and never decreases.

use bson::{Bson, DateTime, Document, doc};

use super::super::case::{Kind, Statement, first};
use super::super::dice::Dice;
use super::super::rules::{Change, Promise};
use super::super::show;
use super::super::values::{FUTURE, PAST, at, date, put};

const SOURCE: &str = "at";
const STORE: &str = "last_modified";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum WithoutSource {
    Reject,
    Clock,
    Pass,
}

#[derive(Clone, Debug)]
pub(in super::super) struct Timestamps {
    /// `None`: all top-level fields.
    pub(in super::super) fields: Option<Vec<&'static str>>,
    pub(in super::super) per_document: bool,
    pub(in super::super) missing: WithoutSource,
    /// Times after the clock are rejected.
    pub(in super::super) max_ahead: bool,
}

/// A field of a document: its value and its timestamp.
struct FieldState<'a> {
    name: String,
    value: Option<&'a Bson>,
    timestamp: Option<DateTime>,
}

fn same(one: Option<&Bson>, other: Option<&Bson>) -> bool {
    one.map(show::value) == other.map(show::value)
}

/// Dates that are written below the store, at any depth.
fn timestamps_in(document: &Document, found: &mut Vec<DateTime>) {
    for (key, value) in document {
        if key.starts_with(STORE) {
            dates_in(value, found);
        } else if let Bson::Document(inner) = value {
            timestamps_in(inner, found);
        }
    }
}

fn dates_in(value: &Bson, found: &mut Vec<DateTime>) {
    found.extend(as_date(Some(value)));
    if let Bson::Document(inner) = value {
        inner.iter().for_each(|(_, value)| dates_in(value, found));
    }
}

fn as_date(value: Option<&Bson>) -> Option<DateTime> {
    value.and_then(Bson::as_datetime).copied()
}

fn is_future(time: DateTime) -> bool {
    time.timestamp_millis() >= FUTURE
}

/// Whether an `$unset` stage removes such a path.
fn removes(stage: &Document, is_path: impl Fn(&str) -> bool) -> bool {
    let is_named = |path: &Bson| path.as_str().is_some_and(&is_path);
    let names = |unset: &Bson| is_named(unset) || unset.as_array().is_some_and(|paths| paths.iter().any(is_named));
    stage.get("$unset").is_some_and(names)
}

impl Timestamps {
    pub(in super::super) fn random(dice: &mut Dice) -> Timestamps {
        let per_document = dice.percent(25);
        let lists = [vec!["a", "b"], vec!["a.n", "b"], vec!["c.d", "c.e"], vec!["b"]];
        let fields = (!per_document && dice.percent(65)).then(|| dice.pick(&lists));
        let missing =
            dice.pick(&[WithoutSource::Reject, WithoutSource::Reject, WithoutSource::Clock, WithoutSource::Pass]);
        Timestamps { fields, per_document, missing, max_ahead: dice.percent(25) }
    }

    /// The fields with timestamps that a document may have.
    fn names(&self, documents: [Option<&Document>; 2]) -> Vec<String> {
        if let Some(fields) = &self.fields {
            return fields.iter().chain([&SOURCE]).map(|field| (*field).to_owned()).collect();
        }
        let mut names: Vec<String> = documents.into_iter().flatten().flat_map(Document::keys).cloned().collect();
        names.retain(|name| name != "_id" && name != STORE);
        names.sort();
        names.dedup();
        names
    }

    fn register<'a>(&self, document: &'a Document, name: &str) -> FieldState<'a> {
        let timestamp = if self.per_document { document.get(STORE) } else { at(document, &format!("{STORE}.{name}")) };
        FieldState { name: name.to_owned(), value: at(document, name), timestamp: as_date(timestamp) }
    }

    /// The source times of the statements.
    fn sources(change: &Change<'_>) -> Vec<DateTime> {
        change.statements.iter().flat_map(Self::source_of).collect()
    }

    fn source_of(statement: &Statement) -> Vec<DateTime> {
        let mut found = Self::times_of(statement);
        found.extend(Self::time_set_by(statement, "$setOnInsert"));
        // Timestamps that a client brings are the source times of their fields; a field that its filter gives is
        // inserted with one of these times.
        let sets = statement.stages().flat_map(|stage| stage.values().filter_map(Bson::as_document));
        sets.for_each(|set| timestamps_in(set, &mut found));
        let whole = [&statement.inserted, &statement.update.as_ref().and_then(Bson::as_document).cloned()];
        whole.into_iter().flatten().for_each(|document| timestamps_in(document, &mut found));
        found
    }

    fn time_set_by(statement: &Statement, operator: &str) -> Option<DateTime> {
        let update = statement.update.as_ref().and_then(Bson::as_document)?;
        as_date(update.get_document(operator).ok()?.get(SOURCE))
    }

    /// The times in the source field.
    fn times_of(statement: &Statement) -> Vec<DateTime> {
        let mut found = Vec::new();
        found.extend(as_date(statement.inserted.as_ref().and_then(|document| document.get(SOURCE))));
        found.extend(as_date(statement.replacement().and_then(|document| document.get(SOURCE))));
        found.extend(Self::time_set_by(statement, "$set"));
        // The time of an insert does not apply to writes on stored documents.
        if statement.writes().is_empty() {
            found.extend(Self::time_set_by(statement, "$setOnInsert"));
        }
        for stage in statement.stages() {
            // What a later stage removes is not set: the stages mean what their operators together mean.
            if removes(stage, |path| path == SOURCE) {
                found.clear();
            }
            for set in stage.iter().filter_map(|(_, set)| set.as_document()) {
                let set = set.get(SOURCE);
                found.extend(as_date(set.and_then(Bson::as_document).and_then(|set| set.get("$literal")).or(set)));
            }
        }
        found
    }

    /// Under `pass`, a field without a source time keeps the timestamp that it came with, if any.
    fn passes_untimed(&self, change: &Change<'_>) -> bool {
        self.missing == WithoutSource::Pass
            && change.statements.iter().all(|statement| Self::times_of(statement).is_empty())
    }

    /// Whether a field has got a timestamp after the clock.
    fn is_ahead(&self, before: Option<&Document>, after: &Document) -> bool {
        self.names([before, Some(after)]).iter().any(|name| {
            let old = before.and_then(|before| self.register(before, name).timestamp);
            let new = self.register(after, name).timestamp;
            new != old && new.is_some_and(is_future)
        })
    }

    fn may_timestamp(&self, timestamp: DateTime, sources: &[DateTime]) -> bool {
        let by_clock = (PAST * 3 / 2..PAST * 4).contains(&timestamp.timestamp_millis());
        sources.contains(&timestamp) || by_clock
    }

    fn forgets(statement: &Statement) -> bool {
        let is_stored = |path: &str| first(path) == STORE;
        statement.writes().iter().any(|(_, path, _)| is_stored(path))
            || statement.stages().any(|stage| removes(stage, is_stored))
    }

    fn inserted(&self, after: &Document, change: &Change<'_>) -> Option<String> {
        let mut sources = Self::sources(change);
        // What a pipeline inserts may have its time by an expression.
        sources.extend(as_date(after.get(SOURCE)).filter(|_| change.statements.iter().any(Statement::is_pipeline)));
        let untimed = self.passes_untimed(change);
        self.names([Some(after), None]).iter().find_map(|name| {
            let register = self.register(after, name);
            register.value?;
            match register.timestamp {
                None if untimed => None,
                None => Some(format!("'{name}' was inserted without a timestamp")),
                Some(timestamp) if !self.may_timestamp(timestamp, &sources) => {
                    Some(format!("'{name}' was inserted with a timestamp that is not its time"))
                }
                Some(_) => None,
            }
        })
    }

    fn updated(&self, before: &Document, after: &Document, change: &Change<'_>) -> Option<String> {
        let sources = Self::sources(change);
        let forgets = change.statements.iter().any(Self::forgets);
        let (untimed, silent) = (self.passes_untimed(change), sources.is_empty());
        self.names([Some(before), Some(after)]).iter().find_map(|name| {
            let (old, new) = (self.register(before, name), self.register(after, name));
            let FieldState { name, .. } = &new;
            let changed = !same(old.value, new.value);
            match (old.timestamp, new.timestamp) {
                (old, new) if untimed && (silent || old == new) => None,
                (Some(_), None) if !forgets => Some(format!("the timestamp of '{name}' is gone")),
                (Some(old), Some(new)) if new < old => Some(format!("the timestamp of '{name}' went back")),
                (_, Some(timestamp)) if changed && !self.may_timestamp(timestamp, &sources) => {
                    Some(format!("'{name}' changed, and its timestamp is not the write's time"))
                }
                // Limits: no timestamp can be stored in an array, and docward never creates arrays.
                (_, None) if before.get(STORE).is_some_and(|store| store.as_array().is_some()) => None,
                (_, None) if changed && !forgets => Some(format!("'{name}' changed and has no timestamp")),
                (old, Some(new)) if old != Some(new) && !self.may_timestamp(new, &sources) => {
                    Some(format!("the timestamp of '{name}' is not the write's time"))
                }
                _ => None,
            }
        })
    }
}

impl Promise for Timestamps {
    fn name(&self) -> &'static str {
        "timestamps"
    }

    fn settings(&self) -> String {
        let fields =
            self.fields.as_ref().map(|fields| format!(", fields: [{}]", fields.join(", "))).unwrap_or_default();
        let per = if self.per_document { ", per: document" } else { "" };
        let missing = match self.missing {
            WithoutSource::Reject => "",
            WithoutSource::Clock => ", without_source: clock",
            WithoutSource::Pass => ", without_source: pass",
        };
        let max_ahead = if self.max_ahead { ", max_ahead: 10m" } else { "" };
        format!("timestamps: {{ source: {SOURCE}{fields}{per}{missing}{max_ahead} }}")
    }

    fn fields(&self) -> Vec<String> {
        let own = self.fields.clone().unwrap_or_else(|| vec!["a", "b", "note"]);
        own.into_iter().chain([SOURCE]).map(str::to_owned).collect()
    }

    fn tidy(&self, dice: &mut Dice, document: &mut Document) {
        document.remove(STORE);
        if dice.percent(25) {
            return;
        }
        let time = |dice: &mut Dice| date(PAST + dice.below(6) as i64 * 1000);
        if self.per_document {
            document.insert(STORE, time(dice));
            return;
        }
        for name in self.names([Some(document), None]) {
            if at(document, &name).is_some() && dice.percent(80) {
                put(document, &format!("{STORE}.{name}"), time(dice));
            }
        }
    }

    /// Some stored documents have another value where a document with timestamps would be.
    fn tidy_all(&self, dice: &mut Dice, documents: &mut [Document]) {
        let mut parents = self.fields.iter().flatten().filter_map(|field| Some(field.rsplit_once('.')?.0));
        let Some(parent) = parents.next_back() else { return };
        for document in documents {
            if dice.percent(15) && document.get_document(STORE).is_ok() {
                let inside = doc! { "n": date(PAST), "d": date(PAST) };
                let odd = [Bson::Array(vec![]), Bson::Array(vec![inside.into()]), 1.into(), Bson::Null, date(PAST)];
                put(document, &format!("{STORE}.{parent}"), dice.pick(&odd));
            }
        }
    }

    fn idiom(&self, dice: &mut Dice) -> Option<(Document, Document)> {
        let field = dice.pick(&Promise::fields(self));
        let time = date(PAST + dice.below(8) as i64 * 1000);
        let mut set = doc! { SOURCE: time };
        if self.per_document && dice.percent(60) {
            set.insert("note", dice.below(100) as i32);
            return Some((doc! { "_id": 1 + dice.below(3) as i32 }, set));
        }
        if field != SOURCE {
            set.insert(field, dice.below(100) as i32);
        }
        Some((doc! { "_id": 1 + dice.below(3) as i32 }, doc! { "$set": set }))
    }

    fn alters(&self, statement: &Statement) -> bool {
        let is_protected = |field: &String| statement.touches(field);
        statement.kind == Kind::Update
            && (self.fields.is_none()
                || statement.upsert
                || Promise::fields(self).iter().any(is_protected)
                || statement.touches(STORE))
    }

    fn broken(&self, change: &Change<'_>) -> Option<String> {
        let is_clear = |statement: &Statement| !Self::times_of(statement).is_empty() && !Self::forgets(statement);
        if change.statements.len() > 1 && !change.statements.iter().all(is_clear) {
            return None;
        }
        if self.max_ahead && change.changed().any(|(before, after)| self.is_ahead(before, after)) {
            return Some("a timestamp ahead of the clock was stored".to_owned());
        }
        change.changed().find_map(|(before, after)| match before {
            None => self.inserted(after, change),
            Some(before) => self.updated(before, after, change),
        })
    }

    fn harmless(&self, direct: &Change<'_>) -> bool {
        let sources = Self::sources(direct);
        if self.max_ahead && sources.iter().any(|time| is_future(*time)) {
            return false;
        }
        // A statement that is older than an earlier one changes nothing.
        let [statement] = direct.statements else {
            let times = |statement| {
                let times = Self::source_of(statement);
                let has_none = times.is_empty() && self.missing == WithoutSource::Clock;
                if has_none { vec![DateTime::now()] } else { times }
            };
            return direct.statements.iter().flat_map(times).is_sorted();
        };
        let brings = |document: Option<&Document>| document.is_some_and(|document| document.contains_key(STORE));
        if brings(statement.inserted.as_ref())
            || brings(statement.replacement())
            || Self::forgets(statement)
            || show::document(&statement.filter).contains(STORE)
        {
            return false;
        }
        if statement.kind == Kind::Delete {
            return true;
        }
        direct.changed().all(|(before, after)| {
            let names = self.names([before, Some(after)]);
            let mut timestamps = names.iter().filter_map(|name| {
                let old = self.register(before?, name);
                let changed = self.per_document || !same(old.value, at(after, name));
                old.timestamp.filter(|_| changed || statement.touches(name))
            });
            let touched = before.is_none_or(|before| names.iter().any(|name| !same(at(before, name), at(after, name))));
            !touched
                || match sources[..] {
                    [source] => timestamps.all(|timestamp| timestamp <= source),
                    _ => sources.is_empty() && self.missing == WithoutSource::Pass,
                }
        })
    }

    fn strip(&self, document: &mut Document) {
        document.remove(STORE);
    }

    fn modifies(&self) -> bool {
        true
    }
}
