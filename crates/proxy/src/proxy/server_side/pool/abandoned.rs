//! Connections whose clients have left in the middle of an operation.

use tokio::io::{AsyncWriteExt, copy, sink};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, timeout_at};

use super::member::MemberHello;
use super::{Checkout, PooledConnection};
use crate::proxy::transport::socket::ServerSocket;

/// Closes the connection. Its slot stays taken until the server has closed it too, which it does when the operation has
/// ended, or until the member does not answer: otherwise impatient clients could let operations accumulate on the server
/// beyond the pool's size. At most until `deadline`: requests of other clients must get their turn.
pub(in crate::proxy) fn abandon<S: ServerSocket>(
    checkout: Checkout<S>,
    mut connection: PooledConnection<S>,
    mut hello: Receiver<Option<MemberHello>>,
    deadline: Instant,
) {
    tokio::spawn(async move {
        let closed = async {
            // An error ends the connection, too.
            let _ = connection.stream.shutdown().await;
            let _ = copy(&mut connection.stream, &mut sink()).await;
        };
        tokio::select! {
            _ = timeout_at(deadline, closed) => {}
            _ = hello.wait_for(Option::is_none) => {}
        }
        drop((connection, checkout));
    });
}
