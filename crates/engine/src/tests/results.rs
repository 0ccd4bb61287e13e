//! Statements without effect are counted as what they are, by the server's reply.

use bson::{Document as Bson, doc};

use super::super::{ClientState, Input, OutcomeKind, Plan, Step};
use super::{NOW, client_state, documents, frame, replies, rules, update};
use crate::rules::RuleSet;

const STOCK: &str = "bounds: { field: n, min: 0 }";
const TIMES: &str = "timestamps: { source: at, type: long }";

/// Carries out a message that needs one exchange; returns the outcomes and the client's reply.
fn outcomes(rules: &RuleSet, message: &[u8], reply: &Bson) -> (Vec<(OutcomeKind, u64)>, Bson) {
    let mut client_state = client_state();
    let mut plan = Plan::new(message, rules, NOW);
    let step = plan.next(Input::Start, &mut client_state);
    assert!(matches!(step, Step::Exchange(_)), "{step:?}");
    assert!(plan.take_outcomes().iter().all(|outcome| outcome.kind != OutcomeKind::Rewrite), "not final yet");
    let Step::Reply(merged) = plan.next(Input::Reply(replies(reply.clone())), &mut client_state) else {
        panic!("no reply")
    };
    (kinds(&mut plan), documents(&merged).0)
}

fn kinds(plan: &mut Plan<'_>) -> Vec<(OutcomeKind, u64)> {
    plan.take_outcomes().into_iter().map(|outcome| (outcome.kind, outcome.statements)).collect()
}

fn taken(id: i32) -> Bson {
    doc! {"q": {"_id": id}, "u": {"$inc": {"n": -1}}}
}

#[test]
fn a_condition_that_matches_nothing_is_no_match_and_the_reply_is_passed_on() {
    let rules = rules(&[("d.c", STOCK)]);
    for (reply, expected) in [
        (doc! {"n": 0, "nModified": 0, "ok": 1.0, "extra": 7}, OutcomeKind::NoMatch),
        (doc! {"n": 1, "nModified": 1, "ok": 1.0, "extra": 7}, OutcomeKind::Rewrite),
        // Nothing is known about a statement that failed.
        (doc! {"ok": 0.0, "code": 11600, "errmsg": "interrupted"}, OutcomeKind::Rewrite),
        (doc! {"n": 0, "nModified": 0, "writeErrors": [{"index": 0, "code": 2}], "ok": 1.0}, OutcomeKind::Rewrite),
    ] {
        let (counted, merged) = outcomes(&rules, &update(&[taken(1)]), &reply);
        assert_eq!((counted, merged), (vec![(expected, 1)], reply));
    }
}

#[test]
fn a_filter_with_the_condition_of_its_own_is_counted_only_without_a_match() {
    let rules = rules(&[("d.c", STOCK)]);
    let message = update(&[doc! {"q": {"_id": 1, "n": {"$gte": 1}}, "u": {"$inc": {"n": -1}}}]);
    let counted = |n: i32| outcomes(&rules, &message, &doc! {"n": n, "nModified": n, "ok": 1.0}).0;
    assert_eq!((counted(0), counted(1)), (vec![(OutcomeKind::NoMatch, 1)], vec![]));
}

#[test]
fn of_a_batch_the_least_number_without_a_match_is_counted() {
    let rules = rules(&[("d.c", STOCK)]);
    let batch = [taken(1), taken(2), taken(3), doc! {"q": {"_id": 4}, "u": {"$set": {"x": 1}}}];
    let counted =
        |count: usize, n: i32| outcomes(&rules, &update(&batch[..count]), &doc! {"n": n, "nModified": n, "ok": 1.0}).0;
    assert_eq!(counted(3, 1), [(OutcomeKind::Rewrite, 1), (OutcomeKind::NoMatch, 2)]);
    assert_eq!(counted(3, 0), [(OutcomeKind::NoMatch, 3)]);
    assert_eq!(counted(3, 3), [(OutcomeKind::Rewrite, 3)]);
    // The fourth may be the one that matched.
    assert_eq!(counted(4, 1), [(OutcomeKind::Rewrite, 1), (OutcomeKind::NoMatch, 2)]);
    assert_eq!(counted(4, 3), [(OutcomeKind::Rewrite, 3)]);
}

#[test]
fn statements_after_an_error_and_failed_ones_are_not_counted() {
    let rules = rules(&[("d.c", STOCK)]);
    let failed = |index: i32| doc! {"n": 0, "nModified": 0, "writeErrors": [{"index": index, "code": 2}], "ok": 1.0};
    let ordered = update(&[taken(1), taken(2), taken(3)]);
    assert_eq!(outcomes(&rules, &ordered, &failed(1)).0, [(OutcomeKind::Rewrite, 2), (OutcomeKind::NoMatch, 1)]);
    let body = doc! {"update": "c", "ordered": false, "$db": "d"};
    let unordered = frame(&body, "updates", &[taken(1), taken(2), taken(3)], 0);
    assert_eq!(outcomes(&rules, &unordered, &failed(1)).0, [(OutcomeKind::Rewrite, 1), (OutcomeKind::NoMatch, 2)]);
}

#[test]
fn an_update_that_changes_nothing_is_stale() {
    let rules = rules(&[("d.c", TIMES)]);
    let one = |id: i32| doc! {"q": {"_id": id}, "u": {"$set": {"a": 1, "at": 5_i64}}, "upsert": true};
    let counted = |count: i32, reply: Bson| {
        let batch: Vec<Bson> = (0..count).map(one).collect();
        outcomes(&rules, &update(&batch), &reply).0
    };
    assert_eq!(counted(1, doc! {"n": 1, "nModified": 0, "ok": 1.0}), [(OutcomeKind::Stale, 1)]);
    assert_eq!(counted(1, doc! {"n": 1, "nModified": 1, "ok": 1.0}), [(OutcomeKind::Rewrite, 1)]);
    let inserted = doc! {"n": 1, "nModified": 0, "upserted": [{"index": 0, "_id": 0}], "ok": 1.0};
    assert_eq!(counted(1, inserted), [(OutcomeKind::Rewrite, 1)]);
    let mixed = doc! {"n": 4, "nModified": 1, "upserted": [{"index": 1, "_id": 1}], "ok": 1.0};
    assert_eq!(counted(4, mixed), [(OutcomeKind::Rewrite, 2), (OutcomeKind::Stale, 2)]);
    let many = doc! {"q": {"b": 1}, "u": {"$set": {"a": 1, "at": 5_i64}}, "multi": true};
    let of_many = |reply| outcomes(&rules, &update(std::slice::from_ref(&many)), &reply).0;
    assert_eq!(of_many(doc! {"n": 3, "nModified": 0, "ok": 1.0}), [(OutcomeKind::Stale, 1)]);
    assert_eq!(of_many(doc! {"n": 3, "nModified": 1, "ok": 1.0}), [(OutcomeKind::Rewrite, 1)]);
    // A multi may have any number of the documents that did not change.
    let batch = update(&[many, one(1)]);
    assert_eq!(outcomes(&rules, &batch, &doc! {"n": 3, "nModified": 1, "ok": 1.0}).0, [(OutcomeKind::Rewrite, 2)]);
}

#[test]
fn a_claim_that_finds_no_job_and_a_lost_claim_are_no_match() {
    let rules = rules(&[("d.c", "queue: { lease: 5m }")]);
    let run = |query: Bson, change: Bson, n: i32| {
        let body = doc! {"findAndModify": "c", "query": query, "update": change, "$db": "d"};
        let reply = doc! {"lastErrorObject": {"n": n, "updatedExisting": n > 0}, "value": null, "ok": 1.0};
        outcomes(&rules, &frame(&body, "", &[], 0), &reply).0
    };
    let claim = |n| run(doc! {"locked": false}, doc! {"$set": {"locked": true}}, n);
    let done = |n| run(doc! {"_id": 1, "try": 2}, doc! {"$set": {"locked": false}}, n);
    assert_eq!((claim(1), claim(0)), (vec![(OutcomeKind::Rewrite, 1)], vec![(OutcomeKind::NoMatch, 1)]));
    assert_eq!((done(1), done(0)), (vec![], vec![(OutcomeKind::NoMatch, 1)]));
}

#[test]
fn the_results_of_a_bulk_write_tell_each_statement() {
    let rules = rules(&[("d.c", STOCK)]);
    let ops = |id: i32| doc! {"update": 0, "filter": {"_id": id}, "updateMods": {"$inc": {"n": -1}}, "multi": false};
    let other = doc! {"update": 0, "filter": {"_id": 9}, "updateMods": {"$set": {"x": 1}}, "multi": true};
    let list = [ops(1), other, ops(2)];
    let body = doc! {"bulkWrite": 1, "nsInfo": [{"ns": "d.c"}], "$db": "admin"};
    let message = frame(&body, "ops", &list, 0);
    let result = |index: i32, n: i32| doc! {"ok": 1.0, "idx": index, "n": n, "nModified": n};
    let reply = |results: Vec<Bson>| {
        doc! {"cursor": {"id": 0_i64, "firstBatch": results, "ns": "admin.$cmd.bulkWrite"}, "nErrors": 0,
        "nInserted": 0, "nMatched": 5, "nModified": 5, "nUpserted": 0, "nDeleted": 0, "ok": 1.0}
    };
    let each = reply(vec![result(0, 0), result(1, 4), result(2, 1)]);
    assert_eq!(outcomes(&rules, &message, &each).0, [(OutcomeKind::Rewrite, 1), (OutcomeKind::NoMatch, 1)]);
    // Only the sums: all five may be the documents of these two.
    assert_eq!(outcomes(&rules, &message, &reply(vec![])).0, [(OutcomeKind::Rewrite, 2)]);
}

#[test]
fn a_version_conflict_is_only_a_conflict() {
    let rules = rules(&[("d.c", "replacement: { policy: check_version, version: v }")]);
    let message = update(&[doc! {"q": {"_id": 1}, "u": {"_id": 1, "v": 3, "a": 1}}]);
    let mut state = client_state();
    let mut plan = Plan::new(&message, &rules, NOW);
    assert!(matches!(plan.next(Input::Start, &mut state), Step::Exchange(_)));
    let nothing = doc! {"n": 0, "nModified": 0, "ok": 1.0};
    assert!(matches!(plan.next(Input::Reply(replies(nothing.clone())), &mut state), Step::Exchange(_)));
    let found = |documents: Vec<Bson>| doc! {"cursor": {"id": 0_i64, "firstBatch": documents}, "ok": 1.0};
    plan.next(Input::Reply(replies(found(vec![doc! {"v": 4}]))), &mut state);
    assert_eq!(kinds(&mut plan), [(OutcomeKind::Conflict, 1)]);

    let mut plan = Plan::new(&message, &rules, NOW);
    plan.next(Input::Start, &mut state);
    plan.next(Input::Reply(replies(nothing)), &mut state);
    plan.next(Input::Reply(replies(found(vec![]))), &mut state);
    assert_eq!(kinds(&mut plan), [(OutcomeKind::NoMatch, 1)]);
}

#[test]
fn a_rewrite_whose_reply_never_comes_is_counted() {
    let rules = rules(&[("d.c", STOCK)]);
    let message = update(&[taken(1)]);
    let mut plan = Plan::new(&message, &rules, NOW);
    plan.next(Input::Start, &mut ClientState::default());
    assert!(plan.take_outcomes().is_empty());
    let rest = plan.take_rest();
    assert_eq!(rest.iter().map(|outcome| outcome.kind).collect::<Vec<_>>(), [OutcomeKind::Rewrite]);
    // No reply comes to an unacknowledged write.
    let body = doc! {"update": "c", "ordered": true, "writeConcern": {"w": 0}, "$db": "d"};
    let silent = frame(&body, "updates", &[taken(1)], 2);
    let mut plan = Plan::new(&silent, &rules, NOW);
    assert!(matches!(plan.next(Input::Start, &mut ClientState::default()), Step::Forward { expects_reply: false, .. }));
    assert_eq!(kinds(&mut plan), [(OutcomeKind::Rewrite, 1)]);
}

/// The increment of the version makes the document larger, so `limits` evaluates the statement again.
#[test]
fn a_statement_counts_once_for_a_rule_that_evaluates_it_twice() {
    let versions = "replacement: { policy: check_version, version: v }";
    for other in [
        "limits: { document: 1KiB }",
        "limits: { items: { a: 5 } }",
        STOCK,
        "schema_version: { field: s, current: 3, minimum: 2 }",
        TIMES,
    ] {
        let rules = rules(&[("d.c", versions), ("d.c", other)]);
        for modification in [doc! {"$set": {"text": "x", "at": 5_i64}}, doc! {"v": 3, "text": "x", "at": 5_i64, "s": 2}]
        {
            let message = update(&[doc! {"q": {"_id": 1}, "u": &modification}]);
            let (mut plan, mut client_state) = (Plan::new(&message, &rules, NOW), client_state());
            let _ = plan.next(Input::Start, &mut client_state);
            let _ = plan.next(Input::Reply(replies(doc! {"n": 1, "nModified": 1, "ok": 1.0})), &mut client_state);
            let counted = kinds(&mut plan);
            assert!(counted.iter().all(|(_, statements)| *statements == 1), "{other}, {modification}: {counted:?}");
        }
    }
}
