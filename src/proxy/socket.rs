//! Options every socket of docward has.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Idle time after which a dead peer is asked for, and between questions: what MongoDB's drivers use (120 s),
/// below the idle timeouts of common load balancers.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Sends without waiting for more (messages are whole when they are written) and notices dead peers.
///
/// # Errors
/// The socket's; it is of no use then.
pub(super) fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
