//! The members of a replica set as one server: which member gets a request, and the hello that clients see.
//!
//! Sessions, transactions and cursors are the server's, bound to a session and a user and not to a connection, so
//! each request of a client can go to another member. What a router has to remember is where cursors are.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use crate::engine::handshake::router::{RouterVersion, max_wire_version, router_reply};
use crate::engine::routing::{
    Destination, DestinationKind, MIN_STALENESS, ReadPreference, RoutedRole, Selectable, eligible, mongos_of,
};
use crate::proxy::server_side::pool::CheckoutError;
use crate::proxy::server_side::pool::member::{Member, MemberHello};
use crate::proxy::server_side::router_counters::RouterCounters;
use crate::proxy::transport::socket::ServerSocket;

/// How long a request waits for a member that it may go to: longer than an election, as a mongos does.
pub(in crate::proxy) const ELECTION_WAIT: Duration = Duration::from_secs(20);
/// Cursors whose members are remembered. A forgotten one is looked for at the primary first.
const MAX_CURSORS: usize = 131_072;

/// How long a server keeps a cursor that is not used, by default (manual, `cursorTimeoutMillis`).
const CURSOR_TIMEOUT: Duration = Duration::from_secs(600);

/// A member that answers.
pub(in crate::proxy) struct RoutedMember<S: ServerSocket> {
    pub(in crate::proxy) member: Arc<Member<S>>,
    pub(in crate::proxy) selectable: Selectable,
}

/// See the module.
pub(in crate::proxy) struct Router<S: ServerSocket> {
    members: watch::Sender<Arc<[RoutedMember<S>]>>,
    /// `None`: no member has answered yet.
    hello: watch::Sender<Option<MemberHello>>,
    cursors: Mutex<CursorPlaces<S>>,
    /// Members that fit equally take turns.
    turn: AtomicUsize,
    /// Wakes the monitors of members that did not answer.
    recheck: Arc<Notify>,
    pub(in crate::proxy) counters: Arc<RouterCounters>,
    version: Mutex<RouterVersion>,
    /// Hello replies that are outdated: their members have answered otherwise since, or were lost.
    outdated: Mutex<Vec<Arc<[u8]>>>,
    holders: Mutex<CursorHolders<S>>,
}

/// The members that may have a cursor whose place is not remembered.
struct CursorHolders<S: ServerSocket> {
    /// Those that answer, and those that were set aside.
    asked: Vec<Arc<Member<S>>>,
    /// Since when there are others.
    others_since: Option<Instant>,
}

/// Where a cursor is that a member does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum Elsewhere {
    /// Another member is asked next.
    Next,
    Nowhere,
    /// No member that answers has it, and there were others recently.
    Unknown,
}

/// The members of the cursors that were used last, in two generations.
struct CursorPlaces<S: ServerSocket> {
    new: HashMap<i64, Weak<Member<S>>>,
    old: HashMap<i64, Weak<Member<S>>>,
}

impl<S: ServerSocket> CursorPlaces<S> {
    fn insert(&mut self, cursor: i64, member: Weak<Member<S>>) {
        if self.new.len() >= MAX_CURSORS / 2 {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(cursor, member);
    }

    fn find(&mut self, cursor: i64) -> Option<Arc<Member<S>>> {
        if let Some(member) = self.new.get(&cursor) {
            return member.upgrade();
        }
        let member = self.old.remove(&cursor)?;
        self.insert(cursor, member.clone());
        member.upgrade()
    }
}

impl<S: ServerSocket> Router<S> {
    /// `process`: random, different for each process.
    pub(in crate::proxy) fn new(process: [u8; 12], recheck: Arc<Notify>, counters: Arc<RouterCounters>) -> Arc<Self> {
        Arc::new(Self {
            members: watch::Sender::new(Arc::from([])),
            hello: watch::Sender::new(None),
            cursors: Mutex::new(CursorPlaces { new: HashMap::new(), old: HashMap::new() }),
            turn: AtomicUsize::new(0),
            recheck,
            counters,
            version: Mutex::new(RouterVersion { process, counter: 0 }),
            outdated: Mutex::default(),
            holders: Mutex::new(CursorHolders { asked: Vec::new(), others_since: None }),
        })
    }

    /// Sets the members that answer, of `count`.
    pub(in crate::proxy) fn update(&self, mut members: Vec<RoutedMember<S>>, count: usize) {
        let asked = members.iter().map(|routed| routed.member.clone()).collect();
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let others_since = holders.others_since.unwrap_or_else(Instant::now);
        *holders = CursorHolders { asked, others_since: (members.len() < count).then_some(others_since) };
        drop(holders);
        // Held until the end: no member that is set aside meanwhile comes back.
        let mut outdated = self.outdated.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of = |reply: &Arc<[u8]>, routed: &RoutedMember<S>| {
            last_reply(&routed.member).is_some_and(|last| Arc::ptr_eq(&last, reply))
        };
        outdated.retain(|reply| members.iter().any(|routed| is_of(reply, routed)));
        members.retain(|routed| !outdated.iter().any(|reply| is_of(reply, routed)));
        let replies = members.iter().filter_map(|routed| last_reply(&routed.member));
        let replies: Vec<_> = replies.collect();
        let primary = members.iter().position(|routed| routed.selectable.role == RoutedRole::Primary);
        let shown = primary.and_then(|at| members.get(at)).or_else(|| members.first());
        let shown = shown.and_then(|routed| last_reply(&routed.member));
        let lowest = replies.iter().filter_map(|reply| max_wire_version(reply)).min();
        if let Some((shown, lowest)) = shown.zip(lowest) {
            self.show(&shown, lowest);
        }
        self.members.send_replace(members.into());
    }

    /// Shows clients the reply of a member as the router's own. Its version changes if what drivers go by has changed.
    fn show(&self, reply: &[u8], max_wire: i32) {
        let mut version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.hello.borrow().as_ref().and_then(|hello| max_wire_version(&hello.reply));
        if before.is_some_and(|before| before != max_wire) {
            version.counter += 1;
        }
        let shown = router_reply(reply, max_wire, *version);
        // The round trip to the members is no part of the way to the router.
        let shown = shown.map(|reply| MemberHello { reply: reply.into(), round_trip: Duration::ZERO });
        if shown.is_some() {
            self.hello.send_replace(shown);
        }
    }

    /// Identifies the router for clients behind a load balancer.
    pub(in crate::proxy) fn service(&self) -> [u8; 12] {
        self.version.lock().unwrap_or_else(PoisonError::into_inner).process
    }

    /// The hello that clients see, and changes of it.
    pub(in crate::proxy) fn hello(&self) -> watch::Receiver<Option<MemberHello>> {
        self.hello.subscribe()
    }

    /// The member that a request may go to now; `None`: it must wait.
    ///
    /// # Errors
    /// [`CheckoutError::Staleness`]
    pub(in crate::proxy) fn find(&self, destination: &Destination) -> Result<Option<Arc<Member<S>>>, CheckoutError> {
        let members = self.members.borrow().clone();
        let mongos = || mongos(&members, destination.session);
        Ok(match &destination.kind {
            DestinationKind::Primary => primary(&members).or_else(mongos),
            DestinationKind::Cursor(cursor) => {
                let place = self.cursors.lock().unwrap_or_else(PoisonError::into_inner).find(*cursor);
                place.or_else(|| primary(&members)).or_else(mongos)
            }
            DestinationKind::TooFresh => return Err(CheckoutError::Staleness(MIN_STALENESS)),
            // A mongos selects the member itself.
            DestinationKind::Read(preference) => mongos().or_else(|| self.find_for_read(preference, &[])),
        })
    }

    /// The member that a read may go to now, none of `without`; `None`: there is none.
    pub(in crate::proxy) fn find_for_read(
        &self,
        preference: &ReadPreference,
        without: &[Arc<Member<S>>],
    ) -> Option<Arc<Member<S>>> {
        let members = self.members.borrow().clone();
        let chosen = chosen(&members, preference, without);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let at = turn.checked_rem(chosen.len()).and_then(|at| chosen.get(at));
        at.map(|routed| routed.member.clone())
    }

    /// Whether a request may go to this member now.
    pub(in crate::proxy) fn fits(&self, destination: &Destination, member: &Arc<Member<S>>) -> bool {
        match &destination.kind {
            DestinationKind::Read(preference) => {
                let members = self.members.borrow().clone();
                match mongos(&members, destination.session) {
                    Some(found) => Arc::ptr_eq(&found, member),
                    None => chosen(&members, preference, &[]).iter().any(|one| Arc::ptr_eq(&one.member, member)),
                }
            }
            _ => self.find(destination).is_ok_and(|found| found.is_some_and(|found| Arc::ptr_eq(&found, member))),
        }
    }

    /// Waits for a member that the request may go to.
    ///
    /// # Errors
    /// [`CheckoutError::Staleness`], or [`CheckoutError::NoMember`] at the deadline.
    pub(in crate::proxy) async fn wait_for(
        &self,
        destination: &Destination,
        deadline: Instant,
    ) -> Result<Arc<Member<S>>, CheckoutError> {
        let mut changes = self.members.subscribe();
        let mut waits = None;
        loop {
            changes.mark_unchanged();
            if let Some(member) = self.find(destination)? {
                return Ok(member);
            }
            waits.get_or_insert_with(|| self.counters.wait());
            // The channel lives as long as the router.
            let _ = timeout_at(deadline, changes.changed()).await;
            if Instant::now() >= deadline {
                return Err(CheckoutError::NoMember(match destination.kind {
                    DestinationKind::Primary | DestinationKind::Cursor(_) => "no primary or mongos has answered",
                    DestinationKind::Read(_) | DestinationKind::TooFresh => "no member has fitted the read preference",
                }));
            }
        }
    }

    /// Sends nothing more to the primary until its monitor has another reply of it. What a secondary replies contradicts
    /// nothing that is known of it, and what a mongos replies is true of a shard.
    pub(in crate::proxy) fn set_aside(&self, member: &Arc<Member<S>>) {
        if !primary(&self.members.borrow()).is_some_and(|primary| Arc::ptr_eq(&primary, member)) {
            return;
        }
        let Some(reply) = last_reply(member) else { return };
        let mut outdated = self.outdated.lock().unwrap_or_else(PoisonError::into_inner);
        if !outdated.iter().any(|known| Arc::ptr_eq(known, &reply)) {
            outdated.push(reply);
        }
        self.members.send_modify(|members| {
            let others = members.iter().filter(|routed| !Arc::ptr_eq(&routed.member, member));
            *members = others.cloned().collect();
        });
        drop(outdated);
        self.recheck();
    }

    /// Has the members asked again that did not answer.
    pub(in crate::proxy) fn recheck(&self) {
        self.recheck.notify_waiters();
    }

    /// A member for logins: during an election a secondary.
    pub(in crate::proxy) fn for_login(&self) -> Option<Arc<Member<S>>> {
        let members = self.members.borrow().clone();
        primary(&members).or_else(|| members.first().map(|routed| routed.member.clone()))
    }

    /// Whether the member is the primary, or a mongos.
    pub(in crate::proxy) fn is_primary(&self, member: &Arc<Member<S>>) -> bool {
        let members = self.members.borrow();
        let found = members.iter().find(|routed| Arc::ptr_eq(&routed.member, member));
        found.is_some_and(|routed| routed.selectable.role != RoutedRole::Secondary)
    }

    /// Looks for a cursor at a member that is not among `tried`.
    pub(in crate::proxy) fn look_elsewhere(&self, cursor: i64, tried: &[Weak<Member<S>>]) -> Elsewhere {
        let holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let is_tried = |member: &&Arc<Member<S>>| tried.iter().any(|one| one.as_ptr() == Arc::as_ptr(member));
        match holders.asked.iter().find(|member| !is_tried(member)) {
            Some(next) => {
                self.note_cursor(cursor, next);
                Elsewhere::Next
            }
            None if holders.others_since.is_some_and(|since| since.elapsed() < CURSOR_TIMEOUT) => Elsewhere::Unknown,
            None => Elsewhere::Nowhere,
        }
    }

    /// The other members that may have cursors and operations.
    pub(in crate::proxy) fn others(&self, member: &Arc<Member<S>>) -> Vec<Arc<Member<S>>> {
        let holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.asked.iter().filter(|other| !Arc::ptr_eq(other, member)).cloned().collect()
    }

    /// Records where a cursor is.
    pub(in crate::proxy) fn note_cursor(&self, cursor: i64, member: &Arc<Member<S>>) {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner).insert(cursor, Arc::downgrade(member));
    }
}

/// The members that a read may go to.
fn chosen<'m, S: ServerSocket>(
    members: &'m [RoutedMember<S>],
    preference: &ReadPreference,
    without: &[Arc<Member<S>>],
) -> Vec<&'m RoutedMember<S>> {
    let is_without = |routed: &RoutedMember<S>| without.iter().any(|member| Arc::ptr_eq(member, &routed.member));
    let members: Vec<_> = members.iter().filter(|routed| !is_without(routed)).collect();
    let selectable: Vec<_> = members.iter().map(|routed| &routed.selectable).collect();
    eligible(&selectable, preference).into_iter().filter_map(|at| members.get(at).copied()).collect()
}

fn last_reply<S: ServerSocket>(member: &Member<S>) -> Option<Arc<[u8]>> {
    Some(member.hello().borrow().as_ref()?.reply.clone())
}

fn primary<S: ServerSocket>(members: &[RoutedMember<S>]) -> Option<Arc<Member<S>>> {
    let primary = members.iter().find(|routed| routed.selectable.role == RoutedRole::Primary)?;
    Some(primary.member.clone())
}

/// The mongos that has the session's requests, if the members are mongos.
fn mongos<S: ServerSocket>(members: &[RoutedMember<S>], session: u64) -> Option<Arc<Member<S>>> {
    let at = mongos_of(members.iter().map(|routed| &routed.selectable), session)?;
    members.get(at).map(|routed| routed.member.clone())
}

impl<S: ServerSocket> Clone for RoutedMember<S> {
    fn clone(&self) -> Self {
        Self { member: self.member.clone(), selectable: self.selectable.clone() }
    }
}
