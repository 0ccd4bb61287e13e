//! Fuzz targets, one function for each parser of untrusted bytes. No input may cause a panic, the cost of an input is
//! bounded by its length ([`cost`]), and each function checks the properties in its comment.
//!
//! The coverage-guided runs (`make fuzz`) and the short run in `tests/source/fuzz_targets.rs` share this file.

#![allow(dead_code, reason = "each program uses one target")]
#![allow(clippy::unwrap_used, reason = "a panic is a finding")]

pub mod cost;
pub mod growth;
pub mod plans;
pub mod seeds;
pub mod traffic;

use bson::RawDocument;
use docward::command::{Command, EncodeOptions, Reply, StatementPart, WriteBatch, WriteForm, classify};
use docward::config::{Report, SourceFile};
use docward::document::{Document, Kind, Path, Value, edit, peek};
use docward::engine::handshake::negotiation::Negotiation;
use docward::engine::handshake::{AddressMap, HelloReply, Presentation, rewrite_request};
use docward::engine::{ClientState, RequestHead, retried};
use docward::rules::RuleSet;
use docward::wire::compressed::{Compressor, DecompressLimit, compress, decompress, peek as peek_compressed};
use docward::wire::op_msg::{Message, MessageWriter};
use docward::wire::op_query::{Query, reply_document};
use docward::wire::proxy_header::{self, ProxyHeader};
use docward::wire::{Header, OpCode};

pub use plans::{plan, shell};
pub use traffic::traffic;

/// The name and the function of a target.
pub type Target = (&'static str, fn(&[u8]));

pub const ALL: &[Target] = &[
    ("frame", frame),
    ("proxy_header", proxy_header),
    ("compressed", compressed),
    ("document", document),
    ("command", command),
    ("plan", plan),
    ("rules", rules),
    ("shell", shell),
    ("traffic", traffic),
];

/// Runs one target as part of a coverage-guided run.
pub fn fuzz(name: &str, input: &[u8]) {
    let target = ALL.iter().find(|(known, _)| *known == name).unwrap();
    cost::run(*target, input, cost::OPTIMISED);
}

/// One frame: it is parsed or an error. A parsed message that is written and parsed again is the same. A rewritten
/// handshake can be parsed.
pub fn frame(bytes: &[u8]) {
    let mut addresses = AddressMap::new("proxy:1".into());
    addresses.add("a:1".into(), "proxy:1".into());
    let presentations = [Presentation::Member(addresses), Presentation::Standalone];
    let _ = retried(&RequestHead::new(bytes));
    let _ = (Header::parse(bytes), Query::parse(bytes), reply_document(bytes), Reply::parse(bytes));
    let request = rewrite_request(bytes, &mut ClientState::default(), &mut Negotiation::default());
    let replies = presentations.iter().map(|presentation| {
        HelloReply::parse(bytes).map(|reply| reply.rewrite(presentation, &mut Negotiation::default()))
    });
    for rewritten in replies.chain([request]) {
        let Ok(Some(frame)) = rewritten else { continue };
        match Header::of_frame(&frame).unwrap().op_code {
            OpCode::Msg => assert!(Message::parse(&frame).is_ok(), "{frame:?}"),
            OpCode::Query => assert!(Query::parse(&frame).is_ok(), "{frame:?}"),
            OpCode::Reply => assert!(reply_document(&frame).is_ok(), "{frame:?}"),
            other => panic!("a handshake became {other:?}"),
        }
    }
    let Ok(message) = Message::parse(bytes) else { return };
    let header = message.header;
    let mut writer = MessageWriter::new(header.request_id, header.response_to, message.flags, header.length);
    writer.body(|out| out.extend_from_slice(message.body));
    for sequence in &message.sequences {
        writer.sequence(sequence.identifier, |out| out.extend_from_slice(sequence.as_bytes()));
    }
    let written = writer.finish();
    let again = Message::parse(&written).unwrap();
    assert_eq!(again.body, message.body);
    assert!(again.sequences.iter().map(|one| one.as_bytes()).eq(message.sequences.iter().map(|one| one.as_bytes())));
}

/// The header of a balancer: read as docward does, it ends or is an error, and within its length.
pub fn proxy_header(bytes: &[u8]) {
    let mut read = 0;
    while let Ok(ProxyHeader::Incomplete(missing)) = proxy_header::parse(&bytes[..read]) {
        assert!(missing > 0 && read + missing <= 16 + usize::from(u16::MAX), "{missing} after {read}");
        read += missing;
        if read > bytes.len() {
            return;
        }
    }
}

/// One OP_COMPRESSED: the decompressed message has the claimed length and begins with the peeked bytes. If a checked
/// peek succeeds, decompression does too. Compressing and decompressing the message returns it unchanged.
pub fn compressed(bytes: &[u8]) {
    let whole = decompress(bytes);
    let peeks = [DecompressLimit::UpTo(4), DecompressLimit::Checked(100)].map(|depth| peek_compressed(bytes, depth));
    let Ok(message) = whole else {
        assert!(Header::of_frame(bytes).is_err() || peeks[1].is_err(), "{bytes:?} is {:?}", peeks[1]);
        return;
    };
    assert_eq!(Header::of_frame(&message).map(|header| header.length), Ok(message.len()));
    // Only a peek fails for a large zstd window, so it may return an error here.
    for peek in peeks.iter().flatten() {
        assert!(message.starts_with(peek) && peek.len() > 16);
    }
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        if let Some(packed) = compress(&message, compressor.into()) {
            assert_eq!(decompress(&packed).as_ref(), Ok(&message));
        }
    }
}

/// One document: the bson crate reads the same keys and values. A changed copy can be parsed and contains the new
/// value.
pub fn document(bytes: &[u8]) {
    let peeked: Vec<_> = peek(bytes).map(|element| element.key).collect();
    let Ok(document) = Document::parse(bytes) else { return };
    let keys: Vec<_> = document.elements().map(|element| element.key).collect();
    assert_eq!(peeked, keys);
    let theirs = RawDocument::from_bytes(bytes).unwrap();
    for (ours, theirs) in document.elements().zip(theirs.iter_elements()) {
        // The bson crate stops at a key that is not UTF-8.
        let Ok(theirs) = theirs else { break };
        assert_eq!((ours.key, ours.value.bytes.len()), (theirs.key().as_str().as_bytes(), theirs.size()));
        assert_eq!(ours.value.kind, Kind::from_tag(theirs.element_type() as u8).unwrap());
    }
    let seven = Value { kind: Kind::Int64, bytes: &7i64.to_le_bytes() };
    for path in ["a", "a.b.c", "_id"] {
        let path = Path::parse(path).unwrap();
        let changed = edit::set(document, &path, seven);
        let changed = Document::parse(&changed).unwrap();
        if changed.reject_duplicates().is_ok() {
            assert_eq!(changed.get(path.root()).map(|value| value.kind == Kind::Int64), Some(path.is_top_level()));
        }
        let without = edit::without(changed, path.root());
        assert_eq!(Document::parse(&without).unwrap().get(path.root()), None);
    }
}

/// One command: its statements, written together or one by one, are read as the same number of statements.
pub fn command(bytes: &[u8]) {
    let Ok(command) = Command::parse(bytes) else { return };
    let Some(form) = WriteForm::for_class(classify(command.name.as_bytes())) else { return };
    let Ok(batch) = WriteBatch::parse(&command, form) else { return };
    let count = batch.statements.len();
    assert_eq!(statements(&batch.encode(&command, batch.statements.iter()), form), count);
    for (index, statement) in batch.statements.iter().enumerate().take(3) {
        let part = batch.encode_part(&command, &[StatementPart { index, statement }], EncodeOptions::default());
        assert_eq!(statements(&part, form), 1);
    }
}

fn statements(frame: &[u8], form: WriteForm) -> usize {
    let command = Command::parse(frame).unwrap_or_else(|error| panic!("{error} in {frame:?}"));
    WriteBatch::parse(&command, form).unwrap_or_else(|error| panic!("{error} in {frame:?}")).statements.len()
}

/// A rule file: it loads, or the report is not empty.
pub fn rules(bytes: &[u8]) {
    if let Err(report) = load(&String::from_utf8_lossy(bytes)) {
        assert!(!report.to_string().is_empty());
    }
}

pub fn load(text: &str) -> Result<RuleSet, Report> {
    RuleSet::from_sources(vec![SourceFile { name: "rules.yaml".into(), text: text.into() }])
}
