//! What one message costs: time and allocations of every piece of work in `hot_paths.rs`.
//!
//! `make bench`; with words behind `cargo bench --bench messages --` only those whose name contains them. A batch's
//! figures are for the whole batch; its items per second are statements.

mod frames;
mod hot_paths;

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};

/// The binary's own allocator, counted.
#[global_allocator]
static ALLOCATOR: AllocProfiler<mimalloc::MiMalloc> = AllocProfiler::new(mimalloc::MiMalloc);

fn main() {
    divan::main();
}

#[divan::bench(args = hot_paths::ALL.iter().map(|path| path.name))]
fn message(bencher: Bencher<'_, '_>, name: &str) {
    let path = hot_paths::ALL.iter().find(|path| path.name == name).expect("the names are those of the list");
    bencher.counter(ItemsCount::new(path.statements)).bench_local(path.prepare());
}
