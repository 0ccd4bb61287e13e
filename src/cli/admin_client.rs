//! Requests to the admin address of a running docward.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::secret::Secret;

/// The longest wait for a reply. The timeouts of container health checks are usually longer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The longest reply in bytes: a list of a few thousand overrides.
const MAX_REPLY: u64 = 1 << 20;

/// A request.
#[derive(Debug, Default)]
pub(super) struct AdminRequest<'r> {
    pub(super) path: &'r str,
    pub(super) token: Option<&'r Secret>,
    /// The body of a POST request, as JSON; `None`: a GET request.
    pub(super) body: Option<&'r str>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct HttpReply {
    pub(super) status: u16,
    pub(super) body: String,
}

/// Sends a request to the admin address that `listener` is, and returns the reply.
///
/// # Errors
/// A message for the user if no reply arrives.
pub(super) fn send(listener: SocketAddr, request: &AdminRequest<'_>) -> Result<HttpReply, String> {
    let address = reachable(listener);
    exchange(address, request).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("no reply from the admin address {address}: timed out after {TIMEOUT:?}")
        }
        _ => format!("no reply from the admin address {address}: {error}"),
    })
}

/// The address to connect to: the loopback address if the listener uses all addresses.
fn reachable(address: SocketAddr) -> SocketAddr {
    let host: IpAddr = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(host, address.port())
}

/// With HTTP/1.0 the reply is not chunked and ends with the connection. Every admin address accepts `localhost` as its
/// host name.
fn exchange(address: SocketAddr, request: &AdminRequest<'_>) -> io::Result<HttpReply> {
    let AdminRequest { path, token, body } = request;
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let method = if body.is_some() { "POST" } else { "GET" };
    let mut head = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n");
    if let Some(token) = token {
        head.push_str(&format!("Authorization: Bearer {}\r\n", token.reveal()));
    }
    if let Some(body) = body {
        head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
    }
    stream.write_all(format!("{head}\r\n{}", body.unwrap_or_default()).as_bytes())?;
    let mut text = String::new();
    stream.take(MAX_REPLY).read_to_string(&mut text)?;
    parse_reply(&text).ok_or_else(|| io::Error::other("the reply is not HTTP"))
}

/// `HTTP/1.1 503 Service Unavailable`, header fields, an empty line, the body.
fn parse_reply(text: &str) -> Option<HttpReply> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let (version, rest) = head.split_once(' ')?;
    let status = rest.get(..3)?.parse().ok()?;
    version.starts_with("HTTP/1.").then(|| HttpReply { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_a_status_and_a_body() {
        for (text, status) in [
            ("HTTP/1.0 200 OK\r\n\r\n", Some(200)),
            ("HTTP/1.1 503 Service Unavailable\r\ncontent-type: x\r\n\r\ndraining", Some(503)),
            ("HTTP/1.1 200\r\n\r\n", Some(200)),
            ("HTTP/1.1 200 OK\r\n", None),
            ("HTTP/1.1 2\r\n\r\n", None),
            ("SSH-2.0-x 200 OK\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(parse_reply(text).map(|reply| reply.status), status, "{text:?}");
        }
    }

    #[test]
    fn a_wildcard_address_is_reached_at_loopback() {
        for (listener, expected) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.1:1", "10.0.0.1:1"), ("[::1]:1", "[::1]:1")]
        {
            assert_eq!(reachable(listener.parse().unwrap()), expected.parse().unwrap());
        }
    }
}
