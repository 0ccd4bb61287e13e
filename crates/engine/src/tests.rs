//! Table tests of the engine: rules, one command and the result. No sockets and no clock; the server's replies are
//! made up.

mod batches;
mod content;
mod copies;
mod coverage;
mod dry_runs;
mod earlier_sends;
mod limits;
mod messages;
mod patterns;
mod privileges;
mod replacement;
mod results;
mod server_times;
mod shapes;
mod throttle;
mod timestamps;
mod validators;

use bson::{Document as Bson, RawDocumentBuf, doc};

use super::lookup::{Lookup, LookupError, LookupResult};
use super::{ClientState, Input, Now, OutcomeKind, Plan, Privileges, RequestHead, Step, Triage, triage};
use crate::command::without_repeated_name_checks;
use crate::config::SourceFile;
use crate::rules::RuleSet;
use crate::wire::op_msg::{Message, MessageWriter};

mod tree;

const NOW: Now = Now { milliseconds: 1_700_000_000_000 };

fn rules(patterns: &[(&str, &str)]) -> RuleSet {
    let mut text = "version: 1\nrules:\n".to_owned();
    for (index, (namespace, rest)) in patterns.iter().enumerate() {
        text.push_str(&format!("  - name: rule-{index}\n    namespace: \"{namespace}\"\n"));
        rest.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    RuleSet::from_sources(vec![SourceFile { name: "test.yaml".into(), text }])
        .unwrap_or_else(|report| panic!("{report}"))
}

fn bytes(document: &Bson) -> Vec<u8> {
    RawDocumentBuf::try_from(document).unwrap().into_bytes()
}

/// Returns an OP_MSG with a body, and a document sequence `list` unless that is empty.
fn frame(body: &Bson, list: &str, statements: &[Bson], flags: u32) -> Vec<u8> {
    let mut writer = MessageWriter::new(7, 0, flags, 0);
    writer.body(|out| out.extend_from_slice(&bytes(body)));
    if !list.is_empty() {
        writer.sequence(list, |out| statements.iter().for_each(|s| out.extend_from_slice(&bytes(s))));
    }
    writer.finish()
}

/// Returns the body and the documents of a message, without the first stages of docward's pipelines.
fn documents(message: &[u8]) -> (Bson, Vec<Bson>) {
    let read = |bytes: &[u8]| {
        let shown = without_repeated_name_checks(crate::document::Document::parse(bytes).unwrap());
        Bson::try_from(&RawDocumentBuf::from_bytes(shown.as_document().as_bytes().to_vec()).unwrap()).unwrap()
    };
    let message = Message::parse(message).unwrap();
    (read(message.body), message.sequences.iter().flat_map(|s| s.documents()).map(read).collect())
}

fn update(statements: &[Bson]) -> Vec<u8> {
    frame(&doc! {"update": "c", "ordered": true, "$db": "d"}, "updates", statements, 0)
}

fn replies(body: Bson) -> Vec<u8> {
    frame(&body, "", &[], 0)
}

/// The session of a client with all privileges.
fn client_state() -> ClientState {
    ClientState { privileges: Privileges::all(), ..ClientState::default() }
}

/// Returns the first step of a plan that needs a reply other than a match check.
fn first_step(rules: &RuleSet, frame: &[u8]) -> Step {
    next(&mut Plan::new(frame, rules, NOW), Input::Start, &mut client_state())
}

/// Returns the plan's next step other than `Yield`.
fn in_turns(plan: &mut Plan<'_>, input: Input, client_state: &mut ClientState) -> Step {
    let mut step = plan.next(input, client_state);
    while matches!(step, Step::Yield) {
        step = plan.next(Input::Resumed, client_state);
    }
    step
}

/// Returns the plan's next step, with every match check answered with a match.
fn next(plan: &mut Plan<'_>, input: Input, client_state: &mut ClientState) -> Step {
    let mut step = in_turns(plan, input, client_state);
    while plan.awaits_match_check() {
        let Step::Exchange(check) = &step else { panic!("{step:?} is not a match check") };
        let found = match documents(check).0.get_array("updates") {
            Ok(looks) => {
                let matches = |index: usize| doc! {"index": index as i32, "code": 66};
                doc! {"n": 0, "writeErrors": (0..looks.len()).map(matches).collect::<Vec<_>>(), "ok": 1.0}
            }
            Err(_) => doc! {"cursor": {"id": 0i64, "firstBatch": [{"_id": 1}]}, "ok": 1.0},
        };
        step = plan.next(Input::Reply(replies(found)), client_state);
    }
    step
}

/// Checks that an update statement is rewritten. Compares text, because NaN is not equal to itself.
fn check_rewrite(pattern: &str, statement: Bson, becomes: Bson) {
    let (statement_of, becomes) = (|one: &[Bson]| format!("{one:?}"), format!("{:?}", [becomes]));
    let rules = rules(&[("d.c", pattern)]);
    let message = update(std::slice::from_ref(&statement));
    match first_step(&rules, &message) {
        Step::Forward { message, expects_reply: true } => {
            let (body, statements) = documents(&message);
            assert_eq!(statement_of(&statements), becomes, "{statement}");
            assert_eq!(body, doc! {"update": "c", "ordered": true, "$db": "d"});
        }
        // A statement whose match count matters is sent in its own command.
        Step::Exchange(message) => assert_eq!(statement_of(&documents(&message).1), becomes, "{statement}"),
        other => panic!("{statement}: {other:?}"),
    }
}

fn check_unchanged(pattern: &str, statement: Bson) {
    let rules = rules(&[("d.c", pattern)]);
    let message = update(std::slice::from_ref(&statement));
    match first_step(&rules, &message) {
        Step::ForwardOriginal { expects_reply: true } => {}
        // Its reply shows whether it matched.
        Step::Exchange(sent) => assert_eq!(documents(&sent), documents(&message), "{statement}"),
        step => panic!("{statement}: {step:?}"),
    }
}

/// Checks that an update statement is executed in a transaction of docward's own.
fn check_checked(pattern: &str, statement: Bson) {
    let rules = rules(&[("d.c", pattern)]);
    let sent = match first_step(&rules, &update(std::slice::from_ref(&statement))) {
        Step::ExchangeAll(sent) => sent.first().cloned(),
        Step::Exchange(sent) => Some(sent),
        step => panic!("{statement}: {step:?}"),
    };
    let (body, _) = documents(&sent.unwrap());
    assert_eq!(body.keys().next().map(String::as_str), Some("findAndModify"), "{statement}");
    assert!(body.get_bool("startTransaction").unwrap(), "{statement}");
}

/// Checks that an update statement is not plain because of a part that contains `part`.
fn check_not_plain(pattern: &str, statement: Bson, part: &str) {
    let (rules, update) = (rules(&[("d.c", pattern)]), update(std::slice::from_ref(&statement)));
    let mut plan = Plan::new(&update, &rules, NOW);
    in_turns(&mut plan, Input::Start, &mut client_state());
    let outcomes = plan.take_outcomes();
    let checked = outcomes.iter().find(|outcome| outcome.kind == OutcomeKind::Check);
    assert!(checked.is_some_and(|check| check.reason.contains(part)), "{statement}: {outcomes:?}");
}

/// Checks that an update statement is rejected with a reason that contains `why`.
fn check_rejected(pattern: &str, statement: Bson, why: &str) {
    let rules = rules(&[("d.c", pattern)]);
    match first_step(&rules, &update(std::slice::from_ref(&statement))) {
        Step::Reply(reply) => {
            let (body, _) = documents(&reply);
            let error = body.get_array("writeErrors").unwrap()[0].as_document().unwrap();
            assert_eq!((error.get_i32("index").unwrap(), error.get_i32("code").unwrap()), (0, 121));
            assert_eq!((body.get_i32("n").unwrap(), body.get_f64("ok").unwrap()), (0, 1.0));
            let reason =
                error.get_document("errInfo").unwrap().get_document("docward").unwrap().get_str("reason").unwrap();
            assert!(reason.contains(why), "{reason}");
            assert!(error.get_str("errmsg").unwrap().contains(reason));
        }
        other => panic!("{statement}: {other:?}"),
    }
}
