//! Sends the messages of an evaluated one to the server, and waits for its replies.

use std::future::poll_fn;
use std::task::{Context, Poll};

use smallvec::{SmallVec, smallvec};

use crate::engine::routing::{AfterLoss, InTransaction, Repetition};
use crate::engine::{RequestHead, Step};
use crate::proxy::connection::end::{End, UpstreamFault};
use crate::proxy::connection::in_progress::MessageInProgress;
use crate::proxy::connection::packing::header_of;
use crate::proxy::connection::pending_replies::more_to_come;
use crate::proxy::connection::pooling::MAX_COLLECTED_LENGTH;
use crate::proxy::connection::server_half::ServerHalf;
use crate::proxy::connection::write_buffer::{READ_LENGTH, TURN_LENGTH, with_read_buffer, yield_now};
use crate::proxy::interceptor::Interceptor;
use crate::proxy::process::memory::SMALL;
use crate::proxy::server_side::pool::CheckoutError;
use crate::proxy::telemetry::meter::Side;
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};
use crate::wire::splitter::{FrameClass, Splitter, StreamPart};
use crate::wire::{Header, OpCode};

/// Messages, or their replies; mostly one.
pub(super) type Frames = SmallVec<[Vec<u8>; 1]>;

/// The replies to messages that were sent together.
struct ReplyReader {
    splitter: Splitter<()>,
    whole: Frames,
    expected: usize,
}

impl ReplyReader {
    fn new(expected: usize) -> Self {
        Self { splitter: Splitter::default(), whole: Frames::new(), expected }
    }

    /// Takes what the server has sent. Returns whether all replies are there.
    fn take(&mut self, mut read: &[u8]) -> Result<bool, UpstreamFault> {
        loop {
            match self.splitter.next(&mut read, |_, _| Ok::<_, UpstreamFault>(FrameClass::Whole(())))? {
                StreamPart::Whole((), reply) => self.whole.push(reply),
                StreamPart::Starved => return Ok(false),
                _ => return Err(UpstreamFault::NotOneReply),
            }
            match (self.whole.len() >= self.expected, read.is_empty()) {
                (true, true) => return Ok(true),
                (true, false) => return Err(UpstreamFault::NotOneReply),
                (false, _) => {}
            }
        }
    }
}

impl<C, U, P> MessageInProgress<'_, C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    /// Sends a message to the server, and returns its reply.
    pub(super) async fn exchange(&mut self, message: Vec<u8>) -> Result<Vec<u8>, End> {
        let mut replies = self.exchange_all(smallvec![message]).await?;
        replies.pop().ok_or_else(|| UpstreamFault::NotOneReply.into())
    }

    /// Sends messages to the server without waiting between them, and returns a reply to each.
    pub(super) async fn exchange_all(&mut self, messages: Frames) -> Result<Frames, End> {
        let asked = self.relay.listener_context.process.traffic.meter.now();
        let replies = match self.relay.pooling.as_ref().is_some_and(|pooling| pooling.is_routed()) {
            true => self.exchange_at_set(messages).await,
            false => {
                let mut replies = ReplyReader::new(messages.len());
                self.send(messages, &mut replies).await.map(|()| replies.whole)
            }
        };
        self.nanoseconds += self.relay.listener_context.process.traffic.meter.since(asked);
        replies
    }

    /// As [`Self::exchange_all`] for a client of a router. What goes to the primary goes to that of the moment; a single
    /// message is sent again if its member was lost, or is primary no more, and the server executes it once. What is not
    /// sent again gets a reply with the labels that let its sender do the right thing.
    async fn exchange_at_set(&mut self, mut messages: Frames) -> Result<Frames, End> {
        let sent: SmallVec<[AfterLoss; 1]> =
            messages.iter().filter_map(|message| AfterLoss::of_request(&RequestHead::new(message))).collect();
        let (repetition, copy) = match (messages.as_slice(), sent.as_slice()) {
            // A reply before may be why it is sent, and another member would have replied otherwise.
            ([_], [sent]) if sent.is_numbered_write() && self.has_sent => (Repetition::Never, None),
            ([message], [sent]) if sent.repetition != Repetition::Never && message.len() <= MAX_COLLECTED_LENGTH => {
                (sent.repetition, Some(message.clone()))
            }
            _ => (Repetition::Never, None),
        };
        self.has_sent = true;
        let mut was_sent = false;
        loop {
            if let Some(error) = self.follow_primary().await? {
                if was_sent {
                    return Ok(sent.iter().map(AfterLoss::reply).collect());
                }
                let rejections = sent.iter().map(|sent| self.reject_without_connection(&error, sent.header));
                return rejections.collect::<Option<Frames>>().ok_or_else(|| error.into());
            }
            if self.note_transaction(&sent) {
                return Ok(sent.iter().map(AfterLoss::reply).collect());
            }
            was_sent = true;
            let mut replies = ReplyReader::new(messages.len());
            let is_lost = match self.send(std::mem::take(&mut messages), &mut replies).await {
                // What was sent before on this connection has ended, too.
                Ok(()) => {
                    self.keeps_connection = false;
                    false
                }
                Err(End::UpstreamClosed | End::UpstreamError(_)) => true,
                Err(end) => return Err(end),
            };
            let mut replies = replies.whole;
            let Some(pooling) = &mut self.relay.pooling else { return Ok(replies) };
            let mut repeats = pooling.examine_own(&mut replies, if is_lost { Repetition::Never } else { repetition });
            if is_lost {
                self.relay.server = ServerHalf::default();
                repeats = pooling.outlives(repetition);
            }
            match &copy {
                Some(copy) if repeats => {
                    self.has_moved |= self.transaction_at.is_some();
                    messages = smallvec![copy.clone()];
                }
                _ => {
                    replies.extend(sent.iter().skip(replies.len()).map(AfterLoss::reply));
                    return Ok(replies);
                }
            }
        }
    }

    /// Notes where the transaction of these messages is. Returns whether that is another member than that of those before,
    /// so that the engine must begin again: transactions are gone with their member, and so is what is known of numbers.
    fn note_transaction(&mut self, sent: &[AfterLoss]) -> bool {
        let Some(pooling) = &self.relay.pooling else { return false };
        // A numbered write may follow from what a transaction has shown.
        let is_bound = |sent: &&AfterLoss| {
            sent.in_transaction != InTransaction::No || sent.is_numbered_write() && self.transaction_at.is_some()
        };
        let Some(step) = sent.iter().find(is_bound).map(|sent| sent.in_transaction) else { return false };
        let here = pooling.address();
        match &self.transaction_at {
            Some(before) if before == here && !self.has_moved => false,
            // The engine asks what has become of it.
            Some(_) if step == InTransaction::Aborts => false,
            before => {
                let has_moved = before.is_some();
                (self.transaction_at, self.has_moved) = (Some(here.clone()), false);
                has_moved
            }
        }
    }

    /// Takes a connection to the primary if the message in progress has none, or one to a member that is primary no more.
    /// Returns the reason if there is none.
    async fn follow_primary(&mut self) -> Result<Option<CheckoutError>, End> {
        let Some(pooling) = &self.relay.pooling else { return Ok(None) };
        // What waits there belongs to another message.
        let may_leave = !self.keeps_connection && self.relay.server.out.is_empty();
        let lane = if may_leave && pooling.is_displaced() { self.relay.lend_back() } else { pooling.lost_lane() };
        let Some(lane) = lane else { return Ok(None) };
        let failed = self.take_connection_again(lane).await?;
        if let (Some(_), Some(pooling)) = (&failed, &mut self.relay.pooling) {
            pooling.note_lane(lane);
        }
        Ok(failed)
    }

    /// Takes a connection for the last step of a message, if it was lost meanwhile. Returns the step, or the reply if there
    /// is no connection.
    pub(super) async fn with_connection(&mut self, last: Step, frame: &[u8]) -> Result<Step, End> {
        if !self.relay.pooling.as_ref().is_some_and(|pooling| pooling.is_routed()) {
            return Ok(last);
        }
        let failed = self.follow_primary().await?;
        let after_loss = AfterLoss::of_request(&RequestHead::new(frame));
        let reply = match (failed, after_loss) {
            (Some(error), _) => {
                self.reject_without_connection(&error, header_of(frame)?).ok_or_else(|| End::from(error))?
            }
            (None, Some(after_loss)) if self.note_transaction(&[after_loss]) => after_loss.reply(),
            (None, _) => return Ok(last),
        };
        Ok(match last {
            Step::ForwardOriginal { expects_reply: true } | Step::Forward { expects_reply: true, .. } => {
                Step::Reply(reply)
            }
            _ => Step::Silent,
        })
    }

    /// Waits for the end of an unacknowledged write on the connection in use. If its member is lost, it has ended.
    pub(super) async fn send_barrier(&mut self, barrier: Vec<u8>) -> Result<(), End> {
        let sent = self.send(smallvec![barrier], &mut ReplyReader::new(1)).await;
        match (sent, &mut self.relay.pooling) {
            (Err(End::UpstreamClosed | End::UpstreamError(_)), Some(pooling)) if pooling.is_routed() => {
                self.relay.server = ServerHalf::default();
                pooling.outlives(Repetition::Never);
                Ok(())
            }
            (sent, _) => sent,
        }
    }

    /// Sends messages, and reads the replies into `replies`.
    async fn send(&mut self, messages: Frames, replies: &mut ReplyReader) -> Result<(), End> {
        let mut request_ids: SmallVec<[Option<i32>; 1]> = SmallVec::new();
        for message in messages {
            request_ids.push(Header::parse(&message).ok().flatten().map(|header| header.request_id));
            self.relay.server.out.push(message);
        }
        let mut room_for = usize::MAX;
        while let Err(length) = poll_fn(|cx| self.poll_exchange(cx, replies, room_for)).await? {
            // The reply to the client is built from it.
            self.keep(2 * length).await?;
            replies.splitter.reserve();
            room_for = replies.whole.len();
        }
        for (reply, request_id) in replies.whole.iter().zip(request_ids) {
            let header = Header::of_frame(reply).map_err(UpstreamFault::from)?;
            if header.op_code != OpCode::Msg || Some(header.response_to) != request_id || more_to_come(&header, reply) {
                return Err(UpstreamFault::NotOneReply.into());
            }
        }
        Ok(())
    }

    /// The server's replies; or the length of a large one, unless it is the one with this number, for which room is reserved.
    fn poll_exchange(
        &mut self,
        cx: &mut Context<'_>,
        replies: &mut ReplyReader,
        room_for: usize,
    ) -> Poll<Result<Result<(), usize>, End>> {
        if self.watched {
            self.relay.watch_client(cx)?;
        }
        if self.relay.pooling.as_mut().is_some_and(|pooling| pooling.poll_lost(cx).is_ready()) {
            return Poll::Ready(Err(End::UpstreamClosed));
        }
        // Pending or not: the reply may arrive before the server has read the whole request.
        let _ = self.relay.server.poll_flush(cx)?;
        with_read_buffer(|buffer| {
            for _ in 0..TURN_LENGTH / READ_LENGTH {
                let read = match self.relay.server.poll_read(cx, buffer).map_err(End::UpstreamError)? {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready([]) => return Poll::Ready(Err(End::UpstreamClosed)),
                    Poll::Ready(read) => read,
                };
                self.relay.listener_context.process.traffic.meter.count_read(Side::Upstream, read.len());
                self.relay.client.count_read(Side::Upstream, read.len());
                if replies.take(read)? {
                    return Poll::Ready(Ok(Ok(())));
                }
                let header = Header::parse(replies.splitter.held()).map_err(UpstreamFault::from)?;
                if let Some(header) = header.filter(|header| replies.whole.len() != room_for && header.length > SMALL) {
                    return Poll::Ready(Ok(Err(header.length)));
                }
            }
            yield_now(cx)
        })
    }
}
