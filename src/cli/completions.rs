//! `docward completions`: what a shell needs to complete docward's command line.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use super::print;

/// As typed.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The shell that will read it.
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::Arguments::command(), "docward", &mut script);
    print(&script)
}
