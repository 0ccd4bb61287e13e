//! Values that every message updates, in one copy per thread on separate cache lines. Threads do not wait for each
//! other; readers merge the copies.

use std::thread::available_parallelism;

use crate::proxy::thread_number::thread_number;

/// Maximum number of copies; further threads share them.
const MAX_SHARDS: usize = 16;

/// One copy for each thread, up to the maximum.
#[derive(Debug)]
pub(in crate::proxy) struct Sharded<T>(Box<[Shard<T>]>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard<T>(T);

impl<T> Sharded<T> {
    /// Creates as many copies as this process may use cores.
    pub(in crate::proxy) fn new(mut make: impl FnMut() -> T) -> Self {
        let count = available_parallelism().map_or(1, std::num::NonZero::get).min(MAX_SHARDS);
        Self((0..count).map(|_| Shard(make())).collect())
    }

    /// This thread's copy.
    pub(in crate::proxy) fn mine(&self) -> &T {
        // There is at least one copy.
        &self.0[thread_number() % self.0.len()].0
    }

    /// All copies.
    pub(in crate::proxy) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|shard| &shard.0)
    }
}

impl<T: Default> Default for Sharded<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_keeps_its_copy_and_no_update_is_lost() {
        let sharded = Sharded::<Mutex<Vec<thread::ThreadId>>>::default();
        thread::scope(|scope| {
            for _ in 0..2 * MAX_SHARDS {
                scope.spawn(|| (0..10).for_each(|_| sharded.mine().lock().unwrap().push(thread::current().id())));
            }
        });
        let counts: Vec<usize> = sharded.iter().map(|copy| copy.lock().unwrap().len()).collect();
        assert_eq!(counts.iter().sum::<usize>(), 20 * MAX_SHARDS);
        for copy in sharded.iter() {
            let mut threads = copy.lock().unwrap().clone();
            threads.sort_unstable_by_key(|id| format!("{id:?}"));
            assert!(threads.chunk_by(|one, other| one == other).all(|times| times.len() == 10));
        }
    }
}
