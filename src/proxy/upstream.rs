//! Where the deployment is: the connection string as the official driver understands it, and one question to
//! a server about its set.
//!
//! Sessions' own connections are made here too. Who listens for which member is decided in
//! [`super::topology`].

use std::fmt;
use std::time::Duration;

use mongodb::options::{ClientOptions, ServerAddress, Tls};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::document::{Document, Kind, Value, Writer};
use crate::wire::op_msg::{self, Message};
use crate::wire::{HEADER_LENGTH, Header};

/// How long connecting may take: longer than a lost SYN's second try, shorter than any driver's patience.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a hello reply; real ones have a few thousand.
const MAX_HELLO_LENGTH: usize = 1 << 20;
const DEFAULT_PORT: u16 = 27017;

/// A host and port to dial.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
    pub(super) role: Role,
    /// `setVersion`.
    pub(super) set_version: i64,
    /// `electionId`, of a primary.
    pub(super) election: Option<[u8; 12]>,
    /// `lastWrite.lastWriteDate`, in milliseconds since 1970 UTC by the clock of whoever was primary.
    pub(super) last_write: Option<i64>,
    /// As BSON; with it the server can be asked to answer when it has changed.
    pub(super) topology_version: Option<Vec<u8>>,
}

/// What a server is at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Role {
    Primary,
    Secondary,
    /// A standalone or a mongos.
    Alone,
    /// It starts, recovers, arbitrates or was removed: nothing for queries.
    #[default]
    Other,
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
        Ok(Self { seeds, direct: options.direct_connection == Some(true) })
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
}

impl Hello {
    /// Asks the server who it is; with `topology_version`, when it has another or after `await_for`.
    ///
    /// # Errors
    /// The socket's, `TimedOut`, or `InvalidData` for an answer that is none.
    pub(super) async fn ask<S>(
        stream: &mut S,
        topology_version: Option<&[u8]>,
        await_for: Duration,
    ) -> std::io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        timeout(CONNECT_TIMEOUT + await_for, async {
            stream.write_all(&hello_request(topology_version, await_for)).await?;
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

    /// Newer views of a set compare greater: a primary's over a secondary's, and as the driver specification
    /// "Server Discovery And Monitoring" compares primaries.
    pub(super) fn rank(&self) -> (bool, Option<[u8; 12]>, i64) {
        let primary = self.role == Role::Primary;
        (primary, self.election.filter(|_| primary), self.set_version)
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
        let last_write = body.get("lastWrite").and_then(Value::as_document);
        Ok(Self {
            me: body.get("me").and_then(text),
            members: list("hosts").chain(list("passives")).collect(),
            role: Role::of(body),
            set_version: body.get("setVersion").and_then(Value::as_integer).unwrap_or(0),
            election: body
                .get("electionId")
                .filter(|id| id.kind == Kind::ObjectId)
                .and_then(|id| id.bytes.try_into().ok()),
            last_write: last_write.and_then(|write| write.get("lastWriteDate")).and_then(Value::as_raw_i64),
            topology_version: body
                .get("topologyVersion")
                .and_then(Value::as_document)
                .map(|version| version.as_bytes().to_vec()),
        })
    }
}

impl Role {
    fn of(hello: Document<'_>) -> Self {
        let is = |key| hello.get(key).and_then(Value::as_bool) == Some(true);
        match (hello.get("setName").is_some(), is("isWritablePrimary"), is("secondary")) {
            (false, true, _) => Self::Alone,
            (true, true, _) => Self::Primary,
            // A delayed or hidden member says so, and no driver would choose it.
            (true, _, true) if !is("hidden") => Self::Secondary,
            _ => Self::Other,
        }
    }
}

fn hello_request(topology_version: Option<&[u8]>, await_for: Duration) -> Vec<u8> {
    let mut request = op_msg::Writer::new(1, 0, 0, 192);
    request.body(|out| {
        Writer::document(out, |w| {
            w.int32("hello", 1);
            if let Some(version) = topology_version {
                w.value("topologyVersion", Value { kind: Kind::Document, bytes: version });
                w.integer("maxAwaitTimeMS", i64::try_from(await_for.as_millis()).unwrap_or(i64::MAX));
            }
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
        assert!(matches!(Upstream::parse("mongodb://a/?tls=true").await, Err(UpstreamError::Tls)));
        assert!(matches!(Upstream::parse("a:27017").await, Err(UpstreamError::Invalid(_))));
    }
}
