//! Messages with and without their compression.

use std::borrow::Cow;

use crate::command::Reply as CommandReply;
use crate::proxy::connection::end::End;
use crate::wire::compressed::{CompressedEnvelope, Compressor, compress, decompress};
use crate::wire::{Header, OpCode, WireError};

/// Returns the header of the request in `frame`; a frame that reached this point has one.
pub(super) fn header_of(frame: &[u8]) -> Result<Header, End> {
    Header::of_frame(frame).map_err(|error| End::Client(error.into()))
}

/// The id of the cursor that a reply opens.
pub(super) fn cursor_id(frame: &[u8]) -> Option<i64> {
    let (frame, _) = unpack(frame).ok()?;
    CommandReply::parse(&frame).ok()?.cursor_id()
}

/// The decompressed message, and the compressor it arrived with.
pub(in crate::proxy) fn unpack(frame: &[u8]) -> Result<(Cow<'_, [u8]>, Option<Compressor>), WireError> {
    if Header::of_frame(frame)?.op_code != OpCode::Compressed {
        return Ok((Cow::Borrowed(frame), None));
    }
    let envelope = CompressedEnvelope::parse(frame)?;
    Ok((Cow::Owned(decompress(frame)?), envelope.map(|envelope| envelope.compressor)))
}

/// The length of a message without its compression; 0 if it cannot be read.
pub(super) fn unpacked_length(frame: &[u8]) -> usize {
    match Header::parse(frame) {
        Ok(Some(Header { op_code: OpCode::Compressed, .. })) => {
            CompressedEnvelope::parse(frame).ok().flatten().map_or(0, |envelope| envelope.header.length)
        }
        _ => frame.len(),
    }
}

/// A message for the client, compressed as its request was.
pub(in crate::proxy) fn pack(frame: Cow<'_, [u8]>, compressor: Option<Compressor>) -> Cow<'_, [u8]> {
    compressor.and_then(|compressor| compress(&frame, compressor.into())).map_or(frame, Cow::Owned)
}
