//! The four methods that send findAndModify. Each uses other names for its parts.

use super::ShellError;
use super::arguments::{MethodArguments, Options};
use super::chain::MethodCollection;
use super::term::{Term, TermContent};
use super::writes::{Commands, UpdateKinds, check_update};

/// The parts of a findAndModify that methods name differently.
#[derive(Debug, Default)]
struct FindAndModify {
    query: Option<Term>,
    update: Option<Term>,
    remove: bool,
    new: bool,
    fields: Option<Term>,
}

impl FindAndModify {
    fn command(self, collection: &MethodCollection, options: &mut Options) -> Commands {
        let mut command = collection.command("findAndModify");
        command.push("query", self.query.unwrap_or_else(|| Term::document(Vec::new())));
        command.push("remove", Term::boolean(self.remove));
        command.push("new", Term::boolean(self.new));
        let upsert = if self.remove { None } else { options.flag("upsert")? };
        command.push("upsert", Term::boolean(upsert.unwrap_or(false)));
        options.copy(&["sort"], &mut command.fields);
        if let Some(fields) = self.fields {
            command.push("fields", fields);
        }
        options.copy(&["maxTimeMS", "writeConcern", "let", "comment", "collation", "hint"], &mut command.fields);
        if let Some(update) = self.update {
            command.push("update", update);
            options.copy(&["bypassDocumentValidation", "arrayFilters"], &mut command.fields);
        }
        Ok(vec![command])
    }
}

pub(super) fn write(collection: &MethodCollection, arguments: &mut MethodArguments, method: &str) -> Commands {
    let query = arguments.required_document("a filter")?;
    let update = arguments.required("an update")?;
    check_update(
        &update,
        if method == "findOneAndReplace" { UpdateKinds::Replacement } else { UpdateKinds::Operators },
    )?;
    arguments.options(|options| {
        let new = returns_new(options)?;
        let fields = options.take("projection");
        let parts = FindAndModify { query: Some(query), update: Some(update), new, fields, ..FindAndModify::default() };
        parts.command(collection, options)
    })
}

/// Returns whether the reply contains the document after the update. The option has several names.
fn returns_new(options: &mut Options) -> Result<bool, ShellError> {
    if let Some(term) = options.take("returnDocument") {
        return match term.as_str() {
            Some("after") => Ok(true),
            Some("before") => Ok(false),
            _ => Err(ShellError::new(term.span, "`returnDocument` must be \"before\" or \"after\"")),
        };
    }
    let new = [options.flag("returnNewDocument")?, options.flag("new")?];
    let original = options.flag("returnOriginal")?;
    Ok(new.into_iter().flatten().next().or(original.map(|original| !original)).unwrap_or(false))
}

pub(super) fn delete(collection: &MethodCollection, arguments: &mut MethodArguments) -> Commands {
    let query = arguments.required_document("a filter")?;
    arguments.options(|options| {
        let fields = options.take("projection");
        let parts = FindAndModify { query: Some(query), remove: true, fields, ..FindAndModify::default() };
        parts.command(collection, options)
    })
}

pub(super) fn whole(collection: &MethodCollection, arguments: &mut MethodArguments) -> Commands {
    let term = arguments.required_document("a document with query and update")?;
    let span = term.span.clone();
    let TermContent::Document(fields) = term.content else { return Ok(Vec::new()) };
    Options::read_fields("findAndModify", fields, |options| {
        let remove = options.flag("remove")?.unwrap_or(false);
        let update = options.take("update");
        if remove == update.is_some() {
            return Err(ShellError::new(span, "findAndModify needs either `update` or `remove: true`"));
        }
        if let Some(update) = &update {
            check_update(update, UpdateKinds::Either)?;
        }
        let query = options.take("query");
        let new = options.flag("new")?.unwrap_or(false);
        let fields = options.take("fields").or(options.take("projection"));
        FindAndModify { query, update, remove, new, fields }.command(collection, options)
    })
}
