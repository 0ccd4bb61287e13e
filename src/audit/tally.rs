//! Counts the effects of rules by application, with example shapes of commands. The size is bounded for any
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

/// What a rule does, or would do, to a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleEffect {
    Rejected,
    Rewritten,
    /// The stored document had another version than the statement was made for.
    Conflict,
    /// It matched nothing: the rule's condition was not satisfied, or there was no such document.
    NoMatch,
    /// It changed nothing, because what was stored was newer.
    Stale,
    /// It is forwarded, but needs attention: a warning, or a write that cannot be analysed.
    Warned,
    /// The effect depends on data that the source does not have.
    CannotTell,
    /// The rule exempts this client.
    Excepted,
    Passed,
}

impl RuleEffect {
    /// The name in JSON and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Rewritten => "rewritten",
            Self::Conflict => "conflict",
            Self::NoMatch => "no_match",
            Self::Stale => "stale",
            Self::Warned => "warned",
            Self::CannotTell => "cannot_tell",
            Self::Excepted => "excepted",
            Self::Passed => "passed",
        }
    }

    /// The effect of an outcome, the same for enforced and shadow rules.
    #[must_use]
    pub fn from_outcome(kind: OutcomeKind) -> Self {
        match kind {
            OutcomeKind::Reject | OutcomeKind::ShadowReject => Self::Rejected,
            OutcomeKind::Rewrite | OutcomeKind::ShadowRewrite => Self::Rewritten,
            OutcomeKind::Conflict => Self::Conflict,
            OutcomeKind::NoMatch => Self::NoMatch,
            OutcomeKind::Stale => Self::Stale,
            OutcomeKind::Warn | OutcomeKind::Allow => Self::Warned,
            OutcomeKind::ExceptReject | OutcomeKind::ExceptRewrite => Self::Excepted,
        }
    }
}

/// Statements by effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct EffectCounts {
    pub rejected: u64,
    pub rewritten: u64,
    pub conflict: u64,
    pub no_match: u64,
    pub stale: u64,
    pub warned: u64,
    pub cannot_tell: u64,
    pub excepted: u64,
    pub passed: u64,
}

impl EffectCounts {
    fn count_mut(&mut self, effect: RuleEffect) -> &mut u64 {
        match effect {
            RuleEffect::Rejected => &mut self.rejected,
            RuleEffect::Rewritten => &mut self.rewritten,
            RuleEffect::Conflict => &mut self.conflict,
            RuleEffect::NoMatch => &mut self.no_match,
            RuleEffect::Stale => &mut self.stale,
            RuleEffect::Warned => &mut self.warned,
            RuleEffect::CannotTell => &mut self.cannot_tell,
            RuleEffect::Excepted => &mut self.excepted,
            RuleEffect::Passed => &mut self.passed,
        }
    }

    /// Counts statements.
    pub fn add(&mut self, effect: RuleEffect, statements: u64) {
        let count = self.count_mut(effect);
        *count = count.saturating_add(statements);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: Self) {
        other.by_effect().into_iter().for_each(|(effect, statements)| self.add(effect, statements));
    }

    /// The sum of all counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        // A damaged source may contain any number.
        self.by_effect().into_iter().fold(0, |total, (_, statements)| total.saturating_add(statements))
    }

    /// The count of each effect.
    #[must_use]
    pub fn by_effect(&self) -> [(RuleEffect, u64); 9] {
        [
            (RuleEffect::Rejected, self.rejected),
            (RuleEffect::Rewritten, self.rewritten),
            (RuleEffect::Conflict, self.conflict),
            (RuleEffect::NoMatch, self.no_match),
            (RuleEffect::Stale, self.stale),
            (RuleEffect::CannotTell, self.cannot_tell),
            (RuleEffect::Warned, self.warned),
            (RuleEffect::Excepted, self.excepted),
            (RuleEffect::Passed, self.passed),
        ]
    }
}

/// A shape: commands that differ only in their values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Example {
    pub effect: RuleEffect,
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
    /// The reason of the effect; empty for rewrites.
    pub reason: String,
    #[serde(flatten)]
    pub text: ExampleText,
}

/// The first statement of an example in mongosh syntax, if values may be shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ExampleText {
    pub shell: Option<String>,
    /// What would be sent instead, if the rules rewrite it.
    pub sent: Option<String>,
}

/// One rule's counts.
#[derive(Debug, Clone, Default)]
pub struct RuleTally {
    pub counts: EffectCounts,
    /// A list: few applications write to one collection, and searching a short list is faster than hashing.
    apps: Vec<(String, EffectCounts)>,
    examples: Vec<Example>,
}

/// Statements with one effect, to be counted.
#[derive(Debug, Clone, Copy)]
pub struct CountedEffect<'n> {
    pub effect: RuleEffect,
    pub statements: u64,
    pub app: Option<&'n str>,
    pub users: Option<&'n [(String, String)]>,
    /// When they arrived, in milliseconds since 1970 UTC.
    pub at: Option<u64>,
    pub namespace: &'n str,
    pub reason: &'n str,
}

impl RuleTally {
    /// Counts passed statements, without application and example.
    pub fn pass(&mut self, statements: u64) {
        self.counts.add(RuleEffect::Passed, statements);
    }

    /// Counts statements, without an example.
    pub fn count(&mut self, noted: &CountedEffect<'_>) {
        self.counts.add(noted.effect, noted.statements);
        self.add_to_app(noted.app.unwrap_or(UNNAMED), |counts| counts.add(noted.effect, noted.statements));
    }

    /// Counts statements. Calls `text` for the text of a new shape.
    pub fn count_effect(&mut self, noted: &CountedEffect<'_>, shape: String, text: impl FnOnce() -> ExampleText) {
        self.count(noted);
        let same =
            |one: &&mut Example| one.effect == noted.effect && one.shape == shape && one.namespace == noted.namespace;
        if let Some(known) = self.examples.iter_mut().find(same) {
            known.statements = known.statements.saturating_add(noted.statements);
            known.last = known.last.max(noted.at);
        } else if self.examples.len() < MAX_EXAMPLES {
            self.examples.push(Example {
                effect: noted.effect,
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

    fn add_to_app(&mut self, name: &str, add: impl FnOnce(&mut EffectCounts)) {
        let is_known = |name: &str| self.apps.iter().any(|(known, _)| known == name);
        let name = if self.apps.len() < MAX_APPS || is_known(name) { name } else { OTHERS };
        match self.apps.iter_mut().find(|(known, _)| known == name) {
            Some((_, counts)) => add(counts),
            None => {
                let mut counts = EffectCounts::default();
                add(&mut counts);
                self.apps.push((name.to_owned(), counts));
            }
        }
    }

    /// Applications, the busiest first.
    #[must_use]
    pub fn apps(&self) -> Vec<(&str, EffectCounts)> {
        let mut apps: Vec<(&str, EffectCounts)> =
            self.apps.iter().map(|(app, counts)| (app.as_str(), *counts)).collect();
        apps.sort_unstable_by(|one, other| other.1.total().cmp(&one.1.total()).then_with(|| one.0.cmp(other.0)));
        apps
    }

    /// Examples by effect, the most frequent first.
    #[must_use]
    pub fn examples(&self) -> Vec<&Example> {
        let mut examples: Vec<&Example> = self.examples.iter().collect();
        examples.sort_by_key(|one| (one.effect, std::cmp::Reverse(one.statements)));
        examples
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: Self) {
        self.counts.merge(other.counts);
        let mut apps: Vec<_> = other.apps.into_iter().collect();
        apps.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        apps.into_iter().for_each(|(app, counts)| self.add_to_app(&app, |sum| sum.merge(counts)));
        for example in other.examples {
            let same = |one: &&mut Example| {
                (one.effect, &one.shape, &one.namespace) == (example.effect, &example.shape, &example.namespace)
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

/// The effects of all rules of a set, by rule number.
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
