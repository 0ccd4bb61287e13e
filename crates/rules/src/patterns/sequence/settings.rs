//! Reads the settings of `sequence`; `sequence.rs` uses them.

use std::sync::Arc;

use super::super::collection::NearCollection;
use super::super::field_path::FieldPath;
use super::super::numbering::Strategy;
use super::start::{SequenceStart, SharedStart};
use crate::config::keys::{
    Boolean, Constraint, DeclaredScalar, DescribeSchema, Keys, Keywords, ReadValue, Setting, TEXT, Text, ValueSchema,
    WholeNumber,
};
use crate::config::{Code, Diagnostic, Located, MapReader, Node, NodeValue, ReadContext};
use crate::document::Path;

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Sequence {
    pub(super) field: Located<Path>,
    /// `_id` of the counter document.
    pub counter: Arc<str>,
    /// The database of the counter; `None`: the protected collection's database.
    pub database: Option<Arc<str>>,
    /// The collection of the counter.
    pub collection: Arc<str>,
    pub start: SequenceStart,
    /// The first number of a counter that does not exist yet. It depends on all rules that share the counter.
    pub beginning: SharedStart,
    /// Numbers reserved per round trip, at least 1.
    pub block: u32,
    pub strategy: Strategy,
    pub(super) on_upsert: bool,
    pub(super) replace_generated: bool,
    pub(super) provided: Provided,
}

/// The action for a number that the client provides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provided {
    /// It is stored, and the sequence does not assign it again.
    Keep,
    Reject,
    /// A number of the sequence replaces it.
    Replace,
}

const FIELD: Setting<FieldPath> =
    Setting::required("field", FieldPath, "The field that gets a number if a document lacks it.")
        .examples(&["order_no"]);
const COUNTER: Setting<Text> = Setting::optional(
    "counter",
    TEXT,
    "_id of the counter document {_id, seq}; seq is the last number reserved. Required unless `strategy: optimistic`.",
);
const COLLECTION: Setting<NearCollection> = Setting::with_default(
    "collection",
    NearCollection,
    DeclaredScalar::Text("counters"),
    "The collection of the counters: in the same database, or DB.COLLECTION.",
);
const START: Setting<FirstNumber> = Setting::with_default(
    "start",
    FirstNumber,
    DeclaredScalar::Integer(1),
    "The first number, or after_max: the number after the largest one in the collection.",
);
const BLOCK: Setting<WholeNumber> = Setting::with_default(
    "block",
    WholeNumber(1..=MAX_BLOCK as i64),
    DeclaredScalar::Integer(1),
    "Numbers reserved per round trip. A crash leaves a gap, but causes no duplicates.",
);
const STRATEGY: Setting<Keywords<Strategy>> = Setting::with_default(
    "strategy",
    Keywords(&[
        ("counter", Strategy::Counter, "A counter document."),
        (
            "optimistic",
            Strategy::Optimistic,
            "Max + 1, with another attempt if another client was faster; needs a unique index on the field.",
        ),
    ]),
    DeclaredScalar::Text("counter"),
    "The source of numbers.",
);
const ON_UPSERT: Setting<Boolean> = Setting::with_default(
    "on_upsert",
    Boolean,
    DeclaredScalar::Boolean(false),
    "Whether upserts get a number with $setOnInsert.",
);
const REPLACE_GENERATED: Setting<Boolean> = Setting::with_default(
    "replace_generated",
    Boolean,
    DeclaredScalar::Boolean(false),
    "For field _id: whether a number replaces an ObjectId that the driver generated.",
);
const PROVIDED: Setting<Keywords<Provided>> = Setting::with_default(
    "provided",
    Keywords(&[
        ("keep", Provided::Keep, "It is stored, and never assigned again."),
        ("reject", Provided::Reject, "The statement is rejected; a replacement may contain the stored number."),
        ("replace", Provided::Replace, "The document gets the next number, or keeps the stored one."),
    ]),
    DeclaredScalar::Text("keep"),
    "The action for a number that the client sets.",
);
pub(super) const KEYS: Keys = Keys::new(
    "Unique numbers for inserted documents.",
    &[&FIELD, &COUNTER, &COLLECTION, &START, &BLOCK, &STRATEGY, &ON_UPSERT, &REPLACE_GENERATED, &PROVIDED],
)
.constrained(&[Constraint::RequiredUnless { key: "counter", other: "strategy", value: "optimistic" }]);

impl Sequence {
    pub(super) fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let field = reader.get(&FIELD);
        let strategy = reader.get_or_default(&STRATEGY);
        let uses_counter = strategy.is_some_and(|strategy| strategy.value == Strategy::Counter);
        let counter = reader.get(&COUNTER);
        if uses_counter && !reader.has(&COUNTER) {
            let message = "`counter` is missing: the `_id` of the counter document, or set `strategy: optimistic`";
            let span = reader.span();
            reader.context().error(Code::MissingKey, span, message);
            return None;
        }
        let collection = reader.get_or_default(&COLLECTION);
        let start = reader.get(&START);
        let block = reader.get_or_default(&BLOCK);
        let on_upsert = reader.get_or_default(&ON_UPSERT);
        let replace_generated = reader.get_or_default(&REPLACE_GENERATED);
        let provided = reader.get_or_default(&PROVIDED);
        if strategy.is_some_and(|strategy| strategy.value == Strategy::Optimistic) {
            reader.warn_without_effect(&[COUNTER.name, COLLECTION.name, BLOCK.name], "with `strategy: optimistic`");
        }
        let field = field?;
        if let Some(replace) = &replace_generated
            && replace.value
            && field.value.as_str() != "_id"
        {
            let message = "`replace_generated` is only allowed for the field _id";
            reader.context().error(Code::ConflictingSettings, replace.span, message);
        }
        if field.value.as_str() == "_id"
            && replace_generated.as_ref().is_some_and(|replace| !replace.value)
            && let Some(provided) = provided.as_ref().filter(|provided| provided.value != Provided::Replace)
        {
            let effect = match provided.value {
                Provided::Reject => "rejects each of them",
                _ => "assigns no number to them",
            };
            let message = format!("drivers send an `_id` with every insert, so the rule {effect}");
            let warning = Diagnostic::warning(Code::NeverActs, field.span, message);
            reader.context().push(warning.help("add `replace_generated: true`"));
        }
        if uses_counter && counter.is_none() {
            return None;
        }
        let (database, collection) = collection?.value;
        Some(Self {
            field,
            counter: counter.map(|text| text.value.into()).unwrap_or_default(),
            database: database.map(Arc::from),
            collection: collection.into(),
            start: start?,
            beginning: SharedStart::default(),
            block: block?.value as u32,
            strategy: strategy?.value,
            on_upsert: on_upsert?.value,
            replace_generated: replace_generated?.value,
            provided: provided?.value,
        })
    }
}

/// The maximum block: more than a process needs between two round trips. It limits the gap after a crash.
const MAX_BLOCK: u32 = 1_000_000;

/// A whole number, or `after_max`.
#[derive(Clone, Copy, Debug)]
struct FirstNumber;

const AFTER_MAX: &str = "after_max";

impl DescribeSchema for FirstNumber {
    fn schema(&self) -> ValueSchema {
        ValueSchema::OneOf(vec![
            ValueSchema::Whole(i64::MIN..=i64::MAX),
            ValueSchema::Constant(DeclaredScalar::Text(AFTER_MAX)),
        ])
    }
}

impl ReadValue for FirstNumber {
    type Value = SequenceStart;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<SequenceStart> {
        if let NodeValue::Text(word) = &node.value
            && !node.value.is_quoted_number()
        {
            let word = Located { value: word.clone(), span: node.span };
            return context.word(&word, "`start` as a word", &[(AFTER_MAX, SequenceStart::AfterMax)]);
        }
        WholeNumber(i64::MIN..=i64::MAX).read(context, key, node).map(|number| SequenceStart::At(number.value))
    }
}
