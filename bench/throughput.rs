//! Throughput, CPU and latency of docward beside a direct connection, a bare relay and HAProxy, in one run.
//!
//! `cargo bench --bench throughput`; with names of sections behind `--` (fast, mongod, idle) only those.
//! Contenders take turns in every round, so that what else the machine does falls on all of them alike: read
//! the ratios, not the figures. The story is here; `contenders.rs` starts what is compared, `load.rs` drives
//! it, `canned.rs` answers it, `table.rs` prints.

mod canned;
mod contenders;
mod frames;
mod load;
mod relay;
#[path = "../tests/support/mod.rs"]
mod support;
mod table;
mod usage;

use std::time::Duration;

use anyhow::{Result, bail};
use contenders::{Contender, Upstream};
use load::{Load, Measure};
use table::Table;

/// Rounds in which every contender has its turn; medians need an odd number of at least five.
const ROUNDS: usize = 5;
/// How long one turn is measured, after [`WARM_UP`].
const TURN: Duration = Duration::from_millis(900);
const WARM_UP: Duration = Duration::from_millis(150);
/// Connections of a turn: what a small application's pool has.
const CONNECTIONS: usize = 16;
/// Idle connections whose memory is measured, after as many again.
const IDLE: usize = 1_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    match words.as_slice() {
        // This program is also the servers it compares with, each a process of its own.
        ["serve", "canned"] => return canned::serve(),
        ["serve", "relay", upstream] => return relay::serve(upstream),
        _ if !arguments.iter().any(|argument| argument == "--bench") => {
            println!("throughput: a benchmark; run it by `cargo bench --bench throughput`");
            return Ok(());
        }
        _ => {}
    }
    if let Some(unknown) = words.iter().find(|word| !["fast", "mongod", "idle"].contains(word)) {
        bail!("there is no section '{unknown}'; choose among fast, mongod and idle");
    }
    let wanted = |section| words.is_empty() || words.contains(&section);
    if wanted("fast") {
        fast()?;
    }
    if wanted("mongod") {
        mongod()?;
    }
    if wanted("idle") {
        idle()?;
    }
    Ok(())
}

/// What is between the client and a server that answers at once: the cost of the proxies themselves.
fn fast() -> Result<()> {
    let upstream = Upstream::canned()?;
    let direct = Contender::direct(&upstream);
    let relay = Contender::relay(&upstream)?;
    let bare = Contender::docward(&upstream, "docward, no rules", "");
    let ruled = Contender::docward(&upstream, "docward, 1,000 rules", &contenders::thousand_rules());
    let haproxy = Contender::haproxy(&upstream)?;
    if haproxy.is_none() {
        println!("HAProxy is skipped: no `haproxy` on the PATH (on Debian: apt-get install haproxy)");
    }
    let find = || Load::new(CONNECTIONS, |id| frames::find("devices", id));
    let update = |collection: &'static str| {
        Load::new(CONNECTIONS, move |id| frames::update(collection, id, 1, &frames::state()))
    };
    let mut table = Table::new("canned upstream, 16 connections", "of the relay");
    table.row("find: direct", &direct, find());
    let relayed = table.row("find: bare tokio relay", &relay, find());
    let compared = haproxy.as_ref().map(|haproxy| table.row("find: HAProxy, TCP mode", haproxy, find()));
    table.row("find: docward, no rules", &bare, find());
    let unmatched = table.row("find: docward, 1,000 rules", &ruled, find());
    let plain = table.row("update: docward, no rule concerns it", &ruled, update("devices"));
    let stamped = table.row("update: docward, timestamps", &ruled, update("stamped"));
    let guarded = Load::new(CONNECTIONS, |id| frames::update("versioned", id, 1, &frames::versioned()));
    let guarded = table.row("update: docward, replacement guard", &ruled, guarded);
    let results = table.run(Some(relayed))?;

    println!("docward with 1,000 rules, find: {}", results.compare(unmatched, relayed, "the bare relay"));
    if let Some(haproxy) = compared {
        println!("docward with 1,000 rules, find: {}", results.compare(unmatched, haproxy, "HAProxy"));
    }
    println!("rewritten by timestamps: {}", results.compare(stamped, plain, "the unmatched update"));
    println!("rewritten by replacement guard: {}", results.compare(guarded, plain, "the unmatched update"));
    println!();
    Ok(())
}

/// The same messages before a real server.
fn mongod() -> Result<()> {
    if std::env::var_os("MONGOD").is_none() {
        println!("mongod is skipped: set MONGOD to the path of one, or run `make bench`\n");
        return Ok(());
    }
    let upstream = Upstream::mongod(CONNECTIONS)?;
    let direct = Contender::direct(&upstream);
    let docward = Contender::docward(&upstream, "docward", &contenders::thousand_rules());
    let mut table = Table::new("real mongod (standalone), 16 connections", "of direct");
    let mut pairs = Vec::new();
    let mut pair = |name: &str, load: &dyn Fn() -> Load| {
        let straight = table.row(&format!("{name}: direct"), &direct, load());
        pairs.push((name.to_owned(), straight, table.row(&format!("{name}: docward"), &docward, load())));
        straight
    };
    pair("find", &|| Load::new(CONNECTIONS, |id| frames::find("devices", id)));
    pair("insert", &|| Load::new(CONNECTIONS, |_| frames::insert("inserted", 1024)));
    let straight = pair("update", &|| Load::new(CONNECTIONS, |id| frames::update("devices", id, 1, &frames::state())));
    let stamp = |collection, id| frames::update(collection, id, 1, &frames::state());
    let rules = contenders::rule_set()?;
    // A collection of its own: on the same documents the slower of the two would be stale, and write nothing.
    let pipeline = Load::new(CONNECTIONS, |id| contenders::rewritten(&stamp("mirrored", id), &rules));
    let pipeline = table.row("update: direct, as timestamps rewrites it", &direct, pipeline);
    let stamped = table.row("update: docward, timestamps", &docward, Load::new(CONNECTIONS, |id| stamp("stamped", id)));
    pairs.push(("timestamps, what the server makes of the pipeline".to_owned(), straight, pipeline));
    let results = table.run(None)?;
    for (name, straight, through) in pairs {
        println!("{name}: {}", results.compare(through, straight, "direct"));
    }
    println!("timestamps, docward: {}", results.compare(stamped, pipeline, "the same pipeline sent directly"));
    println!();
    Ok(())
}

/// Resident memory of a proxy for each connection on which nothing happens.
fn idle() -> Result<()> {
    let upstream = Upstream::canned()?;
    let docward = Contender::docward(&upstream, "docward", &contenders::thousand_rules());
    let relay = Contender::relay(&upstream)?;
    println!("resident memory for each idle connection ({IDLE} of them, each has sent one find)");
    for contender in [Some(docward), Some(relay), Contender::haproxy(&upstream)?].into_iter().flatten() {
        let frame = frames::find("devices", 1);
        // The first connections pay for what all of them share.
        let first = load::open_idle(&contender.address, IDLE, &frame)?;
        let before = contender.resident()?;
        let more = load::open_idle(&contender.address, IDLE, &frame)?;
        let grown = contender.resident()?.saturating_sub(before);
        println!("  {:<42} {:>6.2} KiB", contender.name, grown as f64 / 1024.0 / IDLE as f64);
        drop((first, more));
    }
    println!();
    Ok(())
}

/// One turn of one contender.
fn turn(contender: &Contender, load: &mut Load) -> Result<Measure> {
    load.run(contender, WARM_UP)?;
    load.run(contender, TURN)
}
