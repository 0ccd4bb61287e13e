//! Counts of what rules say, with the applications and shapes of commands behind them; of bounded size whatever
//! the traffic. The audit of past traffic and the live report of `serve` count in the same way.

use serde::Serialize;

use crate::engine::OutcomeKind;

/// Applications counted by name for one rule; later ones count as [`OTHERS`].
const MAX_APPS: usize = 100;
/// Shapes kept for one rule; statements of later ones are counted without.
const MAX_EXAMPLES: usize = 40;
/// Where applications beyond [`MAX_APPS`] are counted.
const OTHERS: &str = "(others)";
/// Connections without an appName.
const UNNAMED: &str = "(no appName)";

/// What a rule does, or would do, to a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    Rejected,
    Rewritten,
    /// It passes, but somebody should look at it: a warning, or a write that cannot be analysed.
    Warned,
    /// It depends on what is not known.
    CannotTell,
    /// The rule leaves this client alone.
    Excepted,
    Passed,
}

impl Effect {
    /// As JSON and logs have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Rewritten => "rewritten",
            Self::Warned => "warned",
            Self::CannotTell => "cannot_tell",
            Self::Excepted => "excepted",
            Self::Passed => "passed",
        }
    }

    /// What a rule says, whether it acts or is only tried.
    #[must_use]
    pub fn of(said: OutcomeKind) -> Self {
        match said {
            OutcomeKind::Reject | OutcomeKind::ShadowReject => Self::Rejected,
            OutcomeKind::Rewrite | OutcomeKind::ShadowRewrite => Self::Rewritten,
            OutcomeKind::Warn | OutcomeKind::Allow | OutcomeKind::Conflict => Self::Warned,
            OutcomeKind::ExceptReject | OutcomeKind::ExceptRewrite => Self::Excepted,
        }
    }
}

/// Statements by effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub rejected: u64,
    pub rewritten: u64,
    pub warned: u64,
    pub cannot_tell: u64,
    pub excepted: u64,
    pub passed: u64,
}

impl Counts {
    fn of(&mut self, effect: Effect) -> &mut u64 {
        match effect {
            Effect::Rejected => &mut self.rejected,
            Effect::Rewritten => &mut self.rewritten,
            Effect::Warned => &mut self.warned,
            Effect::CannotTell => &mut self.cannot_tell,
            Effect::Excepted => &mut self.excepted,
            Effect::Passed => &mut self.passed,
        }
    }

    /// Counts statements.
    pub fn add(&mut self, effect: Effect, statements: u64) {
        let count = self.of(effect);
        *count = count.saturating_add(statements);
    }

    /// Adds what was counted elsewhere.
    pub fn merge(&mut self, other: Self) {
        self.add(Effect::Rejected, other.rejected);
        self.add(Effect::Rewritten, other.rewritten);
        self.add(Effect::Warned, other.warned);
        self.add(Effect::CannotTell, other.cannot_tell);
        self.add(Effect::Excepted, other.excepted);
        self.add(Effect::Passed, other.passed);
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        let all = [self.rejected, self.rewritten, self.warned, self.cannot_tell, self.excepted, self.passed];
        // A damaged source may say any number.
        all.into_iter().fold(0, u64::saturating_add)
    }
}

/// Commands that differ only in their values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Example {
    pub effect: Effect,
    /// "database.collection"
    pub namespace: String,
    pub shape: String,
    pub statements: u64,
    /// The application that sent the first of them.
    pub app: String,
    /// What the rule says about it; empty for rewrites.
    pub reason: String,
    /// The first of them in mongosh syntax, where values may be shown.
    pub shell: Option<String>,
}

/// One rule's counts.
#[derive(Debug, Clone, Default)]
pub struct RuleTally {
    pub counts: Counts,
    /// A list: few applications write to one collection, and one of them is found sooner than hashed.
    apps: Vec<(String, Counts)>,
    examples: Vec<Example>,
}

/// What is noted of statements with one effect.
#[derive(Debug, Clone, Copy)]
pub struct Noted<'n> {
    pub effect: Effect,
    pub statements: u64,
    pub app: Option<&'n str>,
    pub namespace: &'n str,
    pub reason: &'n str,
}

impl RuleTally {
    /// Nobody looks at these closer.
    pub fn pass(&mut self, statements: u64) {
        self.counts.add(Effect::Passed, statements);
    }

    /// Counts, without an example.
    pub fn count(&mut self, noted: &Noted<'_>) {
        self.counts.add(noted.effect, noted.statements);
        self.add_to_app(noted.app.unwrap_or(UNNAMED), |counts| counts.add(noted.effect, noted.statements));
    }

    /// Counts; `shell` is asked for the text of a shape that is new.
    pub fn note(&mut self, noted: &Noted<'_>, shape: String, shell: impl FnOnce() -> Option<String>) {
        self.count(noted);
        let same =
            |one: &&mut Example| one.effect == noted.effect && one.shape == shape && one.namespace == noted.namespace;
        if let Some(known) = self.examples.iter_mut().find(same) {
            known.statements = known.statements.saturating_add(noted.statements);
        } else if self.examples.len() < MAX_EXAMPLES {
            self.examples.push(Example {
                effect: noted.effect,
                namespace: noted.namespace.to_owned(),
                shape,
                statements: noted.statements,
                app: noted.app.unwrap_or(UNNAMED).to_owned(),
                reason: noted.reason.to_owned(),
                shell: shell(),
            });
        }
    }

    fn add_to_app(&mut self, name: &str, add: impl FnOnce(&mut Counts)) {
        let is_known = |name: &str| self.apps.iter().any(|(known, _)| known == name);
        let name = if self.apps.len() < MAX_APPS || is_known(name) { name } else { OTHERS };
        match self.apps.iter_mut().find(|(known, _)| known == name) {
            Some((_, counts)) => add(counts),
            None => {
                let mut counts = Counts::default();
                add(&mut counts);
                self.apps.push((name.to_owned(), counts));
            }
        }
    }

    /// Applications, the busiest first.
    #[must_use]
    pub fn apps(&self) -> Vec<(&str, Counts)> {
        let mut apps: Vec<(&str, Counts)> = self.apps.iter().map(|(app, counts)| (app.as_str(), *counts)).collect();
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

    /// Adds what was counted elsewhere.
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
            } else if self.examples.len() < MAX_EXAMPLES {
                self.examples.push(example);
            }
        }
    }
}

/// What rules would have done, by the rules' numbers.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub rules: Vec<RuleTally>,
    /// Commands held against them.
    pub commands: u64,
    /// The first and the last of them, in milliseconds since 1970 UTC.
    pub times: Option<(i64, i64)>,
    /// Some came from sources that do not say who was authenticated.
    pub users_unknown: bool,
}

impl Tally {
    /// Adds what was counted elsewhere by the same rules.
    pub fn merge(&mut self, other: Self) {
        self.rules.resize_with(self.rules.len().max(other.rules.len()), RuleTally::default);
        self.rules.iter_mut().zip(other.rules).for_each(|(own, other)| own.merge(other));
        self.commands = self.commands.saturating_add(other.commands);
        self.users_unknown |= other.users_unknown;
        other.times.into_iter().for_each(|(first, last)| {
            self.see(first);
            self.see(last);
        });
    }

    /// Widens the time that is covered.
    pub fn see(&mut self, milliseconds: i64) {
        let (first, last) = self.times.unwrap_or((milliseconds, milliseconds));
        self.times = Some((first.min(milliseconds), last.max(milliseconds)));
    }
}
