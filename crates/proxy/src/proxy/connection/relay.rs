//! Relays one client connection and its upstream connection: a poll state machine that moves bytes both ways.
//!
//! A message without a matching rule costs one read and one write. Frames stream through as they arrive; only messages
//! to be evaluated, rewritten or converted are collected. Both directions run in one task and never wait for each
//! other. A direction is not read while its output is blocked, so memory stays bounded. This module must not know what
//! a rule is. [`requests`] and [`replies`] are the two directions. [`crate::proxy::connection::framing`] sorts frames,
//! [`MessageInProgress`](crate::proxy::connection::in_progress::MessageInProgress) carries out collected messages, and
//! [`crate::proxy::connection::lifecycle`] runs the life cycle.

mod draining;
pub(super) mod own_hello;
mod replies;
mod requests;
mod sharing;

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::engine::ClientState;
use crate::engine::handshake::negotiation::Negotiation;
use crate::engine::routing::Repetition;
use crate::proxy::connection::client_half::{ClientHalf, ReadAhead};
use crate::proxy::connection::drain_state::DrainState;
use crate::proxy::connection::end::End;
use crate::proxy::connection::framing::Request;
use crate::proxy::connection::listener_context::ListenerContext;
use crate::proxy::connection::pending_replies::PendingReplies;
use crate::proxy::connection::pooling::Pooling;
use crate::proxy::connection::server_half::ServerHalf;
use crate::proxy::connection::timeouts::Activity;
use crate::proxy::connection::write_buffer::{READ_LENGTH, TURN_LENGTH, yield_now};
use crate::proxy::interceptor::Interceptor;
use crate::proxy::process::memory::Reservation;
use crate::proxy::telemetry::moment::Moment;
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};

/// An event that the relay cannot handle while it is polled.
#[derive(Debug)]
pub(in crate::proxy) enum Event {
    /// This message is to be evaluated or converted. No reply is pending, and no bytes wait for the client.
    Collected(Request, Vec<u8>),
    End(End),
    /// The client has sent its first message, and its server must be dialled.
    ServerNeeded,
    /// The client's first message has arrived, and its login where one is required.
    Established,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepProgress {
    Moved,
    /// Nothing to do; the task is registered to be woken when there is.
    Idle,
    /// Nothing to do before replies have moved.
    Waits,
}

/// A client, its server, and what is in flight between them.
pub(in crate::proxy) struct Relay<C, U: ServerSocket, P> {
    pub(in crate::proxy) client: ClientHalf<C>,
    pub(in crate::proxy) server: ServerHalf<U>,
    pub(in crate::proxy) listener_context: Arc<ListenerContext<P>>,
    pub(in crate::proxy) negotiation: Negotiation,
    pub(in crate::proxy) pending: PendingReplies,
    /// Waits until no reply is pending; the client's later messages wait unread. Boxed: an idle connection has none.
    collected: Option<Box<(Request, Vec<u8>)>>,
    /// Its share of the memory for large messages.
    pub(in crate::proxy) kept: Option<Box<Reservation>>,
    pub(in crate::proxy) activity: Activity,
    pub(in crate::proxy) drain_state: DrainState,
    /// Set if the client shares server connections.
    pub(in crate::proxy) pooling: Option<Box<Pooling<U>>>,
}

impl<C, U, P> Relay<C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    /// A relay without a server connection. With `pooling` the client takes one for each request; otherwise it needs one of its
    /// own when its first message has arrived ([`Event::ServerNeeded`]).
    pub(in crate::proxy) fn new(
        client: C,
        pooling: Option<Box<Pooling<U>>>,
        listener_context: Arc<ListenerContext<P>>,
        local: IpAddr,
        client_state: ClientState,
    ) -> Self {
        Self {
            client: ClientHalf::new(client, local, client_state),
            server: ServerHalf::default(),
            negotiation: Negotiation::new(listener_context.process.traffic.compressors.clone()),
            listener_context,
            pending: PendingReplies::new(pooling.is_some()),
            collected: None,
            kept: None,
            activity: Activity::default(),
            drain_state: DrainState::default(),
            pooling,
        }
    }

    /// Moves bytes until neither side has any, or an event occurs.
    pub(in crate::proxy) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let (mut requests, mut replies) = (StepProgress::Moved, StepProgress::Moved);
        for _ in 0..TURN_LENGTH / READ_LENGTH {
            if let Err(end) = self.step(cx, &mut requests, &mut replies) {
                return Poll::Ready(Event::End(end));
            }
            let idle = requests != StepProgress::Moved && replies != StepProgress::Moved;
            if !idle {
                self.activity.moves = self.activity.moves.wrapping_add(1);
            }
            self.note_activity_of(!idle);
            if self.pooling.is_some()
                && let Err(end) = self.give_back(cx).or_else(|end| self.outlive(cx, end))
            {
                return Poll::Ready(Event::End(end));
            }
            if self.is_settled()
                && let Some(collected) = self.collected.take()
            {
                let (request, frame) = *collected;
                return Poll::Ready(Event::Collected(request, frame));
            }
            // Releases the memory, since the client may be idle for long.
            if idle && self.kept.is_some() && self.is_quiescent() {
                self.kept = None;
            }
            // The driver uses this connection only to monitor the server. It loses nothing when the connection closes,
            // and then checks the server again.
            if idle && self.drain_state.closes.is_some() && self.client.handshake.watched && self.is_idle() {
                return Poll::Ready(Event::End(self.drain_state.end()));
            }
            if idle
                && !self.activity.established_reported
                && self.activity.message_received
                && !self.client.state.must_log_in
            {
                self.activity.established_reported = true;
                return Poll::Ready(Event::Established);
            }
            if idle && self.needs_server() {
                return Poll::Ready(Event::ServerNeeded);
            }
            if idle && self.poll_lost(cx).is_ready() {
                match self.outlive(cx, End::UpstreamClosed) {
                    Ok(()) => (requests, replies) = (StepProgress::Moved, StepProgress::Moved),
                    Err(end) => return Poll::Ready(Event::End(end)),
                }
            }
            if requests != StepProgress::Moved && replies != StepProgress::Moved {
                return Poll::Pending;
            }
        }
        yield_now(cx)
    }

    /// Runs one step of each direction in turn, so that a busy direction does not use up the task's budget alone. An
    /// idle direction is registered to be woken and is skipped until then.
    fn step(
        &mut self,
        cx: &mut Context<'_>,
        requests: &mut StepProgress,
        replies: &mut StepProgress,
    ) -> Result<(), End> {
        let was_detached = self.server.stream.is_none();
        if *requests != StepProgress::Idle {
            *requests = match self.step_requests(cx) {
                Ok(progress) => progress,
                Err(end) => {
                    self.outlive(cx, end)?;
                    StepProgress::Moved
                }
            };
        }
        if was_detached && self.server.stream.is_some() {
            // Nothing is registered yet to be woken by the replies of this connection.
            *replies = StepProgress::Moved;
        }
        if *replies != StepProgress::Idle {
            *replies = match self.step_replies(cx) {
                Ok(progress) => progress,
                Err(end) => {
                    self.outlive(cx, end)?;
                    StepProgress::Moved
                }
            };
        }
        Ok(())
    }

    /// Ready when the member that has a request does not answer its monitor any more.
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.pooling {
            Some(pooling) if !self.pending.is_empty() => pooling.poll_lost(cx),
            _ => Poll::Pending,
        }
    }

    /// Goes on after the member was lost that has the request of a router's client: sends it again if it may be executed
    /// twice, or replies that its result is unknown.
    fn outlive(&mut self, cx: &mut Context<'_>, end: End) -> Result<(), End> {
        let is_lost = matches!(end, End::UpstreamClosed | End::UpstreamError(_));
        let between_frames = self.server.replies.between_frames() && self.client.requests.between_frames();
        // An unacknowledged write, and docward's question whether it has ended: it has.
        if is_lost
            && between_frames
            && self.pending.only_own()
            && let Some(pooling) = self.pooling.as_mut().filter(|pooling| pooling.is_routed() && pooling.is_attached())
        {
            pooling.outlives(Repetition::Never);
            self.server = ServerHalf::default();
            self.pending.forget();
            // It has no connection to be converted for.
            if let Some((request @ Request::Convert, _)) = self.collected.as_deref_mut() {
                *request = Request::Evaluate;
            }
            return Ok(());
        }
        let nothing_came =
            self.pending.only_last() && self.server.replies.between_frames() && self.client.has_sent_all();
        if !is_lost || !nothing_came || self.collected.is_some() || !self.client.requests.between_frames() {
            return Err(end);
        }
        let Some((after_loss, again)) = self.pooling.as_mut().and_then(|pooling| pooling.take_lost()) else {
            return Err(end);
        };
        self.server = ServerHalf::default();
        self.pending.forget();
        match again {
            Some(frame) => self.collected = Some(Box::new((Request::Repeat, frame))),
            None => {
                let reply = self.own_reply(after_loss.reply());
                self.client.send(cx, &reply)?;
            }
        }
        Ok(())
    }

    /// A reply of docward's own as the client gets it: with the times of its member. It may end the client's transaction.
    pub(in crate::proxy) fn own_reply(&mut self, reply: Vec<u8>) -> Vec<u8> {
        if let Some(pooling) = &mut self.pooling {
            pooling.note_reply(&reply);
        }
        self.listener_context.with_times(reply)
    }

    /// Moves the pending replies to a client that has closed its sending half.
    pub(in crate::proxy) fn poll_last_replies(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        if let Some(pooling) = &mut self.pooling {
            pooling.forget_sent();
        }
        loop {
            let progress = self.step_replies(cx)?;
            if self.is_settled() {
                return Poll::Ready(Ok(()));
            }
            if progress == StepProgress::Idle {
                return Poll::Pending;
            }
        }
    }

    /// Whether the client waits for a reply.
    pub(in crate::proxy) fn is_busy(&self) -> bool {
        !self.is_settled() || self.collected.is_some() || self.is_taking()
    }

    /// Whether every pending reply has been sent to the client.
    fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.server.replies.between_frames() && self.client.has_sent_all()
    }

    /// Whether closing now loses nothing. A hello that awaits a topology change loses nothing, and a streamed one
    /// never ends by itself.
    pub(in crate::proxy) fn is_idle(&self) -> bool {
        (self.pending.is_empty() || self.client.handshake.watched && self.pending.only_hellos()) && self.is_quiescent()
    }

    /// Whether both directions are between two messages and no read bytes are buffered. Replies may be pending.
    fn is_quiescent(&self) -> bool {
        self.collected.is_none()
            && self.client.unread.is_none()
            && self.client.requests.between_frames()
            && self.server.replies.between_frames()
            && self.client.has_sent_all()
            && self.server.out.is_empty()
    }

    /// Updates what the client waits for in the table of open connections.
    pub(in crate::proxy) fn note_command(&self, came: Moment) {
        if let Some(registration) = &self.client.registration {
            registration.note_command(self.pending.oldest_command(), came);
        }
    }

    /// Registers the task to be woken when the client closes or an operator closes the connection, and returns the error
    /// if it has happened.
    pub(in crate::proxy) fn watch_client(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        if self.client.poll_closing(cx).is_ready() {
            return Err(End::ClosedByOperator);
        }
        while self.client.read_ahead(cx, &self.listener_context.process.traffic.meter)? == ReadAhead::Read {}
        Ok(())
    }
}

#[cfg(test)]
mod tests;
