//! The client's error if its statement fails in a transaction that docward runs for it, or in its own: the same as
//! without docward, and as quickly.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use mongodb::Database;
use mongodb::error::Error;

use super::{CONFLICT, DUPLICATE_KEY, categories, faults, rules};
use support::driver::{Views, all, code, message, scaled, write_errors};
use support::mongod::{Kind, Mongod};
use support::proxy::Docward;
use support::raw::Client;

/// Much less than the time of the 300 attempts that docward makes after collisions.
const IMMEDIATE: Duration = Duration::from_secs(3);
const MAX_TIME_MS_EXPIRED: i32 = 50;
const UNAUTHORIZED: i32 = 13;

/// Upserts that collide with a stored node, and updates that take another node's unique name.
fn collisions() -> Vec<Document> {
    let upsert = |q: Document, u: Document| doc! { "q": q, "u": u, "upsert": true };
    vec![
        upsert(doc! { "_id": "Music", "x": 5 }, doc! { "$set": { "parent": "Books" } }),
        upsert(doc! { "_id": "Music", "x": 5 }, doc! { "$set": { "n": 1 } }),
        upsert(doc! { "_id": "Music", "parent": "Books" }, doc! { "$inc": { "n": 1 } }),
        upsert(doc! { "_id": "Music", "$or": [{ "x": 5 }] }, doc! { "parent": "Books" }),
        upsert(doc! { "x": 5 }, doc! { "_id": "Music", "parent": "Books" }),
        upsert(doc! { "_id": "new" }, doc! { "$set": { "name": "taken", "parent": "Books" } }),
        upsert(doc! { "_id": "new", "name": "taken" }, doc! { "$set": { "parent": "Books" } }),
        upsert(doc! { "name": "taken", "x": 5 }, doc! { "$setOnInsert": { "parent": "Books", "_id": "new" } }),
        doc! { "q": { "_id": "Languages" }, "u": { "$set": { "name": "taken", "parent": "Music" } } },
    ]
}

/// The reply without fields about the server.
fn bare(mut reply: Document) -> Document {
    for key in ["$clusterTime", "operationTime", "electionId", "opTime"] {
        reply.remove(key);
    }
    reply
}

fn as_find_and_modify(statement: &Document) -> Document {
    let mut command = doc! { "findAndModify": "categories" };
    for (from, to) in [("q", "query"), ("u", "update"), ("upsert", "upsert")] {
        command.extend(statement.get(from).map(|value| (to.to_owned(), value.clone())));
    }
    command
}

async fn prepared(docward: &Docward) -> Views {
    let views = Views::of(Mongod::shared(), docward).await;
    categories(&views).await;
    let indexes = vec![doc! { "key": { "name": 1 }, "name": "name_1", "unique": true, "sparse": true }];
    views.direct.run_command(doc! { "createIndexes": "categories", "indexes": indexes }).await.unwrap();
    views.store("categories", [doc! { "_id": "Taken", "name": "taken", "path": null }]).await;
    views
}

#[tokio::test]
async fn a_collision_is_the_servers_error_at_once() {
    let docward = Docward::start(Mongod::shared(), &rules(""));
    let views = prepared(&docward).await;
    let before = views.stored("categories").await;
    let mut clients = [Client::connect(&docward.address()), Client::connect(&Mongod::shared().address())];
    let mut both = |command: &Document| {
        let since = Instant::now();
        let replies = clients.each_mut().map(|client| bare(client.command(views.through.name(), command.clone())));
        assert!(since.elapsed() < IMMEDIATE, "{command} took {:?}", since.elapsed());
        assert_eq!(replies[0], replies[1], "{command}");
        replies[0].clone()
    };
    for statement in collisions() {
        let reply = both(&doc! { "update": "categories", "updates": [statement.clone()] });
        assert_eq!(write_errors(&reply), [(0, DUPLICATE_KEY)], "{statement}: {reply}");
        let reply = both(&as_find_and_modify(&statement));
        assert_eq!(reply.get_i32("code").unwrap(), DUPLICATE_KEY, "{statement}: {reply}");
    }
    // Each statement of a batch keeps its index.
    let reply = both(&doc! { "update": "categories", "updates": collisions(), "ordered": false });
    let expected: Vec<_> = (0..collisions().len() as i32).map(|index| (index, DUPLICATE_KEY)).collect();
    assert_eq!(write_errors(&reply), expected);
    assert_eq!(views.stored("categories").await, before);
}

/// The same together with rules that add conditions to the filter.
#[tokio::test]
async fn a_collision_with_other_rules_ends_at_once() {
    for other in ["bounds: { field: n, min: 0 }", "replacement: { policy: check_version, version: v }"] {
        let other = format!("  - {{ name: other, namespace: \"*.categories\", {other} }}\n");
        let docward = Docward::start(Mongod::shared(), &format!("{}{other}", rules("")));
        let views = prepared(&docward).await;
        let before = views.stored("categories").await;
        for statement in collisions() {
            let since = Instant::now();
            let reply = views.run(doc! { "update": "categories", "updates": [statement.clone()] }).await.unwrap();
            assert!(since.elapsed() < IMMEDIATE, "{other} {statement}: {:?}", since.elapsed());
            assert_eq!(reply.get_i32("nModified").unwrap(), 0, "{other} {statement}: {reply}");
            assert!(!reply.contains_key("upserted"), "{other} {statement}: {reply}");
        }
        assert_eq!(views.stored("categories").await, before, "{other}");
    }
}

/// Upserts that really race are repeated: one of them inserts, the others match the inserted document.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upserts_of_one_node_at_once_insert_it_once() {
    let docwards = [Docward::start(Mongod::shared(), &rules("")), Docward::start(Mongod::shared(), &rules(""))];
    let views = Views::of(Mongod::shared(), &docwards[0]).await;
    categories(&views).await;
    let mut databases = Vec::new();
    for docward in &docwards {
        databases.push(docward.client().await.database(views.through.name()));
    }
    for round in 0..scaled(10) {
        let upserts = (0..8).map(|writer| {
            let nodes = databases[writer % 2].collection::<Document>("categories");
            let parent = if writer % 3 == 0 { "Books" } else { "Music" };
            let update = doc! { "$set": { "parent": parent }, "$inc": { "writes": 1 } };
            async move { nodes.update_one(doc! { "_id": format!("new{round}") }, update).upsert(true).await.unwrap() }
        });
        let results = futures_util::future::join_all(upserts).await;
        assert_eq!(results.iter().filter(|result| result.upserted_id.is_some()).count(), 1, "{results:?}");
        assert_eq!(results.iter().map(|result| result.matched_count).sum::<u64>(), 7, "{results:?}");
        let stored = databases[0].collection::<Document>("categories");
        let node = stored.find_one(doc! { "_id": format!("new{round}") }).await.unwrap().unwrap();
        assert_eq!(node.get_i32("writes").unwrap(), 8);
    }
    assert_eq!(faults(&views.stored("categories").await), Vec::<String>::new());
}

/// What an application sees of a statement that fails inside its transaction, and of the following commit.
type Ending = (i32, String, BTreeSet<String>, i32, BTreeSet<String>);

async fn ending(database: &Database, meanwhile: Option<&Database>, failing: &Document) -> Ending {
    let labels = |error: &Error| error.labels().iter().cloned().collect::<BTreeSet<_>>();
    let mut session = database.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let nodes = database.collection::<Document>("categories");
    nodes.update_one(doc! { "_id": "Books" }, doc! { "$inc": { "n": 1 } }).session(&mut session).await.unwrap();
    if let Some(other) = meanwhile {
        let other = other.collection::<Document>("categories");
        other.update_one(doc! { "_id": "Music" }, doc! { "$inc": { "n": 1 } }).await.unwrap();
    }
    let failed = match database.run_command(failing.clone()).session(&mut session).await {
        Err(error) => (code(&error), message(&error), labels(&error)),
        Ok(reply) => {
            let error = reply.get_array("writeErrors").unwrap_or_else(|_| panic!("{failing}: {reply}"))[0].clone();
            let error = error.as_document().unwrap().clone();
            (error.get_i32("code").unwrap(), error.get_str("errmsg").unwrap().to_owned(), BTreeSet::new())
        }
    };
    let commit = session.commit_transaction().await.unwrap_err();
    (failed.0, failed.1, failed.2, code(&commit), labels(&commit))
}

#[tokio::test]
async fn inside_the_clients_transaction_an_error_is_the_servers() {
    let docward = Docward::start(Mongod::shared(), &rules(""));
    let views = prepared(&docward).await;
    let before = views.stored("categories").await;
    let mut failing: Vec<Document> =
        collisions().iter().map(|statement| doc! { "update": "categories", "updates": [statement.clone()] }).collect();
    failing.extend(collisions().iter().map(as_find_and_modify));
    failing.push(doc! { "insert": "categories", "documents": [{ "_id": "Go", "parent": "Books", "name": "taken" }] });
    for command in failing {
        let through = ending(&views.through, None, &command).await;
        assert_eq!(through, ending(&views.direct, None, &command).await, "{command}");
        assert_eq!(through.0, DUPLICATE_KEY, "{command}");
    }
    // Others have changed the new parent, or the node itself.
    let before_conflicts = views.stored("categories").await;
    assert_eq!(before_conflicts, before);
    for statement in [
        doc! { "q": { "_id": "Music" }, "u": { "$set": { "parent": "Books" } } },
        doc! { "q": { "_id": "Music", "n": { "$exists": false } }, "u": { "$set": { "parent": "Books" } }, "upsert": true },
    ] {
        for command in [doc! { "update": "categories", "updates": [statement.clone()] }, as_find_and_modify(&statement)]
        {
            let nodes = views.direct.collection::<Document>("categories");
            let reset = || nodes.update_one(doc! { "_id": "Music" }, doc! { "$unset": { "n": 1 } }).into_future();
            let through = ending(&views.through, Some(&views.direct), &command).await;
            reset().await.unwrap();
            let direct = ending(&views.direct, Some(&views.direct), &command).await;
            reset().await.unwrap();
            let kept = |(code, _, labels, commit, commit_labels): Ending| (code, labels, commit, commit_labels);
            assert_eq!(kept(through.clone()), kept(direct), "{command}");
            assert_eq!((through.0, through.2.len()), (CONFLICT, 1), "{command} {through:?}");
        }
    }
}

/// The server waits for a node that another transaction locks until maxTimeMS is over; so does docward.
#[tokio::test]
async fn a_time_limit_bounds_all_attempts() {
    let docward = Docward::start(Mongod::shared(), &rules(""));
    let views = prepared(&docward).await;
    let mut session = views.direct.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let nodes = views.direct.collection::<Document>("categories");
    nodes.update_one(doc! { "_id": "Books" }, doc! { "$inc": { "n": 1 } }).session(&mut session).await.unwrap();
    let child = doc! { "_id": "Go", "parent": "Books" };
    let update = |q: Document| doc! { "q": q, "u": { "$set": { "parent": "Books" } }, "upsert": true };
    let through = [
        doc! { "insert": "categories", "documents": [child.clone()] },
        doc! { "update": "categories", "updates": [update(doc! { "_id": "Music" })] },
        doc! { "update": "categories", "updates": [update(doc! { "_id": "Go" })], "ordered": false },
        as_find_and_modify(&update(doc! { "_id": "Go" })),
        doc! { "delete": "categories", "deletes": [{ "q": { "_id": "Books" }, "limit": 1 }] },
    ];
    let directly =
        doc! { "update": "categories", "updates": [{ "q": { "_id": "Books" }, "u": { "$set": { "n": 7 } } }] };
    let limited = |mut command: Document| {
        command.insert("maxTimeMS", 300);
        command
    };
    let expected = views.direct.run_command(limited(directly)).await.unwrap_err();
    assert_eq!(code(&expected), MAX_TIME_MS_EXPIRED);
    for command in through {
        if command.contains_key("delete") {
            // The node has no children because of which the rule would reject this.
            let below = doc! { "_id": { "$nin": ["Books", "Music", "Taken"] } };
            nodes.delete_many(below).await.unwrap();
        }
        let since = Instant::now();
        let error = views.through.run_command(limited(command.clone())).await.unwrap_err();
        let took = since.elapsed();
        assert_eq!(code(&error), MAX_TIME_MS_EXPIRED, "{command}: {error}");
        assert!(message(&error).contains("operation exceeded time limit"), "{error}");
        assert!(error.labels().is_empty(), "{error:?}");
        assert!((Duration::from_millis(290)..IMMEDIATE).contains(&took), "{command} took {took:?}");
    }
    session.abort_transaction().await.unwrap();
    let stored = views.stored("categories").await;
    assert!(stored.iter().all(|node| node.get("_id") != Some(&Bson::from("Go"))), "{stored:?}");
}

/// docward reads, updates and moves as the logged-in user, whatever privileges its own user has.
#[test]
fn a_user_without_privileges_changes_nothing() {
    let mut mongod = Mongod::start_with_access_control(Kind::ReplicaSet);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let uri = |address: &str, user: &str| format!("mongodb://{user}:secret@{address}/?replicaSet=rs0&authSource=admin");
    let database =
        |uri: String| runtime.block_on(async { mongodb::Client::with_uri_str(uri).await.unwrap().database("d") });
    let run = |database: &Database, command: Document| runtime.block_on(database.run_command(command).into_future());
    let direct = database(uri(&mongod.address(), "root"));
    let nodes =
        [doc! { "_id": "a", "path": null }, doc! { "_id": "b", "path": null }, doc! { "_id": "c", "path": null }];
    run(&direct, doc! { "insert": "categories", "documents": nodes.clone().map(Bson::from).to_vec() }).unwrap();
    let admin = direct.client().database("admin");
    for actions in [&["find"][..], &["insert", "update", "remove"], &["find", "insert"]] {
        let name = actions.join("");
        let privilege = doc! { "resource": { "db": "d", "collection": "categories" }, "actions": actions };
        run(&admin, doc! { "createRole": &name, "privileges": [privilege], "roles": [] }).unwrap();
        run(&admin, doc! { "createUser": &name, "pwd": "secret", "roles": [&name] }).unwrap();
    }
    let docward = Docward::before(&format!("mongodb://{}/?replicaSet=rs0", mongod.address()))
        .argument(format!("--service={}", uri(&mongod.address(), "root")))
        .rules(&rules("on_delete: cascade"))
        .start();
    let child = doc! { "_id": "d", "parent": "a" };
    let moved = |upsert: bool| doc! { "q": { "_id": "b" }, "u": { "$set": { "parent": "a" } }, "upsert": upsert };
    for user in ["find", "insertupdateremove", "findinsert"] {
        let through = database(uri(&docward.address(), user));
        for command in [
            doc! { "insert": "categories", "documents": [child.clone()] },
            doc! { "update": "categories", "updates": [moved(false)] },
            doc! { "update": "categories", "updates": [moved(true)] },
            as_find_and_modify(&moved(false)),
            doc! { "delete": "categories", "deletes": [{ "q": { "_id": "c" }, "limit": 1 }] },
        ] {
            let error = run(&through, command.clone()).unwrap_err();
            assert_eq!(code(&error), UNAUTHORIZED, "{user} {command}: {error}");
        }
        let stored = runtime.block_on(all(&direct, "categories"));
        assert_eq!(stored, nodes, "{user}");
    }
    mongod.kill();
}
