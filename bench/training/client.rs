//! Clients that send a message and wait for its reply, again and again.

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::canned::frame_length;

/// As many at a time, so that messages meet.
const CLIENTS: usize = 4;
/// In bytes; what is longer has documents in it.
const LONGEST_REFUSAL: usize = 4096;

pub(crate) struct Client {
    stream: TcpStream,
    reply: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, reply: Vec::new() })
    }

    /// # Errors
    /// The socket's, and when a write is refused: it would teach nothing.
    pub(crate) async fn ask(&mut self, message: &[u8]) -> Result<()> {
        self.stream.write_all(message).await?;
        self.reply.resize(4, 0);
        self.stream.read_exact(&mut self.reply).await?;
        let length = frame_length(&self.reply).unwrap_or_default();
        ensure!(length > 4, "a reply of {length} bytes");
        self.reply.resize(length, 0);
        self.stream.read_exact(&mut self.reply[4..]).await?;
        let refused = self.reply.len() < LONGEST_REFUSAL && self.reply.windows(11).any(|part| part == b"writeErrors");
        ensure!(!refused, "refused: {}", String::from_utf8_lossy(&self.reply));
        Ok(())
    }
}

/// Sends a message so often, by several clients.
pub(crate) async fn send(address: &str, message: &[u8], count: usize) -> Result<()> {
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (address, message) = (address.to_owned(), message.to_owned());
        clients.spawn(async move {
            let mut client = Client::connect(&address).await?;
            for _ in 0..count / CLIENTS {
                client.ask(&message).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    Ok(())
}
