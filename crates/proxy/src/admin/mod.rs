//! The admin address: health, metrics and the data of the console, over HTTP.
//!
//! Most requests only read. With the token, a request can override the mode of a rule, close a connection, or
//! record the commands of clients. The admin address runs on its own thread, so that its requests cost the proxied connections only a share of a processor.
//!
//! Start reading at [`server`]; [`authorization`] checks requests, [`routes`] lists the paths. The web page, [`console`],
//! uses the same paths.

mod authorization;
mod capture;
mod connections;
mod console;
mod decisions;
mod explain;
mod health;
mod metrics;
mod modes;
mod openmetrics;
mod process;
mod routes;
mod rules;
mod server;
mod settings;
mod slots;
mod slowest;
mod status;
mod write_timeout;

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::Semaphore;

pub use capture::{CaptureEndRequest, CaptureRequest};
pub use explain::ExplainRequest;
pub use modes::{ChangedModes, ChangedRule, ModeReply, ModeRequest};
pub use server::{Admin, Listener};
pub use settings::Settings;

use crate::proxy::Observer;
use crate::text::shorten;

/// Data for the admin address that only the layer above has.
pub trait AdminContext: Send + Sync + 'static {
    fn reload_status(&self) -> Arc<ReloadStatus>;

    /// The counts of exported spans.
    fn spans(&self) -> SpanCounts;

    /// When docward's own certificates expire: the type of connection, and seconds since 1970 UTC.
    fn certificates(&self) -> Vec<(&'static str, i64)>;

    /// Evaluates a command; writes the output of `docward explain --format json`. Returns false if the command cannot
    /// be parsed: the output is a list of diagnostics.
    ///
    /// # Errors
    /// Errors of `out`. Nothing more is evaluated after the first.
    fn explain(&self, request: &ExplainRequest, out: &mut dyn Write) -> io::Result<bool>;

    /// Overrides modes of rules, or ends overrides.
    ///
    /// # Errors
    /// A message for the user.
    fn change_mode(&self, request: ModeRequest) -> Pin<Box<dyn Future<Output = Result<ModeReply, String>> + Send>>;

    /// The names and process ids by which a replay recognises the deployment; empty if it does not reply.
    fn servers(&self) -> Pin<Box<dyn Future<Output = Vec<String>> + Send>>;
}

/// Spans for the OpenTelemetry collector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// Accepted by the collector.
    pub sent: u64,
    /// Lost in a failed request.
    pub failed: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
}

/// The results of reloading rules and certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadStatus {
    /// The number of successful reloads; the load at the start does not count.
    pub loaded: u64,
    pub failed: u64,
    /// When the current rules and certificates were loaded.
    pub loaded_at: SystemTime,
    /// When the last reload was tried, successful or not.
    pub tried_at: SystemTime,
    /// The errors of the last reload, for rules as `docward check` prints them; `None` if it was successful.
    pub last_error: Option<String>,
}

impl ReloadStatus {
    /// No reloads yet.
    #[must_use]
    pub fn at_start() -> Self {
        let now = SystemTime::now();
        Self { loaded: 0, failed: 0, loaded_at: now, tried_at: now, last_error: None }
    }
}

/// The data for all responses.
#[derive(Clone)]
struct ResponseData {
    observer: Arc<Observer>,
    admin_context: Arc<dyn AdminContext>,
    started: SystemTime,
    settings: Arc<ArcSwap<Settings>>,
    /// Permits to evaluate a command, and permits for requests that are read or wait.
    explain_permits: Arc<Semaphore>,
    explain_request_permits: Arc<Semaphore>,
    capture: Arc<capture::LatestCapture>,
    /// The permit to make a slow response.
    slow_response_permit: Arc<Semaphore>,
}

impl ResponseData {
    /// The refusal, with this text, of a request that needs a token; `None` if there is one, which has been checked.
    fn without_token(&self, text: &str) -> Option<Response> {
        self.settings.load().token.is_none().then(|| error(StatusCode::FORBIDDEN, text))
    }

    fn new(settings: Arc<ArcSwap<Settings>>, observer: Arc<Observer>, admin_context: Arc<dyn AdminContext>) -> Self {
        Self {
            observer,
            admin_context,
            started: SystemTime::now(),
            settings,
            explain_permits: Arc::new(Semaphore::new(explain::AT_A_TIME)),
            explain_request_permits: Arc::new(Semaphore::new(explain::REQUESTS)),
            capture: Arc::default(),
            slow_response_permit: Arc::new(Semaphore::new(1)),
        }
    }

    /// Makes a slow response on another thread, one at a time, so that health requests do not wait for it.
    async fn make(self, respond: fn(&Self) -> Response) -> Response {
        in_turn(self.slow_response_permit.clone(), move || respond(&self)).await.unwrap_or_else(|| {
            error(StatusCode::INTERNAL_SERVER_ERROR, "docward failed on this request; please report it")
        })
    }
}

/// Runs `work` on another thread when a permit is free; returns `None` if it panics. The permit is held until the work
/// ends, even if the caller no longer waits.
async fn in_turn<T: Send + 'static>(turns: Arc<Semaphore>, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let turn = turns.acquire_owned().await;
    let work = move || {
        let _turn = turn;
        work()
    };
    tokio::task::spawn_blocking(work).await.ok()
}

/// Milliseconds since 1970 UTC, the format of all times in responses.
fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A client's text about who asks, short enough for a log line.
fn short_name(mut by: String) -> String {
    const LONGEST: usize = 200;
    shorten(&mut by, LONGEST);
    by
}

/// `{"error": …}`
fn error(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({"error": text}))).into_response()
}
