//! Compares docward's catalogue with the commands that a real server lists. The tests' server has test commands; a
//! server without them has a subset (243 of 271 in 6.0.5).

use bson::{Document, doc};
use docward::command::{CommandClass, classify, operators};

use super::mongod;

/// Commands that docward lists as harmless although their name or the server's description suggests writes, each with
/// the result of a review.
const REVIEWED: [(&str, &str); 21] = [
    ("_mergeAuthzCollections", "admin.system.users and admin.system.roles"),
    ("abortTransaction", "takes back"),
    ("commitTransaction", "what it commits has been evaluated"),
    ("compact", "moves bytes"),
    ("createRole", "admin.system.roles"),
    ("createUser", "admin.system.users"),
    ("drop", "no statement, as documented"),
    ("dropAllRolesFromDatabase", "admin.system.roles"),
    ("dropAllUsersFromDatabase", "admin.system.users"),
    ("dropConnections", "the server's own connections"),
    ("dropDatabase", "no statement, as documented"),
    ("dropIndexes", "no statement, as documented"),
    ("dropRole", "admin.system.roles"),
    ("dropUser", "admin.system.users"),
    ("mergeChunks", "chunks of the catalogue, not documents"),
    ("replSetInitiate", "the set's configuration"),
    ("replSetUpdatePosition", "positions in the oplog"),
    ("setDefaultRWConcern", "a setting"),
    ("setUserWriteBlockMode", "a setting"),
    ("updateRole", "admin.system.roles"),
    ("updateUser", "admin.system.users"),
];

/// Parts of the names of commands that write documents.
const SUSPICIOUS: [&str; 26] = [
    "insert",
    "update",
    "delete",
    "write",
    "merge",
    "clone",
    "copy",
    "rename",
    "trunc",
    "capped",
    "apply",
    "chunk",
    "migrat",
    "reshard",
    "restore",
    "import",
    "modify",
    "drop",
    "bulk",
    "mapreduce",
    "internal",
    "repair",
    "transaction",
    "orphan",
    "_",
    "debug",
];

/// Names among the commands of 6.0 that can write, or run something that writes: docward must not list any of them as
/// harmless.
const WRITERS: [&str; 37] = [
    "_migrateClone",
    "_recvChunkStart",
    "_recvChunkCommit",
    "_transferMods",
    "_configsvrReshardCollection",
    "_configsvrRunRestore",
    "_shardsvrRenameCollection",
    "_shardsvrRenameCollectionParticipant",
    "_shardsvrDropCollection",
    "_shardsvrCloneCatalogData",
    "_shardsvrCompactStructuredEncryptionData",
    "_shardsvrCreateCollection",
    "aggregate",
    "applyOps",
    "captrunc",
    "cleanupOrphaned",
    "cloneCollectionAsCapped",
    "clusterAggregate",
    "clusterDelete",
    "clusterInsert",
    "clusterUpdate",
    "compactStructuredEncryptionData",
    "convertToCapped",
    "delete",
    "donorStartMigration",
    "emptycapped",
    "explain",
    "findAndModify",
    "godinsert",
    "insert",
    "internalRenameIfOptionsAndIndexesMatch",
    "mapReduce",
    "recipientSyncData",
    "renameCollection",
    "stageDebug",
    "testInternalTransactions",
    "update",
];

fn names(reply: &Document) -> Vec<String> {
    let mut names = Vec::new();
    for (name, about) in reply.get_document("commands").unwrap() {
        names.push(name.clone());
        let aliases = about.as_document().unwrap().get_array("aliases").into_iter().flatten();
        names.extend(aliases.filter_map(|alias| Some(alias.as_str()?.to_owned())));
    }
    names
}

fn every_name() -> Vec<String> {
    let names = names(&mongod().command("admin", doc! { "listCommands": 1 }));
    assert!(names.len() > 250 && names.iter().any(|name| name == "godinsert"), "{}", names.len());
    names
}

#[test]
fn no_command_that_could_write_documents_is_listed_as_harmless() {
    let harmless = |name: &str| classify(name.as_bytes()) == CommandClass::Harmless;
    let mut wrong = Vec::new();
    for name in every_name().iter().filter(|name| harmless(name)) {
        let lower = name.to_lowercase();
        let suspicious = SUSPICIOUS.iter().any(|part| lower.contains(part));
        if suspicious && !REVIEWED.iter().any(|(reviewed, _)| reviewed == name) {
            wrong.push(name.clone());
        }
    }
    assert!(wrong.is_empty(), "look at these, and add them to REVIEWED or take them out of the catalogue: {wrong:?}");
    for name in WRITERS {
        assert!(!harmless(name), "{name}");
    }
}

/// The lists of this test name existing commands, so that they cannot become outdated unnoticed.
#[test]
fn the_reviewed_names_exist_on_the_server() {
    let every = every_name();
    for name in WRITERS.iter().chain(REVIEWED.iter().map(|(name, _)| name)) {
        assert!(every.iter().any(|known| known == name), "{name}");
    }
}

/// docward knows the everyday commands of drivers and DBAs, so that it never rejects them by mistake.
#[test]
fn commands_unknown_to_docward_are_internal() {
    let unknown: Vec<_> =
        every_name().into_iter().filter(|name| classify(name.as_bytes()) == CommandClass::Unknown).collect();
    let internal = |name: &str| {
        ["_", "cluster", "donor", "recipient", "test", "replSetTest"].iter().any(|prefix| name.starts_with(prefix))
            || name.to_lowercase().contains("split")
            || OTHERS.contains(&name)
    };
    let surprising: Vec<_> = unknown.iter().filter(|name| !internal(name)).collect();
    assert!(surprising.is_empty(), "new to docward: {surprising:?}");
}

/// Commands between servers, test commands, and commands that can write: unknown on purpose.
const OTHERS: [&str; 26] = [
    "appendOplogNote",
    "availableQueryOptions",
    "captrunc",
    "cleanupOrphaned",
    "clearLog",
    "compactStructuredEncryptionData",
    "connPoolSync",
    "convertToCapped",
    "coordinateCommitTransaction",
    "cpuload",
    "driverOIDTest",
    "echo",
    "emptycapped",
    "godinsert",
    "httpClientRequest",
    "logMessage",
    "makeSnapshot",
    "pinHistoryReplicated",
    "prepareTransaction",
    "reapLogicalSessionCacheNow",
    "refreshLogicalSessionCacheNow",
    "setCommittedSnapshot",
    "setShardVersion",
    "sleep",
    "stageDebug",
    "voteCommitIndexBuild",
];

/// A rule may name any operator or stage that the server counts, without a warning.
#[test]
fn docward_knows_the_operators_of_the_server() {
    let status = mongod().command("admin", doc! {"serverStatus": 1});
    let metrics = status.get_document("metrics").unwrap();
    let groups = metrics.get_document("operatorCounters").unwrap().values().map(|group| group.as_document().unwrap());
    let counted = groups.chain([metrics.get_document("aggStageCounters").unwrap()]).flat_map(Document::keys);
    // Those between servers, and those that only its tests use.
    let internal = ["$_", "$mergeCursors", "$queue", "$operationMetrics", "$setVariable", "$listCachedAndActiveUsers"];
    let known: Vec<&str> = operators().collect();
    let is_public = |name: &&String| !internal.iter().any(|prefix| name.starts_with(prefix));
    let missing: Vec<&String> = counted.filter(is_public).filter(|name| !known.contains(&name.as_str())).collect();
    assert!(missing.is_empty() && known.is_sorted(), "{missing:?}");
}
