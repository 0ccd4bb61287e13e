//! OP_MSG: flags, one kind-0 body, any number of kind-1 document sequences in any order, and an optional CRC-32C
//! (driver specification "OP_MSG").
//!
//! The parser checks every length and borrows from the frame. It does not read the fields of documents. [`MessageWriter`]
//! builds messages: rewritten requests for the server and replies for the client.

use nom::Parser;
use nom::bytes::complete::take_until;
use smallvec::SmallVec;

use super::WireError;
use super::header::{HEADER_LENGTH, Header, OpCode, patch_length};

/// Flag bit 0: the message ends with a CRC-32C over all bytes before it.
pub const CHECKSUM_PRESENT: u32 = 1;
/// Flag bit 1. On a request: the client expects no reply. On a reply: another reply follows.
pub const MORE_TO_COME: u32 = 1 << 1;
/// Flag bit 16: the client accepts several replies to this request.
pub const EXHAUST_ALLOWED: u32 = 1 << 16;
/// A receiver must reject a message that has an unknown bit set among bits 0 to 15.
const REQUIRED_FLAGS: u32 = 0xffff;
/// Offset of the first section: header and flags precede it.
pub const SECTIONS_AT: usize = HEADER_LENGTH + 4;
/// Offset of the first section's content, after its kind.
pub const BODY_AT: usize = SECTIONS_AT + 1;
const CHECKSUM_LENGTH: usize = 4;
const MIN_DOCUMENT_LENGTH: u32 = 5;

/// Bytes of the flags, which follow the header.
pub const FLAGS_LENGTH: usize = 4;

/// Returns the flags from the first bytes of a message; `None` if they are not all here.
pub fn flags_of_head(head: &[u8]) -> Option<u32> {
    head.get(HEADER_LENGTH..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Returns what is here of the first section's content, from the first bytes of a message: of the body, in nearly every
/// message.
pub fn body_of_head(head: &[u8]) -> Option<&[u8]> {
    head.get(BODY_AT..)
}

/// A parsed OP_MSG. All slices point into the frame.
#[derive(Debug, Clone)]
pub struct Message<'a> {
    pub header: Header,
    pub flags: u32,
    /// The document of the kind-0 section, including length prefix and terminator.
    pub body: &'a [u8],
    pub sequences: SmallVec<[DocumentSequence<'a>; 2]>,
}

/// A kind-1 section.
#[derive(Debug, Clone, Copy)]
pub struct DocumentSequence<'a> {
    pub identifier: &'a str,
    /// The documents, concatenated. Every length prefix has been checked.
    documents: &'a [u8],
    count: usize,
}

impl<'a> Message<'a> {
    /// Parses a complete frame and verifies its checksum if it has one.
    ///
    /// # Errors
    /// Any [`WireError`] if the frame is malformed.
    pub fn parse(frame: &'a [u8]) -> Result<Self, WireError> {
        let header = Header::of_frame(frame)?;
        let content = frame.get(HEADER_LENGTH..).unwrap_or_default();
        let (sections, flags) = u32_le(content, "the flags")?;
        let unknown = flags & REQUIRED_FLAGS & !(CHECKSUM_PRESENT | MORE_TO_COME);
        if unknown != 0 {
            return Err(WireError::UnknownRequiredFlags(unknown));
        }
        let sections = if flags & CHECKSUM_PRESENT == 0 { sections } else { without_checksum(frame, sections)? };
        let (body, sequences) = parse_sections(sections)?;
        Ok(Self { header, flags, body, sequences })
    }

    /// Returns whether [`MORE_TO_COME`] is set.
    pub fn more_to_come(&self) -> bool {
        self.flags & MORE_TO_COME != 0
    }

    /// Returns the document sequence with this identifier.
    pub fn sequence(&self, identifier: &str) -> Option<DocumentSequence<'a>> {
        self.sequences.iter().find(|s| s.identifier == identifier).copied()
    }

    /// Returns the message with another body, which `write` appends, followed by its document sequences.
    pub fn with_body(&self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        /// Bytes that a body usually grows by.
        const GROWTH: usize = 128;
        let Header { request_id, response_to, length, .. } = self.header;
        let mut writer = MessageWriter::new(request_id, response_to, self.flags, length + GROWTH);
        writer.body(write);
        for sequence in &self.sequences {
            writer.sequence(sequence.identifier, |out| out.extend_from_slice(sequence.as_bytes()));
        }
        writer.finish()
    }
}

impl<'a> DocumentSequence<'a> {
    /// Returns the documents, each with its length prefix and terminator.
    pub fn documents(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.documents;
        std::iter::from_fn(move || {
            let length = u32::from_le_bytes(*rest.first_chunk()?);
            let (document, after) = rest.split_at_checked(length as usize)?;
            rest = after;
            Some(document)
        })
    }

    /// Returns the number of documents.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns all documents, concatenated.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.documents
    }
}

fn parse_sections(mut rest: &[u8]) -> Result<(&[u8], SmallVec<[DocumentSequence<'_>; 2]>), WireError> {
    let mut body = None;
    let mut bodies = 0;
    let mut sequences = SmallVec::<[DocumentSequence<'_>; 2]>::new();
    while !rest.is_empty() {
        let (after_kind, kind) = u8_le(rest, "a section's kind")?;
        rest = match kind {
            0 => {
                let (after, document) = document(after_kind, "the body")?;
                bodies += 1;
                body = Some(document);
                after
            }
            1 => {
                let (after, sequence) = sequence(after_kind)?;
                if sequences.iter().any(|s| s.identifier == sequence.identifier) {
                    return Err(WireError::DuplicateSequence);
                }
                sequences.push(sequence);
                after
            }
            kind => return Err(WireError::UnknownSectionKind(kind)),
        };
    }
    match (body, bodies) {
        (Some(body), 1) => Ok((body, sequences)),
        _ => Err(WireError::BodyCount(bodies)),
    }
}

/// Parses a kind-1 section after its kind byte: its size, an identifier as a C string, and documents up to its end.
fn sequence(input: &[u8]) -> Result<(&[u8], DocumentSequence<'_>), WireError> {
    const WHERE: &str = "a document sequence";
    let (after_size, size) = u32_le(input, WHERE)?;
    let content_length = (size as usize).checked_sub(4).ok_or(WireError::BadDocumentLength(WHERE))?;
    let (rest, content) = bytes(content_length, after_size, WHERE)?;
    let (identifier, documents) = c_string(content, WHERE)?;
    let (mut unread, mut count) = (documents, 0);
    while !unread.is_empty() {
        (unread, _) = document(unread, WHERE)?;
        count += 1;
    }
    let identifier = std::str::from_utf8(identifier).map_err(|_| WireError::IdentifierNotUtf8)?;
    Ok((rest, DocumentSequence { identifier, documents, count }))
}

/// Splits the first document from `input` by its length prefix. Returns the rest and the document.
pub(super) fn document<'a>(input: &'a [u8], part: &'static str) -> Result<(&'a [u8], &'a [u8]), WireError> {
    let (_, length) = u32_le(input, part)?;
    if length < MIN_DOCUMENT_LENGTH || length > i32::MAX as u32 {
        return Err(WireError::BadDocumentLength(part));
    }
    let (rest, document) = bytes(length as usize, input, part)?;
    match document.last() {
        Some(0) => Ok((rest, document)),
        _ => Err(WireError::BadDocumentLength(part)),
    }
}

/// Returns a NUL-terminated string without its terminator, and the bytes after it.
pub(super) fn c_string<'a>(input: &'a [u8], part: &'static str) -> Result<(&'a [u8], &'a [u8]), WireError> {
    // The position of the error is not needed, so the error type is empty.
    let result: nom::IResult<&[u8], &[u8], ()> = take_until(&b"\0"[..]).parse(input);
    let (rest, string) = result.map_err(|_| WireError::Truncated(part))?;
    Ok((string, rest.get(1..).unwrap_or_default()))
}

#[inline]
pub(super) fn u32_le<'a>(input: &'a [u8], part: &'static str) -> Result<(&'a [u8], u32), WireError> {
    let (number, rest) = input.split_first_chunk().ok_or(WireError::Truncated(part))?;
    Ok((rest, u32::from_le_bytes(*number)))
}

#[inline]
fn u8_le<'a>(input: &'a [u8], part: &'static str) -> Result<(&'a [u8], u8), WireError> {
    let (number, rest) = input.split_first().ok_or(WireError::Truncated(part))?;
    Ok((rest, *number))
}

#[inline]
fn bytes<'a>(count: usize, input: &'a [u8], part: &'static str) -> Result<(&'a [u8], &'a [u8]), WireError> {
    let (taken, rest) = input.split_at_checked(count).ok_or(WireError::Truncated(part))?;
    Ok((rest, taken))
}

fn without_checksum<'a>(frame: &[u8], sections: &'a [u8]) -> Result<&'a [u8], WireError> {
    let covered = frame.len().checked_sub(CHECKSUM_LENGTH).ok_or(WireError::Truncated("the checksum"))?;
    let kept = sections.len().checked_sub(CHECKSUM_LENGTH).ok_or(WireError::Truncated("the checksum"))?;
    let (message, trailer) = frame.split_at(covered);
    let (_, claimed) = u32_le(trailer, "the checksum")?;
    if crc32c::crc32c(message) != claimed {
        return Err(WireError::ChecksumMismatch);
    }
    Ok(sections.get(..kept).unwrap_or_default())
}

/// Builds an OP_MSG from front to back. It writes no checksum and clears flag bit 0, which drivers and mongod accept.
#[derive(Debug)]
pub struct MessageWriter {
    out: Vec<u8>,
}

impl MessageWriter {
    /// Starts a message. `capacity` is an estimate of its final length in bytes.
    pub fn new(request_id: i32, response_to: i32, flags: u32, capacity: usize) -> Self {
        let mut out = Vec::with_capacity(capacity.max(64));
        Header::write(&mut out, request_id, response_to, OpCode::Msg);
        out.extend_from_slice(&(flags & !CHECKSUM_PRESENT).to_le_bytes());
        Self { out }
    }

    /// Writes the kind-0 section. `write` must append exactly one document.
    pub fn body(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(0);
        write(&mut self.out);
    }

    /// Writes a kind-1 section. `write` must append whole documents. `identifier` must not contain NUL.
    pub fn sequence(&mut self, identifier: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(1);
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        self.out.extend_from_slice(identifier.as_bytes());
        self.out.push(0);
        write(&mut self.out);
        let size = (self.out.len() - start) as u32;
        if let Some(prefix) = self.out.get_mut(start..start + 4) {
            prefix.copy_from_slice(&size.to_le_bytes());
        }
    }

    /// Returns the finished message.
    pub fn finish(mut self) -> Vec<u8> {
        patch_length(&mut self.out);
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: [u8; 5] = [5, 0, 0, 0, 0];

    fn message(flags: u32, sections: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        Header::write(&mut out, 1, 0, OpCode::Msg);
        out.extend_from_slice(&flags.to_le_bytes());
        sections.iter().for_each(|section| out.extend_from_slice(section));
        patch_length(&mut out);
        out
    }

    fn sequence_section(identifier: &str, documents: usize) -> Vec<u8> {
        let mut section = vec![1];
        section.extend_from_slice(&((4 + identifier.len() + 1 + documents * 5) as u32).to_le_bytes());
        section.extend_from_slice(identifier.as_bytes());
        section.push(0);
        (0..documents).for_each(|_| section.extend_from_slice(&EMPTY));
        section
    }

    fn body_section() -> Vec<u8> {
        [&[0][..], &EMPTY].concat()
    }

    #[test]
    fn sections_are_accepted_in_any_order() {
        for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0]] {
            let parts = [body_section(), sequence_section("documents", 2), sequence_section("ops", 0)];
            let frame = message(0, &order.map(|i| parts[i].as_slice()));
            let parsed = Message::parse(&frame).unwrap();
            assert_eq!(parsed.body, EMPTY);
            assert_eq!(parsed.sequence("documents").unwrap().documents().count(), 2);
            assert_eq!(parsed.sequence("ops").unwrap().documents().count(), 0);
        }
    }

    #[test]
    fn ambiguous_and_truncated_messages_are_errors() {
        let body = body_section();
        let twice = sequence_section("documents", 1);
        let cases: Vec<(Vec<u8>, WireError)> = vec![
            (message(0, &[]), WireError::BodyCount(0)),
            (message(0, &[&body, &body]), WireError::BodyCount(2)),
            (message(0, &[&body, &twice, &twice]), WireError::DuplicateSequence),
            (message(0, &[&body, &[2]]), WireError::UnknownSectionKind(2)),
            (message(4, &[&body]), WireError::UnknownRequiredFlags(4)),
            (message(0, &[&[0, 4, 0, 0, 0]]), WireError::BadDocumentLength("the body")),
            (message(0, &[&[0, 5, 0, 0, 0, 1]]), WireError::BadDocumentLength("the body")),
            (message(0, &[&[0, 255, 255, 255, 127, 0]]), WireError::Truncated("the body")),
            (message(0, &[&body, &[1, 3, 0, 0, 0]]), WireError::BadDocumentLength("a document sequence")),
            (message(0, &[&body, &[1, 6, 0, 0, 0, b'a', b'b']]), WireError::Truncated("a document sequence")),
        ];
        for (frame, expected) in cases {
            assert_eq!(Message::parse(&frame).unwrap_err(), expected, "{frame:?}");
        }
        let mut longer = message(0, &[&body]);
        longer.push(0);
        assert!(matches!(Message::parse(&longer), Err(WireError::FrameLengthMismatch { .. })));
    }

    #[test]
    fn the_checksum_is_verified() {
        let mut frame = message(CHECKSUM_PRESENT, &[&body_section(), &[0; 4]]);
        let covered = frame.len() - 4;
        let sum = crc32c::crc32c(&frame[..covered]);
        frame[covered..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Message::parse(&frame).unwrap().body, EMPTY);
        frame[covered] ^= 1;
        assert_eq!(Message::parse(&frame).unwrap_err(), WireError::ChecksumMismatch);
    }

    #[test]
    fn the_parser_reads_what_the_writer_wrote() {
        let mut writer = MessageWriter::new(3, 4, MORE_TO_COME | CHECKSUM_PRESENT, 0);
        writer.body(|out| out.extend_from_slice(&EMPTY));
        writer.sequence("updates", |out| (0..3).for_each(|_| out.extend_from_slice(&EMPTY)));
        let frame = writer.finish();
        let parsed = Message::parse(&frame).unwrap();
        assert_eq!((parsed.header.request_id, parsed.header.response_to), (3, 4));
        assert!(parsed.more_to_come() && parsed.flags & CHECKSUM_PRESENT == 0);
        assert_eq!(parsed.sequence("updates").unwrap().documents().count(), 3);
    }
}
