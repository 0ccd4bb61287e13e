//! The header of the PROXY protocol, version 1 or 2, in which a balancer names its client before that one's first byte
//! (haproxy.org, proxy-protocol.txt). Read strictly, because limits, logs and permits rely on the address.
//!
//! It is parsed here rather than by a crate: those that exist accept more than the specification does, and ask for more
//! bytes where these cannot be a header any more.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::{self, FromStr};

/// The first bytes of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Version 1 is one line of at most this length.
const MAX_LINE_LENGTH: usize = 107;

/// What the bytes that have arrived show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyHeader {
    /// At least this many further bytes belong to the header, so that reading them reads nothing that follows it.
    Incomplete(usize),
    /// The client's address; `None`: the balancer connects for itself, as for a health check, or does not know it.
    Complete(Option<SocketAddr>),
}

/// Why the bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    #[error("there is no PROXY protocol header")]
    Missing,
    #[error("the PROXY protocol header is malformed: {0}")]
    Malformed(&'static str),
}

/// Reads the bytes of a header that have arrived: none at first, then as many more as were asked for each time.
///
/// # Errors
/// [`ProxyHeaderError`].
pub fn parse(bytes: &[u8]) -> Result<ProxyHeader, ProxyHeaderError> {
    let missing = SIGNATURE.len().saturating_sub(bytes.len());
    if missing > 0 {
        // The shortest header, "PROXY UNKNOWN\r\n", has 15 bytes.
        return Ok(ProxyHeader::Incomplete(missing));
    }
    match (bytes.strip_prefix(b"PROXY "), bytes.strip_prefix(&SIGNATURE)) {
        (Some(line), _) => version_1(line, bytes.len()),
        (_, Some(rest)) => version_2(rest),
        (None, None) => Err(ProxyHeaderError::Missing),
    }
}

/// `TCP4 SOURCE DESTINATION SOURCE-PORT DESTINATION-PORT`, with one space between two of them, or `UNKNOWN` and anything.
fn version_1(rest: &[u8], read: usize) -> Result<ProxyHeader, ProxyHeaderError> {
    let malformed = ProxyHeaderError::Malformed("its line is not PROXY TCP4 or TCP6 with two addresses and two ports");
    let Some(line) = rest.strip_suffix(b"\r\n") else {
        let missing = if rest.ends_with(b"\r") { 1 } else { 2 };
        return if read + missing > MAX_LINE_LENGTH { Err(malformed) } else { Ok(ProxyHeader::Incomplete(missing)) };
    };
    let words: Vec<&str> = str::from_utf8(line).map_err(|_| malformed)?.split(' ').collect();
    let client = match words[..] {
        ["UNKNOWN", ..] => return Ok(ProxyHeader::Complete(None)),
        ["TCP4", source, destination, from, to] => tcp::<Ipv4Addr>([source, destination], [from, to]),
        ["TCP6", source, destination, from, to] => tcp::<Ipv6Addr>([source, destination], [from, to]),
        _ => None,
    };
    client.map(|client| ProxyHeader::Complete(Some(client))).ok_or(malformed)
}

fn tcp<A: FromStr + Into<IpAddr>>([source, destination]: [&str; 2], [from, to]: [&str; 2]) -> Option<SocketAddr> {
    destination.parse::<A>().ok()?;
    port(to)?;
    Some(SocketAddr::new(source.parse::<A>().ok()?.into(), port(from)?))
}

/// A decimal number without sign and leading zeros.
fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port: &u16| port.to_string() == text)
}

fn version_2(after_signature: &[u8]) -> Result<ProxyHeader, ProxyHeaderError> {
    let Some((&[command, family, high, low], rest)) = after_signature.split_first_chunk() else {
        return Ok(ProxyHeader::Incomplete(4 - after_signature.len()));
    };
    if let Some(missing @ 1..) = usize::from(u16::from_be_bytes([high, low])).checked_sub(rest.len()) {
        return Ok(ProxyHeader::Incomplete(missing));
    }
    let client = match (command, family) {
        // LOCAL; an unknown family, or a Unix socket.
        (0x20, _) | (0x21, 0x00 | 0x31) => return Ok(ProxyHeader::Complete(None)),
        (0x21, 0x11) => source::<4>(rest),
        (0x21, 0x21) => source::<16>(rest),
        (0x21, _) => return Err(ProxyHeaderError::Malformed("it does not describe a TCP connection")),
        _ => return Err(ProxyHeaderError::Malformed("its version or command is unknown")),
    };
    let malformed = ProxyHeaderError::Malformed("it is too short for two addresses");
    client.map(|client| ProxyHeader::Complete(Some(client))).ok_or(malformed)
}

/// The first of two addresses with their ports. What follows them is not used.
fn source<const N: usize>(addresses: &[u8]) -> Option<SocketAddr>
where
    IpAddr: From<[u8; N]>,
{
    let (source, rest) = addresses.split_first_chunk::<N>()?;
    let (_destination, rest) = rest.split_first_chunk::<N>()?;
    let (port, rest) = rest.split_first_chunk()?;
    let _destination_port: &[u8; 2] = rest.first_chunk()?;
    Some(SocketAddr::new((*source).into(), u16::from_be_bytes(*port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a header as docward does: the bytes that are asked for, and no more.
    fn client_of(mut sent: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderError> {
        let mut bytes = Vec::new();
        loop {
            match parse(&bytes)? {
                ProxyHeader::Complete(client) => {
                    assert_eq!(sent, b"next", "all of the header and nothing else");
                    return Ok(client);
                }
                ProxyHeader::Incomplete(missing) => {
                    let (part, rest) = sent.split_at_checked(missing).expect("a header that ends");
                    bytes.extend_from_slice(part);
                    sent = rest;
                }
            }
        }
    }

    fn line(line: &str) -> Result<Option<SocketAddr>, ProxyHeaderError> {
        client_of(format!("PROXY {line}\r\nnext").as_bytes())
    }

    fn binary(command: u8, family: u8, body: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderError> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        client_of(&[&SIGNATURE[..], &[command, family], &length, body, b"next"].concat())
    }

    #[test]
    fn headers_name_the_client() {
        let client = |text: &str| Ok(Some(text.parse().unwrap()));
        assert_eq!(line("TCP4 192.0.2.7 10.0.0.1 5000 27018"), client("192.0.2.7:5000"));
        assert_eq!(line("TCP6 2001:db8::7 2001:db8::1 65535 1"), client("[2001:db8::7]:65535"));
        assert_eq!(line(&format!("TCP6 {0} {0} 65535 65535", ["ffff"; 8].join(":"))).map(|it| it.is_some()), Ok(true));
        let four = [&[192, 0, 2, 7, 10, 0, 0, 1][..], &5000u16.to_be_bytes(), &[1, 2]].concat();
        assert_eq!(binary(0x21, 0x11, &four), client("192.0.2.7:5000"));
        let more = [&four[..], &[0x04, 0, 1, 0], &vec![7; 60_000]].concat();
        assert_eq!(binary(0x21, 0x11, &more), client("192.0.2.7:5000"), "with further fields");
        let source: Ipv6Addr = "2001:db8::7".parse().unwrap();
        let six = [&source.octets()[..], &[1; 16], &5000u16.to_be_bytes(), &[1, 2]].concat();
        assert_eq!(binary(0x21, 0x21, &six), client("[2001:db8::7]:5000"));
        for (command, family, body) in
            [(0x20, 0, &[][..]), (0x20, 0x11, &four), (0x21, 0, &[]), (0x21, 0x31, &[1; 216])]
        {
            assert_eq!(binary(command, family, body), Ok(None));
        }
        for unknown in ["UNKNOWN", "UNKNOWN ffff::1 ffff::2 1 2 and more"] {
            assert_eq!(line(unknown), Ok(None));
        }
    }

    #[test]
    fn anything_else_is_an_error() {
        for missing in [&[0x30; 16][..], b"PROXYTCP4 1.1.1.1", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\x12\x34"] {
            assert_eq!(client_of(missing), Err(ProxyHeaderError::Missing));
        }
        for malformed in [
            "TCP4 192.0.2.7 10.0.0.1 5000",
            "TCP4 192.0.2.7 10.0.0.1 5000 27018 ",
            "TCP4  192.0.2.7 10.0.0.1 5000 27018",
            "TCP4 192.0.2.007 10.0.0.1 5000 27018",
            "TCP4 192.0.2.7 10.0.0.1 05000 27018",
            "TCP4 192.0.2.7 10.0.0.1 +5000 27018",
            "TCP4 192.0.2.7 10.0.0.1 5000 65536",
            "TCP4 2001:db8::7 2001:db8::1 5000 27018",
            "TCP6 192.0.2.7 10.0.0.1 5000 27018",
            "tcp4 192.0.2.7 10.0.0.1 5000 27018",
            "UDP4 192.0.2.7 10.0.0.1 5000 27018",
            "UNKNOWNS and more",
        ] {
            assert!(matches!(line(malformed), Err(ProxyHeaderError::Malformed(_))), "{malformed}");
        }
        let endless = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat();
        assert!(matches!(client_of(&endless), Err(ProxyHeaderError::Malformed(_))));
        for (command, family, body) in
            [(0x11, 0x11, [1; 12]), (0x22, 0x11, [1; 12]), (0x21, 0x12, [1; 12]), (0x21, 0x21, [1; 12])]
        {
            assert!(
                matches!(binary(command, family, &body), Err(ProxyHeaderError::Malformed(_))),
                "{command} {family}"
            );
        }
        assert!(binary(0x21, 0x11, &[1; 11]).is_err());
    }
}
