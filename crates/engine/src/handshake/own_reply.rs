//! docward's own reply to a client's hello, made of the member's last reply to docward's monitor.

use super::request::unwrapped;
use super::{HandshakeError, negotiation};
use crate::document::{CowDocument, Document, Element, Kind, Value, Writer};
use crate::wire::compressed::Compressor;
use crate::wire::op_msg::{self, EXHAUST_ALLOWED, MORE_TO_COME, Message};
use crate::wire::op_query::{Query, write_reply};
use crate::wire::{Header, OpCode};

/// A client's hello, as far as docward's own reply depends on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientHello {
    pub request_id: i32,
    /// It is an OP_QUERY, so the reply is an OP_REPLY.
    pub is_query: bool,
    /// It uses an older name (isMaster), so the reply has `ismaster`.
    pub is_legacy: bool,
    /// The client asks whether the server knows `hello`.
    pub hello_ok: bool,
    /// The topology version that the client knows, as BSON. With `max_await_ms` set, the reply waits for a newer one.
    pub topology_version: Option<Vec<u8>>,
    pub max_await_ms: Option<u64>,
    /// The client accepts further replies.
    pub streams: bool,
    pub load_balanced: bool,
    /// `saslSupportedMechs`: the user whose mechanisms the client asks for.
    pub mechanisms_of: Option<String>,
    /// The `speculativeAuthenticate` document.
    pub speculative: Option<Vec<u8>>,
}

/// The fields of a reply to saslStart without those that every reply has.
const LOGIN_FIELDS: [&[u8]; 3] = [b"conversationId", b"done", b"payload"];

/// What docward adds to its reply.
#[derive(Debug, Clone, Copy, Default)]
pub struct Additions<'a> {
    /// Milliseconds since 1970 UTC.
    pub local_time: i64,
    /// The number of the client's connection.
    pub connection: u64,
    /// The compressors agreed with the client.
    pub compressors: &'a [Compressor],
    /// `serviceId`, for a client behind a load balancer.
    pub service: Option<[u8; 12]>,
    /// `saslSupportedMechs` of the server's reply.
    pub mechanisms: Option<Value<'a>>,
    /// The server's reply to the speculative login.
    pub speculative: Option<Document<'a>>,
}

impl ClientHello {
    /// Parses a plain frame.
    ///
    /// # Errors
    /// [`HandshakeError`]: it is not a hello that can be answered.
    pub fn parse(frame: &[u8]) -> Result<Self, HandshakeError> {
        let header = Header::of_frame(frame)?;
        let base = Self { request_id: header.request_id, ..Self::default() };
        match header.op_code {
            OpCode::Msg => {
                let message = Message::parse(frame)?;
                let streams = message.flags & EXHAUST_ALLOWED != 0;
                Ok(Self { streams, ..base.with_fields(Document::parse(message.body)?) })
            }
            OpCode::Query => {
                let query = Query::parse(frame)?;
                let outer = Document::parse(query.document)?;
                Ok(Self { is_query: true, ..base.with_fields(unwrapped(outer)) })
            }
            other => Err(HandshakeError::OpCode(other)),
        }
    }

    fn with_fields(self, hello: Document<'_>) -> Self {
        let bytes = |key: &str| hello.get(key).and_then(Value::as_document).map(|found| found.as_bytes().to_vec());
        let flag = |key: &str| hello.get(key).and_then(Value::as_flag) == Some(true);
        Self {
            is_legacy: hello.first().is_some_and(|first| first.key != b"hello"),
            hello_ok: flag("helloOk"),
            topology_version: bytes("topologyVersion"),
            max_await_ms: hello.get("maxAwaitTimeMS").and_then(Value::as_integer).and_then(|time| time.try_into().ok()),
            load_balanced: flag("loadBalanced"),
            mechanisms_of: hello.get("saslSupportedMechs").and_then(Value::as_str).map(str::to_owned),
            speculative: bytes("speculativeAuthenticate"),
            ..self
        }
    }

    /// Returns the time that the reply may wait, in milliseconds, if the client already knows the topology version of
    /// `member_reply`, the member's last reply.
    #[must_use]
    pub fn max_wait_ms(&self, member_reply: &[u8]) -> Option<u64> {
        let known = self.topology_version.as_deref()?;
        let message = Message::parse(member_reply).ok()?;
        let current = Document::parse(message.body).ok()?.get("topologyVersion")?.as_document()?;
        let known = Document::parse(known).ok()?;
        let same_process = known.get("processId").map(|id| id.bytes) == current.get("processId").map(|id| id.bytes);
        let counter = |version: Document<'_>| version.get("counter").and_then(Value::as_integer);
        self.max_await_ms.filter(|_| same_process && counter(known) >= counter(current))
    }

    /// Returns the reply, made of `member_reply`, the member's last reply. `response_to` is the message that it belongs to:
    /// further replies of a stream belong to the one before. Returns `None` if `member_reply` cannot be parsed.
    #[must_use]
    pub fn reply(
        &self,
        member_reply: &[u8],
        request_id: i32,
        response_to: i32,
        additions: Additions<'_>,
    ) -> Option<Vec<u8>> {
        let message = Message::parse(member_reply).ok()?;
        let member = Document::parse(message.body).ok()?;
        let body = CowDocument::build(|w| self.write(w, member, additions));
        let body = body.as_document().as_bytes();
        if self.is_query {
            return Some(write_reply(request_id, response_to, body));
        }
        // The server streams only replies that wait.
        let flags = if self.is_stream() { MORE_TO_COME } else { 0 };
        let mut writer = op_msg::MessageWriter::new(request_id, response_to, flags, member_reply.len() + 64);
        writer.body(|out| out.extend_from_slice(body));
        Some(writer.finish())
    }

    /// Returns whether further replies follow the first.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.streams && self.topology_version.is_some() && self.max_await_ms.is_some()
    }

    fn write(&self, w: &mut Writer<'_>, member: Document<'_>, additions: Additions<'_>) {
        if self.hello_ok && member.get("helloOk").is_none() {
            w.boolean("helloOk", true);
        }
        for field in member.elements() {
            match field.key {
                b"isWritablePrimary" if self.is_legacy => w.element(Element { key: b"ismaster", ..field }),
                b"localTime" => w.slot("localTime").date(additions.local_time),
                b"connectionId" => w.int32("connectionId", (additions.connection & 0x7fff_ffff) as i32),
                b"compression" | b"speculativeAuthenticate" | b"saslSupportedMechs" => {}
                b"ok" => {
                    negotiation::write(w, additions.compressors);
                    if let Some(service) = &additions.service {
                        w.value("serviceId", Value { kind: Kind::ObjectId, bytes: service });
                    }
                    if let Some(mechanisms) = additions.mechanisms {
                        w.value("saslSupportedMechs", mechanisms);
                    }
                    if let Some(login) = additions.speculative {
                        w.nested("speculativeAuthenticate", |w| {
                            let step = |field: &Element<'_>| LOGIN_FIELDS.contains(&field.key);
                            login.elements().filter(step).for_each(|field| w.element(field));
                        });
                    }
                    w.element(field);
                }
                _ => w.element(field),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::{Document as Bson, RawDocumentBuf, doc};

    use super::*;

    fn message(flags: u32, body: &Bson) -> Vec<u8> {
        let mut writer = op_msg::MessageWriter::new(11, 0, flags, 0);
        writer.body(|out| out.extend_from_slice(RawDocumentBuf::try_from(body).unwrap().as_bytes()));
        writer.finish()
    }

    fn member_reply(counter: i64) -> Vec<u8> {
        let process = bson::oid::ObjectId::from_bytes([7; 12]);
        message(
            0,
            &doc! {
                "isWritablePrimary": true, "topologyVersion": {"processId": process, "counter": counter},
                "localTime": bson::DateTime::from_millis(1), "connectionId": 5, "compression": ["zlib"], "ok": 1.0,
            },
        )
    }

    fn body_of(reply: &[u8]) -> Bson {
        Bson::from_reader(Message::parse(reply).unwrap().body).unwrap()
    }

    #[test]
    fn the_reply_is_the_members_with_the_clients_names_and_time() {
        let hello = ClientHello::parse(&message(0, &doc! {"isMaster": 1, "helloOk": true, "$db": "admin"})).unwrap();
        let additions = Additions { local_time: 9, connection: 77, ..Additions::default() };
        let reply = hello.reply(&member_reply(3), 40, 11, additions).unwrap();
        let header = Header::of_frame(&reply).unwrap();
        assert_eq!((header.request_id, header.response_to), (40, 11));
        let body = body_of(&reply);
        assert!(body.get_bool("ismaster").unwrap() && body.get_bool("helloOk").unwrap());
        assert!(!body.contains_key("isWritablePrimary") && !body.contains_key("compression"));
        assert_eq!(body.get_datetime("localTime").unwrap().timestamp_millis(), 9);
        assert_eq!(body.get_i32("connectionId").unwrap(), 77);
    }

    #[test]
    fn a_hello_waits_only_for_a_version_that_it_does_not_know() {
        let process = bson::oid::ObjectId::from_bytes([7; 12]);
        let hello = |counter: i64, process: bson::oid::ObjectId| {
            let version = doc! {"processId": process, "counter": counter};
            let body = doc! {"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 10_000_i64, "$db": "admin"};
            ClientHello::parse(&message(EXHAUST_ALLOWED, &body)).unwrap()
        };
        assert_eq!(hello(3, process).max_wait_ms(&member_reply(3)), Some(10_000));
        assert_eq!(hello(2, process).max_wait_ms(&member_reply(3)), None);
        assert_eq!(hello(3, bson::oid::ObjectId::from_bytes([8; 12])).max_wait_ms(&member_reply(3)), None);
        let reply = hello(3, process).reply(&member_reply(4), 40, 11, Additions::default()).unwrap();
        assert_eq!(Message::parse(&reply).unwrap().flags, MORE_TO_COME);
    }

    #[test]
    fn a_login_in_the_hello_is_answered_with_it() {
        let hello = doc! {
            "hello": 1, "saslSupportedMechs": "admin.ann",
            "speculativeAuthenticate": {"saslStart": 1, "mechanism": "SCRAM-SHA-256"}, "$db": "admin",
        };
        let hello = ClientHello::parse(&message(0, &hello)).unwrap();
        assert_eq!(hello.mechanisms_of.as_deref(), Some("admin.ann"));
        assert!(hello.speculative.is_some());
        let login = RawDocumentBuf::try_from(&doc! {"conversationId": 1, "done": false, "ok": 1.0}).unwrap();
        let login = Document::parse(login.as_bytes()).unwrap();
        let additions = Additions { speculative: Some(login), ..Additions::default() };
        let body = body_of(&hello.reply(&member_reply(3), 40, 11, additions).unwrap());
        let expected = doc! {"conversationId": 1, "done": false};
        assert_eq!(body.get_document("speculativeAuthenticate").unwrap(), &expected);
    }
}
