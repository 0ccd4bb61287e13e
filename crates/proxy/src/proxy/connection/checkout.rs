//! Takes connections of pools for a message in progress.

use std::time::Duration;

use crate::command::{code, error_reply, write_overload};
use crate::engine::RequestHead;
use crate::engine::routing::AfterLoss;
use crate::proxy::connection::end::End;
use crate::proxy::connection::in_progress::MessageInProgress;
use crate::proxy::connection::pooling::need::Need;
use crate::proxy::connection::pooling::{BegunCheckout, Pooling};
use crate::proxy::interceptor::Interceptor;
use crate::proxy::server_side::pool::CheckoutError;
use crate::proxy::server_side::pool::queue::Lane;
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};
use crate::wire::Header;

impl<C, U, P> MessageInProgress<'_, C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    /// Takes a connection for a message to be evaluated. Returns the reason if there is none; the message is rejected
    /// then.
    pub(super) async fn take_connection(&mut self, need: &Need) -> Result<Option<CheckoutError>, End> {
        let Some(pooling) = &mut self.relay.pooling else { return Ok(None) };
        if let Some(error) = pooling.take_failure() {
            return Ok(Some(error));
        }
        if !pooling.is_attached() {
            let asked = pooling.take(need, self.watched);
            if let Some(error) = self.attach(asked).await? {
                return Ok(Some(error));
            }
        }
        if let Some(pooling) = &mut self.relay.pooling {
            pooling.note_sent(need, self.watched);
        }
        Ok(None)
    }

    /// Takes a connection of this lane again, after one was lent back. Returns the reason if there is none.
    pub(super) async fn take_connection_again(&mut self, lane: Lane) -> Result<Option<CheckoutError>, End> {
        let Some(pooling) = &mut self.relay.pooling else { return Ok(None) };
        let asked = pooling.take_again(lane);
        self.attach(asked).await
    }

    /// Uses the connection that was asked for, when it is there. Returns the reason if there is none.
    async fn attach(&mut self, asked: Result<BegunCheckout<U>, CheckoutError>) -> Result<Option<CheckoutError>, End> {
        let taken = match asked {
            Ok(BegunCheckout::Open(checkout)) => {
                if let Some(pooling) = &mut self.relay.pooling {
                    self.relay.server.stream = pooling.attach(checkout, &mut self.relay.negotiation);
                }
                return Ok(None);
            }
            Ok(BegunCheckout::Pending { checkout, .. }) => self.while_connected(checkout).await?,
            Err(error) => return Ok(Some(error)),
        };
        Ok(match taken {
            Ok(taken) => {
                if let Some(pooling) = &mut self.relay.pooling {
                    self.relay.server.stream = pooling.attach_taken(taken, &mut self.relay.negotiation);
                }
                None
            }
            Err(error) => Some(error),
        })
    }

    /// Returns the reply to a message for which no server connection is available. No byte of it was sent. `None`: the client
    /// must connect again.
    pub(super) fn reject_without_connection(&mut self, error: &CheckoutError, header: Header) -> Option<Vec<u8>> {
        self.lacked_connection = true;
        let is_routed = || self.relay.pooling.as_ref().is_some_and(|pooling| pooling.is_routed());
        match error {
            CheckoutError::Overloaded { room_in, .. } => Some(overload_reply(header, error, *room_in)),
            CheckoutError::LoginGivenUp => Some(overload_reply(header, error, None)),
            CheckoutError::SentAway(room_in) => Some(overload_reply(header, error, Some(*room_in))),
            CheckoutError::Unreachable(_) if !is_routed() => {
                self.relay.listener_context.process.members.recheck.notify_waiters();
                None
            }
            CheckoutError::NoMember(_) | CheckoutError::Unreachable(_) => {
                let text = format!("docward: {error}; it has not been sent to any");
                Some(error_reply(header, code::FAILED_TO_SATISFY_READ_PREFERENCE, &text, |_| {}))
            }
            CheckoutError::TimeLimit(_) => {
                let text = format!("docward: {error}; it has not been sent");
                Some(error_reply(header, code::MAX_TIME_MS_EXPIRED, &text, |_| {}))
            }
            CheckoutError::Staleness(_) => {
                Some(error_reply(header, code::MAX_STALENESS_OUT_OF_RANGE, &format!("docward: {error}"), |_| {}))
            }
            CheckoutError::LoginNeeded => None,
        }
    }

    /// An own reply to the client's message `frame`, as the client gets it.
    pub(super) fn own_reply(&mut self, reply: Vec<u8>, frame: &[u8]) -> Vec<u8> {
        let lacked_connection = std::mem::take(&mut self.lacked_connection);
        let request = lacked_connection.then(|| AfterLoss::of_request(&RequestHead::new(frame))).flatten();
        let was_sent = self.relay.pooling.as_deref().is_some_and(Pooling::is_repeating);
        // Labels of its own are no sign that the server has ended the client's transaction.
        let reply = self.relay.own_reply(reply);
        request.and_then(|request| request.labelled(&reply, was_sent)).unwrap_or(reply)
    }
}

fn overload_reply(header: Header, error: &CheckoutError, room_in: Option<Duration>) -> Vec<u8> {
    let text = format!("docward: {error}");
    error_reply(header, code::INGRESS_REQUEST_RATE_LIMIT_EXCEEDED, &text, |w| write_overload(w, room_in))
}
