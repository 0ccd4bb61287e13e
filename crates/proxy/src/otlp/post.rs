//! Sends one request to the collector.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout for the whole request, from the name lookup to the response head.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The path for traces in OTLP over HTTP, relative to the endpoint.
const PATH: &str = "/v1/traces";

/// The base address of a collector, without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// "host:port"
    authority: String,
    path: String,
}

impl Endpoint {
    /// Parses the base address of a collector: `http://HOST[:PORT][/PATH]`. The default port is 4318.
    ///
    /// # Errors
    /// A message that describes the expected form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let usage = || "write http://HOST:4318, the address of a collector or agent; TLS is not supported".to_owned();
        let uri: hyper::Uri = text.parse().map_err(|_| usage())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(usage)?;
        if uri.scheme_str() != Some("http") || uri.query().is_some() {
            return Err(usage());
        }
        let authority = format!("{host}:{}", uri.port_u16().unwrap_or(4318));
        Ok(Self { authority, path: uri.path().trim_end_matches('/').to_owned() + PATH })
    }
}

/// Posts `json` to the collector.
///
/// # Errors
/// A message with the address of the collector and the failure, also if the status is not a success.
pub(super) async fn post(endpoint: &Endpoint, json: String) -> Result<(), String> {
    let Endpoint { authority, path } = endpoint;
    let failure = |error: &dyn std::fmt::Display| format!("{authority}: {error}");
    let exchange = async {
        let stream = TcpStream::connect(authority).await.map_err(|error| failure(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failure(&error))?;
        let request = Request::post(path.as_str())
            .header(HOST, authority)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(json)))
            .map_err(|error| failure(&error))?;
        let response = sender.send_request(request);
        let response = tokio::select! {
            response = response => response,
            ended = connection => match ended {
                Ok(()) => return Err(failure(&"the collector closed the connection without a response")),
                Err(error) => Err(error),
            },
        };
        let status = response.map_err(|error| failure(&error))?.status();
        if status.is_success() { Ok(()) } else { Err(failure(&status)) }
    };
    timeout(TIMEOUT, exchange).await.unwrap_or_else(|_| Err(failure(&"no response within 10 s")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_base_address() {
        let parse = |text| Endpoint::parse(text).map(|Endpoint { authority, path }| authority + &path);
        assert_eq!(parse("http://localhost:4318").as_deref(), Ok("localhost:4318/v1/traces"));
        assert_eq!(parse("http://[::1]/otlp/").as_deref(), Ok("[::1]:4318/otlp/v1/traces"));
        for wrong in ["localhost:4318", "https://localhost:4318", "http://", "grpc://a:4317", "http://a?b"] {
            assert!(Endpoint::parse(wrong).unwrap_err().contains("http://HOST:4318"), "{wrong}");
        }
    }
}
