//! The hello of a router: the members of a replica set as one server, which drivers take for a mongos.

use crate::document::{CowDocument, Document, Kind, Value, Writer};
use crate::wire::op_msg::{Message, MessageWriter};

/// Identifies a version of a router's hello, as `topologyVersion` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterVersion {
    /// Random, different for each process.
    pub process: [u8; 12],
    pub counter: i64,
}

/// Returns the largest wire version of a hello reply.
#[must_use]
pub fn max_wire_version(reply: &[u8]) -> Option<i32> {
    let message = Message::parse(reply).ok()?;
    Document::parse(message.body).ok()?.get("maxWireVersion")?.as_i32()
}

/// Returns the reply of a member with what a router has of its own; [`Presentation::Router`](super::Presentation) removes the
/// rest. `max_wire_version` is the lowest of all members. `None`: the reply cannot be parsed.
#[must_use]
pub fn router_reply(member_reply: &[u8], max_wire_version: i32, version: RouterVersion) -> Option<Vec<u8>> {
    let message = Message::parse(member_reply).ok()?;
    let member = Document::parse(message.body).ok()?;
    let body = CowDocument::build(|w| {
        for field in member.elements() {
            match field.key {
                b"maxWireVersion" => w.int32("maxWireVersion", max_wire_version),
                b"topologyVersion" => {}
                b"ok" => {
                    w.nested("topologyVersion", |w| write_version(w, version));
                    w.element(field);
                }
                _ => w.element(field),
            }
        }
    });
    let mut writer = MessageWriter::new(1, 0, 0, member_reply.len() + 64);
    writer.body(|out| out.extend_from_slice(body.as_document().as_bytes()));
    Some(writer.finish())
}

fn write_version(w: &mut Writer<'_>, version: RouterVersion) {
    w.value("processId", Value { kind: Kind::ObjectId, bytes: &version.process });
    w.slot("counter").int64(version.counter);
}
