//! A relay whose process is about to go: a monitor is told, others tell whether anything goes on.

use tokio::io::{AsyncRead, AsyncWrite};

use super::{Relay, pack};
use crate::engine::handshake::draining::draining_hello;
use crate::engine::handshake::rewrite_reply;
use crate::proxy::activity::BusyGuard;
use crate::proxy::interceptor::Interceptor;

/// How a relay drains.
#[derive(Debug, Default)]
pub(super) struct DrainState {
    /// It was told to.
    begun: bool,
    /// The monitor has heard the last word; what its server says afterwards is kept from it.
    pub(super) silent: bool,
    busy: Option<BusyGuard>,
}

impl<C, U, P> Relay<C, U, P>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: Interceptor,
{
    /// Has drivers choose other members, or wait for the next process.
    pub(in crate::proxy) fn drain(&mut self) {
        self.drain_state.begun = true;
        if let Some(word) = self.draining_hello() {
            self.to_client.push(word);
            self.drain_state.silent = true;
        }
        self.note_activity_of(true);
    }

    /// Tells whether anything goes on, once it was told to drain; `moved`: bytes came.
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

    /// What a monitor hears that awaits news.
    fn draining_hello(&mut self) -> Option<Vec<u8>> {
        let (request_id, compressor) =
            self.pending.awaited_hello().filter(|_| self.handshake.watched && self.stands())?;
        let word = draining_hello(self.listener_context.last_answer.get()?, request_id, self.handshake.streams)?;
        let presentation = self.listener_context.presentation(self.local);
        let rewritten = rewrite_reply(&word, &presentation, &mut self.negotiation).ok()?;
        Some(pack(rewritten.unwrap_or(word).into(), compressor).into_owned())
    }
}
