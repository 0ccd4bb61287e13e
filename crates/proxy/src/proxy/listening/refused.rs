//! Sends a refused client the reason. Its first message, usually a hello, gets an error reply in the same opcode,
//! which drivers report as the cause of a failed server selection.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::command::{code, error_reply};
use crate::wire::{HEADER_LENGTH, Header};

/// Bytes of a first message that is read completely; a hello has a few hundred.
const MAX_LENGTH: usize = 64 * 1024;

/// Answers the first message and waits until the client has closed. The caller bounds the time.
///
/// # Errors
/// I/O errors of the socket, and `InvalidData` for an invalid message.
pub(in crate::proxy) async fn send_refusal(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    text: &str,
) -> io::Result<()> {
    let mut head = [0; HEADER_LENGTH];
    client.read_exact(&mut head).await?;
    let header = Header::parse(&head).ok().flatten().ok_or(io::ErrorKind::InvalidData)?;
    let rest = (header.length - HEADER_LENGTH) as u64;
    if header.length > MAX_LENGTH {
        return Err(io::ErrorKind::InvalidData.into());
    }
    tokio::io::copy(&mut (&mut client).take(rest), &mut tokio::io::sink()).await?;
    let reply = error_reply(header, code::TEMPORARILY_UNAVAILABLE, &format!("docward: {text}"), |_| {});
    client.write_all(&reply).await?;
    client.shutdown().await?;
    // Closing before the client has read the reply could discard it.
    tokio::io::copy(&mut client.take(MAX_LENGTH as u64), &mut tokio::io::sink()).await?;
    Ok(())
}
