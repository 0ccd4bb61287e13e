//! A relay whose process is about to go: a monitor is told, others tell whether anything goes on.

use tokio::io::{AsyncRead, AsyncWrite};

use super::{Relay, pack};
use crate::engine::handshake::retirement::last_word;
use crate::engine::handshake::rewrite_reply;
use crate::proxy::policy::Policy;
use crate::proxy::retirement::Busy;

/// How a relay retires.
#[derive(Debug, Default)]
pub(super) struct Retirement {
    /// It was told to.
    begun: bool,
    /// The monitor has heard the last word; what its server says afterwards is kept from it.
    pub(super) silent: bool,
    busy: Option<Busy>,
}

impl<C, U, P> Relay<C, U, P>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: Policy,
{
    /// Has drivers choose other members, or wait for the next process.
    pub(in crate::proxy) fn retire(&mut self) {
        self.retirement.begun = true;
        if let Some(word) = self.last_word() {
            self.to_client.push(word);
            self.retirement.silent = true;
        }
        self.note_bustle(true);
    }

    /// Tells whether anything goes on, once it was told to retire; `moved`: bytes came.
    pub(super) fn note_bustle(&mut self, moved: bool) {
        if !self.retirement.begun || self.greeting.watched {
            return;
        }
        if moved {
            self.door.bustle.stir();
        }
        if self.is_idle() {
            self.retirement.busy = None;
        } else if self.retirement.busy.is_none() {
            self.retirement.busy = Some(Busy::new(&self.door.bustle));
        }
    }

    /// What a monitor hears that awaits news.
    fn last_word(&mut self) -> Option<Vec<u8>> {
        let (request_id, compressor) = self.owed.awaited_hello().filter(|_| self.greeting.watched && self.stands())?;
        let word = last_word(self.door.last_answer.get()?, request_id, self.greeting.streams)?;
        let face = self.door.face(self.local);
        let rewritten = rewrite_reply(&word, &face, &mut self.negotiation).ok()?;
        Some(pack(rewritten.unwrap_or(word).into(), compressor).into_owned())
    }
}
