//! A client's connection from being accepted to being relayed: counted, greeted in TLS if the listener has it,
//! paired with a connection to its member. What goes wrong is said to the client where it can be, and logged.
//!
//! Next: [`super::session`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use super::door::Door;
use super::limits::{Limits, Patience};
use super::policy::Policy;
use super::relay::Relay;
use super::socket::{self, Stream};
use super::throttle::Throttle;
use super::tls::ListenerTls;
use super::upstream::Upstream;
use super::{refusal, session};
use crate::engine::{OwnSession, Session};

/// Clients that are told at the same time why they are refused; more are closed without a word.
static TELLING: Semaphore = Semaphore::const_new(100);
/// The first byte of a TLS connection; of a message it would be a length, and a strange one.
const TLS_HANDSHAKE: u8 = 0x16;
const TLS_WANTED: &str = "this listener speaks TLS only; add tls=true to the connection string";

/// What stands between being accepted and being relayed; shared by all listeners.
#[derive(Debug)]
pub(super) struct Entrance {
    pub(super) upstream: Upstream,
    /// `None`: clients speak plainly.
    pub(super) tls: Option<Arc<ListenerTls>>,
    pub(super) limits: Arc<Limits>,
    /// Lines about clients that cannot come in.
    pub(super) refused: Throttle,
    /// Lines about clients whose member cannot be dialled.
    pub(super) unreachable: Throttle,
}

impl Entrance {
    pub(super) fn new(upstream: Upstream, tls: Option<Arc<ListenerTls>>, limits: Arc<Limits>) -> Self {
        Self { upstream, tls, limits, refused: Throttle::default(), unreachable: Throttle::default() }
    }

    fn log(&self, peer: SocketAddr, reason: &dyn std::fmt::Display) {
        if let Some(left_out) = self.refused.line() {
            tracing::warn!(client = %peer, left_out, "connection refused: {reason}");
        }
    }
}

/// One client, to the end of its connection.
pub(super) async fn receive<P: Policy>(
    client: TcpStream,
    peer: SocketAddr,
    door: Arc<Door<P>>,
    entrance: Arc<Entrance>,
    mut shutdown: watch::Receiver<bool>,
) {
    let arrived = Instant::now();
    let deadline = arrived + entrance.limits.settings.handshake_timeout;
    let admission = match entrance.limits.admit(peer.ip()) {
        Ok(admission) => admission,
        Err(full) => {
            entrance.log(peer, &full);
            let _ = timeout_at(deadline, Box::pin(turn_away(client, &entrance, &full.to_string()))).await;
            return;
        }
    };
    let greeted = tokio::select! {
        greeted = timeout_at(deadline, Box::pin(greet(client, peer, &door, &entrance))) => greeted,
        _ = shutdown.wait_for(|draining| *draining) => return,
    };
    match greeted {
        Ok(Some((client, upstream, local))) => {
            let own = OwnSession { id: bson::Uuid::new().bytes(), last_number: 0 };
            let session = Session { client: peer.to_string(), own, ..Session::default() };
            let patience = Patience::new(&entrance.limits.settings, arrived);
            session::run(Relay::new(client, upstream, door, local, session), shutdown, patience).await;
        }
        Ok(None) => {}
        Err(_) => entrance.log(peer, &"the handshake took too long (limits: handshake_timeout)"),
    }
    drop(admission);
}

/// Both ends of a relay. When the member cannot be reached the client's connection is closed at once, which
/// drivers know how to retry.
async fn greet<P: Policy>(
    client: TcpStream,
    peer: SocketAddr,
    door: &Door<P>,
    entrance: &Entrance,
) -> Option<(Stream, Stream, IpAddr)> {
    let local = client.local_addr().ok()?.ip();
    socket::tune(&client).ok()?;
    let client = match &entrance.tls {
        None => Stream::Plain(client),
        Some(_) if !speaks_tls(&client).await? => {
            entrance.log(peer, &TLS_WANTED);
            tell(client, TLS_WANTED).await;
            return None;
        }
        Some(tls) => match tls.accept(client).await {
            Ok(client) => client,
            Err(error) => {
                entrance.log(peer, &error);
                return None;
            }
        },
    };
    let member = door.topology.dial(door.index)?;
    match entrance.upstream.connect(&member).await {
        Ok(upstream) => Some((client, upstream, local)),
        Err(error) => {
            if let Some(left_out) = entrance.unreachable.line() {
                tracing::warn!(client = %peer, left_out, "connection closed: upstream {member} cannot be reached: {error}");
            }
            None
        }
    }
}

/// `None`: the client went away without a word, as health checks do.
async fn speaks_tls(client: &TcpStream) -> Option<bool> {
    let mut first = [0];
    match client.peek(&mut first).await {
        Ok(1) => Some(first == [TLS_HANDSHAKE]),
        _ => None,
    }
}

async fn turn_away(client: TcpStream, entrance: &Entrance, text: &str) {
    let Ok(_permit) = TELLING.try_acquire() else { return };
    match &entrance.tls {
        Some(tls) if speaks_tls(&client).await == Some(true) => {
            if let Ok(client) = tls.accept(client).await {
                let _ = refusal::tell(client, text).await;
            }
        }
        _ => {
            let _ = refusal::tell(client, text).await;
        }
    }
}

/// Whoever does not listen does not get to know.
async fn tell(client: TcpStream, text: &str) {
    if let Ok(_permit) = TELLING.try_acquire() {
        let _ = refusal::tell(client, text).await;
    }
}
