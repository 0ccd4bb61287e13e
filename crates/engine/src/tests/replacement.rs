//! The verdicts of `replacement`, whose version updates by operators increment.

use super::*;

#[test]
fn replacement_rejects_merges_and_checks_versions() {
    const REJECT: &str = "replacement: { version: v }";
    check_rejected(REJECT, doc! {"q": {"_id": 1}, "u": {"a": 1}}, "replaces the whole document");
    check_rejected(REJECT, doc! {"q": {"_id": 1}, "u": {}}, "replaces the whole document");
    check_unchanged("replacement: {}", doc! {"q": {"_id": 1}, "u": {"$set": {"a": 1}}});
    check_unchanged("replacement: {}", doc! {"q": {"_id": 1}, "u": [{"$set": {"a": "$b"}}]});
    check_not_plain(REJECT, doc! {"q": {"_id": 1}, "u": [{"$replaceWith": "$a"}]}, "pipeline");
    for kept in [doc! {"a": 1}, doc! {"a": {"b": 1}}, doc! {"a": {"b": 0, "c": 1}}, doc! {"a": {"$literal": 0}}] {
        check_not_plain(REJECT, doc! {"q": {"_id": 1}, "u": [{"$project": kept}]}, "pipeline");
    }
    for excluded in [doc! {"a": 0}, doc! {"a.b": false}, doc! {"a": 0, "b": 0}] {
        check_unchanged("replacement: {}", doc! {"q": {"_id": 1}, "u": [{"$project": excluded}]});
    }
    let checked = |v: i32, stored: i32| {
        let statement = |v: i32| doc! {"q": {"_id": 1, "v": 3}, "u": {"a": 1, "v": v}, "upsert": true};
        match v == stored {
            true => check_unchanged(REJECT, statement(v)),
            false => check_rewrite(REJECT, statement(v), statement(stored)),
        }
    };
    checked(2, 4);
    checked(3, 4);
    checked(4, 4);
    checked(9, 9);
    const MERGE: &str = "replacement: { policy: merge }";
    check_rewrite(
        MERGE,
        doc! {"q": {"_id": 1}, "u": {"_id": 1, "a": {"b": 1}}, "multi": false},
        doc! {"q": {"_id": 1}, "u": {"$set": {"a": {"b": 1}}}, "multi": false},
    );
    check_rewrite(
        MERGE,
        doc! {"q": {"n": 1}, "u": {"_id": 5, "n": 1}, "upsert": true},
        doc! {"q": {"n": 1}, "u": {"$set": {"_id": 5, "n": 1}}, "upsert": true},
    );
    check_not_plain(MERGE, doc! {"q": {"e": 1}, "u": {"n": 1}, "upsert": true}, "upsert with 'e' in the filter");
    check_not_plain(MERGE, doc! {"q": {"_id": 1}, "u": {"a.b": 1}}, "cannot write its field 'a.b'");
    const CHECK_VERSION: &str = "replacement: { policy: check_version, version: m.v }";
    check_rewrite(
        CHECK_VERSION,
        doc! {"q": {"_id": 1}, "u": {"m": {"v": 2147483647, "w": 1}}},
        doc! {"q": {"_id": 1, "m.v": 2147483647}, "u": {"m": {"v": 2147483648i64, "w": 1}}},
    );
    check_rewrite(
        CHECK_VERSION,
        doc! {"q": {"_id": 1}, "u": {"a": 1}, "upsert": true},
        doc! {
            "q": {"_id": 1, "$or": [{"m.v": bson::Bson::Null}, {"m": {"$type": "array"}}]},
            "u": {"a": 1, "m": {"v": 1}}, "upsert": false,
        },
    );
    check_rewrite(
        CHECK_VERSION,
        doc! {"q": {"_id": 1}, "u": {"m": {"v": "x"}}},
        doc! {"q": {"_id": 1, "m.v": "x"}, "u": {"m": {"v": "x"}}},
    );
    check_rejected(CHECK_VERSION, doc! {"q": {"_id": 1}, "u": {"m": 3}}, "cannot be set: a field on its path");
}

#[test]
fn updates_by_operators_increment_the_version() {
    const REJECT: &str = "replacement: { version: v }";
    const CHECK_VERSION: &str = "replacement: { policy: check_version, version: v }";
    let by = |q: Bson, u: Bson| doc! {"q": q, "u": u};
    let id = || doc! {"_id": 1};
    for rule in [REJECT, CHECK_VERSION] {
        check_rewrite(rule, by(id(), doc! {"$set": {"a": 1}}), by(id(), doc! {"$set": {"a": 1}, "$inc": {"v": 1}}));
        check_rewrite(rule, by(id(), doc! {"$inc": {"a": 1}}), by(id(), doc! {"$inc": {"a": 1, "v": 1}}));
        let both = doc! {"$setOnInsert": {"v": 0}, "$push": {"a": 1}};
        check_rewrite(rule, by(id(), both), by(id(), doc! {"$push": {"a": 1}, "$inc": {"v": 1}}));
        // Mongoose and MikroORM increment the version themselves.
        check_unchanged(rule, by(doc! {"_id": 1, "v": 3}, doc! {"$set": {"a": 1}, "$inc": {"v": 1}}));
        check_unchanged(rule, by(doc! {"_id": 1, "v": 3}, doc! {"$set": {"a": 1, "v": 4}}));
        check_rewrite(
            rule,
            by(doc! {"_id": 1, "v": 3}, doc! {"$set": {"a": 1, "v": 3}}),
            by(doc! {"_id": 1, "v": 3}, doc! {"$set": {"a": 1, "v": 4}}),
        );
        check_rejected(rule, by(doc! {"_id": 1, "v": 3}, doc! {"$set": {"v": 2}}), "decreases or removes");
        check_rejected(rule, by(id(), doc! {"$unset": {"v": 1}}), "decreases or removes the version 'v'");
        check_rejected(rule, by(id(), doc! {"$inc": {"v": -1}}), "decreases or removes the version 'v'");
        check_not_plain(rule, by(id(), doc! {"$min": {"v": 1}}), "with an operator other than");
    }
    for filter in [doc! {"v": bson::Bson::Null}, doc! {"$or": [{"v": 1}, {"v": 1}]}] {
        let upsert = doc! {"q": filter, "u": {"$set": {"a": 1}}, "upsert": true};
        check_not_plain(REJECT, upsert, "its filter may give 'v' a value");
    }
    let around = by(id(), doc! {"$set": {"a": 1}, "$setOnInsert": {"m": {"w": 1}}});
    check_not_plain("replacement: { version: m.v }", around, "writes around 'm.v'");
    // ODMs that write all fields send the version that they read.
    let save = by(id(), doc! {"$set": {"a": 1, "v": 3}});
    check_rewrite(CHECK_VERSION, save.clone(), by(doc! {"_id": 1, "v": 3}, doc! {"$set": {"a": 1, "v": 4}}));
    check_rewrite(REJECT, save, by(doc! {"_id": 1, "v": {"$not": {"$gte": 3}}}, doc! {"$set": {"a": 1, "v": 3}}));
    let django = doc! {"q": {"_id": 1}, "u": [{"$set": {"a": {"$literal": 1}, "v": {"$literal": 3}}}], "multi": true};
    let with_version = doc! {"q": {"_id": 1, "v": 3}, "u": {"$set": {"a": 1, "v": 4}}, "multi": true};
    check_rewrite(CHECK_VERSION, django, with_version);
    check_unchanged("replacement: { version: v, count_updates: false }", by(id(), doc! {"$set": {"a": 1}}));
}
