//! OP_COMPRESSED: a compressed message in an envelope that names the compressor (driver specification "Wire
//! Compression in Drivers").
//!
//! Sizes are checked before memory is allocated. The claimed size must be a valid message size, decompression stops
//! at that size, and any difference from it is an error. (In CVE-2025-14847 mongod returned uninitialised memory
//! after a message that was shorter than its claimed size.) This module handles complete messages. [`peek`] reads the
//! start of a message that is streamed.

mod peek;

pub use peek::{DecompressLimit, peek, peek_length};

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::WireError;
use super::header::{HEADER_LENGTH, Header, MAX_MESSAGE_LENGTH, OpCode, patch_length};

/// Bytes of the envelope after the header: original opcode, uncompressed size, compressor id.
const ENVELOPE_LENGTH: usize = 9;
const DATA_AT: usize = HEADER_LENGTH + ENVELOPE_LENGTH;

/// The compressors of every server since 4.2. docward does not support the specification's `noop` (0): it is for
/// driver tests, and servers accept it only if they are configured to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compressor {
    Snappy,
    Zlib,
    Zstd,
}

impl Compressor {
    /// All of them, the best ratio of size to time first.
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Snappy, Self::Zlib];

    /// Returns the compressor with this id.
    pub fn from_wire(id: u8) -> Option<Self> {
        match id {
            1 => Some(Self::Snappy),
            2 => Some(Self::Zlib),
            3 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Returns the id of the compressor.
    pub fn to_wire(self) -> u8 {
        match self {
            Self::Snappy => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
        }
    }

    /// Returns the compressor that has this name in a hello.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "snappy" => Some(Self::Snappy),
            "zlib" => Some(Self::Zlib),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }
}

/// A compressor and its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressionMethod {
    pub compressor: Compressor,
    /// 0 to 9 for zlib; any level of the library for zstd. `None` is the compressor's default.
    pub level: Option<i32>,
}

impl From<Compressor> for CompressionMethod {
    fn from(compressor: Compressor) -> Self {
        Self { compressor, level: None }
    }
}

/// The fields before the compressed data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressedEnvelope {
    /// The header of the decompressed message.
    pub header: Header,
    pub compressor: Compressor,
}

impl CompressedEnvelope {
    /// Parses the envelope at the start of `head`. Returns `None` if it is incomplete.
    ///
    /// # Errors
    /// Any [`WireError`]. The end of the frame is known unless the error is a [`WireError::BadLength`].
    pub fn parse(head: &[u8]) -> Result<Option<Self>, WireError> {
        let Some(outer) = Header::parse(head)? else { return Ok(None) };
        if outer.length < DATA_AT {
            return Err(WireError::Truncated("the OP_COMPRESSED"));
        }
        let Some(envelope) = head.get(HEADER_LENGTH..).and_then(<[u8]>::first_chunk::<ENVELOPE_LENGTH>) else {
            return Ok(None);
        };
        let [o0, o1, o2, o3, s0, s1, s2, s3, compressor] = *envelope;
        let op_code = OpCode::from_wire(i32::from_le_bytes([o0, o1, o2, o3]));
        if op_code == OpCode::Compressed {
            return Err(WireError::NestedCompression);
        }
        let claimed = i32::from_le_bytes([s0, s1, s2, s3]);
        let content =
            usize::try_from(claimed).ok().filter(|size| (1..=MAX_MESSAGE_LENGTH - HEADER_LENGTH).contains(size));
        let length = HEADER_LENGTH + content.ok_or(WireError::BadUncompressedSize(claimed))?;
        Ok(Some(Self {
            header: Header { length, op_code, ..outer },
            compressor: Compressor::from_wire(compressor).ok_or(WireError::UnknownCompressor(compressor))?,
        }))
    }

    /// Returns the header of the decompressed message, followed by `content` zero bytes.
    fn start(&self, content: usize) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_LENGTH);
        Header::write(&mut header, self.header.request_id, self.header.response_to, self.header.op_code);
        if let (Some(prefix), Ok(length)) = (header.first_chunk_mut::<4>(), u32::try_from(self.header.length)) {
            *prefix = length.to_le_bytes();
        }
        // The kernel zeroes pages when they are first written, so a large claimed size alone uses no memory.
        let mut message = vec![0; HEADER_LENGTH + content];
        message.iter_mut().zip(header).for_each(|(to, from)| *to = from);
        message
    }
}

/// Returns the opcode of the compressed message, even if the envelope has other errors.
pub fn inner_op_code(frame: &[u8]) -> Option<OpCode> {
    let code = frame.get(HEADER_LENGTH..).and_then(<[u8]>::first_chunk)?;
    Some(OpCode::from_wire(i32::from_le_bytes(*code)))
}

/// Decompresses a complete frame.
///
/// # Errors
/// Any [`WireError`], also if bytes follow the compressed data.
pub fn decompress(frame: &[u8]) -> Result<Vec<u8>, WireError> {
    const WHERE: &str = "the OP_COMPRESSED";
    Header::of_frame(frame)?;
    let envelope = CompressedEnvelope::parse(frame)?.ok_or(WireError::Truncated(WHERE))?;
    let data = frame.get(DATA_AT..).unwrap_or_default();
    let content = envelope.header.length - HEADER_LENGTH;
    let damaged = WireError::DamagedCompression(envelope.compressor.name());
    if envelope.compressor == Compressor::Snappy && snap::raw::decompress_len(data) != Ok(content) {
        return Err(damaged);
    }
    let mut message = envelope.start(content);
    let room = message.get_mut(HEADER_LENGTH..).unwrap_or_default();
    let written = match envelope.compressor {
        Compressor::Snappy => snap::raw::Decoder::new().decompress(data, room).ok(),
        Compressor::Zlib => inflate(data, room),
        Compressor::Zstd => zstd::bulk::decompress_to_buffer(data, room).ok(),
    };
    if written == Some(content) { Ok(message) } else { Err(damaged) }
}

/// Decompresses all of `data` into `room`. Returns the number of bytes written, or `None` if the data is damaged, too
/// long for `room`, or followed by other bytes.
fn inflate(data: &[u8], room: &mut [u8]) -> Option<usize> {
    let mut decoder = Decompress::new(true);
    let status = decoder.decompress(data, room, FlushDecompress::Finish).ok()?;
    let whole = status == Status::StreamEnd && usize::try_from(decoder.total_in()) == Ok(data.len());
    usize::try_from(decoder.total_out()).ok().filter(|_| whole)
}

/// Compresses a message. Returns `None` if the result would exceed the maximum message length or `frame` is not a
/// message that can be compressed. The caller then sends it uncompressed.
pub fn compress(frame: &[u8], method: CompressionMethod) -> Option<Vec<u8>> {
    let header = Header::of_frame(frame).ok().filter(|header| header.op_code != OpCode::Compressed)?;
    let content = frame.get(HEADER_LENGTH..)?;
    let mut out = Vec::with_capacity(DATA_AT + content.len() / 2);
    Header::write(&mut out, header.request_id, header.response_to, OpCode::Compressed);
    out.extend_from_slice(&header.op_code.to_wire().to_le_bytes());
    out.extend_from_slice(&i32::try_from(content.len()).ok()?.to_le_bytes());
    out.push(method.compressor.to_wire());
    let data = match method.compressor {
        Compressor::Snappy => snap::raw::Encoder::new().compress_vec(content).ok()?,
        Compressor::Zlib => deflate(content, method.level)?,
        Compressor::Zstd => {
            zstd::bulk::compress(content, method.level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL)).ok()?
        }
    };
    out.extend_from_slice(&data);
    patch_length(&mut out);
    (out.len() <= MAX_MESSAGE_LENGTH).then_some(out)
}

fn deflate(content: &[u8], level: Option<i32>) -> Option<Vec<u8>> {
    let level = level.and_then(|level| u32::try_from(level).ok()).map_or(Compression::default(), Compression::new);
    let mut encoder = Compress::new(level, true);
    // At the lowest levels incompressible data grows by one bit for each byte.
    let mut data = Vec::with_capacity(content.len() + content.len() / 8 + 64);
    let status = encoder.compress_vec(content, &mut data, FlushCompress::Finish).ok()?;
    (status == Status::StreamEnd).then_some(data)
}

#[cfg(test)]
mod tests;
