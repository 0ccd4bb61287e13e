//! Settings of `copies` as tables: errors within one rule and conflicts between rules.

use crate::config::{Report, SourceFile};
use crate::patterns::AnyPattern;
use crate::rules::RuleSet;

/// A rule for each `(namespace, mode, entries)`, named `r0`, `r1`, ….
fn load(rules: &[(&str, &str, &str)]) -> Result<RuleSet, Report> {
    let rule = |(at, (namespace, mode, entries)): (usize, &(&str, &str, &str))| {
        format!("  - {{ name: r{at}, namespace: {namespace}, mode: {mode}, copies: {entries} }}\n")
    };
    let rules: String = rules.iter().enumerate().map(rule).collect();
    RuleSet::from_sources(vec![SourceFile { name: "copies.yaml".into(), text: format!("version: 1\nrules:\n{rules}") }])
}

fn check(namespace: &str, entries: &str, code: &str, message: &str) {
    let report = load(&[(namespace, "enforce", entries)]).expect_err(entries).to_string();
    assert!(report.contains(code) && report.contains(message), "{entries}\n{report}");
}

#[test]
fn settings_are_read_strictly() {
    let fine =
        "[{ into: b.c, key: of.id, fields: { name: of.name, a.b: of.a.b } }, { into: a.a, key: k, fields: { x: y } }]";
    let rules = load(&[("a.a", "enforce", fine)]).unwrap();
    let AnyPattern::Copies(copies) = &rules.rules()[0].pattern else { panic!("another pattern") };
    assert_eq!(copies.to_string(), "a.a -> b.c by of.id, name as of.name, a.b as of.a.b -> a.a by k, x as y");
    let lists = |entry: &str| {
        let rules = load(&[("a.a", "enforce", entry)]).unwrap();
        let AnyPattern::Copies(copies) = &rules.rules()[0].pattern else { panic!("another pattern") };
        copies.entries[0].lists().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lists("[{ into: b.c, key: a.b.id, fields: { x: a.b.x, y: a.b.y.z } }]"), ["a", "a.b"]);
    assert_eq!(lists("[{ into: b.c, key: a.b.id, fields: { x: a.b.x, y: a.y } }]"), ["a"]);
    assert_eq!(lists("[{ into: b.c, key: ab, fields: { x: a.b.x } }]"), [""; 0]);
    let rejects = load(&[("a.a", "enforce", "[{ into: b.c, key: k, fields: { x: y }, on_delete: reject }]")]).unwrap();
    let AnyPattern::Copies(copies) = &rejects.rules()[0].pattern else { panic!("another pattern") };
    assert_eq!(copies.to_string(), "a.a -> b.c by k, x as y, held");
    assert!(rules.rules_for("b", "c").is_some() && rules.rules_for("b", "d").is_none());
    assert!(rules.may_apply_to_collection("c"));
    for (namespace, entries, code, message) in [
        ("a.a", "{}", "R0011", "must be a list"),
        ("a.a", "[]", "R0011", "must be a list"),
        ("a.a", "[{}]", "R0010", "`into` is missing"),
        ("a.a", "[{ into: b, key: k, fields: { x: y } }]", "R0017", "the namespace `b` has no database"),
        ("a.a", "[{ into: 'b.*', key: k, fields: { x: y } }]", "R0017", "matches several"),
        ("a.a", "[{ into: b.b, key: k, fields: {} }]", "R0013", "at least one field"),
        ("a.a", "[{ into: b.b, key: k, fields: [x] }]", "R0011", "must be a mapping"),
        ("a.a", "[{ into: b.b, key: k, fields: { x: 1 } }]", "R0011", "must be text"),
        ("a.a", "[{ into: b.b, key: k.$.id, fields: { x: y } }]", "R0013", "`k.$.id` is not a field path"),
        ("a.a", "[{ into: b.b, key: k.0, fields: { x: y } }]", "R0013", "`k.0` is not a field path"),
        ("a.a", "[{ into: b.b, key: _id, fields: { x: y } }]", "R0013", "cannot be `_id`"),
        ("a.a", "[{ into: b.b, key: k, fields: { _id: y } }]", "R0013", "`_id` never changes"),
        ("a.a", "[{ into: b.b, key: k, fields: { x: k.x } }]", "R0025", "overlaps the key `k`"),
        ("a.a", "[{ into: b.b, key: k, fields: { x: y, z: y.z } }]", "R0025", "`y` and `y.z` overlap"),
        ("a.a", "[{ into: b.b, key: k, fields: { x: y }, on: z }]", "R0009", "unknown key `on`"),
        ("a.a", "[{ into: b.b, key: k, fields: { x: y }, on_delete: cascade }]", "R0012", "`cascade`"),
        ("'a.*'", "[{ into: b.b, key: k, fields: { x: y } }]", "R0025", "one collection with the originals"),
        ("[a.a, a.b]", "[{ into: b.b, key: k, fields: { x: y } }]", "R0025", "one collection with the originals"),
        ("a.a", "[{ into: a.a, key: k, fields: { x.y: x } }]", "R0021", "`r0` copies in a cycle"),
    ] {
        check(namespace, entries, code, message);
    }
}

#[test]
fn rules_do_not_copy_into_one_field_or_in_cycles() {
    const INTO_B: &str = "[{ into: d.b, key: a, fields: { x: ax } }]";
    const INTO_C: &str = "[{ into: d.c, key: b, fields: { ax: ax } }]";
    const BACK: &str = "[{ into: d.a, key: c, fields: { ax: x.deep } }]";
    let enforced = |rules: &[(&str, &str)]| -> Vec<String> {
        let rules: Vec<_> = rules.iter().map(|(namespace, entries)| (*namespace, "enforce", *entries)).collect();
        let report = load(&rules).err();
        report.into_iter().flat_map(|report| report.diagnostics).map(|one| one.message).collect()
    };
    let nothing: [&str; 0] = [];
    assert_eq!(enforced(&[("d.a", INTO_B), ("d.b", INTO_C)]), nothing, "a copy of a copy");
    let cycle = enforced(&[("d.a", INTO_B), ("d.b", INTO_C), ("d.c", BACK)]);
    assert_eq!(cycle, ["`r0` and `r2` copy in a cycle, so updates would never end"]);
    assert_eq!(enforced(&[("d.a", INTO_B), ("d.x", INTO_B)]), ["`r0` and `r1` both copy into `ax` of d.b"]);
    let key = "[{ into: d.b, key: k, fields: { x: a.b } }]";
    let by_copied_key = "[{ into: d.b, key: a.b, fields: { x: y } }]";
    assert_eq!(enforced(&[("d.a", key), ("d.c", by_copied_key)]), nothing, "a copied key");
    assert!(load(&[("d.a", "enforce", INTO_B), ("d.x", "shadow", INTO_B)]).is_ok(), "a shadow rule beside the rule");
    assert!(load(&[("d.a", "enforce", INTO_B), ("d.x", "disabled", INTO_B)]).is_ok());
}
