//! The `docward` binary: reads the command line and runs the subcommand. The story of `serve` is
//! in `cli/serve.rs`.

use std::process::ExitCode;

use docward::cli::Arguments;

/// Messages that must be collected or rewritten are allocated and freed at once, on many threads; mimalloc
/// does that faster than the system's allocators, above all musl's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Arguments::read() {
        Ok(arguments) => arguments.run(),
        Err(code) => code,
    }
}
