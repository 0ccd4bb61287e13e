//! The methods that write. Each becomes the command that drivers send, with fields in the same order.

use super::arguments::{MethodArguments, MethodCall, Options};
use super::chain::{CommandBuilder, MethodCollection};
use super::term::{Term, TermContent, TermField};
use super::{ShellError, find_and_modify};

pub(super) type Commands = Result<Vec<CommandBuilder>, ShellError>;

/// The methods, for suggestions.
pub(super) const METHODS: [&str; 18] = [
    "insertOne",
    "insertMany",
    "insert",
    "updateOne",
    "updateMany",
    "update",
    "replaceOne",
    "save",
    "deleteOne",
    "deleteMany",
    "remove",
    "findOneAndUpdate",
    "findOneAndReplace",
    "findOneAndDelete",
    "findAndModify",
    "bulkWrite",
    "findandmodify",
    "runCommand",
];

/// Returns `None` if the method is not a write.
pub(super) fn collection_method(
    collection: &MethodCollection,
    method: &mut MethodCall,
) -> Result<Option<Vec<CommandBuilder>>, ShellError> {
    let arguments = &mut method.arguments;
    let commands = match method.name.as_str() {
        "insertOne" => insert_one(collection, arguments),
        "insertMany" => insert_many(collection, arguments),
        "insert" => insert(collection, arguments),
        "updateOne" => update(collection, arguments, false),
        "updateMany" => update(collection, arguments, true),
        "update" => old_update(collection, arguments),
        "replaceOne" => replace_one(collection, arguments),
        "save" => save(collection, arguments),
        "deleteOne" => delete(collection, arguments, 1),
        "deleteMany" => delete(collection, arguments, 0),
        "remove" => remove(collection, arguments),
        "findOneAndUpdate" | "findOneAndReplace" => find_and_modify::write(collection, arguments, &method.name),
        "findOneAndDelete" => find_and_modify::delete(collection, arguments),
        "findAndModify" | "findandmodify" => find_and_modify::whole(collection, arguments),
        "bulkWrite" => bulk_write(collection, arguments),
        _ => return Ok(None),
    };
    commands.map(Some)
}

/// The statement lists of write commands, and the fields that can follow them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatementList {
    Inserts,
    Updates,
    Deletes,
}

impl StatementList {
    fn command(self) -> (&'static str, &'static str) {
        match self {
            Self::Inserts => ("insert", "documents"),
            Self::Updates => ("update", "updates"),
            Self::Deletes => ("delete", "deletes"),
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Inserts => &["bypassDocumentValidation", "comment", "writeConcern", "maxTimeMS"],
            Self::Updates => &["bypassDocumentValidation", "let", "comment", "writeConcern", "maxTimeMS"],
            Self::Deletes => &["let", "comment", "writeConcern", "maxTimeMS"],
        }
    }
}

fn command(
    collection: &MethodCollection,
    list: StatementList,
    statements: Vec<Term>,
    options: &mut Options,
) -> Commands {
    Ok(vec![write_command(collection, list, statements, options)?])
}

fn write_command(
    collection: &MethodCollection,
    list: StatementList,
    statements: Vec<Term>,
    options: &mut Options,
) -> Result<CommandBuilder, ShellError> {
    let (name, field) = list.command();
    let mut command = collection.command(name);
    command.push(field, Term::array(statements));
    command.push("ordered", Term::boolean(options.flag("ordered")?.unwrap_or(true)));
    options.copy(list.options(), &mut command.fields);
    Ok(command)
}

fn insert_one(collection: &MethodCollection, arguments: &mut MethodArguments) -> Commands {
    let document = arguments.required_document("a document")?;
    arguments.options(|options| command(collection, StatementList::Inserts, vec![document], options))
}

fn insert_many(collection: &MethodCollection, arguments: &mut MethodArguments) -> Commands {
    let documents = arguments.required_array("an array of documents")?;
    let documents = all_documents(documents, arguments)?;
    arguments.options(|options| command(collection, StatementList::Inserts, documents, options))
}

fn insert(collection: &MethodCollection, arguments: &mut MethodArguments) -> Commands {
    let term = arguments.required("a document or an array of them")?;
    let documents = match term.content {
        TermContent::Array(documents) => documents,
        _ => vec![term],
    };
    let documents = all_documents(documents, arguments)?;
    arguments.options(|options| command(collection, StatementList::Inserts, documents, options))
}

fn all_documents(terms: Vec<Term>, arguments: &MethodArguments) -> Result<Vec<Term>, ShellError> {
    if terms.is_empty() {
        return Err(ShellError::new(arguments.method_span(), "the list of documents is empty"));
    }
    match terms.iter().find(|term| !matches!(term.content, TermContent::Document(_))) {
        Some(other) => Err(arguments.wrong(other, "a document")),
        None => Ok(terms),
    }
}

/// The kinds of updates that a method accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpdateKinds {
    Operators,
    Replacement,
    Either,
}

/// Checks by the first field whether an update has operators, as drivers do.
pub(super) fn check_update(term: &Term, takes: UpdateKinds) -> Result<(), ShellError> {
    let has_operators = match &term.content {
        TermContent::Document(fields) => fields.first().is_some_and(|field| field.key.starts_with('$')),
        TermContent::Array(stages) if takes != UpdateKinds::Replacement => !stages.is_empty(),
        _ => {
            return Err(ShellError::new(
                term.span.clone(),
                format!("an update must be a document, not {}", term.describe()),
            ));
        }
    };
    match (takes, has_operators) {
        (UpdateKinds::Operators, false) => {
            let error = ShellError::new(term.span.clone(), "an update without operators would replace the document");
            Err(error.help("write {$set: {…}}, or use replaceOne"))
        }
        (UpdateKinds::Replacement, true) => {
            let error = ShellError::new(term.span.clone(), "a replacement cannot contain update operators");
            Err(error.help("use updateOne"))
        }
        _ => Ok(()),
    }
}

/// Returns the statement `{q, u, upsert, multi, …}`.
fn update_statement(
    filter: Term,
    update: Term,
    multi: bool,
    options: &mut Options,
    takes: UpdateKinds,
) -> Result<Term, ShellError> {
    check_update(&update, takes)?;
    let mut fields = vec![TermField::new("q", filter), TermField::new("u", update)];
    if let Some(upsert) = options.flag("upsert")? {
        fields.push(TermField::new("upsert", Term::boolean(upsert)));
    }
    if multi {
        fields.push(TermField::new("multi", Term::boolean(true)));
    }
    options.copy(&["hint"], &mut fields);
    if takes != UpdateKinds::Replacement {
        options.copy(&["arrayFilters"], &mut fields);
    }
    options.copy(&["collation"], &mut fields);
    if !multi {
        options.copy(&["sort"], &mut fields);
    }
    Ok(Term::document(fields))
}

fn update(collection: &MethodCollection, arguments: &mut MethodArguments, multi: bool) -> Commands {
    let filter = arguments.required_document("a filter")?;
    let update = arguments.required("an update")?;
    arguments.options(|options| {
        let statement = update_statement(filter, update, multi, options, UpdateKinds::Operators)?;
        command(collection, StatementList::Updates, vec![statement], options)
    })
}

fn replace_one(collection: &MethodCollection, arguments: &mut MethodArguments) -> Commands {
    let filter = arguments.required_document("a filter")?;
    let replacement = arguments.required_document("a replacement")?;
    arguments.options(|options| {
        let statement = update_statement(filter, replacement, false, options, UpdateKinds::Replacement)?;
        command(collection, StatementList::Updates, vec![statement], options)
    })
}

/// Parses `update(q, u, {multi, upsert})`, or the form of shells before 2.6 with two booleans. A document without
/// operators replaces the stored one, as in the old shell.
fn old_update(collection: &MethodCollection, arguments: &mut MethodArguments) -> Commands {
    let filter = arguments.required_document("a filter")?;
    let update = arguments.required("an update")?;
    let sent = |multi, options: &mut Options| {
        let takes = if multi { UpdateKinds::Operators } else { UpdateKinds::Either };
        let statement = update_statement(filter, update, multi, options, takes)?;
        command(collection, StatementList::Updates, vec![statement], options)
    };
    match arguments.any() {
        Some(upsert) if upsert.as_bool().is_some() => {
            let multi = arguments.flag()?.unwrap_or(false);
            Options::read_fields("update", vec![TermField::new("upsert", upsert)], |options| sent(multi, options))
        }
        other => {
            if let Some(term) = other {
                arguments.put_back(term);
            }
            arguments.options(|options| sent(options.flag("multi")?.unwrap_or(false), options))
        }
    }
}

/// Parses `save` of the old shell: a document with an `_id` replaces the stored one, or is inserted.
fn save(collection: &MethodCollection, arguments: &mut MethodArguments) -> Commands {
    let document = arguments.required_document("a document")?;
    let TermContent::Document(fields) = &document.content else { return Ok(Vec::new()) };
    let id = fields.iter().find(|field| field.key == "_id").map(|field| field.term.clone());
    let (list, statement) = match id {
        None => (StatementList::Inserts, document),
        Some(id) => {
            let filter = Term::document(vec![TermField::new("_id", id)]);
            let upsert = vec![TermField::new("upsert", Term::boolean(true))];
            let statement = Options::read_fields("save", upsert, |upsert| {
                update_statement(filter, document, false, upsert, UpdateKinds::Replacement)
            })?;
            (StatementList::Updates, statement)
        }
    };
    arguments.options(|options| command(collection, list, vec![statement], options))
}

/// Returns the statement `{q, limit, …}`.
fn delete_statement(filter: Term, limit: i32, options: &mut Options) -> Term {
    let mut fields = vec![TermField::new("q", filter), TermField::new("limit", Term::int32(limit))];
    options.copy(&["collation", "hint"], &mut fields);
    Term::document(fields)
}

fn delete(collection: &MethodCollection, arguments: &mut MethodArguments, limit: i32) -> Commands {
    let filter = arguments.required_document("a filter")?;
    arguments.options(|options| {
        let statement = delete_statement(filter, limit, options);
        command(collection, StatementList::Deletes, vec![statement], options)
    })
}

/// Parses `remove(q, justOne)` or `remove(q, {justOne})`.
fn remove(collection: &MethodCollection, arguments: &mut MethodArguments) -> Commands {
    let filter = arguments.required_document("a filter")?;
    let sent = |just_one: bool, options: &mut Options| {
        let statement = delete_statement(filter, i32::from(just_one), options);
        command(collection, StatementList::Deletes, vec![statement], options)
    };
    match arguments.any() {
        Some(term) if let Some(just_one) = term.as_bool() => {
            Options::read_fields("remove", Vec::new(), |options| sent(just_one, options))
        }
        other => {
            if let Some(term) = other {
                arguments.put_back(term);
            }
            arguments.options(|options| sent(options.flag("justOne")?.unwrap_or(false), options))
        }
    }
}

/// Parses an operation of bulkWrite as a statement.
fn bulk_operation(term: Term) -> Result<(StatementList, Term), ShellError> {
    const KNOWN: &str = "insertOne, updateOne, updateMany, replaceOne, deleteOne or deleteMany";
    let wrong = || ShellError::new(term.span.clone(), format!("a bulkWrite operation must be one of {KNOWN}"));
    let TermContent::Document(fields) = &term.content else { return Err(wrong()) };
    let [TermField { key, term: operation, .. }] = fields.as_slice() else { return Err(wrong()) };
    let TermContent::Document(parts) = &operation.content else { return Err(wrong()) };
    if !KNOWN.split([' ', ',']).any(|known| known == key) {
        return Err(wrong());
    }
    // mongosh also accepts the document itself.
    if key == "insertOne" && !parts.iter().any(|part| part.key == "document") {
        return Ok((StatementList::Inserts, operation.clone()));
    }
    Options::read_fields(key, parts.clone(), |options| {
        let mut required = |part| {
            let missing = || ShellError::new(operation.span.clone(), format!("`{key}` needs `{part}`"));
            options.take(part).ok_or_else(missing)
        };
        if key == "insertOne" {
            return Ok((StatementList::Inserts, required("document")?));
        }
        let filter = required("filter")?;
        let updated = |update, multi, takes, options: &mut Options| {
            Ok((StatementList::Updates, update_statement(filter.clone(), update, multi, options, takes)?))
        };
        match key.as_str() {
            "updateOne" => updated(required("update")?, false, UpdateKinds::Operators, options),
            "updateMany" => updated(required("update")?, true, UpdateKinds::Operators, options),
            "replaceOne" => updated(required("replacement")?, false, UpdateKinds::Replacement, options),
            "deleteOne" => Ok((StatementList::Deletes, delete_statement(filter, 1, options))),
            "deleteMany" => Ok((StatementList::Deletes, delete_statement(filter, 0, options))),
            _ => Err(wrong()),
        }
    })
}

/// Returns the commands of a bulkWrite. Ordered: one command for each run of operations of the same kind. Unordered:
/// one for each kind.
fn bulk_write(collection: &MethodCollection, arguments: &mut MethodArguments) -> Commands {
    let operations = arguments.required_array("an array of operations")?;
    let mut shared = Vec::new();
    let ordered = arguments.options(|options| {
        options.copy(StatementList::Updates.options(), &mut shared);
        Ok(options.flag("ordered")?.unwrap_or(true))
    })?;
    let mut lists: Vec<(StatementList, Vec<Term>)> = Vec::new();
    for operation in operations {
        let (list, statement) = bulk_operation(operation)?;
        let position = match ordered {
            true => lists.len().checked_sub(1).filter(|last| lists.get(*last).is_some_and(|(other, _)| *other == list)),
            false => lists.iter().position(|(other, _)| *other == list),
        };
        match position.and_then(|position| lists.get_mut(position)) {
            Some((_, statements)) => statements.push(statement),
            None => lists.push((list, vec![statement])),
        }
    }
    if lists.is_empty() {
        return Err(ShellError::new(arguments.method_span(), "the list of operations is empty"));
    }
    if !ordered {
        lists.sort_by_key(|(list, _)| *list as u8);
    }
    let one = |(list, statements): (StatementList, Vec<Term>)| {
        let mut fields: Vec<TermField> =
            shared.iter().filter(|field| list.options().contains(&field.key.as_str())).cloned().collect();
        fields.push(TermField::new("ordered", Term::boolean(ordered)));
        Options::read_fields("bulkWrite", fields, |options| write_command(collection, list, statements, options))
    };
    lists.into_iter().map(one).collect()
}
