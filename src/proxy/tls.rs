//! TLS on both sides, by rustls: certificates are read from PEM files, and read again when they change.
//!
//! [`ListenerTls`] is what clients meet, [`UpstreamTls`] what docward dials with. New handshakes see what was
//! read last; connections that stand keep what they were made with. It must not know messages. What a failed
//! handshake means in plain words is in [`explain`]; the streams go on in [`super::socket`].

mod explain;
mod pem;
mod unverified;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use self::pem::{FromFiles, Source};
use super::socket::Stream;
use crate::service::{MongoService, TlsFiles};

pub(super) use self::explain::from_upstream;
pub use self::pem::TlsError;

/// How often the files are looked at. Links that change, as in Kubernetes' volumes, are noticed too.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The files of a listener's side. The key may be in the certificate's file, as MongoDB's own tools have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerFiles {
    pub certificate: PathBuf,
    pub key: Option<PathBuf>,
    /// Set: who shows no certificate signed by one of these is refused.
    pub client_ca: Option<PathBuf>,
}

/// TLS as clients meet it.
#[derive(Debug)]
pub struct ListenerTls(FromFiles<ListenerFiles>);

/// TLS as docward dials with it.
#[derive(Debug)]
pub struct UpstreamTls(FromFiles<TlsFiles>);

/// All certificates, to be kept fresh.
#[derive(Debug)]
pub struct Certificates {
    listener: Option<Arc<ListenerTls>>,
    upstream: Option<Arc<UpstreamTls>>,
    /// The driver's own reading of the same kind of files; this one tells when they change, and are good.
    service_tls: Option<UpstreamTls>,
    service: Arc<MongoService>,
}

impl ListenerTls {
    /// # Errors
    /// [`TlsError`]: what is wrong with a file, and what to do.
    pub fn load(files: ListenerFiles) -> Result<Self, TlsError> {
        FromFiles::load(files).map(Self)
    }

    /// Shakes hands with a client.
    ///
    /// # Errors
    /// Says in words for the operator why it failed.
    pub(super) async fn accept(&self, client: TcpStream) -> io::Result<Stream> {
        let acceptor = TlsAcceptor::from(self.0.current());
        match acceptor.accept(client).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream.into()))),
            Err(error) => Err(io::Error::new(error.kind(), explain::client(&error))),
        }
    }
}

impl UpstreamTls {
    /// # Errors
    /// [`TlsError`]: what is wrong with a file, and what to do.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        FromFiles::load(files).map(Self)
    }

    /// Shakes hands with the server that `host` is the name of.
    ///
    /// # Errors
    /// Says in words for the operator why it failed.
    pub(super) async fn connect(&self, host: &str, server: TcpStream) -> io::Result<Stream> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(self.0.current());
        match connector.connect(name, server).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream.into()))),
            Err(error) => Err(explain::upstream(&error)),
        }
    }
}

impl Certificates {
    /// # Errors
    /// [`TlsError`]: the service's connection string names files that cannot be used.
    pub fn new(
        listener: Option<Arc<ListenerTls>>,
        upstream: Option<Arc<UpstreamTls>>,
        service: Arc<MongoService>,
    ) -> Result<Self, TlsError> {
        let service_tls = service.tls_files().map(UpstreamTls::load).transpose()?;
        Ok(Self { listener, upstream, service_tls, service })
    }

    /// Reads the files that changed. What cannot be used changes nothing and is logged.
    pub fn reload(&self) {
        if let Some(tls) = &self.listener {
            changed("listeners", tls.0.reload());
        }
        if let Some(tls) = &self.upstream {
            changed("upstream", tls.0.reload());
        }
        if let Some(tls) = &self.service_tls
            && changed("service", tls.0.reload())
        {
            self.service.reconnect();
        }
    }

    /// Reloads whenever a file changes, and at once when `hint` says so. Never ends.
    pub async fn follow(&self, mut hint: impl AsyncFnMut()) {
        loop {
            let _ = tokio::time::timeout(LOOK_AGAIN, hint()).await;
            self.reload();
        }
    }
}

impl Source for ListenerFiles {
    type Config = ServerConfig;

    fn files(&self) -> Vec<&Path> {
        [Some(&self.certificate), self.key.as_ref(), self.client_ca.as_ref()]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
            .collect()
    }

    fn build(&self) -> Result<ServerConfig, TlsError> {
        let key_file = self.key.as_deref().unwrap_or(&self.certificate);
        let (chain, key) = (pem::certificates(&self.certificate)?, pem::key(key_file)?);
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
        builder.with_single_cert(chain, key).map_err(|error| pem::unusable(key_file, &error))
    }
}

impl Source for TlsFiles {
    type Config = ClientConfig;

    fn files(&self) -> Vec<&Path> {
        [&self.authorities, &self.certificate_key].into_iter().flatten().map(PathBuf::as_path).collect()
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
                .with_client_auth_cert(pem::certificates(path)?, pem::key(path)?)
                .map_err(|error| pem::unusable(path, &error)),
        }
    }
}

/// Whether there is something new; what came of it goes to the log.
fn changed(side: &'static str, reloaded: Result<bool, TlsError>) -> bool {
    match &reloaded {
        Ok(false) => {}
        Ok(true) => tracing::info!(side, "certificates were read again and hold for new connections"),
        Err(error) => tracing::error!(side, "changed certificates are not used, the old ones stay: {error}"),
    }
    reloaded.unwrap_or(false)
}

/// Named wherever a configuration is made, so that nothing depends on a default of the process.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
