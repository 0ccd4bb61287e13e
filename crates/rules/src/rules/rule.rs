//! A rule: the settings that all patterns share, and one pattern.
//!
//! Types only. `envelope.rs` reads rules from a file, `set.rs` stores them.

use std::sync::Arc;

use super::clients::ClientGlobs;
use super::mode_override::ModeOverride;
use crate::config::{Located, Location, NamespaceGlob, Span};
pub use crate::patterns::Mode;
use crate::patterns::{AnyPattern, Properties, RuleView};

/// The index of a rule in its set; dense, so that counters can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

impl RuleId {
    /// The index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its index in the set.
    pub id: RuleId,
    /// Unique over all files, kebab-case.
    pub name: Located<Arc<str>>,
    /// Part of the error that the application gets on a rejection.
    pub why: Option<String>,
    /// At least one.
    pub namespaces: Vec<Located<NamespaceGlob>>,
    /// The mode that applies: that of an override, or [`Self::file_mode`]. If it depends on the client
    /// ([`Self::narrowed`]), the mode in which the rule does most.
    pub mode: Mode,
    /// The mode in the rule file.
    pub file_mode: Mode,
    /// The override of the mode, if there is one.
    pub mode_override: Option<Arc<ModeOverride>>,
    /// The exempt clients.
    pub except: ClientGlobs,
    /// The clients that it applies to; empty: all.
    pub only: ClientGlobs,
    /// What happens to statements that it cannot analyse.
    pub unsupported: Unsupported,
    /// The pattern with its settings.
    pub pattern: AnyPattern,
    /// The constant properties of the pattern with its settings.
    pub properties: Properties,
    /// Its `tests`.
    pub tests: Vec<RuleTest>,
    /// Its location, for logs.
    pub location: Location,
}

impl Rule {
    /// What patterns see of it.
    pub fn view(&self) -> RuleView<'_> {
        RuleView {
            index: self.id.index(),
            name: &self.name,
            namespaces: &self.namespaces,
            mode: self.mode,
            pattern: &self.pattern,
            properties: &self.properties,
        }
    }

    /// Whether it applies to clients with this application name and these users (`(authDb, user)`); `None`: unknown.
    #[must_use]
    pub fn applies_to(&self, app: Option<&str>, users: Option<&[(String, String)]>) -> bool {
        let is_open = users.is_none() && !self.only.users.is_empty();
        self.only.is_empty() || is_open || self.only.covers(app, users.unwrap_or_default())
    }

    /// Its override, if this is for some clients only.
    #[must_use]
    pub fn narrowed(&self) -> Option<&ModeOverride> {
        self.mode_override.as_deref().filter(|found| !found.only.is_empty())
    }

    /// The mode that applies to a client; `None` for users that are unknown, which may be [`Self::mode`].
    #[must_use]
    pub fn mode_for(&self, app: Option<&str>, users: Option<&[(String, String)]>) -> Mode {
        match self.narrowed() {
            None => self.mode,
            Some(found) if found.only.covers(app, users.unwrap_or_default()) => found.mode,
            Some(found) if users.is_none() && !found.only.users.is_empty() => self.mode,
            Some(_) => self.file_mode,
        }
    }

    /// Whether it depends on the users of a client.
    #[must_use]
    pub fn names_users(&self) -> bool {
        let overridden = self.narrowed().map(|found| &found.only);
        [&self.except, &self.only].into_iter().chain(overridden).any(|clients| !clients.users.is_empty())
    }

    /// Whether commands on its namespaces need a permit, unless it is disabled.
    #[must_use]
    pub fn needs_permits(&self) -> bool {
        self.properties.permits.is_some()
    }

    /// Whether it applies to an aggregation because of the collections that this reads besides its own, unless it is
    /// disabled.
    #[must_use]
    pub fn applies_to_inputs(&self) -> bool {
        self.needs_permits() || self.properties.evaluates_inputs
    }
}

/// What happens to a statement that a rule cannot analyse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unsupported {
    /// It is rejected.
    #[default]
    Reject,
    /// It is forwarded.
    Allow,
}

/// One entry of `tests` in a rule or a test file. Its commands are syntactically valid.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleTest {
    /// The command, as mongosh text.
    pub given: Located<String>,
    /// The database that `db` means in it.
    pub database: String,
    /// The expected result.
    pub expect: Expectation,
    /// The application that sends it.
    pub app: Option<String>,
    /// The user that sends it, as `authDb.user`.
    pub user: Option<String>,
    /// The time at which it is evaluated.
    pub at: Option<bson::DateTime>,
    /// The whole entry.
    pub span: Span,
}

/// The expected result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// The rule rejects the command.
    Rejected,
    /// The command is forwarded unchanged.
    Unchanged,
    /// A statement is executed in a transaction and compared.
    Checked,
    /// The command is rewritten to this one, mongosh text.
    Becomes(Located<String>),
}
