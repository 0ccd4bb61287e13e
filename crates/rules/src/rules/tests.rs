//! A table of mistakes in rule files with their reports, and properties of every file: spans are known,
//! hostile input returns fast.
//!
//! The table is `testdata/diagnostics.txt`. A case is a title, a file as a user might write it, and the printed
//! report. `UPDATE_EXPECT=1 cargo test rules` rewrites the reports; review the diff.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::set::RuleSet;
use super::{ClientGlobs, ClientNames, Mode, ModeOverride};
use crate::command::Namespace;
use crate::config::{self, Code, DiagnosticLocation, FileId, Node, NodeValue, Report, SourceFile, SourceFiles};
use support::cpu_time::CpuTimer;

const TITLE: &str = "=== ";
const REPORT: &str = "--- report\n";
/// Between two files of one case.
const NEXT_FILE: &str = "--- next file\n";

fn load(files: &[&str]) -> Result<RuleSet, Report> {
    let source = |(at, text): (usize, &&str)| SourceFile {
        name: format!("rules/{}.yaml", ["a", "b", "c"][at]),
        text: (*text).to_owned(),
    };
    RuleSet::from_sources(files.iter().enumerate().map(source).collect())
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the table is a file that the test can rewrite")]
fn reports_match_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rules/testdata/diagnostics.txt");
    let table = std::fs::read_to_string(&path).unwrap();
    let mut found = String::new();
    let mut codes = HashSet::new();
    for case in table.split(TITLE).skip(1) {
        let (title, rest) = case.split_once('\n').unwrap();
        let (input, _) = rest.split_once(REPORT).unwrap();
        let files: Vec<_> = input.split(NEXT_FILE).collect();
        let report = load(&files).map_or_else(|report| report, |rules| rules.warnings().clone());
        assert!(!report.is_empty(), "{title}");
        codes.extend(report.diagnostics.iter().map(|one| one.code));
        let spans = report.diagnostics.iter().map(|one| one.location);
        assert!(spans.into_iter().all(|span| matches!(span, DiagnosticLocation::At(_))));
        write!(found, "{TITLE}{title}\n{input}{REPORT}{report}\n").unwrap();
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &found).unwrap();
    } else {
        for (found, expected) in found.split(TITLE).zip(table.split(TITLE)) {
            assert_eq!(found, expected);
        }
    }
    // These need files: see `files.rs`.
    codes.extend([Code::Unreadable, Code::NotUtf8, Code::EmptyFolder]);
    // These need a deployment: see `tests/command_line/check_upstream.rs`, `stored_data.rs` and `validators.rs`.
    codes.extend([
        Code::NoCollection,
        Code::NoHistory,
        Code::DriftedValidator,
        Code::MissingUniqueIndex,
        Code::MissingIndex,
        Code::UnwantedUniqueIndex,
        Code::StoredDocuments,
        Code::LackingServer,
        Code::OtherVersions,
    ]);
    // See `crate::patterns::tests` and `crate::engine::composition`.
    codes.extend([Code::ConflictingSettings, Code::Incompatible]);
    let missing: Vec<_> = Code::ALL.iter().filter(|code| !codes.contains(code)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

#[test]
fn json_has_all_keys_of_a_diagnostic() {
    let report = load(&["version: 1\nrules:\n  - name: é\n    tests: 1\n"]).unwrap_err();
    let json = report.to_json();
    let keys: Vec<_> = json[0].as_object().unwrap().keys().cloned().collect();
    let expected = ["severity", "code", "file", "line", "column", "message", "help"];
    assert_eq!(keys, expected);
    assert_eq!(json[0]["file"], "rules/a.yaml");
    assert_eq!(json.as_array().unwrap().len(), 4);
}

#[test]
fn a_rule_with_every_shared_key_loads() {
    let rules = load(&[r#"
version: 1
rules:
  - name: orders-no-blind-replace
    why: Two services save whole orders; the second erases the first one's fields.
    namespace: [shop.orders, "*.invoices", "arch*.*"]
    mode: enforce
    except: { apps: [migrator-*], users: [admin.root] }
    only: { apps: [shop-*] }
    unsupported: reject
    replacement: { policy: reject }
    tests:
      - given: 'db.orders.replaceOne({_id: 1}, {status: "paid"})'
        expect: rejected
        as: { app: migrator-1, user: admin.root }
        at: 2026-01-31T12:00:00Z
      - given: 'db.orders.updateOne({_id: 1}, {$set: {status: "paid"}})'
        becomes: 'db.orders.updateOne({_id: 1}, {$set: {}})'
"#])
    .unwrap();
    let [rule] = rules.rules() else { panic!() };
    assert_eq!(rule.location.to_string(), "rules/a.yaml:4:5");
    assert_eq!(rule.tests.len(), 2);
    assert_eq!(rule.tests[0].at.unwrap().timestamp_millis(), 1_769_860_800_000);
    let user = |database: &str| [(database.to_owned(), "root".to_owned())];
    assert!(rule.only.covers(Some("shop-7"), &[]) && !rule.only.covers(Some("migrator-7"), &[]));
    assert!(rule.except.covers(Some("migrator-7"), &[]));
    assert!(rule.except.covers(None, &user("admin")));
    assert!(!rule.except.covers(Some("shop"), &user("shop")));
}

fn visit(node: &Node, see: &mut impl FnMut(&Node)) {
    see(node);
    match &node.value {
        NodeValue::List(items) => items.iter().for_each(|item| visit(item, see)),
        NodeValue::Map(entries) => entries.iter().for_each(|(_, value)| visit(value, see)),
        _ => {}
    }
}

#[test]
fn every_span_is_known_and_covers_its_text() {
    let text = "\u{feff}# é\r\nversion: 1\r\nrules:\r\n  - name: 'é'\r\n    why: |\r\n      two\r\n      lines\r\n    \
                flow: {é: [1, 2.5, true], \"k\": ~}\r\n    none:\r\n";
    let text = text.replace("- name: 'é'", "- name: 'é' # note\r\n    \"q\": \"x\"");
    let source = SourceFile { name: "a".to_owned(), text: text.clone() };
    let sources = SourceFiles::new(vec![source]);
    let tree = config::parse(FileId(0), &text, &mut Vec::new()).unwrap();
    let mut seen = Vec::new();
    visit(&tree, &mut |node| {
        assert!(node.span.start >= 3, "{node:?}");
        assert!(text.is_char_boundary(node.span.start as usize), "{node:?}");
        if let NodeValue::Map(entries) = &node.value {
            for (key, _) in entries {
                let written = sources.slice(key.span);
                assert_eq!(written.trim_matches('"'), key.text);
            }
        }
        let at = sources.location(node.span);
        seen.push(format!("{}:{} {}", at.line, at.column, sources.slice(node.span)));
    });
    let seen: Vec<_> = seen.iter().map(|one| one.trim_end()).collect();
    // Block lists and mappings end with their last value, so they are identified by their start alone.
    let starts = ["2:1 version: 1", "4:3 - name", "4:5 name"];
    let values = [
        "2:10 1",
        "4:11 'é'",
        "5:10 \"x\"",
        "7:7 two\r\n      lines",
        "9:11 {é: [1, 2.5, true], \"k\": ~}",
        "9:15 [1, 2.5, true]",
        "9:16 1",
        "9:19 2.5",
        "9:24 true",
        "9:36 ~",
        "10:9",
    ];
    let (blocks, leaves): (Vec<&str>, Vec<&str>) =
        seen.iter().partition(|one| starts.iter().any(|start| one.starts_with(start)));
    assert_eq!(blocks.len(), starts.len());
    assert!(blocks.iter().all(|block| block.ends_with("none")));
    assert_eq!(leaves, values);
}

#[test]
fn hostile_files_return_fast() {
    let aliases = "a: &a [x]\n".repeat(10_000);
    let quotes = "\"".repeat(200_000);
    for text in [
        "[".repeat(200_000),
        "{a: ".repeat(50_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
        "a".repeat(4_000_000),
        "!".repeat(200_000),
        "\u{0}".repeat(200_000),
        "- x\n".repeat(50_000),
        "#".repeat(8_000_000),
        "#".repeat(9_000_000),
        aliases,
        quotes,
    ] {
        let started = CpuTimer::start();
        let report = load(&[&text]).unwrap_err();
        let rendered = report.render(false);
        let took = started.elapsed();
        let start: String = text.chars().take(8).collect();
        assert!(took < Duration::from_secs(10), "{start}: {took:?}");
        assert!(rendered.len() < 10_000, "{start}: {}", rendered.len());
    }
}

#[test]
fn a_mistake_before_many_line_breaks_is_rendered() {
    for text in ["version: 1\nrules:\n  - nam: 'db.\r\r\r\r", "version: 1\r\nrules: [\r\n\r\n", "\r\r\r'", "\n\n["] {
        let rendered = load(&[text]).unwrap_err().render(false);
        assert!(rendered.contains("error[R0001]"), "{rendered}");
    }
}

/// The rules with the mode of each of `overrides` for the applications with these names; none: for all.
fn overridden(rules: &RuleSet, overrides: &[(&str, Mode, &[&str])]) -> Result<RuleSet, Report> {
    let found = overrides.iter().map(|(rule, mode, apps)| {
        let apps = apps.iter().map(|app| (*app).to_owned()).collect();
        let only = ClientGlobs::parse(&ClientNames { apps, users: Vec::new() }).unwrap();
        let (reason, by) = (String::new(), String::new());
        let found = ModeOverride { mode: *mode, only, until: u64::MAX, reason, by, shared: true };
        ((*rule).to_owned(), Arc::new(found))
    });
    rules.with_overrides(&found.collect())
}

#[test]
fn an_override_for_some_clients_is_a_change_of_rules() {
    let rules = load(&["version: 1\nrules:\n- { name: nodes, namespace: shop.nodes, tree: {} }\n"]).unwrap();
    let with = |mode, apps: &[&str]| overridden(&rules, &[("nodes", mode, apps)]).unwrap();
    let (web, shop) = (with(Mode::Shadow, &["web"]), with(Mode::Shadow, &["shop"]));
    let (off, shadow) = (with(Mode::Disabled, &["web"]), with(Mode::Shadow, &[]));
    let all = [&rules, &web, &shop, &off, &shadow];
    let behaviours: HashSet<u64> = all.iter().map(|rules| rules.behaviour()).collect();
    assert_eq!(behaviours.len(), all.len(), "docwards that have different ones doubt each other");
    assert!(all.iter().all(|rules| rules.procedure_scopes() == shadow.procedure_scopes()));
    // Others must learn of it before the rule is enforced for more clients, not before it is for fewer.
    let adds = |next: &RuleSet, before: &RuleSet| next.adds_procedures(before);
    assert!(adds(&rules, &web) && adds(&shop, &web) && adds(&web, &shadow) && adds(&rules, &RuleSet::default()));
    assert!(!adds(&web, &rules) && !adds(&web, &web) && !adds(&shadow, &web));
}

#[test]
fn an_override_for_some_clients_does_not_take_a_rule_from_the_others() {
    let rules = load(&[r#"version: 1
rules:
- { name: broad, namespace: "shop.*", replacement: {} }
- { name: orders, namespace: shop.orders, mode: shadow, replacement: { policy: merge } }
- { name: books, namespace: shop.books, mode: disabled, replacement: { policy: merge } }
- { name: items, namespace: shop.items, replacement: { policy: merge } }
- { name: other, namespace: other.items, mode: shadow, replacement: { policy: merge } }
- { name: stock, namespace: shop.orders, mode: shadow, bounds: { field: n, min: 0 } }
- { name: read, namespace: shop.orders, reads: {} }
"#])
    .unwrap();
    let web: &[&str] = &["web"];
    for (rule, mode, words) in [
        ("orders", Mode::Enforce, Some("`orders` would take the place of a less specific rule")),
        ("books", Mode::Enforce, Some("`books` would take the place of a less specific rule")),
        ("books", Mode::Shadow, None),
        ("items", Mode::Shadow, None),
        ("broad", Mode::Shadow, None),
        ("other", Mode::Enforce, None),
        ("stock", Mode::Enforce, None),
        ("read", Mode::Shadow, Some("`read` applies to no client")),
    ] {
        let report = overridden(&rules, &[(rule, mode, web)]).err().map(|report| report.to_string());
        let is_expected = report.as_ref().map(|report| words.is_some_and(|words| report.contains(words)));
        assert_eq!(is_expected, words.map(|_| true), "{rule} {mode:?}: {report:?}");
        assert!(overridden(&rules, &[(rule, mode, &[])]).is_ok(), "{rule} for all");
    }
}

/// What the validator of `shop.c` meaning and leaves out, by the names of rules.
fn validator(rules: &[&str], enforcing: bool) -> (Vec<String>, Vec<String>) {
    let rule = |(number, rest): (usize, &&str)| format!("  - {{ name: r{number}, namespace: shop.c, {rest} }}\n");
    let text = format!("version: 1\nrules:\n{}", rules.iter().enumerate().map(rule).collect::<String>());
    let rules = RuleSet::from_sources(vec![SourceFile { name: "rules.yaml".into(), text }]).unwrap();
    let found = rules.validator(Namespace { database: "shop", collection: "c" }, enforcing);
    let name = |id| rules.rule(id).name.value.to_string();
    let clauses = found.clauses.iter().map(|(rule, _)| name(*rule)).collect();
    (clauses, found.omitted.iter().map(|(rule, why)| format!("{}: {why}", name(*rule))).collect())
}

#[test]
fn validators_have_only_what_holds_for_everybody_at_any_time() {
    const BOUNDS: &str = "bounds: { field: n, min: 0 }";
    let bounds = |more: &str| format!("{more}, {BOUNDS}");
    let (exempt, some) = (bounds("except: { apps: [a] }"), bounds("only: { users: [admin.u] }"));
    let (shadow, allowed) = (bounds("mode: shadow"), bounds("unsupported: allow"));
    for (rules, clauses, omitted) in [
        (&[BOUNDS][..], &["r0"][..], &[][..]),
        (&[&exempt], &[], &["`except` exempts"]),
        (&[&some], &[], &["`only` exempts"]),
        (&[&shadow], &[], &["its mode is `shadow`"]),
        (&[&allowed], &[], &["`unsupported: allow` forwards"]),
        (&[BOUNDS, "mode: disabled, together: [a, b]"], &["r0"], &[]),
        (&["frozen: a"], &[], &["a document does not show what was inserted"]),
        (&["bucket: { array: a, count: c, limit: 3 }"], &["r0"], &["docward makes it true after a statement"]),
        (&["limits: { document: 1KiB, items: { a: 3 } }"], &["r0", "r0"], &[]),
        (
            &["limits: { document: 1KiB, items: { a: 3 } }", "replacement: { version: v }"],
            &["r0"],
            &["does not show whether a save", "it has at most 1024 bytes: docward writes for `r1` after a statement"],
        ),
        (
            &["limits: { items: { a: 3, b: 3 } }", "timestamps: { source: at, fields: [a] }"],
            &["r0"],
            &["does not show whether a write was late", "`a` has at most 3 elements: docward writes for `r1`"],
        ),
        (&[BOUNDS, "timestamps: { source: at, per: document }"], &[], &["was late", "docward writes for `r1`"]),
        // The server generates an `_id` for an upsert.
        (&["sequence: { field: _id, counter: c, provided: reject }"], &[], &["a document does not show"]),
        (&["sequence: { field: _id, counter: c, provided: reject, on_upsert: true }"], &["r0"], &[]),
        (
            &["bounds: { field: c, min: 0 }", "bucket: { array: a, count: c, limit: 3 }"],
            &["r1"],
            &["docward writes for `r1` after a statement", "docward makes it true after a statement"],
        ),
    ] {
        let (found, reasons) = validator(rules, true);
        assert_eq!(found, clauses, "{rules:?}");
        assert_eq!(reasons.len(), omitted.len(), "{rules:?}: {reasons:?}");
        for part in omitted {
            assert!(reasons.iter().any(|reason| reason.contains(part)), "{part}: {reasons:?}");
        }
    }
    let bucket = &["bucket: { array: a, count: c, limit: 3 }", "limits: { document: 1KiB }"][..];
    assert_eq!(validator(bucket, false).0, ["r0", "r0", "r1"], "a validator that only warns has all");
}
