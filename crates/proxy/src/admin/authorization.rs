//! Checks the `Host` header and the token of requests, and adds security headers to responses.

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{StatusCode, uri};
use axum::middleware::Next;
use axum::response::Response;

use super::{ResponseData, Settings, console, error};

/// Default headers of a response: it is not cached or framed, and no script in it runs.
const HEADERS: [(HeaderName, &str); 6] = [
    (CACHE_CONTROL, "no-store"),
    (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The middleware for every request.
pub(super) async fn authorize(State(data): State<ResponseData>, request: Request, next: Next) -> Response {
    let mut response = match rejection(&data, &request) {
        Some(rejection) => rejection,
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

fn rejection(data: &ResponseData, request: &Request) -> Option<Response> {
    let settings = data.settings.load();
    // Their responses contain no names, and probes of load balancers send any `Host` header or none.
    if is_probe(request.uri().path()) {
        return None;
    }
    // Without this check, a web page with a name that resolves to this address could read responses (DNS rebinding).
    if settings.address.ip().is_loopback() && !is_own_name(request.headers(), &settings) {
        let text = "the Host header must be localhost, 127.0.0.1, [::1] or the host name in `admin`";
        return Some(error(StatusCode::MISDIRECTED_REQUEST, text));
    }
    // The console's page lets the user enter the token.
    if !console::has(request.uri().path()) && !settings.is_token(bearer_token(request.headers())) {
        let mut response = error(StatusCode::UNAUTHORIZED, "a token is required: send Authorization: Bearer TOKEN");
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return Some(response);
    }
    None
}

fn is_own_name(headers: &HeaderMap, settings: &Settings) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) else { return false };
    let Ok(host) = host.parse::<uri::Authority>() else { return false };
    let mut ours = ["localhost", "127.0.0.1", "[::1]"].into_iter().chain(settings.name.as_deref());
    let is_own_address = host.host().parse() == Ok(settings.address.ip());
    is_host_and_port(&host) && (is_own_address || ours.any(|ours| host.host().eq_ignore_ascii_case(ours)))
}

/// Whether it is a valid `Host` header (RFC 9110, 7.2): a host and an optional port, without a user.
fn is_host_and_port(authority: &uri::Authority) -> bool {
    let port = authority.as_str().strip_prefix(authority.host());
    port.is_some_and(|port| port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok()))
}

fn bearer_token(headers: &HeaderMap) -> &[u8] {
    let shown = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    shown
        .split_at_checked("Bearer ".len())
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "))
        .map_or(&[], |(_, token)| token)
}

/// Whether the path is for health probes, which have no token.
fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}
