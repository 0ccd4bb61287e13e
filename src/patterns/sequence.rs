//! `sequence`: numbers for inserted documents, from one counter, none twice.
//!
//! The application's own way is findAndModify on a counters collection before each insert, or max + 1 and
//! hope. Here a document that lacks the field gets the next number on its way to the server.
//!
//! before: `insertOne({item: "book"})`; after: `insertOne({item: "book", order_no: 4711})`
//!
//! The judgement only says that a number is needed, or that the statement brings one; the engine collects what a batch
//! needs and brings, has it leased in one go, and calls [`Sequence::assign`] in document order. Replacements keep the
//! stored number (`kept.rs`).

mod kept;
mod shared;

use smallvec::SmallVec;

use super::filter::remade;
use super::{
    Concern, Context, Evaluate, IndexPurpose, NeededIndex, Pattern, Phase, Rejection, Rewrite, Unmatched, Verdict,
    read_required_path,
};
use crate::command::{Conditions, Insert, Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::document::{CowDocument, Document, Kind, Lookup, OwnedValue, Path, Value, edit};
use crate::effect::{self, Change, Held, Touch, touch, touched};
use crate::rules::{Claim, Code, Located, MapReader};
pub(super) use shared::share_counters;
pub use shared::{Beginning, Origin};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Sequence {
    field: Located<Path>,
    /// `_id` of the counter document.
    pub counter: String,
    /// The database where the counter lives; `None`: the protected one.
    pub database: Option<String>,
    /// And its collection.
    pub collection: String,
    pub start: Start,
    /// Where a counter that does not exist yet begins, in view of all rules that share it.
    pub beginning: Beginning,
    /// Numbers leased per round trip, at least 1.
    pub block: u32,
    pub strategy: Strategy,
    on_upsert: bool,
    replace_generated: bool,
    provided: Provided,
}

/// What becomes of a number that the client brings along.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Provided {
    /// It is stored, and not issued any more.
    #[default]
    Keep,
    Reject,
    /// The document gets one of the sequence instead.
    Replace,
}

/// Whole numbers that a statement brings.
pub type Brought = SmallVec<[i64; 1]>;

/// Where a counter that does not exist yet begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With this number.
    At(i64),
    /// Backend the largest value of the protected field.
    AfterMax,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Lease from a counter document.
    Counter,
    /// Take max + 1 and try again on a duplicate key.
    Optimistic,
}

impl Evaluate for Sequence {
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

    fn undone_by(&self, other: &Pattern) -> Option<&'static str> {
        let is_counted = other.version().is_some_and(|version| version.overlaps(self.field().as_str().as_bytes()));
        is_counted.then_some("updates count the version up, and the number is to stay")
    }

    fn concern(&self, kind: StatementKind, _: Namespace<'_>) -> Concern {
        match kind {
            StatementKind::Insert | StatementKind::Replacement => Concern::Each,
            // It may set the field to a number that the counter has still to come to.
            StatementKind::Operators => Concern::Each,
            StatementKind::Pipeline if self.on_upsert => Concern::Each,
            StatementKind::Pipeline | StatementKind::Delete => Concern::Nothing,
        }
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        match &statement.operation {
            Operation::Insert(insert) => self.evaluate_document(insert.document.as_document()),
            Operation::Update(update) => match Self::replacement_of(update) {
                Some(document) => self.evaluate_replacement(update, document),
                None if statement.sent_replacement().is_some() => self.evaluate_merged(&statement.operation, update),
                None => self.evaluate_update(&statement.operation, update),
            },
            Operation::Delete(_) => Verdict::Forward,
        }
    }

    /// The document that is there has another number, or an upsert would insert one with the client's.
    fn unmatched(&self, statement: &Statement<'_>, stored: Option<Document<'_>>) -> Unmatched {
        match stored {
            None if !statement.came_as_upsert() => Unmatched::Nothing,
            _ => Unmatched::Reject(self.own_number()),
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
        let provided = reader.choice(
            "provided",
            &[("keep", Provided::Keep), ("reject", Provided::Reject), ("replace", Provided::Replace)],
        );
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
            beginning: Beginning::default(),
            block: block.map_or(1, |number| number.value as u32),
            strategy,
            on_upsert: on_upsert.is_some_and(|flag| flag.value),
            replace_generated: replace_generated.is_some_and(|flag| flag.value),
            provided: provided.map(|word| word.value).unwrap_or_default(),
        })
    }

    pub fn field(&self) -> &Path {
        &self.field.value
    }

    fn evaluate_document<'a>(&self, document: Document<'_>) -> Verdict<'a> {
        match self.field().lookup(document) {
            Lookup::Missing => Verdict::Allocate,
            Lookup::Found(value) if self.gives_way(value) => Verdict::Allocate,
            Lookup::Found(value) if self.provided == Provided::Keep => brings(value),
            Lookup::Found(_) => Verdict::Reject(self.own_number()),
            Lookup::Blocked(kind) => self.no_room(kind),
        }
    }

    /// Whether a document's own value is replaced by a number.
    fn gives_way(&self, value: Value<'_>) -> bool {
        self.provided == Provided::Replace || (self.replace_generated && value.kind == Kind::ObjectId)
    }

    /// The document that an update replaces the stored one with, also by a pipeline that another rule has made.
    fn replacement_of<'u>(update: &'u Update<'_>) -> Option<Document<'u>> {
        match &update.modification {
            Modification::Replacement(document) => Some(document.as_document()),
            Modification::Pipeline(pipeline) => match &pipeline.meaning {
                Modification::Replacement(document) => Some(document.as_document()),
                _ => None,
            },
            _ => None,
        }
    }

    /// The number of the document that is there survives. A pipeline makes an upsert's document of the filter's
    /// equalities too, so a number in the filter counts as the replacement's.
    fn evaluate_replacement<'a>(&self, update: &Update<'a>, document: Document<'_>) -> Verdict<'a> {
        if update.multi {
            // The server refuses it, where it would not refuse a pipeline.
            return Verdict::Forward;
        }
        let own = match self.field().lookup(document) {
            Lookup::Found(value) if self.is_no_number(value) => None,
            Lookup::Found(value) => Some(value),
            Lookup::Blocked(kind) => return self.no_room(kind),
            Lookup::Missing => None,
        };
        let pinned = effect::equality(update.filter.as_document(), self.field().as_str()).filter(|_| update.upsert);
        match (own, pinned) {
            (Some(value), _) if self.gives_way(value) && pinned.is_none() => self.keep(update),
            (Some(value), _) if self.provided == Provided::Keep => brings(value),
            (Some(value), _) => self.only_stored(update, Some(value)),
            (None, Some(_)) if self.provided != Provided::Keep => self.only_stored(update, None),
            (None, Some(value)) if self.is_id() => brings(value),
            (None, Some(value)) => match self.keep_stored(update) {
                Verdict::Rewrite(rewrite) => Verdict::Brings(Some(self.inserting(rewrite.operation, value))),
                other => other,
            },
            (None, None) => self.keep(update),
        }
    }

    /// The stored number stays; where the replacement may be inserted it gets one.
    fn keep<'a>(&self, update: &Update<'a>) -> Verdict<'a> {
        let allocates = self.on_upsert || self.provided == Provided::Replace;
        if update.upsert && allocates { Verdict::Allocate } else { self.keep_stored(update) }
    }

    fn keep_stored<'a>(&self, update: &Update<'a>) -> Verdict<'a> {
        if self.is_id() {
            // The server keeps it by itself.
            return Verdict::Forward;
        }
        match kept::keeping(&update.modification, self.field(), None) {
            Some(modification) => Verdict::rewrite(remade(update, update.filter.clone(), modification, update.upsert)),
            None => self.unclear(),
        }
    }

    /// A replacement's pipeline that was made to keep the stored number, which inserts what the filter pins.
    fn inserting<'a>(&self, operation: Operation<'a>, pinned: Value<'_>) -> Operation<'a> {
        let Operation::Update(mut update) = operation else { return operation };
        if let Modification::Pipeline(pipeline) = &mut update.modification
            && let Modification::Replacement(document) = &pipeline.meaning
            && !self.is_no_number(pinned)
        {
            let inserted = CowDocument::from_writer(edit::set(document.as_document(), self.field(), pinned));
            pipeline.meaning = Modification::Replacement(inserted);
        }
        Operation::Update(update)
    }

    /// It changes only a document that has the number which the client names: nothing is inserted with that number.
    fn only_stored<'a>(&self, update: &Update<'a>, number: Option<Value<'_>>) -> Verdict<'a> {
        let mut conditions: Conditions<'a> = update.conditions.clone();
        if let Some(number) = number {
            conditions.push(CowDocument::build(|w| w.value(self.field().as_str(), number)));
        }
        let operation = Operation::Update(Update { conditions, upsert: false, ..update.clone() });
        Verdict::Rewrite(Rewrite { operation, checks_match: true })
    }

    /// A replacement that another rule made operators of keeps the stored number too: neither a null nor the document around
    /// the number erases it.
    fn evaluate_merged<'a>(&self, operation: &Operation<'a>, update: &Update<'a>) -> Verdict<'a> {
        let is_erased = match effect::change(operation, self.field()) {
            Change::Set(value) => self.is_no_number(value),
            Change::Removed => true,
            _ => false,
        };
        let Modification::Operators(operators) = &update.modification else {
            return self.evaluate_update(operation, update);
        };
        if !is_erased {
            return self.evaluate_update(operation, update);
        }
        let modification = match kept::set_around(operators.as_document(), self.field()) {
            Some(Lookup::Blocked(kind)) => return self.no_room(kind),
            Some(_) => kept::setting_around(&update.modification, self.field(), None),
            None => kept::without_set(operators.as_document(), self.field()).map(Modification::Operators),
        };
        let verdict = self.evaluate_update(operation, update);
        let Some(modification) = modification else { return verdict };
        let operation = Operation::Update(Update { modification, ..update.clone() });
        match verdict {
            Verdict::Forward => Verdict::rewrite(operation),
            Verdict::Brings(None) => Verdict::Brings(Some(operation)),
            other => other,
        }
    }

    /// Whether a value in a replacement says that the document was read without a number; for `_id` null is a value.
    fn is_no_number(&self, value: Value<'_>) -> bool {
        value.kind == Kind::Null && !self.is_id()
    }

    fn evaluate_update<'a>(&self, operation: &Operation<'a>, update: &Update<'a>) -> Verdict<'a> {
        let writes = || if self.brought(operation).is_empty() { Verdict::Forward } else { Verdict::Brings(None) };
        if !update.upsert {
            return writes();
        }
        if matches!(update.modification, Modification::ClientPipeline(_)) {
            return if self.on_upsert { Verdict::client_pipeline() } else { Verdict::Forward };
        }
        let Some(inserted) = effect::inserted(operation) else { return writes() };
        let held = inserted.at(self.field());
        let number = match held {
            Held::Value(value) => Some(value),
            _ => None,
        };
        match held {
            Held::Missing if self.on_upsert => self.allocate_on_upsert(update),
            Held::Blocked(kind) if self.on_upsert => self.no_room(kind),
            Held::Missing | Held::Blocked(_) => writes(),
            _ if self.provided == Provided::Keep && !number.is_some_and(|value| self.gives_way(value)) => writes(),
            _ if number.is_some_and(|value| self.gives_way(value)) && self.is_replaceable(update) => {
                self.allocate_on_upsert(update)
            }
            _ => self.only_stored(update, None),
        }
    }

    /// Whether the update itself writes the number, and by operators that can be left out. What the filter pins stays in
    /// the filter; an `_id` cannot be another one than that.
    fn is_replaceable(&self, update: &Update<'_>) -> bool {
        let Modification::Operators(operators) = &update.modification else { return false };
        let mut writes = touched(operators.as_document());
        let apart = writes.all(|(_, path, _)| matches!(touch(self.field(), path), Touch::Apart | Touch::Exact));
        let pinned = effect::equality(update.filter.as_document(), self.field().as_str()).is_some();
        apart && !(self.is_id() && pinned)
    }

    fn allocate_on_upsert<'a>(&self, update: &Update<'_>) -> Verdict<'a> {
        let operators = match &update.modification {
            Modification::Operators(operators) => operators.as_document(),
            Modification::Pipeline(pipeline) => match &pipeline.meaning {
                Modification::Operators(operators) => operators.as_document(),
                _ => return self.unclear(),
            },
            _ => return self.unclear(),
        };
        let around = |(_, path, _): (&[u8], &[u8], Value<'_>)| match touch(self.field(), path) {
            Touch::Apart => false,
            Touch::Exact => self.provided != Provided::Replace && !self.replace_generated,
            Touch::Inside | Touch::Around | Touch::Positional => true,
        };
        if !touched(operators).any(around) {
            return Verdict::Allocate;
        }
        let is_own = matches!(update.modification, Modification::Operators(_));
        let simple = is_own && !update.array_filters && kept::set_around(operators, self.field()).is_some();
        if simple { Verdict::Allocate } else { self.unclear() }
    }

    fn is_id(&self) -> bool {
        self.field().as_str() == "_id"
    }

    fn no_room<'a>(&self, kind: Kind) -> Verdict<'a> {
        Verdict::reject(
            format!("there is no room for '{}': a field on the way is of type {}", self.field(), kind.name()),
            "Leave the field out, or make it an object.",
        )
    }

    fn unclear<'a>(&self) -> Verdict<'a> {
        Verdict::reject(
            format!("it writes around or inside '{}' in a way that leaves no room for the number", self.field()),
            "Set the fields beside it one by one, by their whole paths.",
        )
    }

    /// Why a statement with a number of its own is rejected.
    fn own_number(&self) -> Rejection {
        Rejection::new(
            format!("it brings a number of its own for '{}', which only the sequence gives", self.field()),
            "Leave the field out; a replacement may have the number that is stored.",
        )
    }

    /// The whole numbers that the statement may store, besides the sequence's. Elements of an array are in a unique index,
    /// too.
    pub fn brought(&self, operation: &Operation<'_>) -> Brought {
        let mut brought = Brought::new();
        let mut add = |value: Value<'_>| match value.as_array() {
            Some(elements) => brought.extend(elements.values().filter_map(Value::as_whole)),
            None => brought.extend(value.as_whole()),
        };
        if let Change::Set(value) | Change::Either(value) = effect::change(operation, self.field()) {
            add(value);
        }
        if let Operation::Update(update) = operation
            && update.upsert
        {
            if let Some(inserted) = effect::inserted(operation)
                && let Held::Value(value) = inserted.at(self.field())
            {
                add(value);
            }
            if let Some(value) = effect::equality(update.filter.as_document(), self.field().as_str()) {
                add(value);
            }
        }
        brought
    }

    /// The operation with `number` in the field.
    pub fn assign<'a>(&self, operation: &Operation<'a>, number: i64) -> Operation<'a> {
        match operation {
            Operation::Insert(insert) => {
                let value = OwnedValue::integer(number);
                let document = edit::set(insert.document.as_document(), self.field(), value.as_value());
                Operation::Insert(Insert { document: CowDocument::from_writer(document) })
            }
            Operation::Update(update) => {
                let modification = self.assign_on_upsert(&update.modification, number);
                remade(update, update.filter.clone(), modification, update.upsert)
            }
            Operation::Delete(_) => operation.clone(),
        }
    }

    /// A document that is there keeps its number; one that is inserted gets this one.
    fn assign_on_upsert<'a>(&self, modification: &Modification<'a>, number: i64) -> Modification<'a> {
        if let Some(keeping) = kept::keeping(modification, self.field(), Some(number)) {
            return keeping;
        }
        match modification {
            Modification::Operators(operators) => {
                let around = kept::setting_around(modification, self.field(), Some(number));
                let beside = || Modification::Operators(self.with_set_on_insert(operators.as_document(), number));
                around.unwrap_or_else(beside)
            }
            Modification::Pipeline(pipeline) => {
                let mut pipeline = pipeline.clone();
                pipeline.stages.push(kept::missing(self.field(), number));
                Modification::Pipeline(pipeline)
            }
            other => other.clone(),
        }
    }

    /// Without what the operators themselves make of the field, unless there is nothing.
    fn with_set_on_insert<'a>(&self, operators: Document<'_>, number: i64) -> CowDocument<'a> {
        let path = self.field().as_str();
        let others = |fields: Document<'_>, w: &mut crate::document::Writer<'_>| {
            fields.elements().filter(|field| field.key != path.as_bytes()).for_each(|field| w.element(field));
        };
        let has_others = |fields: Document<'_>| {
            fields.first().is_none() || fields.elements().any(|field| field.key != path.as_bytes())
        };
        CowDocument::build(|w| {
            for operator in operators.elements().filter(|operator| operator.key != b"$setOnInsert") {
                match operator.value.as_document() {
                    Some(fields) if has_others(fields) => w.nested(operator.key, |w| others(fields, w)),
                    Some(_) => {}
                    None => w.element(operator),
                }
            }
            w.nested("$setOnInsert", |w| {
                let on_insert = operators.get("$setOnInsert").and_then(Value::as_document).unwrap_or(Document::EMPTY);
                others(on_insert, w);
                w.integer(path, number);
            });
        })
    }
}

/// It passes; a whole number in it is not issued any more.
fn brings<'a>(value: Value<'_>) -> Verdict<'a> {
    let is_number = |value: Value<'_>| value.as_whole().is_some();
    let any = match value.as_array() {
        Some(elements) => elements.values().any(is_number),
        None => is_number(value),
    };
    if any { Verdict::Brings(None) } else { Verdict::Forward }
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
