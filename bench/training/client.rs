//! Clients that send a message and wait for its reply, repeatedly.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use bson::doc;
use docward_protocol::wire::compressed::{Compressor, compress};
use tokio::task::JoinSet;

use super::Message;
use super::cycle::Cycle;
use super::exchange::{BUFFER, check, connect, exchange};
use super::frames::{self, Session};

/// Concurrent clients, so that messages overlap.
const CLIENTS: usize = 4;

/// Sends the messages of `message` this often in all, with several clients, each in its own session.
///
/// # Errors
/// Socket errors, and rejected messages, which would train the wrong path.
pub(crate) async fn send(address: &str, compressor: Option<Compressor>, message: Message, count: usize) -> Result<()> {
    static SESSIONS: AtomicU32 = AtomicU32::new(0);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let session = Session::Own(SESSIONS.fetch_add(1, Ordering::Relaxed).into());
        let cycle = Cycle::of(message(session));
        clients.spawn(send_by_one(address.to_owned(), compressor, cycle, count / CLIENTS));
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    Ok(())
}

async fn send_by_one(address: String, compressor: Option<Compressor>, mut cycle: Cycle, count: usize) -> Result<()> {
    let mut stream = connect(&address).await?;
    let mut buffer = vec![0; BUFFER];
    if let Some(compressor) = compressor {
        let hello = doc! { "hello": 1, "compression": [compressor.name()], "$db": "admin" };
        let length = exchange(&mut stream, &frames::message(&hello, "", &[]), &mut buffer).await?;
        check(&buffer[..length])?;
    }
    for _ in 0..count {
        let (at, frame) = cycle.advance();
        let length = match compressor {
            None => exchange(&mut stream, frame, &mut buffer).await?,
            Some(compressor) => {
                let frame = compress(frame, compressor.into()).context("a message that cannot be compressed")?;
                exchange(&mut stream, &frame, &mut buffer).await?
            }
        };
        cycle.on_reply(at, &buffer[..length])?;
    }
    Ok(())
}
