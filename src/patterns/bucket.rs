//! `bucket`: a growing array, in bounded documents.
//!
//! An inbox is one document with an array of messages, until it reaches 16 MiB and nobody can write to it. With
//! buckets a message goes into a document that has room, and a new one is opened when none has.
//!
//! before: `updateOne({owner: "joe"}, {$push: {messages: M}})`
//!
//! after: `updateOne({owner: "joe", count: {$lte: 99}}, {$push: {messages: M}, $inc: {count: 1},
//! $setOnInsert: {time: NOW}}, {upsert: true})`

use super::filter::{narrowed, remade};
use super::{Concern, Context, Judge, Phase, Rejection, Verdict, concern_for_content, read_path, read_required_path};
use crate::command::{Insert, Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::document::{CowDocument, Document, Lookup, OwnedValue, Path, Value, edit};
use crate::effect::{Touch, equality, touch, touched};
use crate::rules::{Code, MapReader};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Bucket {
    array: Path,
    /// How many elements the array has.
    count: Path,
    limit: i64,
    /// When the bucket was opened.
    opened: Option<Path>,
}

impl Judge for Bucket {
    fn name(&self) -> &'static str {
        "bucket"
    }

    fn phase(&self) -> Phase {
        Phase::Bucket
    }

    fn rewriting(&self) -> &'static str {
        "it goes to a document with room, or opens one, and is counted"
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn concern(&self, kind: StatementKind, _: Namespace<'_>) -> Concern {
        concern_for_content(kind)
    }

    fn judge<'a>(&self, statement: &Statement<'a>, context: &Context<'_>) -> Verdict<'a> {
        let judged = match &statement.operation {
            Operation::Delete(_) => Ok(Verdict::Forward),
            Operation::Insert(insert) => self.document(insert.document.as_document(), context).map(|document| {
                document.map_or(Verdict::Forward, |document| Verdict::rewrite(Operation::Insert(Insert { document })))
            }),
            Operation::Update(update) => match &update.modification {
                Modification::Replacement(document) => self.document(document.as_document(), context).map(|document| {
                    document.map_or(Verdict::Forward, |document| {
                        let modification = Modification::Replacement(document);
                        Verdict::rewrite(remade(update, update.filter.clone(), modification, update.upsert))
                    })
                }),
                Modification::Operators(operators) => self.update(update, operators.as_document(), context),
                Modification::ClientPipeline(_) | Modification::Pipeline(_) => Ok(Verdict::client_pipeline()),
            },
        };
        judged.unwrap_or_else(Verdict::Reject)
    }
}

impl Bucket {
    pub(super) fn read(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let (array, count) = (read_required_path(reader, "array"), read_required_path(reader, "count"));
        let limit = reader.required("limit", |reader, key| reader.integer_in(key, 1..=1_000_000));
        let opened = read_path(reader, "opened");
        let place = reader.place();
        let (array, count, limit) = (array?.value, count?.value, limit?.value);
        let opened = opened.map(|path| path.value);
        let fields: Vec<&Path> = [Some(&array), Some(&count), opened.as_ref()].into_iter().flatten().collect();
        for (index, field) in fields.iter().enumerate() {
            if fields.iter().take(index).any(|other| other.overlaps(field.as_str().as_bytes())) || field.root() == "_id"
            {
                let message = format!("`{field}` overlaps another field of the bucket, or `_id`");
                reader.context().error(Code::ConflictingSettings, place, message);
                return None;
            }
        }
        Some(Self { array, count, limit, opened })
    }

    /// A bucket as a whole: the array within the limit, the count true. `None` when it is so already.
    fn document<'a>(
        &self,
        document: Document<'_>,
        context: &Context<'_>,
    ) -> Result<Option<CowDocument<'a>>, Rejection> {
        let length = match self.array.lookup(document) {
            Lookup::Missing => 0,
            Lookup::Found(value) => value.as_array().map(|array| array.values().count() as i64).ok_or_else(|| {
                Rejection::new(
                    format!("its '{}' is no array", self.array),
                    format!("Send '{}' as an array.", self.array),
                )
            })?,
            Lookup::Blocked(kind) => {
                let reason =
                    format!("there is no room for '{}': a field on the way is of type {}", self.array, kind.name());
                return Err(Rejection::new(reason, "Leave the field out, or make it an object."));
            }
        };
        if length > self.limit {
            return Err(self.too_many(length));
        }
        let counted = matches!(self.count.lookup(document), Lookup::Found(value) if value.as_integer() == Some(length));
        let opened = self.opened.as_ref().filter(|opened| opened.lookup(document) == Lookup::Missing);
        if counted && opened.is_none() {
            return Ok(None);
        }
        let mut bytes = edit::set(document, &self.count, OwnedValue::integer(length).as_value());
        if let Some(opened) = opened {
            let counted = CowDocument::from_writer(bytes);
            bytes = edit::set(counted.as_document(), opened, OwnedValue::date(context.now).as_value());
        }
        Ok(Some(CowDocument::from_writer(bytes)))
    }

    fn update<'a>(
        &self,
        update: &Update<'a>,
        operators: Document<'_>,
        context: &Context<'_>,
    ) -> Result<Verdict<'a>, Rejection> {
        let mut pushed = None;
        for (operator, path, value) in touched(operators) {
            match (operator, touch(&self.array, path), touch(&self.count, path)) {
                (_, Touch::Apart, Touch::Apart) => {}
                (b"$push", Touch::Exact, _) => pushed = Some(pushes(value)?),
                // The count follows from what is pushed.
                (b"$inc", _, Touch::Exact) => {}
                // An element changes, the number of elements does not.
                (b"$set", Touch::Positional, _) if writes_inside_an_element(&self.array, path) => {}
                (operator, ..) => {
                    let (operator, path) = (String::from_utf8_lossy(operator), String::from_utf8_lossy(path));
                    return Ok(Verdict::unguardable(
                        format!("{operator} on '{path}' could leave array and count apart, or the array without end"),
                        format!("Add to '{}' with $push only.", self.array),
                    ));
                }
            }
        }
        match pushed {
            Some(pushed) => self.push(update, operators, pushed, context),
            None if touched(operators).any(|(_, path, _)| touch(&self.count, path) != Touch::Apart) => {
                Err(Rejection::new(
                    format!("it changes '{}' without adding anything", self.count),
                    "Leave the count to docward.",
                ))
            }
            None if update.upsert => {
                Err(Rejection::new("as an upsert it could open a bucket without a count", "Open buckets by $push."))
            }
            None => Ok(Verdict::Forward),
        }
    }

    fn push<'a>(
        &self,
        update: &Update<'a>,
        operators: Document<'_>,
        pushed: i64,
        context: &Context<'_>,
    ) -> Result<Verdict<'a>, Rejection> {
        let filter = update.filter.as_document();
        if pushed > self.limit {
            return Err(self.too_many(pushed));
        }
        if update.multi {
            return Err(Rejection::new("it would push into several buckets at once", "Use updateOne."));
        }
        if filter.elements().any(|element| element.key == b"_id") || equality(filter, "_id").is_some() {
            return Err(Rejection::new(
                "it picks a bucket by _id, which may be full",
                "Pick buckets by their owner; any with room will do.",
            ));
        }
        let room = OwnedValue::integer(self.limit - pushed);
        let filter = narrowed(filter, self.count.as_str(), |w, field| {
            w.nested(field, |w| w.value("$lte", room.as_value()));
        });
        let ours = |path: &[u8]| touch(&self.count, path) != Touch::Apart;
        let opens = |path: &[u8]| self.opened.as_ref().is_some_and(|opened| touch(opened, path) != Touch::Apart);
        let client_opens = touched(operators).any(|(_, path, _)| opens(path));
        let operators = CowDocument::build(|w| {
            for operator in operators.elements().filter(|o| o.key != b"$inc" && o.key != b"$setOnInsert") {
                w.element(operator);
            }
            let fields = |name: &str| operators.get(name).and_then(Value::as_document).unwrap_or(Document::EMPTY);
            w.nested("$inc", |w| {
                fields("$inc").elements().filter(|field| !ours(field.key)).for_each(|field| w.element(field));
                w.integer(self.count.as_str(), pushed);
            });
            let opened = self.opened.as_ref().filter(|_| !client_opens);
            if opened.is_some() || !fields("$setOnInsert").is_empty() {
                w.nested("$setOnInsert", |w| {
                    w.elements(fields("$setOnInsert"));
                    if let Some(opened) = opened {
                        w.value(opened.as_str(), OwnedValue::date(context.now).as_value());
                    }
                });
            }
        });
        Ok(Verdict::rewrite(remade(update, filter, Modification::Operators(operators), true)))
    }

    fn too_many(&self, number: i64) -> Rejection {
        Rejection::new(
            format!("{number} elements are more than a bucket's {}", self.limit),
            format!("Send at most {} at once.", self.limit),
        )
    }
}

/// How many elements a `$push` adds.
fn pushes(value: Value<'_>) -> Result<i64, Rejection> {
    let Some(modifiers) = value.as_document().filter(|document| document.get("$each").is_some()) else { return Ok(1) };
    if modifiers.get("$slice").is_some() {
        return Err(Rejection::new("its $slice would drop elements that are counted", "Leave $slice out."));
    }
    let each = modifiers.get("$each").and_then(Value::as_array);
    each.map(|each| each.values().count() as i64)
        .ok_or_else(|| Rejection::new("its $each is no array", "Send $each as an array."))
}

/// `messages.$.read`: a place that the filter has found. A number could be a place that is not there yet.
fn writes_inside_an_element(array: &Path, path: &[u8]) -> bool {
    let below = path.strip_prefix(array.as_str().as_bytes()).and_then(|rest| rest.strip_prefix(b"."));
    below.is_some_and(|below| below.starts_with(b"$"))
}
