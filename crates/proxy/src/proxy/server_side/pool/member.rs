//! One member with its pools by user, and its last hello.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::Pool;
use super::counters::{PoolCounters, PoolLoad, PoolStatus, WaitingClients};
use super::member_server::{Connect, MemberServer};
use super::recent::Recent;
use super::settings::PoolSettings;
use crate::login::User;
use crate::proxy::server_side::upstream::Address;
use crate::proxy::transport::socket::ServerSocket;
use crate::wire::compressed::Compressor;

/// Cursors that wait for data and are remembered. A getMore on a forgotten one counts as an ordinary continuation.
const MAX_WAITING_CURSORS: usize = 65_536;

/// The last hello reply of a member.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct MemberHello {
    /// The reply message as received.
    pub(in crate::proxy) reply: Arc<[u8]>,
    /// Smoothed time from a request to its reply.
    pub(in crate::proxy) round_trip: Duration,
}

/// A member and its pools.
pub(in crate::proxy) struct Member<S: ServerSocket> {
    server: Arc<MemberServer<S>>,
    /// `None`: it does not answer, or has not been asked yet.
    hello: watch::Sender<Option<MemberHello>>,
    /// It does not answer.
    is_lost: AtomicBool,
    pools: Mutex<HashMap<Option<User>, Arc<Pool<S>>>>,
    /// Cursors that wait for data.
    waiting_cursors: Mutex<Recent<i64>>,
}

impl<S: ServerSocket> Member<S> {
    /// `compressors` are offered to the server, preferred first.
    pub(in crate::proxy) fn new(
        address: Address,
        connect: Connect<S>,
        settings: PoolSettings,
        compressors: Vec<Compressor>,
    ) -> Arc<Self> {
        Arc::new(Self {
            server: MemberServer::new(address, connect, settings, compressors),
            hello: watch::Sender::new(None),
            is_lost: AtomicBool::new(false),
            pools: Mutex::default(),
            waiting_cursors: Mutex::new(Recent::new(MAX_WAITING_CURSORS)),
        })
    }

    pub(in crate::proxy) fn counters(&self) -> &Arc<PoolCounters> {
        self.server.counters()
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// I/O errors of the socket.
    pub(in crate::proxy) async fn connect(&self) -> io::Result<S> {
        self.server.connect().await
    }

    /// The address that docward connects to.
    pub(in crate::proxy) fn address(&self) -> &Address {
        &self.server.address
    }

    /// Whether it does not answer.
    pub(in crate::proxy) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Its last hello, and changes of it.
    pub(in crate::proxy) fn hello(&self) -> watch::Receiver<Option<MemberHello>> {
        self.hello.subscribe()
    }

    /// Records the reply to docward's monitor; `None`: the member does not answer. Then all its connections are closed
    /// after their requests.
    pub(in crate::proxy) fn observed(&self, hello: Option<MemberHello>) {
        let is_lost = hello.is_none();
        let was_lost = self.is_lost.swap(is_lost, Ordering::AcqRel);
        self.hello.send_replace(hello);
        if is_lost && !was_lost {
            self.server.end_epoch();
            self.all().iter().for_each(|pool| pool.sweep());
        }
    }

    /// The pool of a user; `None`: of clients that are not logged in.
    pub(in crate::proxy) fn pool(self: &Arc<Self>, user: Option<&User>) -> Arc<Pool<S>> {
        let mut pools = self.lock();
        let pool = pools.entry(user.cloned()).or_insert_with_key(|user| Pool::new(user.clone(), self.server.clone()));
        pool.clone()
    }

    /// Replaces a pool whose user has changed. Its clients must log in again.
    pub(in crate::proxy) fn replace(self: &Arc<Self>, old: &Arc<Pool<S>>) -> Arc<Pool<S>> {
        let user = old.user().cloned();
        let new = {
            let mut pools = self.lock();
            match pools.get(&user) {
                Some(current) if !Arc::ptr_eq(current, old) => current.clone(),
                _ => {
                    let new = Pool::new(user.clone(), self.server.clone());
                    pools.insert(user, new.clone());
                    new
                }
            }
        };
        old.end();
        new
    }

    /// Records a cursor that waits for new documents.
    pub(in crate::proxy) fn note_waiting_cursor(&self, cursor: i64) {
        self.waiting_cursors.lock().unwrap_or_else(PoisonError::into_inner).insert(cursor);
    }

    pub(in crate::proxy) fn is_waiting_cursor(&self, cursor: i64) -> bool {
        self.waiting_cursors.lock().unwrap_or_else(PoisonError::into_inner).contains(cursor)
    }

    /// Whether clients or requests use it. The registry holds it, too.
    pub(super) fn has_clients(self: &Arc<Self>) -> bool {
        let pools = self.lock();
        Arc::strong_count(self) > 1 || pools.values().any(|pool| Arc::strong_count(pool) > 1)
    }

    /// Closes all connections: the member has left the replica set.
    pub(super) fn end(&self) {
        let pools = std::mem::take(&mut *self.lock());
        pools.values().for_each(|pool| pool.end());
    }

    /// Closes idle connections when their time has come. Removes pools without connections and clients.
    pub(super) fn sweep(&self) {
        self.all().iter().for_each(|pool| pool.sweep());
        // A pool that only the map holds has no clients.
        self.lock().retain(|_, pool| Arc::strong_count(pool) > 1 || pool.load() != PoolLoad::default());
    }

    pub(in crate::proxy) fn status(&self) -> PoolStatus {
        let pools = self.all();
        self.server.counters.status(self.server.address.to_string(), pools.iter().map(|pool| pool.load()))
    }

    /// The requests that wait for a connection to it.
    pub(super) fn waiting_clients(&self) -> Vec<WaitingClients> {
        self.all().iter().flat_map(|pool| pool.waiting_clients()).collect()
    }

    fn all(&self) -> Vec<Arc<Pool<S>>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<User>, Arc<Pool<S>>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
