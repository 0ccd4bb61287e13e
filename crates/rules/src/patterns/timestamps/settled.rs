//! Checked statements: the server executes the client's own statement, then late writes are put back and timestamps are set.
//!
//! A late write still creates the documents around its field, as it would have in the order of the source times.

use std::collections::BTreeSet;

use super::Timestamps;
use super::registers::decides;
use super::settings::{TimestampBytes, TimestampScope};
use super::touches::{Touches, set_value};
use crate::command::{Modification, Operation};
use crate::document::{Document, Path, PathLookup, Value, edit};
use crate::patterns::Rejection;
use crate::patterns::promise::{Broken, Facts, Settled, held, shown};

/// The registers that a statement writes in one document, each with the time of the write. Those without a time are not
/// compared (`without_source: pass`).
type RegisterWrites = Vec<(Path, TimestampBytes)>;

impl Timestamps {
    /// Returns what is left of the statement's writes: those that are not late, and their timestamps.
    pub(super) fn settled(
        &self,
        before: Option<Document<'_>>,
        after: Document<'_>,
        facts: &Facts<'_, '_>,
    ) -> Vec<Settled> {
        let touches = self.touches_of(facts);
        let written = self.written(before, after, facts, touches.as_ref()).unwrap_or_default();
        let may_forge = before.is_none() || touches.as_ref().is_none_or(|touches| !touches.timestamps.is_empty());
        if !may_forge && written.is_empty() {
            return Vec::new();
        }
        let before = before.unwrap_or(Document::EMPTY);
        let stored = before.get(self.store());
        let mut settled = Vec::new();
        let mut times = stored.and_then(Value::as_document).unwrap_or(Document::EMPTY).as_bytes().to_vec();
        let mut time_of_all = None;
        for (register, time) in written.iter().map(|(register, time)| (register, *time)) {
            let known = match self.per {
                TimestampScope::Document => stored,
                TimestampScope::Field => stored.and_then(Value::as_document).and_then(|times| found(register, times)),
            };
            if known.is_some_and(|known| self.timestamp_type.is_newer(known, time)) {
                settled.extend(self.put_back(register, before, after, touches.as_ref()));
                continue;
            }
            time_of_all = Some(time);
            if let (TimestampScope::Field, Ok(known)) = (self.per, Document::parse(&times)) {
                times = edit::set(known, register, self.timestamp_type.value(&time));
            }
        }
        let times = match self.per {
            TimestampScope::Field if times.len() == Document::EMPTY.as_bytes().len() => stored,
            TimestampScope::Field => Document::parse(&times).ok().map(Value::document),
            TimestampScope::Document => time_of_all.as_ref().map(|time| self.timestamp_type.value(time)).or(stored),
        };
        if times != after.get(self.store()) {
            settled
                .push(times.map_or_else(|| Settled::removed(&self.store), |times| Settled::value(&self.store, times)));
        }
        // Several late writes may have created one document, or changed one array.
        let mut known: Vec<Path> = Vec::new();
        settled.retain(|one| {
            let is_new = !known.contains(&one.field);
            known.push(one.field.clone());
            is_new
        });
        settled
    }

    /// Checks that protected fields are written by value, with a time.
    ///
    /// # Errors
    /// What the statement would change without a time.
    pub(super) fn check_written(
        &self,
        before: Option<Document<'_>>,
        after: Document<'_>,
        facts: &Facts<'_, '_>,
    ) -> Result<(), Broken> {
        let Operation::Update(update) = facts.operation() else { return Ok(()) };
        let touches = self.touches_of(facts);
        self.written(before, after, facts, touches.as_ref())?;
        let is_pipeline = matches!(update.modification.meaning(), Modification::ClientPipeline(_));
        let Some(before) = before.filter(|_| is_pipeline) else { return Ok(()) };
        for register in self.registers() {
            let path = register.as_str().as_bytes();
            let (old, new) = (held(before, path), held(after, path));
            if old != new {
                let reason = format!("it computes '{register}', from {} to {}", shown(&old), shown(&new));
                let hint = "A protected field is written by its value: use $set with the value from the source.";
                return Err(Rejection::new(reason, hint).into());
            }
        }
        Ok(())
    }

    fn touches_of<'s>(&self, facts: &Facts<'s, '_>) -> Option<Touches<'s>> {
        let Operation::Update(update) = facts.operation() else { return None };
        let Modification::Operators(operators) = update.modification.meaning() else { return None };
        self.touches(update, operators.as_document(), &facts.context).ok()
    }

    /// Returns the registers that the statement writes in this document.
    ///
    /// # Errors
    /// They have no source time, and the rule rejects such writes.
    fn written(
        &self,
        before: Option<Document<'_>>,
        after: Document<'_>,
        facts: &Facts<'_, '_>,
        touches: Option<&Touches<'_>>,
    ) -> Result<RegisterWrites, Rejection> {
        let Operation::Update(update) = facts.operation() else { return Ok(Vec::new()) };
        let replacement = match update.modification.meaning() {
            Modification::Replacement(document) => Some(document),
            _ => None,
        };
        let is_own = |path: &&str| *path != self.store() && !decides(&facts.context, path.as_bytes());
        let paths: Vec<&str> = match (before, touches) {
            (None, _) if self.per == TimestampScope::Document => top_level(after).filter(is_own).collect(),
            // A removed field has a time too.
            (None, _) => {
                let removed = touches.into_iter().flat_map(|touches| written_by(touches, Document::EMPTY));
                let inserted = self.protected_fields(after)?.into_iter().filter(is_own);
                inserted.chain(removed).collect::<BTreeSet<&str>>().into_iter().collect()
            }
            (Some(before), Some(touches)) => written_by(touches, before).collect(),
            (Some(_), None) if replacement.is_none() => Vec::new(),
            (Some(before), None) => match self.per {
                TimestampScope::Document => top_level(before).chain(top_level(after)).filter(is_own).collect(),
                TimestampScope::Field => self.registers().map(Path::as_str).filter(is_own).collect(),
            },
        };
        let timestamps = touches.map_or(&[][..], |touches| &touches.timestamps);
        let sent = |path: &&str| self.sent_for(timestamps, path.as_bytes());
        let others = match paths.iter().all(|path| sent(path).is_some()) {
            true => None,
            false => {
                let newest = self.timestamp_type.newest(timestamps).filter(|_| before.is_none());
                let of_write = |path: &Path| match (replacement, touches) {
                    (Some(document), _) => path.lookup(document.as_document()),
                    (None, Some(touches)) => set_value(&touches.paths, path),
                    // What a pipeline inserts is a document that names its time.
                    (None, None) if before.is_none() => path.lookup(after),
                    (None, None) => PathLookup::Missing,
                };
                self.source_time(&facts.context, newest, of_write)?
            }
        };
        let with_time = |path: &str| Some((Path::parse(path)?, sent(&path).or(others)?));
        Ok(paths.into_iter().filter_map(with_time).collect())
    }

    /// Restores a field that a late write has changed.
    fn put_back(
        &self,
        register: &Path,
        before: Document<'_>,
        after: Document<'_>,
        touches: Option<&Touches<'_>>,
    ) -> Option<Settled> {
        match register.lookup(before) {
            PathLookup::Found(value) => {
                (found(register, after) != Some(value)).then(|| Settled::value(register, value))
            }
            PathLookup::Missing if found(register, after).is_some() => {
                let missing = |around: &Path| around.lookup(before) == PathLookup::Missing;
                let is_late = |around: &Path| {
                    let inside = |path: &[u8]| around.covers(path);
                    touches.is_some_and(|touches| touches.paths.iter().all(|one| one.protected || !inside(one.path)))
                };
                // With one time for all, nothing of a late write is left.
                let mut around = register.parents().filter_map(Path::parse);
                let created = around.find(|around| missing(around) && is_late(around));
                Some(Settled::removed(
                    created.filter(|_| self.per == TimestampScope::Document).as_ref().unwrap_or(register),
                ))
            }
            PathLookup::Missing | PathLookup::Blocked(_) => None,
        }
    }
}

/// The protected paths that operators write in a stored document; instead of a position in an array, the whole array.
fn written_by<'t>(touches: &'t Touches<'_>, stored: Document<'t>) -> impl Iterator<Item = &'t str> {
    let written = touches.paths.iter().filter(|one| one.protected && one.operator != b"$setOnInsert");
    written.filter_map(|one| std::str::from_utf8(one.path).ok()).map(move |path| outside_arrays(path, stored))
}

/// Returns the part of a path that leads through documents only.
fn outside_arrays<'p>(path: &'p str, stored: Document<'_>) -> &'p str {
    let (mut value, mut end) = (Some(Value::document(stored)), 0_usize);
    for part in path.split('.') {
        if part.starts_with('$') || value.is_some_and(|value| value.as_array().is_some()) {
            return path.get(..end.saturating_sub(1)).filter(|outside| !outside.is_empty()).unwrap_or(path);
        }
        value = value.and_then(Value::as_document).and_then(|document| document.get(part));
        end += part.len() + 1;
    }
    path
}

fn top_level<'d>(document: Document<'d>) -> impl Iterator<Item = &'d str> {
    document.elements().filter_map(|field| std::str::from_utf8(field.key).ok()).filter(|name| *name != "_id")
}

fn found<'d>(path: &Path, document: Document<'d>) -> Option<Value<'d>> {
    match path.lookup(document) {
        PathLookup::Found(value) => Some(value),
        PathLookup::Missing | PathLookup::Blocked(_) => None,
    }
}
