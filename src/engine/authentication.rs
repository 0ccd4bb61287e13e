//! MONGODB-X509: the server takes the user from the certificate of the TLS session it talks in, which through a
//! proxy is docward's own session. Passed on, a client would be logged in as docward's certificate, or as
//! nobody; so it is refused, with a way round. Every other mechanism passes as it is.

use crate::command::code;
use crate::document::{Document, Element};

use super::plan::Refuse;

const X509: &str = "MONGODB-X509";

/// Whether this command asks to be logged in by certificate. `fields`: its body's, as far as they are known.
pub(super) fn is_by_certificate<'e>(mut fields: impl Iterator<Item = Element<'e>>) -> bool {
    let Some(first) = fields.next() else { return false };
    // `authenticate` has had no other mechanism since MongoDB 4.0.
    first.key == b"authenticate"
        || (first.key == b"saslStart"
            && fields.any(|field| field.key == b"mechanism" && field.value.as_str() == Some(X509)))
}

/// Whether a hello's field tries the same at once. Taken out, the driver asks again by a command, and is told.
pub(super) fn is_speculative(field: Element<'_>) -> bool {
    field.key == b"speculativeAuthenticate"
        && field.value.as_document().map(Document::elements).is_some_and(is_by_certificate)
}

pub(super) fn refusal() -> Refuse {
    Refuse {
        code: code::AUTHENTICATION_FAILED,
        text:
            "MONGODB-X509 cannot pass a proxy: the certificate belongs to the client's TLS session, which ends here. \
               Log in by user name and password (authMechanism=SCRAM-SHA-256); to demand certificates from clients \
               as well, give docward --tls-client-ca"
                .to_owned(),
    }
}
