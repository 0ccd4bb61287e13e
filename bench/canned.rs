//! An upstream that answers every message at once with the same few bytes, so that what is measured is the
//! way to it. Knows no commands but as many as its answers differ by.

use std::io::Write;

use anyhow::{Result, ensure};
use bson::doc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::frames;

/// Bytes before the first key of an OP_MSG's body: header, flags, kind, length, tag.
const FIRST_KEY_AT: usize = 16 + 4 + 1 + 4 + 1;

/// Serves until it is killed. One thread: it costs less than what it is asked by.
pub(crate) fn serve() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on {}", listener.local_addr()?);
        std::io::stdout().flush()?;
        loop {
            let (client, _) = listener.accept().await?;
            tokio::spawn(answer(client));
        }
    })
}

async fn answer(mut client: TcpStream) -> Result<()> {
    client.set_nodelay(true)?;
    let found = doc! { "_id": 1i64, "temperature": 21.5, "door": "shut" };
    let cursor = doc! { "firstBatch": [found], "id": 0i64, "ns": "bench.devices" };
    let mut find = frames::reply(0, &doc! { "cursor": cursor, "ok": 1.0 });
    let mut write = frames::reply(0, &doc! { "n": 1, "nModified": 1, "ok": 1.0 });
    let mut hello = frames::reply(0, &hello());
    let mut buffer = vec![0; 64 * 1024];
    let mut filled = 0;
    loop {
        let read = client.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        let mut at = 0;
        while let Some(length) = frame_length(&buffer[at..filled]) {
            ensure!(length <= buffer.len(), "the canned upstream takes no message of {length} bytes");
            let Some(frame) = buffer.get(at..at + length).filter(|_| at + length <= filled) else { break };
            let key = frame.get(FIRST_KEY_AT..).unwrap_or_default();
            let reply = match key {
                _ if key.starts_with(b"find\0") => &mut find,
                _ if key.starts_with(b"hello\0") => &mut hello,
                _ => &mut write,
            };
            reply[8..12].copy_from_slice(&frame[4..8]);
            client.write_all(reply).await?;
            at += length;
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
    }
}

/// The length of the frame that begins here, once that can be told.
pub(crate) fn frame_length(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk().map(|length| u32::from_le_bytes(*length) as usize)
}

fn hello() -> bson::Document {
    doc! {
        "isWritablePrimary": true, "maxBsonObjectSize": 16 << 20, "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000, "minWireVersion": 0, "maxWireVersion": 17, "ok": 1.0,
    }
}
