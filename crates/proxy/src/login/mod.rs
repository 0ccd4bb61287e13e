//! The messages of logins: those that clients send, as docward relays them, and docward's own.
//!
//! A client's message is not forwarded as it is. docward builds a new one of the fields that it knows, so that nothing
//! else reaches a connection that may be logged in already.

pub mod scram;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest, Sha256};

use self::scram::{Mechanism, StoredCredentials, user_of};
use crate::command::Reply;
use crate::command::own;
use crate::document::{Document, Kind, Value, Writer};
use crate::wire::compressed::Compressor;
use crate::wire::op_msg::{self, Message};

/// A user: the database that authenticates it, and its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct User {
    pub database: String,
    pub name: String,
}

/// A client's first message of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    pub mechanism: String,
    pub payload: Vec<u8>,
    pub database: String,
    /// `options.skipEmptyExchange`
    skips_empty_exchange: bool,
}

/// A client's later message of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continue {
    pub conversation: i32,
    pub payload: Vec<u8>,
    database: String,
}

/// An authentication command of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication {
    Start(Start),
    Continue(Continue),
    /// Ends the login of the users of a database.
    Logout {
        database: String,
    },
    /// `authenticate`, or a command whose fields cannot be read.
    Other,
}

/// The server's reply to a message of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub conversation: i32,
    pub payload: Vec<u8>,
    pub is_done: bool,
}

/// What identifies a user beyond its name: it changes when the user is dropped and created again, or gets another
/// password. It consists of hashes, of which nothing can be computed that helps to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    user_id: Hash,
    /// `None`: the server does not give the credentials.
    credentials: Option<Hash>,
}

type Hash = [u8; 32];

impl Identity {
    /// Returns whether both can be of the same user with the same password.
    #[must_use]
    pub fn fits(&self, other: &Self) -> bool {
        let same_password = self.credentials.zip(other.credentials).is_none_or(|(one, other)| one == other);
        self.user_id == other.user_id && same_password
    }
}

impl Authentication {
    /// Parses a plain message whose command changes the users of a connection.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Self {
        let body = Message::parse(frame).ok().and_then(|message| Document::parse(message.body).ok());
        let Some((body, first)) = body.and_then(|body| Some((body, body.first()?))) else { return Self::Other };
        let database = body.get("$db").and_then(Value::as_str).map(str::to_owned);
        match (first.key, database) {
            (b"logout", Some(database)) => Self::Logout { database },
            (b"saslStart", Some(database)) => Start::parse(body, database).map_or(Self::Other, Self::Start),
            (b"saslContinue", Some(database)) => {
                let parsed = binary(body, "payload").zip(body.get("conversationId").and_then(Value::as_i32));
                parsed.map_or(Self::Other, |(payload, conversation)| {
                    Self::Continue(Continue { conversation, payload, database })
                })
            }
            _ => Self::Other,
        }
    }
}

impl Start {
    /// Parses the `speculativeAuthenticate` document of a hello.
    #[must_use]
    pub fn from_hello(speculative: &[u8]) -> Option<Self> {
        let login = Document::parse(speculative).ok()?;
        let database = login.get("db").and_then(Value::as_str)?.to_owned();
        login.get("saslStart")?;
        Self::parse(login, database)
    }

    fn parse(login: Document<'_>, database: String) -> Option<Self> {
        let options = login.get("options").and_then(Value::as_document);
        let skips = options.and_then(|options| options.get("skipEmptyExchange")).and_then(Value::as_flag);
        Some(Self {
            mechanism: login.get("mechanism").and_then(Value::as_str)?.to_owned(),
            payload: binary(login, "payload")?,
            database,
            skips_empty_exchange: skips == Some(true),
        })
    }

    /// docward's own login of a user.
    #[must_use]
    pub fn own(user: &User, mechanism: Mechanism, payload: Vec<u8>) -> Self {
        let (mechanism, database) = (mechanism.name().to_owned(), user.database.clone());
        Self { mechanism, payload, database, skips_empty_exchange: true }
    }

    /// Returns the mechanism and the user; `None` if they cannot be determined before the login is complete.
    #[must_use]
    pub fn user(&self) -> Option<(Mechanism, User)> {
        let mechanism = Mechanism::from_name(&self.mechanism)?;
        Some((mechanism, User { database: self.database.clone(), name: user_of(&self.payload)? }))
    }

    /// Returns the message for the server.
    #[must_use]
    pub fn request(&self, request_id: i32) -> Vec<u8> {
        own::sasl_start(request_id, &self.database, &self.mechanism, &self.payload, self.skips_empty_exchange)
    }
}

impl Continue {
    /// docward's own message.
    #[must_use]
    pub fn own(user: &User, conversation: i32, payload: Vec<u8>) -> Self {
        Self { conversation, payload, database: user.database.clone() }
    }

    /// Returns the message for the server.
    #[must_use]
    pub fn request(&self, request_id: i32) -> Vec<u8> {
        own::sasl_continue(request_id, &self.database, self.conversation, &self.payload)
    }
}

impl Outcome {
    /// Parses the reply; `None`: the login has failed.
    #[must_use]
    pub fn parse(reply: &[u8]) -> Option<Self> {
        let reply = Reply::parse(reply).ok().filter(Reply::is_ok)?;
        Some(Self {
            conversation: reply.body.get("conversationId").and_then(Value::as_i32)?,
            payload: binary(reply.body, "payload").unwrap_or_default(),
            is_done: reply.body.get("done").and_then(Value::as_bool) == Some(true),
        })
    }
}

/// Returns whether the server gives a connection one user only; `hello_reply` is one of its hello replies. Older servers
/// add the user of a second login, or replace the first user.
#[must_use]
pub fn has_one_user(hello_reply: &[u8]) -> bool {
    /// Of MongoDB 6.0.
    const FIRST_WIRE_VERSION: i32 = 17;
    let reply = Reply::parse(hello_reply).ok();
    let version = reply.and_then(|reply| reply.body.get("maxWireVersion").and_then(Value::as_i32));
    version.is_none_or(|version| version >= FIRST_WIRE_VERSION)
}

/// Returns the compressors that the server's reply to [`own::pool_hello`] agrees to; `None` if the hello has failed.
#[must_use]
pub fn agreed_compressors(reply: &[u8]) -> Option<Vec<Compressor>> {
    let reply = Reply::parse(reply).ok().filter(Reply::is_ok)?;
    let names = reply.body.get("compression").and_then(Value::as_array).unwrap_or(Document::EMPTY);
    Some(names.values().filter_map(Value::as_str).filter_map(Compressor::from_name).collect())
}

/// Returns the identity in a reply to [`own::identity_question`]; `None` if the server does not give it. `salt` must be random
/// and the same for identities that are compared.
#[must_use]
pub fn read_identity(reply: &[u8], salt: &[u8]) -> Option<Identity> {
    let reply = Reply::parse(reply).ok()?;
    let user = user_info(&reply)?;
    let hash =
        |value: Value<'_>| -> Hash { Sha256::new().chain_update(salt).chain_update(value.bytes).finalize().into() };
    Some(Identity { user_id: hash(user.get("userId")?), credentials: user.get("credentials").map(hash) })
}

/// Returns what the server stores for a mechanism, from a reply to [`identity_question`](crate::command::own::identity_question); `None` if it does not give it.
#[must_use]
pub fn read_stored(reply: &[u8], mechanism: Mechanism) -> Option<StoredCredentials> {
    let reply = Reply::parse(reply).ok()?;
    let credentials = user_info(&reply)?.get("credentials").and_then(Value::as_document)?;
    let found = credentials.get(mechanism.name()).and_then(Value::as_document)?;
    let key = |field: &str| BASE64.decode(found.get(field).and_then(Value::as_str)?).ok();
    Some(StoredCredentials { stored_key: key("storedKey")?, server_key: key("serverKey")? })
}

/// The one user in a reply to [`identity_question`](crate::command::own::identity_question).
fn user_info<'r>(reply: &Reply<'r>) -> Option<Document<'r>> {
    let mut users = reply.body.get("users").and_then(Value::as_array).filter(|_| reply.is_ok())?.values();
    users.next().and_then(Value::as_document).filter(|_| users.next().is_none())
}

/// Makes `message`, a server's reply, the reply to the client's request.
pub fn set_response_to(message: &mut [u8], request_id: i32) {
    /// Offset of `responseTo`, after the length and the request id.
    const RESPONSE_TO_AT: usize = 8;
    if let Some(field) = message.get_mut(RESPONSE_TO_AT..).and_then(<[u8]>::first_chunk_mut::<4>) {
        *field = request_id.to_le_bytes();
    }
}

/// Returns a reply `{ok: 1}` to a client's command, as of a logout.
#[must_use]
pub fn ok_reply(request_id: i32, response_to: i32) -> Vec<u8> {
    let mut writer = op_msg::MessageWriter::new(request_id, response_to, 0, 64);
    writer.body(|out| Writer::document(out, |w| w.double("ok", 1.0)));
    writer.finish()
}

/// A payload, which drivers send as binary, and old ones as a string.
fn binary(document: Document<'_>, key: &str) -> Option<Vec<u8>> {
    let value = document.get(key)?;
    match value.kind {
        Kind::Binary => value.bytes.get(5..).map(<[u8]>::to_vec),
        _ => value.as_string_bytes().map(<[u8]>::to_vec),
    }
}

#[cfg(test)]
mod tests {
    use bson::{Binary, RawDocumentBuf, doc, spec::BinarySubtype};

    use super::*;

    fn frame(body: &bson::Document) -> Vec<u8> {
        let mut writer = op_msg::MessageWriter::new(1, 0, 0, 0);
        writer.body(|out| out.extend_from_slice(RawDocumentBuf::try_from(body).unwrap().as_bytes()));
        writer.finish()
    }

    fn payload(text: &str) -> Binary {
        Binary { subtype: BinarySubtype::Generic, bytes: text.as_bytes().to_vec() }
    }

    fn body(frame: &[u8]) -> bson::Document {
        bson::Document::from_reader(Message::parse(frame).unwrap().body).unwrap()
    }

    #[test]
    fn a_login_is_relayed_with_known_fields_only() {
        let sent = doc! {
            "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload("n,,n=ann,r=x"),
            "options": {"skipEmptyExchange": true}, "apiVersion": "1", "apiStrict": true, "$db": "shop",
        };
        let Authentication::Start(start) = Authentication::parse(&frame(&sent)) else { panic!() };
        let user = User { database: "shop".into(), name: "ann".into() };
        assert_eq!(start.user(), Some((Mechanism::Sha256, user)));
        let expected = doc! {
            "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload("n,,n=ann,r=x"),
            "options": {"skipEmptyExchange": true}, "$db": "shop",
        };
        assert_eq!(body(&start.request(9)), expected);
        let sent = doc! {"saslContinue": 1, "conversationId": 3, "payload": payload("p"), "x": 1, "$db": "shop"};
        let Authentication::Continue(next) = Authentication::parse(&frame(&sent)) else { panic!() };
        let mut expected = sent;
        expected.remove("x");
        assert_eq!(body(&next.request(9)), expected);
        let logout = Authentication::Logout { database: "shop".into() };
        assert_eq!(Authentication::parse(&frame(&doc! {"logout": 1, "$db": "shop"})), logout);
        assert_eq!(Authentication::parse(&frame(&doc! {"saslStart": 1, "$db": "shop"})), Authentication::Other);
    }

    #[test]
    fn a_connection_has_one_user_since_6_0() {
        for (version, expected) in [(13, false), (17, true), (25, true)] {
            assert_eq!(has_one_user(&frame(&doc! {"maxWireVersion": version, "ok": 1.0})), expected, "{version}");
        }
    }

    #[test]
    fn the_user_of_other_mechanisms_is_unknown() {
        let sent = doc! {"saslStart": 1, "mechanism": "PLAIN", "payload": payload("\0ann\0pw"), "$db": "$external"};
        let Authentication::Start(start) = Authentication::parse(&frame(&sent)) else { panic!() };
        assert_eq!(start.user(), None);
    }

    #[test]
    fn an_identity_changes_with_the_user_and_its_password() {
        let reply = |id: u8, key: Option<&str>| {
            let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![id; 16] };
            let mut user = doc! {"userId": id, "user": "ann"};
            if let Some(key) = key {
                user.insert("credentials", doc! {"SCRAM-SHA-256": {"storedKey": key, "serverKey": "AA=="}});
            }
            frame(&doc! {"users": [user], "ok": 1.0})
        };
        let identity = |id, key| read_identity(&reply(id, key), b"salt").unwrap();
        let known = identity(1, Some("AAAA"));
        for (id, key, fits) in [
            (1, Some("AAAA"), true),
            (1, None, true),
            (2, Some("AAAA"), false),
            (2, None, false),
            (1, Some("BBBB"), false),
        ] {
            assert_eq!(known.fits(&identity(id, key)), fits, "{id} {key:?}");
        }
        assert_ne!(read_identity(&reply(1, None), b"other").unwrap(), identity(1, None));
        assert_eq!(read_stored(&reply(1, Some("AAAA")), Mechanism::Sha256).unwrap().stored_key, [0, 0, 0]);
        assert!(read_stored(&reply(1, None), Mechanism::Sha256).is_none());
        assert_eq!(read_identity(&frame(&doc! {"users": [], "ok": 1.0}), b"salt"), None);
    }
}
