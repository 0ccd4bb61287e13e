//! `docward check`: loads rules as `serve` would, and shows every mistake; with `--coverage` also what each
//! rule makes of every command that can reach its collections.

mod coverage;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::patterns::RuleSet;
use crate::rules::Report;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Rule files, or folders of them.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// For people, or a JSON list for editors and CI: of diagnostics, or with --coverage of what rules cover.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Show what each rule makes of every command that can reach its collections.
    #[arg(long)]
    coverage: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// 0 when the rules load, 1 when they do not.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let loaded = RuleSet::load(&arguments.paths);
    let report = match &loaded {
        Ok(rules) => rules.warnings(),
        Err(report) => report,
    };
    match (arguments.format, &loaded) {
        (Format::Json, Ok(rules)) if arguments.coverage => println!("{}", coverage::json(rules)),
        (Format::Json, _) => println!("{}", report.to_json()),
        (Format::Text, loaded) => {
            show(report);
            if let Ok(rules) = loaded {
                if arguments.coverage {
                    print!("{}", coverage::text(rules));
                }
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
