//! Statements before their rules: each goes through the rules of its namespace in the order of their phases,
//! each rule seeing what the one before made of it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::observation::{Observations, Said};
use super::{Now, Session};
use crate::command::{Batch, Namespace, Statement};
use crate::patterns::procedure::Procedure;
use crate::patterns::{Conflict, Context, Rejection, Rewrite, Rule, RuleSet, Verdict};
use crate::rules::{Mode, Unguardable};

/// A statement and what becomes of it.
#[derive(Debug)]
pub(super) struct Judged<'r, 'a> {
    /// As it would be sent.
    pub(super) statement: Statement<'a>,
    /// Set when it is not sent.
    pub(super) refused: Option<Refused<'r>>,
    /// The last rule that changed it.
    pub(super) changed_by: Option<&'r Rule>,
    /// Set when matching nothing is a conflict.
    pub(super) on_no_match: Option<(&'r Rule, Conflict)>,
    /// The rules that want to put a number in.
    pub(super) sequences: SmallVec<[&'r Rule; 1]>,
    /// Set when it needs more than itself.
    pub(super) procedure: Option<(&'r Rule, Arc<dyn Procedure>)>,
    /// How often a transaction was begun for it in vain.
    pub(super) attempts: u32,
    /// How often its transaction was ended by somebody with the same write.
    pub(super) rivalries: u32,
}

#[derive(Debug)]
pub(super) struct Refused<'r> {
    pub(super) rule: &'r Rule,
    pub(super) rejection: Rejection,
}

/// How far a rule may go with a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stance {
    Enforce,
    Shadow,
    Except,
}

impl Stance {
    /// What a rule of this stance says when it rejects.
    pub(super) fn rejects(self) -> Said {
        match self {
            Self::Enforce => Said::Reject,
            Self::Shadow => Said::ShadowReject,
            Self::Except => Said::ExceptReject,
        }
    }

    /// What a rule of this stance says when it rewrites.
    pub(super) fn rewrites(self) -> Said {
        match self {
            Self::Enforce => Said::Rewrite,
            Self::Shadow => Said::ShadowRewrite,
            Self::Except => Said::ExceptRewrite,
        }
    }
}

/// A namespace's rules with their stance towards one client, in the order they judge.
pub(super) type Bench<'r> = SmallVec<[(&'r Rule, Stance); 4]>;

/// The rules that concern a namespace.
pub(super) fn bench<'r>(rules: &'r RuleSet, namespace: Namespace<'_>, session: &Session) -> Bench<'r> {
    let Some(found) = rules.rules_for(namespace.database, namespace.collection) else { return Bench::new() };
    let mut bench = Bench::new();
    for rule in found.iter() {
        bench.push((rule, stance(rule, session)));
    }
    bench
}

/// Whether the stance of a rule cannot be told, because the client's users are not known yet.
pub(super) fn asks_for_users(bench: &Bench<'_>, session: &Session) -> bool {
    session.users.is_none() && bench.iter().any(|(rule, _)| !rule.except.users.is_empty())
}

/// How far a rule goes with a client.
pub(super) fn stance(rule: &Rule, session: &Session) -> Stance {
    let users = session.users.iter().flatten().map(|(database, name)| (database.as_str(), name.as_str()));
    match rule.mode {
        Mode::Shadow => Stance::Shadow,
        _ if rule.except.covers(session.app_name.as_deref(), users) => Stance::Except,
        _ => Stance::Enforce,
    }
}

/// Judges every statement of a batch, which has none afterwards.
pub(super) fn judge_batch<'r, 'a>(
    batch: &mut Batch<'a>,
    benches: &[Bench<'r>],
    now: Now,
    observations: &mut Observations,
) -> Vec<Judged<'r, 'a>> {
    let none = Bench::new();
    let statements = std::mem::take(&mut batch.statements);
    let judge = |statement: Statement<'a>| {
        let bench = benches.get(statement.namespace).unwrap_or(&none);
        let namespace = batch.namespace(&statement);
        let context = Context { now: now.milliseconds, comment: batch.comment, namespace };
        judge_statement(statement, bench, &context, observations)
    };
    statements.into_iter().map(judge).collect()
}

fn judge_statement<'r, 'a>(
    statement: Statement<'a>,
    bench: &Bench<'r>,
    context: &Context<'_>,
    observations: &mut Observations,
) -> Judged<'r, 'a> {
    let mut judged = Judged {
        statement,
        refused: None,
        changed_by: None,
        on_no_match: None,
        sequences: SmallVec::new(),
        procedure: None,
        attempts: 0,
        rivalries: 0,
    };
    for (rule, stance) in bench {
        let verdict = rule.pattern.verdict(&judged.statement, context);
        if let Some((said, rejection)) = heard(&verdict, rule, *stance) {
            observations.note(rule, context.namespace, said, rejection);
        }
        if *stance != Stance::Enforce {
            continue;
        }
        match verdict {
            Verdict::Forward => {}
            Verdict::Rewrite(Rewrite { operation, on_no_match }) => {
                judged.statement = judged.statement.with(operation);
                judged.changed_by = Some(rule);
                judged.on_no_match = judged.on_no_match.or(on_no_match.map(|conflict| (*rule, conflict)));
            }
            Verdict::Allocate => {
                judged.changed_by = Some(rule);
                judged.sequences.push(rule);
            }
            // Of the patterns with procedures one rule speaks for a namespace.
            Verdict::Procedure(procedure) => judged.procedure = Some((rule, procedure)),
            Verdict::Unguardable(_) if rule.unguardable == Unguardable::Allow => {}
            Verdict::Reject(rejection) | Verdict::Unguardable(rejection) => {
                judged.refused = Some(Refused { rule, rejection });
                break;
            }
        }
    }
    judged
}

/// What is to be noted of a verdict.
fn heard<'v>(verdict: &'v Verdict<'_>, rule: &Rule, stance: Stance) -> Option<(Said, Option<&'v Rejection>)> {
    match verdict {
        Verdict::Forward => None,
        Verdict::Rewrite(_) | Verdict::Allocate | Verdict::Procedure(_) => Some((stance.rewrites(), None)),
        Verdict::Unguardable(rejection) if rule.unguardable == Unguardable::Allow => {
            Some((Said::Allow, Some(rejection)))
        }
        Verdict::Reject(rejection) | Verdict::Unguardable(rejection) => Some((stance.rejects(), Some(rejection))),
    }
}
