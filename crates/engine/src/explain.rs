//! `explain` of a protected command: explains the rewritten command, or returns the rejection.

use std::borrow::Cow;
use std::ops::ControlFlow;

use smallvec::SmallVec;

use super::ClientState;
use super::applicable_rules::applicable_rules;
use super::batch_evaluation::BatchEvaluation;
use super::evaluation::Evaluated;
use super::message_plan::{Incoming, Unplanned, reject_command, require_users, with_fields, write_with_fields};
use super::outcome::RuleOutcomes;
use super::step::Step;
use crate::command::{Command, CommandError, Statement, WriteBatch, WriteForm, reject_duplicates};
use crate::document::{CowDocument, OwnedValue, Value};

const PART: &str = "the explained command";

impl<'f> Incoming<'f> {
    pub(super) fn explain(
        &mut self,
        command: &Command<'f>,
        client_state: &ClientState,
        outcomes: &mut RuleOutcomes,
    ) -> Result<Step, Unplanned> {
        let expects_reply = !command.message.more_to_come();
        let forward = Step::ForwardOriginal { expects_reply };
        let Some(inner) = explained(command)? else { return Ok(forward) };
        if let Some(step) = self.evaluate_inputs(&inner, client_state, outcomes)? {
            return Ok(step);
        }
        let Some(namespace) = inner.collection() else { return Ok(forward) };
        let applicable_rules = applicable_rules(self.rules, namespace, client_state);
        require_users(&applicable_rules, client_state, command.message.header)?;
        if applicable_rules.is_empty() {
            return Ok(forward);
        }
        let class = inner.class;
        let changes = match self.evaluate_whole(&inner, class, &applicable_rules, outcomes)? {
            ControlFlow::Continue(changes) => changes,
            ControlFlow::Break(step) => return Ok(step),
        };
        let body = match WriteForm::for_class(class) {
            Some(form) => {
                let mut batch = WriteBatch::parse(&inner, form)?;
                batch.body_changes = changes;
                let mut evaluation = BatchEvaluation::new(&mut batch, SmallVec::from_elem(applicable_rules, 1), true);
                while !evaluation.take_turn(&batch, self.now, outcomes) {}
                let evaluated = evaluation.into_evaluated();
                if let Some((rejected, evaluated)) = evaluated.iter().find_map(|one| Some((one.rejected.clone()?, one)))
                {
                    return Ok(reject_command(command, &rejected, evaluated.statement.kind_name(), namespace));
                }
                let statements: Vec<_> = evaluated.iter().map(explained_form).collect();
                batch.encode_body(&inner, statements.iter().map(AsRef::as_ref))
            }
            None => CowDocument::build(|w| write_with_fields(w, inner.body, &changes)),
        };
        if body.as_document() == inner.body {
            return Ok(forward);
        }
        let explained = OwnedValue::from(Value::document(body.as_document()));
        let message = with_fields(&command.message, command.body, &[("explain", explained)]);
        Ok(Step::Forward { message, expects_reply })
    }
}

/// Returns the form of a statement whose plan is of interest. What is only sent if nothing matches the client's filter
/// could not show the plan of that filter.
fn explained_form<'e, 'a>(evaluated: &'e Evaluated<'_, 'a>) -> Cow<'e, Statement<'a>> {
    match evaluated.prerequisites.only_new() {
        Some(_) => Cow::Owned(evaluated.statement.without_conditions()),
        None => evaluated.first_sent(),
    }
}

/// Returns the inner command; `None` when mongod should report the error.
pub(super) fn explained<'a>(command: &Command<'a>) -> Result<Option<Command<'a>>, CommandError> {
    let Some(body) = command.target.as_document() else { return Ok(None) };
    reject_duplicates(body, PART)?;
    Ok(command.nested(body))
}
