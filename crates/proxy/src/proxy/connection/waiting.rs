//! What an evaluated message waits for besides servers' replies ([`super::exchange`]): memory, permits, lookups.

use std::future::poll_fn;
use std::pin::pin;

use crate::engine::Step;
use crate::engine::lookup::{Lookup, LookupError, LookupResult};
use crate::engine::step::PermitRequest;
use crate::proxy::connection::end::End;
use crate::proxy::connection::relay::Relay;
use crate::proxy::interceptor::Interceptor;
use crate::proxy::process::memory::{Reservation, SMALL, share_of};
use crate::proxy::process::permits::{Permit, PermitReply};
use crate::proxy::server_side::upstream::Address;
use crate::proxy::telemetry::meter::kind_of;
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};
use crate::service::LookupReply;
use crate::wire::{Header, OpCode};

/// How an evaluated message waits for servers.
#[derive(Debug, Default)]
pub(super) struct ServerWait {
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
    /// Its permits, for as long as docward carries it out.
    pub(super) permits: Vec<Permit>,
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
            let Some(reply) = self.reject_without_connection(&error, header) else { return Err(error.into()) };
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
