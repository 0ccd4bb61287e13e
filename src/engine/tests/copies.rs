//! `copies`: which writes of references pass, and that a rule judges the collections its copies are in.

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

    // Without a reference there is nothing to be true to.
    check_unchanged(FRIENDS, doc! {"q": {}, "u": {"f": {"name": "a stranger"}, "a": 1}});
    check_unchanged(FRIENDS, doc! {"q": {}, "u": {"$unset": {"f": ""}}});
    check_unchanged(FRIENDS, doc! {"q": {}, "u": {"$unset": {"f.id": "", "town": ""}}});
    check_unchanged(FRIENDS, set(doc! {"f.id": bson::Bson::Null}));
    check_unchanged(FRIENDS, set(doc! {"f": {"name": "a stranger"}}));

    // A copy alone, except in an application's own propagation.
    check_rejected(FRIENDS, set(doc! {"f.name": "Ada"}), "it changes 'f.name', which is a copy");
    check_rejected(FRIENDS, doc! {"q": {}, "u": {"$unset": {"town": ""}}}, "'town', which is a copy");
    check_unchanged(FRIENDS, doc! {"q": {"f.id": 7}, "u": {"$set": {"f.name": "Ada"}}, "multi": true});
    check_rejected(FRIENDS, doc! {"q": {"f.id": 7}, "u": {"$push": {"f.name": 1}}}, "which is a copy");
    check_rejected(FRIENDS, doc! {"q": {"f.id": {"$gt": 7}}, "u": {"$set": {"town": 1}}}, "which is a copy");

    // What an upsert inserts.
    let upsert = |q: Bson, u: Bson| doc! {"q": q, "u": u, "upsert": true};
    let whole = doc! {"$setOnInsert": {"f": {"id": 7, "name": "Ada"}, "town": "London"}};
    check_unchanged(FRIENDS, upsert(doc! {"_id": 1}, whole));
    check_rejected(FRIENDS, upsert(doc! {"_id": 1}, doc! {"$setOnInsert": {"f.id": 7}}), "without 'f.name', 'town'");
    check_rejected(FRIENDS, upsert(doc! {"f.id": 7}, doc! {"$set": {"a": 1}}), "without 'f.name', 'town'");
    check_unchanged(FRIENDS, upsert(doc! {"f": {"id": 7, "name": "Ada"}}, doc! {"$setOnInsert": {"town": 1}}));
    check_unchanged(FRIENDS, upsert(doc! {"_id": 1}, doc! {"$setOnInsert": {"town": 1}}));

    // What cannot be told.
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
        check_rejected(FRIENDS, doc! {"q": {}, "u": unclear}, "does not tell its new value, or inside an array");
    }
    check_rejected(FRIENDS, doc! {"q": {}, "u": [{"$set": {"a": "$b"}}]}, "pipeline");
}

#[test]
fn a_rule_judges_where_its_copies_are() {
    let rules = rules(&[("d.originals", "copies:\n- { into: d.c, key: of, fields: { name: name } }")]);
    let step = |collection: &str, fields: Bson| {
        let body = doc! {"insert": collection, "$db": "d"};
        first_step(&rules, &frame(&body, "documents", &[fields], 0))
    };
    assert!(matches!(step("c", doc! {"of": 1}), Step::Reply(_)));
    assert!(matches!(step("c", doc! {"of": 1, "name": "x"}), Step::ForwardOriginal { .. }));
    assert!(matches!(step("originals", doc! {"of": 1}), Step::ForwardOriginal { .. }));
    assert!(matches!(triage(&update(&[]), &rules), Triage::Judge));
}
