//! The background work of one rule.

use std::convert::Infallible;

use futures_util::future::BoxFuture;
use mongodb::Client;

use super::lease::WorkerLease;
use super::progress::WorkerProgress;
use super::stop::Stop;

/// The words of a task in the log.
#[derive(Debug, Clone, Copy)]
pub(in crate::service) struct TaskWords {
    /// The pattern's key in rule files.
    pub(in crate::service) pattern: &'static str,
    /// What the worker does: "keeps the copies consistent".
    pub(in crate::service) when_running: &'static str,
    /// What does not happen while it is stopped: "copies are not kept consistent".
    pub(in crate::service) when_stopped: &'static str,
    /// What follows if changes were missed: "checking all copies".
    pub(in crate::service) after_loss: &'static str,
}

/// The background work of one rule.
pub(in crate::service) trait Task: Send + Sync {
    fn words(&self) -> TaskWords;

    /// The rule's name.
    fn rule(&self) -> &str;

    /// The lease's label. Progress stored under another label is not used.
    fn label(&self) -> String;

    /// Other settings, with which the work begins again under the same label.
    fn settings(&self) -> String {
        String::new()
    }

    /// Whether it needs previous states of documents, and so counts those that it does not get.
    fn reads_previous_states(&self) -> bool {
        false
    }

    /// Works until something stops it.
    fn work<'w>(&'w self, context: WorkerContext<'w>) -> BoxFuture<'w, Result<Infallible, Stop>>;
}

/// What a worker has while it holds the lease.
#[derive(Clone, Copy)]
pub(in crate::service) struct WorkerContext<'w> {
    pub(in crate::service) client: &'w Client,
    pub(in crate::service) lease: &'w WorkerLease,
    pub(in crate::service) progress: &'w WorkerProgress,
}
