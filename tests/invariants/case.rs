//! A case: rules, stored documents, and the commands of a client, with access to the commands' statements.

use bson::{Bson, Document, doc};

use super::lab::PROTECTED;
use super::race::Race;
use super::rules::Rule;
use super::show;
use super::values::{as_number, related};

/// The session in which a command is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Session {
    None,
    /// With a `txnNumber`, as drivers send retryable writes.
    Retryable,
    /// The same, sent twice, as after a lost reply.
    Resent,
    /// In a transaction, which the first of several such steps in succession starts.
    Transaction(End),
}

/// What follows a command in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The next step, in the same transaction.
    More,
    Commit,
    Abort,
}

impl Session {
    pub(super) fn is_retryable(self) -> bool {
        matches!(self, Session::Retryable | Session::Resent)
    }

    pub(super) fn in_transaction(self) -> bool {
        matches!(self, Session::Transaction(_))
    }
}

/// One command; the sender sets its first field's value to the collection.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) command: Document,
    pub(super) session: Session,
    pub(super) race: Option<Race>,
}

#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) rules: Vec<Rule>,
    /// A field with a unique index that has nothing to do with the rules.
    pub(super) unique: Option<&'static str>,
    pub(super) stored: Vec<Document>,
    pub(super) steps: Vec<Step>,
}

impl Case {
    /// A step as it is sent: a transaction without a further step is committed.
    pub(super) fn step(&self, index: usize) -> Step {
        let mut step = self.steps[index].clone();
        let goes_on = self.steps.get(index + 1).is_some_and(|next| next.session.in_transaction());
        if step.session == Session::Transaction(End::More) && !goes_on {
            step.session = Session::Transaction(End::Commit);
        }
        step
    }
}

/// One write of a command, as the server counts them.
#[derive(Clone, Debug, Default)]
pub(super) struct Statement {
    pub(super) kind: Kind,
    pub(super) filter: Document,
    pub(super) update: Option<Bson>,
    pub(super) inserted: Option<Document>,
    pub(super) multi: bool,
    pub(super) upsert: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Insert,
    Update,
    Delete,
}

/// The names of sessions in a written step; one without a name has no session.
const SESSIONS: [(&str, Session); 5] = [
    ("retryable", Session::Retryable),
    ("sent twice", Session::Resent),
    ("in a transaction", Session::Transaction(End::More)),
    ("in a transaction, then commit", Session::Transaction(End::Commit)),
    ("in a transaction, then abort", Session::Transaction(End::Abort)),
];

impl Step {
    /// The step as the corpus has it.
    pub(super) fn written(&self) -> Document {
        let session = SESSIONS.iter().find(|(_, session)| *session == self.session);
        let mut fields: Document =
            session.map(|(name, _)| ("session".to_owned(), Bson::from(*name))).into_iter().collect();
        if let Some(Race { document, after_find }) = &self.race {
            let after = if *after_find { "find" } else { "command" };
            fields.insert("race", doc! { "after": after, "insert": document.clone() });
        }
        fields.insert("command", self.to("c"));
        fields
    }

    /// Reads a step of the corpus.
    pub(super) fn from_written(fields: &Document) -> Step {
        let named = |name: &str| SESSIONS.iter().find(|(known, _)| *known == name).map(|(_, session)| *session);
        let session = fields.get_str("session").map_or(Some(Session::None), named);
        let race = fields.get_document("race").ok().map(|race| Race {
            document: race.get_document("insert").unwrap().clone(),
            after_find: race.get_str("after").unwrap() == "find",
        });
        let command = fields.get_document("command").unwrap().clone();
        Step { command, session: session.unwrap_or_else(|| panic!("unknown session: {fields}")), race }
    }

    pub(super) fn name(&self) -> &str {
        self.command.keys().next().map_or("", String::as_str)
    }

    pub(super) fn is_find_and_modify(&self) -> bool {
        self.name() == "findAndModify"
    }

    pub(super) fn ordered(&self) -> bool {
        self.command.get_bool("ordered").unwrap_or(true)
    }

    /// The command for this collection.
    pub(super) fn to(&self, collection: &str) -> Document {
        let mut fields = self.command.clone();
        let name = self.name().to_owned();
        match fields.get_mut(&name) {
            // An explained command.
            Some(Bson::Document(inner)) => {
                let name = inner.keys().next().cloned().unwrap_or_default();
                inner.insert(name, collection);
            }
            _ => _ = fields.insert(name, collection),
        }
        fields
    }

    pub(super) fn statements(&self) -> Vec<Statement> {
        let command = &self.command;
        let list = |name: &str| -> Vec<Document> {
            let entries = command.get_array(name).into_iter().flatten();
            entries.filter_map(Bson::as_document).cloned().collect()
        };
        let flag = |of: &Document, name: &str| of.get_bool(name).unwrap_or(false);
        match self.name() {
            "insert" => {
                let documents = list("documents").into_iter();
                documents.map(|document| Statement { inserted: Some(document), ..Statement::default() }).collect()
            }
            "update" => list("updates")
                .into_iter()
                .map(|element| Statement {
                    kind: Kind::Update,
                    filter: element.get_document("q").cloned().unwrap_or_default(),
                    update: element.get("u").cloned(),
                    multi: flag(&element, "multi"),
                    upsert: flag(&element, "upsert"),
                    ..Statement::default()
                })
                .collect(),
            "delete" => list("deletes")
                .into_iter()
                .map(|element| Statement {
                    kind: Kind::Delete,
                    filter: element.get_document("q").cloned().unwrap_or_default(),
                    multi: matches!(element.get_i32("limit"), Ok(0)),
                    ..Statement::default()
                })
                .collect(),
            _ => vec![Statement {
                kind: if flag(command, "remove") { Kind::Delete } else { Kind::Update },
                filter: command.get_document("query").cloned().unwrap_or_default(),
                update: command.get("update").cloned(),
                upsert: flag(command, "upsert"),
                ..Statement::default()
            }],
        }
    }

    /// The filter of its first statement; `None` of an insert.
    pub(super) fn filter_mut(&mut self) -> Option<&mut Document> {
        let list = if self.name() == "update" { "updates" } else { "deletes" };
        if self.is_find_and_modify() {
            return self.command.get_document_mut("query").ok();
        }
        let first = self.command.get_array_mut(list).ok()?.first_mut()?;
        first.as_document_mut()?.get_document_mut("q").ok()
    }

    /// The same with another condition in the filter of each statement.
    pub(super) fn with_condition(&self, condition: &Document) -> Step {
        let mut step = self.clone();
        let restrict = |holder: &mut Document, name: &str| {
            if let Ok(filter) = holder.get_document_mut(name) {
                *filter = doc! { "$and": [filter.clone(), condition.clone()] };
            }
        };
        restrict(&mut step.command, "query");
        for name in ["updates", "deletes"] {
            let statements = step.command.get_array_mut(name).into_iter().flatten();
            statements.filter_map(Bson::as_document_mut).for_each(|statement| restrict(statement, "q"));
        }
        step
    }

    /// Whether one of its statements is an upsert.
    pub(super) fn upserts(&self) -> bool {
        self.statements().iter().any(|statement| statement.upsert)
    }

    /// The same without an insert of a document that is not there.
    pub(super) fn without_upsert(&self) -> Step {
        let mut step = self.clone();
        step.command.remove("upsert");
        let updates = step.command.get_array_mut("updates").into_iter().flatten();
        updates.filter_map(Bson::as_document_mut).for_each(|update| drop(update.remove("upsert")));
        step
    }

    /// The same with only these statements of a batch.
    pub(super) fn only(&self, indexes: &[usize]) -> Step {
        let mut step = self.clone();
        for name in ["documents", "updates", "deletes"] {
            if let Ok(list) = step.command.get_array_mut(name) {
                *list = indexes.iter().filter_map(|index| list.get(*index)).cloned().collect();
            }
        }
        step
    }

    /// The indexes of the statements that are executed although these are rejected: the first rejected one ends an
    /// ordered batch.
    pub(super) fn remaining(&self, rejected: &[usize]) -> Vec<usize> {
        let is_before_all = |index: usize| rejected.iter().all(|at| index < *at);
        let is_executed = |index: &usize| is_before_all(*index) || !self.ordered() && !rejected.contains(index);
        (0..self.statements().len()).filter(is_executed).collect()
    }
}

impl Statement {
    /// The replacement document, if it is one.
    pub(super) fn replacement(&self) -> Option<&Document> {
        let document = self.update.as_ref()?.as_document()?;
        (!document.keys().any(|key| key.starts_with('$'))).then_some(document)
    }

    /// The stages of a pipeline.
    pub(super) fn stages(&self) -> impl Iterator<Item = &Document> {
        let stages = self.update.as_ref().and_then(Bson::as_array);
        stages.into_iter().flatten().filter_map(Bson::as_document)
    }

    pub(super) fn is_pipeline(&self) -> bool {
        matches!(self.update, Some(Bson::Array(_)))
    }

    /// Whether it is a pipeline that does more than to set constants and to remove top-level fields, or nothing. A constant
    /// document is merged with the stored one.
    pub(super) fn computes(&self) -> bool {
        let Some(Bson::Array(stages)) = &self.update else { return false };
        if stages.is_empty() {
            return true;
        }
        let is_top_level = |field: &str| !field.contains('.') && !field.starts_with('$') && field != "_id";
        let is_constant = |value: &Bson| match value {
            Bson::String(text) => !text.starts_with('$'),
            Bson::Document(fields) => fields.len() == 1 && fields.contains_key("$literal"),
            Bson::Array(_) => false,
            _ => true,
        };
        let sets = |fields: &Document| fields.iter().all(|(name, value)| is_top_level(name) && is_constant(value));
        !stages.iter().all(|stage| match stage.as_document().and_then(|stage| stage.iter().next()) {
            Some((name, Bson::Document(fields))) if name == "$set" || name == "$addFields" => sets(fields),
            Some((name, Bson::String(field))) if name == "$unset" => is_top_level(field),
            _ => false,
        })
    }

    /// The operators with the paths that they write, without `$setOnInsert`; `$rename` writes two paths.
    pub(super) fn writes(&self) -> Vec<(String, String, Bson)> {
        let Some(Bson::Document(update)) = &self.update else { return Vec::new() };
        let mut found = Vec::new();
        for (operator, paths) in update.iter().filter(|(operator, _)| operator.starts_with('$')) {
            let paths = paths.as_document().cloned().unwrap_or_default();
            for (path, value) in paths {
                if operator == "$rename" {
                    found.push((operator.clone(), value.as_str().unwrap_or("").to_owned(), Bson::Null));
                }
                found.push((operator.clone(), path, value));
            }
        }
        found.retain(|(operator, ..)| operator != "$setOnInsert");
        found
    }

    /// Whether it writes the field, an enclosing document or a part of the field, in any form.
    pub(super) fn touches(&self, field: &str) -> bool {
        match &self.update {
            _ if self.replacement().is_some() => true,
            Some(Bson::Array(stages)) => show::value(&Bson::Array(stages.clone())).contains(first(field)),
            _ => self
                .writes()
                .iter()
                .any(|(_, path, _)| related(path, field) || first(path) == first(field) && has_position(path)),
        }
    }

    /// The fields that the stages of a pipeline set or remove; `None` if one replaces the document.
    pub(super) fn stage_names(&self) -> Option<Vec<String>> {
        let Some(Bson::Array(stages)) = &self.update else { return Some(Vec::new()) };
        let mut names = Vec::new();
        for (stage, fields) in stages.iter().filter_map(Bson::as_document).flatten() {
            match (stage.as_str(), fields) {
                ("$set" | "$addFields", Bson::Document(fields)) => names.extend(fields.keys().cloned()),
                ("$unset", Bson::String(name)) => names.push(name.clone()),
                ("$unset", Bson::Array(all)) => names.extend(all.iter().filter_map(Bson::as_str).map(str::to_owned)),
                _ => return None,
            }
        }
        Some(names)
    }

    /// Whether operators write the field, an enclosing document or a part of the field, by its path.
    pub(super) fn names(&self, field: &str) -> bool {
        self.writes().iter().any(|(_, path, _)| related(path, field))
    }

    /// The value that every matched document has at the field, if the filter states it directly.
    pub(super) fn equality(&self, field: &str) -> Option<&Bson> {
        equality(&self.filter, field)
    }

    /// Whether the filter contains a condition on the field, in any form.
    pub(super) fn queries(&self, field: &str) -> bool {
        queries(&Bson::Document(self.filter.clone()), first(field))
    }
}

/// Whether a condition names the field as a key or, in an expression, as `$field`.
fn queries(condition: &Bson, field: &str) -> bool {
    match condition {
        Bson::Document(fields) => fields.iter().any(|(key, value)| first(key) == field || queries(value, field)),
        Bson::Array(items) => items.iter().any(|item| queries(item, field)),
        Bson::String(text) => text.strip_prefix('$').is_some_and(|path| first(path) == field),
        _ => false,
    }
}

pub(super) fn has_position(path: &str) -> bool {
    path.split('.').any(|part| part.starts_with('$') || part.bytes().all(|byte| byte.is_ascii_digit()))
}

pub(super) fn first(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// The field of a condition that never matches.
pub(super) const NEVER: &str = "zq";

/// Whether the generator has added a condition that never matches.
pub(super) fn never_matches(filter: &Document) -> bool {
    filter.contains_key(NEVER) || filter.contains_key("$alwaysFalse")
}

fn equality<'a>(filter: &'a Document, field: &str) -> Option<&'a Bson> {
    if never_matches(filter) {
        return None;
    }
    let direct = filter.get(field).and_then(|condition| match condition {
        Bson::Document(operators) if operators.keys().any(|key| key.starts_with('$')) => {
            let equal = |name: &str| {
                let list = operators.get_array(name).ok()?;
                let first = list.first()?;
                list.iter().all(|value| is_same(value, first)).then_some(first)
            };
            operators.get("$eq").or_else(|| equal("$in")).or_else(|| equal("$all"))
        }
        Bson::RegularExpression(_) => None,
        value => Some(value),
    });
    let nested = || {
        ["$and", "$or"].into_iter().find_map(|name| {
            let branches = filter.get_array(name).ok()?;
            let usable = name == "$and" || branches.len() == 1;
            branches.iter().filter(|_| usable).find_map(|branch| equality(branch.as_document()?, field))
        })
    };
    direct.or_else(nested)
}

/// Whether two values are equal for the server: a whole number may have another type.
fn is_same(one: &Bson, other: &Bson) -> bool {
    let whole = |value: &Bson| as_number(value).filter(|number| number.fract() == 0.0);
    one == other || whole(one).is_some_and(|number| whole(other) == Some(number))
}

/// Prints the case as the corpus has it; what it must do and have stored is to be added.
impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rules = self.rules.iter().map(|rule| match rule.collection("COLLECTION").as_str() {
            "COLLECTION" => rule.settings(),
            other => format!("namespace: {PROTECTED}.{other}, {}", rule.settings()),
        });
        let steps = (0..self.steps.len()).map(|index| self.step(index).written());
        let unique: Vec<&str> = self.rules.iter().filter_map(|rule| rule.unique()).chain(self.unique).collect();
        let mut fields = doc! { "name": "", "must": "", "rules": rules.collect::<Vec<_>>() };
        if !unique.is_empty() {
            fields.insert("unique", unique);
        }
        fields.extend(doc! { "stored": self.stored.clone(), "steps": steps.collect::<Vec<_>>(), "after": [] });
        f.write_str(&show::case(&fields))
    }
}
