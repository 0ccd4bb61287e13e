//! Parsers for the values of flags and configuration keys. Both use the same function, so that they report the same
//! errors.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use crate::config::{parse_duration, parse_size};
use crate::proxy::Advertised;
use crate::secret::Secret;
use crate::service::ConnectionString;

/// The shortest token in bytes. Shorter ones could be guessed.
const MIN_TOKEN_LENGTH: usize = 16;

/// A socket address; resolves a host name.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let mut addresses =
        text.to_socket_addrs().map_err(|error| format!("write HOST:PORT, for example 127.0.0.1:27018 ({error})"))?;
    addresses.next().ok_or_else(|| "the host name does not resolve to an address; write an IP address".to_owned())
}

/// An IP address, or a network of them.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().map(IpAddr::into).or_else(|_| text.parse::<IpNet>());
    let network = network.map_err(|_| "write an IP address, or a network such as 10.0.0.0/8")?;
    let whole = network.trunc();
    let error = || format!("write {whole} for the network, or {} for the one address", network.addr());
    if network == whole { Ok(network) } else { Err(error()) }
}

/// The admin address, and the host name it was given as, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AdminAddress {
    pub(super) address: SocketAddr,
    pub(super) name: Option<String>,
}

pub(super) fn admin_address(text: &str) -> Result<AdminAddress, String> {
    let address = address(text)?;
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    let name = text.parse::<SocketAddr>().is_err().then(|| host.to_owned());
    Ok(AdminAddress { address, name })
}

/// The path of a Unix socket.
pub(super) fn socket(path: impl Into<PathBuf>) -> Result<PathBuf, String> {
    let path = path.into();
    let named = std::os::unix::net::SocketAddr::from_pathname(&path);
    let length = path.as_os_str().len();
    named.map(|_| path).map_err(|_| format!("the path has {length} bytes, and that of a Unix socket at most 107"))
}

/// Bearer token of the admin address.
pub(super) fn token(text: &str) -> Result<Secret, String> {
    let fits = text.len() >= MIN_TOKEN_LENGTH && text.bytes().all(|byte| byte.is_ascii_graphic());
    let error = || format!("write at least {MIN_TOKEN_LENGTH} printable ASCII characters without spaces");
    if fits { Ok(Secret::new(text)) } else { Err(error()) }
}

/// The host name for replies to hello.
pub(super) fn host_name(text: &str) -> Result<String, String> {
    if text == "*" || text.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified()) {
        return Err("clients cannot connect to this; write the host name by which they reach docward".to_owned());
    }
    let bare = text.parse::<Ipv6Addr>().is_ok();
    if bare || !(text.is_empty() || text.contains([':', '/', ',', '@', ' '])) {
        return Ok(text.to_owned());
    }
    Err("write only the host name, for example proxy.example.com; docward adds the ports of its listeners".to_owned())
}

/// HOST, or HOST:PORT if the advertised port differs from the listener's.
pub(super) fn advertised(text: &str) -> Result<Advertised, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.starts_with('[') => {
            let port = port.parse().map_err(|_| "the port is not a number; write HOST or HOST:PORT")?;
            Ok(Advertised { host: host_name(host.trim_matches(['[', ']']))?, port: Some(port) })
        }
        _ => Ok(Advertised { host: host_name(text)?, port: None }),
    }
}

/// The listener of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemberEntry {
    pub(super) listen: SocketAddr,
    pub(super) advertise: Option<Advertised>,
}

/// A member's listener: `MEMBER=LISTEN`, or `MEMBER=LISTEN,ADVERTISE` if clients use another name.
pub(super) fn member(text: &str) -> Result<(String, MemberEntry), String> {
    let (name, listener) =
        text.split_once('=').ok_or("write MEMBER=LISTEN, for example db1.example.com:27017=0.0.0.0:27018")?;
    let (listen, advertise) = listener.split_once(',').map_or((listener, None), |(a, b)| (a, Some(b)));
    let entry = MemberEntry { listen: address(listen)?, advertise: advertise.map(advertised).transpose()? };
    Ok((member_name(name)?, entry))
}

/// A member's name in the replica set configuration.
pub(super) fn member_name(text: &str) -> Result<String, String> {
    let named = text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    named
        .then(|| text.to_owned())
        .ok_or_else(|| format!("`{text}`: write the member's HOST:PORT, as rs.conf() shows it"))
}

pub(super) fn connection_string(text: &str) -> Result<ConnectionString, String> {
    ConnectionString::parse(text).map_err(|error| error.to_string())
}

/// A duration as in the configuration file: `30s`, `5m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "write a number and a unit (ms, s, m, h, d): 90s, 5m; at most 36500d".to_owned())
}

/// A count of at least one.
pub(super) fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "write a whole number of at least 1".to_owned())
}

/// A size in bytes as in the configuration file: `256MiB`.
pub(super) fn size(text: &str) -> Result<usize, String> {
    parse_size(text).ok_or_else(|| "write a number and a unit (KiB, MiB, GiB): 256MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit() {
        for (text, bytes) in [("256MiB", 256 << 20), ("1 GiB", 1 << 30), ("64KiB", 65536)] {
            assert_eq!(size(text), Ok(bytes));
        }
        for text in ["", "0MiB", "256", "256MB", "-1KiB", "1.5GiB", "99999999999999999999GiB", "17179869184GiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_network_is_an_address_or_has_a_prefix() {
        for (text, contained, other) in [
            ("10.0.0.7", "10.0.0.7", "10.0.0.8"),
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("2001:db8::/32", "2001:db8::7", "2001:db9::7"),
        ] {
            let network = network(text).unwrap();
            assert!(network.contains(&contained.parse::<IpAddr>().unwrap()));
            assert!(!network.contains(&other.parse::<IpAddr>().unwrap()));
        }
        assert_eq!(
            network("10.0.0.7/8").unwrap_err(),
            "write 10.0.0.0/8 for the network, or 10.0.0.7 for the one address"
        );
        for text in ["", "balancer.example.com", "10.0.0.7:27018", "10.0.0.0/33", "10.0.0/8"] {
            assert!(network(text).unwrap_err().contains("10.0.0.0/8"), "{text}");
        }
    }

    #[test]
    fn an_admin_address_keeps_its_name() {
        let name = |text| admin_address(text).unwrap().name;
        assert_eq!(name("localhost:9216").as_deref(), Some("localhost"));
        assert_eq!((name("127.0.0.1:9216"), name("[::1]:9216")), (None, None));
        assert!(admin_address("9216").is_err());
        assert!(token("0123456789abcdef").is_ok());
        assert!(token("short").is_err() && token("0123456789abcdef and more").is_err());
    }

    #[test]
    fn a_member_has_a_listener_and_optionally_an_advertised_name() {
        let listen = "127.0.0.1:1".parse().unwrap();
        let other = Advertised { host: "other".into(), port: Some(7) };
        for (text, advertise) in [("db1:27017=127.0.0.1:1", None), ("db1:27017=127.0.0.1:1,other:7", Some(other))] {
            assert_eq!(member(text), Ok(("db1:27017".into(), MemberEntry { listen, advertise })));
        }
        for (text, expected) in [
            ("db1:27017", "write MEMBER=LISTEN"),
            ("db1=127.0.0.1:1", "as rs.conf() shows it"),
            ("db1:27017=here", "write HOST:PORT"),
            ("db1:27017=127.0.0.1:1,a:b", "the port is not a number"),
        ] {
            assert!(member(text).unwrap_err().contains(expected), "{text}");
        }
    }

    #[test]
    fn an_advertised_name_may_have_a_port() {
        for (text, host, port) in
            [("other", "other", None), ("other:7", "other", Some(7)), ("::1", "::1", None), ("[::1]:7", "::1", Some(7))]
        {
            assert_eq!(advertised(text), Ok(Advertised { host: host.into(), port }));
        }
        for (text, expected) in [
            ("a:b", "the port is not a number"),
            ("a/b", "write only the host name"),
            ("0.0.0.0", "clients cannot connect"),
            ("[::]:7", "clients cannot connect"),
            ("*", "clients cannot connect"),
        ] {
            assert!(advertised(text).unwrap_err().contains(expected));
        }
    }
}
