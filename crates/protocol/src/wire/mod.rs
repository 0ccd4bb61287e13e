//! Converts between bytes and messages of the MongoDB wire protocol.
//!
//! The parsers borrow from complete frames. This layer has no sockets and no rules, and it reads no more of a BSON
//! document than its length prefix. [`header`] finds frame boundaries. [`op_msg`] and [`op_query`] parse and write
//! frames. [`compressed`] compresses and decompresses them. [`splitter`] finds frames in a stream, which may begin with a
//! [`proxy_header`]. The next layer is [`crate::document`].

pub mod compressed;
pub mod header;
pub mod op_msg;
pub mod op_query;
pub mod proxy_header;
pub mod splitter;

pub use header::{HEADER_LENGTH, Header, MAX_COMMAND_DOCUMENT_LENGTH, MAX_DOCUMENT_LENGTH, MAX_MESSAGE_LENGTH, OpCode};

/// The reason why a frame cannot be parsed; the sender caused it. After a [`BadLength`](WireError::BadLength) the end
/// of the frame is unknown, so the connection has to be closed. After the other errors it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("the header gives a message length of {0} bytes; the valid range is 16 to 48,000,000")]
    BadLength(i32),
    #[error("the header gives {claimed} bytes, but the frame has {actual}")]
    FrameLengthMismatch { claimed: usize, actual: usize },
    #[error("the message ends inside {0}")]
    Truncated(&'static str),
    #[error("{0} bytes follow the last part of the message")]
    TrailingBytes(usize),
    #[error("the message sets the required flag bits {0:#06x}, which docward does not know")]
    UnknownRequiredFlags(u32),
    #[error("section kind {0} is unknown")]
    UnknownSectionKind(u8),
    #[error("a message must have exactly one body (kind-0 section); this one has {0}")]
    BodyCount(usize),
    #[error("two document sequences (kind-1 sections) have the same identifier")]
    DuplicateSequence,
    #[error("a document sequence's identifier is not UTF-8")]
    IdentifierNotUtf8,
    #[error("a document in {0} has an invalid length")]
    BadDocumentLength(&'static str),
    #[error("the checksum does not match the message")]
    ChecksumMismatch,
    #[error("a compressed message gives an uncompressed size of {0} bytes; the valid range is 1 to 47,999,984")]
    BadUncompressedSize(i32),
    #[error("compressor {0} is unknown; docward supports 1 (snappy), 2 (zlib) and 3 (zstd)")]
    UnknownCompressor(u8),
    #[error("a compressed message contains another compressed message")]
    NestedCompression,
    #[error("a message does not decompress ({0}) to exactly the size it gives")]
    DamagedCompression(&'static str),
}
