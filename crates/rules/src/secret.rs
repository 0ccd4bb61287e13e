//! Protects secrets from being printed: [`Secret`] for text that is known to be secret, [`redact`] for text that may
//! contain credentials by mistake.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// The text printed instead of a secret.
pub const HIDDEN: &str = "***";

/// Secret text. `Debug` and `Display` print [`HIDDEN`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text. It must not be printed.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// The separator before user, password and host in a URL.
const SCHEME_END: &str = "://";

/// Returns `text` with the credentials of URLs replaced: in each line, everything between `://` and the last `@`
/// before the next `://` becomes [`HIDDEN`]. This may hide too much, because a password may contain any character.
#[must_use]
pub fn redact(text: &str) -> Cow<'_, str> {
    if !has_credentials(text) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let mut rest = line;
        while let Some((from, to)) = credentials(rest) {
            shown.push_str(&rest[..from]);
            shown.push_str(HIDDEN);
            rest = &rest[to..];
        }
        shown.push_str(rest);
    }
    Cow::Owned(shown)
}

/// Replaces each byte of credentials by `*`, so that offsets in the text do not change.
pub(crate) fn mask_credentials(line: &mut String) {
    let mut done = 0;
    while let Some((from, to)) = credentials(&line[done..]) {
        mask(line, done + from, done + to);
        done += to;
    }
}

/// Replaces each byte of `text[from..to]` by `*`. Both must be character boundaries.
pub(crate) fn mask(text: &mut String, from: usize, to: usize) {
    text.replace_range(from..to, &"*".repeat(to - from));
}

/// `text` as a user or password in a URL: everything but letters, digits and `-._~` percent-encoded.
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => out.push(byte.into()),
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
    out
}

fn has_credentials(text: &str) -> bool {
    text.contains(SCHEME_END) && text.contains('@')
}

/// Returns the range of the first credentials of a URL in a line, without the `@`.
fn credentials(line: &str) -> Option<(usize, usize)> {
    let mut searched = 0;
    loop {
        let from = searched + line[searched..].find(SCHEME_END)? + SCHEME_END.len();
        let end = line[from..].find(SCHEME_END).map_or(line.len(), |next| from + next);
        match line[from..end].rfind('@') {
            Some(at) => return Some((from, from + at)),
            None => searched = from,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_as_stars() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "*** *** Some(***)");
        assert_eq!(secret.reveal(), "hunter2");
    }

    #[test]
    fn credentials_of_urls_are_hidden() {
        for (text, shown) in [
            ("no URL at all: a@b", "no URL at all: a@b"),
            ("mongodb://h:1/?a=b is down", "mongodb://h:1/?a=b is down"),
            ("mongodb://u:p@h/", "mongodb://***@h/"),
            ("'mongodb://u:p@q/r s\"t@h/' is wrong", "'mongodb://***@h/' is wrong"),
            ("http://h and mongodb://u:p@h\nand http://v@i", "http://h and mongodb://***@h\nand http://***@i"),
            ("a://b:c@d, e://f:g@h", "a://***@d, e://***@h"),
        ] {
            assert_eq!(redact(text), shown);
            let mut masked = text.to_owned();
            if !text.contains('\n') {
                mask_credentials(&mut masked);
                assert_eq!((masked.len(), redact(&masked).into_owned()), (text.len(), shown.to_owned()));
            }
        }
    }
}
