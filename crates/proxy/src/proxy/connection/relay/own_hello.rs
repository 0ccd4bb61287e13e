//! Answers a client's hellos from the member's last reply to docward's own monitor.
//!
//! A hello that waits for a topology change is pending like any other request, so that draining treats it as one; its
//! reply comes from here instead of the server.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::Relay;
use crate::command::own::mechanisms_question;
use crate::document::{Document, Value};
use crate::engine::handshake::own_reply::{Additions, ClientHello};
use crate::engine::handshake::{HelloReply, draining::streams, is_awaitable, note_client_hello, rewrite_request};
use crate::engine::sharing::Pin;
use crate::login::Start;
use crate::proxy::connection::end::{ClientFault, End, UpstreamFault};
use crate::proxy::connection::packing::{header_of, pack};
use crate::proxy::connection::pending_replies::ReplyAction;
use crate::proxy::connection::planner::now;
use crate::proxy::connection::pooling::hello::AwaitedHello;
use crate::proxy::interceptor::Interceptor;
use crate::proxy::server_side::hello::CONNECT_TIMEOUT;
use crate::proxy::server_side::pool::member::MemberHello;
use crate::proxy::server_side::pool::queue::Lane;
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};
use crate::wire::compressed::Compressor;

/// The shortest round trip that is imitated: timers are no finer.
const MIN_ROUND_TRIP: Duration = Duration::from_millis(1);
/// The end of a client whose member does not answer: it must not wait for it.
const MEMBER_LOST: End = End::UpstreamClosed;

/// The member's hello; waits for the first one while docward starts. `None`: the member does not answer.
async fn current(mut members: watch::Receiver<Option<MemberHello>>) -> Option<MemberHello> {
    let found = timeout(CONNECT_TIMEOUT, members.wait_for(Option::is_some)).await.ok()?.ok()?;
    found.clone()
}

impl<C, U, P> Relay<C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    /// Answers a hello of a client that shares connections.
    pub(in crate::proxy) async fn reply_to_hello(&mut self, frame: &[u8], came: Option<Compressor>) -> Result<(), End> {
        let hello = ClientHello::parse(frame).map_err(ClientFault::from)?;
        note_client_hello(frame, &mut self.client.state, &mut self.negotiation).map_err(ClientFault::from)?;
        self.client.handshake.note_hello(is_awaitable(frame), streams(frame));
        let service = match &mut self.pooling {
            Some(pooling) if hello.load_balanced => pooling.serve_behind_balancer(),
            _ => None,
        };
        if hello.load_balanced && service.is_none() {
            self.pin_client(Pin::LoadBalanced).await?;
            let rewritten = rewrite_request(frame, &mut self.client.state, &mut self.negotiation);
            let rewritten = rewritten.map_err(ClientFault::from)?;
            self.pending.push(hello.request_id, ReplyAction::Hello(came));
            self.server.out.push(rewritten.unwrap_or_else(|| frame.to_vec()));
            return Ok(());
        }
        let Some(pooling) = &self.pooling else { return Ok(()) };
        let members = pooling.hello();
        if hello.topology_version.is_some() {
            let response_to = hello.request_id;
            self.pending.push(response_to, ReplyAction::Hello(came));
            let awaited = Box::new(AwaitedHello::new(hello, response_to, came, members));
            if let Some(pooling) = &mut self.pooling {
                pooling.awaited = Some(awaited);
            }
            return Ok(());
        }
        let answered = self.while_connected(true, current(members)).await?;
        let member = answered.ok_or(MEMBER_LOST)?;
        // A client that compares the round trips of members must see the way to this one, too.
        if member.round_trip >= MIN_ROUND_TRIP {
            self.while_connected(true, sleep(member.round_trip)).await?;
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
        let reply = self.own_hello_reply(&hello, &member, hello.request_id, additions)?;
        self.client.out.push(pack(reply.into(), came).into_owned());
        Ok(())
    }

    /// Sends the reply to a hello that waited, when it is due. Returns whether it was.
    pub(in crate::proxy) fn poll_awaited_hello(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let Some(awaited) = self.pooling.as_mut().and_then(|pooling| pooling.awaited.as_mut()) else {
            return Poll::Pending;
        };
        let member = ready!(awaited.poll_change(cx)).ok_or(MEMBER_LOST)?;
        let Some(awaited) = self.pooling.as_mut().and_then(|pooling| pooling.awaited.take()) else {
            return Poll::Pending;
        };
        let AwaitedHello { hello, response_to, came, .. } = *awaited;
        let reply = self.own_hello_reply(&hello, &member, response_to, Additions::default())?;
        let header = header_of(&reply)?;
        let another_follows = hello.is_stream();
        self.pending.match_reply(&header, another_follows).map_err(UpstreamFault::from)?;
        self.client.send(cx, &pack(reply.into(), came))?;
        if another_follows && let Some(pooling) = &mut self.pooling {
            // The client now knows the version of this reply.
            let hello = ClientHello { topology_version: version_of(&member), ..hello };
            let members = pooling.hello();
            pooling.awaited = Some(Box::new(AwaitedHello::new(hello, header.request_id, came, members)));
        }
        Poll::Ready(Ok(()))
    }

    fn own_hello_reply(
        &mut self,
        hello: &ClientHello,
        member: &MemberHello,
        response_to: i32,
        additions: Additions<'_>,
    ) -> Result<Vec<u8>, End> {
        let Some(pooling) = &mut self.pooling else { return Err(MEMBER_LOST) };
        let request_id = pooling.reply_id();
        let additions = Additions {
            local_time: now().milliseconds,
            connection: self.client.state.connection,
            compressors: self.negotiation.client(),
            ..additions
        };
        let reply = hello.reply(&member.reply, request_id, response_to, additions);
        let reply = reply.ok_or(MEMBER_LOST)?;
        let parsed = HelloReply::parse(&reply).map_err(UpstreamFault::from)?;
        let must_log_in = self.client.state.must_log_in;
        parsed.store_in(&mut self.client.state);
        self.client.state.must_log_in = must_log_in;
        self.client.note_identity();
        let presentation = self.listener_context.presentation(self.client.local);
        let rewritten = parsed.rewrite(&presentation, &mut self.negotiation);
        drop(parsed);
        Ok(rewritten.unwrap_or(reply))
    }
}

fn is_ok(body: Document<'_>) -> bool {
    body.get("ok").and_then(Value::as_flag) == Some(true)
}

fn version_of(member: &MemberHello) -> Option<Vec<u8>> {
    let reply = HelloReply::parse(&member.reply).ok()?;
    reply.body().get("topologyVersion")?.as_document().map(|version| version.as_bytes().to_vec())
}
