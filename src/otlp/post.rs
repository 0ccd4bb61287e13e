//! One request to the collector.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// For everything, from looking up the name to the answer's head.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Where OTLP over HTTP takes traces, below the endpoint.
const PATH: &str = "/v1/traces";

/// The base address of a collector, without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// "host:port"
    authority: String,
    path: String,
}

impl Endpoint {
    /// # Errors
    /// Text for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let complaint =
            || "write http://HOST:4318, the address of a collector or agent; it is asked without TLS".to_owned();
        let uri: hyper::Uri = text.parse().map_err(|_| complaint())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(complaint)?;
        if uri.scheme_str() != Some("http") || uri.query().is_some() {
            return Err(complaint());
        }
        let authority = format!("{host}:{}", uri.port_u16().unwrap_or(4318));
        Ok(Self { authority, path: uri.path().trim_end_matches('/').to_owned() + PATH })
    }
}

/// # Errors
/// Text for people.
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
        let answer = sender.send_request(request);
        let answer = tokio::select! {
            answer = answer => answer,
            ended = connection => match ended {
                Ok(()) => return Err(failure(&"the connection was closed without an answer")),
                Err(error) => Err(error),
            },
        };
        let status = answer.map_err(|error| failure(&error))?.status();
        if status.is_success() { Ok(()) } else { Err(failure(&status)) }
    };
    timeout(TIMEOUT, exchange).await.unwrap_or_else(|_| Err(failure(&"no answer in time")))
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
