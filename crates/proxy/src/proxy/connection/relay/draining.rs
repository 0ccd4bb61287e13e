//! Draining a relay before its process ends: a monitor gets a last hello reply, other connections report their
//! activity.

use std::time::Duration;

use super::Relay;
use crate::engine::Retried;
use crate::engine::handshake::HelloReply;
use crate::engine::handshake::draining::draining_hello;
use crate::proxy::connection::drain_state::Age;
use crate::proxy::connection::packing::pack;
use crate::proxy::interceptor::Interceptor;
use crate::proxy::shutdown::activity::{self, BusyGuard};
use crate::proxy::transport::socket::{ClientSocket, ServerSocket};

impl<C, U, P> Relay<C, U, P>
where
    C: ClientSocket,
    U: ServerSocket,
    P: Interceptor,
{
    /// Whether a transaction would be aborted if the client's connection ended.
    pub(in crate::proxy) fn holds_transaction(&self) -> bool {
        self.pooling.as_ref().is_some_and(|pooling| pooling.holds_transaction())
    }

    /// Makes drivers select other members, or wait for the next process.
    pub(in crate::proxy) fn drain(&mut self) {
        self.drain_state.begun = true;
        self.send_draining_hello();
        self.note_activity_of(true);
    }

    /// The drain was that of another process. The driver of a monitor opens new connections when the monitor's closes,
    /// and closes those to the other process.
    pub(in crate::proxy) fn resume(&mut self) {
        (self.drain_state.begun, self.drain_state.busy) = (false, None);
        if self.drain_state.last_reply_sent {
            self.drain_state.closes = Some(Retried::Always);
        }
    }

    /// Continues the end of a connection that has reached its maximum `lifetime`, and returns the time until the next
    /// call. The driver of a monitor opens new connections when the monitor's closes. Other connections are still
    /// open after another lifetime if their driver has no such monitor.
    pub(in crate::proxy) fn expire(&mut self, lifetime: Duration) -> Option<Duration> {
        if self.drain_state.age == Age::Old {
            self.drain_state.age = Age::Expired;
            self.drain_state.closes = Some(Retried::Always);
            return None;
        }
        self.drain_state.age = Age::Old;
        self.send_draining_hello();
        // Meanwhile the driver begins no operation, and sends those that wait for a connection.
        Some(if self.client.handshake.watched { activity::TIMEOUT } else { lifetime })
    }

    fn send_draining_hello(&mut self) {
        if let Some(reply) = self.draining_hello() {
            self.client.out.push(reply);
            self.drain_state.last_reply_sent = true;
        }
    }

    /// Reports activity while draining; `moved`: bytes arrived.
    pub(super) fn note_activity_of(&mut self, moved: bool) {
        if !self.drain_state.begun || self.client.handshake.watched {
            return;
        }
        if moved {
            self.listener_context.process.activity.note_activity();
        }
        if self.is_idle() && !self.holds_transaction() {
            self.drain_state.busy = None;
        } else if self.drain_state.busy.is_none() {
            self.drain_state.busy = Some(BusyGuard::new(&self.listener_context.process.activity));
        }
    }

    /// The last hello reply for a monitor that awaits a topology change.
    fn draining_hello(&mut self) -> Option<Vec<u8>> {
        let (request_id, compressor) =
            self.pending.awaited_hello().filter(|_| self.client.handshake.watched && self.is_quiescent())?;
        let reply = draining_hello(&self.listener_context.last_reply()?, request_id, self.client.handshake.streams)?;
        let presentation = self.listener_context.presentation(self.client.local);
        let rewritten = HelloReply::parse(&reply).ok()?.rewrite(&presentation, &mut self.negotiation);
        Some(pack(rewritten.unwrap_or(reply).into(), compressor).into_owned())
    }
}
