//! One match check for many statements that are rejected if their filters match a document.
//!
//! The check is an update command with each statement's filter, collation and hint, and an update that the server
//! rejects for every document: to remove `_id`. Error 66 (ImmutableField) means that the filter matches; nothing is
//! ever written. So the server plans, authorises and routes each filter like the statement itself, and each fails
//! separately. If such a check is inconclusive, a find follows (`conflicts.rs`).

use super::super::merge;
use super::super::port::{CommandPurpose, Flow, Port, parse_reply};
use super::{BatchJob, Group, UpsertStage};
use crate::command::{Reply, Statement, WriteForm, code};
use crate::document::{Document, Value};

/// The maximum of statements in one check. Larger checks are not faster, and keep a thread of the server longer: the
/// commands of other clients wait for it.
const MOST: usize = 128;
/// Maximum bytes of statements in one check; a single larger statement is allowed.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// How many statements the next check may contain. An insert makes earlier checks outdated, so the check after an
/// insert starts small. Then few statements are checked twice, even if matching and inserting ones alternate.
#[derive(Debug)]
pub(super) struct CheckLimit(usize);

impl Default for CheckLimit {
    fn default() -> Self {
        Self(MOST)
    }
}

/// The result of a check for one statement.
enum CheckResult<'r> {
    Match,
    Nothing,
    /// The statement's own error.
    Failed(Document<'r>),
    /// Inconclusive; a find decides.
    Unclear,
}

impl<'f> BatchJob<'f> {
    /// Joins the first group with the following ones that can be sent with it: match checks, or updates that match only
    /// what an earlier send has inserted ([`Self::decide_each`]).
    pub(super) fn join_groups(&mut self) {
        let Some(group) = self.groups.front() else { return };
        let (stage, Some(first), mut bytes) = (group.stage, self.joinable(group), 0) else { return };
        let fits = |group: &&Group| {
            self.joinable(group).is_some_and(|statement| {
                bytes += statement.source_length();
                bytes <= MOST_BYTES && group.stage == stage && statement.namespace == first.namespace
            })
        };
        let count = self.groups.iter().take(self.check_limit.0).take_while(fits).count();
        if count > 1 {
            let statements = self.groups.drain(..count).flat_map(|group| group.statements).collect();
            self.groups.push_front(Group { stage, ..Group::new(statements) });
        }
    }

    /// Returns the statement of a group that may be joined with others. In a transaction there is none: the first error
    /// aborts it.
    fn joinable(&self, group: &Group) -> Option<&Statement<'f>> {
        let [index] = group.statements.as_slice() else { return None };
        let evaluated = self.evaluated.get(*index)?;
        let may_join = matches!(group.stage, UpsertStage::CheckMatch | UpsertStage::Update)
            && !group.alone
            && !self.in_transaction()
            && evaluated.prerequisites.is_only_new()
            && !evaluated.needs_transaction()
            && evaluated.optimistic_rules().next().is_none();
        may_join.then_some(&evaluated.statement)
    }

    /// Takes the reply to several statements that can match a document only if they were sent before and inserted it.
    pub(super) fn decide_each(&mut self, group: Group, reply: &Reply<'_>, errors: &[(usize, Document<'_>)]) {
        let failed = |position: usize| errors.iter().find(|(failed, _)| *failed == position).map(|(_, error)| *error);
        let first_failed = errors.first().map(|(position, _)| *position);
        let mut next = Vec::with_capacity(group.statements.len());
        for (position, index) in group.statements.into_iter().enumerate() {
            let stopped = self.stops_on_error() && first_failed.is_some_and(|first| position >= first);
            match failed(position) {
                // The reply does not show which of them has a record. In an ordered batch the statements from the
                // first error on are undecided.
                _ if merge::matched(reply, self.batch.form) > 0 || stopped => {
                    let alone = !stopped || first_failed == Some(position);
                    next.push(Group { stage: UpsertStage::Update, alone, ..Group::new(vec![index]) });
                }
                Some(error) => self.merged.fail(index, error, ""),
                None => next.push(checking(index)),
            }
        }
        self.continue_with_all(next);
    }

    /// Checks what the filters of all statements of a group match, and continues with them.
    pub(super) async fn check_matches(&mut self, group: Group, port: &Port) -> Flow {
        if group.statements.len() == 1 {
            return self.check_before_insert(group, port).await;
        }
        let evaluated = group.statements.iter().filter_map(|index| self.evaluated.get(*index));
        let statements: Vec<_> = evaluated.map(|evaluated| &evaluated.statement).collect();
        let Some(first) = statements.first() else { return Flow::Continue(()) };
        let check = || self.commands(None).match_all(self.batch.namespace(first), &statements);
        let frame = self.exchange_part(CommandPurpose::MatchCheck, check(), check, port).await;
        self.transaction_begun = true;
        self.take_match_checks(group, &frame, port)
    }

    fn take_match_checks(&mut self, group: Group, frame: &[u8], port: &Port) -> Flow {
        let reply = parse_reply(frame, "a match check")?;
        if !reply.is_ok() {
            return self.take_command_error(&group, &reply);
        }
        let errors = merge::errors_of_sent(&reply, WriteForm::Update, group.statements.len())?;
        let mut errors = errors.into_iter().peekable();
        // Statements that match nothing and insert nothing.
        let mut ineffective = Vec::new();
        for (position, index) in group.statements.iter().copied().enumerate() {
            let Some(evaluated) = self.evaluated.get(index) else { continue };
            let error = errors.next_if(|(failed, _)| *failed == position).map(|(_, error)| error);
            // An update took place, which should be impossible.
            let result = if reply.n() > 0 { CheckResult::Unclear } else { CheckResult::from_error(error) };
            let rejected = match result {
                CheckResult::Match => evaluated.rejection_before_insert(true),
                CheckResult::Nothing => evaluated.rejection_before_insert(false),
                CheckResult::Failed(_) | CheckResult::Unclear => None,
            };
            let ends = self.stops_on_error() && !matches!((&result, &rejected), (CheckResult::Nothing, None));
            if ends && !ineffective.is_empty() {
                // An earlier statement may still fail.
                let rest = group.statements.get(position..).unwrap_or_default();
                return self.queue_after_check(ineffective, None, rest);
            }
            match (result, rejected) {
                (_, Some(rejected)) => {
                    self.reject_unmatched(index, rejected, port);
                    if self.stopped {
                        return Flow::Continue(());
                    }
                }
                (CheckResult::Nothing, None) if self.is(index, |one| one.statement.is_upsert()) => {
                    let rest = group.statements.get(position + 1..).unwrap_or_default();
                    let insert = Group { stage: UpsertStage::Insert, ..Group::new(vec![index]) };
                    return self.queue_after_check(ineffective, Some(insert), rest);
                }
                (CheckResult::Nothing, None) => ineffective.push(index),
                (CheckResult::Failed(error), None) => {
                    self.merged.fail(index, error, "");
                    if self.stops_on_error() {
                        self.stopped = true;
                        return Flow::Continue(());
                    }
                }
                // What it inserts may match the filters of the statements after it.
                (CheckResult::Match | CheckResult::Unclear, None) => {
                    let unclear = Group { alone: true, ..checking(index) };
                    let rest = group.statements.get(position + 1..).unwrap_or_default();
                    return self.queue_after_check(ineffective, Some(unclear), rest);
                }
            }
        }
        self.queue_after_check(ineffective, None, &[])
    }

    /// Queues the statements without an effect, the next one, and new checks for the rest.
    fn queue_after_check(&mut self, ineffective: Vec<usize>, next: Option<Group>, rest: &[usize]) -> Flow {
        if next.is_some() {
            self.check_limit = CheckLimit(1);
        } else if rest.is_empty() {
            self.check_limit = CheckLimit((self.check_limit.0 * 2).min(MOST));
        }
        let mut groups = Vec::with_capacity(rest.len() + 2);
        if !ineffective.is_empty() {
            groups.push(Group { stage: UpsertStage::Insert, ..Group::new(ineffective) });
        }
        groups.extend(next);
        groups.extend(rest.iter().copied().map(checking));
        self.continue_with_all(groups);
        Flow::Continue(())
    }

    fn continue_with_all(&mut self, next: Vec<Group>) {
        next.into_iter().rev().for_each(|group| self.continue_with(group));
    }
}

/// Returns a group that checks a statement before it may insert.
fn checking(index: usize) -> Group {
    Group { stage: UpsertStage::CheckMatch, ..Group::new(vec![index]) }
}

impl<'r> CheckResult<'r> {
    fn from_error(error: Option<Document<'r>>) -> Self {
        let Some(error) = error else { return Self::Nothing };
        match error.get("code").and_then(Value::as_i32) {
            Some(code::IMMUTABLE_FIELD) => Self::Match,
            Some(code) if super::conflicts::is_filter_error(code) => Self::Failed(error),
            _ => Self::Unclear,
        }
    }
}
