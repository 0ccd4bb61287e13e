//! `docward health`: asks a running docward at its admin address how it is. For containers' health checks and probes:
//! an image without a shell has nobody else to ask.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::config::ConfigFile;
use super::{fail, print, values};

/// Who has not answered by then is not well; containers' own timeouts is longer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Reasons are some lines.
const MAX_ANSWER: u64 = 64 * 1024;

/// As typed.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The configuration file that it runs by, which says where its admin address is.
    #[arg(long, value_name = "FILE", required_unless_present = "admin")]
    config: Option<PathBuf>,
    /// Its admin address, instead of the one in the file.
    #[arg(long, value_name = "ADDR", value_parser = values::address)]
    admin: Option<SocketAddr>,
    /// Ask only whether it lives, not whether it is ready for clients.
    #[arg(long)]
    live: bool,
}

/// 0 when it is well; 1 when it is not, does not answer, or cannot be asked.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let address = match admin_address(arguments) {
        Ok(address) => reachable(address),
        Err(reason) => return fail(&reason, 1),
    };
    let path = if arguments.live { "/healthz" } else { "/readyz" };
    match ask(address, path) {
        Ok(Answer { status: 200, .. }) => print(b"ok\n"),
        Ok(Answer { status, body }) => fail(&format!("{path} answers {status}: {}", body.trim()), 1),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            fail(&format!("no answer from the admin address {address}: nothing was said within {TIMEOUT:?}"), 1)
        }
        Err(error) => fail(&format!("no answer from the admin address {address}: {error}"), 1),
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
        .ok_or_else(|| format!("{}: there is no `admin:` to ask at", path.display()))
}

/// What listens on all addresses is asked at its own machine's.
fn reachable(address: SocketAddr) -> SocketAddr {
    let host: IpAddr = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(host, address.port())
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    body: String,
}

/// By HTTP/1.0, so that the answer comes in one piece and ends with the connection. `localhost` is a name that every
/// admin address goes by.
fn ask(address: SocketAddr, path: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut text)?;
    read_answer(&text).ok_or_else(|| io::Error::other("what answers there does not speak HTTP"))
}

/// `HTTP/1.1 503 Service Unavailable`, header fields, an empty line, the body.
fn read_answer(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let (version, rest) = head.split_once(' ')?;
    let status = rest.get(..3)?.parse().ok()?;
    version.starts_with("HTTP/1.").then(|| Answer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_status_and_a_body() {
        for (text, status) in [
            ("HTTP/1.0 200 OK\r\n\r\n", Some(200)),
            ("HTTP/1.1 503 Service Unavailable\r\ncontent-type: x\r\n\r\ndraining", Some(503)),
            ("HTTP/1.1 200\r\n\r\n", Some(200)),
            ("HTTP/1.1 200 OK\r\n", None),
            ("HTTP/1.1 2\r\n\r\n", None),
            ("SSH-2.0-x 200 OK\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(read_answer(text).map(|answer| answer.status), status, "{text:?}");
        }
    }

    #[test]
    fn all_addresses_are_asked_at_loopback() {
        for (listened_on, asked) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.1:1", "10.0.0.1:1"), ("[::1]:1", "[::1]:1")]
        {
            assert_eq!(reachable(listened_on.parse().unwrap()), asked.parse().unwrap());
        }
    }
}
