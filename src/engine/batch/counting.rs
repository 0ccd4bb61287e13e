//! Updates that increment a field which may hold what cannot be incremented: the server fails them, and which documents
//! hold what is not known before.
//!
//! One document outside a transaction: the statement goes as it is, and after the server's error once more in the form for
//! what must be stored there. An error would end a transaction, or leave some of many documents changed: there the
//! documents of each kind have their turn, by a statement that matches no others.

use super::{BatchJob, Run, Stage};
use crate::command::{Operation, Reply, Statement, code};
use crate::document::{Document, Value};
use crate::effect::equality;
use crate::engine::merge;
use crate::patterns::Stored;

/// What comes of a statement for documents of one kind.
pub(super) enum Counted {
    /// The next kind has its turn.
    Goes,
    /// All is done.
    Done(Run),
    /// No document of any kind has matched, or the run is another.
    Nothing(Run),
}

impl BatchJob<'_> {
    /// Whether documents are counted each by what it holds.
    pub(super) fn counts_by_kind(&self, index: usize) -> bool {
        let Some(evaluated) = self.evaluated.get(index).filter(|evaluated| evaluated.counted_by.is_some()) else {
            return false;
        };
        (reaches_many(&evaluated.statement) || self.command.session().in_transaction) && evaluated.procedures.is_empty()
    }

    /// Which documents a run is about, where they are counted each by what it holds.
    pub(super) fn kind_of(&self, run: &Run) -> Option<Stored> {
        let index = *run.statements.first()?;
        let counts = matches!(run.stage, Stage::Whole | Stage::Update) && self.counts_by_kind(index);
        counts.then(|| run.counting.unwrap_or(Stored::Number))
    }

    /// The statement for these documents.
    pub(super) fn counted<'s>(&self, index: usize, statement: &Statement<'s>, stored: Stored) -> Statement<'s> {
        let rule = self.evaluated.get(index).and_then(|evaluated| evaluated.counted_by);
        let operation = rule.and_then(|rule| rule.pattern.counting(statement, stored));
        operation.map_or_else(|| statement.clone(), |operation| statement.with(operation).without_upsert())
    }

    /// Goes on with the documents of the next kind, unless all is done.
    pub(super) fn take_counted(&mut self, run: Run, reply: &Reply<'_>, succeeded: bool) -> Counted {
        let (Some(stored), Some(index)) = (self.kind_of(&run), run.statements.first().copied()) else {
            return Counted::Nothing(run);
        };
        let Some(evaluated) = self.evaluated.get(index) else { return Counted::Nothing(run) };
        if !succeeded {
            return Counted::Done(run);
        }
        let (rule, statement) = (evaluated.counted_by, &evaluated.statement);
        let many = reaches_many(statement);
        let upserts = statement.is_upsert();
        let matched = run.matched || merge::matched(reply, self.batch.form) > 0;
        let exists = |stored: &Stored| rule.is_some_and(|rule| rule.pattern.counting(statement, *stored).is_some());
        match stored.next().filter(exists) {
            Some(next) if many || !matched => {
                if matched {
                    self.tally.add(reply, self.batch.form, &run.statements);
                }
                self.go_on(Run { counting: Some(next), matched, ..run });
                Counted::Goes
            }
            _ if matched => Counted::Done(run),
            _ => {
                let stage = if upserts { Stage::Update } else { run.stage };
                Counted::Nothing(Run { stage, counting: None, ..run })
            }
        }
    }

    /// Sends the statements once more whose counting failed, without it; gives the run back if there is none.
    pub(super) fn fall_back(&mut self, run: Run, reply: &Reply<'_>, errors: &[(usize, Document<'_>)]) -> Option<Run> {
        let index = |place: usize| run.statements.get(place).copied();
        let failed = errors.iter().filter_map(|(place, error)| Some((*place, index(*place)?, *error)));
        let failed: Vec<_> = failed.filter(|(_, index, error)| self.uncount(*index, *error, &run)).collect();
        let Some((first, ..)) = failed.first().copied() else { return Some(run) };
        // Whether one of them matches tells whether the stored version has changed meanwhile.
        let failed: Vec<usize> = failed.into_iter().map(|(_, index, _)| index).collect();
        if self.stops_on_error() {
            let (done, rest) = run.statements.split_at(first);
            self.tally.add(reply, self.batch.form, done);
            let rest = rest.get(1..).unwrap_or_default().to_vec();
            if !rest.is_empty() {
                self.go_on(Run { statements: rest, attempts: 0, ..run });
            }
        } else {
            self.tally.add(reply, self.batch.form, &run.statements);
            // Ascending, as the statements of a run are.
            self.tally.retain_errors(|index, _| failed.binary_search(&index).is_err());
        }
        for index in failed.into_iter().rev() {
            self.go_on(Run { attempts: run.attempts + 1, ..self.run_alone(index) });
        }
        None
    }

    /// Takes a rule's counting out of a statement, if that is what the server could not do. Inside a transaction the
    /// server has aborted.
    pub(super) fn uncount(&mut self, index: usize, error: Document<'_>, run: &Run) -> bool {
        /// Others may count, or stop counting, in between; and the error may be the statement's own.
        const MAX_COUNTS: u32 = 4;
        let code = error.get("code").and_then(Value::as_i32);
        let stored = match code {
            Some(code::TYPE_MISMATCH) => Stored::Other,
            Some(code::PATH_NOT_VIABLE) => Stored::Unreachable,
            _ => return false,
        };
        if self.counts_by_kind(index) || self.command.session().in_transaction || run.attempts >= MAX_COUNTS {
            return false;
        }
        let Some(evaluated) = self.evaluated.get_mut(index) else { return false };
        let Some(rule) = evaluated.counted_by.take() else { return false };
        let Some(operation) = rule.pattern.counting(&evaluated.statement, stored) else { return false };
        let uncounted = evaluated.statement.with(operation);
        let counted = std::mem::replace(&mut evaluated.statement, uncounted);
        evaluated.uncounted = Some((rule, counted.operation));
        true
    }

    /// The run that counts, after the version of what is stored has become one that can be counted.
    pub(super) fn count_again(&mut self, run: &Run) -> Option<Run> {
        let index = *run.statements.first()?;
        let evaluated = self.evaluated.get_mut(index)?;
        let (rule, operation) = evaluated.uncounted.take()?;
        evaluated.statement = evaluated.statement.with(operation);
        evaluated.counted_by = Some(rule);
        Some(Run { attempts: run.attempts + 1, ..self.run_alone(index) })
    }
}

/// Whether it may change several documents; under a collation of its own one `_id` may be equal to several.
fn reaches_many(statement: &Statement<'_>) -> bool {
    let Operation::Update(update) = &statement.operation else { return false };
    let pins_one = equality(update.filter.as_document(), "_id").is_some() && statement.option("collation").is_none();
    update.multi && !pins_one
}
