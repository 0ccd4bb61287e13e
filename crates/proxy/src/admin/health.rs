//! Health checks: whether this process is alive, and whether it is ready for clients.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use super::ResponseData;
use crate::proxy::{MemberStatus, ProcessPhase};

/// Why docward is not ready. Contains no names, because the path needs no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct UnreadyReason {
    pub(super) code: &'static str,
    pub(super) message: &'static str,
}

/// Always 200: a reply means that the process is alive.
pub(super) async fn alive() -> Json<Value> {
    Json(json!({"alive": true}))
}

/// 200 or 503, `{"ready", "reasons": [{"code", "message"}]}`
pub(super) async fn ready(State(data): State<ResponseData>) -> (StatusCode, Json<Value>) {
    let reasons = reasons(&data);
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({"ready": reasons.is_empty(), "reasons": reasons})))
}

/// Why docward is not ready; empty if it is. Rules with errors are not a reason: they prevent the start, or the
/// previous rules stay in force.
pub(super) fn reasons(data: &ResponseData) -> Vec<UnreadyReason> {
    let phase = match *data.observer.phase().borrow() {
        ProcessPhase::Starting => {
            Some(UnreadyReason { code: "starting", message: "the listeners do not accept connections yet" })
        }
        ProcessPhase::Serving => None,
        ProcessPhase::Draining | ProcessPhase::HandedOver => {
            Some(UnreadyReason { code: "draining", message: "this process is shutting down" })
        }
    };
    let members = data.observer.members();
    let reachable = members.iter().any(|member| member.up && member.listener.is_some());
    let upstream = UnreadyReason { code: "upstream", message: "no member of the upstream replies" };
    let hidden = UnreadyReason {
        code: "primary_without_listener",
        message: "the primary has no listener, so clients cannot write: name it under `members`",
    };
    let is_hidden = members.iter().any(MemberStatus::is_hidden_primary);
    phase.into_iter().chain((!reachable).then_some(upstream)).chain(is_hidden.then_some(hidden)).collect()
}
