//! The hello reply of a draining member: drivers no longer select it.
//!
//! When a driver loses a member it fails the operations that wait for a connection (specification "Connection
//! Monitoring And Pooling"). It does not select a member that is neither primary nor secondary: new operations wait
//! for another member, and running ones continue.

use crate::document::{Document, Writer};
use crate::wire::op_msg::{self, EXHAUST_ALLOWED, MORE_TO_COME, Message};

/// Returns the hello reply of a draining member. `member_reply` is its last reply, `response_to` the request of the waiting
/// monitor, and `streamed` whether it is one of many replies. Returns `None` for standalone servers: drivers select
/// the only server in any state.
pub fn draining_hello(member_reply: &[u8], response_to: i32, streamed: bool) -> Option<Vec<u8>> {
    let message = Message::parse(member_reply).ok()?;
    let hello = Document::parse(message.body).ok().filter(|hello| hello.get("setName").is_some())?;
    let flags = if streamed { MORE_TO_COME } else { 0 };
    let mut reply = op_msg::MessageWriter::new(message.header.request_id, response_to, flags, member_reply.len());
    reply.body(|out| {
        Writer::document(out, |w| {
            for field in hello.elements() {
                match field.key {
                    b"isWritablePrimary" | b"ismaster" | b"secondary" => w.boolean(field.key, false),
                    _ => w.element(field),
                }
            }
        });
    });
    Some(reply.finish())
}

/// Returns whether the client accepts a stream of replies to its hello.
pub fn streams(hello: &[u8]) -> bool {
    Message::parse(hello).is_ok_and(|message| message.flags & EXHAUST_ALLOWED != 0)
}

#[cfg(test)]
mod tests {
    use bson::{Document as Bson, RawDocumentBuf, doc};

    use super::*;

    fn member_reply(body: &Bson) -> Vec<u8> {
        let mut writer = op_msg::MessageWriter::new(11, 22, 0, 0);
        writer.body(|out| out.extend_from_slice(RawDocumentBuf::try_from(body).unwrap().as_bytes()));
        writer.finish()
    }

    #[test]
    fn a_draining_member_is_neither_primary_nor_secondary() {
        let version = doc! {"processId": bson::oid::ObjectId::new(), "counter": 6_i64};
        let primary = doc! {
            "isWritablePrimary": true, "ismaster": true, "secondary": false, "setName": "rs0", "hosts": ["a:1"],
            "me": "a:1", "topologyVersion": version, "logicalSessionTimeoutMinutes": 30, "ok": 1.0,
        };
        for (streamed, flags) in [(true, MORE_TO_COME), (false, 0)] {
            let reply = draining_hello(&member_reply(&primary), 7, streamed).unwrap();
            let message = Message::parse(&reply).unwrap();
            assert_eq!((message.header.response_to, message.flags), (7, flags));
            let mut expected = primary.clone();
            expected.extend(doc! {"isWritablePrimary": false, "ismaster": false});
            assert_eq!(Bson::from_reader(message.body).unwrap(), expected);
        }
        let secondary = doc! {"isWritablePrimary": false, "secondary": true, "setName": "rs0"};
        let reply = draining_hello(&member_reply(&secondary), 7, true).unwrap();
        let body = Bson::from_reader(Message::parse(&reply).unwrap().body).unwrap();
        assert_eq!(body, doc! {"isWritablePrimary": false, "secondary": false, "setName": "rs0"});
    }

    #[test]
    fn a_standalone_has_no_draining_hello() {
        assert_eq!(draining_hello(&member_reply(&doc! {"isWritablePrimary": true, "ok": 1.0}), 7, true), None);
        assert_eq!(draining_hello(&[0; 40], 7, true), None);
    }
}
