//! The YAML in the documentation loads, and its tables show the real verdicts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{blocks, docward, output_text, pages, root};

/// The content of a YAML block.
pub(super) enum Shown {
    RuleFile(String),
    TestFile(String),
    Configuration(String),
}

/// Rules may be shown without the surrounding file, and patterns without the surrounding rule.
pub(super) fn recognise(block: &[&str]) -> Shown {
    let text = block.join("\n") + "\n";
    let indented = |by: usize| text.lines().map(|line| format!("{:by$}{line}\n", "")).collect::<String>();
    let begins = |word: &str| block.iter().any(|line| line.starts_with(word));
    // The configuration has a key `limits`, too.
    let is_key = |name: &&&str| **name != "limits" || begins("limits: { items:") || begins("limits: { document:");
    let is_pattern = docward::patterns::AnyPattern::NAMES.iter().filter(is_key).any(|name| begins(&format!("{name}:")));
    if begins("version:") {
        return if begins("tests:") { Shown::TestFile(text) } else { Shown::RuleFile(text) };
    }
    if text.trim_start().starts_with("- name:") {
        return Shown::RuleFile(format!("version: 1\nrules:\n{}", indented(2)));
    }
    if is_pattern {
        let namespace = if begins("namespace:") { "" } else { "    namespace: d.c\n" };
        return Shown::RuleFile(format!("version: 1\nrules:\n  - name: shown\n{namespace}{}", indented(4)));
    }
    Shown::Configuration(text)
}

/// A folder in which `rules/` is the repository's.
fn folder(name: &str, content: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("rules"), folder.path().join("rules")).unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    (folder, path)
}

#[test]
fn every_block_of_yaml_loads() {
    let mut seen = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for (line, block) in blocks(&text, "yaml") {
            let place = format!("{}:{line}", page.display());
            seen += 1;
            match recognise(&block) {
                Shown::RuleFile(text) => {
                    assert_loads("check", &folder("shown.yaml", &text).1, &place);
                    if text.contains("tests:") {
                        assert_loads("test", &folder("shown.yaml", &text).1, &place);
                    }
                }
                Shown::TestFile(text) => assert_loads("test", &folder("shown.test.yaml", &text).1, &place),
                Shown::Configuration(text) => configures(&text, &place),
            }
        }
    }
    assert!(seen >= 25, "{seen}");
}

fn assert_loads(subcommand: &str, file: &Path, place: &str) {
    let done = docward(&[subcommand, file.to_str().unwrap()], file.parent().unwrap());
    assert!(done.status.success(), "{place}: {}", output_text(&done));
}

/// The files and variables that a configuration names need not exist.
fn configures(text: &str, place: &str) {
    let (_folder, file) = folder("docward.yaml", text);
    let done = docward(&["check", "--config", file.to_str().unwrap(), "--format", "json"], &root());
    let found: Vec<serde_json::Value> = serde_json::from_slice(&done.stdout).unwrap();
    let is_missing = |one: &serde_json::Value| {
        let has = |words| one["message"].as_str().is_some_and(|message| message.contains(words));
        one["code"] == "R0002" || has("No such file") || has("is not set")
    };
    assert!(found.iter().all(is_missing), "{place}: {found:#?}");
}

/// Each row of a table with the head `| statement | becomes |` is a test of the last rule shown above it.
#[test]
fn tables_show_the_real_results() {
    let mut rows: HashMap<String, usize> = HashMap::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let rules = blocks(&text, "yaml");
        let mut in_table = false;
        for (at, line) in text.lines().enumerate() {
            in_table = line == "| statement | becomes |" || in_table && line.starts_with('|');
            let Some(row) = line.strip_prefix("| `").filter(|_| in_table) else { continue };
            let place = format!("{}:{}", page.display(), at + 1);
            let (_, rule) = rules.iter().rev().find(|(line, _)| *line < at).expect(&place);
            let (given, becomes) = row.split_once("` | ").expect(&place);
            assert_loads("test", &folder("shown.yaml", &with_test(rule, given, becomes)).1, &format!("{place}: {row}"));
            *rows.entry(page.file_stem().unwrap().to_string_lossy().into_owned()).or_default() += 1;
        }
    }
    for pattern in docward::patterns::AnyPattern::NAMES {
        assert!(rows.contains_key(*pattern), "the page of `{pattern}` shows nothing of what becomes of statements");
    }
}

fn with_test(rule: &[&str], given: &str, becomes: &str) -> String {
    let Shown::RuleFile(text) = recognise(rule) else { panic!("no rule above: {rule:?}") };
    let (_, collection) = rule_collection(&text);
    let becomes = becomes.trim_end_matches('|').trim();
    let expected = match becomes.strip_prefix('`').and_then(|command| command.strip_suffix('`')) {
        Some(command) => format!("becomes: {}", serde_json::json!(format!("db.{collection}.{command}"))),
        None => format!("expect: {}", becomes.split([':', ' ']).next().unwrap_or_default()),
    };
    let given = serde_json::json!(format!("db.{collection}.{given}"));
    format!("{text}    tests:\n      - {{ given: {given}, {expected} }}\n")
}

/// The database and collection of a rule's statements: the collection with the copies, else one that it names.
pub(super) fn rule_collection(rule_file: &str) -> (String, String) {
    let named = |key: &str| {
        let (database, collection) = rule_file.split_once(key)?.1.split([',', '\n', ' ']).next()?.split_once('.')?;
        Some((database.to_owned(), collection.replace('*', "c")))
    };
    named("into: ").or_else(|| named("namespace: ")).unwrap_or_default()
}
