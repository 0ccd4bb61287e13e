//! Authentication of clients. MONGODB-X509 is rejected: the server takes the user from the certificate of its TLS
//! session, and behind a proxy that is docward's own certificate. A forwarded login would authenticate the client as
//! docward or fail. The error names an alternative. All other mechanisms are forwarded unchanged. Who is authenticated is
//! asked of the server (`connectionStatus`), not read from the exchange: so it is right for each mechanism.

use crate::command::{Reply, code};
use crate::document::{Document, Element, Value};

use super::message_error::MessageError;

const X509: &str = "MONGODB-X509";

/// Whether this command is a login by certificate. `fields` are the known fields of its body.
pub(super) fn is_by_certificate<'e>(mut fields: impl Iterator<Item = Element<'e>>) -> bool {
    let Some(first) = fields.next() else { return false };
    // Since MongoDB 4.0 `authenticate` supports no other mechanism.
    first.key == b"authenticate"
        || (first.key == b"saslStart"
            && fields.any(|field| field.key == b"mechanism" && field.value.as_str() == Some(X509)))
}

/// Whether a hello's field is a login by certificate. If it is removed, the driver sends a separate command and gets
/// the error.
pub(super) fn is_speculative(field: Element<'_>) -> bool {
    field.key == b"speculativeAuthenticate"
        && field.value.as_document().map(Document::elements).is_some_and(is_by_certificate)
}

pub(super) fn certificate_login_error() -> MessageError {
    MessageError {
        code: code::AUTHENTICATION_FAILED,
        text:
            "MONGODB-X509 cannot pass a proxy: the certificate belongs to the client's TLS session, which ends here. \
             Log in by user name and password (authMechanism=SCRAM-SHA-256); to also require certificates from \
             clients, set --tls-client-ca"
                .to_owned(),
    }
}

/// Returns whether this reply completes a login (authentication specification, "SASL": `done: true`). It is the reply
/// to saslStart or saslContinue.
#[must_use]
pub fn has_logged_in(reply: &[u8]) -> bool {
    Reply::parse(reply).is_ok_and(|reply| reply.is_ok() && completes_login(reply.body))
}

/// Whether the body of a successful reply completes a login. A hello's reply has the login's in
/// `speculativeAuthenticate`.
pub(super) fn completes_login(body: Document<'_>) -> bool {
    let speculative = body.get("speculativeAuthenticate").and_then(Value::as_document);
    speculative.unwrap_or(body).get("done").and_then(Value::as_bool) == Some(true)
}

/// Returns whether a reply to [`login_question`](super::login_question) means that the server requires a login; `None`
/// if it is unclear.
#[must_use]
pub fn requires_login(reply: &[u8]) -> Option<bool> {
    let reply = Reply::parse(reply).ok()?;
    match reply.code() {
        _ if reply.is_ok() => Some(false),
        Some(code::UNAUTHORIZED) => Some(true),
        _ => None,
    }
}

/// Returns the authenticated users as (authentication database, name), from `authInfo.authenticatedUsers` of a
/// connectionStatus reply; `None` if it cannot be parsed.
#[must_use]
pub fn read_users(reply: &[u8]) -> Option<Vec<(String, String)>> {
    let reply = Reply::parse(reply).ok().filter(Reply::is_ok)?;
    let info = reply.body.get("authInfo")?.as_document()?;
    let users = info.get("authenticatedUsers")?.as_array()?;
    let text = |user: Document<'_>, field: &str| user.get(field).and_then(Value::as_str).map(str::to_owned);
    users
        .values()
        .map(|user| user.as_document().and_then(|user| Some((text(user, "db")?, text(user, "user")?))))
        .collect()
}
