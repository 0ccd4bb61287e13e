//! Evaluates recorded commands with rules: a dry run of each statement, as if it were sent now. What earlier statements
//! have stored decides whether the condition that a rule adds would have matched.

use std::collections::HashMap;

use super::known_documents::{KnownDocuments, key};
use super::recorded::{
    Client, REST_UNKNOWN, RecordedCommand, RecordedContent, TrafficConsumer, USER_UNKNOWN, UnknownStatements,
};
use super::tally::{AuditTally, CountedOutcome, ExampleText, ReportedOutcome};
use super::target::{CommandTarget, collection, evaluates_statement, target};
use super::{matching, shape, write};
use crate::command::{CommandClass, Namespace, Statement, StatementKind, output_targets};
use crate::document::{CowDocument, Document, Value};
use crate::engine::{
    AssumedDocuments, AssumedLookup, ClientState, DryRun, DryRunOutcome, Now, OutcomeKind, RuleOutcome, dry_run_with,
    statements,
};
use crate::fnv::hash_of;
use crate::patterns::Applicability;
use crate::rules::{Mode, Rule, RuleSet};
use crate::shell::render_unbroken;

/// The most characters in an example's text.
const MAX_SHELL: usize = 400;
/// The reasons of statements that would not have matched.
const OTHER_VERSION: &str = "the stored document had another version";
const CHANGED_SINCE: &str = "the document was changed after this connection had read it";
const NOT_SATISFIED: &str = "the stored document did not satisfy the rule's condition";
const OWN_VERSION: &str = "the rule itself would have changed the version since the application read it";

/// Counts the outcomes that rules would have had.
#[derive(Debug)]
pub struct Audit<'r> {
    evaluation: TrafficEvaluation<'r>,
    stored: KnownDocuments,
}

impl<'r> Audit<'r> {
    #[must_use]
    pub fn new(rules: &'r RuleSet) -> Self {
        Self { evaluation: TrafficEvaluation::new(rules), stored: KnownDocuments::default() }
    }

    /// The counts.
    #[must_use]
    pub fn finish(self) -> AuditTally {
        self.evaluation.finish().0
    }
}

impl TrafficConsumer for Audit<'_> {
    fn is_relevant(&self, namespace: Namespace<'_>, class: CommandClass, command: &[u8]) -> bool {
        self.evaluation.is_relevant(namespace, class, command)
    }

    fn add_command(&mut self, recorded: &RecordedCommand) {
        let evaluation = &mut self.evaluation;
        evaluation.applies = false;
        self.stored.evaluate_and_apply(recorded, |part, stored| evaluation.add_command(part, recorded, stored));
        if evaluation.applies {
            evaluation.count_command(recorded);
        }
    }
}

/// A command with at most one statement, or one whose statements are unknown.
#[derive(Debug, Clone, Copy)]
pub(super) enum AuditedCommand<'c> {
    Command(&'c CowDocument<'static>, StatementPlace),
    UnknownStatements(&'c UnknownStatements),
}

/// What is known of a statement from the command that contained it.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatementPlace {
    /// The number of the command.
    command: u64,
    /// It is the first one.
    is_first: bool,
    /// What the reply shows: whether the filters of the command's statements matched nothing.
    stored: AssumedDocuments,
}

impl KnownDocuments {
    /// Calls `evaluate` with each statement of a command, and then carries the statement out.
    pub(super) fn evaluate_and_apply(
        &mut self,
        recorded: &RecordedCommand,
        mut evaluate: impl FnMut(AuditedCommand<'_>, &Self),
    ) {
        let command = match &recorded.content {
            RecordedContent::UnknownStatements(unknown) => {
                evaluate(AuditedCommand::UnknownStatements(unknown), self);
                if unknown.class != CommandClass::Insert {
                    self.forget(&format!("{}.{}", unknown.database, unknown.collection));
                }
                return;
            }
            RecordedContent::Command(command) => command,
        };
        let count = statements(command.as_document()).count().max(1);
        let matched_nothing = recorded.reply.as_ref().is_some_and(|reply| reply.shows_no_match(count));
        let stored = if matched_nothing { AssumedDocuments::Nothing } else { AssumedDocuments::Matching };
        let mut place = StatementPlace { command: self.next_command(), is_first: true, stored };
        if count == 1 {
            evaluate(AuditedCommand::Command(command, place), self);
            return self.carry_out(command.as_document(), recorded, true);
        }
        for one in statements(command.as_document()) {
            evaluate(AuditedCommand::Command(&one, place), self);
            place.is_first = false;
            self.carry_out(one.as_document(), recorded, false);
        }
    }

    fn carry_out(&mut self, command: Document<'_>, recorded: &RecordedCommand, is_single: bool) {
        let Some((namespace, class, _)) = target(command) else { return };
        let name = namespace.to_string();
        let connection = recorded.client.connection;
        match (Statement::first_of(command), class) {
            (Some(write), _) => self.apply(&name, &write, recorded.reply.as_ref(), (connection, is_single)),
            (None, CommandClass::Find | CommandClass::Aggregate) => self.note_read(&name, command, connection),
            (None, CommandClass::Drop) => self.forget(&name),
            (None, _) => {}
        }
        for (database, collection) in output_targets(command, namespace.database).into_iter().flatten() {
            self.forget(&format!("{database}.{collection}"));
        }
        // Its reply has the document after the change.
        if class == CommandClass::FindAndModify && command.get("new").and_then(Value::as_flag) == Some(true) {
            self.note_read(&name, command, connection);
        }
    }
}

/// Counts the outcomes that rules would have had on statements, with the documents that are known to be stored.
#[derive(Debug)]
pub(super) struct TrafficEvaluation<'r> {
    rules: &'r RuleSet,
    /// The rules with those in shadow mode enforced, if there are any.
    enforced: Option<RuleSet>,
    tally: AuditTally,
    known: Vec<RuleKnowledge>,
    /// By document, or collection, as keys: when a rule would have changed a version that the application did not change.
    versions: HashMap<u64, u64>,
    /// The last ordered command of which a statement is rejected: `serve` evaluates none after it.
    stopped: Option<u64>,
    /// A rule applies to a collection of the last command.
    applies: bool,
}

/// What the traffic shows of the statements that one rule rewrites.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RuleKnowledge {
    /// It is known that they would have matched.
    pub(super) confirmed: u64,
    /// It is not known whether they would have matched: the stored documents are not known.
    pub(super) unknown: u64,
    /// They would have matched nothing, because the rule itself changed the version.
    pub(super) broken: u64,
}

impl<'r> TrafficEvaluation<'r> {
    pub(super) fn new(rules: &'r RuleSet) -> Self {
        let mut tally = AuditTally::default();
        tally.rules.resize_with(rules.rules().len(), Default::default);
        let any_shadow = rules.rules().iter().any(|rule| rule.mode == Mode::Shadow);
        let enforced = any_shadow.then(|| rules.with_shadow_enforced().ok()).flatten();
        let known = vec![RuleKnowledge::default(); rules.rules().len()];
        Self { rules, enforced, tally, known, versions: HashMap::new(), stopped: None, applies: false }
    }

    pub(super) fn is_relevant(&self, namespace: Namespace<'_>, class: CommandClass, command: &[u8]) -> bool {
        match class {
            CommandClass::Aggregate if has(command, b"$out") || has(command, b"$merge") => return true,
            CommandClass::Explain | CommandClass::BulkWrite | CommandClass::DropDatabase => return true,
            CommandClass::Aggregate | CommandClass::Harmless | CommandClass::Hello | CommandClass::Authenticate => {}
            other if other.indirect_write().is_some() => return true,
            _ => {}
        }
        class != CommandClass::Harmless && self.rules.rules_for(namespace.database, namespace.collection).is_some()
    }

    pub(super) fn count_command(&mut self, recorded: &RecordedCommand) {
        self.tally.commands += 1;
        recorded.milliseconds.into_iter().for_each(|at| self.tally.extend_times(at));
        self.tally.users_unknown |= recorded.client.users.is_none();
    }

    pub(super) fn add_command(
        &mut self,
        command: AuditedCommand<'_>,
        recorded: &RecordedCommand,
        stored: &KnownDocuments,
    ) {
        match command {
            AuditedCommand::Command(_, place) if self.stopped == Some(place.command) => {}
            AuditedCommand::Command(command, place) => self.statement(command, place, recorded, stored),
            AuditedCommand::UnknownStatements(unknown) => self.unknown_statements(unknown, &recorded.client),
        }
    }

    /// The counts, and what is known by rule.
    pub(super) fn finish(self) -> (AuditTally, Vec<RuleKnowledge>) {
        (self.tally, self.known)
    }

    fn unknown_statements(&mut self, unknown: &UnknownStatements, client: &Client) {
        let namespace = Namespace { database: &unknown.database, collection: &unknown.collection };
        let rules = self.rules;
        let Some(found) = rules.rules_for(unknown.database.as_str(), unknown.collection.as_str()) else { return };
        self.applies = true;
        let text = namespace.to_string();
        for rule in found.iter() {
            let evaluates = evaluates_statement(rule, namespace, unknown.class, None);
            if let Some(tally) =
                self.tally.rules.get_mut(rule.id.index()).filter(|_| evaluates && client.may_have(rule))
            {
                let noted = CountedOutcome {
                    outcome: ReportedOutcome::CannotTell,
                    statements: unknown.statements,
                    app: client.app.as_deref(),
                    users: client.users.as_deref(),
                    at: None,
                    namespace: &text,
                    reason: unknown.reason,
                };
                tally.count_example(&noted, class_name(unknown.class).to_owned(), ExampleText::default);
            }
        }
    }

    fn statement(
        &mut self,
        command: &CowDocument<'static>,
        place: StatementPlace,
        recorded: &RecordedCommand,
        stored: &KnownDocuments,
    ) {
        let document = command.as_document();
        let run = |rules, assumed| {
            let app_name = recorded.client.app.as_deref().map(Into::into);
            let users = Some(recorded.client.users.clone().unwrap_or_default());
            let mut client_state = ClientState { app_name, users, ..ClientState::default() };
            let now = Now { milliseconds: recorded.milliseconds.unwrap_or_default() };
            dry_run_with(assumed, document, rules, now, &mut client_state)
        };
        let dry_run = run(self.rules, place.stored);
        let in_shadow = |outcome: &RuleOutcome| outcome.kind.is_shadow();
        let enforcing = self.enforced.as_ref().filter(|_| dry_run.outcomes.iter().any(in_shadow));
        let enforced = enforcing.map(|rules| run(rules, place.stored));
        let sent = enforced.as_ref().unwrap_or(&dry_run);
        // The reply of a failed command does not show whether something matched.
        let shows_matches = recorded.reply.as_ref().is_some_and(|reply| reply.n.is_some());
        let asks = !shows_matches && sent.needs.iter().any(|need| matches!(need, AssumedLookup::Match(_)));
        let depends = place.stored == AssumedDocuments::Matching && (sent.depends_on_replies || asks);
        let unmatched = depends.then(|| run(enforcing.unwrap_or(self.rules), AssumedDocuments::Nothing));
        let seen = EvaluatedCommand {
            command: document,
            target: target(document),
            client: &recorded.client,
            at: recorded.milliseconds.and_then(|at| u64::try_from(at).ok()),
            partial: recorded.partial,
            is_first: place.is_first,
            is_unmatched: recorded.reply.as_ref().is_some_and(|one| !one.is_ok() || one.n == Some(0)),
            sent: match &sent.outcome {
                DryRunOutcome::Rewritten(sent) | DryRunOutcome::Checked(sent) => sent,
                _ => &[],
            },
            unmatched: unmatched.as_ref(),
        };
        let outcomes = effective(&dry_run, enforced.as_ref());
        let has_rules =
            |namespace: Namespace<'_>| self.rules.rules_for(namespace.database, namespace.collection).is_some();
        self.applies |= !outcomes.is_empty() || collection(document).is_some_and(has_rules);
        // Several rules can rewrite one statement; the first one counts what it would not have matched.
        let rewrites = |outcome: &RuleOutcome| ReportedOutcome::from_kind(outcome.kind) == ReportedOutcome::Rewrite;
        let first = outcomes.iter().find(|outcome| rewrites(outcome)).map(|outcome| outcome.rule);
        let rejects_excluded = |rule: &Rule| {
            let excluded = run(enforcing.unwrap_or(self.rules), AssumedDocuments::Excluded);
            excluded.outcomes.iter().any(|one| one.rule == rule.id && one.kind == OutcomeKind::Reject)
        };
        let counted = outcomes.iter().filter(|outcome| seen.counts(self.rules.rule(outcome.rule)));
        let matched = counted.map(|outcome| {
            let rule = self.rules.rule(outcome.rule);
            let matched = match seen.matched(rule, stored) {
                _ if self.is_own_version(rule, &seen, stored) => Matched::Not(ReportedOutcome::NoMatch, OWN_VERSION),
                Matched::Not(..) if first != Some(outcome.rule) => Matched::Unknown,
                // docward then asks whether the client's filter matches, which it does.
                Matched::Not(ReportedOutcome::NoMatch, reason) if rejects_excluded(rule) => {
                    Matched::Not(ReportedOutcome::Reject, reason)
                }
                matched => matched,
            };
            (outcome, matched)
        });
        for (outcome, matched) in matched.collect::<Vec<_>>() {
            self.count_outcome(outcome, &dry_run, matched, &seen);
        }
        self.count_forwarded(&dry_run, &outcomes, &seen, stored);
        self.note_versions(&seen, stored);
        let ordered = !recorded.partial && document.get("ordered").and_then(Value::as_flag) != Some(false);
        if ordered && matches!(dry_run.outcome, DryRunOutcome::Rejected { .. }) {
            self.stopped = Some(place.command);
        }
    }

    /// Whether the statement requires a version that the rule itself would have changed since the application read it.
    fn is_own_version(&self, rule: &Rule, seen: &EvaluatedCommand<'_>, stored: &KnownDocuments) -> bool {
        let (Some(field), Some((namespace, ..)), Some(write)) =
            (&rule.properties.version, seen.target, Statement::first_of(seen.command))
        else {
            return false;
        };
        let requires = write.filter().get(field.as_str()).is_some_and(|value| value.kind.is_number());
        let Some(id) = write::id(&write).filter(|_| requires && !seen.is_unmatched) else { return false };
        let name = namespace.to_string();
        let keys = [key(&name, id), hash_of(name.as_bytes())];
        let changed = keys.iter().filter_map(|key| self.versions.get(key)).max();
        changed.is_some_and(|tick| stored.is_unread_since(&name, id, *tick))
    }

    /// Notes that rules change the version of a document that the application itself does not change.
    fn note_versions(&mut self, seen: &EvaluatedCommand<'_>, stored: &KnownDocuments) {
        const MAX_VERSIONS: usize = 100_000;
        let (Some((namespace, ..)), [sent]) = (seen.target, seen.sent) else { return };
        let (Some(original), Some(sent)) = (Statement::first_of(seen.command), Statement::first_of(sent.as_document()))
        else {
            return;
        };
        let found = self.rules.rules_for(namespace.database, namespace.collection);
        let mut fields =
            found.iter().flat_map(|rules| rules.iter()).filter_map(|rule| rule.properties.version.as_ref());
        if !seen.is_unmatched
            && fields.any(|field| write::written(&original, field.as_str()) != write::written(&sent, field.as_str()))
        {
            let name = namespace.to_string();
            let key = write::id(&original).map_or_else(|| hash_of(name.as_bytes()), |id| key(&name, id));
            if self.versions.len() < MAX_VERSIONS || self.versions.contains_key(&key) {
                self.versions.insert(key, stored.tick() + 1);
            }
        }
    }

    fn count_outcome(
        &mut self,
        outcome: &RuleOutcome,
        dry_run: &DryRun,
        matched: Matched,
        seen: &EvaluatedCommand<'_>,
    ) {
        let undecided = matches!(dry_run.outcome, DryRunOutcome::Undecided)
            || dry_run.needs.iter().any(|need| matches!(need, AssumedLookup::Documents(_)));
        let rule = self.rules.rule(outcome.rule);
        let (reported, reason) = match ReportedOutcome::from_kind(outcome.kind) {
            _ if seen.hides_from(rule) => (ReportedOutcome::CannotTell, REST_UNKNOWN),
            ReportedOutcome::Rewrite | ReportedOutcome::Reject | ReportedOutcome::Check
                if seen.client.users.is_none() && rule.names_users() =>
            {
                (ReportedOutcome::CannotTell, USER_UNKNOWN)
            }
            // The result of a lookup decides whether it is rewritten.
            ReportedOutcome::Rewrite if undecided => (ReportedOutcome::CannotTell, "it depends on stored documents"),
            ReportedOutcome::Rewrite => match matched {
                Matched::Not(reported, reason) => (reported, reason),
                Matched::Yes | Matched::Unknown | Matched::Unconditional => {
                    (ReportedOutcome::Rewrite, &*outcome.reason)
                }
            },
            reported => (reported, &*outcome.reason),
        };
        if let Some(known) = self.known.get_mut(rule.id.index()) {
            let is_rewritten = reported == ReportedOutcome::Rewrite;
            known.confirmed += u64::from(is_rewritten && matches!(matched, Matched::Yes));
            known.unknown += u64::from(is_rewritten && matches!(matched, Matched::Unknown));
            known.broken += u64::from(reason == OWN_VERSION);
        }
        let is_unconfirmed = matches!(reported, ReportedOutcome::Rewrite | ReportedOutcome::Reject)
            && !matches!(matched, Matched::Yes)
            && seen.may_have_no_effect(outcome);
        if let Some(tally) = self.tally.rules.get_mut(rule.id.index()).filter(|_| is_unconfirmed) {
            tally.unconfirmed += outcome.statements;
        }
        seen.count_example(&mut self.tally, rule, reported, (&outcome.namespace, reason), outcome.statements);
    }

    /// Counts the rules that evaluated the statement without an outcome.
    fn count_forwarded(
        &mut self,
        dry_run: &DryRun,
        outcomes: &[RuleOutcome],
        seen: &EvaluatedCommand<'_>,
        stored: &KnownDocuments,
    ) {
        let Some((namespace, class, kind)) = seen.target else { return };
        let rules = self.rules;
        let Some(found) = rules.rules_for(namespace.database, namespace.collection) else { return };
        let has_outcome = |rule: &Rule| outcomes.iter().any(|outcome| outcome.rule == rule.id);
        // Later rules do not evaluate a rejected statement.
        let rejecting = dry_run.outcomes.iter().find(|outcome| outcome.kind == OutcomeKind::Reject);
        let place = |rule: &Rule| (rule.pattern.evaluation_order(), rule.id);
        let last = rejecting.map(|outcome| place(rules.rule(outcome.rule)));
        let is_evaluated = |rule: &Rule| last.is_none_or(|last| place(rule) <= last);
        let forwarded_by = |rule: &&Rule| {
            evaluates_statement(rule, namespace, class, kind)
                && seen.client.may_have(rule)
                && seen.counts(rule)
                && is_evaluated(rule)
                && !has_outcome(rule)
        };
        for rule in found.iter().filter(forwarded_by) {
            let (outcome, reason) = match &dry_run.outcome {
                _ if seen.hides_from(rule) => (ReportedOutcome::CannotTell, REST_UNKNOWN),
                // It was evaluated without users.
                _ if seen.client.users.is_none() && !rule.applies_to(seen.client.app.as_deref(), Some(&[])) => {
                    (ReportedOutcome::CannotTell, USER_UNKNOWN)
                }
                // Rejected without a rule: the source changed the command, or docward cannot read it.
                DryRunOutcome::Rejected { message, .. } if dry_run.outcomes.is_empty() => {
                    (ReportedOutcome::CannotTell, message.as_str())
                }
                _ if self.is_own_version(rule, seen, stored) => {
                    self.known.get_mut(rule.id.index()).into_iter().for_each(|known| known.broken += 1);
                    (ReportedOutcome::NoMatch, OWN_VERSION)
                }
                _ => {
                    self.tally.rules.get_mut(rule.id.index()).into_iter().for_each(|tally| tally.forward(1));
                    continue;
                }
            };
            seen.count_example(&mut self.tally, rule, outcome, (&namespace.to_string(), reason), 1);
        }
    }
}

/// The outcomes of the rules, of those in shadow mode as if they were enforced.
fn effective(dry_run: &DryRun, enforced: Option<&DryRun>) -> Vec<RuleOutcome> {
    let as_enforced = |outcome: &RuleOutcome| match enforced {
        Some(enforced) if outcome.kind.is_shadow() => {
            let own = enforced.outcomes.iter().find(|one| one.rule == outcome.rule);
            let is_stopped = enforced.outcomes.iter().any(|one| one.kind == OutcomeKind::Reject);
            own.or_else(|| is_stopped.then_some(outcome)).cloned()
        }
        _ => Some(outcome.clone()),
    };
    dry_run.outcomes.iter().filter_map(as_enforced).collect()
}

/// A command of one statement to count.
struct EvaluatedCommand<'s> {
    command: Document<'s>,
    target: Option<CommandTarget<'s>>,
    client: &'s Client,
    at: Option<u64>,
    partial: bool,
    /// It is the first statement of its command.
    is_first: bool,
    /// The reply shows that it failed or matched nothing.
    is_unmatched: bool,
    /// What is sent instead, if rules rewrite it.
    sent: &'s [CowDocument<'static>],
    /// What the rules do if nothing matches with their conditions, if that can matter.
    unmatched: Option<&'s DryRun>,
}

impl Client {
    /// Whether the rule may apply to it.
    fn may_have(&self, rule: &Rule) -> bool {
        rule.applies_to(self.app.as_deref(), self.users.as_deref())
    }
}

impl EvaluatedCommand<'_> {
    /// Whether the rule needs a part of the command that the source does not have.
    fn hides_from(&self, rule: &Rule) -> bool {
        let whole =
            |(namespace, class, kind): CommandTarget<'_>| rule.pattern.evaluates_command(class, kind, namespace);
        let comment = rule.properties.looks_at_comment && self.command.get("comment").is_none();
        self.partial && (comment || self.target.is_some_and(whole))
    }

    /// Whether the rule evaluates it, and not only the whole command, of which it is a later statement.
    fn counts(&self, rule: &Rule) -> bool {
        let is_of_command = |(namespace, class, kind): CommandTarget<'_>| {
            let each = kind.map(|kind| rule.pattern.applicability(kind, namespace));
            each == Some(Applicability::None) && rule.pattern.evaluates_command(class, kind, namespace)
        };
        self.is_first || !self.target.is_some_and(is_of_command)
    }

    /// Whether the rule has another outcome if nothing matches, or nothing with the rules' conditions.
    fn may_have_no_effect(&self, outcome: &RuleOutcome) -> bool {
        let reported = |outcome: &RuleOutcome| (outcome.rule, ReportedOutcome::from_kind(outcome.kind));
        let asks = |need: &AssumedLookup| matches!(need, AssumedLookup::Match(_));
        self.unmatched.is_some_and(|run| {
            run.needs.iter().any(asks) || !run.outcomes.iter().any(|other| reported(other) == reported(outcome))
        })
    }

    /// Whether the statement that is sent would have matched the document that the client's own filter matched.
    fn matched(&self, rule: &Rule, stored: &KnownDocuments) -> Matched {
        let ([sent], Some((namespace, ..)), Some(original)) =
            (self.sent, self.target, Statement::first_of(self.command))
        else {
            return Matched::Unknown;
        };
        let Some(sent) = Statement::first_of(sent.as_document()) else { return Matched::Unknown };
        if sent.filter().as_bytes() == original.filter().as_bytes() {
            return Matched::Unconditional;
        }
        let name = namespace.to_string();
        let is_version = rule.properties.version.is_some();
        let Some(document) = stored.selected(&name, original.filter()) else { return Matched::Unknown };
        if original.is_upsert() || matching::matches(original.filter(), &document) == Some(false) {
            return Matched::Unknown;
        }
        let replaces = original.kind() == StatementKind::Replacement;
        if is_version && replaces && stored.is_changed_since_read(&name, original.filter(), self.client.connection) {
            return Matched::Not(ReportedOutcome::Conflict, CHANGED_SINCE);
        }
        match matching::matches(sent.filter(), &document) {
            Some(true) => Matched::Yes,
            Some(false) if is_version => Matched::Not(ReportedOutcome::Conflict, OTHER_VERSION),
            Some(false) => Matched::Not(ReportedOutcome::NoMatch, NOT_SATISFIED),
            None => Matched::Unknown,
        }
    }

    fn count_example(
        &self,
        tally: &mut AuditTally,
        rule: &Rule,
        outcome: ReportedOutcome,
        (namespace, reason): (&str, &str),
        statements: u64,
    ) {
        let Some(tally) = tally.rules.get_mut(rule.id.index()) else { return };
        let (app, users) = (self.client.app.as_deref(), self.client.users.as_deref());
        let noted = CountedOutcome { outcome, statements, app, users, at: self.at, namespace, reason };
        let is_sent =
            matches!(outcome, ReportedOutcome::Rewrite | ReportedOutcome::Conflict | ReportedOutcome::NoMatch);
        tally.count_example(&noted, shape(self.command), || {
            let sent = is_sent.then(|| self.sent.iter().map(|sent| text(sent.as_document())).collect());
            let sent: Option<Vec<String>> = sent.flatten();
            let sent = sent.filter(|sent| !sent.is_empty()).map(|sent| sent.join("; "));
            ExampleText { given: text(self.command), sent }
        });
    }
}

/// Whether a rewritten statement would have matched.
#[derive(Debug, Clone, Copy)]
enum Matched {
    Yes,
    Not(ReportedOutcome, &'static str),
    Unknown,
    /// The rules add no condition.
    Unconditional,
}

/// Whether the bytes contain the name; can be true although the command does not use it.
fn has(command: &[u8], name: &[u8]) -> bool {
    memchr::memmem::find(command, name).is_some()
}

fn class_name(class: CommandClass) -> &'static str {
    class.names().first().copied().unwrap_or("unknown command")
}

/// The command in mongosh syntax on one line, truncated.
fn text(command: Document<'_>) -> Option<String> {
    let database = command.get("$db")?.as_str()?;
    /// Longer commands are not rendered: the example would be truncated anyway.
    const MAX_BYTES: usize = 16 * 1024;
    if command.as_bytes().len() > MAX_BYTES {
        return None;
    }
    let text = render_unbroken(command, database);
    match text.char_indices().nth(MAX_SHELL) {
        Some((end, _)) => Some(format!("{}…", text.get(..end).unwrap_or_default())),
        None => Some(text),
    }
}
