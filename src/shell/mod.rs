//! mongosh syntax ↔ commands, for people: `db.orders.updateOne({_id: 1}, {$set: {status: "paid"}})`.
//!
//! [`parse`] reads what people type, or a command as Extended JSON, and builds what mongosh would send for it;
//! [`render`] writes commands as people would type them. What mongosh silently turns into something else (a
//! date that does not exist, an option it ignores) is an error here. Any text is safe: its length and nesting
//! are bounded. Knows no rules and no I/O; the time is handed in. Next floor: `crate::rules`.

mod admin;
mod arguments;
mod chain;
mod compare;
mod constructor;
mod date;
mod error;
mod extended;
mod find_and_modify;
mod function;
mod layout;
mod members;
mod number;
mod reads;
mod regex;
mod render;
mod scanner;
mod string;
mod term;
#[cfg(test)]
mod tests;
mod value;
mod write_text;
mod writes;

use crate::document::CowDocument;
use chain::Reader;

pub use compare::is_same;
pub(crate) use date::to_iso;
pub use error::ShellError;
pub use render::{render, render_lines, render_unbroken};
pub use write_text::extended_json;

/// Bytes of the longest text: a command can carry no more than a message of 48 MB, and people type less.
pub const MAX_TEXT_BYTES: usize = 16 << 20;

/// How deep values may nest: mongod itself takes documents of 200 levels. Reading so many takes less than 1 MiB of
/// stack even without optimisation; a thread has 2.
pub const MAX_NESTING: usize = 100;

/// What a text does not say itself.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'s> {
    /// What `db` means, unless the text says `use`.
    pub database: &'s str,
    /// What `new Date()` means, and what ids that `ObjectId()` makes begin with: milliseconds since 1970 UTC.
    pub now: i64,
}

/// For callers without a clock: it is 1970.
impl<'s> From<&'s str> for Surroundings<'s> {
    fn from(database: &'s str) -> Self {
        Self { database, now: 0 }
    }
}

/// What a text asks for.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The commands that mongosh would send one after the other: one, but for a bulkWrite. Each names its `$db`
    /// and has its statements in its body.
    pub commands: Vec<CowDocument<'static>>,
}

/// Reads one document in Extended JSON, relaxed or canonical, as mongod logs and mongoexport write it.
///
/// # Errors
/// [`ShellError`], as for [`parse`].
pub fn document(text: &str) -> Result<CowDocument<'static>, ShellError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(ShellError::new(0..0, format!("the text has more than {MAX_TEXT_BYTES} bytes")));
    }
    Reader::new(text, Surroundings::from("")).read_only_document()
}

/// Reads one command: mongosh syntax, or a document that is the command itself, in Extended JSON.
///
/// # Errors
/// [`ShellError`]: the first mistake, its place, and what was expected there.
pub fn parse<'s>(text: &'s str, surroundings: impl Into<Surroundings<'s>>) -> Result<Parsed, ShellError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(ShellError::new(0..0, format!("the text has more than {MAX_TEXT_BYTES} bytes")));
    }
    let commands = Reader::new(text, surroundings.into()).read()?;
    Ok(Parsed { commands: commands.into_iter().map(|command| command.into_document()).collect() })
}
