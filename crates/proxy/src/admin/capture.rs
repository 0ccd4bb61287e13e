//! `POST` to record the commands of clients for a time: the response is the capture, which belongs to the client that
//! asked for it. One capture runs at a time; the list shows it, or the last one, and a second `POST` ends it.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use axum::body::Body;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::slots::{ConnectionSlot, ConnectionStage};
use super::{ResponseData, error, milliseconds, short_name};
use crate::audit::capture::{CaptureEnd, MAX_END_LENGTH, header, servers_record};
use crate::config::{Glob, parse_duration, parse_size};
use crate::proxy::{Observer, QueuedRecord, RecordCounts, Records, Sink};

/// The longest capture.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Bytes of a capture, if the request does not limit it.
const SIZE: usize = 1 << 30;
/// The longest wait for the names of the servers.
const SERVERS_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of records that are sent at once.
const CHUNK: usize = 256 * 1024;
const NEEDS_TOKEN: &str =
    "a capture contains documents and requires a token: set admin_token_file (--admin-token-file) of serve";
/// The most globs of applications.
const APPS: usize = 100;

/// A request for a capture.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    /// How long, such as "10m".
    #[serde(rename = "for")]
    pub length: String,
    /// The most bytes, such as "1GiB".
    pub size: Option<String>,
    /// Globs of the applications whose commands are recorded; empty: all.
    #[serde(default)]
    pub apps: Vec<String>,
    /// Who asks.
    pub by: Option<String>,
}

/// A request to end the capture that runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureEndRequest {
    /// Who ends it.
    pub by: Option<String>,
}

/// The capture that runs, or the last one.
pub(super) type LatestCapture = ArcSwapOption<Capture>;

/// A capture and its end.
#[derive(Debug)]
pub(super) struct Capture {
    by: Option<String>,
    apps: Vec<String>,
    since: SystemTime,
    until: SystemTime,
    size: usize,
    counts: Arc<RecordCounts>,
    /// Why and when it ended.
    ended: OnceLock<(&'static str, SystemTime)>,
}

/// A valid request.
struct CaptureOptions {
    length: Duration,
    size: usize,
    apps: Vec<String>,
    by: Option<String>,
}

impl CaptureOptions {
    /// # Errors
    /// A message for the user.
    fn parse(request: CaptureRequest) -> Result<Self, String> {
        let CaptureRequest { length, size, apps, by } = request;
        let length = parse_duration(&length).filter(|length| !length.is_zero() && *length <= LONGEST);
        let length = length.ok_or("`for`: write a number and a unit, such as 90s or 10m; at most 24h")?;
        let size = size.map_or(Some(SIZE), |size| parse_size(&size));
        let size = size.ok_or("`size`: write a number and a unit, such as 256MiB")?;
        if apps.len() > APPS {
            return Err(format!("`apps`: name at most {APPS}"));
        }
        Ok(Self { length, size, apps, by: by.map(short_name) })
    }
}

impl Capture {
    /// Ends the capture, unless it has ended.
    fn end(&self, observer: &Observer, reason: &'static str) {
        if self.ended.set((reason, SystemTime::now())).is_ok() {
            observer.end_capture();
            let (commands, omitted) = (self.counts.commands(), self.counts.omitted());
            tracing::info!(by = self.by, reason, commands, omitted, "capture ended");
        }
    }

    fn is_running(&self) -> bool {
        self.ended.get().is_none()
    }

    fn to_json(&self) -> serde_json::Value {
        let Self { by, apps, since, until, size, counts, ended } = self;
        json!({
            "by": by,
            "apps": apps,
            "since": milliseconds(*since),
            "until": milliseconds(*until),
            "size": size,
            "bytes": counts.bytes(),
            "commands": counts.commands(),
            "omitted": counts.omitted(),
            "ended": ended.get().map(|(reason, _)| reason),
            "ended_at": ended.get().map(|(_, at)| milliseconds(*at)),
        })
    }
}

/// docs/reference/admin-api.md documents the fields.
pub(super) async fn show(State(data): State<ResponseData>) -> Response {
    let capture = data.capture.load().as_ref().map(|capture| capture.to_json());
    Json(json!({"now": milliseconds(SystemTime::now()), "capture": capture})).into_response()
}

/// 200 with the capture; 409 if one runs already. Requires a token, because a capture contains documents.
pub(super) async fn start(
    State(data): State<ResponseData>,
    Extension(connection): Extension<Arc<ConnectionSlot>>,
    request: Result<Json<CaptureRequest>, JsonRejection>,
) -> Response {
    if let Some(refused) = data.without_token(NEEDS_TOKEN) {
        return refused;
    }
    let request = match request {
        Ok(Json(request)) => request,
        Err(rejection) => return error(rejection.status(), &rejection.body_text()),
    };
    let CaptureOptions { length, size, apps, by } = match CaptureOptions::parse(request) {
        Ok(wanted) => wanted,
        Err(reason) => return error(StatusCode::UNPROCESSABLE_ENTITY, &reason),
    };
    // Without a reply they are not named.
    let servers = timeout(SERVERS_TIMEOUT, data.admin_context.servers()).await.unwrap_or_default();
    let (sink, records) = Sink::new(apps.iter().map(|app| Glob::new(app)).collect());
    if !data.observer.start_capture(sink) {
        return error(StatusCode::CONFLICT, "another capture runs; end it, or wait for its end (GET /api/capture)");
    }
    let since = SystemTime::now();
    let (until, counts) = (since + length, records.counts.clone());
    let capture = Arc::new(Capture { by, apps, since, until, size, counts, ended: OnceLock::new() });
    data.capture.store(Some(capture.clone()));
    connection.enter(ConnectionStage::Capture);
    tracing::warn!(by = capture.by, apps = ?capture.apps, seconds = length.as_secs(), size, "capture started");
    let sender = CaptureSender::start(capture, data.observer, records, length, &servers);
    let chunks = stream::unfold(sender, async |mut sender| Some((Ok::<_, Infallible>(sender.next().await?), sender)));
    ([(CONTENT_TYPE, "application/octet-stream")], Body::from_stream(chunks)).into_response()
}

/// 200, or 404 if no capture runs.
pub(super) async fn end(
    State(data): State<ResponseData>,
    request: Result<Json<CaptureEndRequest>, JsonRejection>,
) -> Response {
    if let Some(refused) = data.without_token(NEEDS_TOKEN) {
        return refused;
    }
    let CaptureEndRequest { by } = match request {
        Ok(Json(request)) => request,
        Err(rejection) => return error(rejection.status(), &rejection.body_text()),
    };
    let Some(capture) = data.capture.load_full().filter(|capture| capture.is_running()) else {
        return error(StatusCode::NOT_FOUND, "no capture runs");
    };
    tracing::info!(by = by.map(short_name), "a client ends the capture");
    capture.end(&data.observer, "operator");
    Json(json!({"capture": capture.to_json()})).into_response()
}

/// Sends the records of a capture; the capture ends with it.
struct CaptureSender {
    capture: Arc<Capture>,
    observer: Arc<Observer>,
    records: Records,
    timer: JoinHandle<()>,
    /// The chunk that is sent next.
    chunk: Vec<u8>,
    sent: usize,
    is_done: bool,
}

impl CaptureSender {
    fn start(
        capture: Arc<Capture>,
        observer: Arc<Observer>,
        records: Records,
        length: Duration,
        servers: &[String],
    ) -> Self {
        // A task of its own: the sender is idle while the client does not read.
        let timer = tokio::spawn({
            let (capture, observer) = (capture.clone(), observer.clone());
            async move {
                sleep(length).await;
                capture.end(&observer, "time");
            }
        });
        let chunk = [header(), servers_record(servers)].concat();
        Self { capture, observer, records, timer, chunk, sent: 0, is_done: false }
    }

    /// The next bytes of the response; `None`: it has ended.
    async fn next(&mut self) -> Option<Vec<u8>> {
        if self.chunk.is_empty() && !self.is_done {
            let first = self.records.queue.recv().await.flatten();
            self.take(first);
        }
        while !self.is_done && self.chunk.len() < CHUNK {
            let Ok(next) = self.records.queue.try_recv() else { break };
            self.take(next);
        }
        let chunk = std::mem::take(&mut self.chunk);
        self.sent += chunk.len();
        (!chunk.is_empty()).then_some(chunk)
    }

    /// Adds a record to the chunk; `None`: the capture has ended.
    fn take(&mut self, record: Option<QueuedRecord>) {
        let Some(record) = record else { return self.finish() };
        if self.sent + self.chunk.len() + record.bytes.len() + MAX_END_LENGTH > self.capture.size {
            self.records.counts.drop_one(&record);
            self.capture.end(&self.observer, "size");
            return self.finish();
        }
        self.records.counts.write_one(&record);
        self.chunk.extend_from_slice(&record.bytes);
    }

    fn finish(&mut self) {
        self.is_done = true;
        while let Ok(Some(record)) = self.records.queue.try_recv() {
            self.records.counts.drop_one(&record);
        }
        let reason = self.capture.ended.get().map_or("", |(reason, _)| reason);
        let counts = &self.records.counts;
        let end = CaptureEnd { reason: reason.to_owned(), commands: counts.commands(), omitted: counts.omitted() };
        self.chunk.extend_from_slice(&end.record());
    }
}

impl Drop for CaptureSender {
    fn drop(&mut self) {
        self.timer.abort();
        self.capture.end(&self.observer, "client");
    }
}
