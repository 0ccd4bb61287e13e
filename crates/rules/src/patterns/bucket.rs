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

use super::field_path::FieldPath;
use super::plain::{self, NotPlain, PlainWrite};
use super::promise::BeforeAndAfter;
use super::stored_data::{DataCheck, all, any, is_absent, is_missing, is_one_array, is_one_of, not, value};
use super::stored_state::of_reachable;
use super::{
    Applicability, Broken, Context, CountedArray, Facts, FieldContent, IndexPurpose, NeededIndex, NoEffectCause,
    NoEffectKind, Pattern, Procedures, Properties, Rejection, Settled, StateCondition, Unmatched, Verdict,
    applicability_for_content,
};
use crate::command::{Insert, Modification, Namespace, Operation, Statement, StatementKind, Update, code};
use crate::config::keys::{Declaration, Keys, Setting, WholeNumber};
use crate::config::{Code, MapReader, Node, ReadContext};
use crate::document::{
    CowDocument, Document, OwnedValue, Path, PathLookup, Value, edit, paths_overlap, rest_below, root_of,
};
use crate::effect::{PathOverlap, selects_only, touch, touched};
use crate::text::plural;

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

impl Pattern for Bucket {
    fn declaration() -> Declaration {
        Declaration::mapping(&KEYS).example("{ array: readings, count: n, limit: 1000 }")
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &KEYS, Self::read_keys)
    }

    fn properties(&self) -> Properties {
        let indexed = self.opened.as_ref().map_or_else(String::new, |opened| opened.as_str().to_owned());
        let without = "a second bucket of one owner cannot be opened";
        let fields = [&self.array, &self.count].into_iter().chain(&self.opened);
        Properties {
            rewriting: "sends the push to a bucket with room, or opens one, and counts its elements",
            no_effect_causes: &[NoEffectCause::Effect(NoEffectKind::NoMatch)],
            exclusive: true,
            // The indexes on the fields that select buckets must not be unique.
            needed_indexes: vec![NeededIndex {
                collection: None,
                field: indexed,
                purpose: IndexPurpose::NotUnique,
                without,
            }],
            own_fields: std::iter::once(&self.count).chain(&self.opened).cloned().collect(),
            procedures: Procedures::NotPlain(fields.map(|field| (field.clone(), &[][..])).collect()),
            incremented_field: Some(self.count.clone()),
            needed_number: Some((self.count.clone(), self.limit)),
            contents: vec![(self.count.clone(), FieldContent::Number), (self.array.clone(), FieldContent::Array)],
            counted_array: Some(CountedArray { array: self.array.clone(), limit: self.limit }),
            ..Properties::default()
        }
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

    fn stored_state(&self) -> Vec<StateCondition> {
        let Self { array, count, limit, .. } = self;
        let bounded = of_reachable(array, doc! {"bsonType": "array", "maxItems": *limit});
        let length = doc! {"$cond": [is_one_of(array, &["array"]), {"$size": value(array)}, 0]};
        let counted = doc! {"$eq": [{"$ifNull": [value(count), 0]}, length]};
        let meaning = format!("`{count}` is the number of elements in `{array}`");
        vec![
            StateCondition::schema(
                format!("`{array}` is missing or an array of at most {}", plural(*limit as u64, "element")),
                &[array],
                bounded,
            ),
            StateCondition { is_settled: true, ..StateCondition::expression(meaning, &[array, count], counted) },
        ]
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        applicability_for_content(kind)
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        self.plain(statement, context.now, context.versions).unwrap_or_else(Verdict::not_plain)
    }

    fn check_final(&self, statement: &Statement<'_>) -> Result<(), Rejection> {
        match self.plain(statement, 0, &[]).map_err(plain::reason_to_check)? {
            Verdict::Reject(rejection) => Err(rejection),
            Verdict::Rewrite(_) => Err(Rejection::new(
                format!("'{}' and its count '{}' could disagree", self.array, self.count),
                "Send the push as a separate statement.",
            )),
            _ => Ok(()),
        }
    }

    /// The count is that of the elements, and a new bucket has its time.
    fn settle(&self, before: Option<Document<'_>>, after: Document<'_>, _: &Facts<'_, '_>) -> Vec<Settled> {
        let is_wrong = |length: &i64| match self.count.lookup(after) {
            PathLookup::Found(count) => count.as_whole() != Some(*length),
            PathLookup::Missing => true,
            PathLookup::Blocked(_) => false,
        };
        let count = self.length(after).ok().filter(is_wrong);
        let opened =
            self.opened.as_ref().filter(|opened| before.is_none() && opened.lookup(after) == PathLookup::Missing);
        let count = count.map(|length| Settled::value(&self.count, OwnedValue::integer(length)));
        count.into_iter().chain(opened.map(Settled::server_time)).collect()
    }

    fn promise(&self, (before, after): BeforeAndAfter<'_>, _: &Facts<'_, '_>) -> Result<(), Broken> {
        let Some(after) = after else { return Ok(()) };
        let stored = before.map(|before| (self.length(before), self.stored_count(before)));
        let length = match (self.length(after), &stored) {
            (Ok(length), _) => length,
            (Err(_), Some((Err(_), _))) => return Ok(()),
            (Err(rejection), _) => return Err(rejection.into()),
        };
        let known = stored.as_ref().and_then(|(length, _)| length.as_ref().ok().copied()).unwrap_or_default();
        if length > self.limit && length > known {
            let reason =
                format!("'{}' would go from {known} to {length} elements; the limit is {}", self.array, self.limit);
            return Err(Rejection::new(reason, "Push into a bucket with room, or filter by the owner's fields.").into());
        }
        let was_wrong = stored.is_some_and(|(length, count)| length.ok() != count);
        match (self.stored_count(after) == Some(length), self.count.lookup(after)) {
            (false, PathLookup::Blocked(kind)) if !was_wrong => Err(Rejection::no_room(&self.count, kind).into()),
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

    /// Rejects a push that cannot open a bucket and matched only full ones.
    fn unmatched(&self, _: &Statement<'_>, stored: Option<Document<'_>>) -> Unmatched {
        if stored.is_none() {
            return Unmatched::Nothing;
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

    /// Returns the count of a document, which is 0 where it is missing; `None` if it is not a whole number.
    fn stored_count(&self, document: Document<'_>) -> Option<i64> {
        match self.count.lookup(document) {
            PathLookup::Found(count) => count.as_whole(),
            PathLookup::Missing | PathLookup::Blocked(_) => Some(0),
        }
    }

    /// Returns the verdict on a statement of a plain form; `Forward` for one that this rule has already rewritten.
    ///
    /// # Errors
    /// The statement is not plain.
    fn plain<'a>(&self, statement: &Statement<'a>, now: i64, versions: &[&Path]) -> Result<Verdict<'a>, NotPlain> {
        let Operation::Update(update) = &statement.operation else {
            let Operation::Insert(insert) = &statement.operation else { return Ok(Verdict::Forward) };
            return Ok(match self.with_count(insert.document.as_document(), now) {
                Ok(None) => Verdict::Forward,
                Ok(Some(document)) => Verdict::rewrite(Operation::Insert(Insert { document })),
                Err(rejection) => Verdict::Reject(rejection),
            });
        };
        match update.modification.meaning() {
            Modification::Replacement(document) => match self.with_count(document.as_document(), now) {
                Ok(None) => Ok(Verdict::Forward),
                Ok(Some(document)) => {
                    let modification = Modification::Replacement(document);
                    Ok(Verdict::rewrite(Operation::Update(Update { modification, ..update.clone() })))
                }
                // The stored array may have as many elements.
                Err(rejection) => Err(rejection.reason),
            },
            Modification::Operators(operators) => {
                match self.pushed(operators.as_document(), update.filter.as_document())? {
                    Some(pushed) => self.push(update, operators.as_document(), pushed, now, versions),
                    None if update.upsert => self.open_empty(update, operators.as_document(), now),
                    None => Ok(Verdict::Forward),
                }
            }
            Modification::ClientPipeline(_) | Modification::Pipeline(_)
                if !plain::is_apart(update, [&self.array, &self.count].into_iter().chain(&self.opened)) =>
            {
                Err(format!("it is a pipeline that may change '{}' or '{}'", self.array, self.count))
            }
            Modification::ClientPipeline(_) | Modification::Pipeline(_) => Ok(Verdict::Forward),
        }
    }

    /// Checks the length of the array and corrects the count. Returns `None` if the document needs no change.
    fn with_count<'a>(&self, document: Document<'_>, now: i64) -> Result<Option<CowDocument<'a>>, Rejection> {
        let length = self.length(document)?;
        if length > self.limit {
            return Err(self.too_many(length));
        }
        let is_right = match self.count.lookup(document) {
            PathLookup::Found(value) => value.as_whole() == Some(length),
            PathLookup::Missing => false,
            PathLookup::Blocked(kind) => return Err(Rejection::no_room(&self.count, kind)),
        };
        let opened = self.opened.as_ref().filter(|opened| opened.lookup(document) == PathLookup::Missing);
        if is_right && opened.is_none() {
            return Ok(None);
        }
        let mut bytes = edit::set(document, &self.count, OwnedValue::integer(length).as_value());
        if let Some(opened) = opened {
            let with_count = CowDocument::from_writer(bytes);
            bytes = edit::set(with_count.as_document(), opened, OwnedValue::date(now).as_value());
        }
        Ok(Some(CowDocument::from_writer(bytes)))
    }

    /// Returns the number of elements of the array.
    fn length(&self, document: Document<'_>) -> Result<i64, Rejection> {
        match self.array.lookup(document) {
            PathLookup::Missing => Ok(0),
            PathLookup::Found(value) => value.as_array().map(|array| array.values().count() as i64).ok_or_else(|| {
                Rejection::new(
                    format!("its '{}' is not an array", self.array),
                    format!("Send '{}' as an array.", self.array),
                )
            }),
            PathLookup::Blocked(kind) => Err(Rejection::no_room(&self.array, kind)),
        }
    }

    /// Returns how many elements the operators push; `None` if they do not push into the array.
    fn pushed(&self, operators: Document<'_>, filter: Document<'_>) -> Result<Option<i64>, NotPlain> {
        let (mut pushed, mut counts) = (None, false);
        for (operator, path, value) in touched(operators) {
            match (operator, touch(&self.array, path), touch(&self.count, path)) {
                (_, PathOverlap::Apart, PathOverlap::Apart) => {}
                (b"$push", PathOverlap::Exact, _) => pushed = pushes(value),
                // docward computes the count from the pushed elements.
                (b"$inc", _, PathOverlap::Exact) => counts = true,
                // It is the same for a stored bucket.
                (b"$setOnInsert", PathOverlap::Exact, _) | (b"$setOnInsert", _, PathOverlap::Exact) => {}
                // Changing an element does not change the number of elements.
                (_, PathOverlap::Positional, _) if is_in_element(&self.array, path, filter) => {}
                (operator, ..) => {
                    let text = String::from_utf8_lossy;
                    let (operator, path) = (text(operator), text(path));
                    return Err(format!("its {operator} of '{path}' may change '{}' or '{}'", self.array, self.count));
                }
            }
        }
        match pushed {
            None if counts => Err(format!("it changes '{}' without a $push that is plain", self.count)),
            Some(0) if counts => Err(format!("it changes '{}' without pushing an element", self.count)),
            Some(0) => Ok(None),
            _ if pushed.is_none() && touches_with(operators, b"$push", &self.array) => {
                Err(format!("its $push into '{}' has a $slice", self.array))
            }
            pushed => Ok(pushed),
        }
    }

    /// Evaluates an upsert without a push: it inserts an empty bucket, or one with a correct count.
    fn open_empty<'a>(&self, update: &Update<'a>, operators: Document<'_>, now: i64) -> Result<Verdict<'a>, NotPlain> {
        let length = match plain::inserted(update, &self.array)? {
            PlainWrite::Untouched => Some(0),
            PlainWrite::Set(value) => value.as_array().map(|array| array.values().count() as i64),
            _ => None,
        };
        let length = length.filter(|length| *length <= self.limit);
        match (length, plain::inserted(update, &self.count)?) {
            (Some(length), PlainWrite::Set(count)) if count.as_whole() == Some(length) => Ok(Verdict::Forward),
            (Some(length), PlainWrite::Untouched) => {
                let modification = Modification::Operators(self.with_new_fields(update, operators, length, now));
                Ok(Verdict::rewrite(Operation::Update(Update { modification, ..update.clone() })))
            }
            _ => Err(format!("as an upsert, it may insert a bucket whose '{}' is wrong", self.count)),
        }
    }

    fn too_many(&self, number: i64) -> Rejection {
        Rejection::new(
            format!("{number} elements exceed the bucket's limit of {}", self.limit),
            format!("Send at most {} at once.", self.limit),
        )
    }
}

/// Returns how many elements a `$push` adds; `None` if it can remove some.
fn pushes(value: Value<'_>) -> Option<i64> {
    let Some(modifiers) = value.as_document().filter(|document| document.get("$each").is_some()) else {
        return Some(1);
    };
    let each = modifiers.get("$each").and_then(Value::as_array).filter(|_| modifiers.get("$slice").is_none());
    each.map(|each| each.values().count() as i64)
}

fn touches_with(operators: Document<'_>, operator: &[u8], field: &Path) -> bool {
    touched(operators).any(|(own, path, _)| own == operator && touch(field, path) == PathOverlap::Exact)
}

/// Returns whether the path is below a position that the statement finds, as `messages.$.read` is. A number could be a
/// position that does not exist yet, and so is that of `$` if another array of the document can have given it.
fn is_in_element(array: &Path, path: &[u8], filter: Document<'_>) -> bool {
    let part = rest_below(path, array.as_str().as_bytes()).map(root_of);
    match part {
        Some(b"$") => selects_only(filter, array.as_str().as_bytes()),
        Some(part) => part.starts_with(b"$"),
        None => false,
    }
}
