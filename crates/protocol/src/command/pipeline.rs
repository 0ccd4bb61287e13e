//! Finds the output collections of indirect writes.
//!
//! Output collections are read from all forms that the server accepts. A form that is unknown or ambiguous is
//! reported as unreadable, so that the engine can reject the command.

use super::form::DOCUMENT_SEQUENCE;
use super::{Command, CommandClass, Namespace, parse_document};
use crate::document::{Document, Kind, Value};

/// Database and collection of an output. `Err(())` is a form that cannot be read.
pub type OutputTarget = Result<(String, String), ()>;

/// Returns the collections that an indirect write can change (see [`CommandClass::indirect_write`]).
pub fn indirect_write_targets(command: &Command<'_>, class: CommandClass) -> Vec<OutputTarget> {
    match class {
        CommandClass::Aggregate => output_targets(command.body, command.database),
        CommandClass::MapReduce => map_reduce_target(command).into_iter().collect(),
        CommandClass::RenameCollection => rename_targets(command).into(),
        CommandClass::CloneCollection => clone_targets(command).into(),
        CommandClass::ApplyOps => apply_ops_targets(command),
        CommandClass::Unknown => named_targets(command),
        _ => Vec::new(),
    }
}

/// Returns the targets of `$out` and `$merge` at any depth of an aggregation pipeline. The server accepts them only
/// as the last stage of the outermost pipeline, but docward does not rely on that.
pub fn output_targets(command: Document<'_>, database: &str) -> Vec<OutputTarget> {
    let mut targets = Vec::new();
    if let Some(pipeline) = command.get("pipeline") {
        collect_outputs(pipeline, database, &mut targets);
    }
    targets
}

/// Iterates over nested documents without recursion. The check of the body has bounded the depth.
fn collect_outputs(pipeline: Value<'_>, database: &str, targets: &mut Vec<OutputTarget>) {
    let mut unread = vec![pipeline];
    while let Some(value) = unread.pop() {
        let Some(nested) = value.as_document_or_array() else { continue };
        for element in nested.elements() {
            match (value.kind, element.key) {
                (Kind::Document, b"$out") => targets.push(out_target(element.value, database)),
                (Kind::Document, b"$merge") => targets.push(merge_target(element.value, database)),
                // The content of $literal is data.
                (Kind::Document, b"$literal") => {}
                _ => unread.push(element.value),
            }
        }
    }
}

/// A stage of an aggregation that reads a collection.
#[derive(Debug, Clone)]
pub struct InputStage<'a> {
    /// "$lookup", "$graphLookup" or "$unionWith".
    pub name: &'a str,
    /// The collection. The form can also be unreadable because the stage has a field twice.
    pub collection: OutputTarget,
    /// The settings of the stage.
    pub settings: Value<'a>,
}

/// Returns the collections that an aggregation reads besides its own, at any depth of its pipeline.
pub fn input_collections(command: &Command<'_>) -> Vec<OutputTarget> {
    input_stages(command).into_iter().map(|stage| stage.collection).collect()
}

/// Returns the stages of an aggregation that read a collection, at any depth of its pipeline.
pub fn input_stages<'a>(command: &Command<'a>) -> Vec<InputStage<'a>> {
    let mut stages = Vec::new();
    let mut unread: Vec<Value<'a>> = command.body.get("pipeline").into_iter().collect();
    while let Some(value) = unread.pop() {
        let Some(nested) = value.as_document_or_array() else { continue };
        let begin = unread.len();
        for element in nested.elements() {
            let (name, field) = match (value.kind, element.key) {
                (Kind::Document, b"$literal") => continue,
                (Kind::Document, b"$lookup") => ("$lookup", "from"),
                (Kind::Document, b"$graphLookup") => ("$graphLookup", "from"),
                (Kind::Document, b"$unionWith") => ("$unionWith", "coll"),
                _ => {
                    unread.push(element.value);
                    continue;
                }
            };
            let settings = element.value;
            let collection = input_collection(settings, field, command.database);
            stages.extend(collection.map(|collection| InputStage { name, collection, settings }));
            unread.push(settings);
        }
        // So that the stages are in the order of the pipeline.
        unread.get_mut(begin..).unwrap_or_default().reverse();
    }
    stages
}

/// Returns `None` if the stage contains its own documents.
fn input_collection(settings: Value<'_>, field: &str, database: &str) -> Option<OutputTarget> {
    match settings.as_document() {
        None => Some(out_target(settings, database)),
        Some(settings) if distinct(settings).is_err() => Some(Err(())),
        // The stage itself has a field for the collection and one for its database.
        Some(settings) if settings.get("db").is_some() => Some(database_and_collection(settings, database)),
        Some(settings) => settings.get(field).map(|name| out_target(name, database)),
    }
}

/// Reads `$out: "collection"` or `{db, coll}`.
fn out_target(value: Value<'_>, database: &str) -> OutputTarget {
    match value.as_document() {
        None => value.as_str().map(|collection| (database.to_owned(), collection.to_owned())).ok_or(()),
        Some(target) => database_and_collection(target, database),
    }
}

/// Reads `$merge: "collection"`, `{into: "collection"}` or `{into: {db, coll}}`.
fn merge_target(value: Value<'_>, database: &str) -> OutputTarget {
    match value.as_document() {
        None => out_target(value, database),
        Some(merge) => out_target(distinct(merge)?.get("into").ok_or(())?, database),
    }
}

fn database_and_collection(target: Document<'_>, database: &str) -> OutputTarget {
    let target = distinct(target)?;
    let database = match target.get("db") {
        None => database,
        Some(value) => value.as_str().ok_or(())?,
    };
    let collection = target.get("coll").and_then(Value::as_str).ok_or(())?;
    Ok((database.to_owned(), collection.to_owned()))
}

/// Returns the output collection of mapReduce, or `None` for inline results.
fn map_reduce_target(command: &Command<'_>) -> Option<OutputTarget> {
    let out = command.body.get("out")?;
    let Some(spec) = out.as_document() else { return Some(out_target(out, command.database)) };
    if distinct(spec).is_err() {
        return Some(Err(()));
    }
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

/// Returns source and target of a cloneCollectionAsCapped, in the command's database.
fn clone_targets(command: &Command<'_>) -> [OutputTarget; 2] {
    [Some(command.target), command.body.get("toCollection")].map(|end| out_target(end.ok_or(())?, command.database))
}

/// Returns source and target of a renameCollection. Both are full namespaces.
fn rename_targets(command: &Command<'_>) -> [OutputTarget; 2] {
    let namespace = |value: Option<Value<'_>>| {
        let text = value.and_then(Value::as_str).and_then(Namespace::parse).ok_or(())?;
        Ok((text.database.to_owned(), text.collection.to_owned()))
    };
    let from = if command.name == "renameCollection" { Some(command.target) } else { command.body.get("from") };
    [namespace(from), namespace(command.body.get("to"))]
}

/// Returns the namespaces of the entries of applyOps. An entry that contains a command can do anything. So can an
/// entry with `ui`: mongod then uses the collection with that UUID and ignores `ns`.
fn apply_ops_targets(command: &Command<'_>) -> Vec<OutputTarget> {
    let Some(operations) = command.target.as_array() else { return vec![Err(())] };
    let target = |operation: Value<'_>| {
        let operation = operation.as_document().filter(|operation| operation.get("ui").is_none()).ok_or(())?;
        distinct(operation)?;
        match operation.get("op").and_then(Value::as_str) {
            Some("i" | "u" | "d") => {}
            _ => return Err(()),
        }
        let namespace = operation.get("ns").and_then(Value::as_str).and_then(Namespace::parse).ok_or(())?;
        Ok((namespace.database.to_owned(), namespace.collection.to_owned()))
    };
    operations.values().map(target).collect()
}

/// Returns all namespaces that an unknown command could refer to. Each of its strings may be a collection in its own
/// database, a collection in a database that another string names, or a full namespace (as in sharding commands).
/// Nested commands are included.
fn named_targets(command: &Command<'_>) -> Vec<OutputTarget> {
    /// A command with more strings is treated as able to name any collection.
    const MAX_TEXTS: usize = 64;
    let Some(texts) = texts(command).filter(|texts| texts.len() <= MAX_TEXTS) else { return vec![Err(())] };
    let mut targets = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let others = texts.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| *other);
        let databases = std::iter::once(command.database).chain(others.filter(|other| may_name_database(other)));
        targets.extend(databases.map(|database| Ok((database.to_owned(), (*text).to_owned()))));
        let whole = Namespace::parse(text).map(|ns| Ok((ns.database.to_owned(), ns.collection.to_owned())));
        targets.extend(whole);
    }
    targets
}

/// Returns whether the server accepts it as the name of a database (`DatabaseName` on Linux).
pub fn may_name_database(text: &str) -> bool {
    !text.is_empty() && !text.contains(['/', '\\', '.', ' ', '"', '$'])
}

/// Fields that every command may have. Their strings and UUIDs do not name collections.
const COMMON_FIELDS: [&[u8]; 9] = [
    b"$clusterTime",
    b"$db",
    b"$readPreference",
    b"apiVersion",
    b"comment",
    b"lsid",
    b"maxTimeMS",
    b"readConcern",
    b"writeConcern",
];

/// Returns the strings of a command at any depth, including its document sequences. Returns `None` if a value may
/// name a collection in another way: a UUID, or bytes that are not UTF-8.
fn texts<'a>(command: &Command<'a>) -> Option<Vec<&'a str>> {
    let own = command.body.elements().filter(|element| !COMMON_FIELDS.contains(&element.key));
    let mut unread: Vec<Value<'a>> = own.map(|element| element.value).collect();
    for bytes in command.message.sequences.iter().flat_map(|sequence| sequence.documents()) {
        unread.push(Value::document(parse_document(bytes, DOCUMENT_SEQUENCE).ok()?));
    }
    let mut found = Vec::new();
    while let Some(value) = unread.pop() {
        match value.kind {
            Kind::Document | Kind::Array => {
                unread.extend(value.as_document_or_array()?.values());
            }
            Kind::String | Kind::Symbol => found.push(value.as_name()?),
            Kind::Binary if value.as_uuid().is_some() => return None,
            _ => {}
        }
    }
    Some(found)
}

/// Returns the document if no field occurs twice.
fn distinct(document: Document<'_>) -> Result<Document<'_>, ()> {
    document.reject_duplicates().map(|()| document).map_err(|_| ())
}
