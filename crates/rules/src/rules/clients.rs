//! The clients that rules, rule tests and overrides name: applications, and users with their authentication database.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::keys::{DescribeSchema, NamedSchema, ReadText, TextSchema, ValueSchema};
use crate::config::names::{NameKind, doubt};
use crate::config::{Code, Diagnostic, FileId, Glob, Located, ReadContext, Span};

/// Clients: any of these applications, any of these users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientGlobs {
    /// Application names, as drivers send them in the handshake (`appName`).
    pub apps: Vec<AppGlob>,
    /// Authenticated users.
    pub users: Vec<UserGlob>,
}

impl ClientGlobs {
    /// Whether a connection with this application name and these users (`(authDb, user)`) is one of them.
    #[must_use]
    pub fn covers(&self, app: Option<&str>, users: &[(String, String)]) -> bool {
        app.is_some_and(|app| self.apps.iter().any(|glob| glob.matches(app)))
            || users.iter().any(|(database, user)| self.users.iter().any(|glob| glob.matches(database, user)))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.apps.is_empty() && self.users.is_empty()
    }

    /// The globs as text.
    #[must_use]
    pub fn names(&self) -> ClientNames {
        ClientNames {
            apps: self.apps.iter().map(ToString::to_string).collect(),
            users: self.users.iter().map(ToString::to_string).collect(),
        }
    }
}

impl fmt::Display for ClientGlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.names().fmt(f)
    }
}

/// [`ClientGlobs`] as text, as `except` and `only` have them in a rule file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientNames {
    /// Globs of application names.
    pub apps: Vec<String>,
    /// Globs of users, each `authDb.user`.
    pub users: Vec<String>,
}

impl ClientNames {
    /// The clients as text after `words`; an empty text if there are none.
    #[must_use]
    pub fn after(&self, words: &str) -> String {
        if self.is_empty() { String::new() } else { format!("{words}{self}") }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.apps.is_empty() && self.users.is_empty()
    }
}

impl fmt::Display for ClientNames {
    /// `apps promo-*, web; users admin.root`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [("apps", &self.apps), ("users", &self.users)].into_iter().filter(|(_, names)| !names.is_empty());
        f.write_str(&lists.map(|(who, names)| format!("{who} {}", names.join(", "))).collect::<Vec<_>>().join("; "))
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

impl ClientGlobs {
    /// Reads globs that do not come from a rule file, as `only` of a rule reads them.
    ///
    /// # Errors
    /// What is wrong with one of them, for the user.
    pub fn parse(names: &ClientNames) -> Result<Self, String> {
        Ok(Self { apps: read_all(AppName, &names.apps)?, users: read_all(UserName, &names.users)? })
    }
}

fn read_all<R: ReadText>(reader: R, texts: &[String]) -> Result<Vec<R::Value>, String> {
    let read = |text: &String| {
        let mut found = Vec::new();
        let located = Located { value: text.clone(), span: Span::new(FileId(0), 0, 0) };
        let read = reader.read_text(&mut ReadContext::new(&mut found), "", located);
        read.ok_or_else(|| {
            let mistakes = found.into_iter().map(|Diagnostic { message, help, .. }| match help {
                Some(help) => format!("{message}; {help}"),
                None => message,
            });
            mistakes.collect::<Vec<_>>().join("; ")
        })
    };
    texts.iter().map(read).collect()
}

/// The longest application name, in bytes; the server rejects longer ones.
/// <https://github.com/mongodb/specifications/blob/master/source/mongodb-handshake/handshake.md>
const LONGEST_APP: usize = 128;

/// A glob for the appName of a connection string.
#[derive(Clone, Copy, Debug)]
pub(super) struct AppName;

const APP: NamedSchema = NamedSchema {
    name: "app",
    meaning: "A glob for the appName of the connection string.",
    schema: || ValueSchema::Text(TextSchema::matching("^[^,?{}]+$")),
};

impl DescribeSchema for AppName {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&APP)
    }
}

impl ReadText for AppName {
    type Value = AppGlob;

    fn read_text(&self, context: &mut ReadContext<'_>, _: &str, text: Located<String>) -> Option<AppGlob> {
        check_name(context, &text, NameKind::App, Code::InvalidException)?;
        let glob = Glob::new(&text);
        if glob.as_str().len() - glob.stars() > LONGEST_APP {
            let message = format!("an application name has at most {LONGEST_APP} bytes");
            context.error(Code::InvalidException, text.span, message);
            return None;
        }
        Some(AppGlob(glob))
    }
}

/// A glob for an authenticated user: `authDb.user`.
#[derive(Clone, Copy, Debug)]
pub(super) struct UserName;

const USER: NamedSchema = NamedSchema {
    name: "user",
    meaning: "A glob for an authenticated user: \"authDb.user\".",
    schema: || ValueSchema::Text(TextSchema::matching(r#"^(\$external|[^./\\ "$,?{}]+)\..+$"#)),
};

impl DescribeSchema for UserName {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&USER)
    }
}

impl ReadText for UserName {
    type Value = UserGlob;

    fn read_text(&self, context: &mut ReadContext<'_>, _: &str, text: Located<String>) -> Option<UserGlob> {
        let (database, user) = read_user(context, &text, Code::InvalidException)?;
        Some(UserGlob { database: Glob::new(database), user: Glob::new(user) })
    }
}

/// The user of a rule test.
#[derive(Clone, Copy, Debug)]
pub(super) struct TestUser;

impl DescribeSchema for TestUser {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&USER)
    }
}

impl ReadText for TestUser {
    type Value = String;

    fn read_text(&self, context: &mut ReadContext<'_>, _: &str, text: Located<String>) -> Option<String> {
        read_user(context, &text, Code::InvalidTest)?;
        check_one(context, &text);
        Some(text.value)
    }
}

/// The authentication database and the name of a user; reports another text as a mistake of this kind.
fn read_user<'t>(context: &mut ReadContext<'_>, text: &'t Located<String>, code: Code) -> Option<(&'t str, &'t str)> {
    check_name(context, text, NameKind::User, code)?;
    let is_database = |name: &str| name == "$external" || !name.contains(['/', '\\', ' ', '"', '$']);
    let problem = match text.split_once('.') {
        Some((database, user)) if !database.is_empty() && !user.is_empty() => {
            if is_database(database) {
                return Some((database, user));
            }
            format!("`{database}` cannot be the name of a database")
        }
        _ => format!("`{}` has no authentication database", text.value),
    };
    let mistake = Diagnostic::error(code, text.span, problem);
    let glob = if code == Code::InvalidTest { "" } else { " or \"*.root\"" };
    context.push(mistake.help(format!("write \"authDb.user\", for example \"admin.root\"{glob}")));
    None
}

/// Reports a glob as the client of a test.
pub(super) fn check_one(context: &mut ReadContext<'_>, text: &Located<String>) {
    if text.contains('*') {
        let message = format!("`{}` is not the name of one client", text.value);
        let mistake = Diagnostic::error(Code::InvalidTest, text.span, message);
        context.push(mistake.help("a test has one client; only `except` and `only` of rules have globs"));
    }
}

/// Reports a text that is probably not the intended name.
fn check_name(context: &mut ReadContext<'_>, text: &Located<String>, kind: NameKind, code: Code) -> Option<()> {
    let Some(doubt) = doubt(text, kind) else { return Some(()) };
    context.push(Diagnostic::error(code, text.span, doubt.message).help(doubt.help));
    None
}
