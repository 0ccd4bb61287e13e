//! Hides secrets in the text of a file: diagnostics print source lines into logs, and settings files contain passwords.
//!
//! Works on lines, not on the tree: a file that is not valid YAML has no tree, but its lines are shown too.

use std::collections::HashSet;

use super::code::Code;
use super::diagnostic::Diagnostic;
use crate::secret::{HIDDEN, mask, mask_credentials};
use crate::suggest;

/// The top-level keys of rule and test files. Values of other top-level keys are hidden: `docward.yaml` may be loaded
/// as a rule file by mistake.
const RULE_FILE_KEYS: [&str; 4] = ["version", "rules", "tests", "database"];
/// Keys whose values are secret anywhere in a settings file.
const SECRET_KEYS: [&str; 10] = [
    "upstream",
    "service",
    "admin_token",
    "token",
    "otlp",
    "password",
    "key_password",
    "passphrase",
    "key_passphrase",
    "key_pass",
];
/// Shorter hidden words are not removed from messages: they would match unrelated words.
pub(super) const MIN_WORD_BYTES: usize = 4;

/// The kind of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextKind {
    /// A command, or rules that do not come from a file.
    Text,
    /// A rule file or test file.
    Rules,
    /// A settings file, with the top-level keys whose values may be shown.
    Settings(&'static [&'static str]),
}

/// `text` with a `*` for each byte that may be part of a secret, so that offsets do not change. Of a file only the
/// values of known top-level keys are shown. Credentials in URLs are always hidden.
pub(crate) fn shown(text: &str, kind: TextKind) -> String {
    let mut out = String::with_capacity(text.len());
    let is_settings = matches!(kind, TextKind::Settings(_));
    // Whether the value of the last top-level key is hidden. Before the first key, everything in a settings file is.
    let mut hides = is_settings;
    // The indentation of a nested secret key: lines with more of it belong to its value.
    let mut secret: Option<usize> = None;
    for line in text.split_inclusive('\n') {
        let length = line.trim_end_matches(['\n', '\r']).len();
        let mut shown = line.to_owned();
        let indentation = line.len() - line.trim_start_matches([' ', '\t']).len();
        let is_nested = indentation > 0;
        let is_item = line[indentation..].starts_with('-');
        secret = secret.filter(|of| length == 0 || indentation > *of || indentation == *of && is_item);
        // A list may follow its key without indentation.
        let belongs_to_key = is_nested || line.starts_with("- ");
        let hidden_from = match (kind, leading_key(line)) {
            (TextKind::Text, _) => None,
            _ if secret.is_some() => Some(0),
            (_, Some((key, end))) if !is_nested => {
                hides = kind.hides(key);
                if hides { Some(end) } else { kind.secret_from(line, end) }
            }
            _ if belongs_to_key && hides => Some(0),
            // A nested key of a rule file may have any name.
            (TextKind::Rules, _) if belongs_to_key => None,
            (TextKind::Rules, _) => secret_key(line, 0),
            _ if belongs_to_key => kind.secret_from(line, 0),
            _ => {
                hides |= length > 0 && !line.starts_with('#');
                Some(0)
            }
        };
        if is_settings && secret.is_none() && secret_key(line, 0).is_some() {
            secret = Some(indentation);
        }
        mask(&mut shown, hidden_from.unwrap_or(length).min(length), length);
        mask_credentials(&mut shown);
        out.push_str(&shown);
    }
    out
}

/// Hides in the diagnostics of a file the words that are hidden in its text. Diagnostics of invalid values, and of files
/// that cannot be read, are left as they are: the code that reports them knows which values are secret.
pub(crate) fn hide_words<'d>(text: &str, shown: &str, found: impl Iterator<Item = &'d mut Diagnostic>) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    let (mut hidden, mut visible) = (HashSet::new(), HashSet::new());
    for word in text.split_inclusive(|c: char| !is_word(c)) {
        let is_hidden = shown.as_bytes().get(at) == Some(&b'*');
        at += word.len();
        let word = word.trim_end_matches(|c: char| !is_word(c));
        if is_hidden && word.len() >= MIN_WORD_BYTES && !RULE_FILE_KEYS.contains(&word) {
            hidden.insert(word);
        } else if !is_hidden {
            visible.insert(word);
        }
    }
    // A port of `upstream`, for example, may be the name of a member too.
    hidden.retain(|word| !visible.contains(word));
    let hide = |message: &mut String| {
        let words = message.split(|c: char| !is_word(c)).filter(|word| hidden.contains(word));
        let words: HashSet<String> = words.map(str::to_owned).collect();
        words.iter().for_each(|word| *message = message.replace(word.as_str(), HIDDEN));
    };
    for one in found.filter(|one| !matches!(one.code, Code::InvalidValue | Code::Unreadable)) {
        one.texts_mut().for_each(hide);
    }
}

impl TextKind {
    /// Whether the value of a top-level key is hidden.
    fn hides(self, key: &str) -> bool {
        match self {
            Self::Text => false,
            Self::Rules => suggest::nearest(key, RULE_FILE_KEYS).is_none(),
            Self::Settings(public) => !public.contains(&key),
        }
    }

    /// Where in `line`, from byte `from` on, a hidden part starts although its top-level key is shown: the
    /// value of a secret key, or a possible connection string.
    fn secret_from(self, line: &str, from: usize) -> Option<usize> {
        match self {
            Self::Settings(_) if line[from..].contains('@') => Some(from),
            Self::Settings(_) => secret_key(line, from),
            Self::Text | Self::Rules => None,
        }
    }
}

fn is_secret(key: &str) -> bool {
    !key.ends_with("_file") && suggest::nearest(key, SECRET_KEYS).is_some()
}

/// The key that a line starts with, and the end of its colon.
fn leading_key(line: &str) -> Option<(&str, usize)> {
    let start = line.len() - line.trim_start_matches([' ', '\t']).len();
    let length = line[start..].find(|c: char| !(c.is_ascii_alphanumeric() || "_-".contains(c)))?;
    let rest = &line[start + length..];
    let ends = rest.starts_with(':') && rest[1..].chars().next().is_none_or(char::is_whitespace);
    (ends && length > 0).then(|| (&line[start..start + length], start + length + 1))
}

/// Where the value of the first secret key in `line` starts, from byte `from` on.
fn secret_key(line: &str, from: usize) -> Option<usize> {
    let is_key = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut colons = line.char_indices().filter(|(at, c)| *at >= from && *c == ':');
    colons.find_map(|(at, _)| {
        let before = line[..at].trim_end_matches(['"', '\'', ' ']);
        let key = &before[before.trim_end_matches(is_key).len()..];
        is_secret(key).then_some(at + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: TextKind = TextKind::Settings(&["listen", "tls", "rules"]);

    /// `expected` has one star for each run of stars.
    fn check(text: &str, kind: TextKind, expected: &str) {
        let shown = shown(text, kind);
        assert_eq!(shown.len(), text.len(), "{text}");
        let mut short: Vec<char> = shown.chars().collect();
        short.dedup_by(|a, b| (*a, *b) == ('*', '*'));
        assert_eq!(short.iter().collect::<String>(), expected, "{text}");
    }

    #[test]
    fn settings_are_shown_if_their_key_is_public() {
        for (text, expected) in [
            ("listen: 127.0.0.1\nrules:\n- a.yaml\n", "listen: 127.0.0.1\nrules:\n- a.yaml\n"),
            ("upstream: mongodb://u:pass\nlisten: a", "upstream:*\nlisten: a"),
            ("upstreem: x y\n  z\n\nlisten: a", "upstreem:*\n*\n\nlisten: a"),
            ("upstream: u:pa\nss@h\nlisten: a", "upstream:*\n*\nlisten: a"),
            ("tls: {key: k, admin_tokn: abc}", "tls: {key: k, admin_tokn:*"),
            ("tls:\n  key: a\n  \"password\": b", "tls:\n  key: a\n  \"password\":*"),
            ("tls:\n  password: >-\n    x y\n\n    z\n  key: k", "tls:\n  password:*\n*\n\n*\n  key: k"),
            ("tls:\n  password:\n  - x\n  key: k", "tls:\n  password:\n*\n  key: k"),
            ("tls: {key: k, password: 'x\n  y'}\nlisten: a", "tls: {key: k, password:*\n*\nlisten: a"),
            ("tls:\n  passphrase: b\n  password_file: b", "tls:\n  passphrase:*\n  password_file: b"),
            ("# a\ntls:\n  key: a\n# b\n  client_ca: c", "*\ntls:\n  key: a\n*\n  client_ca: c"),
            ("{listen: a}\n", "*\n"),
            ("listen: u:p@h\ntls:\n  key: u:p@h", "listen:*\ntls:\n*"),
            ("sécret\r\nlisten: ä", "*\r\nlisten: ä"),
        ] {
            check(text, SETTINGS, expected);
        }
    }

    #[test]
    fn values_of_unknown_keys_are_hidden_in_rule_files() {
        for (text, expected) in [
            ("version: 1\nfoo:\n  - a: b\n# c\nrules: d", "version: 1\nfoo:\n*\n# c\nrules: d"),
            // A misspelled key of a rule file is no key of a configuration.
            ("version: 1\nrule:\n  - a: b\n", "version: 1\nrule:\n  - a: b\n"),
            ("upstream: a\nadmin_token: >-\n  b\nrules: []", "upstream:*\nadmin_token:*\n*\nrules: []"),
            ("rules:\n  - {service: a}\n", "rules:\n  - {service: a}\n"),
            ("{upstream: a}", "{upstream:*"),
            ("rules: [] # see http://u:p@h/", "rules: [] # see http://*@h/"),
        ] {
            check(text, TextKind::Rules, expected);
        }
    }

    #[test]
    fn credentials_are_hidden_in_other_text() {
        check("{service: 1}\nupstream: http://u:p@h", TextKind::Text, "{service: 1}\nupstream: http://*@h");
    }

    #[test]
    fn messages_do_not_repeat_hidden_words() {
        let text = "admin_token: !hunter2 x\nlisten: plain\n";
        let span = super::super::source::Span::new(super::super::source::FileId(0), 0, 1);
        let mistake = Diagnostic::error(Code::Syntax, span, "the tag `!hunter2` of plain");
        let mut found = [mistake.help("hunter2")];
        hide_words(text, &shown(text, SETTINGS), found.iter_mut());
        assert_eq!(found[0].message, "the tag `!***` of plain");
        assert_eq!(found[0].help.as_deref(), Some("***"));
        let text = "upstream: mongodb://h:21000\nlisten: h:21000\n";
        let mut found = [Diagnostic::error(Code::ConflictingSettings, span, "h:21000")];
        hide_words(text, &shown(text, SETTINGS), found.iter_mut());
        assert_eq!(found[0].message, "h:21000", "it is shown in another place");
    }
}
