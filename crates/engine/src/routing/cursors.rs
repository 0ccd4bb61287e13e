//! Replies of a member that does not have a cursor: another one may have it.

use crate::command::{Reply, code};
use crate::document::{Document, Value};

const KILLED: &str = "cursorsKilled";
const NOT_FOUND: &str = "cursorsNotFound";

/// The cursors that members have killed so far for one killCursors.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct KilledCursors(Vec<i64>);

/// A member does not have a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingCursor {
    /// It has executed nothing.
    OfGetMore,
    /// It has killed those that it has.
    OfKillCursors,
}

impl KilledCursors {
    /// Takes a member's reply to a getMore or killCursors. `None`: it has the cursor, or all of them.
    pub fn missing(&mut self, reply: &[u8]) -> Option<MissingCursor> {
        let reply = Reply::parse(reply).ok()?;
        self.0.extend(ids(&reply, KILLED));
        if ids(&reply, NOT_FOUND).any(|id| !self.0.contains(&id)) {
            return Some(MissingCursor::OfKillCursors);
        }
        (!reply.is_ok() && reply.code() == Some(code::CURSOR_NOT_FOUND)).then_some(MissingCursor::OfGetMore)
    }

    /// Forgets those of the request before.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the last reply with what the members before have killed; `None`: there is no difference.
    #[must_use]
    pub fn merged(&self, reply: &[u8]) -> Option<Vec<u8>> {
        if self.0.is_empty() {
            return None;
        }
        let reply = Reply::parse(reply).ok()?;
        let is_killed = |id: &i64| self.0.contains(id);
        if !ids(&reply, NOT_FOUND).any(|id| is_killed(&id)) {
            return None;
        }
        Some(reply.with_body(reply.message.header.response_to, |w| {
            for element in reply.body.elements() {
                match element.key {
                    b"cursorsKilled" => w.array(KILLED, |list| self.0.iter().for_each(|id| list.slot().int64(*id))),
                    b"cursorsNotFound" => w.array(NOT_FOUND, |list| {
                        ids(&reply, NOT_FOUND).filter(|id| !is_killed(id)).for_each(|id| list.slot().int64(id));
                    }),
                    _ => w.element(element),
                }
            }
        }))
    }
}

fn ids<'r>(reply: &Reply<'r>, list: &str) -> impl Iterator<Item = i64> + use<'r> {
    let list = reply.body.get(list).and_then(Value::as_array).unwrap_or(Document::EMPTY);
    list.values().filter_map(|id| id.as_integer())
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, doc};

    use super::*;
    use crate::wire::op_msg::{Message, MessageWriter};

    fn reply(killed: &[i64], not_found: &[i64]) -> Vec<u8> {
        let body = doc! {
            "cursorsKilled": killed, "cursorsNotFound": not_found, "cursorsAlive": [], "cursorsUnknown": [], "ok": 1.0,
        };
        let mut writer = MessageWriter::new(1, 0, 0, 0);
        writer.body(|out| out.extend_from_slice(RawDocumentBuf::try_from(&body).unwrap().as_bytes()));
        writer.finish()
    }

    #[test]
    fn cursors_of_several_members_are_killed_in_turn() {
        let mut killed = KilledCursors::default();
        let missing = Some(MissingCursor::OfKillCursors);
        assert_eq!(killed.missing(&reply(&[1], &[2, 3, 4])), missing);
        assert_eq!(killed.missing(&reply(&[2, 4], &[1, 3])), missing);
        let last = reply(&[], &[1, 2, 3, 4]);
        assert_eq!(killed.missing(&last), missing);
        let merged = killed.merged(&last).unwrap();
        assert_eq!(Message::parse(&merged).unwrap().body, Message::parse(&reply(&[1, 2, 4], &[3])).unwrap().body);
        assert_eq!(killed.missing(&reply(&[3], &[1, 2, 4])), None);
        killed.clear();
        assert_eq!(killed.missing(&reply(&[7], &[])), None);
        assert_eq!(killed.merged(&reply(&[7], &[])), None);
    }
}
