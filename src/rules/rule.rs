//! A rule: the settings that all patterns share, and one pattern.
//!
//! Types only. `envelope.rs` reads rules from a file, `set.rs` stores them. This layer knows patterns
//! only through the [`Pattern`] trait.

use std::fmt;

use super::context::{Located, ReadContext};
use super::diagnostic::Diagnostic;
use super::glob::Glob;
use super::namespace::NamespacePattern;
use super::node::Node;
use super::source::{Location, Span};

/// The rules layer's view of a pattern. Its one implementor outside tests is an enum of all patterns.
pub trait Pattern: Sized + Send + Sync + 'static {
    /// The pattern keys that a rule may have: `replacement`, `timestamps`, ….
    const NAMES: &'static [&'static str];

    /// Reads the settings under the key `name`, one of [`Self::NAMES`]. Reports every mistake to
    /// `context` before it returns `None`.
    fn read(name: &'static str, settings: &Node, context: &mut ReadContext<'_>) -> Option<Self>;

    /// The key it was read from, one of [`Self::NAMES`].
    fn name(&self) -> &'static str;

    /// The order in which patterns evaluate a statement: smaller is earlier.
    fn phase(&self) -> u8;

    /// Whether only the most specific rule of this pattern applies to a namespace, rather than all of them.
    fn exclusive(&self) -> bool;

    /// Whether it evaluates statements on its namespaces. If not, it only names the namespaces, and only
    /// [`RuleSet::naming`](super::RuleSet::naming) returns it.
    fn evaluates(&self) -> bool {
        true
    }

    /// The fields that no other rule on the same namespace may claim.
    fn claims(&self) -> Vec<Claim>;

    /// Further namespaces whose statements it evaluates.
    fn also_evaluates(&self) -> Vec<NamespacePattern> {
        Vec::new()
    }

    /// Whether it makes a rule with the pattern `later` ineffective that is evaluated after it for the same clients.
    /// A pattern that can make any other ineffective must return true for itself.
    fn makes_ineffective(&self, later: &Self) -> bool {
        let _ = later;
        false
    }

    /// Its settings that are weaker than other settings of the same pattern.
    fn weaker_settings(&self) -> Vec<WeakerSetting> {
        Vec::new()
    }

    /// Lets rules read settings of each other. Called after all rules of a set are valid.
    fn link_rules(rules: &mut [Rule<Self>]) {
        let _ = rules;
    }

    /// Contradictions between rules other than claims on one namespace. `rules` are all rules that are not disabled.
    fn contradictions(rules: &[&Rule<Self>]) -> Vec<Diagnostic> {
        let _ = rules;
        Vec::new()
    }
}

/// A field that only one rule may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Only claims of the same kind exclude each other. Usually the pattern's name.
    pub kind: &'static str,
    /// The field's path. It also claims all fields below it.
    pub field: Located<String>,
}

/// A setting that makes a rule weaker than it could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeakerSetting {
    /// What it does, unlike a stricter rule: `allows …`.
    pub what: &'static str,
    /// The key of the setting.
    pub setting: &'static str,
}

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
pub struct Rule<P> {
    /// Its index in the set.
    pub id: RuleId,
    /// Unique over all files, kebab-case.
    pub name: Located<String>,
    /// Part of the error that the application gets on a rejection.
    pub why: Option<String>,
    /// At least one.
    pub namespaces: Vec<Located<NamespacePattern>>,
    /// Whether it is enforced.
    pub mode: Mode,
    /// The exempt clients.
    pub except: Except,
    /// What happens to statements that it cannot analyse.
    pub unsupported: Unsupported,
    /// The pattern with its settings.
    pub pattern: P,
    /// Its `tests`.
    pub tests: Vec<RuleTest>,
    /// Its place, for logs.
    pub location: Location,
}

/// Whether a rule is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It rewrites and rejects.
    #[default]
    Enforce,
    /// It only counts and logs its decisions.
    Shadow,
    /// It is checked at load time and otherwise ignored.
    Disabled,
}

impl Mode {
    /// The word for it in rule files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Disabled => "disabled",
        }
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

/// The clients that a rule exempts: any of these applications, any of these users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Except {
    /// Application names, as drivers send them in the handshake (`appName`).
    pub apps: Vec<AppGlob>,
    /// Authenticated users.
    pub users: Vec<UserGlob>,
}

impl Except {
    /// Whether a connection with this application name and these users (`(authDb, user)`) is exempt.
    pub fn covers<'u>(&self, app: Option<&str>, users: impl IntoIterator<Item = (&'u str, &'u str)>) -> bool {
        if self.is_empty() {
            return false;
        }
        app.is_some_and(|app| self.apps.iter().any(|glob| glob.matches(app)))
            || users.into_iter().any(|(database, user)| self.users.iter().any(|glob| glob.matches(database, user)))
    }

    /// Whether it exempts no clients.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.apps.is_empty() && self.users.is_empty()
    }
}

/// A pattern for application names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppGlob(pub Glob);

impl AppGlob {
    /// Whether it matches the whole name.
    #[must_use]
    pub fn matches(&self, app: &str) -> bool {
        self.0.matches(app.as_bytes())
    }
}

impl fmt::Display for AppGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A pattern for users, `authDb.user`. The first dot separates; a user name may contain dots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserGlob {
    /// Matches the authentication database.
    pub database: Glob,
    /// Matches the user name.
    pub user: Glob,
}

impl UserGlob {
    /// Whether it matches both.
    #[must_use]
    pub fn matches(&self, database: &str, user: &str) -> bool {
        self.database.matches(database.as_bytes()) && self.user.matches(user.as_bytes())
    }
}

impl fmt::Display for UserGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.user)
    }
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
    /// The command is rewritten to this one, mongosh text.
    Becomes(Located<String>),
}
