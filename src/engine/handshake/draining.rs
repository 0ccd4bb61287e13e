//! A member's last word to the drivers that watch over it, before it goes: that it can be chosen for nothing.
//!
//! A driver fails what waits for a connection when it loses a member (the specification "Connection Monitoring And
//! Pooling"). Of one that is neither primary nor secondary it only chooses none any more: operations wait until there
//! is another, and those that have their connection go on.

use crate::document::{Document, Writer};
use crate::wire::op_msg::{self, EXHAUST_ALLOWED, MORE_TO_COME, Message};

/// What a member that drains says in place of `answer`, which is how it answered a hello last, to whoever awaits news
/// by the request `response_to`; `streamed`: as one of many answers. `None` when it is no member of a set: where there
/// is only one server, drivers choose it whatever it says.
pub fn draining_hello(answer: &[u8], response_to: i32, streamed: bool) -> Option<Vec<u8>> {
    let message = Message::parse(answer).ok()?;
    let hello = Document::parse(message.body).ok().filter(|hello| hello.get("setName").is_some())?;
    let flags = if streamed { MORE_TO_COME } else { 0 };
    let mut word = op_msg::Writer::new(message.header.request_id, response_to, flags, answer.len());
    word.body(|out| {
        Writer::document(out, |w| {
            for field in hello.elements() {
                match field.key {
                    b"isWritablePrimary" | b"ismaster" | b"secondary" => w.boolean(field.key, false),
                    _ => w.element(field),
                }
            }
        });
    });
    Some(word.finish())
}

/// Whether the client takes many answers for its one hello.
pub fn streams(hello: &[u8]) -> bool {
    Message::parse(hello).is_ok_and(|message| message.flags & EXHAUST_ALLOWED != 0)
}

#[cfg(test)]
mod tests {
    use bson::{Document as Bson, RawDocumentBuf, doc};

    use super::*;

    fn answer(body: &Bson) -> Vec<u8> {
        let mut writer = op_msg::Writer::new(11, 22, 0, 0);
        writer.body(|out| out.extend_from_slice(RawDocumentBuf::try_from(body).unwrap().as_bytes()));
        writer.finish()
    }

    #[test]
    fn a_member_that_retires_is_still_a_member_of_its_set() {
        let version = doc! {"processId": bson::oid::ObjectId::new(), "counter": 6_i64};
        let primary = doc! {
            "isWritablePrimary": true, "ismaster": true, "secondary": false, "setName": "rs0", "hosts": ["a:1"],
            "me": "a:1", "topologyVersion": version, "logicalSessionTimeoutMinutes": 30, "ok": 1.0,
        };
        for (streamed, flags) in [(true, MORE_TO_COME), (false, 0)] {
            let word = draining_hello(&answer(&primary), 7, streamed).unwrap();
            let message = Message::parse(&word).unwrap();
            assert_eq!((message.header.response_to, message.flags), (7, flags));
            let mut expected = primary.clone();
            expected.extend(doc! {"isWritablePrimary": false, "ismaster": false});
            assert_eq!(Bson::from_reader(message.body).unwrap(), expected);
        }
        let secondary = doc! {"isWritablePrimary": false, "secondary": true, "setName": "rs0"};
        let word = draining_hello(&answer(&secondary), 7, true).unwrap();
        let body = Bson::from_reader(Message::parse(&word).unwrap().body).unwrap();
        assert_eq!(body, doc! {"isWritablePrimary": false, "secondary": false, "setName": "rs0"});
    }

    #[test]
    fn others_have_no_last_word() {
        assert_eq!(draining_hello(&answer(&doc! {"isWritablePrimary": true, "ok": 1.0}), 7, true), None);
        assert_eq!(draining_hello(&[0; 40], 7, true), None);
    }
}
