//! Ways into a collection that are no write statements: outputs of aggregations and mapReduce, renames,
//! copies, applyOps. Closed where a rule guards the target, open everywhere else.

use bson::{Bson, Document, doc};

use super::{REFUSED, Setting, code, ok};

#[test]
fn every_road_into_a_guarded_collection_that_is_no_statement_is_closed() {
    let mut setting = Setting::new();
    let database = setting.database.clone();
    setting.seed("orders", vec![doc! { "_id": 1 }]);
    setting.seed("free", vec![doc! { "_id": 1, "stolen": true }, doc! { "_id": 2 }]);
    let aggregate = |stage: Document| doc! { "aggregate": "free", "pipeline": [stage], "cursor": {} };
    let map_reduce = |out: Bson| {
        doc! { "mapReduce": "free", "map": "function() { emit(1, 1) }", "reduce": "function() { return 1 }", "out": out }
    };
    let into = |action: &str| {
        let mut out = Document::new();
        out.insert(action, "orders");
        Bson::Document(out)
    };
    let uuid = collection_uuid(&mut setting, "orders");
    let namespace = |collection: &str| format!("{database}.{collection}");
    let operation = |collection: &str| doc! { "op": "i", "ns": namespace(collection), "o": { "_id": 9 } };
    let mut by_uuid = operation("free");
    by_uuid.insert("ui", uuid);
    let roads = vec![
        aggregate(doc! { "$out": "orders" }),
        aggregate(doc! { "$out": { "db": &database, "coll": "orders" } }),
        aggregate(doc! { "$merge": "orders" }),
        aggregate(doc! { "$merge": { "into": "orders" } }),
        aggregate(doc! { "$merge": { "into": { "db": &database, "coll": "orders" }, "whenMatched": "replace" } }),
        doc! { "aggregate": 1, "pipeline": [{ "$documents": [{ "_id": 1 }] }, { "$merge": "orders" }], "cursor": {} },
        map_reduce("orders".into()),
        map_reduce(into("replace")),
        map_reduce(into("merge")),
        map_reduce(into("reduce")),
        map_reduce(Bson::Document(doc! { "merge": "orders", "db": &database })),
        doc! { "cloneCollectionAsCapped": "free", "toCollection": "orders", "size": 4096 },
        doc! { "convertToCapped": "orders", "size": 4096 },
        doc! { "applyOps": [operation("orders")] },
        doc! { "applyOps": [operation("free"), operation("orders")] },
        doc! { "applyOps": [by_uuid] },
        doc! { "applyOps": [{ "op": "c", "ns": namespace("$cmd"), "o": { "applyOps": [operation("orders")] } }] },
    ];
    for road in roads {
        let reply = setting.command(road.clone());
        assert_eq!(code(&reply), Some(REFUSED), "{road}: {reply}");
    }
    // Ambiguous, and so refused by whoever reads it first.
    for out in [doc! { "replace": "other", "merge": "orders" }, doc! { "inline": 0, "merge": "orders" }] {
        assert!(code(&setting.command(map_reduce(out.into()))).is_some());
    }
    let on_admin = [
        doc! { "renameCollection": namespace("orders"), "to": namespace("elsewhere") },
        doc! { "renameCollection": namespace("free"), "to": namespace("orders"), "dropTarget": true },
        doc! { "internalRenameIfOptionsAndIndexesMatch": 1, "from": namespace("free"), "to": namespace("orders") },
        doc! { "applyOps": [operation("orders")] },
    ];
    for road in on_admin {
        let reply = setting.through.command("admin", road.clone());
        assert_eq!(code(&reply), Some(REFUSED), "{road}: {reply}");
    }
    let stages = || vec![doc! { "$out": "orders" }];
    for collection in ["free", "orders"] {
        let message = setting.message(doc! { "aggregate": collection, "cursor": {} });
        for message in [message.clone().sequence("pipeline", stages()), message.sequence_first("pipeline", stages())] {
            let reply = setting.through.exchange(&message);
            assert!(code(reply.body()).is_some(), "{message:?}: {reply:?}");
        }
    }
    assert_eq!(setting.stored("orders"), [doc! { "_id": 1 }]);
}

fn collection_uuid(setting: &mut Setting, collection: &str) -> Bson {
    let command = doc! { "listCollections": 1, "filter": { "name": collection } };
    let reply = setting.direct.command(&setting.database, command);
    let first = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0].as_document().unwrap();
    first.get_document("info").unwrap().get("uuid").unwrap().clone()
}

#[test]
fn roads_between_unguarded_collections_are_open() {
    let mut setting = Setting::new();
    let database = setting.database.clone();
    setting.seed("orders", vec![doc! { "_id": 1 }]);
    let out = doc! { "aggregate": "orders", "pipeline": [{ "$out": "copy" }], "cursor": {} };
    let merge = doc! { "aggregate": "copy", "pipeline": [{ "$merge": { "into": "merged" } }], "cursor": {} };
    let literal = doc! { "aggregate": "orders", "pipeline": [{ "$addFields": { "a": { "$literal": { "$out": "orders" } } } }], "cursor": {} };
    let operation = doc! { "op": "i", "ns": format!("{database}.merged"), "o": { "_id": 9 } };
    for command in [out, merge, literal, doc! { "applyOps": [operation] }] {
        let reply = setting.command(command.clone());
        assert!(ok(&reply), "{command}: {reply}");
    }
    let rename = doc! { "renameCollection": format!("{database}.merged"), "to": format!("{database}.renamed") };
    assert!(ok(&setting.through.command("admin", rename)));
    assert_eq!(setting.stored("renamed"), [doc! { "_id": 1 }, doc! { "_id": 9 }]);
}
