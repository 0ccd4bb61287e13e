//! Evaluates statements. Each statement passes through the rules of its namespace in the order of evaluation; each rule
//! sees the statement as the previous rule left it.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::applicable_rules::{ApplicableRules, Enforcement, enforced};
use super::outcome::{OutcomeKind, RuleOutcomes, StatementOutcomes};
use super::prerequisites::{NumberRule, Prerequisites, with_numbers};
use super::rejection_text::{FOR_THE_DBA, RejectedBy};
use crate::command::{Modification, Namespace, Operation, Statement, Update, repeated_name_in};
use crate::document::{AmbiguousName, CowDocument, Document, Value};
use crate::effect;
use crate::patterns::{
    Applicability, Context, Measured, NoEffect, Prerequisite, Rejection, Rewrite, Unmatched, Verdict,
};
use crate::rules::{Rule, Unsupported};

/// A statement and the result of its evaluation.
#[derive(Debug)]
pub(super) struct Evaluated<'r, 'a> {
    /// The statement as it would be sent.
    pub(super) statement: Statement<'a>,
    /// Set when a rule rejects it: it is not sent.
    pub(super) rejected: Option<RejectedBy<'r>>,
    /// The last rule that changed it.
    pub(super) changed_by: Option<&'r Rule>,
    /// The rules that decide the result when the statement matches nothing.
    pub(super) unmatched: SmallVec<[&'r Rule; 1]>,
    /// The rules for which it is of interest whether the statement has an effect.
    pub(super) watched: SmallVec<[WatchedRule<'r>; 1]>,
    /// The rule that explains the server's errors because it may have caused them: by a pipeline or otherwise.
    explained_by: Option<&'r Rule>,
    /// The rule whose increment was dropped, and the operation with the increment.
    /// Boxed like the next one: a batch may have 100,000 statements, and few need it.
    pub(super) dropped_increment: Option<Box<DroppedIncrement<'r, 'a>>>,
    /// The statement may only insert, and a later rule rejects it, whether or not its filter matches.
    pub(super) rejected_later: Option<Box<RejectedBy<'r>>>,
    /// What rules require before it is sent.
    pub(super) prerequisites: Prerequisites<'r>,
    /// The numbers that the statement gets only when it inserts; those of rules for which it is checked are settled.
    pub(super) numbers_on_insert: Vec<(NumberRule<'r>, i64)>,
    /// The rules for which it is not plain: it is executed in a transaction and compared.
    pub(super) checked: Vec<&'r Rule>,
    /// The other rules whose promises must hold for what the checked ones settle.
    pub(super) beside: Vec<&'r Rule>,
    /// The rules that the statement must still satisfy with what is added later: its numbers, and what a procedure adds.
    pub(super) must_hold: SmallVec<[&'r Rule; 1]>,
    /// The number of failed transactions for it.
    pub(super) attempts: u32,
    /// How often another sender of the same write ended its transaction.
    pub(super) contention_aborts: u32,
    /// How often its transaction ended because its member was lost.
    pub(super) losses: u32,
    /// An earlier send of it was committed in docward's transaction with the number of these `attempts`.
    pub(super) committed: bool,
}

/// A rule, and what it means for it if a statement has no effect.
#[derive(Debug, Clone, Copy)]
pub(super) struct WatchedRule<'r> {
    pub(super) rule: &'r Rule,
    pub(super) no_effect: Option<NoEffect>,
    /// The rule rewrote the statement; this outcome is kept open.
    pub(super) rewritten: bool,
}

/// How a statement was sent before the server failed its increment.
#[derive(Debug)]
pub(super) struct DroppedIncrement<'r, 'a> {
    pub(super) rule: &'r Rule,
    pub(super) incremented: Operation<'a>,
    /// It is not known yet that the increment has caused the server's error.
    pub(super) has_unknown_cause: bool,
}

impl<'r, 'a> Evaluated<'r, 'a> {
    /// A statement that no rule has evaluated yet.
    pub(super) fn new(statement: Statement<'a>) -> Self {
        Self {
            statement,
            rejected: None,
            changed_by: None,
            unmatched: SmallVec::new(),
            watched: SmallVec::new(),
            explained_by: None,
            dropped_increment: None,
            rejected_later: None,
            prerequisites: Prerequisites::default(),
            numbers_on_insert: Vec::new(),
            checked: Vec::new(),
            beside: Vec::new(),
            must_hold: SmallVec::new(),
            attempts: 0,
            contention_aborts: 0,
            losses: 0,
            committed: false,
        }
    }

    /// Lets the rules evaluate the statement, in place: it is large.
    pub(super) fn evaluate(
        &mut self,
        applicable_rules: &ApplicableRules<'r>,
        context: &Context<'_>,
        outcomes: &mut RuleOutcomes,
    ) {
        let outcomes = &mut StatementOutcomes::new(outcomes);
        if let Some(ambiguity) = self.statement.ambiguity() {
            return self.evaluate_ambiguous(&ambiguity, applicable_rules, context, outcomes);
        }
        if self.statement.is_malformed() || is_upsert_with_expr(&self.statement) {
            // Sent as it is, so that the server rejects it: a rewriting could drop the part that makes it invalid.
            return;
        }
        // A pipeline that only sets constants is evaluated as the equivalent operators.
        let original = self.statement.as_operators().map(|read| std::mem::replace(&mut self.statement, read));
        if let Some(original) = original.as_ref().filter(|_| self.statement.sets_invalid_id()) {
            // Sent as it is for the same reason: as operators it fails with another error.
            self.statement = original.clone();
            return;
        }
        for (rule, enforcement) in applicable_rules {
            let verdict = rule.pattern.verdict(&self.statement, context);
            self.take(rule, *enforcement, verdict, context, outcomes);
            if self.rejected.is_some() || self.rejected_later.is_some() {
                return;
            }
        }
        self.complete(applicable_rules, context, outcomes);
        if !self.checked.is_empty() {
            self.beside = enforced(applicable_rules).filter(|rule| !self.is_checked(rule)).collect();
        }
        self.insert_as_replacement();
        // A procedure needs the statement that it was created for.
        if let (Some(original), None, false) = (original, self.changed_by, self.prerequisites.has_procedure()) {
            self.statement = original;
        }
    }

    /// Only rules that look at statements of its kind reject a statement in which a path has no certain meaning.
    fn evaluate_ambiguous(
        &mut self,
        ambiguity: &AmbiguousName,
        applicable_rules: &ApplicableRules<'r>,
        context: &Context<'_>,
        outcomes: &mut StatementOutcomes<'_>,
    ) {
        let kind = self.statement.kind();
        for (rule, enforcement) in applicable_rules {
            if self.rejected.is_none() && rule.pattern.applicability(kind, context.namespace) != Applicability::None {
                let verdict = Verdict::Unsupported(Rejection::new(
                    format!("it is ambiguous: {ambiguity}"),
                    format!("Write each name once in a document. {FOR_THE_DBA}"),
                ));
                self.take(rule, *enforcement, verdict, context, outcomes);
            }
        }
    }

    /// The fields that rules need from a document that does not satisfy the statement's conditions.
    pub(super) fn checked_fields(&self) -> Vec<&'r str> {
        let mut fields = Vec::new();
        let incrementing = self.dropped_increment.iter().map(|dropped| dropped.rule);
        let rules = self.unmatched.iter().copied().chain(incrementing);
        for field in rules.flat_map(|rule| &rule.properties.checked_fields) {
            // The server rejects a projection of a field together with one of its subfields.
            if !fields.contains(&field.root()) {
                fields.push(field.root());
            }
        }
        fields
    }

    /// Returns the first rejection by a rule for a statement that matches nothing, while its own filter matches `stored`.
    pub(super) fn rejection_of_no_match(&self, stored: Option<Document<'_>>) -> Option<RejectedBy<'r>> {
        let widest = self.widest();
        let rejection = |rule: &&'r Rule| match rule.pattern.unmatched(&widest, stored) {
            Unmatched::Nothing => None,
            Unmatched::Reject(rejection) => Some(RejectedBy::new(rule, rejection)),
        };
        let only_new = stored.and_then(|_| self.prerequisites.only_new());
        only_new.or_else(|| self.unmatched.iter().find_map(rejection))
    }

    /// The values that the server computes for rules from such a document.
    pub(super) fn measured(&self) -> Vec<Measured> {
        let widest = self.widest();
        self.unmatched.iter().flat_map(|rule| rule.pattern.measured(&widest)).collect()
    }

    /// Applies a rule's verdict.
    fn take(
        &mut self,
        rule: &'r Rule,
        enforcement: Enforcement,
        verdict: Verdict<'a>,
        context: &Context<'_>,
        outcomes: &mut StatementOutcomes<'_>,
    ) {
        // Which of the two rejections applies is known only after checking whether the filter matches.
        if let (Enforcement::Enforce, true, Some(rejection)) =
            (enforcement, self.prerequisites.is_only_new(), rejection_in(&verdict, rule))
        {
            self.rejected_later = Some(Box::new(RejectedBy::new(rule, rejection.clone())));
            return;
        }
        if let Some((kind, rejection)) = noted_outcome(&verdict, rule, enforcement) {
            outcomes.add(rule, context.namespace, kind, rejection);
        }
        if enforcement != Enforcement::Enforce {
            return;
        }
        match verdict {
            Verdict::Forward => {}
            Verdict::ForwardConditional(no_effect) => self.watch(rule, Some(no_effect), None),
            Verdict::Check(_) => {
                self.checked.push(rule);
                let numbers = NumberRule::new(rule).map(|one| one.numbers.needs_of_checked(&self.statement.operation));
                numbers.into_iter().flatten().for_each(|needed| self.prerequisites.add(rule, needed));
            }
            Verdict::Require(prerequisite, operation) => {
                if let Some(operation) = operation {
                    self.change(rule, self.statement.with(operation));
                }
                self.require(rule, prerequisite, outcomes);
            }
            Verdict::Rewrite(Rewrite { operation, checks_match, no_effect }) => {
                let rewritten = self.statement.with(operation);
                // An earlier rule allows only the insert, and this one none: the statement cannot have an effect.
                if self.prerequisites.is_only_new()
                    && !rewritten.is_upsert()
                    && let Unmatched::Reject(rejection) = rule.pattern.unmatched(&rewritten, None)
                {
                    self.rejected_later = Some(Box::new(RejectedBy::new(rule, rejection)));
                    return;
                }
                if checks_match || no_effect.is_some() {
                    self.watch(rule, no_effect, Some(outcomes));
                }
                self.change(rule, rewritten);
                if rule.pattern.explains_errors(&self.statement) {
                    self.explained_by = Some(rule);
                }
                if checks_match && !self.unmatched.iter().any(|known| known.id == rule.id) {
                    self.unmatched.push(rule);
                }
            }
            Verdict::Unsupported(_) if rule.unsupported == Unsupported::Allow => {}
            Verdict::Reject(rejection) | Verdict::Unsupported(rejection) => {
                self.rejected = Some(RejectedBy::new(rule, rejection));
            }
        }
    }

    fn change(&mut self, rule: &'r Rule, changed: Statement<'a>) {
        if changed.is_own_pipeline() && !self.statement.is_own_pipeline() {
            self.explained_by = Some(rule);
        }
        self.statement = changed;
        self.changed_by = Some(rule);
    }

    /// Whether the server may fail the statement because of a rule's rewriting. The number of a rule can make it a
    /// pipeline later.
    pub(super) fn has_own_errors(&self) -> bool {
        self.explained_by.is_some() || self.statement.is_own_pipeline()
    }

    /// Returns the rejection for an error of the server that a rule's rewriting caused. `error` is a write error, or the
    /// reply of a findAndModify.
    pub(super) fn explain(&self, error: Document<'_>) -> Option<RejectedBy<'r>> {
        let rule = self.explained_by.or(self.changed_by).filter(|_| self.has_own_errors())?;
        let text = error.get("errmsg").and_then(Value::as_str).unwrap_or_default();
        let rejection = match repeated_name_in(text) {
            Some(id) => Rejection::repeated_name(id),
            None => rule.pattern.explain(error, &self.statement)?,
        };
        Some(RejectedBy::new(rule, rejection))
    }

    /// Notes what a rule requires before the statement, as the rule has changed it, is sent.
    fn require(&mut self, rule: &'r Rule, prerequisite: Prerequisite, outcomes: &mut StatementOutcomes<'_>) {
        match &prerequisite {
            Prerequisite::ProvidedNumbers | Prerequisite::ReservedNumber | Prerequisite::Incrementable => {}
            Prerequisite::Number => {
                self.changed_by = Some(rule);
                // Without a number the statement is rejected.
                outcomes.message.keep_open(rule);
            }
            // With the condition docward also queries the server's record of an earlier send, by the write's number.
            Prerequisite::NoMatch(_) => self.statement = self.statement.insert_only(),
            // It may still reject the statement, or have no effect.
            Prerequisite::Procedure(procedure) => match procedure.no_effect() {
                Some(no_effect) => self.watch(rule, Some(no_effect), Some(outcomes)),
                None => outcomes.message.keep_open(rule),
            },
        }
        self.prerequisites.add(rule, prerequisite);
    }

    /// Notes a rule for which the effect of the statement is of interest. `rewriting`: the outcomes with its rewrite.
    fn watch(&mut self, rule: &'r Rule, no_effect: Option<NoEffect>, rewriting: Option<&mut StatementOutcomes<'_>>) {
        let known = match self.watched.iter_mut().position(|known| known.rule.id == rule.id) {
            Some(at) => at,
            None => {
                self.watched.push(WatchedRule { rule, no_effect, rewritten: false });
                self.watched.len() - 1
            }
        };
        if let (Some(known), Some(outcomes)) = (self.watched.get_mut(known), rewriting)
            && !known.rewritten
        {
            known.rewritten = true;
            outcomes.message.keep_open(rule);
        }
    }

    /// Lets each rule finish the statement, then checks it against all rules again: a later rule may have undone the
    /// change of an earlier one. In that case the earlier rule evaluates the statement once more. If the statement
    /// still breaks the rule, it is rejected.
    fn complete(
        &mut self,
        applicable_rules: &ApplicableRules<'r>,
        context: &Context<'_>,
        outcomes: &mut StatementOutcomes<'_>,
    ) {
        for (rule, enforcement) in applicable_rules {
            if self.is_checked(rule) {
                continue;
            }
            if let Some(incrementing) = rule.pattern.incrementing() {
                self.take(rule, *enforcement, incrementing.incremented(&self.statement), context, outcomes);
            }
        }
        // A rule has already checked its own changes.
        if applicable_rules.len() < 2 || (self.changed_by.is_none() && !self.prerequisites.has_procedure()) {
            return;
        }
        for rule in enforced(applicable_rules) {
            if self.rejected.is_some() {
                return;
            }
            if self.is_checked(rule) || rule.pattern.check_final(&self.statement).is_ok() {
                continue;
            }
            let verdict = rule.pattern.verdict(&self.statement, context);
            if matches!(verdict, Verdict::Unsupported(_)) && rule.unsupported == Unsupported::Allow {
                continue;
            }
            self.take(rule, Enforcement::Enforce, verdict, context, outcomes);
            if self.rejected.is_none()
                && !self.is_checked(rule)
                && let Err(broken) = rule.pattern.check_final(&self.statement)
            {
                self.reject_broken(rule, broken, context.namespace, outcomes.message);
            }
        }
        let adds = self.prerequisites.assigns_number() || self.prerequisites.has_procedure();
        if self.rejected.is_some() || !adds {
            return;
        }
        for rule in enforced(applicable_rules) {
            if rule.pattern.check_final(&self.statement).is_ok() {
                self.prepare_for_widest(rule, context, outcomes);
                self.must_hold.push(rule);
            }
        }
    }

    fn is_checked(&self, rule: &Rule) -> bool {
        self.checked.iter().any(|checked| checked.id == rule.id)
    }

    /// Whether it is executed in a transaction of docward's own or the client's, with other commands.
    pub(super) fn needs_transaction(&self) -> bool {
        !self.checked.is_empty() || self.prerequisites.has_procedure()
    }

    /// The statement with the numbers that are added after its evaluation, as the longest possible one.
    fn widest(&self) -> Cow<'_, Statement<'a>> {
        /// The number with the most bytes.
        const LONGEST: i64 = i64::MAX;
        with_numbers(Cow::Borrowed(&self.statement), self.prerequisites.numbers().map(|rule| (rule, LONGEST)))
    }

    /// Adds the conditions that a rule requires of the widest statement. They must be known before it is planned how to
    /// send it; what is added is known later.
    fn prepare_for_widest(&mut self, rule: &'r Rule, context: &Context<'_>, outcomes: &mut StatementOutcomes<'_>) {
        let widest = self.widest();
        if rule.pattern.check_final(&widest).is_ok() {
            return;
        }
        if let (Verdict::Rewrite(rewrite), Operation::Update(own)) =
            (rule.pattern.verdict(&widest, context), &self.statement.operation)
        {
            let Operation::Update(restricted) = rewrite.operation else { return };
            let operation = Operation::Update(Update { conditions: restricted.conditions, ..own.clone() });
            let verdict = Verdict::Rewrite(Rewrite { operation, ..rewrite });
            self.take(rule, Enforcement::Enforce, verdict, context, outcomes);
        }
    }

    /// Keeps the result of an upsert equal to that of the client's replacement with `upsert`. A replacement takes only `_id` from
    /// the filter. For other updates the server also inserts the filter's equalities, and fails if one conflicts with
    /// an updated field.
    fn insert_as_replacement(&mut self) {
        let Operation::Update(update) = &self.statement.operation else { return };
        let is_replacement = matches!(update.modification, Modification::Replacement(_));
        let is_kept = is_replacement && !self.prerequisites.assigns_number();
        if is_kept || !update.upsert || !self.statement.came_as_upsert() {
            return;
        }
        let Some(sent) = self.statement.sent_replacement() else { return };
        let filter = update.filter.as_document();
        let (own, named) = (sent.get("_id"), effect::equality(filter, "_id"));
        let is_other_type =
            own.zip(named).is_some_and(|(own, named)| own != named && effect::is_same_number(own, named));
        // If the `_id` values conflict, a replacement fails too.
        if effect::id_equalities_agree(filter) && (is_other_type || !effect::equalities_agree(filter)) {
            let never = CowDocument::build(|w| effect::never_matching(filter).for_each(|one| w.element(one)));
            let named = named.filter(|_| !is_other_type);
            self.statement = self.statement.with_only_id(named, never.as_document());
        }
    }

    /// Whether the statement is an upsert that is sent in stages. With conditions it must distinguish a missing document
    /// from one that fails a condition. With a number for the insert only it must know whether it inserts.
    pub(super) fn is_staged_upsert(&self) -> bool {
        let Operation::Update(update) = &self.statement.operation else { return false };
        let differs = || self.prerequisites.numbers().any(|rule| rule.numbers.inserts_apart(&self.statement.operation));
        update.upsert && (!update.conditions.is_empty() || differs())
    }

    /// Returns the statement as it is sent at first: an upsert in stages without `upsert`.
    pub(super) fn first_sent(&self) -> Cow<'_, Statement<'a>> {
        if self.is_staged_upsert() {
            Cow::Owned(self.statement.without_upsert())
        } else {
            Cow::Borrowed(&self.statement)
        }
    }

    /// Assigns a number to the statement, or only to its insert.
    pub(super) fn assign(&mut self, rule: NumberRule<'r>, number: i64) {
        if self.is_reserved(rule) || rule.numbers.inserts_apart(&self.statement.operation) {
            self.numbers_on_insert.push((rule, number));
        } else {
            self.statement = rule.with_number(&self.statement, number);
        }
    }

    /// Whether a number of the rule is settled, and never part of the statement.
    fn is_reserved(&self, rule: NumberRule<'r>) -> bool {
        !self.prerequisites.numbers().any(|one| one.rule.id == rule.rule.id)
    }

    /// The statement with all its numbers, as an upsert sends it to insert.
    pub(super) fn inserting(&self) -> Cow<'_, Statement<'a>> {
        let assigned = self.numbers_on_insert.iter().copied().filter(|(rule, _)| !self.is_reserved(*rule));
        with_numbers(Cow::Borrowed(&self.statement), assigned)
    }

    /// Checks the statement with the assigned number against the rules that it satisfied without.
    pub(super) fn check_number(&mut self, namespace: Namespace<'_>, outcomes: &mut RuleOutcomes) {
        if let Some((rule, broken)) = self.broken_by(&self.inserting()) {
            self.reject_broken(rule, broken, namespace, outcomes);
        }
    }

    /// Returns the first rule that the statement satisfies without what is added after its evaluation, and breaks with
    /// it: `completed` has its numbers, or what a procedure adds.
    pub(super) fn broken_by(&self, completed: &Statement<'_>) -> Option<(&'r Rule, Rejection)> {
        self.must_hold.iter().find_map(|rule| Some((*rule, rule.pattern.check_final(completed).err()?)))
    }

    pub(super) fn reject_broken(
        &mut self,
        rule: &'r Rule,
        broken: Rejection,
        namespace: Namespace<'_>,
        outcomes: &mut RuleOutcomes,
    ) {
        let other = self.changed_by.filter(|other| other.id != rule.id);
        let rejection = match other {
            Some(other) => after_changes_of(other, broken),
            None => broken,
        };
        outcomes.add(rule, namespace, OutcomeKind::Reject, Some(&rejection));
        self.rejected = Some(RejectedBy::new(rule, rejection));
    }

    /// Rejects the statement after its evaluation. `rewritten`: an outcome of the rule for it was kept open.
    pub(super) fn reject(
        &mut self,
        rejected: RejectedBy<'r>,
        (kind, rewritten): (OutcomeKind, bool),
        namespace: Namespace<'_>,
        outcomes: &mut RuleOutcomes,
    ) {
        let text = (rejected.rejection.reason.as_str(), rejected.rejection.hint.as_str());
        outcomes.settle(rejected.rule, namespace, kind, text, (1, rewritten));
        self.rejected = Some(rejected);
    }
}

/// The rejection of a statement that a rule accepts without the changes of `other`.
pub(super) fn after_changes_of(other: &Rule, broken: Rejection) -> Rejection {
    let reason = format!("{}, after the changes of rule '{}'", broken.reason, other.name.value);
    Rejection { reason, ..broken }
}

/// Whether it is an upsert with `$expr` in its filter: every server rejects it before it looks for documents (224,
/// QueryFeatureNotAllowed; `ParsedUpdate::parseQueryToCQ`).
fn is_upsert_with_expr(statement: &Statement<'_>) -> bool {
    matches!(&statement.operation, Operation::Update(update) if update.upsert && effect::uses_expr(update.filter.as_document()))
}

/// The rejection in a verdict, if there is one.
fn rejection_in<'v>(verdict: &'v Verdict<'_>, rule: &Rule) -> Option<&'v Rejection> {
    match verdict {
        Verdict::Unsupported(_) if rule.unsupported == Unsupported::Allow => None,
        Verdict::Reject(rejection) | Verdict::Unsupported(rejection) => Some(rejection),
        _ => None,
    }
}

/// The outcome to note for a verdict, if any.
fn noted_outcome<'v>(
    verdict: &'v Verdict<'_>,
    rule: &Rule,
    enforcement: Enforcement,
) -> Option<(OutcomeKind, Option<&'v Rejection>)> {
    match verdict {
        Verdict::Forward | Verdict::ForwardConditional(_) | Verdict::Require(Prerequisite::ProvidedNumbers, None) => {
            None
        }
        // Its outcome is noted after checking whether the filter matches.
        Verdict::Require(Prerequisite::NoMatch(_), _) if enforcement == Enforcement::Enforce => None,
        Verdict::Require(Prerequisite::NoMatch(rejection), _) => Some((enforcement.rejects(), Some(rejection))),
        Verdict::Rewrite(_) | Verdict::Require(..) => Some((enforcement.rewrites(), None)),
        Verdict::Check(reason) => Some((enforcement.checks(), Some(reason))),
        Verdict::Unsupported(rejection) if rule.unsupported == Unsupported::Allow => {
            Some((OutcomeKind::Allow, Some(rejection)))
        }
        Verdict::Reject(rejection) | Verdict::Unsupported(rejection) => Some((enforcement.rejects(), Some(rejection))),
    }
}
