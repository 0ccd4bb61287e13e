//! Every way to write a node's place: either the statement has the same effect as without docward, and the path
//! follows; or it is rejected, and nothing changes.

use bson::{Bson, Decimal128, Document, doc};

use super::{REJECTED, faults, rejected, rules};
use support::driver::{Views, write_errors};
use support::mongod::Mongod;
use support::proxy::Docward;

fn seeds() -> Vec<Document> {
    vec![
        doc! { "_id": "Books", "parent": null, "path": null },
        doc! { "_id": "Programming", "parent": "Books", "path": ",Books,", "above": "Music" },
        doc! { "_id": "Databases", "parent": "Programming", "path": ",Books,Programming,", "n": 1 },
        doc! { "_id": "Music", "path": null, "tags": ["a"] },
    ]
}

async fn reset(views: &Views, collection: &str, documents: &[Document]) {
    let stored = views.direct.collection::<Document>(collection);
    stored.delete_many(doc! {}).await.unwrap();
    stored.insert_many(documents).await.unwrap();
}

/// A reply's fields about the statement, independent of the collection's name.
fn bare(mut reply: Document) -> Document {
    for key in ["$clusterTime", "operationTime", "electionId", "opTime"] {
        reply.remove(key);
    }
    for error in reply.get_array_mut("writeErrors").into_iter().flatten() {
        let error = error.as_document_mut().unwrap();
        let text = error.get_str("errmsg").unwrap().replace(".plain ", ".categories ");
        error.insert("errmsg", text);
    }
    reply
}

fn without_path(nodes: Vec<Document>) -> Vec<Document> {
    let strip = |mut node: Document| {
        node.remove("path");
        node
    };
    nodes.into_iter().map(strip).collect()
}

/// The replies to one update through docward, and directly on a collection without rules and with the same documents.
async fn both(views: &Views, statement: &Document) -> [Document; 2] {
    reset(views, "categories", &seeds()).await;
    reset(views, "plain", &seeds()).await;
    let command = |name: &str| doc! { "update": name, "updates": [statement.clone()] };
    let through = views.through.run_command(command("categories")).await.unwrap();
    let direct = views.direct.run_command(command("plain")).await.unwrap();
    [through, direct].map(bare)
}

#[tokio::test]
async fn accepted_statements_have_their_usual_effect_and_the_path_follows() {
    let docward = Docward::start(Mongod::shared(), &rules(""));
    let views = Views::of(Mongod::shared(), &docward).await;
    let upsert = |q: Document, u: Document| doc! { "q": q, "u": u, "upsert": true };
    let update = |q: Document, u: Document| doc! { "q": q, "u": u };
    let go = || doc! { "$set": { "n": 1 } };
    let databases = || doc! { "_id": "Databases" };
    let statements = [
        // The filter has the parent of the inserted node.
        upsert(doc! { "_id": "Go", "parent": "Books" }, go()),
        upsert(doc! { "_id": "Go", "parent": { "$in": ["Books"] } }, go()),
        upsert(doc! { "_id": "Go", "parent": { "$all": ["Books"] } }, go()),
        upsert(doc! { "_id": "Go", "$or": [{ "parent": "Programming" }] }, go()),
        upsert(doc! { "$and": [{ "_id": "Go" }, { "$and": [{ "parent": { "$eq": "Books" } }] }] }, go()),
        upsert(doc! { "_id": { "$in": ["Go"] }, "parent": null }, go()),
        upsert(doc! { "$or": [{ "_id": "Go", "parent": "Music" }] }, go()),
        upsert(doc! { "_id": "Go", "$or": [{ "parent": "Books", "a": 1 }, { "parent": "Books" }] }, go()),
        upsert(doc! { "_id": "Go", "parent": { "$gt": "Books" } }, go()),
        upsert(doc! { "_id": "Go", "parent": "Books", "path": ",Books," }, go()),
        upsert(doc! { "_id": "Go", "parent": "Books" }, doc! { "$set": { "parent": "Music" } }),
        upsert(doc! { "_id": "Go", "parent": "Books" }, doc! { "$unset": { "parent": 1 } }),
        upsert(doc! { "_id": "Go", "above": "Books" }, doc! { "$rename": { "above": "parent" } }),
        upsert(doc! { "_id": "Go", "parent": "Books" }, doc! { "$rename": { "parent": "above" } }),
        upsert(doc! { "name": "Go" }, doc! { "$setOnInsert": { "_id": "Go", "parent": "Books" } }),
        upsert(doc! { "_id": "Go" }, doc! { "$min": { "parent": "Books" } }),
        upsert(doc! { "_id": "Go", "parent": "Music" }, doc! { "parent": "Books" }),
        upsert(doc! { "_id": "Go", "parent": "Music" }, doc! { "n": 1 }),
        upsert(doc! { "name": "Go" }, doc! { "_id": "Go", "parent": "Programming" }),
        doc! { "q": { "_id": "Go" }, "u": { "$set": { "parent": "Books" } }, "upsert": true, "multi": true },
        // They match a node, so $setOnInsert does nothing.
        upsert(databases(), doc! { "$setOnInsert": { "parent": "Music" }, "$set": { "n": 2 } }),
        upsert(doc! { "parent": "Programming" }, doc! { "$set": { "parent": "Music" } }),
        upsert(doc! { "tags": "a" }, doc! { "$push": { "tags": "b" }, "$set": { "parent": "Books" } }),
        upsert(doc! { "_id": { "$in": ["Databases", "none"] } }, doc! { "$set": { "parent": "Music" } }),
        // The server rejects to create such a document.
        upsert(doc! { "_id": "Go", "n": "x" }, doc! { "$inc": { "n": 1 }, "$set": { "parent": "Books" } }),
        upsert(doc! { "_id": "Go", "parent": "Books" }, doc! { "$set": { "parent.x": 1 } }),
        // Stored nodes.
        update(databases(), doc! { "$set": { "parent": "Music" } }),
        doc! { "q": databases(), "u": { "$set": { "parent": "Music" } }, "multi": true },
        doc! { "q": doc! { "$or": [{ "_id": "Programming" }] }, "u": { "$set": { "parent": "Music" } }, "multi": true },
        // A pipeline of constants, which an ODM sends instead of $set.
        doc! { "q": databases(), "u": [{ "$set": { "parent": { "$literal": "Music" }, "n": 2 } }], "multi": true },
        update(databases(), doc! { "$rename": { "parent": "above" } }),
        update(doc! { "_id": "Programming" }, doc! { "$rename": { "above": "parent" } }),
        update(databases(), doc! { "$min": { "parent": "Books" } }),
        update(databases(), doc! { "$max": { "parent": "Books" } }),
        update(databases(), doc! { "$set": { "parent": null } }),
        update(databases(), doc! { "$setOnInsert": { "parent": [1], "path": 7, "path.x": 1 } }),
        update(databases(), doc! { "$set": { "parent": "Music", "path": ",Music," } }),
        update(doc! { "_id": "Programming" }, doc! { "n": 3 }),
        // The server rejects these for every document.
        update(databases(), doc! { "$set": { "parent.x": 1 } }),
        update(databases(), doc! { "$set": { "parent.0": 1 } }),
        update(databases(), doc! { "$set": { "parent.$": 1 } }),
        update(databases(), doc! { "$set": { "parent.$[]": 1 } }),
        update(databases(), doc! { "$push": { "parent": 1 } }),
        update(databases(), doc! { "$inc": { "parent": 1 } }),
        update(databases(), doc! { "$set": { "parent": "Music" }, "$unset": { "parent": 1 } }),
        update(databases(), doc! { "$set": { "parent": "Music", "_id": "other" } }),
        update(doc! { "_id": "Programming" }, doc! { "$rename": { "above": "path" }, "$set": { "path": ",Books," } }),
    ];
    let mut wrong = Vec::new();
    for statement in statements {
        let [through, direct] = both(&views, &statement).await;
        let nodes = views.stored("categories").await;
        let faults = faults(&nodes);
        let same = through == direct && without_path(nodes) == without_path(views.stored("plain").await);
        if !same || !faults.is_empty() {
            wrong.push(format!("{statement}\n  through {through}\n  directly {direct}\n  {faults:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Statements that would leave a wrong path, or a node without a possible path.
#[tokio::test]
async fn statements_that_break_the_tree_are_rejected() {
    let docward = Docward::start(Mongod::shared(), &rules(""));
    let views = Views::of(Mongod::shared(), &docward).await;
    let update = |q: Document, u: Document| doc! { "q": q, "u": u };
    let upsert = |q: Document, u: Document| doc! { "q": q, "u": u, "upsert": true };
    let databases = || doc! { "_id": "Databases" };
    let go = || doc! { "$set": { "n": 1 } };
    let statements = [
        (update(databases(), doc! { "$unset": { "path": 1 } }), "does not match its parent"),
        (update(databases(), doc! { "$rename": { "path": "way" } }), "does not match its parent"),
        (update(doc! { "_id": "Programming" }, doc! { "$rename": { "above": "path" } }), "is not a valid path"),
        (update(databases(), doc! { "$max": { "path": ",Music," } }), "does not match its parent"),
        (update(databases(), doc! { "$currentDate": { "path": true } }), "of type date"),
        (update(databases(), doc! { "$currentDate": { "parent": true } }), "is not a valid _id of a node"),
        (update(doc! { "_id": "Music" }, doc! { "$set": { "parent.x": 1 } }), "is not a valid _id of a node"),
        (update(doc! { "_id": "Music" }, doc! { "$push": { "parent": "Books" } }), "is not a valid _id of a node"),
        (update(databases(), doc! { "$set": { "parent": ["Music"] } }), "is not a valid _id of a node"),
        (update(databases(), doc! { "$set": { "parent": { "id": "Music" } } }), "is not a valid _id of a node"),
        (update(doc! { "_id": "Programming" }, doc! { "$min": { "parent": "Aha" } }), "does not exist"),
        (update(doc! { "_id": "Books" }, doc! { "$max": { "parent": "Databases" } }), "below itself"),
        (upsert(doc! { "_id": "Go", "parent": { "$in": ["none"] } }, go()), "does not exist"),
        (upsert(doc! { "_id": "Go", "$or": [{ "parent": "Go" }] }, go()), "below itself"),
        (upsert(doc! { "_id": "Go", "parent": ["Books"] }, go()), "is not a valid _id of a node"),
        (upsert(doc! { "_id": "Go", "path": ",Music,", "parent": "Books" }, go()), "does not match its parent"),
        (upsert(doc! { "_id": "a,b", "n": 1 }, go()), "cannot be part of a path"),
        (upsert(doc! { "_id": { "a": 1 }, "n": 1 }, go()), "cannot be part of a path"),
        (upsert(doc! { "n": 9 }, doc! { "$set": { "parent": "Books" } }), "one type"),
    ];
    let mut wrong = Vec::new();
    for (statement, why) in statements {
        reset(&views, "categories", &seeds()).await;
        let nodes = views.stored("categories").await;
        let reply = views.run(doc! { "update": "categories", "updates": [statement.clone()] }).await.unwrap();
        let is_rejected = write_errors(&reply) == [(0, REJECTED)] && reply.to_string().contains(why);
        if !is_rejected || views.stored("categories").await != nodes {
            wrong.push(format!("{statement} ({why}): {reply}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The fields are in a document that statements also write as a whole.
#[tokio::test]
async fn writes_of_enclosing_documents_are_evaluated() {
    let docward = Docward::start(Mongod::shared(), &rules("path: a.way, parent: a.up"));
    let views = Views::of(Mongod::shared(), &docward).await;
    let seeds = [
        doc! { "_id": "Books", "a": { "way": null } },
        doc! { "_id": "Go", "a": { "up": "Books", "way": ",Books," } },
        doc! { "_id": "Gin", "a": { "up": "Go", "way": ",Books,Go," } },
        doc! { "_id": "Music", "a": { "way": null } },
    ];
    let update = |id: &str, u: Document, upsert: bool| doc! { "q": { "_id": id }, "u": u, "upsert": upsert };
    let around = doc! { "q": { "_id": "Jazz", "a": { "up": "Music" } }, "u": { "$set": { "n": 1 } }, "upsert": true };
    let set_on_insert = || doc! { "$setOnInsert": { "a": { "up": "Music" } } };
    let cases = [
        (update("Go", doc! { "$set": { "a": { "up": "Music" } } }, false), "Gin", Some(",Music,Go,")),
        (update("Go", doc! { "$set": { "a": { "up": "Music", "way": ",Music," } } }, false), "Go", Some(",Music,")),
        (update("Go", doc! { "$unset": { "a": 1 } }, false), "Gin", Some(",Go,")),
        (update("Go", doc! { "$set": { "a": {} } }, false), "Go", None),
        (update("Go", doc! { "a": { "up": "Music" } }, false), "Gin", Some(",Music,Go,")),
        (update("Go", doc! { "n": 1 }, false), "Gin", Some(",Go,")),
        (update("Jazz", set_on_insert(), true), "Jazz", Some(",Music,")),
        (update("Go", set_on_insert(), true), "Go", Some(",Books,")),
        (update("Jazz", doc! { "$set": { "a": { "up": "Music", "x": 1 } } }, true), "Jazz", Some(",Music,")),
        (around, "Jazz", Some(",Music,")),
    ];
    let mut wrong = Vec::new();
    for (statement, id, way) in cases {
        reset(&views, "categories", &seeds).await;
        let reply = views.run(doc! { "update": "categories", "updates": [statement.clone()] }).await.unwrap();
        let stored = views.stored("categories").await;
        let node = stored.iter().find(|node| node.get_str("_id").unwrap() == id);
        let found = node.and_then(|node| node.get_document("a").ok()).and_then(|around| around.get("way"));
        if found != Some(&way.map_or(Bson::Null, Bson::from)) || reply.get_i32("n").ok() != Some(1) {
            wrong.push(format!("{statement}: {reply} {node:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let categories = views.collection("categories");
    for (u, why) in [
        (doc! { "$set": { "a": 5 } }, "cannot be set: a field on its path"),
        (doc! { "$set": { "a": [] } }, "cannot be set: a field on its path"),
        (doc! { "$set": { "a": { "up": "Gin" } } }, "below itself"),
        (doc! { "$set": { "a": { "up": "Books", "way": ",Music," } } }, "does not match its parent"),
    ] {
        reset(&views, "categories", &seeds).await;
        rejected(categories.update_one(doc! { "_id": "Go" }, u).await, why);
        assert_eq!(views.stored("categories").await.len(), 4);
    }
}

/// mongod treats equal numbers as one `_id`, whatever their types.
#[tokio::test]
async fn numbers_of_one_value_are_one_node() {
    let docward = Docward::start(Mongod::shared(), &rules(""));
    let views = Views::of(Mongod::shared(), &docward).await;
    let decimal = |text: &str| Bson::Decimal128(text.parse::<Decimal128>().unwrap());
    let sevens = [Bson::Int32(7), Bson::Int64(7), Bson::Double(7.0), decimal("7"), decimal("7.0"), decimal("70E-1")];
    let zeros = [Bson::Int32(0), Bson::Double(-0.0), decimal("-0"), decimal("0E-8")];
    for (ids, text) in [(&sevens[..], "7"), (&zeros[..], "0")] {
        for id in ids {
            for parent in ids {
                reset(&views, "categories", &[doc! { "_id": 99, "path": null }]).await;
                let categories = views.collection("categories");
                categories.insert_one(doc! { "_id": id }).await.unwrap();
                categories.insert_one(doc! { "_id": 8, "parent": parent }).await.unwrap();
                let upsert = categories.update_one(doc! { "_id": 9, "parent": parent }, doc! { "$set": { "n": 1 } });
                upsert.upsert(true).await.unwrap();
                categories.insert_one(doc! { "_id": 10, "parent": 9.0 }).await.unwrap();
                // The same parent with another type moves nothing; another parent moves the subtree.
                categories.update_one(doc! { "_id": 9 }, doc! { "$set": { "parent": id } }).await.unwrap();
                let paths: Vec<Bson> =
                    views.stored("categories").await.iter().map(|node| node.get("path").unwrap().clone()).collect();
                let below = Bson::from(format!(",{text},"));
                let deeper = Bson::from(format!(",{text},9,"));
                assert_eq!(paths, [Bson::Null, below.clone(), below, deeper, Bson::Null], "{id:?} {parent:?}");
                rejected(categories.update_one(doc! { "_id": id }, doc! { "$set": { "parent": 10 } }).await, "itself");
                rejected(categories.delete_one(doc! { "_id": parent }).await, "has children");
                categories
                    .update_one(doc! { "_id": 9 }, doc! { "$inc": { "n": 1 }, "$unset": { "parent": 1 } })
                    .await
                    .unwrap();
                let moved = categories.find_one(doc! { "_id": 10 }).await.unwrap().unwrap();
                assert_eq!(moved.get_str("path").unwrap(), ",9,");
            }
        }
    }
    let categories = views.collection("categories");
    for odd in [Bson::Double(0.5), Bson::Double(f64::NAN), Bson::Double(1e300), decimal("7.5"), decimal("NaN")] {
        rejected(categories.insert_one(doc! { "_id": &odd }).await, "cannot be part of a path");
        rejected(categories.insert_one(doc! { "_id": 50, "parent": &odd }).await, "is not a valid _id of a node");
    }
    // By arithmetic, too.
    reset(&views, "categories", &[7, 8].map(|id| doc! { "_id": id, "path": null })).await;
    categories.insert_one(doc! { "_id": 9, "parent": 7 }).await.unwrap();
    categories.update_one(doc! { "_id": 9 }, doc! { "$inc": { "parent": 1 } }).await.unwrap();
    let moved = categories.find_one(doc! { "_id": 9 }).await.unwrap().unwrap();
    assert_eq!(moved, doc! { "_id": 9, "parent": 8, "path": ",8," });
    rejected(categories.update_one(doc! { "_id": 9 }, doc! { "$inc": { "parent": 1 } }).await, "below itself");
    rejected(categories.update_one(doc! { "_id": 9 }, doc! { "$inc": { "parent": 9 } }).await, "does not exist");
}

/// The `_id` of an upserted document may come from another rule, or from the server.
#[tokio::test]
async fn upserts_without_an_id_of_their_own_get_their_place() {
    let sequence =
        "  - { name: numbers, namespace: \"*.categories\", sequence: { field: _id, counter: c, on_upsert: true } }\n";
    for (others, root) in [("", Bson::ObjectId(bson::oid::ObjectId::new())), (sequence, Bson::Int32(1000))] {
        let docward = Docward::start(Mongod::shared(), &format!("{}{others}", rules("")));
        let views = Views::of(Mongod::shared(), &docward).await;
        views.store("categories", [doc! { "_id": &root, "path": null }]).await;
        let categories = views.collection("categories");
        let update = doc! { "$set": { "n": 1 } };
        let upsert = categories.update_one(doc! { "name": "Go", "parent": &root }, update).upsert(true).await.unwrap();
        let id = upsert.upserted_id.unwrap();
        assert_eq!(id.element_type(), root.element_type());
        let text = root.as_object_id().map_or_else(|| root.to_string(), |id| id.to_hex());
        let node = categories.find_one(doc! { "_id": id }).await.unwrap().unwrap();
        assert_eq!(node.get_str("path").unwrap(), format!(",{text},"), "{others}");
        let again = categories.update_one(doc! { "name": "Go" }, doc! { "$unset": { "parent": 1 } }).upsert(true).await;
        assert_eq!(again.unwrap().matched_count, 1);
        let upsert = categories.update_one(doc! { "name": "C", "parent": "no" }, doc! { "$set": { "n": 1 } });
        rejected(upsert.upsert(true).await, "does not exist");
    }
}

/// A late write changes nothing, whatever it would do to the tree.
#[tokio::test]
async fn late_moves_are_ignored() {
    let timestamps = |settings: &str| {
        let timestamps = format!("timestamps: {{ source: at, type: long, {settings} }}");
        format!("{}  - {{ name: timestamps, namespace: \"*.categories\", {timestamps} }}\n", rules(""))
    };
    let nodes = [
        doc! { "_id": "a", "at": 10i64, "parent": null },
        doc! { "_id": "b", "at": 10i64, "parent": "a" },
        doc! { "_id": "c", "at": 10i64, "parent": "b" },
        doc! { "_id": "x", "at": 10i64 },
    ];
    for settings in ["per: field", "per: document"] {
        let docward = Docward::start(Mongod::shared(), &timestamps(settings));
        let views = Views::of(Mongod::shared(), &docward).await;
        let insert = doc! { "insert": "categories", "documents": nodes.clone().map(Bson::from).to_vec() };
        assert_eq!(views.run(insert).await.unwrap().get_i32("n").unwrap(), 4);
        let stored = views.stored("categories").await;
        let set = |at: i64, parent: &str| doc! { "$set": { "at": at, "parent": parent } };
        let with_path = |at: i64, path: &str| doc! { "$set": { "at": at, "parent": "x", "path": path } };
        let mut updates = vec![set(5, "b"), set(5, "a"), set(5, "c"), set(5, "missing"), set(5, "x")];
        updates.extend([with_path(5, ",x,"), with_path(5, ",nonsense,")]);
        updates.push(doc! { "$unset": { "parent": 1 }, "$set": { "at": 5i64 } });
        // Checked: the late write is put back after the statement.
        let checked = |parent: &str| {
            doc! { "$set": { "at": 5i64, "parent": parent }, "$setOnInsert": { "q": 1 } }
        };
        updates.extend([checked("x"), checked("c"), checked("missing")]);
        if settings == "per: document" {
            updates.extend([doc! { "at": 5i64, "parent": "c" }, doc! { "at": 5i64, "n": 1 }]);
        }
        for update in updates {
            for upsert in [false, true] {
                let statement = doc! { "q": { "_id": "b" }, "u": update.clone(), "upsert": upsert };
                let reply = views.run(doc! { "update": "categories", "updates": [statement] }).await.unwrap();
                assert_eq!(reply.get_i32("n").ok(), Some(1), "{settings} {update}: {reply}");
                assert_eq!(reply.get("writeErrors"), None, "{settings} {update}: {reply}");
                let mut now = views.stored("categories").await;
                // The client does not write the path, so only such a write gives it a timestamp.
                for (node, before) in now.iter_mut().zip(&stored) {
                    if let (Ok(timestamps), Ok(known)) =
                        (node.get_document_mut("last_modified"), before.get_document("last_modified"))
                        && !known.contains_key("path")
                    {
                        timestamps.remove("path");
                    }
                }
                assert_eq!(now, stored, "{settings} {update}");
            }
            let command = doc! { "findAndModify": "categories", "query": { "_id": "b" }, "update": update.clone() };
            views.run(command).await.unwrap();
            assert_eq!(faults(&views.stored("categories").await), Vec::<String>::new(), "{settings} {update}");
        }
        // A write that is not late is checked against the tree.
        let categories = views.collection("categories");
        rejected(categories.update_one(doc! { "_id": "b" }, set(20, "c")).await, "below itself");
        rejected(categories.update_one(doc! { "_id": "b" }, set(20, "b")).await, "below itself");
        rejected(categories.update_one(doc! { "_id": "b" }, set(20, "missing")).await, "does not exist");
        rejected(categories.update_one(doc! { "_id": "b" }, with_path(20, ",a,")).await, "does not match its parent");
        rejected(categories.update_one(doc! { "_id": "new" }, set(20, "new")).upsert(true).await, "below itself");
        categories.update_one(doc! { "_id": "new" }, set(20, "c")).upsert(true).await.unwrap();
        categories.update_one(doc! { "_id": "b" }, set(20, "x")).await.unwrap();
        let stored = views.stored("categories").await;
        assert_eq!(faults(&stored), Vec::<String>::new(), "{settings}");
        let new = stored.iter().find(|node| node.get_str("_id").unwrap() == "new").unwrap();
        assert_eq!(new.get_str("path").unwrap(), ",x,b,c,");
    }
}
