//! Runs random statements against random rules on a real mongod, through docward and directly, from the same
//! documents. The stored documents must keep every rule's promise. If the direct statement keeps it too, docward's
//! reply and documents must equal the direct ones. `make invariants` runs it for ten minutes, `make test` for some
//! seconds.
//!
//! `DOCWARD_INVARIANTS_SECONDS` sets the duration; `DOCWARD_INVARIANTS_SEED` the first seed, which is printed;
//! `DOCWARD_INVARIANTS_PATTERN` the pattern of most rules; `DOCWARD_INVARIANTS_REPORT` a file to which findings are
//! appended; `DOCWARD_INVARIANTS_STRICT` also reports known findings. `DOCWARD_INVARIANTS_CASE` runs only the case with
//! the seed of a finding.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod allowed;
mod case;
mod change_stream;
mod check;
mod compare;
mod corpus;
mod definitions;
mod dice;
mod excuses;
mod explained;
mod generate;
mod lab;
mod later;
mod originals;
mod patterns;
mod race;
mod reply;
mod rules;
mod show;
mod shrink;
mod validators;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use case::{Case, End, Session};
use change_stream::Follower;
use check::Finding;
use dice::Dice;
use lab::{BothSides, Lab};

/// Sets of rules per docward.
const SETS: usize = 60;
/// Cases per set.
const CASES: usize = 60;
const WORKERS: usize = 3;
/// The seed of a case is the seed of its round times this number, plus its index.
const SEEDS_OF_A_ROUND: u64 = 1_000_000;

/// Cases that are shown for each kind of finding, and the total time for shrinking them.
const EXAMPLES: usize = 2;
const SHRINKING: Duration = Duration::from_secs(120);

/// One collection with its rules.
struct Run<'a> {
    both_sides: &'a mut BothSides,
    collection: &'a str,
}

impl Run<'_> {
    /// Returns the findings of the first step that has any.
    fn case(&mut self, case: &Case) -> Vec<Finding> {
        let mut stored = case.stored.clone();
        self.both_sides.abort_open();
        self.both_sides.store(self.collection, &stored);
        if case.rules.iter().any(|rule| rule.counter()) {
            let has_transaction = case.steps.iter().any(|step| step.session.in_transaction());
            self.both_sides.begin_counting(self.collection, has_transaction);
        }
        let mut is_aborted = false;
        for index in 0..case.steps.len() {
            let step = case.step(index);
            if index > 0 {
                self.both_sides.store(self.collection, &stored);
            }
            let outcome = self.both_sides.run(self.collection, &stored, &step);
            let found = if is_aborted {
                check::findings_after_abort(&outcome)
            } else if outcome.is_raced {
                check::findings_after_race(&case.rules, &step, &outcome, self.both_sides, self.collection)
            } else {
                check::findings(&case.rules, &step, &outcome, self.both_sides, self.collection)
            };
            if !found.is_empty() {
                return found;
            }
            let is_open = step.session == Session::Transaction(End::More);
            is_aborted = is_open && (is_aborted || check::fails(&outcome));
            stored = if is_open { outcome.stored } else { outcome.visible };
        }
        Vec::new()
    }
}

/// The cases of each kind of finding.
type Found = BTreeMap<String, Vec<Example>>;

/// A case that shows a finding.
struct Example {
    seed: u64,
    case: Case,
    finding: Finding,
    /// How many cases ran until then.
    cases: usize,
}

/// The findings of a run, by key; the first cases of each.
#[derive(Default)]
struct Book {
    found: Mutex<Found>,
    cases: AtomicUsize,
    /// Known findings.
    open: AtomicUsize,
}

impl Book {
    fn note(&self, seed: u64, case: &Case, finding: Finding) {
        if allowed::is_open(&finding, &case.rules) {
            self.open.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let (case, cases) = (case.clone(), self.cases.load(Ordering::Relaxed));
        let mut found = self.found.lock().unwrap();
        found.entry(finding.key()).or_default().push(Example { seed, case, finding, cases });
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// The seed of the first round. The short run uses the same seeds each time; the long run finds new cases.
fn first_seed() -> u64 {
    let milliseconds = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
    let is_short = variable("DOCWARD_INVARIANTS_SECONDS").is_none();
    variable("DOCWARD_INVARIANTS_SEED").unwrap_or_else(|| if is_short { 1 } else { milliseconds() % 1_000_000 })
}

/// The findings of the first round that has some. The short run has one round; the long run gives these rounds a tenth
/// of its time, beside the statements.
fn first_findings(round: impl Fn(u64) -> Vec<String>) -> Vec<String> {
    let end = Instant::now() + Duration::from_secs(variable("DOCWARD_INVARIANTS_SECONDS").unwrap_or(0) / 10);
    for seed in first_seed().. {
        let found = round(seed);
        if Instant::now() >= end || !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// The sets of rules of a round.
fn sets(seed: u64) -> Vec<rules::Set> {
    let mut dice = Dice::new(seed);
    (0..SETS).map(|_| generate::set(&mut dice)).collect()
}

fn round(seed: u64, book: &Book, deadline: Instant, limit: u64) {
    let lab = Lab::start(sets(seed));
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let lab = &lab;
            scope.spawn(move || {
                let mut both_sides = lab.both_sides();
                for (index, (collection, set)) in lab.sets.iter().enumerate().skip(worker).step_by(WORKERS) {
                    let mut slow = 0;
                    let is_kept = set.rules.iter().any(|rule| rule.name() == "history");
                    let history = is_kept.then(|| Follower::start(collection));
                    let mut last = None;
                    for number in 0..CASES {
                        // Stops using rules that are slow repeatedly, so that others get their time.
                        let done = book.cases.load(Ordering::Relaxed) as u64 >= limit;
                        if done || Instant::now() > deadline || slow > 1 {
                            break;
                        }
                        let seed = seed * SEEDS_OF_A_ROUND + (index * CASES + number) as u64;
                        let case = generate::case(&mut Dice::new(seed), set);
                        let mut run = Run { both_sides: &mut both_sides, collection };
                        book.cases.fetch_add(1, Ordering::Relaxed);
                        let found = run.case(&case);
                        slow += usize::from(found.iter().any(|finding| finding.kind == "slow"));
                        // A finding that does not repeat comes from the machine's load or from a race.
                        let again = if found.is_empty() { Vec::new() } else { run.case(&case) };
                        for finding in
                            found.into_iter().filter(|finding| again.contains(finding) || finding.kind != "slow")
                        {
                            book.note(seed, &case, finding);
                        }
                        last = Some((seed, case));
                    }
                    if let (Some((seed, case)), Some(wrong)) = (last, history.and_then(Follower::wrong)) {
                        book.note(seed, &case, Finding::new("broken", "history", wrong));
                    }
                }
            });
        }
    });
}

/// Runs the case of a finding's seed alone.
fn repeat(seed: u64, book: &Book) {
    let set = sets(seed / SEEDS_OF_A_ROUND).swap_remove((seed % SEEDS_OF_A_ROUND) as usize / CASES);
    let case = generate::case(&mut Dice::new(seed), &set);
    let lab = Lab::start(vec![set]);
    let (mut both_sides, collection) = (lab.both_sides(), lab.sets[0].0.as_str());
    book.cases.fetch_add(1, Ordering::Relaxed);
    for finding in (Run { both_sides: &mut both_sides, collection }).case(&case) {
        book.note(seed, &case, finding);
    }
}

/// Each kind of finding with the smallest cases that show it.
fn report(found: &Found) -> String {
    let (mut report, mut known) = (String::new(), BTreeSet::new());
    let end = Instant::now() + SHRINKING;
    for (key, examples) in found {
        let first = examples.iter().map(|example| (example.cases, example.seed)).min().unwrap_or_default();
        let (cases, seed) = first;
        report += &format!("\n## {key} ({} times, first after {cases} cases, seed {seed})\n", examples.len());
        let few = examples.iter().step_by(examples.len().div_ceil(EXAMPLES)).filter(|_| Instant::now() < end);
        for Example { seed, case, finding, .. } in few {
            let (smaller, finding) = shrink::smaller(case, finding);
            if known.insert(shrink::signature(&smaller, &finding)) {
                report += &format!("\n  seed {seed}\n  {}\n{smaller}", finding.what);
            }
        }
    }
    report
}

/// Cases of the short run.
const SHORT: u64 = 2500;

#[test]
fn generated_statements_keep_every_promise() {
    let seconds = variable("DOCWARD_INVARIANTS_SECONDS").unwrap_or(15);
    let first = first_seed();
    let limit = variable("DOCWARD_INVARIANTS_SECONDS").map_or(SHORT, |_| u64::MAX);
    eprintln!("invariants: {seconds} s, DOCWARD_INVARIANTS_SEED={first}");
    let book = Book::default();
    lab::server();
    let began = Instant::now();
    let deadline = began + Duration::from_secs(seconds);
    let repeated = variable("DOCWARD_INVARIANTS_CASE");
    if let Some(seed) = repeated {
        repeat(seed, &book);
    }
    for seed in first.. {
        if repeated.is_some() || Instant::now() >= deadline || book.cases.load(Ordering::Relaxed) as u64 >= limit {
            break;
        }
        round(seed, &book, deadline, limit);
    }
    let cases = book.cases.load(Ordering::Relaxed);
    let open = book.open.load(Ordering::Relaxed);
    let found = book.found.into_inner().unwrap();
    eprintln!(
        "invariants: {cases} cases, {:.0} a second, {} kinds of findings, {open} cases of those that are open",
        cases as f64 / began.elapsed().as_secs_f64(),
        found.len()
    );
    let harmless = check::HARMLESS.lock().unwrap().clone();
    let all = harmless.get(check::ALL_HARMLESS).copied().unwrap_or_default();
    let mut rejected: Vec<_> = harmless.iter().filter(|(cause, _)| *cause != check::ALL_HARMLESS).collect();
    rejected.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let rejected: String = rejected.iter().map(|(cause, count)| format!("\n  {count:6} {cause}")).collect();
    eprintln!("invariants: of {all} updates that directly keep every rule, rejected:{rejected}");
    let report = report(&found);
    eprintln!("{report}");
    if let Ok(file) = std::env::var("DOCWARD_INVARIANTS_REPORT") {
        std::fs::write(file, &report).unwrap();
    }
    assert!(found.is_empty(), "{} kinds of findings, see above", found.len());
}

#[test]
fn cases_that_once_broke_a_promise_keep_it() {
    let failures = corpus::failures();
    for (_, described) in &failures {
        eprintln!("corpus: {described}");
    }
    let names: Vec<&String> = failures.iter().map(|(name, _)| name).collect();
    assert!(names.is_empty(), "{} cases of the corpus fail: {names:#?}", names.len());
}
