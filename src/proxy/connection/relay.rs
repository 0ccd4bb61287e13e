//! Relays one client connection and its upstream connection: a poll state machine that moves bytes both ways.
//!
//! A message without a matching rule costs one read and one write. Frames stream through as they arrive; only messages
//! to be evaluated, rewritten or converted are collected. Both directions run in one task and never wait for each
//! other. A direction is not read while its output is blocked, so memory stays bounded. This module must not know what
//! a rule is. [`crate::proxy::connection::framing`] sorts frames, [`crate::proxy::connection::evaluation`] carries out evaluated messages, and
//! [`crate::proxy::connection::lifecycle`] runs the life cycle.

mod draining;
mod sharing;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use self::draining::DrainState;
use crate::command::Reply as CommandReply;
use crate::engine::ClientState;
use crate::engine::handshake::draining::streams;
use crate::engine::handshake::negotiation::Negotiation;
use crate::engine::handshake::{HelloReply, awaits_news, rewrite_request};
use crate::proxy::connection::client_half::{ClientHalf, ReadAhead, ReadBuffer};
use crate::proxy::connection::conversion::Conversion;
use crate::proxy::connection::end::{ClientFault, End, UpstreamFault};
use crate::proxy::connection::framing::{ReplyToCollect, Request, Requests, may_be_compressed, sort_reply};
use crate::proxy::connection::listener_context::ListenerContext;
use crate::proxy::connection::memory::{Reservation, Stalled, share_of};
use crate::proxy::connection::pending_replies::{PendingReplies, ReplyAction, more_to_come};
use crate::proxy::connection::planner::is_long;
use crate::proxy::connection::pooling::Pooling;
use crate::proxy::connection::server_half::ServerHalf;
use crate::proxy::connection::timeouts::Activity;
use crate::proxy::connection::write_buffer::{READ_LENGTH, TURN_LENGTH, poll_read, with_read_buffer, yield_now};
use crate::proxy::interceptor::Interceptor;
use crate::proxy::server_side::pool::ServerSocket;
use crate::proxy::telemetry::meter::{Moment, Side};
use crate::proxy::transport::socket::ClientSocket;
use crate::wire::compressed::{CompressedEnvelope, CompressionMethod, Compressor, compress, decompress};
use crate::wire::splitter::StreamPart;
use crate::wire::{Header, OpCode, WireError};

/// Number of pending replies at which the client is not read further: an upstream that takes requests without
/// answering must not make the queue grow without bound. Drivers have one request in flight at a time.
const MAX_PENDING_REPLIES: usize = 1024;

/// An event that the relay cannot handle while it is polled.
#[derive(Debug)]
pub(in crate::proxy) enum Event {
    /// This message is to be evaluated or converted. No reply is pending, and no bytes wait for the client.
    Collected(Request, Vec<u8>),
    End(End),
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

/// Where a client's requests go.
#[derive(Debug)]
pub(in crate::proxy) enum ServerSource<U: ServerSocket> {
    /// A connection of its own.
    Own(U),
    /// Connections that it shares with other clients.
    Shared(Box<Pooling<U>>),
}

/// A client, its server, and what is in flight between them.
#[derive(Debug)]
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
    pub(in crate::proxy) fn new(
        client: C,
        upstream: ServerSource<U>,
        listener_context: Arc<ListenerContext<P>>,
        local: IpAddr,
        client_state: ClientState,
    ) -> Self {
        let (stream, pooling) = match upstream {
            ServerSource::Own(stream) => (Some(stream), None),
            ServerSource::Shared(pooling) => (None, Some(pooling)),
        };
        Self {
            client: ClientHalf::new(client, local, client_state),
            server: ServerHalf::new(stream),
            negotiation: Negotiation::new(listener_context.process.traffic.compressors.clone()),
            listener_context,
            pending: PendingReplies::default(),
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
                && let Err(end) = self.give_back(cx)
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
            if idle && self.drain_state.when_idle && self.client.handshake.watched && self.is_idle() {
                return Poll::Ready(Event::End(End::Drained));
            }
            if idle
                && !self.activity.established_reported
                && self.activity.message_received
                && !self.client.state.must_log_in
            {
                self.activity.established_reported = true;
                return Poll::Ready(Event::Established);
            }
            if idle {
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
            *requests = self.step_requests(cx)?;
        }
        if was_detached && self.server.stream.is_some() {
            // Nothing is registered yet to be woken by the replies of this connection.
            *replies = StepProgress::Moved;
        }
        if *replies != StepProgress::Idle {
            *replies = self.step_replies(cx)?;
        }
        Ok(())
    }

    /// Moves the pending replies to a client that has closed its sending half.
    pub(in crate::proxy) fn poll_last_replies(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
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

    fn step_requests(&mut self, cx: &mut Context<'_>) -> Result<StepProgress, End> {
        if self.server.poll_flush(cx)?.is_pending() {
            return Ok(StepProgress::Idle);
        }
        if self.collected.is_some() {
            return Ok(match self.client.read_ahead(cx, &self.listener_context.process.traffic.meter)? {
                ReadAhead::Read => StepProgress::Moved,
                ReadAhead::Nothing => StepProgress::Idle,
                ReadAhead::Full => StepProgress::Waits,
            });
        }
        if self.pending.len() >= MAX_PENDING_REPLIES {
            return Ok(StepProgress::Waits);
        }
        if self.is_taking() {
            return self.wait_for_server(cx);
        }
        if (self.kept.is_some() || !self.client.requests.held().is_empty())
            && let Some(waits) = self.wait_for_memory(cx)?
        {
            return Ok(waits);
        }
        if let Some(unread) = self.client.unread.take() {
            return self.take_up(cx, unread);
        }
        with_read_buffer(|buffer| {
            let Poll::Ready(read) = poll_read(cx, &mut self.client.stream, buffer) else {
                return Ok(StepProgress::Idle);
            };
            let read = match read.map_err(End::ClientError)? {
                [] => return Err(End::ClientClosed),
                read => read,
            };
            let came = self.listener_context.process.traffic.meter.count_read(Side::Client, read.len());
            self.client.count_read(Side::Client, read.len());
            let used = self.forward_requests(cx, read)?;
            self.pending.record_forwarded(&self.listener_context.process.traffic.meter, came);
            self.note_command(came);
            self.activity.message_received |= self.client.requests.between_frames();
            self.client.keep_unread(read.get(used..).unwrap_or_default());
            Ok(StepProgress::Moved)
        })
    }

    fn take_up(&mut self, cx: &mut Context<'_>, mut unread: Box<ReadBuffer>) -> Result<StepProgress, End> {
        let came = self.listener_context.process.traffic.meter.now();
        unread.at += self.forward_requests(cx, unread.bytes.get(unread.at..).unwrap_or_default())?;
        self.pending.record_forwarded(&self.listener_context.process.traffic.meter, came);
        if unread.at < unread.bytes.len() {
            self.client.unread = Some(unread);
        }
        Ok(StepProgress::Moved)
    }

    /// What a large message that has begun must wait for; `None`: nothing. Releases the memory of a message that is
    /// done.
    fn wait_for_memory(&mut self, cx: &mut Context<'_>) -> Result<Option<StepProgress>, End> {
        let held = self.client.requests.held();
        if let Some(kept) = &mut self.kept {
            kept.is_done |= held.is_empty();
            if kept.is_done && !self.client.out.is_empty() {
                kept.check(cx, self.client.out.len()).map_err(|Stalled| ClientFault::Stalled)?;
                return Ok((!held.is_empty()).then_some(StepProgress::Waits));
            }
            if kept.is_done {
                self.kept = None;
            }
        }
        let kept = match &mut self.kept {
            Some(kept) => kept,
            none => match share_of(held) {
                Some(bytes) => {
                    none.insert(Reservation::for_message(&self.listener_context.process.traffic.memory, bytes))
                }
                None => return Ok(None),
            },
        };
        let waited = kept.waits();
        if kept.poll_room(cx).is_pending() {
            let length = Header::parse(held).ok().flatten().map_or(0, |header| header.length);
            if kept.is_client_check_due(cx) && self.client.stream.has_closed_before(length.saturating_sub(held.len())) {
                return Err(End::ClientClosed);
            }
            return Ok(Some(StepProgress::Idle));
        }
        kept.check(cx, held.len()).map_err(|Stalled| ClientFault::Stalled)?;
        if waited {
            self.client.requests.reserve();
        }
        Ok(None)
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

    /// Forwards what streams through, and returns how many of `bytes` were used. Stops after a message to be
    /// evaluated.
    fn forward_requests(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<usize, End> {
        let rules = self.listener_context.process.rules.current.load();
        let mut rest = bytes;
        // `bytes[run..before]` streams through and has not been sent yet.
        let mut run = 0;
        loop {
            let before = bytes.len() - rest.len();
            let mut sorter = Requests {
                rules: &**rules,
                client_state: &mut self.client.state,
                pending: &mut self.pending,
                negotiation: &mut self.negotiation,
                pooling: self.pooling.as_deref_mut(),
                transactions: &self.listener_context.process.drain.transactions,
                meter: &self.listener_context.process.traffic.meter,
                latest: self.client.registration.as_deref_mut().map(|registration| &mut registration.latest),
            };
            let part = self.client.requests.next(&mut rest, |header, head| sorter.sort(header, head));
            if let Some(stream) = self.pooling.as_mut().and_then(|pooling| pooling.install(&mut self.negotiation)) {
                self.server.stream = Some(stream);
            }
            self.client.handshake.commands_sent |=
                !matches!(part, Ok(StreamPart::Whole(Request::Hello, _) | StreamPart::Starved));
            if let Ok(StreamPart::Stream) = part {
                continue;
            }
            self.server.send(cx, bytes.get(run..before).unwrap_or_default())?;
            run = bytes.len() - rest.len();
            match part? {
                StreamPart::Release(held) => self.server.send(cx, &held)?,
                StreamPart::Whole(request, frame) => {
                    let sent = match request {
                        // A draining member has sent its last reply.
                        Request::Hello if self.is_shared() && self.drain_state.last_reply_sent => true,
                        // docward answers it.
                        Request::Hello if self.is_shared() => false,
                        Request::Hello => self.forward_hello(cx, &frame)?,
                        Request::Convert if is_long(unpacked_length(&frame)) => false,
                        Request::Convert => self.forward_converted(cx, &frame)?,
                        Request::Evaluate => false,
                    };
                    // The error of a message that cannot be decompressed is reported there, too.
                    if !sent {
                        self.collected = Some(Box::new((request, frame)));
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
            rewrite_request(&frame, &mut self.client.state, &mut self.negotiation).map_err(ClientFault::from)?;
        self.client.handshake.note_hello(awaits_news(&frame), streams(&frame));
        let header = Header::of_frame(&frame).map_err(ClientFault::from)?;
        if !more_to_come(&header, &frame) {
            self.pending.push(header.request_id, ReplyAction::Hello(came));
        }
        self.server.send(cx, rewritten.as_deref().unwrap_or(&frame))?;
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
        self.server.send(cx, packed.as_deref().unwrap_or(&frame))?;
        Ok(true)
    }

    /// The compression of a plain message for the upstream, if its client sent it compressed by `came`.
    pub(in crate::proxy) fn method_for_upstream(
        &self,
        header: &Header,
        frame: &[u8],
        came: Option<Compressor>,
    ) -> Option<CompressionMethod> {
        self.negotiation.for_upstream(came).filter(|_| came.is_some() || may_be_compressed(header, frame))
    }

    /// Adds a pending reply to a message that arrived compressed by `came` and is sent compressed by `goes`.
    pub(in crate::proxy) fn expect_reply(
        &mut self,
        header: &Header,
        came: Option<Compressor>,
        goes: Option<CompressionMethod>,
    ) {
        let same = goes.map(|method| method.compressor) == came;
        let opens_cursor = self.pooling.as_mut().is_some_and(|pooling| pooling.takes_cursor());
        let treatment = match same {
            _ if opens_cursor => ReplyAction::Cursor(came),
            true => ReplyAction::Forward,
            false => ReplyAction::Convert(came),
        };
        self.pending.push(header.request_id, treatment);
    }

    fn step_replies(&mut self, cx: &mut Context<'_>) -> Result<StepProgress, End> {
        if self.client.poll_flush(cx)?.is_pending() {
            if let Some(conversion) = &mut self.client.conversion {
                conversion.kept.check(cx, self.client.out.len()).map_err(|Stalled| ClientFault::Stalled)?;
            }
            return Ok(StepProgress::Idle);
        }
        if self.client.is_converting() {
            return self.step_conversion(cx);
        }
        if self.reply_waits_for_memory(cx) {
            return Ok(StepProgress::Idle);
        }
        if self.pooling.is_some()
            && !self.drain_state.last_reply_sent
            && let Poll::Ready(sent) = self.poll_awaited_hello(cx)
        {
            return sent.map(|()| StepProgress::Moved);
        }
        with_read_buffer(|buffer| match self.server.poll_read(cx, buffer) {
            Poll::Pending => Ok(StepProgress::Idle),
            Poll::Ready(Err(error)) => Err(End::UpstreamError(error)),
            Poll::Ready(Ok([])) => Err(End::UpstreamClosed),
            Poll::Ready(Ok(read)) => {
                let came = self.listener_context.process.traffic.meter.count_read(Side::Upstream, read.len());
                self.client.count_read(Side::Upstream, read.len());
                self.forward_replies(cx, read)?;
                let meter = &self.listener_context.process.traffic.meter;
                self.pending.record_answered(meter, came, self.client.sender());
                self.note_command(came);
                Ok(StepProgress::Moved)
            }
        })
    }

    /// Waits for a large reply that is converted, and goes on with what came after it.
    fn step_conversion(&mut self, cx: &mut Context<'_>) -> Result<StepProgress, End> {
        let Some(conversion) = &mut self.client.conversion else { return Ok(StepProgress::Idle) };
        let Poll::Ready(converted) = conversion.poll(cx) else { return Ok(StepProgress::Idle) };
        let after = std::mem::take(&mut conversion.after);
        self.client.out.push(converted?);
        self.forward_replies(cx, &after)?;
        Ok(StepProgress::Moved)
    }

    /// Whether a large reply that is collected waits for memory. Releases the memory of the last one: the client has
    /// taken it.
    fn reply_waits_for_memory(&mut self, cx: &mut Context<'_>) -> bool {
        let held = self.server.replies.held();
        if held.is_empty() {
            self.client.conversion = None;
            return false;
        }
        let Some(bytes) = share_of(held) else { return false };
        let memory = &self.listener_context.process.traffic.memory;
        let conversion = self.client.conversion.get_or_insert_with(|| Conversion::collecting(memory, bytes));
        conversion.kept.poll_room(cx).is_pending()
    }

    fn forward_replies(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<(), End> {
        let mut rest = bytes;
        let mut run = 0;
        loop {
            let before = bytes.len() - rest.len();
            let part = self.server.replies.next(&mut rest, |header, head| sort_reply(&mut self.pending, header, head));
            if let Ok(StreamPart::Stream) = part {
                continue;
            }
            self.client.send(cx, bytes.get(run..before).unwrap_or_default())?;
            run = bytes.len() - rest.len();
            match part? {
                StreamPart::Release(held) => self.client.send(cx, &held)?,
                StreamPart::Whole(ReplyToCollect::Hello(_), _) if self.drain_state.last_reply_sent => {}
                StreamPart::Whole(ReplyToCollect::Hello(goes), frame) => {
                    let reply = HelloReply::parse(&frame).map_err(UpstreamFault::from)?;
                    reply.note(&mut self.client.state);
                    self.client.note_identity();
                    let presentation = self.listener_context.presentation(self.client.local);
                    let rewritten = reply.rewrite(&presentation, &mut self.negotiation);
                    self.client.send(cx, &pack(rewritten.as_deref().unwrap_or(&frame).into(), goes))?;
                }
                StreamPart::Whole(ReplyToCollect::Login, frame) => {
                    self.client.note_login(&frame);
                    self.client.send(cx, &frame)?;
                }
                StreamPart::Whole(ReplyToCollect::Cursor(goes), frame) => {
                    let (frame, _) = unpack(&frame).map_err(UpstreamFault::from)?;
                    if let (Some(pooling), Some(cursor)) = (&self.pooling, cursor_id(&frame)) {
                        pooling.note_waiting_cursor(cursor);
                    }
                    self.client.send(cx, &pack(frame, goes))?;
                }
                StreamPart::Whole(ReplyToCollect::Discard, _) => {}
                StreamPart::Whole(ReplyToCollect::Convert(goes), frame) if is_long(unpacked_length(&frame)) => {
                    let memory = &self.listener_context.process.traffic.memory;
                    let known = self.client.conversion.take();
                    self.client.conversion = Some(Conversion::begin(known, (frame, goes), rest, memory));
                    return Ok(());
                }
                StreamPart::Whole(ReplyToCollect::Convert(goes), frame) => {
                    let (frame, _) = unpack(&frame).map_err(UpstreamFault::from)?;
                    self.client.send(cx, &pack(frame, goes))?;
                }
                StreamPart::Starved | StreamPart::Stream => return Ok(()),
            }
        }
    }
}

/// The id of the cursor that a reply opens.
fn cursor_id(frame: &[u8]) -> Option<i64> {
    let (frame, _) = unpack(frame).ok()?;
    CommandReply::parse(&frame).ok()?.cursor()?.get("id")?.as_integer()
}

/// The decompressed message, and the compressor it arrived with.
pub(in crate::proxy) fn unpack(frame: &[u8]) -> Result<(Cow<'_, [u8]>, Option<Compressor>), WireError> {
    if Header::of_frame(frame)?.op_code != OpCode::Compressed {
        return Ok((Cow::Borrowed(frame), None));
    }
    let envelope = CompressedEnvelope::parse(frame)?;
    Ok((Cow::Owned(decompress(frame)?), envelope.map(|envelope| envelope.compressor)))
}

/// The length of a message without its compression; 0 if it cannot be read.
fn unpacked_length(frame: &[u8]) -> usize {
    match Header::parse(frame) {
        Ok(Some(Header { op_code: OpCode::Compressed, .. })) => {
            CompressedEnvelope::parse(frame).ok().flatten().map_or(0, |envelope| envelope.header.length)
        }
        _ => frame.len(),
    }
}

/// A message for the client, compressed as its request was.
pub(in crate::proxy) fn pack(frame: Cow<'_, [u8]>, compressor: Option<Compressor>) -> Cow<'_, [u8]> {
    compressor.and_then(|compressor| compress(&frame, compressor.into())).map_or(frame, Cow::Owned)
}

#[cfg(test)]
mod tests;
