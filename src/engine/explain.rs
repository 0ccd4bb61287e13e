//! `explain` of a protected command: the plan of what docward would send, or the rejection it would give.

use std::ops::ControlFlow;

use smallvec::SmallVec;

use super::Session;
use super::judge::{Judging, asks_for_users, bench};
use super::plan::{Plan, Refuse, Step, reject_command, with_fields, write_with_fields};
use crate::command::{Batch, Command, Form, refuse_duplicates};
use crate::document::{CowDocument, OwnedValue, Value};

const PLACE: &str = "the explained command";

impl<'f> Plan<'f> {
    pub(super) fn explain(&mut self, command: &Command<'f>, session: &Session) -> Result<Step, Refuse> {
        let expects_reply = !command.message.more_to_come();
        let forward = Step::ForwardOriginal { expects_reply };
        let Some(inner) = explained(command)? else { return Ok(forward) };
        let Some(namespace) = inner.collection() else { return Ok(forward) };
        let bench = bench(self.rules, namespace, session);
        if asks_for_users(&bench, session) {
            return Ok(self.ask_for_users(command));
        }
        if bench.is_empty() {
            return Ok(forward);
        }
        let class = inner.class;
        let changes = match self.judge_whole(&inner, class, &bench) {
            ControlFlow::Continue(changes) => changes,
            ControlFlow::Break(step) => return Ok(step),
        };
        let body = match Form::of(class) {
            Some(form) => {
                let mut batch = Batch::read(&inner, form)?;
                batch.body_changes = changes;
                let mut judging = Judging::new(&mut batch, SmallVec::from_elem(bench, 1), true);
                while !judging.take_turn(&batch, self.now, &mut self.observations) {}
                let judged = judging.into_judged();
                if let Some((refused, judged)) =
                    judged.iter().find_map(|j| j.refused.as_ref().or(j.only_new.as_ref()).map(|refused| (refused, j)))
                {
                    return Ok(reject_command(command, refused, judged.statement.kind_name(), namespace));
                }
                batch.encode_body(&inner, judged.iter().map(|judged| &judged.statement))
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

/// The command inside, as if it had come by itself. `None`: what is there is for mongod to judge.
pub(super) fn explained<'a>(command: &Command<'a>) -> Result<Option<Command<'a>>, Refuse> {
    let Some(body) = command.target.as_document() else { return Ok(None) };
    refuse_duplicates(body, PLACE)?;
    Ok(command.nested(body))
}
