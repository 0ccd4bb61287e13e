//! A single write, in one representation for all commands that can carry it.

use std::borrow::Cow;

use super::array_filters;
use super::form::{StatementKind, WriteForm};
use super::repeated_names::{StageOrigin, repeated_name_check};
use crate::document::{AmbiguousName, CowDocument, Document, Element, Kind, Value, Writer, edit};
use smallvec::SmallVec;

/// An element of `documents`, `updates` or `deletes`, a findAndModify, or an op of bulkWrite.
#[derive(Debug, Clone)]
pub struct Statement<'a> {
    pub operation: Operation<'a>,
    /// Index in the namespaces of the batch.
    pub namespace: usize,
    form: WriteForm,
    /// The statement as the client sent it; for findAndModify the whole command body.
    source: Document<'a>,
    /// Whether the client sent it as an upsert.
    source_upserts: bool,
    /// Whether a document in it has a name twice, or an array an element with another name than its position.
    is_ambiguous: bool,
}

#[derive(Debug, Clone)]
pub enum Operation<'a> {
    Insert(Insert<'a>),
    Update(Update<'a>),
    Delete(Delete<'a>),
}

#[derive(Debug, Clone)]
pub struct Insert<'a> {
    pub document: CowDocument<'a>,
}

#[derive(Debug, Clone)]
pub struct Update<'a> {
    /// The client's filter. An upsert builds its document from it.
    pub filter: CowDocument<'a>,
    /// Conditions of rules on the stored document. They are kept apart from the filter until the statement is sent.
    pub conditions: Conditions<'a>,
    pub modification: Modification<'a>,
    pub upsert: bool,
    pub multi: bool,
    /// Whether the statement has array filters. An empty list does not count.
    pub array_filters: bool,
    /// Whether it has constants for the expressions of a pipeline (`c`, in a bulkWrite `constants`).
    pub constants: bool,
}

#[derive(Debug, Clone)]
pub struct Delete<'a> {
    pub filter: CowDocument<'a>,
    /// Whether it deletes all matching documents instead of one.
    pub multi: bool,
}

/// The change that an update makes.
#[derive(Debug, Clone)]
pub enum Modification<'a> {
    /// A document without operators that replaces the stored one.
    Replacement(CowDocument<'a>),
    /// `{$set: ..., $inc: ...}`
    Operators(CowDocument<'a>),
    /// An aggregation pipeline of the client: the document that encodes the array.
    ClientPipeline(Document<'a>),
    /// A pipeline that docward made from operators or from a replacement.
    Pipeline(Box<Pipeline<'a>>),
}

/// Filters that must all match in addition to the client's filter.
pub type Conditions<'a> = SmallVec<[CowDocument<'a>; 1]>;

/// A pipeline that docward made.
#[derive(Debug, Clone)]
pub struct Pipeline<'a> {
    /// The stage that is sent before the others.
    check: CowDocument<'static>,
    stages: Vec<CowDocument<'a>>,
    /// The operators or the replacement that it was made from. It has their effect unless it finds that the write is
    /// late.
    pub meaning: Modification<'a>,
    /// Whether it compares times, and can leave stored values as they are.
    pub may_keep: bool,
}

impl<'a> Pipeline<'a> {
    /// Adds the check for repeated names to the stages.
    pub fn new(stages: Vec<CowDocument<'a>>, meaning: Modification<'a>, may_keep: bool) -> Self {
        let origin = match meaning {
            Modification::ClientPipeline(_) => StageOrigin::Client,
            _ => StageOrigin::Pattern,
        };
        let check = repeated_name_check(stages.iter().map(CowDocument::as_document), origin);
        Self { check, stages, meaning, may_keep }
    }

    /// The stages besides the check.
    pub fn stages(&self) -> &[CowDocument<'a>] {
        &self.stages
    }

    fn sent(&self) -> impl Iterator<Item = &CowDocument<'a>> {
        std::iter::once(&self.check).chain(&self.stages)
    }
}

impl<'a> Update<'a> {
    /// Returns the client's filter combined with the conditions of the rules.
    pub fn selection(&self) -> Cow<'_, CowDocument<'a>> {
        let mut selection = Cow::Borrowed(&self.filter);
        for condition in &self.conditions {
            selection = Cow::Owned(narrowed_by(selection.as_document(), condition.as_document()));
        }
        selection
    }

    /// Returns the maximum number of bytes that the selection adds to the client's filter.
    fn selection_length(&self) -> usize {
        /// The bytes of `$and` and its array.
        const WRAPPER: usize = 32;
        let conditions = self.conditions.iter().map(|condition| condition.rewritten_length() + WRAPPER);
        self.filter.rewritten_length() + conditions.sum::<usize>()
    }
}

/// Returns a condition that no stored document matches. It is not an equality, so that an upsert inserts the same
/// document. It is not a constant, because the server would then also drop the equalities of the filter.
fn matches_nothing<'a>() -> CowDocument<'a> {
    CowDocument::build(|w| w.nested("_id", |w| w.boolean("$exists", false)))
}

fn narrowed_by<'a>(filter: Document<'_>, condition: Document<'_>) -> CowDocument<'a> {
    let named = condition.elements().any(|added| filter.get(added.key).is_some());
    narrowed(filter, named, |w| w.elements(condition))
}

/// Returns a filter with one more condition. `named`: the filter already has a field of the condition, which then is an
/// element of `$and`. The filter's own fields stay at the top: not every server that is compatible with MongoDB takes the
/// `_id` of an upsert from an `$and`.
pub fn narrowed<'a>(filter: Document<'_>, named: bool, condition: impl Fn(&mut Writer<'_>)) -> CowDocument<'a> {
    if !named {
        return CowDocument::from_writer(edit::append(filter, condition));
    }
    let own = filter.get("$and");
    let branches = own.and_then(Value::as_array).filter(|branches| !branches.is_empty());
    let write_and = |w: &mut Writer<'_>| {
        w.array("$and", |a| {
            branches.into_iter().flat_map(Document::values).for_each(|branch| a.value(branch));
            if branches.is_none() && own.is_some() {
                // The server must see that it is malformed.
                a.value(Value::document(filter));
            }
            a.nested(&condition);
        });
    };
    CowDocument::build(|w| {
        for element in filter.elements().filter(|_| branches.is_some() || own.is_none()) {
            match element.key {
                b"$and" => write_and(w),
                _ => w.element(element),
            }
        }
        if branches.is_none() {
            write_and(w);
        }
    })
}

/// Returns whether the document of an update has operators; else it is a replacement.
pub fn has_operators(update: Document<'_>) -> bool {
    update.first().is_some_and(|first| first.key.starts_with(b"$"))
}

/// Returns the BSON type that `$currentDate` sets with this value, "date" or "timestamp"; `None` if the server rejects
/// it.
pub fn current_date_type(value: Value<'_>) -> Option<&str> {
    let Some(options) = value.as_document() else { return value.as_bool().map(|_| "date") };
    let mut found = None;
    for option in options.elements() {
        match (option.key, option.value.as_str()) {
            (b"$type", Some(name @ ("date" | "timestamp"))) => found = Some(name),
            (b"$type", _) => {}
            _ => return None,
        }
    }
    found
}

impl<'a> Statement<'a> {
    pub(super) fn new(
        operation: Operation<'a>,
        namespace: usize,
        form: WriteForm,
        source: Document<'a>,
        is_ambiguous: bool,
    ) -> Self {
        let source_upserts = matches!(&operation, Operation::Update(Update { upsert: true, .. }));
        Self { operation, namespace, form, source, source_upserts, is_ambiguous }
    }

    /// Returns the first name in the client's statement that is ambiguous. Servers accept such documents, but what a
    /// path in them means depends on the reader.
    pub fn ambiguity(&self) -> Option<AmbiguousName> {
        self.is_ambiguous.then(|| self.source.check_names_throughout().err()).flatten()
    }

    pub fn is_rewritten(&self) -> bool {
        match &self.operation {
            Operation::Insert(insert) => insert.document.is_rewritten(),
            Operation::Delete(delete) => delete.filter.is_rewritten(),
            Operation::Update(update) => {
                !update.conditions.is_empty()
                    || update.filter.is_rewritten()
                    || update.modification.is_rewritten()
                    || self.source_upserts != update.upsert
            }
        }
    }

    /// Returns the same statement with another operation.
    pub fn with(&self, operation: Operation<'a>) -> Self {
        Self { operation, ..*self }
    }

    /// Returns the same statement with operators, if it is a client's pipeline that only sets constants.
    pub fn as_operators(&self) -> Option<Self> {
        let Operation::Update(update) = &self.operation else { return None };
        let Modification::ClientPipeline(stages) = &update.modification else { return None };
        // The expressions could refer to the constants of the statement.
        if update.array_filters || update.constants {
            return None;
        }
        let modification = Modification::Operators(super::constants::as_operators(*stages)?);
        Some(self.with(Operation::Update(Update { modification, ..update.clone() })))
    }

    /// Returns whether the operators set `_id` to a value that the server never stores (`storage_validation.cpp`).
    pub fn sets_invalid_id(&self) -> bool {
        let Operation::Update(Update { modification: Modification::Operators(operators), .. }) = &self.operation else {
            return false;
        };
        let set = operators.as_document().get("$set").and_then(Value::as_document);
        let id = set.and_then(|fields| fields.get("_id"));
        id.is_some_and(|id| matches!(id.kind, Kind::Array | Kind::Regex | Kind::Undefined))
    }

    /// Returns whether every server rejects the client's update before it looks for documents: it mixes operators with
    /// fields, or an operator has no document (9, FailedToParse; `parseUpdateExpression` in `update_driver.cpp`), or it
    /// has a value of the wrong form (2, BadValue, and 14, TypeMismatch; `current_date_node.cpp`, `arithmetic_node.cpp`),
    /// or an option of the other kind of update: constants of a pipeline (51198), or array filters beside one in a
    /// findAndModify, even if there are none (9); or if it is a findAndModify that neither updates nor removes (9).
    pub fn is_malformed(&self) -> bool {
        let Operation::Update(update) = &self.operation else { return false };
        if self.form == WriteForm::FindAndModify && self.source.get("update").is_none() {
            return true;
        }
        let operators = match &update.modification {
            Modification::ClientPipeline(_) => {
                return self.form == WriteForm::FindAndModify && self.option("arrayFilters").is_some();
            }
            _ if update.constants => return true,
            Modification::Operators(operators) => operators,
            Modification::Replacement(_) | Modification::Pipeline(_) => return false,
        };
        let mut operators = operators.as_document().elements();
        operators.any(|operator| {
            let Some(fields) = operator.value.as_document() else { return true };
            match operator.key {
                b"$currentDate" => fields.values().any(|value| current_date_type(value).is_none()),
                b"$inc" | b"$mul" => fields.values().any(|value| !value.kind.is_number()),
                name => !name.starts_with(b"$"),
            }
        })
    }

    /// Returns the same statement without the conditions of rules.
    pub fn without_conditions(&self) -> Self {
        match &self.operation {
            Operation::Update(update) => {
                self.with(Operation::Update(Update { conditions: Conditions::new(), ..update.clone() }))
            }
            Operation::Insert(_) | Operation::Delete(_) => self.clone(),
        }
    }

    /// Returns the same statement for the documents alone that also match `condition`.
    pub fn narrowed(&self, condition: &CowDocument<'a>) -> Self {
        match &self.operation {
            Operation::Update(update) => {
                let mut narrowed = Update { upsert: false, ..update.clone() };
                narrowed.conditions.push(condition.clone());
                self.with(Operation::Update(narrowed))
            }
            Operation::Delete(delete) => {
                let filter = narrowed_by(delete.filter.as_document(), condition.as_document());
                self.with(Operation::Delete(Delete { filter, ..delete.clone() }))
            }
            Operation::Insert(_) => self.clone(),
        }
    }

    /// Returns whether it can change several documents.
    pub fn is_multi(&self) -> bool {
        match &self.operation {
            Operation::Update(update) => update.multi,
            Operation::Delete(delete) => delete.multi,
            Operation::Insert(_) => false,
        }
    }

    /// Returns the filter without the conditions of rules; it is empty for an insert.
    pub fn filter(&self) -> Document<'_> {
        match &self.operation {
            Operation::Update(Update { filter, .. }) | Operation::Delete(Delete { filter, .. }) => filter.as_document(),
            Operation::Insert(_) => Document::EMPTY,
        }
    }

    /// Returns the client's filter, with the conditions of rules; `None` for an insert.
    pub fn selection(&self) -> Option<Cow<'_, CowDocument<'a>>> {
        match &self.operation {
            Operation::Update(update) => Some(update.selection()),
            Operation::Delete(delete) => Some(Cow::Borrowed(&delete.filter)),
            Operation::Insert(_) => None,
        }
    }

    /// Returns the same statement with a condition that no stored document matches, so that it can only insert.
    pub fn insert_only(&self) -> Self {
        match &self.operation {
            Operation::Update(update) => self.with(Operation::Update(Update {
                conditions: Conditions::from_elem(matches_nothing(), 1),
                ..update.clone()
            })),
            Operation::Insert(_) | Operation::Delete(_) => self.clone(),
        }
    }

    /// Returns the same statement with a filter that matches the same documents, but from which an upsert takes only
    /// this `_id`. A replacement takes the same from its filter. `never`: the filter's conditions that the server may
    /// see to match nothing; it then takes no `_id` either.
    pub fn with_only_id(&self, id: Option<Value<'_>>, never: Document<'_>) -> Self {
        let Operation::Update(update) = &self.operation else { return self.clone() };
        let filter = CowDocument::build(|w| {
            id.into_iter().for_each(|id| w.value("_id", id));
            // An upsert takes no field from an `$or` with two branches.
            w.array("$or", |a| {
                a.value(Value::document(update.filter.as_document()));
                a.value(Value::document(matches_nothing().as_document()));
            });
            if !never.is_empty() {
                w.array("$and", |a| a.value(Value::document(never)));
            }
        });
        self.with(Operation::Update(Update { filter, ..update.clone() }))
    }

    /// Returns the same statement without upsert.
    pub fn without_upsert(&self) -> Self {
        match &self.operation {
            Operation::Update(update) => self.with(Operation::Update(Update { upsert: false, ..update.clone() })),
            Operation::Insert(_) | Operation::Delete(_) => self.clone(),
        }
    }

    /// Returns whether the client sent it as an upsert, even if a rule changed it.
    pub fn came_as_upsert(&self) -> bool {
        self.source_upserts
    }

    /// Returns the replacement document that the client sent, even if a rule changed it.
    pub fn sent_replacement(&self) -> Option<Document<'a>> {
        let update = self.option(self.form.names().update).and_then(Value::as_document)?;
        (!has_operators(update)).then_some(update)
    }

    pub fn is_insert(&self) -> bool {
        matches!(self.operation, Operation::Insert(_))
    }

    pub fn is_upsert(&self) -> bool {
        matches!(&self.operation, Operation::Update(Update { upsert: true, .. }))
    }

    /// Returns whether it is a pipeline that docward made.
    pub fn is_own_pipeline(&self) -> bool {
        matches!(&self.operation, Operation::Update(Update { modification: Modification::Pipeline(_), .. }))
    }

    /// Returns the operators of an update, as [`Update::operators`].
    pub fn operators(&self) -> Option<Document<'_>> {
        match &self.operation {
            Operation::Update(update) => update.operators(),
            _ => None,
        }
    }

    /// Returns an option of the client's statement such as "sort", "hint" or "collation".
    pub fn option(&self, name: &str) -> Option<Value<'a>> {
        match self.form {
            // The source of an insert is the document itself.
            WriteForm::Insert => None,
            _ => self.source.get(name).filter(|value| !value.is_absent()),
        }
    }

    /// Returns the constants for the expressions of a pipeline.
    pub fn constants(&self) -> Option<Document<'a>> {
        ["c", "constants"].into_iter().find_map(|name| self.option(name)?.as_document())
    }

    /// Returns the projection of the document that a findAndModify returns.
    pub fn returned_fields(&self) -> Option<Document<'a>> {
        let projection = (self.form == WriteForm::FindAndModify).then(|| self.option("fields"));
        projection.flatten().and_then(Value::as_document)
    }

    pub fn kind(&self) -> StatementKind {
        match &self.operation {
            Operation::Insert(_) => StatementKind::Insert,
            Operation::Delete(_) => StatementKind::Delete,
            Operation::Update(update) => match update.modification {
                Modification::Replacement(_) => StatementKind::Replacement,
                Modification::ClientPipeline(_) => StatementKind::Pipeline,
                Modification::Operators(_) | Modification::Pipeline(_) => StatementKind::Operators,
            },
        }
    }

    /// Returns what the client sent, "insert", "update", "replacement" or "delete", for messages.
    pub fn kind_name(&self) -> &'static str {
        match self.kind() {
            _ if self.sent_replacement().is_some() => "replacement",
            StatementKind::Insert => "insert",
            StatementKind::Operators | StatementKind::Pipeline => "update",
            StatementKind::Replacement => "replacement",
            StatementKind::Delete => "delete",
        }
    }

    /// Returns the maximum length in bytes of [`write`](Self::write), without flags that a rule adds.
    pub fn written_length(&self) -> usize {
        let rewritten = match &self.operation {
            Operation::Insert(insert) => insert.document.rewritten_length(),
            Operation::Delete(delete) => delete.filter.rewritten_length(),
            Operation::Update(update) => update.selection_length() + update.modification.rewritten_length(),
        };
        self.source.as_bytes().len() + rewritten
    }

    /// Returns the exact length in bytes of [`write`](Self::write).
    pub fn encoded_length(&self) -> usize {
        match &self.operation {
            _ if !self.is_rewritten() => self.source.as_bytes().len(),
            Operation::Insert(insert) if self.form == WriteForm::Insert => {
                insert.document.as_document().as_bytes().len()
            }
            _ => {
                let mut out = Vec::with_capacity(self.written_length());
                self.write(&mut out);
                out.len()
            }
        }
    }

    /// Returns the client's statement as it was sent; for findAndModify the whole command body.
    pub(super) fn source(&self) -> Document<'a> {
        self.source
    }

    pub(super) fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    pub(super) fn form(&self) -> WriteForm {
        self.form
    }

    /// Returns the length in bytes of the client's statement; for findAndModify of the whole command body.
    pub fn source_length(&self) -> usize {
        self.source.as_bytes().len()
    }

    /// Returns the document that the statement stores unchanged: an inserted one or a replacement.
    pub fn stored(&self) -> Option<Document<'_>> {
        match &self.operation {
            Operation::Insert(Insert { document })
            | Operation::Update(Update { modification: Modification::Replacement(document), .. }) => {
                Some(document.as_document())
            }
            Operation::Update(_) | Operation::Delete(_) => None,
        }
    }

    /// Writes the statement as an element of its command's array.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match (&self.operation, self.form) {
            _ if !self.is_rewritten() => out.extend_from_slice(self.source.as_bytes()),
            (Operation::Insert(insert), WriteForm::Insert) => {
                out.extend_from_slice(insert.document.as_document().as_bytes())
            }
            _ => Writer::document(out, |w| {
                self.source.elements().for_each(|element| self.write_field(w, element));
                self.write_added_fields(w);
            }),
        }
    }

    /// Copies a field. Fields that rules changed are written with their new values.
    pub(super) fn write_field(&self, w: &mut Writer<'_>, element: Element<'_>) {
        let names = self.form.names();
        match (&self.operation, element.key) {
            (Operation::Insert(insert), b"document") => {
                w.value("document", Value::document(insert.document.as_document()));
            }
            (Operation::Update(update), key) if key == names.filter.as_bytes() => {
                w.value(names.filter, Value::document(update.selection().as_document()));
            }
            (Operation::Delete(delete), key) if key == names.filter.as_bytes() => {
                w.value(names.filter, Value::document(delete.filter.as_document()));
            }
            (Operation::Update(update), key) if key == names.update.as_bytes() => {
                update.modification.write(w, names.update);
            }
            (Operation::Update(update), b"upsert") => w.boolean("upsert", update.upsert),
            // Some servers do not accept even an empty list with a pipeline. Those of a replacement are ignored by the
            // server, but rejected beside operators that do not use them, and beside a pipeline.
            (Operation::Update(Update { array_filters: false, .. }), b"arrayFilters") => {}
            (Operation::Update(Update { modification: Modification::Pipeline(pipeline), .. }), b"arrayFilters")
                if matches!(pipeline.meaning, Modification::Replacement(_)) => {}
            (Operation::Update(update), b"arrayFilters") => self.write_array_filters(w, &update.modification, element),
            _ => w.element(element),
        }
    }
}

impl Statement<'_> {
    /// Writes the array filters that the operators use after the changes of rules.
    fn write_array_filters(&self, w: &mut Writer<'_>, modification: &Modification<'_>, element: Element<'_>) {
        let own = self.source.get(self.form.names().update).and_then(Value::as_document);
        let needed = match (own, modification) {
            (Some(own), Modification::Operators(sent)) if modification.is_rewritten() => {
                array_filters::needed(element.value, own, sent.as_document())
            }
            _ => None,
        };
        match needed {
            Some(needed) if needed.clone().next().is_none() => {}
            Some(needed) => w.array("arrayFilters", |a| needed.for_each(|filter| a.value(filter))),
            None => w.element(element),
        }
    }

    /// Writes the fields of a findAndModify that executes the statement, after the command's name.
    pub fn write_as_find_and_modify(&self, w: &mut Writer<'_>) {
        if let Some(selection) = self.selection() {
            w.value("query", Value::document(selection.as_document()));
        }
        match &self.operation {
            Operation::Update(update) => {
                update.modification.write(w, "update");
                w.boolean("upsert", update.upsert);
            }
            _ => w.boolean("remove", true),
        }
        for element in self.source.elements() {
            match element.key {
                b"arrayFilters" => self.write_field(w, element),
                b"sort" | b"hint" | b"collation" => w.element(element),
                _ => {}
            }
        }
    }

    /// Writes the fields that rules add: the filter of a findAndModify without query, and `upsert`.
    pub(super) fn write_added_fields(&self, w: &mut Writer<'_>) {
        let name = self.form.names().filter;
        let filter = match &self.operation {
            Operation::Update(update) => update.selection(),
            Operation::Delete(delete) => Cow::Borrowed(&delete.filter),
            Operation::Insert(_) => return,
        };
        if filter.is_rewritten() && self.source.get(name).is_none() {
            w.value(name, Value::document(filter.as_document()));
        }
        if let Operation::Update(Update { upsert: true, .. }) = &self.operation
            && self.source.get("upsert").is_none()
        {
            w.boolean("upsert", true);
        }
    }
}

impl<'a> Modification<'a> {
    /// Returns a pipeline of docward with one stage, which was made from `meaning`.
    pub fn stage(stage: CowDocument<'a>, meaning: Self, may_keep: bool) -> Self {
        Self::Pipeline(Box::new(Pipeline::new(vec![stage], meaning, may_keep)))
    }

    /// Returns whether it is a pipeline that can leave stored values as they are.
    pub fn may_keep(&self) -> bool {
        matches!(self, Self::Pipeline(pipeline) if pipeline.may_keep)
    }
}

impl Update<'_> {
    /// Returns the operators, or those that docward's pipeline was made from.
    pub fn operators(&self) -> Option<Document<'_>> {
        match self.modification.meaning() {
            Modification::Operators(operators) => Some(operators.as_document()),
            _ => None,
        }
    }
}

impl Modification<'_> {
    /// Returns the modification that docward's pipeline was made from, or the modification itself.
    pub fn meaning(&self) -> &Self {
        match self {
            Self::Pipeline(pipeline) => pipeline.meaning.meaning(),
            other => other,
        }
    }

    fn is_rewritten(&self) -> bool {
        match self {
            Self::Replacement(document) | Self::Operators(document) => document.is_rewritten(),
            Self::ClientPipeline(_) => false,
            Self::Pipeline(_) => true,
        }
    }

    fn rewritten_length(&self) -> usize {
        /// Bytes of tag, index and terminator of an element of the stages.
        const ENTRY: usize = 8;
        match self {
            Self::Replacement(document) | Self::Operators(document) => document.rewritten_length(),
            Self::ClientPipeline(_) => 0,
            Self::Pipeline(pipeline) => pipeline.sent().map(|stage| stage.rewritten_length() + ENTRY).sum(),
        }
    }

    fn write(&self, w: &mut Writer<'_>, key: &str) {
        match self {
            Self::Replacement(document) | Self::Operators(document) => {
                w.value(key, Value::document(document.as_document()));
            }
            Self::ClientPipeline(stages) => w.value(key, Value { kind: Kind::Array, bytes: stages.as_bytes() }),
            Self::Pipeline(pipeline) => w.array(key, |a| {
                pipeline.sent().for_each(|stage| a.value(Value::document(stage.as_document())));
            }),
        }
    }
}
