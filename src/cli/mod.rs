//! The command line: one file per subcommand. Says what was typed; what it means is up to the layers below.

mod audit;
mod check;
mod completions;
mod config;
mod connection;
mod difference;
mod explain;
mod health;
mod listening;
mod logging;
mod machine;
mod man;
mod record;
pub mod reload;
mod repair;
mod reset_clock;
mod serve;
mod suggest;
mod telemetry;
mod test;
mod traffic;
mod typed;
mod values;
mod words;

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand, ValueEnum};

use crate::patterns::{RuleSet, SCHEMA};

/// Bad configuration: `EX_USAGE` of sysexits.
pub const EXIT_USAGE: u8 = 64;

/// A MongoDB wire-protocol proxy that enforces data-modelling patterns.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
pub struct Arguments {
    /// Form of the log lines on stderr; RUST_LOG chooses what is logged [default: text].
    #[arg(long, value_enum, global = true)]
    pub log_format: Option<LogFormat>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// Form of what a command prints on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Stand between clients and the upstream deployment.
    Serve(Box<serve::Arguments>),
    /// Load rules as serve would, and say what is wrong with them.
    Check(check::Arguments),
    /// Show what rules make of a command: the verdict, who spoke, and what would be sent.
    Explain(explain::Arguments),
    /// Run the tests that rule files carry, and test files.
    Test(test::Arguments),
    /// Forward everything, and record what clients ask for.
    Record(record::Arguments),
    /// Show what rules would have done to past traffic.
    Audit(audit::Arguments),
    /// Propose rules that past traffic calls for.
    Suggest(suggest::Arguments),
    /// Mend the copies of a `copies` rule that do not say what their original says.
    Repair(connection::OneRule),
    /// Forget the timestamps of a `timestamps` rule, so that the next write wins.
    ResetClock(connection::OneRule),
    /// Ask a running docward how it is, for health checks and probes.
    Health(health::Arguments),
    /// Print the JSON Schema of rule and test files, for editors.
    Schema,
    /// Print what a shell needs to complete docward's command line.
    Completions(completions::Arguments),
    /// Print docward's manual page, or write one for each subcommand.
    Man(man::Arguments),
}

impl Arguments {
    /// Reads the command line. Help that was asked for, and what is wrong with what was typed, is printed.
    ///
    /// # Errors
    /// The exit code, after that.
    pub fn read() -> Result<Self, ExitCode> {
        let typed: Vec<OsString> = std::env::args_os().collect();
        Self::try_parse_from(&typed).map_err(|error| {
            if error.use_stderr() {
                logging::complain(&typed::complaint(&error, &typed));
                return ExitCode::from(EXIT_USAGE);
            }
            // Nothing can be printed if stdout is closed.
            let _ = error.print();
            ExitCode::SUCCESS
        })
    }

    /// Runs to the end.
    pub fn run(self) -> ExitCode {
        let Self { log_format, command } = self;
        // The configuration file of serve may say how to log.
        if !matches!(command, Command::Serve(_)) {
            logging::start(log_format.unwrap_or_default());
        }
        match command {
            Command::Serve(arguments) => serve::run(*arguments, log_format),
            Command::Check(arguments) => check::run(&arguments),
            Command::Explain(arguments) => explain::run(arguments),
            Command::Test(arguments) => test::run(&arguments),
            Command::Record(arguments) => record::run(arguments),
            Command::Audit(arguments) => audit::run(&arguments),
            Command::Suggest(arguments) => suggest::run(&arguments),
            Command::Repair(arguments) => repair::run(arguments),
            Command::ResetClock(arguments) => reset_clock::run(arguments),
            Command::Health(arguments) => health::run(&arguments),
            Command::Schema => print(SCHEMA.as_bytes()),
            Command::Completions(arguments) => completions::run(&arguments),
            Command::Man(arguments) => man::run(&arguments),
        }
    }
}

/// To stdout. A reader that has seen enough, as `head` does, is no error.
fn print(text: &[u8]) -> ExitCode {
    match std::io::stdout().lock().write_all(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => fail(&format!("cannot print to stdout: {error}"), 1),
        _ => ExitCode::SUCCESS,
    }
}

fn fail(message: &str, code: u8) -> ExitCode {
    logging::complain(&format!("docward: {message}\n"));
    ExitCode::from(code)
}

/// Loads rule files and folders; prints what is wrong with them to stderr.
///
/// # Errors
/// The exit code, after the diagnostics have been printed.
fn load_rules(paths: &[PathBuf]) -> Result<Arc<RuleSet>, ExitCode> {
    if paths.is_empty() {
        return Ok(Arc::default());
    }
    match RuleSet::load(paths) {
        Ok(rules) => {
            if !rules.warnings().is_empty() {
                logging::show(rules.warnings());
            }
            Ok(Arc::new(rules))
        }
        Err(report) => {
            logging::show(&report);
            Err(ExitCode::from(EXIT_USAGE))
        }
    }
}
