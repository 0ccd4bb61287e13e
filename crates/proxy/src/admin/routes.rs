//! The paths of the admin address.

use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Router, middleware};

use super::authorization::authorize;
use super::{
    ResponseData, capture, connections, console, decisions, error, explain, health, metrics, modes, rules, slowest,
    status,
};

/// The longest request body in bytes: enough for a long pasted batch. Its evaluation may need some hundred times the
/// memory, and time in proportion.
const BODY_LENGTH: usize = 128 * 1024;

pub(super) fn router(sources: ResponseData) -> Router {
    Router::new()
        .merge(console::router())
        // HAProxy's `option httpchk` uses OPTIONS unless it names a method.
        .route("/healthz", get(health::alive).options(health::alive))
        .route("/readyz", get(health::ready).options(health::ready))
        .route("/metrics", get(metrics::metrics))
        .route("/api/status", get(status::status))
        .route("/api/rules", get(rules::rules))
        .route("/api/modes", get(modes::list).post(modes::change))
        .route("/api/connections", get(connections::list).post(connections::close))
        .route("/api/capture", get(capture::show).post(capture::start))
        .route("/api/capture/end", post(capture::end))
        .route("/api/slowest", get(slowest::list))
        .route("/api/decisions", get(decisions::follow))
        .route("/api/explain", post(explain::explain))
        .fallback(async || error(StatusCode::NOT_FOUND, "path not found"))
        .method_not_allowed_fallback(async || error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"))
        .layer(DefaultBodyLimit::max(BODY_LENGTH))
        .layer(middleware::from_fn_with_state(sources.clone(), authorize))
        .with_state(sources)
}
