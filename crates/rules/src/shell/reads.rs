//! The methods that read, the methods of their cursors, and `explain`.

use super::ShellError;
use super::arguments::{MethodArguments, MethodCall};
use super::chain::{CommandBuilder, MethodCollection, ParsedMethod};
use super::term::{Term, TermContent, TermField};
use super::value::double_or_int;

/// The methods, for suggestions.
pub(super) const METHODS: [&str; 9] = [
    "find",
    "findOne",
    "count",
    "countDocuments",
    "estimatedDocumentCount",
    "distinct",
    "aggregate",
    "mapReduce",
    "explain",
];

/// The fields of a find after its filter, in the order of drivers.
const FIND_FIELDS: [&str; 20] = [
    "sort",
    "projection",
    "hint",
    "skip",
    "limit",
    "batchSize",
    "singleBatch",
    "comment",
    "max",
    "min",
    "returnKey",
    "showRecordId",
    "tailable",
    "noCursorTimeout",
    "awaitData",
    "allowPartialResults",
    "allowDiskUse",
    "let",
    "readConcern",
    "collation",
];

/// Returns `None` if the method is not a read.
pub(super) fn collection_method(
    collection: &MethodCollection,
    method: &mut MethodCall,
) -> Result<Option<ParsedMethod>, ShellError> {
    let arguments = &mut method.arguments;
    let command = match method.name.as_str() {
        "find" => return Ok(Some(ParsedMethod::Cursor(find(collection, arguments)?))),
        "findOne" => {
            let mut command = find(collection, arguments)?;
            command.set("limit", Term::int32(1));
            command
        }
        "aggregate" => {
            return Ok(Some(ParsedMethod::Cursor(aggregate(collection.command("aggregate"), arguments)?)));
        }
        "count" => count(collection, arguments)?,
        "countDocuments" => count_documents(collection, arguments)?,
        "estimatedDocumentCount" => {
            let mut command = collection.command("count");
            copy_options(arguments, &["comment", "readConcern", "maxTimeMS"], &mut command)?;
            command
        }
        "distinct" => distinct(collection, arguments)?,
        "mapReduce" => map_reduce(collection, arguments)?,
        _ => return Ok(None),
    };
    Ok(Some(ParsedMethod::Commands(vec![command])))
}

/// Appends the options of these names to the command.
pub(super) fn copy_options(
    arguments: &mut MethodArguments,
    names: &[&'static str],
    command: &mut CommandBuilder,
) -> Result<(), ShellError> {
    arguments.options(|options| {
        options.copy(names, &mut command.fields);
        Ok(())
    })
}

fn find(collection: &MethodCollection, arguments: &mut MethodArguments) -> Result<CommandBuilder, ShellError> {
    let mut command = collection.command("find");
    command.push("filter", arguments.filter()?);
    let projection = arguments.document("a projection")?;
    let explained = arguments.options(|options| {
        let explained = options.take("explain").map(|term| term.span);
        options.copy(&FIND_FIELDS, &mut command.fields);
        options.copy(&["maxTimeMS"], &mut command.fields);
        Ok(explained)
    })?;
    if let Some(span) = explained {
        let error = ShellError::new(span, "`explain` is not an option of this method");
        return Err(error.help("write .explain() after the method"));
    }
    if let Some(projection) = projection {
        command.set("projection", projection);
    }
    apply_negative_limit(&mut command);
    Ok(command)
}

/// Replaces a negative limit, which means a single batch of that size.
fn apply_negative_limit(command: &mut CommandBuilder) {
    if let Some(limit) = command.get("limit").and_then(Term::as_number).filter(|limit| *limit < 0.0) {
        command.set("limit", Term::scalar(0..0, double_or_int(-limit)));
        command.set("singleBatch", Term::boolean(true));
    }
}

/// The methods of cursors, for suggestions.
const CURSOR_METHODS: [&str; 25] = [
    "sort",
    "limit",
    "skip",
    "projection",
    "hint",
    "collation",
    "comment",
    "maxTimeMS",
    "batchSize",
    "allowDiskUse",
    "min",
    "max",
    "returnKey",
    "showRecordId",
    "noCursorTimeout",
    "tailable",
    "readConcern",
    "toArray",
    "pretty",
    "count",
    "size",
    "itcount",
    "hasNext",
    "next",
    "explain",
];

/// The methods of cursors that call a function with each document.
pub(super) const CALLBACK_METHODS: [&str; 2] = ["forEach", "map"];

/// Applies a cursor method to its command.
pub(super) fn cursor_method(command: &mut CommandBuilder, method: &mut MethodCall) -> Result<(), ShellError> {
    let is_find = command.get("find").is_some();
    let name = method.name.as_str();
    let known = on_any_cursor(command, name, &mut method.arguments)?
        || (is_find && on_find(command, name, &mut method.arguments)?)
        || (!is_find && on_aggregation(command, name, &mut method.arguments)?);
    if !known {
        let instead = "use an option of the method before it";
        return Err(method.unknown("a cursor", &CURSOR_METHODS, instead));
    }
    Ok(())
}

/// Returns false if the method is not one of these.
fn on_any_cursor(
    command: &mut CommandBuilder,
    name: &str,
    arguments: &mut MethodArguments,
) -> Result<bool, ShellError> {
    match name {
        "toArray" | "pretty" | "hasNext" | "next" | "tryNext" | "itcount" | "isExhausted" | "close" | "finish" => {}
        // mongosh does not send it.
        "allowPartialResults" => {}
        // It affects later batches.
        "maxAwaitTimeMS" => _ = arguments.required("a number")?,
        // No rule depends on it: the mode, tag sets and hedging.
        "readPref" => {
            arguments.required_text("a mode")?;
            arguments.any();
            arguments.document("hedge options")?;
        }
        "comment" | "maxTimeMS" | "hint" | "collation" => command.set(name, arguments.required("a value")?),
        "readConcern" => {
            let level = Term::string(&arguments.required_text("a level")?);
            command.set(name, Term::document(vec![TermField::new("level", level)]));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn on_find(command: &mut CommandBuilder, name: &str, arguments: &mut MethodArguments) -> Result<bool, ShellError> {
    match name {
        "count" | "size" => *command = count_of(command),
        "allowDiskUse" | "returnKey" | "showRecordId" | "noCursorTimeout" => {
            command.set(name, arguments.any().unwrap_or_else(|| Term::boolean(true)));
        }
        "tailable" => {
            command.set(name, Term::boolean(true));
            if arguments.options(|options| options.flag("awaitData"))? == Some(true) {
                command.set("awaitData", Term::boolean(true));
            }
        }
        "sort" | "min" | "max" | "skip" | "limit" | "batchSize" => {
            command.set(name, arguments.required("a value")?);
            apply_negative_limit(command);
        }
        "projection" | "project" => command.set("projection", arguments.required_document("a projection")?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn on_aggregation(
    command: &mut CommandBuilder,
    name: &str,
    arguments: &mut MethodArguments,
) -> Result<bool, ShellError> {
    if name == "batchSize" {
        let size = TermField::new("batchSize", arguments.required("a number")?);
        command.set("cursor", Term::document(vec![size]));
    }
    Ok(name == "batchSize")
}

/// Returns the count command for the documents of a find.
fn count_of(find: &CommandBuilder) -> CommandBuilder {
    let target = find.get("find").cloned().unwrap_or_else(|| Term::string(""));
    let mut count = CommandBuilder::new(&find.database, "count", target);
    for (from, to) in [
        ("filter", "query"),
        ("limit", "limit"),
        ("skip", "skip"),
        ("hint", "hint"),
        ("maxTimeMS", "maxTimeMS"),
        ("readConcern", "readConcern"),
        ("collation", "collation"),
    ] {
        if let Some(term) = find.get(from) {
            count.push(to, term.clone());
        }
    }
    count
}

fn count(collection: &MethodCollection, arguments: &mut MethodArguments) -> Result<CommandBuilder, ShellError> {
    let mut command = collection.command("count");
    command.push("query", arguments.filter()?);
    copy_options(arguments, &["limit", "skip", "hint", "maxTimeMS", "readConcern", "collation"], &mut command)?;
    Ok(command)
}

/// Returns an aggregation that counts documents.
fn count_documents(
    collection: &MethodCollection,
    arguments: &mut MethodArguments,
) -> Result<CommandBuilder, ShellError> {
    let stage = |operator: &str, term: Term| Term::document(vec![TermField::new(operator, term)]);
    let mut stages = vec![stage("$match", arguments.filter()?)];
    arguments.options(|options| {
        for (option, operator) in [("skip", "$skip"), ("limit", "$limit")] {
            if let Some(term) = options.take(option) {
                stages.push(stage(operator, term));
            }
        }
        let sum = stage("$sum", Term::int32(1));
        let group = vec![TermField::new("_id", Term::int32(1)), TermField::new("n", sum)];
        stages.push(stage("$group", Term::document(group)));
        let mut command = collection.command("aggregate");
        command.push("pipeline", Term::array(stages));
        options.copy(&["hint", "comment"], &mut command.fields);
        command.push("cursor", Term::document(Vec::new()));
        options.copy(&["readConcern", "collation", "maxTimeMS"], &mut command.fields);
        Ok(command)
    })
}

fn distinct(collection: &MethodCollection, arguments: &mut MethodArguments) -> Result<CommandBuilder, ShellError> {
    let mut command = collection.command("distinct");
    let key = arguments.required_text("the name of a field")?;
    command.push("key", Term::string(&key));
    command.push("query", arguments.filter()?);
    copy_options(arguments, &["comment", "hint", "readConcern", "collation", "maxTimeMS"], &mut command)?;
    Ok(command)
}

/// Parses `db.aggregate([…])`.
pub(super) fn aggregate_database(database: &str, method: &mut MethodCall) -> Result<CommandBuilder, ShellError> {
    aggregate(CommandBuilder::new(database, "aggregate", Term::int32(1)), &mut method.arguments)
}

/// The stages are an array followed by options, or separate arguments.
fn aggregate(mut command: CommandBuilder, arguments: &mut MethodArguments) -> Result<CommandBuilder, ShellError> {
    let stages: Vec<Term> = match arguments.any() {
        Some(Term { content: TermContent::Array(stages), .. }) => stages,
        first => first.into_iter().chain(std::iter::from_fn(|| arguments.any())).collect(),
    };
    if let Some(other) = stages.iter().find(|stage| !matches!(stage.content, TermContent::Document(_))) {
        return Err(arguments.wrong(other, "stages, each a document,"));
    }
    command.push("pipeline", Term::array(stages));
    arguments.options(|options| {
        options.copy(
            &["writeConcern", "bypassDocumentValidation", "allowDiskUse", "hint", "let", "comment"],
            &mut command.fields,
        );
        let cursor = match (options.take("batchSize"), options.take("cursor")) {
            (Some(size), _) => Term::document(vec![TermField::new("batchSize", size)]),
            (None, Some(cursor)) => cursor,
            (None, None) => Term::document(Vec::new()),
        };
        command.push("cursor", cursor);
        options.copy(&["readConcern", "collation", "maxTimeMS"], &mut command.fields);
        Ok(())
    })?;
    // Drivers do not send a write concern with a pipeline that does not write.
    if !writes_output(&command) {
        command.fields.retain(|field| field.key != "writeConcern");
    }
    Ok(command)
}

fn writes_output(command: &CommandBuilder) -> bool {
    let Some(Term { content: TermContent::Array(stages), .. }) = command.get("pipeline") else { return false };
    let Some(Term { content: TermContent::Document(last), .. }) = stages.last() else { return false };
    last.first().is_some_and(|field| matches!(field.key.as_str(), "$out" | "$merge"))
}

/// The third argument is a document with further fields, or the output only.
fn map_reduce(collection: &MethodCollection, arguments: &mut MethodArguments) -> Result<CommandBuilder, ShellError> {
    let mut command = collection.command("mapReduce");
    command.push("map", arguments.required("a function")?);
    command.push("reduce", arguments.required("a function")?);
    let rest = arguments.required("where it writes: {out: …}")?;
    match rest {
        Term { content: TermContent::Document(fields), .. } => command.fields.extend(fields),
        out => command.push("out", out),
    }
    Ok(command)
}

/// Returns the verbosity of `explain(…)`.
pub(super) fn verbosity(method: &mut MethodCall) -> Result<Term, ShellError> {
    let Some(term) = method.arguments.any() else { return Ok(Term::string("queryPlanner")) };
    match (term.as_str(), term.as_bool()) {
        (Some("queryPlanner" | "executionStats" | "allPlansExecution"), _) => Ok(term),
        (_, Some(true)) => Ok(Term::string("allPlansExecution")),
        (_, Some(false)) => Ok(Term::string("queryPlanner")),
        _ => {
            let error = ShellError::new(term.span, "invalid verbosity of explain");
            Err(error.help("write \"queryPlanner\", \"executionStats\" or \"allPlansExecution\""))
        }
    }
}
