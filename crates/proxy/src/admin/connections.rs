//! The open client connections, and `POST` to close one.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ResponseData, error, milliseconds, short_name};
use crate::proxy::OpenConnection;

/// The most connections in a response.
const LISTED: usize = 1000;
const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;

/// A request to close a connection.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CloseRequest {
    connection: u64,
    /// Who closes it.
    by: Option<String>,
}

/// docs/reference/admin-api.md documents the fields.
pub(super) async fn list(State(data): State<ResponseData>) -> Response {
    data.make(describe).await
}

fn describe(data: &ResponseData) -> Response {
    let mut open = data.observer.open_connections();
    let total = open.len();
    // Those that have waited longest come first, then the newest.
    open.sort_unstable_by_key(|one| {
        (std::cmp::Reverse(one.command.map(|(_, pending)| pending)), std::cmp::Reverse(one.number))
    });
    let listed: Vec<Value> = open.iter().take(LISTED).map(to_json).collect();
    let now = milliseconds(std::time::SystemTime::now());
    Json(json!({"now": now, "total": total, "connections": listed})).into_response()
}

fn to_json(connection: &OpenConnection) -> Value {
    let OpenConnection { number, client, member, since, app, users, from_client, from_upstream, command } = connection;
    json!({
        "connection": number,
        "client": client,
        "member": member,
        "since": milliseconds(*since),
        "app": app,
        "users": users,
        "bytes": {"client": from_client, "upstream": from_upstream},
        "command": command.map(|(name, _)| name),
        "pending": command.map(|(_, pending)| pending / NANOSECONDS_PER_MILLISECOND),
    })
}

/// 200, or 404 if there is no such connection. Requires a token, as changes of modes do.
pub(super) async fn close(
    State(data): State<ResponseData>,
    request: Result<Json<CloseRequest>, JsonRejection>,
) -> Response {
    let text = "closing connections requires a token: set admin_token_file (--admin-token-file)";
    if let Some(refused) = data.without_token(text) {
        return refused;
    }
    let CloseRequest { connection, by } = match request {
        Ok(Json(request)) => request,
        Err(rejection) => return error(rejection.status(), &rejection.body_text()),
    };
    let Some(closed) = data.observer.close_connection(connection) else {
        return error(StatusCode::NOT_FOUND, "there is no open connection with this number");
    };
    let OpenConnection { client, app, .. } = closed;
    let by = by.map(short_name);
    tracing::warn!(connection, client, app, by, "connection closed by an operator");
    Json(json!({"connection": connection, "client": client})).into_response()
}
