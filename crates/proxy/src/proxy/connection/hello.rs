//! Carries out a hello of a client that shares connections.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::command::own::mechanisms_question;
use crate::document::{Document, Value};
use crate::engine::handshake::own_reply::{Additions, ClientHello};
use crate::engine::handshake::{HelloReply, draining::streams, is_awaitable, note_client_hello, rewrite_request};
use crate::engine::sharing::Pin;
use crate::login::Start;
use crate::proxy::connection::end::{ClientFault, End};
use crate::proxy::connection::in_progress::MessageInProgress;
use crate::proxy::connection::packing::pack;
use crate::proxy::connection::pending_replies::ReplyAction;
use crate::proxy::connection::pooling::hello::AwaitedHello;
use crate::proxy::connection::relay::own_hello::MEMBER_LOST;
use crate::proxy::interceptor::Interceptor;
use crate::proxy::server_side::hello::CONNECT_TIMEOUT;
use crate::proxy::server_side::pool::member::MemberHello;
use crate::proxy::server_side::pool::queue::Lane;
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};
use crate::wire::compressed::Compressor;

/// The shortest round trip that is imitated: timers are no finer.
const MIN_ROUND_TRIP: Duration = Duration::from_millis(1);

/// The member's hello; waits for the first one while docward starts. `None`: the member does not answer.
async fn current(mut members: watch::Receiver<Option<MemberHello>>) -> Option<MemberHello> {
    let found = timeout(CONNECT_TIMEOUT, members.wait_for(Option::is_some)).await.ok()?.ok()?;
    found.clone()
}

impl<C, U, P> MessageInProgress<'_, C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    /// Answers a hello of a client that shares connections.
    pub(super) async fn reply_to_hello(&mut self, frame: &[u8], came: Option<Compressor>) -> Result<(), End> {
        let hello = ClientHello::parse(frame).map_err(ClientFault::from)?;
        note_client_hello(frame, &mut self.relay.client.state, &mut self.relay.negotiation)
            .map_err(ClientFault::from)?;
        self.relay.client.handshake.note_hello(is_awaitable(frame), streams(frame));
        if let Some(pooling) = &mut self.relay.pooling {
            pooling.note_client(&self.relay.client.state);
        }
        let service = match &mut self.relay.pooling {
            Some(pooling) if hello.load_balanced => pooling.serve_behind_balancer(),
            _ => None,
        };
        if hello.load_balanced && service.is_none() {
            self.pin_client(Pin::LoadBalanced).await?;
            let rewritten = rewrite_request(frame, &mut self.relay.client.state, &mut self.relay.negotiation);
            let rewritten = rewritten.map_err(ClientFault::from)?;
            self.relay.pending.push(hello.request_id, ReplyAction::Hello(came));
            self.relay.server.out.push(rewritten.unwrap_or_else(|| frame.to_vec()));
            return Ok(());
        }
        let Some(pooling) = &self.relay.pooling else { return Ok(()) };
        let members = pooling.hello();
        if hello.topology_version.is_some() {
            let response_to = hello.request_id;
            self.relay.pending.push(response_to, ReplyAction::Hello(came));
            let awaited = Box::new(AwaitedHello::new(hello, response_to, came, members));
            if let Some(pooling) = &mut self.relay.pooling {
                pooling.awaited = Some(awaited);
            }
            return Ok(());
        }
        let answered = self.while_connected(current(members)).await?;
        let member = answered.ok_or(MEMBER_LOST)?;
        // A client that compares the round trips of members must see the way to this one, too.
        if member.round_trip >= MIN_ROUND_TRIP {
            self.while_connected(sleep(member.round_trip)).await?;
        }
        // Without the mechanisms, a driver would choose a wrong one. A client that has not logged in continues nothing,
        // but its driver waits for the mechanisms before it logs in.
        let mechanisms = match &hello.mechanisms_of {
            Some(user) => Some(self.ask_without_user(&mechanisms_question(1, user), Lane::Continuation).await?),
            None => None,
        };
        let mechanisms = mechanisms.as_deref().and_then(|reply| HelloReply::parse(reply).ok());
        let login = match hello.speculative.as_deref().and_then(Start::from_hello) {
            Some(start) if start.user().is_some() => self.begin_login(&start).await?,
            _ => None,
        };
        let login = login.as_deref().and_then(|reply| HelloReply::parse(reply).ok());
        let additions = Additions {
            service,
            mechanisms: mechanisms.as_ref().and_then(|reply| reply.body().get("saslSupportedMechs")),
            speculative: login.as_ref().map(HelloReply::body).filter(|body| is_ok(*body)),
            ..Additions::default()
        };
        let reply = self.relay.own_hello_reply(&hello, &member, hello.request_id, additions)?;
        self.relay.client.out.push(pack(reply.into(), came).into_owned());
        Ok(())
    }
}

fn is_ok(body: Document<'_>) -> bool {
    body.get("ok").and_then(Value::as_flag) == Some(true)
}
