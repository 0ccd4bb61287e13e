//! The MongoDB wire format, written again for tests with owned values and the `bson` crate, without docward's code,
//! which it checks. `raw` and `scripted` use it.

use std::io::{self, Read};

use bson::{Document, RawDocument, RawDocumentBuf, Utf8Lossy};
use flate2::read::{ZlibDecoder, ZlibEncoder};

pub const OP_REPLY: i32 = 1;
pub const OP_QUERY: i32 = 2004;
pub const OP_COMPRESSED: i32 = 2012;
pub const OP_MSG: i32 = 2013;

pub const CHECKSUM_PRESENT: u32 = 1;
pub const MORE_TO_COME: u32 = 1 << 1;
pub const EXHAUST_ALLOWED: u32 = 1 << 16;

/// A header that claims this length, whatever follows.
pub fn header(length: i32, op_code: i32) -> Vec<u8> {
    [length, 1, 0, op_code].iter().flat_map(|field| field.to_le_bytes()).collect()
}

/// One message as it is on the wire: the header's fields and the remaining bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub request_id: i32,
    pub response_to: i32,
    pub op_code: i32,
    pub body: Vec<u8>,
}

impl Frame {
    /// Reads one frame; `None` if the peer closed the connection between two frames.
    ///
    /// # Errors
    /// Socket errors; `UnexpectedEof` if the peer closed the connection within a frame.
    pub fn read(stream: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut header = [0; 16];
        if stream.read(&mut header[..1])? == 0 {
            return Ok(None);
        }
        stream.read_exact(&mut header[1..])?;
        let field = |at: usize| i32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let length = usize::try_from(field(0)).ok().filter(|length| *length >= header.len());
        let length = length.ok_or_else(|| io::Error::other(format!("frame of {} bytes", field(0))))?;
        let mut body = vec![0; length - header.len()];
        stream.read_exact(&mut body)?;
        Ok(Some(Frame { request_id: field(4), response_to: field(8), op_code: field(12), body }))
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let length = i32::try_from(16 + self.body.len()).unwrap();
        let mut bytes = Vec::with_capacity(16 + self.body.len());
        for field in [length, self.request_id, self.response_to, self.op_code] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(&self.body);
        bytes
    }

    /// An OP_QUERY, which drivers use for their first hello: `namespace` is `admin.$cmd`.
    pub fn query(request_id: i32, namespace: &str, command: &Document) -> Frame {
        let mut body = vec![0; 4];
        body.extend(namespace.as_bytes());
        body.extend([0; 5]); // the name's end, and no documents to skip
        body.extend((-1i32).to_le_bytes());
        body.extend(command.to_vec().unwrap());
        Frame { request_id, response_to: 0, op_code: OP_QUERY, body }
    }

    /// The command of an OP_QUERY.
    pub fn query_document(&self) -> Document {
        assert_eq!(self.op_code, OP_QUERY);
        let name = self.body[4..].iter().position(|byte| *byte == 0).unwrap();
        Document::from_reader(&self.body[4 + name + 1 + 8..]).unwrap()
    }

    /// An OP_REPLY to an OP_QUERY.
    pub fn reply(response_to: i32, document: &Document) -> Frame {
        let mut body = vec![0; 16]; // flags, cursor id, starting position
        body.extend(1i32.to_le_bytes());
        body.extend(document.to_vec().unwrap());
        Frame { request_id: 0, response_to, op_code: OP_REPLY, body }
    }

    /// This message in an OP_COMPRESSED: 1 is snappy, 2 zlib, 3 zstd.
    pub fn compressed(&self, compressor: u8) -> Frame {
        let mut body = self.op_code.to_le_bytes().to_vec();
        body.extend(i32::try_from(self.body.len()).unwrap().to_le_bytes());
        body.push(compressor);
        body.extend(match compressor {
            1 => snap::raw::Encoder::new().compress_vec(&self.body).unwrap(),
            2 => {
                let mut data = Vec::new();
                ZlibEncoder::new(&self.body[..], flate2::Compression::fast()).read_to_end(&mut data).unwrap();
                data
            }
            3 => zstd::encode_all(&self.body[..], 1).unwrap(),
            other => panic!("compressor {other}"),
        });
        Frame { op_code: OP_COMPRESSED, body, ..*self }
    }

    /// The compressor of an OP_COMPRESSED, and the message in it; panics on another opcode.
    pub fn decompressed(&self) -> (u8, Frame) {
        assert_eq!(self.op_code, OP_COMPRESSED, "not an OP_COMPRESSED");
        let field = |at: usize| i32::from_le_bytes(self.body[at..at + 4].try_into().unwrap());
        let (compressor, data) = (self.body[8], &self.body[9..]);
        let body = match compressor {
            1 => snap::raw::Decoder::new().decompress_vec(data).unwrap(),
            2 => {
                let mut body = Vec::new();
                ZlibDecoder::new(data).read_to_end(&mut body).unwrap();
                body
            }
            3 => zstd::decode_all(data).unwrap(),
            other => panic!("compressor {other}"),
        };
        assert_eq!(body.len(), usize::try_from(field(4)).unwrap(), "not the size it claims");
        (compressor, Frame { op_code: field(0), body, ..*self })
    }

    /// The document of an OP_REPLY.
    pub fn reply_document(&self) -> Document {
        assert_eq!(self.op_code, OP_REPLY);
        Document::from_reader(&self.body[20..]).unwrap()
    }
}

/// One section of an OP_MSG.
#[derive(Clone, Debug, PartialEq)]
pub enum Section {
    Body(Document),
    Sequence(String, Vec<Document>),
    /// Bytes that `bson::Document` cannot represent, such as duplicate keys; includes the kind byte.
    Raw(Vec<u8>),
}

/// An OP_MSG, to send or as received.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    pub flags: u32,
    pub sections: Vec<Section>,
}

impl Message {
    /// A message of one body section, which must name its `$db`.
    pub fn new(body: Document) -> Message {
        Message { flags: 0, sections: vec![Section::Body(body)] }
    }

    /// Adds a kind-1 section after the existing ones.
    #[must_use]
    pub fn sequence(mut self, identifier: &str, documents: Vec<Document>) -> Message {
        self.sections.push(Section::Sequence(identifier.to_owned(), documents));
        self
    }

    /// Adds a kind-1 section before all others, including the body, which the format allows.
    #[must_use]
    pub fn sequence_first(mut self, identifier: &str, documents: Vec<Document>) -> Message {
        self.sections.insert(0, Section::Sequence(identifier.to_owned(), documents));
        self
    }

    /// Adds a kind-0 section of any bytes after the existing ones.
    #[must_use]
    pub fn raw_body(mut self, document: &RawDocumentBuf) -> Message {
        self.sections.push(Section::Raw([&[0], document.as_bytes()].concat()));
        self
    }

    /// Adds flag bits. With `CHECKSUM_PRESENT` the correct checksum is appended.
    #[must_use]
    pub fn flags(mut self, bits: u32) -> Message {
        self.flags |= bits;
        self
    }

    /// The body's document; panics if there is none.
    pub fn body(&self) -> &Document {
        let body = self.sections.iter().find_map(|section| match section {
            Section::Body(document) => Some(document),
            _ => None,
        });
        body.unwrap_or_else(|| panic!("no body in {self:?}"))
    }

    /// The documents of a kind-1 section, or else of the body's array with that name.
    pub fn documents(&self, name: &str) -> Vec<Document> {
        let sequence = self.sections.iter().find_map(|section| match section {
            Section::Sequence(identifier, documents) if identifier == name => Some(documents.clone()),
            _ => None,
        });
        sequence.unwrap_or_else(|| {
            let array = self.body().get_array(name).cloned().unwrap_or_default();
            array.iter().map(|value| value.as_document().unwrap().clone()).collect()
        })
    }

    pub fn to_frame(&self, request_id: i32, response_to: i32) -> Frame {
        let mut body = self.flags.to_le_bytes().to_vec();
        for section in &self.sections {
            section.write(&mut body);
        }
        let mut frame = Frame { request_id, response_to, op_code: OP_MSG, body };
        if self.flags & CHECKSUM_PRESENT != 0 {
            frame.body.extend([0; 4]); // the length field counts the checksum
            let bytes = frame.to_bytes();
            let checksum = crc32c::crc32c(&bytes[..bytes.len() - 4]);
            let end = frame.body.len() - 4;
            frame.body[end..].copy_from_slice(&checksum.to_le_bytes());
        }
        frame
    }

    /// Parses an OP_MSG; panics on another opcode or a wrong checksum.
    pub fn parse(frame: &Frame) -> Message {
        assert_eq!(frame.op_code, OP_MSG, "not an OP_MSG");
        let (flags, mut rest) = frame.body.split_at(4);
        let flags = u32::from_le_bytes(flags.try_into().unwrap());
        if flags & CHECKSUM_PRESENT != 0 {
            let (sections, checksum) = rest.split_at(rest.len() - 4);
            let bytes = frame.to_bytes();
            let right = crc32c::crc32c(&bytes[..bytes.len() - 4]).to_le_bytes();
            assert_eq!(checksum, right, "wrong checksum");
            rest = sections;
        }
        let mut sections = Vec::new();
        while !rest.is_empty() {
            sections.push(Section::read(&mut rest));
        }
        Message { flags, sections }
    }
}

impl Section {
    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Section::Body(document) => {
                bytes.push(0);
                bytes.extend(document.to_vec().unwrap());
            }
            Section::Sequence(identifier, documents) => {
                let mut content = [identifier.as_bytes(), &[0]].concat();
                for document in documents {
                    content.extend(document.to_vec().unwrap());
                }
                bytes.push(1);
                bytes.extend(i32::try_from(4 + content.len()).unwrap().to_le_bytes());
                bytes.extend(content);
            }
            Section::Raw(raw) => bytes.extend(raw),
        }
    }

    fn read(bytes: &mut &[u8]) -> Section {
        let (kind, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        match kind {
            0 => Section::Body(read_body(bytes)),
            1 => {
                let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
                let (section, rest) = bytes.split_at(length);
                *bytes = rest;
                let name = section[4..].iter().position(|byte| *byte == 0).unwrap();
                let identifier = String::from_utf8(section[4..4 + name].to_vec()).unwrap();
                let mut rest = &section[4 + name + 1..];
                let mut documents = Vec::new();
                while !rest.is_empty() {
                    documents.push(Document::from_reader(&mut rest).unwrap());
                }
                Section::Sequence(identifier, documents)
            }
            kind => panic!("section of kind {kind}"),
        }
    }
}

/// Server errors may quote invalid UTF-8.
fn read_body(bytes: &mut &[u8]) -> Document {
    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    let (document, rest) = bytes.split_at(length);
    *bytes = rest;
    let Utf8Lossy(document) = RawDocument::from_bytes(document).unwrap().try_into().unwrap();
    document
}
