//! Mutated bytes through everything that reads what others wrote: no panic, no unbounded time, and what
//! docward sends on for a guarded collection can be read again.
//!
//! Seeded, so that every run does the same; some seconds in all. The properties that need a server
//! are elsewhere (`protocol`, `retries`).

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]
#![allow(dead_code, reason = "only the frames of the fixtures are used")]

#[path = "support/frame.rs"]
#[allow(unreachable_pub, reason = "a module of the fixtures")]
mod frame;
#[path = "support/random.rs"]
#[allow(unreachable_pub, reason = "a module of the fixtures")]
mod random;
#[path = "fuzz_smoke/seeds.rs"]
mod seeds;

use std::time::{Duration, Instant};

use bson::{Bson, Document as Bson_};
use docward::command::{Batch, Command, Form, Part, PartOptions, Reply, classify};
use docward::document::{Document, peek};
use docward::engine::handshake::{AddressMap, Face, rewrite_reply, rewrite_request};
use docward::engine::lookup::{Found, Lookup, LookupError};
use docward::engine::{Input, Now, Plan, Session, Step, Triage, queries, transaction, triage};
use docward::patterns::RuleSet;
use docward::rules::{Report, Source};
use docward::wire::op_msg::Message;
use docward::wire::op_query::{Query, reply_document};
use docward::wire::{Header, OpCode};
use frame::{Frame, Message as Made};
use random::Random;
use seeds::{frames, replies};

const RULES: &str = r#"
version: 1
rules:
  - name: reject
    namespace: shop.orders
    why: They erase each other's fields.
    replacement: { unguarded: reject, guard: version }
  - name: merge
    namespace: shop.customers
    replacement: { unguarded: merge }
  - name: guard
    namespace: "*.carts"
    replacement: { unguarded: guard, guard: meta.version, conflict: ignore }
  - name: devices
    namespace: iot.devices
    timestamps: { source: at, hide: true }
  - name: states
    namespace: iot.states
    except: { users: [admin.root] }
    timestamps: { source: $comment.at, type: long, fields: [a.b, c], per: document, missing: clock }
  - name: numbers
    namespace: shop.orders
    sequence: { field: no, counter: no, on_upsert: true }
  - name: optimistic
    namespace: shop.users
    sequence: { field: a.no, strategy: optimistic, on_upsert: true }
  - name: tree
    namespace: [shop.customers, shop.users, "*.carts"]
    tree: { path: path, parent: a, unanchored: rewrite, on_delete: cascade }
"#;

/// How long each loop may go on.
const BUDGET: Duration = Duration::from_secs(3);
/// One input, however broken, takes a fraction of this.
const TOO_LONG: Duration = Duration::from_secs(2);

fn rules() -> RuleSet {
    load(RULES).unwrap_or_else(|report| panic!("{report}"))
}

fn load(text: &str) -> Result<RuleSet, Report> {
    RuleSet::from_sources(vec![Source { name: "rules.yaml".into(), text: text.into() }])
}

impl Random {
    fn pick<'t, T>(&mut self, list: &'t [T]) -> &'t T {
        &list[self.below(list.len())]
    }

    /// `bytes` with a few changes of the kinds that readers stumble over.
    fn mutated(&mut self, bytes: &[u8], others: &[Vec<u8>]) -> Vec<u8> {
        const NUMBERS: [i32; 9] = [0, 1, 4, 5, -1, i32::MAX, i32::MIN, 48_000_000, 255];
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(9) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.next() as u8,
                2 => bytes.truncate(at),
                3 => bytes.insert(at, self.next() as u8),
                4 if bytes.len() > 1 => drop(bytes.remove(at)),
                5 => {
                    let number = self.pick(&NUMBERS).to_le_bytes();
                    let end = bytes.len().min(at + 4);
                    bytes[at..end].copy_from_slice(&number[..end - at]);
                }
                6 => {
                    let other = self.pick(others);
                    let from = self.below(other.len());
                    let to = (from + self.below(40)).min(other.len());
                    bytes.splice(at..at, other[from..to].iter().copied());
                }
                7 => {
                    let to = (at + self.below(60)).min(bytes.len());
                    let copy = bytes[at..to].to_vec();
                    bytes.splice(at..at, copy);
                }
                // A type tag or a name's first letter.
                _ => bytes[at] = *self.pick(b"\x01\x02\x03\x04\x05\x07\x08\x0a\x0b\x0e\x10\x11\x12\xff\x7f$_qud"),
            }
            if bytes.is_empty() {
                bytes.push(0);
            }
        }
        bytes
    }
}

/// Calls `check` with inputs made of `seeds` until the budget is used; every seed comes unchanged, too.
/// Half of the mutated frames get a header that fits, so that more than its check is tried.
fn fuzz(seed: u64, seeds: &[Vec<u8>], framed: bool, mut check: impl FnMut(&[u8], &mut Random)) {
    let mut random = Random(seed);
    let started = Instant::now();
    let mut count = 0;
    let mut slowest = Duration::ZERO;
    while started.elapsed() < BUDGET || count < seeds.len() {
        let mut input = match seeds.get(count) {
            Some(seed) => seed.clone(),
            None => {
                let seed = random.pick(seeds).clone();
                random.mutated(&seed, seeds)
            }
        };
        if framed && input.len() >= 16 && random.below(4) > 0 {
            let length = i32::try_from(input.len()).unwrap();
            input[..4].copy_from_slice(&length.to_le_bytes());
        }
        let one = Instant::now();
        check(&input, &mut random);
        slowest = slowest.max(one.elapsed());
        assert!(one.elapsed() < TOO_LONG, "{:?} for {input:?}", one.elapsed());
        count += 1;
    }
    eprintln!("{count} inputs, the slowest took {slowest:?}");
}

#[test]
fn whatever_comes_is_read_or_refused() {
    let seeds: Vec<Vec<u8>> = frames().into_iter().chain(replies()).collect();
    let mut addresses = AddressMap::new("proxy:1".into());
    addresses.add("a:1".into(), "proxy:1".into());
    let face = Face::Member(addresses);
    fuzz(1, &seeds, true, |bytes, _| {
        let _ = Header::parse(bytes);
        let message = Message::parse(bytes);
        let _ = (Query::parse(bytes), reply_document(bytes), Reply::parse(bytes));
        let _ = (rewrite_request(bytes, &mut Session::default()), rewrite_reply(bytes, &face));
        let _ = (rewrite_reply(bytes, &Face::Standalone), transaction(bytes));
        let body = bytes.get(21..).unwrap_or_default();
        let peeked: Vec<_> = peek(body).map(|element| element.key.to_vec()).collect();
        if let Ok(message) = &message {
            let ours = Document::parse(message.body);
            // Where both read it, both read the same; ours may be stricter and has a bound on depth.
            if let Ok(document) = ours {
                let keys: Vec<_> = document.elements().map(|element| element.key.to_vec()).collect();
                if message.body.as_ptr() == body.as_ptr() {
                    assert_eq!(peeked, keys);
                }
                let theirs = bson::RawDocument::from_bytes(message.body).unwrap();
                for (ours, theirs) in document.elements().zip(theirs.iter()) {
                    if let (Ok((name, _)), Ok(own)) = (theirs, std::str::from_utf8(ours.key)) {
                        assert_eq!(own, name.as_str());
                    }
                }
            }
        }
        if let Ok(command) = Command::parse(bytes)
            && let Some(form) = Form::of(classify(command.name.as_bytes()))
        {
            let _ = Batch::read(&command, form);
        }
    });
}

#[test]
fn triage_decides_every_whole_frame_and_never_takes_a_decision_back() {
    let rules = rules();
    fuzz(2, &frames(), true, |bytes, random| {
        let decided = triage(bytes, &rules);
        let _ = (queries::triage(bytes, &rules), queries::admit(bytes, &rules, "proxy:1"));
        let whole = matches!(Header::parse(bytes), Ok(Some(header)) if header.length <= bytes.len());
        assert!(!whole || decided != Triage::More, "{bytes:?}");
        // A frame that lets itself be told early is told the same when all of it is here, but for the
        // caution of judging what later turns out to concern nobody.
        let early = triage(&bytes[..random.below(bytes.len())], &rules);
        assert!(
            matches!(early, Triage::More | Triage::Judge) || early == decided,
            "{early:?} became {decided:?} for {bytes:?}"
        );
    });
}

#[test]
fn plans_come_to_an_end_and_send_on_what_can_be_read() {
    let rules = rules();
    let replies = replies();
    fuzz(3, &frames(), true, |bytes, random| {
        let mut session = Session::default();
        let mut plan = Plan::new(bytes, &rules, Now { milliseconds: 5 });
        let mut step = plan.next(Input::Start, &mut session);
        for _ in 0..40 {
            plan.take_observations();
            step = match step {
                Step::Exchange(message) => {
                    assert_readable(&message);
                    let reply = random.pick(&replies).clone();
                    let reply = if random.below(3) == 0 { random.mutated(&reply, &replies) } else { reply };
                    plan.next(Input::Reply(&reply), &mut session)
                }
                Step::Lookup(lookup) => {
                    let found = answer(&lookup, random);
                    plan.next(Input::Found(found), &mut session)
                }
                Step::Pause(_) => plan.next(Input::Paused, &mut session),
                Step::ForwardOriginal { .. } => {
                    if is_guarded_write(bytes, &rules) {
                        assert_readable(bytes);
                    }
                    return;
                }
                Step::Forward { message, .. } => return assert_readable(&message),
                Step::Reply(reply) => {
                    let header = Header::of_frame(&reply).unwrap();
                    assert!(header.op_code == OpCode::Reply || Reply::parse(&reply).is_ok(), "{reply:?}");
                    return;
                }
                Step::Silent | Step::Close(_) => return,
            };
        }
    });
}

fn answer(lookup: &Lookup, random: &mut Random) -> Result<Found, LookupError> {
    match (random.below(6), lookup) {
        (0, _) => Err(LookupError::Refused("no".to_owned())),
        (1, _) => Err(LookupError::Unavailable("gone".to_owned())),
        (2, _) => Ok(Found::Numbers(vec![1])),
        (_, Lookup::Lease(lease)) => Ok(Found::Numbers((1..=i64::from(lease.count)).collect())),
        (_, Lookup::Maximum(_)) => Ok(Found::Maximum(Some(i64::MAX - 1))),
    }
}

/// What docward sends to the server for a guarded collection is a command it would read again.
fn assert_readable(message: &[u8]) {
    let command = Command::parse(message).unwrap_or_else(|error| panic!("{error} in {message:?}"));
    if let Some(form) = Form::of(classify(command.name.as_bytes())) {
        Batch::read(&command, form).unwrap_or_else(|error| panic!("{error} in {message:?}"));
    }
    bson::Document::from_reader(&mut &*command.message.body).err().into_iter().for_each(|error| {
        assert!(error.to_string().contains("UTF-8"), "{error} in {message:?}");
    });
}

fn is_guarded_write(frame: &[u8], rules: &RuleSet) -> bool {
    let Ok(command) = Command::parse(frame) else { return true };
    let guarded = command.collection().and_then(|ns| rules.rules_for(ns.database, ns.collection)).is_some();
    guarded && Form::of(classify(command.name.as_bytes())).is_some()
}

#[test]
fn what_no_rule_changes_is_written_back_as_it_was() {
    for frame in frames() {
        let Ok(command) = Command::parse(&frame) else { continue };
        let Some(form) = Form::of(classify(command.name.as_bytes())) else { continue };
        let batch = Batch::read(&command, form).unwrap();
        let before = content(&frame, form);
        assert_eq!(content(&batch.encode(&command, batch.statements.iter()), form), before);
        let part = |index: usize| Part { index, statement: &batch.statements[index] };
        let parts: Vec<Part<'_, '_>> = (0..batch.statements.len()).map(part).collect();
        let mut whole = content(&batch.encode_part(&command, &parts, PartOptions::default()), form);
        let ids = whole.0.remove("stmtIds");
        let mut before = before;
        let own_ids = before.0.remove("stmtIds");
        if own_ids.is_some() {
            assert_eq!(ids, own_ids);
        }
        assert_eq!(whole, before);
        for index in 0..batch.statements.len() {
            let (body, lists) = content(&batch.encode_part(&command, &[part(index)], PartOptions::default()), form);
            if let Some(list) = form.list() {
                assert_eq!(lists[list], before.1[list][index..=index]);
            }
            assert_eq!(body.get("lsid"), before.0.get("lsid"));
        }
    }
}

type Lists = std::collections::BTreeMap<String, Vec<Bson_>>;

/// What a message says, by the bson crate: its body, and the lists apart, in whichever form they came.
fn content(frame: &[u8], form: Form) -> (Bson_, Lists) {
    let message = Made::parse(&Frame::read(&mut &*frame).unwrap().unwrap());
    let mut body = message.body().clone();
    let lists = form.list().into_iter().chain((form == Form::BulkWrite).then_some("nsInfo"));
    let lists = lists.map(|list| (list.to_owned(), message.documents(list))).collect();
    for list in ["documents", "updates", "deletes", "ops", "nsInfo"] {
        body.remove(list);
    }
    assert!(body.get("$db").is_some_and(|db| matches!(db, Bson::String(_))));
    (body, lists)
}

#[test]
fn rule_files_are_loaded_or_refused() {
    let seeds: Vec<Vec<u8>> = ["replacement", "sequence", "timestamps", "tree"]
        .iter()
        .map(|name| std::fs::read(format!("{}/rules/{name}.yaml", env!("CARGO_MANIFEST_DIR"))).unwrap())
        .chain([RULES.as_bytes().to_vec(), b"version: 1\nrules: [[[[{a: &x [*x]}]]]]".to_vec()])
        .collect();
    fuzz(4, &seeds, false, |bytes, _| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        if let Err(report) = load(&text) {
            assert!(!report.to_string().is_empty());
        }
    });
    for nasty in
        ["[".repeat(100_000), "{a: ".repeat(50_000), "- ".repeat(100_000), "&a [*a]".to_owned(), "\0".repeat(1000)]
    {
        let started = Instant::now();
        assert!(load(&nasty).is_err());
        assert!(started.elapsed() < TOO_LONG, "{:?}", started.elapsed());
    }
}
