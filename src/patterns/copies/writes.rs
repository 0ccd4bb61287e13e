//! Which writes of references pass: a reference is written together with its copied fields.
//!
//! What a write does is asked of [`crate::effect`]. References in arrays are evaluated one by one, each by the elements
//! that a value contains, or by the position that an operator names (`hobbies.0`, `hobbies.$`, `hobbies.$[x]`).

use smallvec::SmallVec;

use super::references::{Holders, Reference, holders_of, is_reference};
use super::settings::{Collection, Entry, OnDelete};
use crate::command::{Modification, Operation, Statement, Update};
use crate::document::{CowDocument, Document, Kind, Lookup, OwnedValue, Path, Value};
use crate::effect::{Change, Held, Touch, Written, equality, inserted, touch, touched, write};
use crate::patterns::{Rejection, Verdict};

/// Why a write does not pass.
#[derive(Debug)]
pub(super) enum Fault {
    Rejected(Rejection),
    /// It cannot be analysed.
    Unclear(Rejection),
}

impl From<Fault> for Verdict<'_> {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Rejected(rejection) => Self::Reject(rejection),
            Fault::Unclear(rejection) => Self::Unsupported(rejection),
        }
    }
}

/// The writes of one entry's references.
pub(super) struct Writes<'e> {
    pub(super) entry: &'e Entry,
    pub(super) originals: &'e Collection,
    /// The keys that are written, where `on_delete: reject` has to know.
    pub(super) keys: &'e mut Vec<OwnedValue>,
}

/// What an operator's path means to references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place<'u> {
    Apart,
    /// It is the holder or a field around it, or an element of an array there. `way` leads on to the holder.
    Holder {
        way: &'u str,
        listed: bool,
    },
    /// It is in the holder that this text leads to; empty for a holder that is no element of an array.
    Inside(&'u [u8]),
}

impl<'e> Writes<'e> {
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
            Modification::Pipeline(_) | Modification::ClientPipeline(_) => return Err(self.unclear(&self.entry.key)),
        };
        let entry = self.entry;
        let touches = self.evaluate_operators(operators, |locator| names_key(entry, locator, statement, update))?;
        if !update.upsert {
            return Ok(());
        }
        let on_insert = touched(operators).filter(|(operator, ..)| *operator == b"$setOnInsert");
        let touches = touches | self.evaluate_elements(on_insert)?;
        // Operators on other fields may be such that nothing can be told of the whole document.
        let upsert = match touches {
            true => inserted(&statement.operation),
            false => None,
        };
        let alone;
        let upsert = match upsert {
            Some(upsert) => upsert,
            None if touches => return Ok(()),
            None => {
                let modification = Modification::Operators(CowDocument::from(Document::EMPTY));
                alone = Operation::Update(Update { modification, ..update.clone() });
                match inserted(&alone) {
                    Some(upsert) => upsert,
                    None => return Ok(()),
                }
            }
        };
        self.evaluate_upsert(|path| upsert.at(path), update.filter.as_document())
    }

    /// A document that is inserted, or takes a stored one's place.
    fn evaluate_document(&mut self, document: Document<'_>) -> Result<(), Fault> {
        let holders = self.entry.holders(document);
        self.evaluate_holders(&holders)
    }

    fn evaluate_holders(&mut self, holders: &Holders<'_>) -> Result<(), Fault> {
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

    /// Judges what operators do to a stored document's references. Whether they do anything to them.
    fn evaluate_operators<'u>(
        &mut self,
        operators: Document<'u>,
        names_key: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, Fault>
    where
        'e: 'u,
    {
        let writes = || touched(operators).filter(|(operator, ..)| *operator != b"$setOnInsert");
        let mut touches = self.evaluate_elements(writes())?;
        let mut locators: SmallVec<[&[u8]; 2]> = SmallVec::new();
        for (_, path, _) in writes() {
            if let Place::Inside(locator) = place(self.entry, path)
                && !locators.contains(&locator)
            {
                locators.push(locator);
            }
        }
        touches |= !locators.is_empty();
        let entry = self.entry;
        for locator in locators {
            let within = || writes().filter(|(_, path, _)| place(entry, path) == Place::Inside(locator));
            self.evaluate_changes(|field, _| change(field, locator, within()), || names_key(locator))?;
        }
        Ok(touches)
    }

    /// Judges what is written as a holder or around it: every reference in the value. Whether there is anything.
    fn evaluate_elements<'u>(
        &mut self,
        writes: impl Iterator<Item = (&'u [u8], &'u [u8], Value<'u>)>,
    ) -> Result<bool, Fault>
    where
        'e: 'u,
    {
        let mut touches = false;
        for (operator, path, value) in writes {
            let (way, listed) = match place(self.entry, path) {
                Place::Holder { way, listed } => (way, listed),
                Place::Inside(_) => {
                    touches = true;
                    continue;
                }
                Place::Apart => continue,
            };
            touches = true;
            match operator {
                b"$set" | b"$setOnInsert" => self.evaluate_holders(&holders_of(value, way, listed))?,
                b"$push" | b"$addToSet" if !listed => {
                    let each =
                        value.as_document().and_then(|modifiers| modifiers.get("$each")).and_then(Value::as_array);
                    match each {
                        Some(elements) => elements
                            .values()
                            .try_for_each(|element| self.evaluate_holders(&holders_of(element, way, true)))?,
                        None => self.evaluate_holders(&holders_of(value, way, true))?,
                    }
                }
                b"$unset" | b"$pull" | b"$pullAll" | b"$pop" => {}
                // It is moved to another field.
                b"$rename" if value.as_string_bytes() != Some(path) => {}
                _ => return Err(self.unclear(&self.entry.key)),
            }
        }
        Ok(touches)
    }

    /// Judges the document that an upsert inserts.
    fn evaluate_upsert<'i>(&mut self, at: impl Fn(&Path) -> Held<'i>, filter: Document<'i>) -> Result<(), Fault> {
        for list in self.entry.lists() {
            let Some(path) = Path::parse(list) else { continue };
            let array = match at(&path) {
                Held::Value(value) if value.kind == Kind::Array => Some(value),
                // What was pushed is evaluated already; the filter may have put an array there.
                Held::Some(Some(Kind::Array)) => equality(filter, list),
                Held::Some(None) | Held::Unknown => return Err(self.unclear(&path)),
                _ => continue,
            };
            let way = self.entry.key_way(list);
            return array.map_or(Ok(()), |array| self.evaluate_holders(&holders_of(array, way, false)));
        }
        // A document without a reference is nobody's copy.
        if at(&self.entry.key) == Held::Missing {
            return Ok(());
        }
        self.evaluate_changes(|field, _| of_held(at(field)), || false)
    }

    /// `change` says what becomes of a field, which it gets by its whole path and by its path in the holder.
    /// `names_key`: the filter names the original, as an application does that updates the copies itself.
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
                    self.keys.extend((entry.on_delete == OnDelete::Reject).then(|| value.into()));
                    return Ok(());
                }
                let copied = list(left_out.iter().map(|(field, _)| &field.copied));
                let original = list(left_out.iter().map(|(field, _)| &field.original));
                let originals = self.originals;
                Err(Fault::Rejected(Rejection::new(
                    format!("it sets '{}' without {copied}", entry.key),
                    format!("Set {copied} in the same statement, as {original} of that document in {originals} says."),
                )))
            }
            Change::Untouched => match changes().find(|(_, change)| *change != Change::Untouched) {
                None => Ok(()),
                Some((_, Change::Set(_) | Change::Removed)) if names_key() => Ok(()),
                Some((field, _)) => Err(Fault::Rejected(Rejection::new(
                    format!("it changes '{}', which is a copy", field.copied),
                    format!(
                        "Change '{}' in {}; the copies follow. To point to another document, set '{}' too.",
                        field.original, self.originals, entry.key
                    ),
                ))),
            },
            _ => Err(self.unclear(&entry.key)),
        }
    }

    fn unclear(&self, field: &Path) -> Fault {
        Fault::Unclear(Rejection::new(
            format!("it changes '{field}' in a way that does not tell its new value, or inside an array"),
            format!(
                "Write '{}' together with its copied fields, by $set, or by $push of whole elements.",
                self.entry.key
            ),
        ))
    }
}

impl Entry {
    /// What leads from an array of references to the holder in an element.
    fn key_way(&self, list: &str) -> &str {
        let holder = self.holder.as_ref().map_or("", Path::as_str);
        holder.get(list.len()..).unwrap_or_default().trim_start_matches('.')
    }
}

/// What docward's own pipeline was made of.
fn meaning<'m, 'a>(modification: &'m Modification<'a>) -> &'m Modification<'a> {
    match modification {
        Modification::Pipeline(pipeline) => meaning(&pipeline.meaning),
        other => other,
    }
}

fn of_lookup(found: Lookup<'_>) -> Change<'_> {
    match found {
        Lookup::Found(value) => Change::Set(value),
        Lookup::Blocked(Kind::Array) => Change::Unclear(Written { operator: b"a document", path: b"" }),
        Lookup::Missing | Lookup::Blocked(_) => Change::Removed,
    }
}

fn of_held(held: Held<'_>) -> Change<'_> {
    match held {
        Held::Value(value) => Change::Set(value),
        Held::Missing => Change::Removed,
        Held::Blocked(kind) if kind != Kind::Array => Change::Removed,
        Held::Blocked(_) | Held::Some(_) | Held::Unknown => {
            Change::Unclear(Written { operator: b"an upsert", path: b"" })
        }
    }
}

/// What operators make of a field in the holder that `locator` leads to.
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

/// Whether the filter names the original of the holder that `locator` leads to: by the key, or by the condition that
/// selects the array's element.
fn names_key(entry: &Entry, locator: &[u8], statement: &Statement<'_>, update: &Update<'_>) -> bool {
    let filter = update.filter.as_document();
    let Some((list, _)) = position(locator) else { return equality(filter, entry.key.as_str()).is_some() };
    let Some(key) = below(&entry.key, list) else { return false };
    match locator.get(list.len() + 1..).unwrap_or_default() {
        b"$" => {
            // Of two conditions on the array either may have chosen the element.
            let on_list = filter.elements().filter(|condition| {
                condition.key.strip_prefix(list).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
            });
            if on_list.count() > 1 {
                return false;
            }
            let element =
                filter.get(list).and_then(Value::as_document).and_then(|condition| condition.get("$elemMatch"));
            let by_element = element.and_then(Value::as_document).and_then(|element| equality(element, key.as_str()));
            by_element.or_else(|| equality(filter, entry.key.as_str())).is_some()
        }
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

/// The first part of a written path that is a position in an array: what is before it, and where it ends.
fn position(written: &[u8]) -> Option<(&[u8], usize)> {
    let mut start = 0;
    for part in written.split(|byte| *byte == b'.') {
        let end = start + part.len();
        let is_number = !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        if is_number || part.first() == Some(&b'$') {
            return Some((written.get(..start.saturating_sub(1))?, end));
        }
        start = end + 1;
    }
    None
}

/// A field's path inside the elements of `list`.
fn below(field: &Path, list: &[u8]) -> Option<Path> {
    Path::parse(field.as_str().get(list.len() + 1..)?)
}

fn place<'u>(entry: &'u Entry, written: &'u [u8]) -> Place<'u> {
    let holder = entry.holder.as_ref().map_or("", Path::as_str);
    let fields = || entry.fields.iter().map(|field| &field.copied).chain([&entry.key]);
    let Some((list, position_end)) = position(written) else {
        return match leads(holder, written) {
            Some(way) => Place::Holder { way, listed: false },
            None if fields().any(|field| field.overlaps(written)) => Place::Inside(b""),
            None => Place::Apart,
        };
    };
    let Some(way) = leads(holder, list) else {
        let touches = fields().any(|field| touch(field, written) != Touch::Apart);
        return if touches { Place::Inside(b"") } else { Place::Apart };
    };
    let (locator, rest) = written.split_at(position_end);
    let Some(rest) = rest.strip_prefix(b".") else { return Place::Holder { way, listed: true } };
    if let Some(way) = leads(way, rest) {
        return Place::Holder { way, listed: true };
    }
    let mut inside = fields().filter_map(|field| below(field, list));
    let touches = inside.any(|field| touch(&field, rest) != Touch::Apart);
    if touches { Place::Inside(locator) } else { Place::Apart }
}

/// What is left of the path `holder` after `path`, which is that or a field around.
fn leads<'h>(holder: &'h str, path: &[u8]) -> Option<&'h str> {
    let rest = holder.as_bytes().strip_prefix(path).filter(|_| !path.is_empty())?;
    let rest = holder.get(holder.len() - rest.len()..)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('.') }
}

fn list<'p>(paths: impl Iterator<Item = &'p Path>) -> String {
    paths.map(|path| format!("'{path}'")).collect::<Vec<_>>().join(", ")
}
