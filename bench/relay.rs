//! The least a proxy can do: tokio copies bytes both ways and looks at none. docward's fast path is measured
//! by it.

use std::io::Write;

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// Serves until it is killed, with as many threads as docward has.
pub(crate) fn serve(upstream: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on {}", listener.local_addr()?);
        std::io::stdout().flush()?;
        loop {
            let (client, _) = listener.accept().await?;
            tokio::spawn(relay(client, upstream.to_owned()));
        }
    })
}

async fn relay(mut client: TcpStream, upstream: String) -> Result<()> {
    let mut upstream = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut upstream).await?;
    Ok(())
}
