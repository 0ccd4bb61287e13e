//! Decompresses the start of a message from the first bytes of its frame. That is enough to decide whether the
//! message can be streamed, without the memory for the whole message.
//!
//! The zlib and zstd libraries can stop early. The snappy library reads only whole blocks, so this module parses the
//! block format itself (snappy's `format_description.txt`).

use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::{CompressedEnvelope, Compressor, DATA_AT};
use crate::wire::{HEADER_LENGTH, WireError};

/// The maximum zstd window for streaming decompression, the value that the format recommends (RFC 8878, 3.1.1.1.2).
/// Decompression uses as much memory as the window. Messages with a larger window are decompressed as a whole.
const WINDOW_LOG_MAX: u32 = 23;

/// How much to decompress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecompressLimit {
    /// At most this number of bytes of the content.
    UpTo(usize),
    /// At most this number of bytes. If the frame is complete, the rest is decompressed and discarded too, to check
    /// that the message has exactly the size it claims.
    Checked(usize),
}

/// Returns the header and the start of the content of an OP_COMPRESSED frame. The result is shorter than requested if
/// `head` does not contain enough.
///
/// # Errors
/// Any [`WireError`]. It does not mean that the message is invalid; [`decompress`](super::decompress) decides that.
pub fn peek(head: &[u8], depth: DecompressLimit) -> Result<Vec<u8>, WireError> {
    let envelope = CompressedEnvelope::parse(head)?.ok_or(WireError::Truncated("the OP_COMPRESSED"))?;
    let whole = crate::wire::Header::of_frame(head).is_ok();
    let (limit, check) = match depth {
        DecompressLimit::UpTo(limit) => (limit, false),
        DecompressLimit::Checked(limit) => (limit, whole),
    };
    let data = head.get(DATA_AT..).unwrap_or_default();
    let content = envelope.header.length - HEADER_LENGTH;
    let mut message = envelope.start(limit.min(content));
    let room = message.get_mut(HEADER_LENGTH..).unwrap_or_default();
    let check = check.then_some(content);
    let written = match envelope.compressor {
        Compressor::Snappy => Snappy::decompress_start(data, content, room, check.is_some()),
        Compressor::Zlib => decompress_start(Decompress::new(true), data, room, check),
        Compressor::Zstd => zstd_decoder().and_then(|decoder| decompress_start(decoder, data, room, check)),
    };
    let written = written.ok_or(WireError::DamagedCompression(envelope.compressor.name()))?;
    message.truncate(HEADER_LENGTH + written);
    Ok(message)
}

/// Returns the number of bytes of a frame that are enough to read `limit` bytes of content. zstd returns nothing
/// before a whole block of up to 128 KiB is available.
pub fn peek_length(compressor: Compressor, limit: usize) -> usize {
    const BLOCK: usize = 128 * 1024;
    /// Frame and block headers, and the growth of incompressible data.
    const OVERHEAD: usize = 1024;
    let content = if compressor == Compressor::Zstd { BLOCK.max(limit) } else { limit };
    DATA_AT + content + OVERHEAD
}

/// The result of one step of a decoder.
struct DecodeStep {
    read: usize,
    written: usize,
    /// All data has been decompressed.
    ended: bool,
}

/// A decoder that can stop at any byte.
trait Decode {
    /// Returns `None` if the data is damaged.
    fn run(&mut self, data: &[u8], room: &mut [u8]) -> Option<DecodeStep>;
}

impl Decode for Decompress {
    fn run(&mut self, data: &[u8], room: &mut [u8]) -> Option<DecodeStep> {
        let (read, written) = (self.total_in(), self.total_out());
        let status = self.decompress(data, room, FlushDecompress::None).ok()?;
        Some(DecodeStep {
            read: usize::try_from(self.total_in() - read).ok()?,
            written: usize::try_from(self.total_out() - written).ok()?,
            ended: status == Status::StreamEnd,
        })
    }
}

impl Decode for Decoder<'static> {
    fn run(&mut self, data: &[u8], room: &mut [u8]) -> Option<DecodeStep> {
        let (mut input, mut output) = (InBuffer::around(data), OutBuffer::around(room));
        let hint = Operation::run(self, &mut input, &mut output).ok()?;
        Some(DecodeStep { read: input.pos(), written: output.pos(), ended: hint == 0 })
    }
}

fn zstd_decoder() -> Option<Decoder<'static>> {
    let mut decoder = Decoder::new().ok()?;
    decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).ok()?;
    Some(decoder)
}

/// Fills `room` from `data`. With `check` it also reads the rest and requires exactly that number of bytes in total.
fn decompress_start(mut decoder: impl Decode, mut data: &[u8], room: &mut [u8], check: Option<usize>) -> Option<usize> {
    let mut filled = 0;
    let mut ended = false;
    while let Some(rest) = room.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let run = decoder.run(data, rest)?;
        filled += run.written;
        ended = run.ended;
        data = data.get(run.read..)?;
        if run.read == 0 && run.written == 0 {
            break;
        }
    }
    let Some(content) = check else { return Some(filled) };
    let mut total = filled;
    let mut sink = [0; 4096];
    // The decoder may have to run once more: it can return all content before it reports the end.
    while total <= content && !(ended && data.is_empty()) {
        let run = decoder.run(data, &mut sink)?;
        total += run.written;
        ended = run.ended;
        data = data.get(run.read..)?;
        if run.read == 0 && run.written == 0 {
            break;
        }
    }
    (ended && data.is_empty() && total == content).then_some(filled)
}

/// A reader of snappy's block format that stores only the start of the content.
struct Snappy<'d, 'r> {
    data: &'d [u8],
    room: &'r mut [u8],
    /// Number of decompressed bytes, stored or not.
    produced: usize,
}

/// One element of a block.
enum SnappyElement<'d> {
    Literal { length: usize, here: &'d [u8] },
    Copy { offset: usize, length: usize },
}

impl<'d> Snappy<'d, '_> {
    fn decompress_start(data: &'d [u8], content: usize, room: &mut [u8], check: bool) -> Option<usize> {
        let mut snappy = Snappy { data, room, produced: 0 };
        if snappy.preamble()? != content {
            return None;
        }
        while !snappy.data.is_empty() && (check || snappy.produced < snappy.room.len()) {
            let Some(element) = snappy.element()? else {
                // The tag is incomplete.
                return (!check).then_some(snappy.produced.min(snappy.room.len()));
            };
            let complete = match element {
                SnappyElement::Literal { length, here } => {
                    snappy.literal(here);
                    here.len() == length
                }
                SnappyElement::Copy { offset, length } => {
                    snappy.copy(offset, length)?;
                    true
                }
            };
            if snappy.produced > content || (check && !complete) {
                return None;
            }
        }
        let valid = !check || (snappy.data.is_empty() && snappy.produced == content);
        valid.then_some(snappy.produced.min(snappy.room.len()))
    }

    /// Reads the uncompressed length, a 32-bit varint.
    fn preamble(&mut self) -> Option<usize> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return usize::try_from(u32::try_from(value).ok()?).ok();
            }
        }
        None
    }

    /// Returns the next element, `Some(None)` if its tag is incomplete, or `None` if the data is damaged.
    #[expect(clippy::option_option, reason = "damaged, or incomplete")]
    fn element(&mut self) -> Option<Option<SnappyElement<'d>>> {
        let Some(tag) = self.byte() else { return Some(None) };
        let upper = usize::from(tag >> 2);
        let extra = match (tag & 3, upper) {
            (0, 60..) => upper - 59,
            (0, _) => 0,
            (1, _) => 1,
            (2, _) => 2,
            _ => 4,
        };
        let Some((number, rest)) = self.data.split_at_checked(extra) else {
            self.data = &[];
            return Some(None);
        };
        self.data = rest;
        let number = number.iter().rev().fold(0, |number, byte| (number << 8) | usize::from(*byte));
        Some(Some(match tag & 3 {
            0 => {
                let length = if extra == 0 { upper } else { number }.checked_add(1)?;
                let (here, rest) = self.data.split_at(length.min(self.data.len()));
                self.data = rest;
                SnappyElement::Literal { length, here }
            }
            1 => SnappyElement::Copy { length: (upper & 7) + 4, offset: ((upper >> 3) << 8) | number },
            _ => SnappyElement::Copy { length: upper + 1, offset: number },
        }))
    }

    fn literal(&mut self, bytes: &[u8]) {
        let room = self.room.get_mut(self.produced..).unwrap_or_default();
        room.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        self.produced += bytes.len();
    }

    /// Copies `length` bytes from `offset` bytes back. Source and target may overlap.
    fn copy(&mut self, offset: usize, length: usize) -> Option<()> {
        let from = self.produced.checked_sub(offset).filter(|_| offset > 0)?;
        for step in 0..length {
            let Some(byte) = self.room.get(from + step).copied() else { break };
            match self.room.get_mut(self.produced + step) {
                Some(to) => *to = byte,
                None => break,
            }
        }
        self.produced += length;
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.data.split_first()?;
        self.data = rest;
        Some(*first)
    }
}
