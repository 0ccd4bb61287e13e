//! A relay between two messages: what it knows, so that another process can go on with its sockets.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{HandshakeState, Relay};
use crate::engine::Session;
use crate::engine::handshake::negotiation::Negotiation;
use crate::proxy::interceptor::Interceptor;
use crate::proxy::listener::ListenerContext;
use crate::proxy::pending_replies::PendingReplies;

/// What a relay knows between two messages, beside its sockets and its listener_context.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::proxy) struct QuiescentState {
    session: Session,
    negotiation: Negotiation,
    /// Replies that have not begun to come.
    pending: PendingReplies,
    heard: bool,
    handshake: HandshakeState,
}

impl QuiescentState {
    /// Whether its client still has to log in.
    pub(in crate::proxy) fn must_log_in(&self) -> bool {
        self.session.must_log_in
    }
}

impl<C, U, P> Relay<C, U, P>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: Interceptor,
{
    /// Whether both directions are between two messages, and nothing is here that was read. Replies may be pending.
    pub(super) fn stands(&self) -> bool {
        self.evaluated.is_none()
            && self.unread.is_none()
            && self.requests.between_frames()
            && self.replies.between_frames()
            && self.to_client.is_empty()
            && self.to_upstream.is_empty()
    }

    /// Takes a relay that stands apart: client, upstream and what it knows.
    pub(in crate::proxy) fn into_quiescent(self) -> (C, U, QuiescentState) {
        let quiescent = QuiescentState {
            session: self.session,
            negotiation: self.negotiation,
            pending: self.pending,
            heard: self.activity.heard,
            handshake: self.handshake,
        };
        (self.client, self.upstream, quiescent)
    }

    /// Goes on where another process stood.
    pub(in crate::proxy) fn resume(
        client: C,
        upstream: U,
        listener_context: Arc<ListenerContext<P>>,
        local: IpAddr,
        quiescent: QuiescentState,
    ) -> Self {
        let session = Session { listener_kind: listener_context.listener_kind(local), ..quiescent.session };
        let mut relay = Self::new(client, upstream, listener_context, local, session);
        relay.negotiation = relay.negotiation.resumed(quiescent.negotiation);
        relay.pending = quiescent.pending;
        relay.activity.heard = quiescent.heard;
        relay.handshake = quiescent.handshake;
        relay
    }
}
