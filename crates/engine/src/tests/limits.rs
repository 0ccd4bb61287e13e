//! Statements and messages that rules make too large, and replies that would be too large.

use super::*;
use crate::wire::{MAX_DOCUMENT_LENGTH, MAX_MESSAGE_LENGTH};

const TIMESTAMPS: &str = "timestamps: { source: at }";

fn sized(id: i32, size: usize) -> Bson {
    let mut document = doc! {"_id": id, "at": bson::DateTime::now(), "text": ""};
    let missing = size - bytes(&document).len();
    document.insert("text", "x".repeat(missing));
    document
}

fn insert(documents: &[Bson], flags: u32) -> Vec<u8> {
    frame(&doc! {"insert": "c", "ordered": false, "$db": "d"}, "documents", documents, flags)
}

#[test]
fn a_message_that_a_rule_makes_too_long_is_split_and_gets_one_reply() {
    let rules = rules(&[("d.c", TIMESTAMPS)]);
    let documents: Vec<Bson> = (0..4).map(|id| sized(id, MAX_MESSAGE_LENGTH / 4 - 50)).collect();
    for flags in [0, crate::wire::op_msg::MORE_TO_COME] {
        let message = insert(&documents, flags);
        assert!(message.len() <= MAX_MESSAGE_LENGTH);
        let mut client_state = client_state();
        let mut plan = Plan::new(&message, &rules, NOW);
        let mut step = in_turns(&mut plan, Input::Start, &mut client_state);
        let mut sent = Vec::new();
        while let Step::Exchange(part) = &step {
            assert!(part.len() <= MAX_MESSAGE_LENGTH);
            let (body, documents) = documents_of(part);
            assert_eq!(body.get_str("insert").unwrap(), "c");
            sent.push(documents);
            let server = replies(doc! {"n": sent.last().unwrap().len() as i32, "ok": 1.0});
            step = plan.next(Input::Reply(server.clone()), &mut client_state);
        }
        assert_eq!(sent, [vec![0, 1, 2], vec![3]]);
        match step {
            Step::Reply(reply) if flags == 0 => assert_eq!(super::documents(&reply).0.get_i32("n").unwrap(), 4),
            Step::Silent if flags != 0 => {}
            other => panic!("{other:?}"),
        }
    }
    // Slightly smaller documents fit into one message.
    let fitting: Vec<Bson> = (0..4).map(|id| sized(id, MAX_MESSAGE_LENGTH / 4 - 1000)).collect();
    assert!(matches!(first_step(&rules, &insert(&fitting, 0)), Step::Forward { .. }));
}

/// Returns the body, and the `_id` of each statement.
fn documents_of(message: &[u8]) -> (Bson, Vec<i32>) {
    let (body, documents) = super::documents(message);
    (body, documents.iter().map(|document| document.get_i32("_id").unwrap()).collect())
}

#[test]
fn only_the_statement_that_became_too_large_is_rejected() {
    let rules = rules(&[("d.c", TIMESTAMPS)]);
    let message = insert(&[sized(0, 100), sized(1, MAX_DOCUMENT_LENGTH), sized(2, 100)], 0);
    let mut client_state = client_state();
    let mut plan = Plan::new(&message, &rules, NOW);
    let Step::Exchange(sent) = in_turns(&mut plan, Input::Start, &mut client_state) else { panic!("nothing sent") };
    assert_eq!(documents_of(&sent).1, [0, 2]);
    let noted = plan.take_outcomes();
    assert!(
        noted.iter().any(|noted| noted.kind == OutcomeKind::Reject && noted.reason.contains("16777216 bytes")),
        "{noted:?}"
    );
    let Step::Reply(reply) = plan.next(Input::Reply(replies(doc! {"n": 2, "ok": 1.0})), &mut client_state) else {
        panic!("no reply")
    };
    let (reply, _) = super::documents(&reply);
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap().clone();
    assert_eq!((error.get_i32("index").unwrap(), error.get_i32("code").unwrap()), (1, 121));
    assert!(error.get_str("errmsg").unwrap().contains("'rule-0'"));
    // The server rejects documents that were too large as sent by the client.
    let before = insert(&[sized(1, MAX_DOCUMENT_LENGTH + 1)], 0);
    assert!(matches!(first_step(&rules, &before), Step::Forward { .. }));
}

#[test]
fn a_merged_reply_stays_within_a_document_and_reports_unsent_statements() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let upsert = |id: usize| doc! {"q": {"_id": format!("{id:06}{}", "x".repeat(50_000))}, "u": {"$set": {"a": 1}}, "upsert": true};
    let mut statements: Vec<Bson> = (0..400).map(upsert).collect();
    statements.push(doc! {"q": {"_id": 1}, "u": {"a": 1}});
    for (ordered, reported) in [(true, 1), (false, usize::MAX)] {
        let body = doc! {"update": "c", "ordered": ordered, "$db": "d"};
        let message = frame(&body, "updates", &statements, 0);
        let mut client_state = client_state();
        let mut plan = Plan::new(&message, &rules, NOW);
        let mut step = next(&mut plan, Input::Start, &mut client_state);
        let mut done = 0;
        while let Step::Exchange(part) = &step {
            let (_, sent) = super::documents(part);
            let upserted: Vec<Bson> = sent
                .iter()
                .enumerate()
                .map(|(index, statement)| doc! {"index": index as i32, "_id": statement.get_document("q").unwrap().get("_id").unwrap()})
                .collect();
            done += sent.len();
            let server = replies(doc! {"n": sent.len() as i32, "nModified": 0, "upserted": upserted, "ok": 1.0});
            step = next(&mut plan, Input::Reply(server.clone()), &mut client_state);
        }
        let Step::Reply(reply) = step else { panic!("{step:?}") };
        assert!(reply.len() < MAX_DOCUMENT_LENGTH && done < 400, "{done}");
        let (reply, _) = super::documents(&reply);
        assert_eq!((reply.get_i32("n").unwrap(), reply.get_array("upserted").unwrap().len()), (done as i32, done));
        let errors: Vec<(i32, i32)> = reply
            .get_array("writeErrors")
            .unwrap()
            .iter()
            .map(|error| {
                (
                    error.as_document().unwrap().get_i32("index").unwrap(),
                    error.as_document().unwrap().get_i32("code").unwrap(),
                )
            })
            .collect();
        let mut expected: Vec<(i32, i32)> = (done as i32..400).map(|index| (index, 146)).take(reported).collect();
        if !ordered {
            expected.push((400, 146));
        }
        assert_eq!(errors, expected);
    }
}

#[test]
fn a_read_without_room_for_the_rules_field_is_forwarded_with_a_warning() {
    let rules = rules(&[("d.c", "defaults: { maxTimeMS: 1000 }")]);
    let find = |length: usize| frame(&doc! {"find": "c", "filter": {"a": "x".repeat(length)}, "$db": "d"}, "", &[], 0);
    let limit = crate::wire::MAX_COMMAND_DOCUMENT_LENGTH;
    let long = find(limit - 100);
    let mut plan = Plan::new(&long, &rules, NOW);
    let step = plan.next(Input::Start, &mut client_state());
    assert!(matches!(step, Step::ForwardOriginal { expects_reply: true }), "{step:?}");
    let outcomes: Vec<_> = plan.take_outcomes().into_iter().map(|one| (one.kind, one.reason.into_owned())).collect();
    let reason = "the command has no room for the field 'maxTimeMS' that the rule adds".to_owned();
    assert_eq!(outcomes, [(OutcomeKind::Warn, reason)]);
    assert!(matches!(first_step(&rules, &find(limit - 1000)), Step::Forward { .. }));
}
