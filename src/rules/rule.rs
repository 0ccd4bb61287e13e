//! A rule: the envelope every pattern comes in.
//!
//! Types only. `envelope.rs` reads them from a file, `set.rs` holds them all; what a pattern is,
//! this layer does not know beyond the [`Pattern`] trait.

use std::fmt;

use super::context::{Located, ReadContext};
use super::diagnostic::Diagnostic;
use super::glob::Glob;
use super::namespace::NamespacePattern;
use super::node::Node;
use super::source::{Location, Span};

/// What the rules layer must know of the patterns: one implementor, an enum of all of them.
pub trait Pattern: Sized + Send + Sync + 'static {
    /// The pattern keys a rule may have: `replacement`, `timestamps`, ….
    const NAMES: &'static [&'static str];

    /// Reads the settings under the key `name`, one of [`Self::NAMES`]. Reports every mistake to
    /// `context`, and only then returns `None`.
    fn read(name: &'static str, settings: &Node, context: &mut ReadContext<'_>) -> Option<Self>;

    /// The key it was read from, one of [`Self::NAMES`].
    fn name(&self) -> &'static str;

    /// When it sees a statement, in relation to the others: smaller is earlier.
    fn phase(&self) -> u8;

    /// Whether one rule applies for a namespace, the most specific one, rather than all of them.
    fn exclusive(&self) -> bool;

    /// Whether it evaluates what is sent to its namespaces. One that does not only names them, and is found by
    /// [`RuleSet::naming`](super::RuleSet::naming) alone.
    fn evaluates(&self) -> bool {
        true
    }

    /// The fields that no other rule on the same namespace may claim too.
    fn claims(&self) -> Vec<Claim>;

    /// Namespaces besides the rule's own whose statements it sees too.
    fn also_evaluates(&self) -> Vec<NamespacePattern> {
        Vec::new()
    }

    /// Whether it leaves a rule of the pattern `later` nothing to do that evaluates after it for the same clients.
    /// A pattern that can do so does it to its like.
    fn silences(&self, later: &Self) -> bool {
        let _ = later;
        false
    }

    /// What it sees to less strictly than other settings of the same pattern would.
    fn weaker_settings(&self) -> Vec<WeakerSetting> {
        Vec::new()
    }

    /// What rules have against each other beyond claims on one namespace. `rules` are all but the
    /// disabled ones.
    fn contradictions(rules: &[&Rule<Self>]) -> Vec<Diagnostic> {
        let _ = rules;
        Vec::new()
    }
}

/// A field that a rule wants for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What for; only claims of one kind exclude each other. Usually the pattern's name.
    pub kind: &'static str,
    /// The field's path. A path also claims what lies under it.
    pub field: Located<String>,
}

/// Something that a rule leaves to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeakerSetting {
    /// What it does, and a stricter rule would not: `lets … pass`.
    pub what: &'static str,
    /// The key that makes it so.
    pub setting: &'static str,
}

/// The dense index of a rule in its set, for counters kept elsewhere.
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
    /// Shown to the application on rejection.
    pub why: Option<String>,
    /// At least one.
    pub namespaces: Vec<Located<NamespacePattern>>,
    /// Whether it acts.
    pub mode: Mode,
    /// Who is left alone.
    pub except: Except,
    /// What happens to writes it cannot analyse.
    pub unsupported: Unsupported,
    /// What it does.
    pub pattern: P,
    /// Its own tests.
    pub tests: Vec<RuleTest>,
    /// Where it is, for logs.
    pub location: Location,
}

/// Whether a rule acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It rewrites and rejects.
    #[default]
    Enforce,
    /// It only counts and logs what it would do.
    Shadow,
    /// It is checked when loaded, and otherwise ignored.
    Disabled,
}

impl Mode {
    /// The word rule files have for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Disabled => "disabled",
        }
    }
}

/// What happens to a write that a rule cannot analyse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unsupported {
    /// It is rejected with a reason.
    #[default]
    Reject,
    /// It passes.
    Allow,
}

/// Whom a rule leaves alone: any of these applications, any of these users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Except {
    /// Application names, as drivers send them in the handshake (`appName`).
    pub apps: Vec<AppGlob>,
    /// Authenticated users.
    pub users: Vec<UserGlob>,
}

impl Except {
    /// Whether a connection with this application name and these users (`(authDb, user)`) is left alone.
    pub fn covers<'u>(&self, app: Option<&str>, users: impl IntoIterator<Item = (&'u str, &'u str)>) -> bool {
        if self.is_empty() {
            return false;
        }
        app.is_some_and(|app| self.apps.iter().any(|glob| glob.matches(app)))
            || users.into_iter().any(|(database, user)| self.users.iter().any(|glob| glob.matches(database, user)))
    }

    /// Whether nobody is left alone.
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

/// A pattern for users, `authDb.user`. The first dot separates; a user name may have dots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserGlob {
    /// For the database the user authenticates against.
    pub database: Glob,
    /// For the user's name.
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

/// One entry of a rule's `tests`, or of a test file's. Its commands can be read.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleTest {
    /// The command, as mongosh text.
    pub given: Located<String>,
    /// What `db` means in it.
    pub database: String,
    /// What is to become of it.
    pub expect: Expectation,
    /// The application that sends it.
    pub app: Option<String>,
    /// The user that sends it, as `authDb.user`.
    pub user: Option<String>,
    /// When it arrives.
    pub at: Option<bson::DateTime>,
    /// The whole entry.
    pub span: Span,
}

/// What a test expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// The rule refuses the command.
    Rejected,
    /// The command goes on as it came.
    Unchanged,
    /// The command goes on as this one, mongosh text.
    Becomes(Located<String>),
}
