//! Checks the layers of ARCHITECTURE.md: each depends only on those before it, and the lower ones use no sockets,
//! clocks, threads or, except the engine, async functions.

use std::path::{Path, PathBuf};

const LAYERS: [&str; 17] = [
    "wire", "document", "command", "effect", "shell", "config", "patterns", "rules", "engine", "audit", "replay",
    "service", "proxy", "player", "otlp", "admin", "cli",
];
/// The last layer without side effects.
const LAST_PURE: usize = 10;
const IMPURE: [&str; 8] =
    ["tokio", "mongodb::", "std::net", "std::time::Instant", "SystemTime", "async fn", "std::thread", "std::fs"];

/// The modules of the proxy, with the same order.
const PROXY: [&str; 10] = [
    "interceptor",
    "transport",
    "telemetry",
    "server_side",
    "members",
    "shutdown",
    "connection",
    "config",
    "listening",
    "server",
];

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
    ["tests.rs"].iter().any(|name| path.ends_with(name))
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
