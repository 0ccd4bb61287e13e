//! `docward man`: the manual pages, generated from the command line's help.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::CommandFactory;
use clap_mangen::Man;

use super::fail;
use super::output::print;

/// The command line.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Folder for the pages of docward and each subcommand; without it, docward(1) is printed.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let command = super::Arguments::command();
    let Some(folder) = &arguments.out else {
        let mut page = Vec::new();
        return match Man::new(command).render(&mut page) {
            Ok(()) => print(&page).into(),
            Err(error) => fail(&format!("cannot generate the manual page: {error}"), 1),
        };
    };
    match write_all(command, folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("--out {}: {error}", folder.display()), 1),
    }
}

fn write_all(command: clap::Command, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command, folder)
}
