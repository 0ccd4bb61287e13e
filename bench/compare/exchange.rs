//! A client connection: sends one message, reads its reply, and checks that it reports success.

use anyhow::{Context, Result, ensure};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::canned::frame_length;

/// A read buffer at first; it grows with the replies.
pub(crate) const BUFFER: usize = 16 * 1024;

pub(crate) async fn connect(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a message and reads its reply into `buffer`, which must not be empty and grows as needed; returns the
/// reply's length.
pub(crate) async fn exchange(stream: &mut TcpStream, frame: &[u8], buffer: &mut Vec<u8>) -> Result<usize> {
    stream.write_all(frame).await?;
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        ensure!(read > 0, "the connection was closed instead of a reply");
        filled += read;
        match frame_length(&buffer[..filled]) {
            Some(length) if length <= filled => return Ok(filled),
            Some(length) if length > buffer.len() => buffer.resize(length, 0),
            _ => {}
        }
    }
}

/// Returns an error unless the reply reports success.
pub(crate) fn check(reply: &[u8]) -> Result<()> {
    /// An error is at the beginning or the end of its reply; returned documents are in between.
    const SEARCHED: usize = 1024;
    let ends = [&reply[..reply.len().min(SEARCHED)], &reply[reply.len().saturating_sub(SEARCHED)..]];
    let signs = [&b"\x01ok\0\0\0\0\0\0\0\0\0"[..], b"\x04writeErrors\0"];
    let refused = ends.iter().any(|end| signs.iter().any(|sign| memmem::find(end, sign).is_some()));
    ensure!(!refused, "the server refused a message: {}", String::from_utf8_lossy(reply));
    Ok(())
}
