//! Counts bytes, and measures docward's own time and the server's time for each command.
//!
//! Without a consumer nothing is measured: a [`Meter`] without [`Meters`] costs one branch. Otherwise a message costs
//! two clock reads, when it is read and when it is sent, and some additions in memory that is rarely shared between
//! threads. The pending replies of a connection carry the times from requests to replies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::command::{CommandName, command_names};
use crate::engine::RequestHead;
use crate::engine::lookup::{Lookup, LookupError, LookupResult};
use crate::histogram::{Histogram, HistogramSnapshot};
use crate::proxy::telemetry::moment::Moment;
use crate::proxy::telemetry::sharded::Sharded;
use crate::proxy::telemetry::slowest::{Slowest, StatementSender};
use crate::proxy::telemetry::spans::{OpenSpan, Tracer};

/// Which side sent bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum Side {
    Client,
    Upstream,
}

/// The meter of all connections of a proxy.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Meter(Option<Meters>);

#[derive(Debug)]
struct Meters {
    began: Instant,
    shards: Sharded<MeterShard>,
    slowest: Slowest,
    tracer: Option<Arc<Tracer>>,
}

#[derive(Debug)]
struct MeterShard {
    from_clients: AtomicU64,
    from_upstream: AtomicU64,
    /// Indexed by command number; created when the first command of a kind arrives.
    commands: Box<[OnceLock<Box<CommandMeter>>]>,
    lookups: [LookupMeter; LOOKUPS.len()],
}

#[derive(Debug, Default)]
struct CommandMeter {
    own: Histogram,
    upstream: Histogram,
}

#[derive(Debug, Default)]
struct LookupMeter {
    latency: Histogram,
    permanent: AtomicU64,
    unavailable: AtomicU64,
}

/// The kinds of lookups that rules make with docward's own user.
const LOOKUPS: [&str; 2] = ["numbers", "maximum"];

/// Measurements since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measures {
    pub from_clients: u64,
    pub from_upstream: u64,
    /// By name.
    pub commands: BTreeMap<&'static str, CommandMeasures>,
    /// By kind.
    pub lookups: Vec<(&'static str, LookupMeasures)>,
}

/// Measurements of one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandMeasures {
    /// Time from reading a message's last byte to sending it, for the request and the beginning of its reply together.
    pub own: HistogramSnapshot,
    /// Time until the server's reply begins; if a message became several, the sum.
    pub upstream: HistogramSnapshot,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LookupMeasures {
    /// Of all lookups.
    pub latency: HistogramSnapshot,
    /// Permanent errors: a retry fails too until somebody fixes the cause.
    pub permanent: u64,
    /// No server answered, or there is no primary.
    pub unavailable: u64,
}

impl Meter {
    pub(in crate::proxy) fn running(tracer: Option<Arc<Tracer>>) -> Self {
        Self(Some(Meters {
            began: Instant::now(),
            shards: Sharded::new(MeterShard::new),
            slowest: Slowest::new(),
            tracer,
        }))
    }

    /// The current moment; reads the clock only if something is measured.
    pub(in crate::proxy) fn now(&self) -> Moment {
        self.0.as_ref().map_or(Moment::NEVER, Meters::now)
    }

    /// Counts bytes that were read, and returns the moment.
    pub(in crate::proxy) fn count_read(&self, side: Side, bytes: usize) -> Moment {
        let Some(meters) = &self.0 else { return Moment::NEVER };
        let shard = meters.shards.mine();
        let count = match side {
            Side::Client => &shard.from_clients,
            Side::Upstream => &shard.from_upstream,
        };
        count.fetch_add(bytes as u64, Ordering::Relaxed);
        meters.now()
    }

    /// Keeps a statement if it is among the slowest. `own` and `upstream` are nanoseconds, as in [`Self::record`].
    pub(in crate::proxy) fn note_slow(
        &self,
        now: Moment,
        command: CommandName,
        (own, upstream): (u64, u64),
        sender: StatementSender<'_>,
    ) {
        let took = own + upstream;
        if let Some(slowest) = self.slowest().filter(|slowest| slowest.admits(took, now)) {
            slowest.record(now, (took, upstream), command, sender);
        }
    }

    /// The slowest statements; `None`: nothing is measured.
    pub(in crate::proxy) fn slowest(&self) -> Option<&Slowest> {
        self.0.as_ref().map(|meters| &meters.slowest)
    }

    /// Whether anything is measured.
    pub(in crate::proxy) fn is_running(&self) -> bool {
        self.0.is_some()
    }

    /// The command of a request.
    pub(in crate::proxy) fn command(&self, head: &RequestHead<'_>) -> CommandName {
        let name = head.name().filter(|_| self.0.is_some());
        name.map_or_else(CommandName::default, CommandName::from_bytes)
    }

    /// The current moment; `None`: nothing is measured.
    pub(in crate::proxy) fn measuring_now(&self) -> Option<Moment> {
        self.0.as_ref().map(Meters::now)
    }

    /// Records the times of one message, and ends its span. `upstream` is `None` if no server took part.
    pub(in crate::proxy) fn record(
        &self,
        command: CommandName,
        own: u64,
        upstream: Option<u64>,
        span: Option<Box<OpenSpan>>,
    ) {
        if let Some(meters) = &self.0 {
            meters.record(command, own, upstream);
            meters.finish(span, command, own, upstream.unwrap_or_default());
        }
    }

    /// Opens a span for a forwarded message, if it is sampled.
    pub(in crate::proxy) fn open_forwarded(&self, head: &RequestHead<'_>) -> Option<Box<OpenSpan>> {
        self.tracer()?.open_forwarded(head)
    }

    /// Opens a span for an evaluated message, if it is sampled.
    pub(in crate::proxy) fn open_evaluated(&self, head: &RequestHead<'_>) -> Option<Box<OpenSpan>> {
        self.tracer()?.open_evaluated(head)
    }

    fn tracer(&self) -> Option<&Tracer> {
        self.0.as_ref()?.tracer.as_deref()
    }

    /// Nanoseconds since `asked`.
    pub(in crate::proxy) fn since(&self, asked: Moment) -> u64 {
        self.now().since(asked)
    }

    /// Records a lookup of this kind that took `nanoseconds`.
    pub(in crate::proxy) fn looked_up(&self, kind: usize, nanoseconds: u64, reply: &Result<LookupResult, LookupError>) {
        let Some(meter) = self.0.as_ref().and_then(|meters| meters.shards.mine().lookups.get(kind)) else { return };
        meter.latency.add(nanoseconds);
        match reply {
            Ok(_) => {}
            Err(LookupError::Permanent(_)) => _ = meter.permanent.fetch_add(1, Ordering::Relaxed),
            Err(LookupError::Unavailable(_)) => _ = meter.unavailable.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The measurements; `None`: nothing is measured.
    pub(in crate::proxy) fn measures(&self) -> Option<Measures> {
        self.0.as_ref().map(Meters::measures)
    }
}

/// The index of a lookup's kind in [`LOOKUPS`].
pub(in crate::proxy) fn kind_of(lookup: &Lookup) -> usize {
    match lookup {
        Lookup::Numbers(_) => 0,
        Lookup::Maximum(_) => 1,
    }
}

impl Meters {
    fn now(&self) -> Moment {
        Moment::from_start(self.began.elapsed())
    }

    fn record(&self, command: CommandName, own: u64, upstream: Option<u64>) {
        let Some(meter) = self.shards.mine().commands.get(command.number()) else { return };
        let meter = meter.get_or_init(Box::default);
        meter.own.add(own);
        if let Some(upstream) = upstream {
            meter.upstream.add(upstream);
        }
    }

    fn finish(&self, span: Option<Box<OpenSpan>>, command: CommandName, own: u64, upstream: u64) {
        if let (Some(span), Some(tracer)) = (span, &self.tracer) {
            let name = command_names().nth(command.number()).unwrap_or_default();
            tracer.finish(*span, name, own, upstream);
        }
    }

    fn measures(&self) -> Measures {
        let lookups = LOOKUPS.map(|kind| (kind, LookupMeasures::default())).into();
        let mut measures = Measures { lookups, ..Measures::default() };
        for shard in self.shards.iter() {
            measures.from_clients += shard.from_clients.load(Ordering::Relaxed);
            measures.from_upstream += shard.from_upstream.load(Ordering::Relaxed);
            for (name, meter) in command_names().zip(&shard.commands) {
                if let Some(meter) = meter.get() {
                    let measured = measures.commands.entry(name).or_default();
                    measured.own.merge(&meter.own.snapshot());
                    measured.upstream.merge(&meter.upstream.snapshot());
                }
            }
            for ((_, measured), meter) in measures.lookups.iter_mut().zip(&shard.lookups) {
                measured.latency.merge(&meter.latency.snapshot());
                measured.permanent += meter.permanent.load(Ordering::Relaxed);
                measured.unavailable += meter.unavailable.load(Ordering::Relaxed);
            }
        }
        measures
    }
}

impl MeterShard {
    fn new() -> Self {
        let commands = command_names().map(|_| OnceLock::new()).collect();
        Self {
            from_clients: AtomicU64::new(0),
            from_upstream: AtomicU64::new(0),
            commands,
            lookups: Default::default(),
        }
    }
}
