//! The reply to a hello: with the advertised addresses of members instead of their own, or as from a standalone server.

use super::HandshakeError;
use super::negotiation::{self, COMPRESSION, Negotiation};
use crate::document::{self, Document, Element, Value, Writer};
use crate::wire::header::patch_length;
use crate::wire::op_msg::Message;
use crate::wire::op_query::reply_document;
use crate::wire::{Header, OpCode};
use crate::{ClientState, authentication};

/// The value of `msg` by which drivers recognise a mongos.
const MONGOS: &str = "isdbgrid";

/// The addresses that are advertised for the members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressMap {
    own: String,
    members: Vec<(String, String)>,
}

impl AddressMap {
    /// `own` is the "host:port" of the listener that accepted the client. The member that replies is mapped to it
    /// under any name, because its own name (`me`) may differ from the address that docward connects to.
    pub fn new(own: String) -> Self {
        Self { own, members: Vec::new() }
    }

    /// Maps a member to an advertised address. `name` is its "host:port" in the replica set configuration; host names
    /// are compared without regard to case.
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

/// How docward presents the server to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presentation {
    /// As a member of a replica set with these addresses.
    Member(AddressMap),
    /// As a standalone server: drivers look for no other members.
    Standalone,
    /// As a mongos: drivers look for no other members, and send read preferences.
    Router,
}

/// A reply to a hello, parsed once.
#[derive(Debug)]
pub struct HelloReply<'f> {
    carrier: Carrier<'f>,
    body: Document<'f>,
}

/// The message around a reply's body.
#[derive(Debug)]
enum Carrier<'f> {
    Msg(Message<'f>),
    /// The bytes before the body.
    Reply(&'f [u8]),
}

impl<'f> HelloReply<'f> {
    /// # Errors
    /// [`HandshakeError`]: the reply must not be forwarded, because it may contain member addresses.
    pub fn parse(frame: &'f [u8]) -> Result<Self, HandshakeError> {
        let (carrier, body) = match Header::of_frame(frame)?.op_code {
            OpCode::Msg => {
                let message = Message::parse(frame)?;
                let body = message.body;
                (Carrier::Msg(message), body)
            }
            OpCode::Reply => {
                let body = reply_document(frame)?;
                // reply_document checked that the document follows the fixed fields. A reply to a command has only one
                // document.
                let fixed = frame.len().saturating_sub(body.len());
                (Carrier::Reply(frame.get(..fixed).unwrap_or_default()), body)
            }
            other => return Err(HandshakeError::OpCode(other)),
        };
        Ok(Self { carrier, body: Document::parse(body)? })
    }

    pub fn body(&self) -> Document<'f> {
        self.body
    }

    /// Stores in `client_state` whether the server is a mongos, and that the client has logged in if the reply completes
    /// a login. If the reply accepts the hello, also confirms the application's name.
    pub fn store_in(&self, client_state: &mut ClientState) {
        client_state.own.routed = self.body.get("msg").and_then(Value::as_str) == Some(MONGOS);
        let accepted = self.body.get("ok").and_then(Value::as_flag) == Some(true);
        if std::mem::take(&mut client_state.app_name_is_claimed) && !accepted {
            client_state.app_name = None;
        }
        if accepted && authentication::completes_login(self.body) {
            client_state.must_log_in = false;
        }
    }

    /// Returns the reply for `presentation` and the agreed compressors; `None` when nothing changes. Members without an
    /// advertised address are removed, because drivers would connect to them without the proxy.
    pub fn rewrite(&self, presentation: &Presentation, negotiation: &mut Negotiation) -> Option<Vec<u8>> {
        let body = rewrite_hello(self.body, presentation, negotiation)?;
        Some(match &self.carrier {
            Carrier::Msg(message) => message.with_body(|out| out.extend_from_slice(&body)),
            Carrier::Reply(fixed) => {
                let mut out = [fixed, body.as_slice()].concat();
                patch_length(&mut out);
                out
            }
        })
    }
}

fn rewrite_hello(reply: Document<'_>, presentation: &Presentation, negotiation: &mut Negotiation) -> Option<Vec<u8>> {
    let agreed = negotiation.agree(reply);
    let offered = reply.get(COMPRESSION).is_some();
    let is_affected: fn(&[u8]) -> bool = match presentation {
        Presentation::Member(_) => names_members,
        Presentation::Standalone => shows_membership,
        Presentation::Router => is_role,
    };
    if !offered && agreed.is_empty() && !reply.elements().any(|field| is_affected(field.key)) {
        return None;
    }
    let me = reply.get("me").and_then(Value::as_string_bytes);
    Some(document::document(|w| {
        for field in reply.elements() {
            match presentation {
                _ if field.key == COMPRESSION.as_bytes() => negotiation::write(w, &agreed),
                Presentation::Member(addresses) => write_as_member(w, field, addresses, me),
                Presentation::Standalone => write_as_standalone(w, field),
                Presentation::Router if is_role(field.key) => {
                    w.boolean(field.key, true);
                    w.string("msg", MONGOS);
                }
                Presentation::Router => write_as_standalone(w, field),
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
        key if is_role(key) => w.boolean(key, true),
        key if shows_membership(key) => {}
        _ => w.element(field),
    }
}

/// The field of every hello reply that shows whether the server accepts writes.
fn is_role(key: &[u8]) -> bool {
    matches!(key, b"isWritablePrimary" | b"ismaster")
}

/// Fields that show that a server is a member of a replica set, or a mongos.
fn shows_membership(key: &[u8]) -> bool {
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
