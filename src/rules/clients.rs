//! Reads the clients that rules and rule tests name: applications, and users with their authentication database.

use super::rule::{AppGlob, UserGlob};
use crate::config::keys::{DescribeSchema, NamedSchema, ReadText, TextSchema, ValueSchema};
use crate::config::names::{NameKind, doubt};
use crate::config::{Code, Diagnostic, Glob, Located, ReadContext};

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
