//! The conversion of one large reply to the client's compression, on another thread.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::task::{JoinHandle, spawn_blocking};

use crate::proxy::connection::end::{End, UpstreamFault};
use crate::proxy::connection::packing::{pack, unpack};
use crate::proxy::connection::planner::worker_failed;
use crate::wire::WireError;
use crate::wire::compressed::Compressor;

/// A reply that is being converted.
#[derive(Debug)]
pub(in crate::proxy) struct Conversion {
    converted: JoinHandle<Result<Vec<u8>, WireError>>,
    /// What the server has sent after it.
    pub(in crate::proxy) after: Vec<u8>,
}

impl Conversion {
    pub(in crate::proxy) fn start(reply: Vec<u8>, goes: Option<Compressor>, after: &[u8]) -> Self {
        let converted = spawn_blocking(move || Ok(pack(unpack(&reply)?.0, goes).into_owned()));
        Self { converted, after: after.to_vec() }
    }

    /// The converted reply.
    pub(in crate::proxy) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, End>> {
        let converted = ready!(Pin::new(&mut self.converted).poll(cx)).map_err(|_| worker_failed())?;
        Poll::Ready(converted.map_err(|fault| UpstreamFault::from(fault).into()))
    }
}
