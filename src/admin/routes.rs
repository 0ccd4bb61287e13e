//! What can be asked for.

use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Router, middleware};

use super::guard::{error, guard};
use super::{Sources, console, decisions, explain, health, metrics, rules, status};

/// Bytes of a request's body: a long batch, pasted. What is made of it may be some hundred times as long, and takes time in
/// proportion.
const BODY_LENGTH: usize = 128 * 1024;

pub(super) fn router(sources: Sources) -> Router {
    Router::new()
        .merge(console::router())
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::metrics))
        .route("/api/status", get(status::status))
        .route("/api/rules", get(rules::rules))
        .route("/api/decisions", get(decisions::follow))
        .route("/api/explain", post(explain::explain))
        .fallback(async || error(StatusCode::NOT_FOUND, "there is nothing at this path"))
        .method_not_allowed_fallback(async || error(StatusCode::METHOD_NOT_ALLOWED, "not by this method"))
        .layer(DefaultBodyLimit::max(BODY_LENGTH))
        .layer(middleware::from_fn_with_state(sources.clone(), guard))
        .with_state(sources)
}

/// Whether a path is answered without a token: whoever keeps this process alive need not know one, and the console
/// asks for it.
pub(super) fn is_open(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz") || console::has(path)
}
