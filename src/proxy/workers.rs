//! The threads that connections live on, one a core: a connection stays on the thread it was given to, which waits
//! for its sockets itself.
//!
//! A pool of threads that take work from one another wakes another thread for nearly every message; that costs more
//! than all docward does with it. The price is that a long computation delays the connections of its own thread, as
//! it does in other proxies. What is not about one connection runs in the runtime that docward was started in.

use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// All of them; dropped, whatever still runs there is dropped too.
#[derive(Debug)]
pub(super) struct Workers(Vec<Worker>);

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// Connections that live there.
    connections: Arc<AtomicUsize>,
    /// Its end is the thread's.
    _leash: oneshot::Sender<()>,
}

/// A connection's place on its thread, until it is dropped.
#[derive(Debug)]
pub(super) struct WorkerSlot(Arc<AtomicUsize>);

impl Workers {
    /// One thread for each core that this process may use.
    ///
    /// # Errors
    /// The system has no more threads or descriptors.
    pub(super) fn start() -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        (0..cores).map(|_| Worker::start()).collect::<io::Result<_>>().map(Self)
    }

    /// Gives a connection to the thread that has the fewest, and runs what `session` makes of it there.
    pub(super) fn adopt<S>(&self, session: impl FnOnce(WorkerSlot) -> S)
    where
        S: Future<Output = ()> + Send + 'static,
    {
        let fewest = self.0.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed));
        if let Some(worker) = fewest {
            worker.connections.fetch_add(1, Ordering::Relaxed);
            worker.runtime.spawn(session(WorkerSlot(worker.connections.clone())));
        }
    }
}

impl Worker {
    fn start() -> io::Result<Self> {
        let (leash, held) = oneshot::channel();
        let (begun, beginning) = mpsc::sync_channel(1);
        thread::Builder::new().name("connections".to_owned()).spawn(move || run(&begun, held))?;
        let runtime = beginning.recv().map_err(io::Error::other)??;
        Ok(Self { runtime, connections: Arc::default(), _leash: leash })
    }
}

/// Until the other end of `held` is gone. The runtime is made here, because it may not be dropped in another.
fn run(begun: &mpsc::SyncSender<io::Result<Handle>>, held: oneshot::Receiver<()>) {
    // Errors say that nobody is there any more; on the second channel that is what is waited for.
    match Builder::new_current_thread().enable_all().build() {
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

    /// A loaded machine gets there too.
    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn connections_are_spread_evenly_and_stay_where_they_are() {
        let workers = Workers((0..3).map(|_| Worker::start().unwrap()).collect());
        let (tell, mut told) = unbounded_channel();
        let (end, ended) = tokio::sync::watch::channel(());
        for number in 0..9 {
            let (tell, mut ended) = (tell.clone(), ended.clone());
            workers.adopt(|seat| async move {
                tell.send((number, thread::current().id())).unwrap();
                // The sender's end is the session's.
                while ended.changed().await.is_ok() {
                    tell.send((number, thread::current().id())).unwrap();
                }
                drop(seat);
            });
        }
        let mut homes = HashMap::new();
        for _ in 0..9 {
            let (number, thread) = timeout(TIMEOUT, told.recv()).await.unwrap().unwrap();
            homes.insert(number, thread);
        }
        let mut counts: HashMap<_, usize> = HashMap::new();
        homes.values().for_each(|thread| *counts.entry(*thread).or_default() += 1);
        assert_eq!(counts.into_values().collect::<Vec<_>>(), [3, 3, 3]);
        end.send_replace(());
        for _ in 0..9 {
            let (number, thread) = timeout(TIMEOUT, told.recv()).await.unwrap().unwrap();
            assert_eq!(homes[&number], thread);
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
    async fn what_runs_there_ends_with_them() {
        let workers = Workers::start().unwrap();
        let (held, ended) = oneshot::channel::<()>();
        workers.adopt(|_| async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        drop(workers);
        assert!(timeout(TIMEOUT, ended).await.unwrap().is_err());
    }
}
