//! `tree` as a table, and its transactions as dialogues with a server that is written by hand.

use std::time::Duration;

use super::*;

const TREE: &str = "tree: { path: path, parent: parent }";
const CATEGORIES: [(&str, &str); 1] = [("d.c", TREE)];

/// A plan under way: what it sends is taken apart, what it hears is made up.
struct PlanRun<'p> {
    plan: Plan<'p>,
    session: Session,
    step: Step,
    /// At the end of a pause.
    elapsed: Duration,
}

impl<'p> PlanRun<'p> {
    fn of(rules: &'p RuleSet, message: &'p [u8]) -> Self {
        let mut session = session();
        session.own.id = [7; 16];
        let mut plan = Plan::new(message, rules, NOW);
        let step = plan.next(Input::Start, &mut session);
        Self { plan, session, step, elapsed: Duration::ZERO }
    }

    /// The command that was sent, without its session, and that.
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

    fn hears(&mut self, reply: Bson) -> &mut Self {
        self.step = self.plan.next(Input::Reply(&replies(reply)), &mut self.session);
        self
    }

    fn finds(&mut self, found: &[Bson]) -> &mut Self {
        self.hears(doc! {"cursor": {"firstBatch": found, "id": 0i64, "ns": "d.c"}, "ok": 1.0})
    }

    /// Its pause is over.
    fn waits(&mut self) -> &mut Self {
        assert!(matches!(self.step, Step::Pause(_)), "{:?}", self.step);
        assert!(!self.plan.must_finish());
        self.step = self.plan.next(Input::Paused { elapsed: self.elapsed }, &mut self.session);
        self
    }

    fn reply(&self) -> Bson {
        let Step::Reply(message) = &self.step else { panic!("{:?}", self.step) };
        documents(message).0
    }
}

fn insert(document: Bson, session: Bson) -> Vec<u8> {
    let mut body = doc! {"insert": "c", "$db": "d", "writeConcern": {"w": "majority"}};
    body.extend(session);
    frame(&body, "documents", &[document], 0)
}

fn conflict() -> Bson {
    doc! {"ok": 0.0, "code": 112, "errmsg": "WriteConflict", "errorLabels": ["TransientTransactionError"]}
}

fn books() -> Bson {
    doc! {"_id": "Books", "path": bson::Bson::Null}
}

#[test]
fn what_needs_no_look_is_decided_at_once() {
    check_unchanged(TREE, doc! {"q": {}, "u": {"$set": {"title": 1}}, "multi": true});
    // Without upsert the server ignores it.
    check_unchanged(TREE, doc! {"q": {}, "u": {"$setOnInsert": {"parent": [1], "path": 7}}});
    let rejected = [
        (doc! {"q": {}, "u": {"$set": {"parent": "a"}}, "multi": true}, "move many nodes"),
        (doc! {"q": {"_id": {"$in": [1, 2]}}, "u": {"$set": {"parent": "a"}}, "multi": true}, "move many nodes"),
        (doc! {"q": {"_id": 1}, "u": {"$set": {"parent": "a,b"}}}, "nothing that a node can have"),
        (doc! {"q": {"_id": 1}, "u": {"$set": {"parent": 0.5}}}, "nothing that a node can have"),
        (doc! {"q": {"_id": 1}, "u": {"$set": {"path": 7}}}, "of type int"),
        (doc! {"q": {"_id": 1}, "u": [{"$set": {"parent": "$a"}}]}, "aggregation pipeline"),
        (doc! {"q": {"_id": 1}, "u": {"parent": 2}, "collation": {"locale": "de"}}, "collation"),
    ];
    for (statement, why) in rejected {
        check_rejected(TREE, statement, why);
    }
    let rules = rules(&CATEGORIES);
    let root = insert(doc! {"_id": "Books"}, doc! {});
    let Step::Forward { message, .. } = first_step(&rules, &root) else { panic!("a root needs no parent") };
    assert_eq!(documents(&message).1, [doc! {"_id": "Books", "path": bson::Bson::Null}]);
}

#[test]
fn an_insert_touches_its_parent_in_one_transaction() {
    let rules = rules(&CATEGORIES);
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {});
    let mut dialogue = PlanRun::of(&rules, &message);
    let (find, (lsid, number, starts)) = dialogue.sent();
    assert_eq!(find.get_document("filter").unwrap(), &doc! {"_id": {"$in": ["Books"]}});
    assert!(starts && dialogue.plan.must_finish());
    let (touch, rest) = dialogue.finds(&[books()]).sent();
    assert_eq!(rest, (lsid, number, false));
    let touches: Vec<_> = touch.get_array("updates").unwrap().iter().map(|u| u.as_document().unwrap()).collect();
    assert_eq!(touches[0].get_document("u").unwrap(), &doc! {"$set": {"_docward_touch": 1}});
    assert_eq!(touches[1].get_document("u").unwrap(), &doc! {"$unset": {"_docward_touch": 1}});
    let (sent, _) = dialogue.hears(doc! {"n": 2, "nModified": 2, "ok": 1.0}).sent();
    let placed = doc! {"_id": "Go", "parent": "Books", "path": ",Books,"};
    assert_eq!(sent, doc! {"insert": "c", "statements": [placed]});
    let (commit, _) = dialogue.hears(doc! {"n": 1, "ok": 1.0}).sent();
    assert_eq!(commit, doc! {"commitTransaction": 1, "writeConcern": {"w": "majority"}});
    let durable = doc! {"code": 64, "errmsg": "waiting"};
    dialogue.hears(doc! {"ok": 1.0, "writeConcernError": durable.clone()});
    assert_eq!(dialogue.reply(), doc! {"n": 1, "writeConcernError": durable, "ok": 1.0});
    assert_eq!(dialogue.session.own.last_number, 1);
}

#[test]
fn who_meets_another_write_begins_anew_under_the_next_number() {
    let rules = rules(&CATEGORIES);
    let lsid = doc! {"id": bson::Uuid::from_bytes([1; 16])};
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {"lsid": lsid.clone(), "txnNumber": 5i64});
    let mut dialogue = PlanRun::of(&rules, &message);
    let (_, (session, number, _)) = dialogue.sent();
    assert_ne!(session, lsid);
    assert_eq!(number, 5 << 10);
    let (_, again) = dialogue.finds(&[books()]).hears(conflict()).waits().sent();
    assert_eq!(again, (session, number + 1, true));
    // A rejection ends the transaction.
    let (abort, _) = dialogue.finds(&[]).sent();
    assert_eq!(abort, doc! {"abortTransaction": 1});
    let reply = dialogue.hears(doc! {"ok": 1.0}).reply();
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!((error.get_i32("code").unwrap(), reply.get_i32("n").unwrap()), (121, 0));
    assert!(error.get_str("errmsg").unwrap().contains("its parent does not exist"), "{error}");
}

/// In a transaction's snapshot a faster upsert is a write conflict; a duplicate key is there for every attempt.
#[test]
fn a_duplicate_key_is_the_clients_at_once() {
    let rules = rules(&CATEGORIES);
    let error = doc! {
        "index": 0, "code": 11000, "errmsg": "E11000 duplicate key", "keyPattern": {"_id": 1}, "keyValue": {"_id": "Go"},
    };
    let statement = doc! {"q": {"_id": "Go", "x": 5}, "u": {"$set": {"parent": "Books"}}, "upsert": true};
    let message = update(&[statement]);
    let mut dialogue = PlanRun::of(&rules, &message);
    dialogue.finds(&[]).finds(&[books()]).hears(doc! {"n": 2, "nModified": 2, "ok": 1.0});
    let reply = dialogue.hears(doc! {"n": 0, "nModified": 0, "writeErrors": [error.clone()], "ok": 1.0}).reply();
    assert_eq!(reply.get_array("writeErrors").unwrap(), &[error.clone().into()]);
    // findAndModify fails as a whole.
    let mut command = doc! {"findAndModify": "c", "query": {"_id": "Go", "x": 5}, "upsert": true, "$db": "d"};
    command.insert("update", doc! {"$set": {"parent": "Books"}});
    let message = frame(&command, "", &[], 0);
    let mut dialogue = PlanRun::of(&rules, &message);
    dialogue.finds(&[]).finds(&[books()]).hears(doc! {"n": 2, "nModified": 2, "ok": 1.0});
    let mut failure = doc! {"ok": 0.0};
    failure.extend(error);
    assert_eq!(dialogue.hears(failure.clone()).sent().0, doc! {"abortTransaction": 1});
    assert_eq!(dialogue.hears(doc! {"ok": 1.0}).reply(), failure);
}

/// The server would end a write that waits for others when its maxTimeMS is over.
#[test]
fn the_clients_time_limit_holds_for_all_attempts_together() {
    let rules = rules(&CATEGORIES);
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {"maxTimeMS": 100});
    let mut dialogue = PlanRun::of(&rules, &message);
    let limit = |dialogue: &PlanRun<'_>| dialogue.sent().0.get_i32("maxTimeMS").unwrap();
    assert_eq!(limit(&dialogue), 100);
    dialogue.finds(&[books()]).hears(conflict());
    dialogue.elapsed = Duration::from_millis(70);
    dialogue.waits();
    assert_eq!(limit(&dialogue), 30);
    // The touch, the statement itself, and the wait for the write concern.
    for reply in [doc! {"n": 2, "nModified": 2, "ok": 1.0}, doc! {"n": 1, "ok": 1.0}] {
        if reply.contains_key("nModified") {
            dialogue.finds(&[books()]);
        }
        assert_eq!(limit(&dialogue), 30);
        dialogue.hears(reply);
    }
    assert_eq!(limit(&dialogue), 30);
    dialogue.hears(conflict());
    dialogue.elapsed = Duration::from_millis(101);
    let reply = dialogue.waits().reply();
    assert_eq!((reply.get_f64("ok").unwrap(), reply.get_i32("code").unwrap()), (0.0, 50));
    assert_eq!(reply.get_str("codeName").unwrap(), "MaxTimeMSExpired");
    // Without a limit it goes on.
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {"maxTimeMS": 0});
    let mut dialogue = PlanRun::of(&rules, &message);
    dialogue.elapsed = Duration::from_secs(9);
    dialogue.hears(conflict()).waits();
    assert!(dialogue.sent().0.get("maxTimeMS").is_none());
}

#[test]
fn a_write_that_was_done_is_not_done_again() {
    let rules = rules(&CATEGORIES);
    let lsid = doc! {"id": bson::Uuid::from_bytes([1; 16])};
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {"lsid": lsid, "txnNumber": 5i64});
    let mut dialogue = PlanRun::of(&rules, &message);
    let number = dialogue.sent().1.1;
    // A later attempt than the first is known, and it was committed.
    dialogue.hears(doc! {"ok": 0.0, "code": 225, "errmsg": "TransactionTooOld"}).waits();
    let (abort, (_, next, _)) = dialogue.hears(doc! {"ok": 0.0, "code": 117, "errmsg": "in use"}).sent();
    assert_eq!((abort, next), (doc! {"abortTransaction": 1}, number + 1));
    // The client is told when it is as durable as it wants it.
    let (commit, _) = dialogue.hears(doc! {"ok": 0.0, "code": 256, "errmsg": "committed"}).sent();
    assert_eq!(commit, doc! {"commitTransaction": 1, "writeConcern": {"w": "majority"}});
    assert_eq!(dialogue.hears(doc! {"ok": 1.0}).reply(), doc! {"n": 1, "ok": 1.0});
    // It was not: the next attempt is ours.
    let mut dialogue = PlanRun::of(&rules, &message);
    dialogue.hears(doc! {"ok": 0.0, "code": 117, "errmsg": "in use"});
    let (_, (_, next, starts)) = dialogue.hears(doc! {"ok": 1.0}).waits().sent();
    assert_eq!((next, starts), (number + 1, true));
}

/// Two docwards that carry out the same write end each other's transactions.
#[test]
fn who_is_ended_by_the_same_write_leaves_it_more_and_more_time() {
    let rules = rules(&CATEGORIES);
    let lsid = doc! {"id": bson::Uuid::from_bytes([1; 16])};
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {"lsid": lsid, "txnNumber": 5i64});
    let mut dialogue = PlanRun::of(&rules, &message);
    let mut pause_after = |replies: [Bson; 2]| {
        replies.into_iter().for_each(|reply| _ = dialogue.hears(reply));
        let Step::Pause(pause) = dialogue.step else { panic!("{:?}", dialogue.step) };
        dialogue.waits();
        pause.as_millis()
    };
    let found = || doc! {"cursor": {"firstBatch": [books()], "id": 0i64, "ns": "d.c"}, "ok": 1.0};
    let conflicts = (0..20).map(|_| pause_after([found(), conflict()])).max().unwrap();
    assert!((1..=32).contains(&conflicts), "{conflicts}");
    for error in [
        doc! {"ok": 0.0, "code": 225, "errmsg": "TransactionTooOld"},
        doc! {"ok": 0.0, "code": 251, "errmsg": "NoSuchTransaction", "errorLabels": ["TransientTransactionError"]},
    ] {
        let truces: Vec<u128> = (0..20).map(|_| pause_after([found(), error.clone()])).collect();
        assert!(truces.iter().max() > Some(&100) && truces.iter().max() <= Some(&256), "{truces:?}");
    }
    // An attempt that was over before holds nobody up.
    dialogue.hears(doc! {"ok": 0.0, "code": 225, "errmsg": "TransactionTooOld"});
    assert!(matches!(dialogue.step, Step::Pause(Duration::ZERO)), "{:?}", dialogue.step);
}

/// A primary that steps down says of a commit that it may be undone; drivers send the write again.
#[test]
fn a_commit_that_may_be_undone_is_repeated_by_the_driver_if_that_is_answered() {
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
        let mut dialogue = PlanRun::of(&rules, message);
        if finds > 1 {
            dialogue.finds(&[]);
        }
        dialogue.finds(&[books()]).hears(doc! {"n": 2, "nModified": 2, "ok": 1.0}).hears(doc! {"n": 1, "ok": 1.0});
        assert_eq!(dialogue.sent().0.get_i32("commitTransaction").unwrap(), 1);
        let interrupted = doc! {"code": 11602, "errmsg": "operation was interrupted"};
        let labels = ["RetryableWriteError"];
        let reply =
            dialogue.hears(doc! {"ok": 1.0, "writeConcernError": interrupted.clone(), "errorLabels": labels}).reply();
        assert_eq!(reply.get_document("writeConcernError").unwrap(), &interrupted);
        assert_eq!(reply.contains_key("errorLabels"), labelled, "{reply}");
    }
}

#[test]
fn inside_a_transaction_everything_is_the_clients() {
    let rules = rules(&CATEGORIES);
    let lsid = doc! {"id": bson::Uuid::from_bytes([1; 16])};
    let session = doc! {"lsid": lsid.clone(), "txnNumber": 5i64, "autocommit": false, "startTransaction": true};
    let mut message = doc! {"update": "c", "$db": "d"};
    message.extend(session);
    let message = frame(&message, "updates", &[doc! {"q": {"_id": "Go"}, "u": {"$set": {"parent": "Books"}}}], 0);
    let mut dialogue = PlanRun::of(&rules, &message);
    assert_eq!(dialogue.sent().1, (lsid.clone(), 5, true));
    assert!(!dialogue.plan.must_finish());
    dialogue.finds(&[doc! {"_id": "Go", "path": bson::Bson::Null}]);
    assert_eq!(dialogue.sent().1, (lsid, 5, false));
    let changes = dialogue.finds(&[books()]).sent().0;
    let rebase = changes.get_array("updates").unwrap()[2].as_document().unwrap();
    let rest = doc! {"$substrBytes": ["$path", 4, -1]};
    let concat = doc! {"$concat": [{"$literal": ",Books,Go,"}, rest]};
    assert_eq!(
        rebase.get_document("q").unwrap(),
        &doc! {"path": {"$gte": ",Go,", "$lt": ",Go-"}, "_id": {"$type": "string"}}
    );
    assert_eq!(rebase.get_array("u").unwrap(), &[doc! {"$set": {"path": concat}}.into()]);
    let placed = doc! {"q": {"_id": "Go"}, "u": {"$set": {"parent": "Books", "path": ",Books,"}}};
    assert_eq!(dialogue.hears(doc! {"n": 3, "ok": 1.0}).sent().0, doc! {"update": "c", "statements": [placed]});
    assert_eq!(
        dialogue.hears(doc! {"n": 1, "nModified": 1, "ok": 1.0}).reply(),
        doc! {"n": 1, "nModified": 1, "ok": 1.0}
    );

    // The server's error is the client's, label and all.
    let mut dialogue = PlanRun::of(&rules, &message);
    assert_eq!(dialogue.hears(conflict()).reply(), conflict());
    // A rejection ends the transaction, as a write error of the server would.
    let mut dialogue = PlanRun::of(&rules, &message);
    dialogue.finds(&[doc! {"_id": "Go", "path": bson::Bson::Null}]);
    assert_eq!(dialogue.finds(&[]).sent().0, doc! {"abortTransaction": 1});
}

#[test]
fn deletes_look_for_children_first() {
    let rules = rules(&CATEGORIES);
    let message = frame(&doc! {"delete": "c", "$db": "d"}, "deletes", &[doc! {"q": {"n": 1}, "limit": 1}], 0);
    let mut dialogue = PlanRun::of(&rules, &message);
    assert_eq!(dialogue.sent().0.get_document("filter").unwrap(), &doc! {"n": 1});
    let (find, _) = dialogue.finds(&[books()]).sent();
    let children = doc! {"path": {"$in": [",Books,"]}, "_id": {"$type": "string"}};
    assert_eq!(find.get_document("filter").unwrap(), &doc! {"$or": [children], "_id": {"$nin": ["Books"]}});
    let pinned = doc! {"q": {"n": 1, "_id": "Books"}, "limit": 1};
    assert_eq!(dialogue.finds(&[]).sent().0, doc! {"delete": "c", "statements": [pinned]});
    // What was not there to be deleted is not committed.
    assert_eq!(dialogue.hears(doc! {"n": 0, "ok": 1.0}).sent().0, doc! {"abortTransaction": 1});
    assert_eq!(dialogue.hears(doc! {"ok": 1.0}).reply(), doc! {"n": 0, "ok": 1.0});
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
    let mut dialogue = PlanRun::of(&rules, &message);
    assert_eq!(dialogue.sent().0.get_str("find").unwrap(), "c");
    dialogue.finds(&[books()]).hears(doc! {"n": 2, "ok": 1.0});
    let done = || {
        doc! {
            "cursor": {"id": 0i64, "firstBatch": [{"ok": 1.0, "idx": 0, "n": 1}], "ns": "admin.$cmd.bulkWrite"},
            "nErrors": 0, "nInserted": 1, "ok": 1.0,
        }
    };
    assert_eq!(dialogue.hears(done()).sent().0, doc! {"commitTransaction": 1});
    dialogue.hears(doc! {"ok": 1.0});
    assert!(matches!(dialogue.step, Step::Exchange(_)) && !dialogue.plan.must_finish());
    let reply = dialogue.hears(done()).reply();
    assert_eq!((reply.get_i32("nInserted").unwrap(), reply.get_i32("nErrors").unwrap()), (2, 0));
}

/// Servers refuse unknown names and fields before they look for the transaction, which then stays open.
#[test]
fn a_transaction_that_a_refused_command_leaves_open_is_ended() {
    let rules = rules(&CATEGORIES);
    let message = insert(doc! {"_id": "Go", "parent": "Books"}, doc! {"nonsense": 1});
    let refused = doc! {"ok": 0.0, "code": 40415, "errmsg": "BSON field 'nonsense' is unknown"};
    // The client's own statement, or what goes before it.
    for done in 0..3 {
        let mut dialogue = PlanRun::of(&rules, &message);
        if done > 0 {
            dialogue.finds(&[books()]);
        }
        if done > 1 {
            dialogue.hears(doc! {"n": 1, "nModified": 1, "ok": 1.0});
        }
        let (end, _) = dialogue.hears(refused.clone()).sent();
        assert_eq!(end.get_i32("abortTransaction").unwrap(), 1, "{done}");
        assert_eq!(dialogue.hears(doc! {"ok": 1.0}).reply(), refused, "{done}");
        assert!(!dialogue.plan.must_finish());
    }
}

#[test]
fn an_upsert_by_its_path_gets_its_parent() {
    let rules = rules(&CATEGORIES);
    let message = update(&[doc! {"q": {"_id": "Go"}, "u": {"$set": {"path": ",Books,", "x": 1}}, "upsert": true}]);
    let mut dialogue = PlanRun::of(&rules, &message);
    dialogue.finds(&[]);
    dialogue.finds(&[books()]);
    let (sent, _) = dialogue.hears(doc! {"n": 1, "nModified": 1, "ok": 1.0}).sent();
    let statement = sent.get_array("statements").unwrap()[0].as_document().unwrap();
    assert_eq!(statement.get_document("u").unwrap(), &doc! {"$set": {"x": 1, "path": ",Books,", "parent": "Books"}});
}
