//! What one message costs: time, and allocations, of triage, of parsing, and of whole plans.
//!
//! `cargo bench --bench messages`; with a word behind `--` only the benchmarks whose name contains it.
//! Sockets and the clock stay out: `throughput.rs` has those. A batch's figures are for the whole batch;
//! its items per second are statements.

#![allow(clippy::unwrap_used, reason = "a benchmark whose preparation fails should say so at once")]

mod frames;

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher, black_box};
use docward::command::{Batch, Command, Form};
use docward::engine::lookup::{Found, Lookup};
use docward::engine::{Input, Now, Plan, Session, Step, Triage, triage};
use docward::patterns::RuleSet;
use docward::rules::Source;

/// The binary's own allocator, counted.
#[global_allocator]
static ALLOCATOR: AllocProfiler<mimalloc::MiMalloc> = AllocProfiler::new(mimalloc::MiMalloc);

fn main() {
    divan::main();
}

fn rule_set(texts: &[String]) -> RuleSet {
    let source = |text: &String| Source { name: "bench.yaml".to_owned(), text: text.clone() };
    RuleSet::from_sources(texts.iter().filter(|text| !text.is_empty()).map(source).collect()).unwrap()
}

/// The first bytes say where a frame goes; the whole of the fast path's own work.
mod triage_of {
    use super::*;

    fn forwards(bencher: Bencher<'_, '_>, rules: usize, frame: &[u8]) {
        let rules = rule_set(&[frames::unrelated_rules(rules)]);
        assert_eq!(triage(frame, &rules), Triage::Forward { expects_reply: true });
        bencher.bench_local(|| triage(black_box(frame), &rules));
    }

    #[divan::bench(args = [0, 10, 1_000, 10_000])]
    fn find(bencher: Bencher<'_, '_>, rules: usize) {
        forwards(bencher, rules, &frames::find("devices", 1));
    }

    #[divan::bench(args = [0, 10, 1_000, 10_000])]
    fn insert_1_kib(bencher: Bencher<'_, '_>, rules: usize) {
        forwards(bencher, rules, &frames::insert("devices", 1024));
    }
}

/// Reading a message that a rule may concern: every document of it is checked to the bottom.
mod parse {
    use super::*;

    fn parses(bencher: Bencher<'_, '_>, form: Form, frame: &[u8]) {
        bencher.bench_local(|| {
            let command = Command::parse(black_box(frame)).unwrap();
            Batch::read(&command, form).unwrap().statements.len()
        });
    }

    #[divan::bench]
    fn guarded_update(bencher: Bencher<'_, '_>) {
        parses(bencher, Form::Update, &frames::update("versioned", 1, 1, &frames::versioned()));
    }

    #[divan::bench]
    fn stamped_update(bencher: Bencher<'_, '_>) {
        parses(bencher, Form::Update, &frames::update("stamped", 1, 1, &frames::state()));
    }

    #[divan::bench]
    fn insert_1_kib(bencher: Bencher<'_, '_>) {
        parses(bencher, Form::Insert, &frames::insert("numbered", 1024));
    }
}

/// A judged message from its whole frame to its last step, with what it asks for answered at once.
mod plan {
    use super::*;

    /// An acknowledged write of one statement, as the server answers it.
    fn acknowledged() -> Vec<u8> {
        frames::reply(1, &bson::doc! { "n": 1, "nModified": 1, "ok": 1.0 })
    }

    fn carry_out(frame: &[u8], rules: &RuleSet, reply: &[u8]) -> Step {
        let mut session = Session::default();
        let mut plan = Plan::new(frame, rules, Now { milliseconds: frames::TICK });
        let mut step = plan.next(Input::Start, &mut session);
        loop {
            step = match step {
                Step::Exchange(_) => plan.next(Input::Reply(reply), &mut session),
                Step::Lookup(Lookup::Lease(lease)) => {
                    let numbers = (1..=i64::from(lease.count)).collect();
                    plan.next(Input::Found(Ok(Found::Numbers(numbers))), &mut session)
                }
                last => {
                    black_box(plan.take_observations());
                    return last;
                }
            }
        }
    }

    fn plans(bencher: Bencher<'_, '_>, frame: &[u8], expected: impl Fn(&Step) -> bool) {
        let rules = rule_set(&[frames::guards(), frames::unrelated_rules(1_000)]);
        let reply = acknowledged();
        let step = carry_out(frame, &rules, &reply);
        assert!(expected(&step), "{step:?}");
        bencher.bench_local(|| carry_out(black_box(frame), &rules, &reply));
    }

    fn is_rewritten(step: &Step) -> bool {
        matches!(step, Step::Forward { .. })
    }

    fn is_answered(step: &Step) -> bool {
        matches!(step, Step::Reply(_))
    }

    #[divan::bench]
    fn replacement_guard(bencher: Bencher<'_, '_>) {
        plans(bencher, &frames::update("versioned", 1, 1, &frames::versioned()), is_answered);
    }

    #[divan::bench]
    fn replacement_rejected(bencher: Bencher<'_, '_>) {
        plans(bencher, &frames::update("refused", 1, 1, &frames::versioned()), is_answered);
    }

    #[divan::bench]
    fn timestamps_per_field_5_fields(bencher: Bencher<'_, '_>) {
        plans(bencher, &frames::update("stamped", 1, 1, &frames::state()), is_rewritten);
    }

    #[divan::bench]
    fn timestamps_per_document_5_fields(bencher: Bencher<'_, '_>) {
        plans(bencher, &frames::update("newest", 1, 1, &frames::state()), is_rewritten);
    }

    #[divan::bench]
    fn sequence_insert_1_kib(bencher: Bencher<'_, '_>) {
        plans(bencher, &frames::insert("numbered", 1024), is_rewritten);
    }

    #[divan::bench(args = [100, 1_000])]
    fn replacement_guard_batch(bencher: Bencher<'_, '_>, statements: usize) {
        let frame = frames::update("versioned", 1, statements, &frames::versioned());
        plans(bencher.counter(ItemsCount::new(statements)), &frame, is_answered);
    }

    #[divan::bench(args = [100, 1_000])]
    fn timestamps_batch(bencher: Bencher<'_, '_>, statements: usize) {
        let frame = frames::update("stamped", 1, statements, &frames::state());
        plans(bencher.counter(ItemsCount::new(statements)), &frame, is_rewritten);
    }
}
