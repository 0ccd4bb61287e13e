//! Keeps the listeners in step with the members. One task receives every hello result, opens listeners for new
//! members, closes those of removed members, and selects the servers for queries.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::admission::Dispatcher;
use super::hand_over::PassedConnection;
use super::interceptor::Interceptor;
use super::listener::{Backend, Closing, ListenerContext, QUERIES};
use super::membership::{HelloResult, Membership};
use super::monitor::Monitors;
use super::queries::Queries;
use super::server::{ProxyConfig, accept};
use super::sockets::{BindError, Listening, Passed};
use super::status::{MemberStatus, Posted, StatusBoard};
use super::topology::{Advertised, ListenerSlot, Mapped, Member};
use super::upstream::Upstream;

/// Ports tried for a member that is added while docward runs, if other processes hold the first ones.
const MAX_PORTS_TRIED: usize = 16;
/// Where the listeners of members are opened.
#[derive(Debug, Clone)]
pub enum Placement {
    /// The first member's listener on `first`, further ones on the following ports.
    Following { first: SocketAddr, advertise: Option<Advertised> },
    /// Each on its configured address; members that are not mentioned are hidden.
    Mapped(Vec<Mapped>),
}

/// All listeners and the state of the members.
pub(super) struct Deployment<P> {
    placement: Placement,
    membership: Membership,
    /// Context of the query listener; those of members derive from it.
    listener_context: Arc<ListenerContext<P>>,
    dispatcher: Dispatcher,
    open: HashMap<usize, Open<P>>,
    queries: Arc<Queries>,
    query_socket: Option<Arc<TcpListener>>,
    accepting: Vec<Accepting>,
    pub(super) listening: Arc<Listening>,
    /// Members without a listener that the log has already named.
    hidden: HashSet<String>,
    board: Arc<StatusBoard>,
}

/// A member's listener.
struct Open<P> {
    socket: Arc<TcpListener>,
    closing: Arc<watch::Sender<Closing>>,
    listener_context: Arc<ListenerContext<P>>,
    accepting: Option<Accepting>,
}

/// A task that accepts connections until `stop` turns true.
struct Accepting {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Held by every connection; its sender detects when the last one has ended.
pub(super) type LivenessToken = watch::Receiver<()>;

impl<P: Interceptor> Deployment<P> {
    /// Opens a listener for each known member, and the query listener. Connections are not accepted yet.
    ///
    /// # Errors
    /// [`BindError`].
    pub(super) fn open(
        config: &ProxyConfig,
        membership: Membership,
        listener_context: ListenerContext<P>,
        dispatcher: Dispatcher,
        queries: Arc<Queries>,
        board: Arc<StatusBoard>,
        mut passed: Passed,
    ) -> Result<Self, BindError> {
        let mut this = Self {
            placement: config.placement.clone(),
            membership,
            listener_context: Arc::new(listener_context),
            dispatcher,
            open: HashMap::new(),
            queries,
            query_socket: None,
            accepting: Vec::new(),
            listening: Arc::default(),
            hidden: HashSet::new(),
            board,
        };
        this.open_members(&mut passed)?;
        if let Some(address) = config.query_listen {
            let socket = match passed.take_for(QUERIES) {
                Some(socket) => Arc::new(socket),
                None => Arc::new(passed.take_or_bind(address)?),
            };
            this.listening.add(QUERIES, socket.clone());
            this.query_socket = Some(socket);
        }
        for address in passed.unassigned() {
            tracing::warn!("closed the passed socket on {address}: no listener is configured for it");
        }
        this.choose_for_queries();
        this.update_board();
        Ok(this)
    }

    /// The query listener's address.
    pub(super) fn query_address(&self) -> Option<SocketAddr> {
        self.query_socket.as_ref()?.local_addr().ok()
    }

    pub(super) fn upstream(&self) -> Arc<Upstream> {
        self.dispatcher.connection_setup.upstream.clone()
    }

    /// Starts to accept on all listeners.
    pub(super) fn accept(&mut self, liveness: &LivenessToken) {
        let slots: Vec<usize> = self.open.keys().copied().collect();
        for slot in slots {
            self.accept_at(slot, liveness);
        }
        if let Some(socket) = &self.query_socket {
            self.accepting.push(Accepting::start(
                socket.clone(),
                self.listener_context.clone(),
                self.dispatcher.clone(),
                liveness,
            ));
        }
    }

    /// Starts the monitors of all current members and seeds.
    pub(super) fn watch(&self, monitors: &mut Monitors) {
        monitors.watch(&self.membership.monitored_addresses(&self.listener_context.topology.members()));
    }

    /// Applies a hello result.
    pub(super) fn observed(&mut self, hello_result: HelloResult, liveness: &LivenessToken) {
        self.membership.note(hello_result);
        if let Some(members) = self.membership.members() {
            self.follow(&members, liveness);
        }
        self.choose_for_queries();
        self.update_board();
    }

    /// Stops accepting. Unless another process takes over the sockets, queued connections are accepted first: closing
    /// the socket would reset them.
    pub(super) async fn stop_accepting(&mut self, handed_over: bool) {
        let of_members = self.open.values_mut().filter_map(|open| open.accepting.take());
        let all: Vec<Accepting> = of_members.chain(self.accepting.drain(..)).collect();
        join_all(all.into_iter().map(|accepting| accepting.end(!handed_over))).await;
    }

    /// Sends a new state to all connections.
    pub(super) fn notify_connections(&self, closing: Closing) {
        for open in self.open.values() {
            open.closing.send_replace(closing);
        }
        self.queries.notify(closing);
    }

    /// Makes drivers stop selecting the members.
    pub(super) fn drain(&self) {
        for (slot, open) in &self.open {
            let dial = self.listener_context.topology.dial(*slot);
            if let Some(answer) = dial.and_then(|dial| self.membership.last_answer(&dial)) {
                // An error cannot occur: it is set only here, once.
                let _ = open.listener_context.last_answer.set(answer);
            }
        }
        self.notify_connections(Closing::Drain);
    }

    /// Whether connections can be passed to another process. TLS connections cannot: the TLS state cannot be passed.
    pub(super) fn can_pass_connections(&self) -> bool {
        self.dispatcher.connection_setup.tls.is_none() && self.dispatcher.connection_setup.upstream.tls.is_none()
    }

    /// Resumes a connection of the previous process. It closes if no listener for it exists here.
    pub(super) fn resume(&self, connection: PassedConnection, liveness: &LivenessToken) {
        let purpose = &connection.snapshot.purpose;
        let listener_context = match self.listener_context.topology.slot(purpose).and_then(|slot| self.open.get(&slot))
        {
            _ if !self.can_pass_connections() => None,
            Some(open) => Some((open.listener_context.clone(), open.closing.subscribe())),
            None if purpose == QUERIES && self.query_socket.is_some() => {
                Some((self.listener_context.clone(), self.queries.closing(&connection.snapshot.server)))
            }
            None => None,
        };
        match listener_context {
            Some((listener_context, closing)) => {
                self.dispatcher.resume(connection, listener_context, closing, liveness.clone())
            }
            None => {
                tracing::warn!(
                    "closed a connection to {purpose} that the previous process passed: no listener for it exists"
                )
            }
        }
    }

    fn open_members(&mut self, passed: &mut Passed) -> Result<(), BindError> {
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

    fn follow(&mut self, members: &[Member], liveness: &LivenessToken) {
        let changes = self.listener_context.topology.follow(members);
        for slot in changes.freed {
            self.close_listener(slot);
        }
        for member in changes.unplaced {
            match self.open_listener(&member) {
                Some(slot) => {
                    tracing::info!("member {} joined; listening for it on {}", member.name, self.address(slot));
                    self.hidden.remove(&member.name);
                    self.accept_at(slot, liveness);
                }
                None => self.hide(&member),
            }
        }
    }

    /// Logs once that clients do not see a member.
    fn hide(&mut self, member: &Member) {
        if self.hidden.insert(member.name.clone()) {
            tracing::warn!("member {} has no listener and is hidden from clients", member.name);
        }
    }

    fn close_listener(&mut self, slot: usize) {
        let Some(open) = self.open.remove(&slot) else { return };
        tracing::info!("the member of listener {} left the replica set; closing its listener", address(&open.socket));
        open.closing.send_replace(Closing::WhenIdle);
        self.listening.remove(&open.socket);
        if let Some(accepting) = open.accepting {
            tokio::spawn(accepting.end(false));
        }
    }

    /// Opens a listener for a member that is added while docward runs and returns its index; `None`: no address is
    /// free.
    fn open_listener(&mut self, member: &Member) -> Option<usize> {
        let mut addresses = self.placement.addresses(member, |address| self.is_taken(address)).take(MAX_PORTS_TRIED);
        let socket = addresses.find_map(|address| Passed::default().take_or_bind(address).ok())?;
        drop(addresses);
        self.assign(member, socket).ok()
    }

    /// Gives the listening socket to a member and returns its index.
    fn assign(&mut self, member: &Member, socket: TcpListener) -> Result<usize, BindError> {
        let listen = socket.local_addr().map_err(|error| BindError {
            address: ([0, 0, 0, 0], 0).into(),
            error,
            passed: None,
        })?;
        let advertise = self.placement.advertise(member);
        let slot = ListenerSlot { listen, advertise, member: Some(member.clone()) };
        let slot = self.listener_context.topology.assign(slot);
        let socket = Arc::new(socket);
        self.listening.add(&member.name, socket.clone());
        let closing = Arc::<watch::Sender<Closing>>::default();
        let listener_context = Arc::new(self.listener_context.to(Backend::Member { slot, closing: closing.clone() }));
        self.open.insert(slot, Open { socket, closing, listener_context, accepting: None });
        Ok(slot)
    }

    fn accept_at(&mut self, slot: usize, liveness: &LivenessToken) {
        if let Some(open) = self.open.get_mut(&slot) {
            let (socket, listener_context) = (open.socket.clone(), open.listener_context.clone());
            open.accepting = Some(Accepting::start(socket, listener_context, self.dispatcher.clone(), liveness));
        }
    }

    fn choose_for_queries(&self) {
        if self.query_socket.is_some() {
            let allowed = self.listener_context.rules.load().max_staleness();
            let chosen = self.membership.for_queries(
                &self.listener_context.topology.members(),
                allowed,
                &self.queries.servers(),
            );
            self.queries.follow(&chosen, |address| self.membership.answers(address));
        }
    }

    /// Updates the status board with the members and their state.
    fn update_board(&self) {
        let slots = self.listener_context.topology.slots();
        let members = self.membership.members().unwrap_or_else(|| self.listener_context.topology.members());
        let posted = |member: &Member| {
            let found = slots.iter().enumerate().find(|(_, slot)| slot.member.as_ref() == Some(member));
            let (at, slot) = found.unzip();
            let advertised = slot.and_then(|slot| slot.advertise.as_ref());
            let status = MemberStatus {
                listener: slot.map(|slot| slot.listen),
                advertised: advertised.map(|advertised| advertised.host.clone()),
                ..self.membership.status(member)
            };
            let open = at.and_then(|at| self.open.get(&at));
            Posted { status, closing: open.map(|open| open.closing.clone()) }
        };
        self.board.set_members(members.iter().map(posted).collect());
    }

    fn is_taken(&self, address: SocketAddr) -> bool {
        address.port() != 0 && self.listener_context.topology.is_taken(address)
    }

    fn address(&self, slot: usize) -> String {
        self.open.get(&slot).map_or_else(String::new, |open| address(&open.socket))
    }
}

impl Accepting {
    fn start<P: Interceptor>(
        socket: Arc<TcpListener>,
        listener_context: Arc<ListenerContext<P>>,
        dispatcher: Dispatcher,
        liveness: &LivenessToken,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(accept(socket, listener_context, dispatcher, liveness.clone(), stopped));
        Self { stop, task }
    }

    /// Ends the task; `queue`: queued connections are accepted first.
    async fn end(self, queue: bool) {
        if queue {
            self.stop.send_replace(true);
        } else {
            self.task.abort();
        }
        // An error means that the task was aborted.
        let _ = self.task.await;
    }
}

impl Placement {
    /// The members assumed while no server answers.
    fn assumed(&self, membership: &Membership) -> Vec<Member> {
        let Self::Mapped(mapped) = self else { return membership.by_seed() };
        let member = |mapped: &Mapped| {
            let dial = super::upstream::Address::parse(&mapped.member)?;
            Some(Member { dial, name: mapped.member.clone() })
        };
        mapped.iter().filter_map(member).collect()
    }

    /// Addresses to try for a member's listener, in order.
    fn addresses<'a>(
        &'a self,
        member: &'a Member,
        is_taken: impl Fn(SocketAddr) -> bool + 'a,
    ) -> Box<dyn Iterator<Item = SocketAddr> + 'a> {
        match self {
            Self::Following { first, .. } if first.port() == 0 => Box::new(std::iter::once(*first)),
            Self::Following { first, .. } => {
                let ports = first.port()..=u16::MAX;
                let addresses = ports.map(|port| SocketAddr::new(first.ip(), port));
                Box::new(addresses.filter(move |address| !is_taken(*address)))
            }
            Self::Mapped(_) => Box::new(self.mapped(member).map(|mapped| mapped.listen).into_iter()),
        }
    }

    fn advertise(&self, member: &Member) -> Option<Advertised> {
        match self {
            Self::Following { advertise, .. } => advertise.clone(),
            Self::Mapped(_) => self.mapped(member)?.advertise.clone(),
        }
    }

    fn mapped(&self, member: &Member) -> Option<&Mapped> {
        let Self::Mapped(mapped) = self else { return None };
        mapped.iter().find(|mapped| member.is_called(&mapped.member))
    }
}

fn address(socket: &TcpListener) -> String {
    socket.local_addr().map_or_else(|error| error.to_string(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::upstream::Address;

    #[test]
    fn further_members_take_the_following_free_ports() {
        let member = Member { dial: Address::parse("a:1").unwrap(), name: "a:1".into() };
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let following = |port| Placement::Following { first: at(port), advertise: None };
        let check = |placement: &Placement, taken: &[u16], expected: &[u16]| {
            let addresses = placement.addresses(&member, |address| taken.contains(&address.port()));
            assert_eq!(addresses.take(2).map(|address| address.port()).collect::<Vec<_>>(), expected);
        };
        check(&following(27018), &[], &[27018, 27019]);
        check(&following(27018), &[27018, 27020], &[27019, 27021]);
        check(&following(65535), &[], &[65535]);
        check(&following(0), &[], &[0]);
        let mapped = |name: &str| Mapped { member: name.into(), listen: at(7), advertise: None };
        check(&Placement::Mapped(vec![mapped("b:1"), mapped("A:1")]), &[], &[7]);
        check(&Placement::Mapped(vec![mapped("b:1")]), &[], &[]);
    }
}
