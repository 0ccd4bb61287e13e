//! What a request needs of a connection: which member, and which connections it may use.

use std::time::Duration;

use super::Pooling;
use crate::engine::RequestHead;
use crate::engine::routing::{Destination, DestinationKind, ReadPreference, TransactionStep, destination};
use crate::engine::sharing::{Sharing, opens_cursor, opens_waiting_cursor, retried_in, sharing, time_limit};
use crate::proxy::server_side::pool::queue::Lane;
use crate::proxy::transport::socket::ServerSocket;

/// What a request needs of a connection.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct Need {
    /// `None`: the listener has one member.
    pub(super) destination: Option<Destination>,
    pub(super) sharing: Sharing,
    /// See [`crate::proxy::server_side::pool::Demand::retried_in`].
    pub(super) retried_in: Option<u64>,
    /// See [`time_limit`].
    pub(super) time_limit: Option<Duration>,
    pub(super) opens_waiting_cursor: bool,
    pub(super) opens_cursor: bool,
    /// Of a client behind a load balancer.
    pub(super) transaction: Option<TransactionStep>,
}

impl Need {
    /// Of a request that docward sends again: it is not sent away.
    pub(in crate::proxy) fn again(self, is_again: bool) -> Self {
        Self { retried_in: self.retried_in.filter(|_| !is_again), ..self }
    }

    /// With the read preference of a rule, if there is one.
    pub(in crate::proxy) fn with_preference(self, preference: Option<ReadPreference>) -> Self {
        match preference {
            Some(preference) => {
                let session = self.destination.as_ref().map_or(0, |destination| destination.session);
                Self { destination: Some(Destination { kind: DestinationKind::Read(preference), session }), ..self }
            }
            None => self,
        }
    }
}

impl<U: ServerSocket> Pooling<U> {
    /// The connections that a request may use.
    pub(super) fn lane(&self, need: &Need) -> Lane {
        match need.sharing {
            // A client that has not logged in continues nothing. It must not hold up the questions that precede logins.
            _ if self.login_required && self.login.is_none() => Lane::Ordinary,
            Sharing::Ordinary | Sharing::Pinned(_) => Lane::Ordinary,
            Sharing::Continuation => Lane::Continuation,
            Sharing::Awaiting => Lane::Awaiting,
        }
    }

    /// What a request needs of a connection.
    pub(in crate::proxy) fn need(&mut self, head: &RequestHead<'_>) -> Need {
        let again = self.resending.take_destination();
        let destination = self.router.as_ref().map(|_| again.unwrap_or_else(|| destination(head)));
        let place = match (&self.router, &destination) {
            (Some(router), Some(cursor @ Destination { kind: DestinationKind::Cursor(_), .. })) => {
                router.find(cursor).ok().flatten()
            }
            _ => None,
        };
        let member = place.as_ref().unwrap_or(&self.member);
        let sharing = match sharing(head, |cursor| member.is_waiting_cursor(cursor)) {
            // As at a mongos, no command holds a server. One with several replies keeps its connection until the last.
            Sharing::Pinned(_) if self.router.is_some() => Sharing::Ordinary,
            other => other,
        };
        let opens_cursor = destination.is_some() && opens_cursor(head);
        let transaction = if self.is_of_service { TransactionStep::of_request(head) } else { None };
        let retried_in = if self.retries_overload { retried_in(head) } else { None };
        let (time_limit, opens_waiting_cursor) = (time_limit(head), opens_waiting_cursor(head));
        Need { destination, sharing, retried_in, time_limit, opens_waiting_cursor, opens_cursor, transaction }
    }
}
