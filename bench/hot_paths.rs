//! The steps of processing a message, each repeatable: `messages.rs` measures the time and the allocations of each,
//! `instructions/` counts the executed instructions.
//!
//! Sockets and the clock are excluded; `compare/` measures those.

#![allow(clippy::unwrap_used, reason = "a benchmark whose preparation fails should fail at once")]

use std::hint::black_box;

use bson::{Document, doc};
use docward_engine::lookup::{Lookup, LookupResult};
use docward_engine::{ClientState, Input, Now, Plan, Privileges, RequestHead, Step, Triage, triage};
use docward_protocol::command::{Command, WriteBatch, WriteForm};
use docward_protocol::wire::WireError;
use docward_protocol::wire::op_msg::Message;
use docward_protocol::wire::splitter::{FrameClass, Splitter, StreamPart};
use docward_rules::config::SourceFile;
use docward_rules::rules::RuleSet;

use super::frames;

/// One step of processing one message.
pub(crate) struct HotPath {
    pub(crate) name: &'static str,
    /// Bytes of the message; the costs are for all statements in it.
    pub(crate) statements: usize,
    prepare: fn(usize) -> Work,
}

type Work = Box<dyn FnMut()>;

/// Triage is all that the fast path does; parsing and planning are for messages that a rule may match.
pub(crate) const ALL: &[HotPath] = &[
    one("split: a find", |_| split(frames::find("devices", 1))),
    one("triage: a find, no rules", |_| triages(0, frames::find("devices", 1))),
    one("triage: a find, 10 rules", |_| triages(10, frames::find("devices", 1))),
    one("triage: a find, 10,000 rules", |_| triages(10_000, frames::find("devices", 1))),
    one("triage: an insert of 1 KiB, 10,000 rules", |_| triages(10_000, frames::insert("devices", 1024))),
    one("parse: OP_MSG", |_| parses_message(timestamped(1))),
    one("parse: an update by operators", |_| parses(WriteForm::Update, timestamped(1))),
    one("parse: a replacement", |_| parses(WriteForm::Update, versioned(1))),
    one("parse: an insert of 1 KiB", |_| parses(WriteForm::Insert, frames::insert("numbered", 1024))),
    one("plan: timestamps per field, 5 fields", |_| plans(timestamped(1), is_answered)),
    one("plan: timestamps per document, 5 fields", |_| plans(newest(), is_answered)),
    one("plan: bounds", |_| plans(frames::update("bounded", 1, 1, &frames::taken()), is_answered)),
    one("plan: replacement version check", |_| plans(versioned(1), is_answered)),
    one("plan: replacement rejected", |_| plans_refused(frames::update("refused", 1, 1, &frames::versioned()))),
    one("plan: sequence, insert of 1 KiB", |_| plans(frames::insert("numbered", 1024), is_rewritten)),
    one("plan: replacement merged", |_| plans(frames::update("merged", 1, 1, &frames::versioned()), is_rewritten)),
    one("plan: together", |_| plans(frames::update_where("paired", doc! { "_id": 1 }, both()), is_unchanged)),
    one("plan: together rejected", |_| plans(frames::update("paired", 1, 1, &frames::taken()), is_answered)),
    one("plan: queue, a claim", |_| plans(frames::claim("jobs"), is_answered)),
    one("plan: bucket", |_| plans(frames::update_where("inbox", doc! { "owner": "joe" }, letter()), is_answered)),
    one("plan: defaults, a find", |_| plans(frames::find("limited", 1), is_rewritten)),
    one("plan: deny", |_| plans(frames::delete_all("kept"), is_answered)),
    one("plan: copies", |_| plans(frames::insert_document("people", person()), is_unchanged)),
    one("plan: tree, an insert below a parent", |_| plans_node()),
    one("plan: limits", |_| plans(frames::update_where("small", doc! { "_id": 1 }, event()), is_answered)),
    one("plan: schema_version", |_| plans(frames::update("migrated", 1, 1, &frames::taken()), is_answered)),
    one("plan: throttle, a find", |_| plans_limited(frames::find("shared", 1))),
    one("plan: limits of a document", |_| plans_whole(frames::update("short", 1, 1, &frames::state()), is_answered)),
    one("plan: history, an update", |_| plans_whole(frames::update("audited", 1, 1, &frames::state()), is_unchanged)),
    one("plan: deny, a drop", |_| plans_whole(frames::drop_collection("standing"), is_answered)),
    HotPath {
        name: "plan: timestamps, batch of 100",
        statements: 100,
        prepare: |n| plans(timestamped(n), is_answered),
    },
    HotPath {
        name: "plan: replacement version check, batch of 100",
        statements: 100,
        prepare: |n| plans(versioned(n), is_answered),
    },
];

impl HotPath {
    /// The closure that is repeated.
    pub(crate) fn prepare(&self) -> Work {
        (self.prepare)(self.statements)
    }
}

const fn one(name: &'static str, prepare: fn(usize) -> Work) -> HotPath {
    HotPath { name, statements: 1, prepare }
}

fn timestamped(statements: usize) -> Vec<u8> {
    frames::update("timestamped", 1, statements, &frames::state())
}

fn newest() -> Vec<u8> {
    frames::update("newest", 1, 1, &frames::state())
}

fn versioned(statements: usize) -> Vec<u8> {
    frames::update("versioned", 1, statements, &frames::versioned())
}

/// Takes a copy, and records the reader.
fn both() -> Document {
    doc! { "$inc": { "available": -1 }, "$push": { "lent": { "to": "joe" } } }
}

fn letter() -> Document {
    doc! { "$push": { "messages": { "from": "ann", "text": "Hello." } } }
}

fn event() -> Document {
    doc! { "$push": { "events": { "at": 5 } } }
}

fn person() -> Document {
    doc! { "_id": 1, "name": "Joe", "friend": { "id": 7, "name": "Ada" } }
}

fn rule_set(texts: &[String]) -> RuleSet {
    let source = |text: &String| SourceFile { name: "bench.yaml".to_owned(), text: text.clone() };
    RuleSet::from_sources(texts.iter().filter(|text| !text.is_empty()).map(source).collect()).unwrap()
}

fn split(frame: Vec<u8>) -> Work {
    let mut splitter = Splitter::<()>::default();
    Box::new(move || {
        let part = splitter.next(&mut black_box(&frame[..]), |_, _| Ok::<_, WireError>(FrameClass::Stream));
        assert_eq!(part, Ok(StreamPart::Stream));
    })
}

fn triages(rules: usize, frame: Vec<u8>) -> Work {
    let rules = rule_set(&[frames::unrelated_rules(rules)]);
    assert_eq!(triage(&RequestHead::new(&frame), &rules), Triage::Forward { expects_reply: true });
    Box::new(move || _ = black_box(triage(&RequestHead::new(black_box(&frame)), &rules)))
}

fn parses_message(frame: Vec<u8>) -> Work {
    Box::new(move || _ = black_box(Message::parse(black_box(&frame)).unwrap()))
}

fn parses(form: WriteForm, frame: Vec<u8>) -> Work {
    Box::new(move || {
        let command = Command::parse(black_box(&frame)).unwrap();
        black_box(WriteBatch::parse(&command, form).unwrap().statements.len());
    })
}

/// Processes an evaluated message from the whole frame to its last step; docward's own requests get an immediate
/// answer.
fn plans(frame: Vec<u8>, expected: fn(&Step) -> bool) -> Work {
    plans_with_reply(frame, &doc! { "n": 1, "nModified": 1, "ok": 1.0 }, expected)
}

/// A replacement for which the lookup finds a stored document.
fn plans_refused(frame: Vec<u8>) -> Work {
    let found = doc! { "firstBatch": [{ "_id": 1 }], "id": 0i64, "ns": "bench.refused" };
    plans_with_reply(frame, &doc! { "cursor": found, "ok": 1.0 }, is_answered)
}

/// An insert of a node that looks up its parent and updates it, in a transaction.
fn plans_node() -> Work {
    let node = doc! { "_id": "MongoDB", "parent": "Programming", "title": "a database" };
    let found = doc! { "firstBatch": [{ "_id": "Programming", "path": ",Books," }], "id": 0i64, "ns": "bench.nodes" };
    let reply = doc! { "cursor": found, "n": 1, "nModified": 1, "ok": 1.0 };
    plans_with_reply(frames::insert_document("nodes", node), &reply, is_answered)
}

/// A message that needs a permit and gets it at once.
fn plans_limited(frame: Vec<u8>) -> Work {
    plans_with_rules(frames::limiting_rules(), frame, &doc! { "ok": 1.0 }, is_unchanged)
}

/// A message to which a rule on whole documents or a collection applies.
fn plans_whole(frame: Vec<u8>, expected: fn(&Step) -> bool) -> Work {
    let reply = doc! { "n": 1, "nModified": 1, "ok": 1.0 };
    plans_with_rules(frames::whole_rules(), frame, &reply, expected)
}

fn plans_with_reply(frame: Vec<u8>, reply: &Document, expected: fn(&Step) -> bool) -> Work {
    plans_with_rules(frames::other_rules(), frame, reply, expected)
}

fn plans_with_rules(rules: String, frame: Vec<u8>, reply: &Document, expected: fn(&Step) -> bool) -> Work {
    let rules = rule_set(&[frames::rewriting_rules(), rules, frames::unrelated_rules(1_000)]);
    let reply = frames::reply(1, reply);
    let step = carry_out(&frame, &rules, &reply);
    assert!(expected(&step), "{step:?}");
    Box::new(move || _ = black_box(carry_out(black_box(&frame), &rules, &reply)))
}

fn carry_out(frame: &[u8], rules: &RuleSet, reply: &[u8]) -> Step {
    let mut session = ClientState { privileges: Privileges::all(), ..ClientState::default() };
    let mut plan = Plan::new(frame, rules, Now { milliseconds: frames::TICK });
    let mut step = plan.next(Input::Start, &mut session);
    loop {
        step = match step {
            Step::Exchange(_) => plan.next(Input::Reply(reply.to_vec()), &mut session),
            Step::Lookup(Lookup::Numbers(request)) => {
                let numbers = (1..=i64::from(request.count)).collect();
                plan.next(Input::Found(Ok(LookupResult::Numbers(numbers))), &mut session)
            }
            Step::Permits(_) => plan.next(Input::Permits(Ok(())), &mut session),
            last => {
                black_box(plan.take_outcomes());
                return last;
            }
        }
    }
}

fn is_rewritten(step: &Step) -> bool {
    matches!(step, Step::Forward { .. })
}

fn is_unchanged(step: &Step) -> bool {
    matches!(step, Step::ForwardOriginal { .. })
}

fn is_answered(step: &Step) -> bool {
    matches!(step, Step::Reply(_))
}
