//! Takes a server connection for a request of a client that shares connections, and gives it back.

use std::task::Context;

use tokio::time::Instant;

use super::{Relay, StepProgress};
use crate::command::{code, error_reply, write_overload_labels};
use crate::proxy::connection::client_half::ReadAhead;
use crate::proxy::connection::end::End;
use crate::proxy::connection::framing::Request;
use crate::proxy::connection::pooling::{BARRIER_ID, BegunCheckout, Need, barrier};
use crate::proxy::interceptor::Interceptor;
use crate::proxy::server_side::pool::CheckoutError;
use crate::proxy::server_side::pool::queue::Lane;
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};
use crate::wire::Header;

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
            self.server.send(cx, &barrier())?;
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

    /// Takes a connection for a message to be evaluated. Returns the reason if there is none; the message is rejected
    /// then.
    pub(in crate::proxy) async fn take_connection(
        &mut self,
        need: Need,
        watched: bool,
    ) -> Result<Option<CheckoutError>, End> {
        let Some(pooling) = &mut self.pooling else { return Ok(None) };
        if let Some(error) = pooling.take_failure() {
            return Ok(Some(error));
        }
        if !pooling.is_attached() {
            let asked = pooling.take_for(&need);
            if let Some(error) = self.attach(asked, watched).await? {
                return Ok(Some(error));
            }
        }
        if let Some(pooling) = &mut self.pooling {
            pooling.note_sent(&need, watched);
        }
        Ok(None)
    }

    /// Takes a connection of this lane again, after one was lent back. Returns the reason if there is none.
    pub(in crate::proxy) async fn take_connection_again(
        &mut self,
        lane: Lane,
        watched: bool,
    ) -> Result<Option<CheckoutError>, End> {
        let Some(pooling) = &mut self.pooling else { return Ok(None) };
        let asked = pooling.take_again(lane);
        self.attach(asked, watched).await
    }

    /// Uses the connection that was asked for, when it is there. Returns the reason if there is none.
    async fn attach(
        &mut self,
        asked: Result<BegunCheckout<U>, CheckoutError>,
        watched: bool,
    ) -> Result<Option<CheckoutError>, End> {
        let taken = match asked {
            Ok(BegunCheckout::Open(checkout)) => {
                if let Some(pooling) = &mut self.pooling {
                    self.server.stream = pooling.attach(checkout, &mut self.negotiation);
                }
                return Ok(None);
            }
            Ok(BegunCheckout::Pending { checkout, .. }) => self.while_connected(watched, checkout).await?,
            Err(error) => return Ok(Some(error)),
        };
        Ok(match taken {
            Ok(taken) => {
                if let Some(pooling) = &mut self.pooling {
                    self.server.stream = pooling.attach_taken(taken, &mut self.negotiation);
                }
                None
            }
            Err(error) => Some(error),
        })
    }

    /// Gives the connection back for a while, before anything of the message was sent on it. Returns its lane; `None`:
    /// the client does not share connections.
    pub(in crate::proxy) fn lend_back(&mut self) -> Option<Lane> {
        self.pooling.as_mut()?.lend_back(&mut self.server.stream)
    }

    /// Returns the reply to a message for which no server connection is available. No byte of it was sent. `None`: the client
    /// must connect again.
    pub(in crate::proxy) fn reject_without_connection(&self, error: &CheckoutError, header: Header) -> Option<Vec<u8>> {
        let is_routed = || self.pooling.as_ref().is_some_and(|pooling| pooling.is_routed());
        match error {
            CheckoutError::Overloaded(_) => {
                let text = format!("docward: {error}");
                Some(error_reply(header, code::INGRESS_REQUEST_RATE_LIMIT_EXCEEDED, &text, write_overload_labels))
            }
            CheckoutError::NoMember(_) => {
                let text = format!("docward: {error}; it has not been sent to any");
                Some(error_reply(header, code::FAILED_TO_SATISFY_READ_PREFERENCE, &text, |_| {}))
            }
            CheckoutError::Staleness(_) => {
                Some(error_reply(header, code::MAX_STALENESS_OUT_OF_RANGE, &format!("docward: {error}"), |_| {}))
            }
            CheckoutError::Unreachable(_) if is_routed() => {
                self.reject_without_connection(&CheckoutError::NoMember("no member could be reached"), header)
            }
            CheckoutError::Unreachable(_) => {
                self.listener_context.process.members.recheck.notify_waiters();
                None
            }
            CheckoutError::LoginNeeded | CheckoutError::LoginGivenUp => None,
        }
    }
}
