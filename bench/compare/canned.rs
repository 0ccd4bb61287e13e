//! An upstream that answers every message at once with the same few bytes, so that the benchmark measures the proxy
//! in front of it. It distinguishes commands only as far as their replies differ, and answers what a driver needs to
//! connect.

use anyhow::Result;
use bson::doc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::frames;

/// Bytes before the first key of an OP_MSG's body: header, flags, kind, length, tag.
const FIRST_KEY_AT: usize = 16 + 4 + 1 + 4 + 1;
/// Number of leading bytes of a message that are searched to choose the reply.
const HEAD: usize = 64;
/// Upper bound of the numbers that one reservation takes.
const MOST_RESERVED: i64 = 1_000_000;
/// Bytes per read; longer messages are read and discarded in parts.
const BUFFER: usize = 64 * 1024;

/// Serves one client until it disconnects.
pub(crate) async fn answer(mut client: TcpStream) -> Result<()> {
    client.set_nodelay(true)?;
    let mut replies = Replies::default();
    let mut buffer = vec![0; BUFFER];
    let (mut from, mut to) = (0, 0);
    loop {
        while let Some(length) = frame_length(&buffer[from..to]).filter(|length| to - from >= HEAD.min(*length)) {
            let frame = &buffer[from..to];
            let reply = replies.to(&frame[..frame.len().min(HEAD)]);
            let here = length.min(frame.len());
            from += here;
            // The rest of the message has not arrived, so no other message follows it in the buffer.
            read_through(&mut client, length - here, &mut buffer).await?;
            client.write_all(reply).await?;
        }
        buffer.copy_within(from..to, 0);
        (from, to) = (0, to - from);
        match client.read(&mut buffer[to..]).await? {
            0 => return Ok(()),
            read => to += read,
        }
    }
}

/// The length of the frame at the start of the buffer; `None` while its header is incomplete.
pub(crate) fn frame_length(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk().map(|length| u32::from_le_bytes(*length) as usize)
}

/// Reads this many bytes and discards them.
async fn read_through(client: &mut TcpStream, mut length: usize, buffer: &mut [u8]) -> Result<()> {
    while length > 0 {
        let part = length.min(buffer.len());
        length -= client.read_exact(&mut buffer[..part]).await?;
    }
    Ok(())
}

/// The replies of the upstream.
struct Replies {
    hello: Vec<u8>,
    found: Vec<u8>,
    found_much: Option<Vec<u8>>,
    written: Vec<u8>,
    /// The last number of the last reserved block.
    number: i64,
    reserved: Vec<u8>,
}

impl Default for Replies {
    fn default() -> Self {
        let hello = doc! {
            "isWritablePrimary": true, "maxBsonObjectSize": 16 << 20, "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000, "minWireVersion": 0, "maxWireVersion": 17,
            "compression": ["snappy", "zstd", "zlib"], "ok": 1.0,
        };
        Self {
            hello: frames::reply(0, &hello),
            found: found(""),
            found_much: None,
            written: frames::reply(0, &doc! { "n": 1, "nModified": 1, "ok": 1.0 }),
            number: 0,
            reserved: Vec::new(),
        }
    }
}

impl Replies {
    /// The reply to a message that begins with these bytes. A find that asks for a document of a given size gets one.
    fn to(&mut self, head: &[u8]) -> &[u8] {
        let key = head.get(FIRST_KEY_AT..).unwrap_or_default();
        let reply = if key.starts_with(b"find\0") {
            match frames::length_wanted(head) {
                None => &mut self.found,
                Some(length) => self.found_much.get_or_insert_with(|| found(&"x".repeat(length))),
            }
        } else if key.starts_with(b"hello\0") || key.starts_with(b"isMaster\0") {
            &mut self.hello
        } else if key.starts_with(b"findAndModify\0") {
            // The counter that a reservation increments, whatever the block size.
            self.number += MOST_RESERVED;
            let counter = doc! { "_id": "a counter", "seq": self.number };
            self.reserved = frames::reply(0, &doc! { "value": counter, "ok": 1.0 });
            &mut self.reserved
        } else {
            &mut self.written
        };
        reply[8..12].copy_from_slice(&head[4..8]);
        reply
    }
}

fn found(note: &str) -> Vec<u8> {
    let document = doc! { "_id": 1i64, "temperature": 21.5, "lock": "shut", "note": note };
    let cursor = doc! { "firstBatch": [document], "id": 0i64, "ns": "bench.devices" };
    frames::reply(0, &doc! { "cursor": cursor, "ok": 1.0 })
}
