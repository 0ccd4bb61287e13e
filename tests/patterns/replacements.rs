//! The pattern `replacement` in front of a real mongod, through the official driver. `race` shows what it prevents;
//! `examples` each setting with one statement; `batches`, `lookups` and `retries` that indexes and statement ids stay
//! correct; `versions` the changes of stored versions, also in transactions; `indirect_writes` indirect writes and the
//! settings that allow them.

mod batches;
mod examples;
mod indirect_writes;
mod lookups;
mod race;
mod retries;
mod versions;

use std::sync::OnceLock;

use support::driver::Views;
use support::mongod::Mongod;
use support::proxy::Docward;

/// One rule for each setting, with the name of its collection.
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
  - { name: checking, namespace: "*.checking", replacement: { policy: check_version, version: version } }
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

/// One docward with [`RULES`] in front of the shared mongod.
fn docward() -> &'static Docward {
    static DOCWARD: OnceLock<Docward> = OnceLock::new();
    DOCWARD.get_or_init(|| Docward::start(Mongod::shared(), RULES))
}

async fn views() -> Views {
    Views::of(Mongod::shared(), docward()).await
}
