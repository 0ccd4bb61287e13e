//! The times of replies that are made of several: whatever the server replies, in whatever order its times are, the
//! client gets the newest of them.

use std::time::Duration;

use bson::Timestamp;
use support::random::Random;

use super::*;

const RULES: [(&str, &str); 4] = [
    ("d.stock", "bounds: { field: n, min: 0, on_no_room: error }"),
    ("d.saves", "replacement: { policy: check_version, version: version }"),
    ("d.nodes", "tree: { path: path, parent: parent }"),
    ("d.jobs", "queue: { lease: 5m }"),
];

fn messages() -> Vec<(Bson, &'static str, Vec<Bson>)> {
    let update = |collection: &str| doc! {"update": collection};
    let save = |id: i32| doc! {"q": {"_id": id, "version": 1}, "u": {"a": 1}};
    let take = |id: i32| doc! {"q": {"_id": id}, "u": {"$inc": {"n": -1}}};
    let job = |id: i32| doc! {"q": {"_id": id}, "u": {"_id": id, "work": 1}, "upsert": true};
    vec![
        (update("stock"), "updates", vec![take(1), take(2), take(3)]),
        (doc! {"update": "stock", "ordered": false}, "updates", vec![take(1), take(2), take(3)]),
        (update("saves"), "updates", vec![save(1), take(2), save(3)]),
        (update("jobs"), "updates", vec![job(1), job(2)]),
        (doc! {"insert": "nodes"}, "documents", vec![doc! {"_id": 1}, doc! {"_id": 2, "parent": 1}]),
        (update("nodes"), "updates", vec![doc! {"q": {"_id": 2}, "u": {"$set": {"parent": 1}}}]),
        (doc! {"delete": "nodes"}, "deletes", vec![doc! {"q": {"_id": 2}, "limit": 1}]),
        (doc! {"findAndModify": "nodes", "query": {"_id": 2}, "update": {"$set": {"parent": 1}}}, "", vec![]),
        (doc! {"findAndModify": "stock", "query": {"_id": 2}, "update": {"$inc": {"n": -1}}}, "", vec![]),
    ]
}

/// A reply to a command of docward's, without times.
fn reply(command: &Bson, statements: usize, random: &mut Random) -> Bson {
    let errors = [
        doc! {"ok": 0.0, "code": 91, "errmsg": "stopping"},
        doc! {"ok": 0.0, "code": 112, "errmsg": "conflict", "errorLabels": ["TransientTransactionError"]},
        doc! {"ok": 0.0, "code": 462, "errmsg": "busy", "errorLabels": ["SystemOverloadedError", "RetryableError"]},
        doc! {"ok": 0.0, "code": 251, "errmsg": "none"},
        doc! {"ok": 0.0, "code": 256, "errmsg": "committed"},
        doc! {"ok": 0.0, "code": 1, "errmsg": "other"},
    ];
    if random.below(5) == 0 {
        return random.pick(&errors).clone();
    }
    let found = [doc! {"_id": 1, "n": 5, "version": 1, "path": bson::Bson::Null}];
    match command.keys().next().unwrap().as_str() {
        "find" => {
            let found = if random.below(2) == 0 { &found[..] } else { &[] };
            doc! {"cursor": {"id": 0i64, "ns": "d.c", "firstBatch": found}, "ok": 1.0}
        }
        "findAndModify" => {
            let n = random.below(2) as i32;
            doc! {"lastErrorObject": {"n": n, "updatedExisting": n > 0}, "value": bson::Bson::Null, "ok": 1.0}
        }
        "update" | "insert" | "delete" => match random.below(4) {
            0 => doc! {"n": 0, "nModified": 0, "ok": 1.0},
            1 => doc! {"n": 0, "writeErrors": [{"index": 0, "code": 66, "errmsg": "e"}], "ok": 1.0},
            _ => doc! {"n": statements as i32, "nModified": statements as i32, "ok": 1.0},
        },
        _ => doc! {"ok": 1.0},
    }
}

fn time(random: &mut Random) -> Timestamp {
    Timestamp { time: random.below(5) as u32, increment: random.below(5) as u32 }
}

#[test]
fn a_reply_has_the_newest_times_of_all_its_parts() {
    let rules = rules(&RULES);
    let mut random = Random(11);
    let (mut replied, mut of_several) = (0, 0);
    for _ in 0..4000 {
        let (mut body, list, statements) = random.pick(&messages()).clone();
        body.insert("$db", "d");
        match random.below(3) {
            0 => {}
            1 => body.extend(doc! {"lsid": {"id": bson::Uuid::from_bytes([1; 16])}, "txnNumber": 3i64}),
            _ => body.extend(doc! {
                "lsid": {"id": bson::Uuid::from_bytes([1; 16])}, "txnNumber": 3i64,
                "autocommit": false, "startTransaction": true,
            }),
        }
        let message = frame(&body, list, &statements, 0);
        let mut state = client_state();
        let mut plan = Plan::new(&message, &rules, NOW);
        let (mut operation, mut cluster, mut exchanges) = (None, None, 0);
        let mut step = plan.next(Input::Start, &mut state);
        let last = loop {
            let input = match step {
                Step::Exchange(sent) => {
                    let (command, statements) = documents(&sent);
                    let mut reply = reply(&command, statements.len(), &mut random);
                    if random.below(4) > 0 {
                        let (one, other) = (time(&mut random), time(&mut random));
                        let signature = doc! {"keyId": 0i64};
                        reply.insert("$clusterTime", doc! {"clusterTime": one, "signature": signature});
                        reply.insert("operationTime", other);
                        (operation, cluster) = (operation.max(Some(other)), cluster.max(Some(one)));
                    }
                    exchanges += 1;
                    Input::Reply(replies(reply))
                }
                Step::Pause(_) => Input::Paused { elapsed: Duration::ZERO },
                Step::Yield => Input::Resumed,
                last => break last,
            };
            step = plan.next(input, &mut state);
        };
        let Step::Reply(reply) = last else { continue };
        let reply = documents(&reply).0;
        assert_eq!(reply.get_timestamp("operationTime").ok(), operation, "{body}: {reply}");
        let newest = reply.get_document("$clusterTime").ok().map(|time| time.get_timestamp("clusterTime").unwrap());
        assert_eq!(newest, cluster, "{body}: {reply}");
        (replied, of_several) = (replied + 1, of_several + i32::from(exchanges > 1));
    }
    assert!(replied > 2000 && of_several > 1500, "{replied} {of_several}");
}

/// A reply that docward writes itself gets the times of another reply, unless it has some.
#[test]
fn a_reply_without_times_is_completed() {
    let hello = |time: u32| {
        let time = Timestamp { time, increment: 1 };
        replies(doc! {"$clusterTime": {"clusterTime": time, "signature": {"keyId": 1i64}}, "operationTime": time})
    };
    let times = super::super::ServerTimes::of_reply(&hello(5));
    let rejected = documents(&times.completing(replies(doc! {"ok": 0.0, "code": 121}))).0;
    assert_eq!(rejected.get_timestamp("operationTime").unwrap().time, 5);
    assert_eq!(
        rejected.get_document("$clusterTime").unwrap().get_document("signature").unwrap(),
        &doc! {"keyId": 1i64}
    );
    assert_eq!(times.completing(hello(3)), hello(3));
    let of_standalone = super::super::ServerTimes::of_reply(&replies(doc! {"ok": 1.0}));
    assert_eq!(of_standalone.completing(replies(doc! {"ok": 0.0})), replies(doc! {"ok": 0.0}));
}
