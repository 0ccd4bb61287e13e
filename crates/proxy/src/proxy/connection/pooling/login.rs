//! A client's login that has begun, and waits for the client's next message.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::login::User;
use crate::login::scram::{Mechanism, Transcript};
use crate::proxy::server_side::pool::member::Member;
use crate::proxy::server_side::pool::{Checkout, Pool, PooledConnection, WaitingLogin};
use crate::proxy::transport::socket::ServerSocket;

/// A login whose client must send the next message.
pub(in crate::proxy) struct PausedLogin<U: ServerSocket> {
    since: Instant,
    /// `None`: it was given up or continues.
    conversation: Mutex<Option<Conversation<U>>>,
}

impl<U: ServerSocket> PausedLogin<U> {
    /// Registers the login at its pool, which gives it up if the client is slow.
    pub(super) fn start(conversation: Conversation<U>) -> Arc<Self> {
        let pool = conversation.pool.clone();
        let paused = Arc::new(Self { since: Instant::now(), conversation: Mutex::new(Some(conversation)) });
        let weak: Weak<Self> = Arc::downgrade(&paused);
        pool.add_waiting_login(weak);
        paused
    }

    /// `None`: it was given up.
    pub(in crate::proxy) fn take(&self) -> Option<Conversation<U>> {
        self.conversation.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<U: ServerSocket> WaitingLogin for PausedLogin<U> {
    fn give_up_after(&self, longest: Duration) -> bool {
        let is_late = self.since.elapsed() >= longest;
        // Its connection is freed here, outside the lock.
        let given_up = if is_late { self.take() } else { None };
        drop(given_up);
        !is_late
    }
}

/// A login that has begun and is not complete.
pub(in crate::proxy) struct Conversation<U: ServerSocket> {
    pub(in crate::proxy) member: Arc<Member<U>>,
    pub(in crate::proxy) pool: Arc<Pool<U>>,
    pub(in crate::proxy) checkout: Checkout<U>,
    pub(in crate::proxy) connection: PooledConnection<U>,
    pub(in crate::proxy) user: User,
    pub(in crate::proxy) mechanism: Mechanism,
    pub(in crate::proxy) transcript: Transcript,
}
