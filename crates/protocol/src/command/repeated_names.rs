//! The stage that fails an update by pipeline if the stored document has a field twice.
//!
//! mongod ends when an update by pipeline changes a field whose name the stored document has twice: an invariant of
//! `computeDocDiff` in its `document_diff_calculator.cpp` (observed on 6.0.5). Reading such a field in a stage is enough,
//! because the server then writes the first value for all of them. The same is true of a name inside a document that the
//! update changes or replaces by another document. Updates by operators, replacements and inserts compute no difference.
//!
//! The server evaluates the stage before it computes the difference, so the statement fails and the server stays. A
//! condition in the filter would select another document, or skip some of many.

use smallvec::SmallVec;

use super::expressions::{cond, has_type};
use crate::document::{ArrayWriter, CowDocument, Document, Element, Kind, Value, ValueSlot, Writer, root_of};

/// Levels of documents and arrays in stored documents and in commands: servers accept no more (`BSONDepth`).
const MAX_DEPTH: i64 = 200;
/// Levels that are examined one by one, because each nests four levels in the stage.
const MAX_LEVELS: usize = 32;
/// Fields in one condition; each nests two levels.
const MAX_NAMES: usize = 32;
/// The usual length in bytes of the stage, as a capacity.
const LENGTH: usize = 1024;

/// The server quotes the string that it cannot convert. The `_id` follows.
const MARK: &str = "docward: a field is stored twice in the document with the _id ";
/// What the server writes after the string.
const AFTER_MARK: &str = "' in $convert";

/// Returns the `_id` of the stored document, as text, if the server's error is from the stage.
pub fn repeated_name_in(errmsg: &str) -> Option<&str> {
    let (_, rest) = errmsg.split_once(MARK)?;
    Some(rest.rsplit_once(AFTER_MARK).map_or(rest, |(id, _)| id))
}

/// Who wrote the stages of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageOrigin {
    /// A client: stages may write through arrays in arrays, which docward's never do.
    Client,
    /// A pattern: its stages read only fields that they write.
    Pattern,
    /// A tool, or a command of docward itself.
    Tool,
}

/// Returns the stage to put before these.
pub fn repeated_name_check<'s>(
    stages: impl Iterator<Item = Document<'s>>,
    origin: StageOrigin,
) -> CowDocument<'static> {
    let mut used = UsedFields { origin, fields: SmallVec::new(), whole: None };
    stages.filter_map(Document::first).for_each(|stage| used.add_stage(stage));
    CowDocument::build_of(LENGTH, |w| {
        cond(
            w.slot("$replaceWith"),
            |slot| slot.nested(|w| w.array("$or", |a| used.write_conditions(a))),
            failure,
            |slot| slot.string("$$ROOT"),
        );
    })
}

/// Returns the expression whether a stored document has a name twice, at any examined level.
pub fn has_repeated_name() -> CowDocument<'static> {
    CowDocument::build_of(MAX_LEVELS * LENGTH, |w| w.array("$or", |a| write_inside(a, "$$ROOT", MAX_LEVELS + 1, 0)))
}

/// Returns a command without such stages, for people: a stage is longer than most statements.
pub fn without_repeated_name_checks(command: Document<'_>) -> CowDocument<'static> {
    CowDocument::build(|w| command.elements().for_each(|field| write_without_checks(w.slot(field.key), field.value)))
}

/// The depth of docward's own commands bounds the recursion.
fn write_without_checks(slot: ValueSlot<'_>, value: Value<'_>) {
    let Some(inside) = value.as_document_or_array() else { return slot.value(value) };
    if value.kind == Kind::Array {
        let stages = inside.values().filter(|stage| !is_check(*stage));
        return slot.array(|a| stages.for_each(|stage| write_without_checks(a.slot(), stage)));
    }
    slot.nested(|w| inside.elements().for_each(|field| write_without_checks(w.slot(field.key), field.value)));
}

fn is_check(stage: Value<'_>) -> bool {
    let failing = stage.as_document().and_then(|stage| operand(stage.get("$replaceWith")?, "$cond", 1));
    let text = failing.and_then(|failing| operand(failing.as_document()?.get("$toInt")?, "$concat", 0));
    text.and_then(Value::as_str) == Some(MARK)
}

/// Returns an operand of an expression with this operator.
fn operand<'e>(expression: Value<'e>, operator: &str, at: usize) -> Option<Value<'e>> {
    expression.as_document()?.get(operator)?.as_array()?.values().nth(at)
}

/// A field that stages write or read.
#[derive(Debug)]
struct UsedField<'s> {
    name: &'s str,
    /// How many levels of documents and arrays of its value the stages may change.
    depth: usize,
    /// A stage writes a path inside it.
    around: bool,
}

/// The top-level fields that stages write or read.
#[derive(Debug)]
struct UsedFields<'s> {
    origin: StageOrigin,
    fields: SmallVec<[UsedField<'s>; 8]>,
    /// A stage may change any field, to this depth.
    whole: Option<usize>,
}

impl<'s> UsedFields<'s> {
    fn add_stage(&mut self, Element { key, value }: Element<'s>) {
        match (key, value.kind) {
            (b"$set" | b"$addFields", Kind::Document) => {
                for field in value.as_document().unwrap_or(Document::EMPTY).elements() {
                    self.add(field.key, depth_of(field.value));
                    if self.origin != StageOrigin::Pattern {
                        self.add_references(field.value);
                    }
                }
            }
            (b"$unset", Kind::String) => self.add(value.as_string_bytes().unwrap_or_default(), 0),
            (b"$unset", Kind::Array) => {
                let names = value.as_array().unwrap_or(Document::EMPTY).values();
                names.for_each(|name| self.add(name.as_string_bytes().unwrap_or_default(), 0));
            }
            _ => self.add_whole(depth_of(value)),
        }
    }

    fn add_whole(&mut self, depth: usize) {
        self.whole = self.whole.max(Some(depth.max(1)));
    }

    fn add(&mut self, path: &'s [u8], depth: usize) {
        let parts = path.split(|byte| *byte == b'.');
        let depth = depth + parts.clone().count() - 1;
        let root = parts.into_iter().next().and_then(|root| std::str::from_utf8(root).ok()).unwrap_or_default();
        if root.is_empty() || root.starts_with('$') {
            return self.add_whole(depth + 1);
        }
        let around = root.len() < path.len();
        match self.fields.iter_mut().find(|known| known.name == root) {
            Some(known) => {
                known.depth = known.depth.max(depth);
                known.around |= around;
            }
            None => self.fields.push(UsedField { name: root, depth, around }),
        }
    }

    /// Adds the fields that an expression reads. The depth of checked documents bounds the recursion.
    fn add_references(&mut self, expression: Value<'s>) {
        if let Some(text) = expression.as_string_bytes() {
            let of_root = [b"$$ROOT.".as_slice(), b"$$CURRENT."].iter().find_map(|root| text.strip_prefix(*root));
            let path = of_root.or_else(|| text.strip_prefix(b"$").filter(|path| !path.starts_with(b"$")));
            if let Some(path) = path {
                self.add(root_of(path), 0);
            }
        }
        for inner in expression.as_document_or_array().unwrap_or(Document::EMPTY).elements() {
            if !is_literal(inner.key) {
                self.add_references(inner.value);
            }
        }
    }

    /// Writes conditions of which one is true if a used name is there twice.
    fn write_conditions(&self, a: &mut ArrayWriter<'_>) {
        if let Some(whole) = self.whole {
            let inside = self.fields.iter().map(|field| field.depth + 1).max();
            return write_inside(a, "$$ROOT", whole.max(inside.unwrap_or(0)), 0);
        }
        for fields in self.fields.chunks(MAX_NAMES) {
            a.nested(|w| write_is_any_repeated(w, fields));
        }
        for field in self.fields.iter().filter(|field| field.depth > 0) {
            let value = format!("${}", field.name);
            write_inside(a, &value, field.depth, 0);
            if field.around {
                // A path leads into each element of an array.
                a.nested(|w| {
                    write_any(
                        w,
                        |slot| write_elements(slot, &value),
                        |a| {
                            if self.origin != StageOrigin::Client {
                                a.nested(|w| w.array("$isArray", |a| a.string("$$this")));
                            }
                            write_inside(a, "$$this", field.depth, 1);
                        },
                    );
                });
            }
        }
    }
}

fn is_literal(operator: &[u8]) -> bool {
    matches!(operator, b"$literal" | b"$const")
}

/// Operators whose result is neither a document nor an array: their arguments need not be looked at.
const SCALAR: [&[u8]; 14] = [
    b"$and",
    b"$or",
    b"$not",
    b"$eq",
    b"$ne",
    b"$gt",
    b"$gte",
    b"$lt",
    b"$lte",
    b"$in",
    b"$type",
    b"$isNumber",
    b"$isArray",
    b"$toInt",
];

/// Returns how many levels of documents and arrays an expression may create.
fn depth_of(expression: Value<'_>) -> usize {
    match expression.kind {
        Kind::Document => match expression.as_document().and_then(Document::first) {
            Some(Element { key, value }) if is_literal(key) => nesting(value),
            Some(Element { key, .. }) if SCALAR.contains(&key) => 0,
            Some(Element { key, value }) if key.starts_with(b"$") => {
                usize::from(key == b"$setField") + depth_of_arguments(value)
            }
            _ => 1 + deepest(expression, depth_of),
        },
        Kind::Array => 1 + deepest(expression, depth_of),
        _ => 0,
    }
}

/// Returns the same for the arguments of an operator: one expression, a list, or named ones.
fn depth_of_arguments(arguments: Value<'_>) -> usize {
    let named = arguments.as_document().filter(|named| !named.first().is_some_and(|first| first.key.starts_with(b"$")));
    match (named, arguments.kind) {
        (Some(named), _) => {
            let depths = named.elements().map(|argument| match argument.key {
                b"branches" => deepest(argument.value, depth_of_arguments),
                _ => depth_of(argument.value),
            });
            depths.max().unwrap_or(0)
        }
        (None, Kind::Array) => deepest(arguments, depth_of),
        (None, _) => depth_of(arguments),
    }
}

/// Returns the levels of documents and arrays of a value.
fn nesting(value: Value<'_>) -> usize {
    if value.as_document_or_array().is_some() { 1 + deepest(value, nesting) } else { 0 }
}

fn deepest(of: Value<'_>, depth: fn(Value<'_>) -> usize) -> usize {
    of.as_document_or_array().unwrap_or(Document::EMPTY).values().map(depth).max().unwrap_or(0)
}

/// Writes whether one of these fields is there twice. `$setField` changes all fields of a name, and adds a missing one:
/// the length of the document with null in each field is known, compared with its length without them. The server
/// copies the bytes of the other fields, so this is much faster than to list the names.
fn write_is_any_repeated(w: &mut Writer<'_>, fields: &[UsedField<'_>]) {
    /// Bytes of a null besides its name.
    const NULL: usize = 2;
    w.array("$ne", |a| {
        a.nested(|w| {
            w.array("$subtract", |a| {
                a.nested(|w| write_each_set(w.slot("$bsonSize"), fields, |slot| slot.null()));
                a.nested(|w| write_each_set(w.slot("$bsonSize"), fields, |slot| slot.string("$$REMOVE")));
            });
        });
        a.slot().integer(fields.iter().map(|field| field.name.len() + NULL).sum::<usize>() as i64);
    });
}

/// Writes the stored document with each field set to the value.
fn write_each_set(slot: ValueSlot<'_>, fields: &[UsedField<'_>], value: fn(ValueSlot<'_>)) {
    let Some((field, others)) = fields.split_last() else { return slot.string("$$ROOT") };
    slot.nested(|w| {
        w.nested("$setField", |w| {
            w.string("field", field.name);
            write_each_set(w.slot("input"), others, value);
            value(w.slot("value"));
        });
    });
}

/// Writes conditions of which one is true if a document has a name twice, on this many levels from `value` on.
fn write_inside(a: &mut ArrayWriter<'_>, value: &str, depth: usize, level: usize) {
    if level == MAX_LEVELS {
        return a.nested(|w| write_is_repeated_at_any_depth(w, value));
    }
    a.nested(|w| write_is_repeated(w, value));
    if depth > 1 {
        let inside = |a: &mut ArrayWriter<'_>| write_inside(a, "$$this", depth - 1, level + 1);
        a.nested(|w| write_any(w, |slot| write_children(slot, value), inside));
    }
}

/// Writes whether a value is a document that has a name twice.
fn write_is_repeated(w: &mut Writer<'_>, value: &str) {
    let count = |w: &mut Writer<'_>, of: &dyn Fn(ValueSlot<'_>)| {
        w.nested("$size", |w| of(w.slot("$objectToArray")));
    };
    w.array("$and", |a| {
        a.nested(|w| has_type(w, |slot| slot.string(value), "object"));
        a.nested(|w| {
            w.array("$ne", |a| {
                a.nested(|w| count(w, &|slot| slot.string(value)));
                a.nested(|w| {
                    count(w, &|slot| slot.nested(|w| w.array("$mergeObjects", |a| a.string(value))));
                });
            });
        });
    });
}

/// Writes whether there is a repeated name in a value or below. The expression collects the values of one level after the
/// other, so its own depth is fixed; its time grows with the square of the number of values on a level.
fn write_is_repeated_at_any_depth(w: &mut Writer<'_>, value: &str) {
    let next_value = |slot: ValueSlot<'_>| {
        cond(
            slot,
            |slot| slot.nested(|w| write_is_repeated(w, "$$this")),
            |slot| slot.boolean(true),
            |slot| {
                slot.nested(|w| {
                    w.array("$concatArrays", |a| {
                        a.string("$$value");
                        write_children(a.slot(), "$$this");
                    });
                });
            },
        );
    };
    let next_level = |slot: ValueSlot<'_>| {
        let empty = |slot: ValueSlot<'_>| slot.array(|_| {});
        let next = |slot: ValueSlot<'_>| write_while_array(slot, next_value);
        slot.nested(|w| write_reduce(w, |slot| slot.string("$$value"), empty, next));
    };
    let levels = |slot: ValueSlot<'_>| {
        slot.nested(|w| w.array("$range", |a| [0, MAX_DEPTH].into_iter().for_each(|n| a.slot().integer(n))));
    };
    let first = |slot: ValueSlot<'_>| slot.array(|a| a.string(value));
    w.array("$not", |a| {
        a.nested(|w| {
            w.array("$isArray", |a| {
                a.nested(|w| write_reduce(w, levels, first, |slot| write_while_array(slot, next_level)));
            });
        });
    });
}

/// Writes the next value of a `$reduce`. A value that is not an array is kept.
fn write_while_array(slot: ValueSlot<'_>, next: impl FnOnce(ValueSlot<'_>)) {
    let is_array = |slot: ValueSlot<'_>| slot.nested(|w| w.array("$isArray", |a| a.string("$$value")));
    cond(slot, is_array, next, |slot| slot.string("$$value"));
}

/// Writes `$reduce`.
fn write_reduce(
    w: &mut Writer<'_>,
    input: impl FnOnce(ValueSlot<'_>),
    initial: impl FnOnce(ValueSlot<'_>),
    next: impl FnOnce(ValueSlot<'_>),
) {
    w.nested("$reduce", |w| {
        input(w.slot("input"));
        initial(w.slot("initialValue"));
        next(w.slot("in"));
    });
}

/// Writes whether one of the conditions is true for one of the values, which is `$$this` in them.
fn write_any(w: &mut Writer<'_>, values: impl FnOnce(ValueSlot<'_>), conditions: impl FnOnce(&mut ArrayWriter<'_>)) {
    write_reduce(
        w,
        values,
        |slot| slot.boolean(false),
        |slot| {
            slot.nested(|w| {
                w.array("$or", |a| {
                    a.string("$$value");
                    conditions(a);
                });
            });
        },
    );
}

/// Writes the elements of an array; of another value none.
fn write_elements(slot: ValueSlot<'_>, value: &str) {
    write_if_array(slot, value, |slot| slot.array(|_| {}));
}

/// Writes the values in a document or array; in another value none.
fn write_children(slot: ValueSlot<'_>, value: &str) {
    write_if_array(slot, value, |slot| {
        cond(
            slot,
            |slot| slot.nested(|w| has_type(w, |slot| slot.string(value), "object")),
            |slot| {
                slot.nested(|w| {
                    w.nested("$let", |w| {
                        w.nested("vars", |w| w.nested("fields", |w| w.string("$objectToArray", value)));
                        w.string("in", "$$fields.v");
                    });
                });
            },
            |slot| slot.array(|_| {}),
        );
    });
}

fn write_if_array(slot: ValueSlot<'_>, value: &str, otherwise: impl FnOnce(ValueSlot<'_>)) {
    let is_array = |slot: ValueSlot<'_>| slot.nested(|w| w.array("$isArray", |a| a.string(value)));
    cond(slot, is_array, |slot| slot.string(value), otherwise);
}

/// Writes the expression that fails with the document's `_id`.
fn failure(slot: ValueSlot<'_>) {
    slot.nested(|w| {
        w.nested("$toInt", |w| {
            w.array("$concat", |a| {
                a.string(MARK);
                a.nested(|w| {
                    w.nested("$convert", |w| {
                        w.string("input", "$_id");
                        w.string("to", "string");
                        w.nested("onError", |w| w.string("$type", "$_id"));
                        w.string("onNull", "null");
                    });
                });
            });
        });
    });
}
