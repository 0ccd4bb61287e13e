//! Retryable writes that may have been carried out before under other rules, with a made-up server.

use std::sync::Arc;

use super::*;
use crate::rules::Doubt;

const TREE: (&str, &str) = ("d.c", "tree: { path: path, parent: parent }");

fn in_doubt(rules: &RuleSet, former: &RuleSet) -> RuleSet {
    rules.with_doubt(Some(Arc::new(Doubt::new(former.procedure_scopes()))))
}

fn lsid() -> Bson {
    doc! {"id": bson::Uuid::from_bytes([1; 16])}
}

fn retryable(command: Bson) -> Vec<u8> {
    let mut body = command;
    body.extend(doc! {"lsid": lsid(), "txnNumber": 5i64, "$db": "d"});
    frame(&body, "", &[], 0)
}

fn increment(id: &str) -> Bson {
    doc! {"q": {"_id": id}, "u": {"$inc": {"n": 1}, "$set": {"parent": "Books"}}}
}

/// Carries out a message. Each of the server's replies belongs to a command, of which these are the first field and the
/// transaction number. Returns the last step.
fn carry_out(rules: &RuleSet, message: &[u8], exchanges: &[(&str, i64, Bson)]) -> Step {
    let mut client_state = client_state();
    let mut plan = Plan::new(message, rules, NOW);
    let mut step = plan.next(Input::Start, &mut client_state);
    for (name, number, reply) in exchanges {
        while matches!(step, Step::Pause(_)) {
            step = plan.next(Input::Paused { elapsed: std::time::Duration::ZERO }, &mut client_state);
        }
        let Step::Exchange(sent) = &step else { panic!("no {name}: {step:?}") };
        let (sent, _) = documents(sent);
        assert_eq!((sent.keys().next().unwrap().as_str(), sent.get_i64("txnNumber").unwrap()), (*name, *number));
        step = plan.next(Input::Reply(replies(reply.clone())), &mut client_state);
    }
    step
}

fn unknown() -> Bson {
    doc! {"n": 0, "nModified": 0, "ok": 1.0}
}

fn error(code: i32) -> Bson {
    doc! {"ok": 0.0, "code": code, "errmsg": "made up"}
}

const FIRST: i64 = 5 << 10;
const LAST: i64 = FIRST + 1023;

#[test]
fn a_statement_with_a_procedure_asks_for_the_record_of_the_clients_session() {
    let rules = rules(&[TREE]);
    let message = retryable(doc! {"update": "c", "updates": [increment("a"), increment("b")]});
    let mut client_state = client_state();
    let mut plan = Plan::new(&message, &rules, NOW);
    let Step::Exchange(question) = plan.next(Input::Start, &mut client_state) else { panic!("no question") };
    let (question, _) = documents(&question);
    assert_eq!(question.get_array("stmtIds").unwrap(), &[0.into(), 1.into()]);
    assert_eq!(question.get_document("lsid").unwrap(), &lsid());
    let asked = question.get_array("updates").unwrap();
    let nothing = doc! {"_id": {"$in": []}, "$comment": "by docward: asks for an earlier send"};
    assert!(asked.iter().all(|one| one.as_document().unwrap().get("q") == Some(&nothing.clone().into())));
    // Both were carried out: the server answers the client's own command.
    let both = doc! {"n": 2, "nModified": 2, "retriedStmtIds": [0, 1], "ok": 1.0};
    assert!(matches!(carry_out(&rules, &message, &[("update", 5, both)]), Step::ForwardOriginal { .. }));
    // One of them was: the other one goes into a transaction.
    let one = doc! {"n": 1, "nModified": 1, "retriedStmtIds": [0], "ok": 1.0};
    let first = doc! {"n": 1, "nModified": 1, "retriedStmtIds": [0], "ok": 1.0};
    let step = carry_out(&rules, &message, &[("update", 5, one), ("update", 5, first)]);
    let Step::Exchange(find) = step else { panic!("{step:?}") };
    assert_eq!(documents(&find).0.get_i64("txnNumber").unwrap(), FIRST);
    // A record of another kind is found statement by statement. The session may have a newer write.
    let step = carry_out(
        &rules,
        &message,
        &[("update", 5, error(40638)), ("update", 5, unknown()), ("update", 5, error(40638))],
    );
    assert!(matches!(step, Step::Exchange(_)), "{step:?}");
    let step = carry_out(&rules, &message, &[("update", 5, error(225))]);
    let Step::Reply(reply) = step else { panic!("{step:?}") };
    assert_eq!(documents(&reply).0, error(225));
    // Who may not update may still insert.
    let insert = retryable(doc! {"insert": "c", "documents": [{"_id": "a", "parent": "b"}]});
    assert!(matches!(carry_out(&rules, &insert, &[("update", 5, error(13))]), Step::Exchange(_)));
}

#[test]
fn in_doubt_a_statement_that_needs_no_transaction_asks_for_the_transaction() {
    let (none, tree) = (rules(&[("d.other", "together: [a, b]")]), rules(&[TREE]));
    let message = retryable(doc! {"update": "c", "updates": [increment("a")]});
    assert_eq!(triage(&RequestHead::new(&message), &none), Triage::Forward { expects_reply: true });
    let none = in_doubt(&none, &tree);
    assert_eq!(triage(&RequestHead::new(&message), &none), Triage::Evaluate);
    // Not carried out; no attempt can be committed after the last number is used.
    for answer in [error(251), doc! {"ok": 1.0}] {
        let step = carry_out(&none, &message, &[("abortTransaction", FIRST, answer), ("update", LAST, unknown())]);
        assert!(matches!(step, Step::ForwardOriginal { .. }), "{step:?}");
    }
    // The second attempt was committed.
    let committed = [
        ("abortTransaction", FIRST, error(225)),
        ("abortTransaction", LAST - 1, error(251)),
        ("abortTransaction", FIRST + 1, error(256)),
        ("commitTransaction", FIRST + 1, doc! {"ok": 1.0}),
    ];
    let step = carry_out(&none, &message, &committed);
    let Step::Reply(reply) = step else { panic!("{step:?}") };
    assert_eq!(documents(&reply).0, doc! {"n": 1, "nModified": 1, "ok": 1.0});
    // Another docward has asked before. The session may have a newer write.
    let too_old = [("abortTransaction", FIRST, error(225)), ("abortTransaction", LAST - 1, error(225))];
    let excluded = [&too_old[..], &[("abortTransaction", LAST, error(251))]].concat();
    assert!(matches!(carry_out(&none, &message, &excluded), Step::ForwardOriginal { .. }));
    let newer = [&too_old[..], &[("abortTransaction", LAST, error(225))]].concat();
    let step = carry_out(&none, &message, &newer);
    let Step::Reply(reply) = step else { panic!("{step:?}") };
    assert_eq!(documents(&reply).0.get_i32("code").unwrap(), 225);
    // What cannot be counted gets an error.
    let modify = doc! {"findAndModify": "c", "query": {"_id": "a"}, "update": {"$inc": {"n": 1}}};
    let committed = [("abortTransaction", FIRST, error(256)), ("commitTransaction", FIRST, doc! {"ok": 1.0})];
    let step = carry_out(&none, &retryable(modify), &committed);
    let Step::Reply(reply) = step else { panic!("{step:?}") };
    assert_eq!(documents(&reply).0.get_i32("code").unwrap(), 217);
    // Without a retryable number there is nothing to ask.
    let once = frame(&doc! {"update": "c", "updates": [increment("a")], "$db": "d"}, "", &[], 0);
    assert!(matches!(first_step(&none, &once), Step::ForwardOriginal { .. }));
}

#[test]
fn an_attempt_that_another_docward_has_excluded_asks_again() {
    let rules = rules(&[TREE]);
    let message = retryable(doc! {"update": "c", "updates": [increment("a")]});
    let excluded = |record: Bson| {
        [
            ("find", FIRST, error(225)),
            ("abortTransaction", LAST - 1, error(225)),
            ("abortTransaction", LAST, error(251)),
            ("update", 5, record),
        ]
    };
    let recorded = doc! {"n": 1, "nModified": 1, "retriedStmtIds": [0], "ok": 1.0};
    let exchanges = [&[("update", 5, unknown())][..], &excluded(recorded.clone())].concat();
    let exchanges = [&exchanges[..], &[("update", 5, recorded.clone())]].concat();
    let step = carry_out(&rules, &message, &exchanges);
    let Step::Reply(reply) = step else { panic!("{step:?}") };
    assert_eq!(documents(&reply).0.get_i32("n").unwrap(), 1);
    // Not yet: it waits and tries again.
    let waiting = [&[("update", 5, unknown())][..], &excluded(unknown())].concat();
    let step = carry_out(&rules, &message, &waiting);
    assert!(matches!(step, Step::Pause(_)), "{step:?}");
}

#[test]
fn in_doubt_a_rejected_statement_may_have_been_carried_out() {
    let bounds = rules(&[("d.c", "bounds: { field: n, min: 0 }")]);
    let statement = |n: i32| doc! {"q": {"_id": 1}, "u": {"$set": {"n": n}}};
    let message = retryable(doc! {"update": "c", "updates": [statement(-1), statement(5)]});
    assert!(matches!(first_step(&bounds, &message), Step::Reply(_)));
    let doubtful = in_doubt(&bounds, &bounds);
    let recorded = doc! {"n": 1, "nModified": 1, "retriedStmtIds": [0], "ok": 1.0};
    let step = carry_out(&doubtful, &message, &[("update", 5, recorded)]);
    assert!(!matches!(step, Step::Reply(_)), "the statements after it are sent: {step:?}");
    let step = carry_out(&doubtful, &message, &[("update", 5, unknown())]);
    let Step::Reply(reply) = step else { panic!("{step:?}") };
    assert_eq!(documents(&reply).0.get_array("writeErrors").unwrap().len(), 1);
    // A command that is rejected as a whole.
    let deny = rules(&[("d.c", "deny: { operations: [update] }")]);
    let doubtful = in_doubt(&deny, &deny);
    let message = retryable(doc! {"update": "c", "updates": [statement(1)]});
    let recorded = doc! {"n": 1, "nModified": 1, "retriedStmtIds": [0], "ok": 1.0};
    let ask = |reply| carry_out(&doubtful, &message, &[("update", 5, reply)]);
    assert!(matches!(ask(recorded), Step::ForwardOriginal { .. }));
}

/// Other versions of docward must find the transactions of this one.
#[test]
fn the_session_and_the_numbers_of_transactions_stay_the_same() {
    let none = in_doubt(&rules(&[("d.other", "together: [a, b]")]), &rules(&[TREE]));
    let mut body = doc! {"update": "c", "updates": [increment("a")], "lsid": lsid(), "txnNumber": 5i64, "$db": "d"};
    body.insert("stmtIds", [3]);
    let step = Plan::new(&frame(&body, "", &[], 0), &none, NOW).next(Input::Start, &mut client_state());
    let Step::Exchange(abort) = step else { panic!("{step:?}") };
    let abort = documents(&abort).0;
    let session = abort.get_document("lsid").unwrap().get("id").unwrap().clone();
    let expected = bson::Uuid::parse_str("65706478-6273-6501-0101-010101010104").unwrap();
    assert_eq!((session, abort.get_i64("txnNumber").unwrap()), (expected.into(), 5 * 1024));
}

/// A rule of `together` checks some updates: only these may have been committed.
#[test]
fn a_plain_update_is_sent_without_a_question_where_only_checked_ones_have_transactions() {
    const DENY: (&str, &str) = ("d.c", "deny: { operations: [drop] }");
    let asks = |former: &[(&str, &str)], statement: Bson| {
        let message = retryable(doc! {"update": "c", "updates": [statement]});
        let rules = in_doubt(&rules(&[DENY]), &rules(former));
        matches!(Plan::new(&message, &rules, NOW).next(Input::Start, &mut client_state()), Step::Exchange(_))
    };
    let both = [("d.c", "together: [a, s.x]")];
    for plain in [
        doc! {"$inc": {"a": 1}, "$set": {"s.x": 1}},
        doc! {"$push": {"a": 1}, "$set": {"s": {"x": 1}}},
        doc! {"$set": {"t": [1], "t.0": 1}},
    ] {
        assert!(!asks(&both, doc! {"q": {"_id": 1}, "u": plain.clone()}), "{plain}");
        assert!(asks(&[TREE], doc! {"q": {"_id": 1}, "u": plain}));
    }
    for statement in [
        doc! {"q": {}, "u": {"$inc": {"s": 1}}},
        doc! {"q": {}, "u": {"$inc": {"a": f64::NAN}, "$set": {"s.x": 1}}},
        doc! {"q": {}, "u": {"$rename": {"a": "b"}}},
        doc! {"q": {}, "u": {"$set": {"s.0.x": 1}}},
        doc! {"q": {}, "u": [{"$set": {"t": 1}}]},
        doc! {"q": {}, "u": {"t": 1}},
        doc! {"q": {"_id": 1}, "u": {"$set": {"t": 1}}, "upsert": true},
    ] {
        assert!(asks(&both, statement.clone()), "{statement}");
    }
    // A push to a bucket becomes an upsert.
    let bucket = ("d.c", "bucket: { array: items, count: count, limit: 10, opened: at }");
    assert!(asks(&[both[0], bucket], doc! {"q": {"_id": 1}, "u": {"$inc": {"a": 1}}}));
}

#[test]
fn a_statement_that_was_carried_out_before_gets_no_number() {
    let (numbered, tree) = (rules(&[("d.c", "sequence: { field: no, counter: c }")]), rules(&[TREE]));
    let message = retryable(doc! {"insert": "c", "documents": [{"_id": "a"}]});
    let committed = [("abortTransaction", FIRST, error(256)), ("commitTransaction", FIRST, doc! {"ok": 1.0})];
    let step = carry_out(&in_doubt(&numbered, &tree), &message, &committed);
    let Step::Reply(reply) = step else { panic!("{step:?}") };
    assert_eq!(documents(&reply).0, doc! {"n": 1, "ok": 1.0});
}
