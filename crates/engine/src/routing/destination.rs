//! The kind of member that a request asks for.
//!
//! Drivers send `$readPreference` to a mongos with every command that may go elsewhere than to the primary (driver
//! specification "Server Selection", "Passing read preference to mongos"). A request without one goes to the primary.

use std::time::Duration;

use crate::command::{CommandClass, classify};
use crate::document::{Document, Value};
use crate::fnv::hash_of;
use crate::request_head::RequestHead;

/// The smallest `maxStalenessSeconds` that drivers and mongos accept (driver specification "Max Staleness").
pub const MIN_STALENESS: Duration = Duration::from_secs(90);

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    pub kind: DestinationKind,
    /// The hash of its session; 0: it has none. Of several mongos, one has all requests of a session.
    pub session: u64,
}

/// The kind of member that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DestinationKind {
    Primary,
    Read(ReadPreference),
    /// The member that holds this cursor.
    Cursor(i64),
    /// A read of members whose staleness is less than can be estimated.
    TooFresh,
}

/// `$readPreference`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPreference {
    pub mode: ReadMode,
    /// Alternatives in order; a member has all tags of one. Empty: any member.
    pub tag_sets: Vec<Vec<(String, String)>>,
    pub max_staleness: Option<Duration>,
}

/// The mode of a read preference that admits secondaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    PrimaryPreferred,
    Secondary,
    SecondaryPreferred,
    Nearest,
}

/// Returns where the request goes. What cannot be read goes to the primary, which reports the error.
#[must_use]
pub fn destination(head: &RequestHead<'_>) -> Destination {
    Destination { kind: kind(head), session: head.fields().session.map_or(0, |session| hash_of(session.bytes)) }
}

fn kind(head: &RequestHead<'_>) -> DestinationKind {
    let Some(first) = head.first else { return DestinationKind::Primary };
    // A transaction reads and writes at the primary.
    if head.fields().has_autocommit {
        return DestinationKind::Primary;
    }
    match (first.key, first.value.as_integer()) {
        (b"getMore", Some(cursor)) => return DestinationKind::Cursor(cursor),
        (b"killCursors", _) => return first_cursor(head).map_or(DestinationKind::Primary, DestinationKind::Cursor),
        _ => {}
    }
    let is_possible = match head.class() {
        // A secondary explains no writes.
        Some(CommandClass::Explain) => !explains_write(first.value),
        class => may_go_to_a_secondary(first.key, class),
    };
    if !is_possible {
        return DestinationKind::Primary;
    }
    let preference = head.fields().read_preference.and_then(Value::as_document).and_then(ReadPreference::parse);
    match preference {
        Some(preference) if preference.max_staleness.is_some_and(|longest| longest < MIN_STALENESS) => {
            DestinationKind::TooFresh
        }
        Some(preference) => DestinationKind::Read(preference),
        None => DestinationKind::Primary,
    }
}

/// Commands that change nothing, beside those that read a collection.
const AT_SECONDARIES: [&[u8]; 25] = [
    b"buildInfo",
    b"buildinfo",
    b"collStats",
    b"collstats",
    b"connPoolStats",
    b"connectionStatus",
    b"currentOp",
    b"dataSize",
    b"datasize",
    b"dbHash",
    b"dbStats",
    b"dbhash",
    b"dbstats",
    b"getCmdLineOpts",
    b"getLog",
    b"getParameter",
    b"hostInfo",
    b"listCollections",
    b"listCommands",
    b"listDatabases",
    b"listIndexes",
    b"ping",
    b"replSetGetStatus",
    b"serverStatus",
    b"top",
];

/// The read preference of other commands is ignored, as by a mongos if they change data.
fn may_go_to_a_secondary(name: &[u8], class: Option<CommandClass>) -> bool {
    class.is_some_and(is_read) || is_read_of_server(name)
}

fn explains_write(explained: Value<'_>) -> bool {
    use CommandClass::{BulkWrite, Delete, FindAndModify, Insert, Update};
    let class = explained.as_document().and_then(|command| Some(classify(command.elements().next()?.key)));
    matches!(class, Some(Insert | Update | Delete | FindAndModify | BulkWrite))
}

/// Whether a command reads something else than a collection, and changes nothing.
pub(super) fn is_read_of_server(name: &[u8]) -> bool {
    AT_SECONDARIES.contains(&name)
}

/// Whether a command only reads collections, unless its pipeline writes.
pub(super) fn is_read(class: CommandClass) -> bool {
    class.reads() && class != CommandClass::MapReduce
}

/// The first cursor of a killCursors. Members are asked in turn for the others.
fn first_cursor(head: &RequestHead<'_>) -> Option<i64> {
    head.fields().cursors?.as_array()?.values().next()?.as_integer()
}

impl Destination {
    /// The primary, for a request without a session.
    pub const PRIMARY: Self = Self { kind: DestinationKind::Primary, session: 0 };
}

impl ReadPreference {
    /// Returns `None` for the mode "primary", and if it is not valid.
    fn parse(preference: Document<'_>) -> Option<Self> {
        let mode = match preference.get("mode")?.as_str()? {
            "primaryPreferred" => ReadMode::PrimaryPreferred,
            "secondary" => ReadMode::Secondary,
            "secondaryPreferred" => ReadMode::SecondaryPreferred,
            "nearest" => ReadMode::Nearest,
            _ => return None,
        };
        let tag_sets = match preference.get("tags") {
            Some(sets) => sets.as_array()?.values().map(|set| tags(set.as_document()?)).collect::<Option<_>>()?,
            None => Vec::new(),
        };
        let max_staleness = match preference.get("maxStalenessSeconds").map(|seconds| seconds.as_integer()) {
            // Drivers use -1 for "no maximum", and mongod takes 0 for it.
            None | Some(Some(-1 | 0)) => None,
            Some(seconds) => Some(Duration::from_secs(seconds?.try_into().ok()?)),
        };
        Some(Self { mode, tag_sets, max_staleness })
    }
}

/// The tags of a tag set, or of a member.
pub(super) fn tags(set: Document<'_>) -> Option<Vec<(String, String)>> {
    set.elements()
        .map(|tag| Some((String::from_utf8(tag.key.to_vec()).ok()?, tag.value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, doc};

    use super::*;
    use crate::wire::op_msg::MessageWriter;

    fn kind_of(body: bson::Document) -> DestinationKind {
        let mut writer = MessageWriter::new(1, 0, 0, 0);
        writer.body(|out| out.extend_from_slice(RawDocumentBuf::try_from(&body).unwrap().as_bytes()));
        kind(&RequestHead::new(&writer.finish()))
    }

    #[test]
    fn only_reads_with_a_preference_leave_the_primary() {
        let secondary = doc! { "mode": "secondary" };
        for body in [
            doc! { "find": "c", "$db": "d" },
            doc! { "find": "c", "$readPreference": { "mode": "primary" } },
            doc! { "find": "c", "$readPreference": { "mode": "any" } },
            doc! { "find": "c", "$readPreference": { "mode": "secondary", "tags": 1 } },
            doc! { "find": "c", "$readPreference": { "mode": "secondary", "maxStalenessSeconds": -5 } },
            doc! { "find": "c", "$readPreference": &secondary, "txnNumber": 1_i64, "autocommit": false },
            doc! { "insert": "c", "$readPreference": &secondary },
            doc! { "update": "c", "$readPreference": &secondary },
            doc! { "findAndModify": "c", "$readPreference": &secondary },
            doc! { "createIndexes": "c", "$readPreference": &secondary },
            doc! { "dropDatabase": 1, "$readPreference": &secondary },
            doc! { "createUser": "u", "$readPreference": &secondary },
            doc! { "setParameter": 1, "$readPreference": &secondary },
            doc! { "shutdown": 1, "$readPreference": &secondary },
            doc! { "mapReduce": "c", "out": "d", "$readPreference": &secondary },
            doc! { "explain": { "update": "c", "updates": [] }, "$readPreference": &secondary },
            doc! { "explain": { "findandmodify": "c" }, "$readPreference": &secondary },
            doc! { "noSuchCommand": 1, "$readPreference": &secondary },
            doc! { "commitTransaction": 1 },
        ] {
            assert_eq!(kind_of(body.clone()), DestinationKind::Primary, "{body}");
        }
        let tags = doc! { "mode": "nearest", "tags": [{ "dc": "a", "rack": "1" }, {}], "maxStalenessSeconds": 120 };
        let read = |mode| ReadPreference { mode, tag_sets: vec![], max_staleness: None };
        for (body, expected) in [
            (doc! { "find": "c", "$readPreference": &secondary }, read(ReadMode::Secondary)),
            (doc! { "dbStats": 1, "$readPreference": &secondary }, read(ReadMode::Secondary)),
            (doc! { "explain": { "find": "c" }, "$readPreference": &secondary }, read(ReadMode::Secondary)),
            (
                doc! { "find": "c", "$readPreference": { "mode": "nearest", "maxStalenessSeconds": 0 } },
                read(ReadMode::Nearest),
            ),
            (
                doc! { "aggregate": "c", "$readPreference": tags },
                ReadPreference {
                    mode: ReadMode::Nearest,
                    tag_sets: vec![vec![("dc".into(), "a".into()), ("rack".into(), "1".into())], vec![]],
                    max_staleness: Some(Duration::from_secs(120)),
                },
            ),
        ] {
            assert_eq!(kind_of(body.clone()), DestinationKind::Read(expected), "{body}");
        }
    }

    #[test]
    fn cursors_are_followed_outside_of_transactions() {
        assert_eq!(kind_of(doc! { "getMore": 7_i64, "collection": "c" }), DestinationKind::Cursor(7));
        assert_eq!(kind_of(doc! { "killCursors": "c", "cursors": [8_i64, 9_i64] }), DestinationKind::Cursor(8));
        assert_eq!(kind_of(doc! { "killCursors": "c", "cursors": [] }), DestinationKind::Primary);
        assert_eq!(kind_of(doc! { "getMore": 7_i64, "autocommit": false }), DestinationKind::Primary);
    }
}
