//! Names of namespaces, fields, applications and users, as people write them in rules.
//!
//! MongoDB allows nearly every text as a name. So a list in one text (`"orders, carts"`), a glob that docward does not
//! have (`order?`) or quotes inside quotes are valid names, and rules with them match nothing. [`doubt`] finds these
//! texts.

use std::borrow::Cow;

/// What a text names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    Namespace,
    Field,
    App,
    /// `authDb.user`
    User,
}

/// Why a text is probably not the intended name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameDoubt {
    /// How docward reads the text, as a sentence.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

/// Quotes of YAML and of word processors.
const QUOTES: [char; 7] = ['"', '\'', '`', '“', '”', '‘', '’'];

/// How the names of the server's own collections begin.
const SYSTEM: &str = "system.";

impl NameKind {
    const fn noun(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Field => "field",
            Self::App => "application",
            Self::User => "user",
        }
    }

    /// Characters that separate names in what people write for a list.
    fn separates(self, c: char) -> bool {
        match self {
            Self::Namespace | Self::Field => ",;|\n".contains(c),
            Self::App | Self::User => ",\n".contains(c),
        }
    }

    /// Other characters that are not expected in a name.
    fn is_unexpected(self, c: char) -> bool {
        let special = match self {
            Self::Namespace => "?{}[]^#\\+<>`'\"",
            Self::Field => "?{}[]*/<>:",
            Self::App => "?{}^\\",
            Self::User => "?{}",
        };
        special.contains(c) || is_invisible(c)
    }
}

/// Whether the character cannot be seen, such as a no-break space.
pub(super) fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{a0}' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{2060}' | '\u{feff}')
}

/// A Greek or Cyrillic letter beside Latin ones: it looks like one of them (`stоck` with a Cyrillic `о`).
fn foreign_letter(text: &str) -> Option<char> {
    let is_foreign = |c: char| matches!(c, '\u{370}'..='\u{52f}') && c.is_alphabetic();
    let mut words = text.split(|c: char| !c.is_alphabetic());
    words
        .find(|word| word.contains(|c: char| c.is_ascii_alphabetic()) && word.contains(is_foreign))?
        .chars()
        .find(|c| is_foreign(*c))
}

/// Whether the text has a variable that some other program replaces: `%DB%.orders`.
fn has_variable(text: &str) -> bool {
    text.split('%')
        .nth(1)
        .is_some_and(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        && text.matches('%').count() > 1
}

/// The text with its invisible characters as escapes, such as `\u{a0}`.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_invisible) {
        return text.into();
    }
    text.chars().map(|c| if is_invisible(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// Why `text` is probably not the name that its author means; `None` for an ordinary name.
#[must_use]
pub(crate) fn doubt(text: &str, kind: NameKind) -> Option<NameDoubt> {
    // The user of an X.509 certificate: `$external.CN=app,OU=sales`.
    if kind == NameKind::User && text.contains('=') {
        return None;
    }
    let (shown, noun) = (visible(text), kind.noun());
    let meant = meant(text, kind);
    let list = |names: &[String]| names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    let several = match kind {
        NameKind::Field => "write a list if the key takes several fields, else a rule for each",
        _ => "write a list",
    };
    let or_star = match kind {
        NameKind::Field => "",
        _ => "; in a name that contains such a character, write `*` for it",
    };
    let (message, help) = match meant.as_slice() {
        [one] if one == text && kind == NameKind::Namespace && text.starts_with(SYSTEM) => (
            format!("`{shown}` is read as a collection of the database `system`"),
            "no rule uses the collections `system.*`, which belong to the server; write another one".to_owned(),
        ),
        [one] if one == text => {
            let is_namespace = kind == NameKind::Namespace;
            let foreign = foreign_letter(text);
            let unexpected = text
                .chars()
                .find(|c| kind.is_unexpected(*c))
                .or(foreign)
                .or_else(|| text.starts_with('!').then_some('!'))
                .or_else(|| (is_namespace && text.contains("()")).then_some('('))
                .or_else(|| (has_variable(text) || is_namespace && text.ends_with('%')).then_some('%'))?;
            let character =
                if foreign.is_some() { unexpected.escape_default().to_string() } else { unexpected.to_string() };
            let message = format!("`{shown}` is read as a name that contains `{}`", visible(&character));
            let help = match (kind, unexpected) {
                _ if text.contains("${") || has_variable(text) => {
                    "docward does not replace variables in rule files".to_owned()
                }
                _ if foreign.is_some() => {
                    "it looks like a Latin letter, and is another one; type the name again".to_owned()
                }
                (NameKind::Field, '*') if text == "*" => "no wildcard stands for fields; name each field".to_owned(),
                (_, '!') => format!("no {noun} is excluded by `!`; list those that are meant"),
                (NameKind::Field, _) => {
                    "write the path of one field, with dots and without positions in arrays: `items.qty`".to_owned()
                }
                _ => "`*` is the only wildcard; to name several, write a list".to_owned(),
            };
            (message, help)
        }
        [] => (format!("`{shown}` names no {noun}"), format!("write a {noun}")),
        [one] => (
            format!("`{shown}` is read with its quotes, spaces and signs as a part of the name"),
            format!("write {}", quoted(one)),
        ),
        many => (format!("`{shown}` is read as one {noun}"), format!("{several}: [{}]{or_star}", list(many))),
    };
    Some(NameDoubt { message, help })
}

/// The names that the text probably stands for: itself if it is ordinary.
fn meant(text: &str, kind: NameKind) -> Vec<String> {
    // A list in which a dash is indented too far, so that YAML joins the lines.
    let joined = (kind != NameKind::App && text.contains(" - ")).then(|| text.replace(" - ", "\n"));
    let text = joined.as_deref().unwrap_or(text);
    // `shop.orders and shop.carts`
    let both = text.replace(" and ", "\n");
    let is_both =
        kind == NameKind::Namespace && both.lines().count() > 1 && both.lines().all(|name| name.contains('.'));
    let text = if is_both { both.as_str() } else { text };
    let separates = |c: char| kind.separates(c);
    let alternatives = [('{', '}'), ('[', ']'), ('(', ')')].into_iter().find_map(|(open, close)| {
        let (before, rest) = text.split_once(open)?;
        let (inner, after) = rest.rsplit_once(close)?;
        inner.contains(separates).then_some((before, inner, after))
    });
    let (before, inner, after) = alternatives.unwrap_or(("", text, ""));
    let plain = |part: &str| {
        let part = part.trim();
        let part = part.strip_prefix("- ").unwrap_or(part).trim();
        let unquoted = part.strip_prefix(QUOTES).and_then(|part| part.strip_suffix(QUOTES));
        unquoted.unwrap_or(part).trim().to_owned()
    };
    let parts = inner.split(separates).map(plain).filter(|part| !part.is_empty());
    if before.is_empty() && after.is_empty() {
        // `shop.orders shop.carts`
        let has_dots = matches!(kind, NameKind::Namespace | NameKind::User);
        let words = parts.flat_map(|part| words(part, has_dots));
        return words.map(|part| if kind == NameKind::Namespace { complete(part, text) } else { part }).collect();
    }
    parts.map(|part| plain(&format!("{before}{part}{after}"))).collect()
}

/// The words of a text if each is a name with a dot, else the text.
fn words(text: String, has_dots: bool) -> Vec<String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    if has_dots && words.iter().all(|word| word.contains('.')) { words } else { vec![text] }
}

/// The namespace `part` of a list; a collection alone gets the database that `text` begins with.
fn complete(part: String, text: &str) -> String {
    match text.split_once('.') {
        Some((database, _)) if !part.contains('.') && part != text => format!("{database}.{part}"),
        _ => part,
    }
}

/// A name as an element of a YAML list.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "._-".contains(c);
    if name.chars().all(is_plain) && !name.starts_with('-') { name.to_owned() } else { format!("\"{name}\"") }
}

#[cfg(test)]
mod tests {
    use super::{NameKind, doubt};

    #[test]
    fn lists_and_globs_in_one_text_are_doubtful() {
        use NameKind::{App, Field, Namespace, User};
        for (kind, text, help) in [
            (Namespace, "shop.orders, shop.carts", "write a list: [shop.orders, shop.carts]"),
            (Namespace, "shop.{orders,carts}", "write a list: [shop.orders, shop.carts]"),
            (Namespace, "shop.(orders|carts)", "write a list: [shop.orders, shop.carts]"),
            (Namespace, "[shop.orders, *.carts]", "write a list: [shop.orders, \"*.carts\"]"),
            (Namespace, "shop.orders, carts", "write a list: [shop.orders, shop.carts]"),
            (Namespace, "shop.orders shop.carts", "write a list: [shop.orders, shop.carts]"),
            (Namespace, "- shop.orders\n- shop.carts\n", "write a list: [shop.orders, shop.carts]"),
            (Namespace, "\"shop.orders\"", "write shop.orders"),
            (Namespace, "shop.orders ", "write shop.orders"),
            (Namespace, "- shop.orders", "write shop.orders"),
            (Namespace, "shop.orders,", "write shop.orders"),
            (Namespace, ", ", "write a namespace"),
            (Namespace, "shop.order?", "`*` is the only wildcard"),
            (Namespace, "^shop.*", "`*` is the only wildcard"),
            (Namespace, "shop.%", "`*` is the only wildcard"),
            (Namespace, "${DB}.orders", "docward does not replace variables"),
            (Namespace, "!shop.logs", "no namespace is excluded"),
            (Namespace, "shop.or\u{200b}ders", "`*` is the only wildcard"),
            (Namespace, "shop.orders#prod", "`*` is the only wildcard"),
            (Namespace, "shop.\\w+", "`*` is the only wildcard"),
            (Namespace, "shop.+", "`*` is the only wildcard"),
            (Namespace, "shop.orders()", "`*` is the only wildcard"),
            (Namespace, "db.getSiblingDB('shop').orders", "`*` is the only wildcard"),
            (Namespace, "`shop`.orders", "`*` is the only wildcard"),
            (Namespace, "<db>.orders", "`*` is the only wildcard"),
            (Namespace, "%DB%.orders", "docward does not replace variables"),
            (Namespace, "shop.orders and shop.carts", "write a list: [shop.orders, shop.carts]"),
            (Namespace, "shop.\u{43e}rders", "it looks like a Latin letter"),
            (Field, "st\u{43e}ck", "it looks like a Latin letter"),
            (Field, "items/qty", "write the path of one field"),
            (Field, "items->qty", "write the path of one field"),
            (Field, "items:qty", "write the path of one field"),
            (Field, "<field>", "write the path of one field"),
            (Field, "%FIELD%", "docward does not replace variables"),
            (Field, "*", "no wildcard stands for fields"),
            (App, "migrator\\d+", "`*` is the only wildcard"),
            (Field, "qty, note", "write a list if the key takes several fields, else a rule for each: [qty, note]"),
            (Field, "qty - note", "write a list if the key takes several fields, else a rule for each: [qty, note]"),
            (Field, "items[].qty", "write the path of one field"),
            (Field, "items.*.qty", "write the path of one field"),
            (Field, " qty", "write qty"),
            (App, "billing, migrator-*", "write a list: [billing, \"migrator-*\"]"),
            (App, "“billing”", "write billing"),
            (User, "admin.root, shop.app", "write a list: [admin.root, shop.app]"),
            (User, "admin.root\u{a0}", "write admin.root"),
        ] {
            let found = doubt(text, kind).unwrap_or_else(|| panic!("{text:?} is not doubtful"));
            assert!(found.help.starts_with(help), "{text:?}: {found:?}");
        }
    }

    #[test]
    fn ordinary_names_are_not_doubtful() {
        use NameKind::{App, Field, Namespace, User};
        for (kind, text) in [
            (Namespace, "shop.orders"),
            (Namespace, "shop.*"),
            (Namespace, "shop.copy of orders (2)"),
            (Namespace, "shop._Join:users:_Role"),
            (Namespace, "shop.fish and chips"),
            (Namespace, "shop.\u{437}\u{430}\u{43a}\u{430}\u{437}"),
            (Field, "100% cotton"),
            (Field, "orders_\u{437}\u{430}\u{43a}\u{430}\u{437}"),
            (Field, "Unit Price"),
            (Field, "Price (EUR)"),
            (Field, "a.b-c"),
            (App, "MongoDB Compass"),
            (App, "mongosh 2.3.1"),
            (App, "worker|eu [3]"),
            (App, "Bob's script"),
            (User, "admin.root"),
            (User, "$external.CN=app,OU=sales,O=Shop"),
            (User, "*.C++ (old)"),
        ] {
            assert_eq!(doubt(text, kind), None, "{text}");
        }
    }
}
