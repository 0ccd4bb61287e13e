//! MONGODB-X509: the server takes the user from the certificate of the TLS session it talks in, which through a
//! proxy is docward's own session. Passed on, a client would be logged in as docward's certificate, or as
//! nobody; so it is refused, with a way round. Every other mechanism passes as it is.

use crate::command::{Reply, code};
use crate::document::{Document, Element, Value, Writer};
use crate::wire::op_msg;

use super::plan::NoPlan;

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

pub(super) fn refusal() -> NoPlan {
    NoPlan {
        code: code::AUTHENTICATION_FAILED,
        text:
            "MONGODB-X509 cannot pass a proxy: the certificate belongs to the client's TLS session, which ends here. \
               Log in by user name and password (authMechanism=SCRAM-SHA-256); to demand certificates from clients \
               as well, give docward --tls-client-ca"
                .to_owned(),
    }
}

/// Whether this reply to saslStart, saslContinue or a hello with `speculativeAuthenticate` says that the conversation is
/// over and the client is who it says (the authentication specification, "SASL": `done: true`).
#[must_use]
pub fn has_logged_in(reply: &[u8]) -> bool {
    let Some(reply) = Reply::parse(reply).ok().filter(Reply::is_ok) else { return false };
    let speculative = reply.body.get("speculativeAuthenticate").and_then(Value::as_document);
    let conversation = speculative.unwrap_or(reply.body);
    conversation.get("done").and_then(Value::as_bool) == Some(true)
}

/// Asks, on a connection without a login, for what every login allows and none does not: whether something is in a
/// collection that does not exist.
#[must_use]
pub fn login_question(request_id: i32) -> Vec<u8> {
    question(request_id, |w| w.string("count", "docward.none"))
}

/// Whether the answer to [`login_question`] says that the server demands a login. `None`: it cannot be told.
#[must_use]
pub fn means_login_demanded(reply: &[u8]) -> Option<bool> {
    let reply = Reply::parse(reply).ok()?;
    let code = reply.body.get("code").and_then(Value::as_i32);
    Some(!reply.is_ok() && code == Some(code::UNAUTHORIZED))
}

/// Asks the server who is authenticated on a connection.
#[must_use]
pub fn users_question(request_id: i32) -> Vec<u8> {
    question(request_id, |w| w.int32("connectionStatus", 1))
}

/// A command on `admin` whose fields `write` writes.
fn question(request_id: i32, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut writer = op_msg::Writer::new(request_id, 0, 0, 64);
    writer.body(|out| {
        Writer::document(out, |w| {
            write(w);
            w.string("$db", "admin");
        });
    });
    writer.finish()
}

/// (authentication database, name) of everybody who is authenticated: `authInfo.authenticatedUsers` of a
/// connectionStatus. `None` when it cannot be read.
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
