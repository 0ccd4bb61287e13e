//! Clients that send a message and wait for its reply, again and again.

use anyhow::Result;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::exchange::{check, exchange};

/// As many at a time, so that messages meet.
const CLIENTS: usize = 4;
/// A read buffer at first; it grows with the replies.
const BUFFER: usize = 16 * 1024;

pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER] })
    }

    /// # Errors
    /// The socket's, and when the message is refused: it would teach nothing.
    pub(crate) async fn ask(&mut self, message: &[u8]) -> Result<()> {
        let length = exchange(&mut self.stream, message, &mut self.buffer).await?;
        check(&self.buffer[..length])
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
