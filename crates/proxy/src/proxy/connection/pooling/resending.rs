//! What a router sends again after the member that had a request was lost, or stopped being primary.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use super::need::Need;
use super::{Attachment, MAX_COLLECTED_LENGTH, Pooling};
use crate::engine::RequestHead;
use crate::engine::routing::{
    AfterLoss, Destination, DestinationKind, KilledCursors, MissingCursor, Repetition, is_to_be_repeated,
    without_state_change,
};
use crate::proxy::server_side::pool::member::Member;
use crate::proxy::server_side::pool::queue::Lane;
use crate::proxy::server_side::router::Elsewhere;
use crate::proxy::server_side::upstream::Address;
use crate::proxy::transport::socket::ServerSocket;
use crate::wire::op_msg::EXHAUST_ALLOWED;

/// How long a member must not answer its monitor until its requests are given up.
const LOST_AFTER: Duration = Duration::from_secs(2);
/// How often a request is sent again: elections can follow each other.
const MAX_REPEATS: u8 = 3;

/// The request in progress, as far as it matters after its member was lost.
pub(super) struct Resending<U: ServerSocket> {
    /// `None`: it is not sent again as a whole.
    sent: Option<SentRequest>,
    /// Where it goes when it is sent again.
    again: Option<Destination>,
    repeats: u8,
    /// The members that do not have its cursors.
    tried: Vec<Weak<Member<U>>>,
    /// Those of its cursors that members have killed.
    killed: KilledCursors,
    /// The member that [`Pooling::poll_lost`] has watched last, and the watch.
    lost: Option<(Weak<Member<U>>, Lost)>,
    /// The lane of the connection that was lost.
    lane: Option<Lane>,
}

impl<U: ServerSocket> Default for Resending<U> {
    fn default() -> Self {
        Self {
            sent: None,
            again: None,
            repeats: 0,
            tried: Vec::new(),
            killed: KilledCursors::default(),
            lost: None,
            lane: None,
        }
    }
}

impl<U: ServerSocket> Resending<U> {
    /// Where the request goes that is sent again.
    pub(super) fn take_destination(&mut self) -> Option<Destination> {
        self.again.take()
    }

    /// Does not send the request again.
    pub(super) fn forget(&mut self) {
        self.sent = None;
    }
}

/// Ready when a member is lost.
struct Lost(Pin<Box<dyn Future<Output = ()> + Send>>);

/// A request that a member has.
#[derive(Debug)]
struct SentRequest {
    /// As it came; `None`: it is not kept.
    frame: Option<Vec<u8>>,
    after_loss: AfterLoss,
    destination: Destination,
    /// Of a getMore, or the first of a killCursors.
    cursor: Option<i64>,
}

/// What happens with a reply to a router's client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::proxy) enum Examined {
    Passes,
    /// The client gets this one.
    Instead(Vec<u8>),
    /// This request is sent again.
    Again(Vec<u8>),
}

impl<U: ServerSocket> Pooling<U> {
    /// Counts that the request is sent again, if it may be.
    fn repeats(&mut self) -> bool {
        let Some(router) = self.router.as_ref().filter(|_| self.resending.repeats < MAX_REPEATS) else { return false };
        router.counters.sent_again();
        self.resending.repeats += 1;
        true
    }

    /// Whether the request in progress is sent again after its member was lost or stopped being primary.
    pub(in crate::proxy) fn is_repeating(&self) -> bool {
        self.resending.repeats > 0
    }

    /// Whether the client is one of a router, and its requests go to the members that they ask for.
    pub(in crate::proxy) fn is_routed(&self) -> bool {
        self.router.is_some() && self.is_shared()
    }

    /// Begins to count how often a request of the client is sent again.
    pub(in crate::proxy) fn begin_request(&mut self) {
        (self.resending.repeats, self.resending.lane) = (0, None);
        self.resending.tried.clear();
        self.resending.killed.clear();
    }

    /// Notes a request of a router's client, and keeps its `frame`, if that is here, unless it is large: it may have to be sent
    /// again. `sent` is its head, or that of the message that rules have made of it.
    pub(in crate::proxy) fn remember(&mut self, sent: &RequestHead<'_>, frame: Option<&[u8]>, expects_reply: bool) {
        self.unacknowledged |= !expects_reply;
        let is_noted = self.is_routed() && expects_reply && !sent.has_flags(EXHAUST_ALLOWED);
        let after_loss = is_noted.then(|| AfterLoss::of_request(sent)).flatten();
        let kept = frame.filter(|frame| sent.bytes().len().max(frame.len()) <= MAX_COLLECTED_LENGTH);
        self.resending.sent = after_loss.map(|after_loss| SentRequest {
            frame: kept.map(<[u8]>::to_vec),
            after_loss,
            cursor: match self.destination.kind {
                DestinationKind::Cursor(cursor) => Some(cursor),
                _ => None,
            },
            destination: self.destination.clone(),
        });
    }

    /// Does not send the request in progress again.
    pub(in crate::proxy) fn forget_sent(&mut self) {
        self.resending.forget();
    }

    /// Examines a reply to the request in progress. A member that stopped being primary is used again when its monitor has a
    /// newer reply of it. `is_last`: the request may be sent again, because no other is in flight.
    pub(in crate::proxy) fn examine(&mut self, reply: &[u8], is_last: bool) -> Examined {
        self.note_reply(reply);
        let sent = if is_last { self.resending.sent.take() } else { None };
        let Some(router) = self.router.as_ref().filter(|_| self.is_shared()) else { return Examined::Passes };
        if let Some(SentRequest { frame: Some(frame), cursor: Some(cursor), after_loss, .. }) = &sent
            && let Some(missing) = self.resending.killed.missing(reply)
        {
            // Another docward has opened it, or its member was primary then.
            self.resending.tried.push(Arc::downgrade(&self.member));
            match (router.look_elsewhere(*cursor, &self.resending.tried), missing) {
                (Elsewhere::Next, _) => return Examined::Again(frame.clone()),
                (Elsewhere::Unknown, MissingCursor::OfGetMore) => {
                    return Examined::Instead(after_loss.reply_without_cursor());
                }
                (Elsewhere::Unknown | Elsewhere::Nowhere, _) => {}
            }
        }
        if let Some(merged) = self.resending.killed.merged(reply) {
            return Examined::Instead(merged);
        }
        let Some(hidden) = self.without_state_change(reply) else { return Examined::Passes };
        match sent {
            Some(SentRequest { frame: Some(frame), after_loss, destination, .. })
                if is_to_be_repeated(reply, after_loss.repetition) && self.repeats() =>
            {
                self.resending.again = Some(destination);
                Examined::Again(frame)
            }
            _ => Examined::Instead(hidden),
        }
    }

    /// Chooses another member for a request whose cursor's member cannot be reached: one that `kills` may have others there,
    /// and the cursor of another may be there if it is not where it was looked for first. Returns false if there is none.
    pub(in crate::proxy) fn looks_elsewhere(&mut self, need: &Need, kills: bool) -> bool {
        if !kills && self.resending.tried.is_empty() {
            return false;
        }
        let (Some(router), Some(destination)) = (&self.router, &need.destination) else { return false };
        let DestinationKind::Cursor(cursor) = destination.kind else { return false };
        let member = router.find(destination).ok().flatten();
        self.resending.tried.extend(member.map(|member| Arc::downgrade(&member)));
        router.look_elsewhere(cursor, &self.resending.tried) == Elsewhere::Next
    }

    /// The reply with another code, if the client would take the router for a member that is no primary any more. The
    /// member is not used until its monitor has a newer reply of it.
    fn without_state_change(&self, reply: &[u8]) -> Option<Vec<u8>> {
        let router = self.router.as_ref()?;
        let is_changed = is_to_be_repeated(reply, Repetition::Safe);
        if is_changed {
            router.set_aside(&self.member);
        }
        is_changed.then(|| without_state_change(reply).unwrap_or_else(|| reply.to_vec()))
    }

    /// The request in progress, whose member was lost, and its frame if it is sent again. The connection is gone.
    pub(in crate::proxy) fn take_lost(&mut self) -> Option<(AfterLoss, Option<Vec<u8>>)> {
        let SentRequest { frame, after_loss, destination, .. } = self.resending.sent.take()?;
        self.leave_lost();
        let is_safe = after_loss.repetition == Repetition::Safe;
        let again = frame.filter(|_| is_safe && self.repeats());
        self.resending.again = again.is_some().then_some(destination);
        Some((after_loss, again))
    }

    /// Leaves a connection that is gone.
    fn leave_lost(&mut self) {
        // Whether the member or only the connection is lost, its monitor finds out.
        if let Some(router) = &self.router {
            router.recheck();
        }
        if let Attachment::Attached(checkout, _) = std::mem::replace(&mut self.attachment, Attachment::Detached) {
            self.resending.lane = Some(checkout.lane());
        }
        self.unacknowledged = false;
        self.resending.lost = None;
    }

    /// Leaves the connection of a message in progress that is gone. Returns whether a message with this repetition is sent
    /// again.
    pub(in crate::proxy) fn outlives(&mut self, repetition: Repetition) -> bool {
        self.leave_lost();
        repetition == Repetition::Safe && self.repeats()
    }

    /// Replaces replies by which the client would take the router for a member that is no primary any more. Returns whether
    /// a message with this repetition is sent again instead.
    pub(in crate::proxy) fn examine_own(&mut self, replies: &mut [Vec<u8>], repetition: Repetition) -> bool {
        let mut repeats = false;
        for reply in replies {
            if let Some(hidden) = self.without_state_change(reply) {
                repeats |= is_to_be_repeated(reply, repetition);
                *reply = hidden;
            }
        }
        repeats && self.repeats()
    }

    /// The lane of the connection that the message in progress needs, if it has none: it was lost. `None`: it has one.
    pub(in crate::proxy) fn lost_lane(&self) -> Option<Lane> {
        (!self.is_attached()).then(|| self.resending.lane.unwrap_or(Lane::Ordinary))
    }

    /// Keeps the lane of a connection that the message in progress still needs.
    pub(in crate::proxy) fn note_lane(&mut self, lane: Lane) {
        self.resending.lane = Some(lane);
    }

    /// The address of the connection in use, or of the last one.
    pub(in crate::proxy) fn address(&self) -> &Address {
        self.member.address()
    }

    /// Whether the connection in use is one to a member that is no primary any more, and the request goes to the primary.
    pub(in crate::proxy) fn is_displaced(&self) -> bool {
        let is_elsewhere = || self.router.as_ref().is_some_and(|router| !router.is_primary(&self.member));
        self.destination.kind == DestinationKind::Primary && self.is_attached() && is_elsewhere()
    }

    /// Ready when the member of the connection in use does not answer its monitor any more: clients of a router have no
    /// monitor that would notice.
    pub(in crate::proxy) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.router.is_none() || !self.is_attached() {
            return Poll::Pending;
        }
        let known = self.resending.lost.take().filter(|(member, _)| member.as_ptr() == Arc::as_ptr(&self.member));
        let (_, lost) = self.resending.lost.insert(known.unwrap_or_else(|| {
            let mut hello = self.member.hello();
            let lost = async move {
                loop {
                    _ = hello.wait_for(Option::is_none).await;
                    // One failure of its monitor's connection means nothing.
                    if timeout(LOST_AFTER, hello.wait_for(Option::is_some)).await.is_err() {
                        return;
                    }
                }
            };
            (Arc::downgrade(&self.member), Lost(Box::pin(lost)))
        }));
        lost.0.as_mut().poll(cx)
    }
}
