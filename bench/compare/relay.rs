//! The least a proxy can do: tokio copies bytes both ways and looks at none, in tokio's own pool of threads.
//! docward's fast path is measured by it.

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
