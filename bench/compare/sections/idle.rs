//! Memory of idle connections.

use anyhow::Result;

use super::server::mongod;
use crate::contenders::{self, Contender, Upstream};
use crate::load::Idle;
use crate::report::{Goal, Report};
use crate::rounds::Spread;
use crate::{frames, load};
use support::mongod::Kind;

/// Connections before the first measurement: they include the cost that all connections share.
const FIRST: usize = 500;
/// Connections at each further measurement. A connection needs two descriptors, so the last stays below a common
/// limit of 20,000.
const STEPS: [usize; 3] = [1_000, 4_000, 9_400];
/// Server connections of the pool.
const SIZE: usize = 50;
/// Most KiB of an idle connection.
const LIMIT: Goal = Goal::AtMost(2.5);

pub(super) fn idle() -> Result<Option<Report>> {
    let upstream = Upstream::canned()?;
    let mut report = Report::new("idle");
    let mut table = format!("| KiB for each connection beyond the first {FIRST} |");
    STEPS.iter().for_each(|count| table += &format!(" {} |", FIRST + count));
    table += "\n|---|---|---|---|\n";
    let docward = Contender::docward(&upstream, &contenders::thousand_rules());
    let relay = Contender::relay(&upstream)?;
    let haproxy = Contender::haproxy(&upstream)?.map(|haproxy| ("HAProxy", haproxy));
    for (name, contender) in
        [Some(("docward", docward)), Some(("bare tokio relay", relay)), haproxy].into_iter().flatten()
    {
        let (grown, _open) = grown(&contender)?;
        if name == "docward" {
            report.goal("KiB of an idle connection", LIMIT, Spread::of(grown.to_vec()));
        }
        table += &row(name, grown);
    }
    table += &pooled(&mut report)?.unwrap_or_default();
    report.text(&table);
    Ok(Some(report))
}

/// The row of clients that share the connections of a real mongod, and how many more it has than the pool; `None`: there
/// is no mongod.
fn pooled(report: &mut Report) -> Result<Option<String>> {
    let Some(upstream) = mongod(Kind::Standalone)? else { return Ok(None) };
    let before = upstream.connections()?;
    let contender = Contender::pooled(&upstream, &contenders::thousand_rules(), SIZE, "members");
    let (grown, _open) = grown(&contender)?;
    report.goal("KiB of an idle connection that shares server connections", LIMIT, Spread::of(grown.to_vec()));
    let own = upstream.connections()?.saturating_sub(before + SIZE);
    let what = format!("connections at mongod beyond the pool of {SIZE} (docward's monitor has up to two)");
    report.goal(&what, Goal::AtMost(2.0), Spread::of(vec![own as f64]));
    Ok(Some(row("docward, pool", grown)))
}

fn row(name: &str, grown: [f64; 3]) -> String {
    format!("| {name} | {:.2} | {:.2} | {:.2} |\n", grown[0], grown[1], grown[2])
}

/// Memory per connection beyond the first ones, at each step; and the connections, which are still open.
fn grown(contender: &Contender) -> Result<([f64; 3], Vec<Idle>)> {
    let frame = frames::find("devices", 1);
    let mut open = vec![load::open_idle(&contender.address, FIRST, &frame)?];
    let before = contender.resident()?;
    let mut grown = [0.0; 3];
    let mut there = 0;
    for (kib, count) in grown.iter_mut().zip(STEPS) {
        open.push(load::open_idle(&contender.address, count - there, &frame)?);
        there = count;
        *kib = contender.resident()?.saturating_sub(before) as f64 / 1024.0 / count as f64;
    }
    Ok((grown, open))
}
