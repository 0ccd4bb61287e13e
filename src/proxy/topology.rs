//! Which listener stands for which member, and under which address clients reach it.
//!
//! A place is one listener's address; its number never changes, its member may: members are named, renamed, come
//! and go while docward runs. Who they are is found out in [`super::membership`], sockets are opened in
//! [`super::server`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::upstream::Address;
use crate::engine::handshake::AddressMap;

/// A member and where docward dials it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) dial: Address,
    /// What its set calls it; the dialled address until it has answered.
    pub(super) name: String,
}

/// Where a member's listener is to be, and what it is to be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// "host:port" as the set's configuration names the member; of several mongos, as the connection string does.
    pub member: String,
    pub listen: SocketAddr,
    pub advertise: Option<Advertised>,
}

/// The name in hello answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    pub host: String,
    /// The port listened on, unless it is another one outside.
    pub port: Option<u16>,
}

/// A listener's address and whom it stands for.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) listen: SocketAddr,
    pub(super) advertise: Option<Advertised>,
    /// `None`: the listener is closed, the place free.
    pub(super) member: Option<Member>,
}

/// All places. Changed by one task only, read by every session.
#[derive(Debug)]
pub(super) struct Topology {
    places: ArcSwap<Vec<Place>>,
}

/// What other members than before ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Places whose members are gone.
    pub(super) vacated: Vec<usize>,
    /// Members without a place.
    pub(super) homeless: Vec<Member>,
}

impl Member {
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// Its set has not said what it calls it.
    fn is_provisional(&self) -> bool {
        self.name == self.dial.to_string()
    }

    /// Whether `newer` is the same member, as far as can be told.
    fn is(&self, newer: &Member) -> bool {
        self.is_called(&newer.name) || self.is_provisional() && self.dial == newer.dial
    }
}

impl Topology {
    pub(super) fn new(places: Vec<Place>) -> Self {
        Self { places: ArcSwap::from_pointee(places) }
    }

    /// The member behind a place and where to dial it; `None` when it has gone.
    pub(super) fn dial(&self, place: usize) -> Option<Address> {
        self.places.load().get(place)?.member.as_ref().map(|member| member.dial.clone())
    }

    /// What the member behind a place is called; `None` when it has gone.
    pub(super) fn name(&self, place: usize) -> Option<String> {
        self.places.load().get(place)?.member.as_ref().map(|member| member.name.clone())
    }

    /// The place of the member of this name.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        let is_its = |place: &Place| place.member.as_ref().is_some_and(|member| member.is_called(name));
        self.places.load().iter().position(is_its)
    }

    /// The addresses listened on, the first member's first.
    pub(super) fn listeners(&self) -> Vec<SocketAddr> {
        let places = self.places.load();
        places.iter().filter(|place| place.member.is_some()).map(|place| place.listen).collect()
    }

    pub(super) fn places(&self) -> Arc<Vec<Place>> {
        self.places.load_full()
    }

    pub(super) fn members(&self) -> Vec<Member> {
        self.places.load().iter().filter_map(|place| place.member.clone()).collect()
    }

    /// The addresses for a client that came through a place and connected to `local`.
    pub(super) fn addresses(&self, place: usize, local: IpAddr) -> AddressMap {
        let places = self.places.load();
        let own = places.get(place).map_or_else(|| local.to_string(), |place| place.advertised(local));
        let mut map = AddressMap::new(own);
        for place in places.iter() {
            if let Some(member) = &place.member {
                map.add(member.name.clone(), place.advertised(local));
            }
        }
        map
    }

    /// The first member's address.
    pub(super) fn first_address(&self, local: IpAddr) -> String {
        let places = self.places.load();
        let first = places.iter().find(|place| place.member.is_some());
        first.map_or_else(|| "no address yet".to_owned(), |place| place.advertised(local))
    }

    /// Takes over who the members are now: those that have a place keep it, names and addresses follow.
    pub(super) fn follow(&self, members: &[Member]) -> Changes {
        let mut places = Vec::clone(&self.places.load());
        let mut changes = Changes { homeless: members.to_vec(), ..Changes::default() };
        for (index, place) in places.iter_mut().enumerate() {
            let Some(member) = &place.member else { continue };
            let now = changes.homeless.iter().position(|newer| member.is(newer));
            place.member = now.map(|now| changes.homeless.remove(now));
            if place.member.is_none() {
                changes.vacated.push(index);
            }
        }
        self.places.store(Arc::new(places));
        changes
    }

    /// Gives a member a place: a free one of this address, else another. Gives the place's number.
    pub(super) fn settle(&self, settled: Place) -> usize {
        let mut places = Vec::clone(&self.places.load());
        let free = |place: &Place| place.member.is_none() && place.listen == settled.listen;
        let index = places.iter().position(free).unwrap_or(places.len());
        match places.get_mut(index) {
            Some(place) => *place = settled,
            None => places.push(settled),
        }
        self.places.store(Arc::new(places));
        index
    }

    /// Whether a listener is open on this address.
    pub(super) fn is_taken(&self, address: SocketAddr) -> bool {
        self.places.load().iter().any(|place| place.member.is_some() && place.listen == address)
    }
}

impl Place {
    fn advertised(&self, local: IpAddr) -> String {
        match &self.advertise {
            Some(Advertised { host, port }) => {
                Address { host: host.clone(), port: port.unwrap_or(self.listen.port()) }.to_string()
            }
            None if self.listen.ip().is_unspecified() => {
                SocketAddr::new(local.to_canonical(), self.listen.port()).to_string()
            }
            None => self.listen.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, dial: &str) -> Member {
        Member { dial: Address::parse(dial).unwrap(), name: name.into() }
    }

    fn place(listen: &str, member: Option<Member>) -> Place {
        Place { listen: listen.parse().unwrap(), advertise: None, member }
    }

    #[test]
    fn what_is_advertised_is_a_name_the_address_listened_on_or_the_one_connected_to() {
        let local: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        let name = |port| Some(Advertised { host: "proxy.example.com".into(), port });
        for (advertise, ip, expected) in [
            (None, "127.0.0.1", ["127.0.0.1:1000", "127.0.0.1:1001"]),
            (None, "0.0.0.0", ["192.0.2.7:1000", "192.0.2.7:1001"]),
            (None, "[::1]", ["[::1]:1000", "[::1]:1001"]),
            (name(None), "0.0.0.0", ["proxy.example.com:1000", "proxy.example.com:1001"]),
            (name(Some(7)), "0.0.0.0", ["proxy.example.com:7", "proxy.example.com:7"]),
        ] {
            let place = |port, name| Place { advertise: advertise.clone(), ..place(&format!("{ip}:{port}"), name) };
            let topology =
                Topology::new(vec![place(1000, Some(member("a:1", "a:1"))), place(1001, Some(member("b:2", "b:2")))]);
            let mut map = AddressMap::new(expected[1].into());
            map.add("a:1".into(), expected[0].into());
            map.add("b:2".into(), expected[1].into());
            assert_eq!(topology.addresses(1, local), map);
        }
    }

    #[test]
    fn members_keep_their_places_learn_their_names_and_go() {
        let topology = Topology::new(vec![
            place("127.0.0.1:1000", Some(member("10.0.0.1:1", "10.0.0.1:1"))),
            place("127.0.0.1:1001", Some(member("B:2", "b:2"))),
        ]);
        let newer = [member("c:3", "c:3"), member("b:2", "10.0.0.2:2"), member("a:1", "10.0.0.1:1")];
        let changes = topology.follow(&newer);
        assert_eq!(changes, Changes { vacated: vec![], homeless: vec![newer[0].clone()] });
        assert_eq!(topology.members(), [newer[2].clone(), newer[1].clone()]);

        assert_eq!(topology.settle(place("127.0.0.1:1002", Some(newer[0].clone()))), 2);
        assert_eq!(topology.follow(&newer[..1]).vacated, [0, 1]);
        assert_eq!((topology.dial(0), topology.dial(2)), (None, Some(newer[0].dial.clone())));
        assert!(!topology.is_taken("127.0.0.1:1001".parse().unwrap()));
        assert_eq!(topology.settle(place("127.0.0.1:1001", Some(newer[2].clone()))), 1);
        let gone = member("10.0.0.1:1", "10.0.0.1:1");
        assert_eq!(
            topology.follow(std::slice::from_ref(&gone)).homeless,
            [gone],
            "a name is not forgotten for an address"
        );
    }
}
