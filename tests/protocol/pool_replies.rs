//! Every reply on a shared server connection is tied to its request. A server that mixes up replies loses its connection
//! and its client, and no other client sees the reply.

use bson::{Binary, doc, spec::BinarySubtype};
use support::frame::{Frame, MORE_TO_COME, Message};
use support::process::SOON;
use support::raw::Client;
use support::scripted::{Peer, reply_to};

use super::pool::pooled;

/// A server that answers commands on the collection `wrong`, and each command that `is_wrong` names, as if they were
/// another request.
fn mixing(is_wrong: impl Fn(&bson::Document) -> bool + Send + 'static) -> Peer {
    Peer::start(move |request| {
        let message = Message::parse(&request);
        let body = message.body();
        let collection = body.values().next().and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        if message.flags & MORE_TO_COME != 0 {
            return Vec::new();
        }
        let cursor = doc! {"id": 0_i64, "ns": "shop.c", "firstBatch": [{"of": &collection}]};
        let reply =
            doc! {"cursor": cursor, "conversationId": 1, "done": false, "payload": body.get("payload"), "ok": 1.0};
        if collection == "wrong" || is_wrong(body) {
            let other = Frame { request_id: request.request_id.wrapping_add(1), ..request };
            return vec![reply_to(&other, reply)];
        }
        vec![reply_to(&request, reply)]
    })
}

#[test]
fn a_reply_to_another_request_closes_both_sides() {
    let peer = mixing(|_| false);
    let docward = pooled(&peer.uri(), "2").start();
    let plain = doc! {"find": "wrong", "$db": "shop"};
    let cursor = doc! {"find": "wrong", "tailable": true, "awaitData": true, "$db": "shop"};
    for (message, compressed) in [(&plain, false), (&cursor, false), (&plain, true), (&cursor, true)] {
        let mut client = Client::connect(&docward.address());
        let frame = Message::new(message.clone()).to_frame(70, 0);
        if compressed {
            client.command("admin", doc! {"hello": 1, "compression": ["zlib"]});
            client.send_bytes(&frame.compressed(2).to_bytes());
        } else {
            client.send_bytes(&frame.to_bytes());
        }
        assert!(client.closes_within(SOON), "{message} compressed: {compressed}");
        // The next client has a connection of its own requests only.
        let reply = Client::connect(&docward.address()).command("shop", doc! {"find": "right"});
        let found = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        assert_eq!(found.as_slice(), [doc! {"of": "right"}.into()]);
    }
}

#[test]
fn a_wrong_reply_after_an_unacknowledged_write_closes_both_sides() {
    let peer = mixing(|body| body.contains_key("ping"));
    let docward = pooled(&peer.uri(), "2").start();
    let mut client = Client::connect(&docward.address());
    let write = doc! {"insert": "right", "documents": [{"a": 1}], "writeConcern": {"w": 0}, "$db": "shop"};
    client.send(&Message::new(write).flags(MORE_TO_COME));
    assert!(client.closes_within(SOON));
}

#[test]
fn a_wrong_reply_to_a_login_closes_both_sides() {
    let peer = mixing(|body| body.contains_key("saslStart"));
    let docward = pooled(&peer.uri(), "2").start();
    let mut client = Client::connect(&docward.address());
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: b"n,,n=ann,r=abc".to_vec() };
    let start = doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload, "$db": "admin"};
    client.send(&Message::new(start));
    assert!(client.closes_within(SOON));
}
