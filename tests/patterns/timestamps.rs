//! The pattern `timestamps` in front of a real mongod, through the official driver. `differential` compares docward's
//! pipelines with the operators that they replace; `examples` tests each setting with single writes, `operators`
//! other operators in the same statement, `given` the fields that an upsert's filter inserts, `own_timestamps`
//! timestamps that clients write themselves, `reads` and `projections` the fields that `hide` removes, `reset_clock` how timestamps are
//! reset. `tests/patterns/convergence.rs` shows that updates converge.

mod differential;
mod examples;
mod given;
mod operators;
mod own_timestamps;
mod projections;
mod reads;
mod reset_clock;

use std::sync::OnceLock;

use bson::{Bson, DateTime};
use support::driver::Views;
use support::mongod::Mongod;
use support::proxy::Docward;

/// One rule for each setting, with the name of its collection.
const RULES: &str = r#"
version: 1
rules:
  - { name: fields, namespace: "*.fields", timestamps: { source: at } }
  - { name: paths, namespace: "*.paths", timestamps: { source: at, fields: [a, n.b, n.c, d.x.y], store: timestamps } }
  - { name: documents, namespace: "*.documents", timestamps: { source: at, per: document, store: newest } }
  - { name: comment, namespace: "*.comment", timestamps: { source: $comment.event.at, type: long } }
  - { name: arrival, namespace: "*.arrival", timestamps: { source: $clock } }
  - { name: clock, namespace: "*.clock", timestamps: { source: at, without_source: clock } }
  - { name: clocked, namespace: "*.clocked", timestamps: { source: at, fields: [a, n.b], without_source: clock } }
  - { name: pass, namespace: "*.pass", timestamps: { source: at, without_source: pass } }
  - { name: long, namespace: "*.long", timestamps: { source: at, type: long } }
  - { name: timestamp, namespace: "*.timestamp", timestamps: { source: at, type: timestamp } }
  - { name: ahead, namespace: "*.ahead", timestamps: { source: at, max_ahead: 10m } }
  - { name: ahead-long, namespace: "*.ahead_long", timestamps: { source: at, type: long, max_ahead: 10m } }
  - { name: ahead-timestamp, namespace: "*.ahead_timestamp", timestamps: { source: at, type: timestamp, max_ahead: 10m } }
  - { name: ahead-clock, namespace: "*.ahead_clock", timestamps: { source: $clock, max_ahead: 1s } }
  - { name: hiding, namespace: "*.hiding", timestamps: { source: at, hide: true } }
"#;

/// One docward with [`RULES`] in front of the shared mongod.
fn docward() -> &'static Docward {
    static DOCWARD: OnceLock<Docward> = OnceLock::new();
    let start = || Docward::before(&Mongod::shared().uri()).rules(RULES).environment("RUST_LOG", "warn").start();
    DOCWARD.get_or_init(start)
}

async fn views() -> Views {
    Views::of(Mongod::shared(), docward()).await
}

/// A source time, far from the present.
fn time(n: i64) -> Bson {
    Bson::DateTime(DateTime::from_millis(1_000_000_000_000 + n))
}
