//! `docward health`: queries the admin address of a running docward. For health checks and probes in containers whose
//! image has no shell or HTTP client.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::config::ConfigFile;
use super::{fail, print, values};

/// The longest wait for a reply. The timeouts of container health checks are usually longer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The longest reply in bytes; reasons take a few lines.
const MAX_REPLY: u64 = 64 * 1024;

/// The command line.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The configuration file of the running docward, with its admin address.
    #[arg(long, value_name = "FILE", required_unless_present = "admin")]
    config: Option<PathBuf>,
    /// The admin address, instead of the one in the file.
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    admin: Option<SocketAddr>,
    /// Check only that the process is alive, not that it is ready for clients.
    #[arg(long)]
    live: bool,
}

/// Exits with 0 if docward is healthy; with 1 if not, or without a reply.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let address = match admin_address(arguments) {
        Ok(address) => reachable(address),
        Err(reason) => return fail(&reason, 1),
    };
    let path = if arguments.live { "/healthz" } else { "/readyz" };
    match get(address, path) {
        Ok(HttpReply { status: 200, .. }) => print(b"ok\n"),
        Ok(HttpReply { status, body }) => fail(&format!("{path} returned {status}: {}", body.trim()), 1),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            fail(&format!("no reply from the admin address {address}: timed out after {TIMEOUT:?}"), 1)
        }
        Err(error) => fail(&format!("no reply from the admin address {address}: {error}"), 1),
    }
}

fn admin_address(arguments: &Arguments) -> Result<SocketAddr, String> {
    if let Some(address) = arguments.admin {
        return Ok(address);
    }
    let path = arguments.config.as_deref().unwrap_or_else(|| "docward.yaml".as_ref());
    let file = ConfigFile::read(path).map_err(|report| report.to_string())?;
    file.admin
        .address
        .map(|admin| admin.address)
        .ok_or_else(|| format!("{}: there is no `admin:` address", path.display()))
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

#[derive(Debug, PartialEq, Eq)]
struct HttpReply {
    status: u16,
    body: String,
}

/// Sends a GET request. With HTTP/1.0 the reply is not chunked and ends with the connection. Every admin address
/// accepts `localhost` as its host name.
fn get(address: SocketAddr, path: &str) -> io::Result<HttpReply> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
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
