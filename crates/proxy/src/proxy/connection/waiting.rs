//! What an evaluated message waits for: memory, replies of servers, permits, lookups.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

use smallvec::{SmallVec, smallvec};

use crate::engine::Step;
use crate::engine::lookup::{Lookup, LookupError, LookupResult};
use crate::engine::step::PermitRequest;
use crate::proxy::connection::end::{End, UpstreamFault};
use crate::proxy::connection::pending_replies::more_to_come;
use crate::proxy::connection::relay::Relay;
use crate::proxy::connection::write_buffer::{READ_LENGTH, TURN_LENGTH, with_read_buffer, yield_now};
use crate::proxy::interceptor::Interceptor;
use crate::proxy::process::memory::{Reservation, SMALL, share_of};
use crate::proxy::process::permits::{Permit, PermitReply};
use crate::proxy::telemetry::meter::{Side, kind_of};
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};
use crate::service::LookupReply;
use crate::wire::splitter::{FrameClass, Splitter, StreamPart};
use crate::wire::{Header, OpCode};

/// How an evaluated message waits for servers.
#[derive(Debug)]
pub(super) struct ServerWait {
    /// Whether the close of the client ends it.
    pub(super) watched: bool,
    /// How long it has waited so far.
    pub(super) nanoseconds: u64,
    /// It must be sent on the connection of the client's last request, which may not have ended.
    pub(super) keeps_connection: bool,
    /// Its permits, for as long as docward carries it out.
    pub(super) permits: Vec<Permit>,
}

/// Messages, or their replies; mostly one.
pub(super) type Frames = SmallVec<[Vec<u8>; 1]>;

/// The replies to messages that were sent together.
struct ReplyReader {
    splitter: Splitter<()>,
    whole: Frames,
    expected: usize,
}

impl ReplyReader {
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

impl<C, U, P> Relay<C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    /// Waits for memory for the message: a short compressed message may contain a long one.
    pub(super) async fn wait_for_room(&mut self, frame: &[u8], watched: bool) -> Result<(), End> {
        if self.kept.is_none()
            && let Some(bytes) = share_of(frame)
        {
            let mut kept = Reservation::for_message(&self.listener_context.process.traffic.memory, bytes);
            self.while_connected(watched, poll_fn(|cx| kept.poll_room(cx))).await?;
            self.kept = Some(kept);
        }
        Ok(())
    }

    /// Reserves memory beside the message, if it is more than a small amount.
    pub(super) async fn keep(&mut self, bytes: usize, watched: bool) -> Result<(), End> {
        if bytes > SMALL {
            let mut kept =
                self.kept.take().unwrap_or_else(|| Reservation::new(&self.listener_context.process.traffic.memory));
            self.while_connected(watched, kept.add(bytes)).await?;
            self.kept = Some(kept);
        }
        Ok(())
    }

    /// Waits for `future`.
    ///
    /// # Errors
    /// [`End`]: the client closed the connection meanwhile; only if `watched`.
    pub(in crate::proxy) async fn while_connected<T>(
        &mut self,
        watched: bool,
        future: impl Future<Output = T>,
    ) -> Result<T, End> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if watched {
                self.watch_client(cx)?;
            }
            future.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Sends a message to the server, and returns its reply.
    pub(super) async fn exchange(&mut self, message: Vec<u8>, waiting: &mut ServerWait) -> Result<Vec<u8>, End> {
        let mut replies = self.exchange_all(smallvec![message], waiting).await?;
        replies.pop().ok_or_else(|| UpstreamFault::NotOneReply.into())
    }

    /// Sends messages to the server without waiting between them, and returns a reply to each.
    pub(super) async fn exchange_all(&mut self, messages: Frames, waiting: &mut ServerWait) -> Result<Frames, End> {
        let asked = self.listener_context.process.traffic.meter.now();
        let mut replies = ReplyReader { splitter: Splitter::default(), whole: Frames::new(), expected: messages.len() };
        let mut request_ids: SmallVec<[Option<i32>; 1]> = SmallVec::new();
        for message in messages {
            request_ids.push(Header::parse(&message).ok().flatten().map(|header| header.request_id));
            self.server.out.push(message);
        }
        let mut room_for = usize::MAX;
        while let Err(length) = poll_fn(|cx| self.poll_exchange(cx, &mut replies, waiting.watched, room_for)).await? {
            // The reply to the client is built from it.
            self.keep(2 * length, waiting.watched).await?;
            replies.splitter.reserve();
            room_for = replies.whole.len();
        }
        waiting.nanoseconds += self.listener_context.process.traffic.meter.since(asked);
        for (reply, request_id) in replies.whole.iter().zip(request_ids) {
            let header = Header::of_frame(reply).map_err(UpstreamFault::from)?;
            if header.op_code != OpCode::Msg || Some(header.response_to) != request_id || more_to_come(&header, reply) {
                return Err(UpstreamFault::NotOneReply.into());
            }
        }
        Ok(replies.whole)
    }

    /// The server's replies; or the length of a large one, unless it is the one with this number, for which room is reserved.
    fn poll_exchange(
        &mut self,
        cx: &mut Context<'_>,
        replies: &mut ReplyReader,
        watched: bool,
        room_for: usize,
    ) -> Poll<Result<Result<(), usize>, End>> {
        if watched {
            self.watch_client(cx)?;
        }
        // Pending or not: the reply may arrive before the server has read the whole request.
        let _ = self.server.poll_flush(cx)?;
        with_read_buffer(|buffer| {
            for _ in 0..TURN_LENGTH / READ_LENGTH {
                let read = match self.server.poll_read(cx, buffer).map_err(End::UpstreamError)? {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready([]) => return Poll::Ready(Err(End::UpstreamClosed)),
                    Poll::Ready(read) => read,
                };
                self.listener_context.process.traffic.meter.count_read(Side::Upstream, read.len());
                self.client.count_read(Side::Upstream, read.len());
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

    /// Takes permits for the message, which keeps them until its last reply. While it waits for one, it holds no
    /// connection of a pool: otherwise clients that wait could hold all of them. Returns the number of the request that
    /// waited too long, or the last step of a message that has no server connection any more.
    pub(super) async fn take_permits(
        &mut self,
        requests: Vec<PermitRequest>,
        request_id: i32,
        waiting: &mut ServerWait,
    ) -> Result<Result<Result<(), usize>, Step>, End> {
        let asked = self.listener_context.process.traffic.meter.now();
        let mut lane = None;
        let taken = match self.listener_context.process.rules.permits.ask(requests) {
            PermitReply::Now(permits) => Ok(permits),
            PermitReply::Waits(waits) => {
                if !waiting.keeps_connection {
                    lane = self.lend_back();
                }
                self.while_connected(waiting.watched, waits.granted()).await?
            }
        };
        let mut last = None;
        if let (Some(lane), Ok(_)) = (lane, &taken)
            && let Some(error) = self.take_connection_again(lane, waiting.watched).await?
        {
            let header = Header { length: 0, request_id, response_to: 0, op_code: OpCode::Msg };
            let reply = self.reject_without_connection(error, header)?;
            last = Some(if waiting.watched { Step::Reply(reply) } else { Step::Silent });
        }
        waiting.nanoseconds += self.listener_context.process.traffic.meter.since(asked);
        let taken = taken.map(|permits| waiting.permits = permits);
        Ok(last.map_or(Ok(taken), Err))
    }

    pub(super) async fn look_up(
        &mut self,
        lookup: Lookup,
        waiting: &mut ServerWait,
    ) -> Result<Result<LookupResult, LookupError>, End> {
        let (asked, kind) = (self.listener_context.process.traffic.meter.now(), kind_of(&lookup));
        let found = match self.listener_context.process.rules.service.find(lookup) {
            LookupReply::Ready(found) => found,
            LookupReply::Pending(reply) => self.while_connected(waiting.watched, reply).await?,
        };
        let waited = self.listener_context.process.traffic.meter.since(asked);
        waiting.nanoseconds += waited;
        self.listener_context.process.traffic.meter.looked_up(kind, waited, &found);
        Ok(found)
    }
}
