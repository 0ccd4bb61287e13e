//! Checks the layers of ARCHITECTURE.md: each depends only on those before it, and the lower ones use no sockets,
//! clocks, threads or async functions.

#![allow(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

use std::path::{Path, PathBuf};

const LAYERS: [&str; 14] = [
    "wire", "document", "command", "effect", "shell", "rules", "patterns", "engine", "audit", "service", "proxy",
    "otlp", "admin", "cli",
];
/// The last layer without side effects.
const LAST_PURE: usize = 8;
const IMPURE: [&str; 8] =
    ["tokio", "mongodb::", "std::net", "std::time::Instant", "SystemTime", "async fn", "std::thread", "std::fs"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// The code of a file without comments and tests.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let before_tests = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    before_tests.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_test(path: &Path) -> bool {
    ["tests.rs", "stub.rs", "rule_test.rs"].iter().any(|name| path.ends_with(name))
}

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
            let reads_files = file.ends_with("rules/files.rs");
            for word in IMPURE.iter().filter(|_| index <= LAST_PURE && !reads_files) {
                if code.contains(word) {
                    wrong.push(format!("{} has {word}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
