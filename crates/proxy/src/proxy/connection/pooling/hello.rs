//! A client's hello that waits for a change of the member.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::engine::handshake::own_reply::ClientHello;
use crate::proxy::server_side::pool::member::MemberHello;
use crate::wire::compressed::Compressor;

/// A hello whose reply waits until the member's topology changes, or for the time that the client gives.
pub(in crate::proxy) struct AwaitedHello {
    pub(in crate::proxy) hello: ClientHello,
    /// The message that the next reply answers.
    pub(in crate::proxy) response_to: i32,
    pub(in crate::proxy) came: Option<Compressor>,
    change: Pin<Box<dyn Future<Output = Option<MemberHello>> + Send>>,
}

impl AwaitedHello {
    pub(in crate::proxy) fn new(
        hello: ClientHello,
        response_to: i32,
        came: Option<Compressor>,
        members: watch::Receiver<Option<MemberHello>>,
    ) -> Self {
        let change = Box::pin(change(hello.clone(), members));
        Self { hello, response_to, came, change }
    }

    /// Ready when the reply is due. `None`: the member does not answer.
    pub(in crate::proxy) fn poll_change(&mut self, cx: &mut Context<'_>) -> Poll<Option<MemberHello>> {
        self.change.as_mut().poll(cx)
    }
}

/// The member's hello when it has another topology version than the client knows, or when the time is over. `None`: the
/// member does not answer.
async fn change(hello: ClientHello, mut members: watch::Receiver<Option<MemberHello>>) -> Option<MemberHello> {
    let now = members.borrow().clone()?;
    let Some(max_wait_ms) = hello.max_wait_ms(&now.reply) else { return Some(now) };
    let is_news =
        |member: &Option<MemberHello>| member.as_ref().is_none_or(|member| hello.max_wait_ms(&member.reply).is_none());
    // Neither a timeout nor a closed channel matters: the current value is the reply.
    let _ = timeout(Duration::from_millis(max_wait_ms), members.wait_for(is_news)).await;
    members.borrow().clone()
}
