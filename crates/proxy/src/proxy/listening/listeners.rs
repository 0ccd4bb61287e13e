//! Keeps the listeners in step with the members. One task receives every hello result, opens listeners for new
//! members, closes those of removed members, and selects the servers for queries.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::proxy::config::ProxyConfig;
use crate::proxy::connection::listener_context::{Backend, ListenerContext, QUERIES, ROUTER};
use crate::proxy::listening::acceptor::Accepting;
use crate::proxy::listening::admission::{ConnectionToken, Dispatcher};
use crate::proxy::members::closing::Closing;
use crate::proxy::members::membership::Membership;
use crate::proxy::members::monitor::{HelloResult, Monitors};
use crate::proxy::members::placement::ListenerPlacement;
use crate::proxy::members::queries::Queries;
use crate::proxy::members::status::{ListedMember, MemberStatus, ProcessStatus};
use crate::proxy::members::topology::{ListenerSlot, MemberAddress};
use crate::proxy::server_side::pool::member::MemberHello;
use crate::proxy::server_side::router::{RoutedMember, Router};
use crate::proxy::server_side::upstream::Upstream;
use crate::proxy::transport::listening_sockets::{BindError, ListeningSockets, PassedSockets};
use crate::proxy::transport::socket::SocketStream;
use crate::rules::reads;

/// Ports tried for a member that is added while docward runs, if other processes hold the first ones.
const MAX_PORTS_TRIED: usize = 16;
/// All listeners and the state of the members.
pub(in crate::proxy) struct Listeners {
    placement: ListenerPlacement,
    membership: Membership,
    /// Context of the query listener; those of members derive from it.
    listener_context: Arc<ListenerContext>,
    dispatcher: Dispatcher,
    open: HashMap<usize, OpenListener>,
    queries: Arc<Queries>,
    query_socket: Option<Arc<TcpListener>>,
    router: Option<RouterListener>,
    accepting: Vec<Accepting>,
    pub(in crate::proxy) listening: Arc<ListeningSockets>,
    /// Members without a listener that the log has already named.
    hidden: HashSet<String>,
    /// The log has named a primary without a listener.
    is_primary_hidden: bool,
    status: Arc<ProcessStatus>,
}

/// The listener of a router.
struct RouterListener {
    router: Arc<Router<SocketStream>>,
    listen: SocketAddr,
    /// `None`: it no longer accepts.
    socket: Option<Arc<TcpListener>>,
    closing: Arc<watch::Sender<Closing>>,
    listener_context: Arc<ListenerContext>,
}

/// A member's listener.
struct OpenListener {
    /// `None`: it no longer accepts.
    socket: Option<Arc<TcpListener>>,
    closing: Arc<watch::Sender<Closing>>,
    listener_context: Arc<ListenerContext>,
    accepting: Option<Accepting>,
}

impl Listeners {
    /// Opens a listener for each known member, or one for all, and the query listener. Connections are not accepted yet.
    ///
    /// # Errors
    /// [`BindError`].
    pub(in crate::proxy) fn open(
        config: &ProxyConfig,
        membership: Membership,
        listener_context: ListenerContext,
        dispatcher: Dispatcher,
        queries: Arc<Queries>,
        status: Arc<ProcessStatus>,
        mut passed: PassedSockets,
    ) -> Result<Self, BindError> {
        let mut this = Self {
            placement: config.placement.borrow().clone(),
            membership,
            listener_context: Arc::new(listener_context),
            dispatcher,
            open: HashMap::new(),
            queries,
            query_socket: None,
            router: None,
            accepting: Vec::new(),
            listening: Arc::default(),
            hidden: HashSet::new(),
            is_primary_hidden: false,
            status,
        };
        match config.router {
            Some(address) => this.open_router(address, &mut passed)?,
            None => {
                this.open_members(&mut passed)?;
                this.warn_of_unknown_members();
            }
        }
        this.begin_pools();
        if let Some(address) = config.query_listen {
            let socket = match passed.take_for(QUERIES) {
                Some(socket) => Arc::new(socket),
                None => Arc::new(passed.take_or_bind(address)?),
            };
            this.listening.add(QUERIES, socket.clone());
            this.query_socket = Some(socket);
        }
        for address in passed.unassigned() {
            tracing::warn!(
                "closed the passed socket on {address}: no listener is configured for it; add the address to `listen`, \
                 `members` or `query_listen`, or remove it from the socket unit"
            );
        }
        this.update();
        Ok(this)
    }

    /// The query listener's address.
    pub(in crate::proxy) fn query_address(&self) -> Option<SocketAddr> {
        self.query_socket.as_ref()?.local_addr().ok()
    }

    /// The address of the router's listener.
    pub(in crate::proxy) fn router_address(&self) -> Option<SocketAddr> {
        self.router.as_ref().map(|router| router.listen)
    }

    pub(in crate::proxy) fn upstream(&self) -> Arc<Upstream> {
        self.dispatcher.connection_setup.upstream.clone()
    }

    /// Starts to accept on all listeners.
    pub(in crate::proxy) fn accept(&mut self, connection_token: &ConnectionToken) {
        let slots: Vec<usize> = self.open.keys().copied().collect();
        for slot in slots {
            self.accept_at(slot, connection_token);
        }
        if let Some(RouterListener { socket: Some(socket), listener_context, .. }) = &self.router {
            let (socket, listener_context) = (socket.clone(), listener_context.clone());
            self.accepting.push(Accepting::start(socket, listener_context, self.dispatcher.clone(), connection_token));
        }
        if let Some(socket) = &self.query_socket {
            self.accepting.push(Accepting::start(
                socket.clone(),
                self.listener_context.clone(),
                self.dispatcher.clone(),
                connection_token,
            ));
        }
    }

    /// Starts the monitors of all current members and seeds.
    pub(in crate::proxy) fn watch(&self, monitors: &mut Monitors) {
        let addresses = self.membership.monitored_addresses(&self.members());
        monitors.watch(&addresses);
        if let Some(pools) = &self.dispatcher.connection_setup.pools {
            pools.keep(&addresses);
        }
    }

    /// Applies a hello result.
    pub(in crate::proxy) fn take_hello_result(
        &mut self,
        hello_result: HelloResult,
        connection_token: &ConnectionToken,
    ) {
        if let Some(pools) = &self.dispatcher.connection_setup.pools {
            let hello = hello_result.hello.as_ref();
            let round_trip = hello_result.round_trip;
            let member = hello.map(|hello| MemberHello { reply: hello.reply.clone(), round_trip });
            pools.observed(&hello_result.address, member);
        }
        self.membership.record(hello_result);
        if let Some(members) = self.membership.members().filter(|_| self.router.is_none()) {
            self.apply_members(&members, connection_token);
        }
        self.update();
    }

    /// Applies other addresses of listeners: those that another address replaces close, and members without one get
    /// theirs.
    pub(in crate::proxy) async fn place(&mut self, placement: ListenerPlacement, connection_token: &ConnectionToken) {
        let before = std::mem::replace(&mut self.placement, placement);
        if self.router.is_some() {
            return;
        }
        let topology = &self.listener_context.process.members.topology;
        let mut closed = Vec::new();
        for (slot, listener) in topology.slots().iter().enumerate() {
            let Some(member) = &listener.member else { continue };
            if self.placement.agrees(&before, member) {
                topology.advertise(slot, self.placement.advertise(member));
            } else {
                topology.free(slot);
                closed.push((slot, member.name.clone()));
            }
        }
        let closed = closed.iter().filter_map(|(slot, member)| {
            self.close_listener(*slot, member, "has another address under `members`, or none")
        });
        // Only then can other members listen on the addresses.
        let closed: Vec<_> = closed.collect();
        join_all(closed.into_iter().map(|accepting| accepting.end(false))).await;
        self.hidden.clear();
        self.warn_of_unknown_members();
        let members = self.membership.members().unwrap_or_else(|| self.placement.assumed(&self.membership));
        self.apply_members(&members, connection_token);
        self.update();
    }

    fn warn_of_unknown_members(&self) {
        for name in self.membership.members().map(|members| self.placement.unknown(&members)).unwrap_or_default() {
            tracing::warn!("`members` names {name}, which is not a member of the replica set; correct or remove it");
        }
    }

    /// Updates what depends on the members and their last replies.
    fn update(&mut self) {
        self.update_last_replies();
        self.update_router();
        self.choose_for_queries();
        self.update_status();
    }

    /// Gives the pools what is known of the members before their monitors start.
    fn begin_pools(&self) {
        let Some(pools) = &self.dispatcher.connection_setup.pools else { return };
        for MemberAddress { address, .. } in self.members() {
            let reply = self.membership.last_reply(&address);
            pools.observed(&address, reply.map(|reply| MemberHello { reply, round_trip: Duration::ZERO }));
        }
    }

    /// Stops accepting, and closes the sockets: a balancer then finds another process at once. Unless another process has
    /// them too, queued connections are accepted first: closing the socket would reset them.
    pub(in crate::proxy) async fn stop_accepting(&mut self, handed_over: bool) {
        let of_members = self.open.values_mut().filter_map(|open| open.accepting.take());
        let all: Vec<Accepting> = of_members.chain(self.accepting.drain(..)).collect();
        join_all(all.into_iter().map(|accepting| accepting.end(!handed_over))).await;
        self.listening.clear();
        self.query_socket = None;
        self.router.iter_mut().for_each(|router| router.socket = None);
        self.open.values_mut().for_each(|open| open.socket = None);
    }

    /// Sends a new state to all connections.
    pub(in crate::proxy) fn notify_connections(&self, closing: Closing) {
        self.notify_member_connections(closing);
        self.queries.notify(closing);
    }

    /// Sends a new state to the connections of members.
    pub(in crate::proxy) fn notify_member_connections(&self, closing: Closing) {
        for open in self.open.values() {
            open.closing.send_replace(closing);
        }
        if let Some(router) = &self.router {
            router.closing.send_replace(closing);
        }
    }

    /// Opens the listener of a router.
    fn open_router(&mut self, address: SocketAddr, passed: &mut PassedSockets) -> Result<(), BindError> {
        let socket = match passed.take_for(ROUTER) {
            Some(socket) => socket,
            None => passed.take_or_bind(address)?,
        };
        let socket = Arc::new(socket);
        self.listening.add(ROUTER, socket.clone());
        let process = self.listener_context.process.clone();
        let counters = process.traffic.router_counters.clone().unwrap_or_default();
        let router = Router::new(bson::oid::ObjectId::new().bytes(), process.members.recheck.clone(), counters);
        let closing = Arc::<watch::Sender<Closing>>::default();
        let backend = Backend::Router { router: router.clone(), closing: closing.clone() };
        let listener_context = Arc::new(ListenerContext::new(backend, process));
        let listen = socket.local_addr().unwrap_or(address);
        self.router = Some(RouterListener { router, listen, socket: Some(socket), closing, listener_context });
        Ok(())
    }

    /// Gives the router the members that answer.
    fn update_router(&self) {
        let (Some(open), Some(pools)) = (&self.router, &self.dispatcher.connection_setup.pools) else { return };
        let members = self.members();
        let selectable = self.membership.selectable(&members);
        let routed = |(address, selectable)| RoutedMember { member: pools.member(&address), selectable };
        open.router.update(selectable.into_iter().map(routed).collect(), members.len());
        if let Some(hello) = &*open.router.hello().borrow() {
            open.listener_context.set_last_reply(hello.reply.clone());
        }
    }

    /// Gives the listeners the last hello replies of their members.
    fn update_last_replies(&self) {
        for (slot, open) in &self.open {
            let address = self.listener_context.process.members.topology.server_address(*slot);
            if let Some(reply) = address.and_then(|address| self.membership.last_reply(&address)) {
                open.listener_context.set_last_reply(reply);
            }
        }
    }

    fn open_members(&mut self, passed: &mut PassedSockets) -> Result<(), BindError> {
        let members = self.membership.members().unwrap_or_else(|| self.placement.assumed(&self.membership));
        // Members that had a listener keep it; only then other members get free sockets.
        let mut others = Vec::new();
        for member in members {
            match passed.take_for(&member.name) {
                Some(socket) => _ = self.assign(&member, socket)?,
                None => others.push(member),
            }
        }
        for member in others {
            let address = self.placement.addresses(&member, |address| self.is_taken(address)).next();
            match address {
                Some(address) => _ = self.assign(&member, passed.take_or_bind(address)?)?,
                None => self.hide(&member),
            }
        }
        Ok(())
    }

    fn apply_members(&mut self, members: &[MemberAddress], connection_token: &ConnectionToken) {
        let topology = &self.listener_context.process.members.topology;
        let before = topology.slots();
        let changes = topology.update(members);
        for slot in changes.freed {
            let member = before.get(slot).and_then(|slot| slot.member.as_ref());
            let member = member.map_or("", |member| &member.name);
            if let Some(accepting) = self.close_listener(slot, member, "left the replica set") {
                tokio::spawn(accepting.end(false));
            }
        }
        for member in changes.unplaced {
            match self.open_listener(&member) {
                Some(slot) => {
                    tracing::info!("member {} joined; listening for it on {}", member.name, self.address(slot));
                    self.hidden.remove(&member.name);
                    self.accept_at(slot, connection_token);
                }
                None => self.hide(&member),
            }
        }
    }

    /// Logs once that clients do not see a member.
    fn hide(&mut self, member: &MemberAddress) {
        if self.hidden.insert(member.name.clone()) {
            tracing::warn!(
                "member {} has no listener and is hidden from clients; when it becomes primary, clients cannot write: name \
                 it under `members`",
                member.name
            );
        }
    }

    /// Closes a listener, and returns what still accepts on it.
    fn close_listener(&mut self, slot: usize, member: &str, reason: &str) -> Option<Accepting> {
        let open = self.open.remove(&slot)?;
        let listener = open.address();
        tracing::info!(member, listener, "member {member} {reason}; closing its listener");
        open.closing.send_replace(Closing::WhenIdle);
        open.socket.iter().for_each(|socket| self.listening.remove(socket));
        open.accepting
    }

    /// Opens a listener for a member that is added while docward runs and returns its index; `None`: no address is
    /// free.
    fn open_listener(&mut self, member: &MemberAddress) -> Option<usize> {
        let mut addresses = self.placement.addresses(member, |address| self.is_taken(address)).take(MAX_PORTS_TRIED);
        let socket = addresses.find_map(|address| PassedSockets::default().take_or_bind(address).ok())?;
        drop(addresses);
        self.assign(member, socket).ok()
    }

    /// Gives the listening socket to a member and returns its index.
    fn assign(&mut self, member: &MemberAddress, socket: TcpListener) -> Result<usize, BindError> {
        let listen = socket.local_addr().map_err(|error| BindError {
            address: ([0, 0, 0, 0], 0).into(),
            error,
            passed: None,
        })?;
        let advertise = self.placement.advertise(member);
        let slot = ListenerSlot { listen, advertise, member: Some(member.clone()) };
        let slot = self.listener_context.process.members.topology.assign(slot);
        let socket = Arc::new(socket);
        self.listening.add(&member.name, socket.clone());
        let closing = Arc::<watch::Sender<Closing>>::default();
        let listener_context = Arc::new(ListenerContext::new(
            Backend::Member { slot, closing: closing.clone() },
            self.listener_context.process.clone(),
        ));
        self.open.insert(slot, OpenListener { socket: Some(socket), closing, listener_context, accepting: None });
        Ok(slot)
    }

    fn accept_at(&mut self, slot: usize, connection_token: &ConnectionToken) {
        if let Some(open) = self.open.get_mut(&slot)
            && let Some(socket) = open.socket.clone()
        {
            let listener_context = open.listener_context.clone();
            open.accepting =
                Some(Accepting::start(socket, listener_context, self.dispatcher.clone(), connection_token));
        }
    }

    fn choose_for_queries(&self) {
        if self.query_socket.is_some() {
            let allowed = reads::max_staleness(&self.listener_context.process.rules.current.load());
            let chosen = self.membership.for_queries(
                &self.listener_context.process.members.topology.members(),
                allowed,
                &self.queries.servers(),
            );
            self.queries.update(&chosen, |address| self.membership.answers(address));
        }
    }

    /// All members, also those without a listener; as last known if no server answers.
    fn members(&self) -> Vec<MemberAddress> {
        self.membership.members().unwrap_or_else(|| match self.router {
            Some(_) => self.membership.by_seed(),
            None => self.listener_context.process.members.topology.members(),
        })
    }

    /// Updates the status with the members and their state.
    fn update_status(&mut self) {
        let slots = self.listener_context.process.members.topology.slots();
        let members = self.members();
        let posted = |member: &MemberAddress| {
            let found = slots.iter().enumerate().find(|(_, slot)| slot.member.as_ref() == Some(member));
            let (at, slot) = found.unzip();
            let advertised = slot.and_then(|slot| slot.advertise.as_ref());
            let status = MemberStatus {
                listener: slot.map(|slot| slot.listen).or(self.router_address()),
                advertised: advertised.map(|advertised| advertised.host.clone()),
                ..self.membership.status(member)
            };
            let open = at.and_then(|at| self.open.get(&at));
            ListedMember { status, closing: open.map(|open| open.closing.clone()) }
        };
        let members: Vec<ListedMember> = members.iter().map(posted).collect();
        let hidden = members.iter().find(|member| member.status.is_hidden_primary());
        if let Some(ListedMember { status, .. }) = hidden
            && !self.is_primary_hidden
        {
            tracing::error!(
                member = status.name,
                "the primary has no listener: clients cannot write; name it under `members`"
            );
        }
        self.is_primary_hidden = hidden.is_some();
        self.status.set_members(members);
    }

    fn is_taken(&self, address: SocketAddr) -> bool {
        address.port() != 0 && self.listener_context.process.members.topology.is_taken(address)
    }

    fn address(&self, slot: usize) -> String {
        self.open.get(&slot).map_or_else(String::new, OpenListener::address)
    }
}

impl OpenListener {
    fn address(&self) -> String {
        match self.socket.as_ref().map(|socket| socket.local_addr()) {
            Some(Ok(address)) => address.to_string(),
            Some(Err(error)) => error.to_string(),
            None => String::new(),
        }
    }
}
