//! Methods that neither read nor write documents: `runCommand`, `adminCommand`, rename and drop.

use super::arguments::MethodCall;
use super::chain::{CommandBuilder, FIRST_FIELD, MethodCollection};
use super::term::{Term, TermContent};
use super::{ShellError, reads, writes};

pub(super) fn database_method(database: &str, method: &mut MethodCall) -> Result<CommandBuilder, ShellError> {
    match method.name.as_str() {
        "runCommand" => run_command(database, method),
        "adminCommand" => run_command("admin", method),
        "dropDatabase" => {
            let write_concern = method.arguments.document("the write concern")?;
            let mut command = CommandBuilder::new(database, "dropDatabase", Term::int32(1));
            write_concern.into_iter().for_each(|concern| command.push("writeConcern", concern));
            Ok(command)
        }
        _ => {
            let known = ["runCommand", "adminCommand", "aggregate", "dropDatabase", "getSiblingDB", "getCollection"];
            Err(method.unknown("a database", &known, "write the command itself: db.runCommand({…})"))
        }
    }
}

pub(super) fn collection_method(
    collection: &MethodCollection,
    method: &mut MethodCall,
) -> Result<CommandBuilder, ShellError> {
    match method.name.as_str() {
        "renameCollection" => rename(collection, method),
        "drop" => {
            let mut command = collection.command("drop");
            reads::copy_options(&mut method.arguments, &["comment", "writeConcern"], &mut command)?;
            Ok(command)
        }
        "runCommand" => run_on_collection(collection, method),
        _ => {
            let known: Vec<&str> =
                reads::METHODS.into_iter().chain(writes::METHODS).chain(["renameCollection", "drop"]).collect();
            Err(method.unknown("a collection", &known, "write the command itself: db.runCommand({…})"))
        }
    }
}

/// Parses a command document, or the name of a command without fields. Options are for the driver and are ignored.
fn run_command(database: &str, method: &mut MethodCall) -> Result<CommandBuilder, ShellError> {
    let term = method.arguments.required("a command")?;
    method.arguments.document("options")?;
    if let Some(name) = term.as_str() {
        check_name(name, &term)?;
        return Ok(CommandBuilder::new(database, name, Term::int32(1)));
    }
    let Term { content: TermContent::Document(mut fields), span } = term else {
        return Err(method.arguments.wrong(&term, "a command"));
    };
    // mongosh replaces it by its current database.
    fields.retain(|field| field.key != "$db");
    if fields.is_empty() {
        return Err(ShellError::new(span, "the command is empty").help(FIRST_FIELD));
    }
    Ok(CommandBuilder { database: database.to_owned(), fields })
}

/// Parses `db.orders.runCommand("find", {filter: {…}})`.
fn run_on_collection(collection: &MethodCollection, method: &mut MethodCall) -> Result<CommandBuilder, ShellError> {
    let term = method.arguments.required("a command")?;
    let Some(name) = term.as_str() else {
        method.arguments.put_back(term);
        return run_command(&collection.database, method);
    };
    check_name(name, &term)?;
    let mut command = collection.command(name);
    if let Some(Term { content: TermContent::Document(fields), .. }) =
        method.arguments.document("the command's fields")?
    {
        command.fields.extend(fields.into_iter().filter(|field| field.key != name));
    }
    Ok(command)
}

/// Checks the name of a command, which becomes the name of a field.
fn check_name(name: &str, term: &Term) -> Result<(), ShellError> {
    if name.contains('\0') {
        return Err(ShellError::new(term.span.clone(), "the name of a command cannot contain NUL"));
    }
    Ok(())
}

/// Parses a rename. The new name is in the same database, and the command is sent to `admin`.
fn rename(collection: &MethodCollection, method: &mut MethodCall) -> Result<CommandBuilder, ShellError> {
    let to = method.arguments.required_text("the new name")?;
    let drop_target = method.arguments.flag()?.unwrap_or(false);
    let database = &collection.database;
    let from = Term::string(&format!("{database}.{}", collection.name));
    let mut command = CommandBuilder::new("admin", "renameCollection", from);
    command.push("to", Term::string(&format!("{database}.{to}")));
    command.push("dropTarget", Term::boolean(drop_target));
    Ok(command)
}
