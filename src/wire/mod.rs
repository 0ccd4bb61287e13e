//! Bytes ↔ messages of the MongoDB wire protocol.
//!
//! Whole frames are parsed into borrowed slices, with nom where a text has to be found; nothing here owns a socket,
//! knows a policy or looks inside a BSON document further than its length prefix. [`header`] finds frame boundaries, [`op_msg`]
//! and [`op_query`] take frames apart and put them together, [`compressed`] unpacks and packs them, [`splitter`]
//! finds them in a stream.
//! Next floor: [`crate::document`].

pub mod compressed;
pub mod header;
pub mod op_msg;
pub mod op_query;
pub mod splitter;

pub use header::{HEADER_LENGTH, Header, MAX_COMMAND_DOCUMENT_LENGTH, MAX_DOCUMENT_LENGTH, MAX_MESSAGE_LENGTH, OpCode};

/// Why a frame cannot be read. The fault is the sender's; the connection cannot be trusted to be in step
/// after a [`BadLength`](WireError::BadLength), the other variants leave the frame boundary known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("the header claims a message of {0} bytes; 16 to 48,000,000 are possible")]
    BadLength(i32),
    #[error("the header claims {claimed} bytes, the frame has {actual}")]
    FrameLengthMismatch { claimed: usize, actual: usize },
    #[error("the message ends inside {0}")]
    Truncated(&'static str),
    #[error("{0} bytes are left over behind the message's last part")]
    TrailingBytes(usize),
    #[error("flag bits {0:#06x} are required by the sender and unknown here")]
    UnknownRequiredFlags(u32),
    #[error("section kind {0} is unknown")]
    UnknownSectionKind(u8),
    #[error("a message has exactly one body (kind-0 section), this one has {0}")]
    BodyCount(usize),
    #[error("two document sequences (kind-1 sections) have one identifier")]
    DuplicateSequence,
    #[error("a document sequence's identifier is not UTF-8")]
    IdentifierNotUtf8,
    #[error("a document in {0} claims an impossible length")]
    BadDocumentLength(&'static str),
    #[error("the checksum does not fit the message")]
    ChecksumMismatch,
    #[error("a compressed message claims {0} bytes of content; 1 to 47,999,984 are possible")]
    BadUncompressedSize(i32),
    #[error("compressor {0} is unknown; 1 (snappy), 2 (zlib) and 3 (zstd) are possible")]
    UnknownCompressor(u8),
    #[error("a compressed message is compressed once more")]
    NestedCompression,
    #[error("a message does not decompress ({0}) to exactly the bytes it claims")]
    DamagedCompression(&'static str),
}
