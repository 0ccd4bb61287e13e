//! `docward suggest`: proposes rules for recorded traffic, as a rule file on stdout.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::output::print;
use super::traffic::{self, Worker};
use super::{fail, logging};
use crate::audit::{Habits, RecordedCommand, propose};
use crate::command::{CommandClass, Namespace};

#[derive(Debug, Args)]
pub struct Arguments {
    /// mongod's log, system.profile as JSON lines, or a capture; gzip is detected.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// Exits with 0 if the files could be read.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let (workers, sources) = match traffic::read_files(&arguments.files, Habits::default) {
        Ok(read) => read,
        Err(error) => return fail(&format!("{error:#}"), 1),
    };
    for source in sources.iter().filter(|source| source.unreadable > 0 || source.note.is_some()) {
        let note = source.note.as_deref().unwrap_or_default();
        logging::note(&format!("docward: {}: {} entries cannot be read: {note}", source.name, source.unreadable));
    }
    let mut habits = Habits::default();
    workers.into_iter().for_each(|worker| habits.merge(worker));
    let names: Vec<String> = sources.into_iter().map(|source| source.name).collect();
    print(propose(&habits, &names).as_bytes()).into()
}

impl Worker for Habits {
    fn wants(&self, namespace: Namespace<'_>, class: CommandClass, _command: &[u8]) -> bool {
        Habits::wants(namespace, class)
    }

    fn take(&mut self, recorded: &RecordedCommand) {
        Habits::take(self, recorded);
    }
}
