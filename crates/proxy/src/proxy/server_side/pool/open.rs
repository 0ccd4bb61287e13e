//! Opens connections of a pool, and logs in on them.

use std::io::{self, ErrorKind};
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::timeout;
use zeroize::Zeroizing;

use super::member_server::MemberServer;
use crate::command::own::{identity_question, pool_hello};
use crate::command::{Reply, code};
use crate::engine::{read_users, users_question};
use crate::login::scram::{ClientKey, Mechanism, OwnLogin, StoredCredentials};
use crate::login::{Continue, Identity, Outcome, Start, User, agreed_compressors, read_identity, read_stored};
use crate::proxy::server_side::hello::{CONNECT_TIMEOUT, exchange};
use crate::proxy::transport::socket::ServerSocket;
use crate::wire::compressed::Compressor;

/// Bound on one exchange with a server on a connection that is being opened.
const EXCHANGE_TIMEOUT: Duration = CONNECT_TIMEOUT;

/// The salt of this process for the hashes of identities.
static SALT: LazyLock<[u8; 16]> = LazyLock::new(|| bson::Uuid::new().bytes());

/// What the server reports of the user that is logged in on a connection. It may contain credentials, and is erased when it
/// is dropped.
pub(in crate::proxy) struct UserInfo(Zeroizing<Vec<u8>>);

impl UserInfo {
    /// `None`: the server does not give it.
    pub(in crate::proxy) fn identity(&self) -> Option<Identity> {
        read_identity(&self.0, &*SALT)
    }

    /// What the server stores of the user for a mechanism, if it gives that.
    pub(in crate::proxy) fn stored(&self, mechanism: Mechanism) -> Option<StoredCredentials> {
        read_stored(&self.0, mechanism)
    }
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub(in crate::proxy) enum OpenError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server does not accept the login, or docward has no key for one.
    #[error("docward cannot log in as the user")]
    Login,
}

/// Connects and performs the handshake. Returns the compressors that the server accepts.
///
/// # Errors
/// I/O errors of the socket, or `InvalidData` for an invalid reply.
pub(super) async fn connect<S: ServerSocket>(server: &MemberServer<S>) -> io::Result<(S, Vec<Compressor>)> {
    let mut stream = server.connect().await?;
    let reply = ask(&mut stream, &pool_hello(1, &server.compressors)).await?;
    let compressors = agreed_compressors(&reply).ok_or(ErrorKind::InvalidData)?;
    Ok((stream, compressors))
}

/// Logs in as the user by its key.
///
/// # Errors
/// [`OpenError::Login`]: the server does not accept the key, or the user is another one than `identity`.
pub(super) async fn log_in<S: ServerSocket>(
    stream: &mut S,
    user: &User,
    key: &ClientKey,
    identity: Option<&Identity>,
) -> Result<(), OpenError> {
    let nonce = [bson::Uuid::new().bytes(), bson::Uuid::new().bytes()].concat();
    let mut login = OwnLogin::new(key, &user.name, &nonce);
    let start = Start::own(user, login.mechanism(), login.first());
    let outcome = step(stream, &start.request(2)).await?;
    let payload = login.last(&outcome.payload).ok_or(OpenError::Login)?;
    let next = Continue::own(user, outcome.conversation, payload);
    let outcome = step(stream, &next.request(3)).await?;
    if !outcome.is_done || !login.is_genuine(&outcome.payload) {
        return Err(OpenError::Login);
    }
    let found = identify(stream, user).await?.ok_or(OpenError::Login)?.identity();
    let fits = identity.zip(found.as_ref()).is_none_or(|(known, found)| known.fits(found));
    if fits { Ok(()) } else { Err(OpenError::Login) }
}

/// Sends a message of a login.
///
/// # Errors
/// [`OpenError::Login`]: the server rejects the login. Other errors, such as those of a server that shuts down, show nothing
/// about the key.
async fn step<S: ServerSocket>(stream: &mut S, request: &[u8]) -> Result<Outcome, OpenError> {
    let reply = ask(stream, request).await?;
    match Outcome::parse(&reply) {
        Some(outcome) => Ok(outcome),
        None if is_rejected(&reply) => Err(OpenError::Login),
        None => Err(io::Error::new(ErrorKind::InvalidData, "the server did not answer the login").into()),
    }
}

fn is_rejected(reply: &[u8]) -> bool {
    Reply::parse(reply).is_ok_and(|reply| reply.code() == Some(code::AUTHENTICATION_FAILED))
}

/// Asks the server who is logged in on the connection. `None`: not exactly `user`.
///
/// # Errors
/// I/O errors of the socket, or `InvalidData` for an invalid reply.
pub(in crate::proxy) async fn identify<S: ServerSocket>(stream: &mut S, user: &User) -> io::Result<Option<UserInfo>> {
    let users = read_users(&ask(stream, &users_question(4)).await?).ok_or(ErrorKind::InvalidData)?;
    let is_user = matches!(&users[..], [(database, name)] if *database == user.database && *name == user.name);
    if !is_user {
        return Ok(None);
    }
    Ok(Some(UserInfo(Zeroizing::new(ask(stream, &identity_question(5, &user.database, &user.name)).await?))))
}

/// Sends a message and returns the reply.
///
/// # Errors
/// I/O errors of the socket, `TimedOut`, or `InvalidData` for a reply that is invalid or too long.
pub(in crate::proxy) async fn ask<S: ServerSocket>(stream: &mut S, request: &[u8]) -> io::Result<Vec<u8>> {
    timeout(EXCHANGE_TIMEOUT, exchange(stream, request)).await?
}
