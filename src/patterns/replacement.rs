//! `replacement`: whole documents written over what others wrote.
//!
//! Two services read an order, change different fields and save the whole document: the second erases the
//! first one's change. Concerns updates and findAndModify whose update is a document without operators.
//!
//! | setting | before | after |
//! |---|---|---|
//! | `unguarded: reject` | `replaceOne({_id: 1}, {a: 2})` | rejected |
//! | `unguarded: merge` | `replaceOne({_id: 1}, {a: 2})` | `updateOne({_id: 1}, {$set: {a: 2}})` |
//! | `unguarded: guard` | `replaceOne({_id: 1}, {a: 2, version: 3})` | `replaceOne({_id: 1, version: 3}, {a: 2, version: 4})` |
//! | any, guarded | `replaceOne({_id: 1, version: 3}, {a: 2})` | `replaceOne({_id: 1, version: 3}, {a: 2, version: 4})` |

use super::filter::{narrowed, remade};
use super::{Concern, Conflict, Context, Judge, Phase, Rejection, Rewrite, Verdict, read_path};
use crate::command::{Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::document::{CowDocument, Document, Element, Kind, Lookup, OwnedValue, Path, Value, edit};
use crate::effect::equality;
use crate::rules::{Code, Laxity, MapReader};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Replacement {
    unguarded: Unguarded,
    /// The field that makes a replacement guarded.
    guard: Option<Path>,
    conflict: Conflict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unguarded {
    Reject,
    Merge,
    Guard,
}

impl Judge for Replacement {
    fn name(&self) -> &'static str {
        "replacement"
    }

    fn phase(&self) -> Phase {
        Phase::Replacement
    }

    fn rewriting(&self) -> &'static str {
        match self.unguarded {
            Unguarded::Merge => "its fields are set one by one, so that others survive",
            Unguarded::Reject | Unguarded::Guard => {
                "the version that was read must still be the stored one, and goes up by one"
            }
        }
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn laxities(&self) -> Vec<Laxity> {
        let merges = self.unguarded == Unguarded::Merge;
        let is_silent = match self.guard {
            Some(_) => self.conflict == Conflict::Ignore,
            None => merges,
        };
        let merging = Laxity { what: "lets unguarded replacements set their fields", setting: "unguarded" };
        let silence = Laxity { what: "reports no lost race", setting: "conflict" };
        [merges.then_some(merging), is_silent.then_some(silence)].into_iter().flatten().collect()
    }

    fn concern(&self, kind: StatementKind, _: Namespace<'_>) -> Concern {
        match kind {
            StatementKind::Replacement => Concern::Each,
            StatementKind::Pipeline => Concern::Unguardable,
            StatementKind::Insert | StatementKind::Operators | StatementKind::Delete => Concern::Nothing,
        }
    }

    fn judge<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        let Operation::Update(update) = &statement.operation else { return Verdict::Forward };
        let replacement = match &update.modification {
            Modification::Replacement(document) => document,
            Modification::ClientPipeline(_) => return Verdict::client_pipeline(),
            Modification::Operators(_) | Modification::Pipeline(_) => return Verdict::Forward,
        };
        // mongod refuses to replace many documents; that error is the right one.
        if update.multi {
            return Verdict::Forward;
        }
        let document = replacement.as_document();
        let filter = update.filter.as_document();
        let pinned = self.guard.as_ref().and_then(|guard| Some((guard, equality(filter, guard.as_str())?)));
        let judged = match (pinned, self.unguarded, &self.guard) {
            (Some((guard, version)), _, _) => self.guarded(update, document, guard, version),
            (None, Unguarded::Merge, _) => merged(update, document),
            (None, Unguarded::Guard, Some(guard)) => self.guarded_by_document(update, document, guard),
            (None, _, _) => Err(self.unguarded_rejection()),
        };
        judged.unwrap_or_else(Verdict::Reject)
    }
}

impl Replacement {
    pub(super) fn read(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let words = [("reject", Unguarded::Reject), ("merge", Unguarded::Merge), ("guard", Unguarded::Guard)];
        let unguarded = reader.choice("unguarded", &words);
        let guard_given = reader.entry("guard").is_some();
        let guard = read_path(reader, "guard");
        let conflict = reader.choice("conflict", &[("error", Conflict::Error), ("ignore", Conflict::Ignore)]);
        if let Some(unguarded) = &unguarded
            && unguarded.value == Unguarded::Guard
            && !guard_given
        {
            let message = "`unguarded: guard` needs `guard`, the field that holds the version";
            reader.context().error(Code::ConflictingSettings, unguarded.span, message);
            return None;
        }
        Some(Self {
            unguarded: unguarded.map_or(Unguarded::Reject, |word| word.value),
            guard: guard.map(|path| path.value),
            conflict: conflict.map_or(Conflict::Error, |word| word.value),
        })
    }

    fn unguarded_rejection(&self) -> Rejection {
        let hint = match &self.guard {
            Some(guard) => format!(
                "Use updateOne with $set for the fields you change, or put the '{guard}' you read into the filter."
            ),
            None => "Use updateOne with $set for the fields you change.".to_owned(),
        };
        Rejection::new("it replaces the whole document and would erase fields that others wrote", hint)
    }

    /// The filter pins the version: the stored document gets the next one.
    fn guarded<'a>(
        &self,
        update: &Update<'a>,
        document: Document<'_>,
        guard: &Path,
        version: Value<'_>,
    ) -> Result<Verdict<'a>, Rejection> {
        let stored = with_version(document, guard, &next_version(guard, version)?)?;
        Ok(self.conditional(update, update.filter.clone(), stored, version))
    }

    /// The document carries the version it was read with: that goes into the filter.
    fn guarded_by_document<'a>(
        &self,
        update: &Update<'a>,
        document: Document<'_>,
        guard: &Path,
    ) -> Result<Verdict<'a>, Rejection> {
        const NONE: Value<'static> = Value { kind: Kind::Null, bytes: &[] };
        let version = match guard.lookup(document) {
            Lookup::Found(version) => version,
            Lookup::Missing => NONE,
            Lookup::Blocked(kind) => return Err(blocked(guard, kind)),
        };
        let stored = edit::set(document, guard, next_version(guard, version)?.as_value());
        let filter = narrowed(update.filter.as_document(), guard.as_str(), |w, field| w.value(field, version));
        Ok(self.conditional(update, filter, stored, version))
    }

    /// A document that carries a version was read before: it must not insert.
    fn conditional<'a>(
        &self,
        update: &Update<'a>,
        filter: CowDocument<'a>,
        stored: Vec<u8>,
        version: Value<'_>,
    ) -> Verdict<'a> {
        let upsert = update.upsert && version.kind == Kind::Null;
        // Without upsert, n: 0 already is what `ignore` wants; an upsert can still collide on a unique key.
        let needs_check = self.conflict == Conflict::Error || upsert;
        let modification = Modification::Replacement(CowDocument::from_writer(stored));
        Verdict::Rewrite(Rewrite {
            operation: remade(update, filter, modification, upsert),
            on_no_match: needs_check.then_some(self.conflict),
        })
    }
}

/// Null stands for "no version yet", and is followed by 1.
fn next_version(guard: &Path, version: Value<'_>) -> Result<OwnedValue, Rejection> {
    /// Up to here a double counts without gaps.
    const EXACT: f64 = 9_007_199_254_740_991.0;
    let next = match version.kind {
        Kind::Null => Some(OwnedValue::int32(1)),
        Kind::Int32 => version.as_i32().map(|v| OwnedValue::integer(i64::from(v) + 1)),
        Kind::Int64 => version.as_raw_i64().and_then(|v| v.checked_add(1)).map(OwnedValue::int64),
        Kind::Double => {
            version.as_f64().filter(|v| v.fract() == 0.0 && v.abs() < EXACT).map(|v| OwnedValue::double(v + 1.0))
        }
        _ => None,
    };
    next.ok_or_else(|| {
        Rejection::new(
            format!(
                "its version '{guard}' is no whole number that can be counted up (its type is {})",
                version.kind.name()
            ),
            format!("Send '{guard}' back as it was read."),
        )
    })
}

fn with_version(document: Document<'_>, guard: &Path, version: &OwnedValue) -> Result<Vec<u8>, Rejection> {
    match guard.lookup(document) {
        Lookup::Blocked(kind) => Err(blocked(guard, kind)),
        _ => Ok(edit::set(document, guard, version.as_value())),
    }
}

fn blocked(guard: &Path, kind: Kind) -> Rejection {
    Rejection::new(
        format!("its version '{guard}' cannot be reached: a field on the way is of type {}", kind.name()),
        format!("Send '{guard}' back as it was read."),
    )
}

/// `$set` of the document's fields. `_id` is left to the filter, and to the upsert when the filter has none.
fn merged<'a>(update: &Update<'a>, document: Document<'_>) -> Result<Verdict<'a>, Rejection> {
    let fields = || document.elements().filter(|field| field.key != b"_id");
    if let Some(field) = fields().find(|field| cannot_be_set(field)) {
        let name = String::from_utf8_lossy(field.key).into_owned();
        return Err(Rejection::new(
            format!("its field name '{name}' cannot be merged: $set would read it as a path or an operator"),
            "Rename the field, or write it with an update of its own.",
        ));
    }
    let filter = update.filter.as_document();
    let mut id_to_insert = None;
    if update.upsert {
        if let Some(field) = pinned_but_not_written(filter, document) {
            return Err(Rejection::new(
                format!("it is an upsert by '{field}', which the document itself leaves out or has otherwise"),
                format!("Put the '{field}' of the filter into the document."),
            ));
        }
        id_to_insert = document.get("_id").filter(|id| equality(filter, "_id") != Some(*id));
    }
    let operators = CowDocument::build(|w| {
        w.nested("$set", |w| fields().for_each(|field| w.element(field)));
        if let Some(id) = id_to_insert {
            w.nested("$setOnInsert", |w| w.value("_id", id));
        }
    });
    let operation = remade(update, update.filter.clone(), Modification::Operators(operators), update.upsert);
    Ok(Verdict::rewrite(operation))
}

fn cannot_be_set(field: &Element<'_>) -> bool {
    field.key.is_empty() || field.key.starts_with(b"$") || field.key.contains(&b'.')
}

/// An upsert by operators inserts the filter's equalities too; a replacement does not. Where that would make
/// another document, the first such field.
fn pinned_but_not_written(filter: Document<'_>, document: Document<'_>) -> Option<String> {
    let mut unread = vec![filter];
    while let Some(conditions) = unread.pop() {
        for element in conditions.elements() {
            let branches = element.value.as_array().unwrap_or(Document::EMPTY);
            match element.key {
                b"_id" => {}
                b"$and" => unread.extend(branches.values().filter_map(Value::as_document)),
                b"$or" if branches.values().count() == 1 => {
                    unread.extend(branches.values().filter_map(Value::as_document));
                }
                key if key.starts_with(b"$") => {}
                key => {
                    // A field of the document itself is set after the equality, and wins.
                    let root = key.split(|byte| *byte == b'.').next().unwrap_or(key);
                    let written = document.elements().any(|field| field.key == root);
                    if !written && inserts_on_upsert(element.value) {
                        return Some(String::from_utf8_lossy(key).into_owned());
                    }
                }
            }
        }
    }
    None
}

/// Whether the server takes a condition for an equality when it makes the document of an upsert; `$in` and
/// `$all` of one value are some servers' equality.
fn inserts_on_upsert(condition: Value<'_>) -> bool {
    let operators = condition.as_document().filter(|d| d.first().is_some_and(|first| first.key.starts_with(b"$")));
    match operators {
        Some(operators) => ["$eq", "$in", "$all"].iter().any(|name| operators.get(name).is_some()),
        None => condition.kind != Kind::Regex,
    }
}
