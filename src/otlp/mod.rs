//! Spans to a collector of OpenTelemetry, by OTLP over HTTP with JSON.
//!
//! JSON is as much a part of the protocol as protobuf, and needs no crate that is not here anyway. What cannot be
//! delivered is dropped and counted: traces are samples, and no message waits for them. Below: [`encode`], [`post`].

mod encode;
mod post;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

pub use post::Endpoint;

use crate::proxy::Span;

/// Spans in a request.
const BATCH: usize = 512;
/// How long a batch that is not full waits for more.
const GATHER: Duration = Duration::from_secs(1);
/// For what is left at the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// What became of spans.
#[derive(Debug, Default)]
pub struct Exported {
    sent: AtomicU64,
    failed: AtomicU64,
}

impl Exported {
    /// The collector took them.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// They were lost on the way.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// Exports in the background until it is closed.
#[derive(Debug)]
pub struct Exporter {
    closing: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Exporter {
    /// Begins.
    #[must_use]
    pub fn start(endpoint: Endpoint, spans: Receiver<Span>, exported: Arc<Exported>) -> Self {
        let (closing, closed) = oneshot::channel();
        Self { closing, task: tokio::spawn(export(endpoint, spans, exported, closed)) }
    }

    /// Sends what is left, if that does not take long.
    pub async fn close(self) {
        // An error: it has ended by itself.
        let _ = self.closing.send(());
        let _ = timeout(FAREWELL, self.task).await;
    }
}

async fn export(
    endpoint: Endpoint,
    mut spans: Receiver<Span>,
    exported: Arc<Exported>,
    mut closed: oneshot::Receiver<()>,
) {
    let mut fails = false;
    let mut ends = false;
    while !ends {
        let mut batch = Vec::with_capacity(BATCH);
        tokio::select! {
            _ = spans.recv_many(&mut batch, BATCH) => {}
            _ = &mut closed => ends = true,
        }
        if !ends && batch.len() < BATCH {
            tokio::select! {
                () = sleep(GATHER) => {}
                _ = &mut closed => ends = true,
            }
        }
        while let (true, Ok(span)) = (batch.len() < BATCH, spans.try_recv()) {
            batch.push(span);
        }
        if !batch.is_empty() {
            let sent = post::post(&endpoint, encode::request(&batch)).await;
            note(&sent, batch.len() as u64, &exported, &mut fails);
        }
    }
}

/// Counts; the log hears of the first failure, and of the end of failures.
fn note(sent: &Result<(), String>, count: u64, exported: &Exported, fails: &mut bool) {
    match sent {
        Ok(()) => {
            exported.sent.fetch_add(count, Ordering::Relaxed);
            if std::mem::take(fails) {
                tracing::info!("--otlp: the collector takes spans again");
            }
        }
        Err(reason) => {
            exported.failed.fetch_add(count, Ordering::Relaxed);
            if !std::mem::replace(fails, true) {
                tracing::warn!("--otlp: spans cannot be delivered and are dropped: {reason}");
            }
        }
    }
}
