//! Connection strings, read by the driver's own parser: one meaning for what docward relays to and for what it
//! asks by itself.
//!
//! What is added: mongodb+srv names are looked up here ([`super::srv`]), and TLS without a `tlsCAFile` trusts
//! the system's store. Who dials is not known here.

use std::net::SocketAddr;
use std::path::PathBuf;

use mongodb::options::{ClientOptions, ConnectionString, Tls, TlsOptions};

use super::srv;

/// A connection string that cannot be used; the text says why, without its password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("this is no connection string: {0}")]
    Invalid(String),
    #[error("{0} is not supported: {1}")]
    Unsupported(&'static str, &'static str),
    #[error(transparent)]
    Srv(#[from] srv::SrvError),
}

impl ConnectionError {
    /// Whether the connection string may be right all the same: the name servers did not answer.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Srv(srv::SrvError::Lookup(..)))
    }
}

/// Options that the driver was built without, and what to do instead.
const UNSUPPORTED: [(&str, &str); 2] = [
    ("tlsAllowInvalidHostnames", "give the server a certificate for the name that is dialled, or dial the name it has"),
    ("tlsCertificateKeyFilePassword", "decrypt the key with: openssl pkey -in FILE -out key.pem"),
];

/// The files that a connection string's TLS options name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// `tlsCAFile`, or the system's store; `None` when there is neither.
    pub authorities: Option<PathBuf>,
    /// `tlsCertificateKeyFile`
    pub certificate_key: Option<PathBuf>,
    /// `tlsInsecure`, `tlsAllowInvalidCertificates`
    pub allow_invalid_certificates: bool,
}

impl From<&TlsOptions> for TlsFiles {
    fn from(options: &TlsOptions) -> Self {
        Self {
            authorities: options.ca_file_path.clone(),
            certificate_key: options.cert_key_file_path.clone(),
            allow_invalid_certificates: options.allow_invalid_certificates == Some(true),
        }
    }
}

/// What the driver makes of `uri`. `resolver`: the name server for mongodb+srv instead of the system's.
///
/// # Errors
/// [`ConnectionError`].
pub async fn options(uri: &str, resolver: Option<SocketAddr>) -> Result<ClientOptions, ConnectionError> {
    check(uri)?;
    let plain = srv::resolve(uri, resolver).await?;
    let mut options = ClientOptions::parse(&*plain).await.map_err(|error| invalid(&error))?;
    if let Some(Tls::Enabled(tls)) = &mut options.tls
        && tls.ca_file_path.is_none()
    {
        tls.ca_file_path = openssl_probe::probe().cert_file;
    }
    Ok(options)
}

/// Whether `uri` can be read, without asking anybody.
///
/// # Errors
/// [`ConnectionError::Invalid`], [`ConnectionError::Unsupported`], [`srv::SrvError::Form`].
pub fn check(uri: &str) -> Result<(), ConnectionError> {
    let options = uri.split_once('?').map_or("", |(_, options)| options);
    let names = |name: &str| options.split(['&', '=']).any(|part| part.eq_ignore_ascii_case(name));
    if let Some((name, instead)) = UNSUPPORTED.into_iter().find(|(name, _)| names(name)) {
        return Err(ConnectionError::Unsupported(name, instead));
    }
    ConnectionString::parse(&*srv::unresolved(uri)?).map(drop).map_err(|error| invalid(&error))
}

fn invalid(error: &mongodb::error::Error) -> ConnectionError {
    let text = error.kind.to_string();
    let text = text.strip_prefix("An invalid argument was provided: ").unwrap_or(&text);
    ConnectionError::Invalid(text.to_owned())
}
