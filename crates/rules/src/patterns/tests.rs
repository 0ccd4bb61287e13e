//! Settings of every pattern as tables: the settings, and the expected diagnostics.

use crate::config::SourceFile;
use crate::rules::RuleSet;

/// Loads one rule with this pattern; `expected` are the codes and the beginnings of the messages.
fn check(pattern: &str, expected: &[&str]) {
    check_all(&[pattern], expected);
}

/// Loads several rules for one collection, except those that name another one.
fn check_all(patterns: &[&str], expected: &[&str]) -> String {
    let rule = |(at, pattern): (usize, &&str)| {
        let namespace = if pattern.contains("namespace:") { "" } else { "namespace: d.c, " };
        format!("  - {{ name: r{at}, {namespace}{pattern} }}\n")
    };
    let rules: String = patterns.iter().enumerate().map(rule).collect();
    let text = format!("version: 1\nrules:\n{rules}");
    let report = match RuleSet::from_sources(vec![SourceFile { name: "test.yaml".into(), text }]) {
        Ok(rules) => rules.warnings().clone(),
        Err(report) => report,
    };
    let line = |d: &crate::config::Diagnostic| format!("{} {}", d.code.as_str(), d.message);
    let found: Vec<String> = report.diagnostics.iter().map(line).collect();
    let pattern = patterns.join("; ");
    let fits = |(found, start): (&String, &&str)| found.starts_with(start);
    let fits = found.len() == expected.len() && found.iter().zip(expected).all(fits);
    assert!(fits, "{pattern}: {found:#?}");
    report.to_string()
}

#[test]
fn rules_without_effect_cause_warnings() {
    for (pattern, expected) in [
        ("reads: {}, mode: shadow", "R0027 `r0` has no effect"),
        ("deny: { operations: [insert, update], when: { filter: empty } }", "R0027 the condition under `when` never"),
        ("deny: { operations: [find, delete], when: { multi: true } }", "R0027 the condition under `when` never"),
        ("deny: { operations: drop, when: { filter: empty } }", "R0027 the condition under `when` never"),
        ("deny: { operations: update, when: { shape: 'deleteMany({})' } }", "R0027 the condition under `when` never"),
        ("deny: { operations: drop, when: { shape: 'drop()' } }", "R0039 `drop()` is not written"),
        ("deny: { operations: delete, when: { shape: deleteMany } }", "R0039 `deleteMany` is not written"),
        ("deny: { operations: delete, when: { shape: 'db.c.deleteMany({})' } }", "R0039 `db.c.deleteMany({})` is not"),
        (
            "deny: { operations: find, when: { shape: 'find({a}, {sort})' } }",
            "R0039 `find({a}, {sort})` is not written",
        ),
        (
            "deny: { operations: update, when: { shape: 'replaceOne({_id}, {*})' } }",
            "R0039 `replaceOne({_id}, {*})` is",
        ),
        (
            "deny: { operations: update, when: { shape: 'updateOne({_id}, {$set})' } }",
            "R0039 `updateOne({_id}, {$set})`",
        ),
        ("sequence: { field: _id, counter: c }", "R0027 drivers send an `_id` with every insert, so the rule assigns"),
        ("sequence: { field: _id, counter: c, provided: reject }", "R0027 drivers send an `_id` with every insert"),
        ("deny: { operations: insert, when: { uses: $where } }", "R0027 the condition under `when` never"),
    ] {
        check(pattern, &[expected]);
    }
    check("replacement: { on_conflict: ignore }", &["R0027 `on_conflict` has no effect without `version`"]);
    check("deny: { operations: [insert, find], when: { without: maxTimeMS } }", &[]);
    for option in ["capped", "timeseries", "changeStreamPreAndPostImages"] {
        check(&format!("deny: {{ operations: create, when: {{ without: {option} }} }}"), &[]);
    }
    check("sequence: { field: _id, counter: c, replace_generated: true }", &[]);
    check("sequence: { field: _id, counter: c, provided: replace }", &[]);
    check("deny: { operations: update, when: { shape: 'updateOne({_id}, {$set: {a}}, {upsert})' } }", &[]);
    const NAMESPACE: &str = "R0039 `d.c.stock` begins with the name of the collection `d.c`";
    check("bounds: { field: d.c.stock, min: 0 }", &[NAMESPACE]);
    check("bounds: { field: c.stock, min: 0 }", &[]);
    check(
        "namespace: 'acc.seq*', sequence: { field: n, counter: c, collection: seqcounters }",
        &["R0025 `r0` has its counter in acc.seqcounters"],
    );
    let no_effect =
        ["R0027 `counter` has", "R0027 `collection` has", "R0027 `block` has no effect with `strategy: opt"];
    check("sequence: { field: n, strategy: optimistic, counter: c, collection: k, block: 5, start: 7 }", &no_effect);
    let no_effect = ["R0027 `without_source` has no effect with `source: $clock`"];
    // Clients may write timestamps themselves.
    check("timestamps: { source: $clock, without_source: reject, max_ahead: 5m }", &no_effect);
}

#[test]
fn a_deny_rule_makes_later_rules_redundant() {
    const WRITES: &str = "deny: { operations: [insert, update] }";
    const ALL: &str = "deny: { operations: [insert, update, delete, find, count, distinct, aggregate] }";
    for (earlier, later, silenced) in [
        (WRITES, "bounds: { field: n, min: 0 }", true),
        (WRITES, "sequence: { field: n, counter: c }", true),
        // A replacement must keep the number.
        ("deny: { operations: insert }", "sequence: { field: n, counter: c }", false),
        (WRITES, "queue: { lease: 5m }", false),
        (WRITES, "timestamps: { source: at }", true),
        (WRITES, "timestamps: { source: at, hide: true }", false),
        (WRITES, "tree: {}", false),
        (ALL, "tree: {}", true),
        (ALL, "defaults: { maxTimeMS: 1 }", true),
        (ALL, "reads: {}", false),
        (WRITES, "defaults: { maxTimeMS: 1 }", false),
        (WRITES, "deny: { operations: update, when: { multi: true } }", true),
        (WRITES, "deny: { operations: delete, when: { multi: true } }", false),
        (
            "deny: { operations: [update, delete], when: { multi: true } }",
            "deny: { operations: update, when: { multi: true } }",
            true,
        ),
        ("deny: { operations: insert, when: { without: hint } }", "sequence: { field: n, counter: c }", false),
        (ALL, "copies: [{ into: d.c, key: k, fields: { a: b } }]", false),
    ] {
        let expected: &[&str] = if silenced { &["R0028 `r1` has no effect: `r0`"] } else { &[] };
        check_all(&[earlier, later], expected);
    }
}

/// What YAML or MongoDB gives another meaning.
#[test]
fn words_that_are_no_names_are_errors() {
    for (pattern, expected, words) in [
        ("bounds: { field: null, min: 0 }", "R0011 `field` must be text", "found `null`"),
        ("together: [Null, a]", "R0011 each of `together` must be text", "put it in quotes"),
        (
            "limits: { document: 1MiB, items: { a: 5, null: 5 } }",
            "R0009 `null` is not a text in YAML",
            "put it in quotes",
        ),
        ("bounds: { field: , min: 0 }", "R0011 `field` must be text", "found nothing"),
        ("history: { into: system.old, keep: 5 }", "R0017 `system.old` is read as", "belong to the server"),
        (
            "sequence: { field: n, counter: c, collection: system.n }",
            "R0017 `system.n` is read",
            "belong to the server",
        ),
        ("namespace: system.profile, tree: {}", "R0017 `system.profile` is read as a collection of", "system"),
        ("copies: [{ into: system.x, key: k, fields: { a: b } }]", "R0017 `system.x` is read as a", "system"),
    ] {
        let report = check_all(&[pattern], &[expected]);
        assert!(report.contains(words), "{pattern}: {report}");
    }
}

/// Of two rules of one pattern, the order does not matter.
#[test]
fn the_weaker_of_two_rules_has_no_effect() {
    for (one, other, weaker) in [
        ("limits: { document: 1MiB }", "limits: { document: 2MiB }", Some("`r1` has no effect: `r0`")),
        ("limits: { document: 2MiB }", "limits: { document: 1MiB, items: { a: 5 } }", Some("`r0` has no effect: `r1`")),
        ("limits: { document: 1MiB }", "limits: { document: 1MiB }", Some("`r1` has no effect: `r0`")),
        ("limits: { document: 1MiB }", "limits: { items: { a: 5 } }", None),
        ("limits: { document: 1MiB }", "namespace: 'd.*', limits: { document: 2MiB }", None),
        (
            "namespace: 'd.*', limits: { document: 1MiB }",
            "limits: { document: 2MiB }",
            Some("`r1` has no effect: `r0`"),
        ),
        (
            "deny: { operations: update, when: { multi: true } }",
            "deny: { operations: update }",
            Some("`r0` has no effect: `r1`"),
        ),
        (
            "deny: { operations: find, when: { without: maxTimeMS } }",
            "deny: { operations: [find, aggregate, count, distinct] }",
            Some("`r0` has no effect: `r1`"),
        ),
    ] {
        let expected = weaker.map(|weaker| format!("R0028 {weaker}"));
        check_all(&[one, other], &expected.as_deref().into_iter().collect::<Vec<_>>());
    }
}

/// Checks the setting that makes the narrower rule weaker than the broader one.
#[test]
fn a_weaker_exception_causes_a_warning() {
    for (broad, narrow, setting) in [
        ("replacement: {}", "replacement: { policy: merge }", Some("policy")),
        ("replacement: { policy: check_version, version: v }", "replacement: { policy: merge }", Some("policy")),
        ("replacement: { policy: merge }", "replacement: {}", None),
        ("replacement: {}", "replacement: { policy: check_version, version: v }", None),
        ("replacement: { version: v }", "replacement: { version: v, on_conflict: ignore }", Some("on_conflict")),
        ("replacement: { version: v }", "replacement: {}", None),
        ("replacement: { policy: merge, version: v }", "replacement: { policy: merge }", Some("on_conflict")),
        ("timestamps: { source: a }", "timestamps: { source: b, without_source: pass }", Some("without_source")),
        ("timestamps: { source: a, without_source: pass }", "timestamps: { source: b, without_source: pass }", None),
        ("timestamps: { source: a }", "timestamps: { source: a, fields: [n] }", Some("fields")),
        ("timestamps: { source: a, fields: [n] }", "timestamps: { source: a, fields: [o] }", None),
        ("queue: { lease: 5m, max_attempts: 3 }", "queue: { lease: 5m }", Some("max_attempts")),
        ("queue: { lease: 5m }", "queue: { lease: 9m, max_attempts: 3 }", None),
        ("tree: { unanchored: reject }", "tree: {}", Some("unanchored")),
        ("tree: {}", "tree: { on_delete: cascade }", None),
        ("bucket: { array: a, count: n, limit: 5 }", "bucket: { array: a, count: n, limit: 9 }", None),
        // Rules that add up do not replace each other.
        ("bounds: { field: a, min: 5 }", "bounds: { field: b, min: 5 }", None),
    ] {
        let text = format!(
            "version: 1\nrules:\n  - {{ name: wide, namespace: 'd.*', {broad} }}\n  \
             - {{ name: narrow, namespace: d.c, {narrow} }}\n"
        );
        let rules = RuleSet::from_sources(vec![SourceFile { name: "test.yaml".into(), text }]).unwrap();
        let found = &rules.warnings().diagnostics;
        let helps: Vec<&str> = found.iter().filter_map(|one| one.help.as_deref()).collect();
        let fits = match setting {
            None => helps.is_empty(),
            Some(setting) => matches!(&*helps, [help] if help.ends_with(&format!("same `{setting}` as `wide`"))),
        };
        assert!(fits, "{broad}, {narrow}: {found:#?}");
    }
}

#[test]
fn only_the_most_specific_defaults_rule_applies() {
    let text = "version: 1\nrules:\n  - { name: wide, namespace: d.*, defaults: { maxTimeMS: 9 } }\n  \
                - { name: narrow, namespace: d.c, defaults: { maxTimeMS: 5 } }\n";
    let rules = RuleSet::from_sources(vec![SourceFile { name: "test.yaml".into(), text: text.into() }]).unwrap();
    let names = |collection| {
        let found = rules.rules_for("d", collection).unwrap();
        found.iter().map(|rule| rule.name.value.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names("c"), ["narrow"]);
    assert_eq!(names("other"), ["wide"]);
    check_all(
        &["defaults: { maxTimeMS: 9 }", "defaults: { maxTimeMS: 5 }"],
        &["R0021 `r0` and `r1` are equally specific"],
    );
}

#[test]
fn good_settings_load() {
    for pattern in [
        "replacement: {}",
        "replacement: { policy: check_version, version: meta.version, on_conflict: ignore }",
        "replacement: { version: version, count_updates: false }",
        "timestamps: { source: at }",
        "timestamps: { source: $comment.event.at, type: timestamp, fields: [a, b.c], per: document, \
         without_source: pass }",
        "timestamps: { source: $clock, fields: all, store: timestamps, hide: true }",
        "sequence: { field: no, counter: no, start: after_max, block: 100, collection: other.counters }",
        "sequence: { field: _id, strategy: optimistic, replace_generated: true, on_upsert: true }",
        "bounds: { field: a.n, min: 0.5 }",
        "bounds: { field: n, max: 5, policy: reject, on_no_room: error }",
        "limits: { items: { a: 1, b.c: 1000 } }",
        "limits: { document: 64 KiB }",
        "schema_version: { field: meta.v, current: 3, minimum: 0, on_newer: ignore }",
        "together: [a, b.c]",
        "frozen: [a, b.c]",
        "frozen: a",
        "queue: { lease: 90s }",
        "bucket: { array: m, count: n, limit: 100 }",
        "deny: { operations: delete }",
        "deny: { operations: [find, update], when: { uses: [$where] } }",
        "deny: { operations: [create, collMod, createIndexes, drop, dropDatabase, dropIndexes, renameCollection] }",
        "deny: { operations: [delete], when: { shape: 'deleteMany({})' } }",
        "defaults: { maxTimeMS: 1 }",
        "throttle: { concurrent: 50, per: app, wait: 2s }",
        "throttle: { rate: 1000/s, per: client }",
        "history: { into: orders_history, keep: 100 }",
        "history: { into: other.orders, keep: 90d }",
        "reads: {}",
        "reads: { prefer: secondary, max_staleness: 15s }",
    ] {
        check(pattern, &[]);
    }
}

#[test]
fn errors_for_old_keys_name_the_new_keys() {
    for (pattern, expected, new) in [
        ("unguardable: allow, reads: {}", &["R0009 `unguardable` has a new name"][..], &["unsupported"][..]),
        ("replacement: { unguarded: merge }", &["R0009 `unguarded` has a new name"], &["policy"]),
        (
            "replacement: { policy: guard, guard: v, conflict: error }",
            &["R0012 `guard` has a new name", "R0009 `guard` has a new name", "R0009 `conflict` has a new name"],
            &["check_version", "version", "on_conflict"],
        ),
        ("bounds: { field: n, min: 0, policy: guard }", &["R0012 `guard` has a new name"], &["add_condition"]),
        ("timestamps: { source: at, missing: clock }", &["R0009 `missing` has a new name"], &["without_source"]),
        (
            "deny: { operations: find, when: { missing: hint } }",
            &["R0010 `when` needs a condition", "R0009 `missing` has a new name"],
            &["without"],
        ),
        (
            "queue: { lease: 5m, locked: l, since: s, attempts: t }",
            &["R0009 `locked` has a new name", "R0009 `since` has a new name", "R0009 `attempts` has a new name"],
            &["fields: { locked: … }", "fields: { locked_at: … }", "fields: { attempts: … }"],
        ),
    ] {
        let mut rendered = check_all(&[pattern], expected);
        for new in new {
            let at = rendered.find(&format!("write `{new}`")).unwrap_or_else(|| panic!("{new}: {rendered}"));
            rendered.replace_range(..at, "");
        }
    }
    // Elsewhere these words are ordinary keys.
    check("together: { missing: clock }", &["R0011 "]);
}

#[test]
fn invalid_settings_are_errors() {
    check("replacement: { policy: check_version }", &["R0025 `policy: check_version` needs `version`"]);
    check("replacement: { count_updates: false }", &["R0025 `count_updates` needs `version`"]);
    check("replacement: { version: v, count_updates: 1 }", &["R0011 "]);
    for id in [
        "replacement: { version: _id }",
        "schema_version: { field: _id.v, current: 1, minimum: 1 }",
        "tree: { path: _id }",
        "bounds: { field: _id, min: 0 }",
        "limits: { items: { _id: 5 } }",
        "together: [_id, a]",
        "frozen: _id.a",
    ] {
        check(id, &["R0013 `"]);
    }
    check("replacement: { version: a..b }", &["R0013 `a..b` is not a field path"]);
    check("replacement: { version: a.0 }", &["R0013 `a.0` is not a field path"]);
    check("timestamps: {}", &["R0010 `source` is missing"]);
    check("timestamps: { source: $comments.at }", &["R0013 `$comments.at` is not a"]);
    check("timestamps: { source: at, fields: [a.b, a] }", &["R0025 `a` overlaps `a.b`"]);
    check("timestamps: { source: at, store: a.b }", &["R0013 `store` must be a top-level field"]);
    check("timestamps: { source: at, fields: [last_modified.x] }", &["R0025 `last_modified.x` can be neither"]);
    check("timestamps: { source: _id }", &["R0025 `_id` can be neither"]);
    check("sequence: { field: no }", &["R0010 `counter` is missing"]);
    check("sequence: { field: no, counter: c, block: 0 }", &["R0013 `block` must be from 1 to 1000000"]);
    check("sequence: { field: no, counter: c, replace_generated: true }", &["R0025 `replace_generated` is only"]);
    check("bounds: { field: n }", &["R0010 `min` or `max` is missing"]);
    check("bounds: { field: n, min: 5, max: 4.5 }", &["R0025 `max` is less than `min`"]);
    check("bounds: { field: n, min: 5, on_no_room: reject }", &["R0012 `on_no_room` cannot be `reject`"]);
    check("limits: {}", &["R0010 `items` or `document` is missing"]);
    check("limits: { items: {} }", &["R0013 `items` must name at least one array"]);
    check("limits: { items: [a] }", &["R0011 `items` must be a mapping"]);
    check("limits: { items: { a.0: 5, b: 0 } }", &["R0013 `a.0` is not a field path", "R0013 `items.b` must be"]);
    check("limits: { document: 1000 }", &["R0011 `document` must be a size above 0"]);
    check("limits: { document: 5B }", &["R0013 `document` is less than 10B: every document is larger"]);
    check("limits: { document: 17MiB }", &["R0013 `document` is more than 16MiB"]);
    check_all(&["limits: { items: { a: 5 } }", "limits: { items: { a.b: 6 } }"], &["R0022 "]);
    for (one, other) in [
        ("bucket: { array: a, count: n, limit: 3 }", "replacement: { version: n }"),
        ("timestamps: { source: at, store: v, fields: [a] }", "replacement: { version: v.x }"),
        ("timestamps: { source: at, store: path }", "tree: {}"),
        ("sequence: { field: parent, counter: c }", "tree: {}"),
        ("sequence: { field: try, counter: c }", "queue: { lease: 5m }"),
        ("schema_version: { field: try, current: 3, minimum: 0 }", "queue: { lease: 5m }"),
        ("replacement: { version: no }", "sequence: { field: no, counter: c }"),
    ] {
        check_all(&[one, other], &["R0022 "]);
    }
    check_all(&["bounds: { field: try, min: 0 }", "queue: { lease: 5m }"], &[]);
    check("frozen: { customer: true }", &["R0011 `frozen` must be text or a list of texts"]);
    check("history: { into: old, keep: '100' }", &["R0011 `keep` must be a whole number"]);
    check("sequence: { field: n, counter: c, start: '1' }", &["R0011 `start` must be a whole number"]);
    check("history: {}", &["R0010 `into` is missing", "R0010 `keep` is missing"]);
    check("history: { into: h, keep: 0 }", &["R0013 `keep` must be"]);
    check("history: { into: h, keep: 500ms }", &["R0013 `keep` must be whole seconds"]);
    check("history: { into: h, keep: ever }", &["R0011 `keep` must be a number of revisions or a duration"]);
    check("history: { into: 'h*', keep: 5 }", &["R0017 `into` must be one collection"]);
    check("schema_version: { field: v }", &["R0010 `current` is missing", "R0010 `minimum` is missing"]);
    check("schema_version: { field: v, current: 2, minimum: 3 }", &["R0025 `minimum` is more than `current`"]);
    check("schema_version: { field: v, current: -1, minimum: 0 }", &["R0013 `current` must be"]);
    check("throttle: { per: app }", &["R0010 a `throttle` rule needs `concurrent`, `rate` or both"]);
    check("throttle: { concurrent: 5 }", &["R0010 `per` is missing"]);
    check("throttle: { concurrent: 0, per: app }", &["R0013 `concurrent` must be from 1"]);
    check("throttle: { rate: 0/s, per: app }", &["R0013 `rate` must be a number of statements in a second"]);
    check("throttle: { rate: 5/m, per: users }", &["R0013 `rate` must be a number", "R0012 "]);
    for (settings, code) in [("[a]", "R0013"), ("[]", "R0013"), ("null", "R0011"), ("{}", "R0011"), ("a", "R0011")] {
        let expected = format!("{code} `together` must be a list of at least two fields: `together: [a, b]`");
        check(&format!("together: {settings}"), &[&expected]);
    }
    check("together: [a, a]", &["R0013 `a` is listed twice"]);
    check("together: [a, a.b]", &["R0025 `a.b` overlaps `a`"]);
    check("frozen: []", &["R0013 "]);
    check("frozen: {}", &["R0011 "]);
    check("frozen: [a, a]", &["R0013 `a` is listed twice"]);
    check("frozen: [a.b, a]", &["R0025 `a` overlaps `a.b`"]);
    check("queue: { lease: 5 }", &["R0011 `lease` must be a duration above 0"]);
    check(
        "queue: { fields: { locked_at: locked }, lease: 5m }",
        &["R0025 `locked`, `locked_at` and `attempts` must be three fields"],
    );
    check("queue: { lease: 5m, free: [A] }", &["R0025 `free` and `claimed` belong together"]);
    check("queue: { lease: 5m, free: [A, B], claimed: [C, B] }", &["R0025 `B` means free and claimed"]);
    check("queue: { lease: 5m, free: [], claimed: [1] }", &["R0013 ", "R0011 "]);
    check("bucket: { array: m, count: m.n, limit: 1 }", &["R0025 `m.n` overlaps another field"]);
    check("bucket: { array: m, count: n, limit: 0 }", &["R0013 `limit` must be from 1"]);
    check(
        "deny: { operations: [updat, dorp], when: { filter: empt } }",
        &[
            "R0012 an operation cannot be `updat`",
            "R0012 an operation cannot be `dorp`",
            "R0012 `filter` cannot be `empt`",
        ],
    );
    check("deny: { operations: [remove] }", &["R0012 an operation cannot be `remove`"]);
    check(
        "deny: { operations: [delete], when: { filter: empty, multi: true } }",
        &["R0025 `when` takes one condition"],
    );
    check("deny: { operations: [delete], when: {} }", &["R0010 `when` needs a condition"]);
    check("reads: { prefer: nearest }", &["R0012 "]);
    check("reads: { max_staleness: 14s }", &["R0013 `max_staleness` must be at least 15s"]);
    check("defaults: {}", &["R0010 `maxTimeMS` is missing"]);
}

#[test]
fn a_counter_among_the_documents_that_get_numbers_is_an_error() {
    let expected = ["R0025 `r0` has its counter in d.c, whose documents get numbers"];
    check("sequence: { field: n, counter: k, collection: c }", &expected);
    let counter = "sequence: { field: n, counter: k, collection: d.c }, namespace: e.f";
    check_all(&[counter, "sequence: { field: n, strategy: optimistic }"], &expected);
    // Other rules decide what clients may do with the counters.
    check_all(&[counter, "deny: { operations: delete }", "history: { into: h, keep: 3 }"], &[]);
}

#[test]
fn all_errors_of_a_rule_are_reported_at_once() {
    check("timestamps: { sorce: at, type: int, hide: 1 }", &["R0009 ", "R0012 ", "R0011 "]);
}
