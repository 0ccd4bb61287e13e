//! TLS on both sides, with rustls. Certificates are read from PEM files and reloaded when they change.
//!
//! [`ListenerTls`] is for clients, [`UpstreamTls`] for servers. New handshakes use the files loaded last; established
//! connections are not affected. This module must not know messages. [`explain`] describes failed handshakes;
//! [`crate::proxy::transport::socket`] wraps the streams.

mod explain;
mod pem;
mod unverified;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::proxy::transport::socket::SocketStream;
use crate::secret::Secret;
use crate::service::TlsFiles;

pub(in crate::proxy) use self::explain::from_upstream;
pub use self::pem::{FromFiles, LoadedFiles, PemSource, TlsError};

/// The PEM files of the listener side. The key may be in the certificate's file, as for mongod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerFiles {
    pub certificate: PathBuf,
    pub key: Option<PathBuf>,
    /// The password of the key, if it is encrypted.
    pub key_password: Option<Secret>,
    /// If set, clients must present a certificate signed by one of these authorities.
    pub client_ca: Option<PathBuf>,
}

/// TLS configuration for clients.
pub type ListenerTls = FromFiles<ListenerFiles>;

/// TLS configuration for servers.
pub type UpstreamTls = FromFiles<TlsFiles>;

impl ListenerTls {
    /// Performs the TLS handshake with a client.
    ///
    /// # Errors
    /// An error whose text explains to the operator why it failed.
    pub(in crate::proxy) async fn accept(&self, client: TcpStream) -> io::Result<SocketStream> {
        let acceptor = TlsAcceptor::from(self.current());
        match acceptor.accept(client).await {
            Ok(stream) => Ok(SocketStream::Tls(Box::new(stream.into()))),
            Err(error) => Err(io::Error::new(error.kind(), explain::client(&error))),
        }
    }
}

impl UpstreamTls {
    /// Performs the TLS handshake with the server named `host`.
    ///
    /// # Errors
    /// An error whose text explains to the operator why it failed.
    pub(in crate::proxy) async fn connect(&self, host: &str, server: TcpStream) -> io::Result<SocketStream> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(self.current());
        match connector.connect(name, server).await {
            Ok(stream) => Ok(SocketStream::Tls(Box::new(stream.into()))),
            Err(error) => Err(explain::upstream(&error)),
        }
    }
}

impl PemSource for ListenerFiles {
    type Config = ServerConfig;

    fn files(&self) -> Vec<&Path> {
        [Some(&self.certificate), self.key.as_ref(), self.client_ca.as_ref()]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
            .collect()
    }

    fn own_certificate(&self) -> Option<&Path> {
        Some(&self.certificate)
    }

    fn build(&self) -> Result<ServerConfig, TlsError> {
        let key_file = self.key.as_deref().unwrap_or(&self.certificate);
        let (chain, key) = (pem::certificates(&self.certificate)?, pem::key(key_file, self.key_password.as_ref())?);
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Library)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let authorities = Arc::new(pem::authorities(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider()).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| pem::unusable(path, &error))?)
            }
        };
        let built = builder.with_single_cert(chain, key);
        built.map_err(|error| pem::unusable_pair(&self.certificate, key_file, &error))
    }
}

impl PemSource for TlsFiles {
    type Config = ClientConfig;

    fn files(&self) -> Vec<&Path> {
        [&self.authorities, &self.certificate_key].into_iter().flatten().map(PathBuf::as_path).collect()
    }

    fn own_certificate(&self) -> Option<&Path> {
        self.certificate_key.as_deref()
    }

    fn build(&self) -> Result<ClientConfig, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Library)?;
        let builder = match &self.authorities {
            _ if self.allow_invalid_certificates => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(unverified::Unverified(provider())))
            }
            Some(path) => builder.with_root_certificates(pem::authorities(path)?),
            None => return Err(TlsError::NoAuthorities),
        };
        match &self.certificate_key {
            None => Ok(builder.with_no_client_auth()),
            Some(path) => builder
                .with_client_auth_cert(pem::certificates(path)?, pem::key(path, self.key_password.as_ref())?)
                .map_err(|error| pem::unusable_pair(path, path, &error)),
        }
    }
}

/// Passed explicitly, so that the process-wide default does not matter.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
