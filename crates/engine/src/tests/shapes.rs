//! What real software sends stays plain: the updates, findAndModifys and deletes of 49 programs and ODMs, with values
//! of the same types (`tests/shapes.jsonl`), before rules on the fields that each collection's statements use most.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use super::*;

struct SentStatement {
    collection: String,
    message: Vec<u8>,
    /// The top-level fields that it writes, with the operator and the value; not `_id`.
    writes: Vec<(String, String, Value)>,
}

/// Returns what an update writes.
fn written(update: &Value) -> Vec<(String, String, Value)> {
    let stages = update.as_array().cloned().unwrap_or_else(|| vec![update.clone()]);
    let operators = stages.into_iter().filter_map(|stage| stage.as_object().cloned()).flatten();
    let writes = operators.flat_map(|(operator, fields)| match fields {
        Value::Object(fields) if operator.starts_with('$') => {
            fields.into_iter().map(|(path, value)| (operator.clone(), path, value)).collect()
        }
        value => vec![("replacement".to_owned(), operator, value)],
    });
    writes.filter(|(_, path, _)| !path.contains(['.', '$']) && path != "_id").collect()
}

fn sent_statement(line: &str) -> SentStatement {
    let shape: Value = serde_json::from_str(line).unwrap();
    let (command, multi) = (shape["command"].as_str().unwrap(), shape["multi"] == true);
    let mut statement = serde_json::Map::new();
    let names = if command == "findAndModify" { [("q", "query"), ("u", "update")] } else { [("q", "q"), ("u", "u")] };
    let options = ["upsert", "sort", "arrayFilters", "fields", "new", "collation"].map(|name| (name, name));
    for (from, to) in names.into_iter().chain(options) {
        shape.get(from).into_iter().for_each(|value| drop(statement.insert(to.to_owned(), value.clone())));
    }
    let whole = match command {
        "update" => {
            statement.insert("multi".to_owned(), multi.into());
            json!({"update": "c", "updates": [statement]})
        }
        "delete" => {
            statement.insert("limit".to_owned(), i32::from(!multi).into());
            json!({"delete": "c", "deletes": [statement]})
        }
        _ => {
            let mut whole = serde_json::Map::from_iter([("findAndModify".to_owned(), json!("c"))]);
            if !statement.contains_key("update") {
                statement.insert("remove".to_owned(), true.into());
            }
            whole.append(&mut statement);
            Value::Object(whole)
        }
    };
    let command = crate::shell::parse(&whole.to_string(), "d").unwrap().commands.remove(0);
    let collection = format!("{} {}", shape["program"], shape["collection"]);
    let mut writer = MessageWriter::new(7, 0, 0, 0);
    writer.body(|out| out.extend_from_slice(command.as_document().as_bytes()));
    SentStatement { collection, message: writer.finish(), writes: written(&shape["u"]) }
}

/// The fields of a collection that pass, the ones that most statements write first.
fn commonest<'s>(shapes: &[&'s SentStatement], passes: impl Fn(&str, &Value) -> bool) -> Vec<&'s str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let writes = shapes.iter().flat_map(|shape| &shape.writes);
    for (_, field, _) in writes.filter(|(operator, _, value)| passes(operator, value)) {
        *counts.entry(field).or_default() += 1;
    }
    let mut fields: Vec<&str> = counts.keys().copied().collect();
    fields.sort_by_key(|field| std::cmp::Reverse(counts[field]));
    fields
}

fn is_number(value: &Value) -> bool {
    let is_wrapped = |value: &serde_json::Map<String, Value>| value.keys().any(|key| key.starts_with("$number"));
    value.is_number() || value.as_object().is_some_and(is_wrapped)
}

/// The rule of a pattern on the fields that a collection's statements use most; `None` if it has no such field.
fn rule_on(pattern: &str, shapes: &[&SentStatement]) -> Option<String> {
    let fields = commonest(shapes, |_, _| true);
    let numbers = commonest(shapes, |operator, value| operator == "$inc" || is_number(value));
    let arrays = commonest(shapes, |operator, value| matches!(operator, "$push" | "$addToSet") || value.is_array());
    let first = |fields: &[&str]| fields.first().map(|field| format!("{field:?}"));
    Some(match pattern {
        "bounds" => format!("bounds: {{ field: {}, min: -1000 }}", first(&numbers)?),
        "copies" => {
            let (key, copy) = (first(&fields)?, first(fields.get(1..)?)?);
            format!("copies:\n- {{ into: d.c, key: {key}, fields: {{ name: {copy} }} }}")
        }
        "limits items" => format!("limits: {{ items: {{ {}: 1000 }} }}", first(&arrays)?),
        "limits document" => "limits: { document: 1MiB }".to_owned(),
        // On fields that no statement names.
        "frozen" => "frozen: creator_no".to_owned(),
        "bucket" => "bucket: { array: messages, count: message_count, limit: 9 }".to_owned(),
        "replacement" => "replacement: { policy: check_version, version: revision_no }".to_owned(),
        "schema_version" => "schema_version: { field: schema, current: 3, minimum: 2 }".to_owned(),
        "sequence" => "sequence: { field: order_no, counter: orders, on_upsert: true }".to_owned(),
        "timestamps" => "timestamps: { source: read_at, fields: [reading] }".to_owned(),
        "tree" => "tree: { parent: parent_node, path: node_path }".to_owned(),
        "together" => format!("together: [{}, {}]", first(&fields)?, first(fields.get(1..)?)?),
        _ => unreachable!("{pattern}"),
    })
}

/// Plain, checked and rejected statements; those of other collections than the rules' are not counted.
#[test]
fn what_real_software_sends_is_plain() {
    let shapes: Vec<SentStatement> =
        include_str!("../../../../tests/shapes.jsonl").lines().map(sent_statement).collect();
    let mut collections: HashMap<&str, Vec<&SentStatement>> = HashMap::new();
    shapes.iter().for_each(|shape| collections.entry(&shape.collection).or_default().push(shape));
    let mut table = String::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for pattern in [
        "bounds",
        "bucket",
        "copies",
        "frozen",
        "limits document",
        "limits items",
        "replacement",
        "schema_version",
        "sequence",
        "timestamps",
        "together",
        "tree",
    ] {
        let (mut plain, mut checked, mut rejected) = (0, 0, 0);
        for shapes in collections.values() {
            let Some(rule) = rule_on(pattern, shapes) else { continue };
            let rules = rules(&[(if pattern == "copies" { "d.originals" } else { "d.c" }, &rule)]);
            for shape in shapes {
                let mut plan = Plan::new(&shape.message, &rules, NOW);
                in_turns(&mut plan, Input::Start, &mut client_state());
                let outcomes = plan.take_outcomes();
                let with = |kind| outcomes.iter().find(|outcome| outcome.kind == kind);
                match (with(OutcomeKind::Check), with(OutcomeKind::Reject)) {
                    (Some(check), _) => {
                        checked += 1;
                        let parts: Vec<&str> = check.reason.split('\'').step_by(2).collect();
                        *reasons.entry(format!("{pattern}: {}", parts.join("_"))).or_default() += 1;
                    }
                    (None, Some(_)) => rejected += 1,
                    (None, None) => plain += 1,
                }
            }
        }
        table += &format!("{pattern}: {plain} plain, {checked} checked, {rejected} rejected\n");
    }
    let reasons: String = reasons.iter().map(|(reason, count)| format!("  {count} {reason}\n")).collect();
    assert_eq!(table, EXPECTED, "checked:\n{reasons}");
}

/// Rejected are writes of some fields of `together`, of references without their copies, and inserts without a version or
/// whole documents where timestamps are per field.
const EXPECTED: &str = "\
bounds: 606 plain, 4 checked, 1 rejected
bucket: 739 plain, 0 checked, 0 rejected
copies: 399 plain, 94 checked, 206 rejected
frozen: 671 plain, 68 checked, 0 rejected
limits document: 710 plain, 29 checked, 0 rejected
limits items: 418 plain, 0 checked, 0 rejected
replacement: 739 plain, 0 checked, 0 rejected
schema_version: 562 plain, 0 checked, 177 rejected
sequence: 739 plain, 0 checked, 0 rejected
timestamps: 671 plain, 0 checked, 68 rejected
together: 426 plain, 29 checked, 244 rejected
tree: 739 plain, 0 checked, 0 rejected
";
