//! Statements before their rules: each goes through the rules of its namespace in the order of their phases,
//! each rule seeing what the one before made of it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::outcome::{OutcomeKind, RuleOutcomes};
use super::{Now, Session};
use crate::command::{Batch, Modification, Namespace, Operation, Statement, code};
use crate::document::Path;
use crate::effect;
use crate::patterns::procedure::Procedure;
use crate::patterns::{Context, Rejection, Rewrite, Rule, RuleSet, Verdict};
use crate::rules::{Mode, Unsupported};

/// A statement and what becomes of it.
#[derive(Debug)]
pub(super) struct Evaluated<'r, 'a> {
    /// As it would be sent.
    pub(super) statement: Statement<'a>,
    /// Set when it is not sent.
    pub(super) refused: Option<RejectedBy<'r>>,
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
    pub(super) only_new: Option<RejectedBy<'r>>,
    /// With `only_new`: a later rule rejects it, whatever its filter matches.
    pub(super) otherwise: Option<RejectedBy<'r>>,
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
pub(super) struct RejectedBy<'r> {
    pub(super) rule: &'r Rule,
    pub(super) rejection: Rejection,
}

impl RejectedBy<'_> {
    /// Whether somebody else was faster, rather than the statement wrong.
    pub(super) fn is_conflict(&self) -> bool {
        self.rejection.code == code::WRITE_CONFLICT
    }
}

/// How far a rule may go with a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enforcement {
    Enforce,
    Shadow,
    Except,
}

impl Enforcement {
    /// What a rule of this enforcement says when it rejects.
    pub(super) fn rejects(self) -> OutcomeKind {
        match self {
            Self::Enforce => OutcomeKind::Reject,
            Self::Shadow => OutcomeKind::ShadowReject,
            Self::Except => OutcomeKind::ExceptReject,
        }
    }

    /// What a rule of this enforcement says when it rewrites.
    pub(super) fn rewrites(self) -> OutcomeKind {
        match self {
            Self::Enforce => OutcomeKind::Rewrite,
            Self::Shadow => OutcomeKind::ShadowRewrite,
            Self::Except => OutcomeKind::ExceptRewrite,
        }
    }
}

/// A namespace's rules with their enforcement towards one client, in the order they evaluate.
pub(super) type ApplicableRules<'r> = SmallVec<[(&'r Rule, Enforcement); 4]>;

/// The rules that concern a namespace.
pub(super) fn applicable_rules<'r>(
    rules: &'r RuleSet,
    namespace: Namespace<'_>,
    session: &Session,
) -> ApplicableRules<'r> {
    let Some(found) = rules.rules_for(namespace.database, namespace.collection) else { return ApplicableRules::new() };
    let mut applicable_rules = ApplicableRules::new();
    for rule in found.iter() {
        applicable_rules.push((rule, enforcement(rule, session)));
    }
    applicable_rules
}

/// Whether the enforcement of a rule cannot be told, because the client's users are not known yet.
pub(super) fn asks_for_users(applicable_rules: &ApplicableRules<'_>, session: &Session) -> bool {
    session.users.is_none() && applicable_rules.iter().any(|(rule, _)| !rule.except.users.is_empty())
}

/// How far a rule goes with a client.
pub(super) fn enforcement(rule: &Rule, session: &Session) -> Enforcement {
    let users = session.users.iter().flatten().map(|(database, name)| (database.as_str(), name.as_str()));
    match rule.mode {
        Mode::Shadow => Enforcement::Shadow,
        _ if rule.except.covers(session.app_name(), users) => Enforcement::Except,
        _ => Enforcement::Enforce,
    }
}

/// Statements that are evaluated before others have their turn, and bytes of them: some hundred microseconds' work.
const TURN: usize = 100;
const TURN_BYTES: usize = 128 * 1024;

/// The evaluation of a batch, in turns.
#[derive(Debug)]
pub(super) struct Evaluation<'r, 'a> {
    applicable_rules_of: SmallVec<[ApplicableRules<'r>; 1]>,
    versions: SmallVec<[Versions<'r>; 1]>,
    rest: std::vec::IntoIter<Statement<'a>>,
    evaluated: Vec<Evaluated<'r, 'a>>,
    /// Nothing behind the first rejection is carried out, so it is not evaluated.
    stops_on_rejection: bool,
}

impl<'r, 'a> Evaluation<'r, 'a> {
    /// Takes the statements out of `batch`. `applicable_rules_of`: the rules of its namespaces, in their order.
    pub(super) fn new(
        batch: &mut Batch<'a>,
        applicable_rules_of: SmallVec<[ApplicableRules<'r>; 1]>,
        stops_on_rejection: bool,
    ) -> Self {
        let statements = std::mem::take(&mut batch.statements);
        let evaluated = Vec::with_capacity(statements.len());
        let versions = applicable_rules_of.iter().map(versions).collect();
        Self { applicable_rules_of, versions, rest: statements.into_iter(), evaluated, stops_on_rejection }
    }

    /// Judges the next statements of `batch`; false when there are more.
    pub(super) fn take_turn(&mut self, batch: &Batch<'a>, now: Now, outcomes: &mut RuleOutcomes) -> bool {
        let none = ApplicableRules::new();
        let mut bytes = 0;
        for statement in self.rest.by_ref().take(TURN) {
            bytes += statement.source_length();
            let applicable_rules = self.applicable_rules_of.get(statement.namespace).unwrap_or(&none);
            let context = Context {
                now: now.milliseconds,
                comment: batch.comment,
                variables: batch.variables,
                namespace: batch.namespace(&statement),
                versions: self.versions.get(statement.namespace).map(SmallVec::as_slice).unwrap_or_default(),
            };
            let evaluated = evaluate_statement(statement, applicable_rules, &context, outcomes);
            let last = evaluated.refused.is_some() && self.stops_on_rejection;
            self.evaluated.push(evaluated);
            if last {
                return true;
            }
            if bytes >= TURN_BYTES {
                break;
            }
        }
        self.rest.as_slice().is_empty()
    }

    /// What has been evaluated.
    pub(super) fn into_evaluated(self) -> Vec<Evaluated<'r, 'a>> {
        self.evaluated
    }
}

/// The fields by which clients' filters check that a stored document is as it was read.
type Versions<'r> = SmallVec<[&'r Path; 1]>;

fn versions<'r>(applicable_rules: &ApplicableRules<'r>) -> Versions<'r> {
    let enforced = applicable_rules.iter().filter(|(_, enforcement)| *enforcement == Enforcement::Enforce);
    enforced.filter_map(|(rule, _)| rule.pattern.version()).collect()
}

fn evaluate_statement<'r, 'a>(
    statement: Statement<'a>,
    applicable_rules: &ApplicableRules<'r>,
    context: &Context<'_>,
    outcomes: &mut RuleOutcomes,
) -> Evaluated<'r, 'a> {
    let mut evaluated = Evaluated {
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
    // A pipeline that only sets constants is evaluated as the operators that it stands for.
    let original = evaluated.statement.as_operators().map(|read| std::mem::replace(&mut evaluated.statement, read));
    for (rule, enforcement) in applicable_rules {
        let verdict = rule.pattern.verdict(&evaluated.statement, context);
        evaluated.take(rule, *enforcement, verdict, context, outcomes);
        if evaluated.refused.is_some() || evaluated.otherwise.is_some() {
            return evaluated;
        }
    }
    evaluated.complete(applicable_rules, context, outcomes);
    evaluated.insert_as_replacement();
    // A procedure sends what it was made for.
    if let (Some(original), None, true) = (original, evaluated.changed_by, evaluated.procedures.is_empty()) {
        evaluated.statement = original;
    }
    evaluated
}

impl<'r, 'a> Evaluated<'r, 'a> {
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
        enforcement: Enforcement,
        verdict: Verdict<'a>,
        context: &Context<'_>,
        outcomes: &mut RuleOutcomes,
    ) {
        // What the rule that may reject it first says of it is known when the document has been looked for.
        if let (Enforcement::Enforce, Some(_), Some(rejection)) =
            (enforcement, &self.only_new, rejected(&verdict, rule))
        {
            self.otherwise = Some(RejectedBy { rule, rejection: rejection.clone() });
            return;
        }
        if let Some((said, rejection)) = heard(&verdict, rule, enforcement) {
            outcomes.note(rule, context.namespace, said, rejection);
        }
        if enforcement != Enforcement::Enforce {
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
                self.only_new = Some(RejectedBy { rule, rejection });
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
                self.refused = Some(RejectedBy { rule, rejection });
            }
        }
    }

    /// Finishes what rules have begun, and holds what will be sent against every rule's promise: a later rule may have
    /// undone what an earlier one checked. The earlier one then evaluates once more; if that does not help, the
    /// statement is rejected.
    fn complete(&mut self, applicable_rules: &ApplicableRules<'r>, context: &Context<'_>, outcomes: &mut RuleOutcomes) {
        for (rule, enforcement) in applicable_rules {
            let verdict = rule.pattern.finish(&self.statement);
            self.take(rule, *enforcement, verdict, context, outcomes);
        }
        // What one rule made of it, it has checked itself.
        if self.changed_by.is_none() || applicable_rules.len() < 2 {
            return;
        }
        for rule in applicable_rules
            .iter()
            .filter(|(_, enforcement)| *enforcement == Enforcement::Enforce)
            .map(|(rule, _)| *rule)
        {
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
            self.take(rule, Enforcement::Enforce, verdict, context, outcomes);
            if self.refused.is_none()
                && let Err(broken) = rule.pattern.holds(&self.statement)
            {
                self.refuse_broken(rule, broken, context.namespace, outcomes);
            }
        }
        if self.refused.is_none() && !self.sequences.is_empty() {
            let enforced = applicable_rules
                .iter()
                .filter(|(_, enforcement)| *enforcement == Enforcement::Enforce)
                .map(|(rule, _)| *rule);
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
    pub(super) fn check_number(&mut self, namespace: Namespace<'_>, outcomes: &mut RuleOutcomes) {
        let broken = self.promises.iter().find_map(|rule| Some((*rule, rule.pattern.holds(&self.statement).err()?)));
        if let Some((rule, broken)) = broken {
            self.refuse_broken(rule, broken, namespace, outcomes);
        }
    }

    fn refuse_broken(
        &mut self,
        rule: &'r Rule,
        broken: Rejection,
        namespace: Namespace<'_>,
        outcomes: &mut RuleOutcomes,
    ) {
        let other = self.changed_by.filter(|other| other.id != rule.id);
        let reason = match other {
            Some(other) => format!("{}, after what rule '{}' makes of it", broken.reason, other.name.value),
            None => broken.reason,
        };
        let rejection = Rejection { reason, ..broken };
        outcomes.note(rule, namespace, OutcomeKind::Reject, Some(&rejection));
        self.refused = Some(RejectedBy { rule, rejection });
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
fn heard<'v>(
    verdict: &'v Verdict<'_>,
    rule: &Rule,
    enforcement: Enforcement,
) -> Option<(OutcomeKind, Option<&'v Rejection>)> {
    match verdict {
        Verdict::Forward | Verdict::Brings(None) => None,
        // What comes of it is noted when the document has been looked for.
        Verdict::OnlyNew(..) if enforcement == Enforcement::Enforce => None,
        Verdict::OnlyNew(_, rejection) => Some((enforcement.rejects(), Some(rejection))),
        Verdict::Rewrite(_)
        | Verdict::Counted(_)
        | Verdict::Brings(Some(_))
        | Verdict::Allocate
        | Verdict::Procedure(_) => Some((enforcement.rewrites(), None)),
        Verdict::Unsupported(rejection) if rule.unsupported == Unsupported::Allow => {
            Some((OutcomeKind::Allow, Some(rejection)))
        }
        Verdict::Reject(rejection) | Verdict::Unsupported(rejection) => Some((enforcement.rejects(), Some(rejection))),
    }
}
