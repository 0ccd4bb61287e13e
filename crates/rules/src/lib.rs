//! The rule language, without I/O: [`shell`] reads and prints statements in mongosh syntax, [`config`] the files of an
//! administrator, [`patterns`] has a module for each pattern, and [`rules`] reads the rule files.

pub mod config;
pub mod patterns;
pub mod rules;
pub mod secret;
pub mod shell;
pub mod suggest;

use docward_protocol::{command, document, effect, fnv, text};
