//! Overrides of rule modes: the list, and `POST` to set or end one.

use std::ops::Not;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{ResponseData, error};
use crate::proxy::OverriddenMode;
use crate::rules::{ClientNames, Rule};

/// A request to override the mode of one or all rules, or to end overrides.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeRequest {
    /// `None`: see `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// All rules that are not disabled in their files, instead of one.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub all: bool,
    /// Only returns which rules change.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub dry_run: bool,
    /// "enforce", "shadow" or "disabled"; `None`: end the override.
    pub mode: Option<String>,
    /// The clients that get it; empty: all.
    #[serde(default, skip_serializing_if = "ClientNames::is_empty")]
    pub only: ClientNames,
    /// Such as "2h".
    #[serde(rename = "for")]
    pub length: Option<String>,
    pub reason: Option<String>,
    /// Who sets it.
    pub by: Option<String>,
}

/// The effect of a request.
#[derive(Debug, Clone, Serialize)]
pub struct ModeReply {
    /// When the override ends, in milliseconds since 1970 UTC; `None`: it has ended.
    pub until: Option<u64>,
    /// Whether all docward processes of the deployment use it, or only this one.
    pub shared: bool,
    /// Why only this one.
    pub note: Option<String>,
    #[serde(flatten)]
    pub changed: ChangedModes,
}

/// What a request changes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChangedModes {
    pub rules: Vec<ChangedRule>,
    /// The overrides that end with it, each as a sentence.
    pub ended: Vec<String>,
}

/// A rule whose override begins or ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangedRule {
    pub rule: String,
    /// `None`: the rule is not loaded.
    pub pattern: Option<String>,
    /// What no longer holds, as a sentence; `None` if the rule is not loaded, or is enforced.
    pub when_off: Option<String>,
}

#[derive(Serialize)]
struct ListedOverride {
    rule: String,
    #[serde(flatten)]
    found: OverriddenMode,
}

/// docs/reference/admin-api.md documents the fields.
pub(super) async fn list(State(data): State<ResponseData>) -> Response {
    let rules = data.observer.rules();
    let listed =
        |rule: &Rule| Some(ListedOverride { rule: rule.name.to_string(), found: OverriddenMode::of_rule(rule)? });
    let overrides: Vec<_> = rules.rules().iter().filter_map(listed).collect();
    Json(json!({"overrides": overrides})).into_response()
}

/// 200 with the reply, or 422 with what is wrong. Requires a token, because any process on this machine, and any web
/// page in a browser on it, can send a request to an address without one.
pub(super) async fn change(
    State(data): State<ResponseData>,
    request: Result<Json<ModeRequest>, JsonRejection>,
) -> Response {
    let text = "changing modes requires a token: set admin_token_file (--admin-token-file)";
    if let Some(refused) = data.without_token(text) {
        return refused;
    }
    let request = match request {
        Ok(Json(request)) => request,
        Err(rejection) => return error(rejection.status(), &rejection.body_text()),
    };
    match data.admin_context.change_mode(request).await {
        Ok(reply) => Json(reply).into_response(),
        Err(reason) => error(StatusCode::UNPROCESSABLE_ENTITY, &reason),
    }
}
