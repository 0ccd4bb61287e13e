//! Removes secrets from the errors of the command line.
//!
//! clap quotes what it cannot parse: the value of a flag, and unexpected arguments.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

use crate::secret::HIDDEN;

/// Flags whose values are secret. Arguments after such a value may be a part of it: a shell splits an unquoted
/// password at its spaces.
const SECRET_FLAGS: [&str; 4] = ["--upstream", "--service", "--admin-token", "--otlp"];

/// Parses the value of a secret flag; its errors do not quote the value.
#[derive(Clone)]
pub(super) struct Unquoted<T>(pub(super) fn(&str) -> Result<T, String>);

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Unquoted<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let read = value.to_str().ok_or_else(|| "write it as UTF-8 text".to_owned()).and_then(self.0);
        let flag = argument.map(ToString::to_string).unwrap_or_default();
        read.map_err(|error| {
            let text = format!("invalid value for '{flag}': {error}\n");
            Error::raw(ErrorKind::ValueValidation, text).with_cmd(command)
        })
    }
}

/// clap's error for these arguments, with secrets hidden.
pub(super) fn error_text(error: &Error, arguments: &[OsString]) -> String {
    let styled = error.render();
    let text = if std::io::stderr().is_terminal() { styled.ansi().to_string() } else { styled.to_string() };
    let mut secrets = secrets(arguments);
    // Longest first: one secret may be a part of another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    // A short secret may be a part of any word, so only its quoted form is replaced.
    secrets.iter().fold(text, |text, secret| match secret.len() {
        ..4 => text.replace(&format!("'{secret}'"), &format!("'{HIDDEN}'")),
        _ => text.replace(secret.as_str(), HIDDEN),
    })
}

/// The arguments, or values of flags, that may be secret and that clap may quote.
fn secrets(arguments: &[OsString]) -> Vec<String> {
    let mut found = Vec::new();
    let mut follows_secret = false;
    for argument in arguments.iter().skip(1) {
        let argument = argument.to_string_lossy();
        let is_flag = argument.starts_with('-');
        let (flag, value) = argument.split_once('=').unwrap_or((&argument, ""));
        let is_secret =
            (follows_secret && !is_flag) || [argument.as_ref(), value].iter().any(|text| is_credential(text));
        if is_flag {
            follows_secret = SECRET_FLAGS.contains(&flag);
        }
        if is_secret || (is_flag && follows_secret) {
            let whole = if is_flag && argument.contains('=') { value } else { &argument };
            if !SECRET_FLAGS.contains(&whole) && !whole.is_empty() {
                found.push(whole.to_owned());
            }
        }
    }
    found
}

/// Whether an unexpected argument may be a connection string or a part of one.
fn is_credential(text: &str) -> bool {
    text.contains('@') || text.contains("://")
}
