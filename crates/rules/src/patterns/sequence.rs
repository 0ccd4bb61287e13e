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

pub use super::numbering::Strategy;
use super::numbering::{Numbering, ProvidedNumbers};
use super::plain::{self, NotPlain, PlainWrite};
use super::promise::{BeforeAndAfter, held, shown};
use super::stored_data::{Backfill, DataCheck, Search, any, is_absent, is_number, not};
use super::stored_state::of_each;
use super::{
    Applicability, Broken, Context, ExclusiveField, Facts, FieldContent, IndexPurpose, NeededIndex, Pattern,
    Prerequisite, Privilege, Procedures, Properties, Rejection, Requirement, RuleView, Settled, StateCondition,
    Unmatched, Verdict, applicability_for_content,
};
use crate::command::{Modification, Namespace, Operation, Statement, StatementKind, Update};
use crate::config::keys::Declaration;
use crate::config::{Diagnostic, Located, NamespaceGlob, Node, ReadContext};
use crate::document::{Document, Kind, OwnedValue, Path, PathLookup, Value};
use crate::effect::{equality, on_insert};
use numbers::whole_numbers;
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

    fn properties(&self) -> Properties {
        let without = match self.strategy {
            Strategy::Counter => "a number that an application sets itself can be stored twice",
            Strategy::Optimistic => "numbers ARE ASSIGNED TWICE: two inserts that read the same maximum both succeed",
        };
        let first = match self.start {
            SequenceStart::At(number) => number,
            // After no number at all.
            SequenceStart::AfterMax => 1,
        };
        let field = self.field();
        let indexed = field.as_str().to_owned();
        Properties {
            rewriting: "sets the next number of the sequence",
            tolerates_unsupported: true,
            needed_indexes: vec![NeededIndex {
                collection: None,
                field: indexed,
                purpose: IndexPurpose::Unique,
                without,
            }],
            exclusive_fields: vec![ExclusiveField::new("sequence", &self.field)],
            own_fields: vec![field.clone()],
            procedures: Procedures::NotPlain(vec![(field.clone(), &[])]),
            numbered_field: Some((field.clone(), first)),
            contents: vec![(field.clone(), FieldContent::Number)],
            requirements: vec![Requirement::OwnConnection, Requirement::PipelineUpdates],
            ..Properties::default()
        }
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

    /// Clients that provide values of their own can provide any. An `_id` that an upsert lacks is the server's ObjectId.
    fn stored_state(&self) -> Vec<StateCondition> {
        let field = self.field();
        let is_number = self.provided == Provided::Reject && (self.on_upsert || !self.is_id());
        let number = is_number.then(|| bson::doc! {"bsonType": ["number", "null"]});
        let schema = number.and_then(|number| of_each(field, number));
        let meaning = format!("`{field}` is missing, null or a number");
        schema.map(|schema| StateCondition::schema(meaning, &[field], schema)).into_iter().collect()
    }

    fn contradictions(rules: &[RuleView<'_>]) -> Vec<Diagnostic> {
        shared::counters_among_documents(rules)
    }

    fn linked(rules: &[RuleView<'_>]) -> Vec<(usize, Self)> {
        shared::share_counters(rules)
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        applicability_for_content(kind)
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        self.plain(statement).unwrap_or_else(Verdict::not_plain)
    }

    /// A stored number stays. Only a replacement may bring another one, with `provided: keep`.
    fn promise(&self, (before, after): BeforeAndAfter<'_>, facts: &Facts<'_, '_>) -> Result<(), Broken> {
        let Some(after) = after else { return Ok(()) };
        let (path, statement) = (self.field().as_str().as_bytes(), facts.statement());
        let stored = before.map(|before| self.field().lookup(before));
        let is_numbered = matches!(stored, Some(PathLookup::Found(value)) if value.kind.is_number());
        let (old, new) = (before.map(|before| held(before, path)).unwrap_or_default(), held(after, path));
        let is_number = new.first().is_some_and(|value| value.kind.is_number());
        let brings = self.provided == Provided::Keep && statement.sent_replacement().is_some() && is_number;
        if before.is_none() && self.on_upsert && !matches!(self.field().lookup(after), PathLookup::Found(_)) {
            return Err(self.missing_number().into());
        }
        match old != new && is_numbered && !brings {
            true => Err(self.changed_number(&old, &new).into()),
            false => Ok(self.check_new(before.is_none(), &old, &new, facts)?),
        }
    }

    /// An inserted document gets the number that is reserved for it, and a replacement keeps the stored one.
    fn settle(&self, before: Option<Document<'_>>, after: Document<'_>, facts: &Facts<'_, '_>) -> Vec<Settled> {
        let (field, replaces) = (self.field(), self.provided == Provided::Replace);
        let kept = match before {
            None => facts.reserved(field).map(OwnedValue::integer),
            Some(_) if facts.statement().sent_replacement().is_none() => None,
            Some(before) => match field.lookup(before) {
                PathLookup::Found(value) if !self.is_no_number(value) => Some(value.into()),
                _ => None,
            },
        };
        let lacks = match field.lookup(after) {
            PathLookup::Found(value) => self.is_no_number(value) || replaces,
            PathLookup::Missing => true,
            PathLookup::Blocked(_) => false,
        };
        kept.filter(|_| lacks).map(|value| Settled::value(field, value)).into_iter().collect()
    }

    fn numbering(&self) -> Option<&dyn Numbering> {
        Some(self)
    }

    /// Rejects: the stored document has another number, or an upsert would insert one with the client's number.
    fn unmatched(&self, statement: &Statement<'_>, stored: Option<Document<'_>>) -> Unmatched {
        match stored {
            None if !statement.came_as_upsert() => Unmatched::Nothing,
            _ => Unmatched::Reject(self.provided_number_rejection()),
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

    /// Evaluates a statement of a plain form.
    ///
    /// # Errors
    /// The part for which it is not plain.
    fn plain<'a>(&self, statement: &Statement<'a>) -> Result<Verdict<'a>, NotPlain> {
        let update = match &statement.operation {
            Operation::Insert(insert) => return Ok(self.evaluate_document(insert.document.as_document())),
            Operation::Delete(_) => return Ok(Verdict::Forward),
            Operation::Update(update) => update,
        };
        if let Modification::Replacement(document) = update.modification.meaning() {
            return self.plain_replacement(update, document.as_document());
        }
        match plain::stored(update, self.field())? {
            PlainWrite::Untouched => self.plain_upsert(update),
            PlainWrite::Set(value) if statement.sent_replacement().is_some() => self.plain_merged(update, value),
            _ => Err(format!("it writes '{}', which may have a number already", self.field())),
        }
    }

    /// Evaluates an update that leaves the number of stored documents as it is.
    fn plain_upsert<'a>(&self, update: &Update<'a>) -> Result<Verdict<'a>, NotPlain> {
        if !update.upsert {
            return Ok(Verdict::Forward);
        }
        let field = self.field();
        let is_named = self.is_id() && equality(update.filter.as_document(), "_id").is_some();
        // Beside a path that names the field's parent, or elements of it, the server rejects `$setOnInsert` of the field.
        let is_free = |operators: Document<'_>| !on_insert(operators).any(|(_, path, _)| field.is_below(named(path)));
        let may_add = || update.operators().is_some_and(is_free);
        match plain::inserted(update, field)? {
            PlainWrite::Untouched | PlainWrite::Removed if !self.on_upsert => Ok(Verdict::Forward),
            PlainWrite::Untouched if may_add() => Ok(Verdict::Require(Prerequisite::Number, None)),
            // No driver generates an `_id` that the filter names.
            PlainWrite::Set(value) if self.provided == Provided::Keep && (is_named || !self.is_replaced(value)) => {
                Ok(provides(value))
            }
            PlainWrite::Set(value) if !is_named && self.is_replaced(value) && may_add() => {
                Ok(Verdict::Require(Prerequisite::Number, None))
            }
            PlainWrite::Set(_) => Ok(self.only_stored(update, None)),
            _ => Err(format!("as an upsert, it may insert a document without '{field}'")),
        }
    }

    /// Checks what a document gets in the field: the sequence has reserved the number, or knows that it is used.
    fn check_new(
        &self,
        is_inserted: bool,
        old: &[Value<'_>],
        new: &[Value<'_>],
        facts: &Facts<'_, '_>,
    ) -> Result<(), Rejection> {
        if old == new {
            return Ok(());
        }
        let mut known: ProvidedNumbers = whole_numbers(old);
        known.extend(facts.reserved(self.field()));
        let numbers = whole_numbers(new);
        let are_known = |known: &[i64]| numbers.iter().all(|number| known.contains(number));
        if !numbers.is_empty() && are_known(&known) {
            return Ok(());
        }
        let may_be_sent = match self.provided {
            Provided::Keep => true,
            Provided::Reject => false,
            Provided::Replace => !is_inserted,
        };
        // In a plain statement it is docward's own number.
        if !new.is_empty() && !may_be_sent && self.plain(facts.statement()).is_err() {
            return Err(self.provided_number_rejection());
        }
        known.extend(self.provided_numbers(facts.statement()));
        match self.strategy == Strategy::Optimistic || are_known(&known) {
            true => Ok(()),
            false => Err(self.unknown_number(new)),
        }
    }

    fn is_id(&self) -> bool {
        self.field().as_str() == "_id"
    }

    fn no_room<'a>(&self, kind: Kind) -> Verdict<'a> {
        Verdict::Reject(Rejection::no_room(self.field(), kind))
    }

    fn changed_number(&self, old: &[Value<'_>], new: &[Value<'_>]) -> Rejection {
        let field = self.field();
        Rejection::new(
            format!("a stored number stays, and '{field}' would go from {} to {}", shown(old), shown(new)),
            format!("Leave '{field}' out of the statement, or send the value and type that are stored."),
        )
    }

    fn missing_number(&self) -> Rejection {
        Rejection::new(
            format!("it would insert a document without '{}'", self.field()),
            "Use update operators that write neither the field nor one around it.",
        )
    }

    fn unknown_number(&self, new: &[Value<'_>]) -> Rejection {
        Rejection::new(
            format!("it would store {} in '{}', which the sequence does not know", shown(new), self.field()),
            "Set the number with $set or $setOnInsert, or insert the document.",
        )
    }

    /// Returns the rejection of a statement in which the client provides a number.
    fn provided_number_rejection(&self) -> Rejection {
        Rejection::new(
            format!("it sets '{}' itself, which only the sequence may assign", self.field()),
            "Leave the field out. A replacement may contain the stored number.",
        )
    }
}

/// Returns a path up to its first positional operator.
fn named(path: &[u8]) -> &[u8] {
    let end = path.windows(2).position(|two| two == b".$");
    end.and_then(|end| path.get(..end)).unwrap_or(path)
}

/// Returns the verdict for a client's value: it passes, and the sequence does not assign its whole numbers again.
fn provides<'a>(value: Value<'_>) -> Verdict<'a> {
    match whole_numbers(&[value]).is_empty() {
        true => Verdict::Forward,
        false => Verdict::Require(Prerequisite::ProvidedNumbers, None),
    }
}
