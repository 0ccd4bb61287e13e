//! A request's connection at the member that it goes to, for clients of a router.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::Pooling;
use crate::engine::RequestHead;
use crate::engine::routing::{Destination, DestinationKind, OpenTransaction, for_other_members};
use crate::login::User;
use crate::proxy::server_side::pool::member::Member;
use crate::proxy::server_side::pool::open::ask;
use crate::proxy::server_side::pool::queue::Lane;
use crate::proxy::server_side::pool::{
    AcceptedLogin, Checkout, CheckoutError, CheckoutRequest, Demand, Pool, REFUSED_FOR,
};
use crate::proxy::server_side::router::{ELECTION_WAIT, Router};
use crate::proxy::transport::socket::ServerSocket;

/// Pause before a request looks for a member again, if the one it found could not be reached.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a request for every member waits for the others. A member that hangs must not hold it up for long.
const OTHERS_REPLY_WITHIN: Duration = Duration::from_secs(2);

/// The client's user, and what docward needs to log in as it at other members than the one that the client's login went
/// to.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct ClientLogin {
    pub(in crate::proxy) user: User,
    pub(in crate::proxy) accepted: AcceptedLogin,
}

/// A connection, or the right to open one, and where.
pub(in crate::proxy) struct Taken<U: ServerSocket, C> {
    pub(super) member: Arc<Member<U>>,
    pub(super) pool: Arc<Pool<U>>,
    pub(super) checkout: C,
}

/// The client's pool of a member. It is replaced if it is of an earlier user of this name, or password.
///
/// # Errors
/// [`CheckoutError::LoginNeeded`]: the pool is of a later one than the client's.
pub(super) fn pool_at<U: ServerSocket>(
    member: &Arc<Member<U>>,
    login: Option<&ClientLogin>,
) -> Result<Arc<Pool<U>>, CheckoutError> {
    let pool = member.pool(login.map(|login| &login.user));
    let Some(ClientLogin { accepted, .. }) = login else { return Ok(pool) };
    if pool.note_login(accepted) {
        return Ok(pool);
    }
    let newer = pool.is_older_than(accepted).then(|| member.replace(&pool));
    newer.filter(|newer| newer.note_login(accepted)).ok_or(CheckoutError::LoginNeeded)
}

/// Takes a connection at a member that the request may go to, and opens it if that is to be done. Waits for a member, and
/// looks for another one if it cannot be reached: nothing has been sent. `found`: the first one, if there is one. The
/// request is held, and waits for a member no longer than for `time_limit`.
///
/// # Errors
/// [`CheckoutError`]
pub(super) async fn check_out<U: ServerSocket>(
    router: Arc<Router<U>>,
    destination: Destination,
    login: Option<ClientLogin>,
    lane: Lane,
    app: Option<Arc<str>>,
    found: Option<Taken<U, CheckoutRequest<U>>>,
    time_limit: Option<Duration>,
) -> Result<Taken<U, Checkout<U>>, CheckoutError> {
    let time_limit = time_limit.filter(|limit| *limit < ELECTION_WAIT);
    let deadline = Instant::now() + time_limit.unwrap_or(ELECTION_WAIT);
    let taken = check_out_before(deadline, router, destination, login, lane, app, found).await;
    taken.map_err(|error| match time_limit.filter(|_| error.is_without_member() && Instant::now() >= deadline) {
        Some(limit) => CheckoutError::TimeLimit(limit),
        None => error,
    })
}

async fn check_out_before<U: ServerSocket>(
    deadline: Instant,
    router: Arc<Router<U>>,
    destination: Destination,
    login: Option<ClientLogin>,
    lane: Lane,
    app: Option<Arc<str>>,
    mut found: Option<Taken<U, CheckoutRequest<U>>>,
) -> Result<Taken<U, Checkout<U>>, CheckoutError> {
    let ask = |member: Arc<Member<U>>| {
        let pool = pool_at(&member, login.as_ref())?;
        let asked = pool.check_out(Demand::held(lane, app.as_ref())).map(|checkout| (pool, checkout));
        Ok::<_, CheckoutError>((member, asked))
    };
    // Without a key there is nothing that another member, or a later time, could accept.
    let has_key = login.as_ref().is_some_and(|login| login.accepted.key.is_some());
    let mut strangers = Vec::new();
    let mut other: Option<Arc<Member<U>>> = None;
    loop {
        let (member, asked) = match (found.take(), other.take()) {
            (Some(Taken { member, pool, checkout }), _) => (member, Ok((pool, checkout))),
            (None, Some(member)) => ask(member)?,
            (None, None) => ask(router.wait_for(&destination, deadline).await?)?,
        };
        let taken = match asked {
            Ok((pool, checkout)) => pool.clone().finish_checkout(checkout).await.map(|checkout| (pool, checkout)),
            Err(error) => Err(error),
        };
        match taken {
            Ok((pool, checkout)) => return Ok(Taken { member, pool, checkout }),
            Err(CheckoutError::Unreachable(_))
                if !matches!(destination.kind, DestinationKind::Cursor(_)) && Instant::now() < deadline =>
            {
                router.recheck();
                sleep(PAUSE).await;
            }
            // A secondary that is behind may not know the user yet, or its new password.
            Err(error @ CheckoutError::LoginNeeded) if has_key && !router.is_primary(&member) => {
                strangers.push(member);
                let DestinationKind::Read(preference) = &destination.kind else { return Err(error) };
                other = router.find_for_read(preference, &strangers);
                if other.is_none() {
                    if Instant::now() >= deadline {
                        return Err(error_without_login(&router, login.as_ref()).await);
                    }
                    strangers.clear();
                    let _waits = router.counters.wait();
                    sleep(REFUSED_FOR).await;
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Why a read fails whose members do not accept the client's login: the client must log in again, if the primary does not
/// accept it either.
async fn error_without_login<U: ServerSocket>(router: &Router<U>, login: Option<&ClientLogin>) -> CheckoutError {
    let Some(primary) = router.for_login() else { return CheckoutError::LoginNeeded };
    match check_out_own(&primary, login).await {
        Err(CheckoutError::LoginNeeded) => CheckoutError::LoginNeeded,
        _ => CheckoutError::NoMember("no member for this read has accepted the client's login"),
    }
}

/// Takes a connection at this member, for a message of docward's own.
async fn check_out_own<U: ServerSocket>(
    member: &Arc<Member<U>>,
    login: Option<&ClientLogin>,
) -> Result<Checkout<U>, CheckoutError> {
    let pool = pool_at(member, login)?;
    let asked = pool.check_out(Demand::held(Lane::Ordinary, None))?;
    pool.finish_checkout(asked).await
}

impl<U: ServerSocket> Pooling<U> {
    /// Sends what every member gets to those that the client's request does not go to; `None`: there is nothing to send.
    pub(in crate::proxy) fn send_to_others(
        &self,
        request: &RequestHead<'_>,
    ) -> Option<impl Future<Output = ()> + use<U>> {
        let router = self.router.as_ref().filter(|_| self.is_shared() && !self.is_repeating())?;
        Some(send_to_all(router.others(&self.member), self.login.clone(), for_other_members(request)?))
    }
}

/// Aborts a transaction. If that fails, the server does so after its time limit.
pub(super) async fn abort<U: ServerSocket>(
    router: Arc<Router<U>>,
    login: Option<ClientLogin>,
    transaction: OpenTransaction,
) {
    let taken = check_out(router, transaction.destination(), login, Lane::Continuation, None, None, None).await;
    if let Ok(Taken { checkout, .. }) = taken {
        send_alone(checkout, &transaction.abort(1)).await;
    }
}

/// Sends a message to these members, as the client's user. Ready when all have replied; a member that does not reply soon is
/// omitted.
async fn send_to_all<U: ServerSocket>(members: Vec<Arc<Member<U>>>, login: Option<ClientLogin>, message: Vec<u8>) {
    let send = async |member: Arc<Member<U>>| {
        if let Ok(checkout) = check_out_own(&member, login.as_ref()).await {
            send_alone(checkout, &message).await;
        }
    };
    join_all(members.into_iter().map(|member| timeout(OTHERS_REPLY_WITHIN, send(member)))).await;
}

async fn send_alone<U: ServerSocket>(mut checkout: Checkout<U>, message: &[u8]) {
    let Some(mut connection) = checkout.take_out() else { return };
    if ask(&mut connection.stream, message).await.is_ok() {
        checkout.put_back(connection);
    }
}
