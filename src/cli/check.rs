//! `docward check`: loads rules as `serve` would, and shows every mistake.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Format;
use crate::patterns::RuleSet;
use crate::rules::Report;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Rule files, or folders of them.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// For people, or a JSON list of diagnostics for editors and CI.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// 0 when the rules load, 1 when they do not.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let loaded = RuleSet::load(&arguments.paths);
    let report = match &loaded {
        Ok(rules) => rules.warnings(),
        Err(report) => report,
    };
    match (arguments.format, &loaded) {
        (Format::Json, _) => println!("{}", report.to_json()),
        (Format::Text, loaded) => {
            show(report);
            if let Ok(rules) = loaded {
                println!("{} rules are fine (set {})", rules.rules().len(), rules.hash());
            }
        }
    }
    if loaded.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(report: &Report) {
    if !report.is_empty() {
        eprint!("{}", report.render(std::io::stderr().is_terminal()));
    }
}
