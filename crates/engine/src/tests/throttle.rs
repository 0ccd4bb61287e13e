//! The permits that messages need, and the error without one.

use std::time::Duration;

use super::*;
use crate::step::{PermitRefusal, PermitRequest};

const CONCURRENT: &str = "throttle: { concurrent: 5, per: app }";

fn client_state() -> ClientState {
    let users = Some(vec![("admin".to_owned(), "ann".to_owned())]);
    ClientState { app_name: Some("shop".into()), users, client: "10.1.2.3:50000".into(), ..super::client_state() }
}

/// The permits that a message needs before it is sent.
fn permits(rules: &RuleSet, message: &[u8]) -> Vec<PermitRequest> {
    match Plan::new(message, rules, NOW).next(Input::Start, &mut client_state()) {
        Step::Permits(requests) => requests,
        Step::ForwardOriginal { .. } => Vec::new(),
        other => panic!("{other:?}"),
    }
}

/// The names of the rules that limit a command, also by its first bytes.
fn limiting(rules: &RuleSet, command: Bson) -> String {
    let message = frame(&command, "", &[], 0);
    let found: Vec<String> = permits(rules, &message).into_iter().map(|request| request.rule).collect();
    if !found.is_empty() {
        assert_eq!(triage(&RequestHead::new(&message), rules), Triage::Evaluate, "{command}");
    }
    found.join(" ")
}

#[test]
fn reads_and_writes_of_a_namespace_need_a_permit() {
    let rules = rules(&[("d.c", CONCURRENT)]);
    let lookup = |stage: Bson| doc! {"aggregate": "x", "pipeline": [stage], "cursor": {}, "$db": "d"};
    for command in [
        doc! {"find": "c", "$db": "d"},
        doc! {"count": "c", "$db": "d"},
        doc! {"distinct": "c", "key": "a", "$db": "d"},
        doc! {"aggregate": "c", "pipeline": [], "cursor": {}, "$db": "d"},
        lookup(doc! {"$lookup": {"from": "c", "as": "a", "pipeline": []}}),
        lookup(doc! {"$lookup": {"from": "y", "as": "a", "pipeline": [{"$unionWith": "c"}]}}),
        lookup(doc! {"$facet": {"a": [{"$graphLookup": {"from": "c", "as": "a"}}]}}),
        lookup(doc! {"$unionWith": {"coll": "c", "pipeline": []}}),
        lookup(doc! {"$out": "c"}),
        lookup(doc! {"$merge": {"into": {"db": "d", "coll": "c"}}}),
        doc! {"mapReduce": "c", "map": "m", "reduce": "r", "out": "x", "$db": "d"},
        doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "d"},
        doc! {"update": "c", "updates": [{"q": {}, "u": [{"$set": {"a": 1}}]}], "$db": "d"},
        doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}], "$db": "d"},
        doc! {"findAndModify": "c", "query": {}, "update": {"a": 1}, "$db": "d"},
        doc! {"bulkWrite": 1, "ops": [{"insert": 0, "document": {}}], "nsInfo": [{"ns": "d.c"}], "$db": "admin"},
        doc! {"explain": {"find": "c"}, "$db": "d"},
        doc! {"renameCollection": "d.c", "to": "d.x", "$db": "admin"},
        doc! {"somethingNew": 1, "where": "d.c", "$db": "d"},
        doc! {"find": "system.buckets.c", "$db": "d"},
        doc! {"find": "c", "$db": "d", "startTransaction": true, "autocommit": false, "txnNumber": 1i64},
    ] {
        assert_eq!(limiting(&rules, command.clone()), "rule-0", "{command}");
    }
    for command in [
        doc! {"find": "x", "$db": "d"},
        doc! {"find": "c", "$db": "x"},
        doc! {"getMore": 1i64, "collection": "c", "$db": "d"},
        doc! {"killCursors": "c", "cursors": [1i64], "$db": "d"},
        doc! {"find": "c", "$db": "d", "autocommit": false, "txnNumber": 1i64},
        doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "d", "autocommit": false, "txnNumber": 1i64},
        doc! {"commitTransaction": 1, "autocommit": false, "txnNumber": 1i64, "$db": "admin"},
        doc! {"abortTransaction": 1, "autocommit": false, "txnNumber": 1i64, "$db": "admin"},
        doc! {"drop": "c", "$db": "d"},
        doc! {"createIndexes": "c", "indexes": [], "$db": "d"},
        lookup(doc! {"$lookup": {"from": "y", "as": "a"}}),
        lookup(doc! {"$match": {"$lookup": {"$literal": {"from": "c"}}}}),
        doc! {"ping": 1, "$db": "d"},
    ] {
        if command.contains_key("pipeline") || !command.contains_key("aggregate") {
            assert_eq!(limiting(&rules, command.clone()), "", "{command}");
        }
    }
}

#[test]
fn a_request_names_the_key_and_the_number_of_statements() {
    let request = |pattern: &str, message: &[u8]| permits(&rules(&[("d.c", pattern)]), message).remove(0);
    let insert = frame(&doc! {"insert": "c", "$db": "d"}, "documents", &[doc! {"_id": 1}, doc! {"_id": 2}], 0);
    for (per, key) in [("app", "shop"), ("user", "ann@admin"), ("client", "10.1.2.3")] {
        let found = request(&format!("throttle: {{ rate: 5/s, per: {per} }}"), &insert);
        assert_eq!((found.key.as_str(), found.statements, found.is_shadow), (key, 2, false), "{per}");
    }
    let body = doc! {"update": "c", "updates": [{"q": {}, "u": {"a": 1}}, {"q": {}, "u": {"a": 2}}], "$db": "d"};
    assert_eq!(request(CONCURRENT, &frame(&body, "", &[], 0)).statements, 2);
    assert_eq!(request(CONCURRENT, &frame(&doc! {"find": "c", "$db": "d"}, "", &[], 0)).statements, 1);
    assert!(request(&format!("mode: shadow\n{CONCURRENT}"), &insert).is_shadow);
    let exempt = rules(&[("d.c", &format!("except: {{ apps: [shop] }}\n{CONCURRENT}"))]);
    assert_eq!(permits(&exempt, &insert), []);
    let several = rules(&[("d.c", "throttle: { concurrent: 1, per: user }"), ("d.*", CONCURRENT), ("x.c", CONCURRENT)]);
    let names: Vec<String> = permits(&several, &insert).into_iter().map(|request| request.rule).collect();
    assert_eq!(names, ["rule-0", "rule-1"]);
}

#[test]
fn users_are_asked_for_only_if_the_limit_is_per_user() {
    let find = frame(&doc! {"find": "c", "$db": "d"}, "", &[], 0);
    let mut unknown = ClientState { users: None, ..client_state() };
    let per_user = rules(&[("d.c", "throttle: { concurrent: 5, per: user }")]);
    let mut plan = Plan::new(&find, &per_user, NOW);
    let Step::Exchange(question) = plan.next(Input::Start, &mut unknown) else { panic!("no question") };
    assert!(documents(&question).0.contains_key("connectionStatus"));
    let users = doc! {"authInfo": {"authenticatedUsers": [{"user": "ann", "db": "admin"}]}, "ok": 1.0};
    let Step::Permits(requests) = plan.next(Input::Reply(replies(users)), &mut unknown) else { panic!("no permit") };
    assert_eq!(requests[0].key, "ann@admin");
    assert!(matches!(plan.next(Input::Permits(Ok(())), &mut unknown), Step::ForwardOriginal { .. }));
    let mut unknown = ClientState { users: None, ..client_state() };
    let step = Plan::new(&find, &rules(&[("d.c", CONCURRENT)]), NOW).next(Input::Start, &mut unknown);
    assert!(matches!(step, Step::Permits(_)), "{step:?}");
}

#[test]
fn rejected_statements_need_no_permit_and_rewritten_ones_are_sent_after_it() {
    let both = rules(&[("d.c", CONCURRENT), ("d.c", "replacement: { policy: check_version, version: v }")]);
    let replacement = update(&[doc! {"q": {"_id": 1}, "u": {"v": 1}}]);
    let mut client_state = client_state();
    let mut plan = Plan::new(&replacement, &both, NOW);
    assert!(matches!(plan.next(Input::Start, &mut client_state), Step::Permits(_)));
    let Step::Exchange(sent) = plan.next(Input::Permits(Ok(())), &mut client_state) else { panic!("not sent") };
    assert_eq!(documents(&sent).1[0].get_document("q").unwrap(), &doc! {"_id": 1, "v": 1});
    let both = rules(&[("d.c", CONCURRENT), ("d.c", "deny: { operations: [find] }")]);
    let find = frame(&doc! {"find": "c", "$db": "d"}, "", &[], 0);
    let step = Plan::new(&find, &both, NOW).next(Input::Start, &mut client_state);
    assert!(matches!(step, Step::Reply(_)), "{step:?}");
}

#[test]
fn a_message_that_waited_too_long_gets_an_error_that_drivers_retry() {
    let rules = rules(&[("d.c", CONCURRENT)]);
    for (flags, replies) in [(0, true), (crate::wire::op_msg::MORE_TO_COME, false)] {
        let insert = frame(&doc! {"insert": "c", "$db": "d"}, "documents", &[doc! {"_id": 1}], flags);
        let mut client_state = client_state();
        let mut plan = Plan::new(&insert, &rules, NOW);
        assert!(matches!(plan.next(Input::Start, &mut client_state), Step::Permits(_)));
        let refusal = PermitRefusal { at: 0, room_in: Some(Duration::from_millis(1500)) };
        let step = plan.next(Input::Permits(Err(refusal)), &mut client_state);
        let outcomes = plan.take_outcomes();
        assert!(matches!(&outcomes[..], [one] if one.kind == OutcomeKind::Reject && one.namespace == "d.c"));
        let Step::Reply(reply) = step else {
            assert!(matches!(step, Step::Silent) && !replies, "{step:?}");
            continue;
        };
        let (body, _) = documents(&reply);
        assert_eq!((body.get_f64("ok").unwrap(), body.get_i32("code").unwrap()), (0.0, 462));
        let labels: Vec<&str> = body.get_array("errorLabels").unwrap().iter().filter_map(|one| one.as_str()).collect();
        assert_eq!(labels, ["SystemOverloadedError", "RetryableError", "NoWritesPerformed"]);
        assert_eq!(body.get_i32("baseBackoffMS").unwrap(), 1500);
        let text = body.get_str("errmsg").unwrap();
        assert!(text.contains("rule 'rule-0' rejects this insert on d.c") && text.contains("'shop'"), "{text}");
    }
}
