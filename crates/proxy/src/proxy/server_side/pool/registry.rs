//! The pools of all members.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::interval;

use super::counters::{PoolStatus, WaitingClients};
use super::member::{Member, MemberHello};
use super::settings::PoolSettings;
use crate::proxy::server_side::upstream::{Address, Upstream};
use crate::proxy::transport::socket::SocketStream;
use crate::wire::compressed::Compressor;

/// Time between two checks of the idle connections.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The pools of all members.
pub(in crate::proxy) struct Pools {
    upstream: Arc<Upstream>,
    settings: PoolSettings,
    members: Mutex<HashMap<Address, Arc<Member<SocketStream>>>>,
}

impl Pools {
    pub(in crate::proxy) fn new(upstream: Arc<Upstream>, settings: PoolSettings) -> Arc<Self> {
        if settings.keep_credentials {
            empty_core_dumps();
        }
        Arc::new(Self { upstream, settings, members: Mutex::default() })
    }

    /// The pools of the member at an address.
    pub(in crate::proxy) fn member(&self, address: &Address) -> Arc<Member<SocketStream>> {
        let mut members = self.lock();
        let member = members.entry(address.clone()).or_insert_with(|| self.new_member(address));
        member.clone()
    }

    /// Records the reply to docward's monitor; `None`: the member does not answer.
    pub(in crate::proxy) fn observed(&self, address: &Address, hello: Option<MemberHello>) {
        self.member(address).observed(hello);
    }

    /// Forgets the members that are not in `addresses` as soon as they have no clients.
    pub(in crate::proxy) fn keep(&self, addresses: &[Address]) {
        let mut left = Vec::new();
        self.lock().retain(|address, member| {
            let stays = addresses.contains(address) || member.has_clients();
            if !stays {
                left.push(member.clone());
            }
            stays
        });
        // Their connections are closed outside the lock.
        left.iter().for_each(|member| member.end());
    }

    /// Closes idle connections when their time has come, as long as the pools exist elsewhere.
    pub(in crate::proxy) async fn maintain(this: Weak<Self>) {
        let mut ticks = interval(SWEEP_INTERVAL);
        loop {
            ticks.tick().await;
            let Some(pools) = this.upgrade() else { return };
            let members: Vec<_> = pools.lock().values().cloned().collect();
            members.iter().for_each(|member| member.sweep());
        }
    }

    /// The numbers of each member, sorted by address.
    pub(in crate::proxy) fn status(&self) -> Vec<PoolStatus> {
        let mut all: Vec<PoolStatus> = self.lock().values().map(|member| member.status()).collect();
        all.sort_by(|left, right| left.member.cmp(&right.member));
        all
    }

    /// The applications with the most requests that wait for a connection, at most `most`.
    pub(in crate::proxy) fn waiting_clients(&self, most: usize) -> Vec<WaitingClients> {
        let members: Vec<_> = self.lock().values().cloned().collect();
        let mut all: Vec<_> = members.iter().flat_map(|member| member.waiting_clients()).collect();
        all.sort_by_cached_key(|clients| (Reverse(clients.waiting), clients.member.clone(), clients.app.clone()));
        all.truncate(most);
        all
    }

    fn new_member(&self, address: &Address) -> Arc<Member<SocketStream>> {
        let upstream = self.upstream.clone();
        let connect = move |address: Address| {
            let upstream = upstream.clone();
            async move { upstream.connect(&address).await }.boxed()
        };
        let compressors = match &self.upstream.compressors {
            Some(own) => own.iter().map(|method| method.compressor).collect(),
            None => Compressor::ALL.to_vec(),
        };
        Member::new(address.clone(), Box::new(connect), self.settings, compressors)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Address, Arc<Member<SocketStream>>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Excludes all memory from core dumps of this process: it can contain the keys of users. See core(5),
/// "Controlling which mappings are written to the core dump".
fn empty_core_dumps() {
    const FILTER: &str = "/proc/self/coredump_filter";
    if cfg!(target_os = "linux")
        && let Err(error) = std::fs::write(FILTER, "0")
    {
        tracing::warn!(
            "pool: core dumps of docward can contain keys of users ({FILTER}: {error}); disable core dumps, or set credentials: forget"
        );
    }
}
