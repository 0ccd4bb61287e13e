//! Rule files: YAML in, a checked and indexed [`RuleSet`] out, or a [`Report`](crate::config::Report) of every mistake.
//!
//! Loading takes these steps:
//!
//! 1. `files` finds the files, and `crate::config` reads them into trees.
//! 2. `envelope` reads the rules. `crate::patterns` reads the settings of each.
//! 3. `conflict` reports rules that contradict each other; `ineffective` warns about rules that have no effect.
//! 4. `index` maps a namespace to its rules.
//!
//! `doubt` is what retries must know of the rules that applied before.
//!
//! `set` is the entry point.

mod clients;
mod conflict;
mod doubt;
mod envelope;
mod files;
mod hash;
mod index;
mod ineffective;
mod mode_override;
pub mod reads;
mod rule;
mod rule_test;
mod set;
mod test_file;
#[cfg(test)]
mod tests;
mod validator;

pub use clients::{AppGlob, ClientGlobs, ClientNames, UserGlob};
pub use doubt::{Doubt, ProcedureScope};
pub use envelope::{RULE, RULE_FILE};
pub use files::{is_test_file, misnamed_rule_files, skipped_rule_files};
pub use hash::RuleSetHash;
pub use mode_override::{ModeOverride, ModeOverrides};
pub use rule::{Expectation, Mode, Rule, RuleId, RuleTest, Unsupported};
pub use rule_test::TEST;
pub use set::{NamespaceRules, RuleSet};
pub use test_file::{TEST_FILE, TestFile, TestFiles};
pub use validator::Validator;
