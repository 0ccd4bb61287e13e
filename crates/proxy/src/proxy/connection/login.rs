//! Relays a client's login on a connection of the pool of the user that it claims to be. Only when the server has
//! accepted the login, and reports that the connection has exactly this user, the client gets connections of this pool.
//!
//! A connection that carries a login carries nothing else: other requests of the client meanwhile go through the pool of
//! the user that it had before.

use std::sync::Arc;

use tokio::time::Instant;

use crate::command::{code, error_reply};
use crate::engine::sharing::Pin;
use crate::login::scram::Transcript;
use crate::login::{Authentication, Continue, Outcome, Start, User, ok_reply, set_response_to};
use crate::proxy::connection::end::End;
use crate::proxy::connection::in_progress::MessageInProgress;
use crate::proxy::connection::packing::{header_of, pack};
use crate::proxy::connection::pending_replies::ReplyAction;
use crate::proxy::connection::pooling::login::Conversation;
use crate::proxy::connection::pooling::routed::ClientLogin;
use crate::proxy::interceptor::Interceptor;
use crate::proxy::server_side::pool::open::{ask, identify};
use crate::proxy::server_side::pool::queue::Lane;
use crate::proxy::server_side::pool::{AcceptedLogin, CheckoutError, Demand};
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};
use crate::wire::Header;
use crate::wire::compressed::Compressor;

/// The longest name of a user, and of its database, in bytes. Each name that logs in has a pool.
const MAX_NAME_LENGTH: usize = 1024;

/// What became of an authentication command.
enum Handled {
    Reply(Vec<u8>),
    /// It is forwarded on the connection that the client now has.
    Forward,
}

impl<C, U, P> MessageInProgress<'_, C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    /// Answers a command that may change the client's user.
    pub(super) async fn reply_to_authentication(&mut self, frame: &[u8], came: Option<Compressor>) -> Result<(), End> {
        let header = header_of(frame)?;
        self.relay.client.state.forget_users();
        let mut reply = match self.authenticate(frame).await {
            Ok(Handled::Forward) => {
                self.relay.pending.push(header.request_id, ReplyAction::Login);
                self.relay.server.out.push(frame.to_vec());
                return Ok(());
            }
            Ok(Handled::Reply(reply)) => reply,
            // In the middle of a login, the end of the connection costs drivers more than an error (bench/RESULTS.md).
            Err(End::LoginNeeded(error)) => {
                let reply = self.reject_without_connection(&error, header);
                reply.ok_or(End::LoginNeeded(error))?
            }
            Err(end) => return Err(end),
        };
        set_response_to(&mut reply, header.request_id);
        self.relay.client.out.push(pack(reply.into(), came).into_owned());
        Ok(())
    }

    async fn authenticate(&mut self, frame: &[u8]) -> Result<Handled, End> {
        let request = header_of(frame)?;
        let error = |error_code, text: &str| Handled::Reply(error_reply(request, error_code, text, |_| {}));
        Ok(match Authentication::parse(frame) {
            Authentication::Start(start) if start.user().is_some() => match self.begin_login(&start).await? {
                Some(reply) => Handled::Reply(reply),
                None => error(code::AUTHENTICATION_FAILED, "docward: the name of the user is too long"),
            },
            Authentication::Start(start) => match self.second_login_error(request, &start.database, None) {
                Some(reply) => Handled::Reply(reply),
                None => {
                    self.pin_client(Pin::Mechanism).await?;
                    Handled::Forward
                }
            },
            Authentication::Continue(next) => match self.continue_login(&next).await? {
                Some(reply) => Handled::Reply(reply),
                None => error(code::PROTOCOL_ERROR, "docward: no login is in progress on this connection"),
            },
            Authentication::Logout { database } => Handled::Reply(match self.log_out(&database) {
                true => ok_reply(1, request.request_id),
                false => self.ask_without_user(frame, Lane::Ordinary).await?,
            }),
            Authentication::Other => error(code::FAILED_TO_PARSE, "docward: the login cannot be parsed"),
        })
    }

    /// Sends the first message of a login. Returns the server's reply; `None`: the user's name is too long.
    ///
    /// # Errors
    /// [`End`]: among others, no connection became free.
    pub(super) async fn begin_login(&mut self, start: &Start) -> Result<Option<Vec<u8>>, End> {
        let Some(pooling) = &mut self.relay.pooling else { return Ok(None) };
        drop(pooling.take_login());
        let Some((mechanism, user)) = start.user() else { return Ok(None) };
        if user.name.len().max(user.database.len()) > MAX_NAME_LENGTH {
            return Ok(None);
        }
        let member = pooling.login_member();
        let pool = member.pool(Some(&user));
        let checkout = pool.clone().finish_checkout(pool.check_out(Demand::held(Lane::Login, pooling.app()))?);
        let mut checkout = self.while_connected(checkout).await??;
        let Some(connection) = checkout.take_out() else { return Ok(None) };
        let conversation =
            Conversation { member, pool, checkout, connection, user, mechanism, transcript: Transcript::default() };
        self.step_login(conversation, start.request(6), &start.payload).await.map(Some)
    }

    /// Sends a later message of a login. Returns the server's reply; `None`: the client has begun no login.
    ///
    /// # Errors
    /// [`End`]: among others, the login was given up because others waited. The client gets an overload error: another
    /// error of a login, drivers would report to the application.
    async fn continue_login(&mut self, next: &Continue) -> Result<Option<Vec<u8>>, End> {
        let paused = self.relay.pooling.as_mut().and_then(|pooling| pooling.take_login());
        let Some(paused) = paused else { return Ok(None) };
        let Some(conversation) = paused.take() else { return Err(CheckoutError::LoginGivenUp.into()) };
        self.step_login(conversation, next.request(7), &next.payload).await.map(Some)
    }

    /// Sends one message of a login and returns the server's reply.
    async fn step_login(
        &mut self,
        mut conversation: Conversation<U>,
        request: Vec<u8>,
        payload: &[u8],
    ) -> Result<Vec<u8>, End> {
        conversation.transcript.client(payload);
        // If the client leaves meanwhile, the connection closes with the conversation.
        let asking = ask(&mut conversation.connection.stream, &request);
        let reply = self.while_connected(asking).await?.map_err(End::UpstreamError)?;
        match Outcome::parse(&reply) {
            Some(outcome) if outcome.is_done => return self.complete_login(conversation, reply).await,
            Some(outcome) => {
                conversation.transcript.server(&outcome.payload);
                if let Some(pooling) = &mut self.relay.pooling {
                    pooling.park_login(conversation);
                }
            }
            None => self.fail_login(conversation).await?,
        }
        Ok(reply)
    }

    /// The server has rejected the login. A new connection closes; one that had its user before must still have it.
    async fn fail_login(&mut self, conversation: Conversation<U>) -> Result<(), End> {
        let Conversation { pool, mut checkout, mut connection, user, .. } = conversation;
        pool.counters().login_failed();
        if connection.details.is_ready {
            let found = self.while_connected(identify(&mut connection.stream, &user)).await?;
            if let Ok(Some(_)) = found {
                checkout.put_back(connection);
            }
        }
        Ok(())
    }

    /// The server has accepted the login by `reply`: gives the client to the pool of its user. Returns the client's reply.
    async fn complete_login(&mut self, conversation: Conversation<U>, reply: Vec<u8>) -> Result<Vec<u8>, End> {
        let Conversation { member, pool, mut checkout, mut connection, user, mechanism, transcript } = conversation;
        let found = self.while_connected(identify(&mut connection.stream, &user)).await?;
        let Some(found) = found.map_err(End::UpstreamError)? else {
            return Err(End::Unprocessable(
                "the server has another user on the connection than the login named".to_owned(),
            ));
        };
        let settings = *pool.settings();
        let identity = found.identity();
        // Without `credentials: keep` nothing is computed that could log in.
        let stored = settings.keep_credentials.then(|| found.stored(mechanism)).flatten();
        drop(found);
        let key = stored.as_ref().and_then(|stored| transcript.client_key(mechanism, stored)).map(Arc::new);
        // If the server does not identify the user, docward cannot notice that it was dropped and created again.
        let ends = identity.is_none().then(|| Instant::now() + settings.max_lifetime);
        if stored.is_some() && key.is_none() {
            // The password was changed after the server had accepted the proof.
            return Err(End::LoginNeeded(CheckoutError::LoginNeeded));
        }
        pool.counters().logged_in();
        let accepted = AcceptedLogin { identity, key, at: Instant::now() };
        let pool = if pool.note_login(&accepted) {
            connection.details.is_ready = true;
            checkout.put_back(connection);
            pool
        } else {
            let pool = member.replace(&pool);
            if !pool.note_login(&accepted) {
                return Err(End::LoginNeeded(CheckoutError::LoginNeeded));
            }
            connection.details.is_ready = true;
            pool.adopt(connection);
            pool
        };
        // Checked only here, as by the server: a wrong password is reported first.
        if let Some(error) = self.second_login_error(header_of(&reply)?, &user.database, Some(&user)) {
            return Ok(error);
        }
        if let Some(pooling) = &mut self.relay.pooling {
            pooling.logged_in(ClientLogin { user: user.clone(), accepted }, member, pool, ends);
        }
        self.relay.client.state.must_log_in = false;
        self.relay.client.state.users = Some(vec![(user.database, user.name)]);
        self.relay.client.note_identity();
        Ok(reply)
    }

    /// The error of a login of a client that already has another user than `user`; `None`: it is accepted.
    fn second_login_error(&self, request: Header, database: &str, user: Option<&User>) -> Option<Vec<u8>> {
        let current = self.relay.pooling.as_ref()?.only_user().filter(|current| Some(*current) != user)?;
        let error_code = if current.database == database { code::OTHER_USER } else { code::USER_OF_OTHER_DATABASE };
        let User { name, database } = current;
        let text =
            format!("docward: a connection has one user; this one is already authenticated as {name}@{database}");
        Some(error_reply(request, error_code, &text, |_| {}))
    }

    /// Ends the login of a user of this database. Returns false if the client has no user.
    fn log_out(&mut self, database: &str) -> bool {
        let Some(pooling) = &mut self.relay.pooling else { return false };
        let Some(user) = pooling.user() else { return false };
        // Other databases have no user here; that is not an error.
        if user.database == database {
            self.relay.client.state.must_log_in = pooling.log_out();
        }
        true
    }

    /// Sends a message on a connection without a user, and returns the server's reply.
    ///
    /// # Errors
    /// [`End`] if no reply arrives.
    pub(super) async fn ask_without_user(&mut self, message: &[u8], lane: Lane) -> Result<Vec<u8>, End> {
        let Some(pooling) = &self.relay.pooling else { return Err(End::UpstreamClosed) };
        let pool = pooling.login_member().pool(None);
        let checkout = pool.clone().finish_checkout(pool.check_out(Demand::held(lane, pooling.app()))?);
        let mut checkout = self.while_connected(checkout).await??;
        let Some(mut connection) = checkout.take_out() else { return Err(End::UpstreamClosed) };
        let asking = ask(&mut connection.stream, message);
        let reply = self.while_connected(asking).await?.map_err(End::UpstreamError)?;
        checkout.put_back(connection);
        Ok(reply)
    }

    /// Gives the client a server connection of its own, without a user.
    pub(super) async fn pin_client(&mut self, pin: Pin) -> Result<(), End> {
        let Some(pooling) = &mut self.relay.pooling else { return Ok(()) };
        pooling.leave_pools(pin);
        let member = pooling.login_member();
        let stream = self.while_connected(member.connect()).await?.map_err(End::UpstreamError)?;
        self.relay.server.stream = Some(stream);
        self.relay.negotiation.set_upstream(&[]);
        Ok(())
    }
}
