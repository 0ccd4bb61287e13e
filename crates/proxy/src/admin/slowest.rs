//! The statements that took longest in the last hour.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{ResponseData, milliseconds};
use crate::proxy::SlowStatement;

const NANOSECONDS_PER_MILLISECOND: f64 = 1e6;

/// docs/reference/admin-api.md documents the fields.
pub(super) async fn list(State(data): State<ResponseData>) -> Response {
    let listed: Vec<Value> = data.observer.slowest().iter().map(to_json).collect();
    Json(json!({"now": milliseconds(std::time::SystemTime::now()), "statements": listed})).into_response()
}

fn to_json(statement: &SlowStatement) -> Value {
    let SlowStatement { at, took, upstream, shape, namespace, app, users, client } = statement;
    let rounded = |nanoseconds: u64| (nanoseconds as f64 / NANOSECONDS_PER_MILLISECOND * 10.0).round() / 10.0;
    json!({
        "at": milliseconds(*at),
        "milliseconds": rounded(*took),
        "upstream": rounded(*upstream),
        "shape": shape,
        "namespace": namespace,
        "app": app,
        "users": users,
        "client": client,
    })
}
