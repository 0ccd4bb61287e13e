//! The upstream deployment: parses the connection string with the official driver, and connects to servers.
//!
//! [`crate::proxy::members::topology`] maps listeners to members.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join_all, select_ok};
use mongodb::options::{ServerAddress, Tls};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::engine::{login_question, requires_login};
use crate::proxy::server_side::hello::{CONNECT_TIMEOUT, Hello, exchange};
use crate::proxy::transport::socket::{self, SocketStream};
use crate::proxy::transport::tls::{TlsError, UpstreamTls, from_upstream};
use crate::service::connection::{self, ConnectionError, ConnectionString};
use crate::service::set_name::other_set;
use crate::wire::compressed::{CompressionMethod, Compressor};

const DEFAULT_PORT: u16 = 27017;
/// How long the start waits to compare two deployments.
const DEPLOYMENT_TIMEOUT: Duration = Duration::from_secs(2);

/// A host and port to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

/// The parts of the `upstream` connection string that docward uses.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// In the order of the connection string; at least one.
    pub seeds: Vec<Address>,
    /// `directConnection=true`: only the first seed, whatever its replica set.
    pub direct: bool,
    /// `replicaSet=`
    pub replica_set: Option<String>,
    /// `compressors=`, in order of preference; `None` if not given.
    pub compressors: Option<Vec<CompressionMethod>>,
    pub tls: Option<Arc<UpstreamTls>>,
    /// Whether a server was seen to require a login. Shared by clones.
    requires_login: Arc<AtomicBool>,
}

/// Why a connection string cannot be used. The text contains what to write instead.
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
    /// Parses a connection string with the driver's parser. `resolver`: see [`connection::options`].
    ///
    /// # Errors
    /// [`UpstreamError`]: the connection string or its TLS files cannot be used.
    pub async fn parse(uri: &ConnectionString, resolver: Option<SocketAddr>) -> Result<Self, UpstreamError> {
        let options = connection::options(uri, resolver).await?;
        let tls = match &options.tls {
            Some(Tls::Enabled(options)) => Some(Arc::new(UpstreamTls::load(options.into())?)),
            _ => None,
        };
        let seeds = options.hosts.into_iter().map(Address::from_driver).collect::<Result<_, _>>()?;
        let compressors = options.compressors.map(|list| list.iter().filter_map(method).collect());
        let plain = Self::plain(seeds, options.direct_connection == Some(true));
        Ok(Self { replica_set: options.repl_set_name, compressors, tls, ..plain })
    }

    /// An upstream without TLS and compressors.
    pub(in crate::proxy) fn plain(seeds: Vec<Address>, direct: bool) -> Self {
        Self { seeds, direct, replica_set: None, compressors: None, tls: None, requires_login: Arc::default() }
    }

    /// Describes a server of the connection string that is not a member of the replica set that `replicaSet=` names;
    /// `None` if all are, as far as they answer. Drivers do not use such a server (specification "Server Discovery And
    /// Monitoring").
    pub async fn other_set(&self) -> Option<String> {
        let wanted = self.replica_set.as_deref()?;
        let asked = self.seeds.iter().map(async |seed| Some((seed, self.hello(seed).await.ok()?)));
        let replies = join_all(asked).await;
        replies
            .into_iter()
            .flatten()
            .find_map(|(seed, hello)| other_set(wanted, &seed.to_string(), hello.set.as_deref()))
    }

    /// Describes a server of `other` that belongs to another deployment; `None` if none does, as far as is known in time.
    pub async fn other_deployment(&self, other: &Self) -> Option<String> {
        let replies = async { tokio::join!(self.any_hello(), other.any_hello()) };
        let ((own, hello), (seed, other)) = match timeout(DEPLOYMENT_TIMEOUT, replies).await.ok()? {
            (Some(own), Some(other)) => (own, other),
            _ => return None,
        };
        (!hello.is_of_same_deployment(&other)).then(|| {
            format!(
                "{seed}, {}, is not of the deployment of `upstream` ({own}, {}): docward keeps its counters there; name the \
                 same servers",
                other.deployment(),
                hello.deployment()
            )
        })
    }

    /// The hello of a server of the connection string that answers.
    async fn any_hello(&self) -> Option<(&Address, Hello)> {
        let asked =
            self.seeds.iter().map(|seed| Box::pin(async move { Ok::<_, io::Error>((seed, self.hello(seed).await?)) }));
        select_ok(asked).await.ok().map(|(found, _)| found)
    }

    /// Connects to a server.
    ///
    /// # Errors
    /// I/O errors of the socket, `TimedOut` after [`CONNECT_TIMEOUT`], or why the TLS handshake failed.
    pub async fn connect(&self, address: &Address) -> io::Result<SocketStream> {
        timeout(CONNECT_TIMEOUT, async {
            let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
            socket::tune(&stream)?;
            match &self.tls {
                None => Ok(SocketStream::Plain(stream)),
                Some(tls) => tls.connect(&address.host, stream).await,
            }
        })
        .await?
    }

    /// The likely reason why a server closes the connection at the first message.
    fn explain_no_reply(&self) -> &'static str {
        match self.tls {
            None => {
                "it closed the connection without a reply; if it requires TLS, add tls=true to the connection string"
            }
            Some(_) => {
                "it closed the connection after the TLS handshake; if it requires a client certificate, or another \
                 one, name it with tlsCertificateKeyFile= in the connection string"
            }
        }
    }

    /// Sends a hello to a server on a new connection.
    ///
    /// # Errors
    /// As [`Self::connect`], and `InvalidData` for an invalid reply.
    pub(in crate::proxy) async fn hello(&self, address: &Address) -> io::Result<Hello> {
        let mut stream = self.connect(address).await?;
        let hello = Hello::ask(&mut stream, None, Duration::ZERO).await.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
                io::Error::new(error.kind(), self.explain_no_reply())
            }
            _ => from_upstream(error),
        })?;
        self.note_login_requirement(&mut stream).await;
        Ok(hello)
    }

    /// Checks whether a server requires a login. It may have been restarted with other settings.
    pub(in crate::proxy) async fn check_login_requirement(&self, address: &Address) {
        if let Ok(mut stream) = self.connect(address).await {
            self.note_login_requirement(&mut stream).await;
        }
    }

    /// Whether clients must log in, as far as is known.
    pub(in crate::proxy) fn requires_login(&self) -> bool {
        self.requires_login.load(Ordering::Relaxed)
    }

    /// Keeps the previous result if the server does not answer.
    async fn note_login_requirement(&self, stream: &mut SocketStream) {
        let reply = timeout(CONNECT_TIMEOUT, exchange(stream, &login_question(2))).await;
        if let Some(demanded) = reply.ok().and_then(Result::ok).and_then(|reply| requires_login(&reply)) {
            self.requires_login.store(demanded, Ordering::Relaxed);
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

    /// Parses "host:port" as in a replica set's configuration; IPv6 addresses are in brackets.
    pub fn parse(name: &str) -> Option<Self> {
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

fn method(compressor: &mongodb::options::Compressor) -> Option<CompressionMethod> {
    use mongodb::options::Compressor as Known;
    match *compressor {
        Known::Snappy => Some(Compressor::Snappy.into()),
        Known::Zlib { level } => Some(CompressionMethod {
            compressor: Compressor::Zlib,
            level: level.and_then(|level| level.try_into().ok()),
        }),
        Known::Zstd { level } => Some(CompressionMethod { compressor: Compressor::Zstd, level }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_names_are_parsed_and_formatted() {
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
    async fn connection_strings_are_parsed_by_the_driver() {
        let parse = async |uri: &str| Upstream::parse(&ConnectionString::parse(uri)?, None).await;
        let upstream = parse("mongodb://u:p@a,b:7/?replicaSet=rs0").await.unwrap();
        assert_eq!(upstream.seeds.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:27017", "b:7"]);
        assert!(!upstream.direct && upstream.tls.is_none() && upstream.replica_set.as_deref() == Some("rs0"));
        assert!(parse("mongodb://a/?directConnection=true").await.unwrap().direct);
        let list = "mongodb://a/?compressors=zstd,zlib,snappy&zlibCompressionLevel=9";
        let zlib = CompressionMethod { compressor: Compressor::Zlib, level: Some(9) };
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
