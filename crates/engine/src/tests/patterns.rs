//! The verdicts of the other patterns on one statement or command.

use super::*;

fn zero_if_missing() -> bson::Bson {
    doc! {"$ifNull": ["$a.n", 0]}.into()
}

#[test]
fn bounds_are_added_to_the_filter() {
    const STOCK: &str = "bounds: { field: n, min: 0, max: 1000 }";
    check_rewrite(
        STOCK,
        doc! {"q": {"_id": 1}, "u": {"$inc": {"n": -2}, "$push": {"l": 1}}},
        doc! {"q": {"_id": 1, "n": {"$gte": 2}}, "u": {"$inc": {"n": -2}, "$push": {"l": 1}}},
    );
    check_rewrite(
        STOCK,
        doc! {"q": {"n": {"$gt": 0}}, "u": {"$inc": {"n": 5}}, "multi": true},
        doc! {"q": {"n": {"$gt": 0}, "$and": [{"n": {"$not": {"$gt": 995}, "$ne": f64::NAN}}]}, "u": {"$inc": {"n": 5}}, "multi": true},
    );
    // A missing field counts as zero, if the amount is in range.
    let sum = |number: bson::Bson, amount: f64| {
        doc! {"$cond": [
            {"$eq": [{"$type": "$a.n"}, "decimal"]},
            {"$add": [{"$toDecimal": number.clone()}, {"$toDecimal": amount}]},
            {"$add": [number, amount]},
        ]}
    };
    for (range, amount, number, comparison) in [
        ("min: 0", -0.5, "$a.n".into(), doc! {"$gte": [sum("$a.n".into(), -0.5), 0]}),
        ("min: -1", -0.5, zero_if_missing(), doc! {"$gte": [sum(zero_if_missing(), -0.5), -1]}),
    ] {
        let update = doc! {"$inc": {"a.n": amount}};
        let condition = doc! {"$and": [{"$isNumber": number}, comparison]};
        check_rewrite(
            &format!("bounds: {{ field: a.n, {range} }}"),
            doc! {"q": {"_id": 1}, "u": update.clone()},
            doc! {"q": {"_id": 1, "$expr": condition}, "u": update},
        );
    }
    // An upsert first looks for a document with room.
    check_rewrite(
        STOCK,
        doc! {"q": {"x": 1}, "u": {"$inc": {"n": 1}}, "upsert": true},
        doc! {"q": {"x": 1, "n": {"$not": {"$gt": 999}, "$ne": f64::NAN}}, "u": {"$inc": {"n": 1}}, "upsert": false},
    );
    // The filter may give the inserted document a value.
    for filter in [doc! {"n": 1000}, doc! {"n": {"$in": [1000]}}, doc! {"$or": [{"n": 1000, "x": 1}, {"n": 1000}]}] {
        check_checked(STOCK, doc! {"q": filter, "u": {"$inc": {"n": 1}}, "upsert": true});
    }
    // Django and Prisma increment by a pipeline.
    let add = |amount: bson::Bson| doc! {"$set": {"n": {"$add": ["$n", amount]}, "t": {"$literal": "x"}}};
    check_rewrite(
        STOCK,
        doc! {"q": {"_id": 1}, "u": [add(doc! {"$literal": -2}.into())]},
        doc! {"q": {"_id": 1, "n": {"$gte": 2}}, "u": [add(doc! {"$literal": -2}.into())]},
    );
    check_rewrite(
        "bounds: { field: n, min: 0 }",
        doc! {"q": {"_id": 1}, "u": [add(1.into())]},
        doc! {"q": {"_id": 1, "n": {"$gt": f64::NEG_INFINITY, "$lt": f64::INFINITY}}, "u": [add(1.into())]},
    );
    check_checked(STOCK, doc! {"q": {"_id": 1}, "u": [{"$set": {"n": {"$add": ["$m", 1]}}}]});
    check_rejected(STOCK, doc! {"q": {"_id": 1}, "u": {"$inc": {"n": -1}}, "upsert": true}, "out of range");
    for unchanged in [
        doc! {"$inc": {"n": 0}},
        doc! {"$set": {"n": 1000}},
        doc! {"$inc": {"m": -1}},
        doc! {"$unset": {"n": ""}},
        doc! {"$min": {"n": 3}},
        doc! {"n": 5},
        doc! {"$set": {"m.n": -5}},
        doc! {"$setOnInsert": {"n": -1}},
        doc! {"$set": {"n": "1E+3".parse::<bson::Decimal128>().unwrap()}},
        doc! {"$set": {"n": "-0".parse::<bson::Decimal128>().unwrap()}},
    ] {
        check_unchanged(STOCK, doc! {"q": {"_id": 1}, "u": unchanged});
    }
    check_unchanged(STOCK, doc! {"q": {"_id": 1, "n": {"$gte": 3}}, "u": {"$inc": {"n": -2}}});
    for rejected in [
        doc! {"$set": {"n": -1}},
        doc! {"$set": {"n": 1000.5}},
        doc! {"$set": {"n": "5"}},
        doc! {"n": 1001},
        doc! {"$set": {"n": f64::INFINITY}},
    ] {
        check_rejected(STOCK, doc! {"q": {"_id": 1}, "u": rejected}, "must be a number from 0 to 1000");
    }
    for odd in [
        doc! {"$mul": {"n": 2}},
        doc! {"$rename": {"m": "n"}},
        doc! {"$bit": {"n": {"or": 1}}},
        doc! {"$max": {"n": 2000}},
        doc! {"$inc": {"n": f64::NAN}},
    ] {
        check_checked(STOCK, doc! {"q": {"_id": 1}, "u": odd});
    }
    const NESTED: &str = "bounds: { field: a.n, min: 0 }";
    check_checked(NESTED, doc! {"q": {}, "u": {"$inc": {"a.0.n": -1}}});
    check_rejected(NESTED, doc! {"q": {}, "u": {"$set": {"a": {"n": -1}}}}, "of at least 0");
    check_rejected(
        "bounds: { field: n, min: 0, policy: reject }",
        doc! {"q": {}, "u": {"$inc": {"n": -1}}},
        "without the condition",
    );
    check_rewrite(
        "bounds: { field: n, min: 0, policy: reject }",
        doc! {"q": {"n": {"$gt": 0}}, "u": {"$inc": {"n": -1}}},
        doc! {"q": {"n": {"$gt": 0}, "$and": [{"n": {"$gte": 1}}]}, "u": {"$inc": {"n": -1}}},
    );
}

#[test]
fn an_option_of_a_statement_is_looked_for_in_the_statement() {
    const HINTED: &str = "deny: { operations: [update, delete], when: { without: hint } }";
    let change = doc! {"$set": {"a": 1}};
    check_unchanged(HINTED, doc! {"q": {}, "u": change.clone(), "hint": "_id_"});
    check_rejected(HINTED, doc! {"q": {}, "u": change.clone()}, "it has no hint");
    let filters = "deny: { operations: update, when: { without: arrayFilters } }";
    check_unchanged(filters, doc! {"q": {}, "u": {"$set": {"a.$[x]": 1}}, "arrayFilters": [{"x": 1}]});
    check_rejected(filters, doc! {"q": {}, "u": change}, "it has no arrayFilters");
}

#[test]
fn fields_that_change_only_together() {
    const BOTH: &str = "together: [n, log]";
    check_unchanged(BOTH, doc! {"q": {}, "u": {"$inc": {"n": -1}, "$push": {"log": 1}}});
    check_unchanged(BOTH, doc! {"q": {}, "u": {"$set": {"x": 1}}});
    check_unchanged(BOTH, doc! {"q": {}, "u": {"n": 1, "log": []}});
    check_rejected(BOTH, doc! {"q": {}, "u": {"$inc": {"n": -1}}}, "it changes 'n' without 'log'");
    check_rejected(BOTH, doc! {"q": {}, "u": {"$set": {"log.0.by": 1}}}, "it changes 'log' without 'n'");
    check_rejected(BOTH, doc! {"q": {}, "u": {"log": []}}, "it has 'log' without 'n'");
    check_rejected(BOTH, doc! {"q": {}, "u": {"$set": {"n": 1}, "$unset": {"log": 1}}}, "it writes 'n' without 'log'");
    // The filter may give the inserted document a value.
    check_checked(BOTH, doc! {"q": {"n": 1}, "u": {"$set": {"x": 1}}, "upsert": true});
    check_checked(BOTH, doc! {"q": {"$or": [{"n": 1}]}, "u": {"$set": {"x": 1}}, "upsert": true});
    check_checked(BOTH, doc! {"q": {"_id": 1}, "u": {"$setOnInsert": {"n": 1}}, "upsert": true});
    check_unchanged(BOTH, doc! {"q": {"_id": 1}, "u": {"$setOnInsert": {"n": 1, "log": []}}, "upsert": true});
    check_unchanged(BOTH, doc! {"q": {}, "u": {"$setOnInsert": {"n": 1}}});
    check_checked(BOTH, doc! {"q": {}, "u": {"$rename": {"n": "m"}}});
    check_checked(BOTH, doc! {"q": {}, "u": [{"$set": {"n": {"$add": ["$n", 1]}}}]});
    check_unchanged(BOTH, doc! {"q": {}, "u": [{"$set": {"m": {"$add": ["$n", 1]}}}]});
    const NESTED: &str = "together: [s.p.a, s.q.b]";
    for beside in [doc! {"$currentDate": {"s.p": true}}, doc! {"$inc": {"s.p": 1}}, doc! {"$unset": {"s.p.0": 1}}] {
        let mut update = doc! {"$set": {"s.q.b": 9}};
        update.extend(beside);
        check_checked(NESTED, doc! {"q": {}, "u": update});
    }
    check_unchanged(NESTED, doc! {"q": {}, "u": {"$set": {"s.q.b": 9}, "$push": {"s.p": {"a": 1}}}});
    const BESIDE: &str = "together: [s.p, s.q]";
    check_unchanged(BESIDE, doc! {"q": {}, "u": {"$set": {"s.0.p": 3, "s.0.q": 3}}});
    check_unchanged(BESIDE, doc! {"q": {}, "u": {"$set": {"s.$.p": 3}, "$inc": {"s.$.q": 3}}});
    check_checked(BESIDE, doc! {"q": {}, "u": {"$set": {"s.0.p": 3, "s.1.q": 3}}});
    check_rejected(BESIDE, doc! {"q": {}, "u": {"$set": {"s.$[].p": 3}}}, "it changes 's.p' without 's.q'");
    check_unchanged(BESIDE, doc! {"q": {}, "u": {"$set": {"s": {"p": 1, "q": 2}}}});
    check_rejected(BESIDE, doc! {"q": {}, "u": {"$set": {"s": {"p": 1}}}}, "it writes 's.p' without 's.q'");
    const LINES: &str = "together: [lines.sku, total]";
    for change in [
        doc! {"$pull": {"lines": {"sku": "x"}}},
        doc! {"$pop": {"lines": 1}},
        doc! {"$push": {"lines": {"sku": "x", "count": 1}}},
        doc! {"$push": {"lines": {"$each": [{"sku": "x"}, {"sku": "y"}]}}},
    ] {
        let mut update = doc! {"$inc": {"total": -5}};
        update.extend(change);
        check_unchanged(LINES, doc! {"q": {}, "u": update});
    }
    check_checked(LINES, doc! {"q": {}, "u": {"$inc": {"total": 5}, "$push": {"lines": {"count": 1}}}});
}

#[test]
fn queue_jobs_are_claimed_by_lease_and_saved_by_attempt() {
    const JOBS: &str = "queue: { lease: 5m, max_attempts: 3 }";
    let now = bson::DateTime::from_millis(NOW.milliseconds);
    let date = doc! {"$convert": {"input": "$tlocked", "to": "date", "onError": "$tlocked"}};
    let time = doc! {"input": date, "to": "long", "onError": 0i64, "onNull": 0i64};
    let free = doc! {"$or": [
        {"locked": {"$in": [false, bson::Bson::Null, 0]}},
        {"$expr": {"$lt": [{"$convert": time}, {"$subtract": [{"$toLong": "$$NOW"}, 300_000i64]}]}},
    ]};
    let claimed = doc! {"$set": {"locked": true, "by": "w"}, "$currentDate": {"tlocked": true}, "$inc": {"try": 1}};
    let claimable = |mut filter: Bson, most: bson::Bson| {
        filter.extend(free.clone());
        let counts = doc! {"$and": [{"$gt": ["$try", -(1i64 << 53)]}, {"$lt": ["$try", most]}]};
        filter.extend(doc! {"$expr": {"$or": [{"$eq": [{"$type": "$try"}, "missing"]}, counts]}});
        filter
    };
    let with_free = |filter: Bson| claimable(filter, (1i64 << 53).into());
    let limited = claimable(doc! {"kind": "mail"}, 3.into());
    for lock in
        [doc! {"locked": false}, doc! {"locked": {"$ne": true}}, doc! {"locked": {"$in": [false, bson::Bson::Null]}}]
    {
        let mut filter = doc! {"kind": "mail"};
        filter.extend(lock);
        let update = doc! {"$set": {"locked": true, "by": "w"}};
        check_rewrite(JOBS, doc! {"q": filter, "u": update}, doc! {"q": limited.clone(), "u": claimed.clone()});
    }
    const ENDLESS: &str = "queue: { lease: 5m }";
    check_rewrite(
        ENDLESS,
        doc! {"q": {"kind": "mail"}, "u": {"$set": {"locked": true, "tlocked": 1_600_000_000_000i64, "by": "w"}, "$inc": {"try": 7}}},
        doc! {"q": with_free(doc! {"kind": "mail"}), "u": {"$set": {"locked": true, "by": "w", "tlocked": NOW.milliseconds}, "$inc": {"try": 1}}},
    );
    // A claim by a replacement that increments the attempt, and a save by the holder of the job.
    check_rewrite(
        ENDLESS,
        doc! {"q": {"_id": 1, "try": 0}, "u": {"locked": "w1", "try": 1.0, "tlocked": bson::DateTime::MIN}},
        doc! {"q": with_free(doc! {"_id": 1, "try": 0}), "u": {"locked": "w1", "try": 1.0, "tlocked": now}},
    );
    let taken = doc! {"locked": {"$nin": [false, bson::Bson::Null, 0]}};
    let mut saved = doc! {"_id": 1, "try": 1};
    saved.extend(taken);
    for save in [
        doc! {"locked": true, "try": 1i64, "tlocked": now, "a": 1},
        doc! {"$set": {"locked": true, "try": 1.0, "tlocked": now, "a": 1}},
    ] {
        check_rewrite(JOBS, doc! {"q": {"_id": 1, "try": 1}, "u": save.clone()}, doc! {"q": saved.clone(), "u": save});
    }
    check_unchanged(
        JOBS,
        doc! {"q": {"_id": 1, "try": {"$in": [2]}}, "u": {"$set": {"locked": 0, "try": 2, "done": true}}},
    );
    check_unchanged(JOBS, doc! {"q": {"_id": 1, "try": 2}, "u": {"$unset": {"locked": ""}}});
    check_unchanged(JOBS, doc! {"q": {"a": 1}, "u": {"$setOnInsert": {"locked": true}}});
    check_rewrite(
        JOBS,
        doc! {"q": {"_id": 1}, "u": {"$setOnInsert": {"kind": "mail", "try": 0}}, "upsert": true},
        doc! {"q": {"_id": 1}, "u": {"$setOnInsert": {"kind": "mail", "try": 0, "locked": false, "tlocked": now}}, "upsert": true},
    );
    let token = doc! {"_id": 1, "try": 2};
    check_unchanged(JOBS, doc! {"q": token.clone(), "u": {"$set": {"a": 1}}, "multi": true});
    check_rejected(JOBS, doc! {"q": {"try": 1}, "u": {"$set": {"a": 1}}, "multi": true}, "jobs of all workers");
    check_rejected(
        JOBS,
        doc! {"q": {"_id": 1}, "u": {"$set": {"locked": true, "tlocked": 1_700_000_000}}},
        "milliseconds since 1970",
    );
    check_rejected(JOBS, doc! {"q": {"_id": 1}, "u": {"$set": {"locked": [false]}}}, "to an array");
    check_rejected(JOBS, doc! {"q": token.clone(), "u": {"locked": true, "try": 2}}, "removes its time");
    check_not_plain(JOBS, doc! {"q": token.clone(), "u": {"$inc": {"locked": 1}}}, "neither a claim nor a release");
    check_rejected(JOBS, doc! {"q": {"_id": 1, "locked": {"$ne": true}}, "u": {"$set": {"a": 1}}}, "nor locked: false");
    check_rejected(JOBS, doc! {"q": {"_id": 1, "try": bson::Bson::Null}, "u": {"$set": {"a": 1}}}, "neither the job's");
    check_not_plain(JOBS, doc! {"q": token, "u": {"$set": {"a": 1}}, "upsert": true}, "without its lock");
    check_unchanged(JOBS, doc! {"q": {"_id": 1, "try": 2}, "u": {"$set": {"done": true, "locked": false}}});
    check_unchanged(JOBS, doc! {"q": {"locked": false}, "u": {"$set": {"priority": 1}}, "multi": true});
    check_rejected(
        JOBS,
        doc! {"q": {"_id": 1}, "u": {"$set": {"done": true}}},
        "neither the job's 'try' nor locked: false",
    );
    check_rejected(JOBS, doc! {"q": {"_id": 1, "try": 2}, "u": {"$inc": {"try": 1}}}, "only a claim may increment");
    check_not_plain(JOBS, doc! {"q": {}, "u": {"$set": {"locked": true}}, "multi": true}, "several jobs at once");
    check_not_plain(JOBS, doc! {"q": {}, "u": {"$set": {"locked": true}}, "upsert": true}, "already claimed");
    check_rejected(JOBS, doc! {"q": {"_id": 1, "try": 2}, "u": {"done": true}}, "replaces a job");

    let rules = rules(&[("d.c", JOBS)]);
    let insert = frame(&doc! {"insert": "c", "$db": "d"}, "documents", &[doc! {"kind": "mail", "try": 0}], 0);
    let Step::Forward { message, .. } = first_step(&rules, &insert) else { panic!("not rewritten") };
    assert_eq!(documents(&message).1, [doc! {"kind": "mail", "try": 0, "locked": false, "tlocked": now}]);
    let delete = frame(&doc! {"delete": "c", "$db": "d"}, "deletes", &[doc! {"q": {"_id": 1}, "limit": 1}], 0);
    assert!(matches!(first_step(&rules, &delete), Step::Reply(_)));
}

#[test]
fn buckets_open_when_none_has_room() {
    const INBOX: &str = "bucket: { array: m, count: n, limit: 3, opened: t }";
    let now = bson::DateTime::from_millis(NOW.milliseconds);
    check_rewrite(
        INBOX,
        doc! {"q": {"owner": 1}, "u": {"$push": {"m": {"$each": [1, 2]}}, "$inc": {"n": 2, "x": 1}}, "upsert": false},
        doc! {
            "q": {"owner": 1, "n": {"$lte": 1, "$not": {"$type": "array"}}},
            "u": {"$push": {"m": {"$each": [1, 2]}}, "$inc": {"x": 1, "n": 2}, "$setOnInsert": {"t": now}},
            "upsert": true,
        },
    );
    // The client's own condition is enough only if docward does not increment the count.
    let has_room = doc! {"owner": 1, "n": {"$lt": 3}};
    check_rewrite(
        INBOX,
        doc! {"q": has_room.clone(), "u": {"$push": {"m": 1}}},
        doc! {
            "q": {"owner": 1, "n": {"$lt": 3}, "$and": [{"n": {"$lte": 2, "$not": {"$type": "array"}}}]},
            "u": {"$push": {"m": 1}, "$inc": {"n": 1}, "$setOnInsert": {"t": now}},
            "upsert": true,
        },
    );
    let counted = doc! {"$push": {"m": 1}, "$inc": {"n": 1}, "$setOnInsert": {"t": now}};
    check_unchanged(INBOX, doc! {"q": has_room, "u": counted, "upsert": true});
    // Not every driver sends upsert: false.
    check_rewrite(
        INBOX,
        doc! {"q": {"owner": 1}, "u": {"$push": {"m": 1}}},
        doc! {
            "q": {"owner": 1, "n": {"$lte": 2, "$not": {"$type": "array"}}},
            "u": {"$push": {"m": 1}, "$inc": {"n": 1}, "$setOnInsert": {"t": now}},
            "upsert": true,
        },
    );
    check_unchanged(INBOX, doc! {"q": {"owner": 1}, "u": {"$set": {"m.$[].read": true}}});
    check_unchanged(INBOX, doc! {"q": {"_id": 1, "m.t": 1}, "u": {"$set": {"m.$.read": true}}});
    check_rejected(
        INBOX,
        doc! {"q": {"owner": 1}, "u": {"$push": {"m": {"$each": [1, 2, 3, 4]}}}},
        "exceed the bucket's limit of 3",
    );
    for (statement, part) in [
        (
            doc! {"q": {"owner": 1, "m.t": 1}, "u": {"$set": {"m.$.read": true}}},
            "its $set of 'm.$.read' may change 'm'",
        ),
        (doc! {"q": {"_id": 1}, "u": {"$push": {"m": 1}}}, "by _id"),
        (doc! {"q": {"owner": 1}, "u": {"$push": {"m": 1}}, "multi": true}, "several buckets"),
        (doc! {"q": {}, "u": {"$push": {"m": {"$each": [1], "$slice": 2}}}}, "$slice"),
        (doc! {"q": {}, "u": {"$inc": {"n": 1}}}, "without a $push"),
        (doc! {"q": {}, "u": {"$pull": {"m": 1}}}, "its $pull"),
        (doc! {"q": {}, "u": {"$pop": {"m": 1}}}, "its $pop"),
        (doc! {"q": {}, "u": {"$set": {"m": []}}}, "its $set"),
        (doc! {"q": {}, "u": {"$set": {"m.7": 1}}}, "its $set"),
        (doc! {"q": {}, "u": {"$addToSet": {"m": 1}}}, "its $addToSet"),
        (doc! {"q": {"owner": {"$in": [1]}}, "u": {"$push": {"m": 1}}, "upsert": true}, "as an upsert"),
    ] {
        check_not_plain(INBOX, statement, part);
    }
    check_rewrite(INBOX, doc! {"q": {}, "u": {"m": [1], "n": 7}}, doc! {"q": {}, "u": {"m": [1], "n": 1, "t": now}});
}

#[test]
fn operations_are_denied_and_options_get_defaults() {
    let outcome = |pattern: &str, command: Bson| {
        let rules = rules(&[("d.c", pattern)]);
        let message = frame(&command, "", &[], 0);
        match triage(&RequestHead::new(&message), &rules) {
            Triage::Forward { .. } => "unchanged".to_owned(),
            _ => match first_step(&rules, &message) {
                Step::ForwardOriginal { .. } => "unchanged".to_owned(),
                Step::Forward { message, .. } => documents(&message).0.to_string(),
                Step::Reply(reply) => format!(
                    "{}",
                    documents(&reply).0.get_document("errInfo").is_ok()
                        || documents(&reply).0.contains_key("writeErrors")
                ),
                other => panic!("{other:?}"),
            },
        }
    };
    let delete = |q: Bson, limit: i32| doc! {"delete": "c", "deletes": [{"q": q, "limit": limit}], "$db": "d"};
    const EMPTY: &str = "deny: { operations: [delete, find, aggregate], when: { filter: empty } }";
    assert_eq!(outcome(EMPTY, delete(doc! {}, 0)), "true");
    assert_eq!(outcome(EMPTY, delete(doc! {"a": 1}, 0)), "unchanged");
    assert_eq!(outcome(EMPTY, doc! {"find": "c", "$db": "d"}), "true");
    assert_eq!(outcome(EMPTY, doc! {"aggregate": "c", "pipeline": [{"$match": {}}], "$db": "d"}), "true");
    assert_eq!(outcome(EMPTY, doc! {"count": "c", "$db": "d"}), "unchanged");
    const MULTI: &str = "deny: { operations: [delete], when: { multi: true } }";
    assert_eq!(outcome(MULTI, delete(doc! {"a": 1}, 0)), "true");
    assert_eq!(outcome(MULTI, delete(doc! {"a": 1}, 1)), "unchanged");
    const SCRIPTS: &str = "deny: { operations: [find], when: { uses: [$where] } }";
    assert_eq!(outcome(SCRIPTS, doc! {"find": "c", "filter": {"$or": [{"$where": "1"}]}, "$db": "d"}), "true");
    const EXPRESSIONS: &str = "deny: { operations: [find, update], when: { uses: [$regex] } }";
    let expression = bson::Regex { pattern: "x".try_into().unwrap(), options: "".try_into().unwrap() };
    for condition in
        [bson::bson!({"$regex": "x"}), expression.clone().into(), bson::bson!({"$in": [expression.clone()]})]
    {
        assert_eq!(outcome(EXPRESSIONS, doc! {"find": "c", "filter": {"a": condition}, "$db": "d"}), "true");
    }
    assert_eq!(outcome(EXPRESSIONS, doc! {"find": "c", "filter": {"a": "x"}, "$db": "d"}), "unchanged");
    let pull =
        |value: bson::Bson| doc! {"update": "c", "updates": [{"q": {}, "u": {"$pull": {"a": value}}}], "$db": "d"};
    let pattern = bson::Regex { pattern: "x".try_into().unwrap(), options: "".try_into().unwrap() };
    assert_eq!(outcome(EXPRESSIONS, pull(pattern.into())), "true");
    assert_eq!(outcome(EXPRESSIONS, pull("x".into())), "unchanged");
    const SLOW: &str = "deny: { operations: [find, update], when: { without: maxTimeMS } }";
    assert_eq!(outcome(SLOW, doc! {"find": "c", "$db": "d"}), "true");
    assert_eq!(outcome(SLOW, doc! {"find": "c", "maxTimeMS": 1, "$db": "d"}), "unchanged");
    assert_eq!(
        outcome(SLOW, doc! {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}], "$db": "d"}),
        "true"
    );
    const LIMIT: &str = "defaults: { maxTimeMS: 5000 }";
    assert_eq!(
        outcome(LIMIT, doc! {"count": "c", "$db": "d"}),
        doc! {"count": "c", "$db": "d", "maxTimeMS": 5000}.to_string()
    );
    assert_eq!(outcome(LIMIT, doc! {"find": "c", "maxTimeMS": 7, "$db": "d"}), "unchanged");
    assert_eq!(outcome(LIMIT, doc! {"getMore": 7i64, "collection": "c", "$db": "d"}), "unchanged");
}

#[test]
fn each_rule_counts_an_aggregation_once() {
    let all = "deny: { operations: [aggregate] }";
    let shadow = "mode: shadow\ndeny: { operations: [aggregate], when: { filter: empty } }";
    let rules = rules(&[("d.c", shadow), ("d.other", all)]);
    let counted = |command: Bson| {
        let message = frame(&command, "", &[], 0);
        assert_eq!(triage(&RequestHead::new(&message), &rules), Triage::Evaluate, "{command}");
        let mut plan = Plan::new(&message, &rules, NOW);
        plan.next(Input::Start, &mut client_state());
        let counts = plan.take_outcomes().into_iter().map(|outcome| (outcome.kind.as_str(), outcome.statements));
        counts.collect::<Vec<_>>()
    };
    let aggregate = |collection: &str, pipeline: Vec<Bson>| {
        doc! {"aggregate": collection, "pipeline": pipeline, "cursor": {}, "$db": "d"}
    };
    let union = || doc! {"$unionWith": "c"};
    assert_eq!(counted(aggregate("x", vec![union(), union()])), [("shadow-reject", 1)]);
    assert_eq!(counted(aggregate("c", vec![union()])), [("shadow-reject", 1)]);
    assert_eq!(counted(aggregate("c", vec![doc! {"$match": {"a": 1}}, union()])), [("shadow-reject", 1)]);
    assert_eq!(counted(aggregate("x", vec![doc! {"$unionWith": "other"}, union()])), [("reject", 1)]);
    // The server uses the last of two fields.
    let twice = doc! {"$lookup": {"from": "other", "frxm": "x", "as": "a", "pipeline": []}};
    let mut message = frame(&aggregate("x", vec![twice]), "", &[], 0);
    let at = message.windows(4).position(|bytes| bytes == b"frxm").unwrap();
    message[at + 2] = b'o';
    let Step::Reply(reply) = first_step(&rules, &message) else { panic!("it must be rejected") };
    let text = documents(&reply).0.get_str("errmsg").unwrap().to_owned();
    assert!(
        text.contains("rule 'rule-1' rejects this $lookup on a collection that docward cannot determine: "),
        "{text}"
    );
}
