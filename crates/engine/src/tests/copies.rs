//! `copies`: which writes of references are accepted, and that a rule evaluates the collections that contain copies.

use super::*;

#[test]
fn references_change_with_their_copies() {
    const FRIENDS: &str = "copies:\n- { into: d.c, key: f.id, fields: { name: f.name, city: town } }";
    let set = |fields: Bson| doc! {"q": {"_id": 1}, "u": {"$set": fields}};
    check_unchanged(FRIENDS, set(doc! {"name": "an original's own", "f.since": 1}));
    check_unchanged(FRIENDS, set(doc! {"f.id": 7, "f.name": "Ada", "town": "London"}));
    check_unchanged(FRIENDS, set(doc! {"f": {"id": 7, "name": "Ada"}, "town": Bson::new()}));
    check_unchanged(FRIENDS, doc! {"q": {"_id": 1}, "u": {"f": {"id": 7, "name": "Ada"}, "town": "London"}});
    check_rejected(FRIENDS, set(doc! {"f.id": 7}), "it sets 'f.id' without 'f.name', 'town'");
    check_rejected(FRIENDS, set(doc! {"f.id": 7, "f.name": "Ada"}), "it sets 'f.id' without 'town'");
    check_rejected(FRIENDS, set(doc! {"f": {"id": 7}, "town": "London"}), "without 'f.name'");
    check_rejected(FRIENDS, doc! {"q": {}, "u": {"f": {"id": 7}}}, "it sets 'f.id' without 'f.name', 'town'");

    // Without a reference there are no copies to check.
    check_unchanged(FRIENDS, doc! {"q": {}, "u": {"f": {"name": "a stranger"}, "a": 1}});
    check_unchanged(FRIENDS, doc! {"q": {}, "u": {"$unset": {"f": ""}}});
    check_unchanged(FRIENDS, doc! {"q": {}, "u": {"$unset": {"f.id": "", "town": ""}}});
    check_unchanged(FRIENDS, set(doc! {"f.id": bson::Bson::Null}));
    check_unchanged(FRIENDS, set(doc! {"f": {"name": "a stranger"}}));

    // A copy must not change alone, except when an application updates all copies itself.
    check_rejected(FRIENDS, set(doc! {"f.name": "Ada"}), "it changes 'f.name', which is a copy");
    check_rejected(FRIENDS, doc! {"q": {}, "u": {"$unset": {"town": ""}}}, "'town', which is a copy");
    check_unchanged(FRIENDS, doc! {"q": {"f.id": 7}, "u": {"$set": {"f.name": "Ada"}}, "multi": true});
    check_rejected(FRIENDS, doc! {"q": {"f.id": 7}, "u": {"$push": {"f.name": 1}}}, "which is a copy");
    check_rejected(FRIENDS, doc! {"q": {"f.id": {"$gt": 7}}, "u": {"$set": {"town": 1}}}, "which is a copy");

    // Documents that an upsert inserts.
    let upsert = |q: Bson, u: Bson| doc! {"q": q, "u": u, "upsert": true};
    let whole = doc! {"$setOnInsert": {"f": {"id": 7, "name": "Ada"}, "town": "London"}};
    check_unchanged(FRIENDS, upsert(doc! {"_id": 1}, whole));
    check_rejected(FRIENDS, upsert(doc! {"_id": 1}, doc! {"$setOnInsert": {"f.id": 7}}), "without 'f.name', 'town'");
    check_rejected(FRIENDS, upsert(doc! {"f.id": 7}, doc! {"$set": {"a": 1}}), "without 'f.name', 'town'");
    check_checked(FRIENDS, upsert(doc! {"f": {"id": 7, "name": "Ada"}}, doc! {"$setOnInsert": {"town": 1}}));
    check_unchanged(FRIENDS, upsert(doc! {"_id": 1}, doc! {"$setOnInsert": {"town": 1}}));

    // Writes whose result docward cannot determine.
    for unclear in [
        doc! {"$inc": {"f.id": 1}},
        doc! {"$set": {"f.id.part": 1}},
        doc! {"$set": {"f.0.id": 1}},
        doc! {"$set": {"f.id": [1, 2], "f.name": 1, "town": 1}},
        doc! {"$push": {"f": {"id": 1, "name": 1}}},
        doc! {"$set": {"f": [{"id": 1}]}},
        doc! {"$rename": {"g": "f"}},
        doc! {"f": [{"id": 1, "name": 1}]},
    ] {
        check_checked(FRIENDS, doc! {"q": {}, "u": unclear});
    }
    check_unchanged(FRIENDS, doc! {"q": {}, "u": [{"$set": {"a": "$b"}}]});
    check_checked(FRIENDS, doc! {"q": {}, "u": [{"$set": {"f.name": "$b"}}]});
    const HELD: &str = "copies:\n- { into: d.c, key: f.id, fields: { name: f.name }, on_delete: reject }";
    check_checked(HELD, doc! {"q": {}, "u": {"$inc": {"f.id": 1}}});
}

#[test]
fn the_filter_of_an_upsert_may_give_a_reference() {
    const FRIENDS: &str = "copies:\n- { into: d.c, key: f.id, fields: { name: f.name, city: town } }";
    let upsert = |q: Bson, u: Bson| doc! {"q": q, "u": u, "upsert": true};
    let set = || doc! {"$set": {"a": 1}};
    for odd in [
        doc! {"f.id": {"$in": [7]}},
        doc! {"f.id": {"$all": [7]}},
        doc! {"$or": [{"f.id": 7}]},
        doc! {"$and": [{"a": 2}, {"f": {"id": 7}}]},
        doc! {"f": {"$eq": {"id": 7}}},
    ] {
        check_checked(FRIENDS, upsert(odd, set()));
    }
    let named = doc! {"$setOnInsert": {"f.name": "Ada"}};
    check_unchanged(FRIENDS, upsert(doc! {"f.id": 7, "town": "London"}, named));
    check_unchanged(FRIENDS, upsert(doc! {"f.id": {"$gt": 7}}, doc! {"$set": {"b.$[x].c": 1}}));
    check_rejected(FRIENDS, upsert(doc! {"f.id": 7}, doc! {"$set": {"b.$[x].c": 1}}), "it sets 'f.id' without");
}

/// One reference, or an array of references in one field.
const HOBBIES: &str = "copies:\n- { into: d.c, key: hobbies.id, fields: { name: hobbies.n } }";

#[test]
fn references_in_arrays_change_with_their_copies() {
    let update = |u: Bson| doc! {"q": {"_id": 1}, "u": u};
    let set = |fields: Bson| doc! {"q": {"_id": 1}, "u": {"$set": fields}};
    for whole in [
        set(doc! {"hobbies": [{"id": 1, "n": "a"}, {"id": 2, "n": "b", "since": 3}]}),
        set(doc! {"hobbies": []}),
        set(doc! {"hobbies": {"id": 1, "n": "a"}}),
        set(doc! {"hobbies": [5, {"n": "a stranger's"}, {"id": Bson::new(), "n": 1}]}),
        set(doc! {"hobbies.0": {"id": 1, "n": "a"}}),
        set(doc! {"hobbies.0.id": 1, "hobbies.0.n": "a"}),
        set(doc! {"hobbies.$.id": 1, "hobbies.$.n": "a"}),
        set(doc! {"hobbies.$[x].id": 1, "hobbies.$[x].n": "a", "hobbies.$[y].since": 1}),
        set(doc! {"hobbies.$[].since": 1, "hobbies.0.since": 1}),
        update(doc! {"hobbies": [{"id": 1, "n": "a"}]}),
        update(doc! {"$push": {"hobbies": {"id": 1, "n": "a"}}}),
        update(doc! {"$push": {"hobbies": {"$each": [{"id": 1, "n": "a"}, {"x": 1}], "$slice": 5}}}),
        update(doc! {"$addToSet": {"hobbies": {"$each": [{"id": 1, "n": "a"}]}}}),
        update(doc! {"$pull": {"hobbies": {"id": 1}}}),
        update(doc! {"$pullAll": {"hobbies": [{"id": 1}]}}),
        update(doc! {"$pop": {"hobbies": 1}}),
        update(doc! {"$unset": {"hobbies": ""}}),
        update(doc! {"$unset": {"hobbies.0": ""}}),
        update(doc! {"$unset": {"hobbies.$.id": "", "hobbies.$.n": ""}}),
        update(doc! {"$rename": {"hobbies": "past"}}),
    ] {
        check_unchanged(HOBBIES, whole);
    }
    for alone in [
        set(doc! {"hobbies": [{"id": 1, "n": "a"}, {"id": 2}]}),
        set(doc! {"hobbies.0": {"id": 1}}),
        set(doc! {"hobbies.0.id": 1}),
        set(doc! {"hobbies.$.id": 1}),
        set(doc! {"hobbies.$[x].id": 1, "hobbies.$[y].n": "a"}),
        set(doc! {"hobbies.id": 1}),
        set(doc! {"hobbies.id": 1, "hobbies.0.n": "a"}),
        update(doc! {"hobbies": [{"id": 1}]}),
        update(doc! {"$push": {"hobbies": {"id": 1}}}),
        update(doc! {"$push": {"hobbies": {"$each": [{"id": 1, "n": "a"}, {"id": 2}]}}}),
        update(doc! {"$addToSet": {"hobbies": {"id": 1}}}),
    ] {
        check_rejected(HOBBIES, alone, "it sets 'hobbies.id' without 'hobbies.n'");
    }
    for copy in [
        set(doc! {"hobbies.0.n": "a"}),
        set(doc! {"hobbies.$.n": "a"}),
        set(doc! {"hobbies.$[].n": "a"}),
        set(doc! {"hobbies.$[x].n.short": "a"}),
        update(doc! {"$unset": {"hobbies.0.n": ""}}),
    ] {
        check_rejected(HOBBIES, copy, "it changes 'hobbies.n', which is a copy");
    }
    for unclear in [
        set(doc! {"hobbies": [[{"id": 1, "n": "a"}]]}),
        set(doc! {"hobbies.0": [{"id": 1, "n": "a"}]}),
        update(doc! {"$inc": {"hobbies.0.id": 1}}),
        update(doc! {"$rename": {"past": "hobbies"}}),
        update(doc! {"$push": {"hobbies.0": {"id": 1, "n": "a"}}}),
        update(doc! {"$push": {"hobbies.0.id": 1}}),
        set(doc! {"hobbies.0.id.part": 1, "hobbies.0.n": "a"}),
    ] {
        check_checked(HOBBIES, unclear);
    }
}

#[test]
fn applications_may_update_their_copies_themselves() {
    let named = |q: Bson, path: &str| doc! {"q": q, "u": {"$set": {path: "a"}}, "multi": true};
    check_unchanged(HOBBIES, named(doc! {"hobbies.id": 7}, "hobbies.$.n"));
    check_unchanged(HOBBIES, named(doc! {"hobbies": {"$elemMatch": {"id": 7}}}, "hobbies.$.n"));
    check_unchanged(HOBBIES, named(doc! {"hobbies.0.id": 7}, "hobbies.0.n"));
    let filtered = |filter: Bson| {
        let mut statement = named(doc! {}, "hobbies.$[h].n");
        statement.insert("arrayFilters", [filter]);
        statement
    };
    check_unchanged(HOBBIES, filtered(doc! {"h.id": 7}));
    for copy in [
        named(doc! {"hobbies.id": {"$gt": 7}}, "hobbies.$.n"),
        named(doc! {"hobbies.id": 7}, "hobbies.0.n"),
        named(doc! {"hobbies.id": 7, "hobbies.since": {"$gt": 1}}, "hobbies.$.n"),
        named(doc! {"hobbies.id": 7}, "hobbies.$[].n"),
        filtered(doc! {"h.since": 7}),
    ] {
        check_rejected(HOBBIES, copy, "which is a copy");
    }
}

#[test]
fn upserts_with_arrays_of_references() {
    let upsert = |q: Bson, u: Bson| doc! {"q": q, "u": u, "upsert": true};
    let push = |element: Bson| doc! {"$push": {"hobbies": element}};
    let not_yet = || doc! {"_id": 1, "hobbies.id": {"$ne": 7}};
    check_unchanged(HOBBIES, upsert(not_yet(), push(doc! {"id": 7, "n": "a"})));
    check_rejected(HOBBIES, upsert(not_yet(), push(doc! {"id": 7})), "without 'hobbies.n'");
    let set = || doc! {"$set": {"a": 1}};
    check_checked(HOBBIES, upsert(doc! {"hobbies": [{"id": 7, "n": "a"}]}, set()));
    let on_insert = |hobbies: Bson| doc! {"$setOnInsert": {"hobbies": [hobbies]}};
    check_unchanged(HOBBIES, upsert(doc! {"_id": 1}, on_insert(doc! {"id": 7, "n": "a"})));
    check_rejected(HOBBIES, upsert(doc! {"_id": 1}, on_insert(doc! {"id": 7})), "without 'hobbies.n'");
}

#[test]
fn the_array_may_be_any_field_around_the_references() {
    const ITEMS: &str = "copies:\n- { into: d.c, key: items.product.id, fields: { name: items.product.name } }";
    let set = |fields: Bson| doc! {"q": {"_id": 1}, "u": {"$set": fields}};
    let product = || doc! {"id": 1, "name": "a"};
    check_unchanged(ITEMS, set(doc! {"items": [{"product": product(), "n": 3}, {"product": 5}]}));
    check_unchanged(ITEMS, set(doc! {"items": {"product": [product()]}}));
    check_unchanged(ITEMS, set(doc! {"items.0.product": product()}));
    check_unchanged(ITEMS, set(doc! {"items.$.product.id": 1, "items.$.product.name": "a"}));
    check_unchanged(ITEMS, set(doc! {"items.product.0": product(), "items.0.n": 4}));
    check_unchanged(ITEMS, doc! {"q": {}, "u": {"$push": {"items": {"product": product(), "n": 3}}}});
    let why = "without 'items.product.name'";
    check_rejected(ITEMS, set(doc! {"items": [{"product": {"id": 1}}]}), why);
    check_rejected(ITEMS, set(doc! {"items.0.product": {"id": 1}}), why);
    check_rejected(ITEMS, set(doc! {"items.$[i].product.id": 1}), why);
    check_rejected(ITEMS, doc! {"q": {}, "u": {"$push": {"items": {"product": {"id": 1}}}}}, why);
    check_checked(ITEMS, set(doc! {"items": [{"product": [product()]}]}));
}

/// Returns the sent commands in order, when the server's finds return `finds`.
fn sent_commands(rules: &RuleSet, message: &[u8], finds: &[&[Bson]]) -> Vec<Bson> {
    let (mut plan, mut client_state) = (Plan::new(message, rules, NOW), ClientState::default());
    let mut finds = finds.iter();
    let mut step = plan.next(Input::Start, &mut client_state);
    let mut sent = Vec::new();
    while let Step::Exchange(message) = step {
        let (body, statements) = documents(&message);
        let name = body.iter().next().unwrap().0.clone();
        let mut body = body.clone();
        body.extend(doc! {"statements": statements});
        sent.push(body);
        let reply = match name.as_str() {
            "find" => {
                let found: Vec<Bson> = finds.next().unwrap().to_vec();
                doc! {"cursor": {"id": 0_i64, "ns": "d.x", "firstBatch": found}, "ok": 1.0}
            }
            _ => doc! {"n": 1, "nModified": 1, "ok": 1.0},
        };
        step = plan.next(Input::Reply(replies(reply)), &mut client_state);
    }
    if let Step::Reply(reply) = step {
        sent.push(documents(&reply).0);
    }
    sent
}

#[test]
fn a_delete_queries_references_and_writes_of_references_update_the_original() {
    let held = "copies:\n- { into: d.c, key: hobbies.id, fields: { name: hobbies.n }, on_delete: reject }";
    let rules = rules(&[("d.hobbies", held)]);
    let delete = frame(&doc! {"delete": "hobbies", "$db": "d"}, "deletes", &[doc! {"q": {"_id": 7}, "limit": 1}], 0);
    let names = |sent: &[Bson]| sent.iter().map(|body| body.iter().next().unwrap().0.clone()).collect::<Vec<_>>();
    let sent = sent_commands(&rules, &delete, &[&[doc! {"_id": 7}], &[]]);
    assert_eq!(names(&sent), ["find", "find", "delete", "commitTransaction", "n"]);
    assert_eq!(sent[1].get_str("find").unwrap(), "c");
    assert_eq!(sent[1].get_document("filter").unwrap(), &doc! {"hobbies.id": {"$in": [7]}});
    let sent = sent_commands(&rules, &delete, &[&[doc! {"_id": 7}], &[doc! {"_id": "somebody"}]]);
    assert_eq!(names(&sent), ["find", "find", "abortTransaction", "n"]);
    assert!(sent[3].to_string().contains("a document that it deletes is still referenced by 'hobbies.id' in d.c"));

    let insert = |hobbies: Bson| {
        frame(&doc! {"insert": "c", "$db": "d"}, "documents", &[doc! {"_id": 1, "hobbies": [hobbies]}], 0)
    };
    let sent = sent_commands(&rules, &insert(doc! {"id": 7, "n": "a"}), &[&[doc! {"_id": 7}]]);
    assert_eq!(names(&sent), ["find", "update", "insert", "commitTransaction", "n"]);
    assert_eq!(sent[1].get_str("update").unwrap(), "hobbies");
    let sent = sent_commands(&rules, &insert(doc! {"id": 7, "n": "a"}), &[&[]]);
    assert_eq!(names(&sent), ["find", "insert", "commitTransaction", "n"]);
    assert!(matches!(first_step(&rules, &insert(doc! {"n": "a"})), Step::ForwardOriginal { .. }));
    let pull = update(&[doc! {"q": {"_id": 1}, "u": {"$pull": {"hobbies": {"id": 7}}}}]);
    assert!(matches!(first_step(&rules, &pull), Step::ForwardOriginal { .. }));
}

/// The procedures of several rules are nested.
#[test]
fn procedures_of_several_rules_share_a_transaction() {
    let held = "copies:\n- { into: d.c, key: of, fields: { name: name }, on_delete: reject }";
    let rules = rules(&[("d.c", "tree: {}"), ("d.originals", held), ("d.c", &held.replace("d.c", "d.other"))]);
    let insert = |document: Bson| frame(&doc! {"insert": "c", "$db": "d"}, "documents", &[document], 0);
    let node = doc! {"_id": "b", "parent": "a", "of": 7, "name": "x"};
    let sent =
        sent_commands(&rules, &insert(node), &[&[doc! {"_id": 7}], &[doc! {"_id": "a", "path": Option::<i32>::None}]]);
    let of = |body: &Bson| {
        let (name, value) = body.iter().next().unwrap();
        format!("{name} {}", value.as_str().unwrap_or_default())
    };
    let expected = ["find originals", "update originals", "find c", "update c", "insert c", "commitTransaction ", "n "];
    assert_eq!(sent.iter().map(of).collect::<Vec<_>>(), expected);
    let path = sent[4]
        .get_array("documents")
        .map_or_else(|_| sent[4].get_array("statements").unwrap()[0].clone(), |documents| documents[0].clone());
    assert_eq!(path.as_document().unwrap().get_str("path").unwrap(), ",a,");

    let delete = frame(&doc! {"delete": "c", "$db": "d"}, "deletes", &[doc! {"q": {"_id": "a"}, "limit": 1}], 0);
    let sent = sent_commands(&rules, &delete, &[&[doc! {"_id": "a"}], &[], &[doc! {"_id": "a"}], &[doc! {"_id": "b"}]]);
    let expected = ["find c", "find other", "find c", "find c", "abortTransaction ", "n "];
    assert_eq!(sent.iter().map(of).collect::<Vec<_>>(), expected);
    assert!(sent[5].to_string().contains("a node it deletes has children"));
}

#[test]
fn a_rule_evaluates_the_collection_of_its_copies() {
    let rules = rules(&[("d.originals", "copies:\n- { into: d.c, key: of, fields: { name: name } }")]);
    let step = |collection: &str, fields: Bson| {
        let body = doc! {"insert": collection, "$db": "d"};
        first_step(&rules, &frame(&body, "documents", &[fields], 0))
    };
    assert!(matches!(step("c", doc! {"of": 1}), Step::Reply(_)));
    assert!(matches!(step("c", doc! {"of": 1, "name": "x"}), Step::ForwardOriginal { .. }));
    assert!(matches!(step("originals", doc! {"of": 1}), Step::ForwardOriginal { .. }));
    assert!(matches!(triage(&RequestHead::new(&update(&[])), &rules), Triage::Evaluate));
}
