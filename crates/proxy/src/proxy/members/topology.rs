//! Maps listeners to members, and defines the addresses under which clients reach them.
//!
//! A slot is the address of one listener. Its index never changes, but its member may: members are named, renamed,
//! added and removed while docward runs. [`crate::proxy::members::membership`] finds the members, [`crate::proxy::listening::listeners`] opens the
//! sockets.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::engine::handshake::AddressMap;
use crate::proxy::server_side::upstream::Address;

/// A member and the address docward connects to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::proxy) struct MemberAddress {
    pub(in crate::proxy) address: Address,
    /// Its name in the set's configuration; the dialled address until a server has reported it.
    pub(in crate::proxy) name: String,
}

/// The configured listener of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// "host:port" as in the set's configuration; for several mongos, as in the connection string.
    pub member: String,
    pub listen: SocketAddr,
    pub advertise: Option<Advertised>,
}

/// The address in hello replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    pub host: String,
    /// `None`: the port listened on. Set if clients use a different port.
    pub port: Option<u16>,
}

/// The address of a listener, and its member.
#[derive(Debug, Clone)]
pub(in crate::proxy) struct ListenerSlot {
    pub(in crate::proxy) listen: SocketAddr,
    pub(in crate::proxy) advertise: Option<Advertised>,
    /// `None`: the listener is closed and the slot is free.
    pub(in crate::proxy) member: Option<MemberAddress>,
}

/// All slots. One task changes them; every connection reads them.
#[derive(Debug)]
pub(in crate::proxy) struct Topology {
    slots: ArcSwap<Vec<ListenerSlot>>,
}

/// The work that a change of the members requires.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::proxy) struct TopologyChanges {
    /// Slots whose members were removed.
    pub(in crate::proxy) freed: Vec<usize>,
    /// Members without a slot.
    pub(in crate::proxy) unplaced: Vec<MemberAddress>,
}

impl MemberAddress {
    pub(in crate::proxy) fn is_called(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// Whether its name in the set is not known yet.
    fn is_provisional(&self) -> bool {
        self.name == self.address.to_string()
    }

    /// Whether `newer` is the same member, as far as names and addresses show.
    fn is(&self, newer: &MemberAddress) -> bool {
        self.is_called(&newer.name) || self.is_provisional() && self.address == newer.address
    }
}

impl Topology {
    pub(in crate::proxy) fn new(slots: Vec<ListenerSlot>) -> Self {
        Self { slots: ArcSwap::from_pointee(slots) }
    }

    /// The address of a slot's member; `None` if the slot is free.
    pub(in crate::proxy) fn server_address(&self, slot: usize) -> Option<Address> {
        self.slots.load().get(slot)?.member.as_ref().map(|member| member.address.clone())
    }

    /// The addresses listened on, the first member's first.
    pub(in crate::proxy) fn listeners(&self) -> Vec<SocketAddr> {
        let slots = self.slots.load();
        slots.iter().filter(|slot| slot.member.is_some()).map(|slot| slot.listen).collect()
    }

    pub(in crate::proxy) fn slots(&self) -> Arc<Vec<ListenerSlot>> {
        self.slots.load_full()
    }

    pub(in crate::proxy) fn members(&self) -> Vec<MemberAddress> {
        self.slots.load().iter().filter_map(|slot| slot.member.clone()).collect()
    }

    /// The address map for a client that connected to `local` through a slot.
    pub(in crate::proxy) fn addresses(&self, slot: usize, local: IpAddr) -> AddressMap {
        let slots = self.slots.load();
        let own = slots.get(slot).map_or_else(|| local.to_string(), |slot| slot.advertised(local));
        let mut map = AddressMap::new(own);
        for slot in slots.iter() {
            if let Some(member) = &slot.member {
                map.add(member.name.clone(), slot.advertised(local));
            }
        }
        map
    }

    /// The advertised addresses at which clients may reach other processes, too. A listener for this machine alone, with
    /// another name, is not shared.
    pub(in crate::proxy) fn shared_addresses(&self) -> Vec<String> {
        let shared = |slot: &&ListenerSlot| {
            let advertise = slot.advertise.as_ref().filter(|_| slot.member.is_some());
            advertise.is_some_and(|advertise| advertise.port.is_some() || !slot.listen.ip().is_loopback())
        };
        self.slots.load().iter().filter(shared).map(|slot| slot.advertised(slot.listen.ip())).collect()
    }

    /// The first member's address.
    pub(in crate::proxy) fn first_address(&self, local: IpAddr) -> String {
        let slots = self.slots.load();
        let first = slots.iter().find(|slot| slot.member.is_some());
        first.map_or_else(|| "no address yet".to_owned(), |slot| slot.advertised(local))
    }

    /// Applies the current members: known ones keep their slots, and their names and addresses are updated.
    pub(in crate::proxy) fn update(&self, members: &[MemberAddress]) -> TopologyChanges {
        let mut slots = Vec::clone(&self.slots.load());
        let mut changes = TopologyChanges { unplaced: members.to_vec(), ..TopologyChanges::default() };
        for (index, slot) in slots.iter_mut().enumerate() {
            let Some(member) = &slot.member else { continue };
            let now = changes.unplaced.iter().position(|newer| member.is(newer));
            slot.member = now.map(|now| changes.unplaced.remove(now));
            if slot.member.is_none() {
                changes.freed.push(index);
            }
        }
        self.slots.store(Arc::new(slots));
        changes
    }

    /// Gives a member a slot, a free one with this address or a new one, and returns its index.
    pub(in crate::proxy) fn assign(&self, assigned: ListenerSlot) -> usize {
        let mut slots = Vec::clone(&self.slots.load());
        let free = |slot: &ListenerSlot| slot.member.is_none() && slot.listen == assigned.listen;
        let index = slots.iter().position(free).unwrap_or(slots.len());
        match slots.get_mut(index) {
            Some(slot) => *slot = assigned,
            None => slots.push(assigned),
        }
        self.slots.store(Arc::new(slots));
        index
    }

    /// Sets the name that clients use for a slot.
    pub(in crate::proxy) fn advertise(&self, slot: usize, advertise: Option<Advertised>) {
        self.change(slot, |slot| slot.advertise = advertise);
    }

    /// Takes a slot from its member.
    pub(in crate::proxy) fn free(&self, slot: usize) {
        self.change(slot, |slot| slot.member = None);
    }

    fn change(&self, slot: usize, change: impl FnOnce(&mut ListenerSlot)) {
        let mut slots = Vec::clone(&self.slots.load());
        slots.get_mut(slot).map(change);
        self.slots.store(Arc::new(slots));
    }

    /// Whether a listener is open on this address.
    pub(in crate::proxy) fn is_taken(&self, address: SocketAddr) -> bool {
        self.slots.load().iter().any(|slot| slot.member.is_some() && slot.listen == address)
    }
}

impl ListenerSlot {
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

    fn member(name: &str, address: &str) -> MemberAddress {
        MemberAddress { address: Address::parse(address).unwrap(), name: name.into() }
    }

    fn slot(listen: &str, member: Option<MemberAddress>) -> ListenerSlot {
        ListenerSlot { listen: listen.parse().unwrap(), advertise: None, member }
    }

    #[test]
    fn the_advertised_address_is_configured_bound_or_connected_to() {
        let local: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        let name = |port| Some(Advertised { host: "proxy.example.com".into(), port });
        for (advertise, ip, expected) in [
            (None, "127.0.0.1", ["127.0.0.1:1000", "127.0.0.1:1001"]),
            (None, "0.0.0.0", ["192.0.2.7:1000", "192.0.2.7:1001"]),
            (None, "[::1]", ["[::1]:1000", "[::1]:1001"]),
            (name(None), "0.0.0.0", ["proxy.example.com:1000", "proxy.example.com:1001"]),
            (name(Some(7)), "0.0.0.0", ["proxy.example.com:7", "proxy.example.com:7"]),
        ] {
            let slot =
                |port, name| ListenerSlot { advertise: advertise.clone(), ..slot(&format!("{ip}:{port}"), name) };
            let topology =
                Topology::new(vec![slot(1000, Some(member("a:1", "a:1"))), slot(1001, Some(member("b:2", "b:2")))]);
            let mut map = AddressMap::new(expected[1].into());
            map.add("a:1".into(), expected[0].into());
            map.add("b:2".into(), expected[1].into());
            assert_eq!(topology.addresses(1, local), map);
        }
    }

    #[test]
    fn members_keep_their_slots_get_their_names_and_leave() {
        let topology = Topology::new(vec![
            slot("127.0.0.1:1000", Some(member("10.0.0.1:1", "10.0.0.1:1"))),
            slot("127.0.0.1:1001", Some(member("B:2", "b:2"))),
        ]);
        let newer = [member("c:3", "c:3"), member("b:2", "10.0.0.2:2"), member("a:1", "10.0.0.1:1")];
        let changes = topology.update(&newer);
        assert_eq!(changes, TopologyChanges { freed: vec![], unplaced: vec![newer[0].clone()] });
        assert_eq!(topology.members(), [newer[2].clone(), newer[1].clone()]);

        assert_eq!(topology.assign(slot("127.0.0.1:1002", Some(newer[0].clone()))), 2);
        assert_eq!(topology.update(&newer[..1]).freed, [0, 1]);
        assert_eq!((topology.server_address(0), topology.server_address(2)), (None, Some(newer[0].address.clone())));
        assert!(!topology.is_taken("127.0.0.1:1001".parse().unwrap()));
        assert_eq!(topology.assign(slot("127.0.0.1:1001", Some(newer[2].clone()))), 1);
        let gone = member("10.0.0.1:1", "10.0.0.1:1");
        assert_eq!(
            topology.update(std::slice::from_ref(&gone)).unplaced,
            [gone],
            "a known name is not replaced by an address"
        );
    }
}
