//! The known commands, and how each can access the documents of a collection.
//!
//! A name that is not listed is [`CommandClass::Unknown`], which docward rejects if the command names a protected
//! collection. A missing name is therefore safe. `tests/patterns/indirect_writes/catalogue.rs` compares the list with a real
//! server's commands.

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::FixedState;

/// What a command can do to documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandClass {
    /// hello and its older names. docward rewrites the request and the reply.
    Hello,
    /// May change the authenticated users of the connection.
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
    /// Copies a collection under another name.
    CloneCollection,
    ApplyOps,
    /// Returns the plan of another command. It never executes a write.
    Explain,
    Create,
    CollMod,
    CreateIndexes,
    Drop,
    DropDatabase,
    DropIndexes,
    /// Reads, or changes users, sessions, settings or the placement of data, but does not change documents itself.
    Harmless,
    /// Unknown. It could do anything to any collection that it names.
    Unknown,
}

/// All names with their classes.
static KNOWN: LazyLock<HashMap<&'static [u8], (&'static str, CommandClass), FixedState>> = LazyLock::new(|| {
    let harmless = HARMLESS.iter().map(|name| (*name, CommandClass::Harmless));
    INSPECTED.iter().copied().chain(harmless).map(|known| (known.0.as_bytes(), known)).collect()
});

/// Returns the class of a command. Names are case-sensitive.
pub fn classify(name: &[u8]) -> CommandClass {
    find(name).map_or(CommandClass::Unknown, |(_, class)| class)
}

/// Returns whether only servers send the command, to each other. A client that sends it anyway sends an unknown command.
pub fn is_internal(name: &[u8]) -> bool {
    let is_listed = |name: &[u8]| INTERNAL.iter().any(|internal| internal.as_bytes() == name);
    (name.starts_with(b"_") && find(name).is_none()) || is_listed(name)
}

/// Returns the listed name and the class of a command, or `None` if the name is not listed.
pub(super) fn find(name: &[u8]) -> Option<(&'static str, CommandClass)> {
    KNOWN.get(name).copied()
}

/// Returns all names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    INSPECTED.iter().map(|(name, _)| *name).chain(HARMLESS.iter().copied())
}

impl CommandClass {
    /// All classes of commands that can access the documents of a collection.
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

    /// The classes of commands that drop a collection or change its definition.
    pub const DEFINING: [Self; 6] =
        [Self::Create, Self::CollMod, Self::CreateIndexes, Self::Drop, Self::DropDatabase, Self::DropIndexes];

    /// Returns whether the command drops collections or changes their definitions.
    pub fn defines(self) -> bool {
        Self::DEFINING.contains(&self)
    }

    /// Returns whether the command returns documents or values computed from them.
    pub fn reads(self) -> bool {
        matches!(self, Self::Find | Self::Count | Self::Distinct | Self::Aggregate | Self::MapReduce)
    }

    /// Returns the start of a message about an indirect write by a command of this class, or `None` if it cannot make
    /// one.
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

    /// Returns the names of the commands of this class, including mongod's own aliases. [`CommandClass::Unknown`] has none.
    pub fn names(self) -> Vec<&'static str> {
        match self {
            Self::Harmless => HARMLESS.to_vec(),
            _ => INSPECTED.iter().filter(|(_, class)| *class == self).map(|(name, _)| *name).collect(),
        }
    }
}

/// Commands between servers whose names do not begin with `_`, sorted.
const INTERNAL: &[&str] = &[
    "clusterAbortTransaction",
    "clusterAggregate",
    "clusterCommitTransaction",
    "clusterCount",
    "clusterDelete",
    "clusterFind",
    "clusterGetMore",
    "clusterInsert",
    "clusterUpdate",
    "coordinateCommitTransaction",
    "donorAbortMigration",
    "donorForgetMigration",
    "donorStartMigration",
    "internalRenameIfOptionsAndIndexesMatch",
    "prepareTransaction",
    "recipientForgetMigration",
    "recipientSyncData",
    "recipientVoteImportedFiles",
    "setShardVersion",
    "voteAbortIndexBuild",
    "voteCommitIndexBuild",
];

/// The commands that docward inspects, sorted.
const INSPECTED: &[(&str, CommandClass)] = &[
    ("aggregate", CommandClass::Aggregate),
    ("applyOps", CommandClass::ApplyOps),
    ("authenticate", CommandClass::Authenticate),
    ("bulkWrite", CommandClass::BulkWrite),
    ("cloneCollectionAsCapped", CommandClass::CloneCollection),
    ("collMod", CommandClass::CollMod),
    ("count", CommandClass::Count),
    ("create", CommandClass::Create),
    ("createIndexes", CommandClass::CreateIndexes),
    ("createSearchIndexes", CommandClass::CreateIndexes),
    ("delete", CommandClass::Delete),
    ("deleteIndexes", CommandClass::DropIndexes),
    ("distinct", CommandClass::Distinct),
    ("drop", CommandClass::Drop),
    ("dropDatabase", CommandClass::DropDatabase),
    ("dropIndexes", CommandClass::DropIndexes),
    ("dropSearchIndex", CommandClass::DropIndexes),
    ("explain", CommandClass::Explain),
    ("find", CommandClass::Find),
    ("findAndModify", CommandClass::FindAndModify),
    ("findandmodify", CommandClass::FindAndModify),
    ("hello", CommandClass::Hello),
    ("insert", CommandClass::Insert),
    // An internal command between servers. Clients can send it if access control is off.
    ("internalRenameIfOptionsAndIndexesMatch", CommandClass::RenameCollection),
    ("isMaster", CommandClass::Hello),
    ("ismaster", CommandClass::Hello),
    ("logout", CommandClass::Authenticate),
    ("mapReduce", CommandClass::MapReduce),
    ("mapreduce", CommandClass::MapReduce),
    ("renameCollection", CommandClass::RenameCollection),
    ("saslContinue", CommandClass::Authenticate),
    ("saslStart", CommandClass::Authenticate),
    ("update", CommandClass::Update),
    // It builds the index again.
    ("updateSearchIndex", CommandClass::CreateIndexes),
];

/// Sorted. The sources are the manual's "Database Commands" (8.0), the commands of drivers and mongosh, and
/// `listCommands` of mongod 6.0, and mongo-tools. Internal commands between servers are omitted on purpose.
const HARMLESS: &[&str] = &[
    // Of mongorestore: it adds users and roles from collections of its own to those of `admin`.
    "_mergeAuthzCollections",
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
    "collStats",
    "collstats",
    "commitReshardCollection",
    "commitShardRemoval",
    "commitTransaction",
    "compact",
    "configureCollectionBalancing",
    "configureFailPoint",
    "configureQueryAnalyzer",
    "connPoolStats",
    "connectionStatus",
    "createRole",
    "createUser",
    "currentOp",
    "dataSize",
    "datasize",
    "dbCheck",
    "dbHash",
    "dbStats",
    "dbhash",
    "dbstats",
    "dropAllRolesFromDatabase",
    "dropAllUsersFromDatabase",
    "dropConnections",
    "dropRole",
    "dropUser",
    "enableSharding",
    "endSessions",
    "features",
    "filemd5",
    "flushRouterConfig",
    "fsync",
    "fsyncUnlock",
    "getAuditConfig",
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
    "logApplicationMessage",
    "logRotate",
    "mergeAllChunksOnShard",
    "mergeChunks",
    "moveChunk",
    "moveCollection",
    "movePrimary",
    "moveRange",
    "oidcListKeys",
    "oidcRefreshKeys",
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
    "setAllowMigrations",
    "setAuditConfig",
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
    "shardDrainingStatus",
    "shardingState",
    "shutdown",
    "split",
    "splitVector",
    "startRecordingTraffic",
    "startSession",
    "startShardDraining",
    "stopRecordingTraffic",
    "stopShardDraining",
    "top",
    "transitionFromDedicatedConfigServer",
    "transitionToDedicatedConfigServer",
    "unshardCollection",
    "updateRole",
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
        assert!(HARMLESS.iter().all(|name| classify(name.as_bytes()) == CommandClass::Harmless));
        assert!(INSPECTED.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(
            INSPECTED.iter().all(|(name, class)| classify(name.as_bytes()) == *class && class.names().contains(name))
        );
    }

    #[test]
    fn command_names_are_case_sensitive() {
        assert_eq!(classify(b"findandmodify"), CommandClass::FindAndModify);
        for name in [&b"FindAndModify"[..], b"INSERT", b"Update", b"insert ", b"", b"convertToCapped", b"insert\0"] {
            assert_eq!(classify(name), CommandClass::Unknown);
        }
    }
}
