//! The minimal proxy: tokio copies bytes in both directions without reading them, on tokio's own thread pool. It is
//! the baseline of docward's fast path.

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

pub(crate) async fn relay(mut client: TcpStream, upstream: String) -> Result<()> {
    let mut upstream = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut upstream).await?;
    Ok(())
}
