//! The server of a member: how its pools connect to it, and what they count.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;

use super::counters::PoolCounters;
use super::settings::PoolSettings;
use crate::proxy::server_side::upstream::Address;
use crate::proxy::transport::socket::ServerSocket;
use crate::wire::compressed::Compressor;

/// Connects to a server.
pub(in crate::proxy) type Connect<S> = Box<dyn Fn(Address) -> BoxFuture<'static, io::Result<S>> + Send + Sync>;

/// The server of a member, for all its pools.
pub(in crate::proxy) struct MemberServer<S> {
    pub(super) address: Address,
    pub(super) connect: Connect<S>,
    pub(super) settings: PoolSettings,
    /// Offered to the server, preferred first.
    pub(super) compressors: Vec<Compressor>,
    /// Changes when the member is lost: connections from before are closed.
    epoch: AtomicU64,
    pub(super) counters: Arc<PoolCounters>,
}

impl<S: ServerSocket> MemberServer<S> {
    pub(super) fn new(
        address: Address,
        connect: Connect<S>,
        settings: PoolSettings,
        compressors: Vec<Compressor>,
    ) -> Arc<Self> {
        Arc::new(Self { address, connect, settings, compressors, epoch: AtomicU64::new(0), counters: Arc::default() })
    }

    pub(in crate::proxy) fn counters(&self) -> &Arc<PoolCounters> {
        &self.counters
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Ends the current epoch.
    pub(super) fn end_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// I/O errors of the socket.
    pub(in crate::proxy) async fn connect(&self) -> io::Result<S> {
        (self.connect)(self.address.clone()).await
    }
}
