//! The 16-byte message header and the bounds of its length field.
//!
//! The length is checked before any memory is allocated for it: a length of 0 would make a parser loop, and a length
//! of 2 GiB would make it allocate that much.

use super::WireError;

/// Bytes of a message header: four little-endian `int32`.
pub const HEADER_LENGTH: usize = 16;

/// The maximum message length in bytes, including the header: `maxMessageSizeBytes` of every server since 3.6. mongod
/// closes the connection when it receives a longer one.
pub const MAX_MESSAGE_LENGTH: usize = 48_000_000;

/// The maximum length of a stored document in bytes: `maxBsonObjectSize` of every server since 1.8.
pub const MAX_DOCUMENT_LENGTH: usize = 16 * 1024 * 1024;

/// The maximum length in bytes of a document in a message (a command body or an element of a sequence). It is
/// mongod's `BSONObjMaxInternalSize`, which allows 16 KiB for the command around a stored document.
pub const MAX_COMMAND_DOCUMENT_LENGTH: usize = MAX_DOCUMENT_LENGTH + 16 * 1024;

/// The operation codes of the wire protocol (MongoDB manual, "MongoDB Wire Protocol", Opcodes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpCode {
    Compressed,
    Delete,
    GetMore,
    Insert,
    KillCursors,
    Msg,
    Query,
    Reply,
    Update,
    Unknown(i32),
}

impl OpCode {
    /// Returns the operation code with this number.
    pub fn from_wire(code: i32) -> Self {
        match code {
            1 => Self::Reply,
            2001 => Self::Update,
            2002 => Self::Insert,
            2004 => Self::Query,
            2005 => Self::GetMore,
            2006 => Self::Delete,
            2007 => Self::KillCursors,
            2012 => Self::Compressed,
            2013 => Self::Msg,
            other => Self::Unknown(other),
        }
    }

    /// Returns the number of the operation code.
    pub fn to_wire(self) -> i32 {
        match self {
            Self::Reply => 1,
            Self::Update => 2001,
            Self::Insert => 2002,
            Self::Query => 2004,
            Self::GetMore => 2005,
            Self::Delete => 2006,
            Self::KillCursors => 2007,
            Self::Compressed => 2012,
            Self::Msg => 2013,
            Self::Unknown(code) => code,
        }
    }
}

/// A message header with a valid length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Length of the whole message in bytes, including this header: `16 ..= MAX_MESSAGE_LENGTH`.
    pub length: usize,
    pub request_id: i32,
    pub response_to: i32,
    pub op_code: OpCode,
}

impl Header {
    /// Parses the header at the start of `bytes`. Returns `None` if there are fewer than 16 bytes.
    ///
    /// # Errors
    /// [`WireError::BadLength`]: the end of the message is unknown, so the rest of the stream cannot be parsed.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let Some((header, _)) = bytes.split_first_chunk::<HEADER_LENGTH>() else {
            return Ok(None);
        };
        let [l0, l1, l2, l3, r0, r1, r2, r3, t0, t1, t2, t3, o0, o1, o2, o3] = *header;
        let claimed = i32::from_le_bytes([l0, l1, l2, l3]);
        let length = usize::try_from(claimed).map_err(|_| WireError::BadLength(claimed))?;
        if !(HEADER_LENGTH..=MAX_MESSAGE_LENGTH).contains(&length) {
            return Err(WireError::BadLength(claimed));
        }
        Ok(Some(Self {
            length,
            request_id: i32::from_le_bytes([r0, r1, r2, r3]),
            response_to: i32::from_le_bytes([t0, t1, t2, t3]),
            op_code: OpCode::from_wire(i32::from_le_bytes([o0, o1, o2, o3])),
        }))
    }

    /// Parses the header of a complete frame and checks that the frame has the length it gives.
    ///
    /// # Errors
    /// [`WireError::Truncated`] or [`WireError::FrameLengthMismatch`] if `frame` is not exactly one message.
    pub fn of_frame(frame: &[u8]) -> Result<Self, WireError> {
        let header = Self::parse(frame)?.ok_or(WireError::Truncated("the header"))?;
        if header.length != frame.len() {
            return Err(WireError::FrameLengthMismatch { claimed: header.length, actual: frame.len() });
        }
        Ok(header)
    }

    /// Appends a header with a length of 0. [`patch_length`] writes the length afterwards.
    pub fn write(out: &mut Vec<u8>, request_id: i32, response_to: i32, op_code: OpCode) {
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&request_id.to_le_bytes());
        out.extend_from_slice(&response_to.to_le_bytes());
        out.extend_from_slice(&op_code.to_wire().to_le_bytes());
    }
}

/// Writes the length of `message` into its header.
pub fn patch_length(message: &mut [u8]) {
    let length = message.len() as u32;
    if let Some(prefix) = message.first_chunk_mut::<4>() {
        *prefix = length.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(length: i32) -> Vec<u8> {
        let mut bytes = Vec::new();
        Header::write(&mut bytes, 7, 9, OpCode::Msg);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    #[test]
    fn lengths_out_of_bounds_are_errors() {
        for length in [i32::MIN, -1, 0, 1, 15, 48_000_001, i32::MAX] {
            assert_eq!(Header::parse(&header(length)), Err(WireError::BadLength(length)));
        }
        for length in [16, 48_000_000] {
            assert_eq!(Header::parse(&header(length)).unwrap().unwrap().length, length as usize);
        }
    }

    #[test]
    fn an_incomplete_header_is_not_an_error() {
        assert_eq!(Header::parse(&header(0)[..15]), Ok(None));
    }

    #[test]
    fn op_codes_round_trip() {
        for code in [1, 2001, 2002, 2004, 2005, 2006, 2007, 2012, 2013, 2010, -5] {
            assert_eq!(OpCode::from_wire(code).to_wire(), code);
        }
    }
}
