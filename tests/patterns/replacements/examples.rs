//! One statement under each setting: the stored document, and the application's reply.

use bson::{Bson, Decimal128, Document, doc};
use mongodb::Collection;
use mongodb::error::{ErrorKind, WriteFailure};
use mongodb::options::ReturnDocument;

use super::views;
use support::driver::{Views, code};

async fn checking() -> (Views, Collection<Document>) {
    let views = views().await;
    let collection = views.collection("checking");
    (views, collection)
}

/// docward's machine-readable reason in the error of a rejected write command.
fn reason(rule: &str, info: &Document) -> String {
    let info = info.get_document("docward").unwrap();
    assert_eq!(info.keys().collect::<Vec<_>>(), ["rule", "pattern", "reason", "hint"]);
    assert_eq!(info.get_str("rule").unwrap(), rule);
    assert_eq!(info.get_str("pattern").unwrap(), "replacement");
    assert!(!info.get_str("hint").unwrap().is_empty());
    info.get_str("reason").unwrap().to_owned()
}

#[tokio::test]
async fn a_rejected_replacement_explains_itself() {
    let views = views().await;
    views.store("strict", [doc! { "_id": 1, "status": "new", "paid": true }]).await;
    let strict: Collection<Document> = views.collection("strict");

    let error = strict.replace_one(doc! { "_id": 1 }, doc! { "status": "sent" }).await.unwrap_err();
    let ErrorKind::Write(WriteFailure::WriteError(write)) = error.kind.as_ref() else { panic!("{error}") };
    assert_eq!(write.code, 121);
    assert!(reason("strict", write.details.as_ref().unwrap()).contains("replaces the whole document"));
    let namespace = format!("{}.strict", views.through.name());
    for part in ["docward rule 'strict'", &namespace, "Two services save whole orders.", "updateOne with $set"] {
        assert!(write.message.contains(part), "{part:?} is not in: {}", write.message);
    }
    assert!(error.labels().is_empty(), "{:?}", error.labels());

    let command = doc! { "findAndModify": "strict", "query": { "_id": 1 }, "update": { "status": "sent" } };
    let error = views.run(command).await.unwrap_err();
    let ErrorKind::Command(rejected) = error.kind.as_ref() else { panic!("{error}") };
    assert_eq!((rejected.code, rejected.code_name.as_str()), (121, "DocumentValidationFailure"));
    assert!(error.labels().is_empty(), "{:?}", error.labels());
    let raw = error.server_response().unwrap();
    let info: Document = raw.get_document("errInfo").unwrap().to_owned().try_into().unwrap();
    assert!(reason("strict", &info).contains("replaces the whole document"));

    assert_eq!(views.stored("strict").await, [doc! { "_id": 1, "status": "new", "paid": true }]);
}

#[tokio::test]
async fn statements_with_operators_pass_unchanged() {
    let views = views().await;
    let strict: Collection<Document> = views.collection("strict");
    strict.insert_one(doc! { "_id": 1, "n": 1 }).await.unwrap();
    strict.update_one(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } }).await.unwrap();
    strict.update_many(doc! {}, doc! { "$set": { "all": true } }).await.unwrap();
    strict.find_one_and_update(doc! { "_id": 2 }, doc! { "$set": { "n": 5 } }).upsert(true).await.unwrap();
    assert_eq!(views.stored("strict").await, [doc! { "_id": 1, "n": 2, "all": true }, doc! { "_id": 2, "n": 5 }]);
    strict.find_one_and_delete(doc! { "_id": 2 }).await.unwrap().unwrap();
    assert_eq!(strict.delete_many(doc! {}).await.unwrap().deleted_count, 1);
}

#[tokio::test]
async fn a_merged_replacement_leaves_unknown_fields() {
    let views = views().await;
    views.store("merging", [doc! { "_id": 1, "name": "Ada", "points": 7 }]).await;
    let merging: Collection<Document> = views.collection("merging");
    let result = merging.replace_one(doc! { "_id": 1 }, doc! { "name": "Ada L.", "city": "London" }).await.unwrap();
    assert_eq!((result.matched_count, result.modified_count), (1, 1));
    let after = merging
        .find_one_and_replace(doc! { "_id": 1 }, doc! { "_id": 1, "city": "$name" })
        .return_document(ReturnDocument::After)
        .await
        .unwrap();
    let expected = doc! { "_id": 1, "name": "Ada L.", "points": 7, "city": "$name" };
    assert_eq!(after, Some(expected.clone()));
    assert_eq!(views.stored("merging").await, [expected]);
}

/// The same upserts with and without the rule insert the same documents, or the rule rejects them.
#[tokio::test]
async fn a_merged_upsert_inserts_what_the_replacement_would() {
    let views = views().await;
    let upserts = [
        (doc! { "_id": 1 }, doc! { "name": "Ada" }),
        (doc! { "name": "Bob" }, doc! { "_id": 2, "name": "Bob" }),
        (doc! { "_id": { "$eq": 3 } }, doc! { "_id": 3, "tags": [1], "nested": { "a": { "$b": 1 } } }),
        (doc! { "_id": 4, "n": { "$gt": 5 } }, doc! { "n": 1 }),
        (doc! { "_id": 5, "$and": [{ "name": "Eve" }] }, doc! { "name": "Eva" }),
        (doc! { "_id": 6 }, doc! {}),
    ];
    for (filter, replacement) in upserts {
        for (database, collection) in [(&views.through, "merging"), (&views.direct, "plain")] {
            let collection: Collection<Document> = database.collection(collection);
            let result = collection.replace_one(filter.clone(), &replacement).upsert(true).await.unwrap();
            assert!(result.upserted_id.is_some(), "{filter}");
        }
    }
    assert_eq!(views.stored("merging").await, views.stored("plain").await);
    let merging: Collection<Document> = views.collection("merging");
    let other = merging.replace_one(doc! { "_id": 9, "kind": "x" }, doc! { "name": "Zoe" }).upsert(true).await;
    assert_eq!(other.unwrap().upserted_id, Some(9.into()));
    // $set cannot write these names, and a replacement would erase another field.
    for (name, code) in [("a.b", 121), ("", 121), ("$a", 52)] {
        let rejected = views
            .run(doc! { "update": "merging", "updates": [{ "q": { "_id": 1 }, "u": { "x": 1, name: 1 } }] })
            .await
            .unwrap();
        assert_eq!(support::driver::write_errors(&rejected), [(0, code)], "{rejected}");
    }
}

#[tokio::test]
async fn a_checked_version_is_incremented_for_every_document() {
    let views = views().await;
    let versioned: Collection<Document> = views.collection("versioned");
    let versions = [
        (Bson::Int32(3), Bson::Int32(4)),
        (Bson::Int64(3), Bson::Int64(4)),
        (Bson::Double(3.0), Bson::Double(4.0)),
        (Bson::Int32(i32::MAX), Bson::Int64(1 << 31)),
        (Bson::Decimal128("3".parse().unwrap()), Bson::Int64(4)),
        (Bson::Int32(-9), Bson::Int32(-7)),
        (Bson::Null, Bson::Int32(-7)),
    ];
    for (id, (version, next)) in versions.into_iter().enumerate() {
        let id = id as i32;
        for filter in [
            doc! { "_id": id, "version": &version },
            doc! { "$and": [{ "_id": id }, { "version": { "$eq": &version } }] },
        ] {
            views.direct.collection::<Document>("versioned").delete_many(doc! {}).await.unwrap();
            views.store("versioned", [doc! { "_id": id, "version": &version }]).await;
            let result = versioned.replace_one(filter.clone(), doc! { "a": 1, "version": -7 }).await.unwrap();
            assert_eq!(result.modified_count, 1, "{filter}");
            assert_eq!(views.stored("versioned").await, [doc! { "_id": id, "a": 1, "version": &next }], "{filter}");
            if version != Bson::Null {
                let stale = versioned.replace_one(filter, doc! { "a": 2 }).await.unwrap();
                assert_eq!(
                    stale.matched_count, 0,
                    "an application that checks the version itself gets the server's reply"
                );
            }
        }
    }
    for (id, compared) in
        [Bson::from("3"), Bson::from(1.5), Bson::from(i64::MAX), Bson::from("1.5".parse::<Decimal128>().unwrap())]
            .into_iter()
            .enumerate()
    {
        let id = 10 + id as i32;
        views.store("versioned", [doc! { "_id": id, "version": &compared }]).await;
        let filter = doc! { "_id": id, "version": &compared };
        assert_eq!(versioned.replace_one(filter, doc! { "a": 1 }).await.unwrap().matched_count, 1, "{compared}");
        let stored = versioned.find_one(doc! { "_id": id }).await.unwrap();
        assert_eq!(stored, Some(doc! { "_id": id, "a": 1, "version": &compared }));
    }
    let unchecked = versioned.replace_one(doc! { "_id": 10 }, doc! { "version": 4 }).await;
    assert_eq!(code(&unchecked.unwrap_err()), 121);
}

#[tokio::test]
async fn the_version_of_the_document_must_still_be_stored() {
    let (views, checking) = checking().await;
    views.store("checking", [doc! { "_id": 1, "a": 0 }]).await;
    let replace = async |document: Document| checking.replace_one(doc! { "_id": 1 }, document).await;

    replace(doc! { "a": 1 }).await.unwrap();
    assert_eq!(views.stored("checking").await, [doc! { "_id": 1, "a": 1, "version": 1 }]);
    assert_eq!(code(&replace(doc! { "a": 2 }).await.unwrap_err()), 112, "it has a version now");
    replace(doc! { "_id": 1, "a": 3, "version": 1 }).await.unwrap();
    let stale = replace(doc! { "a": 4, "version": 1 }).await.unwrap_err();
    assert_eq!(code(&stale), 112);
    assert!(stale.labels().is_empty(), "a driver must not repeat it: {:?}", stale.labels());
    let ErrorKind::Write(WriteFailure::WriteError(write)) = stale.kind.as_ref() else { panic!("{stale}") };
    assert!(reason("checking", write.details.as_ref().unwrap()).contains("has 'version' 2, the one you sent has 1"));
    assert_eq!(views.stored("checking").await, [doc! { "_id": 1, "a": 3, "version": 2 }]);

    let found = checking.find_one_and_replace(doc! { "_id": 1 }, doc! { "a": 5, "version": 2 }).await.unwrap();
    assert_eq!(found, Some(doc! { "_id": 1, "a": 3, "version": 2 }));
    let stale = checking.find_one_and_replace(doc! { "_id": 1 }, doc! { "a": 6, "version": 2 }).await.unwrap_err();
    assert_eq!(code(&stale), 112);
    let ErrorKind::Command(rejected) = stale.kind.as_ref() else { panic!("{stale}") };
    assert_eq!(rejected.code_name, "WriteConflict");
    assert!(stale.labels().is_empty(), "a driver must not repeat it: {:?}", stale.labels());
    assert_eq!(views.stored("checking").await, [doc! { "_id": 1, "a": 5, "version": 3 }]);
}

#[tokio::test]
async fn an_upsert_inserts_only_a_document_without_a_version() {
    let (views, checking) = checking().await;
    let upsert =
        async |id: i32, document: Document| checking.replace_one(doc! { "_id": id }, document).upsert(true).await;
    let result = upsert(1, doc! { "a": 1 }).await.unwrap();
    assert_eq!(result.upserted_id, Some(Bson::Int32(1)));
    // The document was read and has been deleted since: there is no stored version to conflict with.
    let gone = upsert(2, doc! { "a": 1, "version": 4 }).await.unwrap();
    assert_eq!((gone.matched_count, gone.upserted_id), (0, None));
    // The document exists already.
    assert_eq!(code(&upsert(1, doc! { "a": 2 }).await.unwrap_err()), 112);
    assert_eq!(
        code(&checking.find_one_and_replace(doc! { "_id": 1 }, doc! { "a": 2 }).upsert(true).await.unwrap_err()),
        112
    );
    let gone = checking.find_one_and_replace(doc! { "_id": 2 }, doc! { "version": 2 }).upsert(true).await;
    assert_eq!(gone.unwrap(), None);
    assert_eq!(views.stored("checking").await, [doc! { "_id": 1, "a": 1, "version": 1 }]);
}

/// Eight writers save a document that none of them has found: one inserts it, seven get an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_first_saves_wins() {
    let (views, checking) = checking().await;
    for id in 0..10 {
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..8 {
            let checking = checking.clone();
            writers.spawn(async move {
                let filter = doc! { "_id": id };
                let outcome = match writer % 2 {
                    0 => checking.replace_one(filter, doc! { "by": writer }).upsert(true).await.map(drop),
                    _ => checking.find_one_and_replace(filter, doc! { "by": writer }).upsert(true).await.map(drop),
                };
                outcome.map(|()| writer).map_err(|error| code(&error))
            });
        }
        let outcomes = writers.join_all().await;
        let winners: Vec<i32> = outcomes.iter().filter_map(|outcome| outcome.ok()).collect();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(112))), "{outcomes:?}");
        let [winner] = winners[..] else { panic!("{outcomes:?}") };
        assert_eq!(views.stored("checking").await[id as usize], doc! { "_id": id, "by": winner, "version": 1 });
    }
}

#[tokio::test]
async fn an_ignored_conflict_reports_no_match() {
    let views = views().await;
    views.store("ignoring", [doc! { "_id": 1, "version": 5 }]).await;
    let ignoring: Collection<Document> = views.collection("ignoring");
    for upsert in [false, true] {
        for stale in [doc! { "a": 1 }, doc! { "a": 1, "version": 4 }] {
            let result = ignoring.replace_one(doc! { "_id": 1 }, &stale).upsert(upsert).await.unwrap();
            assert_eq!((result.matched_count, result.modified_count, result.upserted_id), (0, 0, None));
            let found = ignoring.find_one_and_replace(doc! { "_id": 1 }, &stale).upsert(upsert).await.unwrap();
            assert_eq!(found, None);
        }
    }
    assert_eq!(views.stored("ignoring").await, [doc! { "_id": 1, "version": 5 }]);
    assert_eq!(ignoring.replace_one(doc! { "_id": 1 }, doc! { "version": 5 }).await.unwrap().modified_count, 1);
}
