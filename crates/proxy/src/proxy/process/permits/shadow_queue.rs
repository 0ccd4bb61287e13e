//! What a limit would do to the commands of a rule in shadow mode. They are sent at once. Here each takes the place in
//! time that it would have: it waits for its turn, takes its statements from the rate, and holds its permit for as long
//! as the real command took, also after that has ended. Like `queue.rs` it reads no clock: each call first works out
//! what would have happened since the last one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use super::queue::{Limit, PermitLimits};

/// Most commands that wait at a time: they outlast the real ones, so nothing else bounds their memory. With enforcement
/// each would keep a connection.
const MAX_WAITING: usize = 10_000;

/// The commands of one limit.
#[derive(Debug)]
pub(super) struct ShadowQueue {
    limit: Limit,
    /// Until when it is worked out.
    now: Duration,
    numbers: u64,
    /// Commands whose real one is in progress: their tickets must not name others.
    in_progress: usize,
    waiting: VecDeque<ShadowCommand>,
    /// When those whose real command is in progress got their permits.
    granted: HashMap<u64, Duration>,
    /// When the others return theirs.
    returns: BinaryHeap<Reverse<Duration>>,
    rejected: u64,
}

/// A command that would wait.
#[derive(Debug)]
struct ShadowCommand {
    number: u64,
    statements: u32,
    since: Duration,
    until: Duration,
    /// How long the real command took, if it has ended.
    took: Option<Duration>,
}

/// Identifies a command whose real one is in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShadowTicket {
    number: u64,
    since: Duration,
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ShadowEvent {
    Return,
    Grant,
    Rejection,
}

impl ShadowQueue {
    pub(super) fn new(limits: PermitLimits) -> Self {
        Self {
            limit: Limit::new(limits),
            now: Duration::ZERO,
            numbers: 0,
            in_progress: 0,
            waiting: VecDeque::new(),
            granted: HashMap::new(),
            returns: BinaryHeap::new(),
            rejected: 0,
        }
    }

    /// Adds a command that may wait so long. Returns its ticket, and whether it would wait.
    pub(super) fn arrive(
        &mut self,
        limits: PermitLimits,
        statements: u32,
        wait: Duration,
        now: Duration,
    ) -> (ShadowTicket, bool) {
        self.advance(now);
        self.limit.limits = limits;
        self.numbers += 1;
        self.in_progress += 1;
        let number = self.numbers;
        if self.waiting.len() < MAX_WAITING {
            let until = now.saturating_add(wait);
            self.waiting.push_back(ShadowCommand { number, statements, since: now, until, took: None });
            self.advance(now);
        } else {
            self.rejected += 1;
        }
        (ShadowTicket { number, since: now }, !self.granted.contains_key(&number))
    }

    /// The real command has ended.
    pub(super) fn end(&mut self, ticket: ShadowTicket, now: Duration) {
        self.in_progress = self.in_progress.saturating_sub(1);
        let took = now.saturating_sub(ticket.since);
        if let Some(granted) = self.granted.remove(&ticket.number) {
            self.returns.push(Reverse(granted + took));
        } else if let Ok(position) = self.waiting.binary_search_by_key(&ticket.number, |one| one.number) {
            self.waiting.get_mut(position).into_iter().for_each(|one| one.took = Some(took));
        }
        self.advance(now);
    }

    /// Works out what would have happened until now.
    pub(super) fn advance(&mut self, now: Duration) {
        while let Some((at, event)) = self.next_event().filter(|(at, _)| *at <= now) {
            self.now = self.now.max(at);
            match event {
                ShadowEvent::Return => {
                    self.returns.pop();
                    self.limit.release();
                }
                ShadowEvent::Rejection => {
                    self.waiting.pop_front();
                    self.rejected += 1;
                }
                ShadowEvent::Grant => {
                    let Some(first) = self.waiting.pop_front() else { continue };
                    self.limit.hold(first.statements, self.now);
                    match first.took {
                        Some(took) => self.returns.push(Reverse(self.now + took)),
                        None => _ = self.granted.insert(first.number, self.now),
                    }
                }
            }
        }
        self.now = self.now.max(now);
    }

    fn next_event(&self) -> Option<(Duration, ShadowEvent)> {
        let first = self.waiting.front();
        let returns = self.returns.peek().map(|Reverse(at)| (*at, ShadowEvent::Return));
        let grant = first.filter(|_| self.limit.has_permit());
        let grant = grant.map(|_| (self.limit.allowed_at().unwrap_or_default().max(self.now), ShadowEvent::Grant));
        let rejection = first.map(|first| (first.until, ShadowEvent::Rejection));
        [returns, grant, rejection].into_iter().flatten().min()
    }

    /// The number of commands that would have been rejected since the last call.
    pub(super) fn take_rejected(&mut self) -> u64 {
        std::mem::take(&mut self.rejected)
    }

    pub(super) fn held(&self) -> u32 {
        self.limit.held()
    }

    /// The number of commands that would wait, and since when the first of them.
    pub(super) fn waiting(&self) -> (usize, Option<Duration>) {
        (self.waiting.len(), self.waiting.front().map(|first| first.since))
    }

    /// Whether a new queue would do the same.
    pub(super) fn is_unused(&self) -> bool {
        self.in_progress == 0 && self.waiting.is_empty() && self.limit.is_unused(self.now)
    }
}

#[cfg(test)]
mod tests;
