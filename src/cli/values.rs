//! What a flag's or a key's text must be. One function for both: the flag's error and the file's diagnostic
//! say the same.

use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::proxy::Advertised;
use crate::rules::parse_duration;
use crate::service::connection;

/// A socket address; a host name is looked up.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let mut addresses =
        text.to_socket_addrs().map_err(|error| format!("write HOST:PORT, for example 127.0.0.1:27018 ({error})"))?;
    addresses.next().ok_or_else(|| "the name has no address; write an IP address instead".to_owned())
}

/// The name that hello answers give.
pub(super) fn host_name(text: &str) -> Result<String, String> {
    let bare = text.parse::<Ipv6Addr>().is_ok();
    if bare || !(text.is_empty() || text.contains([':', '/', ',', '@', ' '])) {
        return Ok(text.to_owned());
    }
    Err("write the host name only, for example proxy.example.com; the ports are those listened on".to_owned())
}

/// HOST, or HOST:PORT where the port outside is another one.
pub(super) fn advertised(text: &str) -> Result<Advertised, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.starts_with('[') => {
            let port = port.parse().map_err(|_| format!("the port is no number in `{text}`"))?;
            Ok(Advertised { host: host_name(host.trim_matches(['[', ']']))?, port: Some(port) })
        }
        _ => Ok(Advertised { host: host_name(text)?, port: None }),
    }
}

pub(super) fn connection_string(text: &str) -> Result<String, String> {
    connection::check(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// As in the file: `30s`, `5m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "write a number and a unit (ms, s, m, h, d): 90s, 5m".to_owned())
}

/// How many of something, at least one.
pub(super) fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "write a whole number of at least 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advertised_name_may_have_a_port() {
        for (text, host, port) in
            [("other", "other", None), ("other:7", "other", Some(7)), ("::1", "::1", None), ("[::1]:7", "::1", Some(7))]
        {
            assert_eq!(advertised(text), Ok(Advertised { host: host.into(), port }));
        }
        for (text, said) in [("a:b", "the port is no number"), ("a/b", "write the host name only")] {
            assert!(advertised(text).unwrap_err().contains(said));
        }
    }
}
