//! `bucket`: splits a growing array into documents with a bounded number of elements.
//!
//! An inbox is one document with an array of messages. At 16 MiB the server rejects every further write to it. With
//! buckets, a message goes to a document that has room, and a new document is created if none has room.
//!
//! before: `updateOne({owner: "joe"}, {$push: {messages: M}})`
//!
//! after: `updateOne({owner: "joe", count: {$lte: 99, $not: {$type: "array"}}}, {$push: {messages: M},
//! $inc: {count: 1}, $setOnInsert: {time: NOW}}, {upsert: true})`
//!
//! `push.rs` decides whether a push opens a bucket; the condition is in `room.rs`.

mod operators;
mod push;
mod room;

use bson::{Bson, doc};

use super::around::set_on_insert;
use super::field_path::FieldPath;
use super::plain;
use super::stored_data::{DataCheck, all, any, is_absent, is_missing, is_one_array, not, value};
use super::{
    Applicability, Context, CountedArray, IndexPurpose, Measured, NeededIndex, NoEffectCause, NoEffectKind, Pattern,
    Rejection, Rewrite, Unmatched, Verdict, applicability_for_content, selection,
};
use crate::command::{Insert, Modification, Namespace, Operation, Statement, StatementKind, Update, code};
use crate::config::keys::{Declaration, Keys, Setting, WholeNumber};
use crate::config::{Code, MapReader, Node, ReadContext};
use crate::document::{CowDocument, Document, OwnedValue, Path, PathLookup, Value, edit, paths_overlap, rest_below};
use crate::effect::{ImageValue, PathOverlap, inserted, other_selections, touch, touched};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Bucket {
    array: Path,
    /// Holds the number of elements of the array.
    count: Path,
    limit: i64,
    /// Holds the time at which the bucket was created.
    opened: Option<Path>,
}

const ARRAY: Setting<FieldPath> =
    Setting::required("array", FieldPath, "The array that gets pushed elements.").examples(&["messages"]);
const COUNT: Setting<FieldPath> =
    Setting::required("count", FieldPath, "The field with the number of elements.").examples(&["count"]);
const LIMIT: Setting<WholeNumber> =
    Setting::required("limit", WholeNumber(1..=1_000_000), "The maximum number of elements in a bucket.");
const OPENED: Setting<FieldPath> =
    Setting::optional("opened", FieldPath, "The field that is set to the creation time of a bucket.");
const KEYS: Keys = Keys::new(
    "A growing array, split into documents with a bounded number of elements.",
    &[&ARRAY, &COUNT, &LIMIT, &OPENED],
);

/// The name of a measured value. It begins like no field of an application.
const OTHER_ARRAY: &str = "_docward_other_array_of_bucket";

impl Pattern for Bucket {
    fn declaration() -> Declaration {
        Declaration::mapping(&KEYS).example("{ array: readings, count: n, limit: 1000 }")
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &KEYS, Self::read_keys)
    }

    fn no_effect_causes(&self) -> &'static [NoEffectCause] {
        &[NoEffectCause::Effect(NoEffectKind::NoMatch)]
    }

    fn rewriting(&self) -> &'static str {
        "sends the push to a bucket with room, or opens one, and counts its elements"
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn counted_array(&self) -> Option<CountedArray<'_>> {
        Some(CountedArray { array: &self.array, limit: self.limit })
    }

    fn own_fields(&self) -> Vec<&str> {
        std::iter::once(&self.count).chain(&self.opened).map(Path::as_str).collect()
    }

    fn data_checks(&self, _: Namespace<'_>) -> Vec<DataCheck> {
        let Self { array, count, limit, opened } = self;
        let is_array = || is_one_array(array);
        // The other branch is not evaluated, so $size gets only arrays.
        let if_array = |then: bson::Document| Bson::from(doc! {"$cond": [is_array(), then, false]});
        let size = doc! {"$size": value(array)};
        let used = "docward uses `count` to find a bucket with room";
        let mut checks = DataCheck::each(
            format!("whose `{count}` is not the number of elements in `{array}`"),
            used,
            if_array(doc! {"$ne": [value(count), size.clone()]}),
        )
        .set(format!("`{count}` to the number of elements"), count, size.clone());
        let without = DataCheck::each(
            format!("without `{array}` and with another `{count}` than 0"),
            used,
            all(vec![is_missing(array), doc! {"$ne": [value(count), 0]}.into()]),
        );
        checks.extend(without.set(format!("`{count}: 0`"), count, 0));
        checks.extend([
            DataCheck::each(
                format!("whose `{array}` is not an array"),
                "the server rejects each push to them",
                not(any(vec![is_missing(array), is_array()])),
            ),
            DataCheck::each(
                format!("with more than {limit} elements in `{array}`"),
                "they stay as they are and get no further pushes",
                if_array(doc! {"$gt": [size, *limit]}),
            ),
        ]);
        if let Some(opened) = opened {
            let made = doc! {"$eq": [{"$type": "$_id"}, "objectId"]};
            let without = DataCheck::each(
                format!("without `{opened}`"),
                "reads that sort the buckets by it do not have them in order",
                all(vec![is_absent(opened), made.into()]),
            );
            let time = doc! {"$toDate": "$_id"};
            checks.extend(without.set(format!("`{opened}` to the time in the `_id`"), opened, time));
        }
        checks
    }

    fn needed_number(&self) -> Option<(&Path, i64)> {
        Some((&self.count, self.limit))
    }

    fn incremented_field(&self) -> Option<&Path> {
        Some(&self.count)
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        applicability_for_content(kind)
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        self.verdict_on(statement, context.now, context.versions).unwrap_or_else(Verdict::Reject)
    }

    fn check_final(&self, statement: &Statement<'_>) -> Result<(), Rejection> {
        match self.verdict_on(statement, 0, &[])? {
            Verdict::Reject(rejection) | Verdict::Unsupported(rejection) => Err(rejection),
            Verdict::Rewrite(_) => Err(Rejection::new(
                format!("'{}' and its count '{}' could disagree", self.array, self.count),
                "Send the push as a separate statement.",
            )),
            _ => Ok(()),
        }
    }

    /// Only a push opens another bucket; the duplicate key of an insert is the client's own.
    fn explains_errors(&self, rewritten: &Statement<'_>) -> bool {
        let pushes = |(operator, path, _)| operator == b"$push" && touch(&self.array, path) == PathOverlap::Exact;
        rewritten.is_upsert() && rewritten.operators().is_some_and(|operators| touched(operators).any(pushes))
    }

    /// Explains a duplicate key: a unique index on the owner's fields allows only one bucket. A value that the client
    /// itself writes is a duplicate without docward too.
    fn explain(&self, error: Document<'_>, rewritten: &Statement<'_>) -> Option<Rejection> {
        let keys = error.get("keyPattern").and_then(Value::as_document)?;
        let is_duplicate = error.get("code").and_then(Value::as_integer) == Some(i64::from(code::DUPLICATE_KEY));
        let is_written = |key: &[u8]| {
            let writes =
                |(operator, path, _): (&[u8], &[u8], _)| operator != b"$setOnInsert" && paths_overlap(path, key);
            rewritten.operators().is_some_and(|operators| touched(operators).any(writes))
        };
        if !is_duplicate || keys.get("_id").is_some() || keys.elements().any(|key| is_written(key.key)) {
            return None;
        }
        let text = error.get("errmsg").and_then(Value::as_str).unwrap_or_default();
        let name = text.split(" index: ").nth(1).and_then(|rest| rest.split(" dup key").next()).unwrap_or("?");
        let fields: Vec<_> = keys.elements().map(|key| format!("'{}'", String::from_utf8_lossy(key.key))).collect();
        Some(Rejection::new(
            format!(
                "no bucket has room, and the unique index '{name}' on {} does not allow another one",
                fields.join(", ")
            ),
            format!("Ask the DBA to make the index '{name}' not unique: one owner has many buckets."),
        ))
    }

    /// The indexes on the fields that select buckets must not be unique.
    fn needed_indexes(&self) -> Vec<NeededIndex> {
        let field = self.opened.as_ref().map_or_else(String::new, |opened| opened.as_str().to_owned());
        let without = "a second bucket of one owner cannot be opened";
        vec![NeededIndex { collection: None, field, purpose: IndexPurpose::NotUnique, without }]
    }

    /// Whether another array can have given `$` its position.
    fn measured(&self, statement: &Statement<'_>) -> Vec<Measured> {
        let Operation::Update(update) = &statement.operation else { return Vec::new() };
        match self.other_arrays(update) {
            others if others.is_empty() => Vec::new(),
            others => vec![Measured { name: OTHER_ARRAY.to_owned(), expression: selection::has_array(&others) }],
        }
    }

    /// Rejects a push that cannot open a bucket and matched only full ones, and a change of an element that `$` may not
    /// have found.
    fn unmatched(&self, statement: &Statement<'_>, stored: Option<Document<'_>>) -> Unmatched {
        let (Some(stored), Operation::Update(update)) = (stored, &statement.operation) else {
            return Unmatched::Nothing;
        };
        let others = self.other_arrays(update);
        if !others.is_empty() {
            return match stored.get(OTHER_ARRAY).and_then(Value::as_bool) {
                Some(true) => Unmatched::Reject(selection::rejection(&others)),
                _ => Unmatched::Nothing,
            };
        }
        Unmatched::Reject(Rejection::new(
            "every bucket that its filter matches is full, and docward cannot open one with this filter",
            "Filter by equality on the owner's fields, so that docward can open a bucket.",
        ))
    }
}

impl Bucket {
    fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let (array, count) = (reader.get(&ARRAY), reader.get(&COUNT));
        let (limit, opened) = (reader.get(&LIMIT), reader.get(&OPENED));
        let span = reader.span();
        let (array, count, limit) = (array?.value, count?.value, limit?.value);
        let opened = opened.map(|path| path.value);
        let fields: Vec<&Path> = [Some(&array), Some(&count), opened.as_ref()].into_iter().flatten().collect();
        for (index, field) in fields.iter().enumerate() {
            if fields.iter().take(index).any(|other| other.overlaps(field.as_str().as_bytes())) || field.root() == "_id"
            {
                let message = format!("`{field}` overlaps another field of the bucket, or `_id`");
                reader.context().error(Code::ConflictingSettings, span, message);
                return None;
            }
        }
        Some(Self { array, count, limit, opened })
    }

    /// Returns the verdict; `Forward` for a statement that this rule has already rewritten.
    fn verdict_on<'a>(
        &self,
        statement: &Statement<'a>,
        now: i64,
        versions: &[&Path],
    ) -> Result<Verdict<'a>, Rejection> {
        match &statement.operation {
            Operation::Delete(_) => Ok(Verdict::Forward),
            Operation::Insert(insert) => {
                let document = self.document(insert.document.as_document(), now)?;
                let rewritten = |document| Verdict::rewrite(Operation::Insert(Insert { document }));
                Ok(document.map_or(Verdict::Forward, rewritten))
            }
            Operation::Update(update) => match update.modification.meaning() {
                Modification::Replacement(document) => {
                    let document = self.document(document.as_document(), now)?;
                    Ok(document.map_or(Verdict::Forward, |document| {
                        let modification = Modification::Replacement(document);
                        Verdict::rewrite(Operation::Update(Update { modification, ..update.clone() }))
                    }))
                }
                Modification::Operators(operators) => {
                    self.update(statement, update, operators.as_document(), now, versions)
                }
                Modification::ClientPipeline(_)
                    if plain::is_apart(update, [&self.array, &self.count].into_iter().chain(&self.opened)) =>
                {
                    Ok(Verdict::Forward)
                }
                Modification::ClientPipeline(_) | Modification::Pipeline(_) => Ok(Verdict::client_pipeline()),
            },
        }
    }

    /// Checks the length of the array and corrects the count. Returns `None` if the document needs no change.
    fn document<'a>(&self, document: Document<'_>, now: i64) -> Result<Option<CowDocument<'a>>, Rejection> {
        let length = match self.array.lookup(document) {
            PathLookup::Missing => 0,
            PathLookup::Found(value) => {
                value.as_array().map(|array| array.values().count() as i64).ok_or_else(|| {
                    Rejection::new(
                        format!("its '{}' is not an array", self.array),
                        format!("Send '{}' as an array.", self.array),
                    )
                })?
            }
            PathLookup::Blocked(kind) => return Err(Rejection::no_room(&self.array, kind)),
        };
        if length > self.limit {
            return Err(self.too_many(length));
        }
        let counted = match self.count.lookup(document) {
            PathLookup::Found(value) => value.as_whole() == Some(length),
            PathLookup::Missing => false,
            PathLookup::Blocked(kind) => return Err(Rejection::no_room(&self.count, kind)),
        };
        let opened = self.opened.as_ref().filter(|opened| opened.lookup(document) == PathLookup::Missing);
        if counted && opened.is_none() {
            return Ok(None);
        }
        let mut bytes = edit::set(document, &self.count, OwnedValue::integer(length).as_value());
        if let Some(opened) = opened {
            let counted = CowDocument::from_writer(bytes);
            bytes = edit::set(counted.as_document(), opened, OwnedValue::date(now).as_value());
        }
        Ok(Some(CowDocument::from_writer(bytes)))
    }

    fn update<'a>(
        &self,
        statement: &Statement<'a>,
        update: &Update<'a>,
        operators: Document<'_>,
        now: i64,
        versions: &[&Path],
    ) -> Result<Verdict<'a>, Rejection> {
        let mut pushed = None;
        let (mut counts, mut selects) = (false, false);
        for (operator, path, value) in touched(operators) {
            match (operator, touch(&self.array, path), touch(&self.count, path)) {
                (_, PathOverlap::Apart, PathOverlap::Apart) => {}
                // `open_empty` and `push` check the whole document that an upsert inserts.
                (b"$setOnInsert", ..) => {}
                (b"$push", PathOverlap::Exact, _) => pushed = Some(pushes(value)?),
                // docward computes the count from the pushed elements.
                (b"$inc", _, PathOverlap::Exact) => counts = true,
                // Changing an element does not change the number of elements.
                (_, PathOverlap::Positional, _) if writes_inside_an_element(&self.array, path) => {
                    selects |= is_selected(&self.array, path);
                }
                (operator, ..) => {
                    let (operator, path) = (String::from_utf8_lossy(operator), String::from_utf8_lossy(path));
                    return Ok(Verdict::unsupported(
                        format!("{operator} on '{path}' could make the count wrong or exceed the limit"),
                        format!("Add to '{}' with $push only.", self.array),
                    ));
                }
            }
        }
        match pushed {
            Some(0) if !update.upsert => Ok(self.push_nothing(update, operators)),
            Some(0) if !counts => self.open_empty(&statement.operation, update, operators, now),
            Some(pushed) => self.push(statement, update, operators, pushed, now, versions),
            None if counts => Err(Rejection::new(
                format!("it changes the count '{}' without a $push", self.count),
                "Leave the count out; docward maintains it.",
            )),
            None => {
                let verdict = self.open_empty(&statement.operation, update, operators, now)?;
                Ok(if selects { self.with_selection(verdict, update) } else { verdict })
            }
        }
    }

    /// Adds the condition that `$` has the position of an element in this array: with that of a longer array the server
    /// would fill this one with nulls.
    fn with_selection<'a>(&self, verdict: Verdict<'a>, update: &Update<'a>) -> Verdict<'a> {
        let Some(others) = other_selections(update.filter.as_document(), self.array.as_str().as_bytes()) else {
            return Verdict::unsupported(
                "docward cannot tell which array gives $ its position",
                "Use $[name] with arrayFilters, or a filter with conditions on one array.",
            );
        };
        let condition = selection::no_array(&others);
        let is_known = update.conditions.iter().any(|known| known.as_document() == condition.as_document());
        if others.is_empty() || is_known {
            return verdict;
        }
        let mut update = match verdict {
            Verdict::Forward => update.clone(),
            Verdict::Rewrite(Rewrite { operation: Operation::Update(update), .. }) => update,
            other => return other,
        };
        update.conditions.push(condition);
        Verdict::Rewrite(Rewrite { operation: Operation::Update(update), checks_match: true, no_effect: None })
    }

    /// Returns the fields of which none may be an array, if the update uses `$` in this array.
    fn other_arrays<'u>(&self, update: &'u Update<'_>) -> Vec<&'u str> {
        let Some(operators) = update.operators() else { return Vec::new() };
        if !touched(operators).any(|(_, path, _)| is_selected(&self.array, path)) {
            return Vec::new();
        }
        other_selections(update.filter.as_document(), self.array.as_str().as_bytes()).unwrap_or_default()
    }

    /// Rewrites a push of no elements: it needs no room, and the count does not change.
    fn push_nothing<'a>(&self, update: &Update<'a>, operators: Document<'_>) -> Verdict<'a> {
        let counts = touched(operators).any(|(operator, path, value)| {
            operator == b"$inc" && touch(&self.count, path) != PathOverlap::Apart && value.as_integer() != Some(0)
        });
        if !counts {
            return Verdict::Forward;
        }
        let on_insert = set_on_insert(operators, &self.count, |_| false).unwrap_or_default();
        let modification = Modification::Operators(self.counted(operators, &on_insert, 0, None));
        Verdict::rewrite(Operation::Update(Update { modification, ..update.clone() }))
    }

    /// Evaluates an upsert without a push: it inserts an empty bucket, or one with a correct count.
    fn open_empty<'a>(
        &self,
        operation: &Operation<'a>,
        update: &Update<'a>,
        operators: Document<'_>,
        now: i64,
    ) -> Result<Verdict<'a>, Rejection> {
        let Some(image) = inserted(operation) else { return Ok(Verdict::Forward) };
        let length = match image.at(&self.array) {
            ImageValue::Missing => Some(0),
            ImageValue::Value(value) => value.as_array().map(|array| array.values().count() as i64),
            ImageValue::Some(_) | ImageValue::Unknown | ImageValue::Blocked(_) => None,
        };
        let length = length.filter(|length| *length <= self.limit);
        match (length, image.at(&self.count)) {
            (Some(length), ImageValue::Value(count)) if count.as_whole() == Some(length) => Ok(Verdict::Forward),
            (Some(length), ImageValue::Missing) => {
                let modification = Modification::Operators(self.with_new_fields(operators, &image, length, now));
                Ok(Verdict::rewrite(Operation::Update(Update { modification, ..update.clone() })))
            }
            _ => Err(Rejection::new(
                format!("as an upsert it could insert a bucket whose '{}' is wrong", self.count),
                "Open buckets with $push.",
            )),
        }
    }

    fn too_many(&self, number: i64) -> Rejection {
        Rejection::new(
            format!("{number} elements exceed the bucket's limit of {}", self.limit),
            format!("Send at most {} at once.", self.limit),
        )
    }
}

/// Returns how many elements a `$push` adds.
fn pushes(value: Value<'_>) -> Result<i64, Rejection> {
    let Some(modifiers) = value.as_document().filter(|document| document.get("$each").is_some()) else { return Ok(1) };
    if modifiers.get("$slice").is_some() {
        return Err(Rejection::new("its $slice would remove counted elements", "Leave $slice out."));
    }
    let each = modifiers.get("$each").and_then(Value::as_array);
    each.map(|each| each.values().count() as i64)
        .ok_or_else(|| Rejection::new("its $each is not an array", "Send $each as an array."))
}

/// Returns whether the path is below the position that `$` has in the array, as `messages.$.read` is.
fn is_selected(array: &Path, path: &[u8]) -> bool {
    let below = rest_below(path, array.as_str().as_bytes());
    below.and_then(|below| below.strip_prefix(b"$")).is_some_and(|rest| rest.first().is_none_or(|next| *next == b'.'))
}

/// Returns whether the path is below a position that the statement finds, as `messages.$.read` is. A number could be a
/// position that does not exist yet.
fn writes_inside_an_element(array: &Path, path: &[u8]) -> bool {
    rest_below(path, array.as_str().as_bytes()).is_some_and(|below| below.starts_with(b"$"))
}
