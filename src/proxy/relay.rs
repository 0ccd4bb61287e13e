//! Relays one client connection and its upstream connection: a poll state machine that moves bytes both ways.
//!
//! A message without a matching rule costs one read and one write. Frames stream through as they arrive; only messages
//! to be evaluated, rewritten or converted are collected. Both directions run in one task and never wait for each
//! other. A direction is not read while its output is blocked, so memory stays bounded. This module must not know what
//! a rule is. [`super::framing`] sorts frames, [`super::evaluation`] carries out evaluated messages, and
//! [`super::connection`] runs the life cycle.

mod draining;
mod quiescent;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use self::draining::DrainState;
pub(super) use self::quiescent::QuiescentState;
use super::end::{ClientFault, End, UpstreamFault};
use super::framing::{Reply, Request, Requests, may_be_compressed, sort_reply};
use super::interceptor::Interceptor;
use super::limits::{Activity, Unauthenticated};
use super::listener::ListenerContext;
use super::memory::{Reservation, Stalled, share_of};
use super::meter::Side;
use super::pending_replies::{PendingReplies, ReplyAction, more_to_come};
use super::write_buffer::{READ_LENGTH, WriteBuffer, poll_read, with_read_buffer};
use crate::engine::handshake::draining::streams;
use crate::engine::handshake::negotiation::Negotiation;
use crate::engine::handshake::{awaits_news, note_reply, rewrite_reply, rewrite_request};
use crate::engine::{ClientState, has_logged_in};
use crate::wire::compressed::{Compressor, Envelope, Method, compress, decompress};
use crate::wire::splitter::{Splitter, StreamPart};
use crate::wire::{Header, OpCode, WireError};

/// Number of pending replies at which the client is not read further: an upstream that takes requests without
/// answering must not make the queue grow without bound. Drivers have one request in flight at a time.
const MAX_PENDING_REPLIES: usize = 1024;

/// An event that the relay cannot handle while it is polled.
#[derive(Debug)]
pub(super) enum Event {
    /// This message is to be evaluated. No reply is pending, and no bytes wait for the client.
    Evaluate(Vec<u8>),
    End(End),
    /// The client's first message has arrived, and its login where one is required.
    Established,
    /// It was asked to stop for a hand-over, and is between two messages.
    Quiescent,
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

/// The state of the handshake, from the client's hellos.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct HandshakeState {
    /// It is the connection of a driver's monitor: its last hello awaits a topology change, or it sends only hellos.
    watched: bool,
    /// Its last hello may be answered more than once.
    streams: bool,
    /// The client has sent a hello.
    hello_sent: bool,
    /// The client has sent a message other than a hello.
    commands_sent: bool,
    /// Number of its hellos; wraps.
    hellos: u8,
}

/// Both sockets and the data in flight between them.
#[derive(Debug)]
pub(super) struct Relay<C, U, P> {
    pub(super) client: C,
    pub(super) upstream: U,
    pub(super) listener_context: Arc<ListenerContext<P>>,
    /// The address the client connected to.
    local: IpAddr,
    /// Close when the connection is idle.
    pub(super) draining: bool,
    /// Stop between two messages, for a hand-over.
    pub(super) passing: bool,
    drain_state: DrainState,
    pub(super) activity: Activity,
    /// Whether [`Event::Established`] has been returned.
    established_reported: bool,
    handshake: HandshakeState,
    pub(super) client_state: ClientState,
    pub(super) negotiation: Negotiation,
    requests: Splitter<Request>,
    replies: Splitter<Reply>,
    pub(super) to_upstream: WriteBuffer,
    pub(super) to_client: WriteBuffer,
    pub(super) pending: PendingReplies,
    /// Nanoseconds that the evaluated message has waited for servers.
    pub(super) waited: u64,
    /// Waits until no reply is pending; the client's later messages wait in `unread`.
    evaluated: Option<Vec<u8>>,
    /// `None` while there is no data.
    unread: Option<Box<ReadBuffer>>,
    /// Its share of the memory for large messages.
    pub(super) kept: Option<Box<Reservation>>,
}

/// Bytes that were read from the client and not yet processed.
#[derive(Debug)]
struct ReadBuffer {
    bytes: Vec<u8>,
    /// Bytes processed already. `0 .. bytes.len()`.
    at: usize,
}

impl<C, U, P> Relay<C, U, P>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: Interceptor,
{
    pub(super) fn new(
        client: C,
        upstream: U,
        listener_context: Arc<ListenerContext<P>>,
        local: IpAddr,
        client_state: ClientState,
    ) -> Self {
        Self {
            client,
            upstream,
            local,
            draining: false,
            passing: false,
            drain_state: DrainState::default(),
            activity: Activity::default(),
            established_reported: false,
            handshake: HandshakeState::default(),
            client_state,
            negotiation: Negotiation::new(listener_context.compressors.clone()),
            listener_context,
            requests: Splitter::default(),
            replies: Splitter::default(),
            to_upstream: WriteBuffer::default(),
            to_client: WriteBuffer::default(),
            pending: PendingReplies::default(),
            waited: 0,
            evaluated: None,
            unread: None,
            kept: None,
        }
    }

    /// Moves bytes until neither side has any, or an event occurs.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let (mut requests, mut replies) = (StepProgress::Moved, StepProgress::Moved);
        loop {
            if let Err(end) = self.step(cx, &mut requests, &mut replies) {
                return Poll::Ready(Event::End(end));
            }
            let idle = requests != StepProgress::Moved && replies != StepProgress::Moved;
            if !idle {
                self.activity.moves = self.activity.moves.wrapping_add(1);
            }
            self.note_activity_of(!idle);
            if self.is_settled()
                && let Some(frame) = self.evaluated.take()
            {
                return Poll::Ready(Event::Evaluate(frame));
            }
            // Releases the memory, since the client may be idle for long.
            if idle && self.kept.is_some() && self.is_quiescent() {
                self.kept = None;
            }
            if idle && self.passing && self.is_quiescent() {
                return Poll::Ready(Event::Quiescent);
            }
            // The driver uses this connection only to monitor the server. It loses nothing when the connection closes,
            // and then checks the server again.
            if idle && self.draining && self.handshake.watched && self.is_idle() {
                return Poll::Ready(Event::End(End::Drained));
            }
            if idle && !self.established_reported && self.activity.message_received && !self.client_state.must_log_in {
                self.established_reported = true;
                return Poll::Ready(Event::Established);
            }
            if idle {
                return Poll::Pending;
            }
        }
    }

    /// Runs one step of each direction in turn, so that a busy direction does not use up the task's budget alone. An
    /// idle direction is registered to be woken and is skipped until then.
    fn step(
        &mut self,
        cx: &mut Context<'_>,
        requests: &mut StepProgress,
        replies: &mut StepProgress,
    ) -> Result<(), End> {
        if *requests != StepProgress::Idle {
            *requests = self.step_requests(cx)?;
        }
        if *replies != StepProgress::Idle {
            *replies = self.step_replies(cx)?;
        }
        Ok(())
    }

    /// Moves the pending replies to a client that has closed its sending half.
    pub(super) fn poll_last_replies(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
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

    /// The state of a client that must still log in; `None`: no login is required.
    pub(super) fn unauthenticated_slot(&self) -> Option<Unauthenticated> {
        self.client_state.must_log_in.then(|| Unauthenticated {
            commands_sent: self.handshake.commands_sent,
            within_message: !self.requests.between_frames(),
            hellos: self.handshake.hellos,
        })
    }

    /// Whether the client waits for a reply.
    pub(super) fn is_busy(&self) -> bool {
        !self.is_settled() || self.evaluated.is_some()
    }

    /// Whether every pending reply has been sent to the client.
    fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.replies.between_frames() && self.to_client.is_empty()
    }

    /// Whether closing now loses nothing. A hello that awaits a topology change loses nothing, and a streamed one
    /// never ends by itself.
    pub(super) fn is_idle(&self) -> bool {
        (self.pending.is_empty() || self.handshake.watched && self.pending.only_hellos()) && self.is_quiescent()
    }

    fn step_requests(&mut self, cx: &mut Context<'_>) -> Result<StepProgress, End> {
        if self.to_upstream.poll_flush(cx, &mut self.upstream).map_err(End::UpstreamError)?.is_pending() {
            return Ok(StepProgress::Idle);
        }
        if self.evaluated.is_some() {
            return self.read_ahead(cx);
        }
        if self.pending.len() >= MAX_PENDING_REPLIES {
            return Ok(StepProgress::Waits);
        }
        if (self.kept.is_some() || !self.requests.held().is_empty())
            && let Some(waits) = self.wait_for_memory(cx)?
        {
            return Ok(waits);
        }
        if let Some(unread) = self.unread.take() {
            return self.take_up(cx, unread);
        }
        with_read_buffer(|buffer| {
            let Poll::Ready(read) = poll_read(cx, &mut self.client, buffer) else {
                return Ok(StepProgress::Idle);
            };
            let read = match read.map_err(End::ClientError)? {
                [] => return Err(End::ClientClosed),
                read => read,
            };
            let came = self.listener_context.meter.read(Side::Client, read.len());
            let used = self.forward_requests(cx, read)?;
            self.listener_context.meter.forwarded(&mut self.pending, came);
            self.activity.message_received |= self.requests.between_frames();
            self.keep_unread(read.get(used..).unwrap_or_default());
            Ok(StepProgress::Moved)
        })
    }

    fn take_up(&mut self, cx: &mut Context<'_>, mut unread: Box<ReadBuffer>) -> Result<StepProgress, End> {
        let came = self.listener_context.meter.now();
        unread.at += self.forward_requests(cx, unread.bytes.get(unread.at..).unwrap_or_default())?;
        self.listener_context.meter.forwarded(&mut self.pending, came);
        if unread.at < unread.bytes.len() {
            self.unread = Some(unread);
        }
        Ok(StepProgress::Moved)
    }

    fn keep_unread(&mut self, bytes: &[u8]) {
        match &mut self.unread {
            _ if bytes.is_empty() => {}
            Some(unread) => {
                unread.bytes.drain(..std::mem::take(&mut unread.at));
                unread.bytes.extend_from_slice(bytes);
            }
            none => *none = Some(Box::new(ReadBuffer { bytes: bytes.to_vec(), at: 0 })),
        }
    }

    /// What a large message that has begun must wait for; `None`: nothing. Releases the memory of a message that is
    /// done.
    fn wait_for_memory(&mut self, cx: &mut Context<'_>) -> Result<Option<StepProgress>, End> {
        let held = self.requests.held();
        if let Some(kept) = &mut self.kept {
            kept.is_done |= held.is_empty();
            if kept.is_done && !self.to_client.is_empty() {
                kept.check(cx, self.to_client.len()).map_err(|Stalled| ClientFault::Stalled)?;
                return Ok((!held.is_empty()).then_some(StepProgress::Waits));
            }
            if kept.is_done {
                self.kept = None;
            }
        }
        let kept = match &mut self.kept {
            Some(kept) => kept,
            none => match share_of(held) {
                Some(bytes) => none.insert(Reservation::for_message(&self.listener_context.memory, bytes)),
                None => return Ok(None),
            },
        };
        let waited = kept.waits();
        if kept.poll_room(cx).is_pending() {
            return Ok(Some(StepProgress::Idle));
        }
        kept.check(cx, held.len()).map_err(|Stalled| ClientFault::Stalled)?;
        if waited {
            self.requests.reserve();
        }
        Ok(None)
    }

    /// Reads the client while its messages must wait, only to notice when it closes. It is bounded: the close of a
    /// client that keeps sending is noticed later, when its messages are processed.
    fn read_ahead(&mut self, cx: &mut Context<'_>) -> Result<StepProgress, End> {
        if self.unread.as_ref().is_some_and(|unread| unread.bytes.len() - unread.at >= READ_LENGTH) {
            return Ok(StepProgress::Waits);
        }
        with_read_buffer(|buffer| match poll_read(cx, &mut self.client, buffer) {
            Poll::Pending => Ok(StepProgress::Idle),
            Poll::Ready(Err(error)) => Err(End::ClientError(error)),
            Poll::Ready(Ok([])) => Err(End::ClientClosed),
            Poll::Ready(Ok(read)) => {
                self.listener_context.meter.read(Side::Client, read.len());
                self.keep_unread(read);
                Ok(StepProgress::Moved)
            }
        })
    }

    /// Registers the task to be woken when the client closes, and returns the error if it has.
    pub(super) fn watch_client(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        while self.read_ahead(cx)? == StepProgress::Moved {}
        Ok(())
    }

    /// Forwards what streams through, and returns how many of `bytes` were used. Stops after a message to be
    /// evaluated.
    fn forward_requests(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<usize, End> {
        let rules = self.listener_context.rules.load();
        let mut rest = bytes;
        // `bytes[run..before]` streams through and has not been sent yet.
        let mut run = 0;
        loop {
            let before = bytes.len() - rest.len();
            let mut sorter = Requests {
                rules: &**rules,
                client_state: &mut self.client_state,
                pending: &mut self.pending,
                negotiation: &self.negotiation,
                transactions: &self.listener_context.transactions,
                meter: &self.listener_context.meter,
            };
            let part = self.requests.next(&mut rest, |header, head| sorter.sort(header, head));
            self.handshake.commands_sent |=
                !matches!(part, Ok(StreamPart::Whole(Request::Hello, _) | StreamPart::Starved));
            if let Ok(StreamPart::Stream) = part {
                continue;
            }
            self.send_upstream(cx, bytes.get(run..before).unwrap_or_default())?;
            run = bytes.len() - rest.len();
            match part? {
                StreamPart::Release(held) => self.send_upstream(cx, &held)?,
                StreamPart::Whole(request, frame) => {
                    let sent = match request {
                        Request::Hello => self.forward_hello(cx, &frame)?,
                        Request::Convert => self.forward_converted(cx, &frame)?,
                        Request::Evaluate => false,
                    };
                    // A message that cannot be decompressed goes to evaluation, which reports the error.
                    if !sent {
                        self.evaluated = Some(frame);
                        return Ok(run);
                    }
                }
                StreamPart::Starved | StreamPart::Stream => return Ok(run),
            }
        }
    }

    /// Returns false if it cannot be read; nothing has been sent then.
    fn forward_hello(&mut self, cx: &mut Context<'_>, frame: &[u8]) -> Result<bool, End> {
        let Ok((frame, came)) = unpack(frame) else { return Ok(false) };
        let rewritten =
            rewrite_request(&frame, &mut self.client_state, &mut self.negotiation).map_err(ClientFault::from)?;
        // A driver measures round trips on a separate connection, so often that it would never be idle. It counts as a
        // monitor's too.
        self.handshake.watched = awaits_news(&frame) || self.handshake.hello_sent && !self.handshake.commands_sent;
        self.handshake.streams = streams(&frame);
        self.handshake.hello_sent = true;
        self.handshake.hellos = self.handshake.hellos.wrapping_add(1);
        let header = Header::of_frame(&frame).map_err(ClientFault::from)?;
        if !more_to_come(&header, &frame) {
            self.pending.push(header.request_id, ReplyAction::Hello(came));
        }
        self.send_upstream(cx, rewritten.as_deref().unwrap_or(&frame))?;
        Ok(true)
    }

    /// Returns false if it cannot be read; nothing has been sent then.
    fn forward_converted(&mut self, cx: &mut Context<'_>, frame: &[u8]) -> Result<bool, End> {
        let Ok((frame, came)) = unpack(frame) else { return Ok(false) };
        let header = Header::of_frame(&frame).map_err(ClientFault::from)?;
        let method = self.method_for_upstream(&header, &frame, came);
        let packed = method.and_then(|method| compress(&frame, method));
        if !more_to_come(&header, &frame) {
            self.expect_reply(&header, came, method.filter(|_| packed.is_some()));
        }
        self.send_upstream(cx, packed.as_deref().unwrap_or(&frame))?;
        Ok(true)
    }

    /// The compression of a plain message for the upstream, if its client sent it compressed by `came`.
    pub(super) fn method_for_upstream(
        &self,
        header: &Header,
        frame: &[u8],
        came: Option<Compressor>,
    ) -> Option<Method> {
        self.negotiation.for_upstream(came).filter(|_| came.is_some() || may_be_compressed(header, frame))
    }

    /// Adds a pending reply to a message that arrived compressed by `came` and is sent compressed by `goes`.
    pub(super) fn expect_reply(&mut self, header: &Header, came: Option<Compressor>, goes: Option<Method>) {
        let same = goes.map(|method| method.compressor) == came;
        let treatment = if same { ReplyAction::Forward } else { ReplyAction::Convert(came) };
        self.pending.push(header.request_id, treatment);
    }

    fn send_upstream(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<(), End> {
        self.to_upstream.send(cx, &mut self.upstream, bytes).map_err(End::UpstreamError)
    }

    fn step_replies(&mut self, cx: &mut Context<'_>) -> Result<StepProgress, End> {
        if self.to_client.poll_flush(cx, &mut self.client).map_err(End::ClientError)?.is_pending() {
            return Ok(StepProgress::Idle);
        }
        with_read_buffer(|buffer| match poll_read(cx, &mut self.upstream, buffer) {
            Poll::Pending => Ok(StepProgress::Idle),
            Poll::Ready(Err(error)) => Err(End::UpstreamError(error)),
            Poll::Ready(Ok([])) => Err(End::UpstreamClosed),
            Poll::Ready(Ok(read)) => {
                let came = self.listener_context.meter.read(Side::Upstream, read.len());
                self.forward_replies(cx, read)?;
                self.listener_context.meter.answered(&mut self.pending, came);
                Ok(StepProgress::Moved)
            }
        })
    }

    fn forward_replies(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<(), End> {
        let mut rest = bytes;
        let mut run = 0;
        loop {
            let before = bytes.len() - rest.len();
            let part = self.replies.next(&mut rest, |header, head| sort_reply(&mut self.pending, header, head));
            if let Ok(StreamPart::Stream) = part {
                continue;
            }
            self.send_client(cx, bytes.get(run..before).unwrap_or_default())?;
            run = bytes.len() - rest.len();
            match part? {
                StreamPart::Release(held) => self.send_client(cx, &held)?,
                StreamPart::Whole(Reply::Hello(_), _) if self.drain_state.last_reply_sent => {}
                StreamPart::Whole(Reply::Hello(goes), frame) => {
                    note_reply(&frame, &mut self.client_state);
                    self.note_login(&frame);
                    let presentation = self.listener_context.presentation(self.local);
                    let rewritten =
                        rewrite_reply(&frame, &presentation, &mut self.negotiation).map_err(UpstreamFault::from)?;
                    self.send_client(cx, &pack(rewritten.unwrap_or(frame).into(), goes))?;
                }
                StreamPart::Whole(Reply::Login, frame) => {
                    self.note_login(&frame);
                    self.send_client(cx, &frame)?;
                }
                StreamPart::Whole(Reply::Convert(goes), frame) => {
                    let (frame, _) = unpack(&frame).map_err(UpstreamFault::from)?;
                    self.send_client(cx, &pack(frame, goes))?;
                }
                StreamPart::Starved | StreamPart::Stream => return Ok(()),
            }
        }
    }

    fn note_login(&mut self, reply: &[u8]) {
        if self.client_state.must_log_in && has_logged_in(reply) {
            self.client_state.must_log_in = false;
        }
    }

    fn send_client(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<(), End> {
        self.to_client.send(cx, &mut self.client, bytes).map_err(End::ClientError)
    }
}

/// The decompressed message, and the compressor it arrived with.
pub(super) fn unpack(frame: &[u8]) -> Result<(Cow<'_, [u8]>, Option<Compressor>), WireError> {
    if Header::of_frame(frame)?.op_code != OpCode::Compressed {
        return Ok((Cow::Borrowed(frame), None));
    }
    let envelope = Envelope::parse(frame)?;
    Ok((Cow::Owned(decompress(frame)?), envelope.map(|envelope| envelope.compressor)))
}

/// A message for the client, compressed as its request was.
pub(super) fn pack(frame: Cow<'_, [u8]>, compressor: Option<Compressor>) -> Cow<'_, [u8]> {
    compressor.and_then(|compressor| compress(&frame, compressor.into())).map_or(frame, Cow::Owned)
}

#[cfg(test)]
mod tests;
