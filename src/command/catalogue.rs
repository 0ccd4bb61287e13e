//! The commands docward knows by name, and how each can touch a collection's documents.
//!
//! A name that is missing here is [`Class::Unknown`]: on a guarded collection it is refused. So the list
//! errs on the side of missing names.

/// What a command can do to documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Reads, or changes definitions, sessions, settings: never a document of the collection it names.
    Harmless,
    /// Not known: could do anything to the collection its first value names.
    Unknown,
}

/// Command names are case-sensitive; the aliases are mongod's own.
pub fn classify(name: &[u8]) -> Class {
    match name {
        b"hello" | b"isMaster" | b"ismaster" => Class::Hello,
        b"saslStart" | b"saslContinue" | b"authenticate" | b"logout" => Class::Authenticate,
        b"insert" => Class::Insert,
        b"update" => Class::Update,
        b"delete" => Class::Delete,
        b"findAndModify" | b"findandmodify" => Class::FindAndModify,
        b"bulkWrite" => Class::BulkWrite,
        b"find" => Class::Find,
        b"count" => Class::Count,
        b"distinct" => Class::Distinct,
        b"aggregate" => Class::Aggregate,
        b"mapReduce" | b"mapreduce" => Class::MapReduce,
        // The second is the servers' own among themselves, and open to clients where there are no users.
        b"renameCollection" | b"internalRenameIfOptionsAndIndexesMatch" => Class::RenameCollection,
        b"cloneCollectionAsCapped" => Class::CloneCollection,
        b"applyOps" => Class::ApplyOps,
        b"explain" => Class::Explain,
        name if HARMLESS.binary_search(&name).is_ok() => Class::Harmless,
        _ => Class::Unknown,
    }
}

/// Sorted, for the binary search. From the manual's "Database Commands" (8.0) and the commands drivers and
/// mongosh send.
const HARMLESS: &[&[u8]] = &[
    b"abortTransaction",
    b"analyze",
    b"atlasVersion",
    b"autoCompact",
    b"buildInfo",
    b"buildinfo",
    b"collMod",
    b"collStats",
    b"collstats",
    b"commitTransaction",
    b"compact",
    b"configureFailPoint",
    b"connPoolStats",
    b"connectionStatus",
    b"create",
    b"createIndexes",
    b"createRole",
    b"createSearchIndexes",
    b"createUser",
    b"currentOp",
    b"dataSize",
    b"datasize",
    b"dbHash",
    b"dbStats",
    b"dbhash",
    b"dbstats",
    b"deleteIndexes",
    b"drop",
    b"dropDatabase",
    b"dropIndexes",
    b"dropRole",
    b"dropSearchIndex",
    b"dropUser",
    b"endSessions",
    b"features",
    b"filemd5",
    b"fsync",
    b"fsyncUnlock",
    b"getClusterParameter",
    b"getCmdLineOpts",
    b"getDefaultRWConcern",
    b"getFreeMonitoringStatus",
    b"getLastError",
    b"getLog",
    b"getMore",
    b"getParameter",
    b"getnonce",
    b"grantRolesToUser",
    b"hostInfo",
    b"isdbgrid",
    b"killAllSessions",
    b"killAllSessionsByPattern",
    b"killCursors",
    b"killOp",
    b"killSessions",
    b"listCollections",
    b"listCommands",
    b"listDatabases",
    b"listIndexes",
    b"listSearchIndexes",
    b"ping",
    b"planCacheClear",
    b"planCacheClearFilters",
    b"planCacheListFilters",
    b"planCacheSetFilter",
    b"profile",
    b"reIndex",
    b"refreshSessions",
    b"replSetGetConfig",
    b"replSetGetStatus",
    b"rolesInfo",
    b"serverStatus",
    b"setClusterParameter",
    b"setDefaultRWConcern",
    b"setFeatureCompatibilityVersion",
    b"setParameter",
    b"setQuerySettings",
    b"startSession",
    b"top",
    b"updateRole",
    b"updateSearchIndex",
    b"updateUser",
    b"usersInfo",
    b"validate",
    b"waitForFailPoint",
    b"whatsmyuri",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_so_that_the_search_finds() {
        assert!(HARMLESS.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(HARMLESS.iter().all(|name| classify(name) == Class::Harmless));
    }

    #[test]
    fn case_variants_are_other_commands() {
        assert_eq!(classify(b"findandmodify"), Class::FindAndModify);
        for name in [&b"FindAndModify"[..], b"INSERT", b"Update", b"insert ", b"", b"convertToCapped"] {
            assert_eq!(classify(name), Class::Unknown);
        }
    }
}
