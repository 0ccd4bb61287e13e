//! Which collections a deployment has, as far as docward's own user may see them.
//!
//! What has an answer of one reply is asked by `run_command`: each of the driver's own operations is compiled anew with
//! all that carries it out, and takes 100 KB of the binary.

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::error::Error;

use super::mongo::is_unauthorized;
use crate::rules::NamespacePattern;

/// A collection's names: the database's, its own.
pub(super) type Name = (String, String);

/// All collections of every database that one of `namespaces` may be in. Of other databases those that the user may
/// list.
///
/// # Errors
/// Text for people: the server cannot be asked, or does not let docward list what `namespaces` may be about.
pub(super) async fn collections(client: &Client, namespaces: &[&NamespacePattern]) -> Result<BTreeSet<Name>, String> {
    let mut present = BTreeSet::new();
    for database in databases(client, namespaces).await? {
        match client.database(&database).list_collection_names().await {
            Ok(names) => present.extend(names.into_iter().map(|name| (database.clone(), name))),
            Err(error) => {
                let is_needed = namespaces.iter().any(|namespace| namespace.matches_database(database.as_bytes()));
                if is_needed || !is_unauthorized(&error) {
                    return Err(refused(&error, &format!("the collections of `{database}`")));
                }
            }
        }
    }
    Ok(present)
}

/// The collections that `namespace` is about and that the user may do something with. `only`: the one database that
/// matters.
///
/// # Errors
/// The driver's.
pub(super) async fn visible(
    client: &Client,
    namespace: &NamespacePattern,
    only: Option<&str>,
) -> Result<BTreeSet<Name>, Error> {
    let databases = match only.or_else(|| namespace.database().is_literal().then(|| namespace.database().as_str())) {
        Some(database) => vec![database.to_owned()],
        None => {
            let question = doc! { "listDatabases": 1, "nameOnly": true, "authorizedDatabases": true };
            let reply = client.database("admin").run_command(question).await?;
            names(documents(reply.get_array("databases").ok())).collect()
        }
    };
    let mut found = BTreeSet::new();
    for database in databases.into_iter().filter(|database| namespace.matches_database(database.as_bytes())) {
        let listed = client.database(&database).list_collection_names().authorized_collections(true).await?;
        found.extend(listed.into_iter().map(|collection| (database.clone(), collection)));
    }
    Ok(found)
}

fn names<'r>(documents: impl Iterator<Item = &'r Document>) -> impl Iterator<Item = String> {
    documents.filter_map(|document| document.get_str("name").ok().map(str::to_owned))
}

async fn databases(client: &Client, namespaces: &[&NamespacePattern]) -> Result<Vec<String>, String> {
    // Otherwise the server leaves out, silently, those in which the user may do nothing.
    let question = doc! { "listDatabases": 1, "nameOnly": true, "authorizedDatabases": false };
    match client.database("admin").run_command(question).await {
        Err(error) if is_unauthorized(&error) => {
            let named = namespaces.iter().map(|namespace| {
                let database = namespace.database();
                database.is_literal().then(|| database.as_str().to_owned())
            });
            let named: Option<BTreeSet<String>> = named.collect();
            named.map(Vec::from_iter).ok_or_else(|| refused(&error, "the databases, for a rule with `*` in theirs"))
        }
        Err(error) => Err(refused(&error, "the databases")),
        Ok(reply) => Ok(names(documents(reply.get_array("databases").ok())).collect()),
    }
}

/// What a command answers that answers by a cursor, as far as it is in its reply.
pub(super) fn first_batch(reply: &Document) -> impl Iterator<Item = &Document> {
    documents(reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).ok())
}

fn documents(values: Option<&Vec<Bson>>) -> impl Iterator<Item = &Document> {
    values.into_iter().flatten().filter_map(Bson::as_document)
}

/// Why `what` could not be listed.
pub(super) fn refused(error: &Error, what: &str) -> String {
    if is_unauthorized(error) {
        return format!(
            "the server does not let docward list {what}; give --service a user with the role readAnyDatabase"
        );
    }
    error.kind.to_string()
}
