//! `sequence`: numbers for inserted documents, from one counter, none twice.
//!
//! The application's own way is findAndModify on a counters collection before each insert, or max + 1 and
//! hope. Here a document that lacks the field gets the next number on its way to the server.
//!
//! before: `insertOne({item: "book"})`; after: `insertOne({item: "book", order_no: 4711})`
//!
//! The judgement only says that a number is needed; the engine collects what a batch needs, has it leased in
//! one go, and calls [`Sequence::assign`] in document order.

use super::filter::remade;
use super::{Concern, Context, IndexPurpose, Judge, NeededIndex, Phase, Verdict, read_required_path};
use crate::command::{Insert, Modification, Namespace, Operation, Pipeline, Statement, StatementKind, Update};
use crate::document::{CowDocument, Document, Kind, Lookup, OwnedValue, Path, Value, edit};
use crate::effect::{equality, touched};
use crate::rules::{Claim, Code, Located, MapReader};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Sequence {
    field: Located<Path>,
    /// `_id` of the counter document.
    pub counter: String,
    /// The database where the counter lives; `None`: the guarded one.
    pub database: Option<String>,
    /// And its collection.
    pub collection: String,
    pub start: Start,
    /// Numbers leased per round trip, at least 1.
    pub block: u32,
    pub strategy: Strategy,
    on_upsert: bool,
    replace_generated: bool,
}

/// Where a counter that does not exist yet begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With this number.
    At(i64),
    /// Behind the largest value of the guarded field.
    AfterMax,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Lease from a counter document.
    Counter,
    /// Take max + 1 and try again on a duplicate key.
    Optimistic,
}

impl Judge for Sequence {
    fn name(&self) -> &'static str {
        "sequence"
    }

    fn phase(&self) -> Phase {
        Phase::Sequence
    }

    fn rewriting(&self) -> &'static str {
        "the document gets the next number"
    }

    fn needed_indexes(&self) -> Vec<NeededIndex> {
        let without = match self.strategy {
            Strategy::Counter => "a number that an application brings along, or takes by itself, can be there twice",
            Strategy::Optimistic => "numbers ARE ISSUED TWICE: two inserts that read the same maximum both succeed",
        };
        let field = self.field.value.as_str().to_owned();
        vec![NeededIndex { collection: None, field, purpose: IndexPurpose::Unique, without }]
    }

    fn claims(&self) -> Vec<Claim> {
        let field = self.field.clone().map(|path| path.as_str().to_owned());
        vec![Claim { kind: "sequence", field }]
    }

    fn concern(&self, kind: StatementKind, _: Namespace<'_>) -> Concern {
        match kind {
            StatementKind::Insert => Concern::Each,
            StatementKind::Operators | StatementKind::Replacement | StatementKind::Pipeline if self.on_upsert => {
                Concern::Each
            }
            _ => Concern::Nothing,
        }
    }

    fn judge<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        match &statement.operation {
            Operation::Insert(insert) => self.judge_document(insert.document.as_document()),
            Operation::Update(update) if self.on_upsert && update.upsert => self.judge_upsert(update),
            Operation::Update(_) | Operation::Delete(_) => Verdict::Forward,
        }
    }
}

impl Sequence {
    pub(super) fn read(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let field = read_required_path(reader, "field");
        let strategy =
            reader.choice("strategy", &[("counter", Strategy::Counter), ("optimistic", Strategy::Optimistic)]);
        let strategy = strategy.map_or(Strategy::Counter, |word| word.value);
        let counter = match strategy {
            Strategy::Counter => reader.required_text("counter"),
            Strategy::Optimistic => reader.text("counter"),
        };
        let collection = reader.text("collection");
        let start = read_start(reader);
        let block = reader.integer_in("block", 1..=i64::from(MAX_BLOCK));
        let on_upsert = reader.boolean("on_upsert");
        let replace_generated = reader.boolean("replace_generated");
        let field = field?;
        if let Some(replace) = &replace_generated
            && replace.value
            && field.value.as_str() != "_id"
        {
            let message = "`replace_generated` only means something for field _id";
            reader.context().error(Code::ConflictingSettings, replace.span, message);
        }
        if strategy == Strategy::Counter && counter.is_none() {
            return None;
        }
        let collection = collection.as_ref().map_or("counters", |text| &text.value);
        let (database, collection) = match collection.split_once('.') {
            Some((database, collection)) => (Some(database), collection),
            None => (None, collection),
        };
        Some(Self {
            field,
            counter: counter.map(|text| text.value).unwrap_or_default(),
            database: database.map(str::to_owned),
            collection: collection.to_owned(),
            start: start?,
            block: block.map_or(1, |number| number.value as u32),
            strategy,
            on_upsert: on_upsert.is_some_and(|flag| flag.value),
            replace_generated: replace_generated.is_some_and(|flag| flag.value),
        })
    }

    pub fn field(&self) -> &Path {
        &self.field.value
    }

    fn judge_document<'a>(&self, document: Document<'_>) -> Verdict<'a> {
        match self.field.lookup(document) {
            Lookup::Missing => Verdict::Allocate,
            Lookup::Found(value) if self.replace_generated && value.kind == Kind::ObjectId => Verdict::Allocate,
            Lookup::Found(_) => Verdict::Forward,
            Lookup::Blocked(kind) => Verdict::reject(
                format!("there is no room for '{}': a field on the way is of type {}", self.field.value, kind.name()),
                "Leave the field out, or make it an object.",
            ),
        }
    }

    /// An upsert carries the field when its filter pins it or its update writes it.
    fn judge_upsert<'a>(&self, update: &Update<'_>) -> Verdict<'a> {
        if equality(update.filter.as_document(), self.field.as_str()).is_some() {
            return Verdict::Forward;
        }
        match &update.modification {
            Modification::ClientPipeline(_) => Verdict::client_pipeline(),
            Modification::Replacement(document) => match self.judge_document(document.as_document()) {
                // A replacement's own number is put in by a pipeline, which mongod would apply to many.
                Verdict::Allocate if update.multi => Verdict::Forward,
                other => other,
            },
            Modification::Operators(operators) => {
                let written = touched(operators.as_document()).any(|(_, path, _)| self.field.overlaps(path));
                if written { Verdict::Forward } else { Verdict::Allocate }
            }
            Modification::Pipeline(_) => Verdict::Allocate,
        }
    }

    /// The operation with `number` in the field.
    pub fn assign<'a>(&self, operation: &Operation<'a>, number: i64) -> Operation<'a> {
        let number = OwnedValue::integer(number);
        match operation {
            Operation::Insert(insert) => {
                let document = edit::set(insert.document.as_document(), self.field(), number.as_value());
                Operation::Insert(Insert { document: CowDocument::from_writer(document) })
            }
            Operation::Update(update) => {
                let modification = self.assign_on_upsert(&update.modification, number.as_value());
                remade(update, update.filter.clone(), modification, update.upsert)
            }
            Operation::Delete(_) => operation.clone(),
        }
    }

    /// A document that is there keeps its number; one that is inserted gets this one.
    fn assign_on_upsert<'a>(&self, modification: &Modification<'a>, number: Value<'_>) -> Modification<'a> {
        let path = self.field.as_str();
        let if_none = |w: &mut crate::document::Writer<'_>| {
            w.array("$ifNull", |a| {
                a.string(format!("${path}"));
                a.value(number);
            });
        };
        match modification {
            Modification::Operators(operators) => {
                let operators = operators.as_document();
                let on_insert = operators.get("$setOnInsert").and_then(Value::as_document).unwrap_or(Document::EMPTY);
                Modification::Operators(CowDocument::build(|w| {
                    operators.elements().filter(|o| o.key != b"$setOnInsert").for_each(|o| w.element(o));
                    w.nested("$setOnInsert", |w| {
                        w.elements(on_insert);
                        w.value(path, number);
                    });
                }))
            }
            Modification::Replacement(document) => {
                // The stored number survives the replacement: `$$ROOT` is the document before it.
                let replaced = CowDocument::build(|w| {
                    w.nested("$replaceWith", |w| {
                        w.array("$mergeObjects", |a| {
                            a.nested(|w| w.value("$literal", Value::document(document.as_document())));
                            a.nested(|w| nested_at(w, path, &if_none));
                        });
                    });
                });
                Modification::Pipeline(Box::new(Pipeline { stages: vec![replaced], meaning: modification.clone() }))
            }
            Modification::Pipeline(pipeline) => {
                let mut pipeline = pipeline.clone();
                pipeline.stages.push(CowDocument::build(|w| w.nested("$set", |w| w.nested(path, if_none))));
                Modification::Pipeline(pipeline)
            }
            Modification::ClientPipeline(stages) => Modification::ClientPipeline(*stages),
        }
    }
}

/// Writes `{a: {b: VALUE}}` for the path `a.b`.
fn nested_at(w: &mut crate::document::Writer<'_>, path: &str, value: &dyn Fn(&mut crate::document::Writer<'_>)) {
    match path.split_once('.') {
        None => w.nested(path, value),
        Some((name, below)) => w.nested(name, |w| nested_at(w, below, value)),
    }
}

/// Far beyond what a process hands out between two round trips, and it keeps a crash's gap bounded.
const MAX_BLOCK: u32 = 1_000_000;

/// A whole number, or `after_max`.
fn read_start(reader: &mut MapReader<'_, '_, '_>) -> Option<Start> {
    let Some(node) = reader.node("start") else { return Some(Start::At(1)) };
    if let crate::rules::Value::Text(word) = &node.value {
        let word = Located { value: word.clone(), span: node.span };
        return reader.context().word(&word, "`start` as a word", &[("after_max", Start::AfterMax)]);
    }
    reader.integer("start").map(|number| Start::At(number.value))
}
