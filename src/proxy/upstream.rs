//! Where the deployment is: the connection string as the official driver understands it, and one question to
//! a server about its set.
//!
//! Sessions' own connections are made here too. Who listens for which member is decided in
//! [`super::topology`].

use std::fmt;
use std::time::Duration;

use mongodb::options::{ClientOptions, ServerAddress, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::document::{Document, Value, Writer};
use crate::wire::compressed::{Compressor, Method};
use crate::wire::op_msg::{self, Message};
use crate::wire::{HEADER_LENGTH, Header};

/// How long connecting may take: longer than a lost SYN's second try, shorter than any driver's patience.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a hello reply; real ones have a few thousand.
const MAX_HELLO_LENGTH: usize = 1 << 20;
const DEFAULT_PORT: u16 = 27017;

/// A host and port to dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

/// What the `upstream` connection string says, as far as docward dials it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// In the order of the connection string; at least one.
    pub seeds: Vec<Address>,
    /// `directConnection=true`: only the first seed, whatever its set.
    pub direct: bool,
    /// `compressors=`, the best first; `None` when it says nothing of them.
    pub compressors: Option<Vec<Method>>,
}

/// Why a connection string cannot be used; the text says what to write instead.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error("the upstream connection string is not valid: {0}")]
    Invalid(String),
    #[error(
        "the upstream connection string asks for TLS, which docward does not speak yet; \
         remove tls=true (or use mongodb:// instead of mongodb+srv:// with tls=false)"
    )]
    Tls,
    #[error("the upstream connection string names a Unix socket; write host:port instead")]
    UnixSocket,
}

/// What one server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) me: Option<String>,
    /// Members that hold data, as the set's configuration names them; empty unless it is a replica set.
    pub(super) members: Vec<String>,
}

impl Upstream {
    /// Reads a connection string with the driver's own parser (which looks up mongodb+srv names).
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn parse(uri: &str) -> Result<Self, UpstreamError> {
        let options =
            ClientOptions::parse(uri).await.map_err(|error| UpstreamError::Invalid(error.kind.to_string()))?;
        if let Some(Tls::Enabled(_)) = options.tls {
            return Err(UpstreamError::Tls);
        }
        let seeds = options.hosts.into_iter().map(Address::from_driver).collect::<Result<_, _>>()?;
        let compressors = options.compressors.map(|list| list.iter().filter_map(method).collect());
        Ok(Self { seeds, direct: options.direct_connection == Some(true), compressors })
    }
}

fn method(compressor: &mongodb::options::Compressor) -> Option<Method> {
    use mongodb::options::Compressor as Known;
    match *compressor {
        Known::Snappy => Some(Compressor::Snappy.into()),
        Known::Zlib { level } => {
            Some(Method { compressor: Compressor::Zlib, level: level.and_then(|level| level.try_into().ok()) })
        }
        Known::Zstd { level } => Some(Method { compressor: Compressor::Zstd, level }),
        _ => None,
    }
}

impl Address {
    fn from_driver(address: ServerAddress) -> Result<Self, UpstreamError> {
        match address {
            ServerAddress::Tcp { host, port } => Ok(Self { host, port: port.unwrap_or(DEFAULT_PORT) }),
            _ => Err(UpstreamError::UnixSocket),
        }
    }

    /// Reads "host:port" as a replica set's configuration writes it; IPv6 addresses are in brackets.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (host, port) = name.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }

    /// # Errors
    /// The socket's, or `TimedOut` after [`CONNECT_TIMEOUT`].
    pub(super) async fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect((self.host.as_str(), self.port))).await??;
        super::socket::tune(&stream)?;
        Ok(stream)
    }

    /// Asks the server who it is.
    ///
    /// # Errors
    /// The socket's, `TimedOut`, or `InvalidData` for an answer that is none.
    pub(super) async fn hello(&self) -> std::io::Result<Hello> {
        let mut stream = self.connect().await?;
        timeout(CONNECT_TIMEOUT, async {
            stream.write_all(&hello_request()).await?;
            let mut reply = vec![0; HEADER_LENGTH];
            stream.read_exact(&mut reply).await?;
            let header = Header::parse(&reply).map_err(invalid)?.ok_or(std::io::ErrorKind::InvalidData)?;
            if header.length > MAX_HELLO_LENGTH {
                return Err(std::io::ErrorKind::InvalidData.into());
            }
            reply.resize(header.length, 0);
            stream.read_exact(reply.get_mut(HEADER_LENGTH..).unwrap_or_default()).await?;
            Hello::parse(&reply)
        })
        .await?
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Hello {
    fn parse(reply: &[u8]) -> std::io::Result<Self> {
        let message = Message::parse(reply).map_err(invalid)?;
        let body = Document::parse(message.body).map_err(invalid)?;
        let text = |value: Value<'_>| value.as_str().map(str::to_owned);
        let list =
            |key| body.get(key).and_then(Value::as_array).into_iter().flat_map(Document::values).filter_map(text);
        Ok(Self { me: body.get("me").and_then(text), members: list("hosts").chain(list("passives")).collect() })
    }
}

fn hello_request() -> Vec<u8> {
    let mut request = op_msg::Writer::new(1, 0, 0, 128);
    request.body(|out| {
        Writer::document(out, |w| {
            w.int32("hello", 1);
            w.string("$db", "admin");
        });
    });
    request.finish()
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_names_are_read_and_written() {
        for (name, host, port) in
            [("a:1", "a", 1), ("[::1]:27017", "::1", 27017), ("db.example.com:65535", "db.example.com", 65535)]
        {
            let address = Address::parse(name).unwrap();
            assert_eq!((address.host.as_str(), address.port), (host, port));
            assert_eq!(address.to_string(), name);
        }
        for name in ["", "a", "a:", "a:b", "a:70000"] {
            assert_eq!(Address::parse(name), None, "{name}");
        }
    }

    #[tokio::test]
    async fn connection_strings_are_read_as_the_driver_reads_them() {
        let upstream = Upstream::parse("mongodb://u:p@a,b:7/?replicaSet=rs0").await.unwrap();
        assert_eq!(upstream.seeds.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:27017", "b:7"]);
        assert!(!upstream.direct);
        assert!(Upstream::parse("mongodb://a/?directConnection=true").await.unwrap().direct);
        let list = "mongodb://a/?compressors=zstd,zlib,snappy&zlibCompressionLevel=9";
        let zlib = Method { compressor: Compressor::Zlib, level: Some(9) };
        let expected = vec![Compressor::Zstd.into(), zlib, Compressor::Snappy.into()];
        assert_eq!(Upstream::parse(list).await.unwrap().compressors, Some(expected));
        assert_eq!(upstream.compressors, None);
        assert!(matches!(Upstream::parse("mongodb://a/?compressors=lz4").await, Err(UpstreamError::Invalid(_))));
        assert!(matches!(Upstream::parse("mongodb://a/?tls=true").await, Err(UpstreamError::Tls)));
        assert!(matches!(Upstream::parse("a:27017").await, Err(UpstreamError::Invalid(_))));
    }
}
