//! Keeps copies consistent. For each rule, one worker among all docward processes follows the changes of originals and
//! copies, and corrects stale copies.
//!
//! A worker always writes the *current* value of the original, and checks every write to a copy, also by others. So
//! the result does not depend on the order of events, on duplicate events, or on a stalled worker that resumes late: a
//! check follows the last write to either side.
//!
//! `super::worker` elects the worker and reads the changes, `changes` processes them, `repairer` writes copies with the
//! statements of `statements`, `detach` removes references to deleted originals, [`repair`] checks all copies.

mod changes;
mod detach;
mod original;
pub mod repair;
mod repairer;
mod statements;

use std::convert::Infallible;

use futures_util::future::BoxFuture;

use super::worker::{Stop, Task, TaskWords, WorkerContext};
use crate::patterns::copies::Copies;
use repairer::Repairer;

/// Keeps the copies of one rule consistent.
pub(super) struct KeepCopies {
    pub(super) rule: String,
    pub(super) copies: Copies,
}

impl Task for KeepCopies {
    fn words(&self) -> TaskWords {
        TaskWords {
            pattern: "copies",
            when_running: "keeps the copies consistent",
            when_stopped: "copies are not kept consistent",
            after_loss: "checking all copies",
        }
    }

    fn rule(&self) -> &str {
        &self.rule
    }

    /// Other settings give another label: what they copy has not been propagated yet.
    fn label(&self) -> String {
        format!("copies {}: {}", self.rule, self.copies)
    }

    fn work<'w>(&'w self, context: WorkerContext<'w>) -> BoxFuture<'w, Result<Infallible, Stop>> {
        Box::pin(self.propagate(context))
    }
}

impl KeepCopies {
    async fn propagate(&self, context: WorkerContext<'_>) -> Result<Infallible, Stop> {
        let WorkerContext { client, lease, .. } = context;
        let repairer = Repairer::new(client, &self.copies, &self.rule);
        let collections = changes::watched(&self.copies);
        let mut checked = lease.is_repaired();
        // Changes before these streams begin are found by the check of all copies.
        let mut streams = Vec::with_capacity(collections.len());
        for (number, collection) in collections.iter().enumerate() {
            checked &= lease.token(number).is_some();
            let (stream, changes) = changes::open(&repairer, collection, number, context).await?;
            // A successor must not begin later.
            if let Some(token) = stream.beginning()? {
                lease.store_token(number, token).await?;
            }
            streams.push((stream, changes));
        }
        let check_all = async {
            if !checked {
                let counts = repair::repair(&repairer, false, None, |_| {}).await?;
                tracing::info!(rule = self.rule, "checked all copies: {counts}");
                lease.mark_repaired().await?;
            }
            Ok(())
        };
        let follow_all = streams.into_iter().map(|(stream, changes)| stream.follow(context, changes));
        let (followed, ()) =
            futures_util::future::try_join(futures_util::future::try_join_all(follow_all), check_all).await?;
        match followed.into_iter().next() {
            Some(never) => Ok(never),
            None => Err(Stop::Failed("there is nothing to follow".to_owned())),
        }
    }
}
