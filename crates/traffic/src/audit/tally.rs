//! Counts the outcomes of rules by application, with example shapes of commands. The size is bounded for any
//! traffic. The audit of recorded traffic and the live report of `serve` share these counts.

use serde::Serialize;

use crate::engine::OutcomeKind;
use crate::text::shorten;

/// The most applications counted by name for one rule; further ones count as [`OTHERS`].
const MAX_APPS: usize = 100;
/// The most shapes kept for one rule; statements of further shapes are only counted.
const MAX_EXAMPLES: usize = 40;
/// Bytes of the names of users in an example.
const MAX_USERS_LENGTH: usize = 256;
/// The name under which applications beyond [`MAX_APPS`] are counted.
const OTHERS: &str = "(others)";
/// The name for connections without an appName.
const UNNAMED: &str = "(no appName)";

/// What a rule does, or would do, to a statement: an [`OutcomeKind`] without the rule's mode, or one that only a
/// report can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedOutcome {
    Reject,
    Rewrite,
    /// It is executed in a transaction and compared; the result is not known.
    Check,
    /// The stored document had another version than the statement was made for.
    Conflict,
    /// It matched nothing: the rule's condition was not satisfied, or there was no such document.
    NoMatch,
    /// It changed nothing, because what was stored was newer.
    Stale,
    /// It is forwarded, but somebody should look at it.
    Warn,
    /// It is forwarded because of `unsupported: allow`, although the rule cannot analyse it.
    Allow,
    /// The outcome depends on data that the source does not have.
    CannotTell,
    /// The rule exempts this client.
    Except,
    Forward,
}

impl ReportedOutcome {
    /// The name in JSON and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Rewrite => "rewrite",
            Self::Check => "check",
            Self::Conflict => "conflict",
            Self::NoMatch => "no_match",
            Self::Stale => "stale",
            Self::Warn => "warn",
            Self::Allow => "allow",
            Self::CannotTell => "cannot_tell",
            Self::Except => "except",
            Self::Forward => "forward",
        }
    }

    /// The outcome without the rule's mode.
    #[must_use]
    pub fn from_kind(kind: OutcomeKind) -> Self {
        match kind {
            OutcomeKind::Reject | OutcomeKind::ShadowReject => Self::Reject,
            OutcomeKind::Rewrite | OutcomeKind::ShadowRewrite => Self::Rewrite,
            OutcomeKind::Check | OutcomeKind::ShadowCheck => Self::Check,
            OutcomeKind::Conflict => Self::Conflict,
            OutcomeKind::NoMatch => Self::NoMatch,
            OutcomeKind::Stale => Self::Stale,
            OutcomeKind::Warn => Self::Warn,
            OutcomeKind::Allow => Self::Allow,
            OutcomeKind::ExceptReject | OutcomeKind::ExceptRewrite | OutcomeKind::ExceptCheck => Self::Except,
        }
    }
}

/// Statements by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct OutcomeCounts {
    pub reject: u64,
    pub rewrite: u64,
    pub check: u64,
    pub conflict: u64,
    pub no_match: u64,
    pub stale: u64,
    pub warn: u64,
    pub allow: u64,
    pub cannot_tell: u64,
    pub except: u64,
    pub forward: u64,
}

impl OutcomeCounts {
    fn count_mut(&mut self, outcome: ReportedOutcome) -> &mut u64 {
        match outcome {
            ReportedOutcome::Reject => &mut self.reject,
            ReportedOutcome::Rewrite => &mut self.rewrite,
            ReportedOutcome::Check => &mut self.check,
            ReportedOutcome::Conflict => &mut self.conflict,
            ReportedOutcome::NoMatch => &mut self.no_match,
            ReportedOutcome::Stale => &mut self.stale,
            ReportedOutcome::Warn => &mut self.warn,
            ReportedOutcome::Allow => &mut self.allow,
            ReportedOutcome::CannotTell => &mut self.cannot_tell,
            ReportedOutcome::Except => &mut self.except,
            ReportedOutcome::Forward => &mut self.forward,
        }
    }

    /// Counts statements.
    pub fn add(&mut self, outcome: ReportedOutcome, statements: u64) {
        let count = self.count_mut(outcome);
        *count = count.saturating_add(statements);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: Self) {
        other.by_outcome().into_iter().for_each(|(outcome, statements)| self.add(outcome, statements));
    }

    /// The sum of all counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        // A damaged source may contain any number.
        self.by_outcome().into_iter().fold(0, |total, (_, statements)| total.saturating_add(statements))
    }

    /// The count of each outcome.
    #[must_use]
    pub fn by_outcome(&self) -> [(ReportedOutcome, u64); 11] {
        [
            (ReportedOutcome::Reject, self.reject),
            (ReportedOutcome::Rewrite, self.rewrite),
            (ReportedOutcome::Check, self.check),
            (ReportedOutcome::Conflict, self.conflict),
            (ReportedOutcome::NoMatch, self.no_match),
            (ReportedOutcome::Stale, self.stale),
            (ReportedOutcome::CannotTell, self.cannot_tell),
            (ReportedOutcome::Warn, self.warn),
            (ReportedOutcome::Allow, self.allow),
            (ReportedOutcome::Except, self.except),
            (ReportedOutcome::Forward, self.forward),
        ]
    }
}

/// A shape: commands that differ only in their values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Example {
    pub outcome: ReportedOutcome,
    /// "database.collection"
    pub namespace: String,
    pub shape: String,
    pub statements: u64,
    /// The application that sent the first of them.
    pub app: String,
    /// "authDb.name" of the users that sent the first of them, if they are known.
    pub users: Option<String>,
    /// When the last of them arrived, in milliseconds since 1970 UTC, if it is known.
    pub last: Option<u64>,
    /// The reason of the outcome; empty for rewrites.
    pub reason: String,
    #[serde(flatten)]
    pub text: ExampleText,
}

/// The first statement of an example in mongosh syntax, if values may be shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ExampleText {
    pub given: Option<String>,
    /// What would be sent instead, if the rules rewrite it.
    pub sent: Option<String>,
}

/// One rule's counts.
#[derive(Debug, Clone, Default)]
pub struct RuleTally {
    pub counts: OutcomeCounts,
    /// Of the rewritten and rejected statements, those that have another outcome if no stored document matches them, which is
    /// not known.
    pub unconfirmed: u64,
    /// A list: few applications write to one collection, and searching a short list is faster than hashing.
    apps: Vec<(String, OutcomeCounts)>,
    examples: Vec<Example>,
}

/// Statements with one outcome, to be counted.
#[derive(Debug, Clone, Copy)]
pub struct CountedOutcome<'n> {
    pub outcome: ReportedOutcome,
    pub statements: u64,
    pub app: Option<&'n str>,
    pub users: Option<&'n [(String, String)]>,
    /// When they arrived, in milliseconds since 1970 UTC.
    pub at: Option<u64>,
    pub namespace: &'n str,
    pub reason: &'n str,
}

impl RuleTally {
    /// Counts forwarded statements, without application and example.
    pub fn forward(&mut self, statements: u64) {
        self.counts.add(ReportedOutcome::Forward, statements);
    }

    /// Counts statements, without an example.
    pub fn count(&mut self, noted: &CountedOutcome<'_>) {
        self.counts.add(noted.outcome, noted.statements);
        self.add_to_app(noted.app.unwrap_or(UNNAMED), |counts| counts.add(noted.outcome, noted.statements));
    }

    /// Counts statements. Calls `text` for the text of a new shape.
    pub fn count_example(&mut self, noted: &CountedOutcome<'_>, shape: String, text: impl FnOnce() -> ExampleText) {
        self.count(noted);
        let same =
            |one: &&mut Example| one.outcome == noted.outcome && one.shape == shape && one.namespace == noted.namespace;
        if let Some(known) = self.examples.iter_mut().find(same) {
            known.statements = known.statements.saturating_add(noted.statements);
            known.last = known.last.max(noted.at);
        } else if self.examples.len() < MAX_EXAMPLES {
            self.examples.push(Example {
                outcome: noted.outcome,
                namespace: noted.namespace.to_owned(),
                shape,
                statements: noted.statements,
                app: noted.app.unwrap_or(UNNAMED).to_owned(),
                users: noted.users.map(joined),
                last: noted.at,
                reason: noted.reason.to_owned(),
                text: text(),
            });
        }
    }

    fn add_to_app(&mut self, name: &str, add: impl FnOnce(&mut OutcomeCounts)) {
        let is_known = |name: &str| self.apps.iter().any(|(known, _)| known == name);
        let name = if self.apps.len() < MAX_APPS || is_known(name) { name } else { OTHERS };
        match self.apps.iter_mut().find(|(known, _)| known == name) {
            Some((_, counts)) => add(counts),
            None => {
                let mut counts = OutcomeCounts::default();
                add(&mut counts);
                self.apps.push((name.to_owned(), counts));
            }
        }
    }

    /// Applications, the busiest first.
    #[must_use]
    pub fn apps(&self) -> Vec<(&str, OutcomeCounts)> {
        let mut apps: Vec<(&str, OutcomeCounts)> =
            self.apps.iter().map(|(app, counts)| (app.as_str(), *counts)).collect();
        apps.sort_unstable_by(|one, other| other.1.total().cmp(&one.1.total()).then_with(|| one.0.cmp(other.0)));
        apps
    }

    /// Examples by outcome, the most frequent first.
    #[must_use]
    pub fn examples(&self) -> Vec<&Example> {
        let mut examples: Vec<&Example> = self.examples.iter().collect();
        examples.sort_by_key(|one| (one.outcome, std::cmp::Reverse(one.statements)));
        examples
    }

    /// Adds the counts of `other`, without its examples.
    pub fn merge_counts(&mut self, other: &Self) {
        self.counts.merge(other.counts);
        self.unconfirmed += other.unconfirmed;
        let mut apps: Vec<_> = other.apps.iter().collect();
        apps.sort_unstable_by_key(|(app, _)| app);
        apps.into_iter().for_each(|(app, counts)| self.add_to_app(app, |sum| sum.merge(*counts)));
    }

    /// Adds the counts and examples of `other`.
    pub fn merge(&mut self, other: Self) {
        self.merge_counts(&other);
        for example in other.examples {
            let same = |one: &&mut Example| {
                (one.outcome, &one.shape, &one.namespace) == (example.outcome, &example.shape, &example.namespace)
            };
            if let Some(known) = self.examples.iter_mut().find(same) {
                known.statements = known.statements.saturating_add(example.statements);
                known.last = known.last.max(example.last);
            } else if self.examples.len() < MAX_EXAMPLES {
                self.examples.push(example);
            }
        }
    }
}

/// The names of users, in a text of limited length.
fn joined(users: &[(String, String)]) -> String {
    let mut names = users.iter().map(|(at, name)| format!("{at}.{name}")).collect::<Vec<_>>().join(" ");
    shorten(&mut names, MAX_USERS_LENGTH);
    names
}

/// The outcomes of all rules of a set, by rule number.
#[derive(Debug, Clone, Default)]
pub struct AuditTally {
    pub rules: Vec<RuleTally>,
    /// The commands evaluated.
    pub commands: u64,
    /// The first and the last of them, in milliseconds since 1970 UTC.
    pub times: Option<(i64, i64)>,
    /// Some sources do not contain the authenticated users.
    pub users_unknown: bool,
}

impl AuditTally {
    /// Adds the counts of `other`, which has the same rules.
    pub fn merge(&mut self, other: Self) {
        self.rules.resize_with(self.rules.len().max(other.rules.len()), RuleTally::default);
        self.rules.iter_mut().zip(other.rules).for_each(|(own, other)| own.merge(other));
        self.commands = self.commands.saturating_add(other.commands);
        self.users_unknown |= other.users_unknown;
        other.times.into_iter().for_each(|(first, last)| {
            self.extend_times(first);
            self.extend_times(last);
        });
    }

    /// Extends the covered time to include `milliseconds`.
    pub fn extend_times(&mut self, milliseconds: i64) {
        let (first, last) = self.times.unwrap_or((milliseconds, milliseconds));
        self.times = Some((first.min(milliseconds), last.max(milliseconds)));
    }
}
