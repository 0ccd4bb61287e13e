//! Keeps the listeners in step with the members: one task that hears of every hello_result, opens listeners for members
//! that came, closes those of members that went, and says who may answer queries.

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
use super::server::{Config, accept};
use super::sockets::{BindError, Listening, Passed};
use super::status::{MemberStatus, Posted, StatusBoard};
use super::topology::{Advertised, Mapped, Member, Place};
use super::upstream::Upstream;

/// Following ports that are tried for a member that came while docward runs, if others hold the first of them.
const TRIES: usize = 16;
/// Where members' listeners are opened.
#[derive(Debug, Clone)]
pub enum Placement {
    /// The first member's here, further ones on the following ports.
    Following { first: SocketAddr, advertise: Option<Advertised> },
    /// Each where it is said; who is not mentioned is hidden.
    Mapped(Vec<Mapped>),
}

/// All listeners, and what is known of who is behind them.
pub(super) struct Deployment<P> {
    placement: Placement,
    membership: Membership,
    /// The query listener's; those of members are made from it.
    listener_context: Arc<ListenerContext<P>>,
    dispatcher: Dispatcher,
    open: HashMap<usize, Open<P>>,
    queries: Arc<Queries>,
    query_socket: Option<Arc<TcpListener>>,
    accepting: Vec<Accepting>,
    pub(super) listening: Arc<Listening>,
    /// Members without a place that the log has named.
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

/// A task that accepts, until `stop` turns true.
struct Accepting {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Held by every session: its sender knows when the last has ended.
pub(super) type LivenessToken = watch::Receiver<()>;

impl<P: Interceptor> Deployment<P> {
    /// Opens a listener for each member that is known, and the query listener; nothing is accepted yet.
    ///
    /// # Errors
    /// [`BindError`].
    pub(super) fn open(
        config: &Config,
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
        for address in passed.left() {
            tracing::warn!("a socket on {address} was passed that nothing is to listen on; it is closed");
        }
        this.choose_for_queries();
        this.tell();
        Ok(this)
    }

    /// The query listener's address.
    pub(super) fn query_address(&self) -> Option<SocketAddr> {
        self.query_socket.as_ref()?.local_addr().ok()
    }

    pub(super) fn upstream(&self) -> Arc<Upstream> {
        self.dispatcher.connection_setup.upstream.clone()
    }

    /// Starts to accept, everywhere.
    pub(super) fn accept(&mut self, alive: &LivenessToken) {
        let places: Vec<usize> = self.open.keys().copied().collect();
        for place in places {
            self.accept_at(place, alive);
        }
        if let Some(socket) = &self.query_socket {
            self.accepting.push(Accepting::start(
                socket.clone(),
                self.listener_context.clone(),
                self.dispatcher.clone(),
                alive,
            ));
        }
    }

    /// Asks those who are to be asked.
    pub(super) fn watch(&self, monitors: &mut Monitors) {
        monitors.watch(&self.membership.to_be_asked(&self.listener_context.topology.members()));
    }

    /// Follows what a server said.
    pub(super) fn observed(&mut self, hello_result: HelloResult, alive: &LivenessToken) {
        self.membership.note(hello_result);
        if let Some(members) = self.membership.members() {
            self.follow(&members, alive);
        }
        self.choose_for_queries();
        self.tell();
    }

    /// Accepts nobody any more. Unless another process goes on with the sockets, whoever waits in their queues is
    /// accepted first, or closing them would reset it.
    pub(super) async fn stop_accepting(&mut self, handed_over: bool) {
        let of_members = self.open.values_mut().filter_map(|open| open.accepting.take());
        let all: Vec<Accepting> = of_members.chain(self.accepting.drain(..)).collect();
        join_all(all.into_iter().map(|accepting| accepting.end(!handed_over))).await;
    }

    /// Tells all connections what becomes of them.
    pub(super) fn tell_connections(&self, closing: Closing) {
        for open in self.open.values() {
            open.closing.send_replace(closing);
        }
        self.queries.tell(closing);
    }

    /// Has drivers choose the members no more.
    pub(super) fn drain(&self) {
        for (place, open) in &self.open {
            let dial = self.listener_context.topology.dial(*place);
            if let Some(answer) = dial.and_then(|dial| self.membership.last_answer(&dial)) {
                // It is only set here, once.
                let _ = open.listener_context.last_answer.set(answer);
            }
        }
        self.tell_connections(Closing::Retire);
    }

    /// Whether another process can go on with the connections; what is left of TLS without its session is of no use.
    pub(super) fn can_pass_connections(&self) -> bool {
        self.dispatcher.connection_setup.tls.is_none() && self.dispatcher.connection_setup.upstream.tls.is_none()
    }

    /// Goes on with a connection of the process before this one. It closes where it would not be made any more.
    pub(super) fn resume(&self, connection: PassedConnection, alive: &LivenessToken) {
        let purpose = &connection.memo.purpose;
        let listener_context =
            match self.listener_context.topology.place(purpose).and_then(|place| self.open.get(&place)) {
                _ if !self.can_pass_connections() => None,
                Some(open) => Some((open.listener_context.clone(), open.closing.subscribe())),
                None if purpose == QUERIES && self.query_socket.is_some() => {
                    Some((self.listener_context.clone(), self.queries.closing(&connection.memo.server)))
                }
                None => None,
            };
        match listener_context {
            Some((listener_context, closing)) => {
                self.dispatcher.resume(connection, listener_context, closing, alive.clone())
            }
            None => {
                tracing::warn!("a connection to {purpose} of the process before is closed: it has no listener here")
            }
        }
    }

    fn open_members(&mut self, passed: &mut Passed) -> Result<(), BindError> {
        let members = self.membership.members().unwrap_or_else(|| self.placement.assumed(&self.membership));
        // Who had a listener keeps it, before others look for a free one.
        let mut others = Vec::new();
        for member in members {
            match passed.take_for(&member.name) {
                Some(socket) => _ = self.settle(&member, socket)?,
                None => others.push(member),
            }
        }
        for member in others {
            let address = self.placement.addresses(&member, |address| self.is_taken(address)).next();
            match address {
                Some(address) => _ = self.settle(&member, passed.take_or_bind(address)?)?,
                None => self.hide(&member),
            }
        }
        Ok(())
    }

    fn follow(&mut self, members: &[Member], alive: &LivenessToken) {
        let changes = self.listener_context.topology.follow(members);
        for place in changes.vacated {
            self.vacate(place);
        }
        for member in changes.homeless {
            match self.settle_anywhere(&member) {
                Some(place) => {
                    tracing::info!("member {} came; listening for it on {}", member.name, self.address(place));
                    self.hidden.remove(&member.name);
                    self.accept_at(place, alive);
                }
                None => self.hide(&member),
            }
        }
    }

    /// Says once that clients do not see a member.
    fn hide(&mut self, member: &Member) {
        if self.hidden.insert(member.name.clone()) {
            tracing::warn!("member {} has no listener and is hidden from clients", member.name);
        }
    }

    fn vacate(&mut self, place: usize) {
        let Some(open) = self.open.remove(&place) else { return };
        tracing::info!("the member behind {} left its set; the listener closes", address(&open.socket));
        open.closing.send_replace(Closing::WhenIdle);
        self.listening.remove(&open.socket);
        if let Some(accepting) = open.accepting {
            tokio::spawn(accepting.end(false));
        }
    }

    /// The place of a member that came while docward runs; `None`: it has none.
    fn settle_anywhere(&mut self, member: &Member) -> Option<usize> {
        let mut addresses = self.placement.addresses(member, |address| self.is_taken(address)).take(TRIES);
        let socket = addresses.find_map(|address| Passed::default().take_or_bind(address).ok())?;
        drop(addresses);
        self.settle(member, socket).ok()
    }

    /// Gives a member the place of this socket.
    fn settle(&mut self, member: &Member, socket: TcpListener) -> Result<usize, BindError> {
        let listen = socket.local_addr().map_err(|error| BindError {
            address: ([0, 0, 0, 0], 0).into(),
            error,
            passed: None,
        })?;
        let advertise = self.placement.advertise(member);
        let place = self.listener_context.topology.settle(Place { listen, advertise, member: Some(member.clone()) });
        let socket = Arc::new(socket);
        self.listening.add(&member.name, socket.clone());
        let closing = Arc::<watch::Sender<Closing>>::default();
        let listener_context = Arc::new(self.listener_context.to(Backend::Member { place, closing: closing.clone() }));
        self.open.insert(place, Open { socket, closing, listener_context, accepting: None });
        Ok(place)
    }

    fn accept_at(&mut self, place: usize, alive: &LivenessToken) {
        if let Some(open) = self.open.get_mut(&place) {
            let (socket, listener_context) = (open.socket.clone(), open.listener_context.clone());
            open.accepting = Some(Accepting::start(socket, listener_context, self.dispatcher.clone(), alive));
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

    /// Puts on the board who is there and how they are.
    fn tell(&self) {
        let places = self.listener_context.topology.places();
        let members = self.membership.members().unwrap_or_else(|| self.listener_context.topology.members());
        let posted = |member: &Member| {
            let found = places.iter().enumerate().find(|(_, place)| place.member.as_ref() == Some(member));
            let (at, place) = found.unzip();
            let advertised = place.and_then(|place| place.advertise.as_ref());
            let status = MemberStatus {
                listener: place.map(|place| place.listen),
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

    fn address(&self, place: usize) -> String {
        self.open.get(&place).map_or_else(String::new, |open| address(&open.socket))
    }
}

impl Accepting {
    fn start<P: Interceptor>(
        socket: Arc<TcpListener>,
        listener_context: Arc<ListenerContext<P>>,
        dispatcher: Dispatcher,
        alive: &LivenessToken,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(accept(socket, listener_context, dispatcher, alive.clone(), stopped));
        Self { stop, task }
    }

    /// Ends it; `queue`: whoever waits to be accepted is accepted first.
    async fn end(self, queue: bool) {
        if queue {
            self.stop.send_replace(true);
        } else {
            self.task.abort();
        }
        // An error says that it was aborted.
        let _ = self.task.await;
    }
}

impl Placement {
    /// The members when nobody can be asked.
    fn assumed(&self, membership: &Membership) -> Vec<Member> {
        let Self::Mapped(mapped) = self else { return membership.by_seed() };
        let member = |mapped: &Mapped| {
            let dial = super::upstream::Address::parse(&mapped.member)?;
            Some(Member { dial, name: mapped.member.clone() })
        };
        mapped.iter().filter_map(member).collect()
    }

    /// Where a member's listener may be, in the order to be tried.
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
