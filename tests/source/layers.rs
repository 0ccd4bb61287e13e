//! Checks the layers of ARCHITECTURE.md: each depends only on those before it, and the lower ones use no sockets,
//! clocks, threads or, except the engine, async functions. Files do not import each other in a circle without a reason.

use std::collections::BTreeSet;
use std::path::Path;

use crate::imports::{circles, code, is_test, sources};

const LAYERS: [&str; 17] = [
    "wire", "document", "command", "effect", "shell", "config", "patterns", "rules", "engine", "audit", "replay",
    "service", "proxy", "player", "otlp", "admin", "cli",
];
/// The last layer without side effects.
const LAST_PURE: usize = 10;
const IMPURE: [&str; 8] =
    ["tokio", "mongodb::", "std::net", "std::time::Instant", "SystemTime", "async fn", "std::thread", "std::fs"];

/// The circles that stay, each as its files; the reason is at the top of the folder's module.
/// None is in the proxy.
const CIRCLES: [&str; 7] = [
    "audit/known_documents.rs audit/matching.rs",
    "config/diagnostic.rs config/shown.rs config/source.rs",
    "document/check.rs document/cursor.rs document/value.rs",
    "patterns/timestamps/pipeline.rs patterns/timestamps/settings.rs patterns/timestamps/writes.rs",
    "service/history/entries.rs service/history/prepare.rs",
    "shell/admin.rs shell/chain.rs shell/constructor.rs shell/find_and_modify.rs shell/from_extended_json.rs shell/mod.rs \
     shell/reads.rs shell/value.rs shell/writes.rs",
    "shell/function.rs shell/lexer.rs shell/number.rs shell/regex.rs shell/string.rs",
];

/// The modules of the proxy, with the same order.
const PROXY: [&str; 13] = [
    "interceptor",
    "recording",
    "transport",
    "thread_number",
    "telemetry",
    "server_side",
    "members",
    "shutdown",
    "connection",
    "config",
    "observer",
    "listening",
    "server",
];

#[test]
fn each_layer_depends_only_on_lower_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for (index, layer) in LAYERS.iter().enumerate() {
        let mut files = sources(&root.join(layer));
        files.extend(Some(root.join(format!("{layer}.rs"))).filter(|file| file.exists()));
        for file in files.iter().filter(|file| !is_test(file)) {
            let code = code(file);
            for above in &LAYERS[index + 1..] {
                if code.contains(&format!("crate::{above}::")) {
                    wrong.push(format!("{} depends on the layer {above}", file.display()));
                }
            }
            let reads_files = file.ends_with("config/files.rs");
            // The engine polls its async functions itself, so they need no runtime.
            let polls_itself = |word: &str| word == "async fn" && *layer == "engine";
            for word in IMPURE.iter().filter(|_| index <= LAST_PURE && !reads_files) {
                if code.contains(word) && !polls_itself(word) {
                    wrong.push(format!("{} has {word}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_folder_of_the_proxy_depends_only_on_lower_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/proxy");
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(&root).unwrap() {
        let name = entry.unwrap().path().with_extension("").file_name().unwrap().to_str().unwrap().to_owned();
        if name != "mod" && !PROXY.contains(&&*name) {
            wrong.push(format!("{name} has no place in the order"));
        }
    }
    for (index, module) in PROXY.iter().enumerate() {
        let (folder, file) = (root.join(module), root.join(format!("{module}.rs")));
        assert!(folder.exists() || file.exists(), "there is no {module}");
        let files = if folder.exists() { sources(&folder) } else { vec![file] };
        for file in files.iter().filter(|file| !is_test(file)) {
            let code = code(file);
            for above in &PROXY[index + 1..] {
                if code.contains(&format!("crate::proxy::{above}::")) {
                    wrong.push(format!("{} depends on {above}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_files_import_each_other_in_a_circle_without_a_reason() {
    let found = circles(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let found: BTreeSet<String> = found.iter().map(|circle| circle.join(" ")).collect();
    let known: BTreeSet<String> = CIRCLES.iter().map(|&circle| circle.to_owned()).collect();
    let new = found.difference(&known).map(|circle| format!("a circle without a reason: {circle}"));
    let gone = known.difference(&found).map(|circle| format!("no circle any more: {circle}"));
    let wrong: Vec<String> = new.chain(gone).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
