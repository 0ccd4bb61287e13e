//! Exports spans to an OpenTelemetry collector, by OTLP over HTTP with JSON.
//!
//! OTLP/JSON needs no additional crate. Spans that cannot be delivered are dropped and counted: traces are samples,
//! and messages must not wait for them. The parts are [`encode`] and [`post`].

mod encode;
mod post;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

pub use post::Endpoint;

use crate::proxy::TraceSpan;

/// Maximum number of spans in a request.
const BATCH: usize = 512;
/// How long an incomplete batch waits for more spans.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// How long the export of the remaining spans may take at shutdown. The minimum also applies after the drain's deadline.
const MIN_CLOSE_TIMEOUT: Duration = Duration::from_millis(200);
const MAX_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Counts of exported spans.
#[derive(Debug, Default)]
pub struct Exported {
    sent: AtomicU64,
    failed: AtomicU64,
}

impl Exported {
    /// Returns the number of spans that the collector accepted.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the number of spans that could not be delivered.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// A background task that exports spans until it is closed.
#[derive(Debug)]
pub struct Exporter {
    closing: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Exporter {
    /// Starts the task.
    #[must_use]
    pub fn start(endpoint: Endpoint, spans: Receiver<TraceSpan>, exported: Arc<Exported>) -> Self {
        let (closing, closed) = oneshot::channel();
        Self { closing, task: tokio::spawn(export(endpoint, spans, exported, closed)) }
    }

    /// Sends the remaining spans, until `deadline`, but for at most [`MAX_CLOSE_TIMEOUT`] and at least
    /// [`MIN_CLOSE_TIMEOUT`].
    pub async fn close(self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        // An error means that the task has already ended.
        let _ = self.closing.send(());
        let _ = timeout(left.clamp(MIN_CLOSE_TIMEOUT, MAX_CLOSE_TIMEOUT), self.task).await;
    }
}

async fn export(
    endpoint: Endpoint,
    mut spans: Receiver<TraceSpan>,
    exported: Arc<Exported>,
    mut closed: oneshot::Receiver<()>,
) {
    let mut is_failing = false;
    let mut is_closing = false;
    while !is_closing {
        let mut batch = Vec::with_capacity(BATCH);
        tokio::select! {
            _ = spans.recv_many(&mut batch, BATCH) => {}
            _ = &mut closed => is_closing = true,
        }
        if !is_closing && batch.len() < BATCH {
            tokio::select! {
                () = sleep(BATCH_DELAY) => {}
                _ = &mut closed => is_closing = true,
            }
        }
        while let (true, Ok(span)) = (batch.len() < BATCH, spans.try_recv()) {
            batch.push(span);
        }
        if !batch.is_empty() {
            let sent = post::post(&endpoint, encode::request(&batch)).await;
            record_result(&sent, batch.len() as u64, &exported, &mut is_failing);
        }
    }
}

/// Counts the spans of a request. Logs the first failure of a series, and its end.
fn record_result(sent: &Result<(), String>, count: u64, exported: &Exported, is_failing: &mut bool) {
    match sent {
        Ok(()) => {
            exported.sent.fetch_add(count, Ordering::Relaxed);
            if std::mem::take(is_failing) {
                tracing::info!("--otlp: the collector accepts spans again");
            }
        }
        Err(reason) => {
            exported.failed.fetch_add(count, Ordering::Relaxed);
            if !std::mem::replace(is_failing, true) {
                tracing::warn!(%reason, "--otlp: spans cannot be delivered and are dropped; check the collector");
            }
        }
    }
}
