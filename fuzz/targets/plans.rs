//! Evaluates a message against rules, with arbitrary results of the server and of lookups.

use std::sync::LazyLock;

use docward::command::{Command, Reply, WriteBatch, WriteForm, classify};
use docward::engine::lookup::{Lookup, LookupError, LookupResult};
use docward::engine::step::PermitRefusal;
use docward::engine::{ClientState, Input, Now, Plan, RequestHead, Step, Triage, dry_run, queries, triage};
use docward::rules::RuleSet;
use docward::shell;
use docward::wire::{Header, OpCode};

use super::{load, seeds};
use support::random::Random;

/// The shell's current database.
const DATABASE: &str = "shop";

pub const RULES: &str = include_str!("rules.yaml");

pub static LOADED: LazyLock<RuleSet> = LazyLock::new(|| load(RULES).unwrap_or_else(|report| panic!("{report}")));
static REPLIES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(seeds::replies);

/// The maximum number of steps of a plan. The longest plan of these rules needs about ten.
const MAX_STEPS: usize = 40;

/// Eight bytes that seed the results, then a frame. Triage of the complete frame agrees with triage of its start. The
/// plan ends, and it sends only messages that can be parsed.
pub fn plan(bytes: &[u8]) {
    let Some((choices, frame)) = bytes.split_first_chunk() else { return };
    let mut random = Random(u64::from_le_bytes(*choices) | 1);
    let decided = triage(&RequestHead::new(frame), &LOADED);
    let _ = (queries::triage(&RequestHead::new(frame), &LOADED), queries::admit(frame, &LOADED, "proxy:1"));
    let whole = matches!(Header::parse(frame), Ok(Some(header)) if header.length <= frame.len());
    assert!(!whole || decided != Triage::More);
    let early = triage(&RequestHead::new(&frame[..random.below(frame.len())]), &LOADED);
    // Early triage may only be more careful: it may evaluate a frame that no rule applies to.
    assert!(matches!(early, Triage::More | Triage::Evaluate) || early == decided, "{early:?} became {decided:?}");
    run_plan(frame, &mut random);
}

/// A shell text: it is an error with a valid span, or it parses into commands. Each command, rendered and parsed
/// again, is the same. Each is evaluated by a dry run.
pub fn shell(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let parsed = match shell::parse(&text, DATABASE) {
        Err(error) => return assert!(text.get(error.span.clone()).is_some() && !error.message.is_empty(), "{error:?}"),
        Ok(parsed) => parsed,
    };
    for command in &parsed.commands {
        let command = command.as_document();
        let shown = shell::render(command, DATABASE);
        let again = shell::parse(&shown, DATABASE).unwrap_or_else(|error| panic!("{error:?} in {shown}"));
        assert!(again.commands.first().is_some_and(|again| shell::is_same(again.as_document(), command)), "{shown}");
        let _ = dry_run(command, &LOADED, Now { milliseconds: 5 }, &mut ClientState::default());
    }
}

fn run_plan(frame: &[u8], random: &mut Random) {
    let mut session = ClientState::default();
    let mut plan = Plan::new(frame, &LOADED, Now { milliseconds: 5 });
    let mut step = plan.next(Input::Start, &mut session);
    let mut last = Vec::new();
    for _ in 0..MAX_STEPS {
        plan.take_outcomes();
        while let Step::Yield = step {
            step = plan.next(Input::Resumed, &mut session);
        }
        step = match step {
            Step::Exchange(message) => {
                assert_readable(&message);
                last = corrupted(&REPLIES[random.below(REPLIES.len())], random);
                plan.next(Input::Reply(last.to_vec()), &mut session)
            }
            Step::ExchangeAll(messages) => {
                messages.iter().for_each(|message| assert_readable(message));
                let reply = |_| corrupted(&REPLIES[random.below(REPLIES.len())], random).to_vec();
                plan.next(Input::Replies((0..messages.len()).map(reply).collect()), &mut session)
            }
            Step::Lookup(lookup) => plan.next(Input::Found(answer(&lookup, random)), &mut session),
            Step::Permits(requests) => {
                let refusal = PermitRefusal { at: random.below(requests.len()), room_in: None };
                let taken = if random.below(4) == 0 { Err(refusal) } else { Ok(()) };
                plan.next(Input::Permits(taken), &mut session)
            }
            Step::Yield => unreachable!("the loop above handles Yield"),
            Step::Pause(_) => plan.next(Input::Paused { elapsed: std::time::Duration::ZERO }, &mut session),
            Step::ForwardOriginal { .. } if is_protected_write(frame) => return assert_readable(frame),
            Step::Forward { .. } if !is_protected_write(frame) => return,
            Step::Forward { message, .. } => return assert_readable(&message),
            Step::Reply(reply) => {
                let header = Header::of_frame(&reply).unwrap();
                let readable = header.op_code == OpCode::Reply || Reply::parse(&reply).is_ok();
                // A server's reply to an unchanged command is forwarded unchanged.
                return assert!(readable || reply.get(16..) == last.get(16..), "{reply:?}");
            }
            Step::ForwardOriginal { .. } | Step::Silent | Step::Close(_) => return,
        };
    }
}

/// Corrupts one byte in a third of the replies, but not the length: the reader of the socket has used it already.
fn corrupted(reply: &[u8], random: &mut Random) -> Vec<u8> {
    let mut reply = reply.to_vec();
    if random.below(3) == 0 {
        let at = 4 + random.below(reply.len() - 4);
        reply[at] = random.next_number() as u8;
    }
    reply
}

fn answer(lookup: &Lookup, random: &mut Random) -> Result<LookupResult, LookupError> {
    match (random.below(6), lookup) {
        (0, _) => Err(LookupError::Permanent("no".to_owned())),
        (1, _) => Err(LookupError::Unavailable("gone".to_owned())),
        (2, _) => Ok(LookupResult::Numbers(vec![1])),
        (_, Lookup::Numbers(request)) => Ok(LookupResult::Numbers((1..=i64::from(request.count)).collect())),
        (_, Lookup::Maximum(_)) => Ok(LookupResult::Maximum(Some(i64::MAX - 1))),
    }
}

/// Checks that a message to the server for a protected collection is a valid command.
fn assert_readable(message: &[u8]) {
    let command = Command::parse(message).unwrap_or_else(|error| panic!("{error} in {message:?}"));
    if let Some(form) = WriteForm::for_class(classify(command.name.as_bytes())) {
        WriteBatch::parse(&command, form).unwrap_or_else(|error| panic!("{error} in {message:?}"));
    }
}

/// Whether a rule can reject it. Other messages may be unreadable: the server decides.
fn is_protected_write(frame: &[u8]) -> bool {
    let Ok(command) = Command::parse(frame) else { return false };
    let (class, namespace) = (classify(command.name.as_bytes()), command.collection());
    let rules = namespace.and_then(|ns| Some((ns, LOADED.rules_for(ns.database, ns.collection)?)));
    WriteForm::for_class(class).is_some()
        && rules.is_some_and(|(ns, rules)| rules.iter().any(|rule| rule.pattern.can_reject(class, ns)))
}
