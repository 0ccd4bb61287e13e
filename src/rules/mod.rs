//! Rule files: YAML in, a checked and indexed [`RuleSet`] out, or a [`Report`] of every mistake.
//!
//! The way of a rule: `files` finds and reads files → `yaml` makes a tree of [`Node`]s, each with
//! its place → `envelope` reads the rules with `reader`, and hands the settings of each pattern to
//! the [`Pattern`] the set is generic over → `conflict` refuses rules that contradict each other, `oversight` warns of others →
//! `index` answers which rules a namespace has. `set` is the front listener_context. `settings` reads other YAML files alike.
//!
//! Mistakes are [`Diagnostic`]s with a stable [`Code`], shown by `render`. This layer must not know
//! the patterns, commands, sockets or clocks; only `files` touches the file system.

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
pub use diagnostic::{Diagnostic, Label, Place, Report, Severity};
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
