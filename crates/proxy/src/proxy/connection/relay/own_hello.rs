//! Answers a client's hellos from the member's last reply to docward's own monitor.
//!
//! A hello that waits for a topology change is pending like any other request, so that draining treats it as one; its
//! reply comes from here instead of the server.

use std::task::{Context, Poll, ready};

use super::Relay;
use crate::engine::handshake::HelloReply;
use crate::engine::handshake::own_reply::{Additions, ClientHello};
use crate::proxy::connection::end::{End, UpstreamFault};
use crate::proxy::connection::packing::{header_of, pack};
use crate::proxy::connection::planner::now;
use crate::proxy::connection::pooling::hello::AwaitedHello;
use crate::proxy::interceptor::Interceptor;
use crate::proxy::server_side::pool::member::MemberHello;
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};

/// The end of a client whose member does not answer: it must not wait for it.
pub(in crate::proxy::connection) const MEMBER_LOST: End = End::UpstreamClosed;

impl<C, U, P> Relay<C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
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

    pub(in crate::proxy::connection) fn own_hello_reply(
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

fn version_of(member: &MemberHello) -> Option<Vec<u8>> {
    let reply = HelloReply::parse(&member.reply).ok()?;
    reply.body().get("topologyVersion")?.as_document().map(|version| version.as_bytes().to_vec())
}
