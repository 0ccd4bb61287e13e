use bson::{Bson, Document, doc};
use support::mongod::Mongod;

use super::{Fixture, expected};

const RULES: &str = "\
version: 1
rules:
  - { name: versions, namespace: DB.docs, replacement: { policy: check_version, version: m.n.v } }
  - { name: inbox, namespace: DB.inbox, bucket: { array: a.m, count: a.c, limit: 3, opened: z.t } }
  - { name: jobs, namespace: DB.jobs, queue: { fields: { locked: locked, locked_at: tlocked, attempts: try }, lease: 5m } }
  - { name: devices, namespace: DB.devices, timestamps: { source: s, type: long, fields: [f], store: lm } }
  - { name: whole, namespace: DB.whole, timestamps: { source: s, type: long, per: document, store: lm } }
  - { name: nodes, namespace: DB.nodes, tree: { path: g, parent: f } }
  - { name: stock, namespace: DB.stock, bounds: { field: f, min: 0, max: 10 } }
  - { name: pairs, namespace: DB.pairs, together: [a.b, a.c] }
  - { name: migrated, namespace: DB.people, schema_version: { field: v, current: 3, minimum: 2 } }
";

fn fixture() -> Fixture {
    Fixture::with_rules(RULES)
}

/// Values on the way to a field that is set are not replaced by a document.
#[test]
fn a_backfill_replaces_no_value_around_its_field() {
    let fixture = fixture();
    let docs = vec![
        doc! {"_id": 1},
        doc! {"_id": 2, "m": "keep"},
        doc! {"_id": 3, "m": {"n": "keep", "z": 1}},
        doc! {"_id": 4, "m": null},
        doc! {"_id": 5, "m": [{"n": {}}]},
        doc! {"_id": 6, "m": {"z": 1}},
    ];
    fixture.insert("docs", docs.clone());
    let id = bson::oid::ObjectId::parse_str("65f000000000000000000001").unwrap();
    let inbox = vec![
        doc! {"_id": 1, "a": {"m": [1, 2]}, "z": 1},
        doc! {"_id": 2, "a": "text"},
        doc! {"_id": 3, "a": [{"m": [1, 2]}, {"m": [1]}]},
        doc! {"_id": id, "a": {"m": [1], "c": 1}, "z": "keep"},
    ];
    fixture.insert("inbox", inbox.clone());
    fixture.backfill("versions", &[]);
    fixture.backfill("inbox", &[]);

    let mut right = docs;
    right[0] = doc! {"_id": 1, "m": {"n": {"v": 1}}};
    right[5] = doc! {"_id": 6, "m": {"z": 1, "n": {"v": 1}}};
    assert_eq!(fixture.stored("docs"), right);
    let mut right = inbox;
    right[0] = doc! {"_id": 1, "a": {"m": [1, 2], "c": 2}, "z": 1};
    assert_eq!(fixture.stored("inbox"), right);
    let is_left = |line: &&str| line.contains("docs") || line.contains("inbox");
    let found = fixture.findings();
    let left: Vec<&str> = found.iter().map(String::as_str).filter(is_left).collect();
    let around = "in which a field around";
    assert_eq!(
        left,
        [
            "`inbox`: 1 document of DB.inbox whose `a.m` is not an array (_id: 3)".to_owned(),
            format!(
                "`inbox`: 1 document of DB.inbox without `a.m` and with another `a.c` than 0, {around} `a.c` is not a document (_id: 2)"
            ),
            format!(
                "`inbox`: 1 document of DB.inbox without `z.t`, {around} `z.t` is not a document (_id: ObjectId(\"65f000000000000000000001\"))"
            ),
            format!(
                "`versions`: 3 documents of DB.docs without `m.n.v`, {around} `m.n.v` is not a document (_id: 2, 3, 4)"
            ),
        ]
    );
    for rule in ["versions", "inbox"] {
        let again = fixture.backfill(rule, &[]);
        assert!(!again.contains("found 1") && !again.contains("found 2"), "a second run finds nothing: {again}");
    }
}

#[test]
fn source_times_of_every_integer_type_are_set() {
    let fixture = fixture();
    let states = vec![
        doc! {"_id": 1, "s": 5, "f": 1},
        doc! {"_id": 2, "s": 1.7e12, "f": 1},
        doc! {"_id": 3, "s": 1_700_000_000_000_i64, "f": 1},
        doc! {"_id": 4, "s": 1.5, "f": 1},
        doc! {"_id": 5, "s": f64::NAN, "f": 1},
        doc! {"_id": 6, "s": 1e300, "f": 1},
        doc! {"_id": 7, "f": 1},
    ];
    fixture.insert("devices", states.clone());
    fixture.insert("whole", states);
    for rule in ["devices", "whole"] {
        let printed = fixture.backfill(rule, &[]);
        assert!(printed.contains("found 3, set 3"), "{printed}");
    }
    let times = |collection: &str, of: fn(&Document) -> Option<&Bson>| {
        fixture.stored(collection).iter().map(|one| of(one).cloned()).collect::<Vec<_>>()
    };
    let long = |time: i64| Some(Bson::Int64(time));
    let right = [long(5), long(1_700_000_000_000), long(1_700_000_000_000), None, None, None, None];
    assert_eq!(times("whole", |one| one.get("lm")), right);
    assert_eq!(times("devices", |one| one.get_document("lm").ok()?.get("f")), right);
    let found = fixture.findings();
    let without = "without `lm` and without a time in `s` (_id: 4, 5, 6, 7)";
    assert!(found.contains(&format!("`whole`: 4 documents of DB.whole {without}")), "{found:?}");
}

#[test]
fn nodes_that_no_path_can_have_are_named_and_left() {
    let fixture = fixture();
    let nodes = vec![
        doc! {"_id": 1},
        doc! {"_id": 2, "f": 1},
        doc! {"_id": 3, "f": 2},
        doc! {"_id": 5, "f": 6},
        doc! {"_id": 6, "f": 5},
        doc! {"_id": 7, "f": [1]},
        doc! {"_id": "a,b"},
        doc! {"_id": 2.5},
        doc! {"_id": 8, "f": 2.5},
    ];
    fixture.insert("nodes", nodes);
    fixture.backfill("nodes", &[]);
    let path = |id: i32| {
        fixture.stored("nodes").iter().find(|one| one.get("_id") == Some(&id.into())).unwrap().get("g").cloned()
    };
    assert_eq!([2, 3].map(path), [Some(",1,".into()), Some(",1,2,".into())]);
    assert_eq!([1, 5, 6, 7, 8].map(path), [const { None }; 5]);
    let found = fixture.findings();
    let right = expected(&[
        "`nodes`: 2 documents of DB.nodes whose parent has no `g` (_id: 5, 6)",
        "`nodes`: 1 document of DB.nodes whose `f` is an array (_id: 7)",
        "`nodes`: 2 documents of DB.nodes whose `_id` cannot be in a path (_id: \"a,b\", 2.5)",
    ]);
    assert_eq!(found, right);
}

#[test]
fn values_of_other_types_are_found() {
    let fixture = fixture();
    fixture.insert("stock", vec![doc! {"_id": 1, "f": [5]}, doc! {"_id": 2, "f": 5}]);
    fixture.insert(
        "pairs",
        vec![
            doc! {"_id": 1, "a": [{"b": 1}, {"c": 1}]},
            doc! {"_id": 2, "a": [{"b": 1, "c": 2}, {}]},
            doc! {"_id": 3, "a": {"b": 1}},
            doc! {"_id": 4, "a": []},
            doc! {"_id": 5, "a": {"b": 1, "c": 1}},
        ],
    );
    fixture.insert("people", vec![doc! {"_id": 1, "v": null}, doc! {"_id": 2, "v": "3"}, doc! {"_id": 3, "v": 3}]);
    let right = expected(&[
        "`stock`: 1 document of DB.stock whose `f` is not a number (_id: 1)",
        "`pairs`: 2 documents of DB.pairs with some of `a.b`, `a.c`, but not all (_id: 1, 3)",
        "`migrated`: 2 documents of DB.people whose `v` is not a number (_id: 1, 2)",
    ]);
    assert_eq!(fixture.findings(), right);
}

/// A rule with `*` applies to no view, and not to the collection of a history.
#[test]
fn a_backfill_leaves_views_and_histories() {
    let fixture = Fixture::with_rules(
        "version: 1\nrules:\n\
         \x20 - { name: versions, namespace: \"DB.*\", replacement: { policy: check_version, version: v } }\n\
         \x20 - { name: kept, namespace: DB.x, history: { into: xh, keep: 5 } }\n",
    );
    fixture.insert("x", vec![doc! {"_id": 1}]);
    fixture.insert("xh", vec![doc! {"_id": {"of": 1, "revision": 1}}]);
    let view = doc! {"create": "vw", "viewOn": "x"};
    assert_eq!(Mongod::shared().command(&fixture.database, view).get_f64("ok").unwrap(), 1.0);
    let printed = fixture.backfill("versions", &[]);
    assert!(printed.contains("DB.x: ") && !printed.contains("DB.vw") && !printed.contains("DB.xh"), "{printed}");
    assert_eq!(fixture.stored("xh"), [doc! {"_id": {"of": 1, "revision": 1}}]);
}
