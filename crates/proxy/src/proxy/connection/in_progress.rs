//! A message that is carried out, and what it waits for besides servers' replies ([`super::exchange`]): memory, permits,
//! lookups.

use std::future::poll_fn;
use std::pin::pin;

use crate::engine::Step;
use crate::engine::lookup::{Lookup, LookupError, LookupResult};
use crate::engine::step::{PermitRefusal, PermitRequest};
use crate::proxy::connection::end::End;
use crate::proxy::connection::pending_replies::more_to_come;
use crate::proxy::connection::relay::Relay;
use crate::proxy::interceptor::Interceptor;
use crate::proxy::process::memory::{Reservation, SMALL, share_of};
use crate::proxy::process::permits::{Permit, PermitReply};
use crate::proxy::server_side::upstream::Address;
use crate::proxy::telemetry::meter::kind_of;
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};
use crate::service::LookupReply;
use crate::wire::compressed::{CompressedEnvelope, DecompressLimit, peek};
use crate::wire::op_msg::FLAGS_LENGTH;
use crate::wire::{Header, OpCode};

/// A message that docward carries out, and how it waits for servers meanwhile. It has the connection to itself.
pub(super) struct MessageInProgress<'r, C, U: ServerSocket, P> {
    pub(super) relay: &'r mut Relay<C, U, P>,
    /// Whether the close of the client ends it.
    pub(super) watched: bool,
    /// How long it has waited so far.
    pub(super) nanoseconds: u64,
    /// It must be sent on the connection of the client's last request, which may not have ended.
    pub(super) keeps_connection: bool,
    /// It has sent something: what follows may depend on the reply.
    pub(super) has_sent: bool,
    /// The member of its transactions. The numbers of the next one mean nothing at another member.
    pub(super) transaction_at: Option<Address>,
    /// A message was sent again since: what its member knew of numbers is gone, even if it is primary again.
    pub(super) has_moved: bool,
    /// It was rejected for want of a connection.
    pub(super) lacked_connection: bool,
    /// Its permits, for as long as docward carries it out.
    pub(super) permits: Vec<Permit>,
}

impl<'r, C, U, P> MessageInProgress<'r, C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    pub(super) fn new(relay: &'r mut Relay<C, U, P>, frame: &[u8]) -> Self {
        Self {
            relay,
            // No client waits for the reply to an unacknowledged write, and mongod runs it even if its client is gone.
            watched: expects_reply(frame),
            nanoseconds: 0,
            keeps_connection: false,
            has_sent: false,
            transaction_at: None,
            has_moved: false,
            lacked_connection: false,
            permits: Vec::new(),
        }
    }

    /// Waits for memory for the message: a short compressed message may contain a long one.
    pub(super) async fn wait_for_room(&mut self, frame: &[u8]) -> Result<(), End> {
        if self.relay.kept.is_none()
            && let Some(bytes) = share_of(frame)
        {
            let mut kept = Reservation::for_message(&self.relay.listener_context.process.traffic.memory, bytes);
            self.while_connected(poll_fn(|cx| kept.poll_room(cx))).await?;
            self.relay.kept = Some(kept);
        }
        Ok(())
    }

    /// Reserves memory beside the message, if it is more than a small amount.
    pub(super) async fn keep(&mut self, bytes: usize) -> Result<(), End> {
        if bytes > SMALL {
            let mut kept = self
                .relay
                .kept
                .take()
                .unwrap_or_else(|| Reservation::new(&self.relay.listener_context.process.traffic.memory));
            self.while_connected(kept.add(bytes)).await?;
            self.relay.kept = Some(kept);
        }
        Ok(())
    }

    /// Waits for `future`.
    ///
    /// # Errors
    /// [`End`]: the client closed the connection meanwhile; only if the message is watched.
    pub(super) async fn while_connected<T>(&mut self, future: impl Future<Output = T>) -> Result<T, End> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if self.watched {
                self.relay.watch_client(cx)?;
            }
            future.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Takes permits for the message, which keeps them until its last reply. While it waits for one, it holds no
    /// connection of a pool: otherwise clients that wait could hold all of them. Returns why it gets none, or the last
    /// step of a message that has no server connection any more.
    pub(super) async fn take_permits(
        &mut self,
        requests: Vec<PermitRequest>,
        request_id: i32,
    ) -> Result<Result<Result<(), PermitRefusal>, Step>, End> {
        let asked = self.relay.listener_context.process.traffic.meter.now();
        let mut lane = None;
        let taken = match self.relay.listener_context.process.rules.permits.ask(requests) {
            PermitReply::Now(permits) => Ok(permits),
            PermitReply::Waits(waits) => {
                if !self.keeps_connection {
                    lane = self.relay.lend_back();
                }
                self.while_connected(waits.granted()).await?
            }
        };
        let mut last = None;
        if let (Some(lane), Ok(_)) = (lane, &taken)
            && let Some(error) = self.take_connection_again(lane).await?
        {
            let header = Header { length: 0, request_id, response_to: 0, op_code: OpCode::Msg };
            let Some(reply) = self.reject_without_connection(&error, header) else { return Err(error.into()) };
            last = Some(if self.watched { Step::Reply(reply) } else { Step::Silent });
        }
        self.nanoseconds += self.relay.listener_context.process.traffic.meter.since(asked);
        let taken = taken.map(|permits| self.permits = permits);
        Ok(last.map_or(Ok(taken), Err))
    }

    pub(super) async fn look_up(&mut self, lookup: Lookup) -> Result<Result<LookupResult, LookupError>, End> {
        let (asked, kind) = (self.relay.listener_context.process.traffic.meter.now(), kind_of(&lookup));
        let found = match self.relay.listener_context.process.rules.service.find(lookup) {
            LookupReply::Ready(found) => found,
            LookupReply::Pending(reply) => self.while_connected(reply).await?,
        };
        let waited = self.relay.listener_context.process.traffic.meter.since(asked);
        self.nanoseconds += waited;
        self.relay.listener_context.process.traffic.meter.looked_up(kind, waited, &found);
        Ok(found)
    }
}

/// Whether the client waits for a reply to `frame`.
fn expects_reply(frame: &[u8]) -> bool {
    let Ok(header) = Header::of_frame(frame) else { return false };
    if header.op_code != OpCode::Compressed {
        return !more_to_come(&header, frame);
    }
    let inner =
        CompressedEnvelope::parse(frame).ok().flatten().zip(peek(frame, DecompressLimit::UpTo(FLAGS_LENGTH)).ok());
    inner.is_some_and(|(envelope, head)| !more_to_come(&envelope.header, &head))
}
