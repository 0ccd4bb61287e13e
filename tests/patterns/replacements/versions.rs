//! Versions: which statements increment the stored one, which detect a different one, and that no statement decreases
//! it.

use bson::{Bson, Document, doc};
use mongodb::Collection;
use mongodb::error::Error;
use mongodb::results::UpdateResult;

use super::views;
use support::driver::{code, message, write_errors};

/// Collections with a rule for each `policy`, and whether the rule has a version.
const POLICIES: [(&str, bool); 6] = [
    ("strict", false),
    ("versioned", true),
    ("merging", false),
    ("merging_versions", true),
    ("checking", true),
    ("ignoring", true),
];

fn update(collection: &str, filter: Document, modification: impl Into<Bson>) -> Document {
    doc! { "update": collection, "updates": [{ "q": filter, "u": modification }] }
}

fn assert_nothing_found(result: Result<UpdateResult, Error>, what: &str) {
    let result = result.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!((result.matched_count, result.modified_count, result.upserted_id), (0, 0, None), "{what}");
}

fn assert_conflict(error: &Error, stored: &str, sent: &str) {
    assert_eq!(code(error), 112, "{error}");
    let text = message(error);
    let words = format!("the stored document has {stored}, the one you sent has {sent}");
    assert!(text.contains(&words), "{words:?} is not in: {text}");
    assert!(error.labels().is_empty(), "a driver must not repeat it: {:?}", error.labels());
}

#[tokio::test]
async fn a_second_first_save_by_another_key_inserts_nothing() {
    let views = views().await;
    let checking: Collection<Document> = views.collection("checking");
    let save = async || checking.replace_one(doc! { "sku": "x" }, doc! { "sku": "x", "qty": 1 }).upsert(true).await;
    assert!(save().await.unwrap().upserted_id.is_some());
    assert_conflict(&save().await.unwrap_err(), "'version' 1", "none");
    let again = checking.find_one_and_replace(doc! { "sku": "x" }, doc! { "sku": "x" }).upsert(true).await;
    assert_conflict(&again.unwrap_err(), "'version' 1", "none");
    let mut stored = views.stored("checking").await;
    assert_eq!(stored.len(), 1, "{stored:?}");
    stored[0].remove("_id");
    assert_eq!(stored[0], doc! { "sku": "x", "qty": 1, "version": 1 });
}

/// A save does not erase what another application wrote after the save's read.
#[tokio::test]
async fn every_update_increments_the_version_and_a_save_of_the_old_one_is_a_conflict() {
    let views = views().await;
    let before = doc! { "_id": 1, "a": 0, "list": [], "version": 3 };
    let computed = vec![doc! { "$set": { "b": { "$add": ["$a", 7] } } }];
    let constant = vec![doc! { "$set": { "b": { "$literal": 7 } } }, doc! { "$unset": "c" }];
    let modifications: [Bson; 6] = [
        doc! { "$set": { "b": 7 } }.into(),
        doc! { "$push": { "list": 7 }, "$unset": { "c": "" } }.into(),
        doc! { "$inc": { "b": 7 } }.into(),
        doc! { "$setOnInsert": { "version": 9 }, "$set": { "b": 7 } }.into(),
        computed.into(),
        constant.into(),
    ];
    for modification in modifications {
        for (command, what) in [
            (update("checking", doc! { "_id": 1 }, modification.clone()), "update"),
            (
                doc! { "update": "checking", "updates": [{ "q": {}, "u": modification.clone(), "multi": true }] },
                "multi",
            ),
            (
                doc! { "findAndModify": "checking", "query": { "_id": 1 }, "update": modification.clone() },
                "findAndModify",
            ),
        ] {
            let checking: Collection<Document> = views.direct.collection("checking");
            checking.delete_many(doc! {}).await.unwrap();
            views.store("checking", [before.clone()]).await;
            views.run(command).await.unwrap();
            let between = views.stored("checking").await.remove(0);
            assert_eq!(between.get("version"), Some(&Bson::Int32(4)), "{what}: {modification}");
            let save = views.collection("checking");
            let mut read = before.clone();
            read.insert("a", 1);
            assert_conflict(&save.replace_one(doc! { "_id": 1 }, read).await.unwrap_err(), "'version' 4", "3");
            assert_eq!(views.stored("checking").await, std::slice::from_ref(&between));
            assert!(between.get("b") == Some(&Bson::Int32(7)) || between.get_array("list").unwrap().len() == 1);
        }
    }
}

#[tokio::test]
async fn an_upsert_inserts_the_first_version() {
    let views = views().await;
    let checking: Collection<Document> = views.collection("checking");
    for (id, modification) in [
        (1, doc! { "$set": { "a": 1 } }),
        (2, doc! { "$set": { "a": 1 }, "$setOnInsert": { "version": 0 } }),
        (3, doc! { "$set": { "a": 1 }, "$inc": { "version": 1 } }),
    ] {
        checking.update_one(doc! { "_id": id }, modification).upsert(true).await.unwrap();
        let stored = checking.find_one(doc! { "_id": id }).await.unwrap();
        assert_eq!(stored, Some(doc! { "_id": id, "a": 1, "version": 1 }));
    }
}

/// Mongoose, Spring Data and Beanie increment the version themselves.
#[tokio::test]
async fn versions_that_the_application_increments_are_not_incremented_twice() {
    let views = views().await;
    for collection in ["versioned", "merging_versions", "checking", "ignoring"] {
        views.store(collection, [doc! { "_id": 1, "version": 3 }]).await;
        let versions: Collection<Document> = views.collection(collection);
        let increments = doc! { "$set": { "a": 1 }, "$inc": { "version": 1 } };
        versions.update_one(doc! { "_id": 1, "version": 3 }, increments.clone()).await.unwrap();
        versions.replace_one(doc! { "_id": 1, "version": 4 }, doc! { "a": 2, "version": 5 }).await.unwrap();
        versions.update_one(doc! { "_id": 1, "version": 5 }, doc! { "$set": { "a": 3, "version": 6 } }).await.unwrap();
        assert_eq!(views.stored(collection).await, [doc! { "_id": 1, "a": 3, "version": 6 }], "{collection}");
        let stale = versions.update_one(doc! { "_id": 1, "version": 3 }, increments).await;
        assert_nothing_found(stale, collection);
    }
}

/// An application that checks the version itself gets the server's reply, from which ODMs detect a lost race.
#[tokio::test]
async fn a_checked_replacement_of_another_version_is_the_servers_n_0() {
    let views = views().await;
    for (collection, _) in POLICIES.into_iter().filter(|(_, versions)| *versions) {
        let stored = doc! { "_id": 1, "a": 0, "version": 3 };
        views.store(collection, [stored.clone()]).await;
        let versions: Collection<Document> = views.collection(collection);
        for (filter, document) in [
            (doc! { "_id": 1, "version": 2 }, doc! { "a": 1 }),
            (doc! { "_id": 1, "version": 2 }, doc! { "a": 1, "version": 3 }),
            (doc! { "_id": 1, "version": 4 }, doc! { "_id": 1, "a": 1, "version": 4 }),
            (doc! { "$and": [{ "_id": 1 }, { "version": { "$in": [2] } }] }, doc! { "a": 1 }),
            (doc! { "_id": 1, "version": null }, doc! { "a": 1 }),
        ] {
            assert_nothing_found(versions.replace_one(filter.clone(), &document).await, collection);
            assert_eq!(versions.find_one_and_replace(filter, &document).await.unwrap(), None, "{collection}");
        }
        assert_eq!(views.stored(collection).await, [stored]);
    }
}

#[tokio::test]
async fn a_document_that_never_existed_is_no_conflict() {
    let views = views().await;
    for (collection, versions) in POLICIES {
        views.store(collection, [doc! { "_id": 1, "version": 3 }]).await;
        let replaced: Collection<Document> = views.collection(collection);
        let sent = [doc! { "a": 1 }, doc! { "a": 1, "version": 2 }];
        for document in &sent {
            let nope = doc! { "_id": "nope" };
            assert_nothing_found(replaced.replace_one(nope.clone(), document).await, collection);
            assert_eq!(replaced.find_one_and_replace(nope.clone(), document).await.unwrap(), None, "{collection}");
            if versions {
                let set = doc! { "$set": document };
                assert_nothing_found(replaced.update_one(nope.clone(), set.clone()).await, collection);
                assert_eq!(replaced.find_one_and_update(nope, set).await.unwrap(), None, "{collection}");
            }
        }
        assert_eq!(views.stored(collection).await, [doc! { "_id": 1, "version": 3 }], "{collection}");
    }
}

/// A conflict reports both versions.
#[tokio::test]
async fn a_save_without_a_version_reports_that() {
    let views = views().await;
    views.store("checking", [doc! { "_id": 1, "version": 3 }, doc! { "_id": 2 }]).await;
    let checking: Collection<Document> = views.collection("checking");
    let save = async |id: i32, document: Document| checking.replace_one(doc! { "_id": id }, document).await;
    assert_conflict(&save(1, doc! { "a": 1 }).await.unwrap_err(), "'version' 3", "none");
    assert_conflict(&save(1, doc! { "version": 2 }).await.unwrap_err(), "'version' 3", "2");
    assert_conflict(&save(2, doc! { "version": 2 }).await.unwrap_err(), "no 'version'", "2");
    assert_conflict(&save(1, doc! { "version": "x" }).await.unwrap_err(), "'version' 3", "\"x\"");
    assert_eq!(views.stored("checking").await, [doc! { "_id": 1, "version": 3 }, doc! { "_id": 2 }]);
}

#[tokio::test]
async fn a_first_save_by_upsert_inserts_where_replacing_is_rejected() {
    let views = views().await;
    for (collection, id) in [("strict", 1), ("versioned", 1)] {
        let strict: Collection<Document> = views.collection(collection);
        let saved = strict.replace_one(doc! { "_id": id }, doc! { "a": 1 }).upsert(true).await.unwrap();
        assert_eq!(saved.upserted_id, Some(Bson::Int32(id)), "{collection}");
        let error = strict.replace_one(doc! { "_id": id }, doc! { "b": 1 }).upsert(true).await.unwrap_err();
        assert_eq!(code(&error), 121, "{collection}");
        let by_key = doc! { "kind": "new" };
        assert_eq!(
            strict.find_one_and_replace(by_key.clone(), doc! { "kind": "new" }).upsert(true).await.unwrap(),
            None
        );
        let error = strict.find_one_and_replace(by_key, doc! { "kind": "new", "b": 1 }).upsert(true).await.unwrap_err();
        assert_eq!(code(&error), 121, "{collection}");
        let stored = views.stored(collection).await;
        assert_eq!(stored.len(), 2, "{stored:?}");
        assert!(stored.iter().all(|document| !document.contains_key("b")), "{stored:?}");
    }
}

/// Eight writers save a document that does not exist yet: one inserts it, the others are rejected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_first_saves_under_reject_inserts() {
    let views = views().await;
    let strict: Collection<Document> = views.collection("strict");
    for id in 0..10 {
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..8 {
            let strict = strict.clone();
            writers.spawn(async move {
                let saved = strict.replace_one(doc! { "_id": id }, doc! { "by": writer }).upsert(true).await;
                saved.map(|_| writer).map_err(|error| code(&error))
            });
        }
        let outcomes = writers.join_all().await;
        let winners: Vec<i32> = outcomes.iter().filter_map(|outcome| outcome.ok()).collect();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(121))), "{outcomes:?}");
        let [winner] = winners[..] else { panic!("{outcomes:?}") };
        assert_eq!(views.stored("strict").await[id as usize], doc! { "_id": id, "by": winner });
    }
}

/// One of two updates at once sets the version to 1, while docward looks for the cause of the other's error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_at_once_of_a_version_that_is_null_both_succeed() {
    const DOCUMENTS: i32 = 100;
    let views = views().await;
    let stored = (0..DOCUMENTS).map(|id| doc! { "_id": id, "n": 0, "version": Bson::Null });
    views.store("versioned", stored).await;
    for id in 0..DOCUMENTS {
        let mut writers = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let versioned: Collection<Document> = views.collection("versioned");
            writers.spawn(async move { versioned.update_one(doc! { "_id": id }, doc! { "$inc": { "n": 1 } }).await });
        }
        for updated in writers.join_all().await {
            assert_eq!(updated.unwrap().modified_count, 1);
        }
    }
    let expected = (0..DOCUMENTS).map(|id| doc! { "_id": id, "n": 3, "version": 3 });
    assert_eq!(views.stored("versioned").await, expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn a_merged_document_with_another_id_is_the_servers_error() {
    let views = views().await;
    for collection in ["merging", "merging_versions"] {
        views.store(collection, [doc! { "_id": 1, "name": "Ada" }]).await;
        let merging: Collection<Document> = views.collection(collection);
        for filter in [doc! { "_id": 1 }, doc! { "name": "Ada" }] {
            let error = merging.replace_one(filter, doc! { "_id": 2, "name": "Bob" }).await.unwrap_err();
            assert_eq!(code(&error), 66, "{error}");
        }
        assert_eq!(views.stored(collection).await, [doc! { "_id": 1, "name": "Ada" }]);
    }
}

#[tokio::test]
async fn no_update_decreases_the_version() {
    let views = views().await;
    let stored = doc! { "_id": 1, "version": 3 };
    for collection in ["versioned", "merging_versions", "checking"] {
        views.store(collection, [stored.clone()]).await;
        let versions: Collection<Document> = views.collection(collection);
        let lower = versions.update_one(doc! { "_id": 1 }, doc! { "$set": { "a": 1, "version": 1 } }).await;
        let lower = lower.unwrap_err();
        assert_eq!(code(&lower), 112, "{lower}");
        let words = "it sets 'version' to 1, but the stored document has 'version' 3; versions only increase";
        match collection {
            "checking" => assert_conflict(&lower, "'version' 3", "1"),
            _ => assert!(message(&lower).contains(words), "{lower}"),
        }
        let filter = doc! { "_id": 1, "version": 3 };
        for (filter, modification) in [
            (filter.clone(), doc! { "$set": { "version": 1 } }),
            (filter.clone(), doc! { "$set": { "version": null } }),
            (filter, doc! { "$unset": { "version": "" } }),
            (doc! { "_id": 1 }, doc! { "$unset": { "version": "" } }),
            (doc! { "_id": 1 }, doc! { "$inc": { "version": -1 } }),
            (doc! { "_id": 1 }, doc! { "$min": { "version": 1 } }),
            (doc! { "_id": 1 }, doc! { "$bit": { "version": { "and": 1 } } }),
            (doc! { "_id": 1 }, doc! { "$mul": { "version": 0 } }),
            (doc! { "_id": 1 }, doc! { "$rename": { "version": "old" } }),
            (doc! { "_id": 1 }, doc! { "$currentDate": { "version": true } }),
        ] {
            let error = versions.update_one(filter, modification.clone()).await.unwrap_err();
            assert_eq!(code(&error), 121, "{collection}: {modification}");
        }
        let computed = vec![doc! { "$set": { "version": { "$subtract": ["$version", 1] } } }];
        let reply = views.run(update(collection, doc! { "_id": 1 }, computed)).await.unwrap();
        assert_eq!(write_errors(&reply), [(0, 121)], "{reply}");
        assert_eq!(views.stored(collection).await, std::slice::from_ref(&stored), "{collection}");
    }
}

/// Django saves with pipelines of constants.
#[tokio::test]
async fn pipelines_of_constants_are_updates() {
    let views = views().await;
    for (collection, versions) in POLICIES {
        let mut stored = doc! { "_id": 1, "old": 1, "f": "was" };
        if versions {
            stored.insert("version", 3);
        }
        views.store(collection, [stored]).await;
        let save = doc! { "update": collection, "updates": [
            { "q": { "_id": 1 }, "u": [{ "$set": { "f": { "$literal": "$v" } } }, { "$unset": ["old"] }], "multi": true },
        ] };
        let reply = views.run(save).await.unwrap();
        assert_eq!((reply.get_i32("n").unwrap(), write_errors(&reply)), (1, vec![]), "{collection}: {reply}");
        let mut expected = doc! { "_id": 1, "f": "$v" };
        if versions {
            expected.insert("version", 4);
        }
        assert_eq!(views.stored(collection).await, [expected], "{collection}");
    }
}

/// TypeORM sets all columns, including the version as it was read.
#[tokio::test]
async fn a_set_of_all_fields_checks_the_version_in_it() {
    let views = views().await;
    views.store("checking", [doc! { "_id": 1, "a": 0, "b": 0, "version": 1 }]).await;
    let checking: Collection<Document> = views.collection("checking");
    let save = async |a: i32, b: i32| {
        checking.update_one(doc! { "_id": 1 }, doc! { "$set": { "a": a, "b": b, "version": 1 } }).await
    };
    assert_eq!(save(1, 0).await.unwrap().modified_count, 1);
    assert_conflict(&save(0, 1).await.unwrap_err(), "'version' 2", "1");
    assert_eq!(views.stored("checking").await, [doc! { "_id": 1, "a": 1, "b": 0, "version": 2 }]);
}

#[tokio::test]
async fn a_non_numeric_version_is_only_compared() {
    let views = views().await;
    views.store("revisions", [doc! { "_id": 1, "revision": "a" }]).await;
    let revisions: Collection<Document> = views.collection("revisions");
    revisions.update_one(doc! { "_id": 1 }, doc! { "$set": { "b": 1 } }).await.unwrap();
    let next = doc! { "b": 2, "revision": "b" };
    assert_nothing_found(revisions.replace_one(doc! { "_id": 1, "revision": "x" }, &next).await, "another");
    assert_eq!(revisions.replace_one(doc! { "_id": 1, "revision": "a" }, &next).await.unwrap().modified_count, 1);
    let set = doc! { "$set": { "b": 3, "revision": "c" } };
    assert_nothing_found(revisions.update_one(doc! { "_id": 1, "revision": "a" }, set.clone()).await, "another");
    assert_eq!(revisions.update_one(doc! { "_id": 1, "revision": "b" }, set).await.unwrap().modified_count, 1);
    assert_eq!(views.stored("revisions").await, [doc! { "_id": 1, "b": 3, "revision": "c" }]);

    // The same for an update of many documents and of one selected by _id.
    views.store("checking", [doc! { "_id": 1, "version": "a" }, doc! { "_id": 2, "version": 1 }]).await;
    let checking: Collection<Document> = views.collection("checking");
    let set = doc! { "$set": { "b": 1 } };
    assert_eq!(checking.update_many(doc! {}, set.clone()).await.unwrap().matched_count, 2);
    assert_eq!(checking.update_many(doc! { "_id": 1 }, doc! { "$set": { "b": 2 } }).await.unwrap().matched_count, 1);
    let stored = views.stored("checking").await;
    assert_eq!(stored, [doc! { "_id": 1, "version": "a", "b": 2 }, doc! { "_id": 2, "version": 2, "b": 1 }]);
}

#[tokio::test]
async fn checked_replacements_commit_with_their_transaction() {
    let views = views().await;
    views.store("checking", [doc! { "_id": 1, "version": 5 }]).await;
    let mut session = views.through.client().start_session().await.unwrap();
    let checking: Collection<Document> = views.collection("checking");
    session.start_transaction().await.unwrap();
    for version in 5..8 {
        let document = doc! { "version": version };
        checking.replace_one(doc! { "_id": 1 }, document).session(&mut session).await.unwrap();
    }
    let found = checking.find_one_and_replace(doc! { "_id": 1 }, doc! { "version": 8 }).session(&mut session).await;
    assert_eq!(found.unwrap(), Some(doc! { "_id": 1, "version": 8 }));
    checking.replace_one(doc! { "_id": 2 }, doc! {}).upsert(true).session(&mut session).await.unwrap();
    assert_eq!(views.stored("checking").await, [doc! { "_id": 1, "version": 5 }], "seen before the commit");
    session.commit_transaction().await.unwrap();
    assert_eq!(views.stored("checking").await, [doc! { "_id": 1, "version": 9 }, doc! { "_id": 2, "version": 1 }]);
}

/// An ignored conflict is n: 0 in every form, also in a batch, and the transaction continues.
#[tokio::test]
async fn an_ignored_conflict_in_any_form_leaves_the_transaction_open() {
    let views = views().await;
    views.store("ignoring", [doc! { "_id": 1, "version": 5 }]).await;
    let mut session = views.through.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let ignoring: Collection<Document> = views.collection("ignoring");
    let filter = doc! { "_id": 1 };
    for stale in [doc! { "version": 3 }, doc! { "a": 1 }] {
        for upsert in [false, true] {
            let replaced = ignoring.replace_one(filter.clone(), &stale).upsert(upsert).session(&mut session).await;
            assert_nothing_found(replaced, "replaceOne");
            let found =
                ignoring.find_one_and_replace(filter.clone(), &stale).upsert(upsert).session(&mut session).await;
            assert_eq!(found.unwrap(), None);
        }
    }
    let set = doc! { "$set": { "version": 3, "a": 1 } };
    assert_nothing_found(ignoring.update_one(filter.clone(), set).session(&mut session).await, "$set");
    let replace = |version: i32| doc! { "q": &filter, "u": { "version": version } };
    let batch = doc! { "update": "ignoring", "updates": [replace(3), replace(5)] };
    let reply = views.through.run_command(batch).session(&mut session).await.unwrap();
    assert_eq!((reply.get_i32("n").unwrap(), write_errors(&reply)), (1, vec![]), "{reply}");
    session.commit_transaction().await.unwrap();
    assert_eq!(views.stored("ignoring").await, [doc! { "_id": 1, "version": 6 }]);
}

/// A revision that its ODM changes with each save (Beanie): updates by other applications pass. Null counts as a
/// missing version, and becomes the first one.
#[tokio::test]
async fn a_non_numeric_version_is_not_incremented() {
    let views = views().await;
    let uuid = bson::Binary::from(bson::Uuid::from_bytes([7; 16]));
    let versions: [Bson; 4] = [uuid.into(), "a".into(), Bson::Null, doc! { "x": 1 }.into()];
    for ordered in [true, false] {
        let checking: Collection<Document> = views.direct.collection("checking");
        checking.delete_many(doc! {}).await.unwrap();
        let stored = |id: usize, version: &Bson| doc! { "_id": id as i32, "n": 0, "version": version.clone() };
        views.store("checking", versions.iter().enumerate().map(|(id, version)| stored(id, version))).await;
        views.store("checking", [doc! { "_id": 9, "n": 0, "version": 1 }]).await;
        let increment = |id: usize| doc! { "q": { "_id": id as i32 }, "u": { "$inc": { "n": 1 } } };
        let updates: Vec<Document> = (0..versions.len()).chain([9]).map(increment).collect();
        let reply = views.run(doc! { "update": "checking", "updates": updates, "ordered": ordered }).await.unwrap();
        assert_eq!((reply.get_i32("n"), reply.get_i32("nModified")).0.unwrap(), 5, "{reply}");
        assert!(!reply.contains_key("writeErrors"), "{reply}");
        let found = views.stored("checking").await;
        assert!(found.iter().all(|document| document.get_i32("n").unwrap() == 1), "{found:?}");
        let expected = versions.iter().map(|version| if *version == Bson::Null { &Bson::Int32(1) } else { version });
        assert!(found.iter().zip(expected).all(|(document, version)| document.get("version") == Some(version)));
        assert_eq!(found[4].get_i32("version").unwrap(), 2);
    }
    let modify =
        doc! { "findAndModify": "checking", "query": { "_id": 0 }, "update": { "$inc": { "n": 1 } }, "new": true };
    let reply = views.run(modify).await.unwrap();
    assert_eq!(reply.get_document("value").unwrap().get_i32("n").unwrap(), 2, "{reply}");
    // The statement's own error stays.
    let own = views.run(update("checking", doc! { "_id": 1 }, doc! { "$inc": { "version": 1 } })).await.unwrap();
    assert_eq!(own.get_array("writeErrors").unwrap()[0].as_document().unwrap().get_i32("code").unwrap(), 14);
}

/// Null counts as no version: after an update with operators, a document that was read with it can no longer be
/// saved.
#[tokio::test]
async fn an_update_beside_a_null_version_is_not_erased_by_a_save() {
    let views = views().await;
    let checking: Collection<Document> = views.collection("checking");
    let updates = [
        doc! { "$set": { "b": 1 } },
        doc! { "$set": { "b": 1 }, "$max": { "c": 1 } },
        doc! { "$inc": { "b": 1 }, "$push": { "l": 1 } },
    ];
    for (id, change) in (0..).zip(updates) {
        for upsert in [false, true] {
            let id = format!("{id} {upsert}");
            views.store("checking", [doc! { "_id": &id, "version": null }]).await;
            let by_id = doc! { "_id": &id };
            let updated = checking.update_one(by_id.clone(), change.clone()).upsert(upsert).await.unwrap();
            assert_eq!((updated.matched_count, updated.upserted_id), (1, None), "{change}");
            let stale = checking.replace_one(by_id.clone(), doc! { "a": 2, "version": null }).await;
            assert_eq!(code(&stale.unwrap_err()), 112, "{change}");
            let stored = checking.find_one(by_id.clone()).await.unwrap().unwrap();
            assert_eq!((stored.get_i32("b").unwrap(), stored.get_i32("version").unwrap()), (1, 1), "{change}");
        }
    }
    // The statement's own error stays, and nothing is applied twice.
    views.store("checking", [doc! { "_id": "own", "a": "text", "version": 3 }]).await;
    let own = update("checking", doc! { "_id": "own" }, doc! { "$inc": { "a": 1 }, "$push": { "l": 1 } });
    let own = views.run(own).await.unwrap();
    assert_eq!(write_errors(&own), [(0, 14)]);
    let stored = checking.find_one(doc! { "_id": "own" }).await.unwrap().unwrap();
    assert_eq!(stored, doc! { "_id": "own", "a": "text", "version": 3 });
}
