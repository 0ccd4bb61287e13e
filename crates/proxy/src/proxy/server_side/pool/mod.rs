//! Pools of server connections that clients share: one pool for each member and authenticated user.
//!
//! A client holds a connection from its request until the last reply has arrived. [`queue`] decides who gets one,
//! [`open`] opens and authenticates new ones. The connections of a pool are all logged in as its user, and only clients
//! that the server has authenticated as that user get them. Next: [`crate::proxy::connection::pooling`].

pub(in crate::proxy) mod abandoned;
pub(in crate::proxy) mod counters;
pub(in crate::proxy) mod member;
mod member_server;
pub(in crate::proxy) mod open;
pub(in crate::proxy) mod queue;
mod recent;
pub(in crate::proxy) mod registry;
pub(in crate::proxy) mod settings;

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use self::counters::{OpenGuard, PoolCounters, WaitingClients};
use self::member_server::MemberServer;
use self::open::OpenError;
use self::queue::{Grant, Lane, OfThread, PoolQueue};
use self::settings::PoolSettings;
use crate::login::scram::ClientKey;
use crate::login::{Identity, User};
use crate::proxy::server_side::router::ELECTION_WAIT;
use crate::proxy::thread_number::thread_number;
use crate::proxy::transport::socket::ServerSocket;
use crate::wire::compressed::Compressor;

/// What is known of a pooled connection beside its socket.
#[derive(Debug)]
pub(in crate::proxy) struct Details {
    /// Compressors that the server accepts on it.
    pub(in crate::proxy) compressors: Vec<Compressor>,
    opened: Instant,
    /// The thread that opened it, which reads its events.
    thread: usize,
    /// See [`MemberServer::epoch`].
    epoch: u64,
    /// It is logged in as the pool's user, or the pool has none.
    pub(in crate::proxy) is_ready: bool,
    _counted: OpenGuard,
}

/// A connection of a pool.
#[derive(Debug)]
pub(in crate::proxy) struct PooledConnection<S> {
    pub(in crate::proxy) stream: S,
    pub(in crate::proxy) details: Details,
}

#[derive(Debug)]
struct Idle<S> {
    connection: PooledConnection<S>,
    since: Instant,
}

/// A request that waits, and since when.
struct PoolWaiter<S: ServerSocket> {
    checkout: oneshot::Sender<Checkout<S>>,
    since: Instant,
    thread: usize,
    app: Option<Arc<str>>,
}

impl<S> OfThread for Idle<S> {
    fn thread(&self) -> usize {
        self.connection.details.thread
    }
}

impl<S: ServerSocket> OfThread for PoolWaiter<S> {
    fn thread(&self) -> usize {
        self.thread
    }
}

/// The connections of one user to one member.
pub(in crate::proxy) struct Pool<S: ServerSocket> {
    /// `None`: of clients that are not logged in.
    user: Option<User>,
    server: Arc<MemberServer<S>>,
    /// The beginning of the queue's times.
    began: Instant,
    queue: Mutex<PoolQueue<Idle<S>, PoolWaiter<S>>>,
    login: Mutex<KnownLogin>,
    /// The user has changed. Its clients must log in again.
    is_replaced: AtomicBool,
    /// Logins whose clients must send the next message.
    waiting_logins: Mutex<Vec<Weak<dyn WaitingLogin>>>,
}

/// A login that waits for its client, and holds a connection meanwhile.
pub(in crate::proxy) trait WaitingLogin: Send + Sync {
    /// Gives it up, and frees the connection, if it has waited for this long. Returns whether it still waits.
    fn give_up_after(&self, longest: Duration) -> bool;
}

/// How long a login may wait for its client while other logins or transactions wait for a connection.
const LOGIN_PAUSE: Duration = Duration::from_secs(1);

/// How long a member that has refused a user is not asked again with what is known of the same login: a secondary that is
/// behind may learn it later.
pub(in crate::proxy) const REFUSED_FOR: Duration = Duration::from_secs(1);

/// What is known of a pool's user since its last login.
#[derive(Debug, Default)]
struct KnownLogin {
    identity: Option<Identity>,
    /// With the time of its login.
    key: Option<(Arc<ClientKey>, Instant)>,
    /// When the newest login was accepted that it is known from.
    since: Option<Instant>,
    /// The time of the login whose key the member refused last, and when it did.
    refused: Option<(Instant, Instant)>,
}

/// A login that a server has accepted.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct AcceptedLogin {
    pub(in crate::proxy) identity: Option<Identity>,
    pub(in crate::proxy) key: Option<Arc<ClientKey>>,
    pub(in crate::proxy) at: Instant,
}

/// The right of one request to a connection. Dropped without its connection it frees the slot of a closed one.
pub(in crate::proxy) struct Checkout<S: ServerSocket> {
    pool: Option<Arc<Pool<S>>>,
    lane: Lane,
    /// `None`: it must be opened, or is in use.
    connection: Option<PooledConnection<S>>,
}

/// What a request needs.
#[derive(Debug, Clone, Copy)]
pub(in crate::proxy) struct Demand<'r> {
    pub(in crate::proxy) lane: Lane,
    /// The session in which the client's driver sends the request again if it gets an overload error; `None`: it does
    /// not, so the request is held.
    pub(in crate::proxy) retried_in: Option<u64>,
    /// The application, if the client has named it.
    pub(in crate::proxy) app: Option<&'r Arc<str>>,
}

impl<'r> Demand<'r> {
    /// Of a request that is not sent away.
    pub(in crate::proxy) fn held(lane: Lane, app: Option<&'r Arc<str>>) -> Self {
        Self { lane, retried_in: None, app }
    }
}

/// A request for a connection.
pub(in crate::proxy) enum CheckoutRequest<S: ServerSocket> {
    Ready(Checkout<S>),
    Queued {
        receiver: oneshot::Receiver<Checkout<S>>,
        lane: Lane,
        /// See [`Demand::retried_in`].
        retried_in: Option<u64>,
    },
}

/// Why a request got no connection.
#[derive(Debug, thiserror::Error)]
pub(in crate::proxy) enum CheckoutError {
    #[error("no server connection became free within {waited:?} (pool: max_wait)")]
    Overloaded {
        waited: Duration,
        /// In this time those that wait now will probably be served.
        room_in: Option<Duration>,
    },
    #[error("all server connections are in use, and the request would wait for about {:.1} s", .0.as_secs_f64())]
    SentAway(Duration),
    #[error("a server connection could not be opened: {0}")]
    Unreachable(#[from] io::Error),
    #[error("the user changed, or docward cannot log in as it; the client must log in again")]
    LoginNeeded,
    #[error("{0} for {wait:?}", wait = ELECTION_WAIT)]
    NoMember(&'static str),
    #[error("no member could be asked within the command's maxTimeMS of {}", .0.as_millis())]
    TimeLimit(Duration),
    #[error("maxStalenessSeconds must be at least {}", .0.as_secs())]
    Staleness(Duration),
    #[error("the client paused in its login while others waited; it must log in again")]
    LoginGivenUp,
}

impl CheckoutError {
    /// Whether there is no member that the request could go to.
    pub(in crate::proxy) fn is_without_member(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::NoMember(_))
    }
}

impl From<OpenError> for CheckoutError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Io(error) => Self::Unreachable(error),
            OpenError::Login => Self::LoginNeeded,
        }
    }
}

impl<S: ServerSocket> Pool<S> {
    pub(super) fn new(user: Option<User>, server: Arc<MemberServer<S>>) -> Arc<Self> {
        let queue = PoolQueue::new(server.settings.bounds(), user.is_none());
        Arc::new(Self {
            user,
            server,
            began: Instant::now(),
            queue: Mutex::new(queue),
            login: Mutex::default(),
            is_replaced: false.into(),
            waiting_logins: Mutex::default(),
        })
    }

    pub(in crate::proxy) fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    pub(in crate::proxy) fn settings(&self) -> &PoolSettings {
        &self.server.settings
    }

    pub(in crate::proxy) fn counters(&self) -> &PoolCounters {
        &self.server.counters
    }

    /// Asks for a connection.
    ///
    /// # Errors
    /// [`CheckoutError::LoginNeeded`], [`CheckoutError::SentAway`]
    pub(in crate::proxy) fn check_out(
        self: &Arc<Self>,
        demand: Demand<'_>,
    ) -> Result<CheckoutRequest<S>, CheckoutError> {
        let lane = demand.lane;
        if self.is_replaced.load(Ordering::Acquire) {
            return Err(CheckoutError::LoginNeeded);
        }
        let thread = thread_number();
        let mut queue = self.lock();
        while let Some(grant) = queue.admit(lane, thread) {
            match grant {
                Grant::Open => return Ok(CheckoutRequest::Ready(self.checkout(lane, None))),
                Grant::Idle(mut idle) => {
                    if self.is_usable(&mut idle.connection) {
                        return Ok(CheckoutRequest::Ready(self.checkout(lane, Some(idle.connection))));
                    }
                    queue.put_back(lane, None);
                }
            }
        }
        if lane != Lane::Login && queue.is_stuck() {
            return Err(CheckoutError::LoginNeeded);
        }
        let since = Instant::now();
        let now = since.duration_since(self.began);
        let retried_in = demand.retried_in.filter(|_| lane == Lane::Ordinary);
        if let Some(session) = retried_in
            && queue.sends_away(session, self.server.settings.longest_retried_wait(), now)
        {
            self.server.counters.sent_away();
            return Err(CheckoutError::SentAway(queue.expected_wait(lane, now).unwrap_or_default()));
        }
        let (checkout, receiver) = oneshot::channel();
        queue.wait(lane, PoolWaiter { checkout, since, thread, app: demand.app.cloned() }, now);
        Ok(CheckoutRequest::Queued { receiver, lane, retried_in })
    }

    /// Waits for a connection, and opens it if that is to be done.
    ///
    /// # Errors
    /// [`CheckoutError`]
    pub(in crate::proxy) async fn finish_checkout(
        self: Arc<Self>,
        taken: CheckoutRequest<S>,
    ) -> Result<Checkout<S>, CheckoutError> {
        let max_wait = self.server.settings.max_wait;
        let mut checkout = match taken {
            CheckoutRequest::Ready(checkout) => checkout,
            CheckoutRequest::Queued { receiver, lane, retried_in } => match timeout(max_wait, receiver).await {
                Ok(checkout) => checkout.map_err(|_| CheckoutError::LoginNeeded)?,
                Err(_) => {
                    self.server.counters.overloaded();
                    let mut queue = self.lock();
                    retried_in.into_iter().for_each(|session| queue.note_sent_away(session));
                    let room_in = queue.expected_wait(lane, self.began.elapsed());
                    return Err(CheckoutError::Overloaded { waited: max_wait, room_in });
                }
            },
        };
        if checkout.connection.as_mut().is_none_or(|connection| !self.is_usable(connection)) {
            checkout.connection = None;
            checkout.connection = Some(self.open(checkout.lane).await?);
        }
        Ok(checkout)
    }

    async fn open(&self, lane: Lane) -> Result<PooledConnection<S>, OpenError> {
        let epoch = self.server.epoch();
        let (mut stream, compressors) = open::connect(&self.server).await?;
        let is_ready = self.user.is_none();
        if let Some(user) = self.user.as_ref().filter(|_| lane != Lane::Login) {
            let ((key, accepted), identity) = {
                let known = self.login();
                (known.key.clone().ok_or(OpenError::Login)?, known.identity.clone())
            };
            if let Err(error) = open::log_in(&mut stream, user, &key, identity.as_ref()).await {
                if matches!(error, OpenError::Login) {
                    self.forget_key(accepted);
                    self.server.counters.login_failed();
                }
                return Err(error);
            }
            self.server.counters.logged_in_by_key();
        }
        let counted = self.server.counters.open();
        let is_ready = is_ready || lane != Lane::Login;
        let thread = thread_number();
        let details = Details { compressors, opened: Instant::now(), thread, epoch, is_ready, _counted: counted };
        Ok(PooledConnection { stream, details })
    }

    /// Records a login of this user that the server has accepted. Returns false if the user is another one than
    /// before, under the same name: then this pool must be replaced.
    pub(in crate::proxy) fn note_login(&self, login: &AcceptedLogin) -> bool {
        let mut known = self.login();
        if known.identity.as_ref().zip(login.identity.as_ref()).is_some_and(|(known, new)| !known.fits(new)) {
            return false;
        }
        known.identity = login.identity.clone().or_else(|| known.identity.take());
        let is_refused = known.refused.is_some_and(|(accepted, at)| login.at <= accepted && at.elapsed() < REFUSED_FOR);
        if self.server.settings.keep_credentials && known.key.is_none() && !is_refused {
            known.key = login.key.clone().map(|key| (key, login.at));
        }
        known.since = known.since.max(Some(login.at));
        self.lock().set_can_open(known.key.is_some());
        true
    }

    /// Whether what it knows of its user is older than this login.
    pub(in crate::proxy) fn is_older_than(&self, login: &AcceptedLogin) -> bool {
        self.login().since.is_none_or(|since| since < login.at)
    }

    /// Adds a connection that is logged in as this pool's user, and serves those who wait.
    pub(in crate::proxy) fn adopt(self: &Arc<Self>, connection: PooledConnection<S>) {
        let idle = Idle { connection, since: Instant::now() };
        // Dropped outside the lock.
        let surplus = self.lock().adopt(idle);
        drop(surplus);
        self.serve(None);
    }

    /// Registers a login that waits for its client.
    pub(in crate::proxy) fn add_waiting_login(&self, login: Weak<dyn WaitingLogin>) {
        let mut waiting_logins = self.waiting_logins.lock().unwrap_or_else(PoisonError::into_inner);
        waiting_logins.retain(|login| login.strong_count() > 0);
        waiting_logins.push(login);
    }

    /// Gives up logins whose clients are slow, if other logins or transactions wait for a connection: each client may
    /// claim to be any user, so they must not keep that user from logging in or committing.
    fn give_up_slow_logins(&self) {
        let is_needed = {
            let queue = self.lock();
            queue.has_waiting(Lane::Login) || queue.has_waiting(Lane::Continuation)
        };
        if !is_needed {
            return;
        }
        let waiting_logins = std::mem::take(&mut *self.waiting_logins.lock().unwrap_or_else(PoisonError::into_inner));
        let still = waiting_logins
            .into_iter()
            .filter(|login| login.upgrade().is_some_and(|login| login.give_up_after(LOGIN_PAUSE)));
        let mut still: Vec<_> = still.collect();
        self.waiting_logins.lock().unwrap_or_else(PoisonError::into_inner).append(&mut still);
    }

    /// Forgets the key of the login that was accepted at this time: the member has refused it. Without a key, only logins of
    /// clients open connections.
    fn forget_key(&self, accepted: Instant) {
        {
            let mut known = self.login();
            known.refused = Some((accepted, Instant::now()));
            if known.key.as_ref().is_some_and(|(_, newer)| *newer > accepted) {
                return;
            }
            known.key = None;
        }
        let stuck = {
            let mut queue = self.lock();
            queue.set_can_open(false);
            queue.drain_stuck()
        };
        drop(stuck);
    }

    /// Closes the idle connections and sends the clients away.
    pub(in crate::proxy) fn end(&self) {
        self.is_replaced.store(true, Ordering::Release);
        let mut queue = self.lock();
        let closed = (queue.remove_idle(|_| true), queue.drain_waiting());
        drop(queue);
        drop(closed);
    }

    /// Closes idle connections that are too old, were unused for too long, or have been closed by the server.
    pub(in crate::proxy) fn sweep(&self) {
        let now = Instant::now();
        let idle_timeout = self.server.settings.idle_timeout;
        let expired = |idle: &mut Idle<S>| {
            now.duration_since(idle.since) >= idle_timeout || !self.is_usable(&mut idle.connection)
        };
        let (closed, given_up) = {
            let mut queue = self.lock();
            (queue.remove_idle(expired), queue.remove_waiting(|waiter| waiter.checkout.is_closed()))
        };
        drop((closed, given_up));
        self.give_up_slow_logins();
    }

    /// Whether it can be used by another request: it is young enough, and the server has sent nothing and not closed it.
    fn is_usable(&self, connection: &mut PooledConnection<S>) -> bool {
        let Details { opened, epoch, .. } = connection.details;
        let mut byte = [0];
        let mut context = Context::from_waker(Waker::noop());
        epoch == self.server.epoch()
            && opened.elapsed() < self.server.settings.max_lifetime
            && Pin::new(&mut connection.stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    fn checkout(self: &Arc<Self>, lane: Lane, connection: Option<PooledConnection<S>>) -> Checkout<S> {
        Checkout { pool: Some(self.clone()), lane, connection }
    }

    /// Takes back a connection, or the slot of a closed one, and serves those who wait.
    fn give_back(self: &Arc<Self>, lane: Lane, connection: Option<PooledConnection<S>>) {
        let is_replaced = self.is_replaced.load(Ordering::Acquire);
        let connection = connection.and_then(|mut connection| {
            let stays = !is_replaced && self.is_usable(&mut connection);
            stays.then_some(connection)
        });
        self.serve(Some((lane, connection)));
    }

    /// Takes back what is returned, and serves those who wait.
    fn serve(self: &Arc<Self>, mut returned: Option<(Lane, Option<PooledConnection<S>>)>) {
        let mut served = None;
        loop {
            let mut queue = self.lock();
            if let Some(lane) = served.take() {
                queue.note_served(lane, self.began.elapsed());
            }
            if let Some((lane, connection)) = returned.take() {
                queue.put_back(lane, connection.map(|connection| Idle { connection, since: Instant::now() }));
            }
            let stuck = queue.drain_stuck();
            let next = queue.next();
            drop(queue);
            drop(stuck);
            let Some((lane, waiter, grant)) = next else { return };
            let connection = match grant {
                Grant::Idle(idle) => Some(idle.connection),
                Grant::Open => None,
            };
            // The client is gone if it cannot be sent.
            match waiter.checkout.send(self.checkout(lane, connection)) {
                Ok(()) => served = Some(lane),
                Err(mut checkout) => {
                    checkout.pool = None;
                    returned = Some((lane, checkout.connection.take()));
                }
            }
        }
    }

    /// The numbers of connections and requests.
    pub(super) fn load(&self) -> counters::PoolLoad {
        let queue = self.lock();
        let oldest = queue.oldest().map(|waiter| waiter.since.elapsed()).unwrap_or_default();
        counters::PoolLoad {
            active: queue.held(),
            idle: queue.connections() - queue.held(),
            waiting: queue.waiting(),
            oldest_wait: oldest,
        }
    }

    /// The requests that wait, by application.
    pub(super) fn waiting_clients(&self) -> Vec<WaitingClients> {
        let mut by_app: HashMap<Option<Arc<str>>, (usize, Instant)> = HashMap::new();
        for waiter in self.lock().waiters() {
            let (count, oldest) = by_app.entry(waiter.app.clone()).or_insert((0, waiter.since));
            (*count, *oldest) = (*count + 1, waiter.since.min(*oldest));
        }
        let clients = by_app.into_iter().map(|(app, (waiting, oldest))| WaitingClients {
            member: self.server.address.to_string(),
            user: self.user.as_ref().map(|user| format!("{}.{}", user.database, user.name)),
            app,
            waiting,
            oldest_wait: oldest.elapsed(),
        });
        clients.collect()
    }

    fn lock(&self) -> MutexGuard<'_, PoolQueue<Idle<S>, PoolWaiter<S>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn login(&self) -> MutexGuard<'_, KnownLogin> {
        self.login.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: ServerSocket> Checkout<S> {
    /// Whether it has a connection that needs not be opened first.
    pub(in crate::proxy) fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    pub(in crate::proxy) fn lane(&self) -> Lane {
        self.lane
    }

    /// Compressors that the server accepts on its connection.
    pub(in crate::proxy) fn compressors(&self) -> &[Compressor] {
        self.connection.as_ref().map_or(&[], |connection| &connection.details.compressors)
    }

    /// Takes the connection out, to use it.
    pub(in crate::proxy) fn take_out(&mut self) -> Option<PooledConnection<S>> {
        self.connection.take()
    }

    /// Puts the connection back after use: nothing is in flight on it.
    pub(in crate::proxy) fn put_back(&mut self, connection: PooledConnection<S>) {
        self.connection = Some(connection);
    }
}

impl<S: ServerSocket> Drop for Checkout<S> {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            let connection = self.connection.take().filter(|connection| connection.details.is_ready);
            pool.give_back(self.lane, connection);
        }
    }
}
