//! What clients of a router get when their member fails: `docs/reference/router-errors.md` is made here
//! (`UPDATE_EXPECT=1`), with a real server that fails on request.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Document, doc};
use support::driver::ok;
use support::process::repository;
use support::proxy::Docward;
use support::raw::Client;
use support::replica_set::ReplicaSet;

/// The codes by which drivers take a server for no primary, or for one that shuts down.
const CODES: [i32; 8] = [91, 189, 10058, 10107, 11600, 11602, 13435, 13436];

const INTRODUCTION: &str = "\
# What clients of a router get when a member fails

Made by a test with a real server. \"sent again\": docward sends the request again, and the client gets its reply. \"6\" is the code of the
error that the client gets otherwise, with its labels.

| request | 10107, 13435: not executed | 91, 189, 10058, 11600, 11602, 13436 | the connection breaks |
|---|---|---|---|
";

struct Scene {
    set: ReplicaSet,
    client: Client,
    number: i64,
    cursor: i64,
}

impl Scene {
    fn run(&mut self, command: Document) -> Document {
        self.client.command("shop", command)
    }

    /// A command of its own, as the table names it.
    fn command(&mut self, name: &str) -> Document {
        self.number += 1;
        let id = self.number;
        let session = doc! { "id": bson::Uuid::from_bytes([7; 16]) };
        let numbered = |mut command: Document| {
            command.extend(doc! { "lsid": session.clone(), "txnNumber": id });
            command
        };
        let update = doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } }] };
        match name {
            "find" => doc! { "find": "c" },
            "count" => doc! { "count": "c" },
            "distinct" => doc! { "distinct": "c", "key": "n" },
            "aggregate" => doc! { "aggregate": "c", "pipeline": [], "cursor": {} },
            "aggregate with `$out`" => doc! { "aggregate": "c", "pipeline": [{ "$out": "d" }], "cursor": {} },
            "getMore" => doc! { "getMore": self.cursor, "collection": "c", "batchSize": 1 },
            "killCursors" => doc! { "killCursors": "c", "cursors": [self.cursor] },
            "insert" => doc! { "insert": "c", "documents": [{ "_id": id + 1000 }] },
            "insert with a number" => numbered(doc! { "insert": "c", "documents": [{ "_id": id + 1000 }] }),
            "update" => update,
            "update with a number" => numbered(update),
            "update of a protected collection" => {
                doc! { "update": "protected", "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } }] }
            }
            "delete" => doc! { "delete": "c", "deletes": [{ "q": { "_id": -1 }, "limit": 1 }] },
            "findAndModify" => doc! { "findAndModify": "c", "query": { "_id": 1 }, "update": { "$inc": { "n": 1 } } },
            "createIndexes" => doc! { "createIndexes": "c", "indexes": [{ "key": { "n": 1 }, "name": "n" }] },
            "dbStats" => doc! { "dbStats": 1 },
            in_transaction => {
                let of_transaction = |mut command: Document| {
                    command.extend(doc! { "lsid": session.clone(), "txnNumber": id, "autocommit": false });
                    command
                };
                let mut first = of_transaction(doc! { "insert": "c", "documents": [{ "_id": id + 1000 }] });
                first.insert("startTransaction", true);
                assert!(ok(&self.run(first)));
                match in_transaction {
                    "find in a transaction" => of_transaction(doc! { "find": "c" }),
                    "insert in a transaction" => {
                        of_transaction(doc! { "insert": "c", "documents": [{ "_id": id + 100_000 }] })
                    }
                    "commitTransaction" => {
                        let mut commit = of_transaction(doc! { "commitTransaction": 1 });
                        commit.insert("$db", "admin");
                        commit
                    }
                    "abortTransaction" => {
                        let mut abort = of_transaction(doc! { "abortTransaction": 1 });
                        abort.insert("$db", "admin");
                        abort
                    }
                    other => unreachable!("{other}"),
                }
            }
        }
    }

    /// What the client gets for a command that fails once.
    fn outcome(&mut self, name: &str, failure: Document) -> String {
        if name.contains("ursor") || name == "getMore" {
            let reply = self.run(doc! { "find": "c", "batchSize": 2 });
            self.cursor = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
        }
        let mut command = self.command(name);
        let failed = command.keys().next().unwrap().clone();
        let mut data = doc! { "failCommands": [failed] };
        data.extend(failure);
        let point = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
        let done = self.set.member(0).command("admin", point);
        assert!(ok(&done), "{done}");
        let database = command.remove("$db").map_or("shop".to_owned(), |name| name.as_str().unwrap().to_owned());
        let reply = self.client.command(&database, command);
        self.set.member(0).command("admin", doc! { "configureFailPoint": "failCommand", "mode": "off" });
        match ok(&reply) {
            true => "sent again".to_owned(),
            false => {
                let labels = reply.get_array("errorLabels").cloned().unwrap_or_default();
                let labels: Vec<&str> = labels.iter().map(|label| label.as_str().unwrap()).collect();
                format!("{} {}", reply.get_i32("code").unwrap(), labels.join(", ")).trim().to_owned()
            }
        }
    }
}

#[test]
#[ignore = "four minutes, because the member is asked again after each failure: make attack"]
fn the_page_has_what_clients_get_when_a_member_fails() {
    let set = ReplicaSet::start(1);
    let rules = "version: 1\nrules:\n- { name: stock, namespace: shop.protected, bounds: { field: n, min: 0 } }\n";
    let docward = Docward::before(&set.uri()).rules(rules).argument("--topology").argument("router");
    let docward = docward.without_test_pool().start();
    let client = Client::connect(&docward.address());
    let mut scene = Scene { set, client, number: 0, cursor: 0 };
    for collection in ["c", "protected"] {
        let documents: Vec<Document> = (1..9).map(|id| doc! { "_id": id, "n": 0 }).collect();
        assert!(ok(&scene.run(doc! { "insert": collection, "documents": documents })));
    }
    let requests = [
        "find",
        "count",
        "distinct",
        "aggregate",
        "aggregate with `$out`",
        "getMore",
        "killCursors",
        "insert",
        "insert with a number",
        "update",
        "update with a number",
        "update of a protected collection",
        "delete",
        "findAndModify",
        "createIndexes",
        "dbStats",
        "find in a transaction",
        "insert in a transaction",
        "commitTransaction",
        "abortTransaction",
    ];
    let mut rows = String::new();
    for request in requests {
        let mut outcomes: BTreeMap<bool, BTreeSet<String>> = BTreeMap::new();
        for code in CODES {
            let outcome = scene.outcome(request, doc! { "errorCode": code });
            assert!(outcome.starts_with("sent") || outcome.starts_with('6'), "{request}, {code}: {outcome}");
            outcomes.entry([10107, 13435].contains(&code)).or_default().insert(outcome);
        }
        let cell = |not_executed: bool| outcomes[&not_executed].iter().cloned().collect::<Vec<_>>().join(", or ");
        let broken = scene.outcome(request, doc! { "closeConnection": true });
        rows += &format!("| {request} | {} | {} | {broken} |\n", cell(true), cell(false));
    }
    let real = INTRODUCTION.to_owned() + &rows;
    let page = repository("docs/reference/router-errors.md");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&page, &real).unwrap();
    }
    assert_eq!(real, std::fs::read_to_string(page).unwrap(), "UPDATE_EXPECT=1 rewrites it");
}
