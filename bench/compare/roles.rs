//! This program as one of the servers it compares, each a process of its own.

use std::io::Write;

use anyhow::Result;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use super::{canned, relay};

/// Serves in the role that `words` name; returns `None` if they name none.
pub(crate) fn play(words: &[&str]) -> Option<Result<()>> {
    match words {
        // A single thread, which costs less than the clients that send to it.
        ["serve", "canned"] => Some(serve(Builder::new_current_thread(), canned::answer)),
        ["serve", "relay", upstream] => {
            let upstream = (*upstream).to_owned();
            Some(serve(Builder::new_multi_thread(), move |client| relay::relay(client, upstream.clone())))
        }
        _ => None,
    }
}

/// Prints its listening address, and serves until the process is killed.
fn serve<S>(mut runtime: Builder, session: impl Fn(TcpStream) -> S) -> Result<()>
where
    S: Future<Output = Result<()>> + Send + 'static,
{
    rlimit::increase_nofile_limit(rlimit::INFINITY)?;
    runtime.enable_all().build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on {}", listener.local_addr()?);
        std::io::stdout().flush()?;
        loop {
            let (client, _) = listener.accept().await?;
            tokio::spawn(session(client));
        }
    })
}
