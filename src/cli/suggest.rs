//! `docward suggest`: proposes rules for recorded traffic, as a rule file on stdout.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

use super::output::print;
use super::traffic;
use super::{fail, logging};
use crate::audit::{Audit, CandidateRules, Habits};

#[derive(Debug, Args)]
pub struct Arguments {
    /// mongod's log, system.profile as JSON, or a capture; gzip is detected.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// Exits with 0 if the files could be read.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    match proposal(&arguments.files) {
        Ok(text) => print(text.as_bytes()).into(),
        Err(error) => fail(&format!("{error:#}"), 1),
    }
}

/// Reads the files three times: for the habits of the applications, for each candidate rule, and for the chosen rules
/// together.
fn proposal(files: &[PathBuf]) -> Result<String> {
    for file in files {
        // What cannot be opened is an error below.
        if file.metadata().is_ok_and(|data| !data.is_file() && !data.is_dir()) {
            bail!(
                "{} is not a file; suggest reads its sources more than once, so write a stream to a file first",
                file.display()
            );
        }
    }
    let (habits, sources) = traffic::read_files(files, Habits::default())?;
    for source in &sources {
        let flaws = source.flaws();
        if !flaws.is_empty() {
            logging::print_progress(&format!("docward: {}: {flaws}", source.name));
        }
    }
    let candidates = CandidateRules::from_habits(&habits);
    let evaluated = traffic::read_files(files, candidates.evaluation())?.0.finish();
    let mut proposal = candidates.choose(evaluated);
    if let Some(rules) = proposal.rules() {
        let tally = traffic::read_files(files, Audit::new(rules))?.0.finish();
        proposal.remove_breaking(tally);
    }
    Ok(proposal.to_text(&sources))
}
