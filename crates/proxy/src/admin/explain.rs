//! `POST /api/explain`: evaluates a command that the user pastes.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::time::timeout;

use super::{ResponseData, error, in_turn};

/// The most commands evaluated at a time; others wait.
pub(super) const AT_A_TIME: usize = 1;
/// The most requests at a time, including waiting ones: each may have a body of `routes::BODY_LENGTH`.
pub(super) const REQUESTS: usize = 8;
/// The timeout for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// A command and its sender.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// In mongosh syntax or as Extended JSON.
    pub command: String,
    /// The database that `db` means in it.
    #[serde(default = "test")]
    pub database: String,
    pub app: Option<String>,
    /// "authDb.name"
    pub user: Option<String>,
}

/// The default of `docward explain`.
fn test() -> String {
    "test".to_owned()
}

/// The longest response in bytes. The result for thousands of statements is not readable anyway.
const RESPONSE_LENGTH: usize = 1 << 20;
const TOO_LONG: &str = "the result is longer than 1 MiB; explain fewer statements at a time, or use `docward explain` on \
                        the command line";

/// 200 with the result, or 422 with diagnostics, both as `docward explain --format json` prints them; 413 if the result
/// is too long. Runs on another thread, because it may take long.
pub(super) async fn explain(State(data): State<ResponseData>, request: Request) -> Response {
    let Ok(_permit) = data.explain_request_permits.clone().try_acquire_owned() else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "too many commands are being explained; try again later");
    };
    let request = match timeout(BODY_TIMEOUT, Json::<ExplainRequest>::from_request(request, &())).await {
        Ok(Ok(Json(request))) => request,
        Ok(Err(rejection)) => return error(rejection.status(), &rejection.body_text()),
        Err(_) => return error(StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time"),
    };
    let admin_context = data.admin_context.clone();
    let explained = in_turn(data.explain_permits.clone(), move || {
        let mut body = Body(Vec::new());
        match admin_context.explain(&request, &mut body) {
            Ok(true) => json_response(StatusCode::OK, body),
            Ok(false) => json_response(StatusCode::UNPROCESSABLE_ENTITY, body),
            Err(_) => error(StatusCode::PAYLOAD_TOO_LARGE, TOO_LONG),
        }
    });
    explained
        .await
        .unwrap_or_else(|| error(StatusCode::INTERNAL_SERVER_ERROR, "docward failed on this command; please report it"))
}

fn json_response(status: StatusCode, body: Body) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.0).into_response()
}

/// A buffer of at most [`RESPONSE_LENGTH`] bytes.
struct Body(Vec<u8>);

impl Write for Body {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > RESPONSE_LENGTH {
            return Err(ErrorKind::FileTooLarge.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
