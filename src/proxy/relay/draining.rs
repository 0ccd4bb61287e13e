//! Draining a relay before its process ends: a monitor gets a last hello reply, other connections report their
//! activity.

use tokio::io::{AsyncRead, AsyncWrite};

use super::{Relay, pack};
use crate::engine::handshake::draining::draining_hello;
use crate::engine::handshake::rewrite_reply;
use crate::proxy::activity::BusyGuard;
use crate::proxy::interceptor::Interceptor;

/// The progress of draining.
#[derive(Debug, Default)]
pub(super) struct DrainState {
    /// Draining has begun.
    begun: bool,
    /// The monitor has got its last hello reply; later replies of its server are not forwarded.
    pub(super) last_reply_sent: bool,
    busy: Option<BusyGuard>,
}

impl<C, U, P> Relay<C, U, P>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: Interceptor,
{
    /// Makes drivers select other members, or wait for the next process.
    pub(in crate::proxy) fn drain(&mut self) {
        self.drain_state.begun = true;
        if let Some(reply) = self.draining_hello() {
            self.to_client.push(reply);
            self.drain_state.last_reply_sent = true;
        }
        self.note_activity_of(true);
    }

    /// Reports activity while draining; `moved`: bytes arrived.
    pub(super) fn note_activity_of(&mut self, moved: bool) {
        if !self.drain_state.begun || self.handshake.watched {
            return;
        }
        if moved {
            self.listener_context.activity.note_activity();
        }
        if self.is_idle() {
            self.drain_state.busy = None;
        } else if self.drain_state.busy.is_none() {
            self.drain_state.busy = Some(BusyGuard::new(&self.listener_context.activity));
        }
    }

    /// The last hello reply for a monitor that awaits a topology change.
    fn draining_hello(&mut self) -> Option<Vec<u8>> {
        let (request_id, compressor) =
            self.pending.awaited_hello().filter(|_| self.handshake.watched && self.is_quiescent())?;
        let reply = draining_hello(self.listener_context.last_answer.get()?, request_id, self.handshake.streams)?;
        let presentation = self.listener_context.presentation(self.local);
        let rewritten = rewrite_reply(&reply, &presentation, &mut self.negotiation).ok()?;
        Some(pack(rewritten.unwrap_or(reply).into(), compressor).into_owned())
    }
}
