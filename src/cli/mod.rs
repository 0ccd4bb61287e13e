//! The command line: one file per subcommand. It reads arguments and prints results; the layers below do the work.

// These panic if the pipe is closed, as with `head`; `output` and `logging` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod active_rules;
mod admin_client;
mod application_string;
mod audit;
mod backfill;
mod check;
mod completions;
mod config_file;
mod connection;
mod difference;
mod doubts;
mod drains;
mod explain;
mod file_limit;
mod health;
mod history;
mod listening;
mod live_report;
mod logging;
mod machine;
mod man;
mod mode;
mod notices;
mod output;
mod pool;
mod progress;
mod record;
pub mod reload;
mod repair;
mod replay;
mod reset_clock;
mod schema;
mod serve;
mod suggest;
mod telemetry;
mod test;
mod traffic;
mod typed;
mod validators;
mod values;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand, ValueEnum};

use crate::rules::RuleSet;

/// The exit code for an invalid command line or configuration: `EX_USAGE` of sysexits.
pub const EXIT_USAGE: u8 = 64;

/// A MongoDB wire-protocol proxy that enforces data-modelling patterns.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
pub struct Arguments {
    /// Format of the log lines on stderr; RUST_LOG selects levels and modules [default: text].
    #[arg(long, value_enum, global = true)]
    pub log_format: Option<LogFormat>,
    #[command(subcommand)]
    pub command: CliCommand,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// The format of a subcommand's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Run the proxy between clients and the upstream deployment.
    Serve(Box<serve::Arguments>),
    /// Check rule files and a configuration file, and print all mistakes.
    Check(check::Arguments),
    /// Show the verdict on a command, and the command that would be sent.
    Explain(explain::Arguments),
    /// Run the tests in rule files and test files.
    Test(test::Arguments),
    /// Forward all traffic without rules, and record the commands of clients.
    Record(record::Arguments),
    /// Show what rules would have done to recorded traffic.
    Audit(audit::Arguments),
    /// Propose rules for recorded traffic.
    Suggest(suggest::Arguments),
    /// Send recorded traffic to a deployment, and report latencies, errors and differences.
    Replay(Box<replay::Arguments>),
    /// Repair the copies of a `copies` rule that differ from their originals.
    Repair(connection::OneRuleArguments),
    /// Set what a rule needs in documents that are stored already.
    Backfill(backfill::Arguments),
    /// Let the server hold what rules require of a document.
    Validators(Box<validators::Arguments>),
    /// Remove the timestamps of a `timestamps` rule, so that the next write wins.
    ResetClock(connection::OneRuleArguments),
    /// Show the history of a document, or the document as it was at a time.
    History(history::Arguments),
    /// Override the mode of a rule for a limited time, or list the overrides.
    Mode(Box<mode::Arguments>),
    /// Check whether a running docward is healthy, for health checks and probes.
    Health(health::Arguments),
    /// Print the JSON Schema of rule and test files, or of docward.yaml, for editors.
    Schema(schema::Arguments),
    /// Print a completion script for a shell.
    Completions(completions::Arguments),
    /// Print docward's manual page, or write a page for each subcommand.
    Man(man::Arguments),
}

impl Arguments {
    /// Reads the command line. Prints requested help to stdout and mistakes to stderr.
    ///
    /// # Errors
    /// The exit code, after printing.
    pub fn from_command_line() -> Result<Self, ExitCode> {
        let typed: Vec<OsString> = std::env::args_os().collect();
        Self::try_parse_from(&typed).map_err(|error| {
            if error.use_stderr() {
                logging::print_error(&typed::error_text(&error, &typed));
                return ExitCode::from(EXIT_USAGE);
            }
            // Nothing can be printed if stdout is closed.
            let _ = error.print();
            ExitCode::SUCCESS
        })
    }

    /// Runs the subcommand and returns its exit code.
    pub fn run(self) -> ExitCode {
        let Self { log_format, command } = self;
        // `serve` starts logging itself: its configuration file can set the format.
        if !matches!(command, CliCommand::Serve(_)) {
            logging::start(log_format.unwrap_or_default(), None);
        }
        match command {
            CliCommand::Serve(arguments) => serve::run(*arguments, log_format),
            CliCommand::Check(arguments) => check::run(&arguments),
            CliCommand::Explain(arguments) => explain::run(arguments),
            CliCommand::Test(arguments) => test::run(&arguments),
            CliCommand::Record(arguments) => record::run(arguments),
            CliCommand::Audit(arguments) => audit::run(&arguments),
            CliCommand::Suggest(arguments) => suggest::run(&arguments),
            CliCommand::Replay(arguments) => replay::run(&arguments),
            CliCommand::Repair(arguments) => repair::run(arguments),
            CliCommand::Backfill(arguments) => backfill::run(arguments),
            CliCommand::Validators(arguments) => validators::run(*arguments),
            CliCommand::ResetClock(arguments) => reset_clock::run(arguments),
            CliCommand::History(arguments) => history::run(arguments),
            CliCommand::Mode(arguments) => mode::run(*arguments),
            CliCommand::Health(arguments) => health::run(&arguments),
            CliCommand::Schema(arguments) => schema::run(&arguments),
            CliCommand::Completions(arguments) => completions::run(&arguments),
            CliCommand::Man(arguments) => man::run(&arguments),
        }
    }
}

fn fail(message: &str, code: u8) -> ExitCode {
    logging::print_error(&format!("docward: {message}\n"));
    ExitCode::from(code)
}

/// Loads rule files and folders; prints diagnostics to stderr.
///
/// # Errors
/// The exit code, after printing the diagnostics.
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
