//! Rule files: YAML in, a checked and indexed [`RuleSet`] out, or a [`Report`] of every mistake.
//!
//! Loading takes these steps:
//!
//! 1. `files` finds and reads the files.
//! 2. `yaml` makes a tree of [`Node`]s, each with its place.
//! 3. `envelope` reads the rules with `reader`. The [`Pattern`] that the set is generic over reads the settings.
//! 4. `conflict` reports rules that contradict each other; `ineffective` warns about rules that have no effect.
//! 5. `index` maps a namespace to its rules.
//!
//! `set` is the entry point. `settings` reads other YAML files with the same diagnostics.
//!
//! Mistakes are [`Diagnostic`]s with a stable [`Code`]; `render` prints them. This layer must not know
//! the patterns, commands, sockets or clocks. Only `files` accesses the file system.

mod code;
mod conflict;
mod context;
mod diagnostic;
mod envelope;
mod files;
mod glob;
mod index;
mod ineffective;
mod namespace;
mod node;
mod reader;
mod renamed;
mod render;
mod rule;
mod rule_test;
mod set;
mod settings;
mod shown;
mod source;
#[cfg(test)]
mod stub;
mod test_file;
#[cfg(test)]
mod tests;
mod yaml;

pub use code::Code;
pub use context::{Located, Number, ReadContext};
pub use diagnostic::{Diagnostic, DiagnosticPlace, Label, Report, Severity};
pub use files::{is_test_file, read_file};
pub use glob::Glob;
pub use namespace::{NamespaceError, NamespacePattern, bucketed_collection};
pub use node::{Key, Node, Value};
pub use reader::{MapReader, parse_duration};
pub use rule::{
    AppGlob, Claim, Except, Expectation, Mode, Pattern, Rule, RuleId, RuleTest, Unsupported, UserGlob, WeakerSetting,
};
pub use set::{NamespaceRules, RuleSet, RuleSetHash};
pub use settings::read_settings;
pub use source::{FileId, Location, Source, Sources, Span};
pub use test_file::{TestFile, TestFiles};
pub use yaml::MAX_FILE_BYTES;
