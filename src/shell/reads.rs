//! The methods that read, what is called on their cursors, and `explain`.

use super::ShellError;
use super::arguments::{Arguments, Options};
use super::chain::{Collection, Command, Method};
use super::term::{Content, Field, Term};
use super::value::double_or_int;

/// What became of a method.
pub(super) enum Read {
    /// More may be called on its result.
    Cursor(Command),
    Other(Command),
    /// It is none of these.
    No(Method),
}

/// The methods, for suggestions.
pub(super) const METHODS: [&str; 9] = [
    "find", "findOne", "count", "countDocuments", "estimatedDocumentCount", "distinct", "aggregate", "mapReduce", "explain",
];

/// The fields of a find behind its filter, in the drivers' order.
const FIND_FIELDS: [&str; 20] = [
    "sort", "projection", "hint", "skip", "limit", "batchSize", "singleBatch", "comment", "max", "min", "returnKey",
    "showRecordId", "tailable", "noCursorTimeout", "awaitData", "allowPartialResults", "allowDiskUse", "let",
    "readConcern", "collation",
];

pub(super) fn collection_method(collection: &Collection, mut method: Method) -> Result<Read, ShellError> {
    let arguments = &mut method.arguments;
    Ok(match method.name.as_str() {
        "find" => Read::Cursor(find(collection, arguments)?),
        "findOne" => {
            let mut command = find(collection, arguments)?;
            command.set("limit", Term::int32(1));
            Read::Other(command)
        }
        "aggregate" => Read::Cursor(aggregate(collection.command("aggregate"), arguments)?),
        "count" => Read::Other(count(collection, arguments)?),
        "countDocuments" => Read::Other(count_documents(collection, arguments)?),
        "estimatedDocumentCount" => {
            let mut command = collection.command("count");
            let mut options = arguments.options()?;
            options.copy(&["comment", "readConcern", "maxTimeMS"], &mut command.fields);
            options.finish()?;
            Read::Other(command)
        }
        "distinct" => Read::Other(distinct(collection, arguments)?),
        "mapReduce" => Read::Other(map_reduce(collection, arguments)?),
        _ => return Ok(Read::No(method)),
    })
}

fn find(collection: &Collection, arguments: &mut Arguments) -> Result<Command, ShellError> {
    let mut command = collection.command("find");
    command.push("filter", arguments.filter()?);
    let projection = arguments.document("a projection")?;
    let mut options = arguments.options()?;
    let explained = options.take("explain").map(|term| term.span);
    options.copy(&FIND_FIELDS, &mut command.fields);
    options.copy(&["maxTimeMS"], &mut command.fields);
    options.finish()?;
    if let Some(span) = explained {
        return Err(ShellError::new(span, "`explain` is no option here").help("write .explain() behind the method"));
    }
    if let Some(projection) = projection {
        command.set("projection", projection);
    }
    settle_limit(&mut command);
    Ok(command)
}

/// A negative limit means: one batch of so many.
fn settle_limit(command: &mut Command) {
    if let Some(limit) = command.get("limit").and_then(Term::as_number).filter(|limit| *limit < 0.0) {
        command.set("limit", Term::scalar(0..0, double_or_int(-limit)));
        command.set("singleBatch", Term::boolean(true));
    }
}

/// What a method on a cursor makes of its command.
pub(super) fn cursor_method(mut command: Command, mut method: Method) -> Result<Command, ShellError> {
    const METHODS: [&str; 26] = [
        "sort", "limit", "skip", "projection", "project", "hint", "collation", "comment", "maxTimeMS", "batchSize",
        "allowDiskUse", "min", "max", "returnKey", "showRecordId", "noCursorTimeout", "tailable", "readConcern",
        "toArray", "pretty", "count", "size", "itcount", "hasNext", "next", "explain",
    ];
    let arguments = &mut method.arguments;
    let is_find = command.get("find").is_some();
    match method.name.as_str() {
        "toArray" | "pretty" | "hasNext" | "next" | "tryNext" | "itcount" | "isExhausted" | "close" | "finish" => {}
        // These concern later batches, the connection, or nothing at all.
        "maxAwaitTimeMS" | "readPref" | "allowPartialResults" => while arguments.any().is_some() {},
        "count" | "size" if is_find => {
            while arguments.any().is_some() {}
            command = count_of(&command);
        }
        "allowDiskUse" | "returnKey" | "showRecordId" | "noCursorTimeout" if is_find => {
            let value = arguments.any().unwrap_or_else(|| Term::boolean(true));
            command.set(&method.name, value);
        }
        "tailable" if is_find => {
            command.set("tailable", Term::boolean(true));
            if arguments.options()?.flag("awaitData")? == Some(true) {
                command.set("awaitData", Term::boolean(true));
            }
        }
        "readConcern" => {
            let level = Term::string(&arguments.required_text("a level")?);
            command.set("readConcern", Term::document(vec![Field::new("level", level)]));
        }
        "batchSize" if !is_find => {
            let size = arguments.required("a number")?;
            command.set("cursor", Term::document(vec![Field::new("batchSize", size)]));
        }
        "comment" | "maxTimeMS" | "hint" | "collation" => {
            let value = arguments.required("a value")?;
            command.set(&method.name, value);
        }
        "sort" | "min" | "max" | "skip" | "limit" | "batchSize" if is_find => {
            let value = arguments.required("a value")?;
            command.set(&method.name, value);
            settle_limit(&mut command);
        }
        "projection" | "project" if is_find => command.set("projection", arguments.required_document("a projection")?),
        _ => return Err(method.unknown("a cursor", &METHODS, "write what it does as an option of the method before")),
    }
    arguments.finish()?;
    Ok(command)
}

/// The count of what a find would find.
fn count_of(find: &Command) -> Command {
    let target = find.get("find").cloned().unwrap_or_else(|| Term::string(""));
    let mut count = Command::new(&find.database, "count", target);
    for (from, to) in [
        ("filter", "query"), ("limit", "limit"), ("skip", "skip"), ("hint", "hint"), ("maxTimeMS", "maxTimeMS"),
        ("readConcern", "readConcern"), ("collation", "collation"),
    ] {
        if let Some(term) = find.get(from) {
            count.push(to, term.clone());
        }
    }
    count
}

fn count(collection: &Collection, arguments: &mut Arguments) -> Result<Command, ShellError> {
    let mut command = collection.command("count");
    command.push("query", arguments.filter()?);
    let mut options = arguments.options()?;
    options.copy(&["limit", "skip", "hint", "maxTimeMS", "readConcern", "collation"], &mut command.fields);
    options.finish()?;
    Ok(command)
}

/// An aggregation that counts.
fn count_documents(collection: &Collection, arguments: &mut Arguments) -> Result<Command, ShellError> {
    let stage = |operator: &str, term: Term| Term::document(vec![Field::new(operator, term)]);
    let mut stages = vec![stage("$match", arguments.filter()?)];
    let mut options = arguments.options()?;
    for (option, operator) in [("skip", "$skip"), ("limit", "$limit")] {
        if let Some(term) = options.take(option) {
            stages.push(stage(operator, term));
        }
    }
    let sum = stage("$sum", Term::int32(1));
    stages.push(stage("$group", Term::document(vec![Field::new("_id", Term::int32(1)), Field::new("n", sum)])));
    let mut command = collection.command("aggregate");
    command.push("pipeline", Term::array(stages));
    options.copy(&["hint", "comment"], &mut command.fields);
    command.push("cursor", Term::document(Vec::new()));
    options.copy(&["readConcern", "collation", "maxTimeMS"], &mut command.fields);
    options.finish()?;
    Ok(command)
}

fn distinct(collection: &Collection, arguments: &mut Arguments) -> Result<Command, ShellError> {
    let mut command = collection.command("distinct");
    let key = arguments.required_text("the name of a field")?;
    command.push("key", Term::string(&key));
    command.push("query", arguments.filter()?);
    let mut options = arguments.options()?;
    options.copy(&["comment", "hint", "readConcern", "collation", "maxTimeMS"], &mut command.fields);
    options.finish()?;
    Ok(command)
}

/// `db.aggregate([…])`
pub(super) fn aggregate_database(database: &str, mut method: Method) -> Result<Command, ShellError> {
    aggregate(Command::new(database, "aggregate", Term::int32(1)), &mut method.arguments)
}

/// With its stages as an array, and options; or as arguments one by one.
fn aggregate(mut command: Command, arguments: &mut Arguments) -> Result<Command, ShellError> {
    let first = arguments.any();
    let (stages, mut options) = match first {
        Some(Term { content: Content::Array(stages), .. }) => (stages, arguments.options()?),
        first => {
            let stages: Vec<Term> = first.into_iter().chain(std::iter::from_fn(|| arguments.any())).collect();
            (stages, Options::of("aggregate", Vec::new()))
        }
    };
    if let Some(other) = stages.iter().find(|stage| !matches!(stage.content, Content::Document(_))) {
        return Err(arguments.wrong(other, "stages, each a document,"));
    }
    command.push("pipeline", Term::array(stages));
    options.copy(&["writeConcern", "bypassDocumentValidation", "allowDiskUse", "hint", "let", "comment"], &mut command.fields);
    let cursor = match (options.take("batchSize"), options.take("cursor")) {
        (Some(size), _) => Term::document(vec![Field::new("batchSize", size)]),
        (None, Some(cursor)) => cursor,
        (None, None) => Term::document(Vec::new()),
    };
    command.push("cursor", cursor);
    options.copy(&["readConcern", "collation", "maxTimeMS"], &mut command.fields);
    options.finish()?;
    // Drivers write the concern of a pipeline that does not write no further.
    if !writes_output(&command) {
        command.fields.retain(|field| field.key != "writeConcern");
    }
    Ok(command)
}

fn writes_output(command: &Command) -> bool {
    let Some(Term { content: Content::Array(stages), .. }) = command.get("pipeline") else { return false };
    let Some(Term { content: Content::Document(last), .. }) = stages.last() else { return false };
    last.first().is_some_and(|field| matches!(field.key.as_str(), "$out" | "$merge"))
}

/// The third argument holds the rest of the command, or is only where it writes.
fn map_reduce(collection: &Collection, arguments: &mut Arguments) -> Result<Command, ShellError> {
    let mut command = collection.command("mapReduce");
    command.push("map", arguments.required("a function")?);
    command.push("reduce", arguments.required("a function")?);
    let rest = arguments.required("where it writes: {out: …}")?;
    arguments.finish()?;
    match rest {
        Term { content: Content::Document(fields), .. } => command.fields.extend(fields),
        out => command.push("out", out),
    }
    Ok(command)
}

/// What `explain(…)` asks for.
pub(super) fn verbosity(mut arguments: Arguments) -> Result<Term, ShellError> {
    let Some(term) = arguments.any() else { return Ok(Term::string("queryPlanner")) };
    arguments.finish()?;
    match (term.as_str(), term.as_bool()) {
        (Some("queryPlanner" | "executionStats" | "allPlansExecution"), _) => Ok(term),
        (_, Some(true)) => Ok(Term::string("allPlansExecution")),
        (_, Some(false)) => Ok(Term::string("queryPlanner")),
        _ => {
            let error = ShellError::new(term.span, "this is no verbosity of explain");
            Err(error.help("write \"queryPlanner\", \"executionStats\" or \"allPlansExecution\""))
        }
    }
}
