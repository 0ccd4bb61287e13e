//! Accepts connections on one listening socket.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::proxy::connection::listener_context::ListenerContext;
use crate::proxy::interceptor::Interceptor;
use crate::proxy::listening::admission::{ConnectionToken, Dispatcher};
use crate::rate_limit::RateLimit;

/// Pause after a failed accept: an immediate retry does not help when file descriptors are exhausted.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A task that accepts connections until `stop` turns true.
pub(in crate::proxy) struct Accepting {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Accepting {
    pub(in crate::proxy) fn start<P: Interceptor>(
        socket: Arc<TcpListener>,
        listener_context: Arc<ListenerContext<P>>,
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
async fn accept<P: Interceptor>(
    listener: Arc<TcpListener>,
    listener_context: Arc<ListenerContext<P>>,
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
    while let Some(Ok((client, peer))) = listener.accept().now_or_never() {
        dispatcher.admit(client, peer, &listener_context, &connection_token);
    }
}
