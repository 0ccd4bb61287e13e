//! Statements before their rules: each goes through the rules of its namespace in the order of their phases,
//! each rule seeing what the one before made of it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::observation::{Observations, Said};
use super::{Now, Session};
use crate::command::{Batch, Modification, Namespace, Operation, Statement, code};
use crate::document::Path;
use crate::effect;
use crate::patterns::procedure::Procedure;
use crate::patterns::{Context, Rejection, Rewrite, Rule, RuleSet, Verdict};
use crate::rules::{Mode, Unsupported};

/// A statement and what becomes of it.
#[derive(Debug)]
pub(super) struct Judged<'r, 'a> {
    /// As it would be sent.
    pub(super) statement: Statement<'a>,
    /// Set when it is not sent.
    pub(super) refused: Option<Refused<'r>>,
    /// The last rule that changed it.
    pub(super) changed_by: Option<&'r Rule>,
    /// The rules that decide what it means when it matches nothing.
    pub(super) unmatched: SmallVec<[&'r Rule; 1]>,
    /// The rule that explains the server's errors, because it may have caused them.
    pub(super) explained_by: Option<&'r Rule>,
    /// The rule whose counting is left out where the server cannot increment what is stored.
    pub(super) counted_by: Option<&'r Rule>,
    /// The rule whose counting was left out, and the operation that counts.
    pub(super) uncounted: Option<(&'r Rule, Operation<'a>)>,
    /// Set when it is rejected if its filter matches a document.
    pub(super) only_new: Option<Refused<'r>>,
    /// With `only_new`: a later rule rejects it, whatever its filter matches.
    pub(super) otherwise: Option<Refused<'r>>,
    /// The rules that want to put a number in.
    pub(super) sequences: SmallVec<[&'r Rule; 1]>,
    /// The rules whose promises that number must keep.
    pub(super) promises: SmallVec<[&'r Rule; 1]>,
    /// The rules that are not to issue a number which it brings.
    pub(super) bring: SmallVec<[&'r Rule; 1]>,
    /// What it needs besides itself, by the rules in their order.
    pub(super) procedures: SmallVec<[(&'r Rule, Arc<dyn Procedure>); 1]>,
    /// How often a transaction was begun for it in vain.
    pub(super) attempts: u32,
    /// How often its transaction was ended by somebody with the same write.
    pub(super) rivalries: u32,
}

#[derive(Debug, Clone)]
pub(super) struct Refused<'r> {
    pub(super) rule: &'r Rule,
    pub(super) rejection: Rejection,
}

impl Refused<'_> {
    /// Whether somebody else was faster, rather than the statement wrong.
    pub(super) fn is_conflict(&self) -> bool {
        self.rejection.code == code::WRITE_CONFLICT
    }
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
        _ if rule.except.covers(session.app_name(), users) => Stance::Except,
        _ => Stance::Enforce,
    }
}

/// Statements that are judged before others have their turn, and bytes of them: some hundred microseconds' work.
const TURN: usize = 100;
const TURN_BYTES: usize = 128 * 1024;

/// The judging of a batch, in turns.
#[derive(Debug)]
pub(super) struct Judging<'r, 'a> {
    benches: SmallVec<[Bench<'r>; 1]>,
    versions: SmallVec<[Versions<'r>; 1]>,
    rest: std::vec::IntoIter<Statement<'a>>,
    judged: Vec<Judged<'r, 'a>>,
    /// Nothing behind the first rejection is carried out, so it is not judged.
    stops_on_rejection: bool,
}

impl<'r, 'a> Judging<'r, 'a> {
    /// Takes the statements out of `batch`. `benches`: the rules of its namespaces, in their order.
    pub(super) fn new(batch: &mut Batch<'a>, benches: SmallVec<[Bench<'r>; 1]>, stops_on_rejection: bool) -> Self {
        let statements = std::mem::take(&mut batch.statements);
        let judged = Vec::with_capacity(statements.len());
        let versions = benches.iter().map(versions).collect();
        Self { benches, versions, rest: statements.into_iter(), judged, stops_on_rejection }
    }

    /// Judges the next statements of `batch`; false when there are more.
    pub(super) fn take_turn(&mut self, batch: &Batch<'a>, now: Now, observations: &mut Observations) -> bool {
        let none = Bench::new();
        let mut bytes = 0;
        for statement in self.rest.by_ref().take(TURN) {
            bytes += statement.source_length();
            let bench = self.benches.get(statement.namespace).unwrap_or(&none);
            let context = Context {
                now: now.milliseconds,
                comment: batch.comment,
                variables: batch.variables,
                namespace: batch.namespace(&statement),
                versions: self.versions.get(statement.namespace).map(SmallVec::as_slice).unwrap_or_default(),
            };
            let judged = judge_statement(statement, bench, &context, observations);
            let last = judged.refused.is_some() && self.stops_on_rejection;
            self.judged.push(judged);
            if last {
                return true;
            }
            if bytes >= TURN_BYTES {
                break;
            }
        }
        self.rest.as_slice().is_empty()
    }

    /// What has been judged.
    pub(super) fn into_judged(self) -> Vec<Judged<'r, 'a>> {
        self.judged
    }
}

/// The fields by which clients' filters check that a stored document is as it was read.
type Versions<'r> = SmallVec<[&'r Path; 1]>;

fn versions<'r>(bench: &Bench<'r>) -> Versions<'r> {
    let enforced = bench.iter().filter(|(_, stance)| *stance == Stance::Enforce);
    enforced.filter_map(|(rule, _)| rule.pattern.version()).collect()
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
        unmatched: SmallVec::new(),
        explained_by: None,
        counted_by: None,
        uncounted: None,
        only_new: None,
        otherwise: None,
        sequences: SmallVec::new(),
        promises: SmallVec::new(),
        bring: SmallVec::new(),
        procedures: SmallVec::new(),
        attempts: 0,
        rivalries: 0,
    };
    // A pipeline that only sets constants is judged as the operators that it stands for.
    let original = judged.statement.as_operators().map(|read| std::mem::replace(&mut judged.statement, read));
    for (rule, stance) in bench {
        let verdict = rule.pattern.verdict(&judged.statement, context);
        judged.take(rule, *stance, verdict, context, observations);
        if judged.refused.is_some() || judged.otherwise.is_some() {
            return judged;
        }
    }
    judged.complete(bench, context, observations);
    judged.insert_as_replacement();
    // A procedure sends what it was made for.
    if let (Some(original), None, true) = (original, judged.changed_by, judged.procedures.is_empty()) {
        judged.statement = original;
    }
    judged
}

impl<'r, 'a> Judged<'r, 'a> {
    /// What rules must see of a document for which the statement's conditions do not hold.
    pub(super) fn checked_fields(&self) -> Vec<&'r str> {
        let mut fields = Vec::new();
        for field in self.unmatched.iter().flat_map(|rule| rule.pattern.checked_fields()) {
            // The server refuses a projection of a field and of one inside it.
            let root = |path: &'r str| path.split('.').next().unwrap_or(path);
            if !fields.contains(&root(field)) {
                fields.push(root(field));
            }
        }
        fields
    }

    /// Does what a rule's verdict says.
    fn take(
        &mut self,
        rule: &'r Rule,
        stance: Stance,
        verdict: Verdict<'a>,
        context: &Context<'_>,
        observations: &mut Observations,
    ) {
        // What the rule that may reject it first says of it is known when the document has been looked for.
        if let (Stance::Enforce, Some(_), Some(rejection)) = (stance, &self.only_new, rejected(&verdict, rule)) {
            self.otherwise = Some(Refused { rule, rejection: rejection.clone() });
            return;
        }
        if let Some((said, rejection)) = heard(&verdict, rule, stance) {
            observations.note(rule, context.namespace, said, rejection);
        }
        if stance != Stance::Enforce {
            return;
        }
        match verdict {
            Verdict::Forward => {}
            Verdict::Brings(operation) => {
                if let Some(operation) = operation {
                    self.statement = self.statement.with(operation);
                    self.changed_by = Some(rule);
                }
                self.bring.push(rule);
            }
            Verdict::Rewrite(Rewrite { operation, checks_match }) => {
                self.statement = self.statement.with(operation);
                self.changed_by = Some(rule);
                if rule.pattern.explains_errors() {
                    self.explained_by = Some(rule);
                }
                if checks_match && !self.unmatched.iter().any(|known| known.id == rule.id) {
                    self.unmatched.push(rule);
                }
            }
            Verdict::Counted(operation) => {
                self.statement = self.statement.with(operation);
                self.changed_by = Some(rule);
                self.counted_by = Some(rule);
            }
            Verdict::OnlyNew(operation, rejection) => {
                // The condition also has the server asked by number what it has recorded of an earlier sending.
                self.statement = self.statement.with(operation).insert_only();
                self.changed_by = Some(rule);
                self.only_new = Some(Refused { rule, rejection });
            }
            Verdict::Allocate => {
                self.changed_by = Some(rule);
                self.sequences.push(rule);
            }
            Verdict::Procedure(procedure) => match self.procedures.iter_mut().find(|(known, _)| known.id == rule.id) {
                Some((_, known)) => *known = procedure,
                None => self.procedures.push((rule, procedure)),
            },
            Verdict::Unsupported(_) if rule.unsupported == Unsupported::Allow => {}
            Verdict::Reject(rejection) | Verdict::Unsupported(rejection) => {
                self.refused = Some(Refused { rule, rejection });
            }
        }
    }

    /// Finishes what rules have begun, and holds what will be sent against every rule's promise: a later rule may have
    /// undone what an earlier one checked. The earlier one then judges once more; if that does not help, the
    /// statement is rejected.
    fn complete(&mut self, bench: &Bench<'r>, context: &Context<'_>, observations: &mut Observations) {
        for (rule, stance) in bench {
            let verdict = rule.pattern.finish(&self.statement);
            self.take(rule, *stance, verdict, context, observations);
        }
        // What one rule made of it, it has checked itself.
        if self.changed_by.is_none() || bench.len() < 2 {
            return;
        }
        for rule in bench.iter().filter(|(_, stance)| *stance == Stance::Enforce).map(|(rule, _)| *rule) {
            if self.refused.is_some() {
                return;
            }
            if rule.pattern.holds(&self.statement).is_ok() {
                continue;
            }
            let verdict = rule.pattern.verdict(&self.statement, context);
            if matches!(verdict, Verdict::Unsupported(_)) && rule.unsupported == Unsupported::Allow {
                continue;
            }
            self.take(rule, Stance::Enforce, verdict, context, observations);
            if self.refused.is_none()
                && let Err(broken) = rule.pattern.holds(&self.statement)
            {
                self.refuse_broken(rule, broken, context.namespace, observations);
            }
        }
        if self.refused.is_none() && !self.sequences.is_empty() {
            let enforced = bench.iter().filter(|(_, stance)| *stance == Stance::Enforce).map(|(rule, _)| *rule);
            self.promises = enforced.filter(|rule| rule.pattern.holds(&self.statement).is_ok()).collect();
        }
    }

    /// What rules made operators or a pipeline of still inserts what the client's replacement would: nothing of the filter
    /// but `_id`. Of other updates the server reads the filter's equalities, and fails where two of them meet.
    fn insert_as_replacement(&mut self) {
        let Operation::Update(update) = &self.statement.operation else { return };
        let is_kept = matches!(update.modification, Modification::Replacement(_)) && self.sequences.is_empty();
        if is_kept || !update.upsert {
            return;
        }
        let Some(sent) = self.statement.sent_replacement() else { return };
        let filter = update.filter.as_document();
        let (own, pinned) = (sent.get("_id"), effect::equality(filter, "_id"));
        let is_other_type =
            own.zip(pinned).is_some_and(|(own, pinned)| own != pinned && effect::is_same_number(own, pinned));
        // Where those of `_id` meet, a replacement fails, too.
        if effect::id_pins_agree(filter) && (is_other_type || !effect::pins_agree(filter)) {
            self.statement = self.statement.pinned_by_id(pinned.filter(|_| !is_other_type));
        }
    }

    /// Holds the statement with the number that was put in against the promises that it kept without.
    pub(super) fn check_number(&mut self, namespace: Namespace<'_>, observations: &mut Observations) {
        let broken = self.promises.iter().find_map(|rule| Some((*rule, rule.pattern.holds(&self.statement).err()?)));
        if let Some((rule, broken)) = broken {
            self.refuse_broken(rule, broken, namespace, observations);
        }
    }

    fn refuse_broken(
        &mut self,
        rule: &'r Rule,
        broken: Rejection,
        namespace: Namespace<'_>,
        observations: &mut Observations,
    ) {
        let other = self.changed_by.filter(|other| other.id != rule.id);
        let reason = match other {
            Some(other) => format!("{}, after what rule '{}' makes of it", broken.reason, other.name.value),
            None => broken.reason,
        };
        let rejection = Rejection { reason, ..broken };
        observations.note(rule, namespace, Said::Reject, Some(&rejection));
        self.refused = Some(Refused { rule, rejection });
    }
}

/// The rejection that a verdict comes to, if the rule is enforced.
fn rejected<'v>(verdict: &'v Verdict<'_>, rule: &Rule) -> Option<&'v Rejection> {
    match verdict {
        Verdict::Unsupported(_) if rule.unsupported == Unsupported::Allow => None,
        Verdict::Reject(rejection) | Verdict::Unsupported(rejection) => Some(rejection),
        _ => None,
    }
}

/// What is to be noted of a verdict.
fn heard<'v>(verdict: &'v Verdict<'_>, rule: &Rule, stance: Stance) -> Option<(Said, Option<&'v Rejection>)> {
    match verdict {
        Verdict::Forward | Verdict::Brings(None) => None,
        // What comes of it is noted when the document has been looked for.
        Verdict::OnlyNew(..) if stance == Stance::Enforce => None,
        Verdict::OnlyNew(_, rejection) => Some((stance.rejects(), Some(rejection))),
        Verdict::Rewrite(_)
        | Verdict::Counted(_)
        | Verdict::Brings(Some(_))
        | Verdict::Allocate
        | Verdict::Procedure(_) => Some((stance.rewrites(), None)),
        Verdict::Unsupported(rejection) if rule.unsupported == Unsupported::Allow => {
            Some((Said::Allow, Some(rejection)))
        }
        Verdict::Reject(rejection) | Verdict::Unsupported(rejection) => Some((stance.rejects(), Some(rejection))),
    }
}
