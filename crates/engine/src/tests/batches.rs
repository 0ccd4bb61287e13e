//! Batches of statements: order, indexes, conflicts, numbers, transactions.

use super::*;

#[test]
fn an_ordered_batch_stops_at_its_first_rejection() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let set = |n: i32| doc! {"q": {"_id": n}, "u": {"$set": {"a": n}}};
    let replace = doc! {"q": {"_id": 9}, "u": {"a": 1}};
    let message = update(&[set(0), set(1), replace.clone(), set(3), replace]);
    let mut client_state = client_state();
    let mut plan = Plan::new(&message, &rules, NOW);
    let Step::Exchange(sent) = next(&mut plan, Input::Start, &mut client_state) else { panic!("nothing sent") };
    assert_eq!(documents(&sent).1, [set(0), set(1)]);
    let server = replies(doc! {"n": 2, "nModified": 1, "opTime": 5, "ok": 1.0});
    let Step::Reply(reply) = next(&mut plan, Input::Reply(server.clone()), &mut client_state) else {
        panic!("no reply")
    };
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
fn an_unordered_batch_continues_and_errors_have_the_clients_indexes() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let set = |n: i32| doc! {"q": {"_id": n}, "u": {"$set": {"a": n}}, "upsert": true};
    let replace = doc! {"q": {"_id": 9}, "u": {"a": 1}};
    let body = doc! {"update": "c", "ordered": false, "txnNumber": 4i64, "lsid": {"id": 1}, "$db": "d"};
    let message = frame(&body, "updates", &[replace.clone(), set(1), replace, set(3)], 0);
    let mut client_state = client_state();
    let mut plan = Plan::new(&message, &rules, NOW);
    let Step::Exchange(sent) = next(&mut plan, Input::Start, &mut client_state) else { panic!("nothing sent") };
    let (sent_body, sent) = documents(&sent);
    assert_eq!(sent, [set(1)]);
    assert_eq!(sent_body.get_array("stmtIds").unwrap(), &vec![1.into()]);
    let errors =
        doc! {"n": 0, "nModified": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "dup"}], "ok": 1.0};
    let Step::Exchange(sent) = next(&mut plan, Input::Reply(replies(errors)), &mut client_state) else {
        panic!("it stops at the error")
    };
    let (sent_body, sent) = documents(&sent);
    assert_eq!(sent, [set(3)]);
    assert_eq!(sent_body.get_array("stmtIds").unwrap(), &vec![3.into()]);
    let server = replies(doc! {
        "n": 1, "nModified": 0, "upserted": [{"index": 0, "_id": 3}], "retriedStmtIds": [3], "ok": 1.0,
    });
    let Step::Reply(reply) = next(&mut plan, Input::Reply(server.clone()), &mut client_state) else {
        panic!("no reply")
    };
    let (reply, _) = documents(&reply);
    let error = |at: usize| reply.get_array("writeErrors").unwrap()[at].as_document().unwrap();
    let found: Vec<_> =
        (0..3).map(|at| (error(at).get_i32("index").unwrap(), error(at).get_i32("code").unwrap())).collect();
    assert_eq!(found, [(0, 121), (1, 11000), (2, 121)]);
    assert_eq!(reply.get_array("upserted").unwrap(), &vec![doc! {"index": 3, "_id": 3}.into()]);
    assert_eq!(reply.get_array("retriedStmtIds").unwrap(), &vec![3.into()]);
}

#[test]
fn a_checked_replacement_that_matches_nothing_fails_alone() {
    let rules = rules(&[("d.c", "replacement: { policy: check_version, version: v }")]);
    let replace = |v: i32| doc! {"q": {"_id": 1}, "u": {"v": v}};
    let set = doc! {"q": {"_id": 2}, "u": {"$set": {"a": 1}, "$inc": {"v": 1}}};
    let body = doc! {"update": "c", "ordered": false, "$db": "d"};
    let message = frame(&body, "updates", &[replace(1), set.clone(), replace(2)], 0);
    let mut client_state = client_state();
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
        match next(&mut plan, input, &mut client_state) {
            Step::Exchange(message) => {
                sent.push(documents(&message).1);
                input = Input::Reply(server.next().unwrap().to_vec());
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
fn a_batch_gets_its_numbers_in_document_order_from_one_reservation() {
    let rules =
        rules(&[("d.*", "sequence: { field: no, counter: c, collection: k.counters, block: 5, start: after_max }")]);
    let body = doc! {"insert": "c", "$db": "d"};
    let message = frame(&body, "documents", &[doc! {"a": 1}, doc! {"no": 7}, doc! {"a": 2}], 0);
    let mut client_state = client_state();
    let mut plan = Plan::new(&message, &rules, NOW);
    let Step::Lookup(Lookup::Numbers(request)) = next(&mut plan, Input::Start, &mut client_state) else {
        panic!("no request for numbers")
    };
    let counter = &request.counter;
    assert_eq!((&*counter.database, &*counter.collection, request.count, request.block), ("k", "counters", 2, 5));
    let found = Input::Found(Ok(LookupResult::Numbers(vec![4, 5])));
    let Step::Forward { message, .. } = plan.next(found, &mut client_state) else { panic!("not sent") };
    assert_eq!(documents(&message).1, [doc! {"a": 1, "no": 4}, doc! {"no": 7}, doc! {"a": 2, "no": 5}]);
}

#[test]
fn a_failed_reservation_is_reported() {
    let rules = rules(&[("d.c", "sequence: { field: no, counter: c }")]);
    let reply = |fields: bson::Document, error: LookupError| {
        let mut command = doc! {"insert": "c", "$db": "d"};
        command.extend(fields);
        let message = frame(&command, "documents", &[doc! {"a": 1}], 0);
        let mut plan = Plan::new(&message, &rules, NOW);
        plan.next(Input::Start, &mut client_state());
        match plan.next(Input::Found(Err(error)), &mut client_state()) {
            Step::Reply(reply) => documents(&reply).0,
            step => panic!("{step:?}"),
        }
    };
    let error = reply(doc! {}, LookupError::Permanent("seq is a string".into()));
    let error = error.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert!(error.get_str("errmsg").unwrap().contains("seq is a string"), "{error}");
    // A driver sends it again if it has numbered it, or the transaction.
    let session = doc! { "id": bson::Uuid::from_bytes([1; 16]) };
    let numbered = doc! { "lsid": session, "txnNumber": 1_i64 };
    let mut in_transaction = numbered.clone();
    in_transaction.insert("autocommit", false);
    let label = |label: &str| Some(vec![bson::Bson::from(label)]);
    for (fields, labels) in [
        (doc! {}, None),
        (numbered, label("RetryableWriteError")),
        (in_transaction, label("TransientTransactionError")),
    ] {
        let error = reply(fields, LookupError::Unavailable("no primary".into()));
        assert_eq!(error.get_i32("code").unwrap(), 6);
        assert_eq!(error.get_str("errmsg").unwrap(), "docward: no number could be reserved: no primary");
        assert_eq!(error.get_array("errorLabels").ok(), labels.as_ref());
    }
}

#[test]
fn a_duplicate_optimistic_number_is_retried_from_the_failed_statement() {
    let rules = rules(&[("d.c", "sequence: { field: no, strategy: optimistic }")]);
    let message = frame(
        &doc! {"insert": "c", "ordered": false, "$db": "d"},
        "documents",
        &[doc! {"a": 1}, doc! {"a": 2}, doc! {"a": 3}],
        0,
    );
    let mut client_state = client_state();
    let mut plan = Plan::new(&message, &rules, NOW);
    let maximum = |plan: &mut Plan<'_>, input: Input, client_state: &mut ClientState, value: i64| {
        assert!(matches!(plan.next(input, client_state), Step::Lookup(Lookup::Maximum(_))));
        match plan.next(Input::Found(Ok(LookupResult::Maximum(Some(value)))), client_state) {
            Step::Exchange(sent) => documents(&sent),
            other => panic!("{other:?}"),
        }
    };
    let (body, sent) = maximum(&mut plan, Input::Start, &mut client_state, 5);
    assert_eq!(sent, [doc! {"a": 1, "no": 6}, doc! {"a": 2, "no": 7}, doc! {"a": 3, "no": 8}]);
    assert!(!body.contains_key("ordered"), "an optimistic run stops at its first error");
    let duplicate = |index: i32, key: &str, value: i32| {
        doc! {"index": index, "code": 11000, "keyPattern": {key: 1}, "keyValue": {key: value}, "errmsg": "dup"}
    };
    let taken = replies(doc! {"n": 1, "writeErrors": [duplicate(1, "no", 7)], "ok": 1.0});
    let (_, sent) = maximum(&mut plan, Input::Reply(taken.clone()), &mut client_state, 7);
    assert_eq!(sent, [doc! {"a": 2, "no": 8}, doc! {"a": 3, "no": 9}]);
    // A duplicate of another value than docward's number is reported; the number goes to the next document.
    let own = replies(doc! {"n": 0, "writeErrors": [duplicate(0, "no", 3)], "ok": 1.0});
    let (_, sent) = maximum(&mut plan, Input::Reply(own.clone()), &mut client_state, 7);
    assert_eq!(sent, [doc! {"a": 3, "no": 8}]);
    let done = replies(doc! {"n": 1, "ok": 1.0});
    let Step::Reply(reply) = plan.next(Input::Reply(done.clone()), &mut client_state) else { panic!("no reply") };
    let (reply, _) = documents(&reply);
    assert_eq!(reply.get_i32("n").unwrap(), 2);
    assert_eq!(reply.get_array("writeErrors").unwrap()[0].as_document().unwrap().get_i32("index").unwrap(), 1);
}

#[test]
fn an_error_of_a_statement_that_was_not_sent_is_not_taken_for_success() {
    let rules = rules(&[("d.c", "sequence: { field: no, strategy: optimistic }")]);
    for index in [1, 2, i32::MAX, -1] {
        let message = frame(&doc! {"insert": "c", "$db": "d"}, "documents", &[doc! {"a": 1}], 0);
        let mut client_state = client_state();
        let mut plan = Plan::new(&message, &rules, NOW);
        plan.next(Input::Start, &mut client_state);
        plan.next(Input::Found(Ok(LookupResult::Maximum(Some(5)))), &mut client_state);
        let error = doc! {"index": index, "code": 11000, "keyValue": {"no": 6}, "errmsg": "dup"};
        let taken = replies(doc! {"n": 0, "writeErrors": [error], "ok": 1.0});
        assert!(matches!(plan.next(Input::Reply(taken), &mut client_state), Step::Close(_)), "{index}");
    }
    // The same in a check of what two statements match.
    let rules = self::rules(&[("d.c", "replacement: {}")]);
    let replacement = |id: i32| doc! {"q": {"a": id}, "u": {"a": id}, "upsert": true};
    let message = frame(&doc! {"update": "c", "$db": "d"}, "updates", &[replacement(1), replacement(2)], 0);
    let mut client_state = client_state();
    let mut plan = Plan::new(&message, &rules, NOW);
    let Step::Exchange(check) = plan.next(Input::Start, &mut client_state) else { panic!("no match check") };
    assert_eq!(documents(&check).0.get_array("updates").unwrap().len(), 2);
    let odd = replies(doc! {"n": 0, "writeErrors": [{"code": 66}, {"index": 1, "code": 66}], "ok": 1.0});
    assert!(matches!(plan.next(Input::Reply(odd), &mut client_state), Step::Close(_)));
}

#[test]
fn a_rejection_aborts_the_transaction_on_the_server() {
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
    let mut client_state = client_state();

    let first = transaction(true, std::slice::from_ref(&replace));
    let mut plan = Plan::new(&first, &rules, NOW);
    let Step::Exchange(check) = plan.next(Input::Start, &mut client_state) else { panic!("no match check") };
    assert!(documents(&check).0.get_bool("startTransaction").unwrap(), "the match check starts the transaction");
    let found = replies(doc! {"cursor": {"id": 0i64, "firstBatch": [{"_id": 1}]}, "ok": 1.0});
    let Step::Exchange(abort) = plan.next(Input::Reply(found.clone()), &mut client_state) else {
        panic!("not aborted")
    };
    assert!(documents(&abort).0.contains_key("abortTransaction"));

    let later = transaction(false, std::slice::from_ref(&replace));
    let mut plan = Plan::new(&later, &rules, NOW);
    let Step::Exchange(abort) = next(&mut plan, Input::Start, &mut client_state) else { panic!("not aborted") };
    let (abort, _) = documents(&abort);
    assert_eq!((abort.get_i32("abortTransaction").unwrap(), abort.get_i64("txnNumber").unwrap()), (1, 3));
    let failed = replies(doc! {"ok": 0.0, "code": 251});
    assert!(matches!(plan.next(Input::Reply(failed.clone()), &mut client_state), Step::Reply(_)));

    // Inside a transaction even an unordered batch stops at its first error.
    let mixed = transaction(true, &[set.clone(), replace, set.clone()]);
    let mut plan = Plan::new(&mixed, &rules, NOW);
    let Step::Exchange(sent) = next(&mut plan, Input::Start, &mut client_state) else { panic!("nothing sent") };
    assert_eq!(documents(&sent).1, [set]);
    let server = replies(doc! {"n": 1, "nModified": 1, "ok": 1.0});
    let Step::Exchange(abort) = next(&mut plan, Input::Reply(server.clone()), &mut client_state) else {
        panic!("not aborted")
    };
    assert!(documents(&abort).0.contains_key("abortTransaction"));
}

/// Documents with and without a numeric version are updated one kind after the other; the client gets one result.
#[test]
fn the_parts_of_a_bulk_write_operation_have_one_result() {
    let rules = rules(&[("d.c", "replacement: { policy: check_version, version: v }")]);
    let set = doc! {"update": 0, "filter": {}, "updateMods": {"$set": {"a": 1}}, "multi": true};
    let insert = doc! {"insert": 0, "document": {"_id": 9}};
    let body = doc! {"bulkWrite": 1, "ops": [insert, set], "nsInfo": [{"ns": "d.c"}], "$db": "admin"};
    let message = frame(&body, "", &[], 0);
    let mut client_state = client_state();
    let mut plan = Plan::new(&message, &rules, NOW);
    let result = |results: Vec<Bson>, matched: i32, inserted: i32| {
        replies(doc! {
            "cursor": {"id": 0i64, "firstBatch": results, "ns": "admin.$cmd.bulkWrite"}, "nErrors": 0,
            "nInserted": inserted, "nMatched": matched, "nModified": matched, "nUpserted": 0, "nDeleted": 0, "ok": 1.0,
        })
    };
    let many = |n: i32| result(vec![doc! {"ok": 1.0, "idx": 0, "n": n, "nModified": n}], n, 0);
    let server = [result(vec![doc! {"ok": 1.0, "idx": 0, "n": 1}], 0, 1), many(2), many(3)];
    let mut server = server.iter();
    let mut input = Input::Start;
    let reply = loop {
        match next(&mut plan, input, &mut client_state) {
            Step::Exchange(_) => input = Input::Reply(server.next().unwrap().to_vec()),
            Step::Reply(reply) => break documents(&reply).0,
            other => panic!("{other:?}"),
        }
    };
    assert!(server.next().is_none());
    let results = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let counts: Vec<_> = results.iter().map(|r| r.as_document().unwrap()).collect();
    assert_eq!(counts.len(), 2, "{reply}");
    assert_eq!((counts[1].get_i32("idx").unwrap(), counts[1].get_i32("n").unwrap()), (1, 5));
    assert_eq!((reply.get_i32("nMatched").unwrap(), reply.get_i32("nInserted").unwrap()), (5, 1));
}

/// Drivers retry a write only if the error has the label, and the server does not add it to errors of a find.
#[test]
fn a_step_down_during_a_match_check_is_retryable_if_the_write_is() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let save = doc! {"q": {"_id": 1}, "u": {"a": 1}};
    let number = doc! {"lsid": {"id": 1}, "txnNumber": 5i64};
    let in_transaction = doc! {"lsid": {"id": 1}, "txnNumber": 5i64, "autocommit": false};
    let labels_of =
        [(doc! {}, None), (number, Some("RetryableWriteError")), (in_transaction, Some("TransientTransactionError"))];
    for (session_fields, expected) in labels_of {
        let mut body = doc! {"update": "c", "$db": "d"};
        body.extend(session_fields);
        let message = frame(&body, "updates", std::slice::from_ref(&save), 0);
        let mut plan = Plan::new(&message, &rules, NOW);
        let step = plan.next(Input::Start, &mut client_state());
        assert!(matches!(step, Step::Exchange(_)) && plan.awaits_match_check(), "{step:?}");
        let gone = replies(doc! {"ok": 0.0, "code": 13435, "errmsg": "not primary and secondaryOk=false"});
        let Step::Reply(reply) = plan.next(Input::Reply(gone.clone()), &mut client_state()) else { panic!("no reply") };
        let reply = documents(&reply).0;
        // As directly: the write has no read preference.
        assert_eq!((reply.get_i32("code").unwrap(), reply.get_str("errmsg").unwrap()), (10107, "not primary"));
        let labels = reply.get_array("errorLabels").map(|labels| labels[0].as_str().unwrap()).ok();
        assert_eq!(labels, expected, "{body}: {reply}");
    }
}

#[test]
fn a_step_down_during_a_check_of_many_is_retryable_if_the_write_is() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let replace = doc! {"q": {"_id": 9}, "u": {"a": 1}};
    let gone = replies(doc! {"ok": 0.0, "code": 10107, "errmsg": "not primary"});
    for retryable in [true, false] {
        let mut body = doc! {"update": "c", "ordered": false, "$db": "d"};
        if retryable {
            body.extend(doc! {"txnNumber": 4i64, "lsid": {"id": 1}});
        }
        let message = frame(&body, "updates", &[replace.clone(), replace.clone()], 0);
        let mut client_state = client_state();
        let mut plan = Plan::new(&message, &rules, NOW);
        let Step::Exchange(check) = plan.next(Input::Start, &mut client_state) else { panic!("nothing sent") };
        let (check, _) = documents(&check);
        assert_eq!(check.get_array("updates").unwrap().len(), 2);
        assert!(!check.contains_key("txnNumber"));
        let Step::Reply(reply) = plan.next(Input::Reply(gone.clone()), &mut client_state) else { panic!("no reply") };
        let (reply, _) = documents(&reply);
        assert_eq!(reply.get_i32("code").unwrap(), 10107);
        assert_eq!(reply.contains_key("errorLabels"), retryable);
    }
}

/// An upsert with this filter, and a rule that adds a condition to it.
fn limited_upsert(filter: bson::Document) -> (RuleSet, Vec<u8>) {
    let message = update(&[doc! {"q": filter, "u": {"$inc": {"n": 1}}, "upsert": true}]);
    (rules(&[("d.c", "bounds: { field: n, max: 10 }")]), message)
}

/// The server's reply to an insert that collides with this key of a stored document.
fn collision(key: &str, value: impl Into<bson::Bson>) -> bson::Document {
    let error = doc! {
        "index": 0, "code": 11000, "keyPattern": {key: 1}, "keyValue": {key: value.into()}, "errmsg": "dup",
    };
    doc! {"n": 0, "writeErrors": [error], "ok": 1.0}
}

/// Sends an upsert whose condition no document satisfies; returns the step after the upsert has collided with this key.
fn after_collision(filter: bson::Document, key: &str, value: impl Into<bson::Bson>) -> Option<String> {
    let (rules, message) = limited_upsert(filter);
    let collision = collision(key, value);
    let nothing = doc! {"cursor": {"id": 0i64, "ns": "d.c", "firstBatch": []}, "ok": 1.0};
    let mut client_state = client_state();
    let mut plan = Plan::new(&message, &rules, NOW);
    let mut step = in_turns(&mut plan, Input::Start, &mut client_state);
    for (name, reply) in
        [("update", doc! {"n": 0, "nModified": 0, "ok": 1.0}), ("find", nothing), ("update", collision)]
    {
        let Step::Exchange(sent) = step else { panic!("no {name}: {step:?}") };
        assert!(documents(&sent).0.contains_key(name), "{name}");
        step = in_turns(&mut plan, Input::Reply(replies(reply)), &mut client_state);
    }
    match step {
        Step::Exchange(sent) => documents(&sent).0.keys().next().cloned(),
        Step::Reply(reply) => {
            assert_eq!(documents(&reply).0.get_array("writeErrors").unwrap().len(), 1);
            None
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_upsert_updates_a_document_that_another_client_inserts_before_the_match_check() {
    let (rules, message) = limited_upsert(doc! {"_id": 1});
    let found = doc! {"cursor": {"id": 0i64, "ns": "d.c", "firstBatch": [{"_id": 1}]}, "ok": 1.0};
    let mut client_state = client_state();
    let mut plan = Plan::new(&message, &rules, NOW);
    let mut step = in_turns(&mut plan, Input::Start, &mut client_state);
    for (name, reply) in [
        ("update", doc! {"n": 0, "nModified": 0, "ok": 1.0}),
        ("find", found),
        ("update", doc! {"n": 1, "nModified": 1, "ok": 1.0}),
    ] {
        let Step::Exchange(sent) = step else { panic!("no {name}: {step:?}") };
        assert!(documents(&sent).0.contains_key(name), "{name}");
        step = in_turns(&mut plan, Input::Reply(replies(reply)), &mut client_state);
    }
    let Step::Reply(reply) = step else { panic!("no reply: {step:?}") };
    assert_eq!(documents(&reply).0.get_i32("n").unwrap(), 1);
}

#[test]
fn only_a_collision_with_the_document_of_the_filter_is_checked_again() {
    let id = || doc! {"_id": 1};
    assert_eq!(after_collision(id(), "_id", 1).as_deref(), Some("find"), "another client has inserted it");
    assert_eq!(after_collision(id(), "_id", 1_i64).as_deref(), Some("find"), "the same number");
    assert_eq!(after_collision(id(), "sku", 1), None, "the server's error, at once");
    assert_eq!(after_collision(doc! {"sku": "a"}, "sku", "b"), None, "the update sets another value");
}

/// The number of commands after an upsert has collided with this key, and no document matches its filter.
fn commands_after_collision(filter: bson::Document) -> usize {
    let (rules, message) = limited_upsert(filter);
    let collision = collision("_id", 1);
    let (mut client_state, mut sent, mut collided) = (client_state(), 0, 0);
    let mut plan = Plan::new(&message, &rules, NOW);
    let mut step = in_turns(&mut plan, Input::Start, &mut client_state);
    while let Step::Exchange(command) = step {
        let command = documents(&command);
        let is_insert = command.1.first().is_some_and(|update| update.get_bool("upsert").unwrap_or(false));
        let reply = match command.0.contains_key("find") {
            true => doc! {"cursor": {"id": 0i64, "ns": "d.c", "firstBatch": []}, "ok": 1.0},
            false if is_insert => collision.clone(),
            false => doc! {"n": 0, "nModified": 0, "ok": 1.0},
        };
        sent += usize::from(collided > 0);
        collided += usize::from(is_insert);
        step = in_turns(&mut plan, Input::Reply(replies(reply)), &mut client_state);
    }
    sent
}

#[test]
fn a_collision_is_final_if_the_filter_has_another_condition() {
    assert_eq!(commands_after_collision(doc! {"_id": 1, "x": 5}), 1, "the match check");
    assert!(commands_after_collision(doc! {"_id": 1}) > 1, "others may delete the document each time");
}

/// Returns a batch of statements that the rule increments, and the reply with which the server fails the first.
fn failed_increment(statements: usize) -> (Vec<u8>, Vec<u8>) {
    let set = |n: usize| doc! {"q": {"_id": n as i32}, "u": {"$set": {"a": 1}}};
    let body = doc! {"update": "c", "ordered": false, "$db": "d"};
    let message = frame(&body, "updates", &(0..statements).map(set).collect::<Vec<_>>(), 0);
    let error = doc! {"index": 0, "code": 14, "errmsg": "Cannot apply $inc to a value of non-numeric type"};
    (message, replies(doc! {"n": 0, "nModified": 0, "writeErrors": [error], "ok": 1.0}))
}

#[test]
fn a_failed_increment_is_repeated_before_later_statements() {
    let rules = rules(&[("d.c", "replacement: { policy: check_version, version: v }")]);
    let (message, failed) = failed_increment(1000);
    let mut client_state = client_state();
    let mut plan = Plan::new(&message, &rules, NOW);
    let mut sent = Vec::new();
    let mut input = Input::Start;
    let reply = loop {
        match in_turns(&mut plan, input, &mut client_state) {
            Step::Exchange(message) if plan.awaits_match_check() => {
                let stored = doc! {"_id": 0, "v": "text"};
                assert_eq!(documents(&message).0.get_str("find").unwrap(), "c");
                input = Input::Reply(replies(doc! {"cursor": {"id": 0i64, "firstBatch": [stored]}, "ok": 1.0}));
            }
            Step::Exchange(message) => {
                let (body, statements) = documents(&message);
                let n = statements.len() as i32;
                let first = statements[0].get_document("q").unwrap().get_i32("_id").ok();
                sent.push((first, n, body.get_bool("ordered").unwrap_or(true)));
                let done = replies(doc! {"n": n, "nModified": n, "ok": 1.0});
                input = Input::Reply(if sent.len() == 1 { failed.clone() } else { done });
            }
            Step::Reply(reply) => break documents(&reply).0,
            other => panic!("{other:?}"),
        }
    };
    let expected = [(Some(0), 1000, true), (Some(0), 1, false), (Some(1), 128, true), (Some(129), 256, true)];
    assert_eq!(sent[..4], expected);
    assert_eq!(sent[4..], [(Some(385), 512, true), (Some(897), 103, true)]);
    assert_eq!((reply.get_i32("n").unwrap(), reply.get("writeErrors")), (1000, None));
}

/// What an upsert inserts after its unclear check can match the filter of the next one.
#[test]
fn statements_after_an_unclear_check_are_checked_again() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let replace = |n: i32| doc! {"q": {"sku": 1}, "u": {"sku": 1, "n": n}, "upsert": true};
    let body = doc! {"update": "c", "ordered": false, "$db": "d"};
    let message = frame(&body, "updates", &[replace(0), replace(1)], 0);
    let mut client_state = client_state();
    let mut plan = Plan::new(&message, &rules, NOW);
    let mut server = [
        doc! {"n": 0, "writeErrors": [{"index": 0, "code": 96, "errmsg": "other"}], "ok": 1.0},
        doc! {"cursor": {"id": 0i64, "firstBatch": []}, "ok": 1.0},
        doc! {"n": 1, "nModified": 0, "upserted": [{"index": 0, "_id": 5}], "ok": 1.0},
        doc! {"cursor": {"id": 0i64, "firstBatch": [{"_id": 5}]}, "ok": 1.0},
    ]
    .into_iter();
    let (mut sent, mut input) = (Vec::new(), Input::Start);
    let reply = loop {
        match in_turns(&mut plan, input, &mut client_state) {
            Step::Exchange(message) => {
                let (body, statements) = documents(&message);
                sent.push((body.iter().next().unwrap().0.clone(), statements.len()));
                input = Input::Reply(replies(server.next().expect("four commands suffice")));
            }
            Step::Reply(reply) => break documents(&reply).0,
            other => panic!("{other:?}"),
        }
    };
    let names: Vec<&str> = sent.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["update", "find", "update", "find"]);
    let errors = reply.get_array("writeErrors").unwrap();
    let error = errors[0].as_document().unwrap();
    assert_eq!((errors.len(), error.get_i32("index").unwrap(), error.get_i32("code").unwrap()), (1, 1, 121));
}
