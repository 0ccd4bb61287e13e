//! Where a sequence's numbers come from, and how a statement gets one.

use super::kept;
use super::{Sequence, SequenceStart};
use crate::command::{Insert, Modification, Namespace, Operation, Pipeline};
use crate::document::{CowDocument, Document, Element, OwnedValue, Path, Value, Writer, edit};
use crate::effect::{self, Change, ImageValue, PathOverlap, is_rename_target, touch, touched};
use crate::patterns::filter::remade;
use crate::patterns::numbering::{CounterId, NumberRequest, Numbering, ProvidedNumbers, Strategy};

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

    /// Elements of an array count too, because a unique index contains them.
    fn provided_numbers(&self, operation: &Operation<'_>) -> ProvidedNumbers {
        let mut numbers = ProvidedNumbers::new();
        let mut add = |value: Value<'_>| match value.as_array() {
            Some(elements) => numbers.extend(elements.values().filter_map(Value::as_whole)),
            None => numbers.extend(value.as_whole()),
        };
        match operation {
            Operation::Update(update) if let Some(operators) = update.operators() => {
                effect::written_values(operators, self.field(), update.upsert, &mut add);
            }
            _ => {
                if let Change::Set(value) = effect::change(operation, self.field()) {
                    add(value);
                }
            }
        }
        if let Operation::Update(update) = operation
            && update.upsert
        {
            if let Some(inserted) = effect::inserted(operation)
                && let ImageValue::Value(value) = inserted.at(self.field())
            {
                add(value);
            }
            effect::pinned_values(update.filter.as_document(), self.field(), &mut add);
        }
        numbers
    }

    fn inserts_apart(&self, operation: &Operation<'_>) -> bool {
        let Operation::Update(update) = operation else { return false };
        let Some(operators) = update.operators() else { return false };
        let on_stored = |(operator, path, _): (&[u8], &[u8], Value<'_>)| {
            operator != b"$setOnInsert" && touch(self.field(), path) == PathOverlap::Exact
        };
        // A pipeline cannot distinguish a new document from a stored one without a number.
        let is_pipeline = matches!(update.modification, Modification::Pipeline(_));
        update.upsert && (is_pipeline || touched(operators).any(on_stored))
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
                Modification::Operators(self.with_set_on_insert(operators.as_document(), number))
            }
            Modification::Pipeline(pipeline) => {
                let stages = pipeline.stages().iter().cloned().chain([kept::missing(self.field(), number)]).collect();
                let meaning = self.assign_on_upsert(&pipeline.meaning, number);
                Modification::Pipeline(Box::new(Pipeline::new(stages, meaning, pipeline.may_keep)))
            }
            other => other.clone(),
        }
    }

    /// Returns the operators with `number` in `$setOnInsert` and without other operators on the field.
    fn with_set_on_insert<'a>(&self, operators: Document<'_>, number: i64) -> CowDocument<'a> {
        let path = self.field().as_str();
        let is_other = |operator: &[u8], field: &Element<'_>| {
            field.key != path.as_bytes() && !is_rename_target((operator, path.as_bytes(), field.value))
        };
        let others = |operator: &[u8], fields: Document<'_>, w: &mut Writer<'_>| {
            fields.elements().filter(|field| is_other(operator, field)).for_each(|field| w.element(field));
        };
        let has_others = |operator: &[u8], fields: Document<'_>| {
            fields.first().is_none() || fields.elements().any(|field| is_other(operator, &field))
        };
        CowDocument::build(|w| {
            for operator in operators.elements().filter(|operator| operator.key != b"$setOnInsert") {
                match operator.value.as_document() {
                    Some(fields) if has_others(operator.key, fields) => {
                        w.nested(operator.key, |w| others(operator.key, fields, w));
                    }
                    Some(_) => {}
                    None => w.element(operator),
                }
            }
            w.nested("$setOnInsert", |w| {
                let on_insert = operators.get("$setOnInsert").and_then(Value::as_document).unwrap_or(Document::EMPTY);
                others(b"$setOnInsert", on_insert, w);
                w.integer(path, number);
            });
        })
    }
}
