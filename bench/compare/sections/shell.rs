//! mongosh workloads: run by real shells, and replayed at rates that shells do not reach.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;

use crate::contenders::Contender;
use crate::report::Report;
use crate::rounds::Spread;
use crate::shell::WORKLOADS;
use crate::shell::deployment::Deployment;
use crate::shell::mongosh::{self, Amount, Broken, Numbers};
use crate::shell::replay::{Pace, Replay, prepare_all};

const ROUNDS: usize = 5;
/// Concurrent shells and their repetitions.
const AMOUNT: Amount = Amount { shells: 4, rounds: 200 };
/// How long a workload is replayed per turn.
const TURN: Duration = Duration::from_millis(800);
/// Messages per second of the open loop.
const RATE: f64 = 1_000.0;

/// The number of rounds in which an invariant did not hold, and the largest count.
#[derive(Default)]
struct Breaches {
    rounds: usize,
    most: i64,
}

/// Runs the workloads with mongosh.
pub(super) fn shells() -> Result<Option<Report>> {
    let deployment = Deployment::start()?;
    let (direct, protected) = (deployment.mongod.uri(), deployment.protected());
    let ways = [(direct.clone(), Numbers::Application), (protected.uri(), Numbers::Docward)];
    let mut rates = vec![[Vec::new(), Vec::new()]; WORKLOADS.len()];
    let mut operations = vec![0; WORKLOADS.len()];
    let mut breaches: Vec<[Breaches; 2]> = WORKLOADS.iter().map(|_| Default::default()).collect();
    for round in 0..ROUNDS {
        for way in [round % 2, (round + 1) % 2] {
            let (uri, numbers) = &ways[way];
            mongosh::set_up(&direct)?;
            let work = mongosh::work(uri, AMOUNT, *numbers)?;
            let broken = mongosh::check(&direct)?;
            for (at, workload) in WORKLOADS.iter().enumerate() {
                rates[at][way].push(work[*workload].rate);
                operations[at] = work[*workload].operations;
                breaches[at][way].add(&broken, workload);
            }
        }
        eprintln!("round {} of {ROUNDS}", round + 1);
    }
    let mut text =
        "| | operations | ops/s directly | ops/s through docward | broken directly | broken through docward |\n\
                    |---|---|---|---|---|---|\n"
            .to_owned();
    for (at, workload) in WORKLOADS.iter().enumerate() {
        let [directly, through] = rates[at].clone().map(Spread::of).map(whole);
        let [unprotected, kept] = &breaches[at];
        let operations = operations[at];
        let _ = writeln!(
            text,
            "| {workload} | {operations} | {directly} | {through} | {} | {} |",
            unprotected.shown(),
            kept.shown()
        );
    }
    let mut report = Report::new("shell");
    report.text(&text);
    Ok(Some(report))
}

/// Replays the commands that the shells sent.
pub(super) fn replay() -> Result<Option<Report>> {
    let deployment = Deployment::start()?;
    let ways = [
        ("directly", deployment.direct()),
        ("through docward, rules off", Contender::running(deployment.unprotected())),
        ("through docward", Contender::running(deployment.protected())),
    ];
    let mut report = Report::new("replay");
    let paces = [
        ("closed loop, 16 connections", 16, Pace::Closed),
        ("closed loop, 64 connections", 64, Pace::Closed),
        ("open loop, 64 connections", 64, Pace::Open(RATE)),
    ];
    for (name, connections, pace) in paces {
        eprintln!("{name}");
        report.text(&format!("### Replayed: {name}\n"));
        report.text(&replay_rounds(&deployment, &ways, connections, pace)?);
    }
    Ok(Some(report))
}

/// The rounds of one workload on one path.
#[derive(Default)]
struct Row {
    rates: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    refused: u64,
    breaches: Breaches,
}

fn replay_rounds(
    deployment: &Deployment,
    ways: &[(&str, Contender); 3],
    connections: usize,
    pace: Pace,
) -> Result<String> {
    // Each path has its own connections and sessions.
    let mut replays = (0..ways.len()).map(|_| prepare_all(connections)).collect::<Result<Vec<Vec<Replay>>>>()?;
    let mut rows: Vec<Vec<Row>> = ways.iter().map(|_| WORKLOADS.iter().map(|_| Row::default()).collect()).collect();
    for round in 0..ROUNDS {
        for offset in 0..ways.len() {
            let way = (round + offset) % ways.len();
            for (replay, row) in replays[way].iter_mut().zip(&mut rows[way]) {
                let (measure, outcome) = replay.run(deployment, &ways[way].1, pace, TURN)?;
                row.rates.push(measure.rate);
                row.p50.push(measure.percentile(0.5));
                row.p99.push(measure.percentile(0.99));
                row.refused += outcome.refused;
            }
            let broken = mongosh::check(&deployment.mongod.uri())?;
            for (workload, row) in WORKLOADS.iter().zip(&mut rows[way]) {
                row.breaches.add(&broken, workload);
            }
        }
        eprintln!("round {} of {ROUNDS}", round + 1);
    }
    let mut text =
        "| | | messages/s | p50 µs | p99 µs | refused by rules | broken |\n|---|---|---|---|---|---|---|\n".to_owned();
    for (at, workload) in WORKLOADS.iter().enumerate() {
        for ((way, _), rows) in ways.iter().zip(&rows) {
            let Row { rates, p50, p99, refused, breaches } = &rows[at];
            let [rate, p50, p99] = [rates, p50, p99].map(|values| whole(Spread::of(values.clone())));
            let _ =
                writeln!(text, "| {workload} | {way} | {rate} | {p50} | {p99} | {refused} | {} |", breaches.shown());
        }
    }
    Ok(text)
}

impl Breaches {
    fn add(&mut self, broken: &Broken, workload: &str) {
        let most = broken[workload].values().copied().max().unwrap_or_default();
        self.rounds += usize::from(most > 0);
        self.most = self.most.max(most);
    }

    fn shown(&self) -> String {
        match self.rounds {
            0 => "never".to_owned(),
            rounds => format!("**{rounds} of {ROUNDS} rounds**, at most {}", self.most),
        }
    }
}

/// Formats whole numbers, which are precise enough here.
fn whole(spread: Spread) -> String {
    format!("{:.0} ({:.0} – {:.0})", spread.median, spread.least, spread.most)
}
