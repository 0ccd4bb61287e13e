//! What rules say of a command, in words for people and for programs: shared by `explain` and `test`.

use serde_json::json;

use crate::document::CowDocument;
use crate::engine::lookup::Maximum;
use crate::engine::{DryRun, Need, Outcome, OutcomeKind, RuleOutcome, Session};
use crate::patterns::RuleSet;
use crate::rules::{Code, Diagnostic, Report, Source, Sources, Span};
use crate::shell::{ShellError, render, render_lines};

/// A client with this application name and user; `user` is "authDb.name".
pub(super) fn session(app: Option<&str>, user: Option<&str>) -> Session {
    let users =
        user.and_then(|user| user.split_once('.')).map(|(database, name)| vec![(database.to_owned(), name.to_owned())]);
    Session { app_name: app.map(str::to_owned), users, ..Session::default() }
}

/// A mistake in a command, as rule files' mistakes are shown. `name` stands for a file's.
pub(super) fn report(error: &ShellError, name: &str, text: &str) -> Report {
    let sources = Sources::new(vec![Source { name: name.to_owned(), text: text.to_owned() }]);
    let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    let place = sources.files().next().map(|file| Span::new(file, offset(error.span.start), offset(error.span.end)));
    let diagnostic = place.map(|place| {
        let mistake = Diagnostic::error(Code::InvalidCommand, place, &error.message);
        match &error.help {
            Some(help) => mistake.help(help),
            None => mistake,
        }
    });
    Report::new(diagnostic.into_iter().collect(), sources)
}

/// The name of what becomes of a command.
pub(super) fn verdict(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Unchanged => "forward",
        // A rule has taken it over, whatever it finds.
        Outcome::Rewritten(_) | Outcome::Undecided => "rewrite",
        Outcome::Rejected { .. } => "reject",
    }
}

/// What a rule does, as the end of a sentence that begins with its name.
pub(super) fn said(said: OutcomeKind) -> &'static str {
    match said {
        OutcomeKind::Rewrite => "rewrites it",
        OutcomeKind::Reject => "rejects it",
        OutcomeKind::Warn => "lets it pass, and logs a warning",
        OutcomeKind::Conflict => "reports a conflict",
        OutcomeKind::Allow => "cannot analyse it, and lets it pass (unsupported: allow)",
        OutcomeKind::ExceptRewrite => "would rewrite it, but leaves this client alone (except)",
        OutcomeKind::ExceptReject => "would reject it, but leaves this client alone (except)",
        OutcomeKind::ShadowRewrite => "would rewrite it (mode: shadow)",
        OutcomeKind::ShadowReject => "would reject it (mode: shadow)",
    }
}

/// Why a rule does what it does: what it has against the command, or what it makes of it.
pub(super) fn reason<'o>(outcome: &'o RuleOutcome, rules: &RuleSet) -> &'o str {
    match outcome.said {
        OutcomeKind::Rewrite | OutcomeKind::ExceptRewrite | OutcomeKind::ShadowRewrite => {
            rules.rule(outcome.rule).pattern.rewriting()
        }
        _ => &outcome.reason,
    }
}

/// `{name, pattern, verdict, reason, hint}`
pub(super) fn rule_json(outcome: &RuleOutcome, rules: &RuleSet) -> serde_json::Value {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "name": outcome.rule_name,
        "pattern": outcome.pattern,
        "verdict": outcome.said.as_str(),
        "reason": text(reason(outcome, rules)),
        "hint": text(&outcome.hint),
    })
}

/// A question that was answered by guessing, as a sentence.
pub(super) fn need(need: &Need, outcome: &Outcome, database: &str) -> String {
    let largest = |Maximum { database, collection, field }: &Maximum| {
        format!("the largest '{field}' in {database}.{collection} is looked up; what is shown is as if there were none")
    };
    match need {
        Need::Users => "a rule leaves users alone, so the server is asked who is authenticated; here it is nobody \
                        (--as-user says who)"
            .to_owned(),
        Need::Numbers(lease) => format!(
            "{} leased from counter '{}' in {}.{}; what is shown is as if {} the first",
            if lease.count == 1 { "a number is".to_owned() } else { format!("{} numbers are", lease.count) },
            lease.counter.id,
            lease.counter.database,
            lease.counter.collection,
            if lease.count == 1 { "it were" } else { "they were" },
        ),
        Need::Maximum(maximum) => largest(maximum),
        Need::Documents(question) => {
            let guess = if matches!(outcome, Outcome::Undecided) { "" } else { ", taken for none" };
            format!("stored documents are looked at first{guess}: {}", render(question.as_document(), database))
        }
        Need::Match(question) => {
            format!("it is rejected only if this finds a document: {}", render(question.as_document(), database))
        }
    }
}

/// Commands as text, one behind the other.
pub(super) fn shell(commands: &[CowDocument<'static>], database: &str) -> String {
    commands.iter().map(|command| render(command.as_document(), database)).collect::<Vec<_>>().join("\n")
}

/// The same, so that it can be compared line by line.
pub(super) fn shell_lines(commands: &[CowDocument<'static>], database: &str) -> String {
    commands.iter().map(|command| render_lines(command.as_document(), database) + "\n").collect()
}

/// What the client would be told.
pub(super) fn rejection(dry_run: &DryRun) -> Option<&str> {
    match &dry_run.outcome {
        Outcome::Rejected { message, .. } => Some(message),
        _ => None,
    }
}
