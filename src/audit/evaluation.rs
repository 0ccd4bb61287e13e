//! Evaluates recorded commands with rules: a dry run of each statement alone, as if it were sent now.

use super::recorded::{Client, Content, Hidden, REST_UNKNOWN, RecordedCommand};
use super::shape;
use super::tally::{Effect, Noted, Tally};
use crate::command::{CommandClass, Namespace, StatementKind, classify};
use crate::document::{CowDocument, Document, Value};
use crate::engine::{ClientState, DryRun, DryRunOutcome, Need, Now, OutcomeKind, RuleOutcome, dry_run, statements};
use crate::patterns::Concern;
use crate::rules::{Rule, RuleSet};
use crate::shell::render_unbroken;

/// The most characters in an example's text.
const MAX_SHELL: usize = 400;

/// Counts the effects that rules would have had.
#[derive(Debug)]
pub struct Audit<'r> {
    rules: &'r RuleSet,
    tally: Tally,
}

impl<'r> Audit<'r> {
    #[must_use]
    pub fn new(rules: &'r RuleSet) -> Self {
        let mut tally = Tally::default();
        tally.rules.resize_with(rules.rules().len(), Default::default);
        Self { rules, tally }
    }

    /// Whether rules can match such a command, see [`Wanted`](super::Wanted).
    #[must_use]
    pub fn wants(&self, namespace: Namespace<'_>, class: CommandClass, command: &[u8]) -> bool {
        match class {
            CommandClass::Aggregate if has(command, b"$out") || has(command, b"$merge") => return true,
            CommandClass::Explain | CommandClass::BulkWrite | CommandClass::DropDatabase => return true,
            CommandClass::Aggregate | CommandClass::Harmless | CommandClass::Hello | CommandClass::Authenticate => {}
            other if other.indirect_write().is_some() => return true,
            _ => {}
        }
        class != CommandClass::Harmless && self.rules.rules_for(namespace.database, namespace.collection).is_some()
    }

    /// Counts one command.
    pub fn take(&mut self, recorded: &RecordedCommand) {
        self.tally.commands += 1;
        recorded.milliseconds.into_iter().for_each(|at| self.tally.see(at));
        self.tally.users_unknown |= recorded.client.users.is_none();
        match &recorded.content {
            Content::Hidden(hidden) => self.hidden(hidden, &recorded.client),
            Content::Command(command) => {
                let mut each = statements(command.as_document()).peekable();
                if each.peek().is_none() {
                    self.statement(command, recorded);
                }
                each.for_each(|one| self.statement(&one, recorded));
            }
        }
    }

    /// The counts.
    #[must_use]
    pub fn finish(self) -> Tally {
        self.tally
    }

    fn hidden(&mut self, hidden: &Hidden, client: &Client) {
        let namespace = Namespace { database: &hidden.database, collection: &hidden.collection };
        let rules = self.rules;
        let Some(found) = rules.rules_for(hidden.database.as_str(), hidden.collection.as_str()) else { return };
        let kinds = kinds_of_class(hidden.class);
        let text = namespace.to_string();
        for rule in found.iter() {
            let evaluates = match kinds {
                [] => evaluates_statement(rule, namespace, hidden.class, None),
                kinds => kinds.iter().any(|kind| evaluates_statement(rule, namespace, hidden.class, Some(*kind))),
            };
            if let Some(tally) = self.tally.rules.get_mut(rule.id.index()).filter(|_| evaluates) {
                let noted = Noted {
                    effect: Effect::CannotTell,
                    statements: hidden.statements,
                    app: client.app.as_deref(),
                    users: client.users.as_deref(),
                    at: None,
                    namespace: &text,
                    reason: hidden.reason,
                };
                tally.note(&noted, class_name(hidden.class).to_owned(), || None);
            }
        }
    }

    /// Evaluates a command with at most one statement.
    fn statement(&mut self, command: &CowDocument<'static>, recorded: &RecordedCommand) {
        let document = command.as_document();
        let client = &recorded.client;
        let users = Some(client.users.clone().unwrap_or_default());
        let mut client_state =
            ClientState { app_name: client.app.as_deref().map(Into::into), users, ..ClientState::default() };
        let now = Now { milliseconds: recorded.milliseconds.unwrap_or_default() };
        let dry_run = dry_run(document, self.rules, now, &mut client_state);
        let seen = EvaluatedCommand {
            command: document,
            target: target(document),
            client,
            at: recorded.milliseconds.and_then(|at| u64::try_from(at).ok()),
            partial: recorded.partial,
        };
        dry_run.outcomes.iter().for_each(|outcome| self.note_outcome(outcome, &dry_run, &seen));
        self.note_passed(&dry_run, &seen);
    }

    fn note_outcome(&mut self, outcome: &RuleOutcome, dry_run: &DryRun, seen: &EvaluatedCommand<'_>) {
        let undecided = matches!(dry_run.outcome, DryRunOutcome::Undecided)
            || dry_run.needs.iter().any(|need| matches!(need, Need::Documents(_)));
        let rule = self.rules.rule(outcome.rule);
        let (effect, reason) = match Effect::from_outcome(outcome.kind) {
            _ if seen.hides_from(rule) => (Effect::CannotTell, REST_UNKNOWN),
            // The result of a lookup decides whether it is rewritten.
            Effect::Rewritten if undecided => (Effect::CannotTell, "it depends on stored documents"),
            effect => (effect, outcome.reason.as_str()),
        };
        seen.note(&mut self.tally, rule, effect, (&outcome.namespace, reason), outcome.statements);
    }

    /// Counts the rules that evaluated the statement without an outcome.
    fn note_passed(&mut self, dry_run: &DryRun, seen: &EvaluatedCommand<'_>) {
        let Some((namespace, class, kind)) = seen.target else { return };
        let rules = self.rules;
        let Some(found) = rules.rules_for(namespace.database, namespace.collection) else { return };
        let has_outcome = |rule: &Rule| dry_run.outcomes.iter().any(|outcome| outcome.rule == rule.id);
        // Later rules do not evaluate a rejected statement.
        let rejecting = dry_run.outcomes.iter().find(|outcome| outcome.kind == OutcomeKind::Reject);
        let last = rejecting.map(|outcome| rules.rule(outcome.rule).pattern.phase());
        let is_evaluated = |rule: &Rule| last.is_none_or(|last| rule.pattern.phase() <= last);
        let passed_by = |rule: &&Rule| {
            evaluates_statement(rule, namespace, class, kind) && is_evaluated(rule) && !has_outcome(rule)
        };
        for rule in found.iter().filter(passed_by) {
            let reason = match &dry_run.outcome {
                _ if seen.hides_from(rule) => REST_UNKNOWN,
                // Rejected without a rule: the source changed the command, or docward cannot read it.
                DryRunOutcome::Rejected { message, .. } if dry_run.outcomes.is_empty() => message,
                _ => {
                    self.tally.rules.get_mut(rule.id.index()).into_iter().for_each(|tally| tally.pass(1));
                    continue;
                }
            };
            seen.note(&mut self.tally, rule, Effect::CannotTell, (&namespace.to_string(), reason), 1);
        }
    }
}

/// A command of one statement to count.
struct EvaluatedCommand<'s> {
    command: Document<'s>,
    target: Option<Target<'s>>,
    client: &'s Client,
    at: Option<u64>,
    partial: bool,
}

impl EvaluatedCommand<'_> {
    /// Whether the rule needs a part of the command that the source does not have.
    fn hides_from(&self, rule: &Rule) -> bool {
        let whole = |(_, class, kind): Target<'_>| rule.pattern.evaluates_command(class, kind);
        let comment = rule.pattern.looks_at_comment() && self.command.get("comment").is_none();
        self.partial && (comment || self.target.is_some_and(whole))
    }

    fn note(&self, tally: &mut Tally, rule: &Rule, effect: Effect, (namespace, reason): (&str, &str), statements: u64) {
        let Some(tally) = tally.rules.get_mut(rule.id.index()) else { return };
        let (app, users) = (self.client.app.as_deref(), self.client.users.as_deref());
        let noted = Noted { effect, statements, app, users, at: self.at, namespace, reason };
        tally.note(&noted, shape(self.command), || text(self.command));
    }
}

/// The namespace and class of a command, and the kind of its statement.
type Target<'c> = (Namespace<'c>, CommandClass, Option<StatementKind>);

/// Whether the bytes contain the name; can be true although the command does not use it.
fn has(command: &[u8], name: &[u8]) -> bool {
    memchr::memmem::find(command, name).is_some()
}

/// Whether a rule evaluates statements of `kind`, or a command of this class.
fn evaluates_statement(
    rule: &Rule,
    namespace: Namespace<'_>,
    class: CommandClass,
    kind: Option<StatementKind>,
) -> bool {
    rule.pattern.evaluates_command(class, kind)
        || kind.is_some_and(|kind| rule.pattern.concern(kind, namespace) != Concern::Nothing)
}

/// The target of a command with one statement.
fn target(command: Document<'_>) -> Option<Target<'_>> {
    let first = command.first()?;
    let class = classify(first.key);
    if class == CommandClass::BulkWrite {
        return bulk_target(command);
    }
    let namespace = Namespace { database: command.get("$db")?.as_str()?, collection: first.value.as_str()? };
    Some((namespace, class, kind(command, class)))
}

/// The target of a bulkWrite with one op.
fn bulk_target(command: Document<'_>) -> Option<Target<'_>> {
    let op = command.get("ops")?.as_array()?.values().next()?.as_document()?;
    let first = op.first()?;
    let place = usize::try_from(first.value.as_integer()?).ok()?;
    let named = command.get("nsInfo")?.as_array()?.values().nth(place)?.as_document()?;
    let kind = match first.key {
        b"insert" => StatementKind::Insert,
        b"delete" => StatementKind::Delete,
        _ => kind_of_change(op.get("updateMods")?),
    };
    Some((Namespace::parse(named.get("ns")?.as_str()?)?, CommandClass::BulkWrite, Some(kind)))
}

fn kind(command: Document<'_>, class: CommandClass) -> Option<StatementKind> {
    let change = match class {
        CommandClass::Insert => return Some(StatementKind::Insert),
        CommandClass::Delete => return Some(StatementKind::Delete),
        CommandClass::FindAndModify if command.get("remove").and_then(Value::as_flag) == Some(true) => {
            return Some(StatementKind::Delete);
        }
        CommandClass::FindAndModify => command.get("update"),
        CommandClass::Update => {
            let list = command.get("updates").and_then(Value::as_array)?;
            list.values().next()?.as_document()?.get("u")
        }
        _ => return None,
    };
    change.map(kind_of_change)
}

fn kind_of_change(change: Value<'_>) -> StatementKind {
    match change.as_document() {
        None => StatementKind::Pipeline,
        Some(document) if document.first().is_some_and(|first| first.key.starts_with(b"$")) => StatementKind::Operators,
        Some(_) => StatementKind::Replacement,
    }
}

/// The kinds of statements that a command of this class can have.
fn kinds_of_class(class: CommandClass) -> &'static [StatementKind] {
    use StatementKind::{Delete, Insert, Operators, Pipeline, Replacement};
    match class {
        CommandClass::Insert => &[Insert],
        CommandClass::Update => &[Operators, Replacement, Pipeline],
        CommandClass::Delete => &[Delete],
        CommandClass::FindAndModify => &[Operators, Replacement, Pipeline, Delete],
        CommandClass::BulkWrite => &[Insert, Operators, Replacement, Pipeline, Delete],
        _ => &[],
    }
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
