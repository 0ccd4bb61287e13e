//! Moves bytes from the server to the client.

use std::borrow::Cow;
use std::task::{Context, Poll};

use super::{Relay, StepProgress};
use crate::engine::explain_validators;
use crate::engine::handshake::HelloReply;
use crate::proxy::connection::conversion::Conversion;
use crate::proxy::connection::end::{ClientFault, End, UpstreamFault};
use crate::proxy::connection::framing::{ReplyToCollect, Request, sort_reply};
use crate::proxy::connection::packing::{cursor_id, pack, unpack, unpacked_length};
use crate::proxy::connection::planner::is_long;
use crate::proxy::connection::pooling::resending::Examined;
use crate::proxy::connection::write_buffer::with_read_buffer;
use crate::proxy::interceptor::Interceptor;
use crate::proxy::process::memory::{Stalled, share_of};
use crate::proxy::telemetry::meter::Side;
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};
use crate::wire::splitter::StreamPart;

impl<C, U, P> Relay<C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    pub(super) fn step_replies(&mut self, cx: &mut Context<'_>) -> Result<StepProgress, End> {
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
                self.pending.record_completed(meter, came, self.client.sender());
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

    /// See [`Pooling::examine`](crate::proxy::connection::pooling::Pooling::examine) and [`Self::explained`].
    fn examine(&mut self, reply: &[u8]) -> Examined {
        let is_last = self.collected.is_none() && self.pending.is_empty();
        match self.pooling.as_mut().map_or(Examined::Passes, |pooling| pooling.examine(reply, is_last)) {
            Examined::Passes => self.explained(reply).map_or(Examined::Passes, Examined::Instead),
            examined => examined,
        }
    }

    /// The reply with the rules' texts, if a validator that holds rules has rejected something.
    pub(in crate::proxy) fn explained(&self, reply: &[u8]) -> Option<Vec<u8>> {
        explain_validators(reply, self.listener_context.process.rules.current.load().rules())
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
                    reply.store_in(&mut self.client.state);
                    self.client.note_identity();
                    let presentation = self.listener_context.presentation(self.client.local);
                    let rewritten = reply.rewrite(&presentation, &mut self.negotiation);
                    self.client.send(cx, &pack(rewritten.as_deref().unwrap_or(&frame).into(), goes))?;
                }
                StreamPart::Whole(ReplyToCollect::Login, frame) => {
                    self.client.note_login(&frame);
                    self.client.send(cx, &frame)?;
                }
                StreamPart::Whole(ReplyToCollect::Discard, _) => {}
                StreamPart::Whole(ReplyToCollect::Other(goes, None), frame) if is_long(unpacked_length(&frame)) => {
                    let memory = &self.listener_context.process.traffic.memory;
                    let known = self.client.conversion.take();
                    self.client.conversion = Some(Conversion::begin(known, (frame, goes), rest, memory));
                    return Ok(());
                }
                StreamPart::Whole(ReplyToCollect::Other(goes, cursor), frame) => {
                    let (reply, came) = unpack(&frame).map_err(UpstreamFault::from)?;
                    let sent = match self.examine(&reply) {
                        Examined::Again(request) => {
                            self.collected = Some(Box::new((Request::Repeat, request)));
                            continue;
                        }
                        Examined::Instead(other) => pack(self.listener_context.with_times(other).into(), goes),
                        Examined::Passes => {
                            if let (Some(why), Some(pooling)) = (cursor, &self.pooling)
                                && let Some(id) = cursor_id(&reply)
                            {
                                pooling.note_cursor(id, why);
                            }
                            if came == goes { Cow::Borrowed(&*frame) } else { pack(reply, goes) }
                        }
                    };
                    self.client.send(cx, &sent)?;
                }
                StreamPart::Starved | StreamPart::Stream => return Ok(()),
            }
        }
    }
}
