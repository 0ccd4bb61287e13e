//! Converts between mongosh syntax and commands: `db.orders.updateOne({_id: 1}, {$set: {status: "paid"}})`.
//!
//! [`parse`] reads mongosh syntax, or a command as Extended JSON, and returns the commands that mongosh would send.
//! [`render`] returns the mongosh syntax of a command. Input that mongosh silently changes (a date that does not
//! exist, an unknown option) is an error here. Length and nesting of the text are limited, so any input is safe. This
//! layer has no rules and no I/O; the caller passes the time. The next layer is `crate::config`.
//!
//! Two groups of files import each other, because the grammar recurs: a value can contain a constructor whose arguments
//! are values (`value` to `writes`), and the lexer skips a function by scanning what is in it (`lexer` to `string`).

mod admin;
mod arguments;
mod chain;
mod compare;
mod constructor;
mod date;
mod error;
mod find_and_modify;
mod from_extended_json;
mod function;
mod layout;
mod lexer;
mod members;
mod number;
mod reads;
mod regex;
mod render;
mod string;
mod term;
#[cfg(test)]
mod tests;
mod value;
mod write_text;
mod writes;

use crate::command::may_name_database;
use crate::document::CowDocument;
use chain::Parser;
use term::{TermField, to_document};

pub use compare::is_same;
pub use date::{iso, to_iso};
pub use error::ShellError;
pub use render::{render, render_lines, render_unbroken, value_text};
pub use write_text::{extended_json, relaxed_json};

/// The maximum length of a text in bytes. A message can have 48 MB, but typed text is shorter.
pub const MAX_TEXT_BYTES: usize = 16 << 20;

/// The maximum nesting depth of values. mongod accepts 200 levels. Parsing 100 levels needs less than 1 MiB of stack
/// even without optimisation; a thread has 2 MiB.
pub const MAX_NESTING: usize = 100;

/// Values that the text does not contain itself.
#[derive(Debug, Clone, Copy)]
pub struct ShellContext<'s> {
    /// The current database, unless the text contains `use`.
    pub database: &'s str,
    /// The time of `new Date()` and of generated `ObjectId()`s, in milliseconds since 1970 UTC.
    pub now: i64,
}

/// Uses the year 1970, for callers without a clock.
impl<'s> From<&'s str> for ShellContext<'s> {
    fn from(database: &'s str) -> Self {
        Self { database, now: 0 }
    }
}

pub(crate) fn not_a_database(name: &str) -> String {
    format!("'{name}' cannot be the name of a database: it is empty, or has one of / \\ . \" $ or a space")
}

/// The commands of a text.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The commands that mongosh would send, in order. There is one, except for a bulkWrite. Each has a `$db` and has
    /// its statements in its body.
    pub commands: Vec<CowDocument<'static>>,
}

/// Parses one document in Extended JSON, relaxed or canonical, as mongod logs and mongoexport write it.
///
/// # Errors
/// [`ShellError`], as for [`parse`].
pub fn document(text: &str) -> Result<CowDocument<'static>, ShellError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(ShellError::new(0..0, format!("the text has more than {MAX_TEXT_BYTES} bytes")));
    }
    Parser::new(text, ShellContext::from("")).read_only_document()
}

/// Parses one value in mongosh syntax, such as `ObjectId("…")`, `17` or `"text"`, and returns `{NAME: value}`.
///
/// # Errors
/// [`ShellError`], as for [`parse`].
pub fn named_value<'s>(
    name: &str,
    text: &'s str,
    context: impl Into<ShellContext<'s>>,
) -> Result<CowDocument<'static>, ShellError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(ShellError::new(0..0, format!("the text has more than {MAX_TEXT_BYTES} bytes")));
    }
    let term = Parser::new(text, context.into()).read_only_value()?;
    Ok(to_document(&[TermField::new(name, term)]))
}

/// Parses one command in mongosh syntax or in Extended JSON.
///
/// # Errors
/// [`ShellError`]: the first error, its span, and the expected input.
pub fn parse<'s>(text: &'s str, context: impl Into<ShellContext<'s>>) -> Result<Parsed, ShellError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(ShellError::new(0..0, format!("the text has more than {MAX_TEXT_BYTES} bytes")));
    }
    let context = context.into();
    if !may_name_database(context.database) {
        return Err(ShellError::new(0..0, not_a_database(context.database)));
    }
    let commands = Parser::new(text, context).parse()?;
    Ok(Parsed { commands: commands.into_iter().map(|command| command.into_document()).collect() })
}
