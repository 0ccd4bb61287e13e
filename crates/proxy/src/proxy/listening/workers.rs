//! The worker threads, one per core, with a single-threaded runtime each. A connection stays on its thread, which
//! waits for its sockets itself.
//!
//! A work-stealing pool wakes another thread for nearly every message, which costs more than all of docward's work on
//! it. The price is that a long computation delays the other connections of its thread. Tasks that do not belong to
//! one connection run in the runtime that docward was started in.

use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The most threads for large messages, and for name lookups, beside each worker thread. A large message occupies one until
/// the server has answered it. The memory budget allows fewer large messages (256 KiB each) if it is at most 1 GiB.
const MAX_BLOCKING_THREADS: usize = 4096;
/// How long such a thread stays without work. It keeps the memory that it has freed.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// All worker threads. Dropping this drops every task that still runs there.
#[derive(Debug)]
pub(in crate::proxy) struct WorkerThreads(Vec<WorkerThread>);

#[derive(Debug)]
struct WorkerThread {
    runtime: Handle,
    /// Number of connections on this thread.
    connections: Arc<AtomicUsize>,
    /// Dropping it ends the thread.
    _stop: oneshot::Sender<()>,
}

/// Counts a connection on its thread until it is dropped.
#[derive(Debug)]
pub(in crate::proxy) struct WorkerSlot(Arc<AtomicUsize>);

impl WorkerThreads {
    /// Starts one thread for each core that this process may use.
    ///
    /// # Errors
    /// The operating system has no more threads or descriptors.
    pub(in crate::proxy) fn start() -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        (0..cores).map(|_| WorkerThread::start()).collect::<io::Result<_>>().map(Self)
    }

    /// Dispatches a connection to the thread with the fewest, and runs the future that `connection` returns there.
    pub(in crate::proxy) fn dispatch<S>(&self, connection: impl FnOnce(WorkerSlot) -> S)
    where
        S: Future<Output = ()> + Send + 'static,
    {
        let fewest = self.0.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed));
        if let Some(worker) = fewest {
            worker.connections.fetch_add(1, Ordering::Relaxed);
            worker.runtime.spawn(connection(WorkerSlot(worker.connections.clone())));
        }
    }
}

impl WorkerThread {
    fn start() -> io::Result<Self> {
        let (stop, held) = oneshot::channel();
        let (begun, beginning) = mpsc::sync_channel(1);
        thread::Builder::new().name("connections".to_owned()).spawn(move || run(&begun, held))?;
        let runtime = beginning.recv().map_err(io::Error::other)??;
        Ok(Self { runtime, connections: Arc::default(), _stop: stop })
    }
}

/// Runs until the other end of `held` is dropped. The runtime is created on this thread because it must not be dropped
/// inside another runtime.
fn run(begun: &mpsc::SyncSender<io::Result<Handle>>, held: oneshot::Receiver<()>) {
    // Send errors mean that the receiver is gone; a receive error on `held` is the awaited end.
    let mut builder = Builder::new_current_thread();
    let builder = builder.enable_all().max_blocking_threads(MAX_BLOCKING_THREADS).thread_keep_alive(KEEP_ALIVE);
    match builder.build() {
        Ok(runtime) => {
            let _ = begun.send(Ok(runtime.handle().clone()));
            let _ = runtime.block_on(held);
        }
        Err(error) => _ = begun.send(Err(error)),
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::timeout;

    use super::*;

    /// Long enough for a loaded machine.
    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn connections_are_spread_evenly_and_stay_on_their_thread() {
        let workers = WorkerThreads((0..3).map(|_| WorkerThread::start().unwrap()).collect());
        let (report, mut reports) = unbounded_channel();
        let (end, ended) = tokio::sync::watch::channel(());
        for number in 0..9 {
            let (report, mut ended) = (report.clone(), ended.clone());
            workers.dispatch(|slot| async move {
                report.send((number, thread::current().id())).unwrap();
                // The channel closes when the connections are to end.
                while ended.changed().await.is_ok() {
                    report.send((number, thread::current().id())).unwrap();
                }
                drop(slot);
            });
        }
        let mut threads = HashMap::new();
        for _ in 0..9 {
            let (number, thread) = timeout(TIMEOUT, reports.recv()).await.unwrap().unwrap();
            threads.insert(number, thread);
        }
        let mut counts: HashMap<_, usize> = HashMap::new();
        threads.values().for_each(|thread| *counts.entry(*thread).or_default() += 1);
        assert_eq!(counts.into_values().collect::<Vec<_>>(), [3, 3, 3]);
        end.send_replace(());
        for _ in 0..9 {
            let (number, thread) = timeout(TIMEOUT, reports.recv()).await.unwrap().unwrap();
            assert_eq!(threads[&number], thread);
        }
        drop(end);
        let emptied = async {
            while workers.0.iter().any(|worker| worker.connections.load(Ordering::Relaxed) > 0) {
                tokio::task::yield_now().await;
            }
        };
        timeout(TIMEOUT, emptied).await.unwrap();
    }

    #[tokio::test]
    async fn tasks_end_with_their_workers() {
        let workers = WorkerThreads::start().unwrap();
        let (held, ended) = oneshot::channel::<()>();
        workers.dispatch(|_| async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        drop(workers);
        assert!(timeout(TIMEOUT, ended).await.unwrap().is_err());
    }
}
