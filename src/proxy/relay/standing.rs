//! A relay between two messages: what it knows, so that another process can go on with its sockets.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Greeting, Relay};
use crate::engine::Session;
use crate::engine::handshake::negotiation::Negotiation;
use crate::proxy::door::Door;
use crate::proxy::owed::OwedReplies;
use crate::proxy::policy::Policy;

/// What a relay knows between two messages, beside its sockets and its door.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::proxy) struct Standing {
    session: Session,
    negotiation: Negotiation,
    /// Replies that have not begun to come.
    owed: OwedReplies,
    heard: bool,
    greeting: Greeting,
}

impl Standing {
    /// Whether its client still has to log in.
    pub(in crate::proxy) fn must_log_in(&self) -> bool {
        self.session.must_log_in
    }
}

impl<C, U, P> Relay<C, U, P>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: Policy,
{
    /// Whether both directions are between two messages, and nothing is here that was read. Replies may be owed.
    pub(super) fn stands(&self) -> bool {
        self.judged.is_none()
            && self.unread.is_none()
            && self.requests.between_frames()
            && self.replies.between_frames()
            && self.to_client.is_empty()
            && self.to_upstream.is_empty()
    }

    /// Takes a relay that stands apart: client, upstream and what it knows.
    pub(in crate::proxy) fn into_standing(self) -> (C, U, Standing) {
        let standing = Standing {
            session: self.session,
            negotiation: self.negotiation,
            owed: self.owed,
            heard: self.activity.heard,
            greeting: self.greeting,
        };
        (self.client, self.upstream, standing)
    }

    /// Goes on where another process stood.
    pub(in crate::proxy) fn resume(
        client: C,
        upstream: U,
        door: Arc<Door<P>>,
        local: IpAddr,
        standing: Standing,
    ) -> Self {
        let session = Session { entrance: door.entrance(local), ..standing.session };
        let mut relay = Self::new(client, upstream, door, local, session);
        relay.negotiation = relay.negotiation.resumed(standing.negotiation);
        relay.owed = standing.owed;
        relay.activity.heard = standing.heard;
        relay.greeting = standing.greeting;
        relay
    }
}
