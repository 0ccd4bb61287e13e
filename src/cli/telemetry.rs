//! The admin address and the export of traces of `serve`. Also gives the admin address the data that is not in the
//! proxy: reloads, spans and `explain`.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::active_rules::ActiveRules;
use super::config_file::ConfigFile;
use super::explain::{ExplainInput, milliseconds_now};
use super::mode::{ModeChange, ModeResult};
use super::reload::Expiry;
use crate::admin::{self, Admin, ExplainRequest, ModeReply, ModeRequest, ReloadStatus, SpanCounts};
use crate::otlp::{Endpoint, Exported, Exporter};
use crate::player::ReplayTarget;
use crate::proxy::{Observer, ProxyConfig, Tracer};
use crate::service::ConnectionString;

/// The configuration of telemetry.
pub(super) struct TelemetryConfig {
    pub(super) admin: Option<Arc<ArcSwap<admin::Settings>>>,
    otlp: Option<Endpoint>,
    deployment: (ConnectionString, Option<SocketAddr>),
    pub(super) expiry: Expiry,
}

/// Telemetry before the listeners open.
pub(super) struct PreparedTelemetry {
    listener: Option<admin::Listener>,
    traces: Option<Traces>,
    deployment: (ConnectionString, Option<SocketAddr>),
    expiry: Expiry,
}

/// The tracer and the exporter of its spans.
struct Traces {
    tracer: Arc<Tracer>,
    exported: Arc<Exported>,
    exporter: Exporter,
}

/// Telemetry while the proxy runs.
pub(super) struct RunningTelemetry {
    admin: Option<Admin>,
    exporter: Option<Exporter>,
}

impl TelemetryConfig {
    /// # Errors
    /// A message for the user.
    pub(super) fn from_config(settings: &ConfigFile) -> Result<Self> {
        Ok(Self {
            admin: settings.admin.settings()?.map(|admin| Arc::new(ArcSwap::from_pointee(admin))),
            otlp: settings.otlp.clone(),
            deployment: (settings.upstream(), settings.resolver),
            expiry: Expiry::default(),
        })
    }

    /// Binds the admin address, and sets `config` to produce spans.
    ///
    /// # Errors
    /// The admin address cannot be listened on.
    pub(super) fn prepare(self, config: &mut ProxyConfig) -> Result<PreparedTelemetry> {
        // During a hand-over, the previous process still listens on the admin address.
        let retry = config.hand_over.is_some();
        let listener = self.admin.map(|settings| admin::Listener::bind(settings, retry)).transpose();
        let traces = self.otlp.map(Traces::start);
        config.measured = listener.as_ref().is_ok_and(Option::is_some);
        config.tracer = traces.as_ref().map(|traces| traces.tracer.clone());
        let Self { deployment, expiry, .. } = self;
        Ok(PreparedTelemetry { listener: listener.context("--admin")?, traces, deployment, expiry })
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

impl PreparedTelemetry {
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn start(
        self,
        observer: &Arc<Observer>,
        reload_status: Arc<ArcSwap<ReloadStatus>>,
        active: &Arc<ActiveRules>,
    ) -> Result<RunningTelemetry> {
        let spans = self.traces.as_ref().map(|traces| (traces.tracer.clone(), traces.exported.clone()));
        let admin_context = Arc::new(ServeContext {
            observer: observer.clone(),
            reload_status,
            spans,
            active: active.clone(),
            runtime: Handle::current(),
            deployment: self.deployment,
            expiry: self.expiry,
        });
        let admin =
            self.listener.map(|listener| Admin::start(listener, observer.clone(), admin_context)).transpose()?;
        Ok(RunningTelemetry { admin, exporter: self.traces.map(|traces| traces.exporter) })
    }
}

impl RunningTelemetry {
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Exports the remaining spans, until the drain's deadline if the collector is slow.
    pub(super) async fn end(self, drain_deadline: Option<Instant>) {
        if let Some(exporter) = self.exporter {
            exporter.close(drain_deadline.unwrap_or_else(Instant::now)).await;
        }
    }
}

/// See [`crate::admin::AdminContext`].
struct ServeContext {
    observer: Arc<Observer>,
    reload_status: Arc<ArcSwap<ReloadStatus>>,
    spans: Option<(Arc<Tracer>, Arc<Exported>)>,
    active: Arc<ActiveRules>,
    /// The runtime of the service connection.
    runtime: Handle,
    deployment: (ConnectionString, Option<SocketAddr>),
    expiry: Expiry,
}

impl crate::admin::AdminContext for ServeContext {
    fn reload_status(&self) -> Arc<ReloadStatus> {
        self.reload_status.load_full()
    }

    fn spans(&self) -> SpanCounts {
        self.spans.as_ref().map_or_else(SpanCounts::default, |(tracer, exported)| SpanCounts {
            sent: exported.sent(),
            failed: exported.failed(),
            dropped: tracer.dropped(),
        })
    }

    fn certificates(&self) -> Vec<(&'static str, i64)> {
        self.expiry.list()
    }

    fn explain(&self, request: &ExplainRequest, out: &mut dyn Write) -> io::Result<bool> {
        let input = ExplainInput {
            text: &request.command,
            database: &request.database,
            app: request.app.as_deref(),
            user: request.user.as_deref(),
            at: milliseconds_now(),
        };
        match input.explain(&self.observer.rules()) {
            Ok(explained) => serde_json::to_writer(out, &explained)?,
            Err(report) => {
                serde_json::to_writer(out, &report.to_json())?;
                return Ok(false);
            }
        }
        Ok(true)
    }
    fn change_mode(&self, request: ModeRequest) -> Pin<Box<dyn Future<Output = Result<ModeReply, String>> + Send>> {
        let active = self.active.clone();
        let changing = async move {
            let dry_run = request.dry_run;
            let ModeResult { found, note, changed } = active.change(ModeChange::parse(request)?, dry_run).await?;
            let shared = found.as_ref().is_none_or(|found| found.shared);
            Ok(ModeReply { until: found.map(|found| found.until), shared, note, changed })
        };
        let changing = self.active.spawn_to_end(changing, &self.runtime);
        Box::pin(async { changing.await.unwrap_or_else(|_| Err("docward is shutting down".to_owned())) })
    }

    fn servers(&self) -> Pin<Box<dyn Future<Output = Vec<String>> + Send>> {
        let (upstream, resolver) = self.deployment.clone();
        Box::pin(async move { ReplayTarget::server_names(&upstream, resolver).await })
    }
}
