//! Moves bytes from the client to the server.

use std::task::{Context, Poll};

use super::{Relay, StepProgress};
use crate::engine::RequestHead;
use crate::engine::handshake::draining::streams;
use crate::engine::handshake::{is_awaitable, rewrite_request};
use crate::proxy::connection::client_half::{ReadAhead, ReadBuffer};
use crate::proxy::connection::end::{ClientFault, End};
use crate::proxy::connection::framing::{Request, Requests, may_be_compressed};
use crate::proxy::connection::packing::{unpack, unpacked_length};
use crate::proxy::connection::pending_replies::{ReplyAction, more_to_come};
use crate::proxy::connection::planner::is_long;
use crate::proxy::connection::write_buffer::{READ_LENGTH, poll_read, with_read_buffer};
use crate::proxy::interceptor::Interceptor;
use crate::proxy::process::memory::{Reservation, Stalled, share_of};
use crate::proxy::telemetry::meter::Side;
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};
use crate::wire::Header;
use crate::wire::compressed::{CompressionMethod, Compressor, compress};
use crate::wire::splitter::StreamPart;

/// Number of pending replies at which the client is not read further: an upstream that takes requests without
/// answering must not make the queue grow without bound. Drivers have one request in flight at a time.
const MAX_PENDING_REPLIES: usize = 1024;

impl<C, U, P> Relay<C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    pub(super) fn step_requests(&mut self, cx: &mut Context<'_>) -> Result<StepProgress, End> {
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
        if self.is_undialled() {
            return self.wait_for_first_message(cx);
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
        self.activity.message_received |= self.client.requests.between_frames();
        if unread.at < unread.bytes.len() {
            self.client.unread = Some(unread);
        }
        Ok(StepProgress::Moved)
    }

    /// Whether the client's own server connection is still to be dialled.
    fn is_undialled(&self) -> bool {
        self.server.stream.is_none() && self.pooling.is_none()
    }

    /// Reads ahead until the first message has arrived, so that a client that sends none costs the server nothing.
    fn wait_for_first_message(&mut self, cx: &mut Context<'_>) -> Result<StepProgress, End> {
        let read = self.client.read_ahead(cx, &self.listener_context.process.traffic.meter)?;
        Ok(if read == ReadAhead::Read && !self.needs_server() { StepProgress::Moved } else { StepProgress::Idle })
    }

    /// Whether a server must be dialled: the client's first message has arrived, or is longer than drivers send.
    pub(super) fn needs_server(&self) -> bool {
        let Some(unread) = self.client.unread.as_ref().filter(|_| self.is_undialled()) else { return false };
        match Header::parse(&unread.bytes) {
            // What is not a message is reported when it is forwarded. TLS on a plain listener looks like a long one.
            Ok(Some(Header { length, .. })) => length > READ_LENGTH || length <= unread.bytes.len(),
            Ok(None) => false,
            Err(_) => true,
        }
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

    /// Forwards what streams through, and returns how many of `bytes` were used. Stops after a message to be
    /// evaluated.
    pub(super) fn forward_requests(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<usize, End> {
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
                drain_state: &self.drain_state,
                close_spacing: &self.listener_context.process.close_spacing,
                connection_counters: &self.listener_context.process.traffic.connection_counters,
                meter: &self.listener_context.process.traffic.meter,
                captures: &self.listener_context.process.traffic.captures,
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
            self.server.send(cx, bytes.get(run..before).unwrap_or_default());
            run = bytes.len() - rest.len();
            match part? {
                StreamPart::Release(held) => self.server.send(cx, &held),
                StreamPart::Whole(request, frame) => {
                    let sent = match request {
                        // A draining member has sent its last reply.
                        Request::Hello if self.is_shared() && self.drain_state.last_reply_sent => true,
                        // docward answers it.
                        Request::Hello if self.is_shared() => false,
                        Request::Hello => self.forward_hello(cx, &frame)?,
                        Request::Convert if is_long(unpacked_length(&frame)) => false,
                        Request::Convert => self.forward_converted(cx, &frame)?,
                        Request::Login | Request::Evaluate | Request::Repeat => false,
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
        self.client.handshake.note_hello(is_awaitable(&frame), streams(&frame));
        let header = Header::of_frame(&frame).map_err(ClientFault::from)?;
        if !more_to_come(&header, &frame) {
            self.pending.push(header.request_id, ReplyAction::Hello(came));
        }
        self.server.send(cx, rewritten.as_deref().unwrap_or(&frame));
        Ok(true)
    }

    /// Returns false if it cannot be read; nothing has been sent then.
    fn forward_converted(&mut self, cx: &mut Context<'_>, frame: &[u8]) -> Result<bool, End> {
        let Ok((frame, came)) = unpack(frame) else { return Ok(false) };
        let header = Header::of_frame(&frame).map_err(ClientFault::from)?;
        let method = self.method_for_upstream(&header, &frame, came);
        let packed = method.and_then(|method| compress(&frame, method));
        if !more_to_come(&header, &frame) {
            self.expect_reply(&header, came, method.filter(|_| packed.is_some()), false);
        }
        self.server.send(cx, packed.as_deref().unwrap_or(&frame));
        Ok(true)
    }

    /// The compression of a plain message for the upstream, if its client sent it compressed by `came`.
    pub(in crate::proxy) fn method_for_upstream(
        &self,
        header: &Header,
        frame: &[u8],
        came: Option<Compressor>,
    ) -> Option<CompressionMethod> {
        self.negotiation
            .for_upstream(came)
            .filter(|_| came.is_some() || may_be_compressed(&RequestHead::after(Some(*header), frame)))
    }

    /// Adds a pending reply to a message that arrived compressed by `came` and is sent compressed by `goes`. `is_evaluated`:
    /// rules apply to it.
    pub(in crate::proxy) fn expect_reply(
        &mut self,
        header: &Header,
        came: Option<Compressor>,
        goes: Option<CompressionMethod>,
        is_evaluated: bool,
    ) {
        let same = goes.map(|method| method.compressor) == came;
        let opens_cursor = self.pooling.as_mut().and_then(|pooling| pooling.takes_cursor());
        let is_routed = self.pooling.as_ref().is_some_and(|pooling| pooling.is_routed());
        let treatment = match (opens_cursor, same) {
            (Some(why), _) => ReplyAction::Cursor(came, why),
            (None, true) if is_routed || is_evaluated => ReplyAction::Examine(came),
            (None, true) => ReplyAction::Forward,
            (None, false) => ReplyAction::Convert(came),
        };
        self.pending.push(header.request_id, treatment);
    }
}
