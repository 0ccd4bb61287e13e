//! The pattern `limits` in front of a real mongod: whatever applications send, and however many push at once, arrays
//! and documents stay within their limits.

mod random;

use std::sync::OnceLock;

use bson::{Bson, Document, doc};
use mongodb::Collection;
use support::driver::{Views, code, message, write_errors};
use support::mongod::Mongod;
use support::proxy::Docward;
use tokio::task::JoinSet;

const RULES: &str = r#"
version: 1
rules:
  - { name: items, namespace: "*.items", limits: { items: { i: 3, a.i: 3 } } }
  - { name: short, namespace: "*.short", limits: { document: 300B } }
  - { name: both, namespace: "*.both", limits: { items: { i: 5 }, document: 300B } }
  - { name: timed, namespace: "*.timed", limits: { document: 300B } }
  - { name: times, namespace: "*.timed", timestamps: { source: at, without_source: clock } }
  - { name: counted, namespace: "*.timed", replacement: { policy: merge, version: v } }
"#;

async fn views() -> Views {
    static DOCWARD: OnceLock<Docward> = OnceLock::new();
    let docward = DOCWARD.get_or_init(|| Docward::start(Mongod::shared(), RULES));
    Views::of(Mongod::shared(), docward).await
}

fn length(document: &Document) -> usize {
    document.to_vec().unwrap().len()
}

fn update(collection: &str, filter: Document, change: impl Into<Bson>, upsert: bool) -> Document {
    doc! { "update": collection, "updates": [{ "q": filter, "u": change.into(), "upsert": upsert }] }
}

#[tokio::test]
async fn pushes_by_many_clients_stay_within_the_limit() {
    let views = views().await;
    for (collection, limited) in [("items", true), ("free", false)] {
        views.store(collection, [doc! { "_id": "many", "i": [] }]).await;
        let mut writers = JoinSet::new();
        for writer in 0..8 {
            let items: Collection<Document> = views.collection(collection);
            writers.spawn(async move {
                let mut sent = [0, 0];
                for number in 0..5 {
                    // The application checks first, and pushes then.
                    let pushed =
                        items.update_one(doc! { "_id": "many" }, doc! { "$push": { "i": writer * 10 + number } });
                    match pushed.await {
                        Ok(result) => sent[0] += result.matched_count,
                        Err(error) => {
                            assert_eq!(code(&error), 121);
                            assert!(
                                message(&error).contains("'i' has 3 elements and the statement adds 1; the limit is 3")
                            );
                            sent[1] += 1;
                        }
                    }
                }
                sent
            });
        }
        let sent = writers.join_all().await;
        let acknowledged: u64 = sent.iter().map(|sent| sent[0]).sum();
        let stored = views.stored(collection).await.into_iter().find(|one| one.get("_id") == Some(&"many".into()));
        let count = stored.unwrap().get_array("i").unwrap().len();
        // Without the rule the array grows with every push.
        assert_eq!((count as u64, count), if limited { (acknowledged, 3) } else { (acknowledged, 40) });
    }
}

/// An element leaves between the conditional write and the look-up that explains why it matched nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_finds_room_late_is_not_lost() {
    let views = views().await;
    for (round, upsert) in (0..60).flat_map(|round| [(round, false), (round, true)]) {
        let id = format!("late {round} {upsert}");
        views.store("items", [doc! { "_id": &id, "i": [1, 2, 3] }]).await;
        let send = |change: Document, upsert| {
            let (database, id) = (views.through.clone(), id.clone());
            async move { database.run_command(update("items", doc! { "_id": id }, change, upsert)).await.unwrap() }
        };
        let push = send(doc! { "$push": { "i": 9 } }, upsert);
        let (pushed, _) = tokio::join!(push, send(doc! { "$pop": { "i": 1 } }, false));
        let is_done = pushed.get_i32("n").unwrap() == 1;
        assert!(is_done || write_errors(&pushed) == [(0, 121)], "{pushed}");
    }
}

#[tokio::test]
async fn no_statement_makes_an_array_longer() {
    let views = views().await;
    let long = || Bson::from(vec![1, 2, 3, 4]);
    for (path, around) in [("i", doc! { "i": [1, 2] }), ("a.i", doc! { "a": { "i": [1, 2] } })] {
        let at = |below: &str| format!("{path}.{below}");
        let mut stored = doc! { "_id": path, "x": [1, 2, 3, 4], "n": 1 };
        stored.extend(around);
        let filter = || doc! { "_id": path };
        for (change, rejected) in [
            (doc! { "$push": { path: { "$each": [1, 2] } } }, true),
            (doc! { "$push": { path: { "$each": long() } } }, true),
            (doc! { "$push": { path: { "$each": [1, 2], "$position": 0, "$sort": 1 } } }, true),
            (doc! { "$push": { path: { "$each": long(), "$slice": 4 } } }, true),
            (doc! { "$push": { path: { "$each": long(), "$slice": -3 } } }, false),
            (doc! { "$push": { path: { "$each": long(), "$slice": 0 } } }, false),
            (doc! { "$push": { path: { "$each": [] } } }, false),
            (doc! { "$push": { path: [1, 2, 3, 4] } }, false),
            (doc! { "$addToSet": { path: { "$each": [1, 2] } } }, false),
            (doc! { "$addToSet": { path: { "$each": [2.0, 1, 7, 7] } } }, false),
            (doc! { "$addToSet": { path: { "$each": [7, 8] } } }, true),
            (doc! { "$addToSet": { path: [7, 8, 9, 10] } }, false),
            // mongod takes it as a value if $each is not its first field.
            (doc! { "$addToSet": { path: { "a": 1, "$each": [] } } }, false),
            (doc! { "$addToSet": { path: { "a": 1, "$each": long() } } }, false),
            (doc! { "$push": { path: { "$slice": 4, "$each": long() } } }, true),
            (doc! { "$set": { path: long() } }, true),
            (doc! { "$max": { path: long() } }, true),
            (doc! { "$set": { at("1500"): 1 } }, true),
            (doc! { "$set": { at("3"): 1 } }, true),
            (doc! { "$set": { at("2"): 1 } }, false),
            (doc! { "$set": { at("0"): 1, at("1"): 2 } }, false),
            (doc! { "$unset": { at("9"): 1 } }, false),
            (doc! { "$rename": { "x": path } }, true),
            (doc! { "$rename": { "i": "y", "a": "z" } }, false),
            (doc! { "$pull": { path: 1 } }, false),
            (doc! { "$set": { "a": { "i": long() } } }, true),
            (doc! { "$set": { "a": [{ "i": long() }] } }, true),
            (doc! { "$set": { path: "text" } }, false),
            (doc! { "a": { "i": long() }, "i": long() }, true),
        ] {
            let what = format!("{path}: {change}");
            for through_find in [false, true] {
                views.direct.collection::<Document>("items").delete_many(filter()).await.unwrap();
                views.store("items", [stored.clone()]).await;
                let code = if through_find {
                    let command = doc! { "findAndModify": "items", "query": filter(), "update": change.clone() };
                    views.run(command).await.err().map(|error| code(&error))
                } else {
                    let reply = views.run(update("items", filter(), change.clone(), false)).await.unwrap();
                    write_errors(&reply).first().map(|(_, code)| *code)
                };
                assert_eq!(code, rejected.then_some(121), "{what}");
            }
        }
        views.direct.collection::<Document>("items").delete_many(filter()).await.unwrap();
    }
}

#[tokio::test]
async fn a_position_with_leading_zeros_is_no_condition() {
    let views = views().await;
    for (position, modified) in [("0", 0), ("2", 0), ("00", 0), ("02", 0), ("+2", 0), ("3", 0)] {
        let filter = || doc! { "_id": "zeros", format!("i.{position}"): { "$exists": false } };
        views.direct.collection::<Document>("items").delete_many(doc! { "_id": "zeros" }).await.unwrap();
        views.store("items", [doc! { "_id": "zeros", "i": [1, 2, 3] }]).await;
        let reply = views.run(update("items", filter(), doc! { "$push": { "i": 9 } }, false)).await.unwrap();
        assert_eq!(reply.get_i32("nModified").unwrap(), modified, "{position}: {reply}");
    }
    views.direct.collection::<Document>("items").delete_many(doc! { "_id": "zeros" }).await.unwrap();
}

#[tokio::test]
async fn values_beside_each_and_missing_arrays_count() {
    let views = views().await;
    let text = |bytes: usize| "x".repeat(bytes);
    for (stored, change) in [
        (doc! { "l": [{}, {}, {}] }, doc! { "$push": { format!("l.$[].{}", text(40)): { "$each": [] } } }),
        (doc! { "l": [{}] }, doc! { "$push": { format!("l.0.{}", text(120)): { "$each": [] } } }),
        (doc! { "l": [{}] }, doc! { "$addToSet": { format!("l.$[e].{}", text(120)): { "$each": [] } } }),
        (doc! { "l": [[], []] }, doc! { "$set": { "l.$[].80": 1 } }),
        (doc! { "l": [[]] }, doc! { "$set": { "l.0.80": 1 } }),
        (doc! { "l": [] }, doc! { "$addToSet": { "l": { "a": text(200), "$each": [] } } }),
    ] {
        views.direct.collection::<Document>("short").delete_many(doc! { "_id": 77 }).await.unwrap();
        let mut document = doc! { "_id": 77, "t": text(150) };
        document.extend(stored);
        views.store("short", [document.clone()]).await;
        let mut statement = doc! { "q": { "_id": 77 }, "u": change.clone() };
        if change.to_string().contains("$[e]") {
            statement.insert("arrayFilters", vec![doc! { "e": { "$exists": true } }]);
        }
        let reply = views.run(doc! { "update": "short", "updates": [statement] }).await.unwrap();
        assert_eq!(write_errors(&reply), [(0, 121)], "{change}: {reply}");
    }
    views.direct.collection::<Document>("short").delete_many(doc! { "_id": 77 }).await.unwrap();
    // The upsert applies $[] to each element of the array in its filter.
    let elements = vec![Bson::from(doc! {}); 5];
    let change = doc! { "$set": { "l.$[].k": text(50) } };
    let reply = views.run(update("short", doc! { "_id": 78, "l": elements }, change, true)).await.unwrap();
    assert_eq!(write_errors(&reply), [(0, 121)], "{reply}");
}

#[tokio::test]
async fn upserts_insert_no_long_array() {
    let views = views().await;
    let long = || Bson::from(vec![1, 2, 3, 4]);
    let set = || doc! { "$set": { "y": 1 } };
    for (filter, change, rejected) in [
        (doc! { "i": long() }, set(), true),
        (doc! { "i": { "$in": [long()] } }, set(), true),
        (doc! { "$and": [{ "i": { "$eq": long() } }] }, set(), true),
        (doc! { "a": { "i": long() } }, set(), true),
        (doc! { "i": [1, 2] }, doc! { "$push": { "i": { "$each": [3, 4] } } }, true),
        (doc! { "i": [1, 2] }, doc! { "$push": { "i": 3 } }, false),
        (doc! { "i": { "$exists": false } }, doc! { "$addToSet": { "i": { "$each": [1, 2, 3] } } }, false),
        (doc! { "y": 7 }, doc! { "$addToSet": { "i": { "$each": [1, 2, 3, 4] } } }, true),
        (doc! { "y": 7 }, doc! { "$push": { "i": { "$each": [1, 2, 3], "$slice": -2 } } }, false),
        (doc! { "y": 7 }, doc! { "$setOnInsert": { "a.i": long() } }, true),
        (doc! { "y": 7 }, doc! { "i": long() }, true),
        (doc! { "i": [1, 2, 3] }, doc! { "$set": { "i.7": 1 } }, true),
    ] {
        let what = format!("{filter} {change}");
        let reply = views.run(update("items", filter, change, true)).await.unwrap();
        assert_eq!(write_errors(&reply).first().map(|(_, code)| *code), rejected.then_some(121), "{what}");
        views.direct.collection::<Document>("items").delete_many(doc! { "_id": { "$ne": "many" } }).await.unwrap();
    }
    // A full array is there: the upsert is rejected, and inserts no second document.
    views.store("items", [doc! { "_id": 1, "i": [1, 2, 3] }]).await;
    let reply = views.run(update("items", doc! { "_id": 1 }, doc! { "$push": { "i": 4 } }, true)).await.unwrap();
    assert_eq!(write_errors(&reply), [(0, 121)]);
    let reply = views.run(update("items", doc! { "_id": 2 }, doc! { "$push": { "i": 4 } }, true)).await.unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), 1);
    views.direct.collection::<Document>("items").delete_many(doc! { "_id": { "$in": [1, 2] } }).await.unwrap();
}

#[tokio::test]
async fn documents_stay_within_their_length() {
    let views = views().await;
    let text = |bytes: usize| "x".repeat(bytes);
    let stored = doc! { "_id": 1, "t": text(160), "i": [1, 2], "n": 1, "d": { "x": [{ "y": 1 }, { "y": 2 }] } };
    let room = 300 - length(&stored);
    assert!(room > 20 && room < 60, "{room}");
    let filter = || doc! { "_id": 1 };
    for (change, rejected) in [
        // The new element has exactly the room, and one byte more.
        (doc! { "$set": { "new": text(room - 10) } }, false),
        (doc! { "$set": { "new": text(room - 9) } }, true),
        (doc! { "$set": { "t": text(160 + room) } }, false),
        (doc! { "$set": { "t": text(161 + room) } }, true),
        (doc! { "$set": { "t": "", "new": text(190) } }, false),
        (doc! { "$set": { "p.q": text(room - 16) } }, false),
        (doc! { "$set": { "p.q": text(room - 15) } }, true),
        (doc! { "$inc": { "n": 1 } }, false),
        (doc! { "$push": { "i": 3 } }, false),
        (doc! { "$push": { "i": { "$each": vec![1; 20] } } }, true),
        (doc! { "$addToSet": { "i": { "$each": (0..20).collect::<Vec<i32>>() } } }, true),
        (doc! { "$set": { "i.1500": 1 } }, true),
        (doc! { "$set": { "q.1500": 1 } }, false),
        (doc! { "$set": { "d.x.$[].y": text(30) } }, true),
        (doc! { "$set": { "d.x.$[].y": "" } }, false),
        (doc! { "$max": { "n": text(60) } }, true),
        (doc! { "$rename": { "n": text(80) } }, true),
        (doc! { "$unset": { "t": 1 } }, false),
        (doc! { "t": text(270) }, false),
        (doc! { "t": text(280) }, true),
        (doc! { "_id": 1, "t": text(300 - 22) }, false),
        (doc! { "_id": 1, "t": text(300 - 21) }, true),
    ] {
        let what = format!("{change}, room {room}");
        for collection in ["short", "both"] {
            views.direct.collection::<Document>(collection).delete_many(filter()).await.unwrap();
            views.store(collection, [stored.clone()]).await;
            let reply = views.run(update(collection, filter(), change.clone(), false)).await.unwrap();
            let found = write_errors(&reply);
            let is_long = views.stored(collection).await.iter().any(|document| length(document) > 300);
            assert!(!is_long, "{what}");
            if collection == "short" {
                assert_eq!(found.first().map(|(_, code)| *code), rejected.then_some(121), "{what}: {reply}");
            }
        }
    }
    // A document that is too long already can only become shorter.
    {
        let collection = "short";
        views.direct.collection::<Document>(collection).delete_many(filter()).await.unwrap();
        views.store(collection, [doc! { "_id": 1, "t": text(400), "n": 1 }]).await;
        for (change, rejected) in [
            (doc! { "$set": { "t": text(401) } }, true),
            (doc! { "$set": { "t": text(399) } }, false),
            (doc! { "$set": { "t": text(290) } }, false),
            (doc! { "$set": { "n": 2 } }, false),
            (doc! { "$set": { "m": 2 } }, true),
            (doc! { "$unset": { "n": 2 } }, false),
            (doc! { "$set": { "t": text(200) } }, false),
        ] {
            let reply = views.run(update(collection, filter(), change.clone(), false)).await.unwrap();
            let found = write_errors(&reply).first().map(|(_, code)| *code);
            assert_eq!(found, rejected.then_some(121), "{change}: {reply}");
        }
    }
}

#[tokio::test]
async fn inserted_documents_stay_within_their_length() {
    let views = views().await;
    let text = |bytes: usize| "x".repeat(bytes);
    for (document, rejected) in [
        (doc! { "_id": 5, "t": text(300 - 22) }, false),
        (doc! { "_id": 6, "t": text(300 - 21) }, true),
        // The server adds an _id of 17 bytes.
        (doc! { "t": text(300 - 30) }, false),
        (doc! { "t": text(300 - 29) }, true),
    ] {
        let command = doc! { "insert": "short", "documents": [document.clone()] };
        let reply = views.run(command).await.unwrap();
        assert_eq!(write_errors(&reply).first().map(|(_, code)| *code), rejected.then_some(121), "{document}");
    }
    for (filter, change, rejected) in [
        (doc! { "_id": 7, "t": text(270) }, doc! { "$set": { "u": text(50) } }, true),
        (doc! { "_id": 8, "t": text(200) }, doc! { "$setOnInsert": { "u": text(20) } }, false),
        (doc! { "_id": 9 }, doc! { "$set": { "users.123456.name": "Ada" } }, false),
        (doc! { "_id": text(200) }, doc! { "u": text(100) }, true),
        (doc! { "$and": [{ "t": { "$in": [text(250)] } }] }, doc! { "$push": { "u": text(50) } }, true),
    ] {
        let reply = views.run(update("short", filter.clone(), change.clone(), true)).await.unwrap();
        let found = write_errors(&reply).first().map(|(_, code)| *code);
        assert_eq!(found, rejected.then_some(121), "{filter} {change}");
    }
    assert!(views.stored("short").await.iter().all(|document| length(document) <= 400));
}

#[tokio::test]
async fn what_other_rules_add_counts() {
    let views = views().await;
    let text = |bytes: usize| "x".repeat(bytes);
    views.store("timed", [doc! { "_id": 1 }]).await;
    // Versions and timestamps make the documents longer than the statement does.
    for bytes in (100..320).step_by(3) {
        for change in [doc! { "$set": { "t": text(bytes) } }, doc! { "t": text(bytes) }] {
            let _ = views.run(update("timed", doc! { "_id": 1 }, change, false)).await.unwrap();
        }
        let insert = doc! { "insert": "timed", "documents": [{ "_id": format!("i{bytes}"), "t": text(bytes) }] };
        let _ = views.run(insert).await.unwrap();
        let upsert = update("timed", doc! { "_id": format!("u{bytes}") }, doc! { "$set": { "t": text(bytes) } }, true);
        let _ = views.run(upsert).await.unwrap();
    }
    let stored = views.stored("timed").await;
    let long: Vec<String> = stored.iter().filter(|d| length(d) > 300).map(|d| format!("{} {d}", length(d))).collect();
    assert!(long.is_empty(), "{long:#?}");
    let longest = stored.iter().map(length).max().unwrap();
    assert!(stored.len() > 10 && longest <= 300, "{longest}");
    assert!(longest > 200, "{longest}");
}

#[tokio::test]
async fn fields_named_by_numbers_are_no_silent_loss() {
    let views = views().await;
    let cases = [
        // The condition takes the name for a position.
        (Bson::from(vec![doc! { "2": 1 }]), 1, Some(121)),
        (Bson::from(doc! { "2": 1 }), 1, Some(121)),
        (Bson::from(vec![doc! { "2": 1 }]), 2, None),
        (Bson::from(vec![Bson::from(vec![1, 2, 3])]), 1, None),
        (Bson::from(doc! { "7": 1 }), 1, Some(2)),
        (Bson::from("text"), 1, Some(2)),
    ];
    for (number, (items, pushed, code)) in (0..).zip(cases) {
        let id = format!("named-{number}");
        views.store("items", [doc! { "_id": &id, "i": items.clone() }]).await;
        let values: Vec<i32> = (0..pushed).collect();
        let change = doc! { "$push": { "i": { "$each": values } } };
        let reply = views.run(update("items", doc! { "_id": id }, change, false)).await.unwrap();
        let found = write_errors(&reply).first().map(|(_, code)| *code);
        assert_eq!(found, code, "{items} {pushed}: {reply}");
    }
}
