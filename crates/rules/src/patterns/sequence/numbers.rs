//! Where a sequence's numbers come from, and how a statement gets one.

use smallvec::SmallVec;

use super::kept;
use super::settings::Provided;
use super::{Sequence, SequenceStart};
use crate::command::{Insert, Modification, Namespace, Operation, Pipeline, Statement};
use crate::document::{CowDocument, Document, OwnedValue, Path, Value, edit};
use crate::effect::{equality, on_insert};
use crate::patterns::Prerequisite;
use crate::patterns::filter::remade;
use crate::patterns::numbering::{CounterId, NumberRequest, Numbering, ProvidedNumbers, Strategy};
use crate::patterns::on_insert::with_set_on_insert;
use crate::patterns::plain::{self, Form, PlainWrite};
use crate::patterns::promise::held;

impl Numbering for Sequence {
    fn field(&self) -> &Path {
        &self.field.value
    }

    fn strategy(&self) -> Strategy {
        self.strategy
    }

    fn request(&self, namespace: Namespace<'_>, count: u32, provided: Vec<i64>) -> NumberRequest {
        let counter = CounterId {
            database: self.database.clone().unwrap_or_else(|| namespace.database.into()),
            collection: self.collection.clone(),
            id: self.counter.clone(),
        };
        NumberRequest { counter, count, provided, block: self.block, beginning: self.beginning.clone() }
    }

    fn after(&self, largest: Option<i64>) -> Option<i64> {
        match (largest, self.start) {
            (Some(largest), SequenceStart::At(start)) => largest.checked_add(1).map(|next| next.max(start)),
            (Some(largest), SequenceStart::AfterMax) => largest.checked_add(1),
            (None, SequenceStart::At(start)) => Some(start),
            (None, SequenceStart::AfterMax) => Some(1),
        }
    }

    /// A client's pipeline that only sets constants is read as operators.
    fn provided_numbers(&self, statement: &Statement<'_>) -> ProvidedNumbers {
        let read = statement.as_operators();
        let (field, mut numbers) = (self.field(), ProvidedNumbers::new());
        let mut add = |value: Value<'_>| numbers.extend(whole_numbers(&[value]));
        let operation = read.as_ref().map_or(&statement.operation, |read| &read.operation);
        match plain::form(operation) {
            Form::Document(document) => held(document, field.as_str().as_bytes()).into_iter().for_each(&mut add),
            Form::Update(update) => {
                let operators = update.operators().unwrap_or(Document::EMPTY);
                for write in plain::each_write(on_insert(operators), field) {
                    if let Ok(PlainWrite::Set(value)) = write {
                        add(value);
                    }
                }
            }
            Form::Nothing => {}
        }
        if let Operation::Update(update) = operation
            && update.upsert
        {
            equality(update.filter.as_document(), field.as_str()).into_iter().for_each(&mut add);
        }
        numbers
    }

    fn needs_of_checked(&self, operation: &Operation<'_>) -> SmallVec<[Prerequisite; 2]> {
        let upserts = matches!(operation, Operation::Update(update) if update.upsert);
        let settles = self.on_upsert || self.provided == Provided::Replace;
        let reserves = upserts && settles && !self.is_id() && self.strategy == Strategy::Counter;
        // What the rule rejects does not raise the counter.
        let provides = self.provided != Provided::Reject;
        let provided = provides.then_some(Prerequisite::ProvidedNumbers);
        provided.into_iter().chain(reserves.then_some(Prerequisite::ReservedNumber)).collect()
    }

    fn inserts_apart(&self, operation: &Operation<'_>) -> bool {
        // A pipeline cannot distinguish a new document from a stored one without a number.
        matches!(operation, Operation::Update(update)
            if update.upsert && matches!(update.modification, Modification::Pipeline(_)) && update.operators().is_some())
    }

    fn assign<'a>(&self, operation: &Operation<'a>, number: i64) -> Operation<'a> {
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
}

impl Sequence {
    /// Returns the modification that keeps a stored document's number and assigns this one to an inserted document.
    fn assign_on_upsert<'a>(&self, modification: &Modification<'a>, number: i64) -> Modification<'a> {
        if let Some(keeping) = kept::keeping(modification, self.field(), Some(number)) {
            return keeping;
        }
        match modification {
            Modification::Operators(operators) => {
                Modification::Operators(self.with_number_on_insert(operators.as_document(), number))
            }
            Modification::Pipeline(pipeline) => {
                let stages = pipeline.stages().iter().cloned().chain([kept::missing(self.field(), number)]).collect();
                let meaning = self.assign_on_upsert(&pipeline.meaning, number);
                Modification::Pipeline(Box::new(Pipeline::new(stages, meaning, pipeline.may_keep)))
            }
            other => other.clone(),
        }
    }

    /// Returns the operators with `number` in `$setOnInsert`, also instead of the client's.
    fn with_number_on_insert<'a>(&self, operators: Document<'_>, number: i64) -> CowDocument<'a> {
        let path = self.field().as_str();
        with_set_on_insert(operators, |field| field.key != path.as_bytes(), |w| w.integer(path, number))
    }
}

/// Returns the whole numbers among these values. Elements of an array count too, because a unique index contains them.
pub(super) fn whole_numbers(values: &[Value<'_>]) -> ProvidedNumbers {
    let whole = |value: &Value<'_>| {
        let elements = value.as_array().unwrap_or(Document::EMPTY).values();
        elements.chain(std::iter::once(*value)).filter_map(Value::as_whole).collect::<ProvidedNumbers>()
    };
    values.iter().flat_map(whole).collect()
}
