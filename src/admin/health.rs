//! Whether this process is alive, and whether clients should come to it.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use super::Sources;
use crate::proxy::Phase;

/// Why no client should come. Without names: who asks need not show a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Reason {
    pub(super) code: &'static str,
    pub(super) text: &'static str,
}

/// It answers, so it is.
pub(super) async fn alive() -> Json<Value> {
    Json(json!({"alive": true}))
}

/// 200 or 503, `{"ready", "reasons": [{"code", "text"}]}`
pub(super) async fn ready(State(sources): State<Sources>) -> (StatusCode, Json<Value>) {
    let reasons = reasons(&sources);
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({"ready": reasons.is_empty(), "reasons": reasons})))
}

/// Rules that cannot be loaded keep docward from starting, or leave the ones before in force: there is no reason
/// in them.
pub(super) fn reasons(sources: &Sources) -> Vec<Reason> {
    let phase = match *sources.observer.phase().borrow() {
        Phase::Starting => Some(Reason { code: "starting", text: "the listeners do not accept yet" }),
        Phase::Serving => None,
        Phase::Draining | Phase::HandedOver => Some(Reason { code: "draining", text: "this process is about to end" }),
    };
    let reachable = sources.observer.members().iter().any(|member| member.answers && member.listener.is_some());
    let upstream = Reason { code: "upstream", text: "no member of the upstream answers" };
    phase.into_iter().chain((!reachable).then_some(upstream)).collect()
}
