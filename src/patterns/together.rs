//! `together`: fields that must change in one statement.
//!
//! A library stores the number of available copies and a list of borrowers. The pattern rejects a statement that
//! changes one of them without the other, and a document that has only one of the fields.

use bson::doc;
use smallvec::SmallVec;

use super::field_path::FieldPath;
use super::stored_data::{DataCheck, all, any, has_type, is_one_of, not, value};
use super::{AnyPattern, Applicability, Context, Pattern, Rejection, Verdict, applicability_for_content};
use crate::command::{Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::config::keys::{Declaration, DescribeSchema, ReadValue, TextOrList, ValueSchema};
use crate::config::{Code, Node, NodeValue as Yaml, ReadContext};
use crate::document::{Document, Kind, Path, Value, is_at_or_below};
use crate::effect::{
    Equalities, Image, ImageValue, PathOverlap, Write, each, inserted, is_position, is_rename_source, on_insert,
    on_stored, touch, touched, without_positions,
};

/// Settings of the pattern: at least two fields.
#[derive(Debug, Clone)]
pub struct Together {
    fields: Vec<Path>,
}

impl Pattern for Together {
    fn declaration() -> Declaration {
        let items = Box::new(FieldPath.schema());
        let schema = ValueSchema::List { items, at_least: 2, distinct: true };
        Declaration { meaning: "Fields that must change in one statement.", schema, example: "[a, b]" }
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        Self::read_list(settings, context)
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        applicability_for_content(kind)
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        match &statement.operation {
            Operation::Update(Update { modification: Modification::ClientPipeline(_), .. }) => {
                Verdict::client_pipeline()
            }
            operation => self.check(operation).map_or_else(Verdict::Reject, |()| Verdict::Forward),
        }
    }

    fn data_checks(&self, _: Namespace<'_>) -> Vec<DataCheck> {
        let names: Vec<String> = self.fields.iter().map(|field| format!("`{field}`")).collect();
        let some = |references: &[String]| {
            let lacking = || references.iter().map(|field| has_type(field.as_str(), &["missing"]));
            all(vec![any(lacking().collect()), any(lacking().map(not).collect())])
        };
        let references: Vec<String> = self.fields.iter().map(value).collect();
        let condition = match self.array_around() {
            None => some(&references),
            // The value of a field in an array is the array of its elements' values.
            Some((array, below)) => {
                let below: Vec<String> = below.iter().map(|field| format!("$$this.{field}")).collect();
                let elements = doc! {"$map": {"input": value(&array), "in": some(&below)}};
                doc! {"$cond": [is_one_of(&array, &["array"]), {"$anyElementTrue": [elements]}, some(&references)]}
                    .into()
            }
        };
        vec![DataCheck::each(
            format!("with some of {}, but not all", names.join(", ")),
            "the fields disagree already, and the rule does not correct what is stored",
            condition,
        )]
    }

    fn conflict_with(&self, other: &AnyPattern, _: Namespace<'_>) -> Option<&'static str> {
        self.fields.iter().find_map(|field| other.partial_change_reason(field))
    }

    fn check_final(&self, statement: &Statement<'_>) -> Result<(), Rejection> {
        self.check(&statement.operation)
    }
}

/// A field by its index in the rule, and the rest of its path below some value.
type FieldBelow<'p> = (usize, &'p [u8]);

/// For each field of the rule whether it is present; `None` if that is not known.
type FieldPresence = SmallVec<[Option<bool>; 4]>;

/// Elements of arrays, by their paths.
type ArrayElements<'u> = SmallVec<[&'u [u8]; 4]>;

impl Together {
    /// Returns the innermost field around all fields, which may be an array of documents, and their paths below it.
    fn array_around(&self) -> Option<(Path, Vec<&str>)> {
        let first = self.fields.first()?;
        let is_around_all = |around: &&str| self.fields.iter().all(|field| field.is_below(around.as_bytes()));
        let around = first.parents().filter(is_around_all).last()?;
        let below = self.fields.iter().filter_map(|field| field.as_str().get(around.len() + 1..)).collect();
        Some((Path::parse(around)?, below))
    }

    fn read_list(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        let code = match &settings.value {
            Yaml::List(items) if items.len() >= 2 => None,
            Yaml::List(_) => Some(Code::InvalidValue),
            _ => Some(Code::WrongType),
        };
        if let (Yaml::List(items), Some(_)) = (&settings.value, code)
            && !items.is_empty()
        {
            // Its one field may be a list in one text.
            TextOrList(FieldPath).read(context, "together", settings);
        }
        if let Some(code) = code {
            let message = "`together` must be a list of at least two fields: `together: [a, b]`";
            context.error(code, settings.span, message);
            return None;
        }
        let fields = TextOrList(FieldPath).read(context, "together", settings)?;
        for (index, field) in fields.iter().enumerate() {
            let overlaps =
                |other: &&crate::config::Located<Path>| other.value.overlaps(field.value.as_str().as_bytes());
            if let Some(other) = fields.iter().take(index).find(overlaps) {
                let message = format!("`{}` overlaps `{}`: they always change together", field.value, other.value);
                context.error(Code::ConflictingSettings, field.span, message);
                return None;
            }
        }
        Some(Self { fields: fields.into_iter().map(|field| field.value).collect() })
    }

    fn check(&self, operation: &Operation<'_>) -> Result<(), Rejection> {
        match operation {
            Operation::Delete(_) => Ok(()),
            Operation::Insert(insert) => self.check_document(insert.document.as_document()),
            Operation::Update(update) => match update.modification.meaning() {
                Modification::Replacement(document) => self.check_document(document.as_document()),
                Modification::Operators(operators) => {
                    let written = self.check_stored(operators.as_document())?;
                    self.check_inserted(operation, update.filter.as_document(), operators.as_document(), written)
                }
                Modification::ClientPipeline(_) | Modification::Pipeline(_) => Ok(()),
            },
        }
    }

    fn check_document(&self, document: Document<'_>) -> Result<(), Rejection> {
        let mut presence = self.all(Some(false));
        self.check_elements(|fields| note_document(document, fields, &mut presence), b"")?;
        self.all_or_none("it has", &presence)
    }

    /// Checks an update of a stored document, without `$setOnInsert`. Returns what is written into the fields.
    fn check_stored(&self, operators: Document<'_>) -> Result<FieldPresence, Rejection> {
        let parents = self.written_parents(operators);
        if parents.is_empty() {
            return self.check_writes(operators, |_| false);
        }
        // An array takes no write to a field by its name, except that the server ignores an `$unset` of it.
        let written = self.check_writes(operators, |(_, path, _)| {
            array_of(path).is_some_and(|array| parents.iter().any(|one| one.is(array) && (one.sets || one.unsets)))
        })?;
        if parents.iter().any(WrittenParent::may_be_array) {
            self.check_writes(operators, |(operator, path, _)| match array_of(path) {
                Some(array) => parents.iter().any(|one| one.is(array) && one.sets),
                None => operator == b"$unset" && parents.iter().any(|one| one.may_be_array() && one.is_around(path)),
            })?;
        }
        Ok(written)
    }

    /// Returns how the operators write into each field around those of the rule, if they write to positions in it.
    fn written_parents(&self, operators: Document<'_>) -> SmallVec<[WrittenParent<'_>; 2]> {
        let mut parents: SmallVec<[WrittenParent<'_>; 2]> = SmallVec::new();
        for parent in self.fields.iter().flat_map(Path::parents) {
            let is_position = |path: &[u8]| array_of(path) == Some(parent.as_bytes());
            if !parents.iter().any(|known| known.path == parent)
                && on_stored(operators).any(|(_, path, _)| is_position(path))
            {
                parents.push(WrittenParent { path: parent, sets: false, unsets: false });
            }
        }
        if parents.is_empty() {
            return parents;
        }
        for (operator, path, _) in on_stored(operators) {
            for parent in parents.iter_mut().filter(|parent| parent.is_around(path)) {
                match operator {
                    b"$unset" => parent.unsets = true,
                    _ => parent.sets = true,
                }
            }
        }
        parents
    }

    /// Checks the writes, except those that the server ignores or that write other fields.
    fn check_writes(
        &self,
        operators: Document<'_>,
        is_other: impl Fn(&Write<'_>) -> bool,
    ) -> Result<FieldPresence, Rejection> {
        let (mut changed, mut written) = (self.all(Some(false)), self.all(None));
        let mut elements = ArrayElements::new();
        for write in on_stored(operators).filter(|write| !is_other(write)) {
            let (operator, path, value) = write;
            for ((field, changed), written) in self.fields.iter().zip(&mut changed).zip(&mut written) {
                let touches = touch(field, path);
                if touches == PathOverlap::Apart {
                    continue;
                }
                *changed = Some(true);
                let is_positional = touches == PathOverlap::Positional;
                if is_positional {
                    for element in elements_around(path) {
                        if !elements.contains(&element) {
                            elements.push(element);
                        }
                    }
                }
                let reached = if is_positional { in_elements(field, path) } else { touches };
                match (presence_after(write, reached), reached) {
                    // Each element is checked by itself.
                    (Some(false), _) if is_positional && *written == Some(true) => {}
                    (Some(is_there), _) => *written = Some(is_there),
                    (None, PathOverlap::Around) if operator == b"$rename" => return Err(self.unclear(operator, path)),
                    (None, _) => {}
                }
            }
            self.check_around(operator, path, value, &mut written)?;
        }
        self.all_or_none("it changes", &changed)?;
        self.all_or_none("it writes", &written)?;
        elements.iter().try_for_each(|element| self.check_element(|| on_stored(operators), element))?;
        Ok(written)
    }

    /// Checks writes into one element of an array, also into arrays inside it: they must include all fields in the
    /// element, or none, and remove all of them, or none.
    fn check_element<'u, W>(&self, writes: impl Fn() -> W, element: &[u8]) -> Result<(), Rejection>
    where
        W: Iterator<Item = Write<'u>>,
    {
        let (mut changed, mut written) = (self.all(None), self.all(None));
        let around = without_positions(element);
        for ((field, changed), written) in self.fields.iter().zip(&mut changed).zip(&mut written) {
            if rest_below(field.as_str().as_bytes(), &around).is_none() {
                continue;
            }
            let reaches = |path: &[u8]| is_at_or_below(path, element) && touch(field, path) == PathOverlap::Positional;
            *changed = Some(false);
            for write in writes().filter(|(_, path, _)| reaches(path)) {
                *changed = Some(true);
                let is_inner = elements_around(write.1).next() != Some(element);
                match (in_elements(field, write.1), *written) {
                    (PathOverlap::Around, _) => {}
                    // Elements of an inner array are checked by themselves.
                    (reached, Some(true)) if is_inner && presence_after(write, reached) == Some(false) => {}
                    (reached, known) => *written = presence_after(write, reached).or(known),
                }
            }
        }
        self.all_or_none("in an array element it changes", &changed)?;
        self.all_or_none("in an array element it writes", &written)
    }

    fn unclear(&self, operator: &[u8], path: &[u8]) -> Rejection {
        let text = String::from_utf8_lossy;
        Rejection::new(
            format!("{} to '{}' could change some of the fields without the others", text(operator), text(path)),
            "Write all of these fields in one statement, or none of them.",
        )
    }

    /// Checks a value around some of the fields: a document, an array of documents or an element of one.
    fn check_around(
        &self,
        operator: &[u8],
        path: &[u8],
        value: Value<'_>,
        written: &mut FieldPresence,
    ) -> Result<(), Rejection> {
        let plain = without_positions(path);
        if plain.is_empty() {
            return Ok(());
        }
        let is_element = plain.len() < path.len();
        let each = each(operator, value);
        self.check_elements(
            |fields| match (operator, each) {
                (b"$push" | b"$addToSet", Some(each)) => note_value(each, fields, written),
                (b"$push" | b"$addToSet", None) => note_element(value, fields, written),
                (b"$set" | b"$min" | b"$max", _) if is_element && value.kind == Kind::Document => {
                    note_element(value, fields, written)
                }
                (b"$set" | b"$min" | b"$max", _) => note_value(value, fields, written),
                _ => true,
            },
            &plain,
        )
    }

    /// Checks the array elements that an upsert inserts: those of the filter, and what the operators write into them.
    fn check_inserted_elements(&self, filter: Document<'_>, operators: Document<'_>) -> Result<(), Rejection> {
        let mut presence = self.all(None);
        for (path, value) in Equalities::of_filter(filter).iter().flat_map(Equalities::values) {
            self.check_elements(|fields| note_value(value, fields, &mut presence), path)?;
        }
        for (operator, path, _) in touched(operators) {
            let is_positional = |field| touch(field, path) == PathOverlap::Positional;
            if operator == b"$setOnInsert" && self.fields.iter().any(is_positional) {
                elements_around(path).try_for_each(|element| self.check_element(|| on_insert(operators), element))?;
            }
        }
        Ok(())
    }

    /// Removes what `$min` and `$max` of a value around a field write: an inserted document may keep that of the filter.
    fn forget_kept(&self, operators: Document<'_>, written: &mut FieldPresence) {
        for (_, path, _) in on_stored(operators).filter(|(operator, ..)| matches!(*operator, b"$min" | b"$max")) {
            for (field, written) in self.fields.iter().zip(&mut *written) {
                if matches!(touch(field, path), PathOverlap::Around | PathOverlap::Positional) {
                    *written = None;
                }
            }
        }
    }

    /// Checks the documents that an upsert may insert: the filter's equalities with the operators applied.
    fn check_inserted(
        &self,
        operation: &Operation<'_>,
        filter: Document<'_>,
        operators: Document<'_>,
        mut written: FieldPresence,
    ) -> Result<(), Rejection> {
        let Some(inserted) = inserted(operation) else { return Ok(()) };
        self.check_inserted_elements(filter, operators)?;
        self.forget_kept(operators, &mut written);
        let what = match inserted.is_certain() {
            true => "as an upsert it could insert",
            false => "as an upsert, depending on the server, it could insert",
        };
        inserted.images().try_for_each(|image| self.check_image(image, &written, what))
    }

    fn check_image(&self, image: &Image<'_>, written: &FieldPresence, what: &str) -> Result<(), Rejection> {
        let (mut presence, mut unknown) = (self.all(None), None);
        for ((index, field), (entry, written)) in self.fields.iter().enumerate().zip(presence.iter_mut().zip(written)) {
            *entry = match image.at(field) {
                ImageValue::Value(_) | ImageValue::Some(_) => Some(true),
                ImageValue::Missing => Some(false),
                ImageValue::Blocked(Kind::Array) => self.is_in_array(image, field, index)?,
                ImageValue::Blocked(_) => Some(false),
                ImageValue::Unknown => {
                    unknown = unknown.or(Some(index).filter(|_| written.is_none() && image.is_predictable()));
                    None
                }
            }
            .or(*written);
        }
        self.all_or_none(what, &presence)?;
        // Unknown fields are assumed to be present if another one is missing, and to be missing if another one is
        // present. If all are unknown, they may differ too.
        if presence.iter().all(Option::is_none)
            && let Some(entry) = unknown.and_then(|index| presence.get_mut(index))
        {
            *entry = Some(true);
        }
        let some_missing = presence.contains(&Some(false));
        if some_missing || presence.contains(&Some(true)) {
            presence.iter_mut().for_each(|entry| *entry = entry.or(Some(some_missing)));
        }
        self.all_or_none("as an upsert, depending on the server, it could insert", &presence)
    }

    /// Returns whether elements of an array on the path have the field; `None` if the array is not known.
    fn is_in_array(&self, image: &Image<'_>, field: &Path, index: usize) -> Result<Option<bool>, Rejection> {
        let mut arrays = field.parents().filter_map(|parent| {
            let around = Path::parse(parent)?;
            match image.at(&around) {
                ImageValue::Value(value) if value.kind == Kind::Array => Some((around, value)),
                _ => None,
            }
        });
        let Some((around, array)) = arrays.next() else { return Ok(None) };
        let mut presence = self.all(Some(false));
        self.check_elements(|fields| note_value(array, fields, &mut presence), around.as_str().as_bytes())?;
        Ok(presence.get(index).copied().flatten())
    }

    fn all(&self, presence: Option<bool>) -> FieldPresence {
        SmallVec::from_elem(presence, self.fields.len())
    }

    /// Calls `examine` with the fields below `around`. It returns whether each array element has all of them or none.
    fn check_elements(&self, examine: impl FnOnce(&[FieldBelow<'_>]) -> bool, around: &[u8]) -> Result<(), Rejection> {
        let below = |(index, field)| Some((index, rest_below(Path::as_str(field).as_bytes(), around)?));
        let below: SmallVec<[FieldBelow<'_>; 4]> = self.fields.iter().enumerate().filter_map(below).collect();
        if below.is_empty() || examine(&below) {
            return Ok(());
        }
        let fields: Vec<&Path> = below.iter().filter_map(|(index, _)| self.fields.get(*index)).collect();
        Err(Rejection::new(
            format!("an array element has some of {}, but not all", list(&fields)),
            "Write all of these fields in each element, or none of them.",
        ))
    }

    fn all_or_none(&self, what: &str, presence: &[Option<bool>]) -> Result<(), Rejection> {
        let those = |wanted: bool| -> Vec<&Path> {
            let fields = self.fields.iter().zip(presence);
            fields.filter(|(_, is_there)| **is_there == Some(wanted)).map(|(field, _)| field).collect()
        };
        let (there, missing) = (those(true), those(false));
        if there.is_empty() || missing.is_empty() {
            return Ok(());
        }
        Err(Rejection::new(
            format!("{what} {} without {}", list(&there), list(&missing)),
            "Write all of these fields in one statement, or none of them.",
        ))
    }
}

fn list(fields: &[&Path]) -> String {
    fields.iter().map(|field| format!("'{field}'")).collect::<Vec<_>>().join(", ")
}

/// Returns the rest of a path below `around`; the whole path if `around` is empty.
fn rest_below<'p>(path: &'p [u8], around: &[u8]) -> Option<&'p [u8]> {
    if around.is_empty() { Some(path) } else { crate::document::rest_below(path, around) }
}

/// Returns how a path with positions relates to the field in the elements that it leads to.
fn in_elements(field: &Path, path: &[u8]) -> PathOverlap {
    let plain = without_positions(path);
    let is_element = path.rsplit(|byte| *byte == b'.').next().is_some_and(is_position);
    match () {
        () if field.is_below(&plain) => PathOverlap::Around,
        () if field.as_str().as_bytes() == plain && !is_element => PathOverlap::Exact,
        () => PathOverlap::Inside,
    }
}

/// Returns whether the field is there after a write that reaches it like this; `None` if the write does not decide that.
fn presence_after((operator, path, value): Write<'_>, reached: PathOverlap) -> Option<bool> {
    match (reached, operator) {
        (PathOverlap::Inside, _) => Some(true),
        (_, b"$unset") => Some(false),
        _ if is_rename_source((operator, path, value)) => Some(false),
        // Elements stay, or are removed as a whole.
        (PathOverlap::Around, b"$pull" | b"$pullAll" | b"$pop" | b"$rename") => None,
        // `check_around` finds the field in the operator's value, if it is there.
        (PathOverlap::Around, _) => Some(false),
        _ => Some(true),
    }
}

/// A field around those of the rule, in which operators write to positions.
struct WrittenParent<'f> {
    path: &'f str,
    /// Whether they also write fields in it by name: then it must be a document, and a number is the name of a field.
    sets: bool,
    /// Whether they remove fields in it by name, which the server ignores in an array.
    unsets: bool,
}

impl WrittenParent<'_> {
    fn is(&self, path: &[u8]) -> bool {
        self.path.as_bytes() == path
    }

    /// Returns whether `path` leads by name to a field in it.
    fn is_around(&self, path: &[u8]) -> bool {
        crate::document::rest_below(path, self.path.as_bytes()).is_some_and(|below| !begins_with_position(below))
    }

    /// Returns whether it may be an array as well as a document.
    fn may_be_array(&self) -> bool {
        self.unsets && !self.sets
    }
}

/// Returns the part of a path before its first position.
fn array_of(path: &[u8]) -> Option<&[u8]> {
    let mut dots = path.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(dot, _)| dot);
    let is_before_position = |dot: &usize| path.get(dot + 1..).is_some_and(begins_with_position);
    dots.find(is_before_position).and_then(|dot| path.get(..dot))
}

fn begins_with_position(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'.').next().is_some_and(is_position)
}

/// Returns the array elements that a path writes into, the innermost first: the path up to each of its positions.
fn elements_around(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let dots = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'.').map(|(dot, _)| dot);
    let mut end = path.len();
    dots.filter_map(move |dot| {
        let head = path.get(..std::mem::replace(&mut end, dot))?;
        head.get(dot + 1..).is_some_and(is_position).then_some(head)
    })
}

/// Notes the fields that a document has. Returns false if an array element in it has only some of the fields that lead
/// through the array.
fn note_document(document: Document<'_>, fields: &[FieldBelow<'_>], presence: &mut [Option<bool>]) -> bool {
    fields.iter().enumerate().all(|(at, (index, path))| {
        let (part, rest) = split(path);
        let Some(value) = document.get(part) else { return true };
        if rest.is_none() {
            presence.get_mut(*index).into_iter().for_each(|entry| *entry = Some(true));
            return true;
        }
        let shares_part = |(_, other): &FieldBelow<'_>| split(other).0 == part;
        if fields.iter().take(at).any(shares_part) {
            return true;
        }
        let below = fields.iter().filter(|field| shares_part(field));
        let below: SmallVec<[FieldBelow<'_>; 4]> =
            below.filter_map(|(index, path)| Some((*index, split(path).1?))).collect();
        note_value(value, &below, presence)
    })
}

fn note_value(value: Value<'_>, fields: &[FieldBelow<'_>], presence: &mut [Option<bool>]) -> bool {
    match (value.as_document(), value.as_array()) {
        (Some(document), _) => note_document(document, fields, presence),
        (_, Some(array)) => array.values().all(|element| note_element(element, fields, presence)),
        (None, None) => true,
    }
}

fn note_element(element: Value<'_>, fields: &[FieldBelow<'_>], presence: &mut [Option<bool>]) -> bool {
    let Some(document) = element.as_document() else { return true };
    let mut own: FieldPresence = SmallVec::from_elem(None, presence.len());
    let keeps_together = note_document(document, fields, &mut own);
    presence.iter_mut().zip(&own).for_each(|(entry, own)| *entry = own.or(*entry));
    let has = |(index, _): &&FieldBelow<'_>| own.get(*index).copied().flatten().is_some();
    let count = fields.iter().filter(has).count();
    keeps_together && (count == 0 || count == fields.len())
}

fn split(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path.iter().position(|byte| *byte == b'.') {
        Some(dot) => (path.get(..dot).unwrap_or(path), path.get(dot + 1..)),
        None => (path, None),
    }
}
