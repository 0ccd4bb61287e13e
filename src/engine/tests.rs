//! The engine as a table: rules, one command, and what becomes of it. No sockets, no clock; replies of the
//! server are written by hand where a plan waits for one.

use bson::{Document as Bson, RawDocumentBuf, doc};

use super::lookup::{Found, Lookup, LookupError};
use super::{Input, Now, Plan, Said, Session, Step, Triage, triage};
use crate::patterns::RuleSet;
use crate::rules::Source;
use crate::wire::op_msg::{Message, Writer};

mod tree;

const NOW: Now = Now { milliseconds: 1_700_000_000_000 };

fn rules(patterns: &[(&str, &str)]) -> RuleSet {
    let mut text = "version: 1\nrules:\n".to_owned();
    for (index, (namespace, rest)) in patterns.iter().enumerate() {
        text.push_str(&format!("  - name: rule-{index}\n    namespace: \"{namespace}\"\n"));
        rest.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    RuleSet::from_sources(vec![Source { name: "test.yaml".into(), text }]).unwrap_or_else(|report| panic!("{report}"))
}

fn bytes(document: &Bson) -> Vec<u8> {
    RawDocumentBuf::try_from(document).unwrap().into_bytes()
}

/// An OP_MSG with a body, and one sequence if `list` is named.
fn frame(body: &Bson, list: &str, statements: &[Bson], flags: u32) -> Vec<u8> {
    let mut writer = Writer::new(7, 0, flags, 0);
    writer.body(|out| out.extend_from_slice(&bytes(body)));
    if !list.is_empty() {
        writer.sequence(list, |out| statements.iter().for_each(|s| out.extend_from_slice(&bytes(s))));
    }
    writer.finish()
}

fn documents(message: &[u8]) -> (Bson, Vec<Bson>) {
    let read = |bytes: &[u8]| Bson::try_from(&RawDocumentBuf::from_bytes(bytes.to_vec()).unwrap()).unwrap();
    let message = Message::parse(message).unwrap();
    (read(message.body), message.sequences.iter().flat_map(|s| s.documents()).map(read).collect())
}

fn update(statements: &[Bson]) -> Vec<u8> {
    frame(&doc! {"update": "c", "ordered": true, "$db": "d"}, "updates", statements, 0)
}

fn replies(body: Bson) -> Vec<u8> {
    frame(&body, "", &[], 0)
}

/// What a plan does before it needs an answer.
fn first_step(rules: &RuleSet, frame: &[u8]) -> Step {
    Plan::new(frame, rules, NOW).next(Input::Start, &mut Session::default())
}

/// One update statement that is sent on changed.
fn check_rewrite(pattern: &str, statement: Bson, becomes: Bson) {
    let rules = rules(&[("d.c", pattern)]);
    let message = update(std::slice::from_ref(&statement));
    match first_step(&rules, &message) {
        Step::Forward { message, expects_reply: true } => {
            let (body, statements) = documents(&message);
            assert_eq!(statements, [becomes], "{statement}");
            assert_eq!(body, doc! {"update": "c", "ordered": true, "$db": "d"});
        }
        // A statement whose match count matters is exchanged, in a command of its own.
        Step::Exchange(message) => assert_eq!(documents(&message).1, [becomes], "{statement}"),
        other => panic!("{statement}: {other:?}"),
    }
}

fn check_unchanged(pattern: &str, statement: Bson) {
    let rules = rules(&[("d.c", pattern)]);
    let step = first_step(&rules, &update(std::slice::from_ref(&statement)));
    assert!(matches!(step, Step::ForwardOriginal { expects_reply: true }), "{statement}: {step:?}");
}

/// One update statement that is rejected, with a reason that contains `why`.
fn check_rejected(pattern: &str, statement: Bson, why: &str) {
    let rules = rules(&[("d.c", pattern)]);
    match first_step(&rules, &update(std::slice::from_ref(&statement))) {
        Step::Reply(reply) => {
            let (body, _) = documents(&reply);
            let error = body.get_array("writeErrors").unwrap()[0].as_document().unwrap();
            assert_eq!((error.get_i32("index").unwrap(), error.get_i32("code").unwrap()), (0, 121));
            assert_eq!((body.get_i32("n").unwrap(), body.get_f64("ok").unwrap()), (0, 1.0));
            let reason =
                error.get_document("errInfo").unwrap().get_document("docward").unwrap().get_str("reason").unwrap();
            assert!(reason.contains(why), "{reason}");
            assert!(error.get_str("errmsg").unwrap().contains(reason));
        }
        other => panic!("{statement}: {other:?}"),
    }
}

#[test]
fn replacement_rejects_merges_and_guards() {
    const REJECT: &str = "replacement: { guard: v }";
    check_rejected(REJECT, doc! {"q": {"_id": 1}, "u": {"a": 1}}, "replaces the whole document");
    check_rejected(REJECT, doc! {"q": {"_id": 1}, "u": {}}, "replaces the whole document");
    check_unchanged(REJECT, doc! {"q": {"_id": 1}, "u": {"$set": {"a": 1}}});
    check_rejected(REJECT, doc! {"q": {"_id": 1}, "u": [{"$set": {"a": 1}}]}, "pipeline");
    check_rewrite(
        REJECT,
        doc! {"q": {"_id": 1, "v": 3}, "u": {"a": 1, "v": 9}, "upsert": true},
        doc! {"q": {"_id": 1, "v": 3}, "u": {"a": 1, "v": 4}, "upsert": false},
    );
    const MERGE: &str = "replacement: { unguarded: merge }";
    check_rewrite(
        MERGE,
        doc! {"q": {"_id": 1}, "u": {"_id": 1, "a": {"b": 1}}, "multi": false},
        doc! {"q": {"_id": 1}, "u": {"$set": {"a": {"b": 1}}}, "multi": false},
    );
    check_rewrite(
        MERGE,
        doc! {"q": {"n": 1}, "u": {"_id": 5, "n": 1}, "upsert": true},
        doc! {"q": {"n": 1}, "u": {"$set": {"n": 1}, "$setOnInsert": {"_id": 5}}, "upsert": true},
    );
    check_rejected(MERGE, doc! {"q": {"e": 1}, "u": {"n": 1}, "upsert": true}, "upsert by 'e'");
    check_rejected(MERGE, doc! {"q": {"_id": 1}, "u": {"a.b": 1}}, "'a.b' cannot be merged");
    const GUARD: &str = "replacement: { unguarded: guard, guard: m.v }";
    check_rewrite(
        GUARD,
        doc! {"q": {"_id": 1}, "u": {"m": {"v": 2147483647, "w": 1}}},
        doc! {"q": {"_id": 1, "m.v": 2147483647}, "u": {"m": {"v": 2147483648i64, "w": 1}}},
    );
    check_rewrite(
        GUARD,
        doc! {"q": {"_id": 1}, "u": {"a": 1}, "upsert": true},
        doc! {"q": {"_id": 1, "m.v": bson::Bson::Null}, "u": {"a": 1, "m": {"v": 1}}, "upsert": true},
    );
    check_rejected(GUARD, doc! {"q": {"_id": 1}, "u": {"m": {"v": "x"}}}, "no whole number");
    check_rejected(GUARD, doc! {"q": {"_id": 1}, "u": {"m": 3}}, "cannot be reached");
}

#[test]
fn timestamps_reject_what_is_no_register_write() {
    const ALL: &str = "timestamps: { source: t }";
    let t = bson::DateTime::from_millis(5);
    check_rejected(ALL, doc! {"q": {}, "u": {"$set": {"a": 1}}}, "without its source time");
    check_rejected(ALL, doc! {"q": {}, "u": {"$set": {"a": 1, "t": 5}}}, "is of type int");
    check_rejected(ALL, doc! {"q": {}, "u": {"$set": {"t": t}, "$inc": {"a": 1}}}, "depends on the order");
    check_rejected(ALL, doc! {"q": {}, "u": {"$set": {"t": t, "a.b": 1}}}, "overlaps the guarded field 'a'");
    check_rejected(ALL, doc! {"q": {}, "u": {"$set": {"t": t, "last_modified.a": t}}}, "where the stamps are kept");
    check_rejected(ALL, doc! {"q": {}, "u": {"$set": {"t": t}, "$unset": {"t": ""}}}, "twice");
    check_rejected(ALL, doc! {"q": {}, "u": {"t": t}}, "stamps are kept per field");
    check_rejected(ALL, doc! {"q": {}, "u": {"$set": {"t": t}}, "arrayFilters": [{"x": 1}]}, "arrayFilters");
    check_unchanged(ALL, doc! {"q": {}, "u": {"$unset": {"last_modified": ""}}});
    const LISTED: &str = "timestamps: { source: t, fields: [s.a, b] }";
    check_unchanged(LISTED, doc! {"q": {}, "u": {"$push": {"log": 1}}});
    check_rejected(LISTED, doc! {"q": {}, "u": {"$set": {"t": t, "s": {}}}}, "overlaps");
    check_rejected(LISTED, doc! {"q": {}, "u": {"$set": {"t": t, "l.0": 1}}}, "numeric part");
    check_rejected(LISTED, doc! {"q": {}, "u": {"$set": {"t": t}, "$push": {"log": 1}}}, "cannot be combined");
}

#[test]
fn a_guarded_field_decides_for_itself_whether_a_write_is_stale() {
    let t = bson::DateTime::from_millis(5);
    let stale = |stamp: &str| doc! {"$and": [{"$eq": [{"$type": stamp}, "date"]}, {"$gt": [stamp, t]}]};
    check_rewrite(
        "timestamps: { source: $comment.at, fields: [a], missing: clock }",
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
        doc! {"q": {"_id": 1}, "u": {"t": t, "s": 3}},
        doc! {"q": {"_id": 1}, "u": [
            {"$replaceWith": {"$cond": [stale("$s"), "$$ROOT", {"$literal": {"t": t, "s": t}}]}}
        ]},
    );
}

#[test]
fn bounds_go_into_the_filter_that_mongod_checks() {
    const STOCK: &str = "bounds: { field: n, min: 0, max: 1000 }";
    check_rewrite(
        STOCK,
        doc! {"q": {"_id": 1}, "u": {"$inc": {"n": -2}, "$push": {"l": 1}}},
        doc! {"q": {"_id": 1, "n": {"$gte": 2}}, "u": {"$inc": {"n": -2}, "$push": {"l": 1}}},
    );
    check_rewrite(
        STOCK,
        doc! {"q": {"n": {"$gt": 0}}, "u": {"$inc": {"n": 5}}, "multi": true},
        doc! {"q": {"$and": [{"n": {"$gt": 0}}, {"n": {"$lte": 995}}]}, "u": {"$inc": {"n": 5}}, "multi": true},
    );
    check_rewrite(
        "bounds: { field: a.n, min: 0 }",
        doc! {"q": {"_id": 1}, "u": {"$inc": {"a.n": -0.5}}},
        doc! {"q": {"_id": 1, "$expr": {"$and": [
            {"$isNumber": "$a.n"}, {"$gte": [{"$add": ["$a.n", -0.5]}, 0]},
        ]}}, "u": {"$inc": {"a.n": -0.5}}},
    );
    // An upsert by _id either inserts in range or finds the document out of room.
    check_rewrite(
        STOCK,
        doc! {"q": {"_id": 1}, "u": {"$inc": {"n": 1}}, "upsert": true},
        doc! {"q": {"_id": 1, "n": {"$lte": 999}}, "u": {"$inc": {"n": 1}}, "upsert": true},
    );
    check_rejected(STOCK, doc! {"q": {"_id": 1}, "u": {"$inc": {"n": -1}}, "upsert": true}, "out of range");
    check_rejected(STOCK, doc! {"q": {"x": 1}, "u": {"$inc": {"n": 1}}, "upsert": true}, "second document");
    for unchanged in [
        doc! {"$inc": {"n": 0}},
        doc! {"$set": {"n": 1000}},
        doc! {"$inc": {"m": -1}},
        doc! {"$unset": {"n": ""}},
        doc! {"$min": {"n": 3}},
        doc! {"n": 5},
        doc! {"$set": {"m.n": -5}},
    ] {
        check_unchanged(STOCK, doc! {"q": {"_id": 1}, "u": unchanged});
    }
    check_unchanged(STOCK, doc! {"q": {"_id": 1, "n": {"$gte": 3}}, "u": {"$inc": {"n": -2}}});
    for rejected in [
        doc! {"$set": {"n": -1}},
        doc! {"$set": {"n": 1000.5}},
        doc! {"$set": {"n": "5"}},
        doc! {"n": 1001},
        doc! {"$setOnInsert": {"n": -1}},
        doc! {"$max": {"n": 2000}},
    ] {
        check_rejected(STOCK, doc! {"q": {"_id": 1}, "u": rejected}, "must be a number from 0 to 1000");
    }
    for rejected in [doc! {"$mul": {"n": 2}}, doc! {"$rename": {"m": "n"}}, doc! {"$bit": {"n": {"or": 1}}}] {
        check_rejected(STOCK, doc! {"q": {"_id": 1}, "u": rejected}, "cannot be bounded");
    }
    const NESTED: &str = "bounds: { field: a.n, min: 0 }";
    check_rejected(NESTED, doc! {"q": {}, "u": {"$inc": {"a.0.n": -1}}}, "cannot be bounded");
    check_rejected(NESTED, doc! {"q": {}, "u": {"$set": {"a": {"n": -1}}}}, "of at least 0");
    check_rejected(
        "bounds: { field: n, min: 0, unguarded: reject }",
        doc! {"q": {}, "u": {"$inc": {"n": -1}}},
        "without the condition",
    );
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
    check_rejected(
        BOTH,
        doc! {"q": {"n": 1}, "u": {"$set": {"x": 1}}, "upsert": true},
        "could insert 'n' without 'log'",
    );
}

#[test]
fn queue_jobs_are_claimed_by_lease_and_spoken_for_by_attempt() {
    const JOBS: &str = "queue: { lease: 5m, max_attempts: 3 }";
    let free = doc! {"$or": [
        {"locked": {"$ne": true}},
        {"$expr": {"$lt": ["$tlocked", {"$subtract": ["$$NOW", 300_000i64]}]}},
    ]};
    let claimed = doc! {"$set": {"locked": true, "by": "w"}, "$currentDate": {"tlocked": true}, "$inc": {"try": 1}};
    check_rewrite(
        JOBS,
        doc! {"q": {"kind": "mail", "locked": false}, "u": {"$set": {"locked": true, "by": "w"}}},
        doc! {"q": {"$and": [{"kind": "mail"}, free.clone(), {"try": {"$lt": 3}}]}, "u": claimed.clone()},
    );
    let mut simple = doc! {"kind": "mail"};
    simple.extend(free);
    check_rewrite(
        "queue: { lease: 5m }",
        doc! {"q": {"kind": "mail"}, "u": {"$set": {"locked": true, "tlocked": 5, "by": "w"}, "$inc": {"try": 7}}},
        doc! {"q": simple, "u": {"$set": {"locked": true, "by": "w"}, "$inc": {"try": 1}, "$currentDate": {"tlocked": true}}},
    );
    check_unchanged(JOBS, doc! {"q": {"_id": 1, "try": 2}, "u": {"$set": {"done": true, "locked": false}}});
    check_unchanged(JOBS, doc! {"q": {"locked": false}, "u": {"$set": {"priority": 1}}, "multi": true});
    check_rejected(
        JOBS,
        doc! {"q": {"_id": 1}, "u": {"$set": {"done": true}}},
        "neither the job's 'try' nor locked: false",
    );
    check_rejected(JOBS, doc! {"q": {"_id": 1, "try": 2}, "u": {"$inc": {"try": 1}}}, "only a claim counts up");
    check_rejected(
        JOBS,
        doc! {"q": {"_id": 1, "try": 2}, "u": {"$unset": {"locked": ""}}},
        "neither a claim nor a release",
    );
    check_rejected(JOBS, doc! {"q": {}, "u": {"$set": {"locked": true}}, "multi": true}, "several jobs at once");
    check_rejected(JOBS, doc! {"q": {}, "u": {"$set": {"locked": true}}, "upsert": true}, "claimed already");
    check_rejected(JOBS, doc! {"q": {"_id": 1, "try": 2}, "u": {"done": true}}, "replaces a job");

    let rules = rules(&[("d.c", JOBS)]);
    let insert = frame(&doc! {"insert": "c", "$db": "d"}, "documents", &[doc! {"kind": "mail", "try": 0}], 0);
    let Step::Forward { message, .. } = first_step(&rules, &insert) else { panic!("not rewritten") };
    let now = bson::DateTime::from_millis(NOW.milliseconds);
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
            "q": {"owner": 1, "n": {"$lte": 1}},
            "u": {"$push": {"m": {"$each": [1, 2]}}, "$inc": {"x": 1, "n": 2}, "$setOnInsert": {"t": now}},
            "upsert": true,
        },
    );
    check_unchanged(INBOX, doc! {"q": {"owner": 1}, "u": {"$set": {"m.$.read": true}}});
    check_rejected(
        INBOX,
        doc! {"q": {"owner": 1}, "u": {"$push": {"m": {"$each": [1, 2, 3, 4]}}}},
        "more than a bucket's 3",
    );
    check_rejected(INBOX, doc! {"q": {"_id": 1}, "u": {"$push": {"m": 1}}}, "by _id");
    check_rejected(INBOX, doc! {"q": {"owner": 1}, "u": {"$push": {"m": 1}}, "multi": true}, "several buckets");
    check_rejected(INBOX, doc! {"q": {}, "u": {"$push": {"m": {"$each": [1], "$slice": 2}}}}, "$slice");
    check_rejected(INBOX, doc! {"q": {}, "u": {"$inc": {"n": 1}}}, "without adding anything");
    for apart in [
        doc! {"$pull": {"m": 1}},
        doc! {"$pop": {"m": 1}},
        doc! {"$set": {"m": []}},
        doc! {"$set": {"m.7": 1}},
        doc! {"$addToSet": {"m": 1}},
    ] {
        check_rejected(INBOX, doc! {"q": {}, "u": apart}, "could leave array and count apart");
    }
    check_rewrite(INBOX, doc! {"q": {}, "u": {"m": [1], "n": 7}}, doc! {"q": {}, "u": {"m": [1], "n": 1, "t": now}});
}

#[test]
fn operations_are_denied_and_options_get_defaults() {
    let outcome = |pattern: &str, command: Bson| {
        let rules = rules(&[("d.c", pattern)]);
        let message = frame(&command, "", &[], 0);
        match triage(&message, &rules) {
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
    const SLOW: &str = "deny: { operations: [find, update], when: { missing: maxTimeMS } }";
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
fn shadow_and_except_speak_but_do_not_act() {
    let replace = update(&[doc! {"q": {}, "u": {"a": 1}}]);
    let said = |text: &str, session: &mut Session| {
        let rules = rules(&[("d.c", text)]);
        let mut plan = Plan::new(&replace, &rules, NOW);
        let step = plan.next(Input::Start, session);
        (step, plan.take_observations().iter().map(|o| (o.said, o.statements)).collect::<Vec<_>>())
    };
    let mut nobody = Session::default();
    let (step, heard) = said("mode: shadow\nreplacement: {}", &mut nobody);
    assert!(matches!(step, Step::ForwardOriginal { .. }));
    assert_eq!(heard, [(Said::ShadowReject, 1)]);
    let (step, heard) = said("mode: disabled\nreplacement: {}", &mut nobody);
    assert!(matches!(step, Step::ForwardOriginal { .. }) && heard.is_empty());

    let mut migrator = Session { app_name: Some("migrator-7".into()), ..Session::default() };
    let (step, heard) = said("except: { apps: [\"migrator-*\"] }\nreplacement: {}", &mut migrator);
    assert!(matches!(step, Step::ForwardOriginal { .. }));
    assert_eq!(heard, [(Said::ExceptReject, 1)]);

    let mut root = Session { users: Some(vec![("admin".into(), "root".into())]), ..Session::default() };
    let (step, _) = said("except: { users: [admin.root] }\nreplacement: {}", &mut root);
    assert!(matches!(step, Step::ForwardOriginal { .. }));
}

#[test]
fn who_is_authenticated_is_asked_once() {
    let rules = rules(&[("d.c", "except: { users: [admin.root] }\nreplacement: {}")]);
    let replace = update(&[doc! {"q": {}, "u": {"a": 1}}]);
    let mut session = Session::default();
    let mut plan = Plan::new(&replace, &rules, NOW);
    let Step::Exchange(question) = plan.next(Input::Start, &mut session) else { panic!("no question") };
    assert!(documents(&question).0.contains_key("connectionStatus"));
    let answer = replies(doc! {"authInfo": {"authenticatedUsers": [{"user": "root", "db": "admin"}]}, "ok": 1.0});
    assert!(matches!(plan.next(Input::Reply(&answer), &mut session), Step::ForwardOriginal { .. }));
    assert_eq!(session.users, Some(vec![("admin".into(), "root".into())]));
    let again = Plan::new(&replace, &rules, NOW).next(Input::Start, &mut session);
    assert!(matches!(again, Step::ForwardOriginal { .. }));
}

#[test]
fn an_ordered_batch_ends_at_its_first_rejection() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let set = |n: i32| doc! {"q": {"_id": n}, "u": {"$set": {"a": n}}};
    let replace = doc! {"q": {"_id": 9}, "u": {"a": 1}};
    let message = update(&[set(0), set(1), replace.clone(), set(3), replace]);
    let mut session = Session::default();
    let mut plan = Plan::new(&message, &rules, NOW);
    let Step::Exchange(sent) = plan.next(Input::Start, &mut session) else { panic!("nothing sent") };
    assert_eq!(documents(&sent).1, [set(0), set(1)]);
    let server = replies(doc! {"n": 2, "nModified": 1, "opTime": 5, "ok": 1.0});
    let Step::Reply(reply) = plan.next(Input::Reply(&server), &mut session) else { panic!("no reply") };
    let (reply, _) = documents(&reply);
    assert_eq!(
        (reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap(), reply.get_i32("opTime").unwrap()),
        (2, 1, 5)
    );
    let errors = reply.get_array("writeErrors").unwrap();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].as_document().unwrap().get_i32("index").unwrap(), 2);
}

#[test]
fn an_unordered_batch_goes_on_and_indexes_are_the_clients() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let set = |n: i32| doc! {"q": {"_id": n}, "u": {"$set": {"a": n}}, "upsert": true};
    let replace = doc! {"q": {"_id": 9}, "u": {"a": 1}};
    let body = doc! {"update": "c", "ordered": false, "txnNumber": 4i64, "lsid": {"id": 1}, "$db": "d"};
    let message = frame(&body, "updates", &[replace.clone(), set(1), replace, set(3)], 0);
    let mut session = Session::default();
    let mut plan = Plan::new(&message, &rules, NOW);
    let Step::Exchange(sent) = plan.next(Input::Start, &mut session) else { panic!("nothing sent") };
    let (sent_body, sent) = documents(&sent);
    assert_eq!(sent, [set(1), set(3)]);
    assert_eq!(sent_body.get_array("stmtIds").unwrap(), &vec![1.into(), 3.into()]);
    let server = replies(doc! {
        "n": 1, "nModified": 0, "upserted": [{"index": 1, "_id": 3}],
        "writeErrors": [{"index": 0, "code": 11000, "errmsg": "dup"}], "retriedStmtIds": [3], "ok": 1.0,
    });
    let Step::Reply(reply) = plan.next(Input::Reply(&server), &mut session) else { panic!("no reply") };
    let (reply, _) = documents(&reply);
    let error = |at: usize| reply.get_array("writeErrors").unwrap()[at].as_document().unwrap();
    let found: Vec<_> =
        (0..3).map(|at| (error(at).get_i32("index").unwrap(), error(at).get_i32("code").unwrap())).collect();
    assert_eq!(found, [(0, 121), (1, 11000), (2, 121)]);
    assert_eq!(reply.get_array("upserted").unwrap(), &vec![doc! {"index": 3, "_id": 3}.into()]);
    assert_eq!(reply.get_array("retriedStmtIds").unwrap(), &vec![3.into()]);
}

#[test]
fn a_guarded_replacement_that_matches_nothing_is_a_conflict_for_itself_alone() {
    let rules = rules(&[("d.c", "replacement: { unguarded: guard, guard: v }")]);
    let replace = |v: i32| doc! {"q": {"_id": 1}, "u": {"v": v}};
    let set = doc! {"q": {"_id": 2}, "u": {"$set": {"a": 1}}};
    let body = doc! {"update": "c", "ordered": false, "$db": "d"};
    let message = frame(&body, "updates", &[replace(1), set.clone(), replace(2)], 0);
    let mut session = Session::default();
    let mut plan = Plan::new(&message, &rules, NOW);
    let mut input = Input::Start;
    let mut sent = Vec::new();
    let server = [
        replies(doc! {"n": 0, "nModified": 0, "ok": 1.0}),
        replies(doc! {"n": 1, "nModified": 1, "ok": 1.0}),
        replies(doc! {"n": 1, "nModified": 1, "ok": 1.0}),
    ];
    let mut server = server.iter();
    let reply = loop {
        match plan.next(input, &mut session) {
            Step::Exchange(message) => {
                sent.push(documents(&message).1);
                input = Input::Reply(server.next().unwrap());
            }
            Step::Reply(reply) => break documents(&reply).0,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
    assert!(sent.contains(&vec![set]));
    assert_eq!((reply.get_i32("n").unwrap(), reply.get_array("writeErrors").unwrap().len()), (2, 1));
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!((error.get_i32("index").unwrap(), error.get_i32("code").unwrap()), (0, 112));
    assert!(reply.get("errorLabels").is_none());
}

#[test]
fn a_batch_takes_its_numbers_in_document_order_with_one_lease() {
    let rules =
        rules(&[("d.*", "sequence: { field: no, counter: c, collection: k.counters, block: 5, start: after_max }")]);
    let body = doc! {"insert": "c", "$db": "d"};
    let message = frame(&body, "documents", &[doc! {"a": 1}, doc! {"no": 7}, doc! {"a": 2}], 0);
    let mut session = Session::default();
    let mut plan = Plan::new(&message, &rules, NOW);
    let Step::Lookup(Lookup::Lease(lease)) = plan.next(Input::Start, &mut session) else { panic!("no lease") };
    assert_eq!((lease.database.as_str(), lease.collection.as_str(), lease.count, lease.block), ("k", "counters", 2, 5));
    let found = Input::Found(Ok(Found::Numbers(vec![4, 5])));
    let Step::Forward { message, .. } = plan.next(found, &mut session) else { panic!("not sent") };
    assert_eq!(documents(&message).1, [doc! {"a": 1, "no": 4}, doc! {"no": 7}, doc! {"a": 2, "no": 5}]);
}

#[test]
fn a_lease_that_fails_is_told_or_closes_the_connection() {
    let rules = rules(&[("d.c", "sequence: { field: no, counter: c }")]);
    let message = frame(&doc! {"insert": "c", "$db": "d"}, "documents", &[doc! {"a": 1}], 0);
    let step = |error: LookupError| {
        let mut plan = Plan::new(&message, &rules, NOW);
        plan.next(Input::Start, &mut Session::default());
        plan.next(Input::Found(Err(error)), &mut Session::default())
    };
    assert!(matches!(step(LookupError::Unavailable("no primary".into())), Step::Close(text) if text == "no primary"));
    let Step::Reply(reply) = step(LookupError::Refused("seq is a string".into())) else { panic!("no reply") };
    let error = documents(&reply).0.get_array("writeErrors").unwrap()[0].as_document().unwrap().clone();
    assert!(error.get_str("errmsg").unwrap().contains("seq is a string"), "{error}");
}

#[test]
fn an_optimistic_number_that_is_taken_is_tried_again_from_there() {
    let rules = rules(&[("d.c", "sequence: { field: no, strategy: optimistic }")]);
    let message = frame(
        &doc! {"insert": "c", "ordered": false, "$db": "d"},
        "documents",
        &[doc! {"a": 1}, doc! {"a": 2}, doc! {"a": 3}],
        0,
    );
    let mut session = Session::default();
    let mut plan = Plan::new(&message, &rules, NOW);
    let maximum = |plan: &mut Plan<'_>, input: Input<'_>, session: &mut Session, value: i64| {
        assert!(matches!(plan.next(input, session), Step::Lookup(Lookup::Maximum(_))));
        match plan.next(Input::Found(Ok(Found::Maximum(Some(value)))), session) {
            Step::Exchange(sent) => documents(&sent),
            other => panic!("{other:?}"),
        }
    };
    let (body, sent) = maximum(&mut plan, Input::Start, &mut session, 5);
    assert_eq!(sent, [doc! {"a": 1, "no": 6}, doc! {"a": 2, "no": 7}, doc! {"a": 3, "no": 8}]);
    assert!(!body.contains_key("ordered"), "an optimistic run stops at its first error");
    let taken = replies(doc! {
        "n": 1, "writeErrors": [{"index": 1, "code": 11000, "keyPattern": {"no": 1}, "errmsg": "dup"}], "ok": 1.0,
    });
    let (_, sent) = maximum(&mut plan, Input::Reply(&taken), &mut session, 7);
    assert_eq!(sent, [doc! {"a": 2, "no": 8}, doc! {"a": 3, "no": 9}]);
    // An error of the document's own is reported; its number goes to the next one.
    let own = replies(doc! {
        "n": 0, "writeErrors": [{"index": 0, "code": 11000, "keyPattern": {"_id": 1}, "errmsg": "dup"}], "ok": 1.0,
    });
    let (_, sent) = maximum(&mut plan, Input::Reply(&own), &mut session, 7);
    assert_eq!(sent, [doc! {"a": 3, "no": 8}]);
    let done = replies(doc! {"n": 1, "ok": 1.0});
    let Step::Reply(reply) = plan.next(Input::Reply(&done), &mut session) else { panic!("no reply") };
    let (reply, _) = documents(&reply);
    assert_eq!(reply.get_i32("n").unwrap(), 2);
    assert_eq!(reply.get_array("writeErrors").unwrap()[0].as_document().unwrap().get_i32("index").unwrap(), 1);
}

#[test]
fn a_rejection_ends_the_transaction_on_the_server_too() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let transaction = |starts: bool, statements: &[Bson]| {
        let mut body = doc! {"update": "c", "lsid": {"id": 1}, "txnNumber": 3i64, "autocommit": false, "$db": "d"};
        if starts {
            body.insert("startTransaction", true);
        }
        frame(&body, "updates", statements, 0)
    };
    let replace = doc! {"q": {}, "u": {"a": 1}};
    let set = doc! {"q": {}, "u": {"$set": {"a": 1}}};
    let mut session = Session::default();

    let first = transaction(true, std::slice::from_ref(&replace));
    let step = Plan::new(&first, &rules, NOW).next(Input::Start, &mut session);
    assert!(matches!(step, Step::Reply(_)), "the server knows of no transaction yet: {step:?}");

    let later = transaction(false, std::slice::from_ref(&replace));
    let mut plan = Plan::new(&later, &rules, NOW);
    let Step::Exchange(abort) = plan.next(Input::Start, &mut session) else { panic!("not aborted") };
    let (abort, _) = documents(&abort);
    assert_eq!((abort.get_i32("abortTransaction").unwrap(), abort.get_i64("txnNumber").unwrap()), (1, 3));
    let failed = replies(doc! {"ok": 0.0, "code": 251});
    assert!(matches!(plan.next(Input::Reply(&failed), &mut session), Step::Reply(_)));

    // Even an unordered batch stops at its first error inside a transaction.
    let mixed = transaction(true, &[set.clone(), replace, set.clone()]);
    let mut plan = Plan::new(&mixed, &rules, NOW);
    let Step::Exchange(sent) = plan.next(Input::Start, &mut session) else { panic!("nothing sent") };
    assert_eq!(documents(&sent).1, [set]);
    let server = replies(doc! {"n": 1, "nModified": 1, "ok": 1.0});
    let Step::Exchange(abort) = plan.next(Input::Reply(&server), &mut session) else { panic!("not aborted") };
    assert!(documents(&abort).0.contains_key("abortTransaction"));
}

#[test]
fn roads_around_statements_are_refused_unless_allowed() {
    let reject = rules(&[("d.c", "replacement: {}")]);
    let allow = rules(&[("d.c", "unguardable: allow\nreplacement: {}")]);
    let roads = [
        doc! {"aggregate": "x", "pipeline": [{"$out": "c"}], "$db": "d"},
        doc! {"aggregate": 1, "pipeline": [{"$merge": {"into": {"db": "d", "coll": "c"}}}], "$db": "e"},
        doc! {"aggregate": "x", "pipeline": [{"$out": {"db": "d", "coll": "c"}}], "$db": "e"},
        doc! {"aggregate": "x", "pipeline": [{"$facet": {"a": [{"$merge": "c"}]}}], "$db": "d"},
        doc! {"mapReduce": "x", "out": {"merge": "c"}, "$db": "d"},
        doc! {"mapreduce": "x", "out": "c", "$db": "d"},
        doc! {"renameCollection": "d.x", "to": "d.c", "$db": "admin"},
        doc! {"renameCollection": "d.c", "to": "d.x", "$db": "admin"},
        doc! {"applyOps": [{"op": "i", "ns": "d.c", "o": {}}], "$db": "admin"},
        doc! {"convertToCapped": "c", "$db": "d"},
        doc! {"newWrite": "c", "$db": "d"},
    ];
    for command in roads {
        let message = frame(&command, "", &[], 0);
        assert_eq!(triage(&message, &reject), Triage::Judge, "{command}");
        let Step::Reply(reply) = first_step(&reject, &message) else { panic!("{command} passes") };
        let (reply, _) = documents(&reply);
        assert_eq!((reply.get_f64("ok").unwrap(), reply.get_i32("code").unwrap()), (0.0, 121), "{command}");
        let step = first_step(&allow, &message);
        assert!(matches!(step, Step::ForwardOriginal { .. }), "{command}: {step:?}");
    }
    for command in [
        doc! {"aggregate": "c", "pipeline": [{"$out": "x"}], "$db": "d"},
        doc! {"aggregate": "x", "pipeline": [{"$project": {"a": {"$literal": {"$out": "c"}}}}], "$db": "d"},
        doc! {"mapReduce": "c", "out": {"inline": 1}, "$db": "d"},
        doc! {"renameCollection": "d.x", "to": "d.y", "$db": "admin"},
        doc! {"newWrite": "x", "$db": "d"},
        doc! {"update": "x", "updates": [{"q": {}, "u": {}}], "$db": "d"},
        doc! {"update": "c", "updates": [{"q": {}, "u": {}}], "$db": "e"},
    ] {
        let message = frame(&command, "", &[], 0);
        let forwarded = matches!(triage(&message, &reject), Triage::Forward { .. })
            || matches!(first_step(&reject, &message), Step::ForwardOriginal { .. });
        assert!(forwarded, "{command}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_whole() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let set = doc! {"q": {}, "u": {"$set": {"a": 1}}};
    let both =
        frame(&doc! {"update": "c", "updates": [set.clone()], "$db": "d"}, "updates", std::slice::from_ref(&set), 0);
    let unknown_list = frame(&doc! {"update": "c", "$db": "d"}, "inserts", std::slice::from_ref(&set), 0);
    let unknown_field = update(&[doc! {"q": {}, "u": {"$set": {"a": 1}}, "upsertSupplied": true}]);
    for message in [both, unknown_list, unknown_field] {
        let Step::Reply(reply) = first_step(&rules, &message) else { panic!("passes") };
        assert_eq!(documents(&reply).0.get_i32("code").unwrap(), 9);
    }
    // Nobody waits for an answer: the connection says it.
    let silent = frame(&doc! {"update": "c", "updates": 1, "$db": "d"}, "", &[], crate::wire::op_msg::MORE_TO_COME);
    assert!(matches!(first_step(&rules, &silent), Step::Close(_)));
}

#[test]
fn triage_tells_from_the_first_bytes() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let big = "x".repeat(1000);
    let elsewhere = frame(&doc! {"insert": "other", "$db": "d"}, "documents", &[doc! {"a": big.clone()}], 0);
    assert_eq!(triage(&elsewhere[..60], &rules), Triage::Forward { expects_reply: true });
    assert_eq!(triage(&elsewhere[..30], &rules), Triage::More);
    let guarded = frame(&doc! {"insert": "c", "$db": "d"}, "documents", &[doc! {"a": big}], 0);
    assert_eq!(triage(&guarded, &rules), Triage::Judge);
    assert_eq!(triage(&guarded[..40], &rules), Triage::Judge, "$db is not here to tell");
    let hello = frame(&doc! {"hello": 1, "$db": "admin"}, "", &[], 0);
    assert_eq!(triage(&hello, &rules), Triage::Hello);
    let sasl = frame(&doc! {"saslStart": 1, "$db": "admin"}, "", &[], 0);
    assert_eq!(triage(&sasl, &rules), Triage::Authenticate { expects_reply: true });
    for end in 16..guarded.len() {
        let _ = triage(&guarded[..end], &rules);
    }
}
