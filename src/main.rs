//! The `docward` binary: parses the command line and runs the subcommand. `cli/serve.rs` contains `serve`.

use std::process::ExitCode;

use docward::cli::Arguments;

/// Buffered and rewritten messages are allocated and freed on many threads. mimalloc is faster for that than the
/// system allocators, above all musl's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Arguments::from_command_line() {
        Ok(arguments) => arguments.run(),
        Err(code) => code,
    }
}
