//! Reads PEM files, describes what is wrong with them, and reloads them when their content changes.
//!
//! One file with both key and certificate, as MongoDB uses, also works. This module knows files, not handshakes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use memchr::memmem;
use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_parser::pem::Pem;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate, X509Version};

use crate::config::read_file;
use crate::secret::Secret;

/// Bytes of a PEM file; a system's certificate store has a few hundred thousand.
const MAX_PEM_LENGTH: usize = 8 << 20;

/// Why TLS cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{0} cannot be read: {1}")]
    Unreadable(PathBuf, io::Error),
    #[error("{0} is not a PEM file: {1}")]
    NotPem(PathBuf, String),
    #[error("{0} contains no certificate; it needs a block that begins with -----BEGIN CERTIFICATE-----")]
    NoCertificate(PathBuf),
    #[error("{0} contains no private key; name the file that does (a key and its certificate may share one)")]
    NoKey(PathBuf),
    #[error(
        "the private key in {0} is encrypted; give its password with key_password_file or key_password under `tls`, or with \
         tlsCertificateKeyFilePassword in the connection string"
    )]
    EncryptedKey(PathBuf),
    #[error("the private key in {0} cannot be decrypted with its password: {1}")]
    WrongPassword(PathBuf, pkcs8::Error),
    #[error("{0} contains no encrypted private key; remove the password, or name the file that does")]
    NotEncrypted(PathBuf),
    #[error(
        "the private key in {0} is encrypted as OpenSSL did before PKCS #8; convert it with: openssl pkcs8 -topk8 -in {0} \
         -out key.pem"
    )]
    OldEncryption(PathBuf),
    #[error("docward's certificate in {0} expired on {1}; renew it")]
    Expired(PathBuf, String),
    #[error(
        "docward's certificate in {0} is not valid before {1}; check the clock, or use a certificate that is valid"
    )]
    NotYetValid(PathBuf, String),
    #[error("{0}: this key does not belong to this certificate, {1}; name the key that the certificate was made with")]
    OtherKey(PathBuf, PathBuf),
    #[error("{0} cannot be used: {1}")]
    Unusable(PathBuf, String),
    #[error("this system has no certificate store; name the upstream's CA with tlsCAFile= in the connection string")]
    NoAuthorities,
    #[error("TLS cannot be set up: {0}")]
    Library(rustls::Error),
}

impl TlsError {
    /// The file that is wrong; `None`: the error is about none.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Unreadable(file, _)
            | Self::NotPem(file, _)
            | Self::NoCertificate(file)
            | Self::NoKey(file)
            | Self::EncryptedKey(file)
            | Self::WrongPassword(file, _)
            | Self::NotEncrypted(file)
            | Self::OldEncryption(file)
            | Self::Expired(file, _)
            | Self::NotYetValid(file, _)
            | Self::OtherKey(file, _)
            | Self::Unusable(file, _) => Some(file),
            Self::NoAuthorities | Self::Library(_) => None,
        }
    }
}

/// The files a configuration is built from.
pub trait PemSource: Clone + PartialEq + Send + Sync + 'static {
    type Config: std::fmt::Debug + Send + Sync;

    fn files(&self) -> Vec<&Path>;

    /// The file with docward's own certificate; `None`: it presents none.
    fn own_certificate(&self) -> Option<&Path>;

    /// Builds the configuration.
    ///
    /// # Errors
    /// [`TlsError`]: a file cannot be used.
    fn build(&self) -> Result<Self::Config, TlsError>;
}

/// A configuration that can be reloaded from its files, or from others.
#[derive(Debug)]
pub struct FromFiles<S: PemSource> {
    in_use: ArcSwap<LoadedFiles<S>>,
    /// Whether the reload that is being prepared replaces the files themselves.
    being_replaced: AtomicBool,
}

/// A configuration and the files it was built from.
#[derive(Debug)]
pub struct LoadedFiles<S: PemSource> {
    source: S,
    config: Arc<S::Config>,
    /// A hash of the content that it was built from.
    made_from: u64,
    /// The end of the validity of docward's own certificate, in seconds since 1970 UTC; 0: it presents none.
    valid_until: i64,
}

impl<S: PemSource> LoadedFiles<S> {
    /// Loads the configuration.
    ///
    /// # Errors
    /// [`TlsError`]: what is wrong with a file, and what to do.
    pub fn load(source: S) -> Result<Self, TlsError> {
        // Hashed first: if a file changes meanwhile, the next check sees a different hash.
        let made_from = content(&source);
        let config = Arc::new(source.build()?);
        let valid_until = validity_end(&source)?;
        Ok(Self { source, config, made_from, valid_until })
    }
}

impl<S: PemSource> FromFiles<S> {
    /// Loads the configuration.
    ///
    /// # Errors
    /// As [`LoadedFiles::load`].
    pub fn load(source: S) -> Result<Self, TlsError> {
        let in_use = ArcSwap::from_pointee(LoadedFiles::load(source)?);
        Ok(Self { in_use, being_replaced: AtomicBool::new(false) })
    }

    /// Returns what is wrong with the files: all that cannot be read, else what [`Self::load`] returns.
    pub fn mistakes(source: S) -> Vec<TlsError> {
        let unreadable: Vec<TlsError> = source.files().into_iter().filter_map(|file| read_pem(file).err()).collect();
        if unreadable.is_empty() { LoadedFiles::load(source).err().into_iter().collect() } else { unreadable }
    }

    /// Uses another configuration for new handshakes.
    pub fn replace(&self, loaded: LoadedFiles<S>) {
        self.in_use.store(Arc::new(loaded));
    }

    /// Sets whether the reload that is being prepared names other files, so that those in use need not be usable.
    pub fn set_being_replaced(&self, is_replaced: bool) {
        self.being_replaced.store(is_replaced, Ordering::Relaxed);
    }

    pub fn is_being_replaced(&self) -> bool {
        self.being_replaced.load(Ordering::Relaxed)
    }

    /// Returns a hash of the current content of the files. It detects changes and is not cryptographic.
    pub fn content(&self) -> u64 {
        content(&self.in_use.load().source)
    }

    /// Returns the hash of the content that is in use.
    pub fn made_from(&self) -> u64 {
        self.in_use.load().made_from
    }

    /// Returns the files in use.
    pub fn source(&self) -> S {
        self.in_use.load().source.clone()
    }

    /// Returns when docward's own certificate expires, in seconds since 1970 UTC; `None`: it presents none.
    pub fn valid_until(&self) -> Option<i64> {
        Some(self.in_use.load().valid_until).filter(|end| *end != 0)
    }

    pub(super) fn current(&self) -> Arc<S::Config> {
        self.in_use.load().config.clone()
    }
}

fn content(source: &impl PemSource) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in source.files() {
        read_file(file, MAX_PEM_LENGTH).ok().hash(&mut hasher);
    }
    hasher.finish()
}

/// The end of the validity of docward's own certificate, in seconds since 1970 UTC; 0: it presents none.
///
/// # Errors
/// [`TlsError`]: it is not valid now.
fn validity_end(source: &impl PemSource) -> Result<i64, TlsError> {
    let Some(path) = source.own_certificate() else { return Ok(0) };
    let Some(own) = certificates(path)?.into_iter().next() else { return Ok(0) };
    let (_, parsed) = X509Certificate::from_der(&own).map_err(|error| unusable(path, &error))?;
    let validity = parsed.validity();
    let now = ASN1Time::now();
    if now > validity.not_after {
        return Err(TlsError::Expired(path.to_owned(), shown(&validity.not_after)));
    }
    if now < validity.not_before {
        return Err(TlsError::NotYetValid(path.to_owned(), shown(&validity.not_before)));
    }
    Ok(validity.not_after.timestamp())
}

/// `2027-01-31T12:00:00Z`
fn shown(time: &ASN1Time) -> String {
    let milliseconds = time.timestamp().saturating_mul(1000);
    bson::DateTime::from_millis(milliseconds).try_to_rfc3339_string().unwrap_or_else(|_| time.to_string())
}

fn read_pem(path: &Path) -> Result<Vec<u8>, TlsError> {
    let text = read_file(path, MAX_PEM_LENGTH).map_err(|error| TlsError::Unreadable(path.to_owned(), error))?;
    // Its headers are an error to PEM parsers.
    let is_old = memmem::find(&text, b"Proc-Type: 4,ENCRYPTED").is_some();
    if is_old { Err(TlsError::OldEncryption(path.to_owned())) } else { Ok(text) }
}

/// All certificates in a file, in file order.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read_pem(path)?;
    let certificates = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| TlsError::NotPem(path.to_owned(), error.to_string()))?;
    if certificates.is_empty() { Err(TlsError::NoCertificate(path.to_owned())) } else { Ok(certificates) }
}

/// The first private key in a file. With a password it must be encrypted, as the driver requires for
/// `tlsCertificateKeyFilePassword`.
pub(super) fn key(path: &Path, password: Option<&Secret>) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read_pem(path)?;
    let sections: Result<Vec<_>, _> = Pem::iter_from_buffer(&text).collect();
    let sections = sections.map_err(|error| TlsError::NotPem(path.to_owned(), error.to_string()))?;
    let encrypted = sections.iter().find(|section| section.label == "ENCRYPTED PRIVATE KEY");
    match (encrypted, password) {
        (Some(section), Some(password)) => {
            decrypted(&section.contents, password).map_err(|error| TlsError::WrongPassword(path.to_owned(), error))
        }
        (Some(_), None) => Err(TlsError::EncryptedKey(path.to_owned())),
        (None, Some(_)) => Err(TlsError::NotEncrypted(path.to_owned())),
        (None, None) => PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => TlsError::NoKey(path.to_owned()),
            other => TlsError::NotPem(path.to_owned(), other.to_string()),
        }),
    }
}

/// Decrypts a key in DER, encrypted as PKCS #8 has it (RFC 5958, section 3).
fn decrypted(der: &[u8], password: &Secret) -> Result<PrivateKeyDer<'static>, pkcs8::Error> {
    let key = EncryptedPrivateKeyInfoRef::try_from(der)?.decrypt(password.reveal())?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

/// The certificates in a file as authorities. Unusable ones are skipped: a system's store may contain some.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut authorities = RootCertStore::empty();
    let (usable, _) = authorities.add_parsable_certificates(certificates(path)?);
    if usable == 0 { Err(TlsError::NoCertificate(path.to_owned())) } else { Ok(authorities) }
}

/// Why a certificate and its key cannot be used together.
pub(super) fn unusable_pair(certificate: &Path, key: &Path, error: &rustls::Error) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => TlsError::OtherKey(key.to_owned(), certificate.to_owned()),
        rustls::Error::InvalidCertificate(_) if is_old_form(certificate) => {
            let text = "it has the X.509 version 1 or 2, and TLS libraries need version 3; create it with extensions, such \
                        as subjectAltName";
            unusable(certificate, &text)
        }
        rustls::Error::InvalidCertificate(_) => unusable(certificate, error),
        other => unusable(key, other),
    }
}

/// Whether the first certificate in a file is older than X.509 version 3, as openssl creates it without extensions.
fn is_old_form(path: &Path) -> bool {
    let own = certificates(path).ok().and_then(|found| found.into_iter().next());
    own.is_some_and(|own| X509Certificate::from_der(&own).is_ok_and(|(_, parsed)| parsed.version() != X509Version::V3))
}

pub(super) fn unusable(path: &Path, error: &impl std::fmt::Display) -> TlsError {
    TlsError::Unusable(path.to_owned(), error.to_string())
}
