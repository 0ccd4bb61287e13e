//! The members that a read may go to, as drivers select them (driver specifications "Server Selection", "Max Staleness").

use std::time::Duration;

use super::destination::{ReadMode, ReadPreference, tags};
use crate::document::{Document, Value};

/// How much slower than the nearest member another one may be. The default of drivers and mongos.
const LATENCY_WINDOW: Duration = Duration::from_millis(15);

/// A member that answers its monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selectable {
    pub role: RoutedRole,
    pub tags: Vec<(String, String)>,
    /// Estimated staleness; `None`: unknown.
    pub staleness: Option<Duration>,
    /// Smoothed time from a request to its reply.
    pub round_trip: Duration,
}

/// The roles of members that answer requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoutedRole {
    Primary,
    Secondary,
    /// A mongos, or a standalone server: every request may go to it. With the hash of its address.
    Mongos(u64),
}

impl Selectable {
    /// Returns the tags of a member, from its hello reply.
    #[must_use]
    pub fn tags_of(hello: Document<'_>) -> Vec<(String, String)> {
        hello.get("tags").and_then(Value::as_document).and_then(tags).unwrap_or_default()
    }

    fn fits(&self, preference: &ReadPreference) -> bool {
        let is_fresh = |longest| self.staleness.is_some_and(|staleness| staleness <= longest);
        self.role == RoutedRole::Primary || preference.max_staleness.is_none_or(is_fresh)
    }

    fn has(&self, set: &[(String, String)]) -> bool {
        set.iter().all(|tag| self.tags.contains(tag))
    }
}

/// Returns the index of the mongos that has a session's requests, if these are mongos. Each docward finds the same one, and
/// when one comes or goes, only its own sessions move: the one whose hash with the session's is the highest has it.
#[must_use]
pub fn mongos_of<'m>(members: impl IntoIterator<Item = &'m Selectable>, session: u64) -> Option<usize> {
    let weight = |(at, member): (usize, &Selectable)| match member.role {
        RoutedRole::Mongos(address) => Some((mixed(session ^ mixed(address)), at)),
        RoutedRole::Primary | RoutedRole::Secondary => None,
    };
    members.into_iter().enumerate().filter_map(weight).max().map(|(_, at)| at)
}

/// The last step of MurmurHash3: every bit of the result depends on every bit of `hash`, which is not so with FNV.
fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Returns the indexes of the members that a read with this preference may go to; none if it must wait.
#[must_use]
pub fn eligible(members: &[&Selectable], preference: &ReadPreference) -> Vec<usize> {
    let all = || members.iter().copied().enumerate();
    let of_role = |role| all().filter(move |(_, member)| member.role == role);
    let primary = || of_role(RoutedRole::Primary).map(|(at, _)| at).collect::<Vec<_>>();
    let secondaries = || near(members, with_tags(of_role(RoutedRole::Secondary), preference));
    let or = |first: Vec<usize>, second: &dyn Fn() -> Vec<usize>| if first.is_empty() { second() } else { first };
    match preference.mode {
        ReadMode::Secondary => secondaries(),
        // Tags and staleness do not matter for a primary that is preferred, or is the last resort.
        ReadMode::PrimaryPreferred => or(primary(), &secondaries),
        ReadMode::SecondaryPreferred => or(secondaries(), &primary),
        ReadMode::Nearest => near(members, with_tags(all(), preference)),
    }
}

/// The members that are fresh enough and have all tags of the first tag set that any of them has.
fn with_tags<'m>(members: impl Iterator<Item = (usize, &'m Selectable)>, preference: &ReadPreference) -> Vec<usize> {
    let fresh: Vec<_> = members.filter(|(_, member)| member.fits(preference)).collect();
    let having = |set: &[(String, String)]| -> Vec<usize> {
        fresh.iter().filter(|(_, member)| member.has(set)).map(|(at, _)| *at).collect()
    };
    match preference.tag_sets.as_slice() {
        [] => having(&[]),
        sets => sets.iter().map(|set| having(set)).find(|found| !found.is_empty()).unwrap_or_default(),
    }
}

/// Those within the latency window.
fn near(members: &[&Selectable], chosen: Vec<usize>) -> Vec<usize> {
    let round_trip = |at: &usize| members.get(*at).map_or(Duration::MAX, |member| member.round_trip);
    let Some(nearest) = chosen.iter().map(round_trip).min() else { return chosen };
    chosen.into_iter().filter(|at| round_trip(at) <= nearest.saturating_add(LATENCY_WINDOW)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fnv::hash_of;

    fn member() -> impl Strategy<Value = Selectable> {
        let tag = ("[ab]", "[12]");
        let role = prop_oneof![3 => Just(RoutedRole::Secondary), 1 => Just(RoutedRole::Primary)];
        (role, prop::collection::vec(tag, 0..3), prop::option::of(0_u64..300), 0_u64..40).prop_map(
            |(role, tags, staleness, round_trip)| Selectable {
                role,
                tags,
                staleness: staleness.map(Duration::from_secs),
                round_trip: Duration::from_millis(round_trip),
            },
        )
    }

    fn preference() -> impl Strategy<Value = ReadPreference> {
        let mode = prop_oneof![
            Just(ReadMode::PrimaryPreferred),
            Just(ReadMode::Secondary),
            Just(ReadMode::SecondaryPreferred),
            Just(ReadMode::Nearest)
        ];
        let sets = prop::collection::vec(prop::collection::vec(("[ab]", "[12]"), 0..2), 0..3);
        (mode, sets, prop::option::of(90_u64..300)).prop_map(|(mode, tag_sets, max_staleness)| ReadPreference {
            mode,
            tag_sets,
            max_staleness: max_staleness.map(Duration::from_secs),
        })
    }

    fn eligible_of(members: &[Selectable], preference: &ReadPreference) -> Vec<usize> {
        eligible(&members.iter().collect::<Vec<_>>(), preference)
    }

    proptest! {
        /// What the specification demands of one chosen member, stated without the algorithm.
        #[test]
        fn no_read_goes_outside_its_preference(
            members in prop::collection::vec(member(), 0..6), preference in preference()
        ) {
            let chosen = eligible_of(&members, &preference);
            let is_primary = |member: &Selectable| member.role == RoutedRole::Primary;
            let fits = |member: &Selectable| {
                let has = |set: &Vec<(String, String)>| set.iter().all(|tag| member.tags.contains(tag));
                let is_fresh = preference.max_staleness.is_none_or(|most| {
                    is_primary(member) || member.staleness.is_some_and(|staleness| staleness <= most)
                });
                is_fresh && (preference.tag_sets.is_empty() || preference.tag_sets.iter().any(has))
            };
            let secondary_fits = members.iter().any(|member| !is_primary(member) && fits(member));
            let has_primary = members.iter().any(is_primary);
            for at in &chosen {
                let member = &members[*at];
                match preference.mode {
                    ReadMode::Secondary => prop_assert!(!is_primary(member) && fits(member)),
                    ReadMode::PrimaryPreferred => prop_assert!(is_primary(member) || !has_primary && fits(member)),
                    ReadMode::SecondaryPreferred => {
                        prop_assert!(!is_primary(member) && fits(member) || is_primary(member) && !secondary_fits);
                    }
                    ReadMode::Nearest => prop_assert!(fits(member)),
                }
            }
            // A read waits only if no member fits.
            let may_read = match preference.mode {
                ReadMode::Secondary => secondary_fits,
                ReadMode::PrimaryPreferred | ReadMode::SecondaryPreferred => secondary_fits || has_primary,
                ReadMode::Nearest => members.iter().any(fits),
            };
            prop_assert_eq!(!chosen.is_empty(), may_read);
        }

        /// Among those chosen none is much slower than another, unless it is a primary alone.
        #[test]
        fn reads_stay_near(members in prop::collection::vec(member(), 0..6), preference in preference()) {
            let times: Vec<_> = eligible_of(&members, &preference).iter().map(|at| members[*at].round_trip).collect();
            if preference.mode == ReadMode::Nearest || preference.mode == ReadMode::Secondary {
                let (least, most) = (times.iter().min(), times.iter().max());
                prop_assert!(least.zip(most).is_none_or(|(least, most)| *most <= *least + LATENCY_WINDOW));
            }
        }
    }

    #[test]
    fn sessions_are_shared_by_mongos_and_move_only_with_theirs() {
        let mongos = |port: usize| Selectable {
            role: RoutedRole::Mongos(hash_of(format!("mongos.example:2701{port}").as_bytes())),
            tags: Vec::new(),
            staleness: None,
            round_trip: Duration::ZERO,
        };
        let all: Vec<Selectable> = (0..4).map(mongos).collect();
        let sessions: Vec<u64> = (0..4_000_u32).map(|number| hash_of(&number.to_le_bytes())).collect();
        let of = |members: &[Selectable]| -> Vec<usize> {
            sessions.iter().map(|session| mongos_of(members, *session).unwrap()).collect()
        };
        let before = of(&all);
        for at in 0..4 {
            let share = before.iter().filter(|one| **one == at).count();
            assert!((850..1_150).contains(&share), "{share} of 4000 sessions at mongos {at}");
        }
        for (before, after) in before.iter().zip(of(&all[..3])) {
            assert!(*before == after || *before == 3);
        }
        let of_set = Selectable { role: RoutedRole::Primary, ..mongos(0) };
        assert_eq!(mongos_of(&[of_set], 7), None);
    }

    #[test]
    fn the_first_tag_set_that_any_member_has_counts() {
        let tagged = |tag: &str| Selectable {
            role: RoutedRole::Secondary,
            tags: vec![("dc".into(), tag.into())],
            staleness: None,
            round_trip: Duration::ZERO,
        };
        let members = [tagged("a"), tagged("b"), tagged("b")];
        let preference = |tags: &[&str]| ReadPreference {
            mode: ReadMode::Secondary,
            tag_sets: tags.iter().map(|tag| vec![("dc".into(), (*tag).into())]).collect(),
            max_staleness: None,
        };
        assert_eq!(eligible_of(&members, &preference(&["c", "b", "a"])), [1, 2]);
        assert_eq!(eligible_of(&members, &preference(&["a", "b"])), [0]);
        assert!(eligible_of(&members, &preference(&["c"])).is_empty());
    }
}
