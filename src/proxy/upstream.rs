//! Where the deployment is: the connection string as the official driver understands it.
//!
//! Sessions' own connections are made here too. Who listens for which member is decided in
//! [`super::topology`].

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mongodb::options::{ServerAddress, Tls};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::hello::{Hello, exchange};
use super::socket::{self, Stream};
use super::tls::{TlsError, UpstreamTls, from_upstream};
use crate::engine::{login_question, means_login_demanded};
use crate::service::connection::{self, ConnectionError, ConnectionString};
use crate::wire::compressed::{Compressor, Method};

/// How long connecting may take: longer than a lost SYN's second try, shorter than any driver's timeouts.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_PORT: u16 = 27017;

/// A host and port to dial.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

/// What the `upstream` connection string says, as far as docward dials it.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// In the order of the connection string; at least one.
    pub seeds: Vec<Address>,
    /// `directConnection=true`: only the first seed, whatever its set.
    pub direct: bool,
    /// `compressors=`, the best first; `None` when it says nothing of them.
    pub compressors: Option<Vec<Method>>,
    pub tls: Option<Arc<UpstreamTls>>,
    /// Whether a server of it was seen to demand a login. Shared by clones.
    demands_login: Arc<AtomicBool>,
}

/// Why a connection string cannot be used; the text says what to write instead.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the upstream connection string names a Unix socket; write host:port instead")]
    UnixSocket,
}

impl Upstream {
    /// Reads a connection string with the driver's own parser. `resolver`: see [`connection::options`].
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn parse(uri: &ConnectionString, resolver: Option<SocketAddr>) -> Result<Self, UpstreamError> {
        let options = connection::options(uri, resolver).await?;
        let tls = match &options.tls {
            Some(Tls::Enabled(options)) => Some(Arc::new(UpstreamTls::load(options.into())?)),
            _ => None,
        };
        let seeds = options.hosts.into_iter().map(Address::from_driver).collect::<Result<_, _>>()?;
        let compressors = options.compressors.map(|list| list.iter().filter_map(method).collect());
        let plain = Self::plain(seeds, options.direct_connection == Some(true));
        Ok(Self { compressors, tls, ..plain })
    }

    /// Without TLS, and with nothing said of compressors.
    pub(super) fn plain(seeds: Vec<Address>, direct: bool) -> Self {
        Self { seeds, direct, compressors: None, tls: None, demands_login: Arc::default() }
    }

    /// Dials a server.
    ///
    /// # Errors
    /// The socket's, `TimedOut` after [`CONNECT_TIMEOUT`], or why there is no TLS with it.
    pub(super) async fn connect(&self, address: &Address) -> io::Result<Stream> {
        timeout(CONNECT_TIMEOUT, async {
            let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
            socket::tune(&stream)?;
            match &self.tls {
                None => Ok(Stream::Plain(stream)),
                Some(tls) => tls.connect(&address.host, stream).await,
            }
        })
        .await?
    }

    /// What it may mean that a server closes the connection at the first message.
    fn unanswered(&self) -> &'static str {
        match self.tls {
            None => {
                "it closed the connection without an answer; if it demands TLS, add tls=true to the connection string"
            }
            Some(_) => {
                "it closed the connection after the TLS handshake; if it demands a client certificate, or another one, \
                 name it with tlsCertificateKeyFile= in the connection string"
            }
        }
    }

    /// Asks a server who it is.
    ///
    /// # Errors
    /// As [`Self::connect`], and `InvalidData` for an answer that is none.
    pub(super) async fn hello(&self, address: &Address) -> io::Result<Hello> {
        let mut stream = self.connect(address).await?;
        let hello = Hello::ask(&mut stream, None, Duration::ZERO).await.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => io::Error::new(error.kind(), self.unanswered()),
            _ => from_upstream(error),
        })?;
        self.note_login_demand(&mut stream).await;
        Ok(hello)
    }

    /// Finds out whether a server demands a login. It may have been started anew, with other settings.
    pub(super) async fn learn_login_demand(&self, address: &Address) {
        if let Ok(mut stream) = self.connect(address).await {
            self.note_login_demand(&mut stream).await;
        }
    }

    /// Whether clients have to log in, as far as that is known.
    pub(super) fn demands_login(&self) -> bool {
        self.demands_login.load(Ordering::Relaxed)
    }

    /// Without an answer things stay as they were.
    async fn note_login_demand(&self, stream: &mut Stream) {
        let reply = timeout(CONNECT_TIMEOUT, exchange(stream, &login_question(2))).await;
        if let Some(demanded) = reply.ok().and_then(Result::ok).and_then(|reply| means_login_demanded(&reply)) {
            self.demands_login.store(demanded, Ordering::Relaxed);
        }
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
        let parse = async |uri: &str| Upstream::parse(&ConnectionString::parse(uri)?, None).await;
        let upstream = parse("mongodb://u:p@a,b:7/?replicaSet=rs0").await.unwrap();
        assert_eq!(upstream.seeds.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:27017", "b:7"]);
        assert!(!upstream.direct && upstream.tls.is_none());
        assert!(parse("mongodb://a/?directConnection=true").await.unwrap().direct);
        let list = "mongodb://a/?compressors=zstd,zlib,snappy&zlibCompressionLevel=9";
        let zlib = Method { compressor: Compressor::Zlib, level: Some(9) };
        let expected = vec![Compressor::Zstd.into(), zlib, Compressor::Snappy.into()];
        assert_eq!(parse(list).await.unwrap().compressors, Some(expected));
        assert_eq!(upstream.compressors, None);
        assert!(matches!(parse("mongodb://a/?compressors=lz4").await, Err(UpstreamError::Connection(_))));
        assert!(parse("mongodb://a/?tlsInsecure=true&tls=true").await.unwrap().tls.is_some());
        let missing = parse("mongodb://a/?tls=true&tlsCAFile=/none.pem").await.unwrap_err();
        assert!(missing.to_string().starts_with("/none.pem cannot be read"), "{missing}");
        assert!(matches!(parse("a:27017").await, Err(UpstreamError::Connection(_))));
    }
}
