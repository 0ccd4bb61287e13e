//! Messages as spans of OpenTelemetry traces.
//!
//! A message gets a span if its `comment` carries a sampled trace. An evaluated message without a trace starts a new
//! one. If the exporter lags behind, spans are dropped and counted; messages never wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::engine::{OutcomeKind, RequestHead, RuleOutcome, TraceContext};

/// Spans that wait to be exported.
const MAX_WAITING: usize = 4096;

/// One message, from being read until the beginning of its reply is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceSpan {
    pub trace: [u8; 16],
    pub id: [u8; 8],
    pub parent: Option<[u8; 8]>,
    pub start: SystemTime,
    pub command: &'static str,
    /// docward's own time.
    pub own: Duration,
    /// Time waited for servers.
    pub upstream: Duration,
    /// Whether the message was evaluated.
    pub evaluated: bool,
    pub decisions: Vec<SpanDecision>,
}

/// A decision of a rule on the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanDecision {
    pub rule: String,
    pub outcome: &'static str,
    /// "database.collection"
    pub namespace: String,
    pub reason: String,
    /// The client gets an error.
    pub rejects: bool,
}

/// An open span.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct OpenSpan {
    trace: [u8; 16],
    parent: Option<[u8; 8]>,
    start: SystemTime,
    evaluated: bool,
    decisions: Vec<SpanDecision>,
}

/// Sends finished spans to the exporter.
#[derive(Debug)]
pub struct Tracer {
    finished: Sender<TraceSpan>,
    dropped: AtomicU64,
}

impl Tracer {
    #[must_use]
    pub fn new() -> (Self, Receiver<TraceSpan>) {
        let (finished, spans) = channel(MAX_WAITING);
        (Self { finished, dropped: AtomicU64::new(0) }, spans)
    }

    /// Returns the number of spans dropped because the queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Opens a span for a forwarded message, if its trace is sampled.
    pub(in crate::proxy) fn open_forwarded(&self, head: &RequestHead<'_>) -> Option<Box<OpenSpan>> {
        TraceContext::of_head(head).filter(|context| context.sampled).map(|context| OpenSpan::new(Some(context), false))
    }

    /// Opens a span for an evaluated message, unless its trace is not sampled.
    pub(in crate::proxy) fn open_evaluated(&self, head: &RequestHead<'_>) -> Option<Box<OpenSpan>> {
        let context = TraceContext::of_head(head);
        context.is_none_or(|context| context.sampled).then(|| OpenSpan::new(context, true))
    }

    /// Finishes a span; times are in nanoseconds.
    pub(in crate::proxy) fn finish(&self, opened: OpenSpan, command: &'static str, own: u64, upstream: u64) {
        let OpenSpan { trace, parent, start, evaluated, decisions } = opened;
        let (own, upstream) = (Duration::from_nanos(own), Duration::from_nanos(upstream));
        let span = TraceSpan { trace, id: new_span(), parent, start, command, own, upstream, evaluated, decisions };
        if self.finished.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl OpenSpan {
    fn new(context: Option<TraceContext>, evaluated: bool) -> Box<Self> {
        let trace = context.map_or_else(|| bson::Uuid::new().bytes(), |context| context.trace);
        let parent = context.map(|context| context.parent);
        Box::new(Self { trace, parent, start: SystemTime::now(), evaluated, decisions: Vec::new() })
    }

    pub(in crate::proxy) fn add_decisions(&mut self, outcomes: &[RuleOutcome]) {
        self.decisions.extend(outcomes.iter().map(|outcome| SpanDecision {
            rule: outcome.rule_name.to_string(),
            outcome: outcome.kind.as_str(),
            namespace: outcome.namespace.clone(),
            reason: outcome.reason.to_string(),
            rejects: matches!(outcome.kind, OutcomeKind::Reject | OutcomeKind::Conflict),
        }));
    }
}

/// Random and never all zeros, because the first half of a version 4 UUID contains the version.
fn new_span() -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = bson::Uuid::new().bytes();
    [a, b, c, d, e, f, g, h]
}
