//! Changes hello requests and every reply to them, so that drivers stay on the proxy and use only supported
//! compressors. Covers the older names (isMaster, ismaster), by OP_MSG and OP_QUERY.
//!
//! Drivers connect to the addresses in the reply, not to those of their connection string (driver specification
//! "Server Discovery And Monitoring"). Does no I/O; the caller passes in the members. [`negotiation`] keeps the
//! agreed compressors. Next: [`crate::proxy`].

pub mod draining;
pub mod negotiation;
pub mod own_reply;

use self::negotiation::{COMPRESSION, Negotiation};
use super::{ClientState, authentication};
use crate::document::{self, CowDocument, Document, Element, Kind, Malformed, Value, Writer};
use crate::wire::header::patch_length;
use crate::wire::op_msg::{self, Message};
use crate::wire::op_query::{Query, reply_document};
use crate::wire::{Header, OpCode, WireError};

/// Why a hello or its reply cannot be processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    #[error("a handshake message cannot be parsed: {0}")]
    Wire(#[from] WireError),
    #[error("a handshake message holds bytes that are not a BSON document: {0}")]
    Document(#[from] Malformed),
    #[error("a handshake message has opcode {0:?}; only OP_MSG, OP_QUERY and OP_REPLY are supported")]
    OpCode(OpCode),
}

/// The addresses that are advertised for the members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressMap {
    own: String,
    members: Vec<(String, String)>,
}

impl AddressMap {
    /// `own` is the "host:port" of the listener that accepted the client. The member that replies is mapped to it
    /// under any name, because its own name (`me`) may differ from the address that docward connects to.
    pub fn new(own: String) -> Self {
        Self { own, members: Vec::new() }
    }

    /// Maps a member to an advertised address. `name` is its "host:port" in the replica set configuration; host names
    /// are compared without regard to case.
    pub fn add(&mut self, name: String, advertised: String) {
        self.members.push((name, advertised));
    }

    fn advertised(&self, name: &[u8], me: Option<&[u8]>) -> Option<&str> {
        if me.is_some_and(|me| me.eq_ignore_ascii_case(name)) {
            return Some(&self.own);
        }
        let known = self.members.iter().find(|(member, _)| member.as_bytes().eq_ignore_ascii_case(name));
        known.map(|(_, advertised)| advertised.as_str())
    }
}

/// How docward presents the server to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presentation {
    /// As a member of a replica set with these addresses.
    Member(AddressMap),
    /// As a standalone server: drivers look for no other members.
    Standalone,
}

/// Rewrites a hello: offers only the compressors that docward supports, and removes a login by certificate (see
/// [`super::authentication`]). Other bytes are unchanged. Returns `None` when there is nothing to change. Stores the
/// application's name in `session`.
///
/// # Errors
/// [`HandshakeError`]: the frame must not be forwarded.
pub fn rewrite_request(
    frame: &[u8],
    client_state: &mut ClientState,
    negotiation: &mut Negotiation,
) -> Result<Option<Vec<u8>>, HandshakeError> {
    match Header::of_frame(frame)?.op_code {
        OpCode::Msg => {
            let message = Message::parse(frame)?;
            let hello = Document::parse(message.body)?;
            note(hello, client_state);
            Ok(supported_hello(hello, negotiation).map(|body| with_body(&message, &body)))
        }
        OpCode::Query => {
            let query = Query::parse(frame)?;
            let outer = Document::parse(query.document)?;
            let hello = unwrapped(outer);
            note(hello, client_state);
            Ok(supported_hello(hello, negotiation)
                .map(|inner| query.with_document(&if hello == outer { inner } else { rewrapped(outer, &inner) })))
        }
        other => Err(HandshakeError::OpCode(other)),
    }
}

/// Records a hello that docward answers itself: the application's name and the compressors.
///
/// # Errors
/// [`HandshakeError`]: the frame is not a hello.
pub fn note_client_hello(
    frame: &[u8],
    client_state: &mut ClientState,
    negotiation: &mut Negotiation,
) -> Result<(), HandshakeError> {
    let body = match Header::of_frame(frame)?.op_code {
        OpCode::Msg => Message::parse(frame)?.body,
        OpCode::Query => Query::parse(frame)?.document,
        other => return Err(HandshakeError::OpCode(other)),
    };
    let hello = unwrapped(Document::parse(body)?);
    note(hello, client_state);
    negotiation.agree_with_client(hello);
    Ok(())
}

/// Returns the hello without the unsupported parts; `None` when there are none.
fn supported_hello(hello: Document<'_>, negotiation: &mut Negotiation) -> Option<Vec<u8>> {
    if !hello.elements().any(authentication::is_speculative) {
        return negotiation.offer(hello);
    }
    let rest = CowDocument::build(|w| {
        hello.elements().filter(|field| !authentication::is_speculative(*field)).for_each(|field| w.element(field));
    });
    let offered = negotiation.offer(rest.as_document());
    Some(offered.unwrap_or_else(|| rest.as_document().as_bytes().to_vec()))
}

/// Returns whether a hello waits for topology changes instead of an immediate reply. Only drivers' monitors send
/// these.
pub fn awaits_news(frame: &[u8]) -> bool {
    let hello = Message::parse(frame).ok().and_then(|message| Document::parse(message.body).ok());
    hello.is_some_and(|hello| hello.get("topologyVersion").is_some())
}

/// Old drivers wrap a command to add a read preference: `{$query: {isMaster: 1}, ...}`.
pub(super) const WRAPPERS: [&[u8]; 2] = [b"$query", b"query"];

fn unwrapped(outer: Document<'_>) -> Document<'_> {
    let first = outer.first().filter(|first| WRAPPERS.contains(&first.key));
    first.and_then(|first| first.value.as_document()).unwrap_or(outer)
}

fn rewrapped(outer: Document<'_>, inner: &[u8]) -> Vec<u8> {
    document::document(|w| {
        for (index, mut element) in outer.elements().enumerate() {
            if index == 0 {
                element.value = Value { kind: Kind::Document, bytes: inner };
            }
            w.element(element);
        }
    })
}

/// The server's limits on client metadata and on the application name in it (mongod's
/// `src/mongo/rpc/metadata/client_metadata.cpp`, `kMaxMongoDMetadataDocumentByteLength` and
/// `kMaxApplicationNameByteLength`). A hello that exceeds them gets an error; mongos refuses more than 512 bytes of
/// metadata.
const MAX_METADATA_LENGTH: usize = 1024;
const MAX_APP_NAME_LENGTH: usize = 128;

fn note(hello: Document<'_>, client_state: &mut ClientState) {
    let client = hello.get("client").and_then(Value::as_document);
    let client = client.filter(|client| client.as_bytes().len() <= MAX_METADATA_LENGTH);
    let application = client.and_then(|client| client.get("application")).and_then(Value::as_document);
    let name = application.and_then(|application| application.get("name")).and_then(Value::as_str);
    // The server accepts only the first name of a connection.
    if let Some(name) = name.filter(|name| name.len() <= MAX_APP_NAME_LENGTH)
        && client_state.app_name().is_none()
    {
        client_state.app_name = Some(name.into());
        client_state.app_name_is_claimed = true;
    }
    if hello.get("speculativeAuthenticate").is_some() {
        client_state.forget_users();
    }
}

/// A reply to a hello, parsed once.
#[derive(Debug)]
pub struct HelloReply<'f> {
    carrier: Carrier<'f>,
    body: Document<'f>,
}

/// The message around a reply's body.
#[derive(Debug)]
enum Carrier<'f> {
    Msg(Message<'f>),
    /// The bytes before the body.
    Reply(&'f [u8]),
}

impl<'f> HelloReply<'f> {
    /// # Errors
    /// [`HandshakeError`]: the reply must not be forwarded, because it may contain member addresses.
    pub fn parse(frame: &'f [u8]) -> Result<Self, HandshakeError> {
        let (carrier, body) = match Header::of_frame(frame)?.op_code {
            OpCode::Msg => {
                let message = Message::parse(frame)?;
                let body = message.body;
                (Carrier::Msg(message), body)
            }
            OpCode::Reply => {
                let body = reply_document(frame)?;
                // reply_document checked that the document follows the fixed fields. A reply to a command has only one
                // document.
                let fixed = frame.len().saturating_sub(body.len());
                (Carrier::Reply(frame.get(..fixed).unwrap_or_default()), body)
            }
            other => return Err(HandshakeError::OpCode(other)),
        };
        Ok(Self { carrier, body: Document::parse(body)? })
    }

    pub fn body(&self) -> Document<'f> {
        self.body
    }

    /// Stores in `client_state` whether the server is a mongos, and that the client has logged in if the reply completes
    /// a login. If the reply accepts the hello, also confirms the application's name.
    pub fn note(&self, client_state: &mut ClientState) {
        client_state.own.routed = self.body.get("msg").and_then(Value::as_str) == Some("isdbgrid");
        let accepted = self.body.get("ok").and_then(Value::as_flag) == Some(true);
        if std::mem::take(&mut client_state.app_name_is_claimed) && !accepted {
            client_state.app_name = None;
        }
        if accepted && authentication::completes_login(self.body) {
            client_state.must_log_in = false;
        }
    }

    /// Returns the reply for `presentation` and the agreed compressors; `None` when nothing changes. Members without an
    /// advertised address are removed, because drivers would connect to them without the proxy.
    pub fn rewrite(&self, presentation: &Presentation, negotiation: &mut Negotiation) -> Option<Vec<u8>> {
        let body = rewrite_hello(self.body, presentation, negotiation)?;
        Some(match &self.carrier {
            Carrier::Msg(message) => with_body(message, &body),
            Carrier::Reply(fixed) => {
                let mut out = [fixed, body.as_slice()].concat();
                patch_length(&mut out);
                out
            }
        })
    }
}

fn rewrite_hello(reply: Document<'_>, presentation: &Presentation, negotiation: &mut Negotiation) -> Option<Vec<u8>> {
    let agreed = negotiation.agree(reply);
    let offered = reply.get(COMPRESSION).is_some();
    let is_affected: fn(&[u8]) -> bool = match presentation {
        Presentation::Member(_) => names_members,
        Presentation::Standalone => shows_membership,
    };
    if !offered && agreed.is_empty() && !reply.elements().any(|field| is_affected(field.key)) {
        return None;
    }
    let me = reply.get("me").and_then(Value::as_string_bytes);
    Some(document::document(|w| {
        for field in reply.elements() {
            match presentation {
                _ if field.key == COMPRESSION.as_bytes() => negotiation::write(w, &agreed),
                Presentation::Member(addresses) => write_as_member(w, field, addresses, me),
                Presentation::Standalone => write_as_standalone(w, field),
            }
        }
        if !offered {
            negotiation::write(w, &agreed);
        }
    }))
}

fn write_as_member(w: &mut Writer<'_>, field: Element<'_>, addresses: &AddressMap, me: Option<&[u8]>) {
    match field.key {
        b"hosts" | b"passives" | b"arbiters" => rewrite_list(w, field.key, field.value, addresses, me),
        b"primary" | b"me" => {
            let name = field.value.as_string_bytes();
            if let Some(advertised) = name.and_then(|name| addresses.advertised(name, me)) {
                w.string(field.key, advertised);
            }
        }
        _ => w.element(field),
    }
}

fn write_as_standalone(w: &mut Writer<'_>, field: Element<'_>) {
    match field.key {
        b"isWritablePrimary" | b"ismaster" => w.boolean(field.key, true),
        key if shows_membership(key) => {}
        _ => w.element(field),
    }
}

/// Fields that show that a server is a member of a replica set, or a mongos.
fn shows_membership(key: &[u8]) -> bool {
    const MEMBERSHIP: [&[u8]; 18] = [
        b"arbiterOnly",
        b"arbiters",
        b"electionId",
        b"hidden",
        b"hosts",
        b"isreplicaset",
        b"lastWrite",
        b"me",
        b"msg",
        b"passive",
        b"passives",
        b"primary",
        b"secondary",
        b"secondaryDelaySecs",
        b"setName",
        b"setVersion",
        b"slaveDelay",
        b"tags",
    ];
    MEMBERSHIP.contains(&key)
}

fn names_members(key: &[u8]) -> bool {
    matches!(key, b"hosts" | b"passives" | b"arbiters" | b"primary" | b"me")
}

fn rewrite_list(w: &mut Writer<'_>, key: &[u8], list: Value<'_>, addresses: &AddressMap, me: Option<&[u8]>) {
    let Some(list) = list.as_array() else { return };
    w.array(key, |a| {
        list.values()
            .filter_map(Value::as_string_bytes)
            .filter_map(|name| addresses.advertised(name, me))
            .for_each(|advertised| a.string(advertised));
    });
}

/// Returns the message with another body, followed by its document sequences.
fn with_body(message: &Message<'_>, body: &[u8]) -> Vec<u8> {
    let header = message.header;
    let mut writer =
        op_msg::MessageWriter::new(header.request_id, header.response_to, message.flags, header.length + 64);
    writer.body(|out| out.extend_from_slice(body));
    for sequence in &message.sequences {
        writer.sequence(sequence.identifier, |out| out.extend_from_slice(sequence.as_bytes()));
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use bson::{doc, raw::RawDocumentBuf};

    use super::*;
    use crate::wire::op_msg::{EXHAUST_ALLOWED, MORE_TO_COME};
    use crate::wire::op_query::write_reply;

    fn bytes(document: &bson::Document) -> Vec<u8> {
        RawDocumentBuf::try_from(document).unwrap().into_bytes()
    }

    fn message(flags: u32, body: &bson::Document) -> Vec<u8> {
        let mut writer = op_msg::MessageWriter::new(11, 22, flags, 0);
        writer.body(|out| out.extend_from_slice(&bytes(body)));
        writer.finish()
    }

    fn query(document: &bson::Document) -> Vec<u8> {
        let mut out = Vec::new();
        Header::write(&mut out, 11, 0, OpCode::Query);
        out.extend_from_slice(&[4, 0, 0, 0]);
        out.extend_from_slice(b"admin.$cmd\0");
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(-1i32).to_le_bytes());
        out.extend_from_slice(&bytes(document));
        patch_length(&mut out);
        out
    }

    fn addresses() -> Presentation {
        let mut map = AddressMap::new("proxy:1".into());
        map.add("a:27017".into(), "proxy:1".into());
        map.add("b:27017".into(), "proxy:2".into());
        Presentation::Member(map)
    }

    fn request(frame: &[u8]) -> Result<Option<Vec<u8>>, HandshakeError> {
        rewrite_request(frame, &mut ClientState::default(), &mut Negotiation::default())
    }

    fn rewritten(frame: &[u8], presentation: &Presentation) -> Result<Option<Vec<u8>>, HandshakeError> {
        HelloReply::parse(frame).map(|reply| reply.rewrite(presentation, &mut Negotiation::default()))
    }

    fn reply(frame: &[u8]) -> Result<Option<Vec<u8>>, HandshakeError> {
        rewritten(frame, &addresses())
    }

    #[test]
    fn unsupported_compressors_are_removed_from_a_hello_and_nothing_else_changes() {
        let with = doc! {
            "hello": 1, "helloOk": true, "topologyVersion": {"counter": 6i64}, "maxAwaitTimeMS": 10_000, "loadBalanced": true,
            "compression": ["lz4", "zlib", "noop", "snappy"], "speculativeAuthenticate": {"saslStart": 1}, "$db": "admin",
            "$clusterTime": {"clusterTime": bson::Timestamp { time: 1, increment: 2 }},
        };
        let mut without = with.clone();
        without.insert("compression", ["zlib", "snappy"].as_slice());
        for (before, after) in [
            (message(EXHAUST_ALLOWED, &with), message(EXHAUST_ALLOWED, &without)),
            (query(&with), query(&without)),
            (
                query(&doc! {"$query": &with, "$readPreference": {}}),
                query(&doc! {"$query": &without, "$readPreference": {}}),
            ),
        ] {
            assert_eq!(request(&before), Ok(Some(after.clone())));
            assert_eq!(request(&after), Ok(None));
        }
    }

    #[test]
    fn only_a_speculative_login_by_certificate_is_removed() {
        let hello =
            |login: bson::Document| message(0, &doc! {"hello": 1, "speculativeAuthenticate": login, "$db": "x"});
        let without = message(0, &doc! {"hello": 1, "$db": "x"});
        for (login, removed) in [
            (doc! {"authenticate": 1, "mechanism": "MONGODB-X509", "db": "$external"}, true),
            (doc! {"saslStart": 1, "payload": 1, "mechanism": "MONGODB-X509"}, true),
            (doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": 1}, false),
        ] {
            let rewritten = request(&hello(login)).unwrap();
            assert_eq!(rewritten, removed.then(|| without.clone()));
        }
    }

    #[test]
    fn a_hello_sets_the_application_name_and_forgets_users_on_a_speculative_login() {
        let hello = doc! {"isMaster": 1, "client": {"application": {"name": "shop"}, "driver": {"name": "x"}}};
        for frame in [message(0, &hello), query(&hello)] {
            let mut client_state =
                ClientState { users: Some(vec![("admin".into(), "bob".into())]), ..ClientState::default() };
            assert_eq!(rewrite_request(&frame, &mut client_state, &mut Negotiation::default()), Ok(None));
            assert_eq!((client_state.app_name(), client_state.app_name.as_deref()), (None, Some("shop")));
            assert_eq!(client_state.users, Some(vec![("admin".into(), "bob".into())]));
        }
        let mut client_state = ClientState {
            users: Some(vec![("admin".into(), "bob".into())]),
            app_name: Some("shop".into()),
            ..ClientState::default()
        };
        rewrite_request(
            &message(0, &doc! {"hello": 1, "speculativeAuthenticate": {}}),
            &mut client_state,
            &mut Negotiation::default(),
        )
        .unwrap();
        assert_eq!((client_state.users, client_state.app_name.as_deref()), (None, Some("shop")));
    }

    #[test]
    fn the_first_accepted_application_name_is_kept() {
        let long = "x".repeat(129);
        let mut client_state = ClientState::default();
        let mut handshake = |name: &str, more: &str, ok: f64| {
            let client = doc! {"application": {"name": name}, "platform": more};
            rewrite_request(
                &message(0, &doc! {"hello": 1, "client": client}),
                &mut client_state,
                &mut Negotiation::default(),
            )
            .unwrap();
            HelloReply::parse(&message(0, &doc! {"ok": ok})).unwrap().note(&mut client_state);
            client_state.app_name().map(str::to_owned)
        };
        assert_eq!(handshake("refused", "", 0.0), None);
        assert_eq!(handshake(&long, "", 1.0), None);
        assert_eq!(handshake("shop", &"y".repeat(1024), 1.0), None);
        assert_eq!(handshake("shop", "", 1.0).as_deref(), Some("shop"));
        assert_eq!(handshake("other", "", 1.0).as_deref(), Some("shop"));
        assert_eq!(handshake("other", "", 0.0).as_deref(), Some("shop"));
    }

    #[test]
    fn every_address_in_the_reply_is_mapped_or_removed() {
        let before = doc! {
            "topologyVersion": {"counter": 6i64}, "hosts": ["a:27017", "B:27017", "c:27017"], "passives": ["b:27017", "d:27017"],
            "arbiters": ["e:27017"], "setName": "rs0", "isWritablePrimary": false, "secondary": true, "primary": "b:27017",
            "me": "a:27017", "compression": ["zlib", "lz4"], "maxWireVersion": 25, "ok": 1.0,
        };
        let after = doc! {
            "topologyVersion": {"counter": 6i64}, "hosts": ["proxy:1", "proxy:2"], "passives": ["proxy:2"],
            "arbiters": [], "setName": "rs0", "isWritablePrimary": false, "secondary": true, "primary": "proxy:2",
            "me": "proxy:1", "compression": ["zlib"], "maxWireVersion": 25, "ok": 1.0,
        };
        for flags in [0, MORE_TO_COME] {
            assert_eq!(reply(&message(flags, &before)), Ok(Some(message(flags, &after))));
        }
        let (before, after) = (write_reply(1, 2, &bytes(&before)), write_reply(1, 2, &bytes(&after)));
        assert_eq!(reply(&before), Ok(Some(after)));
    }

    #[test]
    fn the_replying_member_is_mapped_to_the_listeners_own_address() {
        let before = doc! {"hosts": ["db.internal:27017"], "primary": "db.internal:27017", "me": "db.internal:27017"};
        let after = doc! {"hosts": ["proxy:1"], "primary": "proxy:1", "me": "proxy:1"};
        assert_eq!(reply(&message(0, &before)), Ok(Some(message(0, &after))));
        let hidden = doc! {"hosts": ["a:27017"], "primary": "c:27017"};
        let shown = doc! {"hosts": ["proxy:1"]};
        assert_eq!(reply(&message(0, &hidden)), Ok(Some(message(0, &shown))));
    }

    #[test]
    fn a_standalone_reply_has_no_replica_set_fields() {
        let before = doc! {
            "topologyVersion": {"counter": 6i64}, "hosts": ["a:27017", "b:27017"], "setName": "rs0", "setVersion": 3,
            "isWritablePrimary": false, "secondary": true, "primary": "b:27017", "me": "a:27017",
            "lastWrite": {"opTime": 1}, "maxWireVersion": 25, "ok": 1.0,
        };
        let after = doc! {
            "topologyVersion": {"counter": 6i64}, "isWritablePrimary": true, "maxWireVersion": 25, "ok": 1.0,
        };
        let shown = |frame: Vec<u8>| rewritten(&frame, &Presentation::Standalone);
        assert_eq!(shown(message(0, &before)), Ok(Some(message(0, &after))));
        assert_eq!(shown(message(0, &after)), Ok(None));
    }

    #[test]
    fn a_reply_without_addresses_is_unchanged() {
        let standalone = doc! {"isWritablePrimary": true, "msg": "isdbgrid", "ok": 1.0};
        assert_eq!(reply(&message(0, &standalone)), Ok(None));
    }

    #[test]
    fn a_checksum_is_verified_and_dropped() {
        let mut frame = message(0, &doc! {"hosts": ["a:27017"], "me": "a:27017"});
        frame[16] = 1;
        frame.extend_from_slice(&[0; 4]);
        patch_length(&mut frame);
        assert_eq!(reply(&frame), Err(WireError::ChecksumMismatch.into()));
        let covered = frame.len() - 4;
        let sum = crc32c::crc32c(&frame[..covered]);
        frame[covered..].copy_from_slice(&sum.to_le_bytes());
        let expected = message(0, &doc! {"hosts": ["proxy:1"], "me": "proxy:1"});
        assert_eq!(reply(&frame), Ok(Some(expected)));
    }

    #[test]
    fn malformed_handshake_messages_are_errors() {
        let hello = message(0, &doc! {"hello": 1, "client": {"a": 1}});
        for end in 0..hello.len() {
            assert!(request(&hello[..end]).is_err());
            assert!(reply(&hello[..end]).is_err());
        }
        let mut compressed = hello.clone();
        compressed[12..16].copy_from_slice(&2012i32.to_le_bytes());
        assert_eq!(reply(&compressed), Err(HandshakeError::OpCode(OpCode::Compressed)));
        let mut inner = hello;
        let at = inner.len() - 10;
        inner[at] = 0x99;
        assert!(matches!(request(&inner), Err(HandshakeError::Document(_))));
    }
}
