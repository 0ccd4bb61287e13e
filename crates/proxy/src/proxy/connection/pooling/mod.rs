//! A client that shares server connections with others: takes one for each request, and gives it back after the last
//! reply.
//!
//! [`hello`] is a hello that waits for its reply, [`login`] a login that waits for its next message, [`need`] what a
//! request needs of a connection; [`routed`] finds its member, [`resending`] has what is sent again after that was lost.
//! Connections come from [`crate::proxy::server_side::pool`]; [`crate::proxy::connection::relay`] uses them.

pub(in crate::proxy) mod hello;
pub(in crate::proxy) mod login;
pub(in crate::proxy) mod need;
pub(in crate::proxy) mod resending;
pub(in crate::proxy) mod routed;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use self::hello::AwaitedHello;
use self::login::{Conversation, PausedLogin};
use self::need::Need;
use self::resending::Resending;
use self::routed::{ClientLogin, Taken, pool_at};
use crate::engine::handshake::negotiation::Negotiation;
use crate::engine::routing::{Destination, OpenTransaction, TransactionStep, ends_transaction};
use crate::engine::sharing::{self, Sharing, is_enough};
use crate::engine::{ClientState, RequestHead};
use crate::login::{User, has_one_user};
use crate::proxy::server_side::pool::abandoned::abandon;
use crate::proxy::server_side::pool::counters::PinGuard;
use crate::proxy::server_side::pool::member::{Member, MemberHello};
use crate::proxy::server_side::pool::queue::Lane;
use crate::proxy::server_side::pool::{
    Checkout, CheckoutError, CheckoutRequest, Demand, Details, Pool, PooledConnection,
};
use crate::proxy::server_side::router::Router;
use crate::proxy::transport::socket::ServerSocket;

/// The largest request that is collected before it takes a connection. A larger one streams through once its body has
/// arrived, and holds the connection while its documents arrive.
pub(in crate::proxy) const MAX_COLLECTED_LENGTH: usize = 128 * 1024;
/// The id of docward's own ping after an unacknowledged write.
pub(in crate::proxy) const BARRIER_ID: i32 = i32::MIN;

/// A client's share in the pools of its member.
pub(in crate::proxy) struct Pooling<U: ServerSocket> {
    /// Set for clients of a router.
    router: Option<Arc<Router<U>>>,
    /// The member of the connection in use, or of the last one.
    member: Arc<Member<U>>,
    /// The pool of the client's user at this member.
    pool: Arc<Pool<U>>,
    /// `None`: the client has not logged in.
    login: Option<ClientLogin>,
    /// See [`ClientState::retries_overload`].
    retries_overload: bool,
    app: Option<Arc<str>>,
    /// Where the last request goes.
    destination: Destination,
    /// When the client must log in again.
    login_ends: Option<Instant>,
    attachment: Attachment<U>,
    /// A login that has begun.
    conversation: Option<Arc<PausedLogin<U>>>,
    /// A hello whose reply waits for a change.
    pub(in crate::proxy) awaited: Option<Box<AwaitedHello>>,
    /// The last request since the connection was taken has no reply, so its end is unknown.
    unacknowledged: bool,
    /// The client is behind a load balancer: it has no monitor, and its transaction ends with the connection.
    is_of_service: bool,
    transaction: Option<OpenTransaction>,
    resending: Resending<U>,
    /// The next reply may contain the id of a cursor to remember.
    opens_cursor: Option<OpenedCursor>,
    /// The server requires a login.
    login_required: bool,
    /// The client has a connection of its own until it closes.
    pin: Option<PinGuard>,
    /// Id of docward's next own reply.
    next_reply_id: i32,
}

/// The client's connection.
enum Attachment<U: ServerSocket> {
    Detached,
    /// A request waits for it.
    Waiting(WaitingCheckout<U>),
    /// It has been taken, and the relay must use it from now on.
    Ready(Checkout<U>),
    /// The relay uses it.
    Attached(Checkout<U>, Details),
    /// The request that waited gets this error.
    Failed(CheckoutError),
}

/// A request that waits for a connection.
struct WaitingCheckout<U: ServerSocket> {
    /// The request is given up if the client closes the connection meanwhile: it waits for others, and no server has
    /// seen it. An unacknowledged write is sent in any case, and so is a request that only waits for the handshake.
    is_revocable: bool,
    checkout: PendingCheckout<U>,
}

type PendingCheckout<U> = Pin<Box<dyn Future<Output = Result<Taken<U, Checkout<U>>, CheckoutError>> + Send>>;

/// The result of asking for a connection.
pub(in crate::proxy) enum BegunCheckout<U: ServerSocket> {
    Open(Checkout<U>),
    /// `waits`: for other requests or for a member, not only for a handshake.
    Pending {
        checkout: PendingCheckout<U>,
        waits: bool,
    },
}

/// Why a cursor that a request opens is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum OpenedCursor {
    /// It waits for new documents.
    Waiting,
    /// It is not at the primary.
    Elsewhere,
}

/// What happens to a request of a client that shares connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum Route {
    /// It can be sent.
    Ready,
    /// Decide again when more of it has arrived, or when there is a connection.
    NotYet,
    /// docward replies to it.
    Own,
}

/// A request whose first bytes have arrived.
#[derive(Debug, Clone, Copy)]
pub(in crate::proxy) struct Arriving<'f> {
    /// The decompressed beginning, or all of it.
    pub(in crate::proxy) head: &'f RequestHead<'f>,
    /// All bytes have arrived.
    pub(in crate::proxy) is_whole: bool,
    /// What is here of the frame, as it came.
    pub(in crate::proxy) frame: &'f [u8],
    /// Length of the frame.
    pub(in crate::proxy) length: usize,
}

impl<U: ServerSocket> Pooling<U> {
    /// With a `router`, each request goes to the member that it asks for, and `member` is where the client logs in.
    pub(in crate::proxy) fn new(router: Option<Arc<Router<U>>>, member: Arc<Member<U>>, login_required: bool) -> Self {
        let pool = member.pool(None);
        Self {
            router,
            member,
            pool,
            login: None,
            retries_overload: false,
            app: None,
            destination: Destination::PRIMARY,
            login_ends: None,
            attachment: Attachment::Detached,
            conversation: None,
            awaited: None,
            unacknowledged: false,
            is_of_service: false,
            transaction: None,
            resending: Resending::default(),
            opens_cursor: None,
            login_required,
            pin: None,
            next_reply_id: 1,
        }
    }

    /// Serves the client as one behind a load balancer. Returns the `serviceId`; `None`: the listener is no router.
    pub(in crate::proxy) fn serve_behind_balancer(&mut self) -> Option<[u8; 12]> {
        let service = self.router.as_ref()?.service();
        self.is_of_service = true;
        Some(service)
    }

    /// Records what the client's hello shows of it.
    pub(in crate::proxy) fn note_client(&mut self, client: &ClientState) {
        self.retries_overload = client.retries_overload;
        self.app = client.app_name.as_deref().map(Arc::from);
    }

    /// Whether a transaction would be aborted if the client's connection ended.
    pub(in crate::proxy) fn holds_transaction(&self) -> bool {
        self.is_of_service && self.transaction.is_some()
    }

    /// Takes a reply to the client: the server may have ended the transaction.
    pub(in crate::proxy) fn note_reply(&mut self, reply: &[u8]) {
        if self.holds_transaction() && ends_transaction(reply) {
            self.transaction = None;
        }
    }

    /// Aborts the transaction of a client behind a load balancer, whose connection has ended.
    pub(in crate::proxy) fn end_transaction(&mut self) {
        if let (Some(transaction), Some(router)) = (self.transaction.take(), &self.router) {
            tokio::spawn(routed::abort(router.clone(), self.login.clone(), transaction));
        }
    }

    /// The member that the client logs in at.
    pub(in crate::proxy) fn login_member(&self) -> Arc<Member<U>> {
        let routed = self.router.as_ref().and_then(|router| router.for_login());
        routed.unwrap_or_else(|| self.member.clone())
    }

    /// The hello that the client sees, and changes of it.
    pub(in crate::proxy) fn hello(&self) -> watch::Receiver<Option<MemberHello>> {
        self.router.as_ref().map_or_else(|| self.member.hello(), |router| router.hello())
    }

    /// The client's application, if it has named it.
    pub(in crate::proxy) fn app(&self) -> Option<&Arc<str>> {
        self.app.as_ref()
    }

    /// The client's user.
    pub(in crate::proxy) fn user(&self) -> Option<&User> {
        self.login.as_ref().map(|login| &login.user)
    }

    /// Uses the pools of a user that a server has accepted for this client, if `ends` is set, until then.
    pub(in crate::proxy) fn logged_in(
        &mut self,
        login: ClientLogin,
        member: Arc<Member<U>>,
        pool: Arc<Pool<U>>,
        ends: Option<Instant>,
    ) {
        (self.member, self.pool) = (member, pool);
        self.login = Some(login);
        self.login_ends = ends;
    }

    /// The client's user, if it keeps a login as another one out: the server gives a connection one user.
    pub(in crate::proxy) fn only_user(&self) -> Option<&User> {
        let has_one_user = || self.member.hello().borrow().as_ref().is_none_or(|hello| has_one_user(&hello.reply));
        self.user().filter(|_| has_one_user())
    }

    /// Uses the pool of clients that are not logged in. A login that has begun goes on. Returns whether the server
    /// requires a login.
    pub(in crate::proxy) fn log_out(&mut self) -> bool {
        self.pool = self.member.pool(None);
        self.login = None;
        self.login_ends = None;
        self.login_required
    }

    /// Keeps a login until the client's next message.
    pub(in crate::proxy) fn park_login(&mut self, conversation: Conversation<U>) {
        self.conversation = Some(PausedLogin::start(conversation));
    }

    /// The login that has begun; afterwards there is none.
    pub(in crate::proxy) fn take_login(&mut self) -> Option<Arc<PausedLogin<U>>> {
        self.conversation.take()
    }

    /// Whether the client shares connections. If not, it has one of its own.
    pub(in crate::proxy) fn is_shared(&self) -> bool {
        self.pin.is_none()
    }

    /// Whether a request waits for a connection.
    pub(in crate::proxy) fn is_taking(&self) -> bool {
        matches!(self.attachment, Attachment::Waiting(_))
    }

    /// Whether a request waits that is given up if the client closes the connection.
    pub(in crate::proxy) fn is_revocable(&self) -> bool {
        matches!(&self.attachment, Attachment::Waiting(taking) if taking.is_revocable)
    }

    /// Decides whether a request to be forwarded can be sent. Takes a connection for it if one is free.
    pub(in crate::proxy) fn route(
        &mut self,
        request: Arriving<'_>,
        expects_reply: bool,
        negotiation: &mut Negotiation,
    ) -> Route {
        if !request.is_whole && (request.length <= MAX_COLLECTED_LENGTH || !is_enough(request.head)) {
            return Route::NotYet;
        }
        if self.is_taking() {
            return Route::NotYet;
        }
        let need = self.need(request.head);
        match &self.attachment {
            Attachment::Failed(_) => return Route::Own,
            // The connection must be given back first.
            Attachment::Attached(..) if self.must_move(&need) => return Route::Own,
            Attachment::Waiting(_) | Attachment::Ready(_) | Attachment::Attached(..) => {}
            Attachment::Detached => match self.take(&need, expects_reply) {
                Ok(BegunCheckout::Open(checkout)) => self.attachment = Attachment::Ready(checkout),
                Ok(BegunCheckout::Pending { checkout, waits }) => {
                    let is_revocable = expects_reply && waits;
                    self.attachment = Attachment::Waiting(WaitingCheckout { is_revocable, checkout });
                    return Route::NotYet;
                }
                Err(error) => {
                    self.attachment = Attachment::Failed(error);
                    return Route::Own;
                }
            },
        }
        if let Attachment::Ready(checkout) = &self.attachment {
            negotiation.set_upstream(checkout.compressors());
        }
        self.note_sent(&need, expects_reply);
        self.begin_request();
        self.remember(request.head, request.frame.get(..request.length), expects_reply);
        Route::Ready
    }

    /// Asks for a connection for a request of the client.
    pub(in crate::proxy) fn take(
        &mut self,
        need: &Need,
        expects_reply: bool,
    ) -> Result<BegunCheckout<U>, CheckoutError> {
        let retried_in = need.retried_in.filter(|_| expects_reply);
        let time_limit = need.time_limit.filter(|_| expects_reply);
        self.take_at(self.lane(need), retried_in, need.destination.clone(), time_limit)
    }

    /// Asks for a connection. `retried_in`: see [`Demand`].
    fn take_at(
        &mut self,
        lane: Lane,
        retried_in: Option<u64>,
        destination: Option<Destination>,
        time_limit: Option<Duration>,
    ) -> Result<BegunCheckout<U>, CheckoutError> {
        if self.login_ends.is_some_and(|ends| Instant::now() >= ends) {
            return Err(CheckoutError::LoginNeeded);
        }
        let demand = Demand { lane, retried_in, app: self.app.as_ref() };
        let (Some(router), Some(destination)) = (self.router.clone(), destination) else {
            return Ok(match self.pool.check_out(demand)? {
                CheckoutRequest::Ready(checkout) if checkout.is_open() => BegunCheckout::Open(checkout),
                asked => {
                    let waits = matches!(asked, CheckoutRequest::Queued { .. });
                    let (member, pool) = (self.member.clone(), self.pool.clone());
                    let checkout = async move {
                        let checkout = pool.clone().finish_checkout(asked).await?;
                        Ok(Taken { member, pool, checkout })
                    };
                    BegunCheckout::Pending { checkout: Box::pin(checkout), waits }
                }
            });
        };
        let found = match router.find(&destination)? {
            Some(member) => match self.check_out_at(&member, demand) {
                Ok((pool, CheckoutRequest::Ready(checkout))) if checkout.is_open() => {
                    (self.member, self.pool) = (member, pool);
                    return Ok(BegunCheckout::Open(checkout));
                }
                Ok((pool, checkout)) => Some(Taken { member, pool, checkout }),
                Err(CheckoutError::LoginNeeded) if !router.is_primary(&member) => None,
                Err(error) => return Err(error),
            },
            None => None,
        };
        let (login, app) = (self.login.clone(), self.app.clone());
        let checkout = Box::pin(routed::check_out(router, destination, login, lane, app, found, time_limit));
        Ok(BegunCheckout::Pending { checkout, waits: true })
    }

    /// Asks for a connection to a member.
    fn check_out_at(
        &self,
        member: &Arc<Member<U>>,
        demand: Demand<'_>,
    ) -> Result<(Arc<Pool<U>>, CheckoutRequest<U>), CheckoutError> {
        // Mostly that of the last request. It may have been replaced since.
        if Arc::ptr_eq(member, &self.member) {
            match self.pool.check_out(demand) {
                Err(CheckoutError::LoginNeeded) => {}
                asked => return Ok((self.pool.clone(), asked?)),
            }
        }
        let pool = pool_at(member, self.login.as_ref())?;
        let asked = pool.check_out(demand)?;
        Ok((pool, asked))
    }

    /// Asks for a connection again, after one was lent back.
    pub(in crate::proxy) fn take_again(&mut self, lane: Lane) -> Result<BegunCheckout<U>, CheckoutError> {
        let destination = self.router.is_some().then(|| self.destination.clone());
        self.take_at(lane, None, destination, None)
    }

    /// Whether the request must go to another member than that of the connection in use.
    pub(in crate::proxy) fn must_move(&self, need: &Need) -> bool {
        let (Some(router), Some(destination)) = (&self.router, &need.destination) else { return false };
        self.is_shared() && self.is_attached() && !router.fits(destination, &self.member)
    }

    /// Records a request that is sent on the client's connection.
    pub(in crate::proxy) fn note_sent(&mut self, need: &Need, expects_reply: bool) {
        // Until a reply of docward's own question: the next request may be answered without the server.
        self.unacknowledged |= !expects_reply;
        self.resending.forget();
        if let Some(destination) = &need.destination {
            self.destination = destination.clone();
        }
        match &need.transaction {
            Some(TransactionStep::Continues(transaction)) => self.transaction = Some(transaction.clone()),
            Some(TransactionStep::Ends) => self.transaction = None,
            None => {}
        }
        let at_primary = self.router.as_ref().map(|router| router.is_primary(&self.member));
        if let Some(at_primary) = at_primary {
            self.member.counters().routed(at_primary);
        }
        self.opens_cursor = match need {
            Need { opens_waiting_cursor: true, .. } => Some(OpenedCursor::Waiting),
            Need { opens_cursor: true, .. } if at_primary == Some(false) => Some(OpenedCursor::Elsewhere),
            _ => None,
        };
        if let Sharing::Pinned(pin) = need.sharing {
            self.pin(pin);
        }
    }

    /// The client keeps the connection that it has, or gets next.
    fn pin(&mut self, pin: sharing::Pin) {
        if self.pin.is_none() {
            self.pin = Some(self.member.counters().pin(pin));
        }
    }

    /// The client gets a connection outside the pools.
    pub(in crate::proxy) fn leave_pools(&mut self, pin: sharing::Pin) {
        self.pin(pin);
        self.conversation = None;
        self.attachment = Attachment::Detached;
    }

    /// Why a cursor in the reply to the request just sent is remembered; `None`: it is not.
    pub(in crate::proxy) fn takes_cursor(&mut self) -> Option<OpenedCursor> {
        self.opens_cursor.take()
    }

    /// Records a cursor of the connection in use.
    pub(in crate::proxy) fn note_cursor(&self, cursor: i64, why: OpenedCursor) {
        if why == OpenedCursor::Waiting {
            self.member.note_waiting_cursor(cursor);
        }
        if let Some(router) = &self.router {
            router.note_cursor(cursor, &self.member);
        }
    }

    /// The error of the request that waited for a connection.
    pub(in crate::proxy) fn take_failure(&mut self) -> Option<CheckoutError> {
        match std::mem::replace(&mut self.attachment, Attachment::Detached) {
            Attachment::Failed(error) => Some(error),
            other => {
                self.attachment = other;
                None
            }
        }
    }

    /// Waits for the connection of the request that needs one. Ready without one at once if none waits.
    pub(in crate::proxy) fn poll_taking(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Attachment::Waiting(taking) = &mut self.attachment {
            let Poll::Ready(taken) = taking.checkout.as_mut().poll(cx) else { return Poll::Pending };
            self.attachment = match taken {
                Ok(Taken { member, pool, checkout }) => {
                    (self.member, self.pool) = (member, pool);
                    Attachment::Ready(checkout)
                }
                Err(error) => Attachment::Failed(error),
            };
        }
        Poll::Ready(())
    }

    /// The socket of a connection that has just been taken.
    pub(in crate::proxy) fn install(&mut self, negotiation: &mut Negotiation) -> Option<U> {
        let mut checkout = match std::mem::replace(&mut self.attachment, Attachment::Detached) {
            Attachment::Ready(checkout) => checkout,
            other => {
                self.attachment = other;
                return None;
            }
        };
        let PooledConnection { stream, details } = checkout.take_out()?;
        negotiation.set_upstream(&details.compressors);
        self.attachment = Attachment::Attached(checkout, details);
        Some(stream)
    }

    /// The socket of a connection of this checkout.
    pub(in crate::proxy) fn attach(&mut self, checkout: Checkout<U>, negotiation: &mut Negotiation) -> Option<U> {
        self.attachment = Attachment::Ready(checkout);
        self.install(negotiation)
    }

    /// The socket of a connection that the request has waited for.
    pub(in crate::proxy) fn attach_taken(
        &mut self,
        taken: Taken<U, Checkout<U>>,
        negotiation: &mut Negotiation,
    ) -> Option<U> {
        (self.member, self.pool) = (taken.member, taken.pool);
        self.attach(taken.checkout, negotiation)
    }

    /// Whether the relay uses a connection that it must give back.
    pub(in crate::proxy) fn is_attached(&self) -> bool {
        matches!(self.attachment, Attachment::Attached(..))
    }

    /// Whether the relay uses a connection on which an unacknowledged write may not have ended.
    pub(in crate::proxy) fn has_unacknowledged(&self) -> bool {
        self.unacknowledged && self.is_attached()
    }

    /// Whether an unacknowledged write is the last request. It must end before the connection is given back.
    pub(in crate::proxy) fn needs_barrier(&mut self) -> bool {
        self.is_shared() && std::mem::take(&mut self.unacknowledged)
    }

    /// Gives the connection back; nothing is in flight on it. A client with a connection of its own keeps it, and frees
    /// its place in the pool.
    pub(in crate::proxy) fn give_back(&mut self, stream: &mut Option<U>) {
        self.resending.forget();
        let (mut checkout, details) = match std::mem::replace(&mut self.attachment, Attachment::Detached) {
            Attachment::Attached(checkout, details) => (checkout, details),
            other => {
                self.attachment = other;
                return;
            }
        };
        if self.is_shared()
            && let Some(stream) = stream.take()
        {
            checkout.put_back(PooledConnection { stream, details });
        }
    }

    /// Gives the connection back for a while, before anything of the message was sent on it. Returns its lane; `None`:
    /// the client does not share connections.
    pub(in crate::proxy) fn lend_back(&mut self, stream: &mut Option<U>) -> Option<Lane> {
        let Attachment::Attached(checkout, _) = &self.attachment else { return None };
        let lane = checkout.lane();
        if !self.is_shared() {
            return None;
        }
        self.give_back(stream);
        Some(lane)
    }

    /// How long a request waits for a connection.
    pub(in crate::proxy) fn max_wait(&self) -> Duration {
        self.pool.settings().max_wait
    }

    /// Leaves the connection, on which an operation may be in progress. It counts until `deadline` at most.
    pub(in crate::proxy) fn abandon(&mut self, stream: U, deadline: Instant) {
        if let Attachment::Attached(checkout, details) = std::mem::replace(&mut self.attachment, Attachment::Detached) {
            abandon(checkout, PooledConnection { stream, details }, self.member.hello(), deadline);
        }
    }

    /// Id of docward's next own reply.
    pub(in crate::proxy) fn reply_id(&mut self) -> i32 {
        self.next_reply_id = self.next_reply_id.wrapping_add(1);
        self.next_reply_id
    }
}

/// docward's own ping after an unacknowledged write: its reply shows that the write has ended.
pub(in crate::proxy) fn barrier() -> Vec<u8> {
    crate::command::own::ping(BARRIER_ID)
}
