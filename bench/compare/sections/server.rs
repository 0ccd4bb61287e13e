//! The same before a real mongod: what is left of a proxy's cost where a server has work to do.

use anyhow::Result;

use super::canned::{CONNECTIONS, rate};
use crate::contenders::{self, Contender, Upstream};
use crate::cycle::Cycle;
use crate::frames;
use crate::report::{Goal, Report};
use crate::rounds::Rounds;

/// Bytes of an inserted document's text.
const TEXT: usize = 256;

fn mongod() -> Result<Option<Upstream>> {
    if std::env::var_os("MONGOD").is_none() {
        eprintln!("skipped: set MONGOD to the path of a mongod, or run `make bench-compare`");
        return Ok(None);
    }
    Upstream::mongod(CONNECTIONS).map(Some)
}

/// Numbers for inserted documents: docward's, none, and those that an application asks for itself.
pub(super) fn sequence() -> Result<Option<Report>> {
    let Some(upstream) = mongod()? else { return Ok(None) };
    let direct = Contender::direct(&upstream);
    let docward = Contender::docward(&upstream, &contenders::thousand_rules());
    let insert = |collection: &'static str| move |_| Cycle::of(frames::insert(collection, TEXT));
    let mut rounds = Rounds::new();
    let plain = rounds.closed("docward, insert without a rule", &docward, CONNECTIONS, insert("plain"));
    let numbered =
        rounds.closed("docward, insert with `sequence`, block 100", &docward, CONNECTIONS, insert("numbered"));
    let own = |_| Cycle::together(vec![frames::next_number("own"), frames::insert("own", TEXT)]);
    let own = rounds.closed("direct, findAndModify of a counter, then insert", &direct, CONNECTIONS, own);
    let results = rounds.run()?;
    let mut report = Report::new("sequence");
    let ratio = results.ratio(numbered, plain, rate);
    report.goal("inserts per second, of those without a rule", Goal::AtLeast(0.9), ratio);
    let ratio = results.ratio(numbered, own, rate);
    report.goal("inserts per second, of the application's own way", Goal::AtLeast(3.0), ratio);
    report.text(&results.table());
    Ok(Some(report))
}

/// Reads, inserts, updates and deletes that no rule concerns.
pub(super) fn mixed() -> Result<Option<Report>> {
    let Some(upstream) = mongod()? else { return Ok(None) };
    let direct = Contender::direct(&upstream);
    let haproxy = Contender::haproxy(&upstream)?;
    let docward = Contender::docward(&upstream, &contenders::thousand_rules());
    let mix = |id| {
        let read = || frames::find("devices", id);
        let write = || frames::update("devices", id, 1, &frames::state());
        let come = frames::update("passing", id, 1, &frames::taken());
        Cycle::in_turn(vec![
            read(),
            write(),
            read(),
            frames::insert("inserted", TEXT),
            read(),
            come,
            frames::delete("passing", id),
        ])
    };
    let mut rounds = Rounds::new();
    rounds.closed("direct", &direct, CONNECTIONS, mix);
    let balanced = haproxy.as_ref().map(|haproxy| rounds.closed("HAProxy", haproxy, CONNECTIONS, mix));
    let guarded = rounds.closed("docward, 1,000 rules", &docward, CONNECTIONS, mix);
    let results = rounds.run()?;
    let mut report = Report::new("mixed");
    if let Some(balanced) = balanced {
        let ratio = results.ratio(guarded, balanced, rate);
        report.goal("operations per second, of HAProxy's", Goal::AtLeast(0.97), ratio);
    }
    report.text(&results.table());
    Ok(Some(report))
}
