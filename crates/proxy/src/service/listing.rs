//! Lists the collections of a deployment that docward's own user may see.
//!
//! Commands with a one-reply result use `run_command`: each of the driver's typed operations adds 100 KB to the
//! binary.

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::error::Error;

use super::client::ServiceClient;
use super::error_kind::is_unauthorized;
use crate::command::own;
use crate::config::{Located, NamespaceGlob};
use crate::patterns::AnyPattern;
use crate::patterns::sequence::{Sequence, Strategy};
use crate::rules::{Mode, Rule, RuleSet};

/// A collection: its database's name and its own.
pub(super) type CollectionName = (String, String);

/// Returns all collections of every database that may match one of `namespaces`, and of other databases those that the
/// user may list.
///
/// # Errors
/// The server cannot be asked, or does not let docward list a database that `namespaces` may match, as text.
pub(super) async fn collections(
    server: &ServiceClient,
    namespaces: &[&NamespaceGlob],
) -> Result<BTreeSet<CollectionName>, String> {
    listed(server, namespaces, doc! {}).await
}

/// The same for collections that match a filter of `listCollections`.
pub(super) async fn listed(
    server: &ServiceClient,
    namespaces: &[&NamespaceGlob],
    filter: Document,
) -> Result<BTreeSet<CollectionName>, String> {
    let client = server.client().map_err(|error| error.to_string())?;
    let mut present = BTreeSet::new();
    for database in databases(server, &client, namespaces).await? {
        match client.database(&database).list_collection_names().filter(filter.clone()).await {
            Ok(names) => present.extend(names.into_iter().map(|name| (database.clone(), name))),
            Err(error) => {
                let is_needed = namespaces.iter().any(|namespace| namespace.matches_database(database.as_bytes()));
                if is_needed || !is_unauthorized(&error) {
                    return Err(listing_error(
                        server,
                        &error,
                        &format!("the collections of `{database}`"),
                        Some(&database),
                    ));
                }
            }
        }
    }
    Ok(present)
}

/// Returns the collections that match `namespace` and that the user may access. `only`: the one database to list.
///
/// # Errors
/// The driver's error.
pub(super) async fn visible(
    client: &Client,
    namespace: &NamespaceGlob,
    only: Option<&str>,
) -> Result<BTreeSet<CollectionName>, Error> {
    let databases = match only.or_else(|| namespace.database().is_literal().then(|| namespace.database().as_str())) {
        Some(database) => vec![database.to_owned()],
        None => {
            let request = doc! { "listDatabases": 1, "nameOnly": true, "authorizedDatabases": true };
            let reply = client.database("admin").run_command(request).await?;
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

/// Returns the rule's exact names, and the existing collections that its globs match, without those to which a more
/// specific rule applies.
///
/// # Errors
/// As [`collections`].
pub(super) async fn applying(
    server: &ServiceClient,
    rules: &RuleSet,
    rule: &Rule,
) -> Result<BTreeSet<CollectionName>, String> {
    let patterns = || rule.namespaces.iter().map(|namespace| &namespace.value);
    let exact = patterns().filter_map(NamespaceGlob::exact);
    let mut found: BTreeSet<_> = exact.map(|(db, collection)| (db.to_owned(), collection.to_owned())).collect();
    let globs: Vec<_> = patterns().filter(|pattern| pattern.exact().is_none()).collect();
    if !globs.is_empty() {
        // A view stores no documents.
        let present = listed(server, &globs, doc! { "type": { "$ne": "view" } }).await?;
        let is_meant = |(database, collection): &CollectionName| {
            globs.iter().any(|glob| glob.matches(database.as_bytes(), collection.as_bytes()))
        };
        found.extend(present.into_iter().filter(|name| is_meant(name) && !is_docwards(rules, name)));
    }
    // A disabled rule applies to no collection, so its own names are used.
    found.retain(|(database, collection)| {
        let applies = rules.rules_for(database, collection).is_some_and(|found| found.ids().contains(&rule.id));
        applies || rule.mode == Mode::Disabled
    });
    Ok(found)
}

/// Whether docward itself writes the collection: its own database, histories and counters.
pub(super) fn is_docwards(rules: &RuleSet, (database, collection): &CollectionName) -> bool {
    let is_written = |rule: &Rule| match &rule.pattern {
        _ if rule.mode == Mode::Disabled => false,
        AnyPattern::History(history) => history.into.database == *database && history.into.name == *collection,
        AnyPattern::Sequence(Sequence { strategy: Strategy::Counter, collection: counters, database: own, .. }) => {
            let is_there = |namespace: &Located<NamespaceGlob>| namespace.value.matches_database(database.as_bytes());
            let is_database =
                own.as_ref().map_or_else(|| rule.namespaces.iter().any(is_there), |own| **own == **database);
            **counters == **collection && is_database
        }
        _ => false,
    };
    database == own::DATABASE || rules.rules().iter().any(is_written)
}

fn names<'r>(documents: impl Iterator<Item = &'r Document>) -> impl Iterator<Item = String> {
    documents.filter_map(|document| document.get_str("name").ok().map(str::to_owned))
}

pub(super) async fn databases(
    server: &ServiceClient,
    client: &Client,
    namespaces: &[&NamespaceGlob],
) -> Result<Vec<String>, String> {
    // With `true` the server silently omits databases that the user may not access.
    let request = doc! { "listDatabases": 1, "nameOnly": true, "authorizedDatabases": false };
    match client.database("admin").run_command(request).await {
        Err(error) if is_unauthorized(&error) => {
            let named = namespaces.iter().map(|namespace| {
                let database = namespace.database();
                database.is_literal().then(|| database.as_str().to_owned())
            });
            let named: Option<BTreeSet<String>> = named.collect();
            let named = named.map(Vec::from_iter);
            named.ok_or_else(|| listing_error(server, &error, "the databases, for a rule with `*` in their name", None))
        }
        Err(error) => Err(listing_error(server, &error, "the databases", None)),
        Ok(reply) => Ok(names(documents(reply.get_array("databases").ok())).collect()),
    }
}

/// The documents in the first batch of a cursor reply.
pub(super) fn first_batch(reply: &Document) -> impl Iterator<Item = &Document> {
    documents(reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).ok())
}

fn documents(values: Option<&Vec<Bson>>) -> impl Iterator<Item = &Document> {
    values.into_iter().flatten().filter_map(Bson::as_document)
}

/// A whole number of any type; `None` for other values.
pub(super) fn whole(value: Option<&Bson>) -> Option<i64> {
    match value? {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        Bson::Double(number) if number.fract() == 0.0 => Some(*number as i64),
        _ => None,
    }
}

/// The count in a field of a reply; 0 if there is none.
pub(super) fn count(reply: &Document, field: &str) -> u64 {
    whole(reply.get(field)).and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
}

/// The error text if `what` cannot be listed.
/// `database`: where the role `read` suffices.
pub(super) fn listing_error(server: &ServiceClient, error: &Error, what: &str, database: Option<&str>) -> String {
    if is_unauthorized(error) {
        let role = database.map_or_else(|| "readAnyDatabase".to_owned(), |database| format!("read on `{database}`"));
        return format!("the server does not let docward list {what}; give --service a user with the role {role}");
    }
    server.describe(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SourceFile;

    #[test]
    fn what_docward_writes_is_known() {
        let text = "version: 1\nrules:\n  - { name: numbers, namespace: shop.y, sequence: { field: n, counter: c } }\n  \
                    - { name: others, namespace: shop.x, sequence: { field: m, counter: d, collection: far.numbers } }\n  \
                    - { name: old, namespace: shop.orders, history: { into: orders_history, keep: 100 } }\n";
        let rules = RuleSet::from_sources(vec![SourceFile { name: "rules.yaml".into(), text: text.into() }]).unwrap();
        for (database, collection, expected) in [
            ("docward", "leases", true),
            ("shop", "counters", true),
            ("far", "counters", false),
            ("far", "numbers", true),
            ("shop", "numbers", false),
            ("shop", "orders_history", true),
            ("shop", "orders", false),
        ] {
            let name = (database.to_owned(), collection.to_owned());
            assert_eq!(is_docwards(&rules, &name), expected, "{name:?}");
        }
    }
}
