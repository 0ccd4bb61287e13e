//! Commands that write to a collection other than by statements: where their output goes.
//!
//! Targets are read from the structure, in every form the server takes; what has another form is reported
//! as unreadable, so that the engine can refuse it.

use super::{Command, Namespace};
use crate::document::{Document, Kind, Value};

/// Where an output goes; `Err(())` stands for a form that cannot be read.
type Target = Result<(String, String), ()>;

/// The targets of `$out` and `$merge` at any depth of an aggregation's pipeline. The server only takes them
/// as last stage of the outermost one; a guard does not rely on it.
pub fn output_targets(command: &Command<'_>) -> Vec<Target> {
    let mut targets = Vec::new();
    if let Some(pipeline) = command.body.get("pipeline") {
        collect_outputs(pipeline, command.database, &mut targets);
    }
    targets
}

/// Walks nested documents without recursion; the depth has been bounded when the body was checked.
fn collect_outputs(pipeline: Value<'_>, database: &str, targets: &mut Vec<Target>) {
    let mut unread = vec![pipeline];
    while let Some(value) = unread.pop() {
        let Some(nested) = value.as_document().or_else(|| value.as_array()) else { continue };
        for element in nested.elements() {
            match (value.kind, element.key) {
                (Kind::Document, b"$out") => targets.push(out_target(element.value, database)),
                (Kind::Document, b"$merge") => targets.push(merge_target(element.value, database)),
                // What stands below $literal is data.
                (Kind::Document, b"$literal") => {}
                _ => unread.push(element.value),
            }
        }
    }
}

/// The collections that an aggregation reads besides its own, at any depth of its pipeline: `$lookup`,
/// `$graphLookup` and `$unionWith`.
pub fn input_collections(command: &Command<'_>) -> Vec<Target> {
    let mut inputs = Vec::new();
    let mut unread: Vec<Value<'_>> = command.body.get("pipeline").into_iter().collect();
    while let Some(value) = unread.pop() {
        let Some(nested) = value.as_document().or_else(|| value.as_array()) else { continue };
        for element in nested.elements() {
            let name = match (value.kind, element.key) {
                (Kind::Document, b"$lookup" | b"$graphLookup") => input_name(element.value, "from"),
                (Kind::Document, b"$unionWith") => input_name(element.value, "coll"),
                (Kind::Document, b"$literal") => continue,
                _ => None,
            };
            inputs.extend(name.map(|name| out_target(name, command.database)));
            unread.push(element.value);
        }
    }
    inputs
}

/// `None`: the stage reads documents that it brings along.
fn input_name<'a>(stage: Value<'a>, field: &str) -> Option<Value<'a>> {
    match stage.as_document() {
        None => Some(stage),
        // The collection and its database are two fields of the stage itself.
        Some(stage) if stage.get("db").is_some() => Some(Value { kind: Kind::Document, bytes: stage.as_bytes() }),
        Some(stage) => stage.get(field),
    }
}

/// `$out: "collection"` or `{db, coll}`.
fn out_target(value: Value<'_>, database: &str) -> Target {
    match value.as_document() {
        None => value.as_str().map(|collection| (database.to_owned(), collection.to_owned())).ok_or(()),
        Some(target) => database_and_collection(target, database),
    }
}

/// `$merge: "collection"`, `{into: "collection"}` or `{into: {db, coll}}`.
fn merge_target(value: Value<'_>, database: &str) -> Target {
    match value.as_document() {
        None => out_target(value, database),
        Some(merge) => out_target(merge.get("into").ok_or(())?, database),
    }
}

fn database_and_collection(target: Document<'_>, database: &str) -> Target {
    let database = match target.get("db") {
        None => database,
        Some(value) => value.as_str().ok_or(())?,
    };
    let collection = target.get("coll").and_then(Value::as_str).ok_or(())?;
    Ok((database.to_owned(), collection.to_owned()))
}

/// Where mapReduce writes: `None` for inline results.
pub fn map_reduce_target(command: &Command<'_>) -> Option<Target> {
    let out = command.body.get("out")?;
    let Some(spec) = out.as_document() else { return Some(out_target(out, command.database)) };
    if spec.get("inline").is_some() {
        return None;
    }
    let database = match spec.get("db") {
        None => Some(command.database),
        Some(value) => value.as_str(),
    };
    let collection = ["replace", "merge", "reduce"].iter().find_map(|action| spec.get(action)?.as_str());
    match (database, collection) {
        (Some(database), Some(collection)) => Some(Ok((database.to_owned(), collection.to_owned()))),
        _ => Some(Err(())),
    }
}

/// Both ends of a cloneCollectionAsCapped, in the command's database.
pub fn clone_targets(command: &Command<'_>) -> [Target; 2] {
    [Some(command.target), command.body.get("toCollection")].map(|end| out_target(end.ok_or(())?, command.database))
}

/// Both ends of a renameCollection; both are whole namespaces.
pub fn rename_targets(command: &Command<'_>) -> [Target; 2] {
    let namespace = |value: Option<Value<'_>>| {
        let text = value.and_then(Value::as_str).and_then(Namespace::parse).ok_or(())?;
        Ok((text.database.to_owned(), text.collection.to_owned()))
    };
    let from = if command.name == "renameCollection" { Some(command.target) } else { command.body.get("from") };
    [namespace(from), namespace(command.body.get("to"))]
}

/// The namespaces of applyOps' entries. An entry that is itself a command could do anything, and so could one
/// that names its collection by `ui`: mongod then takes the collection of that UUID, whatever `ns` says.
pub fn apply_ops_targets(command: &Command<'_>) -> Vec<Target> {
    let Some(operations) = command.target.as_array() else { return vec![Err(())] };
    let target = |operation: Value<'_>| {
        let operation = operation.as_document().filter(|operation| operation.get("ui").is_none()).ok_or(())?;
        operation.refuse_duplicates().map_err(|_| ())?;
        match operation.get("op").and_then(Value::as_str) {
            Some("i" | "u" | "d") => {}
            _ => return Err(()),
        }
        let namespace = operation.get("ns").and_then(Value::as_str).and_then(Namespace::parse).ok_or(())?;
        Ok((namespace.database.to_owned(), namespace.collection.to_owned()))
    };
    operations.values().map(target).collect()
}
