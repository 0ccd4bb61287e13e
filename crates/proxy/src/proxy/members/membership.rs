//! Derives the members, and which of them may answer queries, from the last hello result of every server.
//!
//! It keeps only the last result of each server. An outdated view loses against any newer one, and is used only if no
//! newer view is available. It opens no sockets; [`crate::proxy::members::monitor`] asks the servers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::document::Document;
use crate::engine::routing::{RoutedRole, Selectable};
use crate::fnv::hash_of;
use crate::proxy::members::monitor::{HEARTBEAT, HelloResult, ask_once};
use crate::proxy::members::status::MemberStatus;
use crate::proxy::members::topology::MemberAddress;
use crate::proxy::server_side::hello::{Hello, Role};
use crate::proxy::server_side::upstream::{Address, Upstream};
use crate::service::set_name::other_set;
use crate::wire::op_msg::Message;

/// Margin by which a secondary must be fresher than required before queries are routed to it again. Servers report
/// their last write in whole seconds, so the estimate fluctuates; without a margin connections would move each time.
const RETURN_MARGIN: Duration = Duration::from_secs(2);

/// How long a primary of an older election is not used. It steps down itself when it has not reached a majority for its
/// election timeout (by default ten seconds). Without a limit, a replica set that was initiated again would have no primary.
const OUTDATED_FOR: Duration = Duration::from_secs(60);

/// The last hello result of every server.
#[derive(Debug)]
pub(in crate::proxy) struct Membership {
    upstream: Arc<Upstream>,
    seen: HashMap<Address, HelloResult>,
    /// A replica set has been seen. From then on a server that reports no set is not the whole deployment.
    is_set: bool,
    /// The newest election of a primary, and when it was seen last.
    elected: Option<([u8; 12], Instant)>,
}

impl Membership {
    /// Asks every server of the connection string.
    pub(in crate::proxy) async fn discover(upstream: Arc<Upstream>) -> Self {
        let mut this = Self::new(upstream);
        let asked = this.seeds().iter().map(|seed| ask_once(&this.upstream, seed));
        for hello_result in join_all(asked).await {
            this.record(hello_result);
        }
        this
    }

    fn new(upstream: Arc<Upstream>) -> Self {
        Self { upstream, seen: HashMap::new(), is_set: false, elected: None }
    }

    pub(in crate::proxy) fn record(&mut self, mut hello_result: HelloResult) {
        if let Some(other) = self.other_set(&hello_result) {
            let is_new = self.seen.get(&hello_result.address).is_none_or(|before| before.failure != other);
            if is_new {
                tracing::error!(member = %hello_result.address, "the member is not used: {other}");
            }
            hello_result.hello = None;
            hello_result.failure = other;
            self.seen.insert(hello_result.address.clone(), hello_result);
            return;
        }
        let replies = hello_result.hello.is_some();
        if let Some(election) =
            hello_result.hello.as_ref().filter(|hello| hello.role == Role::Primary).and_then(|hello| hello.election)
            && !self.is_outdated(election, hello_result.at)
        {
            self.elected = Some((election, hello_result.at));
        }
        self.is_set |= hello_result.hello.as_ref().is_some_and(|hello| !hello.members.is_empty());
        let (address, failure) = (hello_result.address.clone(), hello_result.failure.clone());
        let before = self.seen.insert(address.clone(), hello_result);
        match before.map(|before| before.hello.is_some()) {
            None | Some(true) if !replies => tracing::warn!(member = %address, "member does not reply: {failure}"),
            Some(false) if replies => tracing::info!(member = %address, "member replies again"),
            _ => {}
        }
    }

    /// Describes a server of another replica set than the connection string names. Drivers do not use such a server either
    /// (server discovery and monitoring specification, "Verifying setName with TopologyType ReplicaSetWithPrimary").
    fn other_set(&self, hello_result: &HelloResult) -> Option<String> {
        let (wanted, hello) = (self.upstream.replica_set.as_deref()?, hello_result.hello.as_ref()?);
        other_set(wanted, &hello_result.address.to_string(), hello.set.as_deref())
    }

    /// The members; one per seed unless the seeds belong to a replica set. `None`: unknown, because no server has
    /// answered.
    pub(in crate::proxy) fn members(&self) -> Option<Vec<MemberAddress>> {
        match self.newest() {
            Some(_) if self.upstream.direct => Some(self.by_seed()),
            Some(newest) => Some(newest.members.iter().filter_map(|name| self.member(name)).collect()),
            None if self.is_set => None,
            None => self.seeds().iter().any(|seed| self.hello(seed).is_some()).then(|| self.by_seed()),
        }
    }

    /// One member per seed, with its name if known.
    pub(in crate::proxy) fn by_seed(&self) -> Vec<MemberAddress> {
        let member = |seed: &Address| {
            let name = self.hello(seed).and_then(|hello| hello.me.clone());
            MemberAddress { address: seed.clone(), name: name.unwrap_or_else(|| seed.to_string()) }
        };
        self.seeds().iter().map(member).collect()
    }

    /// The addresses to monitor: the members, and seeds that are not members.
    pub(in crate::proxy) fn monitored_addresses(&self, members: &[MemberAddress]) -> Vec<Address> {
        let mut addresses: Vec<Address> = members.iter().map(|member| member.address.clone()).collect();
        let others: Vec<Address> = self.seeds().iter().filter(|seed| !addresses.contains(seed)).cloned().collect();
        addresses.extend(others);
        addresses
    }

    /// The servers that may answer queries: the secondaries that are fresh enough, otherwise the primary; without a
    /// replica set, all servers. A secondary that is not in `now`, the current selection, must be fresher by
    /// [`RETURN_MARGIN`].
    pub(in crate::proxy) fn for_queries(
        &self,
        members: &[MemberAddress],
        max_staleness: Option<Duration>,
        now: &[Address],
    ) -> Vec<Address> {
        let answering: Vec<(&MemberAddress, &HelloResult, &Hello)> = members
            .iter()
            .filter_map(|member| self.seen.get(&member.address).map(|hello_result| (member, hello_result)))
            .filter_map(|(member, hello_result)| Some((member, hello_result, hello_result.hello.as_ref()?)))
            .collect();
        let of_role = |role: Role| answering.iter().filter(move |(.., hello)| hello.role == role);
        let dials = |found: Vec<&(&MemberAddress, &HelloResult, &Hello)>| {
            found.iter().map(|found| found.0.address.clone()).collect()
        };
        let primary = of_role(Role::Primary).max_by_key(|(.., hello)| hello.rank());
        let newest = of_role(Role::Secondary).filter_map(|(.., hello)| hello.last_write).max();
        let fresh: Vec<_> = of_role(Role::Secondary)
            .filter(|(member, hello_result, hello)| {
                let staleness = staleness(
                    (hello_result, hello),
                    primary.map(|(_, hello_result, hello)| (*hello_result, *hello)),
                    newest,
                );
                let margin = if now.contains(&member.address) { Duration::ZERO } else { RETURN_MARGIN };
                max_staleness.is_none_or(|allowed| staleness.is_some_and(|staleness| staleness + margin <= allowed))
            })
            .collect();
        if !fresh.is_empty() {
            return dials(fresh);
        }
        let others = of_role(Role::Standalone).collect::<Vec<_>>();
        dials(primary.map_or(others, |primary| vec![primary]))
    }

    /// Whether a newer election than this one was seen shortly before: its primary has not stepped down yet.
    fn is_outdated(&self, election: [u8; 12], at: Instant) -> bool {
        self.elected.is_some_and(|(newest, seen)| election < newest && at < seen + OUTDATED_FOR)
    }

    /// The members that answer, as a router selects among them. Of several that call themselves primary, the newest counts,
    /// and none that is older than one seen shortly before.
    pub(in crate::proxy) fn selectable(&self, members: &[MemberAddress]) -> Vec<(Address, Selectable)> {
        let answering = |member: &MemberAddress| {
            let hello_result = self.seen.get(&member.address)?;
            Some((member.address.clone(), hello_result, hello_result.hello.as_ref()?))
        };
        let answering: Vec<_> = members.iter().filter_map(answering).collect();
        let is_newest = |(_, hello_result, hello): &&(Address, &HelloResult, &Hello)| {
            hello.election.is_none_or(|election| !self.is_outdated(election, hello_result.at))
        };
        let primaries = answering.iter().filter(|(.., hello)| hello.role == Role::Primary).filter(is_newest);
        let primary = primaries.max_by_key(|(.., hello)| hello.rank());
        let newest = answering.iter().filter_map(|(.., hello)| hello.last_write).max();
        let of = |(address, hello_result, hello): &(Address, &HelloResult, &Hello)| {
            let role = match hello.role {
                Role::Primary if primary.is_some_and(|(first, ..)| first == address) => RoutedRole::Primary,
                // A member that was restarted without its set.
                Role::Standalone if self.is_set && !self.upstream.direct => return None,
                Role::Standalone => RoutedRole::Mongos(hash_of(address.to_string().as_bytes())),
                Role::Secondary => RoutedRole::Secondary,
                Role::Primary | Role::Other => return None,
            };
            let primary = primary.map(|(_, hello_result, hello)| (*hello_result, *hello));
            let message = Message::parse(&hello.reply).ok();
            let body = message.and_then(|message| Document::parse(message.body).ok());
            let selectable = Selectable {
                role,
                tags: body.map(Selectable::tags_of).unwrap_or_default(),
                staleness: staleness((hello_result, hello), primary, newest),
                round_trip: hello_result.round_trip,
            };
            Some((address.clone(), selectable))
        };
        answering.iter().filter_map(of).collect()
    }

    /// Whether a server answered the last hello.
    pub(in crate::proxy) fn answers(&self, address: &Address) -> bool {
        self.hello(address).is_some()
    }

    /// The status of a member, for people; the caller adds its listener.
    pub(in crate::proxy) fn status(&self, member: &MemberAddress) -> MemberStatus {
        let hello_result = self.seen.get(&member.address);
        let hello = hello_result.and_then(|hello_result| hello_result.hello.as_ref());
        let no_reply =
            || hello_result.map_or_else(|| "it has not been asked yet".to_owned(), |seen| seen.failure.clone());
        MemberStatus {
            name: member.name.clone(),
            address: member.address.to_string(),
            role: hello.map(|hello| hello.role.as_str()),
            up: hello.is_some(),
            error: hello.map_or_else(no_reply, |_| String::new()),
            listener: None,
            advertised: None,
            connections: 0,
            lag: self.lag(member),
        }
    }

    /// How far a member is behind the primary, in milliseconds; `None` if neither is known.
    fn lag(&self, member: &MemberAddress) -> Option<u64> {
        let answering = |hello_result: &HelloResult, role: Role| {
            hello_result.hello.as_ref().is_some_and(|hello| hello.role == role)
        };
        if self.seen.get(&member.address).is_some_and(|seen| answering(seen, Role::Primary)) {
            return Some(0);
        }
        let secondary = self.seen.get(&member.address).filter(|seen| answering(seen, Role::Secondary))?;
        let primaries = self.seen.values().filter(|seen| answering(seen, Role::Primary));
        let primary = primaries.max_by_key(|seen| seen.hello.as_ref().map(Hello::rank))?;
        let lag = lag((secondary, secondary.hello.as_ref()?), Some((primary, primary.hello.as_ref()?)), None)?;
        u64::try_from(lag.as_millis()).ok()
    }

    /// The last hello reply of a server, if it answered.
    pub(in crate::proxy) fn last_reply(&self, address: &Address) -> Option<Arc<[u8]>> {
        self.hello(address).map(|hello| hello.reply.clone())
    }

    /// The newest view of the set.
    fn newest(&self) -> Option<&Hello> {
        let hellos = self.seen.values().filter_map(|hello_result| hello_result.hello.as_ref());
        hellos.filter(|hello| !hello.members.is_empty()).max_by_key(|hello| hello.rank())
    }

    /// A member with the address of the seed that reports this name, otherwise with the name as its address.
    fn member(&self, name: &str) -> Option<MemberAddress> {
        let is_it = |seed: &&Address| {
            let me = self.hello(seed).and_then(|hello| hello.me.as_deref());
            me.is_some_and(|me| me.eq_ignore_ascii_case(name))
        };
        let address = self.seeds().iter().find(is_it).cloned().or_else(|| Address::parse(name))?;
        Some(MemberAddress { address, name: name.to_owned() })
    }

    fn seeds(&self) -> &[Address] {
        let seeds = &self.upstream.seeds;
        if self.upstream.direct { seeds.get(..1).unwrap_or_default() } else { seeds }
    }

    fn hello(&self, address: &Address) -> Option<&Hello> {
        self.seen.get(address)?.hello.as_ref()
    }
}

/// A secondary's staleness as estimated by the driver specification "Max Staleness"; `None` if it does not report its
/// last write. `newest` is the latest write of any secondary.
fn staleness(
    secondary: (&HelloResult, &Hello),
    primary: Option<(&HelloResult, &Hello)>,
    newest: Option<i64>,
) -> Option<Duration> {
    lag(secondary, primary, newest).map(|lag| lag + HEARTBEAT)
}

/// How far a secondary was behind when both were asked last.
fn lag(
    secondary: (&HelloResult, &Hello),
    primary: Option<(&HelloResult, &Hello)>,
    newest: Option<i64>,
) -> Option<Duration> {
    let (hello_result, hello) = secondary;
    let last_write = hello.last_write?;
    let milliseconds = match primary.and_then(|(hello_result, hello)| Some((hello_result, hello.last_write?))) {
        Some((primary, primary_write)) => {
            let later = hello_result.at.saturating_duration_since(primary.at).as_millis() as i64;
            let earlier = primary.at.saturating_duration_since(hello_result.at).as_millis() as i64;
            later.saturating_sub(earlier).saturating_add(primary_write.saturating_sub(last_write))
        }
        None => newest?.saturating_sub(last_write),
    };
    Some(Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(name: &str) -> Address {
        Address::parse(name).unwrap()
    }

    fn hello(me: &str, members: &[&str]) -> Hello {
        let members = members.iter().map(|member| (*member).to_owned()).collect();
        Hello { me: Some(me.into()), members, role: Role::Secondary, ..Hello::default() }
    }

    fn membership(seeds: &[&str], direct: bool, replies: &[(&str, Option<Hello>)]) -> Membership {
        let upstream = Upstream::plain(seeds.iter().map(|seed| address(seed)).collect(), direct);
        let mut membership = Membership::new(Arc::new(upstream));
        for (from, hello) in replies {
            membership.record(HelloResult {
                address: address(from),
                hello: hello.clone(),
                round_trip: Duration::ZERO,
                failure: String::new(),
                at: Instant::now(),
            });
        }
        membership
    }

    fn dialled(members: Option<Vec<MemberAddress>>) -> Vec<(String, String)> {
        members.unwrap().into_iter().map(|member| (member.name, member.address.to_string())).collect()
    }

    #[test]
    fn the_members_of_a_set_are_dialled_at_the_seed_that_is_them() {
        let replies = [("10.0.0.1:1", Some(hello("a:1", &["a:1", "b:2"]))), ("x:9", None)];
        let expected = [("a:1".into(), "10.0.0.1:1".into()), ("b:2".into(), "b:2".into())];
        assert_eq!(dialled(membership(&["10.0.0.1:1", "x:9"], false, &replies).members()), expected);
        assert_eq!(dialled(membership(&["10.0.0.1:1"], true, &replies[..1]).members()), expected[..1]);
    }

    #[test]
    fn a_router_uses_no_primary_that_is_older_than_one_seen_before() {
        let primary =
            |me: &str, term| Hello { role: Role::Primary, election: Some([term; 12]), ..hello(me, &["a:1", "b:2"]) };
        let used = |replies: &[(&str, Option<Hello>)]| {
            let membership = membership(&["a:1", "b:2"], false, replies);
            let members = membership.members().unwrap();
            let selectable = membership.selectable(&members).into_iter();
            let primaries = selectable.filter(|(_, selectable)| selectable.role == RoutedRole::Primary);
            primaries.map(|(address, _)| address.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(used(&[("a:1", Some(primary("a:1", 1)))]), ["a:1"]);
        assert_eq!(used(&[("a:1", Some(primary("a:1", 1))), ("b:2", Some(primary("b:2", 2)))]), ["b:2"]);
        // The newer one does not answer for a moment.
        let replies = [("b:2", Some(primary("b:2", 2))), ("a:1", Some(primary("a:1", 1))), ("b:2", None)];
        assert!(used(&replies).is_empty());
        assert_eq!(used(&[&replies[..], &[("a:1", Some(primary("a:1", 3)))]].concat()), ["a:1"]);
        // A member that was restarted without its set.
        let alone = Hello { role: Role::Standalone, ..Hello::default() };
        let membership = membership(&["a:1", "b:2"], false, &[("a:1", Some(primary("a:1", 1))), ("b:2", Some(alone))]);
        let selectable = membership.selectable(&membership.members().unwrap());
        let roles: Vec<_> = selectable.iter().map(|(_, selectable)| selectable.role).collect();
        assert_eq!(roles, [RoutedRole::Primary]);
    }

    #[test]
    fn a_server_of_another_set_is_not_used() {
        let mut upstream = Upstream::plain(vec![address("a:1")], false);
        upstream.replica_set = Some("rs".to_owned());
        let mut membership = Membership::new(Arc::new(upstream));
        let mut members_with = |set: Option<&str>| {
            let hello = Hello { set: set.map(str::to_owned), ..hello("a:1", &["a:1"]) };
            membership.record(HelloResult {
                address: address("a:1"),
                hello: Some(hello),
                round_trip: Duration::ZERO,
                failure: String::new(),
                at: Instant::now(),
            });
            membership.members().map(|members| members.len())
        };
        assert_eq!(members_with(Some("other")), None);
        assert_eq!(members_with(None), None);
        assert_eq!(members_with(Some("rs")), Some(1));
        assert_eq!(members_with(Some("other")), None);
    }

    #[test]
    fn without_a_set_every_seed_is_one_member() {
        let standalone = Hello { role: Role::Standalone, ..Hello::default() };
        let seeds = [("x:1".into(), "x:1".into()), ("y:2".into(), "y:2".into())];
        assert_eq!(
            dialled(membership(&["x:1", "y:2"], false, &[("x:1", None), ("y:2", Some(standalone))]).members()),
            seeds
        );
    }

    #[test]
    fn members_are_unknown_rather_than_forgotten_without_answers() {
        let mut membership = membership(&["a:1"], false, &[("a:1", Some(hello("a:1", &["a:1", "b:2"])))]);
        for hello in [None, Some(Hello::default())] {
            membership.record(HelloResult {
                address: address("a:1"),
                hello,
                round_trip: Duration::ZERO,
                failure: String::new(),
                at: Instant::now(),
            });
            assert_eq!(membership.members(), None);
        }
    }

    #[test]
    fn the_newest_view_counts() {
        let version = |hello: Hello, set_version, election: Option<u8>| Hello {
            set_version,
            election: election.map(|term| [term; 12]),
            role: if election.is_some() { Role::Primary } else { Role::Secondary },
            ..hello
        };
        let stopped = version(hello("a:1", &["a:1", "b:1"]), 9, Some(1));
        let elected = version(hello("b:1", &["b:1", "c:1"]), 8, Some(2));
        let outdated = version(hello("c:1", &["a:1", "c:1"]), 7, None);
        let ahead = version(hello("c:1", &["c:1"]), 10, None);
        for (replies, expected) in [
            (vec![("a:1", Some(stopped.clone())), ("c:1", Some(outdated.clone()))], "a:1 b:1"),
            (vec![("a:1", Some(stopped.clone())), ("b:1", Some(elected.clone()))], "b:1 c:1"),
            (vec![("c:1", Some(outdated)), ("d:1", Some(ahead))], "c:1"),
        ] {
            let members = membership(&["a:1"], false, &replies).members().unwrap();
            assert_eq!(members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(" "), expected);
        }
    }

    #[test]
    fn queries_go_to_secondaries_that_are_fresh_enough() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let member = |name: &str| MemberAddress { address: address(name), name: name.into() };
        let members = ["p:1", "s:1", "t:1"].map(member);
        let check_from = |now: &[Address], replies: &[(&str, Role, i64, u64)], allowed: Option<u64>, expected: &str| {
            let mut membership = membership(&["p:1"], false, &[]);
            for (name, role, last_write, after) in replies {
                let hello = Hello { role: *role, last_write: Some(last_write * 1000), ..hello(name, &["p:1"]) };
                membership.record(HelloResult {
                    address: address(name),
                    hello: Some(hello),
                    round_trip: Duration::ZERO,
                    failure: String::new(),
                    at: start + seconds(*after),
                });
            }
            let chosen = membership.for_queries(&members, allowed.map(seconds), now);
            let chosen: Vec<_> = chosen.iter().map(|address| address.host.as_str()).collect();
            assert_eq!(chosen.join(" "), expected, "{replies:?}");
        };
        let all = members.each_ref().map(|member| member.address.clone());
        let check = |replies: &[_], allowed, expected: &str| check_from(&all, replies, allowed, expected);
        let (primary, secondary) = (Role::Primary, Role::Secondary);
        check(&[("p:1", primary, 100, 0), ("s:1", secondary, 100, 0), ("t:1", secondary, 0, 0)], Some(90), "s");
        check(&[("p:1", primary, 100, 0), ("s:1", secondary, 100, 0), ("t:1", secondary, 0, 0)], None, "s t");
        check(&[("p:1", primary, 100, 0), ("s:1", secondary, 0, 0)], Some(90), "p");
        // A later reply may show a write that is older by as much.
        check(&[("p:1", primary, 100, 0), ("s:1", secondary, 12, 0)], Some(90), "s");
        check(&[("p:1", primary, 100, 0), ("s:1", secondary, 12, 1)], Some(90), "p");
        check(&[("s:1", secondary, 100, 0), ("t:1", secondary, 0, 0)], Some(90), "s");
        check(&[("p:1", Role::Standalone, 0, 0)], Some(90), "p");
        check(&[("s:1", Role::Other, 100, 0)], Some(90), "");
        // A removed server returns only when it is fresher than it had to be to stay.
        for (last_write, expected) in [(13, "p"), (14, "s")] {
            check_from(&[], &[("p:1", primary, 100, 0), ("s:1", secondary, last_write, 0)], Some(90), expected);
        }
    }
}
