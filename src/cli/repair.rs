//! `docward repair`: goes through all copies of one rule and mends those that are stale.
//!
//! For copies that were written while no docward ran, or to see with `--dry-run` what a rule would find. The
//! work is done by `service::copies::repair`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use super::config::ConfigFile;
use super::{EXIT_USAGE, fail, load_rules};
use crate::patterns::copies::Copies;
use crate::patterns::{Pattern, RuleSet};
use crate::service::copies::repair;

/// How often the progress is printed.
const PROGRESS: Duration = Duration::from_secs(2);

/// As typed.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Name of a `copies` rule, whatever its mode.
    #[arg(long = "rule", value_name = "NAME")]
    rule: String,
    /// Count stale copies, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// YAML file as serve takes it; a flag wins.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Connection string of the deployment [default: mongodb://127.0.0.1:27017].
    #[arg(long, value_name = "URI")]
    upstream: Option<String>,
    /// Connection string to work with [default: upstream, without its credentials].
    #[arg(long, value_name = "URI")]
    service: Option<String>,
    /// Rule file, or folder of them; may be repeated.
    #[arg(long, value_name = "PATH")]
    rules: Vec<PathBuf>,
}

/// 0 when all copies could be looked at and, without `--dry-run`, every stale one was mended; else 1.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let (rule, dry_run) = (arguments.rule.clone(), arguments.dry_run);
    let settings = match settings(arguments) {
        Ok(settings) => settings,
        Err(error) => return fail(&format!("{error:#}"), EXIT_USAGE),
    };
    let rules = match load_rules(&settings.rules) {
        Ok(rules) => rules,
        Err(code) => return code,
    };
    let copies = match find(&rules, &rule) {
        Ok(copies) => copies,
        Err(text) => return fail(&text, EXIT_USAGE),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start the runtime: {error}"), 1),
    };
    runtime.block_on(async {
        let service = match settings.connect().await {
            Ok(service) => service,
            Err(error) => return fail(&format!("{error:#}"), EXIT_USAGE),
        };
        let mut printed = Instant::now();
        let progress = |counts: &repair::Counts| {
            if printed.elapsed() > PROGRESS {
                eprintln!("{rule}: {counts} so far");
                printed = Instant::now();
            }
        };
        match repair::run(&service, &rule, copies, dry_run, progress).await {
            Ok(counts) => {
                let note = if dry_run { " (dry run: nothing was changed)" } else { "" };
                println!("{rule}: {counts}{note}");
                if counts.refused == 0 { ExitCode::SUCCESS } else { fail("not every stale copy could be mended", 1) }
            }
            Err(text) => fail(&text, 1),
        }
    })
}

/// The flags over the file.
fn settings(arguments: Arguments) -> Result<ConfigFile> {
    let file = arguments.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
    Ok(ConfigFile {
        upstream: arguments.upstream.or(file.upstream),
        service: arguments.service.or(file.service),
        rules: if arguments.rules.is_empty() { file.rules } else { arguments.rules },
        ..ConfigFile::default()
    })
}

fn find<'r>(rules: &'r RuleSet, name: &str) -> Result<&'r Copies, String> {
    let found = rules.rules().iter().find(|rule| rule.name.value == name);
    match found.map(|rule| &rule.pattern) {
        Some(Pattern::Copies(copies)) => Ok(copies),
        Some(other) => {
            Err(format!("--rule {name}: it is of the pattern `{}`; only `copies` can be repaired", other.name()))
        }
        None => Err(format!("--rule {name}: no rule in --rules has this name")),
    }
}
