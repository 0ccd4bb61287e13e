//! Connections whose clients have left in the middle of an operation.

use tokio::io::{AsyncWriteExt, copy, sink};
use tokio::sync::watch::Receiver;
use tokio::time::timeout;

use super::member::MemberHello;
use super::{Lease, PooledConnection};
use crate::proxy::transport::socket::ServerSocket;

/// Closes the connection. Its slot stays taken until the server has closed it too, which it does when the operation has
/// ended, or until the member does not answer: otherwise impatient clients could let operations accumulate on the server
/// beyond the pool's size. At most for as long as a request waits, so that each request of another client gets its turn.
pub(in crate::proxy) fn abandon<S: ServerSocket>(
    lease: Lease<S>,
    mut connection: PooledConnection<S>,
    mut hello: Receiver<Option<MemberHello>>,
) {
    let Some(max_wait) = lease.pool.as_ref().map(|pool| pool.settings().max_wait) else { return };
    tokio::spawn(async move {
        let closed = async {
            // An error ends the connection, too.
            let _ = connection.stream.shutdown().await;
            let _ = copy(&mut connection.stream, &mut sink()).await;
        };
        tokio::select! {
            _ = timeout(max_wait, closed) => {}
            _ = hello.wait_for(Option::is_none) => {}
        }
        drop((connection, lease));
    });
}
