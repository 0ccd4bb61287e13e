//! `tree`: table tests, and its transactions with a made-up server.

use std::time::Duration;

use super::*;

const TREE: &str = "tree: { path: path, parent: parent }";
const CATEGORIES: [(&str, &str); 1] = [("d.c", TREE)];

/// A running plan with made-up replies.
struct PlanRun<'p> {
    plan: Plan<'p>,
    client_state: ClientState,
    step: Step,
    /// The time that is reported at the end of a pause.
    elapsed: Duration,
}

impl<'p> PlanRun<'p> {
    fn new(rules: &'p RuleSet, message: &'p [u8]) -> Self {
        let mut client_state = client_state();
        client_state.own.id = [7; 16];
        let mut plan = Plan::new(message, rules, NOW);
        let mut step = plan.next(Input::Start, &mut client_state);
        if plan.awaits_record() {
            // It was not sent before.
            step = plan.next(Input::Reply(replies(doc! {"n": 0, "ok": 1.0})), &mut client_state);
        }
        Self { plan, client_state, step, elapsed: Duration::ZERO }
    }

    /// Returns the sent command without its session fields, and the session fields.
    fn sent(&self) -> (Bson, (Bson, i64, bool)) {
        let Step::Exchange(message) = &self.step else { panic!("{:?}", self.step) };
        let (mut body, statements) = documents(message);
        let lsid = body.remove("lsid").unwrap().as_document().unwrap().clone();
        let number = body.remove("txnNumber").unwrap().as_i64().unwrap();
        assert_eq!(body.remove("autocommit"), Some(false.into()));
        let starts = body.remove("startTransaction").is_some();
        body.remove("readConcern");
        body.remove("$db");
        body.extend((!statements.is_empty()).then(|| ("statements".to_owned(), statements.into())));
        (body, (lsid, number, starts))
    }

    fn receives(&mut self, reply: Bson) -> &mut Self {
        self.step = self.plan.next(Input::Reply(replies(reply)), &mut self.client_state);
        self
    }

    fn finds(&mut self, found: &[Bson]) -> &mut Self {
        self.receives(doc! {"cursor": {"firstBatch": found, "id": 0i64, "ns": "d.c"}, "ok": 1.0})
    }

    /// Ends a pause.
    fn resumes(&mut self) -> &mut Self {
        assert!(matches!(self.step, Step::Pause(_)), "{:?}", self.step);
        assert!(!self.plan.must_finish());
        self.step = self.plan.next(Input::Paused { elapsed: self.elapsed }, &mut self.client_state);
        self
    }

    fn reply(&self) -> Bson {
        let Step::Reply(message) = &self.step else { panic!("{:?}", self.step) };
        documents(message).0
    }
}

fn insert(document: Bson, client_state: Bson) -> Vec<u8> {
    let mut body = doc! {"insert": "c", "$db": "d", "writeConcern": {"w": "majority"}};
    body.extend(client_state);
    frame(&body, "documents", &[document], 0)
}

fn conflict() -> Bson {
    doc! {"ok": 0.0, "code": 112, "errmsg": "WriteConflict", "errorLabels": ["TransientTransactionError"]}
}

fn books() -> Bson {
    doc! {"_id": "Books", "path": bson::Bson::Null}
}

#[test]
fn statements_that_need_no_lookup_are_decided_at_once() {
    check_unchanged(TREE, doc! {"q": {}, "u": {"$set": {"title": 1}}, "multi": true});
    // Without upsert the server ignores $setOnInsert.
    check_unchanged(TREE, doc! {"q": {}, "u": {"$setOnInsert": {"parent": [1], "path": 7}}});
    let rejected = [
        (doc! {"q": {}, "u": {"$set": {"parent": "a"}}, "multi": true}, "move many nodes"),
        (doc! {"q": {"_id": {"$in": [1, 2]}}, "u": {"$set": {"parent": "a"}}, "multi": true}, "move many nodes"),
        (doc! {"q": {"_id": 1}, "u": {"$set": {"parent": "a,b"}}}, "is not a valid _id of a node"),
        (doc! {"q": {"_id": 1}, "u": {"$set": {"parent": 0.5}}}, "is not a valid _id of a node"),
        (doc! {"q": {"_id": 1}, "u": {"$set": {"path": 7}}}, "of type int"),
        (doc! {"q": {"_id": 1}, "u": [{"$set": {"parent": "$a"}}]}, "aggregation pipeline"),
        (doc! {"q": {"_id": 1}, "u": {"parent": 2}, "collation": {"locale": "de"}}, "collation"),
    ];
    for (statement, why) in rejected {
        check_rejected(TREE, statement, why);
    }
    let rules = rules(&CATEGORIES);
    let root = insert(doc! {"_id": "Books"}, doc! {});
    let Step::Forward { message, .. } = first_step(&rules, &root) else { panic!("a root node was not forwarded") };
    assert_eq!(documents(&message).1, [doc! {"_id": "Books", "path": bson::Bson::Null}]);
}

#[test]
fn an_insert_touches_its_parent_in_one_transaction() {
    let rules = rules(&CATEGORIES);
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {});
    let mut run = PlanRun::new(&rules, &message);
    let (find, (lsid, number, starts)) = run.sent();
    assert_eq!(find.get_document("filter").unwrap(), &doc! {"_id": {"$in": ["Books"]}});
    assert!(starts && run.plan.must_finish());
    let (touch, rest) = run.finds(&[books()]).sent();
    assert_eq!(rest, (lsid, number, false));
    let touches: Vec<_> = touch.get_array("updates").unwrap().iter().map(|u| u.as_document().unwrap()).collect();
    assert_eq!(touches[0].get_document("u").unwrap(), &doc! {"$set": {"_docward_touch": 1}});
    assert_eq!(touches[1].get_document("u").unwrap(), &doc! {"$unset": {"_docward_touch": 1}});
    let (sent, _) = run.receives(doc! {"n": 2, "nModified": 2, "ok": 1.0}).sent();
    let placed = doc! {"_id": "Go", "parent": "Books", "path": ",Books,"};
    assert_eq!(sent, doc! {"insert": "c", "statements": [placed]});
    let (commit, _) = run.receives(doc! {"n": 1, "ok": 1.0}).sent();
    assert_eq!(commit, doc! {"commitTransaction": 1, "writeConcern": {"w": "majority"}});
    let durable = doc! {"code": 64, "errmsg": "waiting"};
    run.receives(doc! {"ok": 1.0, "writeConcernError": durable.clone()});
    assert_eq!(run.reply(), doc! {"n": 1, "writeConcernError": durable, "ok": 1.0});
    assert_eq!(run.client_state.own.last_number, 1);
}

#[test]
fn a_write_conflict_restarts_the_transaction_under_the_next_number() {
    let rules = rules(&CATEGORIES);
    let lsid = doc! {"id": bson::Uuid::from_bytes([1; 16])};
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {"lsid": lsid.clone(), "txnNumber": 5i64});
    let mut run = PlanRun::new(&rules, &message);
    let (_, (client_state, number, _)) = run.sent();
    assert_ne!(client_state, lsid);
    assert_eq!(number, 5 << 10);
    let (_, again) = run.finds(&[books()]).receives(conflict()).resumes().sent();
    assert_eq!(again, (client_state, number + 1, true));
    // A rejection aborts the transaction.
    let (abort, _) = run.finds(&[]).sent();
    assert_eq!(abort, doc! {"abortTransaction": 1});
    let reply = run.receives(doc! {"ok": 1.0}).reply();
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!((error.get_i32("code").unwrap(), reply.get_i32("n").unwrap()), (121, 0));
    assert!(error.get_str("errmsg").unwrap().contains("its parent does not exist"), "{error}");
}

/// A concurrent upsert causes a write conflict in the transaction's snapshot. A duplicate key error would recur in
/// every attempt.
#[test]
fn a_duplicate_key_error_goes_to_the_client_without_a_retry() {
    let rules = rules(&CATEGORIES);
    let error = doc! {
        "index": 0, "code": 11000, "errmsg": "E11000 duplicate key", "keyPattern": {"_id": 1}, "keyValue": {"_id": "Go"},
    };
    let statement = doc! {"q": {"_id": "Go", "x": 5}, "u": {"$set": {"parent": "Books"}}, "upsert": true};
    let message = update(&[statement]);
    let mut run = PlanRun::new(&rules, &message);
    run.finds(&[]).finds(&[books()]).receives(doc! {"n": 2, "nModified": 2, "ok": 1.0});
    let reply = run.receives(doc! {"n": 0, "nModified": 0, "writeErrors": [error.clone()], "ok": 1.0}).reply();
    assert_eq!(reply.get_array("writeErrors").unwrap(), &[error.clone().into()]);
    // findAndModify fails as a whole.
    let mut command = doc! {"findAndModify": "c", "query": {"_id": "Go", "x": 5}, "upsert": true, "$db": "d"};
    command.insert("update", doc! {"$set": {"parent": "Books"}});
    let message = frame(&command, "", &[], 0);
    let mut run = PlanRun::new(&rules, &message);
    run.finds(&[]).finds(&[books()]).receives(doc! {"n": 2, "nModified": 2, "ok": 1.0});
    let mut failure = doc! {"ok": 0.0};
    failure.extend(error);
    assert_eq!(run.receives(failure.clone()).sent().0, doc! {"abortTransaction": 1});
    assert_eq!(run.receives(doc! {"ok": 1.0}).reply(), failure);
}

/// Like the server, docward ends a waiting write when its maxTimeMS is over.
#[test]
fn max_time_limits_all_attempts_together() {
    let rules = rules(&CATEGORIES);
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {"maxTimeMS": 100});
    let mut run = PlanRun::new(&rules, &message);
    let limit = |run: &PlanRun<'_>| run.sent().0.get_i32("maxTimeMS").unwrap();
    assert_eq!(limit(&run), 100);
    run.finds(&[books()]).receives(conflict());
    run.elapsed = Duration::from_millis(70);
    run.resumes();
    assert_eq!(limit(&run), 30);
    // The parent's update, the statement itself, and the wait for the write concern.
    for reply in [doc! {"n": 2, "nModified": 2, "ok": 1.0}, doc! {"n": 1, "ok": 1.0}] {
        if reply.contains_key("nModified") {
            run.finds(&[books()]);
        }
        assert_eq!(limit(&run), 30);
        run.receives(reply);
    }
    assert_eq!(limit(&run), 30);
    run.receives(conflict());
    run.elapsed = Duration::from_millis(101);
    let reply = run.resumes().reply();
    assert_eq!((reply.get_f64("ok").unwrap(), reply.get_i32("code").unwrap()), (0.0, 50));
    assert_eq!(reply.get_str("codeName").unwrap(), "MaxTimeMSExpired");
    // Without a limit it continues, and asks for none.
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {"maxTimeMS": 0});
    let mut run = PlanRun::new(&rules, &message);
    run.elapsed = Duration::from_secs(9);
    run.receives(conflict()).resumes();
    // The deployment may have a default for reads.
    assert_eq!(limit(&run), 0);
}

/// Also those of the commit and of the abort.
#[test]
fn repeats_under_overload_end_with_max_time() {
    let rules = rules(&CATEGORIES);
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {"maxTimeMS": 100});
    let busy =
        || doc! {"ok": 0.0, "code": 462, "errmsg": "busy", "errorLabels": ["SystemOverloadedError", "RetryableError"]};
    let mut run = PlanRun::new(&rules, &message);
    run.finds(&[books()]).receives(doc! {"n": 1, "nModified": 1, "ok": 1.0}).receives(doc! {"n": 1, "ok": 1.0});
    for (elapsed, command) in [(60, "commitTransaction"), (120, "commitTransaction"), (130, "abortTransaction")] {
        assert!(run.sent().0.get_i32(command).is_ok(), "{:?}", run.sent());
        run.receives(busy());
        let Step::Pause(pause) = run.step else { panic!("{:?}", run.step) };
        assert!(pause <= Duration::from_millis(if elapsed == 120 { 40 } else { 100 }), "{elapsed}: {pause:?}");
        run.step = run.plan.next(Input::Paused { elapsed: Duration::from_millis(elapsed) }, &mut run.client_state);
    }
    assert_eq!(run.reply(), busy());
}

#[test]
fn a_committed_write_is_not_repeated() {
    let rules = rules(&CATEGORIES);
    let lsid = doc! {"id": bson::Uuid::from_bytes([1; 16])};
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {"lsid": lsid, "txnNumber": 5i64});
    let mut run = PlanRun::new(&rules, &message);
    let number = run.sent().1.1;
    // The server knows a later attempt, and it was committed.
    run.receives(doc! {"ok": 0.0, "code": 225, "errmsg": "TransactionTooOld"});
    let (abort, (_, last, starts)) = run.sent();
    assert_eq!((abort, last, starts), (doc! {"abortTransaction": 1}, number + 1022, false));
    run.receives(doc! {"ok": 0.0, "code": 251, "errmsg": "NoSuchTransaction"}).resumes();
    let (abort, (_, next, _)) = run.receives(doc! {"ok": 0.0, "code": 117, "errmsg": "in use"}).sent();
    assert_eq!((abort, next), (doc! {"abortTransaction": 1}, number + 1));
    // The client gets the reply after its write concern is satisfied.
    let (commit, _) = run.receives(doc! {"ok": 0.0, "code": 256, "errmsg": "committed"}).sent();
    assert_eq!(commit, doc! {"commitTransaction": 1, "writeConcern": {"w": "majority"}});
    assert_eq!(run.receives(doc! {"ok": 1.0}).reply(), doc! {"n": 1, "ok": 1.0});
    // The session has a newer write, so no attempt can succeed.
    let mut run = PlanRun::new(&rules, &message);
    run.receives(doc! {"ok": 0.0, "code": 225, "errmsg": "TransactionTooOld"});
    run.receives(doc! {"ok": 0.0, "code": 225, "errmsg": "TransactionTooOld"});
    let reply = run.receives(doc! {"ok": 0.0, "code": 225, "errmsg": "TransactionTooOld"}).reply();
    assert_eq!((reply.get_f64("ok").unwrap(), reply.get_i32("code").unwrap()), (0.0, 225));
    // It was not committed: docward uses the next attempt.
    let mut run = PlanRun::new(&rules, &message);
    run.receives(doc! {"ok": 0.0, "code": 117, "errmsg": "in use"});
    let (_, (_, next, starts)) = run.receives(doc! {"ok": 1.0}).resumes().sent();
    assert_eq!((next, starts), (number + 1, true));
}

/// Two processes that carry out the same write abort each other's transactions.
#[test]
fn pauses_grow_when_the_same_write_aborts_the_transaction() {
    let rules = rules(&CATEGORIES);
    let lsid = doc! {"id": bson::Uuid::from_bytes([1; 16])};
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {"lsid": lsid, "txnNumber": 5i64});
    let mut run = PlanRun::new(&rules, &message);
    let mut pause_after = |replies: [Bson; 2]| {
        replies.into_iter().for_each(|reply| _ = run.receives(reply));
        let Step::Pause(pause) = run.step else { panic!("{:?}", run.step) };
        run.resumes();
        pause.as_millis()
    };
    let found = || doc! {"cursor": {"firstBatch": [books()], "id": 0i64, "ns": "d.c"}, "ok": 1.0};
    let conflicts = (0..20).map(|_| pause_after([found(), conflict()])).max().unwrap();
    assert!((1..=32).contains(&conflicts), "{conflicts}");
    for error in [
        doc! {"ok": 0.0, "code": 225, "errmsg": "TransactionTooOld"},
        doc! {"ok": 0.0, "code": 251, "errmsg": "NoSuchTransaction", "errorLabels": ["TransientTransactionError"]},
    ] {
        let pauses: Vec<u128> = (0..20).map(|_| pause_after([found(), error.clone()])).collect();
        assert!(pauses.iter().max() > Some(&100) && pauses.iter().max() <= Some(&256), "{pauses:?}");
    }
    // An attempt that had already ended needs no pause.
    run.receives(doc! {"ok": 0.0, "code": 225, "errmsg": "TransactionTooOld"});
    run.receives(doc! {"ok": 0.0, "code": 251, "errmsg": "NoSuchTransaction"});
    assert!(matches!(run.step, Step::Pause(Duration::ZERO)), "{:?}", run.step);
}

/// A primary that steps down reports that a commit may be rolled back; drivers then retry the write.
#[test]
fn a_commit_error_is_labelled_as_retryable_only_if_a_retry_gets_the_same_reply() {
    let rules = rules(&CATEGORIES);
    let lsid = doc! {"id": bson::Uuid::from_bytes([1; 16])};
    let document = doc! {"_id": "Go", "parent": "Books"};
    let retryable = insert(document.clone(), doc! {"lsid": lsid.clone(), "txnNumber": 5i64});
    let once = insert(document, doc! {});
    let mut upsert = doc! {"update": "c", "$db": "d"};
    upsert.extend(doc! {"lsid": lsid, "txnNumber": 5i64});
    let statement = doc! {"q": {"_id": "Go"}, "u": {"$set": {"parent": "Books"}}, "upsert": true};
    let upsert = frame(&upsert, "updates", &[statement], 0);
    for (message, finds, labelled) in [(&retryable, 1, true), (&once, 1, false), (&upsert, 2, false)] {
        let mut run = PlanRun::new(&rules, message);
        if finds > 1 {
            run.finds(&[]);
        }
        run.finds(&[books()]).receives(doc! {"n": 2, "nModified": 2, "ok": 1.0}).receives(doc! {"n": 1, "ok": 1.0});
        assert_eq!(run.sent().0.get_i32("commitTransaction").unwrap(), 1);
        let interrupted = doc! {"code": 11602, "errmsg": "operation was interrupted"};
        let labels = ["RetryableWriteError"];
        let reply =
            run.receives(doc! {"ok": 1.0, "writeConcernError": interrupted.clone(), "errorLabels": labels}).reply();
        assert_eq!(reply.get_document("writeConcernError").unwrap(), &interrupted);
        assert_eq!(reply.contains_key("errorLabels"), labelled, "{reply}");
    }
}

#[test]
fn inside_a_client_transaction_all_commands_and_errors_belong_to_it() {
    let rules = rules(&CATEGORIES);
    let lsid = doc! {"id": bson::Uuid::from_bytes([1; 16])};
    let client_state = doc! {"lsid": lsid.clone(), "txnNumber": 5i64, "autocommit": false, "startTransaction": true};
    let mut message = doc! {"update": "c", "$db": "d"};
    message.extend(client_state);
    let message = frame(&message, "updates", &[doc! {"q": {"_id": "Go"}, "u": {"$set": {"parent": "Books"}}}], 0);
    let mut run = PlanRun::new(&rules, &message);
    assert_eq!(run.sent().1, (lsid.clone(), 5, true));
    assert!(!run.plan.must_finish());
    run.finds(&[doc! {"_id": "Go", "path": bson::Bson::Null}]);
    assert_eq!(run.sent().1, (lsid, 5, false));
    let changes = run.finds(&[books()]).sent().0;
    let rebase = changes.get_array("updates").unwrap()[2].as_document().unwrap();
    let rest = doc! {"$substrBytes": ["$path", 4, -1]};
    let concat = doc! {"$concat": [{"$literal": ",Books,Go,"}, rest]};
    assert_eq!(
        rebase.get_document("q").unwrap(),
        &doc! {
            "path": {"$gte": ",Go,", "$lt": ",Go-"}, "_id": {"$type": "string"},
            "$comment": "by docward: belongs to a statement",
        }
    );
    assert_eq!(rebase.get_array("u").unwrap(), &[doc! {"$set": {"path": concat}}.into()]);
    let placed = doc! {"q": {"_id": "Go"}, "u": {"$set": {"parent": "Books", "path": ",Books,"}}};
    assert_eq!(run.receives(doc! {"n": 3, "ok": 1.0}).sent().0, doc! {"update": "c", "statements": [placed]});
    assert_eq!(
        run.receives(doc! {"n": 1, "nModified": 1, "ok": 1.0}).reply(),
        doc! {"n": 1, "nModified": 1, "ok": 1.0}
    );

    // The client gets the server's error with its labels.
    let mut run = PlanRun::new(&rules, &message);
    assert_eq!(run.receives(conflict()).reply(), conflict());
    // A rejection aborts the transaction, as a write error of the server does.
    let mut run = PlanRun::new(&rules, &message);
    run.finds(&[doc! {"_id": "Go", "path": bson::Bson::Null}]);
    assert_eq!(run.finds(&[]).sent().0, doc! {"abortTransaction": 1});
}

#[test]
fn deletes_query_children_first() {
    let rules = rules(&CATEGORIES);
    let message = frame(&doc! {"delete": "c", "$db": "d"}, "deletes", &[doc! {"q": {"n": 1}, "limit": 1}], 0);
    let mut run = PlanRun::new(&rules, &message);
    assert_eq!(run.sent().0.get_document("filter").unwrap(), &doc! {"n": 1});
    let (find, _) = run.finds(&[books()]).sent();
    let children = doc! {"path": {"$in": [",Books,"]}, "_id": {"$type": "string"}};
    assert_eq!(find.get_document("filter").unwrap(), &doc! {"$or": [children], "_id": {"$nin": ["Books"]}});
    let narrowed = doc! {"q": {"n": 1, "_id": "Books"}, "limit": 1};
    assert_eq!(run.finds(&[]).sent().0, doc! {"delete": "c", "statements": [narrowed]});
    // A delete that matches nothing is not committed.
    assert_eq!(run.receives(doc! {"n": 0, "ok": 1.0}).sent().0, doc! {"abortTransaction": 1});
    assert_eq!(run.receives(doc! {"ok": 1.0}).reply(), doc! {"n": 0, "ok": 1.0});
}

#[test]
fn a_bulk_write_is_carried_out_op_by_op() {
    let rules = rules(&CATEGORIES);
    let ops = [
        doc! {"insert": 0, "document": {"_id": "Go", "parent": "Books"}},
        doc! {"insert": 0, "document": {"_id": "C"}},
    ];
    let body = doc! {"bulkWrite": 1, "$db": "admin", "nsInfo": [{"ns": "d.c"}]};
    let message = frame(&body, "ops", &ops, 0);
    let mut run = PlanRun::new(&rules, &message);
    assert_eq!(run.sent().0.get_str("find").unwrap(), "c");
    run.finds(&[books()]).receives(doc! {"n": 2, "ok": 1.0});
    let done = || {
        doc! {
            "cursor": {"id": 0i64, "firstBatch": [{"ok": 1.0, "idx": 0, "n": 1}], "ns": "admin.$cmd.bulkWrite"},
            "nErrors": 0, "nInserted": 1, "ok": 1.0,
        }
    };
    assert_eq!(run.receives(done()).sent().0, doc! {"commitTransaction": 1});
    run.receives(doc! {"ok": 1.0});
    assert!(matches!(run.step, Step::Exchange(_)) && !run.plan.must_finish());
    let reply = run.receives(done()).reply();
    assert_eq!((reply.get_i32("nInserted").unwrap(), reply.get_i32("nErrors").unwrap()), (2, 0));
}

/// Servers reject unknown names and fields before they look for the transaction, which then stays open.
#[test]
fn a_transaction_that_a_failed_command_leaves_open_is_aborted() {
    let rules = rules(&CATEGORIES);
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {"nonsense": 1});
    let failure = doc! {"ok": 0.0, "code": 40415, "errmsg": "BSON field 'nonsense' is unknown"};
    // The error occurs at the client's own statement or at an earlier command.
    for done in 0..3 {
        let mut run = PlanRun::new(&rules, &message);
        if done > 0 {
            run.finds(&[books()]);
        }
        if done > 1 {
            run.receives(doc! {"n": 1, "nModified": 1, "ok": 1.0});
        }
        let (end, _) = run.receives(failure.clone()).sent();
        assert_eq!(end.get_i32("abortTransaction").unwrap(), 1, "{done}");
        assert_eq!(run.receives(doc! {"ok": 1.0}).reply(), failure, "{done}");
        assert!(!run.plan.must_finish());
    }
}

#[test]
fn an_upsert_by_its_path_gets_its_parent() {
    let rules = rules(&CATEGORIES);
    let message = update(&[doc! {"q": {"_id": "Go"}, "u": {"$set": {"path": ",Books,", "x": 1}}, "upsert": true}]);
    let mut run = PlanRun::new(&rules, &message);
    run.finds(&[]);
    run.finds(&[books()]);
    let (sent, _) = run.receives(doc! {"n": 1, "nModified": 1, "ok": 1.0}).sent();
    let statement = sent.get_array("statements").unwrap()[0].as_document().unwrap();
    assert_eq!(statement.get_document("u").unwrap(), &doc! {"$set": {"x": 1, "path": ",Books,", "parent": "Books"}});
}
