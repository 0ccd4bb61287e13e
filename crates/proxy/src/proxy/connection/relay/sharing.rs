//! Takes a server connection for a request of a client that shares connections, and gives it back.

use std::task::Context;

use tokio::time::Instant;

use super::{Relay, StepProgress};
use crate::proxy::connection::client_half::ReadAhead;
use crate::proxy::connection::end::End;
use crate::proxy::connection::framing::Request;
use crate::proxy::connection::pooling::{BARRIER_ID, barrier};
use crate::proxy::interceptor::Interceptor;
use crate::proxy::server_side::pool::queue::Lane;
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};

impl<C, U, P> Relay<C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    /// Whether the client shares server connections now.
    pub(in crate::proxy) fn is_shared(&self) -> bool {
        self.pooling.as_ref().is_some_and(|pooling| pooling.is_shared())
    }

    /// Whether a request waits for a connection of a pool.
    pub(super) fn is_taking(&self) -> bool {
        self.pooling.as_ref().is_some_and(|pooling| pooling.is_taking())
    }

    /// Gives the connection back to its pool once nothing is in flight on it. After an unacknowledged write docward asks
    /// for a reply of its own first: without it, the client's next request could overtake the write.
    pub(super) fn give_back(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let is_unused = self.pending.is_empty()
            && self.server.is_between_messages()
            && self.collected.is_none()
            && self.client.conversion.is_none()
            && !self.client.requests.is_streaming()
            && !self.client.requests.is_collecting(Request::Convert);
        let Some(pooling) = self.pooling.as_mut().filter(|pooling| is_unused && pooling.is_attached()) else {
            return Ok(());
        };
        if pooling.needs_barrier() {
            self.pending.push_own(BARRIER_ID);
            self.server.send(cx, &barrier());
            // Bytes that the socket does not accept now are sent when it is writable.
            let _ = self.server.poll_flush(cx)?;
            return Ok(());
        }
        pooling.give_back(&mut self.server.stream);
        Ok(())
    }

    /// Leaves the connection of the pool, if the client has one: the client's connection has ended.
    pub(in crate::proxy) fn abandon_server(&mut self, deadline: Instant) {
        if let Some(pooling) = &mut self.pooling
            && let Some(stream) = self.server.stream.take()
        {
            pooling.abandon(stream, deadline);
        }
    }

    /// Waits for a connection of the pool, and then sends the request that needs it.
    pub(super) fn wait_for_server(&mut self, cx: &mut Context<'_>) -> Result<StepProgress, End> {
        let Some(pooling) = &mut self.pooling else { return Ok(StepProgress::Moved) };
        if pooling.poll_taking(cx).is_pending() {
            if !pooling.is_revocable() {
                return Ok(StepProgress::Idle);
            }
            return Ok(match self.client.read_ahead(cx, &self.listener_context.process.traffic.meter)? {
                ReadAhead::Read => StepProgress::Moved,
                ReadAhead::Nothing | ReadAhead::Full => StepProgress::Idle,
            });
        }
        let came = self.listener_context.process.traffic.meter.now();
        self.forward_requests(cx, &[])?;
        self.activity.message_received |= self.client.requests.between_frames();
        self.pending.record_forwarded(&self.listener_context.process.traffic.meter, came);
        Ok(StepProgress::Moved)
    }

    /// Gives the connection back for a while, before anything of the message was sent on it. Returns its lane; `None`:
    /// the client does not share connections.
    pub(in crate::proxy) fn lend_back(&mut self) -> Option<Lane> {
        self.pooling.as_mut()?.lend_back(&mut self.server.stream)
    }
}
