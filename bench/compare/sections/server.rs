//! The same comparison in front of a real mongod, where the server's own work reduces the proxy's share.

use std::cell::Cell;

use anyhow::Result;

use super::canned::{CONNECTIONS, rate};
use crate::contenders::{self, Contender, Upstream};
use crate::cycle::Cycle;
use crate::frames::{self, Session};
use crate::report::{Goal, Report};
use crate::rounds::{MANY, Rounds, RowId};
use support::mongod::Kind;

/// Bytes of text in an inserted document.
const TEXT: usize = 256;

pub(super) fn mongod(kind: Kind) -> Result<Option<Upstream>> {
    if std::env::var_os("MONGOD").is_none() {
        eprintln!("skipped: set MONGOD to the path of a mongod, or run `make bench-compare`");
        return Ok(None);
    }
    Upstream::mongod(kind, CONNECTIONS).map(Some)
}

/// The rows for one number of connections.
struct Inserts {
    connections: usize,
    plain: RowId,
    numbered: RowId,
    own: RowId,
}

/// Numbers for inserted documents: from docward, none, and requested by the application itself.
pub(super) fn sequence() -> Result<Option<Report>> {
    let mut report = Report::new("sequence");
    let sessions = Cell::new(0);
    let own_session = || Session::Own(sessions.replace(sessions.get() + 1));
    // As drivers send them by default: a standalone accepts no retryable writes.
    let ways: [(_, _, &dyn Fn() -> Session); 2] =
        [("standalone", Kind::Standalone, &|| Session::Shared), ("replica set", Kind::ReplicaSet, &own_session)];
    for (name, kind, session) in ways {
        let Some(upstream) = mongod(kind)? else { return Ok(None) };
        insert_into(&upstream, name, session, &mut report)?;
    }
    Ok(Some(report))
}

/// `session` makes a separate session for each connection of each row.
fn insert_into(upstream: &Upstream, name: &str, session: &dyn Fn() -> Session, report: &mut Report) -> Result<()> {
    let direct = Contender::direct(upstream);
    let docward = Contender::docward(upstream, &contenders::thousand_rules());
    let insert = |collection| move |_| Cycle::of(frames::insert_in(session(), collection, TEXT));
    let own = |_| {
        let session = session();
        Cycle::together(vec![frames::next_number(session, "own"), frames::insert_in(session, "own", TEXT)])
    };
    let mut rounds = Rounds::new(MANY);
    let rows = [1, CONNECTIONS, 64].map(|connections| {
        let mut row = |what, contender, cycle: &dyn Fn(i64) -> Cycle| {
            rounds.closed(&format!("{what}, connections: {connections}"), contender, connections, cycle)
        };
        // Without numbers and without a proxy: the server's maximum.
        row("direct, insert without a number", &direct, &insert("bare"));
        Inserts {
            connections,
            plain: row("docward, insert without a rule", &docward, &insert("plain")),
            numbered: row("docward, insert with `sequence`, block 100", &docward, &insert("numbered")),
            own: row("direct, findAndModify of a counter, then insert", &direct, &own),
        }
    });
    let results = rounds.run()?;
    let mut ratios =
        format!("| {name}, connections | of those without a rule | of the application's own way |\n|---|---|---|\n");
    for Inserts { connections, plain, numbered, own } in rows {
        let (of_plain, of_own) = (results.ratio(numbered, plain, rate), results.ratio(numbered, own, rate));
        ratios += &format!("| {connections} | {of_plain} | {of_own} |\n");
        if connections == CONNECTIONS {
            report.goal(&format!("{name}: inserts per second, of those without a rule"), Goal::AtLeast(0.9), of_plain);
            report.goal(
                &format!("{name}: inserts per second, of the application's own way"),
                Goal::AtLeast(3.0),
                of_own,
            );
        }
    }
    report.text(&ratios);
    report.text(&results.table());
    Ok(())
}

/// Reads, inserts, updates and deletes that no rule matches.
pub(super) fn mixed() -> Result<Option<Report>> {
    let Some(upstream) = mongod(Kind::Standalone)? else { return Ok(None) };
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
    let mut rounds = Rounds::new(MANY);
    rounds.closed("direct", &direct, CONNECTIONS, mix);
    let balanced = haproxy.as_ref().map(|haproxy| rounds.closed("HAProxy", haproxy, CONNECTIONS, mix));
    let protected = rounds.closed("docward, 1,000 rules", &docward, CONNECTIONS, mix);
    let results = rounds.run()?;
    let mut report = Report::new("mixed");
    if let Some(balanced) = balanced {
        let ratio = results.ratio(protected, balanced, rate);
        report.goal("operations per second, of HAProxy's", Goal::AtLeast(0.97), ratio);
    }
    report.text(&results.table());
    Ok(Some(report))
}
