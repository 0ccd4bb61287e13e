//! Commands that end something at every member: the one that a router sends them to replies, and the others get them before.

use crate::command::own;
use crate::document::{Document, Value};
use crate::request_head::RequestHead;
use crate::wire::op_msg::MORE_TO_COME;

/// Whether every member gets the request. The cursors and operations of a session are at the members that read for it. An
/// acknowledged killCursors goes to the members in turn, because its reply names each cursor.
pub(super) fn is_for_every_member(head: &RequestHead<'_>) -> bool {
    match head.name() {
        Some(b"endSessions" | b"killSessions" | b"killAllSessions" | b"killAllSessionsByPattern") => true,
        Some(b"killCursors") => head.has_flags(MORE_TO_COME),
        _ => false,
    }
}

/// Returns the request as the other members get it; `None`: they do not.
#[must_use]
pub fn for_other_members(head: &RequestHead<'_>) -> Option<Vec<u8>> {
    if !is_for_every_member(head) {
        return None;
    }
    let body = Document::parse(head.whole_body()?).ok()?;
    let database = body.get("$db").and_then(Value::as_str)?;
    // What belongs to the client's own conversation with the primary.
    let is_own = |key: &[u8]| matches!(key, b"$db" | b"lsid" | b"$clusterTime" | b"$readPreference" | b"writeConcern");
    Some(own::message(1, database, |w| {
        body.elements().filter(|element| !is_own(element.key)).for_each(|element| w.element(element));
    }))
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, doc};

    use super::*;
    use crate::wire::op_msg::{Message, MessageWriter};

    #[test]
    fn sessions_end_at_every_member() {
        let of = |body: &bson::Document, flags: u32| {
            let mut writer = MessageWriter::new(1, 0, flags, 0);
            writer.body(|out| out.extend_from_slice(RawDocumentBuf::try_from(body).unwrap().as_bytes()));
            let others = for_other_members(&RequestHead::new(&writer.finish()))?;
            Some(bson::Document::from_reader(Message::parse(&others).unwrap().body).unwrap())
        };
        let context = doc! { "lsid": { "id": 1 }, "$clusterTime": {}, "$db": "admin" };
        let ends = |command: bson::Document| command.into_iter().chain(context.clone()).collect::<bson::Document>();
        for name in ["endSessions", "killSessions", "killAllSessions", "killAllSessionsByPattern"] {
            let expected = doc! { name: [{ "id": 2 }], "$db": "admin" };
            assert_eq!(of(&ends(doc! { name: [{ "id": 2 }] }), 0), Some(expected));
        }
        let kill = ends(doc! { "killCursors": "c", "cursors": [1_i64] });
        assert_eq!(of(&kill, MORE_TO_COME), Some(doc! { "killCursors": "c", "cursors": [1_i64], "$db": "admin" }));
        assert_eq!(of(&kill, 0), None);
        assert_eq!(of(&ends(doc! { "find": "c" }), 0), None);
    }
}
