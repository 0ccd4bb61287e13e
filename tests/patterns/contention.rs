//! The patterns `bounds`, `together` and `bucket` under concurrent writers, in front of a real mongod. The same runs
//! without the rules show what each pattern prevents.

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};
use mongodb::Database;
use support::driver::{Views, code, scaled, write_errors};
use support::mongod::Mongod;
use support::proxy::Docward;
use tokio::task::JoinSet;

const WRITERS: u32 = 12;

const RULES: &str = r#"
version: 1
rules:
  - { name: stock, namespace: "*.books", bounds: { field: available, min: 0 } }
  - { name: record, namespace: "*.books", together: [available, checkout] }
  - { name: inbox, namespace: "*.inbox", bucket: { array: messages, count: count, limit: 100, opened: time } }
"#;

const NO_RULES: &str = "version: 1\nrules:\n  - { name: none, namespace: x.y, mode: disabled, together: [a, b] }\n";

async fn views(rules: &str) -> (Docward, Views) {
    let docward = Docward::before(&Mongod::shared().uri()).rules(rules).environment("RUST_LOG", "warn").start();
    let views = Views::of(Mongod::shared(), &docward).await;
    (docward, views)
}

/// Concurrent writers check out one book `readers` times, a third each with updateOne, findOneAndUpdate and a batch
/// of two; returns the number of successes.
async fn check_out(database: &Database, readers: u32) -> u64 {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let database = database.clone();
        writers.spawn(async move {
            let books = database.collection::<Document>("books");
            let mut lent = 0;
            for reader in (writer..readers).step_by(WRITERS as usize) {
                let take = doc! { "$inc": { "available": -1 }, "$push": { "checkout": { "by": reader } } };
                let filter = doc! { "_id": 1 };
                lent += match reader % 3 {
                    0 => books.update_one(filter, take).await.unwrap().modified_count,
                    1 => u64::from(books.find_one_and_update(filter, take).await.unwrap().is_some()),
                    _ => {
                        let updates = vec![doc! { "q": filter, "u": take }];
                        let command = doc! { "update": "books", "updates": updates, "ordered": false };
                        database.run_command(command).await.unwrap().get_i32("n").unwrap() as u64
                    }
                };
            }
            lent
        });
    }
    writers.join_all().await.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_copies_are_lent_than_exist() {
    for (rules, protected, copies) in [(RULES, true, scaled(1000)), (NO_RULES, false, scaled(50))] {
        let (_docward, views) = views(rules).await;
        let direct = views.direct.collection::<Document>("books");
        direct.insert_one(doc! { "_id": 1, "available": copies, "checkout": [] }).await.unwrap();
        let lent = check_out(&views.through, 5 * copies).await;
        let book = direct.find_one(doc! {}).await.unwrap().unwrap();
        let records = book.get_array("checkout").unwrap().len() as u64;
        let available = book.get_i32("available").unwrap();
        if protected {
            assert_eq!((lent, records, available), (u64::from(copies), u64::from(copies), 0));
        } else {
            assert_eq!(available, -4 * copies as i32, "without the rule the book is oversold");
        }
    }
}

#[tokio::test]
async fn a_copy_is_not_taken_without_its_record() {
    let (_docward, views) = views(RULES).await;
    let books = views.through.collection::<Document>("books");
    books.insert_one(doc! { "_id": 1, "available": 1, "checkout": [] }).await.unwrap();
    let alone = books.update_one(doc! { "_id": 1 }, doc! { "$inc": { "available": -1 } }).await;
    assert_eq!(code(&alone.unwrap_err()), 121);
    // An upsert that finds the document at its bound reports that nothing matched.
    let back = doc! { "$inc": { "available": -2 }, "$push": { "checkout": 1 } };
    assert_eq!(books.update_one(doc! { "_id": 1 }, back).await.unwrap().matched_count, 0);
}

/// Concurrent writers send `messages` to five owners, one to three at a time; returns the number of acknowledged
/// messages.
async fn send(database: &Database, messages: u32) -> BTreeSet<i32> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let database = database.clone();
        writers.spawn(async move {
            let inbox = database.collection::<Document>("inbox");
            let own: Vec<u32> = (writer..messages).step_by(WRITERS as usize).collect();
            let mut acknowledged = Vec::new();
            for (round, chunk) in own.chunks(3).enumerate() {
                let each: Vec<i32> = chunk.iter().map(|message| *message as i32).collect();
                let filter = doc! { "owner": (round % 5) as i32 };
                let push = doc! { "$push": { "messages": { "$each": &each } } };
                if round % 2 == 0 {
                    inbox.update_one(filter, push).await.unwrap();
                } else {
                    inbox.find_one_and_update(filter, push).await.unwrap();
                }
                acknowledged.extend(each);
            }
            acknowledged
        });
    }
    writers.join_all().await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_is_in_exactly_one_bucket() {
    let messages = scaled(20_000);
    let (_docward, protected) = views(RULES).await;
    let sent = send(&protected.through, messages).await;
    assert_eq!(sent.len(), messages as usize);
    let mut stored = Vec::new();
    for bucket in protected.stored("inbox").await {
        let array = bucket.get_array("messages").unwrap();
        let count = bucket.get("count").and_then(|count| count.as_i32().or(count.as_i64().map(|n| n as i32)));
        assert_eq!(count, Some(array.len() as i32), "count and array differ in {}", bucket.get("_id").unwrap());
        assert!(array.len() <= 100, "a bucket of {}", array.len());
        assert!(bucket.get_datetime("time").is_ok(), "no opening time");
        stored.extend(array.iter().map(|message| message.as_i32().unwrap()));
    }
    assert_eq!(stored.len(), sent.len(), "messages were lost or stored twice");
    assert_eq!(stored.into_iter().collect::<BTreeSet<_>>(), sent);

    let (_docward, bare) = views(NO_RULES).await;
    bare.direct.collection::<Document>("inbox").insert_one(doc! { "owner": 0, "messages": [] }).await.unwrap();
    send(&bare.through, messages / 10).await;
    let lengths: Vec<usize> =
        bare.stored("inbox").await.iter().map(|inbox| inbox.get_array("messages").unwrap().len()).collect();
    let (largest, kept) = (lengths.iter().max(), lengths.iter().sum::<usize>());
    assert!(largest > Some(&100) || messages < 5000, "without the rule the array grows without end: {largest:?}");
    assert!(kept < (messages / 10) as usize, "without the rule messages to owners without inbox are lost");
}

/// Buckets after single statements.
struct Inbox {
    _docward: Docward,
    views: Views,
}

impl Inbox {
    async fn of(stored: impl IntoIterator<Item = Document>) -> Self {
        let (docward, views) = views(RULES).await;
        let stored: Vec<Document> = stored.into_iter().collect();
        if !stored.is_empty() {
            views.store("inbox", stored).await;
        }
        Self { _docward: docward, views }
    }

    /// Sends one update; returns the server's n, or the error code.
    async fn update(&self, q: Document, u: Document, upsert: bool) -> Result<i32, i32> {
        let statement = doc! { "q": q, "u": u, "upsert": upsert };
        let reply = self.views.run(doc! { "update": "inbox", "updates": [statement] }).await.unwrap();
        write_errors(&reply).first().map_or_else(|| Ok(reply.get_i32("n").unwrap()), |(_, code)| Err(*code))
    }

    /// The buckets without their `_id` and time.
    async fn stored(&self) -> Vec<Document> {
        // In insertion order: a server-made `_id` may sort before the driver's.
        let inbox = self.views.direct.collection::<Document>("inbox");
        let mut cursor = inbox.find(doc! {}).sort(doc! { "$natural": 1 }).await.unwrap();
        let mut stored = Vec::new();
        while cursor.advance().await.unwrap() {
            stored.push(cursor.deserialize_current().unwrap());
        }
        for bucket in &mut stored {
            bucket.remove("_id");
            bucket.remove("time");
        }
        stored
    }
}

fn push() -> Document {
    doc! { "$push": { "messages": "new" } }
}

fn full() -> Document {
    doc! { "owner": "joe", "messages": vec!["old"; 100], "count": 100 }
}

fn opened() -> Document {
    doc! { "owner": "joe", "messages": ["new"], "count": 1 }
}

#[tokio::test]
async fn the_count_matches_the_array_for_every_filter() {
    // Filters that would put a count or an array into a new bucket.
    let of_joe = |condition: Document| {
        let mut filter = doc! { "owner": "joe" };
        filter.extend(condition);
        filter
    };
    for condition in [
        doc! { "count": 5 },
        doc! { "count": { "$in": [5] } },
        doc! { "$and": [{ "count": 5 }] },
        doc! { "$or": [{ "count": 5 }] },
        doc! { "messages": "old" },
        doc! { "messages": ["old"] },
        doc! { "messages": { "$all": ["old"] } },
    ] {
        let inbox = Inbox::of([]).await;
        assert_eq!(inbox.update(of_joe(condition.clone()), push(), false).await, Ok(0), "{condition}");
        // The server itself rejects a push to a string.
        let is_text = condition.get_str("messages").is_ok() || condition.to_string().contains("$all");
        let expected = if is_text { Err(2) } else { Ok(1) };
        assert_eq!(inbox.update(of_joe(condition.clone()), push(), true).await, expected, "{condition}");
        for bucket in inbox.stored().await {
            let length = bucket.get_array("messages").unwrap().len();
            assert_eq!(bucket.get_i32("count").unwrap(), length as i32, "{condition}");
        }
    }
    // They still match a stored bucket.
    let inbox = Inbox::of([doc! { "owner": "joe", "messages": ["old"], "count": 1 }]).await;
    let conditions = [doc! { "count": 1 }, doc! { "messages": "old" }, doc! { "$expr": { "$eq": ["$owner", "joe"] } }];
    for (index, condition) in conditions.into_iter().enumerate() {
        assert_eq!(inbox.update(of_joe(condition.clone()), push(), false).await, Ok(1), "{condition}");
        let bucket = inbox.stored().await.swap_remove(0);
        assert_eq!(bucket.get_i32("count").unwrap(), index as i32 + 2, "{condition}");
        assert_eq!(bucket.get_array("messages").unwrap().len(), index + 2, "{condition}");
    }
    // The form in MongoDB's manual, and an empty bucket by equality.
    let inbox = Inbox::of([full()]).await;
    let own = doc! { "$push": { "messages": "new" }, "$inc": { "count": 1 } };
    assert_eq!(inbox.update(doc! { "owner": "joe", "count": { "$lt": 100 } }, own, true).await, Ok(1));
    assert_eq!(inbox.stored().await, [full(), opened()]);
    let inbox = Inbox::of([]).await;
    assert_eq!(inbox.update(doc! { "owner": "joe", "count": 0 }, push(), true).await, Ok(1));
    assert_eq!(inbox.stored().await, [doc! { "owner": "joe", "count": 1, "messages": ["new"] }]);
}

#[tokio::test]
async fn a_push_that_cannot_open_a_bucket_returns_the_servers_error() {
    let joe = || doc! { "$eq": ["$owner", "joe"] };
    for filter in [
        doc! { "$expr": joe() },
        doc! { "owner": "joe", "$or": [{ "$expr": joe() }, { "x": 1 }] },
        doc! { "$and": [{ "owner": "joe" }, { "owner": "joe" }] },
        doc! { "owner": { "$in": ["joe", "ann"] } },
        doc! { "owner": { "$gte": "joe" } },
    ] {
        let inbox = Inbox::of([]).await;
        assert_eq!(inbox.update(filter.clone(), push(), false).await, Ok(0), "{filter}");
        assert_eq!(inbox.stored().await, [], "{filter}");
        // A message that matches only full buckets is not lost silently.
        let inbox = Inbox::of([full()]).await;
        assert_eq!(inbox.update(filter.clone(), push(), false).await, Err(121), "{filter}");
        let inbox = Inbox::of([full(), doc! { "owner": "joe", "messages": [], "count": 0 }]).await;
        assert_eq!(inbox.update(filter.clone(), push(), false).await, Ok(1), "{filter}");
        assert_eq!(inbox.stored().await, [full(), opened()], "{filter}");
    }
    let inbox = Inbox::of([]).await;
    let mut marked = push();
    marked.insert("$set", doc! { "tags.$": 1 });
    assert_eq!(inbox.update(doc! { "owner": "joe", "tags": 5 }, marked, false).await, Ok(0));
    // The client's own errors are the same as without docward.
    assert_eq!(inbox.update(doc! { "$expr": joe() }, push(), true).await, Err(224));
    assert_eq!(inbox.update(doc! { "_id.owner": "joe" }, push(), false).await, Ok(0));
}

#[tokio::test]
async fn an_empty_push_opens_no_bucket_and_counts_nothing() {
    let inbox = Inbox::of([full()]).await;
    let none = doc! { "$push": { "messages": { "$each": [] } } };
    assert_eq!(inbox.update(doc! { "owner": "joe" }, none.clone(), false).await, Ok(1));
    assert_eq!(inbox.update(doc! { "owner": "ann" }, none.clone(), false).await, Ok(0));
    let mut counted = none.clone();
    counted.insert("$inc", doc! { "count": 7 });
    assert_eq!(inbox.update(doc! { "owner": "joe" }, counted, false).await, Ok(1));
    assert_eq!(inbox.stored().await, [full()]);
    assert_eq!(inbox.update(doc! { "owner": "ann" }, none, true).await, Ok(1));
    let name = doc! { "$set": { "name": "Bo" }, "$setOnInsert": { "kind": 1 } };
    assert_eq!(inbox.update(doc! { "owner": "bo" }, name, true).await, Ok(1));
    let new = doc! { "$setOnInsert": { "messages": [1], "count": 1 } };
    assert_eq!(inbox.update(doc! { "owner": "cy" }, new, true).await, Ok(1));
    let false_count = doc! { "$setOnInsert": { "messages": [1], "count": 3 } };
    assert_eq!(inbox.update(doc! { "owner": "di" }, false_count.clone(), true).await, Ok(1));
    assert_eq!(inbox.update(doc! { "owner": "di" }, false_count, false).await, Ok(1));
    let counts: Vec<_> = inbox.stored().await.iter().map(|bucket| bucket.get_i32("count").unwrap()).collect();
    assert_eq!(counts, [100, 0, 0, 1, 1]);
}

#[tokio::test]
async fn buckets_from_before_the_rule_are_unchanged() {
    let before = [doc! { "owner": "joe" }, doc! { "owner": "joe", "messages": ["old"] }];
    let inbox = Inbox::of(before.clone()).await;
    assert_eq!(inbox.update(doc! { "owner": "joe" }, push(), false).await, Ok(1));
    assert_eq!(inbox.stored().await, [before[0].clone(), before[1].clone(), opened()]);
    // An empty bucket may lack its array.
    let inbox = Inbox::of([doc! { "owner": "joe", "count": 0 }]).await;
    assert_eq!(inbox.update(doc! { "owner": "joe" }, push(), false).await, Ok(1));
    assert_eq!(inbox.stored().await, [doc! { "owner": "joe", "count": 1, "messages": ["new"] }]);
}

#[tokio::test]
async fn fields_stay_together_for_every_kind_of_write() {
    const RULES: &str = r#"
version: 1
rules:
  - { name: flat, namespace: "*.flat", together: [a, b] }
  - { name: nested, namespace: "*.nested", together: [p.a, p.b] }
"#;
    let (_docward, views) = views(RULES).await;
    let both = || doc! { "a": 1, "b": 1 };
    views.store("flat", [doc! { "_id": 1, "a": 1, "b": 1 }]).await;
    views.store("nested", [doc! { "_id": 1, "p": both() }, doc! { "_id": 2, "p": [both()] }]).await;
    let send = async |collection: &str, q: Document, u: Document, upsert: bool| {
        let statement = doc! { "q": q, "u": u, "upsert": upsert };
        let reply = views.run(doc! { "update": collection, "updates": [statement] }).await.unwrap();
        write_errors(&reply).first().map(|(_, code)| *code)
    };
    let x = || doc! { "$set": { "x": 1 } };
    let filters = [
        doc! { "a": 9 },
        doc! { "a": { "$in": [9] } },
        doc! { "a": { "$all": [9] } },
        doc! { "$and": [{ "a": 9 }] },
        doc! { "$or": [{ "a": { "$eq": 9 } }] },
        doc! { "$or": [{ "a": 9, "c": 1 }, { "a": 9, "c": 2 }] },
    ];
    for filter in filters {
        // Servers differ in which filters give an inserted document a value.
        let bare = views.direct.collection::<Document>("bare");
        bare.drop().await.unwrap();
        bare.update_one(filter.clone(), x()).upsert(true).await.unwrap();
        let is_broken = bare.find_one(doc! {}).await.unwrap().unwrap().contains_key("a");
        assert_eq!(send("flat", filter.clone(), x(), true).await == Some(121), is_broken, "{filter}");
        assert_eq!(send("flat", filter.clone(), x(), false).await, None, "{filter}");
        let mut rest = x();
        rest.insert("$setOnInsert", doc! { "b": 9 });
        assert_eq!(send("flat", doc! { "_id": 5, "a": 9 }, rest, true).await, None, "{filter}");
        // Otherwise the next statement would change it.
        views.direct.collection::<Document>("flat").delete_one(doc! { "_id": 5 }).await.unwrap();
    }
    for (filter, rejected) in [
        (doc! { "p": { "a": 9 } }, true),
        (doc! { "p": [{ "a": 9 }] }, true),
        (doc! { "p": { "a": 9, "b": 9 } }, false),
        (doc! { "p": [{ "a": 9, "b": 9 }, { "c": 9 }] }, false),
        (doc! { "p": 9 }, false),
    ] {
        assert_eq!(send("nested", filter.clone(), x(), true).await.is_some(), rejected, "{filter}");
    }
    for (update, rejected) in [
        (doc! { "$set": { "p": { "a": 2 } } }, true),
        (doc! { "$set": { "p": both() } }, false),
        (doc! { "$set": { "p": [both(), {}] } }, false),
        (doc! { "$set": { "p": [both(), { "a": 1 }] } }, true),
        (doc! { "$set": { "p": {} } }, false),
        (doc! { "$set": { "p.a": 2 }, "$unset": { "p.b": 1 } }, true),
        (doc! { "$unset": { "p.a": 1, "p.b": 1 } }, false),
        (doc! { "$unset": { "p": 1 } }, false),
        (doc! { "$unset": { "p.a": 1 } }, true),
        (doc! { "$rename": { "p.a": "y" } }, true),
        (doc! { "$rename": { "y": "p.a" } }, true),
        (doc! { "$rename": { "p": "y" } }, false),
        (doc! { "$setOnInsert": { "p.a": 1 } }, false),
        (doc! { "$set": { "p.a": Bson::Null, "p.b": f64::NAN } }, false),
    ] {
        let found = send("nested", doc! { "_id": 1 }, update.clone(), false).await;
        assert_eq!(found == Some(121), rejected, "{update}: {found:?}");
    }
    for (update, rejected) in [
        (doc! { "$push": { "p": both() } }, false),
        (doc! { "$push": { "p": { "a": 1 } } }, true),
        (doc! { "$push": { "p": { "$each": [both(), { "b": 1 }] } } }, true),
        (doc! { "$addToSet": { "p": { "a": 1 } } }, true),
        (doc! { "$set": { "p.0": { "a": 1 } } }, true),
        (doc! { "$set": { "p.$[]": both() } }, false),
        (doc! { "$set": { "p.0.a": 2 } }, true),
        (doc! { "$set": { "p.0.a": 2, "p.0.b": 2 } }, false),
        (doc! { "$pop": { "p": 1 } }, false),
    ] {
        let found = send("nested", doc! { "_id": 2 }, update.clone(), false).await;
        assert_eq!(found == Some(121), rejected, "{update}: {found:?}");
    }
    let have = |document: &Document| (document.contains_key("a"), document.contains_key("b"));
    for document in views.stored("flat").await {
        assert!(matches!(have(&document), (true, true) | (false, false)), "{document}");
    }
}

#[tokio::test]
async fn an_index_that_allows_one_bucket_is_named() {
    let inbox = Inbox::of([full()]).await;
    let index = doc! { "key": { "owner": 1 }, "name": "by_owner", "unique": true };
    inbox.views.direct.run_command(doc! { "createIndexes": "inbox", "indexes": [index] }).await.unwrap();
    let statement = |owner: &str| doc! { "q": { "owner": owner }, "u": push() };
    let updates = vec![statement("ann"), statement("joe"), statement("ann")];
    for (ordered, n) in [(true, 1), (false, 2)] {
        let command = doc! { "update": "inbox", "updates": updates.clone(), "ordered": ordered };
        let reply = inbox.views.run(command).await.unwrap();
        assert_eq!((write_errors(&reply), reply.get_i32("n").unwrap()), (vec![(1, 121)], n), "{reply}");
        let text = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap().get_str("errmsg").unwrap();
        assert!(text.contains("unique index 'by_owner' on 'owner'"), "{text}");
    }
    let collection = inbox.views.through.collection::<Document>("inbox");
    let error = collection.find_one_and_update(doc! { "owner": "joe" }, push()).await.unwrap_err();
    assert_eq!(code(&error), 121, "{error}");
    assert_eq!(inbox.stored().await.len(), 2);
}
