//! Keeps the promises for the documents that a checked statement has written: sets what the rules settle, and asks each
//! promise for the document before and as it then is.

use super::super::outcome::OutcomeKind;
use super::super::port::Port;
use super::BatchJob;
use super::checked::ReadIn;
use super::checked_reply::{WrittenDocument, as_client_form};
use super::selected::{SelectedDocuments, by_id};
use super::transaction::{AttemptEnd, AttemptResult, SentCommands, TransactionAttempt};
use crate::command::{Reply, Statement};
use crate::document::{CowDocument, Document, OwnedValue, Value};
use crate::patterns::collation::write_simple_collation;
use crate::patterns::{BeforeAndAfter, Broken, Facts, Rejection, Settled};
use crate::rules::Rule;
use crate::shell::value_text;
use crate::text::shorten;

impl<'f> BatchJob<'f> {
    /// Settles the documents, then asks the promise of each rule for which the statement is not plain, and of all rules for
    /// documents that were settled. Aborts and rejects the statement if one does not hold, or replies that it matches nothing
    /// if the rule makes no error of it. `reply` is the server's to the statement. Returns the settled documents.
    pub(super) async fn keep_promises(
        &mut self,
        transaction: &mut TransactionAttempt<'f>,
        statement: &Statement<'f>,
        written: &[BeforeAndAfter<'_>],
        reply: &Reply<'_>,
        port: &Port,
    ) -> AttemptResult<Vec<Vec<u8>>> {
        let evaluated = self.evaluated.get(transaction.index);
        let reserved = evaluated.map_or(&[][..], |evaluated| &evaluated.numbers_on_insert);
        let reserved = reserved.iter().map(|(rule, number)| (rule.numbers.field(), *number));
        let facts = Facts::new(statement, self.batch.namespace(statement), reserved);
        let checked = evaluated.map_or(&[][..], |evaluated| &evaluated.checked).to_vec();
        let beside = evaluated.map_or(&[][..], |evaluated| &evaluated.beside).to_vec();
        let (mut ids, mut changes, mut settling) = (Vec::new(), Vec::new(), None);
        for (before, after) in written {
            let Some(after) = after else { continue };
            let settle = |rule: &&'f Rule| (*rule, rule.pattern.settle(*before, *after, &facts));
            let settled: Vec<(&Rule, Vec<Settled<'_>>)> =
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
                let update = self.commands(transaction.own).write(statement, "update", "updates", &changes);
                self.add_writes(transaction, rule, (update, changes.len()), port).await?;
                let settled = SelectedDocuments(ids);
                self.read_documents(transaction, statement, &settled, ReadIn::Transaction, port).await?
            }
        };
        let settled = by_id(&frames);
        for (before, after) in written {
            let id = after.or(*before).and_then(|document| document.get("_id"));
            let now = id.and_then(|id| settled.get(&OwnedValue::from(id)).copied());
            let rules = checked.iter().chain(beside.iter().filter(|_| now.is_some()));
            let broken = rules.copied().find_map(|rule: &'f Rule| {
                let broken = rule.pattern.promise(*before, now.or(*after), &facts).err()?;
                Some((rule, broken))
            });
            if let Some((rule, broken)) = broken {
                let broken = Broken { rejection: with_id(broken.rejection, id), ..broken };
                return self.end_broken(transaction, statement, (rule, broken), reply, port).await;
            }
        }
        for rule in checked {
            if let Some((collection, statements)) = rule.pattern.writes_beside(written, &facts) {
                let update = self.commands(transaction.own).update_in(collection, &statements);
                self.add_writes(transaction, rule, (update, statements.len()), port).await?;
            }
        }
        drop(settled);
        AttemptResult::Continue(frames)
    }

    /// Returns the reply to a statement with the document as it is after it was settled, if the client asks for that.
    pub(super) async fn with_settled(
        &mut self,
        transaction: &mut TransactionAttempt<'f>,
        statement: &Statement<'f>,
        frame: Vec<u8>,
        settled: &[Vec<u8>],
        port: &Port,
    ) -> AttemptResult<Vec<u8>> {
        let returns_new = statement.option("new").and_then(Value::as_flag) == Some(true);
        let id = by_id(settled).into_keys().next().filter(|_| returns_new);
        let Some(id) = id else { return AttemptResult::Continue(frame) };
        let filter = CowDocument::build(|w| w.nested("_id", |w| w.value("$eq", id.as_value())));
        let fields = statement.returned_fields().unwrap_or(Document::EMPTY);
        let find = self.commands(transaction.own).find(statement, filter.as_document(), 1, fields);
        let found = self.exchange(transaction, find, port).await;
        let Some(found) = transaction.accept(&found)? else {
            return self.take_failure(transaction, SentCommands::Find, found, port).await;
        };
        let document = found.found().and_then(|documents| documents.first().copied());
        let reply = super::transaction::parse(&frame)?;
        AttemptResult::Continue(reply.with_body(self.command.message.header.request_id, |w| {
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
        transaction: &mut TransactionAttempt<'f>,
        statement: &Statement<'f>,
        (rule, Broken { rejection, is_ignored }): (&'f Rule, Broken),
        reply: &Reply<'_>,
        port: &Port,
    ) -> AttemptResult<T> {
        if !is_ignored || statement.is_multi() || transaction.own.is_none() {
            return self.give_up(transaction, rule, rejection, port).await;
        }
        let namespace = self.batch.namespace(statement);
        let text = (rejection.reason.as_str(), rejection.hint.as_str());
        port.outcomes(|outcomes| outcomes.settle(rule, namespace, OutcomeKind::NoMatch, text, (1, false)));
        let nothing = WrittenDocument::NOTHING;
        let nothing = as_client_form(&self.command, self.batch.form, statement, reply, &nothing, None);
        AttemptResult::Break(self.abort_and(transaction, AttemptEnd::Reply(nothing), port).await)
    }
}

/// Returns the statement that settles one document.
fn settling_update<'s>(id: Value<'_>, settled: impl Iterator<Item = &'s Settled<'s>> + Clone) -> CowDocument<'static> {
    let values = || settled.clone().filter_map(|one| Some((one.field, one.value.as_ref()?)));
    let times = || settled.clone().filter(|one| one.value.is_none()).map(|one| one.field);
    CowDocument::build(|w| {
        w.nested("q", |w| w.nested("_id", |w| w.value("$eq", id)));
        w.nested("u", |w| {
            if values().next().is_some() {
                w.nested("$set", |w| values().for_each(|(field, value)| w.value(field.as_str(), value.as_value())));
            }
            if times().next().is_some() {
                w.nested("$currentDate", |w| times().for_each(|field| w.boolean(field.as_str(), true)));
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
