//! OP_QUERY and OP_REPLY. Servers since 5.1 accept OP_QUERY only for the first `isMaster` or `hello` of a connection
//! (MongoDB manual, "Legacy Opcodes").

use super::WireError;
use super::header::{HEADER_LENGTH, Header, OpCode, patch_length};
use super::op_msg::{c_string, document, u32_le};

/// A parsed OP_QUERY.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    pub header: Header,
    pub flags: u32,
    /// `database.$cmd` for a command. It may be invalid UTF-8.
    pub collection: &'a [u8],
    pub skip: u32,
    pub limit: u32,
    pub document: &'a [u8],
    /// The optional returnFieldsSelector, unchanged.
    selector: &'a [u8],
}

impl<'a> Query<'a> {
    /// Parses a complete frame.
    ///
    /// # Errors
    /// Any [`WireError`] if the frame is malformed.
    pub fn parse(frame: &'a [u8]) -> Result<Self, WireError> {
        const WHERE: &str = "the OP_QUERY";
        let header = Header::of_frame(frame)?;
        let (rest, flags) = u32_le(frame.get(HEADER_LENGTH..).unwrap_or_default(), WHERE)?;
        let (collection, rest) = c_string(rest, WHERE)?;
        let (rest, skip) = u32_le(rest, WHERE)?;
        let (rest, limit) = u32_le(rest, WHERE)?;
        let (selector, query) = document(rest, WHERE)?;
        if !selector.is_empty() {
            let (trailing, _) = document(selector, WHERE)?;
            if !trailing.is_empty() {
                return Err(WireError::TrailingBytes(trailing.len()));
            }
        }
        Ok(Self { header, flags, collection, skip, limit, document: query, selector })
    }

    /// Returns the same query with another document.
    pub fn with_document(&self, document: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.header.length + document.len());
        Header::write(&mut out, self.header.request_id, self.header.response_to, OpCode::Query);
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(self.collection);
        out.push(0);
        out.extend_from_slice(&self.skip.to_le_bytes());
        out.extend_from_slice(&self.limit.to_le_bytes());
        out.extend_from_slice(document);
        out.extend_from_slice(self.selector);
        patch_length(&mut out);
        out
    }
}

/// Offset of the first document in an OP_REPLY, after header, flags, cursor id, starting from and number returned.
const REPLY_DOCUMENTS_AT: usize = HEADER_LENGTH + 4 + 8 + 4 + 4;

/// Returns the only document of an OP_REPLY to a command.
///
/// # Errors
/// Any [`WireError`] if the frame is malformed or has more than one document.
pub fn reply_document(frame: &[u8]) -> Result<&[u8], WireError> {
    Header::of_frame(frame)?;
    let documents = frame.get(REPLY_DOCUMENTS_AT..).ok_or(WireError::Truncated("the OP_REPLY"))?;
    match document(documents, "the OP_REPLY")? {
        ([], only) => Ok(only),
        (more, _) => Err(WireError::TrailingBytes(more.len())),
    }
}

/// Returns an OP_REPLY with one document.
pub fn write_reply(request_id: i32, response_to: i32, document: &[u8]) -> Vec<u8> {
    /// Flag bit 3, AwaitCapable. Every server sets it.
    const AWAIT_CAPABLE: u32 = 8;
    let mut out = Vec::with_capacity(REPLY_DOCUMENTS_AT + document.len());
    Header::write(&mut out, request_id, response_to, OpCode::Reply);
    out.extend_from_slice(&AWAIT_CAPABLE.to_le_bytes());
    out.extend_from_slice(&0i64.to_le_bytes());
    out.extend_from_slice(&0i32.to_le_bytes());
    out.extend_from_slice(&1i32.to_le_bytes());
    out.extend_from_slice(document);
    patch_length(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: [u8; 5] = [5, 0, 0, 0, 0];

    fn query(extra: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Header::write(&mut out, 5, 0, OpCode::Query);
        out.extend_from_slice(&[4, 0, 0, 0]);
        out.extend_from_slice(b"admin.$cmd\0");
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(-1i32).to_le_bytes());
        out.extend_from_slice(&EMPTY);
        out.extend_from_slice(extra);
        patch_length(&mut out);
        out
    }

    #[test]
    fn queries_round_trip() {
        for extra in [&[][..], &EMPTY] {
            let frame = query(extra);
            let parsed = Query::parse(&frame).unwrap();
            assert_eq!(parsed.collection, b"admin.$cmd");
            assert_eq!(parsed.with_document(&EMPTY), frame);
        }
    }

    #[test]
    fn truncated_and_overlong_queries_are_errors() {
        let frame = query(&[]);
        for end in HEADER_LENGTH..frame.len() {
            let mut cut = frame[..end].to_vec();
            patch_length(&mut cut);
            assert!(Query::parse(&cut).is_err(), "cut at {end}");
        }
        let long = query(&[&EMPTY[..], &[1]].concat());
        assert_eq!(Query::parse(&long).unwrap_err(), WireError::TrailingBytes(1));
    }

    #[test]
    fn replies_round_trip() {
        let reply = write_reply(1, 2, &EMPTY);
        assert_eq!(reply_document(&reply), Ok(&EMPTY[..]));
        assert!(reply_document(&reply[..20]).is_err());
        let mut two = write_reply(1, 2, &[EMPTY, EMPTY].concat());
        assert_eq!(reply_document(&two), Err(WireError::TrailingBytes(EMPTY.len())));
        two.truncate(reply.len());
        patch_length(&mut two);
        assert_eq!(reply_document(&two), Ok(&EMPTY[..]));
    }
}
