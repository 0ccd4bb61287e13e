//! A number for each thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the number of this thread: from 0, in the order of first calls.
pub(in crate::proxy) fn thread_number() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}
