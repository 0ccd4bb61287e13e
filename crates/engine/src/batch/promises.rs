//! Keeps the promises for the documents that a checked statement has written: sets what the rules settle, and asks each
//! promise for the document before and as it then is.

use super::super::batch_evaluation::ComparedFields;
use super::super::outcome::OutcomeKind;
use super::checked::ReadIn;
use super::checked_reply::{WrittenDocument, as_client_form};
use super::ending::Fate;
use super::selected::{SelectedDocuments, by_id, settled_of};
use super::transaction::{AttemptEnd, AttemptResult, RestartReason, SentCommands, TransactionAttempt};
use crate::command::{Reply, Statement};
use crate::document::{CowDocument, Document, OwnedValue, Value};
use crate::patterns::collation::write_simple_collation;
use crate::patterns::{BeforeAndAfter, Broken, Facts, Rejection, Settled, SettledValue};
use crate::rules::Rule;
use crate::shell::value_text;
use crate::text::shorten;

impl<'f> TransactionAttempt<'_, 'f> {
    /// Settles the documents, then asks the promise of each rule for which the statement is not plain, and of all rules for
    /// documents that were settled. Aborts and rejects the statement if one does not hold, or replies that it matches nothing
    /// if the rule makes no error of it. `reply` is the server's to the statement. Returns the settled documents.
    pub(super) async fn keep_promises(
        &mut self,
        statement: &Statement<'f>,
        written: &[BeforeAndAfter<'_>],
        reply: &Reply<'_>,
    ) -> AttemptResult<Vec<Vec<u8>>> {
        let evaluated = self.job.evaluated.get(self.index);
        let reserved = evaluated.map_or(&[][..], |evaluated| &evaluated.numbers_on_insert);
        let reserved = reserved.iter().map(|(rule, number)| (rule.numbers.field(), *number));
        let checked = evaluated.map_or(&[][..], |evaluated| &evaluated.checked).to_vec();
        let beside = evaluated.map_or(&[][..], |evaluated| &evaluated.beside).to_vec();
        let compared = ComparedFields::new(checked.iter().chain(&beside).copied());
        let facts = Facts::new(statement, compared.context(self.job.now, &self.job.batch, statement), reserved);
        let (mut ids, mut changes, mut settling) = (Vec::new(), Vec::new(), None);
        for (before, after) in written {
            let Some(after) = after else { continue };
            let settle = |rule: &&'f Rule| (*rule, rule.pattern.settle(*before, *after, &facts));
            let settled: Vec<(&Rule, Vec<Settled>)> =
                checked.iter().map(settle).filter(|(_, settled)| !settled.is_empty()).collect();
            if let (Some((rule, _)), Some(id)) = (settled.first(), after.get("_id")) {
                settling = settling.or(Some(*rule));
                changes.push(settling_update(id, settled.iter().flat_map(|(_, settled)| settled)));
                ids.push(OwnedValue::from(id));
            }
        }
        let frames = match settling {
            None => Vec::new(),
            Some(rule) => {
                let update = self.commands().write(statement, "update", "updates", &changes);
                self.add_writes(rule, (update, changes.len())).await?;
                let settled = SelectedDocuments(ids);
                self.read_documents(statement, &settled, ReadIn::Transaction).await?
            }
        };
        let settled = by_id(&frames);
        for (before, after) in written.iter().copied() {
            let now = settled_of(&settled, (before, after));
            let rules = checked.iter().chain(beside.iter().filter(|_| now.is_some()));
            let broken = rules.copied().find_map(|rule: &'f Rule| {
                let broken = rule.pattern.promise((before, now.or(after)), &facts).err()?;
                Some((rule, broken))
            });
            if let Some((rule, broken)) = broken {
                let id = after.or(before).and_then(|document| document.get("_id"));
                let broken = Broken { rejection: with_id(broken.rejection, id), ..broken };
                return self.end_broken(statement, (rule, broken), reply).await;
            }
        }
        for rule in checked {
            if let Some((collection, statements)) = rule.pattern.writes_beside(written, &facts) {
                let update = self.commands().update_in(collection, &statements);
                self.add_writes(rule, (update, statements.len())).await?;
            }
        }
        drop(settled);
        AttemptResult::Continue(frames)
    }

    /// Returns the reply to a statement with the document as it is after it was settled, if the client asks for that.
    pub(super) async fn with_settled(
        &mut self,
        statement: &Statement<'f>,
        frame: Vec<u8>,
        settled: &[Vec<u8>],
    ) -> AttemptResult<Vec<u8>> {
        let returns_new = statement.option("new").and_then(Value::as_flag) == Some(true);
        let id = by_id(settled).into_keys().next().filter(|_| returns_new);
        let Some(id) = id else { return AttemptResult::Continue(frame) };
        let filter = CowDocument::build(|w| w.nested("_id", |w| w.value("$eq", id.as_value())));
        let fields = self.job.returned_fields(statement).unwrap_or(Document::EMPTY);
        let find = self.commands().find(statement, filter.as_document(), 1, fields);
        let found = self.exchange(find).await;
        let Some(found) = self.accept(&found)? else {
            return self.take_failure(SentCommands::Find, found).await;
        };
        let document = found.found().and_then(|documents| documents.first().copied());
        let reply = super::transaction::parse(&frame)?;
        AttemptResult::Continue(reply.with_body(self.job.command.message.header.request_id, |w| {
            for element in reply.body.elements() {
                match document.filter(|_| element.key == b"value") {
                    Some(document) => w.value("value", Value::document(document)),
                    None => w.element(element),
                }
            }
        }))
    }

    async fn end_broken<T>(
        &mut self,
        statement: &Statement<'f>,
        (rule, Broken { rejection, is_ignored }): (&'f Rule, Broken),
        reply: &Reply<'_>,
    ) -> AttemptResult<T> {
        let is_own = self.own.is_some();
        // What was read outside is the state before only while the transaction held the documents.
        if is_own && !matches!(self.abort().await?, Fate::Aborted) {
            return AttemptResult::Break(AttemptEnd::Again(RestartReason::WriteConflict));
        }
        if !is_ignored || statement.is_multi() || !is_own {
            return AttemptResult::Break(self.reject(rule, rejection));
        }
        let namespace = self.job.batch.namespace(statement);
        let text = (rejection.reason.as_str(), rejection.hint.as_str());
        self.port.outcomes(|outcomes| outcomes.settle(rule, namespace, OutcomeKind::NoMatch, text, (1, false)));
        let nothing = WrittenDocument::NOTHING;
        let nothing = as_client_form(&self.job.command, self.job.batch.form, statement, reply, &nothing, None);
        AttemptResult::Break(AttemptEnd::Reply(nothing))
    }
}

/// Returns the statement that settles one document.
fn settling_update<'s>(id: Value<'_>, settled: impl Iterator<Item = &'s Settled> + Clone) -> CowDocument<'static> {
    const OPERATORS: [&str; 3] = ["$set", "$unset", "$currentDate"];
    let operator = |one: &Settled| match one.value {
        SettledValue::Value(_) => OPERATORS[0],
        SettledValue::Removed => OPERATORS[1],
        SettledValue::ServerTime => OPERATORS[2],
    };
    CowDocument::build(|w| {
        w.nested("q", |w| w.nested("_id", |w| w.value("$eq", id)));
        w.nested("u", |w| {
            for name in OPERATORS {
                let mut fields = settled.clone().filter(|one| operator(one) == name).peekable();
                if fields.peek().is_some() {
                    w.nested(name, |w| {
                        fields.for_each(|Settled { field, value }| match value {
                            SettledValue::Value(value) => w.value(field.as_str(), value.as_value()),
                            SettledValue::Removed | SettledValue::ServerTime => w.boolean(field.as_str(), true),
                        });
                    });
                }
            }
        });
        write_simple_collation(w);
    })
}

fn with_id(mut broken: Rejection, id: Option<Value<'_>>) -> Rejection {
    const LONGEST: usize = 100;
    if let Some(id) = id {
        let mut text = value_text(id);
        shorten(&mut text, LONGEST);
        broken.reason.push_str(&format!(", in the document with _id {text}"));
    }
    broken
}
