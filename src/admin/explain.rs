//! What rules would make of a command that somebody pastes.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use super::guard::error;
use super::{Sources, in_turn};

/// Commands evaluated at a time; others wait.
pub(super) const AT_A_TIME: usize = 1;
/// Requests at a time, those that wait included: each may hold a body of `routes::BODY_LENGTH`.
pub(super) const QUESTIONS: usize = 8;
/// For the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

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

/// Bytes of an answer: what rules say of each of thousands of statements is nothing to look at.
const ANSWER_LENGTH: usize = 1 << 20;

/// 200 with what rules make of it, or 422 with what is wrong with its text: each as `docward explain --format json`
/// prints it; 413 where that is too long. On another thread, as it may take a while.
pub(super) async fn explain(State(sources): State<Sources>, request: Request) -> Response {
    let Ok(_question) = sources.questions.clone().try_acquire_owned() else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "too many commands are being explained; try again later");
    };
    let asked = match timeout(BODY_TIMEOUT, Json::<Asked>::from_request(request, &())).await {
        Ok(Ok(Json(asked))) => asked,
        Ok(Err(rejection)) => return error(rejection.status(), &rejection.body_text()),
        Err(_) => return error(StatusCode::REQUEST_TIMEOUT, "the body of the request did not come in time"),
    };
    let admin_context = sources.admin_context.clone();
    let explained = in_turn(sources.explaining.clone(), move || match admin_context.explain(&asked) {
        Ok(explained) => answer(StatusCode::OK, &explained),
        Err(diagnostics) => answer(StatusCode::UNPROCESSABLE_ENTITY, &diagnostics),
    });
    explained
        .await
        .unwrap_or_else(|| error(StatusCode::INTERNAL_SERVER_ERROR, "docward failed on this command; please report it"))
}

fn answer(status: StatusCode, explained: &Value) -> Response {
    let mut body = Body(Vec::new());
    if serde_json::to_writer(&mut body, explained).is_err() {
        let text = "the explanation would be longer than 1 MiB; explain fewer statements at a time, or all of them by \
                    `docward explain` on a command line";
        return error(StatusCode::PAYLOAD_TOO_LARGE, text);
    }
    (status, [(CONTENT_TYPE, "application/json")], body.0).into_response()
}

/// Takes no more than an answer may have.
struct Body(Vec<u8>);

impl Write for Body {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > ANSWER_LENGTH {
            return Err(ErrorKind::FileTooLarge.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
