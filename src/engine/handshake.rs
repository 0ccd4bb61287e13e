//! hello and its older names (isMaster, ismaster), by OP_MSG and OP_QUERY: what docward changes in the request
//! and in every reply to it, so that drivers stay on the proxy and send nothing it cannot read.
//!
//! Drivers believe the addresses in the reply, not their connection string (the driver specification
//! "Server Discovery And Monitoring"). Pure; who the members are is handed in. What is agreed on compression
//! is kept in [`negotiation`]. Next: [`crate::proxy`].

pub mod draining;
pub mod negotiation;

use self::negotiation::{COMPRESSION, Negotiation};
use super::{Session, authentication};
use crate::document::{self, CowDocument, Document, Element, Kind, Malformed, Value, Writer};
use crate::wire::header::patch_length;
use crate::wire::op_msg::{self, Message};
use crate::wire::op_query::{Query, reply_document};
use crate::wire::{Header, OpCode, WireError};

/// Why a hello or its reply cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    #[error("a handshake message cannot be parsed: {0}")]
    Wire(#[from] WireError),
    #[error("a handshake message holds bytes that are no BSON document: {0}")]
    Document(#[from] Malformed),
    #[error("a handshake came as {0:?}; only OP_MSG, OP_QUERY and OP_REPLY can be")]
    OpCode(OpCode),
}

/// Under which address clients reach each member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressMap {
    own: String,
    members: Vec<(String, String)>,
}

impl AddressMap {
    /// `own`: "host:port" of the listener the client came through. The member that answers is mapped to it
    /// whatever it calls itself, because its own name (`me`) may differ from the address docward dials.
    pub fn new(own: String) -> Self {
        Self { own, members: Vec::new() }
    }

    /// `name`: "host:port" as the replica set's configuration says it. Host names know no case.
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

/// What a client is to take the server for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presentation {
    /// A member of the set that these addresses are of.
    Member(AddressMap),
    /// A server of its own: drivers look for no others.
    Standalone,
}

/// Offers in a hello the compressors that docward can read, takes out a login by certificate (see
/// [`super::authentication`]), and leaves the rest byte for byte; `None` when there is nothing to change. Notes in
/// `session` who is talking.
///
/// # Errors
/// [`HandshakeError`]: the frame is not to be passed on.
pub fn rewrite_request(
    frame: &[u8],
    session: &mut Session,
    negotiation: &mut Negotiation,
) -> Result<Option<Vec<u8>>, HandshakeError> {
    match Header::of_frame(frame)?.op_code {
        OpCode::Msg => {
            let message = Message::parse(frame)?;
            let hello = Document::parse(message.body)?;
            note(hello, session);
            Ok(passable(hello, negotiation).map(|body| with_body(&message, &body)))
        }
        OpCode::Query => {
            let query = Query::parse(frame)?;
            let outer = Document::parse(query.document)?;
            let hello = unwrapped(outer);
            note(hello, session);
            Ok(passable(hello, negotiation)
                .map(|inner| query.with_document(&if hello == outer { inner } else { rewrapped(outer, &inner) })))
        }
        other => Err(HandshakeError::OpCode(other)),
    }
}

/// The hello without what cannot pass; `None` when all of it can.
fn passable(hello: Document<'_>, negotiation: &mut Negotiation) -> Option<Vec<u8>> {
    if !hello.elements().any(authentication::is_speculative) {
        return negotiation.offer(hello);
    }
    let rest = CowDocument::build(|w| {
        hello.elements().filter(|field| !authentication::is_speculative(*field)).for_each(|field| w.element(field));
    });
    let offered = negotiation.offer(rest.as_document());
    Some(offered.unwrap_or_else(|| rest.as_document().as_bytes().to_vec()))
}

/// Whether a hello asks to be answered when there is news, rather than at once: a monitor's, not a handshake.
pub fn awaits_news(frame: &[u8]) -> bool {
    let hello = Message::parse(frame).ok().and_then(|message| Document::parse(message.body).ok());
    hello.is_some_and(|hello| hello.get("topologyVersion").is_some())
}

/// Old drivers wrap a command to send a read preference with it: `{$query: {isMaster: 1}, ...}`.
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

/// What a server takes of a client's metadata at most, and of the application's name in it (mongod's
/// `src/mongo/rpc/metadata/client_metadata.cpp`, `kMaxMongoDMetadataDocumentByteLength` and
/// `kMaxApplicationNameByteLength`); a hello with more is answered with an error.
const MAX_METADATA_LENGTH: usize = 512;
const MAX_APP_NAME_LENGTH: usize = 128;

fn note(hello: Document<'_>, session: &mut Session) {
    let client = hello.get("client").and_then(Value::as_document);
    let client = client.filter(|client| client.as_bytes().len() <= MAX_METADATA_LENGTH);
    let application = client.and_then(|client| client.get("application")).and_then(Value::as_document);
    let name = application.and_then(|application| application.get("name")).and_then(Value::as_str);
    // The server takes a client's first word for it and refuses others.
    if let Some(name) = name.filter(|name| name.len() <= MAX_APP_NAME_LENGTH)
        && session.app_name().is_none()
    {
        session.app_name = Some(name.to_owned());
        session.app_name_is_claimed = true;
    }
    if hello.get("speculativeAuthenticate").is_some() {
        session.forget_users();
    }
}

/// Notes in `session` which kind of server has replied to a hello, and takes the application's name that the hello claimed
/// for its own, if the reply accepts it.
pub fn note_reply(frame: &[u8], session: &mut Session) {
    let message = Message::parse(frame).map(|message| message.body).ok();
    let body = message.or_else(|| reply_document(frame).ok()).and_then(|body| Document::parse(body).ok());
    let field = |name: &str| body.and_then(|body| body.get(name));
    session.own.routed = field("msg").and_then(Value::as_str) == Some("isdbgrid");
    let accepted = field("ok").and_then(Value::as_flag) == Some(true);
    if std::mem::take(&mut session.app_name_is_claimed) && !accepted {
        session.app_name = None;
    }
}

/// Makes a reply to a hello show `presentation` and the compressors that are agreed; `None` when it does. A member that has no
/// address is hidden: drivers would leave the proxy for it.
///
/// # Errors
/// [`HandshakeError`]: the reply is not to be passed on, because it may name addresses that cannot be seen.
pub fn rewrite_reply(
    frame: &[u8],
    presentation: &Presentation,
    negotiation: &mut Negotiation,
) -> Result<Option<Vec<u8>>, HandshakeError> {
    match Header::of_frame(frame)?.op_code {
        OpCode::Msg => {
            let message = Message::parse(frame)?;
            let body = rewrite_hello(Document::parse(message.body)?, presentation, negotiation);
            Ok(body.map(|body| with_body(&message, &body)))
        }
        OpCode::Reply => {
            let stored = reply_document(frame)?;
            let Some(body) = rewrite_hello(Document::parse(stored)?, presentation, negotiation) else {
                return Ok(None);
            };
            // reply_document checked that the document lies behind the fixed fields, and a reply to a
            // command has only one.
            let fixed = frame.len().saturating_sub(stored.len());
            let mut out = frame.get(..fixed).unwrap_or_default().to_vec();
            out.extend_from_slice(&body);
            patch_length(&mut out);
            Ok(Some(out))
        }
        other => Err(HandshakeError::OpCode(other)),
    }
}

fn rewrite_hello(reply: Document<'_>, presentation: &Presentation, negotiation: &mut Negotiation) -> Option<Vec<u8>> {
    let agreed = negotiation.agree(reply);
    let offered = reply.get(COMPRESSION).is_some();
    let concerns: fn(&[u8]) -> bool = match presentation {
        Presentation::Member(_) => names_members,
        Presentation::Standalone => tells_membership,
    };
    if !offered && agreed.is_empty() && !reply.elements().any(|field| concerns(field.key)) {
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
        key if tells_membership(key) => {}
        _ => w.element(field),
    }
}

/// What tells drivers that a server is a member of a set, or a mongos.
fn tells_membership(key: &[u8]) -> bool {
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

/// The same message with another body; sections keep their order no further than the server cares.
fn with_body(message: &Message<'_>, body: &[u8]) -> Vec<u8> {
    let header = message.header;
    let mut writer = op_msg::Writer::new(header.request_id, header.response_to, message.flags, header.length + 64);
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
        let mut writer = op_msg::Writer::new(11, 22, flags, 0);
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
        rewrite_request(frame, &mut Session::default(), &mut Negotiation::default())
    }

    fn reply(frame: &[u8]) -> Result<Option<Vec<u8>>, HandshakeError> {
        rewrite_reply(frame, &addresses(), &mut Negotiation::default())
    }

    #[test]
    fn compressors_that_docward_cannot_read_are_not_offered_and_nothing_else_is_changed() {
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
    fn a_speculative_login_by_certificate_is_taken_out_and_no_other() {
        let hello =
            |login: bson::Document| message(0, &doc! {"hello": 1, "speculativeAuthenticate": login, "$db": "x"});
        let without = message(0, &doc! {"hello": 1, "$db": "x"});
        for (login, taken_out) in [
            (doc! {"authenticate": 1, "mechanism": "MONGODB-X509", "db": "$external"}, true),
            (doc! {"saslStart": 1, "payload": 1, "mechanism": "MONGODB-X509"}, true),
            (doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": 1}, false),
        ] {
            let rewritten = request(&hello(login)).unwrap();
            assert_eq!(rewritten, taken_out.then(|| without.clone()));
        }
    }

    #[test]
    fn the_session_learns_who_is_talking() {
        let hello = doc! {"isMaster": 1, "client": {"application": {"name": "shop"}, "driver": {"name": "x"}}};
        for frame in [message(0, &hello), query(&hello)] {
            let mut session = Session { users: Some(vec![("admin".into(), "bob".into())]), ..Session::default() };
            assert_eq!(rewrite_request(&frame, &mut session, &mut Negotiation::default()), Ok(None));
            assert_eq!((session.app_name(), session.app_name.as_deref()), (None, Some("shop")));
            assert_eq!(session.users, Some(vec![("admin".into(), "bob".into())]));
        }
        let mut session = Session {
            users: Some(vec![("admin".into(), "bob".into())]),
            app_name: Some("shop".into()),
            ..Session::default()
        };
        rewrite_request(
            &message(0, &doc! {"hello": 1, "speculativeAuthenticate": {}}),
            &mut session,
            &mut Negotiation::default(),
        )
        .unwrap();
        assert_eq!((session.users, session.app_name.as_deref()), (None, Some("shop")));
    }

    #[test]
    fn an_application_is_called_what_the_server_accepted_first() {
        let long = "x".repeat(129);
        let mut session = Session::default();
        let mut say = |name: &str, more: &str, ok: f64| {
            let client = doc! {"application": {"name": name}, "platform": more};
            rewrite_request(
                &message(0, &doc! {"hello": 1, "client": client}),
                &mut session,
                &mut Negotiation::default(),
            )
            .unwrap();
            note_reply(&message(0, &doc! {"ok": ok}), &mut session);
            session.app_name().map(str::to_owned)
        };
        assert_eq!(say("refused", "", 0.0), None);
        assert_eq!(say(&long, "", 1.0), None);
        assert_eq!(say("shop", &"y".repeat(512), 1.0), None);
        assert_eq!(say("shop", "", 1.0).as_deref(), Some("shop"));
        assert_eq!(say("other", "", 1.0).as_deref(), Some("shop"));
        assert_eq!(say("other", "", 0.0).as_deref(), Some("shop"));
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
    fn the_member_that_answers_is_the_one_the_client_came_to_whatever_it_calls_itself() {
        let before = doc! {"hosts": ["db.internal:27017"], "primary": "db.internal:27017", "me": "db.internal:27017"};
        let after = doc! {"hosts": ["proxy:1"], "primary": "proxy:1", "me": "proxy:1"};
        assert_eq!(reply(&message(0, &before)), Ok(Some(message(0, &after))));
        let hidden = doc! {"hosts": ["a:27017"], "primary": "c:27017"};
        let shown = doc! {"hosts": ["proxy:1"]};
        assert_eq!(reply(&message(0, &hidden)), Ok(Some(message(0, &shown))));
    }

    #[test]
    fn a_standalone_shows_nothing_of_its_set() {
        let before = doc! {
            "topologyVersion": {"counter": 6i64}, "hosts": ["a:27017", "b:27017"], "setName": "rs0", "setVersion": 3,
            "isWritablePrimary": false, "secondary": true, "primary": "b:27017", "me": "a:27017",
            "lastWrite": {"opTime": 1}, "maxWireVersion": 25, "ok": 1.0,
        };
        let after = doc! {
            "topologyVersion": {"counter": 6i64}, "isWritablePrimary": true, "maxWireVersion": 25, "ok": 1.0,
        };
        let shown = |frame: Vec<u8>| rewrite_reply(&frame, &Presentation::Standalone, &mut Negotiation::default());
        assert_eq!(shown(message(0, &before)), Ok(Some(message(0, &after))));
        assert_eq!(shown(message(0, &after)), Ok(None));
    }

    #[test]
    fn a_reply_without_addresses_stays_as_it_is() {
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
    fn what_cannot_be_read_is_refused() {
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
