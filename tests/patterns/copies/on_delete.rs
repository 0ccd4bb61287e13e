//! What happens to copies when their original is deleted: `keep`, `unset`, `reject`.

use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use mongodb::{Client, Database};

use super::arrays::{expect, rule};
use super::{WITHIN, repair};
use support::driver::{all, code, message, scaled};
use support::mongod::{Kind, Mongod};
use support::proxy::Docward;

const CHECKED: &str = "checked all copies";

fn hobby(id: i32) -> Document {
    doc! {"_id": id, "name": format!("hobby {id}")}
}

fn element(id: i32) -> Document {
    doc! {"id": id, "n": format!("hobby {id}")}
}

async fn store(database: &Database, hobbies: &[i32], people: &[Document]) {
    database.collection("hobbies").insert_many(hobbies.iter().map(|id| hobby(*id))).await.unwrap();
    if !people.is_empty() {
        database.collection::<Document>("people").insert_many(people).await.unwrap();
    }
}

fn people() -> Vec<Document> {
    vec![
        doc! {"_id": 1, "hobbies": [element(1), element(2), {"id": 1.0, "n": "hobby 1", "again": true}]},
        doc! {"_id": 2, "hobbies": {"id": 1, "n": "hobby 1", "since": 1990}},
        doc! {"_id": 3, "hobbies": {"id": 2, "n": "hobby 2"}},
        doc! {"_id": 4, "hobbies": [{"id": 77, "n": "never there"}, 5, {"id": [1]}]},
    ]
}

#[tokio::test]
async fn keep_leaves_copies_as_they_are() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    store(&direct, &[1, 2], &people()).await;
    let docward = Docward::start(mongod, &rule(direct.name(), ", on_delete: keep"));
    docward.wait_for_log(CHECKED);
    direct.collection::<Document>("hobbies").delete_one(doc! {"_id": 1}).await.unwrap();
    direct.collection::<Document>("hobbies").update_one(doc! {"_id": 2}, doc! {"$set": {"name": "x"}}).await.unwrap();
    let mut expected = people();
    expected[0] =
        doc! {"_id": 1, "hobbies": [element(1), {"id": 2, "n": "x"}, {"id": 1.0, "n": "hobby 1", "again": true}]};
    expected[2] = doc! {"_id": 3, "hobbies": {"id": 2, "n": "x"}};
    expect(&direct, "people", &expected).await;
}

#[tokio::test]
async fn a_collation_does_not_take_another_original_for_the_deleted_one() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let collation = doc! {"locale": "en", "strength": 2};
    direct.run_command(doc! {"create": "people", "collation": collation}).await.unwrap();
    let named = |id: &str| doc! {"_id": id, "name": id};
    direct.collection("hobbies").insert_many([named("a"), named("A")]).await.unwrap();
    let with = |id: i32, hobby: &str| doc! {"_id": id, "hobbies": [{"id": hobby, "n": hobby}]};
    let plain = |id: i32, hobby: &str| doc! {"_id": id, "hobbies": {"id": hobby, "n": hobby}};
    let people = [with(1, "a"), with(2, "A"), plain(3, "a"), plain(4, "A")];
    direct.collection::<Document>("people").insert_many(&people).await.unwrap();
    let docward = Docward::start(mongod, &rule(direct.name(), ", on_delete: unset"));
    docward.wait_for_log(CHECKED);
    let hobbies = direct.collection::<Document>("hobbies");
    hobbies.delete_one(doc! {"_id": "a"}).await.unwrap();
    let kept = [doc! {"_id": 1, "hobbies": []}, with(2, "A"), doc! {"_id": 3, "hobbies": {}}, plain(4, "A")];
    expect(&direct, "people", &kept).await;
    hobbies.update_one(doc! {"_id": "A"}, doc! {"$set": {"name": "x"}}).await.unwrap();
    let named = [
        doc! {"_id": 1, "hobbies": []},
        doc! {"_id": 2, "hobbies": [{"id": "A", "n": "x"}]},
        doc! {"_id": 3, "hobbies": {}},
        doc! {"_id": 4, "hobbies": {"id": "A", "n": "x"}},
    ];
    expect(&direct, "people", &named).await;
}

#[tokio::test]
async fn unset_removes_references_to_a_deleted_original() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    store(&direct, &[1, 2], &people()).await;
    let many = (1000..1700).map(|id| doc! {"_id": id, "hobbies": [element(2), element(1)]});
    direct.collection("people").insert_many(many).await.unwrap();
    let validator = doc! {"collMod": "people", "validator": {"$or": [{"_id": {"$ne": 1500}}, {"hobbies.id": 1}]}};
    direct.run_command(validator).await.unwrap();
    let rules = rule(direct.name(), ", on_delete: unset");
    let mut docward = Docward::start(mongod, &rules);
    docward.wait_for_log(CHECKED);
    direct.collection::<Document>("hobbies").delete_one(doc! {"_id": 1}).await.unwrap();
    let mut expected = vec![
        doc! {"_id": 1, "hobbies": [element(2)]},
        doc! {"_id": 2, "hobbies": {"since": 1990}},
        doc! {"_id": 3, "hobbies": {"id": 2, "n": "hobby 2"}},
        doc! {"_id": 4, "hobbies": [{"id": 77, "n": "never there"}, 5, {"id": [1]}]},
    ];
    // A document that the server rejects keeps its reference; all others lose theirs.
    expected.extend((1000..1700).map(|id| match id {
        1500 => doc! {"_id": id, "hobbies": [element(2), element(1)]},
        _ => doc! {"_id": id, "hobbies": [element(2)]},
    }));
    expect(&direct, "people", &expected).await;
    docward.wait_for_log("the server rejected the correction of a copy in");

    // After a restart docward processes deletes that it missed. References to originals that never existed are only
    // reported.
    assert!(docward.terminate().success());
    direct.collection::<Document>("hobbies").delete_one(doc! {"_id": 2}).await.unwrap();
    let docward = Docward::start(mongod, &rules);
    expected[0] = doc! {"_id": 1, "hobbies": []};
    expected[2] = doc! {"_id": 3, "hobbies": {}};
    for person in &mut expected[4..] {
        let left: Vec<Document> = if person.get_i32("_id").unwrap() == 1500 { vec![element(1)] } else { Vec::new() };
        person.insert("hobbies", left);
    }
    expect(&direct, "people", &expected).await;
    let output = repair(mongod, &rules, &["--rule", "hobby-names"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("checked 2, stale 0, repaired 0, without original 2"), "{printed}");
    drop(docward);
}

/// Each drop ends the change stream; the next stream starts where it ended.
#[tokio::test]
async fn unset_follows_a_delete_right_after_originals_were_dropped_and_stored_again() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    store(&direct, &[1, 2], &[]).await;
    let docward = Docward::start(mongod, &rule(direct.name(), ", on_delete: unset"));
    docward.wait_for_log(CHECKED);
    let (hobbies, people) = (direct.collection::<Document>("hobbies"), direct.collection::<Document>("people"));
    for round in 1..=scaled(3) as i32 {
        for _ in 0..5 {
            hobbies.drop().await.unwrap();
            store(&direct, &[1, 2], &[]).await;
        }
        people.insert_one(doc! {"_id": round, "hobbies": [element(1), element(2)]}).await.unwrap();
        hobbies.delete_one(doc! {"_id": 1}).await.unwrap();
        let expected: Vec<Document> = (1..=round).map(|id| doc! {"_id": id, "hobbies": [element(2)]}).collect();
        expect(&direct, "people", &expected).await;
    }
}

/// Originals that are deleted and inserted again, each with references that were written after the insert.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unset_keeps_references_to_an_original_that_was_inserted_again() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let rounds = scaled(60) as i32;
    let ids: Vec<i32> = (0..rounds).collect();
    store(&direct, &ids, &[]).await;
    let docward = Docward::start(mongod, &rule(direct.name(), ", on_delete: unset"));
    docward.wait_for_log(CHECKED);
    let (hobbies, people) = (direct.collection::<Document>("hobbies"), direct.collection::<Document>("people"));
    for id in &ids {
        let old: Vec<Document> =
            (0..20).map(|at| doc! {"_id": format!("old {id} {at}"), "hobbies": [element(*id)]}).collect();
        people.insert_many(old).await.unwrap();
        hobbies.delete_one(doc! {"_id": id}).await.unwrap();
        tokio::time::sleep(Duration::from_millis(u64::from(*id as u32 % 12))).await;
        hobbies.insert_one(hobby(*id)).await.unwrap();
        people.insert_one(doc! {"_id": format!("new {id}"), "hobbies": [element(*id)]}).await.unwrap();
    }
    // The last original has been processed once docward has updated one that comes after it.
    hobbies.insert_one(hobby(-1)).await.unwrap();
    people.insert_one(doc! {"_id": "last", "hobbies": [element(-1)]}).await.unwrap();
    hobbies.delete_one(doc! {"_id": -1}).await.unwrap();
    let deadline = Instant::now() + WITHIN;
    let last = async || people.find_one(doc! {"_id": "last"}).await.unwrap().unwrap();
    while !last().await.get_array("hobbies").unwrap().is_empty() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(last().await.get_array("hobbies").unwrap().len(), 0);
    for id in ids {
        let new = people.find_one(doc! {"_id": format!("new {id}")}).await.unwrap().unwrap();
        assert_eq!(new.get_array("hobbies").unwrap().len(), 1, "{id}");
    }
}

#[tokio::test]
async fn reject_keeps_originals_that_are_referred_to() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    store(&direct, &[1, 2, 3, 4, 5, 6], &people()).await;
    let docward = Docward::start(mongod, &rule(direct.name(), ", on_delete: reject"));
    let client = docward.client().await;
    let through = client.database(direct.name());
    let hobbies = through.collection::<Document>("hobbies");
    for filter in [doc! {"_id": 1}, doc! {"name": "hobby 2"}] {
        let error = hobbies.delete_one(filter.clone()).await.unwrap_err();
        assert_eq!(code(&error), 121, "{filter}");
        assert!(message(&error).contains("a document that it deletes is still referenced by 'hobbies.id'"), "{error}");
        assert_eq!(code(&hobbies.find_one_and_delete(filter.clone()).await.unwrap_err()), 121, "{filter}");
    }
    assert_eq!(code(&hobbies.delete_many(doc! {"_id": {"$gte": 2}}).await.unwrap_err()), 121);
    assert_eq!(all(&direct, "hobbies").await.len(), 6, "nothing was deleted");
    assert_eq!(hobbies.delete_one(doc! {"_id": 99}).await.unwrap().deleted_count, 0);
    assert_eq!(hobbies.delete_one(doc! {"_id": 6}).await.unwrap().deleted_count, 1);
    assert_eq!(hobbies.delete_many(doc! {"_id": {"$gte": 4}}).await.unwrap().deleted_count, 2);
    assert!(hobbies.find_one_and_delete(doc! {"_id": 3}).await.unwrap().is_some());

    // In a transaction of the client, its own writes count.
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let people = through.collection::<Document>("people");
    let pull = doc! {"$pull": {"hobbies": {"id": 2}}};
    people.update_many(doc! {"_id": 1}, pull).session(&mut session).await.unwrap();
    people.delete_one(doc! {"_id": 3}).session(&mut session).await.unwrap();
    hobbies.delete_one(doc! {"_id": 2}).session(&mut session).await.unwrap();
    session.commit_transaction().await.unwrap();
    assert_eq!(all(&direct, "hobbies").await, [hobby(1)]);

    // Writing references still works; docward stores nothing in the original.
    people.insert_one(doc! {"_id": 8, "hobbies": [element(1), element(1000)]}).await.unwrap();
    people.update_one(doc! {"_id": 8}, doc! {"$push": {"hobbies": element(1)}}).await.unwrap();
    let replaced = people.replace_one(doc! {"_id": 8}, doc! {"hobbies": element(1)}).await.unwrap();
    assert_eq!((replaced.matched_count, replaced.modified_count), (1, 1));
    // Errors of the server are returned at once.
    let begun = Instant::now();
    let taken = people.insert_one(doc! {"_id": 8, "hobbies": element(1)}).await.unwrap_err();
    assert!(code(&taken) == 11000 && begun.elapsed() < Duration::from_secs(2), "{taken}");
    let upserted = doc! {"$setOnInsert": {"hobbies": [element(1)]}};
    assert!(people.update_one(doc! {"_id": 9}, upserted).upsert(true).await.unwrap().upserted_id.is_some());
    assert_eq!(people.update_many(doc! {"_id": {"$gte": 9}}, computed(1)).await.unwrap().matched_count, 1);
    assert_eq!(all(&direct, "hobbies").await, [hobby(1)]);
    assert_eq!(
        all(&direct, "people").await[3..],
        [doc! {"_id": 8, "hobbies": element(1)}, doc! {"_id": 9, "hobbies": [element(1)]},]
    );
}

/// Copies in the originals' own collection: a reference that is deleted in the same statement does not block the
/// delete.
#[tokio::test]
async fn reject_within_one_collection() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let name = direct.name();
    let rules = format!(
        "version: 1
rules:
  - name: friends
    namespace: {name}.people
    copies: [{{ into: {name}.people, key: friend.id, fields: {{ name: friend.name }}, on_delete: reject }}]
"
    );
    let docward = Docward::start(mongod, &rules);
    let people = docward.client().await.database(name).collection::<Document>("people");
    let person = |id: i32, friend: i32| doc! {"_id": id, "name": format!("{id}"), "friend": {"id": friend, "name": format!("{friend}")}};
    people.insert_many([person(1, 2), person(2, 1), person(3, 3), person(4, 1)]).await.unwrap();
    assert_eq!(code(&people.delete_many(doc! {"_id": {"$lte": 2}}).await.unwrap_err()), 121);
    assert_eq!(people.delete_one(doc! {"_id": 3}).await.unwrap().deleted_count, 1);
    assert_eq!(people.delete_many(doc! {}).await.unwrap().deleted_count, 3);
}

/// A pipeline that computes references, so that it is checked.
fn computed(id: i32) -> Vec<Document> {
    vec![doc! {"$set": {"hobbies": {"$concatArrays": [[], [{"$literal": element(id)}]]}}}]
}

/// A client that reads an original in the transaction that refers to it can rely on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_original_is_deleted_while_a_transaction_refers_to_it() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let ids: Vec<i32> = (0..scaled(80) as i32).collect();
    store(&direct, &ids, &[doc! {"_id": -1}]).await;
    let docward = Docward::start(mongod, &rule(direct.name(), ", on_delete: reject"));
    let name = direct.name().to_owned();
    let (referring, deleting) = (docward.client().await, docward.client().await);
    let (mut referred, mut deleted) = (0, 0);
    for id in ids {
        let insert = async {
            let database = referring.database(&name);
            let mut session = referring.start_session().await.unwrap();
            session.start_transaction().await.unwrap();
            let hobbies = database.collection::<Document>("hobbies");
            if hobbies.find_one(doc! {"_id": id}).session(&mut session).await.unwrap().is_none() {
                session.abort_transaction().await.unwrap();
                return false;
            }
            tokio::time::sleep(Duration::from_millis(u64::from(id as u32 % 3))).await;
            let people = database.collection::<Document>("people");
            let inserted = if id % 2 == 0 {
                let person = doc! {"_id": id, "hobbies": [element(id)]};
                people.insert_one(person).session(&mut session).await.map(drop)
            } else {
                let upsert = people.update_one(doc! {"_id": id}, computed(id)).upsert(true);
                upsert.session(&mut session).await.map(drop)
            };
            match inserted {
                Ok(()) => session.commit_transaction().await.is_ok(),
                Err(_) => {
                    let _ = session.abort_transaction().await;
                    false
                }
            }
        };
        let delete = async {
            tokio::time::sleep(Duration::from_millis(u64::from(id as u32 % 7))).await;
            deleting.database(&name).collection::<Document>("hobbies").delete_one(doc! {"_id": id}).await.is_ok()
        };
        let (is_referred, is_deleted) = tokio::join!(insert, delete);
        assert!(!(is_referred && is_deleted), "{id}");
        referred += i32::from(is_referred);
        deleted += i32::from(is_deleted);
    }
    assert!(referred > 0 && deleted > 0, "{referred} references, {deleted} deletes");
    let left = all(&direct, "hobbies").await;
    let known = |person: &Document| left.iter().any(|hobby| hobby.get("_id") == person.get("_id"));
    assert!(all(&direct, "people").await.iter().skip(1).all(known));
}

/// With `reject` docward acts as the client's user, who needs `find` on the references' collections and write access
/// to the originals.
#[tokio::test]
async fn reject_uses_the_privileges_of_the_client() {
    let mongod = Mongod::start_with_access_control(Kind::ReplicaSet);
    let create = |name: &str, roles: Vec<Bson>| doc! {"createUser": name, "pwd": "secret", "roles": roles};
    let uri = |address: &str, user: &str| format!("mongodb://{user}:secret@{address}/?replicaSet=rs0&authSource=admin");
    let root = Client::with_uri_str(uri(&mongod.address(), "root")).await.unwrap();
    let admin = root.database("admin");
    let may = |collection: &str, actions: &[&str]| {
        doc! {"resource": {"db": "social", "collection": collection}, "actions": actions}
    };
    for (user, privileges) in [
        ("deleter", [may("hobbies", &["find", "remove"]), may("people", &[])]),
        ("reader", [may("hobbies", &["find"]), may("people", &["find", "insert"])]),
    ] {
        let privileges: Vec<Document> =
            privileges.into_iter().filter(|privilege| !privilege.get_array("actions").unwrap().is_empty()).collect();
        admin.run_command(doc! {"createRole": user, "privileges": privileges, "roles": []}).await.unwrap();
        admin.run_command(create(user, vec![doc! {"role": user, "db": "admin"}.into()])).await.unwrap();
    }
    let direct = root.database("social");
    store(&direct, &[1], &[doc! {"_id": 1}]).await;
    let docward = Docward::before(&format!("mongodb://{}/?replicaSet=rs0", mongod.address()))
        .rules(&rule("social", ", on_delete: reject"))
        .argument("--service")
        .argument(uri(&mongod.address(), "root"))
        .start();
    let as_user =
        async |user: &str| Client::with_uri_str(uri(&docward.address(), user)).await.unwrap().database("social");
    let hobbies = as_user("deleter").await.collection::<Document>("hobbies");
    assert_eq!(code(&hobbies.delete_one(doc! {"_id": 1}).await.unwrap_err()), 13);
    let people = as_user("reader").await.collection::<Document>("people");
    assert_eq!(code(&people.insert_one(doc! {"_id": 2, "hobbies": [element(1)]}).await.unwrap_err()), 13);
    people.insert_one(doc! {"_id": 3, "hobbies": []}).await.unwrap();
    assert_eq!(all(&direct, "hobbies").await, [hobby(1)]);
    assert_eq!(all(&direct, "people").await, [doc! {"_id": 1}, doc! {"_id": 3, "hobbies": []}]);
}

/// A removal that meets a write conflict is repeated in a new transaction at once, and few do: it takes a second or
/// two. A transaction that began by reading the original had hundreds of conflicts, and took half a minute or more.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unset_removes_references_while_others_write_the_same_documents() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let originals: Vec<i32> = (1..=10).collect();
    let referring =
        (1..=40).map(|id| doc! {"_id": id, "hobbies": originals.iter().map(|id| element(*id)).collect::<Vec<_>>()});
    store(&direct, &originals, &referring.collect::<Vec<_>>()).await;
    let docward = Docward::start(mongod, &rule(direct.name(), ", on_delete: unset"));
    docward.wait_for_log(CHECKED);
    let people = direct.collection::<Document>("people");
    let writers: Vec<_> = (0..3)
        .map(|_| {
            let people = people.clone();
            tokio::spawn(async move {
                loop {
                    let _ = people.update_many(doc! {}, doc! {"$inc": {"count": 1}}).await;
                }
            })
        })
        .collect();
    for id in originals {
        direct.collection::<Document>("hobbies").delete_one(doc! {"_id": id}).await.unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while people.count_documents(doc! {"hobbies.id": {"$exists": true}}).await.unwrap() > 0 {
        assert!(Instant::now() < deadline, "references remain");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    writers.iter().for_each(tokio::task::JoinHandle::abort);
    let interrupted: Vec<String> =
        docward.log().into_iter().filter(|line| line.contains("not kept consistent")).collect();
    assert!(interrupted.is_empty(), "{interrupted:#?}");
}
