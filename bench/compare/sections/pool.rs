//! Many client connections before a real mongod, with and without a pool of server connections.

use anyhow::Result;

use super::canned::rate;
use super::server::mongod;
use crate::contenders::{self, Contender};
use crate::cycle::Cycle;
use crate::frames;
use crate::load::{Load, Measure};
use crate::report::{Goal, Report};
use crate::rounds::{Results, RowId};
use support::mongod::Kind;

/// Server connections of the pool.
const SIZE: usize = 50;
const FEW_CLIENTS: usize = 32;
const MANY_CLIENTS: usize = 4_000;
/// Rounds with few and with many clients. Goals are met only if the interval of the rounds reaches them.
const ROUNDS: [usize; 2] = [21, 41];
/// With many clients a turn must be long: each client gets its turn only a few times a second.
const TURN: std::time::Duration = std::time::Duration::from_secs(3);

/// A path to a mongod of its own, so that its memory is that of this path's connections.
struct Path {
    name: &'static str,
    contender: Contender,
}

pub(super) fn pool() -> Result<Option<Report>> {
    let mut report = Report::new("pool");
    for (clients, rounds) in [FEW_CLIENTS, MANY_CLIENTS].into_iter().zip(ROUNDS) {
        let mut upstreams = Vec::new();
        let mut paths = Vec::new();
        for name in ["direct", "HAProxy", "docward", "docward, pool", "docward, router"] {
            let Some(upstream) = mongod(Kind::ReplicaSet)? else { return Ok(None) };
            let contender = match name {
                "direct" => Some(Contender::direct(&upstream)),
                "HAProxy" => Contender::haproxy(&upstream)?,
                "docward" => Some(Contender::docward(&upstream, &contenders::thousand_rules())),
                "docward, pool" => Some(Contender::pooled(&upstream, &contenders::thousand_rules(), SIZE, "members")),
                _ => Some(Contender::pooled(&upstream, &contenders::thousand_rules(), SIZE, "router")),
            };
            if let Some(contender) = contender {
                paths.push(Path { name, contender: contender.measuring(&upstream) });
            }
            upstreams.push(upstream);
        }
        compare(clients, rounds, &paths, &mut report)?;
    }
    Ok(Some(report))
}

fn compare(clients: usize, rounds: usize, paths: &[Path], report: &mut Report) -> Result<()> {
    let find = |client| Cycle::of(frames::find("devices", client % FEW_CLIENTS as i64));
    let mut loads: Vec<Load> = paths.iter().map(|_| Load::new(clients, find)).collect();
    let mut measures: Vec<Vec<Measure>> = paths.iter().map(|_| Vec::new()).collect();
    let mut resident = vec![0.0_f64; paths.len()];
    for round in 0..rounds {
        for offset in 0..paths.len() {
            let at = (round + offset) % paths.len();
            measures[at].push(loads[at].run(&paths[at].contender, TURN)?);
            resident[at] = resident[at].max(paths[at].contender.resident()? as f64 / 1024.0 / 1024.0);
        }
        eprintln!("{clients} clients, round {} of {rounds}", round + 1);
    }
    let names = paths.iter().map(|path| format!("{}, {clients} clients", path.name)).collect();
    let results = Results::new(names, measures);
    let row = |name: &str| paths.iter().position(|path| path.name == name).map(RowId::at);
    let (pool, direct, plain) = (row("docward, pool"), row("direct"), row("docward"));
    if let (Some(pool), Some(direct), Some(plain)) = (pool, direct, plain) {
        if clients == MANY_CLIENTS {
            let ratio = results.ratio(pool, direct, rate);
            report.goal("4,000 clients: operations per second, of direct", Goal::AtLeast(1.3), ratio);
            if let Some(router) = row("docward, router") {
                let ratio = results.ratio(router, direct, rate);
                report.goal("4,000 clients: operations per second of a router, of direct", Goal::AtLeast(1.3), ratio);
            }
            if let Some(haproxy) = row("HAProxy") {
                let ratio = results.ratio(pool, haproxy, rate);
                report.goal("4,000 clients: operations per second, of HAProxy's", Goal::AtLeast(1.4), ratio);
            }
            let p99 = results.ratio(pool, direct, |measure| measure.percentile(0.99));
            report.goal("4,000 clients: p99, of direct", Goal::AtMost(1.0), p99);
        } else {
            let ratio = results.ratio(pool, plain, rate);
            report.goal("32 clients: operations per second, of docward without a pool", Goal::AtLeast(0.95), ratio);
        }
    }
    let mut table = "| | mongod RSS, MiB |\n|---|---|\n".to_owned();
    for (path, resident) in paths.iter().zip(&resident) {
        table += &format!("| {}, {clients} clients | {resident:.0} |\n", path.name);
    }
    report.text("The CPU in this table is that of mongod.\n");
    report.text(&results.table());
    report.text(&table);
    Ok(())
}
