//! Reading configuration: YAML in, a tree of [`Node`]s with locations, settings and [`Diagnostic`]s out.
//!
//! `files` reads files, `yaml` makes the tree, and a [`MapReader`] reads mappings from it with a [`ReadContext`], by the declarations in
//! [`keys`]. `settings` reads whole files other than rule files. [`NamespaceGlob`] and [`Glob`] are values in such files.
//!
//! Mistakes are [`Diagnostic`]s with a stable [`Code`]; `render` prints them. This layer does not know rules or
//! patterns. Only `files` accesses the file system.
//!
//! `diagnostic`, `source` and `shown` import each other: a diagnostic quotes its source, and shows nothing secret of it.

mod code;
mod context;
mod diagnostic;
mod files;
mod glob;
pub mod keys;
pub mod names;
mod namespace;
mod node;
mod reader;
mod renamed;
mod render;
mod settings;
mod shown;
mod source;
mod variables;
mod yaml;

pub use code::Code;
pub(crate) use context::PatternSettings;
pub use context::{ReadContext, parse_duration, parse_size};
pub use diagnostic::{Diagnostic, DiagnosticLocation, Label, Report, Severity};
pub use files::path_hint;
pub use files::read_file;
pub(crate) use files::{FileReader, skipped_files};
pub use glob::Glob;
pub use namespace::{NamespaceError, NamespaceGlob, bucketed_collection};
pub(crate) use namespace::{Rank, is_server_collection, is_server_database};
pub use node::{Located, MappingKey, Node, NodeValue, Number};
pub use reader::MapReader;
pub(crate) use reader::unknown_key;
pub use settings::{SettingsErrors, read_settings};
pub use source::{FileId, Location, SourceFile, SourceFiles, Span};
pub use variables::Environment;
pub use yaml::MAX_FILE_BYTES;
pub(crate) use yaml::parse;
