//! Guarded statements that matched nothing.

use super::super::observation::{Observations, Said};
use super::super::{merge, refusal};
use super::{BatchJob, Run};
use crate::command::{Operation, Reply};
use crate::document::Document;
use crate::patterns::{Conflict, Rule};

impl<'f> BatchJob<'f> {
    pub(super) fn on_no_match(&self, index: usize) -> Option<(&'f Rule, Conflict)> {
        self.judged.get(index).and_then(|judged| judged.on_no_match)
    }

    /// A guarded statement that matched nothing, or whose upsert collided with the document it should have
    /// matched.
    pub(super) fn is_conflict(&self, run: &Run, reply: &Reply<'_>, error: Option<Document<'_>>) -> bool {
        let Some(index) = run.statements.first().copied().filter(|index| self.on_no_match(*index).is_some()) else {
            return false;
        };
        match error {
            Some(error) => self.collided(index, error),
            None => merge::matched(reply, self.batch.form) == 0,
        }
    }

    pub(super) fn collided(&self, index: usize, error: Document<'_>) -> bool {
        let Some(Operation::Update(update)) = self.judged.get(index).map(|judged| &judged.statement.operation) else {
            return false;
        };
        update.upsert && merge::is_duplicate_of_filter(error, update.filter.as_document())
    }

    pub(super) fn note_conflict(&mut self, index: usize, server_goes_on: bool, observations: &mut Observations) {
        let Some((rule, conflict)) = self.on_no_match(index) else { return };
        let Some(judged) = self.judged.get_mut(index) else { return };
        let aborted = self.command.session().in_transaction && !server_goes_on;
        if conflict == Conflict::Ignore && !aborted {
            return;
        }
        let namespace = self.batch.namespace(&judged.statement);
        let refused = refusal::conflict(rule);
        observations.note(rule, namespace, Said::Conflict, Some(&refused.rejection));
        judged.refused = Some(refused);
        self.stopped |= self.stops_on_error();
    }
}
