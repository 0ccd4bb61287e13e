//! The commands docward knows by name, and how each can touch a collection's documents.
//!
//! A name that is missing here is [`Class::Unknown`]: refused where it names a protected collection. So the list
//! errs on the side of missing names. `tests/indirect_writes/catalogue.rs` holds it against the names a real server has.

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::FixedState;

/// What a command can do to documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// hello and its older names: answered by the server, rewritten on both ways.
    Hello,
    /// May change who is authenticated on the connection.
    Authenticate,
    Insert,
    Update,
    Delete,
    FindAndModify,
    BulkWrite,
    Find,
    Count,
    Distinct,
    Aggregate,
    MapReduce,
    RenameCollection,
    /// Makes a copy of one collection under another name.
    CloneCollection,
    ApplyOps,
    /// Shows the plan of another command, and never executes a write.
    Explain,
    /// Reads, or changes definitions, sessions, settings, where documents lie: never a document by itself.
    Harmless,
    /// Not known: could do anything to any collection it names.
    Unknown,
}

/// Every name with its class.
static KNOWN: LazyLock<HashMap<&'static [u8], (&'static str, Class), FixedState>> = LazyLock::new(|| {
    let harmless = HARMLESS.iter().map(|name| (*name, Class::Harmless));
    JUDGED.iter().copied().chain(harmless).map(|known| (known.0.as_bytes(), known)).collect()
});

/// Command names are case-sensitive.
pub fn classify(name: &[u8]) -> Class {
    find(name).map_or(Class::Unknown, |(_, class)| class)
}

/// The same, with the name as it stands here; `None`: it does not.
pub(super) fn find(name: &[u8]) -> Option<(&'static str, Class)> {
    KNOWN.get(name).copied()
}

/// Every name.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    JUDGED.iter().map(|(name, _)| *name).chain(HARMLESS.iter().copied())
}

impl Class {
    /// Every class of which a command can reach a collection's documents.
    pub const REACHING: [Self; 15] = [
        Self::Insert,
        Self::Update,
        Self::Delete,
        Self::FindAndModify,
        Self::BulkWrite,
        Self::Find,
        Self::Count,
        Self::Distinct,
        Self::Aggregate,
        Self::MapReduce,
        Self::RenameCollection,
        Self::CloneCollection,
        Self::ApplyOps,
        Self::Explain,
        Self::Unknown,
    ];

    /// Whether it returns documents, or what is computed of them.
    pub fn reads(self) -> bool {
        matches!(self, Self::Find | Self::Count | Self::Distinct | Self::Aggregate | Self::MapReduce)
    }

    /// What a command of this class is called where it writes to a collection other than by statements;
    /// `None` where it cannot.
    pub fn indirect_write(self) -> Option<&'static str> {
        match self {
            Self::Aggregate => Some("aggregation into"),
            Self::MapReduce => Some("mapReduce into"),
            Self::RenameCollection => Some("renameCollection of"),
            Self::CloneCollection => Some("cloneCollectionAsCapped of"),
            Self::ApplyOps => Some("applyOps on"),
            Self::Unknown => Some("unknown command on"),
            _ => None,
        }
    }

    /// The names of the commands of this class, mongod's own aliases included; none for [`Class::Unknown`].
    pub fn names(self) -> Vec<&'static str> {
        match self {
            Self::Harmless => HARMLESS.to_vec(),
            _ => JUDGED.iter().filter(|(_, class)| *class == self).map(|(name, _)| *name).collect(),
        }
    }
}

/// What docward looks into, sorted for whoever reads it.
const JUDGED: &[(&str, Class)] = &[
    ("aggregate", Class::Aggregate),
    ("applyOps", Class::ApplyOps),
    ("authenticate", Class::Authenticate),
    ("bulkWrite", Class::BulkWrite),
    ("cloneCollectionAsCapped", Class::CloneCollection),
    ("count", Class::Count),
    ("delete", Class::Delete),
    ("distinct", Class::Distinct),
    ("explain", Class::Explain),
    ("find", Class::Find),
    ("findAndModify", Class::FindAndModify),
    ("findandmodify", Class::FindAndModify),
    ("hello", Class::Hello),
    ("insert", Class::Insert),
    // The servers' own among themselves, and open to clients where there are no users.
    ("internalRenameIfOptionsAndIndexesMatch", Class::RenameCollection),
    ("isMaster", Class::Hello),
    ("ismaster", Class::Hello),
    ("logout", Class::Authenticate),
    ("mapReduce", Class::MapReduce),
    ("mapreduce", Class::MapReduce),
    ("renameCollection", Class::RenameCollection),
    ("saslContinue", Class::Authenticate),
    ("saslStart", Class::Authenticate),
    ("update", Class::Update),
];

/// Sorted too. From the manual's "Database Commands" (8.0), what drivers and mongosh send,
/// and `listCommands` of mongod 6.0; the servers' commands among themselves are left out on purpose.
const HARMLESS: &[&str] = &[
    "abortMoveCollection",
    "abortReshardCollection",
    "abortTransaction",
    "abortUnshardCollection",
    "addShard",
    "addShardToZone",
    "analyze",
    "analyzeShardKey",
    "atlasVersion",
    "autoCompact",
    "balancerCollectionStatus",
    "balancerStart",
    "balancerStatus",
    "balancerStop",
    "buildInfo",
    "buildinfo",
    "checkMetadataConsistency",
    "checkShardingIndex",
    "cleanupReshardCollection",
    "clearJumboFlag",
    "collMod",
    "collStats",
    "collstats",
    "commitReshardCollection",
    "commitTransaction",
    "compact",
    "configureCollectionBalancing",
    "configureFailPoint",
    "configureQueryAnalyzer",
    "connPoolStats",
    "connectionStatus",
    "create",
    "createIndexes",
    "createRole",
    "createSearchIndexes",
    "createUser",
    "currentOp",
    "dataSize",
    "datasize",
    "dbCheck",
    "dbHash",
    "dbStats",
    "dbhash",
    "dbstats",
    "deleteIndexes",
    "drop",
    "dropAllRolesFromDatabase",
    "dropAllUsersFromDatabase",
    "dropConnections",
    "dropDatabase",
    "dropIndexes",
    "dropRole",
    "dropSearchIndex",
    "dropUser",
    "enableSharding",
    "endSessions",
    "features",
    "filemd5",
    "flushRouterConfig",
    "fsync",
    "fsyncUnlock",
    "getClusterParameter",
    "getCmdLineOpts",
    "getDatabaseVersion",
    "getDefaultRWConcern",
    "getDiagnosticData",
    "getFreeMonitoringStatus",
    "getLastError",
    "getLog",
    "getMore",
    "getParameter",
    "getShardMap",
    "getShardVersion",
    "getnonce",
    "grantPrivilegesToRole",
    "grantRolesToRole",
    "grantRolesToUser",
    "hostInfo",
    "invalidateUserCache",
    "isdbgrid",
    "killAllSessions",
    "killAllSessionsByPattern",
    "killCursors",
    "killOp",
    "killSessions",
    "listCollections",
    "listCommands",
    "listDatabases",
    "listIndexes",
    "listSearchIndexes",
    "listShards",
    "lockInfo",
    "logRotate",
    "mergeAllChunksOnShard",
    "mergeChunks",
    "moveChunk",
    "moveCollection",
    "movePrimary",
    "moveRange",
    "ping",
    "planCacheClear",
    "planCacheClearFilters",
    "planCacheListFilters",
    "planCacheSetFilter",
    "profile",
    "reIndex",
    "refineCollectionShardKey",
    "refreshSessions",
    "removeQuerySettings",
    "removeShard",
    "removeShardFromZone",
    "replSetAbortPrimaryCatchUp",
    "replSetFreeze",
    "replSetGetConfig",
    "replSetGetRBID",
    "replSetGetStatus",
    "replSetHeartbeat",
    "replSetInitiate",
    "replSetMaintenance",
    "replSetReconfig",
    "replSetRequestVotes",
    "replSetResizeOplog",
    "replSetStepDown",
    "replSetStepUp",
    "replSetSyncFrom",
    "replSetUpdatePosition",
    "reshardCollection",
    "revokePrivilegesFromRole",
    "revokeRolesFromRole",
    "revokeRolesFromUser",
    "rolesInfo",
    "rotateCertificates",
    "serverStatus",
    "setClusterParameter",
    "setDefaultRWConcern",
    "setFeatureCompatibilityVersion",
    "setFreeMonitoring",
    "setIndexCommitQuorum",
    "setParameter",
    "setProfilingFilterGlobally",
    "setQuerySettings",
    "setUserWriteBlockMode",
    "shardCollection",
    "shardingState",
    "shutdown",
    "split",
    "splitVector",
    "startRecordingTraffic",
    "startSession",
    "stopRecordingTraffic",
    "top",
    "unshardCollection",
    "updateRole",
    "updateSearchIndex",
    "updateUser",
    "updateZoneKeyRange",
    "usersInfo",
    "validate",
    "validateDBMetadata",
    "waitForFailPoint",
    "whatsmysni",
    "whatsmyuri",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted_and_every_name_is_found() {
        assert!(HARMLESS.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(HARMLESS.iter().all(|name| classify(name.as_bytes()) == Class::Harmless));
        assert!(JUDGED.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(JUDGED.iter().all(|(name, class)| classify(name.as_bytes()) == *class && class.names().contains(name)));
    }

    #[test]
    fn case_variants_are_other_commands() {
        assert_eq!(classify(b"findandmodify"), Class::FindAndModify);
        for name in [&b"FindAndModify"[..], b"INSERT", b"Update", b"insert ", b"", b"convertToCapped", b"insert\0"] {
            assert_eq!(classify(name), Class::Unknown);
        }
    }
}
