//! Describes failed handshakes for the operator: what happened and what to do.

use std::io;

use rustls::{AlertDescription as Alert, CertificateError, Error};

/// Why the handshake with a client failed.
pub(super) fn client(error: &io::Error) -> String {
    let Some(reason) = library_error(error) else {
        return format!(
            "the client closed the connection in the TLS handshake ({error}); it may not trust docward's certificate"
        );
    };
    match reason {
        Error::NoCertificatesPresented => "the client presents no certificate, and `client_ca` requires one: set its \
             tlsCertificateKeyFile"
            .to_owned(),
        Error::InvalidCertificate(untrusted) if is_untrusted(untrusted) => {
            "the client's certificate is not signed by an authority in `client_ca`".to_owned()
        }
        Error::InvalidCertificate(expired) if is_expired(expired) => {
            format!("the client's certificate is not valid at this time ({reason})")
        }
        Error::InvalidCertificate(CertificateError::Other(cause)) => unsupported("the client's", cause),
        Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::UnsupportedCertificate,
        ) => format!(
            "the client does not trust docward's certificate ({reason}): its tlsCAFile must hold the authority \
             that signed it, and the certificate must name the host the client connects to"
        ),
        Error::PeerIncompatible(_) => {
            format!("the client offers no TLS version or cipher suite that docward supports: TLS 1.2 or 1.3 ({reason})")
        }
        other => format!("the TLS handshake with the client failed: {other}"),
    }
}

/// Why the handshake with the upstream failed.
pub(super) fn upstream(error: &io::Error) -> io::Error {
    let text = match library_error(error) {
        None => format!(
            "it closed the connection during the TLS handshake ({error}); if it does not use TLS, remove tls=true, \
             or start mongod with --tlsMode"
        ),
        Some(reason) => refused_upstream(reason),
    };
    io::Error::new(error.kind(), text)
}

/// Describes an error on a connection to the upstream, also after the handshake: with TLS 1.3 a server checks the
/// client's certificate only then.
pub(in crate::proxy) fn from_upstream(error: io::Error) -> io::Error {
    match library_error(&error) {
        Some(reason) => io::Error::new(error.kind(), refused_upstream(reason)),
        None => error,
    }
}

fn refused_upstream(reason: &Error) -> String {
    match reason {
        Error::InvalidMessage(_) => {
            "it does not answer in TLS; remove tls=true, or start mongod with --tlsMode".to_owned()
        }
        Error::InvalidCertificate(untrusted) if is_untrusted(untrusted) => {
            "its certificate is not signed by an authority \
             docward trusts; name the authority's file with tlsCAFile= in the connection string"
                .to_owned()
        }
        Error::InvalidCertificate(expired) if is_expired(expired) => {
            format!("its certificate is not valid at this time ({reason}); renew it, or check this machine's clock")
        }
        Error::InvalidCertificate(CertificateError::NotValidForNameContext { expected, presented }) => format!(
            "its certificate is not for {}, but for {}; connect by a name in the certificate, or add this one to it \
             (as a subject alternative name: a common name does not count)",
            expected.to_str(),
            if presented.is_empty() { "no name at all".to_owned() } else { presented.join(", ") },
        ),
        Error::InvalidCertificate(CertificateError::Other(cause)) => unsupported("its", cause),
        Error::AlertReceived(Alert::CertificateRequired | Alert::HandshakeFailure | Alert::CertificateUnknown) => {
            format!(
                "it refuses the connection ({reason}); if it requires a client certificate, name one with \
                 tlsCertificateKeyFile= in the connection string"
            )
        }
        Error::AlertReceived(Alert::UnknownCA | Alert::BadCertificate | Alert::CertificateExpired) => {
            format!("it does not trust docward's certificate ({reason}); check tlsCertificateKeyFile")
        }
        other => format!("TLS failed: {other}"),
    }
}

/// Describes certificates that OpenSSL accepts and rustls does not, such as those made by `openssl req -x509`.
fn unsupported(whose: &str, cause: &rustls::OtherError) -> String {
    format!(
        "{whose} certificate cannot be used ({cause:?}): it must be of X.509 version 3, and not an authority's own \
         (CA:TRUE); have an authority sign it, or make it with -addext basicConstraints=CA:FALSE"
    )
}

/// A bad signature means another authority with the same name, for example after its key was replaced.
fn is_untrusted(error: &CertificateError) -> bool {
    matches!(error, CertificateError::UnknownIssuer | CertificateError::BadSignature)
}

fn is_expired(error: &CertificateError) -> bool {
    matches!(
        error,
        CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
    )
}

fn library_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}
