//! Tasks that use the driver, and their end.
//!
//! When a runtime with several threads ends, it drops the driver's own tasks while docward's may still run, and the driver
//! panics if a task of its connection pool is gone. So docward's tasks end first.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Starts tasks, and waits for their end.
#[derive(Debug, Clone)]
pub(super) struct BackgroundTasks {
    /// The driver's runtime. The caller's thread may end sooner, and a reply that moves between threads wakes one at
    /// each step.
    runtime: Handle,
    tasks: TaskTracker,
    ending: CancellationToken,
}

impl BackgroundTasks {
    /// Tasks of the current runtime.
    pub(super) fn new() -> Self {
        Self { runtime: Handle::current(), tasks: TaskTracker::new(), ending: CancellationToken::new() }
    }

    /// Starts a task. It is dropped when [`Self::end`] is called; then its result is `None`.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        let ending = self.ending.clone();
        self.spawn_to_end(async move { ending.run_until_cancelled(task).await })
    }

    /// Starts a task for which [`Self::end`] waits.
    pub(super) fn spawn_to_end<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn_on(task, &self.runtime)
    }

    /// Ends all tasks, and returns when none is left.
    pub(super) async fn end(&self) {
        self.ending.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn all_tasks_have_ended_at_the_end() {
        let background = BackgroundTasks::new();
        let dropped = background.spawn(std::future::pending::<()>());
        let (sender, receiver) = oneshot::channel::<()>();
        let awaited = background.spawn_to_end(receiver);
        assert!(timeout(Duration::from_millis(50), background.end()).await.is_err(), "one still runs");
        drop(sender);
        background.end().await;
        assert_eq!(dropped.await.unwrap(), None);
        assert!(awaited.await.unwrap().is_err());
    }
}
