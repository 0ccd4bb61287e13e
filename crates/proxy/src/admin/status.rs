//! The status of this process, its rules and the members, as JSON.

use std::time::SystemTime;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::{ResponseData, health, milliseconds};
use crate::proxy::{PoolStatus, WaitingClients};
use crate::service::{WorkerState, WorkerStatus};

/// docs/reference/admin-api.md documents the fields.
pub(super) async fn status(State(data): State<ResponseData>) -> Response {
    data.make(describe).await
}

/// The pools of one member.
fn pool(pool: &PoolStatus) -> serde_json::Value {
    json!({
        "member": pool.member,
        "active": pool.active,
        "idle": pool.idle,
        "pinned": pool.pinned.iter().map(|(_, count)| count).sum::<u64>(),
        "waiting": pool.waiting,
        "oldest_wait": u64::try_from(pool.oldest_wait.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Those with the most waiting requests are listed.
const MOST_WAITING: usize = 20;

fn waiting(clients: &WaitingClients) -> serde_json::Value {
    let WaitingClients { member, user, app, waiting, oldest_wait } = clients;
    let oldest_wait = u64::try_from(oldest_wait.as_millis()).unwrap_or(u64::MAX);
    json!({"member": member, "user": user, "app": app.as_deref(), "waiting": waiting, "oldest_wait": oldest_wait})
}

/// The background worker of a rule.
fn worker(worker: &WorkerStatus) -> serde_json::Value {
    let (state, lag, error) = match &worker.state {
        WorkerState::Works { lag } => ("works", u64::try_from(lag.as_millis()).ok(), None),
        WorkerState::Waits => ("waits", None, None),
        WorkerState::Fails(error) => ("fails", None, Some(error)),
    };
    json!({
        "rule": worker.rule,
        "pattern": worker.pattern,
        "state": state,
        "lag": lag,
        "error": error,
        "changes": worker.changes,
        "unknown": worker.unknown.unwrap_or(0),
    })
}

/// When docward's own certificates expire, in milliseconds since 1970 UTC.
fn certificates(data: &ResponseData) -> Vec<serde_json::Value> {
    let listed = data.admin_context.certificates().into_iter();
    listed.map(|(side, end)| json!({ "side": side, "expires_at": end.saturating_mul(1000) })).collect()
}

fn describe(data: &ResponseData) -> Response {
    let (observer, reload_status) = (&data.observer, data.admin_context.reload_status());
    let rules = observer.rules();
    let reasons = health::reasons(data);
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now": milliseconds(SystemTime::now()),
        "started": milliseconds(data.started),
        "phase": *observer.phase().borrow(),
        "ready": reasons.is_empty(),
        "reasons": reasons,
        "set": {
            "hash": rules.hash().to_string(),
            "rules": rules.rules().len(),
            "loaded_at": milliseconds(reload_status.loaded_at),
        },
        "reloads": {
            "loaded": reload_status.loaded,
            "failed": reload_status.failed,
            "tried_at": milliseconds(reload_status.tried_at),
            "last_error": &reload_status.last_error,
        },
        "members": observer.members(),
        "pools": observer.pools().iter().map(pool).collect::<Vec<_>>(),
        "waiting": observer.waiting_clients(MOST_WAITING).iter().map(waiting).collect::<Vec<_>>(),
        "workers": observer.workers().iter().map(worker).collect::<Vec<_>>(),
        "certificates": certificates(data),
        "query_listener": observer.query_address(),
        "connections": { "open": observer.connections() },
    }))
    .into_response()
}
