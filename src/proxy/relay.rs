//! One client connection with its one upstream connection: a poll state machine that moves bytes both ways.
//!
//! A message no rule concerns costs one read and one write. Frames stream through as they come; only what
//! must be evaluated, rewritten or converted is collected. Both directions run in one task and never wait for one another;
//! a direction is not read while its output waits, so memory stays bounded. It must not know what a rule is.
//! Frames are told apart in [`super::sorting`], evaluated messages are carried out in [`super::evaluate`], a session's
//! life is in [`super::session`].

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
use super::framing::{Reply, Request, Requests, may_be_packed, sort_reply};
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
use crate::engine::{Session, has_logged_in};
use crate::wire::compressed::{Compressor, Envelope, Method, compress, decompress};
use crate::wire::splitter::{Part, Splitter};
use crate::wire::{Header, OpCode, WireError};

/// Replies pending at which the client is not read on: an upstream that takes requests without answering must
/// not make us remember them without end. Drivers have one request at a time under way.
const MAX_OWED: usize = 1024;

/// What the relay cannot do while it is polled.
#[derive(Debug)]
pub(super) enum Event {
    /// This message is to be evaluated; nothing is pending and nothing waits for the client.
    Evaluate(Vec<u8>),
    End(End),
    /// The client's first message has come, and its login where there has to be one.
    Arrived,
    /// It was to be passed on, and stands between two messages.
    Stands,
}

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Moved,
    /// There is nothing to do, and the task is registered to be woken when there is.
    Idle,
    /// There is nothing to do before replies have moved.
    Waits,
}

/// What the client's hellos tell of its connection.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct HandshakeState {
    /// A driver's monitor: its last hello is answered when there is news, or it says one hello after another.
    watched: bool,
    /// Its last hello may be answered more than once.
    streams: bool,
    /// The client has said hello, and anything else.
    greeted: bool,
    conversed: bool,
    /// Its hellos; wraps.
    hellos: u8,
}

/// Both sockets and what is under way between them.
#[derive(Debug)]
pub(super) struct Relay<C, U, P> {
    pub(super) client: C,
    pub(super) upstream: U,
    pub(super) listener_context: Arc<ListenerContext<P>>,
    /// The address the client connected to.
    local: IpAddr,
    /// Close as soon as this harms nobody.
    pub(super) draining: bool,
    /// Stop between two messages: another process goes on.
    pub(super) passing: bool,
    drain_state: DrainState,
    pub(super) activity: Activity,
    /// Whether [`Event::Arrived`] has been told.
    arrival_told: bool,
    handshake: HandshakeState,
    pub(super) session: Session,
    pub(super) negotiation: Negotiation,
    requests: Splitter<Request>,
    replies: Splitter<Reply>,
    pub(super) to_upstream: WriteBuffer,
    pub(super) to_client: WriteBuffer,
    pub(super) pending: PendingReplies,
    /// Nanoseconds that the message that is evaluated has waited for servers.
    pub(super) waited: u64,
    /// Waits until nothing is pending; the client's later messages wait in `unread`.
    evaluated: Option<Vec<u8>>,
    /// `None` while there is nothing.
    unread: Option<Box<ReadBuffer>>,
    /// What it has of the memory for large messages.
    pub(super) kept: Option<Box<Reservation>>,
}

/// What was read from the client and not looked at yet.
#[derive(Debug)]
struct ReadBuffer {
    bytes: Vec<u8>,
    /// What has been looked at after all. `0 .. bytes.len()`.
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
        session: Session,
    ) -> Self {
        Self {
            client,
            upstream,
            local,
            draining: false,
            passing: false,
            drain_state: DrainState::default(),
            activity: Activity::default(),
            arrival_told: false,
            handshake: HandshakeState::default(),
            session,
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

    /// Moves bytes until neither side has any, or something comes up.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let (mut requests, mut replies) = (Progress::Moved, Progress::Moved);
        loop {
            if let Err(end) = self.step(cx, &mut requests, &mut replies) {
                return Poll::Ready(Event::End(end));
            }
            let idle = requests != Progress::Moved && replies != Progress::Moved;
            if !idle {
                self.activity.moves = self.activity.moves.wrapping_add(1);
            }
            self.note_activity_of(!idle);
            if self.is_settled()
                && let Some(frame) = self.evaluated.take()
            {
                return Poll::Ready(Event::Evaluate(frame));
            }
            // Its client may be quiet for long.
            if idle && self.kept.is_some() && self.stands() {
                self.kept = None;
            }
            if idle && self.passing && self.stands() {
                return Poll::Ready(Event::Stands);
            }
            // The driver watches over the server by this connection, has nothing to lose on it, and takes its end for
            // the news that it is to look again.
            if idle && self.draining && self.handshake.watched && self.is_idle() {
                return Poll::Ready(Event::End(End::Drained));
            }
            if idle && !self.arrival_told && self.activity.heard && !self.session.must_log_in {
                self.arrival_told = true;
                return Poll::Ready(Event::Arrived);
            }
            if idle {
                return Poll::Pending;
            }
        }
    }

    /// One step each in turn, so that a busy direction does not use up the task's budget alone. Who is idle will be
    /// woken, and does not look again before.
    fn step(&mut self, cx: &mut Context<'_>, requests: &mut Progress, replies: &mut Progress) -> Result<(), End> {
        if *requests != Progress::Idle {
            *requests = self.step_requests(cx)?;
        }
        if *replies != Progress::Idle {
            *replies = self.step_replies(cx)?;
        }
        Ok(())
    }

    /// Moves the replies still pending to a client that has said its last word.
    pub(super) fn poll_last_replies(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        loop {
            let progress = self.step_replies(cx)?;
            if self.is_settled() {
                return Poll::Ready(Ok(()));
            }
            if progress == Progress::Idle {
                return Poll::Pending;
            }
        }
    }

    /// What a client has done that still has to log in; `None`: nobody waits for a login.
    pub(super) fn unauthenticated_slot(&self) -> Option<Unauthenticated> {
        self.session.must_log_in.then(|| Unauthenticated {
            conversed: self.handshake.conversed,
            within_message: !self.requests.between_frames(),
            hellos: self.handshake.hellos,
        })
    }

    /// Whether the client waits for something.
    pub(super) fn is_busy(&self) -> bool {
        !self.is_settled() || self.evaluated.is_some()
    }

    /// Every reply pending has gone to the client.
    fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.replies.between_frames() && self.to_client.is_empty()
    }

    /// Closing now loses nothing that anybody waits for. A hello that awaits news has none to lose, and a streamed one
    /// never ends by itself.
    pub(super) fn is_idle(&self) -> bool {
        (self.pending.is_empty() || self.handshake.watched && self.pending.only_hellos()) && self.stands()
    }

    fn step_requests(&mut self, cx: &mut Context<'_>) -> Result<Progress, End> {
        if self.to_upstream.poll_flush(cx, &mut self.upstream).map_err(End::UpstreamError)?.is_pending() {
            return Ok(Progress::Idle);
        }
        if self.evaluated.is_some() {
            return self.read_ahead(cx);
        }
        if self.pending.len() >= MAX_OWED {
            return Ok(Progress::Waits);
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
                return Ok(Progress::Idle);
            };
            let read = match read.map_err(End::ClientError)? {
                [] => return Err(End::ClientClosed),
                read => read,
            };
            let came = self.listener_context.meter.read(Side::Client, read.len());
            let used = self.forward_requests(cx, read)?;
            self.listener_context.meter.forwarded(&mut self.pending, came);
            self.activity.heard |= self.requests.between_frames();
            self.keep_unread(read.get(used..).unwrap_or_default());
            Ok(Progress::Moved)
        })
    }

    fn take_up(&mut self, cx: &mut Context<'_>, mut unread: Box<ReadBuffer>) -> Result<Progress, End> {
        let came = self.listener_context.meter.now();
        unread.at += self.forward_requests(cx, unread.bytes.get(unread.at..).unwrap_or_default())?;
        self.listener_context.meter.forwarded(&mut self.pending, came);
        if unread.at < unread.bytes.len() {
            self.unread = Some(unread);
        }
        Ok(Progress::Moved)
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

    /// What to wait for until the large message that has begun may come on; `None`: nothing. What was kept for one that is
    /// done is free again.
    fn wait_for_memory(&mut self, cx: &mut Context<'_>) -> Result<Option<Progress>, End> {
        let held = self.requests.held();
        if let Some(kept) = &mut self.kept {
            kept.is_done |= held.is_empty();
            if kept.is_done && !self.to_client.is_empty() {
                kept.look(cx, self.to_client.len()).map_err(|Stalled| ClientFault::Stalled)?;
                return Ok((!held.is_empty()).then_some(Progress::Waits));
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
            return Ok(Some(Progress::Idle));
        }
        kept.look(cx, held.len()).map_err(|Stalled| ClientFault::Stalled)?;
        if waited {
            self.requests.reserve();
        }
        Ok(None)
    }

    /// Reads the client while its messages have to wait, only to notice when it goes away. Bounded: a client
    /// that sends on and on is noticed later, when its messages' turn has come.
    fn read_ahead(&mut self, cx: &mut Context<'_>) -> Result<Progress, End> {
        if self.unread.as_ref().is_some_and(|unread| unread.bytes.len() - unread.at >= READ_LENGTH) {
            return Ok(Progress::Waits);
        }
        with_read_buffer(|buffer| match poll_read(cx, &mut self.client, buffer) {
            Poll::Pending => Ok(Progress::Idle),
            Poll::Ready(Err(error)) => Err(End::ClientError(error)),
            Poll::Ready(Ok([])) => Err(End::ClientClosed),
            Poll::Ready(Ok(read)) => {
                self.listener_context.meter.read(Side::Client, read.len());
                self.keep_unread(read);
                Ok(Progress::Moved)
            }
        })
    }

    /// Registers to be woken when the client goes away, and tells when it has.
    pub(super) fn watch_client(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        while self.read_ahead(cx)? == Progress::Moved {}
        Ok(())
    }

    /// Sends on what goes through; gives how much of `bytes` was used. Stops behind a message to be evaluated.
    fn forward_requests(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<usize, End> {
        let rules = self.listener_context.rules.load();
        let mut rest = bytes;
        // `bytes[run..before]` goes through and has not been sent.
        let mut run = 0;
        loop {
            let before = bytes.len() - rest.len();
            let mut sorter = Requests {
                rules: &**rules,
                session: &mut self.session,
                pending: &mut self.pending,
                negotiation: &self.negotiation,
                transactions: &self.listener_context.transactions,
                meter: &self.listener_context.meter,
            };
            let part = self.requests.next(&mut rest, |header, head| sorter.sort(header, head));
            self.handshake.conversed |= !matches!(part, Ok(Part::Whole(Request::Hello, _) | Part::Starved));
            if let Ok(Part::Stream) = part {
                continue;
            }
            self.send_upstream(cx, bytes.get(run..before).unwrap_or_default())?;
            run = bytes.len() - rest.len();
            match part? {
                Part::Release(held) => self.send_upstream(cx, &held)?,
                Part::Whole(request, frame) => {
                    let sent = match request {
                        Request::Hello => self.forward_hello(cx, &frame)?,
                        Request::Convert => self.forward_converted(cx, &frame)?,
                        Request::Evaluate => false,
                    };
                    // What cannot be taken out of its envelope is refused where messages are evaluated.
                    if !sent {
                        self.evaluated = Some(frame);
                        return Ok(run);
                    }
                }
                Part::Starved | Part::Stream => return Ok(run),
            }
        }
    }

    /// False when it cannot be read: then nothing has been sent.
    fn forward_hello(&mut self, cx: &mut Context<'_>, frame: &[u8]) -> Result<bool, End> {
        let Ok((frame, came)) = unpack(frame) else { return Ok(false) };
        let rewritten = rewrite_request(&frame, &mut self.session, &mut self.negotiation).map_err(ClientFault::from)?;
        // Who measures round trips by a connection of its own does it too often to be quiet for a drain's sake.
        self.handshake.watched = awaits_news(&frame) || self.handshake.greeted && !self.handshake.conversed;
        self.handshake.streams = streams(&frame);
        self.handshake.greeted = true;
        self.handshake.hellos = self.handshake.hellos.wrapping_add(1);
        let header = Header::of_frame(&frame).map_err(ClientFault::from)?;
        if !more_to_come(&header, &frame) {
            self.pending.push(header.request_id, ReplyAction::Hello(came));
        }
        self.send_upstream(cx, rewritten.as_deref().unwrap_or(&frame))?;
        Ok(true)
    }

    /// False when it cannot be read: then nothing has been sent.
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

    /// How a plain message is compressed on its way upstream, whose client sent it compressed by `came`.
    pub(super) fn method_for_upstream(
        &self,
        header: &Header,
        frame: &[u8],
        came: Option<Compressor>,
    ) -> Option<Method> {
        self.negotiation.for_upstream(came).filter(|_| came.is_some() || may_be_packed(header, frame))
    }

    /// A reply is pending from now on, to a message that came compressed by `came` and goes upstream by `goes`.
    pub(super) fn expect_reply(&mut self, header: &Header, came: Option<Compressor>, goes: Option<Method>) {
        let same = goes.map(|method| method.compressor) == came;
        let treatment = if same { ReplyAction::Forward } else { ReplyAction::Convert(came) };
        self.pending.push(header.request_id, treatment);
    }

    fn send_upstream(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<(), End> {
        self.to_upstream.send(cx, &mut self.upstream, bytes).map_err(End::UpstreamError)
    }

    fn step_replies(&mut self, cx: &mut Context<'_>) -> Result<Progress, End> {
        if self.to_client.poll_flush(cx, &mut self.client).map_err(End::ClientError)?.is_pending() {
            return Ok(Progress::Idle);
        }
        with_read_buffer(|buffer| match poll_read(cx, &mut self.upstream, buffer) {
            Poll::Pending => Ok(Progress::Idle),
            Poll::Ready(Err(error)) => Err(End::UpstreamError(error)),
            Poll::Ready(Ok([])) => Err(End::UpstreamClosed),
            Poll::Ready(Ok(read)) => {
                let came = self.listener_context.meter.read(Side::Upstream, read.len());
                self.forward_replies(cx, read)?;
                self.listener_context.meter.answered(&mut self.pending, came);
                Ok(Progress::Moved)
            }
        })
    }

    fn forward_replies(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<(), End> {
        let mut rest = bytes;
        let mut run = 0;
        loop {
            let before = bytes.len() - rest.len();
            let part = self.replies.next(&mut rest, |header, head| sort_reply(&mut self.pending, header, head));
            if let Ok(Part::Stream) = part {
                continue;
            }
            self.send_client(cx, bytes.get(run..before).unwrap_or_default())?;
            run = bytes.len() - rest.len();
            match part? {
                Part::Release(held) => self.send_client(cx, &held)?,
                Part::Whole(Reply::Hello(_), _) if self.drain_state.silent => {}
                Part::Whole(Reply::Hello(goes), frame) => {
                    note_reply(&frame, &mut self.session);
                    self.note_login(&frame);
                    let presentation = self.listener_context.presentation(self.local);
                    let rewritten =
                        rewrite_reply(&frame, &presentation, &mut self.negotiation).map_err(UpstreamFault::from)?;
                    self.send_client(cx, &pack(rewritten.unwrap_or(frame).into(), goes))?;
                }
                Part::Whole(Reply::Login, frame) => {
                    self.note_login(&frame);
                    self.send_client(cx, &frame)?;
                }
                Part::Whole(Reply::Convert(goes), frame) => {
                    let (frame, _) = unpack(&frame).map_err(UpstreamFault::from)?;
                    self.send_client(cx, &pack(frame, goes))?;
                }
                Part::Starved | Part::Stream => return Ok(()),
            }
        }
    }

    fn note_login(&mut self, reply: &[u8]) {
        if self.session.must_log_in && has_logged_in(reply) {
            self.session.must_log_in = false;
        }
    }

    fn send_client(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<(), End> {
        self.to_client.send(cx, &mut self.client, bytes).map_err(End::ClientError)
    }
}

/// A message out of its envelope, if it is in one, and the compressor it came by.
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
