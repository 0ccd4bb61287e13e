//! Texts and JSON for the outcomes of a dry run, shared by `explain` and `test`.

use serde_json::json;

use crate::command::{CommandClass, Namespace, WriteForm, classify};
use crate::config::{Report, SourceFile, SourceFiles, Span};
use crate::document::{CowDocument, Document, Value};
use crate::engine::lookup::Maximum;
use crate::engine::step::PermitRequest;
use crate::engine::{AssumedLookup, ClientState, DryRun, DryRunOutcome, OutcomeKind, RuleOutcome};
use crate::patterns::throttle::ThrottleLimits;
use crate::proxy::OverriddenMode;
use crate::rules::reads::reads_rule;
use crate::rules::{NamespaceRules, Rule, RuleSet};
use crate::shell::{ShellError, iso, render, render_lines};
use crate::text::one_line;

/// The connection state of a client with this application name and user; `user` is "authDb.name".
pub(super) fn client_state(app: Option<&str>, user: Option<&str>) -> ClientState {
    let users =
        user.and_then(|user| user.split_once('.')).map(|(database, name)| vec![(database.to_owned(), name.to_owned())]);
    ClientState { app_name: app.map(Into::into), users, ..ClientState::default() }
}

/// A syntax error in a command, as a report. `name` replaces the file name.
pub(super) fn report(error: &ShellError, name: &str, text: &str) -> Report {
    let sources = SourceFiles::new(vec![SourceFile { name: name.to_owned(), text: text.to_owned() }]);
    let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    let span = sources.files().next().map(|file| Span::new(file, offset(error.span.start), offset(error.span.end)));
    Report::new(span.map(|span| error.diagnostic(span)).into_iter().collect(), sources)
}

/// The name of the verdict.
pub(super) fn verdict(outcome: &DryRunOutcome) -> &'static str {
    match outcome {
        DryRunOutcome::Unchanged => "forward",
        // A rule executes it, whatever the lookup finds.
        DryRunOutcome::Rewritten(_) | DryRunOutcome::Undecided => "rewrite",
        DryRunOutcome::Checked(_) => "check",
        DryRunOutcome::Rejected { .. } => "reject",
    }
}

/// The effect of a rule, as the end of a sentence that starts with its name.
pub(super) fn effect(kind: OutcomeKind) -> &'static str {
    match kind {
        OutcomeKind::Rewrite => "rewrites it",
        OutcomeKind::Check => "checks it",
        OutcomeKind::Reject => "rejects it",
        OutcomeKind::Warn => "forwards it and logs a warning",
        OutcomeKind::Conflict => "reports a conflict",
        OutcomeKind::NoMatch => "finds that it matched nothing",
        OutcomeKind::Stale => "finds that it changed nothing",
        OutcomeKind::Allow => "cannot analyse it and forwards it (unsupported: allow)",
        OutcomeKind::ExceptRewrite => "would rewrite it, but exempts this client (except)",
        OutcomeKind::ExceptCheck => "would check it, but exempts this client (except)",
        OutcomeKind::ShadowCheck => "would check it; the result is not known (mode: shadow)",
        OutcomeKind::ExceptReject => "would reject it, but exempts this client (except)",
        OutcomeKind::ShadowRewrite => "would rewrite it (mode: shadow)",
        OutcomeKind::ShadowReject => "would reject it (mode: shadow)",
    }
}

/// `{name, pattern, outcome, reason, hint}`
pub(super) fn rule_json(outcome: &RuleOutcome) -> serde_json::Value {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "name": &*outcome.rule_name,
        "pattern": outcome.pattern,
        "outcome": outcome.kind.as_str(),
        "reason": text(&outcome.reason),
        "hint": text(&outcome.hint),
    })
}

/// A lookup for which the dry run assumed a result, as a sentence.
pub(super) fn need(need: &AssumedLookup, outcome: &DryRunOutcome, database: &str) -> String {
    let largest = |Maximum { database, collection, field }: &Maximum| {
        format!("docward looks up the largest '{field}' in {database}.{collection}; this output assumes there is none")
    };
    match need {
        AssumedLookup::Users => {
            "a rule depends on users, so docward asks the server for the authenticated users; this output \
                        assumes none (name one with --as-user or, in the playground, under user)"
                .to_owned()
        }
        AssumedLookup::Numbers(request) => format!(
            "docward reserves {} from the counter '{}' in {}.{}; this output assumes {} the first",
            if request.count == 1 { "a number".to_owned() } else { format!("{} numbers", request.count) },
            request.counter.id,
            request.counter.database,
            request.counter.collection,
            if request.count == 1 { "it is" } else { "they are" },
        ),
        AssumedLookup::Maximum(maximum) => largest(maximum),
        AssumedLookup::Documents(question) => {
            let undecided = matches!(outcome, DryRunOutcome::Undecided);
            let guess = if undecided { "" } else { "; this output assumes it finds none" };
            format!("docward first reads stored documents{guess}: {}", render(question.as_document(), database))
        }
        AssumedLookup::Permit(request) => permit(request),
        AssumedLookup::Match(question) => {
            let question = render(question.as_document(), database);
            format!("docward rejects it only if this query finds a document: {question}")
        }
    }
}

/// Whether the verdict depends on whether a document matches.
pub(super) fn depends_on_match(dry_run: &DryRun) -> bool {
    dry_run.needs.iter().any(|need| matches!(need, AssumedLookup::Match(_)))
}

/// What docward does if nothing matches, where that differs; `unmatched` is the dry run for this case.
pub(super) fn unmatched(dry_run: &DryRun, unmatched: &DryRun, database: &str) -> Option<String> {
    let sent = |run: &DryRun| match &run.outcome {
        DryRunOutcome::Rewritten(sent) | DryRunOutcome::Checked(sent) | DryRunOutcome::Rejected { sent, .. } => {
            sent.len()
        }
        DryRunOutcome::Unchanged | DryRunOutcome::Undecided => 0,
    };
    let later = match &unmatched.outcome {
        DryRunOutcome::Rewritten(all) | DryRunOutcome::Checked(all) | DryRunOutcome::Rejected { sent: all, .. } => {
            all.get(sent(dry_run)..).unwrap_or_default()
        }
        DryRunOutcome::Unchanged | DryRunOutcome::Undecided => &[],
    };
    let then = match (later, rejection(unmatched)) {
        ([], None) => "the client gets n: 0".to_owned(),
        ([], Some(message)) => format!("the client gets this error: {message}"),
        // The server counts a statement that cannot match.
        (later, _) if !later.iter().any(upserts) => "the client gets n: 0".to_owned(),
        (later, _) => format!("docward sends {}", shell(later, database)),
    };
    if depends_on_match(dry_run) {
        return Some(format!("if the query finds none, {then}"));
    }
    let questions: Vec<String> = unmatched
        .needs
        .iter()
        .filter_map(|need| match need {
            AssumedLookup::Match(question) => Some(render(question.as_document(), database)),
            _ => None,
        })
        .collect();
    (!questions.is_empty()).then(|| {
        format!(
            "if it matches nothing, docward asks whether a document fails only the rules' conditions: {}; if so, the \
             client gets the rule's error or n: 0; if not, {then}",
            questions.join("; ")
        )
    })
}

/// Whether a statement of the command may insert a document.
fn upserts(command: &CowDocument<'static>) -> bool {
    let command = command.as_document();
    let is_upsert = |of: Document<'_>| of.get("upsert").and_then(Value::as_flag) == Some(true);
    WriteForm::of_command(command).is_some_and(|form| form.statements(command).any(is_upsert))
}

/// The database and collection that a command names.
fn target(command: Document<'_>) -> Option<(&str, &str)> {
    let (database, first) = (command.get("$db")?.as_str()?, command.first()?);
    let collection = first.value.as_str().filter(|_| !matches!(classify(first.key), CommandClass::Harmless))?;
    Some((database, collection))
}

/// The collection that a command names, if no rule applies to it.
pub(super) fn elsewhere(command: Document<'_>, rules: &RuleSet) -> Option<String> {
    let (database, collection) = target(command)?;
    let applies = rules.rules_for(database, collection).is_some() || rules.rules_naming(database, collection).is_some();
    (!applies).then(|| format!("{database}.{collection}"))
}

/// The rule that only the query listener uses for the collection of a command, if there is no other.
pub(super) fn only_reads(command: Document<'_>, rules: &RuleSet) -> Option<String> {
    let (database, collection) =
        target(command).filter(|(database, name)| rules.rules_for(*database, *name).is_none())?;
    let rule = reads_rule(rules, Namespace { database, collection })?;
    let name = &rule.name.value;
    Some(format!("rule '{name}' applies at the query listener only, which this output does not evaluate"))
}

/// The rules for the collection of a command that apply to other clients only.
pub(super) fn only_others(
    command: Document<'_>,
    rules: &RuleSet,
    (app, user): (Option<&str>, Option<&str>),
) -> Option<String> {
    let (database, collection) = target(command)?;
    let found = rules.rules_for(database, collection)?;
    let users = client_state(app, user).users.unwrap_or_default();
    let others = found.iter().filter(|rule| !rule.applies_to(app, Some(&users)));
    let names: Vec<String> = others.map(|rule| format!("'{}'", rule.name.value)).collect();
    let client = match (app, user) {
        (None, None) => "a client without appName and user".to_owned(),
        (app, user) => [app.map(|app| format!("appName {app}")), user.map(|user| format!("user {user}"))]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" and "),
    };
    (!names.is_empty()).then(|| format!("not applied to {client} (`only`): {}", names.join(", ")))
}

/// The overrides of the modes of the rules for the collection of a command.
pub(super) fn overrides(command: Document<'_>, rules: &RuleSet) -> Vec<String> {
    let found = target(command).and_then(|(database, collection)| rules.rules_for(database, collection));
    let shown = |rule: &Rule| Some(overridden(&rule.name.value, &OverriddenMode::of_rule(rule)?));
    found.iter().flat_map(NamespaceRules::iter).filter_map(shown).collect()
}

/// That a rule has another mode than in its file: for which clients, until when and why.
pub(super) fn overridden(rule: &str, found: &OverriddenMode) -> String {
    let OverriddenMode { mode, only, file_mode, until, reason, by, .. } = found;
    let (until, by, reason) = (iso(i64::try_from(*until).unwrap_or(i64::MAX)), one_line(by), one_line(reason));
    let only = only.after(" for ");
    format!("rule '{rule}' has mode {mode}{only} instead of {file_mode} until {until}, set by {by}: {reason}")
}

/// What a rejection does to the transaction of the client.
pub(super) fn aborted_transaction(command: &CowDocument<'_>, dry_run: &DryRun) -> Option<&'static str> {
    let in_transaction = command.as_document().get("autocommit").and_then(Value::as_flag) == Some(false);
    (in_transaction && rejection(dry_run).is_some())
        .then_some("docward aborts the client's transaction with the rejection, so that none of its statements remains")
}

/// What explains the forwarding of a command that docward does not know.
pub(super) fn unknown_command(command: &CowDocument<'_>, dry_run: &DryRun) -> Option<String> {
    let name = command.as_document().first()?.key;
    let forwards = matches!(dry_run.outcome, DryRunOutcome::Unchanged) && classify(name) == CommandClass::Unknown;
    forwards.then(|| {
        let name = String::from_utf8_lossy(name);
        format!("docward does not know the command `{name}`, and forwards it because it names no protected collection")
    })
}

fn permit(request: &PermitRequest) -> String {
    let PermitRequest { rule, limits: ThrottleLimits { concurrent, rate, per, wait }, .. } = request;
    let at_a_time = concurrent.map(|concurrent| format!("{concurrent} commands at a time"));
    let in_a_second = rate.map(|rate| format!("{rate} statements in a second"));
    let limits: Vec<String> = at_a_time.into_iter().chain(in_a_second).collect();
    let (limits, per) = (limits.join(" and "), per.as_str());
    let effect = if request.is_shadow {
        "beyond that it would wait, and".to_owned()
    } else {
        format!("beyond that it waits for up to {wait:?}, and is then rejected;")
    };
    format!("rule '{rule}' allows each {per} {limits}: {effect} this output assumes that it need not wait")
}

/// Commands as text, one after the other.
pub(super) fn shell(commands: &[CowDocument<'static>], database: &str) -> String {
    commands.iter().map(|command| render(command.as_document(), database)).collect::<Vec<_>>().join("\n")
}

/// Commands as text with one field per line, for a diff.
pub(super) fn shell_lines(commands: &[CowDocument<'static>], database: &str) -> String {
    commands.iter().map(|command| render_lines(command.as_document(), database) + "\n").collect()
}

/// The error message that the client would get, if the command is rejected.
pub(super) fn rejection(dry_run: &DryRun) -> Option<&str> {
    match &dry_run.outcome {
        DryRunOutcome::Rejected { message, .. } => Some(message),
        _ => None,
    }
}
