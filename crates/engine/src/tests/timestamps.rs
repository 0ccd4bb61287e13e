//! The verdicts of `timestamps`.

use super::*;

#[test]
fn timestamps_reject_writes_that_depend_on_the_stored_value() {
    const ALL: &str = "timestamps: { source: t }";
    let t = bson::DateTime::from_millis(5);
    check_rejected(ALL, doc! {"q": {}, "u": {"$set": {"a": 1}}}, "without the source time");
    check_rejected(ALL, doc! {"q": {}, "u": {"$set": {"a": 1, "t": 5}}}, "has type int");
    check_rejected(ALL, doc! {"q": {}, "u": {"$set": {"t": t}, "$inc": {"a": 1}}}, "depends on the order");
    check_rejected(ALL, doc! {"q": {}, "u": {"$set": {"t": t, "a.b": 1}}}, "overlaps the protected field 'a'");
    check_rejected(ALL, doc! {"q": {}, "u": {"$set": {"t": t, "last_modified.a": t}}}, "without the protected field");
    check_rejected(
        ALL,
        doc! {"q": {}, "u": {"$set": {"t": t}, "$max": {"last_modified.t": t}}},
        "which holds timestamps",
    );
    check_rejected(ALL, doc! {"q": {}, "u": {"$set": {"t": t}, "$unset": {"t": ""}}}, "twice");
    check_rejected(ALL, doc! {"q": {}, "u": {"t": t}}, "timestamps are stored per field");
    check_rejected(ALL, doc! {"q": {}, "u": [{"$set": {"a": {"$add": ["$a", 1]}}}]}, "it computes all fields");
    check_unchanged(ALL, doc! {"q": {}, "u": {"$unset": {"last_modified": ""}}});
    const LISTED: &str = "timestamps: { source: t, fields: [s.a, b] }";
    check_unchanged(LISTED, doc! {"q": {}, "u": {"$push": {"log": 1}}});
    check_rejected(LISTED, doc! {"q": {}, "u": {"$set": {"t": t, "s": {}}}}, "overlaps");
    check_rejected(LISTED, doc! {"q": {}, "u": [{"$set": {"b": {"$add": ["$b", 1]}}}]}, "it computes 'b'");
}

#[test]
fn what_no_pipeline_can_express_is_checked() {
    const LISTED: &str = "timestamps: { source: t, fields: [s.a, b], without_source: clock }";
    let t = bson::DateTime::from_millis(5);
    let of_many = |change| doc! {"q": {}, "u": change, "multi": true};
    check_not_plain(LISTED, of_many(doc! {"$set": {"t": t, "l.0": 1}}), "numeric part");
    check_not_plain(LISTED, of_many(doc! {"$set": {"t": t}, "$push": {"log": 1}}), "it has $push");
    check_not_plain(LISTED, doc! {"q": {}, "u": {"$set": {"t": t}}, "arrayFilters": [{"x": 1}]}, "arrayFilters");
    check_not_plain(LISTED, doc! {"q": {}, "u": [{"$replaceWith": {"b": "$b"}}]}, "may change protected fields");
    // As a pipeline each path part nests several levels; clients must not cause unbounded nesting.
    for parts in [26, 200_000] {
        let deep = vec!["x"; parts].join(".");
        check_not_plain(LISTED, of_many(doc! {"$set": {"t": t, deep: 1}}), "more than 25 parts");
    }
    // Servers make one equality of equal branches.
    for (field, value) in [("b", bson::Bson::Int32(1)), ("s.a", 1.into()), ("s", doc! {"a": 1}.into())] {
        let twice = doc! {"$or": [{field: value.clone()}, {field: value}]};
        let statement = |upsert| doc! {"q": twice.clone(), "u": {"$set": {"note": 1}}, "upsert": upsert};
        check_not_plain(LISTED, statement(true), "may give");
        check_unchanged(LISTED, statement(false));
    }
}

#[test]
fn the_longest_accepted_path_stays_within_the_nesting_limit() {
    let t = bson::DateTime::from_millis(5);
    let deep = vec!["x"; 25].join(".");
    for (operator, value) in [("$set", bson::Bson::from(doc! {"y": 1})), ("$inc", 1.into())] {
        for rule in ["timestamps: { source: t, fields: [a] }", "timestamps: { source: t, per: document, fields: [a] }"]
        {
            let mut update = doc! {"$set": {"t": t, "a": 1}};
            update
                .entry(operator.to_owned())
                .or_insert(doc! {}.into())
                .as_document_mut()
                .unwrap()
                .insert(&deep, value.clone());
            let Step::Exchange(message) =
                first_step(&rules(&[("d.c", rule)]), &super::update(&[doc! {"q": {}, "u": update}]))
            else {
                panic!("{rule} {operator}")
            };
            let statement = documents(&message).1.remove(0).to_vec().unwrap();
            assert!(crate::document::Document::parse(&statement).is_ok(), "{rule} {operator}");
        }
    }
}

#[test]
fn each_protected_field_is_checked_for_stale_writes_separately() {
    let t = bson::DateTime::from_millis(5);
    let stale = |timestamp: &str| doc! {"$and": [{"$eq": [{"$type": timestamp}, "date"]}, {"$gt": [timestamp, t]}]};
    check_rewrite(
        "timestamps: { source: $comment.at, fields: [a], without_source: clock }",
        doc! {"q": {"_id": 1}, "u": {"$set": {"a": "$x"}}, "upsert": true},
        {
            let t = bson::DateTime::from_millis(NOW.milliseconds);
            let stale =
                doc! {"$and": [{"$eq": [{"$type": "$last_modified.a"}, "date"]}, {"$gt": ["$last_modified.a", t]}]};
            doc! {"q": {"_id": 1}, "u": [{"$set": {
                "a": {"$cond": [stale.clone(), "$a", {"$literal": "$x"}]},
                "last_modified.a": {"$cond": [stale, "$last_modified.a", t]},
            }}], "upsert": true}
        },
    );
    check_rewrite(
        "timestamps: { source: t, per: document, store: s }",
        doc! {"q": {"_id": 1}, "u": {"t": t}},
        doc! {"q": {"_id": 1}, "u": [
            {"$replaceWith": {"$cond": [stale("$s"), "$$ROOT", {"$literal": {"t": t, "s": t}}]}}
        ]},
    );
}

/// A version that another rule compares has no timestamp, also for a rule in shadow mode beside only that one.
#[test]
fn a_rule_in_shadow_mode_looks_at_the_fields_of_an_enforced_one() {
    let versioned = ("d.c", "schema_version: { field: m.version, current: 2, minimum: 1 }");
    let statement = update(&[doc! {"q": {"_id": 1}, "u": {"$set": {"m": {"version": 2}}}}]);
    for mode in ["enforce", "shadow"] {
        let rule = format!("mode: {mode}\ntimestamps: {{ source: t, without_source: clock }}");
        let rules = rules(&[versioned, ("d.c", &rule)]);
        let mut plan = Plan::new(&statement, &rules, NOW);
        in_turns(&mut plan, Input::Start, &mut client_state());
        let outcomes = plan.take_outcomes();
        let compared = outcomes.iter().any(|outcome| outcome.reason.contains("another rule compares 'm.version'"));
        assert!(compared, "{mode}: {outcomes:?}");
    }
}
