//! The pattern `schema_version` in front of a real mongod: no statement of old code changes a newer document, and no
//! stored version decreases.

use std::sync::OnceLock;

use bson::{Bson, Decimal128, Document, doc};
use support::driver::{Views, code, write_errors};
use support::mongod::Mongod;
use support::proxy::Docward;

const RULES: &str = r#"
version: 1
rules:
  - { name: versions, namespace: "*.versions", schema_version: { field: v, current: 3, minimum: 2 } }
  - { name: nested, namespace: "*.nested", schema_version: { field: m.v, current: 3, minimum: 2 } }
  - { name: silent, namespace: "*.silent", schema_version: { field: v, current: 3, minimum: 2, on_newer: ignore } }
"#;

async fn views() -> Views {
    static DOCWARD: OnceLock<Docward> = OnceLock::new();
    let docward = DOCWARD.get_or_init(|| Docward::start(Mongod::shared(), RULES));
    Views::of(Mongod::shared(), docward).await
}

fn update(collection: &str, filter: Document, change: impl Into<Bson>, upsert: bool) -> Document {
    doc! { "update": collection, "updates": [{ "q": filter, "u": change.into(), "upsert": upsert }] }
}

fn decimal(text: &str) -> Bson {
    text.parse::<Decimal128>().unwrap().into()
}

#[tokio::test]
async fn no_statement_writes_over_a_newer_document() {
    let views = views().await;
    let newer = |version: Bson| doc! { "_id": 1, "v": version, "first": "Ada", "n": 1 };
    let key = || doc! { "_id": 1 };
    let nan = Bson::Double(f64::NAN);
    for version in [Bson::Int32(3), Bson::Int64(3), Bson::Double(3.0), decimal("3"), Bson::Double(2.5)] {
        for (filter, change) in [
            (key(), doc! { "v": 2, "name": "Ada" }),
            (key(), doc! { "name": "Ada" }),
            (key(), doc! { "$set": { "name": "Ada" } }),
            (key(), doc! { "$inc": { "n": 1 } }),
            (key(), doc! { "$set": { "v": 2 } }),
            (key(), doc! { "$set": { "v": 2.0 } }),
            (key(), doc! { "$set": { "v": "3" } }),
            (key(), doc! { "$set": { "v": Bson::Null } }),
            (key(), doc! { "$set": { "v": &nan } }),
            (key(), doc! { "$set": { "v": decimal("3") } }),
            (key(), doc! { "$max": { "v": 2 }, "$set": { "name": "Ada" } }),
            (key(), doc! { "$max": { "v": "4" } }),
            (key(), doc! { "$max": { "v": &nan } }),
            (key(), doc! { "$max": { "v": Bson::Null } }),
            (key(), doc! { "$max": { "v": decimal("4") } }),
            (key(), doc! { "$min": { "v": 2 } }),
            (key(), doc! { "$mul": { "v": 0 } }),
            (key(), doc! { "$inc": { "v": -1 } }),
            (key(), doc! { "$unset": { "v": 1 } }),
            (key(), doc! { "$rename": { "v": "w" } }),
            (key(), doc! { "$rename": { "n": "v" } }),
            (key(), doc! { "$currentDate": { "v": true } }),
            (doc! { "_id": 1, "v": { "$in": [2, 2.5, &version] } }, doc! { "$set": { "v": 2 } }),
            (doc! { "_id": 1, "v": { "$gte": 2 } }, doc! { "$set": { "name": "Ada" } }),
            (doc! { "_id": 1, "$or": [{ "v": &version }, { "v": 2 }] }, doc! { "$set": { "name": "Ada" } }),
        ] {
            for collection in ["versions", "silent"] {
                let what = format!("{collection} {version}: {filter} {change}");
                views.direct.collection::<Document>(collection).delete_many(doc! {}).await.unwrap();
                views.store(collection, [newer(version.clone())]).await;
                let reply = views.run(update(collection, filter.clone(), change.clone(), false)).await.unwrap();
                let rejected = write_errors(&reply);
                assert!(rejected == [(0, 121)] || collection == "silent", "{what}: {reply}");
                assert!(reply.get_i32("n").unwrap() == 0, "{what}: {reply}");
                let find = doc! { "findAndModify": collection, "query": filter.clone(), "update": change.clone() };
                let found = views.run(find).await;
                assert!(collection == "silent" || found.is_err_and(|error| code(&error) == 121), "{what}");
                assert_eq!(views.stored(collection).await, [newer(version.clone())], "{what}");
            }
        }
    }
}

#[tokio::test]
async fn statements_of_the_same_version_or_a_newer_one_pass() {
    let views = views().await;
    for (stored, filter, change) in [
        (doc! { "v": 2 }, doc! {}, doc! { "$set": { "name": "Ada" } }),
        (doc! { "v": 1 }, doc! {}, doc! { "v": 2 }),
        (doc! {}, doc! {}, doc! { "v": 2 }),
        (doc! { "v": "x" }, doc! {}, doc! { "$set": { "v": 3_i64 } }),
        (doc! { "v": Bson::Null }, doc! {}, doc! { "$set": { "v": 3.0 } }),
        (doc! { "v": 2 }, doc! {}, doc! { "$max": { "v": 3 } }),
        (doc! { "v": 3 }, doc! {}, doc! { "$set": { "v": 3 } }),
        (doc! { "v": 3 }, doc! { "v": 3 }, doc! { "$set": { "name": "Ada" } }),
        (doc! { "v": 3 }, doc! { "v": { "$lte": 3 } }, doc! { "$set": { "name": "Ada" } }),
        (doc! { "v": 3 }, doc! { "v": { "$lt": 4 } }, doc! { "$set": { "name": "Ada" } }),
        (doc! { "v": 3 }, doc! { "$and": [{ "v": { "$in": [2, 3] } }] }, doc! { "$set": { "name": "Ada" } }),
    ] {
        let what = format!("{stored} {filter} {change}");
        views.direct.collection::<Document>("versions").delete_many(doc! {}).await.unwrap();
        let mut document = doc! { "_id": 7 };
        document.extend(stored);
        views.store("versions", [document]).await;
        let reply = views.run(update("versions", filter, change, false)).await.unwrap();
        assert!(write_errors(&reply).is_empty() && reply.get_i32("n").unwrap() == 1, "{what}: {reply}");
    }
    views.direct.collection::<Document>("versions").delete_many(doc! {}).await.unwrap();
}

#[tokio::test]
async fn upserts_and_inserts_store_a_version_in_range() {
    let views = views().await;
    let set = || doc! { "$set": { "name": "Ada" } };
    for (filter, change, passes) in [
        (doc! {}, set(), false),
        (doc! { "m.v": 4 }, set(), false),
        (doc! { "m.v": { "$in": [1] } }, set(), false),
        (doc! { "$and": [{ "m": { "v": 1 } }] }, set(), false),
        (doc! { "m": { "v": 3 } }, set(), true),
        (doc! { "m.v": { "$in": [3] } }, set(), true),
        (doc! { "m.v": { "$in": [2, 3] } }, set(), false),
        (doc! {}, doc! { "$setOnInsert": { "m.v": 1 } }, false),
        (doc! {}, doc! { "$setOnInsert": { "m.v": 3 } }, true),
        (doc! {}, doc! { "$max": { "m.v": 3 } }, true),
        (doc! {}, doc! { "$set": { "m": { "x": 1 } } }, false),
        (doc! {}, doc! { "name": "Ada" }, false),
        (doc! { "m.v": 3 }, doc! { "name": "Ada" }, false),
        (doc! {}, doc! { "m": { "v": 2 } }, true),
        (doc! {}, doc! { "m": [{ "v": 2 }] }, false),
    ] {
        let what = format!("{filter} {change}");
        let reply = views.run(update("nested", filter, change, true)).await.unwrap();
        assert_eq!(write_errors(&reply).first().map(|(_, code)| *code), (!passes).then_some(121), "{what}");
        assert_eq!(
            views.direct.collection::<Document>("nested").delete_many(doc! {}).await.unwrap().deleted_count,
            u64::from(passes),
            "{what}"
        );
    }
    // An upsert of old code inserts nothing beside the newer document.
    views.store("nested", [doc! { "_id": 1, "m": { "v": 3 } }]).await;
    let save = update("nested", doc! { "_id": 1 }, doc! { "m": { "v": 2 } }, true);
    let reply = views.run(save).await.unwrap();
    assert_eq!(write_errors(&reply), [(0, 121)]);
    assert!(
        reply.to_string().contains("the stored document has 'm.v' 3, and the statement is of version 2"),
        "{reply}"
    );
    for (document, passes) in
        [(doc! { "m": { "v": 3 } }, true), (doc! { "m": 3 }, false), (doc! { "m": { "v": 4 } }, false)]
    {
        let reply = views.run(doc! { "insert": "nested", "documents": [document] }).await.unwrap();
        assert_eq!(write_errors(&reply).is_empty(), passes);
    }
}
