//! The `docward` binary: reads the command line and runs the subcommand. The story of `serve` is
//! in `cli/serve.rs`.

use std::process::ExitCode;

use clap::Parser;
use docward::cli::{Arguments, EXIT_USAGE};

/// Messages that must be collected or rewritten are allocated and freed at once, on many threads; mimalloc
/// does that faster than the system's allocators, above all musl's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
            // Nobody is left to tell when stderr is closed.
            let _ = error.print();
            return code;
        }
    };
    arguments.run()
}
