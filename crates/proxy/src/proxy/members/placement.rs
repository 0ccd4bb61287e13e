//! Where the listeners of the members are opened.

use std::net::SocketAddr;

use crate::proxy::members::membership::Membership;
use crate::proxy::members::topology::{Advertised, Mapped, MemberAddress};
use crate::proxy::server_side::upstream::Address;

/// Where the listeners of members are opened.
#[derive(Debug, Clone)]
pub enum ListenerPlacement {
    /// The first member's listener on `first`, further ones on the following ports.
    Following { first: SocketAddr, advertise: Option<Advertised> },
    /// Each on its configured address; members that are not mentioned are hidden.
    Mapped(Vec<Mapped>),
}

impl ListenerPlacement {
    /// The members assumed while no server answers.
    pub(in crate::proxy) fn assumed(&self, membership: &Membership) -> Vec<MemberAddress> {
        let Self::Mapped(mapped) = self else { return membership.by_seed() };
        let member = |mapped: &Mapped| {
            let address = Address::parse(&mapped.member)?;
            Some(MemberAddress { address, name: mapped.member.clone() })
        };
        mapped.iter().filter_map(member).collect()
    }

    /// Addresses to try for a member's listener, in order.
    pub(in crate::proxy) fn addresses<'a>(
        &'a self,
        member: &'a MemberAddress,
        is_taken: impl Fn(SocketAddr) -> bool + 'a,
    ) -> Box<dyn Iterator<Item = SocketAddr> + 'a> {
        match self {
            Self::Following { first, .. } if first.port() == 0 => Box::new(std::iter::once(*first)),
            Self::Following { first, .. } => {
                let ports = first.port()..=u16::MAX;
                let addresses = ports.map(|port| SocketAddr::new(first.ip(), port));
                Box::new(addresses.filter(move |address| !is_taken(*address)))
            }
            Self::Mapped(_) => Box::new(self.mapped(member).map(|mapped| mapped.listen).into_iter()),
        }
    }

    pub(in crate::proxy) fn advertise(&self, member: &MemberAddress) -> Option<Advertised> {
        match self {
            Self::Following { advertise, .. } => advertise.clone(),
            Self::Mapped(_) => self.mapped(member)?.advertise.clone(),
        }
    }

    /// The names of configured members that are none.
    pub(in crate::proxy) fn unknown(&self, members: &[MemberAddress]) -> Vec<&str> {
        let Self::Mapped(mapped) = self else { return Vec::new() };
        let is_known = |mapped: &&Mapped| members.iter().any(|member| member.is_called(&mapped.member));
        mapped.iter().filter(|mapped| !is_known(mapped)).map(|mapped| mapped.member.as_str()).collect()
    }

    /// Whether a member's listener has the same address in both.
    pub(in crate::proxy) fn agrees(&self, other: &Self, member: &MemberAddress) -> bool {
        self.mapped(member).map(|mapped| mapped.listen) == other.mapped(member).map(|mapped| mapped.listen)
    }

    fn mapped(&self, member: &MemberAddress) -> Option<&Mapped> {
        let Self::Mapped(mapped) = self else { return None };
        mapped.iter().find(|mapped| member.is_called(&mapped.member))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_members_take_the_following_free_ports() {
        let member = MemberAddress { address: Address::parse("a:1").unwrap(), name: "a:1".into() };
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let following = |port| ListenerPlacement::Following { first: at(port), advertise: None };
        let check = |placement: &ListenerPlacement, taken: &[u16], expected: &[u16]| {
            let addresses = placement.addresses(&member, |address| taken.contains(&address.port()));
            assert_eq!(addresses.take(2).map(|address| address.port()).collect::<Vec<_>>(), expected);
        };
        check(&following(27018), &[], &[27018, 27019]);
        check(&following(27018), &[27018, 27020], &[27019, 27021]);
        check(&following(65535), &[], &[65535]);
        check(&following(0), &[], &[0]);
        let mapped = |name: &str| Mapped { member: name.into(), listen: at(7), advertise: None };
        check(&ListenerPlacement::Mapped(vec![mapped("b:1"), mapped("A:1")]), &[], &[7]);
        check(&ListenerPlacement::Mapped(vec![mapped("b:1")]), &[], &[]);
    }
}
