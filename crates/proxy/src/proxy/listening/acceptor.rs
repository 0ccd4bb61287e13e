//! Accepts connections on one listening socket.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::proxy::connection::listener_context::ListenerContext;
use crate::proxy::listening::admission::{ConnectionToken, Dispatcher};
use crate::proxy::transport::listening_sockets::BACKLOG;
use crate::rate_limit::RateLimit;

/// Pause after a failed accept: an immediate retry does not help when file descriptors are exhausted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A task that accepts connections until `stop` turns true.
pub(in crate::proxy) struct Accepting {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Accepting {
    pub(in crate::proxy) fn start(
        socket: Arc<TcpListener>,
        listener_context: Arc<ListenerContext>,
        dispatcher: Dispatcher,
        connection_token: &ConnectionToken,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(accept(socket, listener_context, dispatcher, connection_token.clone(), stopped));
        Self { stop, task }
    }

    /// Ends the task; `queue`: queued connections are accepted first.
    pub(in crate::proxy) async fn end(self, queue: bool) {
        if queue {
            self.stop.send_replace(true);
        } else {
            self.task.abort();
        }
        // An error means that the task was aborted.
        let _ = self.task.await;
    }
}

/// Accepts until `stop` turns true, and then the clients in the queue.
async fn accept(
    listener: Arc<TcpListener>,
    listener_context: Arc<ListenerContext>,
    dispatcher: Dispatcher,
    connection_token: ConnectionToken,
    mut stop: watch::Receiver<bool>,
) {
    let failed = RateLimit::default();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, peer)) => dispatcher.admit(client, peer, &listener_context, &connection_token),
            Err(error) => {
                if let Some(suppressed) = failed.line() {
                    let address = listener.local_addr().map_or_else(|error| error.to_string(), |it| it.to_string());
                    tracing::warn!(
                        listener = address,
                        suppressed,
                        "cannot accept connections; clients wait: {error} (if too many files are open, raise the limit: \
                         ulimit -n, LimitNOFILE=)"
                    );
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    for _ in 0..BACKLOG {
        match accept_queued(&listener) {
            Ok((client, peer)) => dispatcher.admit(client, peer, &listener_context, &connection_token),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // Of one client.
            Err(_) => {}
        }
    }
}

/// The next client in the queue. It asks the socket itself: tokio accepts only what its reactor has seen already, and
/// closing the listener would reset the others.
///
/// # Errors
/// `WouldBlock` if the queue is empty, and other socket errors.
fn accept_queued(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (client, peer) = SockRef::from(listener).accept()?;
    client.set_nonblocking(true)?;
    let peer = peer.as_socket().ok_or(ErrorKind::Unsupported)?;
    Ok((TcpStream::from_std(client.into())?, peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reactor of this runtime does not run between the connections and the end of the queue.
    #[tokio::test]
    async fn all_queued_clients_are_accepted_at_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let clients = [(); 20].map(|()| std::net::TcpStream::connect(address).unwrap());
        let accepted: Vec<_> = std::iter::from_fn(|| accept_queued(&listener).ok()).collect();
        let ends = |(mine, theirs): (&std::net::TcpStream, &(TcpStream, SocketAddr))| {
            mine.local_addr().unwrap() == theirs.1 && theirs.0.local_addr().unwrap() == address
        };
        assert_eq!(clients.iter().zip(&accepted).filter(|pair| ends(*pair)).count(), clients.len());
        assert_eq!(accept_queued(&listener).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
