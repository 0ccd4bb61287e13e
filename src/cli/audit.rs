//! `docward audit`: shows what rules would have done to recorded traffic.
//!
//! `traffic` reads the files and `crate::audit` evaluates the commands. This file has the arguments and the output.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::output::print;
use super::traffic;
use super::{Format, fail, load_rules};
use crate::audit::{Audit, report};

#[derive(Debug, Args)]
pub struct Arguments {
    /// Rule file, or folder of rule files; can be repeated.
    #[arg(long, value_name = "PATH", required = true)]
    rules: Vec<PathBuf>,
    /// Text, or JSON for programs.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// mongod's log, system.profile as JSON, or a capture; gzip is detected.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// Exits with 0 if the files could be read, whatever the verdicts.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let rules = match load_rules(&arguments.rules) {
        Ok(rules) => rules,
        Err(code) => return code,
    };
    let (audit, sources) = match traffic::read_files(&arguments.files, Audit::new(&rules)) {
        Ok(read) => read,
        Err(error) => return fail(&format!("{error:#}"), 1),
    };
    let tally = audit.finish();
    let text = match arguments.format {
        Format::Text => report::to_text(&tally, &rules, &sources),
        Format::Json => format!("{:#}\n", report::to_json(&tally, &rules, &sources)),
    };
    print(text.as_bytes()).into()
}
