//! The pattern `replacement` before a real mongod, through the official driver. `race` shows what it is for;
//! `examples` what each setting does to one statement; `batches`, `looks`, `transactions` and `retries` that
//! statements keep their places, ends and numbers; `versions` what becomes of stored versions; `indirect_writes` the other ways in and
//! the ways around.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[path = "../support/mod.rs"]
mod support;

mod batches;
mod examples;
mod indirect_writes;
mod looks;
mod race;
mod retries;
mod transactions;
mod versions;

use std::sync::OnceLock;

use support::driver::Views;
use support::mongod::Mongod;
use support::proxy::Docward;

/// One rule for each setting; its name is its collection's.
const RULES: &str = r#"
version: 1
rules:
  - name: strict
    why: Two services save whole orders
    namespace: "*.strict"
    replacement: { policy: reject }
  - { name: versioned, namespace: "*.versioned", replacement: { version: version } }
  - { name: merging, namespace: "*.merging", replacement: { policy: merge } }
  - { name: merging-versions, namespace: "*.merging_versions", replacement: { policy: merge, version: version } }
  - { name: guarding, namespace: "*.guarding", replacement: { policy: check_version, version: version } }
  - { name: ignoring, namespace: "*.ignoring", replacement: { policy: check_version, version: version, on_conflict: ignore } }
  - { name: revisions, namespace: "*.revisions", replacement: { version: revision, count_updates: false } }
  - { name: bounded, namespace: "*.bounded", bounds: { field: n, min: 0, max: 10 } }
  - { name: lenient, namespace: "*.lenient", unsupported: allow, replacement: {} }
  - { name: shadowed, namespace: "*.shadowed", mode: shadow, replacement: {} }
  - { name: disabled, namespace: "*.disabled", mode: disabled, replacement: {} }
  - name: excepting
    namespace: "*.excepting"
    except: { apps: [migrator-*], users: ["*.root"] }
    replacement: {}
"#;

/// One docward with [`RULES`] before the shared mongod.
fn docward() -> &'static Docward {
    static DOCWARD: OnceLock<Docward> = OnceLock::new();
    DOCWARD.get_or_init(|| Docward::start(Mongod::shared(), RULES))
}

async fn views() -> Views {
    Views::of(Mongod::shared(), docward()).await
}
