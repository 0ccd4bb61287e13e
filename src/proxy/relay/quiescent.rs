//! The state of a relay between two messages, from which another process can resume its sockets.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{HandshakeState, Relay};
use crate::engine::ClientState;
use crate::engine::handshake::negotiation::Negotiation;
use crate::proxy::interceptor::Interceptor;
use crate::proxy::listener::ListenerContext;
use crate::proxy::pending_replies::PendingReplies;

/// The state of a relay between two messages, without its sockets and its listener context.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::proxy) struct QuiescentState {
    client_state: ClientState,
    negotiation: Negotiation,
    /// Replies that have not begun to arrive.
    pending: PendingReplies,
    message_received: bool,
    handshake: HandshakeState,
}

impl QuiescentState {
    /// Whether its client must still log in.
    pub(in crate::proxy) fn must_log_in(&self) -> bool {
        self.client_state.must_log_in
    }
}

impl<C, U, P> Relay<C, U, P>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: Interceptor,
{
    /// Whether both directions are between two messages and no read bytes are buffered. Replies may be pending.
    pub(super) fn is_quiescent(&self) -> bool {
        self.evaluated.is_none()
            && self.unread.is_none()
            && self.requests.between_frames()
            && self.replies.between_frames()
            && self.to_client.is_empty()
            && self.to_upstream.is_empty()
    }

    /// Splits a quiescent relay into client, upstream and state.
    pub(in crate::proxy) fn into_quiescent(self) -> (C, U, QuiescentState) {
        let quiescent = QuiescentState {
            client_state: self.client_state,
            negotiation: self.negotiation,
            pending: self.pending,
            message_received: self.activity.message_received,
            handshake: self.handshake,
        };
        (self.client, self.upstream, quiescent)
    }

    /// Resumes a relay that another process passed.
    pub(in crate::proxy) fn resume(
        client: C,
        upstream: U,
        listener_context: Arc<ListenerContext<P>>,
        local: IpAddr,
        quiescent: QuiescentState,
    ) -> Self {
        let client_state =
            ClientState { listener_kind: listener_context.listener_kind(local), ..quiescent.client_state };
        let mut relay = Self::new(client, upstream, listener_context, local, client_state);
        relay.negotiation = relay.negotiation.resumed(quiescent.negotiation);
        relay.pending = quiescent.pending;
        relay.activity.message_received = quiescent.message_received;
        relay.handshake = quiescent.handshake;
        relay
    }
}
