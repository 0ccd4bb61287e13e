use bson::{doc, raw::RawDocumentBuf};

use super::negotiation::Negotiation;
use super::*;
use crate::ClientState;
use crate::wire::Header;
use crate::wire::header::patch_length;
use crate::wire::op_msg::{self, EXHAUST_ALLOWED, MORE_TO_COME};
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
    let hello = |login: bson::Document| message(0, &doc! {"hello": 1, "speculativeAuthenticate": login, "$db": "x"});
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
fn a_hello_shows_whether_the_driver_retries_overload_errors() {
    let mut client_state = ClientState::default();
    let mut retries = |hello: bson::Document| {
        let mut negotiation = Negotiation::default();
        note_client_hello(&message(0, &hello), &mut client_state, &mut negotiation).unwrap();
        client_state.retries_overload
    };
    assert!(!retries(doc! {"hello": 1}));
    assert!(retries(doc! {"hello": 1, "backpressure": "2"}));
    assert!(retries(doc! {"hello": 1}), "a later hello on the same connection");
    assert!(!retries(doc! {"hello": 1, "backpressure": false}));
    assert!(retries(doc! {"hello": 1, "backpressure": true}));
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
        HelloReply::parse(&message(0, &doc! {"ok": ok})).unwrap().store_in(&mut client_state);
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
