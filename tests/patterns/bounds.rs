//! The pattern `bounds` in front of a real mongod: whatever an application sends, the stored number stays in range,
//! and docward does not turn a full document into an unexpected error.

use std::sync::OnceLock;

use bson::{Bson, Decimal128, Document, doc};
use mongodb::Collection;
use mongodb::error::Error;
use mongodb::results::UpdateResult;
use support::driver::{Views, code, message, write_errors};
use support::mongod::Mongod;
use support::proxy::Docward;
use tokio::task::JoinSet;

const RULES: &str = r#"
version: 1
rules:
  - { name: stock, namespace: "*.stock", bounds: { field: n, min: 0, max: 10 } }
  - { name: nested, namespace: "*.nested", bounds: { field: a.n, min: 0, max: 10 } }
  - { name: only-max, namespace: "*.only_max", bounds: { field: n, max: 10 } }
  - { name: loud, namespace: "*.loud", bounds: { field: n, min: 0, max: 10, on_no_room: error } }
  - { name: strict, namespace: "*.strict", bounds: { field: n, min: 0, max: 10, policy: reject } }
"#;

async fn views() -> Views {
    static DOCWARD: OnceLock<Docward> = OnceLock::new();
    let docward = DOCWARD.get_or_init(|| Docward::start(Mongod::shared(), RULES));
    Views::of(Mongod::shared(), docward).await
}

fn assert_no_room(result: Result<UpdateResult, Error>, what: &str) {
    let result = result.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!((result.matched_count, result.modified_count, result.upserted_id), (0, 0, None), "{what}");
}

fn decimal(text: &str) -> Bson {
    text.parse::<Decimal128>().unwrap().into()
}

/// Every way in which a filter gives an upsert a value, each on its own `_id`s.
fn equalities(field: &str, value: &Bson) -> Vec<Document> {
    let mut equalities = vec![
        doc! { field: value },
        doc! { field: { "$eq": value } },
        doc! { field: { "$in": [value] } },
        doc! { field: { "$all": [value] } },
        doc! { "$or": [{ field: value }] },
        doc! { "$and": [{ "x": 1 }, { field: { "$eq": value } }] },
        doc! { "$and": [{ "$or": [{ field: { "$in": [value] } }] }] },
    ];
    if let Some((root, leaf)) = field.split_once('.') {
        equalities.push(doc! { root: { leaf: value } });
        equalities.push(doc! { root: { "$eq": { leaf: value } } });
    }
    equalities
}

#[tokio::test]
async fn no_filter_makes_an_upsert_insert_out_of_range() {
    let views = views().await;
    for (collection, field) in [("stock", "n"), ("nested", "a.n")] {
        let stock: Collection<Document> = views.collection(collection);
        let direct: Collection<Document> = views.direct.collection("direct");
        for (out, modification) in [
            (Bson::Int32(11), doc! { "$set": { "y": 1 } }),
            (Bson::Int32(11), doc! { "$setOnInsert": { "y": 1 } }),
            (Bson::Int32(-1), doc! { "$unset": { "y": 1 } }),
            (Bson::Int32(9), doc! { "$inc": { field: 2 } }),
            (Bson::Double(10.5), doc! { "$push": { "y": 1 } }),
            (decimal("1E+3"), doc! { "$set": { "y": 1 } }),
            (Bson::from("x"), doc! { "$set": { "y": 1 } }),
        ] {
            for filter in equalities(field, &out) {
                let what = format!("{filter} {modification}");
                let sent = stock.update_one(filter.clone(), modification.clone()).upsert(true).await;
                assert_eq!(code(&sent.unwrap_err()), 121, "{what}");
                let sent = stock.find_one_and_update(filter.clone(), modification.clone()).upsert(true).await;
                assert_eq!(code(&sent.unwrap_err()), 121, "{what}");
                // The server inserts it itself.
                direct.update_one(filter, modification.clone()).upsert(true).await.unwrap();
                assert_eq!(direct.delete_many(doc! {}).await.unwrap().deleted_count, 1, "{what}");
            }
        }
        assert_eq!(views.stored(collection).await, Vec::<Document>::new());
        for filter in equalities(field, &Bson::Int32(7)) {
            let what = filter.to_string();
            let sent = stock.update_one(filter, doc! { "$set": { "y": 1 } }).upsert(true).await.unwrap();
            assert!(sent.upserted_id.is_some(), "{what}");
            assert_eq!(stock.delete_many(doc! {}).await.unwrap().deleted_count, 1);
        }
    }
    let nested: Collection<Document> = views.collection("nested");
    for below in [doc! { "a.n.x": 1 }, doc! { "a": { "n": {} } }, doc! { "a.n": { "$all": [[1]] } }] {
        let sent = nested.update_one(below.clone(), doc! { "$set": { "y": 1 } }).upsert(true).await;
        assert_eq!(code(&sent.unwrap_err()), 121, "{below}");
    }
    assert_eq!(views.stored("nested").await, Vec::<Document>::new());
}

#[tokio::test]
async fn a_set_of_an_enclosing_document_is_checked() {
    let views = views().await;
    let nested: Collection<Document> = views.collection("nested");
    let stored = doc! { "_id": 1, "a": { "n": 5 }, "b": { "n": 11 } };
    views.store("nested", [stored.clone()]).await;
    for around in [
        doc! { "$set": { "a": [{ "n": 11 }] } },
        doc! { "$set": { "a": { "n": 11 } } },
        doc! { "$set": { "a": { "n": "x" } } },
        doc! { "$set": { "a.n": [5] } },
        doc! { "$rename": { "b": "a" } },
        doc! { "a": { "n": -1 } },
    ] {
        let command = doc! { "update": "nested", "updates": [{ "q": { "_id": 1 }, "u": around.clone() }] };
        assert_eq!(write_errors(&views.run(command).await.unwrap()), [(0, 121)], "{around}");
    }
    assert_eq!(views.stored("nested").await, [stored]);
    nested.update_one(doc! { "_id": 1 }, doc! { "$set": { "a": { "n": 10, "m": 99 } } }).await.unwrap();
    nested.update_one(doc! { "_id": 1 }, doc! { "$set": { "a.m": 100 }, "$unset": { "b": 1 } }).await.unwrap();
    assert_eq!(views.stored("nested").await, [doc! { "_id": 1, "a": { "n": 10, "m": 100 } }]);
    // In array elements the number is in range, too.
    nested.update_one(doc! { "_id": 1 }, doc! { "$set": { "a": [{ "n": 3 }, { "m": 1 }] } }).await.unwrap();
    nested.update_one(doc! { "_id": 1 }, doc! { "$inc": { "a.$[].n": 1 } }).await.unwrap();
    let beyond = nested.update_one(doc! { "_id": 1 }, doc! { "$set": { "a.1.n": 11 } }).await;
    assert_eq!(code(&beyond.unwrap_err()), 121);
    assert_eq!(views.stored("nested").await, [doc! { "_id": 1, "a": [{ "n": 4 }, { "m": 1, "n": 1 }] }]);
}

#[tokio::test]
async fn a_missing_field_counts_as_zero() {
    let views = views().await;
    for (collection, field) in [("stock", "n"), ("nested", "a.n"), ("loud", "n")] {
        let stock: Collection<Document> = views.collection(collection);
        views.store(collection, [doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }]).await;
        assert_eq!(stock.update_one(doc! { "_id": 1 }, doc! { "$inc": { field: 4 } }).await.unwrap().matched_count, 1);
        let found = stock.find_one_and_update(doc! { "_id": 2 }, doc! { "$inc": { field: 0.5 } }).await.unwrap();
        assert_eq!(found, Some(doc! { "_id": 2 }));
        for amount in [Bson::Int32(-1), Bson::Int32(11), Bson::Double(-0.5), decimal("10.1")] {
            let beyond = stock.update_one(doc! { "_id": 3 }, doc! { "$inc": { field: &amount } }).await;
            match collection {
                "loud" => assert_eq!(code(&beyond.unwrap_err()), 121, "{amount}"),
                _ => assert_no_room(beyond, &amount.to_string()),
            }
        }
        let holding = |id: i32, value: Bson| match field {
            "n" => doc! { "_id": id, "n": value },
            _ => doc! { "_id": id, "a": { "n": value } },
        };
        let expected = [holding(1, 4.into()), holding(2, 0.5.into()), doc! { "_id": 3 }];
        assert_eq!(views.stored(collection).await, expected);
    }
}

#[tokio::test]
async fn fractions_are_added_as_the_server_adds_them_also_by_upserts() {
    let views = views().await;
    let stock: Collection<Document> = views.collection("stock");
    let add =
        async |amount: &Bson| stock.update_one(doc! { "_id": 1 }, doc! { "$inc": { "n": amount } }).upsert(true).await;
    assert_eq!(add(&decimal("0.5")).await.unwrap().upserted_id, Some(Bson::Int32(1)));
    assert_no_room(add(&Bson::Double(9.75)).await, "9.75");
    assert_no_room(add(&decimal("9.5000000000000000000000000000001")).await, "a little too much");
    assert_eq!(add(&decimal("9.50")).await.unwrap().matched_count, 1);
    assert_eq!(views.stored("stock").await, [doc! { "_id": 1, "n": decimal("10.00") }]);
    let found = stock.find_one_and_update(doc! { "_id": 1 }, doc! { "$inc": { "n": 0.5 } }).upsert(true).await.unwrap();
    assert_eq!(found, None);
    assert_eq!(views.stored("stock").await, [doc! { "_id": 1, "n": decimal("10.00") }]);
}

#[tokio::test]
async fn numbers_are_compared_by_value() {
    let views = views().await;
    let within = ["0E-8", "-0", "-0E+3", "1E-6176", "1E+1", "10.0", "0.1E+2", "10"].map(decimal);
    let beyond = ["1E+3", "-1E-30", "10.00000000000000000000000000001", "Infinity", "-Infinity", "NaN"].map(decimal);
    let doubles = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 10.000_000_1, -f64::MIN_POSITIVE].map(Bson::Double);
    let stock: Collection<Document> = views.collection("stock");
    views.store("stock", [doc! { "_id": 1 }]).await;
    for value in within.into_iter().chain([Bson::Double(-0.0), Bson::Int64(10)]) {
        stock.update_one(doc! { "_id": 1 }, doc! { "$set": { "n": &value } }).await.unwrap();
        stock.insert_one(doc! { "_id": 2, "n": &value }).await.unwrap();
        stock.delete_one(doc! { "_id": 2 }).await.unwrap();
    }
    stock.update_one(doc! { "_id": 1 }, doc! { "$set": { "n": 5 } }).await.unwrap();
    for value in beyond.into_iter().chain(doubles) {
        let sent = stock.update_one(doc! { "_id": 1 }, doc! { "$set": { "n": &value } }).await;
        assert_eq!(code(&sent.unwrap_err()), 121, "{value}");
        // It is an error where it would change the number.
        match stock.update_one(doc! { "_id": 1 }, doc! { "$max": { "n": &value } }).await {
            Ok(sent) => assert_eq!((sent.matched_count, sent.modified_count), (1, 0), "{value}"),
            Err(error) => assert_eq!(code(&error), 121, "{value}"),
        }
        assert_eq!(code(&stock.insert_one(doc! { "_id": 2, "n": &value }).await.unwrap_err()), 121, "{value}");
    }
    for nothing in ["0E-8", "-0", "0E+7"] {
        stock.update_one(doc! { "_id": 1 }, doc! { "$inc": { "n": decimal(nothing) } }).await.unwrap();
    }
    views.store("only_max", [doc! { "_id": 1, "n": 5 }]).await;
    for collection in ["stock", "only_max"] {
        let bounded: Collection<Document> = views.collection(collection);
        for endless in [Bson::Double(f64::NEG_INFINITY), decimal("-Infinity"), decimal("NaN"), f64::NAN.into()] {
            let sent = bounded.update_one(doc! { "_id": 1 }, doc! { "$inc": { "n": &endless } }).await;
            assert_eq!(code(&sent.unwrap_err()), 121, "{collection}: {endless}");
            let sent = bounded.insert_one(doc! { "n": &endless }).await;
            assert_eq!(code(&sent.unwrap_err()), 121, "{collection}: {endless}");
        }
    }
    let stored = views.stored("stock").await;
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].get("n").unwrap().to_string().parse::<f64>().unwrap(), 5.0, "{stored:?}");
}

#[tokio::test]
async fn an_upsert_out_of_range_is_n_0_and_its_transaction_continues() {
    let views = views().await;
    let stock: Collection<Document> = views.collection("stock");
    let full = doc! { "_id": 1, "n": 10 };
    views.store("stock", [full.clone()]).await;
    let mut session = views.through.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    for amount in [Bson::Int32(1), Bson::Double(0.5), decimal("0.5")] {
        let more = doc! { "$inc": { "n": &amount } };
        let filter = doc! { "_id": 1 };
        assert_no_room(stock.update_one(filter.clone(), more.clone()).upsert(true).await, "alone");
        let inside = stock.update_one(filter.clone(), more.clone()).upsert(true).session(&mut session).await;
        assert_no_room(inside, "inside a transaction");
        let found = stock.find_one_and_update(filter, more).upsert(true).session(&mut session).await;
        assert_eq!(found.unwrap(), None);
    }
    let other = stock.update_one(doc! { "_id": 2 }, doc! { "$inc": { "n": 1 } }).upsert(true).session(&mut session);
    assert_eq!(other.await.unwrap().upserted_id, Some(Bson::Int32(2)));
    session.commit_transaction().await.unwrap();
    assert_eq!(views.stored("stock").await, [full, doc! { "_id": 2, "n": 1 }]);
}

#[tokio::test]
async fn an_upsert_by_another_field_inserts_no_second_document() {
    let views = views().await;
    let stock: Collection<Document> = views.collection("stock");
    views.store("stock", [doc! { "_id": 1, "sku": "x", "n": 10 }]).await;
    let add = async |sku: &str| stock.update_one(doc! { "sku": sku }, doc! { "$inc": { "n": 1 } }).upsert(true).await;
    assert_no_room(add("x").await, "a full one");
    assert!(add("y").await.unwrap().upserted_id.is_some());
    assert_eq!(add("y").await.unwrap().matched_count, 1);
    let found = stock.find_one_and_update(doc! { "sku": "x" }, doc! { "$inc": { "n": 1 } }).upsert(true).await;
    assert_eq!(found.unwrap(), None);
    let numbers: Vec<Option<i32>> = views.stored("stock").await.iter().map(|d| d.get_i32("n").ok()).collect();
    assert_eq!(numbers, [Some(10), Some(2)]);
}

#[tokio::test]
async fn out_of_range_is_an_error_if_the_rule_requires_it() {
    let views = views().await;
    let loud: Collection<Document> = views.collection("loud");
    views.store("loud", [doc! { "_id": 1, "n": 10 }, doc! { "_id": 2, "n": 1 }, doc! { "_id": 3, "n": "x" }]).await;
    views.store("loud", [doc! { "_id": 5, "n": null }, doc! { "_id": 6, "n": [20] }]).await;
    let more = || doc! { "$inc": { "n": 1 } };
    for upsert in [false, true] {
        let error = loud.update_one(doc! { "_id": 1 }, more()).upsert(upsert).await.unwrap_err();
        assert_eq!(code(&error), 121);
        assert!(
            message(&error).contains("take 'n' out of range") && message(&error).contains("from 0 to 10"),
            "{error}"
        );
        let error = loud.find_one_and_update(doc! { "_id": 1 }, more()).upsert(upsert).await.unwrap_err();
        assert_eq!(code(&error), 121);
    }
    assert_no_room(loud.update_one(doc! { "_id": 9 }, more()).await, "the document does not exist");
    assert_no_room(loud.update_one(doc! { "_id": 1, "x": 1 }, more()).await, "the document does not exist");
    assert_eq!(code(&loud.update_one(doc! { "_id": 3 }, more()).await.unwrap_err()), 14, "the server's own error");
    for id in [3, 5, 6] {
        let error = loud.update_one(doc! { "_id": id }, doc! { "$inc": { "n": -1 } }).await.unwrap_err();
        assert_eq!(code(&error), 14, "{id}: {}", message(&error));
    }
    let reply = views
        .run(doc! { "update": "loud", "ordered": false, "updates": [
            { "q": { "_id": 1 }, "u": more() }, { "q": { "_id": 2 }, "u": more() },
            { "q": { "_id": 4 }, "u": more(), "upsert": true },
        ] })
        .await
        .unwrap();
    assert_eq!((reply.get_i32("n").unwrap(), write_errors(&reply)), (2, vec![(0, 121)]), "{reply}");
    let mut stored = views.stored("loud").await;
    stored.sort_by_key(|document| document.get_i32("_id").unwrap());
    let numbers: Vec<Bson> = stored.iter().map(|d| d.get("n").unwrap().clone()).collect();
    let untouched = [Bson::Null, Bson::from(vec![20])];
    assert_eq!(numbers[..4], [Bson::Int32(10), Bson::Int32(2), Bson::from("x"), Bson::Int32(1)]);
    assert_eq!(numbers[4..], untouched);
}

#[tokio::test]
async fn the_applications_own_condition_counts_as_the_check() {
    let views = views().await;
    let strict: Collection<Document> = views.collection("strict");
    views.store("strict", [doc! { "_id": 1, "n": 1 }, doc! { "_id": 2, "n": 0.5 }]).await;
    let take = async |filter: Document| strict.update_one(filter, doc! { "$inc": { "n": -1 } }).await;
    assert_eq!(code(&take(doc! { "_id": 1 }).await.unwrap_err()), 121);
    assert_eq!(take(doc! { "_id": 1, "n": { "$gt": 0 } }).await.unwrap().matched_count, 1);
    assert_no_room(take(doc! { "_id": 1, "n": { "$gt": 0 } }).await, "none left");
    // A fraction is also above 0, and decrementing by 1 would go below the minimum.
    assert_no_room(take(doc! { "_id": 2, "n": { "$gt": 0 } }).await, "half a copy");
    assert_eq!(views.stored("strict").await, [doc! { "_id": 1, "n": 0 }, doc! { "_id": 2, "n": 0.5 }]);
}

/// Eight writers add to documents that do not exist yet: as many succeed as the range allows, and no client sees a
/// duplicate key error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_upserts_fill_a_document_exactly() {
    let views = views().await;
    for (round, amount) in [(0, Bson::Int32(1)), (1, Bson::Int32(1)), (2, Bson::Double(1.0)), (3, decimal("1"))] {
        let mut writers = JoinSet::new();
        for writer in 0..8 {
            let stock: Collection<Document> = views.collection("stock");
            let more = doc! { "$inc": { "n": &amount } };
            writers.spawn(async move {
                let mut done = 0;
                for _ in 0..3 {
                    let filter = doc! { "_id": round };
                    done += if writer % 2 == 0 {
                        let result = stock.update_one(filter, more.clone()).upsert(true).await.unwrap();
                        result.matched_count + u64::from(result.upserted_id.is_some())
                    } else {
                        let command = doc! {
                            "findAndModify": "stock", "query": filter, "update": more.clone(), "upsert": true, "new": true,
                        };
                        command_finds(&stock, command).await
                    };
                }
                done
            });
        }
        let done: u64 = writers.join_all().await.into_iter().sum();
        let stored = views.stored("stock").await.pop().unwrap();
        assert_eq!(done, 10, "{stored}");
        assert_eq!(stored.get("n").unwrap().to_string().parse::<f64>().unwrap(), 10.0, "{stored}");
        assert_eq!(views.stored("stock").await.len(), round as usize + 1);
    }
}

/// The number of documents that a findAndModify changed or inserted.
async fn command_finds(stock: &Collection<Document>, command: Document) -> u64 {
    let client = stock.client();
    let reply = client.database(&stock.namespace().db).run_command(command).await.unwrap();
    u64::from(reply.get_document("value").is_ok())
}

/// The document is deleted and inserted under writers in both directions, and always holds a number in range.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_never_leave_the_range() {
    let views = views().await;
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let stock: Collection<Document> = views.collection("stock");
        writers.spawn(async move {
            for round in 0..25 {
                let filter = doc! { "_id": 1 };
                match (writer + round) % 4 {
                    0 => drop(stock.update_one(filter, doc! { "$inc": { "n": 4 } }).upsert(true).await.unwrap()),
                    1 => drop(stock.update_one(filter, doc! { "$inc": { "n": -3 } }).await.unwrap()),
                    2 => drop(
                        stock.find_one_and_update(filter, doc! { "$inc": { "n": 2.5 } }).upsert(true).await.unwrap(),
                    ),
                    _ if round % 5 == 0 => drop(stock.delete_one(filter).await.unwrap()),
                    _ => drop(stock.update_one(filter, doc! { "$inc": { "n": -0.5 } }).await.unwrap()),
                }
                if let Some(document) = stock.find_one(doc! {}).await.unwrap() {
                    let number: f64 = document.get("n").unwrap().to_string().parse().unwrap();
                    assert!((0.0..=10.0).contains(&number), "{document}");
                }
            }
        });
    }
    writers.join_all().await;
}
