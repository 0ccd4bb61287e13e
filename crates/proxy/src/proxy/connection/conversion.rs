//! The conversion of one large reply to the client's compression, on another thread, within the memory budget.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::task::{JoinHandle, spawn_blocking};

use crate::proxy::connection::end::{End, UpstreamFault};
use crate::proxy::connection::packing::{pack, unpack};
use crate::proxy::connection::planner::worker_failed;
use crate::proxy::process::memory::{Memory, Reservation, share_of};
use crate::wire::WireError;
use crate::wire::compressed::Compressor;

/// A large reply, from its first bytes until the client has taken it.
#[derive(Debug)]
pub(in crate::proxy) struct Conversion {
    stage: Stage,
    /// Its share of the memory.
    pub(in crate::proxy) kept: Box<Reservation>,
    /// What the server has sent after it.
    pub(in crate::proxy) after: Vec<u8>,
}

#[derive(Debug)]
enum Stage {
    Collecting,
    /// The reply and the client's compressor, until there is room.
    Waiting(Vec<u8>, Option<Compressor>),
    Running(JoinHandle<Result<Vec<u8>, WireError>>),
    Sending,
}

impl Conversion {
    /// A reply that takes `bytes` and is not complete.
    pub(in crate::proxy) fn collecting(memory: &Arc<Memory>, bytes: usize) -> Box<Self> {
        let kept = Reservation::for_message(memory, bytes);
        Box::new(Self { stage: Stage::Collecting, kept, after: Vec::new() })
    }

    /// Converts a complete reply. `known`: what was begun while it was collected.
    pub(in crate::proxy) fn begin(
        known: Option<Box<Self>>,
        (reply, goes): (Vec<u8>, Option<Compressor>),
        after: &[u8],
        memory: &Arc<Memory>,
    ) -> Box<Self> {
        let known = known.filter(|known| matches!(known.stage, Stage::Collecting));
        let mut this = known.unwrap_or_else(|| Self::collecting(memory, share_of(&reply).unwrap_or(0)));
        this.stage = Stage::Waiting(reply, goes);
        this.after = after.to_vec();
        this
    }

    /// Whether the converted reply is still to come.
    pub(in crate::proxy) fn is_under_way(&self) -> bool {
        matches!(self.stage, Stage::Waiting(..) | Stage::Running(_))
    }

    /// The converted reply, once.
    pub(in crate::proxy) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, End>> {
        ready!(self.kept.poll_room(cx));
        if let Stage::Waiting(reply, goes) = &mut self.stage {
            let (reply, goes) = (std::mem::take(reply), *goes);
            self.stage = Stage::Running(spawn_blocking(move || Ok(pack(unpack(&reply)?.0, goes).into_owned())));
        }
        let Stage::Running(converted) = &mut self.stage else { return Poll::Pending };
        let converted = ready!(Pin::new(converted).poll(cx)).map_err(|_| worker_failed())?;
        self.stage = Stage::Sending;
        Poll::Ready(converted.map_err(|fault| UpstreamFault::from(fault).into()))
    }
}
