//! Which compressors each side of a connection applies: heard and said in the hellos, and held until the next.
//!
//! Unless docward has a list of its own for the upstream, the client's goes through, less what docward cannot
//! read, and the server's answer is the client's: both sides then speak the same. With a list of its own docward
//! agrees with each side for itself, and messages are converted between them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::document::{self, Document, Value, Writer};
use crate::wire::compressed::{Compressor, Method};

pub(super) const COMPRESSION: &str = "compression";

type List = SmallVec<[Compressor; 3]>;

/// What is agreed with the two sides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Negotiation {
    /// What docward offers the upstream, the best first; `None`: what the client offers.
    #[serde(skip)]
    own: Option<Arc<[Method]>>,
    client: List,
    upstream: List,
}

impl Negotiation {
    /// `own`: what docward offers the upstream whatever the client does, the best first.
    pub fn new(own: Option<Arc<[Method]>>) -> Self {
        Self { own, ..Self::default() }
    }

    /// What both sides agreed on with another process, which may have had another list.
    #[must_use]
    pub fn resumed(self, agreed: Self) -> Self {
        Self { own: self.own, ..agreed }
    }

    /// Whether the client may send messages compressed so.
    pub fn is_agreed_with_client(&self, compressor: Compressor) -> bool {
        self.client.contains(&compressor)
    }

    /// How a request goes upstream that came from the client as `came`: the same way if the upstream applies it.
    pub fn for_upstream(&self, came: Option<Compressor>) -> Option<Method> {
        if let Some(same) = came.filter(|came| self.upstream.contains(came)) {
            return Some(same.into());
        }
        self.own.iter().flat_map(|own| own.iter()).find(|method| self.upstream.contains(&method.compressor)).copied()
    }

    /// The hello with what is to be offered to the upstream; `None` when that is what it offers already.
    pub(super) fn offer(&mut self, hello: Document<'_>) -> Option<Vec<u8>> {
        let asked = hello.get(COMPRESSION);
        if asked.is_some() {
            // As a server does: who asks again begins anew.
            self.client.clear();
        }
        if let Some(own) = self.own.clone() {
            if asked.is_some() {
                self.client = known(asked);
            }
            self.upstream.clear();
            let offered: List = own.iter().map(|method| method.compressor).collect();
            return Some(with_compression(hello, &offered));
        }
        let offered = known(Some(asked?));
        self.upstream.clear();
        let names = asked.and_then(Value::as_array).map_or(0, |names| names.values().count());
        (offered.len() != names).then(|| with_compression(hello, &offered))
    }

    /// Takes the upstream's answer; gives what the client is told.
    pub(super) fn agree(&mut self, reply: Document<'_>) -> SmallVec<[Compressor; 3]> {
        let answer = reply.get(COMPRESSION);
        if answer.is_some() {
            self.upstream = known(answer);
        }
        match &self.own {
            // A server that was not asked names what was agreed before, so silence changes nothing.
            None if answer.is_some() => self.client = self.upstream.clone(),
            Some(own) => self.upstream.retain(|known| own.iter().any(|method| method.compressor == *known)),
            None => return List::new(),
        }
        self.client.clone()
    }
}

/// The compressors of a list that docward applies, each once.
fn known(list: Option<Value<'_>>) -> List {
    let names = list.and_then(Value::as_array).unwrap_or(Document::EMPTY);
    let mut known = List::new();
    for compressor in names.values().filter_map(Value::as_str).filter_map(Compressor::from_name) {
        if !known.contains(&compressor) {
            known.push(compressor);
        }
    }
    known
}

fn with_compression(hello: Document<'_>, offered: &[Compressor]) -> Vec<u8> {
    document::document(|w| {
        let mut written = false;
        for field in hello.elements() {
            if field.key != COMPRESSION.as_bytes() {
                w.element(field);
            } else if !std::mem::replace(&mut written, true) {
                write_list(w, offered);
            }
        }
        if !written {
            write_list(w, offered);
        }
    })
}

/// Writes the field of a reply, which a server leaves out when nothing is agreed.
pub(super) fn write(w: &mut Writer<'_>, agreed: &[Compressor]) {
    if !agreed.is_empty() {
        write_list(w, agreed);
    }
}

fn write_list(w: &mut Writer<'_>, compressors: &[Compressor]) {
    w.array(COMPRESSION, |a| compressors.iter().for_each(|compressor| a.string(compressor.name())));
}

/// Whether a command carries secrets: the specification wants those sent as they are, because the length of
/// compressed secrets tells something about them.
pub fn is_never_compressed(command: &[u8]) -> bool {
    matches!(
        command,
        b"hello"
            | b"isMaster"
            | b"ismaster"
            | b"saslStart"
            | b"saslContinue"
            | b"getnonce"
            | b"authenticate"
            | b"createUser"
            | b"updateUser"
            | b"copydbSaslStart"
            | b"copydbgetnonce"
            | b"copydb"
    )
}

#[cfg(test)]
mod tests {
    use bson::{doc, raw::RawDocumentBuf};

    use super::*;
    use Compressor::{Snappy, Zlib, Zstd};

    fn raw(document: bson::Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(&document).unwrap()
    }

    fn offer(negotiation: &mut Negotiation, hello: bson::Document) -> bson::Document {
        let raw = raw(hello.clone());
        let offered = negotiation.offer(Document::parse(raw.as_bytes()).unwrap());
        offered.map_or(hello, |bytes| bson::Document::from_reader(&bytes[..]).unwrap())
    }

    fn agree(negotiation: &mut Negotiation, reply: bson::Document) -> Vec<Compressor> {
        negotiation.agree(Document::parse(raw(reply).as_bytes()).unwrap()).to_vec()
    }

    fn own(methods: &[Method]) -> Negotiation {
        Negotiation::new(Some(methods.into()))
    }

    #[test]
    fn both_sides_speak_what_client_and_server_agree_on() {
        let mut both = Negotiation::default();
        let hello = doc! {"hello": 1, "compression": ["zstd", "snappy"]};
        assert_eq!(offer(&mut both, hello.clone()), hello);
        assert!(!both.is_agreed_with_client(Snappy));
        assert_eq!(agree(&mut both, doc! {"compression": ["snappy"]}), [Snappy]);
        assert!(both.is_agreed_with_client(Snappy) && !both.is_agreed_with_client(Zstd));
        assert_eq!(both.for_upstream(Some(Snappy)), Some(Snappy.into()));
        assert_eq!(both.for_upstream(None), None);
        // A hello without the field changes nothing, whether the server repeats itself or not.
        for reply in [doc! {}, doc! {"compression": ["snappy"]}] {
            assert_eq!(offer(&mut both, doc! {"hello": 1}), doc! {"hello": 1});
            agree(&mut both, reply);
            assert!(both.is_agreed_with_client(Snappy));
        }
        offer(&mut both, hello);
        assert_eq!(agree(&mut both, doc! {}), []);
        assert!(!both.is_agreed_with_client(Snappy));
    }

    #[test]
    fn a_server_cannot_make_docward_agree_to_what_it_does_not_speak() {
        let mut both = Negotiation::default();
        offer(&mut both, doc! {"hello": 1, "compression": ["zlib"]});
        assert_eq!(agree(&mut both, doc! {"compression": ["lz4", "zlib", 7, "zlib"]}), [Zlib]);
    }

    #[test]
    fn with_a_list_of_its_own_docward_agrees_with_each_side() {
        let list = [Method { compressor: Zlib, level: Some(9) }, Zstd.into()];
        for (client, server, told, came, goes) in [
            (doc! {}, &["zlib"][..], &[][..], None, Some(list[0])),
            (doc! {"compression": ["snappy", "lz4"]}, &["zstd", "zlib"], &[Snappy], Some(Snappy), Some(list[0])),
            (doc! {"compression": ["zstd"]}, &["zstd", "zlib"], &[Zstd], Some(Zstd), Some(Zstd.into())),
            (doc! {"compression": ["zstd"]}, &[], &[Zstd], Some(Zstd), None),
            (doc! {"compression": []}, &["snappy"], &[], None, None),
        ] {
            let mut each = own(&list);
            let mut hello = doc! {"hello": 1};
            hello.extend(client);
            assert_eq!(offer(&mut each, hello), doc! {"hello": 1, "compression": ["zlib", "zstd"]});
            let reply = if server.is_empty() {
                doc! {}
            } else {
                doc! {"compression": server}
            };
            assert_eq!(agree(&mut each, reply), told);
            assert_eq!(each.for_upstream(came), goes);
            assert!(told.iter().all(|compressor| each.is_agreed_with_client(*compressor)));
            // What was agreed is said again to whoever does not ask.
            offer(&mut each, doc! {"hello": 1});
            assert_eq!(agree(&mut each, doc! {"compression": server}), told);
        }
    }
}
