//! Connection strings, parsed by the driver's parser, so that they mean the same for the relay and for docward's own
//! operations.
//!
//! Additions: mongodb+srv names are resolved here ([`super::srv`]), and TLS without `tlsCAFile` trusts the system's
//! store. This module opens no connections.

mod accepted;
mod blank;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use mongodb::options::{ClientOptions, ConnectionString as Driver, HostInfo, ServerAddress, Tls, TlsOptions};

use self::accepted::{Accepted, accepted};
use super::srv;
use crate::secret::Secret;

/// The port of a server that is named without one.
const DEFAULT_PORT: u16 = 27017;
const CONTRADICTORY_TLS: &str = "tls (or ssl) is false beside another option that asks for TLS; remove one of them";

/// A valid connection string. It is displayed as its hosts only; user, password and options are passed to the driver
/// only.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectionString {
    /// The string for the driver.
    driver: Secret,
    without_effect: Vec<(&'static str, &'static str)>,
    of_own_operations: Vec<&'static str>,
}

/// Why a connection string cannot be used. The text contains nothing that could be part of a password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("this is not a valid connection string: {0}")]
    Invalid(String),
    #[error("{0} is not supported: {1}")]
    Unsupported(&'static str, &'static str),
    #[error(transparent)]
    Srv(#[from] srv::SrvError),
}

impl ConnectionError {
    /// Whether the connection string may be valid nevertheless: the name servers did not answer.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Srv(srv::SrvError::Lookup(..)))
    }
}

impl ConnectionString {
    /// Parses `text` without network access.
    ///
    /// # Errors
    /// [`ConnectionError::Invalid`], [`ConnectionError::Unsupported`].
    pub fn parse(text: &str) -> Result<Self, ConnectionError> {
        let Accepted { driver, without_effect, of_own_operations, unsupported } = accepted(text);
        if let Some((name, instead)) = unsupported {
            return Err(ConnectionError::Unsupported(name, instead));
        }
        let text = &*driver;
        let read = |text: &str| Driver::parse(text).map(drop).map_err(|error| invalid(&error));
        match read(text) {
            // The driver reads some texts as hosts that cannot be any.
            Ok(()) => match blank::without_secrets(text) {
                Err(reason) => Err(ConnectionError::Invalid(reason)),
                Ok(_) => Ok(Self { driver: Secret::new(text), without_effect, of_own_operations }),
            },
            // The driver's errors quote the string, so it is parsed again without secrets for the message.
            Err(_) => Err(match blank::without_secrets(text) {
                Err(reason) => ConnectionError::Invalid(reason),
                Ok(blank) => {
                    read(&blank).err().unwrap_or_else(|| ConnectionError::Invalid(blank::MALFORMED.to_owned()))
                }
            }),
        }
    }

    pub(super) fn reveal(&self) -> &str {
        self.driver.reveal()
    }

    /// Returns the host and port of each server that it names.
    pub fn addresses(&self) -> Vec<(String, u16)> {
        let servers = match self.parsed().map(|parsed| parsed.host_info) {
            Some(HostInfo::HostIdentifiers(servers)) => servers,
            Some(HostInfo::DnsRecord(name)) => return vec![(name, DEFAULT_PORT)],
            _ => return Vec::new(),
        };
        let address = |server| match server {
            ServerAddress::Tcp { host, port } => Some((host, port.unwrap_or(DEFAULT_PORT))),
            _ => None,
        };
        servers.into_iter().filter_map(address).collect()
    }

    /// Returns the replica set that it names.
    pub fn replica_set(&self) -> Option<String> {
        self.parsed()?.replica_set
    }

    /// The options that docward accepts and that have no effect, each with the reason.
    pub fn without_effect(&self) -> &[(&'static str, &'static str)] {
        &self.without_effect
    }

    /// Returns whether it names a user or an authentication mechanism.
    pub fn has_credentials(&self) -> bool {
        self.parsed().is_some_and(|parsed| parsed.credential.is_some())
    }

    /// Returns whether it contains a secret: that of a user, or the password of a key.
    pub fn has_secret(&self) -> bool {
        self.has_credentials() || self.tls_files().is_some_and(|files| files.key_password.is_some())
    }

    /// The options that are for docward's own operations, not for those of clients.
    pub fn of_own_operations(&self) -> &[&'static str] {
        &self.of_own_operations
    }

    /// Returns the files of its TLS options; `None` without TLS.
    pub fn tls_files(&self) -> Option<TlsFiles> {
        match self.parsed()?.tls? {
            Tls::Enabled(options) => Some((&options).into()),
            Tls::Disabled => None,
        }
    }

    /// Parses it without a query to name servers.
    fn parsed(&self) -> Option<Driver> {
        Driver::parse(self.reveal()).ok()
    }
}

impl Default for ConnectionString {
    fn default() -> Self {
        let driver = Secret::new("mongodb://127.0.0.1:27017");
        Self { driver, without_effect: Vec::new(), of_own_operations: Vec::new() }
    }
}

impl fmt::Display for ConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blank::hosts(self.reveal()))
    }
}

impl fmt::Debug for ConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionString({self})")
    }
}

/// The files named by the TLS options of a connection string.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// `tlsCAFile`, or the system's store; `None` if neither exists.
    pub authorities: Option<PathBuf>,
    /// `tlsCertificateKeyFile`
    pub certificate_key: Option<PathBuf>,
    /// `tlsCertificateKeyFilePassword`
    pub key_password: Option<Secret>,
    /// `tlsInsecure`, `tlsAllowInvalidCertificates`
    pub allow_invalid_certificates: bool,
}

impl From<&TlsOptions> for TlsFiles {
    fn from(options: &TlsOptions) -> Self {
        let password = options.tls_certificate_key_file_password.as_deref();
        Self {
            authorities: options.ca_file_path.clone().or_else(|| openssl_probe::probe().cert_file),
            certificate_key: options.cert_key_file_path.clone(),
            key_password: password.map(|bytes| Secret::new(String::from_utf8_lossy(bytes))),
            allow_invalid_certificates: options.allow_invalid_certificates == Some(true),
        }
    }
}

/// Returns the driver's options for `uri`. `resolver`: the name server for mongodb+srv instead of the system's.
///
/// # Errors
/// [`ConnectionError`]: the string is invalid, unsupported or cannot be resolved.
pub async fn options(uri: &ConnectionString, resolver: Option<SocketAddr>) -> Result<ClientOptions, ConnectionError> {
    let mut parsed = uri.parsed().ok_or_else(|| ConnectionError::Invalid(blank::MALFORMED.to_owned()))?;
    srv::resolve(&mut parsed, resolver).await?;
    // What the driver still checks are numbers and combinations: the errors quote no secret.
    let mut options = ClientOptions::parse(parsed).await.map_err(|error| invalid(&error))?;
    if let Some(Tls::Enabled(tls)) = &mut options.tls {
        tls.ca_file_path = TlsFiles::from(&*tls).authorities;
    }
    Ok(options)
}

fn invalid(error: &mongodb::error::Error) -> ConnectionError {
    let text = error.kind.to_string();
    let text = text.strip_prefix("An invalid argument was provided: ").unwrap_or(&text);
    // The driver prints the template of this message.
    let text = if text.contains("{key}={tls}") { CONTRADICTORY_TLS } else { text };
    ConnectionError::Invalid(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No four consecutive letters of it occur in docward's messages.
    const PASSWORD: &str = "QxVzWkJpRyHf";
    /// Text that a typing mistake may insert, or put in the place of a character.
    const PUT: [&str; 21] = [
        "", "@", ":", "/", "?", "#", "[", "]", "%", "%zz", "%40", "&", "=", ",", " ", "\n", "'", "\\", ".", "ä", "://",
    ];

    fn shows_password(text: &str) -> bool {
        PASSWORD.as_bytes().windows(4).any(|part| text.as_bytes().windows(4).any(|other| other == part))
    }

    #[tokio::test]
    async fn no_mistake_in_a_connection_string_shows_its_password() {
        let strings =
            ["mongodb://user:QxVzWkJpRyHf@a.b.c:1/db?tls=true&bogus=1", "mongodb+srv://user:QxVzWkJpRyHf@a.b.c/"]
                .into_iter()
                .chain(["mongodb://h/?authMechanism=PLAIN&authMechanismProperties=X:QxVzWkJpRyHf&bogus=1"]);
        let (mut refused, mut read) = (0, 0);
        for string in strings {
            for at in 0..=string.len() {
                for (put, length) in PUT.iter().flat_map(|put| [(put, 0), (put, 1)]) {
                    let end = string.len().min(at + length);
                    let wrong = format!("{}{put}{}", &string[..at], &string[end..]);
                    match ConnectionString::parse(&wrong) {
                        Err(error) => {
                            refused += 1;
                            assert!(!shows_password(&format!("{error} {error:?}")), "{wrong}: {error}");
                        }
                        Ok(right) => {
                            read += 1;
                            assert!(!shows_password(&format!("{right} {right:?}")), "{wrong}: {right}");
                        }
                    }
                }
            }
        }
        assert!(refused > 1000 && read > 400, "{refused} {read}");
    }

    /// Options for connections to the servers, besides those for logins.
    const EFFECTIVE: [&str; 14] = [
        "",
        "compressors",
        "directConnection",
        "proxyHost",
        "replicaSet",
        "ssl",
        "tls",
        "tlsAllowInvalidCertificates",
        "tlsAllowInvalidHostnames",
        "tlsCAFile",
        "tlsCertificateKeyFile",
        "tlsInsecure",
        "zlibCompressionLevel",
        "srvMaxHosts",
    ];

    #[test]
    fn every_option_of_the_specification_is_accepted() {
        // mongodb/specifications, "URI Options", of 2025.
        let options = [
            "appName=a",
            "authMechanism=DEFAULT",
            "authMechanism=SCRAM-SHA-256",
            "authMechanismProperties=SERVICE_NAME:x",
            "authSource=admin",
            "compressors=zstd,snappy",
            "connectTimeoutMS=1",
            "directConnection=true",
            "enableOverloadRetargeting=true",
            "heartbeatFrequencyMS=500",
            "journal=true",
            "loadBalanced=false",
            "localThresholdMS=1",
            "maxAdaptiveRetries=1",
            "maxConnecting=2",
            "maxIdleTimeMS=1",
            "maxPoolSize=1",
            "readPreference=secondary&maxStalenessSeconds=90",
            "minPoolSize=1",
            "proxyHost=",
            "readConcernLevel=majority",
            "readPreference=nearest&readPreferenceTags=dc:ny",
            "replicaSet=rs",
            "retryReads=false",
            "retryWrites=true",
            "serverMonitoringMode=auto",
            "serverSelectionTimeoutMS=1",
            "serverSelectionTryOnce=false",
            "socketTimeoutMS=1",
            "ssl=true",
            "tls=true",
            "tlsAllowInvalidCertificates=true",
            "tlsAllowInvalidHostnames=false",
            "tlsCAFile=/a",
            "tlsCertificateKeyFile=/a",
            "tlsDisableCertificateRevocationCheck=true",
            "tlsDisableOCSPEndpointCheck=true",
            "tlsInsecure=true",
            "timeoutMS=1",
            "uuidRepresentation=standard",
            "uuidRepresentation=unspecified",
            "w=majority",
            "waitQueueTimeoutMS=1",
            "wTimeoutMS=1",
            "compressors=zlib&zlibCompressionLevel=1",
            "",
        ];
        for option in options {
            for uri in [format!("mongodb://u:p@h/?{option}"), format!("mongodb://u:p@h/?{option}&retryWrites=false&")] {
                let repeated = option.contains("retryWrites") && uri.ends_with("false&");
                let read = ConnectionString::parse(&uri);
                assert!(read.is_ok() != repeated, "{uri}: {read:?}");
                // Each has an effect on docward's connections for clients, or else there is a warning.
                let (name, Ok(read)) = (option.split('=').next().unwrap(), read) else { continue };
                let warned = read.without_effect().iter().any(|(known, _)| *known == name)
                    || read.of_own_operations().contains(&name);
                let has_effect = name.starts_with("auth") || EFFECTIVE.contains(&name);
                assert!(warned != has_effect, "{uri}: {read:?}");
            }
        }
        for option in ["srvMaxHosts=1", "srvServiceName=x"] {
            ConnectionString::parse(&format!("mongodb+srv://a.b.c/?{option}")).unwrap();
        }
    }

    #[test]
    fn a_mistake_is_named() {
        for (uri, expected) in [
            ("mongodb://u:p@h/?bogus=1", "bogus"),
            ("mongodb://local host/", "its host cannot be read"),
            ("mongodb://<host>:27017", "its host cannot be read"),
            ("mongodb://h1;h2/", "its host cannot be read"),
            ("mongodb://h/&replicaSet=rs0", "the options begin with `?`"),
            ("mongodb://u:p@h/replicaSet=rs0", "the options begin with `?`"),
            ("mongodb://h/?replicaSet=", "replicaSet has no value"),
            ("mongodb://h/?tls=true&replicaset=", "replicaSet has no value"),
            ("h:1", "it must begin with mongodb:// or mongodb+srv://"),
            ("mongodb://u:p@h:x/", "its host cannot be read"),
            ("mongodb://u:p@a:1,h:x/", "host 2 of 2 cannot be read"),
            ("mongodb://a:1,h:70000/", "host 2 of 2 cannot be read"),
            ("mongodb://u:p%@h/", "percent-encode special characters: @ as %40"),
            ("mongodb://u:p@q@h/", "percent-encode special characters: @ as %40"),
            ("mongodb://h/?tls=maybe", "tls"),
            ("mongodb://h/?tlsAllowInvalidHostnames=true", "tlsAllowInvalidHostnames is not supported"),
            ("mongodb://h/?tls=true&ssl=false", CONTRADICTORY_TLS),
            ("mongodb://h/?ssl=false&tls=true", CONTRADICTORY_TLS),
            ("mongodb://h/?tlsCAFile=/a&tls=false", CONTRADICTORY_TLS),
        ] {
            let error = ConnectionString::parse(uri).unwrap_err().to_string();
            assert!(error.contains(expected), "{uri}: {error}");
        }
    }
}
