//! The guarantee of `tree`: whatever several writers insert, move and delete concurrently, every path equals the walk
//! to the root. The same workload without the rule breaks it; so does killing an application midway, unless docward
//! does the work. The test computes the walk itself and uses none of docward's code. `errors` tests failures in
//! docward's own transactions, `statements` every way to write a node's place, `random` combinations of them, and
//! `expressions` searches by the path.

mod errors;
mod expressions;
mod random;
mod statements;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR};
use mongodb::{Collection, Database};
use support::driver::{Views, all, code, connect, message, scaled, write_errors};
use support::mongod::{Kind, Mongod};
use support::process::{SOON, TIMEOUT};
use support::proxy::Docward;

const WRITERS: u64 = 8;
const REJECTED: i32 = 121;
const DUPLICATE_KEY: i32 = 11000;
const CONFLICT: i32 = 112;

fn rules(settings: &str) -> String {
    format!("version: 1\nrules:\n  - name: categories\n    namespace: \"*.categories\"\n    tree: {{ {settings} }}\n")
}

/// What is wrong with the tree: cycles, orphans, and paths that differ from the walk to the root.
fn faults(nodes: &[Document]) -> Vec<String> {
    let by_id: HashMap<String, &Document> = nodes.iter().map(|n| (n.get("_id").unwrap().to_string(), n)).collect();
    let mut faults = Vec::new();
    for node in nodes {
        let (mut walk, mut at, mut steps) = (String::new(), node, 0);
        loop {
            let parent = match at.get("parent") {
                None | Some(Bson::Null) => break,
                Some(parent) => parent,
            };
            let text = parent.as_str().map_or_else(|| parent.to_string(), str::to_owned);
            walk = format!("{text},{walk}");
            steps += 1;
            match by_id.get(&parent.to_string()) {
                _ if steps > nodes.len() => {
                    faults.push(format!("a circle above {node}"));
                    break;
                }
                Some(above) => at = above,
                None => {
                    faults.push(format!("{at} is an orphan"));
                    break;
                }
            }
        }
        let expected = if walk.is_empty() { Bson::Null } else { Bson::String(format!(",{walk}")) };
        if steps <= nodes.len() && node.get("path") != Some(&expected) {
            faults.push(format!("{node} should have the path {expected}"));
        }
        if node.contains_key("_docward_touch") {
            faults.push(format!("{node} shows a touch"));
        }
    }
    faults
}

async fn categories(views: &Views) -> Collection<Document> {
    let categories = views.through.collection("categories");
    for (id, parent) in [
        ("Books", None),
        ("Programming", Some("Books")),
        ("Databases", Some("Programming")),
        ("MongoDB", Some("Databases")),
        ("Languages", Some("Programming")),
        ("Music", None),
    ] {
        categories.insert_one(doc! { "_id": id, "parent": parent }).await.unwrap();
    }
    categories
}

async fn path(categories: &Collection<Document>, id: &str) -> Option<String> {
    let node = categories.find_one(doc! { "_id": id }).await.unwrap().unwrap_or_else(|| panic!("{id} is gone"));
    node.get("path").unwrap().as_str().map(str::to_owned)
}

fn rejected<T: std::fmt::Debug>(result: Result<T, Error>, why: &str) {
    let error = result.unwrap_err();
    assert_eq!(code(&error), REJECTED, "{error}");
    assert!(message(&error).contains(why), "{error}");
}

/// A small generator, so that a run can be repeated with its seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Errors that a concurrent writer must expect: the tree's rules, or a lost race.
fn tolerate<T>(result: Result<T, Error>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) => false,
        Err(error) => {
            assert!([REJECTED, DUPLICATE_KEY, CONFLICT].contains(&code(&error)), "{error}");
            false
        }
    }
}

/// One writer: random inserts, moves and deletes among a few names, so that writers collide.
async fn write_at_random(database: Database, seed: u64, rounds: u32, with_rule: bool) -> u32 {
    let categories = database.collection::<Document>("categories");
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut done = 0;
    for _ in 0..rounds {
        let name = |dice: &mut Dice| format!("n{}", dice.below(40));
        let (id, parent) = (name(&mut dice), name(&mut dice));
        let succeeded = match dice.below(10) {
            0..3 if with_rule => tolerate(categories.insert_one(doc! { "_id": &id, "parent": &parent }).await),
            // It inserts, collides with a node in another place, or increments.
            3 if with_rule => {
                let filter = doc! { "_id": &id, "parent": { "$in": [&parent] } };
                let counted = categories.update_one(filter, doc! { "$inc": { "writes": 1 } });
                tolerate(counted.upsert(true).await)
            }
            // Only the stored node shows where it moves to.
            4 if with_rule => {
                let update = doc! { "$min": { "parent": &parent } };
                tolerate(categories.update_one(doc! { "_id": &id }, update).await)
            }
            5..7 if with_rule => {
                tolerate(categories.update_one(doc! { "_id": &id }, doc! { "$set": { "parent": &parent } }).await)
            }
            7 if with_rule => {
                let update = doc! { "$set": { "parent": &parent, "moved": true } };
                tolerate(categories.find_one_and_update(doc! { "_id": &id }, update).await)
            }
            8 if with_rule => tolerate(categories.delete_one(doc! { "_id": &id }).await),
            9 if with_rule => tolerate(in_transaction(&database, &id, &parent).await),
            0..4 => tolerate(insert_by_hand(&categories, &id, &parent).await),
            4..8 => tolerate(move_by_hand(&categories, &id, &parent).await),
            _ => tolerate(delete_by_hand(&categories, &id).await),
        };
        done += u32::from(succeeded);
    }
    done
}

/// Two statements that the application puts into one transaction.
async fn in_transaction(database: &Database, id: &str, parent: &str) -> Result<(), Error> {
    let categories = database.collection::<Document>("categories");
    let mut session = database.client().start_session().await?;
    session.start_transaction().await?;
    let moved = categories.update_one(doc! { "_id": id }, doc! { "$set": { "parent": parent } });
    moved.session(&mut session).await?;
    categories.update_one(doc! { "_id": parent }, doc! { "$inc": { "moves": 1 } }).session(&mut session).await?;
    session.commit_transaction().await
}

/// The application's way without docward: read, then write.
async fn insert_by_hand(categories: &Collection<Document>, id: &str, parent: &str) -> Result<(), Error> {
    let Some(above) = categories.find_one(doc! { "_id": parent }).await? else { return Ok(()) };
    let path = format!("{}{parent},", above.get_str("path").unwrap_or(","));
    categories.insert_one(doc! { "_id": id, "parent": parent, "path": path }).await.map(drop)
}

async fn move_by_hand(categories: &Collection<Document>, id: &str, parent: &str) -> Result<(), Error> {
    let (Some(node), Some(above)) =
        (categories.find_one(doc! { "_id": id }).await?, categories.find_one(doc! { "_id": parent }).await?)
    else {
        return Ok(());
    };
    let below = |node: &Document, id: &str| format!("{}{id},", node.get_str("path").unwrap_or(","));
    let (from, path) = (below(&node, id), below(&above, parent));
    if id == parent || path.starts_with(&from) {
        return Ok(());
    }
    categories.update_one(doc! { "_id": id }, doc! { "$set": { "parent": parent, "path": &path } }).await?;
    let rest = doc! { "$substrBytes": ["$path", from.len() as i32, -1] };
    let rebased = vec![doc! { "$set": { "path": { "$concat": [format!("{path}{id},"), rest] } } }];
    categories.update_many(doc! { "path": { "$regex": format!("^{from}") } }, rebased).await.map(drop)
}

async fn delete_by_hand(categories: &Collection<Document>, id: &str) -> Result<(), Error> {
    if categories.find_one(doc! { "parent": id }).await?.is_none() {
        categories.delete_one(doc! { "_id": id }).await?;
    }
    Ok(())
}

async fn run_concurrent_writers(views: &Views, address: &str, with_rule: bool, rounds: u32) -> u32 {
    let roots: Vec<_> = (0..6).map(|n| doc! { "_id": format!("n{n}"), "path": Bson::Null }).collect();
    views.store("categories", roots).await;
    let writers = (0..WRITERS).map(|seed| async move {
        let database = connect(address, "").await.database(views.through.name());
        tokio::spawn(write_at_random(database, seed + 1, rounds, with_rule)).await.unwrap()
    });
    futures_util::future::join_all(writers).await.iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_writers_keep_every_path_correct() {
    for settings in ["on_delete: reject", "on_delete: cascade"] {
        let docward = Docward::start(Mongod::shared(), &rules(settings));
        let views = Views::of(Mongod::shared(), &docward).await;
        let done = run_concurrent_writers(&views, &docward.address(), true, scaled(60)).await;
        let nodes = views.stored("categories").await;
        assert_eq!(faults(&nodes), Vec::<String>::new(), "{settings}");
        assert!(done > scaled(60), "only {done} writes succeeded");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_rule_the_same_writers_break_the_tree() {
    let docward = Docward::start(Mongod::shared(), "");
    let broken = async {
        for _ in 0..10 {
            let views = Views::of(Mongod::shared(), &docward).await;
            run_concurrent_writers(&views, &docward.address(), false, scaled(60)).await;
            if !faults(&views.stored("categories").await).is_empty() {
                return true;
            }
        }
        false
    };
    assert!(broken.await, "the workload does not break the tree without the rule");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_moves_below_each_other_leave_no_cycle() {
    let docward = Docward::start(Mongod::shared(), &rules(""));
    let views = Views::of(Mongod::shared(), &docward).await;
    let categories = views.through.collection::<Document>("categories");
    for round in 0..scaled(15) {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        categories.insert_many([doc! { "_id": &a }, doc! { "_id": &b }]).await.unwrap();
        categories.insert_one(doc! { "_id": format!("c{round}"), "parent": &a }).await.unwrap();
        let below = |node: &str, parent: String| {
            categories.update_one(doc! { "_id": node }, doc! { "$set": { "parent": parent } }).into_future()
        };
        let (one, other) = tokio::join!(below(&a, b.clone()), below(&b, format!("c{round}")));
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
        rejected(if one.is_ok() { other } else { one }, "below itself");
    }
    assert_eq!(faults(&views.stored("categories").await), Vec::<String>::new());
}

/// Moves and inserts continue while docward is killed; the server's data is a correct tree at every moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_leaves_no_partly_moved_subtree() {
    let mut mongod = Mongod::start(Kind::ReplicaSet);
    // The server aborts transactions of dead clients after this time.
    mongod.command("admin", doc! { "setParameter": 1, "transactionLifetimeLimitSeconds": 2 });
    let database = mongod.fresh_database();
    let direct = mongod.client().await.database(&database);
    let mut nodes = vec![doc! { "_id": "n0", "path": null }, doc! { "_id": "n1", "path": null }];
    nodes.push(doc! { "_id": "n2", "parent": "n0", "path": ",n0," });
    nodes.extend((0..300).map(|n| doc! { "_id": format!("leaf{n}"), "parent": "n2", "path": ",n0,n2," }));
    direct.collection("categories").insert_many(nodes).await.unwrap();
    for round in 0..4u64 {
        let mut docward = Docward::start(&mongod, &rules(""));
        let first_move = std::sync::Arc::new(tokio::sync::Notify::new());
        let over = tokio::sync::watch::Sender::new(());
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (address, database) = (docward.address(), database.clone());
                let (moved_once, mut is_over) = (first_move.clone(), over.subscribe());
                tokio::spawn(async move {
                    let client = connect(&address, "").await;
                    let categories = client.database(&database).collection::<Document>("categories");
                    let mut moves = 0u32;
                    for turn in 0.. {
                        let parent = format!("n{}", (turn + writer) % 2);
                        let moved = categories.update_one(doc! { "_id": "n2" }, doc! { "$set": { "parent": parent } });
                        // The driver would wait for the killed process for a while.
                        let moved = tokio::select! {
                            moved = moved => moved,
                            _ = is_over.changed() => break,
                        };
                        match moved {
                            Ok(_) => {
                                moves += 1;
                                moved_once.notify_one();
                            }
                            Err(error) if is_broken(&error) => break,
                            Err(_) => {}
                        }
                    }
                    moves
                })
            })
            .collect();
        first_move.notified().await;
        tokio::time::sleep(Duration::from_millis(200 + 37 * round)).await;
        docward.kill();
        over.send_replace(());
        let moves: u32 = futures_util::future::join_all(writers).await.into_iter().map(Result::unwrap).sum();
        assert!(moves > 0, "nothing was moved before the kill");
        assert_eq!(faults(&at_one_moment(&direct, "categories").await), Vec::<String>::new());
    }
    let docward = Docward::start(&mongod, &rules(""));
    let categories = docward.client().await.database(&database).collection::<Document>("categories");
    let since = Instant::now();
    // Locks of the killed processes are released.
    while categories.update_one(doc! { "_id": "n2" }, doc! { "$unset": { "parent": 1 } }).await.is_err() {
        assert!(since.elapsed() < TIMEOUT, "the lock is never released");
    }
    assert_eq!(faults(&all(&direct, "categories").await), Vec::<String>::new());
    mongod.kill();
}

/// All documents of a collection in one snapshot: a commit that the killed process had sent may still run.
async fn at_one_moment(database: &Database, collection: &str) -> Vec<Document> {
    let find = doc! { "find": collection, "batchSize": 10_000, "readConcern": { "level": "snapshot" } };
    let reply = database.run_command(find).await.unwrap();
    let cursor = reply.get_document("cursor").unwrap();
    assert_eq!(cursor.get_i64("id").unwrap(), 0, "there is more of it");
    cursor.get_array("firstBatch").unwrap().iter().map(|each| each.as_document().unwrap().clone()).collect()
}

/// The connection is broken, rather than a statement rejected.
fn is_broken(error: &Error) -> bool {
    use mongodb::error::ErrorKind;
    !matches!(error.kind.as_ref(), ErrorKind::Command(_) | ErrorKind::Write(_))
}

/// An acknowledged node is found, whatever else is being written: docward's own transaction starts with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_was_just_stored_is_found() {
    let docward = Docward::start(Mongod::shared(), &rules(""));
    let views = Views::of(Mongod::shared(), &docward).await;
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let noise: Collection<Document> = views.direct.collection(&format!("noise{writer}"));
            tokio::spawn(async move {
                loop {
                    noise.insert_many((0..50).map(|_| doc! { "x": "y".repeat(200) })).await.unwrap();
                }
            })
        })
        .collect();
    let through: Collection<Document> = views.collection("categories");
    for id in 0..scaled(300) as i32 {
        let insert =
            doc! { "insert": "categories", "documents": [{ "_id": id }], "writeConcern": { "w": 1, "j": false } };
        views.direct.run_command(insert).await.unwrap();
        let moved = through.update_one(doc! { "_id": id }, doc! { "$set": { "parent": null } }).await.unwrap();
        assert_eq!(moved.matched_count, 1, "{id}");
    }
    writers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn every_way_to_write_a_place() {
    let docward = Docward::start(Mongod::shared(), &rules(""));
    let views = Views::of(Mongod::shared(), &docward).await;
    let categories = categories(&views).await;
    assert_eq!(path(&categories, "MongoDB").await.unwrap(), ",Books,Programming,Databases,");
    assert_eq!(path(&categories, "Books").await, None);

    // A batch in which children follow their parents, ordered and unordered.
    for ordered in [true, false] {
        let name = |n: i32| format!("{ordered}{n}");
        let chain =
            (0..3).map(|n| doc! { "_id": name(n), "parent": if n == 0 { "Music".into() } else { name(n - 1) } });
        categories.insert_many(chain).ordered(ordered).await.unwrap();
        assert_eq!(path(&categories, &name(2)).await.unwrap(), format!(",Music,{},{},", name(0), name(1)));
    }
    let orphan = views.run(doc! { "insert": "categories", "ordered": false, "documents": [
    { "_id": "x", "parent": "nowhere" }, { "_id": "y", "parent": "Music" }, { "_id": "z", "path": "Music" },
    { "_id": "MongoDB", "parent": "Music" }, { "_id": "q", "path": ",Books,Music," }, { "_id": "root" } ] });
    let reply = orphan.await.unwrap();
    assert_eq!(write_errors(&reply), [(0, REJECTED), (2, REJECTED), (3, DUPLICATE_KEY), (4, REJECTED)]);
    assert_eq!(reply.get_i32("n").unwrap(), 2);

    // A client's path is accepted if it is correct, and determines the parent.
    categories.insert_one(doc! { "_id": "Go", "path": ",Books,Programming,Languages," }).await.unwrap();
    assert_eq!(
        categories.find_one(doc! { "_id": "Go" }).await.unwrap().unwrap().get_str("parent").unwrap(),
        "Languages"
    );
    rejected(categories.insert_one(doc! { "_id": "C", "parent": "Books", "path": ",Music," }).await, "\",Books,\"");

    // Moves: with $set, replacement, findAndModify, upsert, to the root and back.
    let moved =
        categories.update_one(doc! { "_id": "Databases" }, doc! { "$set": { "parent": "Music" } }).await.unwrap();
    assert_eq!((moved.matched_count, moved.modified_count), (1, 1));
    assert_eq!(path(&categories, "MongoDB").await.unwrap(), ",Music,Databases,");
    categories.replace_one(doc! { "_id": "Databases" }, doc! { "parent": "Books", "n": 1 }).await.unwrap();
    assert_eq!(path(&categories, "MongoDB").await.unwrap(), ",Books,Databases,");
    let update = doc! { "$unset": { "parent": "" }, "$set": { "n": 2 } };
    let after = categories.find_one_and_update(doc! { "n": 1 }, update);
    let after = after.return_document(mongodb::options::ReturnDocument::After).await.unwrap().unwrap();
    assert_eq!(after, doc! { "_id": "Databases", "n": 2, "path": null });
    assert_eq!(path(&categories, "MongoDB").await.unwrap(), ",Databases,");
    for parent in ["Languages", "Programming"] {
        let set = doc! { "$set": { "parent": parent } };
        categories.update_one(doc! { "_id": "Databases" }, set).upsert(true).await.unwrap();
    }
    assert_eq!(path(&categories, "MongoDB").await.unwrap(), ",Books,Programming,Databases,");
    let upsert = categories.update_one(doc! { "_id": "Rust", "parent": "Languages" }, doc! { "$set": { "n": 1 } });
    assert_eq!(upsert.upsert(true).await.unwrap().upserted_id, Some("Rust".into()));
    assert_eq!(path(&categories, "Rust").await.unwrap(), ",Books,Programming,Languages,");
    let nothing = categories.update_one(doc! { "_id": "none" }, doc! { "$set": { "parent": "Music" } }).await.unwrap();
    assert_eq!(nothing.matched_count, 0);

    // Forbidden statements.
    let set = |set: Document| categories.update_one(doc! { "_id": "Programming" }, doc! { "$set": set }).into_future();
    rejected(set(doc! { "parent": "MongoDB" }).await, "below itself");
    rejected(set(doc! { "parent": "Programming" }).await, "below itself");
    rejected(set(doc! { "parent": 7 }).await, "does not exist");
    rejected(set(doc! { "path": ",Music," }).await, "\",Books,\"");
    rejected(set(doc! { "parent": "a,b" }).await, "is not a valid _id");
    set(doc! { "path": ",Books,", "n": 1 }).await.unwrap();
    rejected(categories.update_many(doc! {}, doc! { "$set": { "parent": "Music" } }).await, "many nodes");
    rejected(categories.insert_one(doc! { "_id": 7, "parent": "Music" }).await, "one type");
    categories.update_many(doc! {}, doc! { "$set": { "seen": true } }).await.unwrap();

    // Deletes.
    rejected(categories.delete_one(doc! { "_id": "Programming" }).await, "has children");
    rejected(categories.delete_many(doc! { "_id": { "$in": ["Databases", "Rust"] } }).await, "has children");
    rejected(categories.find_one_and_delete(doc! { "_id": "Databases" }).await, "has children");
    let both = categories.delete_many(doc! { "_id": { "$in": ["Databases", "MongoDB"] } }).await.unwrap();
    assert_eq!(both.deleted_count, 2);
    assert_eq!(categories.delete_one(doc! { "_id": "Rust" }).await.unwrap().deleted_count, 1);
    assert_eq!(faults(&views.stored("categories").await), Vec::<String>::new());
    categories.delete_many(doc! {}).await.unwrap();
}

#[tokio::test]
async fn numbers_and_object_ids_are_written_in_paths() {
    let docward = Docward::start(Mongod::shared(), &rules("separator: /, path: a.way, parent: up"));
    let views = Views::of(Mongod::shared(), &docward).await;
    let categories = views.through.collection::<Document>("categories");
    let id = bson::oid::ObjectId::parse_str("0123456789abcdef01234567").unwrap();
    let nodes = [doc! { "_id": 7 }, doc! { "_id": "7" }, doc! { "_id": id }];
    categories.insert_many(nodes).await.unwrap();
    let children = [
        doc! { "_id": 8i64, "up": 7.0 },
        doc! { "_id": "8", "up": "7" },
        doc! { "up": id },
        doc! { "_id": 9, "up": 8 },
    ];
    categories.insert_many(children).await.unwrap();
    // Two nodes whose ids have the same text do not affect each other.
    categories.update_one(doc! { "_id": 8 }, doc! { "$unset": { "up": 1 } }).await.unwrap();
    categories.delete_one(doc! { "_id": 7 }).await.unwrap();
    let way = |node: &Document| node.get_document("a").unwrap().get("way").unwrap().clone();
    let stored: Vec<_> = views.stored("categories").await.iter().map(way).collect();
    let expected: [Bson; 6] =
        [Bson::Null, "/8/".into(), Bson::Null, "/7/".into(), Bson::Null, format!("/{id}/").into()];
    assert_eq!(stored, expected);
}

#[tokio::test]
async fn cascades_delete_exactly_the_subtree() {
    let docward = Docward::start(Mongod::shared(), &rules("on_delete: cascade"));
    let views = Views::of(Mongod::shared(), &docward).await;
    let categories = categories(&views).await;
    assert_eq!(categories.delete_one(doc! { "_id": "Programming" }).await.unwrap().deleted_count, 1);
    let left: Vec<_> = views.stored("categories").await;
    assert_eq!(
        left,
        [doc! { "_id": "Books", "parent": null, "path": null }, doc! { "_id": "Music", "parent": null, "path": null }]
    );
}

/// A write whose reply was lost is sent again with the same number. It must not run twice, and its reply must be the
/// first one's.
#[tokio::test]
async fn a_retried_write_happens_once() {
    let docward = Docward::start(Mongod::shared(), &rules(""));
    let views = Views::of(Mongod::shared(), &docward).await;
    categories(&views).await;
    let mut client = support::raw::Client::connect(&docward.address());
    let lsid = doc! { "id": bson::Uuid::new() };
    let mut send = |number: i64, mut command: Document| {
        command.extend(doc! { "lsid": lsid.clone(), "txnNumber": number });
        client.command(views.through.name(), command)
    };
    let count = |reply: &Document| (reply.get_i32("n").unwrap(), write_errors(reply).len());
    for _ in 0..3 {
        let documents = vec![doc! { "_id": "r0", "parent": "Music" }, doc! { "_id": "r1", "parent": "r0" }];
        assert_eq!(count(&send(1, doc! { "insert": "categories", "documents": documents })), (2, 0));
    }
    for _ in 0..3 {
        let update = vec![doc! { "q": { "_id": "r0" }, "u": { "$inc": { "n": 1 }, "$set": { "parent": "Books" } } }];
        let reply = send(2, doc! { "update": "categories", "updates": update });
        assert_eq!((count(&reply), reply.get_i32("nModified").unwrap()), ((1, 0), 1));
    }
    let moved = doc! { "findAndModify": "categories", "query": { "_id": "r0" }, "update": { "$inc": { "n": 1 }, "$set": { "parent": "Music" } } };
    assert_eq!(send(3, moved.clone()).get_f64("ok").unwrap(), 1.0);
    assert_eq!(send(3, moved).get_i32("code").unwrap(), 217);
    for _ in 0..2 {
        let delete = vec![doc! { "q": { "_id": "r1" }, "limit": 1 }];
        assert_eq!(count(&send(4, doc! { "delete": "categories", "deletes": delete })), (1, 0));
    }
    // The server's own error, at once, for a write that is older than the session's last one.
    let began = std::time::Instant::now();
    let update = vec![doc! { "q": { "_id": "r0" }, "u": { "$set": { "parent": "Books" } } }];
    let reply = send(1, doc! { "update": "categories", "updates": update });
    assert_eq!(reply.get_i32("code").unwrap(), 225, "{reply}");
    assert!(began.elapsed() < std::time::Duration::from_secs(2), "{:?}", began.elapsed());
    let stored = views.stored("categories").await;
    let r0 = stored.iter().find(|node| node.get_str("_id").unwrap() == "r0").unwrap();
    assert_eq!(*r0, doc! { "_id": "r0", "parent": "Music", "path": ",Music,", "n": 2 });
    assert_eq!(faults(&stored), Vec::<String>::new());
}

/// The second request may arrive at another docward while the first is still running.
#[test]
fn a_write_sent_twice_at_once_happens_once() {
    let mongod = Mongod::shared();
    let docwards = [Docward::start(mongod, &rules("")), Docward::start(mongod, &rules(""))];
    let database = mongod.fresh_database();
    let roots =
        vec![doc! { "_id": "a", "path": null }, doc! { "_id": "b", "path": null }, doc! { "_id": "x", "path": null }];
    mongod.command(&database, doc! { "insert": "categories", "documents": roots });
    let lsid = doc! { "id": bson::Uuid::new() };
    for number in 1..=i64::from(scaled(30)) {
        let parent = if number % 2 == 0 { "a" } else { "b" };
        let update = doc! { "q": { "_id": "x" }, "u": { "$set": { "parent": parent }, "$inc": { "n": 1 } } };
        let command = doc! { "update": "categories", "updates": [update], "lsid": lsid.clone(), "txnNumber": number };
        std::thread::scope(|scope| {
            for docward in &docwards {
                let (command, database) = (command.clone(), &database);
                scope.spawn(move || {
                    let reply = support::raw::Client::connect(&docward.address()).command(database, command);
                    assert_eq!(reply.get_i32("n").ok(), Some(1), "{reply}");
                });
            }
        });
        let found = mongod.command(&database, doc! { "find": "categories", "filter": { "_id": "x" } });
        let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0].clone();
        let expected = doc! { "_id": "x", "path": format!(",{parent},"), "parent": parent, "n": number as i32 };
        assert_eq!(found.as_document().unwrap(), &expected);
    }
}

/// A client that disconnects leaves no transaction that locks nodes until the server aborts it.
#[test]
fn a_client_that_disconnects_leaves_no_locks() {
    let mongod = Mongod::shared();
    let docward = Docward::start(mongod, &rules(""));
    let database = mongod.fresh_database();
    let roots = vec![doc! { "_id": "a", "path": null }, doc! { "_id": "b", "path": null }];
    mongod.command(&database, doc! { "insert": "categories", "documents": roots });
    for n in 0..scaled(40) {
        let document = doc! { "_id": format!("c{n}"), "parent": "a" };
        let insert = doc! { "insert": "categories", "documents": [document], "$db": &database };
        let mut client = support::raw::Client::connect(&docward.address());
        client.send(&support::frame::Message::new(insert));
        std::thread::sleep(Duration::from_micros(u64::from(n) * 150));
    }
    let since = Instant::now();
    let update = doc! { "q": { "_id": "a" }, "u": { "$set": { "parent": "b" } } };
    let command = doc! { "update": "categories", "updates": [update] };
    let reply = support::raw::Client::connect(&docward.address()).command(&database, command);
    assert_eq!((reply.get_i32("n").unwrap(), write_errors(&reply)), (1, vec![]), "{reply}");
    // A remaining transaction would delay it by a minute.
    assert!(since.elapsed() < SOON);
}

#[tokio::test]
async fn tree_works_together_with_other_rules() {
    let others = "  - { name: timestamps, namespace: \"*.categories\", timestamps: { source: at, type: long } }\n  \
                  - { name: numbers, namespace: \"*.categories\", sequence: { field: _id, counter: c } }\n";
    let docward = Docward::start(Mongod::shared(), &format!("{}{others}", rules("")));
    let views = Views::of(Mongod::shared(), &docward).await;
    let categories = views.through.collection::<Document>("categories");
    let insert = |document: Document| doc! { "insert": "categories", "documents": [document] };
    views.run(insert(doc! { "at": 1i64 })).await.unwrap();
    views.run(insert(doc! { "at": 1i64, "parent": 1 })).await.unwrap();
    views.run(insert(doc! { "at": 1i64, "parent": 2 })).await.unwrap();
    let set = doc! { "$set": { "at": 5i64, "parent": null } };
    categories.update_one(doc! { "_id": 2 }, set).await.unwrap();
    let stored = views.stored("categories").await;
    let paths: Vec<_> = stored.iter().map(|node| node.get("path").unwrap().clone()).collect();
    assert_eq!(paths, [Bson::Null, Bson::Null, ",2,".into()]);
    assert_eq!(stored[1].get_document("last_modified").unwrap().get_i64("parent").unwrap(), 5);
    // A late move changes nothing, by whatever statement; an accepted one moves the subtree.
    let set = |at: i64| doc! { "$set": { "at": at, "parent": 1 } };
    categories.update_one(doc! { "_id": 2 }, set(4)).upsert(true).await.unwrap();
    assert_eq!(views.stored("categories").await, stored);
    categories.update_one(doc! { "_id": 2 }, set(6)).await.unwrap();
    let moved = categories.find_one(doc! { "_id": 3 }).await.unwrap().unwrap();
    assert_eq!(moved.get_str("path").unwrap(), ",1,2,");
    assert_eq!(faults(&views.stored("categories").await), Vec::<String>::new());
}

#[test]
fn a_standalone_is_detected() {
    let mut mongod = Mongod::start(Kind::Standalone);
    let docward = Docward::start(&mongod, &rules(""));
    let insert = doc! { "insert": "categories", "documents": [{ "_id": "a", "parent": "b" }] };
    let reply = support::raw::Client::connect(&docward.address()).command("test", insert);
    assert_eq!(write_errors(&reply), [(0, REJECTED)]);
    assert!(reply.to_string().contains("needs a replica set"), "{reply}");
    mongod.kill();
}
