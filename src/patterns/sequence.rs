//! `sequence`: assigns a unique number from one counter to each inserted document.
//!
//! Applications often use findAndModify on a counters collection before each insert, or max + 1 without protection
//! from races. With this pattern, docward adds the next number to a document that lacks the field.
//!
//! before: `insertOne({item: "book"})`; after: `insertOne({item: "book", order_no: 4711})`
//!
//! The verdict only shows that a statement needs a number or contains one; `numbering.rs` describes the rest.
//! Replacements keep the stored number (`replaced.rs`, `kept.rs`).

mod kept;
mod numbers;
mod replaced;
mod settings;
mod shared;
mod start;

use super::numbering::Numbering;
pub use super::numbering::Strategy;
use super::stored_data::{Backfill, DataCheck, Search, any, is_absent, is_number, not};
use super::{
    Applicability, Context, ExclusiveField, IndexPurpose, NeededIndex, Pattern, Prerequisite, Privilege, Rejection,
    Requirement, RuleView, Unmatched, Verdict,
};
use crate::command::{Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::config::keys::Declaration;
use crate::config::{Diagnostic, Located, NamespaceGlob, Node, ReadContext};
use crate::document::{Document, Kind, Path, PathLookup, Value};
use crate::effect::{self, ImageValue, PathOverlap, is_rename_source, is_rename_target, pins_inside, touch, touched};
use settings::Provided;
pub use settings::Sequence;
pub use start::{Origin, SequenceStart, SharedStart};

impl Pattern for Sequence {
    fn declaration() -> Declaration {
        Declaration::mapping(&settings::KEYS).example("{ field: number, counter: orders }")
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &settings::KEYS, Self::read_keys)
    }

    fn numbered_field(&self) -> Option<(&Path, i64)> {
        let first = match self.start {
            SequenceStart::At(number) => number,
            // After no number at all.
            SequenceStart::AfterMax => 1,
        };
        Some((self.field(), first))
    }

    fn partial_change_reason(&self, field: &Path) -> Option<&'static str> {
        let overlaps = field.overlaps(self.field().as_str().as_bytes());
        overlaps.then_some("a replacement keeps the number in one of the fields and changes the others")
    }

    fn privileges(&self, namespaces: &[Located<NamespaceGlob>]) -> Vec<Privilege> {
        const COUNT: &[&str] = &["find", "insert", "update"];
        let mut privileges = Vec::new();
        let reads_documents = self.strategy == Strategy::Optimistic || self.start == SequenceStart::AfterMax;
        for namespace in namespaces {
            if let (true, Some((database, collection))) = (reads_documents, namespace.exact()) {
                privileges.push(Privilege::new(database, collection, &["find"]));
            }
            let database = namespace.database().is_literal().then(|| namespace.database().as_str());
            let database = self.database.as_deref().or(database);
            if let (Strategy::Counter, Some(database)) = (self.strategy, database) {
                privileges.push(Privilege::new(database, &self.collection, COUNT));
            }
        }
        privileges
    }

    fn rewriting(&self) -> &'static str {
        "sets the next number of the sequence"
    }

    fn needed_indexes(&self) -> Vec<NeededIndex> {
        let without = match self.strategy {
            Strategy::Counter => "a number that an application sets itself can be stored twice",
            Strategy::Optimistic => "numbers ARE ASSIGNED TWICE: two inserts that read the same maximum both succeed",
        };
        let field = self.field.value.as_str().to_owned();
        vec![NeededIndex { collection: None, field, purpose: IndexPurpose::Unique, without }]
    }

    fn data_checks(&self, namespace: Namespace<'_>) -> Vec<DataCheck> {
        let field = self.field();
        let mut checks = Vec::new();
        if !self.is_id() {
            checks.push(DataCheck {
                found: format!("that share their `{field}` with others"),
                consequence: "a unique index cannot be created",
                search: Search::Duplicates { field: field.as_str().to_owned() },
                backfill: None,
            });
            checks.push(DataCheck::each(
                format!("without `{field}`"),
                "only inserted documents get a number",
                is_absent(field),
            ));
            checks.push(DataCheck::each(
                format!("whose `{field}` is not a number"),
                "the sequence does not count them",
                not(any(vec![is_absent(field), is_number(field)])),
            ));
        }
        if self.strategy == Strategy::Counter {
            let database = self.database.as_deref().unwrap_or(namespace.database).to_owned();
            let (collection, id) = (self.collection.to_string(), self.counter.to_string());
            checks.push(DataCheck {
                found: format!("with a `{field}` above the counter `{id}`"),
                consequence: "their numbers will be assigned again",
                search: Search::Counter {
                    database,
                    collection,
                    id,
                    field: field.as_str().to_owned(),
                    may_be_missing: self.start == SequenceStart::AfterMax,
                },
                backfill: Some(Backfill::Counter),
            });
        }
        checks
    }

    fn contradictions(rules: &[RuleView<'_>]) -> Vec<Diagnostic> {
        shared::counters_among_documents(rules)
    }

    fn linked(rules: &[RuleView<'_>]) -> Vec<(usize, Self)> {
        shared::share_counters(rules)
    }

    fn exclusive_fields(&self) -> Vec<ExclusiveField> {
        let field = self.field.clone().map(|path| path.as_str().to_owned());
        vec![ExclusiveField { kind: "sequence", field }]
    }

    fn own_fields(&self) -> Vec<&str> {
        vec![self.field().as_str()]
    }

    fn requirements(&self) -> Vec<Requirement> {
        vec![Requirement::OwnConnection, Requirement::PipelineUpdates]
    }

    fn tolerates_unsupported(&self) -> bool {
        true
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        match kind {
            StatementKind::Insert | StatementKind::Replacement => Applicability::Each,
            // It may set the field to a number that the counter has not reached yet.
            StatementKind::Operators => Applicability::Each,
            StatementKind::Pipeline if self.on_upsert || self.provided != Provided::Keep => Applicability::Each,
            StatementKind::Pipeline | StatementKind::Delete => Applicability::None,
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

    fn numbering(&self) -> Option<&dyn Numbering> {
        Some(self)
    }

    /// Rejects: the stored document has another number, or an upsert would insert one with the client's number.
    fn unmatched(&self, statement: &Statement<'_>, stored: Option<Document<'_>>) -> Unmatched {
        match stored {
            None if !statement.came_as_upsert() => Unmatched::Nothing,
            Some(_) => Unmatched::Reject(self.provided_number_rejection()),
            None => Unmatched::Reject(self.inserted_number_rejection()),
        }
    }
}

impl Sequence {
    pub fn field(&self) -> &Path {
        &self.field.value
    }

    fn evaluate_document<'a>(&self, document: Document<'_>) -> Verdict<'a> {
        match self.field().lookup(document) {
            PathLookup::Missing => Verdict::Require(Prerequisite::Number, None),
            PathLookup::Found(value) if self.is_replaced(value) => Verdict::Require(Prerequisite::Number, None),
            PathLookup::Found(value) if self.provided == Provided::Keep => provides(value),
            PathLookup::Found(_) => Verdict::Reject(self.provided_number_rejection()),
            PathLookup::Blocked(kind) => self.no_room(kind),
        }
    }

    /// Returns whether a number of the sequence replaces the document's own value.
    fn is_replaced(&self, value: Value<'_>) -> bool {
        self.provided == Provided::Replace || (self.replace_generated && value.kind == Kind::ObjectId)
    }

    /// Returns whether a value in a replacement means that the document was read without a number. For `_id` null is a
    /// value.
    fn is_no_number(&self, value: Value<'_>) -> bool {
        value.kind == Kind::Null && !self.is_id()
    }

    fn evaluate_update<'a>(&self, operation: &Operation<'a>, update: &Update<'a>) -> Verdict<'a> {
        let writes = || match self.provided_numbers(operation).is_empty() {
            true => Verdict::Forward,
            false => Verdict::Require(Prerequisite::ProvidedNumbers, None),
        };
        if !update.upsert {
            return writes();
        }
        if matches!(update.modification, Modification::ClientPipeline(_)) {
            return match self.on_upsert || self.provided != Provided::Keep {
                true => Verdict::client_pipeline(),
                false => Verdict::Forward,
            };
        }
        let Some(inserted) = effect::inserted(operation) else { return writes() };
        let held = inserted.at(self.field());
        let number = match held {
            ImageValue::Value(value) => Some(value),
            _ => None,
        };
        match held {
            ImageValue::Missing if self.on_upsert => self.upsert_verdict(update),
            ImageValue::Blocked(kind) if self.on_upsert => self.no_room(kind),
            // The numbers of array elements.
            ImageValue::Blocked(Kind::Array)
                if self.provided != Provided::Keep && !self.provided_numbers(operation).is_empty() =>
            {
                self.only_stored(update, None)
            }
            ImageValue::Missing | ImageValue::Blocked(_) => writes(),
            _ if self.on_upsert
                && inserted.images().any(|image| matches!(image.at(self.field()), ImageValue::Missing)) =>
            {
                Verdict::reject(
                    format!(
                        "as an upsert, depending on the server, it could insert a document without '{}'",
                        self.field()
                    ),
                    format!("Leave '{}' out of the filter, or write the filter without alternatives.", self.field()),
                )
            }
            _ if self.provided == Provided::Keep && number.is_none() && self.is_computed(update) => {
                self.only_stored(update, None)
            }
            _ if self.provided == Provided::Keep
                && (self.is_pinned_id(update) || !number.is_some_and(|value| self.is_replaced(value))) =>
            {
                writes()
            }
            _ if number.is_some_and(|value| self.is_replaced(value)) && self.is_replaceable(update) => {
                self.upsert_verdict(update)
            }
            _ => self.only_stored(update, None),
        }
    }

    /// Returns whether the server computes the number from another one.
    fn is_computed(&self, update: &Update<'_>) -> bool {
        let computes = |(operator, path, _): (&[u8], &[u8], Value<'_>)| {
            matches!(operator, b"$inc" | b"$mul" | b"$bit") && touch(self.field(), path) != PathOverlap::Apart
        };
        update.operators().is_some_and(|operators| touched(operators).any(computes))
    }

    /// Returns whether a number can replace the one in the update: it is written by an operator that can be removed. The
    /// server fails an update with two of them. A number in the filter stays there; for `_id` it is then the only
    /// possible one.
    fn is_replaceable(&self, update: &Update<'_>) -> bool {
        let Modification::Operators(operators) = &update.modification else { return false };
        let mut writes = 0;
        let is_removable = touched(operators.as_document()).all(|write| match touch(self.field(), write.1) {
            PathOverlap::Apart => true,
            // The target of a `$rename` cannot be removed without its source.
            PathOverlap::Exact => {
                writes += 1;
                writes == 1 && !is_rename_target(write)
            }
            PathOverlap::Inside | PathOverlap::Around | PathOverlap::Positional => false,
        });
        is_removable && !self.is_pinned_id(update)
    }

    /// Returns whether the client itself names the `_id` that the upsert inserts. No driver generates such an id.
    fn is_pinned_id(&self, update: &Update<'_>) -> bool {
        self.is_id() && effect::equality(update.filter.as_document(), "_id").is_some()
    }

    fn upsert_verdict<'a>(&self, update: &Update<'a>) -> Verdict<'a> {
        let operators = match &update.modification {
            Modification::Operators(operators) => operators.as_document(),
            Modification::Pipeline(pipeline) => match &pipeline.meaning {
                Modification::Operators(operators) => operators.as_document(),
                _ => return self.unclear(),
            },
            _ => return self.unclear(),
        };
        let filter = update.filter.as_document();
        let pins = || effect::equality(filter, self.field().as_str()).is_some() || pins_inside(filter, self.field());
        let around = |write: (&[u8], &[u8], Value<'_>)| match touch(self.field(), write.1) {
            PathOverlap::Apart => false,
            // An operator on the field itself changes a stored document, and is omitted of the insert. Without a
            // `$rename` the insert would lose the value that the filter gives to the field.
            PathOverlap::Exact => is_rename_source(write) && pins(),
            PathOverlap::Inside | PathOverlap::Around | PathOverlap::Positional => true,
        };
        if !touched(operators).any(around) {
            return Verdict::Require(Prerequisite::Number, None);
        }
        // The pipeline would keep a number of the filter as if it were stored.
        if update.array_filters || self.may_take_from(update.filter.as_document()) {
            return self.unclear();
        }
        // A rule that finishes the statement can add operators, beside which the number cannot be kept.
        match kept::setting_around(&update.modification, self.field()) {
            Some(modification) => Verdict::Require(
                Prerequisite::Number,
                Some(Operation::Update(Update { modification, ..update.clone() })),
            ),
            None => self.unclear(),
        }
    }

    fn is_id(&self) -> bool {
        self.field().as_str() == "_id"
    }

    fn no_room<'a>(&self, kind: Kind) -> Verdict<'a> {
        Verdict::Reject(Rejection::no_room(self.field(), kind))
    }

    fn unclear<'a>(&self) -> Verdict<'a> {
        Verdict::reject(
            format!("it writes a field around or inside '{}', so docward cannot set the number", self.field()),
            "Set the other fields one by one, with their full paths.",
        )
    }

    /// Returns the rejection of an upsert that would insert a document with a number that the client may not send, or that
    /// docward does not know.
    fn inserted_number_rejection(&self) -> Rejection {
        match self.provided {
            Provided::Reject => self.provided_number_rejection(),
            Provided::Keep | Provided::Replace => Rejection::new(
                format!(
                    "no document matches, and it would insert one with a '{}' that the sequence does not know",
                    self.field()
                ),
                "Set the number with $set or $setOnInsert, or insert the document.",
            ),
        }
    }

    /// Returns the rejection of a statement in which the client provides a number.
    fn provided_number_rejection(&self) -> Rejection {
        Rejection::new(
            format!("it sets '{}' itself, which only the sequence may assign", self.field()),
            "Leave the field out. A replacement may contain the stored number.",
        )
    }
}

/// Returns the verdict for a client's value: it passes, and the sequence does not assign its whole numbers again.
fn provides<'a>(value: Value<'_>) -> Verdict<'a> {
    let is_number = |value: Value<'_>| value.as_whole().is_some();
    let any = match value.as_array() {
        Some(elements) => elements.values().any(is_number),
        None => is_number(value),
    };
    if any { Verdict::Require(Prerequisite::ProvidedNumbers, None) } else { Verdict::Forward }
}
