//! RecordedCommand commands before rules: every statement is evaluated_dry by itself, as if it were sent now.

use super::recorded::{Asked, Client, Hidden, REST_UNKNOWN, RecordedCommand};
use super::shape::shape;
use super::tally::{Effect, Noted, Tally};
use crate::command::{Class, Namespace, StatementKind, classify};
use crate::document::{CowDocument, Document, Value};
use crate::engine::{DryRun, Need, Now, Outcome, OutcomeKind, RuleOutcome, Session, dry_run, statements};
use crate::patterns::{Concern, Rule, RuleSet};
use crate::shell::render_unbroken;

/// Characters of an example's text.
const MAX_SHELL: usize = 400;

/// Counts what rules would have done.
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

    /// Whether rules can have anything to say of such a command, see [`Wanted`](super::Wanted).
    #[must_use]
    pub fn wants(&self, namespace: Namespace<'_>, class: Class, command: &[u8]) -> bool {
        match class {
            Class::Aggregate if has(command, b"$out") || has(command, b"$merge") => return true,
            Class::Explain | Class::BulkWrite => return true,
            Class::Aggregate | Class::Harmless | Class::Hello | Class::Authenticate => {}
            other if other.indirect_write().is_some() => return true,
            _ => {}
        }
        class != Class::Harmless && self.rules.rules_for(namespace.database, namespace.collection).is_some()
    }

    /// Counts one command.
    pub fn take(&mut self, past: &RecordedCommand) {
        self.tally.commands += 1;
        past.milliseconds.into_iter().for_each(|at| self.tally.see(at));
        self.tally.users_unknown |= past.client.users.is_none();
        match &past.asked {
            Asked::Hidden(hidden) => self.hidden(hidden, &past.client),
            Asked::Command(command) => {
                let each = statements(command.as_document());
                if each.is_empty() {
                    self.statement(command, past);
                }
                each.iter().for_each(|one| self.statement(one, past));
            }
        }
    }

    /// What was counted.
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
            let looks = match kinds {
                [] => looks_at(rule, namespace, hidden.class, None),
                kinds => kinds.iter().any(|kind| looks_at(rule, namespace, hidden.class, Some(*kind))),
            };
            if let Some(tally) = self.tally.rules.get_mut(rule.id.index()).filter(|_| looks) {
                let noted = Noted {
                    effect: Effect::CannotTell,
                    statements: hidden.statements,
                    app: client.app.as_deref(),
                    namespace: &text,
                    reason: hidden.reason,
                };
                tally.note(&noted, class_name(hidden.class).to_owned(), || None);
            }
        }
    }

    /// A command with one statement, or none.
    fn statement(&mut self, command: &CowDocument<'static>, past: &RecordedCommand) {
        let document = command.as_document();
        let client = &past.client;
        let users = Some(client.users.clone().unwrap_or_default());
        let mut session = Session { app_name: client.app.clone(), users, ..Session::default() };
        let now = Now { milliseconds: past.milliseconds.unwrap_or_default() };
        let dry_run = dry_run(document, self.rules, now, &mut session);
        let seen = Seen { command: document, target: target(document), client, partial: past.partial };
        dry_run.outcomes.iter().for_each(|outcome| self.note_observation(outcome, &dry_run, &seen));
        self.note_silence(&dry_run, &seen);
    }

    fn note_observation(&mut self, outcome: &RuleOutcome, dry_run: &DryRun, seen: &Seen<'_>) {
        let undecided = matches!(dry_run.outcome, Outcome::Undecided)
            || dry_run.needs.iter().any(|need| matches!(need, Need::Documents(_)));
        let rule = self.rules.rule(outcome.rule);
        let (effect, reason) = match Effect::of(outcome.said) {
            _ if seen.hides_from(rule) => (Effect::CannotTell, REST_UNKNOWN),
            // What is looked up first decides what a procedure makes of it.
            Effect::Rewritten if undecided => (Effect::CannotTell, "it depends on what is stored"),
            effect => (effect, outcome.reason.as_str()),
        };
        seen.note(&mut self.tally, rule, effect, (&outcome.namespace, reason), outcome.statements);
    }

    /// The rules that look at it and said nothing.
    fn note_silence(&mut self, dry_run: &DryRun, seen: &Seen<'_>) {
        let Some((namespace, class, kind)) = seen.target else { return };
        let rules = self.rules;
        let Some(found) = rules.rules_for(namespace.database, namespace.collection) else { return };
        let spoke = |rule: &Rule| dry_run.outcomes.iter().any(|outcome| outcome.rule == rule.id);
        // What one rule rejects no later one sees.
        let rejecting = dry_run.outcomes.iter().find(|outcome| outcome.said == OutcomeKind::Reject);
        let last = rejecting.map(|outcome| rules.rule(outcome.rule).pattern.phase());
        let sees = |rule: &Rule| last.is_none_or(|last| rule.pattern.phase() <= last);
        let silent = |rule: &&Rule| looks_at(rule, namespace, class, kind) && sees(rule) && !spoke(rule);
        for rule in found.iter().filter(silent) {
            let reason = match &dry_run.outcome {
                _ if seen.hides_from(rule) => REST_UNKNOWN,
                // RejectedBy without a rule: it is not as mongod took it, or docward would not read it.
                Outcome::Rejected { message, .. } if dry_run.outcomes.is_empty() => message,
                _ => {
                    self.tally.rules.get_mut(rule.id.index()).into_iter().for_each(|tally| tally.pass(1));
                    continue;
                }
            };
            seen.note(&mut self.tally, rule, Effect::CannotTell, (&namespace.to_string(), reason), 1);
        }
    }
}

/// A command of one statement, as it is counted.
struct Seen<'s> {
    command: Document<'s>,
    target: Option<Target<'s>>,
    client: &'s Client,
    partial: bool,
}

impl Seen<'_> {
    /// Whether the rule looks at what the source leaves out.
    fn hides_from(&self, rule: &Rule) -> bool {
        let whole = |(_, class, kind): Target<'_>| rule.pattern.evaluates_command(class, kind);
        let comment = rule.pattern.looks_at_comment() && self.command.get("comment").is_none();
        self.partial && (comment || self.target.is_some_and(whole))
    }

    fn note(&self, tally: &mut Tally, rule: &Rule, effect: Effect, (namespace, reason): (&str, &str), statements: u64) {
        let Some(tally) = tally.rules.get_mut(rule.id.index()) else { return };
        let noted = Noted { effect, statements, app: self.client.app.as_deref(), namespace, reason };
        tally.note(&noted, shape(self.command), || text(self.command));
    }
}

/// Where a command writes or reads, by what, and what a write does.
type Target<'c> = (Namespace<'c>, Class, Option<StatementKind>);

/// Whether a name is among the bytes; may say yes without need.
fn has(command: &[u8], name: &[u8]) -> bool {
    memchr::memmem::find(command, name).is_some()
}

/// Whether a rule looks at what writes as `kind`, or reads, by a command of this class.
fn looks_at(rule: &Rule, namespace: Namespace<'_>, class: Class, kind: Option<StatementKind>) -> bool {
    rule.pattern.evaluates_command(class, kind)
        || kind.is_some_and(|kind| rule.pattern.concern(kind, namespace) != Concern::Nothing)
}

/// What a command of one statement is about.
fn target(command: Document<'_>) -> Option<Target<'_>> {
    let first = command.first()?;
    let class = classify(first.key);
    if class == Class::BulkWrite {
        return bulk_target(command);
    }
    let namespace = Namespace { database: command.get("$db")?.as_str()?, collection: first.value.as_str()? };
    Some((namespace, class, kind(command, class)))
}

/// The same of a bulkWrite's one op.
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
    Some((Namespace::parse(named.get("ns")?.as_str()?)?, Class::BulkWrite, Some(kind)))
}

fn kind(command: Document<'_>, class: Class) -> Option<StatementKind> {
    let change = match class {
        Class::Insert => return Some(StatementKind::Insert),
        Class::Delete => return Some(StatementKind::Delete),
        Class::FindAndModify if command.get("remove").and_then(Value::as_flag) == Some(true) => {
            return Some(StatementKind::Delete);
        }
        Class::FindAndModify => command.get("update"),
        Class::Update => {
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

/// What a command of this class may write as.
fn kinds_of_class(class: Class) -> &'static [StatementKind] {
    use StatementKind::{Delete, Insert, Operators, Pipeline, Replacement};
    match class {
        Class::Insert => &[Insert],
        Class::Update => &[Operators, Replacement, Pipeline],
        Class::Delete => &[Delete],
        Class::FindAndModify => &[Operators, Replacement, Pipeline, Delete],
        Class::BulkWrite => &[Insert, Operators, Replacement, Pipeline, Delete],
        _ => &[],
    }
}

fn class_name(class: Class) -> &'static str {
    class.names().first().copied().unwrap_or("unknown command")
}

/// The command as people write it, cut to a line.
fn text(command: Document<'_>) -> Option<String> {
    let database = command.get("$db")?.as_str()?;
    /// Rendering reads what it wrote once more; nobody reads so long an example.
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
