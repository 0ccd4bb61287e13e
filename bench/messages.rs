//! The cost of one message: time and allocations of every step in `hot_paths.rs`.
//!
//! `make bench` runs all; arguments of `cargo bench --bench messages --` select those whose name contains them. A
//! batch's figures are for the whole batch; its items per second are statements.

mod frames;
mod hot_paths;

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};

/// docward's allocator, with counting.
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
