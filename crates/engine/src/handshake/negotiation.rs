//! Negotiates compression with the client and the upstream in hellos; the result holds until the next hello.
//!
//! By default docward forwards the client's list without the compressors it does not support, and the server's reply
//! goes to the client: both connections use the same ones. If docward has its own list for the upstream, it
//! negotiates with each side separately and converts messages between them.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::document::{self, Document, Value, Writer};
use crate::wire::compressed::{CompressionMethod, Compressor};

pub(super) const COMPRESSION: &str = "compression";

type CompressorList = SmallVec<[Compressor; 3]>;

/// The compressors agreed with client and upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Negotiation {
    /// docward's own list for the upstream, preferred first; `None`: forward the client's list.
    own: Option<Arc<[CompressionMethod]>>,
    client: CompressorList,
    upstream: CompressorList,
}

impl Negotiation {
    /// Creates the state before the first hello. `own` is docward's own list for the upstream, preferred first.
    pub fn new(own: Option<Arc<[CompressionMethod]>>) -> Self {
        Self { own, ..Self::default() }
    }

    /// Returns whether the client may send messages with this compressor.
    pub fn is_agreed_with_client(&self, compressor: Compressor) -> bool {
        self.client.contains(&compressor)
    }

    /// Returns the compression for a request to the upstream: the client's compressor if the upstream accepts it.
    pub fn for_upstream(&self, came: Option<Compressor>) -> Option<CompressionMethod> {
        if let Some(same) = came.filter(|came| self.upstream.contains(came)) {
            return Some(same.into());
        }
        self.own.iter().flat_map(|own| own.iter()).find(|method| self.upstream.contains(&method.compressor)).copied()
    }

    /// Takes the compressors of a hello that docward answers itself: all that it supports are agreed.
    pub fn agree_with_client(&mut self, hello: Document<'_>) {
        if let Some(requested) = hello.get(COMPRESSION) {
            self.client = known(Some(requested));
        }
    }

    /// Returns the compressors agreed with the client.
    pub fn client(&self) -> &[Compressor] {
        &self.client
    }

    /// Sets the compressors of another server connection.
    pub fn set_upstream(&mut self, compressors: &[Compressor]) {
        self.upstream.clear();
        self.upstream.extend_from_slice(compressors);
    }

    /// Returns the hello with the list for the upstream; `None` when it is unchanged.
    pub(super) fn offer(&mut self, hello: Document<'_>) -> Option<Vec<u8>> {
        let requested = hello.get(COMPRESSION);
        if requested.is_some() {
            // Like a server: a new list replaces the previous agreement.
            self.client.clear();
        }
        if let Some(own) = self.own.clone() {
            if requested.is_some() {
                self.client = known(requested);
            }
            self.upstream.clear();
            let offered: CompressorList = own.iter().map(|method| method.compressor).collect();
            return Some(with_compression(hello, &offered));
        }
        let offered = known(Some(requested?));
        self.upstream.clear();
        let names = requested.and_then(Value::as_array).map_or(0, |names| names.values().count());
        (offered.len() != names).then(|| with_compression(hello, &offered))
    }

    /// Takes the upstream's reply and returns the list for the client.
    pub(super) fn agree(&mut self, reply: Document<'_>) -> SmallVec<[Compressor; 3]> {
        let list = reply.get(COMPRESSION);
        if list.is_some() {
            self.upstream = known(list);
        }
        match &self.own {
            // A server repeats the previous agreement if the hello has no list, so a missing list changes nothing.
            None if list.is_some() => self.client = self.upstream.clone(),
            Some(own) => self.upstream.retain(|known| own.iter().any(|method| method.compressor == *known)),
            None => return CompressorList::new(),
        }
        self.client.clone()
    }
}

/// Returns the supported compressors of a list, without duplicates.
fn known(list: Option<Value<'_>>) -> CompressorList {
    let names = list.and_then(Value::as_array).unwrap_or(Document::EMPTY);
    let mut known = CompressorList::new();
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

/// Writes the field of a reply; like a server, leaves it out if nothing is agreed.
pub(super) fn write(w: &mut Writer<'_>, agreed: &[Compressor]) {
    if !agreed.is_empty() {
        write_list(w, agreed);
    }
}

fn write_list(w: &mut Writer<'_>, compressors: &[Compressor]) {
    w.array(COMPRESSION, |a| compressors.iter().for_each(|compressor| a.string(compressor.name())));
}

/// Returns whether a command must not be compressed. The specification excludes commands with secrets, because the
/// compressed length reveals something about them.
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

    fn own(methods: &[CompressionMethod]) -> Negotiation {
        Negotiation::new(Some(methods.into()))
    }

    #[test]
    fn both_connections_use_the_compressor_that_client_and_server_agree_on() {
        let mut both = Negotiation::default();
        let hello = doc! {"hello": 1, "compression": ["zstd", "snappy"]};
        assert_eq!(offer(&mut both, hello.clone()), hello);
        assert!(!both.is_agreed_with_client(Snappy));
        assert_eq!(agree(&mut both, doc! {"compression": ["snappy"]}), [Snappy]);
        assert!(both.is_agreed_with_client(Snappy) && !both.is_agreed_with_client(Zstd));
        assert_eq!(both.for_upstream(Some(Snappy)), Some(Snappy.into()));
        assert_eq!(both.for_upstream(None), None);
        // A hello without the field changes nothing, whether or not the server repeats its list.
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
    fn compressors_that_docward_does_not_support_are_not_agreed() {
        let mut both = Negotiation::default();
        offer(&mut both, doc! {"hello": 1, "compression": ["zlib"]});
        assert_eq!(agree(&mut both, doc! {"compression": ["lz4", "zlib", 7, "zlib"]}), [Zlib]);
    }

    #[test]
    fn with_its_own_list_docward_negotiates_with_each_side() {
        let list = [CompressionMethod { compressor: Zlib, level: Some(9) }, Zstd.into()];
        for (client, server, for_client, came, expected) in [
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
            assert_eq!(agree(&mut each, reply), for_client);
            assert_eq!(each.for_upstream(came), expected);
            assert!(for_client.iter().all(|compressor| each.is_agreed_with_client(*compressor)));
            // A hello without the field gets the previous agreement again.
            offer(&mut each, doc! {"hello": 1});
            assert_eq!(agree(&mut each, doc! {"compression": server}), for_client);
        }
    }
}
