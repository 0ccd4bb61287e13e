//! Evaluates writes of references: a reference must be written together with its copied fields.
//!
//! [`crate::effect`] describes what a write does. References in arrays are evaluated one by one: by the elements of a
//! written value, or by the position in an operator's path (`hobbies.0`, `hobbies.$`, `hobbies.$[x]`).

use smallvec::SmallVec;

use super::references::{Reference, ReferringDocuments, holders_of, is_reference};
use super::settings::{CopiesEntry, OnOriginalDelete};
use crate::command::{Modification, Operation, Statement, Update};
use crate::document::{Document, Kind, OwnedValue, Path, PathLookup, Value};
use crate::effect::{
    AddedValues, Change, PathOverlap, WrittenBy, equality, is_position, is_rename_source, on_insert, on_stored,
    only_selection, touch, touched, write,
};
use crate::patterns::plain::{self, NotPlain};
use crate::patterns::{Collection, Rejection};

/// Why a write does not pass.
#[derive(Debug)]
pub(super) enum Fault {
    Rejected(Rejection),
    /// It does not show what it writes.
    Unclear(NotPlain),
}

/// The writes of one entry's references.
pub(super) struct ReferenceWrites<'e> {
    pub(super) entry: &'e CopiesEntry,
    pub(super) originals: &'e Collection,
    /// The written keys, collected for entries with `on_delete: reject`.
    pub(super) keys: &'e mut Vec<OwnedValue>,
}

/// The relation of an operator's path to references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReferenceWrite<'u> {
    Apart,
    /// The path is the holder or a field around it, or an element of an array there. `way` is the rest of the path to
    /// the holder.
    Holder {
        way: &'u str,
        listed: bool,
    },
    /// The path is in the holder at this locator; empty for a holder that is not an element of an array.
    Inside(&'u [u8]),
}

impl<'e> ReferenceWrites<'e> {
    pub(super) fn evaluate(&mut self, statement: &Statement<'_>) -> Result<(), Fault> {
        match &statement.operation {
            Operation::Delete(_) => Ok(()),
            Operation::Insert(insert) => self.evaluate_document(insert.document.as_document()),
            Operation::Update(update) => self.evaluate_update(statement, update),
        }
    }

    fn evaluate_update(&mut self, statement: &Statement<'_>, update: &Update<'_>) -> Result<(), Fault> {
        let operators = match meaning(&update.modification) {
            Modification::Replacement(document) => return self.evaluate_document(document.as_document()),
            Modification::Operators(operators) => operators.as_document(),
            _ if plain::is_apart(update, self.entry.paths()) => return Ok(()),
            Modification::Pipeline(_) | Modification::ClientPipeline(_) => return Err(self.unclear(&self.entry.key)),
        };
        let entry = self.entry;
        self.evaluate_operators(operators, |locator| names_key(entry, locator, statement, update))?;
        if !update.upsert {
            return Ok(());
        }
        let set_on_insert = || touched(operators).filter(|(operator, ..)| *operator == b"$setOnInsert");
        self.evaluate_elements(set_on_insert())?;
        // What they write into elements of an array is not known of the inserted document.
        for (_, path, _) in set_on_insert() {
            if let ReferenceWrite::Inside(locator) = locate(entry, path)
                && !locator.is_empty()
            {
                let within = || {
                    on_insert(operators).filter(|(_, path, _)| locate(entry, path) == ReferenceWrite::Inside(locator))
                };
                self.evaluate_changes(|field, _| change(field, locator, within()), || false)?;
            }
        }
        self.evaluate_upsert(update.filter.as_document(), operators)
    }

    /// Evaluates a document that is inserted, or replaces a stored one.
    fn evaluate_document(&mut self, document: Document<'_>) -> Result<(), Fault> {
        let holders = self.entry.holders(document);
        self.evaluate_holders(&holders)
    }

    fn evaluate_holders(&mut self, holders: &ReferringDocuments<'_>) -> Result<(), Fault> {
        if holders.nested {
            return Err(self.unclear(&self.entry.key));
        }
        holders.documents.iter().try_for_each(|holder| {
            if self.entry.reference(*holder) == Reference::Nothing {
                return Ok(());
            }
            self.evaluate_changes(|_, local| of_lookup(local.lookup(*holder)), || false)
        })
    }

    /// Evaluates operators on a stored document's references.
    fn evaluate_operators<'u>(
        &mut self,
        operators: Document<'u>,
        names_key: impl Fn(&[u8]) -> bool,
    ) -> Result<(), Fault>
    where
        'e: 'u,
    {
        let writes = || on_stored(operators);
        self.evaluate_elements(writes())?;
        let mut locators: SmallVec<[&[u8]; 2]> = SmallVec::new();
        for (_, path, _) in writes() {
            if let ReferenceWrite::Inside(locator) = locate(self.entry, path)
                && !locators.contains(&locator)
            {
                locators.push(locator);
            }
        }
        let entry = self.entry;
        for locator in locators {
            let within = || writes().filter(|(_, path, _)| locate(entry, path) == ReferenceWrite::Inside(locator));
            self.evaluate_changes(|field, _| change(field, locator, within()), || names_key(locator))?;
        }
        Ok(())
    }

    /// Evaluates every reference in values written as a holder or around it.
    fn evaluate_elements<'u>(
        &mut self,
        writes: impl Iterator<Item = (&'u [u8], &'u [u8], Value<'u>)>,
    ) -> Result<(), Fault>
    where
        'e: 'u,
    {
        for (operator, path, value) in writes {
            let ReferenceWrite::Holder { way, listed } = locate(self.entry, path) else { continue };
            match operator {
                b"$set" | b"$setOnInsert" => self.evaluate_holders(&holders_of(value, way, listed))?,
                b"$push" | b"$addToSet" if !listed => AddedValues::in_argument(operator, value)
                    .values()
                    .try_for_each(|element| self.evaluate_holders(&holders_of(element, way, true)))?,
                b"$unset" | b"$pull" | b"$pullAll" | b"$pop" => {}
                // A rename moves the holder to another field.
                _ if is_rename_source((operator, path, value)) => {}
                _ => return Err(self.unclear(&self.entry.key)),
            }
        }
        Ok(())
    }

    /// Evaluates the reference outside arrays that an upsert inserts: what the filter gives, and operators on the fields
    /// themselves. Values of fields around them are evaluated already.
    fn evaluate_upsert(&mut self, filter: Document<'_>, operators: Document<'_>) -> Result<(), Fault> {
        let entry = self.entry;
        let mut given = SmallVec::<[(&Path, Value<'_>); 4]>::new();
        for field in entry.paths() {
            match plain::taken(filter, field) {
                Ok(None) => {}
                // If another condition matches nothing, the server takes no key, and there is no reference.
                Ok(Some((value, is_certain))) if is_certain || *field == entry.key => given.push((field, value)),
                Ok(Some(_)) => return Err(self.unclear(field)),
                Err(part) => return Err(Fault::Unclear(part)),
            }
        }
        let written = || on_insert(operators).filter(|(_, path, _)| locate(entry, path) == ReferenceWrite::Inside(b""));
        let change = |field: &Path| match change(field, b"", written()) {
            Change::Untouched => given
                .iter()
                .find(|(known, _)| *known == field)
                .map_or(Change::Removed, |(_, value)| Change::Set(*value)),
            change => change,
        };
        match change(&entry.key) {
            // A document without a reference has no copies.
            Change::Removed => Ok(()),
            _ => self.evaluate_changes(|field, _| change(field), || false),
        }
    }

    /// `change` returns the change of a field, given its whole path and its path in the holder. `names_key`: whether
    /// the filter names the original, as in an application that updates the copies itself.
    fn evaluate_changes<'u>(
        &mut self,
        change: impl Fn(&'u Path, &'u Path) -> Change<'u>,
        names_key: impl Fn() -> bool,
    ) -> Result<(), Fault>
    where
        'e: 'u,
    {
        let entry = self.entry;
        let changes = || entry.fields.iter().map(|field| (field, change(&field.copied, &field.local)));
        match change(&entry.key, &entry.local_key) {
            Change::Removed => Ok(()),
            Change::Set(value) if matches!(value.kind, Kind::Null | Kind::Undefined) => Ok(()),
            Change::Set(value) if is_reference(value) => {
                let is_clear =
                    |change: Change<'_>| matches!(change, Change::Set(_) | Change::Removed | Change::Untouched);
                if let Some((field, _)) = changes().find(|(_, change)| !is_clear(*change)) {
                    return Err(self.unclear(&field.copied));
                }
                let left_out: Vec<_> = changes().filter(|(_, change)| !matches!(change, Change::Set(_))).collect();
                if left_out.is_empty() {
                    self.keys.extend((entry.on_delete == OnOriginalDelete::Reject).then(|| value.into()));
                    return Ok(());
                }
                let copied = list(left_out.iter().map(|(field, _)| &field.copied));
                let original = list(left_out.iter().map(|(field, _)| &field.original));
                let originals = self.originals;
                Err(Fault::Rejected(Rejection::new(
                    format!("it sets '{}' without {copied}", entry.key),
                    format!("Set {copied} in the same statement, to {original} of that document in {originals}."),
                )))
            }
            Change::Untouched => match changes().find(|(_, change)| *change != Change::Untouched) {
                None => Ok(()),
                Some((_, Change::Set(_) | Change::Removed)) if names_key() => Ok(()),
                Some((field, _)) => Err(Fault::Rejected(Rejection::new(
                    format!("it changes '{}', which is a copy", field.copied),
                    format!(
                        "Change '{}' in {}; docward updates the copies. To refer to another document, set '{}' too.",
                        field.original, self.originals, entry.key
                    ),
                ))),
            },
            _ => Err(self.unclear(&entry.key)),
        }
    }

    fn unclear(&self, field: &Path) -> Fault {
        Fault::Unclear(format!(
            "it changes '{field}' inside an array, or with an operator whose result docward cannot know"
        ))
    }
}

/// Returns the client's modification that docward's own pipeline was built from.
fn meaning<'m, 'a>(modification: &'m Modification<'a>) -> &'m Modification<'a> {
    match modification {
        Modification::Pipeline(pipeline) => meaning(&pipeline.meaning),
        other => other,
    }
}

fn of_lookup(found: PathLookup<'_>) -> Change<'_> {
    match found {
        PathLookup::Found(value) => Change::Set(value),
        PathLookup::Blocked(Kind::Array) => Change::Unclear(WrittenBy { operator: b"a document", path: b"" }),
        PathLookup::Missing | PathLookup::Blocked(_) => Change::Removed,
    }
}

/// Returns the change of a field in the holder at `locator`.
fn change<'u>(
    field: &Path,
    locator: &[u8],
    writes: impl Iterator<Item = (&'u [u8], &'u [u8], Value<'u>)>,
) -> Change<'u> {
    let in_element = position(locator).and_then(|(list, _)| below(field, list));
    let (field, skipped) = match &in_element {
        Some(field) => (field, locator.len() + 1),
        None => (field, 0),
    };
    let mut changes = writes.map(|(operator, path, value)| {
        let path = path.get(skipped..).unwrap_or_default();
        write(field, operator, path, value)
    });
    changes.find(|change| *change != Change::Untouched).unwrap_or(Change::Untouched)
}

/// Returns whether the filter names the original of the holder at `locator`: by the key, or by the condition that
/// selects the array element.
fn names_key(entry: &CopiesEntry, locator: &[u8], statement: &Statement<'_>, update: &Update<'_>) -> bool {
    let filter = update.filter.as_document();
    let Some((list, _)) = position(locator) else { return equality(filter, entry.key.as_str()).is_some() };
    let Some(key) = below(&entry.key, list) else { return false };
    match locator.get(list.len() + 1..).unwrap_or_default() {
        // If there are two conditions on arrays, either may select the element.
        b"$" => only_selection(filter).is_some_and(|(path, selection)| match selection.value.as_document() {
            Some(element) if selection.key == b"$elemMatch" => {
                path == list && equality(element, key.as_str()).is_some()
            }
            _ => equality(filter, entry.key.as_str()).is_some(),
        }),
        b"$[]" => false,
        [b'$', b'[', identifier @ .., b']'] => {
            let named = [identifier, b".", key.as_str().as_bytes()].concat();
            let filters = statement.option("arrayFilters").and_then(Value::as_array).unwrap_or(Document::EMPTY);
            let mut filters = filters.values().filter_map(Value::as_document);
            std::str::from_utf8(&named).is_ok_and(|named| filters.any(|filter| equality(filter, named).is_some()))
        }
        _ => {
            let named = [locator, b".", key.as_str().as_bytes()].concat();
            std::str::from_utf8(&named).is_ok_and(|named| equality(filter, named).is_some())
        }
    }
}

/// Finds the first part of a written path that is a position in an array. Returns the path before it, and its end.
fn position(written: &[u8]) -> Option<(&[u8], usize)> {
    let mut start = 0;
    for part in written.split(|byte| *byte == b'.') {
        let end = start + part.len();
        if is_position(part) {
            return Some((written.get(..start.saturating_sub(1))?, end));
        }
        start = end + 1;
    }
    None
}

/// Returns a field's path inside the elements of `list`.
fn below(field: &Path, list: &[u8]) -> Option<Path> {
    Path::parse(field.as_str().get(list.len() + 1..)?)
}

fn locate<'u>(entry: &'u CopiesEntry, written: &'u [u8]) -> ReferenceWrite<'u> {
    let holder = entry.holder.as_ref().map_or("", Path::as_str);
    let fields = || entry.paths();
    let Some((list, position_end)) = position(written) else {
        return match leads(holder, written) {
            Some(way) => ReferenceWrite::Holder { way, listed: false },
            None if fields().any(|field| field.overlaps(written)) => ReferenceWrite::Inside(b""),
            None => ReferenceWrite::Apart,
        };
    };
    let Some(way) = leads(holder, list) else {
        let touches = fields().any(|field| touch(field, written) != PathOverlap::Apart);
        return if touches { ReferenceWrite::Inside(b"") } else { ReferenceWrite::Apart };
    };
    let (locator, rest) = written.split_at(position_end);
    let Some(rest) = rest.strip_prefix(b".") else { return ReferenceWrite::Holder { way, listed: true } };
    if let Some(way) = leads(way, rest) {
        return ReferenceWrite::Holder { way, listed: true };
    }
    let mut inside = fields().filter_map(|field| below(field, list));
    let touches = inside.any(|field| touch(&field, rest) != PathOverlap::Apart);
    if touches { ReferenceWrite::Inside(locator) } else { ReferenceWrite::Apart }
}

/// Returns the rest of the path `holder` after `path`, which is the holder or a field around it.
fn leads<'h>(holder: &'h str, path: &[u8]) -> Option<&'h str> {
    let rest = holder.as_bytes().strip_prefix(path).filter(|_| !path.is_empty())?;
    let rest = holder.get(holder.len() - rest.len()..)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('.') }
}

fn list<'p>(paths: impl Iterator<Item = &'p Path>) -> String {
    paths.map(|path| format!("'{path}'")).collect::<Vec<_>>().join(", ")
}
