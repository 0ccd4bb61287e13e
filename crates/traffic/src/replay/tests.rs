//! The order and the content of planned actions.

use std::collections::HashMap;

use bson::{Binary, RawDocumentBuf, doc, spec::BinarySubtype};

use super::{Action, NotSent, ReplayPlanner};
use crate::audit::ReplySummary;
use crate::document::Document;
use crate::wire::op_msg::Message;

fn session(id: u8) -> bson::Document {
    doc! {"id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![id; 16] }}
}

fn plan(planner: &mut ReplayPlanner, stream: u64, command: &bson::Document) -> Result<Action, NotSent> {
    let bytes = RawDocumentBuf::try_from(command).unwrap();
    planner.command(stream, 0, None, Document::parse(bytes.as_bytes()).unwrap()).map(|action| *action)
}

fn sent(action: &Action, cursors: &[i64]) -> bson::Document {
    let frame = action.frame(1, cursors);
    let message = Message::parse(&frame).unwrap();
    let mut body = bson::Document::from_reader(message.body).unwrap();
    for sequence in &message.sequences {
        let documents: Vec<_> = sequence.documents().map(|bytes| bson::Document::from_reader(bytes).unwrap()).collect();
        body.insert(format!("sequence {}", sequence.identifier), documents);
    }
    body
}

#[test]
fn a_command_gets_a_session_of_its_own_and_loses_the_times_of_the_recorded_deployment() {
    let mut planner = ReplayPlanner::new([0xff; 16], HashMap::new());
    let insert = doc! {
        "insert": "orders", "ordered": true, "lsid": session(1), "txnNumber": 7_i64,
        "readConcern": {"level": "snapshot", "afterClusterTime": bson::Timestamp { time: 1, increment: 1 }},
        "$clusterTime": {"clusterTime": bson::Timestamp { time: 1, increment: 1 }, "signature": {}},
        "documents": [{"_id": 1}], "$db": "shop",
    };
    let action = plan(&mut planner, 1, &insert).unwrap();
    let expected = doc! {
        "insert": "orders", "ordered": true, "lsid": session(0xfe), "txnNumber": 7_i64,
        "readConcern": {"level": "snapshot"}, "$db": "shop", "sequence documents": [{"_id": 1}],
    };
    assert_eq!(sent(&action, &[]), expected);
    assert_eq!((&*action.namespace, action.name.as_str()), ("shop.orders", "insert"));
    let only_time =
        doc! {"find": "a", "readConcern": {"afterClusterTime": bson::Timestamp { time: 1, increment: 1 }}, "$db": "d"};
    assert_eq!(sent(&plan(&mut planner, 1, &only_time).unwrap(), &[]), doc! {"find": "a", "$db": "d"});
    assert_eq!(planner.written().iter().next().unwrap(), &("shop".to_owned(), "orders".to_owned()));
}

#[test]
fn a_session_keeps_its_order_on_several_connections() {
    let mut planner = ReplayPlanner::new([0; 16], HashMap::new());
    let find = |id| doc! {"find": "a", "lsid": session(id), "$db": "d"};
    let after: Vec<Option<u64>> = [(1, 1), (2, 1), (2, 1), (1, 2), (1, 1)]
        .map(|(stream, id)| plan(&mut planner, stream, &find(id)).unwrap().after)
        .to_vec();
    assert_eq!(after, [None, Some(0), None, None, Some(2)]);
}

#[test]
fn the_first_and_the_last_action_of_a_connection_are_known_in_a_second_pass() {
    let find = doc! {"find": "a", "$db": "d"};
    let play = |planner: &mut ReplayPlanner| {
        [1, 2, 1].map(|stream| plan(planner, stream, &find).map(|one| (one.begins_stream, one.ends_stream)).unwrap())
    };
    let mut survey = ReplayPlanner::new([0; 16], HashMap::new());
    assert_eq!(play(&mut survey), [(true, false), (true, false), (false, false)]);
    let mut planner = ReplayPlanner::new([0; 16], survey.ends());
    assert_eq!(play(&mut planner), [(true, false), (true, true), (false, true)]);
}

#[test]
fn a_transaction_lasts_until_its_end() {
    let mut planner = ReplayPlanner::new([0; 16], HashMap::new());
    let write =
        doc! {"insert": "a", "lsid": session(1), "txnNumber": 1_i64, "autocommit": false, "documents": [], "$db": "d"};
    let commit =
        doc! {"commitTransaction": 1, "lsid": session(1), "txnNumber": 1_i64, "autocommit": false, "$db": "admin"};
    let states = [write, commit].map(|command| plan(&mut planner, 1, &command).unwrap().in_transaction);
    assert_eq!(states, [true, false]);
    let without_session = doc! {"commitTransaction": 1, "$db": "admin"};
    assert_eq!(plan(&mut planner, 1, &without_session).unwrap_err(), NotSent::Session);
}

#[test]
fn a_recorded_cursor_is_continued_by_the_one_that_the_target_opens() {
    let mut planner = ReplayPlanner::new([0; 16], HashMap::new());
    let find = plan(&mut planner, 1, &doc! {"find": "a", "$db": "d"}).unwrap();
    let get_more = doc! {"getMore": 99_i64, "collection": "a", "$db": "d"};
    planner.reply(1, 5, &ReplySummary { cursor: 99, ..ReplySummary::default() }).unwrap();
    // A cursor can be continued on another connection.
    let more = plan(&mut planner, 2, &get_more).unwrap();
    assert_eq!(more.cursors.as_slice(), [find.number]);
    assert_eq!(sent(&more, &[1234]), doc! {"getMore": 1234_i64, "collection": "a", "$db": "d"});
    let kill = plan(&mut planner, 1, &doc! {"killCursors": "a", "cursors": [99_i64, 98_i64], "$db": "d"}).unwrap();
    assert_eq!(sent(&kill, &[1234]), doc! {"killCursors": "a", "cursors": [1234_i64], "$db": "d"});
    assert_eq!(plan(&mut planner, 2, &get_more).unwrap_err(), NotSent::Cursor, "it was closed");
}

#[test]
fn without_recorded_replies_a_cursor_is_found_by_session_and_collection() {
    let mut planner = ReplayPlanner::new([0; 16], HashMap::new());
    let find = |id| doc! {"find": "a", "lsid": session(id), "$db": "d"};
    let get_more = |cursor: i64, id| doc! {"getMore": cursor, "collection": "a", "lsid": session(id), "$db": "d"};
    let first = plan(&mut planner, 1, &find(1)).unwrap().number;
    let second = plan(&mut planner, 1, &find(2)).unwrap().number;
    for (cursor, id, expected) in [(7, 1, first), (8, 2, second), (7, 1, first)] {
        assert_eq!(plan(&mut planner, 2, &get_more(cursor, id)).unwrap().cursors.as_slice(), [expected]);
    }
    assert_eq!(plan(&mut planner, 2, &get_more(9, 1)).unwrap_err(), NotSent::Cursor);
    // A recorded reply without a cursor leaves nothing to continue.
    plan(&mut planner, 3, &find(3)).unwrap();
    planner.reply(3, 5, &ReplySummary::default());
    assert_eq!(plan(&mut planner, 3, &get_more(10, 3)).unwrap_err(), NotSent::Cursor);
}

#[test]
fn commands_that_are_not_the_applications_are_left_out_and_counted() {
    let mut planner = ReplayPlanner::new([0; 16], HashMap::new());
    for (command, reason) in [
        (doc! {"hello": 1, "$db": "admin"}, NotSent::Server),
        (doc! {"saslStart": 1, "$db": "admin"}, NotSent::Server),
        (doc! {"endSessions": [], "$db": "admin"}, NotSent::Server),
        (doc! {"serverStatus": 1, "$db": "admin"}, NotSent::Server),
        (doc! {"aggregate": 1, "pipeline": [{"$currentOp": {}}], "$db": "admin"}, NotSent::Server),
        (doc! {"insert": "a", "documents": [], "$db": "config"}, NotSent::Server),
        (doc! {"noSuchCommand": "a", "$db": "d"}, NotSent::Unknown),
        (doc! {"insert": "a"}, NotSent::Incomplete),
    ] {
        assert_eq!(plan(&mut planner, 1, &command).unwrap_err(), reason, "{command}");
    }
    planner.unknown_statements(1);
    assert_eq!(planner.not_sent()[&NotSent::Incomplete], 2);
    assert_eq!(planner.not_sent()[&NotSent::Server], 6);
    assert!(planner.reply(1, 5, &ReplySummary::default()).is_none(), "a reply to a command that is not sent");
    assert!(plan(&mut planner, 1, &doc! {"renameCollection": "d.a", "to": "d.b", "$db": "admin"}).is_ok());
}
