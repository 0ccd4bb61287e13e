//! The memory that evaluating a message takes is at most what the proxy's memory budget counts for it.

use allocation_counter::measure;
use bson::{Document, doc};
use docward::engine::{ClientState, Input, MAX_EVALUATION_LENGTH, Now, Plan, Privileges, Step, evaluation_length};
use support::frame::Message;

use super::fuzz_targets::load;

/// Reasons and hints of some hundred bytes, and a long `why`.
fn rules() -> String {
    let why = "Orders are changed by forty services at once. ".repeat(40);
    format!(
        "version: 1\nrules:\n  - {{name: checked, namespace: d.orders, why: \"{why}\", replacement: {{policy: reject, \
         version: version}}}}\n  - {{name: least, namespace: d.numbers, why: \"{why}\", bounds: {{field: n, min: 0}}}}\n"
    )
}

/// Evaluates a batch of as many statements as a server accepts; returns the most bytes in use at a time, what the budget
/// counts for them, and the length of what is sent.
fn cost(collection: &str, statement: &Document, ordered: bool) -> (usize, usize, usize) {
    let rules = load(&rules()).unwrap();
    let body = doc! { "update": collection, "ordered": ordered, "$db": "d" };
    let message = Message::new(body).sequence("updates", vec![statement.clone(); 100_000]);
    let frame = message.to_frame(1, 0).to_bytes();
    let mut sent = 0;
    let used = measure(|| {
        let mut client = ClientState { privileges: Privileges::all(), ..ClientState::default() };
        let mut plan = Plan::new(&frame, &rules, Now { milliseconds: 5 });
        let mut step = plan.next(Input::Start, &mut client);
        while let Step::Yield = step {
            step = plan.next(Input::Resumed, &mut client);
        }
        match step {
            Step::Reply(reply) => sent = reply.len(),
            // Whether a replacement is rejected depends on what its filter matches.
            Step::Exchange(question) => sent = question.len(),
            other => panic!("{other:?}"),
        }
    });
    (used.bytes_max as usize, evaluation_length(&frame), sent)
}

#[test]
fn batches_of_rejections_take_what_the_budget_counts() {
    for (collection, statement, ordered) in [
        ("orders", doc! { "q": {}, "u": {} }, false),
        ("orders", doc! { "q": { "_id": 1, "version": 1 }, "u": { "version": 1 } }, false),
        ("orders", doc! { "q": {}, "u": {} }, true),
        ("numbers", doc! { "q": {}, "u": { "$set": { "n": -1 } } }, false),
    ] {
        let (used, counted, sent) = cost(collection, &statement, ordered);
        eprintln!("{collection}, ordered {ordered}: {used} bytes used, {counted} counted, {sent} sent");
        assert_eq!(counted, MAX_EVALUATION_LENGTH);
        assert!(sent < 8_000_000, "{collection}: {sent} bytes sent");
        assert!(used <= counted, "{collection}, ordered {ordered}: {used} bytes used, {counted} counted");
    }
}
