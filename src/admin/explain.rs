//! What rules would make of a command that somebody pastes.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::Sources;
use super::guard::error;

/// Commands thought about at a time; others wait.
pub(super) const AT_A_TIME: usize = 1;

/// A command, and who would send it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// In mongosh syntax or as Extended JSON.
    pub command: String,
    /// What `db` means in it.
    #[serde(default = "test")]
    pub database: String,
    pub app: Option<String>,
    /// "authDb.name"
    pub user: Option<String>,
}

/// As `docward explain` has it.
fn test() -> String {
    "test".to_owned()
}

/// 200 with what rules make of it, or 422 with what is wrong with its text: each as `docward explain --format json`
/// prints it. On another thread, as it may take a while.
pub(super) async fn explain(State(sources): State<Sources>, asked: Result<Json<Asked>, JsonRejection>) -> Response {
    let asked = match asked {
        Ok(Json(asked)) => asked,
        Err(rejection) => return error(rejection.status(), &rejection.body_text()),
    };
    let _turn = sources.explaining.clone().acquire_owned().await;
    match tokio::task::spawn_blocking(move || sources.desk.explain(&asked)).await {
        Ok(Ok(explained)) => Json(explained).into_response(),
        Ok(Err(diagnostics)) => (StatusCode::UNPROCESSABLE_ENTITY, Json(diagnostics)).into_response(),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "docward failed on this command; please report it"),
    }
}
