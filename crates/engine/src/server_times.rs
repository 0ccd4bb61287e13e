//! The times in the replies of a server, by which clients read what they have written: `operationTime` and
//! `$clusterTime` (driver specification "Causal Consistency").
//!
//! A reply that is made of several replies, or that docward writes itself, has the newest times among those that the
//! server sent.
//!
//! A reply for which nothing was sent has those of the last hello to the member's monitor. They may be seconds old, but cost
//! no round trip. The monitor is not logged in, so its signature of the cluster time is valid for every client.

use crate::command::Reply;
use crate::document::{CowDocument, Document, Element, Kind, Value, peek};
use crate::wire::op_msg::Message;

const OPERATION: &[u8] = b"operationTime";
const CLUSTER: &[u8] = b"$clusterTime";

/// The newest times of some replies.
#[derive(Debug, Clone, Default)]
pub struct ServerTimes {
    operation: Option<u64>,
    /// The time, and the whole field with its signature.
    cluster: Option<(u64, CowDocument<'static>)>,
}

impl ServerTimes {
    /// Returns the times in a reply; none if it is no OP_MSG.
    #[must_use]
    pub fn of_reply(frame: &[u8]) -> Self {
        let mut times = Self::default();
        times.add(frame);
        times
    }

    /// Takes the times of a reply that are newer.
    pub fn add(&mut self, frame: &[u8]) {
        let Ok(message) = Message::parse(frame) else { return };
        for Element { key, value } in peek(message.body) {
            match key {
                OPERATION => self.operation = self.operation.max(timestamp(value)),
                CLUSTER => self.add_cluster_time(value),
                _ => {}
            }
        }
    }

    fn add_cluster_time(&mut self, value: Value<'_>) {
        // Only the outermost fields of a reply are checked here.
        let Ok(field) = Document::parse(value.bytes) else { return };
        let Some(time) = field.get("clusterTime").and_then(timestamp) else { return };
        if self.cluster.as_ref().is_none_or(|(known, _)| *known < time) {
            self.cluster = Some((time, CowDocument::from_writer(field.as_bytes().to_vec())));
        }
    }

    /// Returns a reply to a client with these times, where its own are not as new.
    #[must_use]
    pub fn written_to(&self, frame: Vec<u8>) -> Vec<u8> {
        let own = Self::of_reply(&frame);
        let is_newer = |(time, _): &(u64, CowDocument<'_>)| own.cluster.as_ref().is_none_or(|(own, _)| own < time);
        let cluster = self.cluster.as_ref().filter(|cluster| is_newer(cluster));
        let operation = self.operation.filter(|time| own.operation < Some(*time));
        if cluster.is_none() && operation.is_none() {
            return frame;
        }
        let Ok(reply) = Reply::parse(&frame) else { return frame };
        reply.with_body(reply.message.header.response_to, |w| {
            let is_replaced =
                |key: &[u8]| key == CLUSTER && cluster.is_some() || key == OPERATION && operation.is_some();
            reply.body.elements().filter(|element| !is_replaced(element.key)).for_each(|element| w.element(element));
            if let Some((_, field)) = cluster {
                w.value(CLUSTER, Value::document(field.as_document()));
            }
            if let Some(time) = operation {
                w.value(OPERATION, Value { kind: Kind::Timestamp, bytes: &time.to_le_bytes() });
            }
        })
    }

    /// Returns a reply of docward's own to a client: with these times if it has none.
    #[must_use]
    pub fn completing(&self, frame: Vec<u8>) -> Vec<u8> {
        let own = Self::of_reply(&frame);
        if own.operation.is_none() && own.cluster.is_none() { self.written_to(frame) } else { frame }
    }
}

/// Orders timestamps by their seconds, then by their increment.
fn timestamp(value: Value<'_>) -> Option<u64> {
    (value.kind == Kind::Timestamp).then_some(value.bytes)?.try_into().ok().map(u64::from_le_bytes)
}
