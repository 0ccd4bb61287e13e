//! Who looks on while `serve` runs: the admin address and the collector of traces, and what they are told that is not
//! the proxy's own.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use serde_json::Value;

use super::config::ConfigFile;
use super::explain::{Question, milliseconds_now};
use super::reload::Status;
use crate::admin::{self, Admin, Asked, Loads, SpanCounts};
use crate::otlp::{Endpoint, Exported, Exporter};
use crate::patterns::RuleSet;
use crate::proxy::{Config, Observer, Tracer};

/// Who is to look on.
#[derive(Debug)]
pub(super) struct TelemetryConfig {
    admin: Option<admin::Settings>,
    otlp: Option<Endpoint>,
}

/// What they need before anything listens.
pub(super) struct Prepared {
    listener: Option<admin::Listener>,
    traces: Option<Traces>,
}

/// Spans on their way to the collector.
struct Traces {
    tracer: Arc<Tracer>,
    exported: Arc<Exported>,
    exporter: Exporter,
}

/// They look on.
pub(super) struct RunningTelemetry {
    admin: Option<Admin>,
    exporter: Option<Exporter>,
}

impl TelemetryConfig {
    /// # Errors
    /// Text for people.
    pub(super) fn of(settings: &ConfigFile) -> Result<Self> {
        Ok(Self { admin: settings.admin.settings()?, otlp: settings.otlp.clone() })
    }

    /// Takes the admin address, and has `config` send spans.
    ///
    /// # Errors
    /// The admin address cannot be listened on.
    pub(super) fn prepare(self, config: &mut Config) -> Result<Prepared> {
        // Who is to hand over still listens there.
        let patient = config.hand_over.is_some();
        let listener = self.admin.map(|settings| admin::Listener::bind(settings, patient)).transpose();
        let traces = self.otlp.map(Traces::start);
        config.measured = listener.as_ref().is_ok_and(Option::is_some);
        config.tracer = traces.as_ref().map(|traces| traces.tracer.clone());
        Ok(Prepared { listener: listener.context("--admin")?, traces })
    }
}

impl Traces {
    fn start(endpoint: Endpoint) -> Self {
        let (tracer, spans) = Tracer::new();
        let exported = Arc::<Exported>::default();
        let exporter = Exporter::start(endpoint, spans, exported.clone());
        Self { tracer: Arc::new(tracer), exported, exporter }
    }
}

impl Prepared {
    /// # Errors
    /// There can be no more threads.
    pub(super) fn look_at(
        self,
        observer: &Arc<Observer<RuleSet>>,
        status: Arc<ArcSwap<Status>>,
    ) -> Result<RunningTelemetry> {
        let spans = self.traces.as_ref().map(|traces| (traces.tracer.clone(), traces.exported.clone()));
        let admin_context = Arc::new(AdminContext { observer: observer.clone(), status, spans });
        let admin =
            self.listener.map(|listener| Admin::start(listener, observer.clone(), admin_context)).transpose()?;
        Ok(RunningTelemetry { admin, exporter: self.traces.map(|traces| traces.exporter) })
    }
}

impl RunningTelemetry {
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Sends what is left.
    pub(super) async fn end(self) {
        if let Some(exporter) = self.exporter {
            exporter.close().await;
        }
    }
}

/// See [`crate::admin::AdminContext`].
struct AdminContext {
    observer: Arc<Observer<RuleSet>>,
    status: Arc<ArcSwap<Status>>,
    spans: Option<(Arc<Tracer>, Arc<Exported>)>,
}

impl crate::admin::AdminContext for AdminContext {
    fn loads(&self) -> Loads {
        let Status { loaded, refused, loaded_at, tried_at, last_error } = Status::clone(&self.status.load());
        Loads { loaded, refused, loaded_at, tried_at, last_error }
    }

    fn spans(&self) -> SpanCounts {
        self.spans.as_ref().map_or_else(SpanCounts::default, |(tracer, exported)| SpanCounts {
            sent: exported.sent(),
            failed: exported.failed(),
            dropped: tracer.dropped(),
        })
    }

    fn explain(&self, asked: &Asked) -> Result<Value, Value> {
        let question = Question {
            text: &asked.command,
            database: &asked.database,
            app: asked.app.as_deref(),
            user: asked.user.as_deref(),
            at: milliseconds_now(),
        };
        question.answer_json(&self.observer.rules())
    }
}
