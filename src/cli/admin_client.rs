//! Requests to the admin address of a running docward.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::secret::Secret;

/// The longest wait for a reply. The timeouts of container health checks are usually longer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The same for a POST request: before docward enforces a rule, it waits until other processes know of it.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest reply in bytes: a list of a few thousand overrides.
const MAX_REPLY: u64 = 1 << 20;
/// The longest head of a reply in bytes.
const MAX_HEAD: u64 = 16 * 1024;

/// A request.
#[derive(Debug, Default)]
pub(super) struct AdminRequest<'r> {
    pub(super) path: &'r str,
    pub(super) token: Option<&'r Secret>,
    /// The body of a POST request, as JSON; `None`: a GET request.
    pub(super) body: Option<&'r str>,
}

/// A reply whose body has not been read.
pub(super) struct OpenReply {
    pub(super) status: u16,
    pub(super) body: BufReader<TcpStream>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct HttpReply {
    pub(super) status: u16,
    pub(super) body: String,
}

impl AdminRequest<'_> {
    fn timeout(&self) -> Duration {
        if self.body.is_some() { CHANGE_TIMEOUT } else { TIMEOUT }
    }
}

/// Sends a request to the admin address that `listener` is, and returns the reply.
///
/// # Errors
/// A message for the user if no reply arrives.
pub(super) fn send(listener: SocketAddr, request: &AdminRequest<'_>) -> Result<HttpReply, String> {
    let OpenReply { status, body } = open(listener, request)?;
    text_of(body).map(|body| HttpReply { status, body }).map_err(|error| no_reply(listener, request, &error))
}

/// Sends a request, and returns the reply when its body begins.
///
/// # Errors
/// As [`send`].
pub(super) fn open(listener: SocketAddr, request: &AdminRequest<'_>) -> Result<OpenReply, String> {
    exchange(reachable(listener), request).map_err(|error| no_reply(listener, request, &error))
}

/// The text of a reply's body.
pub(super) fn text_of(body: impl Read) -> io::Result<String> {
    let mut text = String::new();
    body.take(MAX_REPLY).read_to_string(&mut text)?;
    Ok(text)
}

fn no_reply(listener: SocketAddr, request: &AdminRequest<'_>, error: &io::Error) -> String {
    let (address, timeout) = (reachable(listener), request.timeout());
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("no reply from the admin address {address}: timed out after {timeout:?}")
        }
        _ => format!("no reply from the admin address {address}: {error}"),
    }
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
fn exchange(address: SocketAddr, request: &AdminRequest<'_>) -> io::Result<OpenReply> {
    let AdminRequest { path, token, body } = request;
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(request.timeout()))?;
    let method = if body.is_some() { "POST" } else { "GET" };
    let mut head = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n");
    if let Some(token) = token {
        head.push_str(&format!("Authorization: Bearer {}\r\n", token.reveal()));
    }
    if let Some(body) = body {
        head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
    }
    stream.write_all(format!("{head}\r\n{}", body.unwrap_or_default()).as_bytes())?;
    let mut body = BufReader::new(stream);
    let status = read_head(&mut body)?.ok_or_else(|| io::Error::other("the reply is not HTTP"))?;
    Ok(OpenReply { status, body })
}

/// Reads `HTTP/1.1 503 Service Unavailable`, header fields and an empty line; returns the status.
fn read_head(reply: &mut impl BufRead) -> io::Result<Option<u16>> {
    let mut head = String::new();
    let mut reader = reply.take(MAX_HEAD);
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let rest = head.split_once(' ').filter(|(version, _)| version.starts_with("HTTP/1."));
    Ok(rest.and_then(|(_, rest)| rest.get(..3)?.parse().ok()))
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
            assert_eq!(read_head(&mut text.as_bytes()).unwrap(), status, "{text:?}");
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
