//! Which listener stands for which member, and under which address clients reach it.
//!
//! Members are learnt when docward starts; if nobody answers then, each address of the connection string gets
//! a listener and the members' own names are learnt as soon as they answer.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;

use super::upstream::{Address, Hello, Upstream};
use crate::engine::handshake::AddressMap;

/// Pause between two attempts to learn the members' names from servers that are down.
const LEARN_AGAIN: Duration = Duration::from_secs(2);

/// A member and where docward dials it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) dial: Address,
    /// What its set calls it; the dialled address until it has answered.
    pub(super) name: String,
}

/// Members and listeners, in the same order.
#[derive(Debug)]
pub(super) struct Topology {
    /// Host name for hello replies, if another than the address listened on.
    advertise: Option<String>,
    listeners: Vec<SocketAddr>,
    members: ArcSwap<Vec<Member>>,
}

impl Topology {
    /// `listeners[i]` stands for `members[i]`.
    pub(super) fn new(advertise: Option<String>, members: Vec<Member>, listeners: Vec<SocketAddr>) -> Self {
        Self { advertise, listeners, members: ArcSwap::from_pointee(members) }
    }

    /// The addresses listened on.
    pub(super) fn listeners(&self) -> &[SocketAddr] {
        &self.listeners
    }

    pub(super) fn dial(&self, index: usize) -> Option<Address> {
        self.members.load().get(index).map(|member| member.dial.clone())
    }

    /// The addresses for a client that came through listener `index` and connected to `local`.
    pub(super) fn addresses(&self, index: usize, local: IpAddr) -> AddressMap {
        let mut map = AddressMap::new(self.advertised(index, local));
        for (other, member) in self.members.load().iter().enumerate() {
            map.add(member.name.clone(), self.advertised(other, local));
        }
        map
    }

    fn advertised(&self, index: usize, local: IpAddr) -> String {
        let listener = self.listeners.get(index).copied().unwrap_or_else(|| SocketAddr::new(local, 0));
        match &self.advertise {
            Some(host) => Address { host: host.clone(), port: listener.port() }.to_string(),
            None if listener.ip().is_unspecified() => {
                SocketAddr::new(local.to_canonical(), listener.port()).to_string()
            }
            None => listener.to_string(),
        }
    }

    /// Asks until every member has said its name. For members that were down when docward started.
    pub(super) async fn learn_names(&self, upstream: &Upstream) {
        loop {
            let members = self.members.load_full();
            let hellos = join_all(members.iter().map(|member| upstream.hello(&member.dial))).await;
            let complete = hellos.iter().all(Result::is_ok);
            let named = members.iter().zip(hellos).map(|(member, hello)| {
                let name = hello.ok().and_then(|hello| hello.me).unwrap_or_else(|| member.name.clone());
                Member { dial: member.dial.clone(), name }
            });
            self.members.store(std::sync::Arc::new(named.collect()));
            if complete {
                return;
            }
            tokio::time::sleep(LEARN_AGAIN).await;
        }
    }
}

/// Asks the seeds who is in the set. The second value tells whether somebody answered.
pub(super) async fn discover(upstream: &Upstream) -> (Vec<Member>, bool) {
    let seeds = if upstream.direct { upstream.seeds.get(..1).unwrap_or_default() } else { &upstream.seeds };
    let hellos = join_all(seeds.iter().map(|seed| upstream.hello(seed))).await;
    let mut answers = Vec::new();
    for (seed, hello) in seeds.iter().zip(hellos) {
        match hello {
            Ok(hello) => answers.push((seed.clone(), Some(hello))),
            Err(error) => {
                tracing::warn!("upstream {seed} does not answer, going on without it: {error}");
                answers.push((seed.clone(), None));
            }
        }
    }
    let answered = answers.iter().any(|(_, hello)| hello.is_some());
    (members(&answers, upstream.direct), answered)
}

/// One member per seed, unless the seeds belong to a replica set: then its members, each dialled at the seed
/// that said to be it, else by the name the set knows it by.
fn members(answers: &[(Address, Option<Hello>)], direct: bool) -> Vec<Member> {
    let set = answers.iter().filter_map(|(_, hello)| hello.as_ref()).find(|hello| !hello.members.is_empty());
    if let (Some(set), false) = (set, direct) {
        let member = |name: &String| {
            let is_me = |hello: &Option<Hello>| hello.as_ref().is_some_and(|hello| hello.me.as_ref() == Some(name));
            let seed = answers.iter().find(|(_, hello)| is_me(hello)).map(|(seed, _)| seed.clone());
            Some(Member { dial: seed.or_else(|| Address::parse(name))?, name: name.clone() })
        };
        return set.members.iter().filter_map(member).collect();
    }
    let by_seed = answers.iter().map(|(seed, hello)| Member {
        dial: seed.clone(),
        name: hello.as_ref().and_then(|hello| hello.me.clone()).unwrap_or_else(|| seed.to_string()),
    });
    by_seed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(name: &str) -> Address {
        Address::parse(name).unwrap()
    }

    fn hello(me: &str, members: &[&str]) -> Option<Hello> {
        Some(Hello { me: Some(me.into()), members: members.iter().map(|m| (*m).to_owned()).collect() })
    }

    fn dialled(members: &[Member]) -> Vec<(String, String)> {
        members.iter().map(|member| (member.name.clone(), member.dial.to_string())).collect()
    }

    #[test]
    fn the_members_of_a_set_are_dialled_at_the_seed_that_is_them() {
        let answers = [(address("10.0.0.1:1"), hello("a:1", &["a:1", "b:2"])), (address("x:9"), None)];
        let expected = [("a:1".into(), "10.0.0.1:1".into()), ("b:2".into(), "b:2".into())];
        assert_eq!(dialled(&members(&answers, false)), expected);
        assert_eq!(dialled(&members(&answers[..1], true)), expected[..1]);
    }

    #[test]
    fn without_a_set_every_seed_is_one_member() {
        let answers = [(address("x:1"), None), (address("y:2"), Some(Hello::default()))];
        assert_eq!(dialled(&members(&answers, false)), [("x:1".into(), "x:1".into()), ("y:2".into(), "y:2".into())]);
    }

    #[test]
    fn what_is_advertised_is_a_name_the_address_listened_on_or_the_one_connected_to() {
        let member = |name: &str| Member { dial: address(name), name: name.into() };
        let members = || vec![member("a:1"), member("b:2")];
        let local: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        let listen = |ip: &str| [1000, 1001].map(|port| SocketAddr::new(ip.parse().unwrap(), port)).to_vec();
        for (advertise, ip, expected) in [
            (None, "127.0.0.1", ["127.0.0.1:1000", "127.0.0.1:1001"]),
            (None, "0.0.0.0", ["192.0.2.7:1000", "192.0.2.7:1001"]),
            (None, "::1", ["[::1]:1000", "[::1]:1001"]),
            (Some("proxy.example.com".to_owned()), "0.0.0.0", ["proxy.example.com:1000", "proxy.example.com:1001"]),
        ] {
            let topology = Topology::new(advertise, members(), listen(ip));
            let mut map = AddressMap::new(expected[1].into());
            map.add("a:1".into(), expected[0].into());
            map.add("b:2".into(), expected[1].into());
            assert_eq!(topology.addresses(1, local), map);
        }
    }
}
