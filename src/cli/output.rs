//! Output of subcommands on stdout. A closed pipe, as with `head`, is not an error.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use super::fail;

/// Whether stdout could be written.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct PrintResult {
    error: Option<std::io::Error>,
}

impl PrintResult {
    /// The exit code 1 if the subcommand `failed`, else that of printing.
    pub(super) fn unless(self, failed: bool) -> ExitCode {
        let printed = ExitCode::from(self);
        if failed { ExitCode::FAILURE } else { printed }
    }
}

/// 1, with a message on stderr, if stdout could not be written.
impl From<PrintResult> for ExitCode {
    fn from(printed: PrintResult) -> Self {
        match printed.error {
            Some(error) => fail(&format!("cannot print to stdout: {error}"), 1),
            None => Self::SUCCESS,
        }
    }
}

pub(super) fn print(text: impl AsRef<[u8]>) -> PrintResult {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_ref()).and_then(|()| stdout.flush());
    PrintResult { error: written.err().filter(|error| error.kind() != ErrorKind::BrokenPipe) }
}

/// Prints `text` and a line feed.
pub(super) fn print_line(text: &str) -> PrintResult {
    print(format!("{text}\n"))
}
