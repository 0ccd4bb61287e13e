//! Whether a deployment has what rules speak of: the collections they name and the indexes they rely on.
//!
//! For `docward check --upstream`: it only looks, and what it finds are warnings with their places. Which indexes
//! a pattern needs the pattern says (`needed_indexes`).

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::error::{Error, ErrorKind};

use super::MongoService;
use super::listing::{Name, collections, first_batch, refused};
use crate::patterns::{IndexPurpose, NeededIndex, Rule, RuleSet};
use crate::rules::{Code, Diagnostic, Located, Mode, NamespacePattern};
use crate::suggest;

/// NamespaceNotFound, CommandNotSupportedOnView: what has no indexes needs none.
const WITHOUT_INDEXES: [i32; 2] = [26, 166];

/// What of `rules` the deployment does not answer to, disabled rules apart.
///
/// # Errors
/// Text for people: the server cannot be asked, or refuses to say.
pub async fn inspect(service: &MongoService, rules: &RuleSet) -> Result<Vec<Diagnostic>, String> {
    let server = service.server();
    let client = server.client().map_err(|error| error.to_string())?;
    let enabled = || rules.rules().iter().filter(|rule| rule.mode != Mode::Disabled);
    let needed: Vec<(&Rule, NeededIndex)> =
        enabled().flat_map(|rule| rule.pattern.needed_indexes().into_iter().map(move |index| (rule, index))).collect();
    let named = enabled().flat_map(|rule| &rule.namespaces).map(|namespace| &namespace.value);
    let named: Vec<_> = named.chain(needed.iter().filter_map(|(_, index)| index.collection.as_ref())).collect();
    let present = collections(&client, &named).await?;
    let mut found: Vec<Diagnostic> = enabled()
        .flat_map(|rule| &rule.namespaces)
        .filter_map(|namespace| no_collection(namespace, &present))
        .collect();
    for (rule, index) in &needed {
        found.extend(missing(&client, rules, rule, index, &present).await?);
    }
    Ok(found)
}

fn no_collection(namespace: &Located<NamespacePattern>, present: &BTreeSet<Name>) -> Option<Diagnostic> {
    if matching(&namespace.value, present).next().is_some() {
        return None;
    }
    let message = match namespace.exact() {
        Some(_) => format!("the deployment has no collection `{}`", namespace.value),
        None => format!("`{}` matches no collection of the deployment", namespace.value),
    };
    let mut warning = Diagnostic::warning(Code::NoCollection, namespace.span, message);
    let written = namespace.value.to_string();
    let names: Vec<String> = present.iter().map(|(database, collection)| format!("{database}.{collection}")).collect();
    if let Some(near) = suggest::nearest(&written, names.iter().map(String::as_str)) {
        warning = warning.note(format!("did you mean `{near}`?"));
    }
    Some(warning.help("if it is yet to be created, nothing is wrong: it is guarded from its first document on"))
}

fn matching<'p>(pattern: &'p NamespacePattern, present: &'p BTreeSet<Name>) -> impl Iterator<Item = &'p Name> {
    present.iter().filter(|(database, collection)| pattern.matches(database.as_bytes(), collection.as_bytes()))
}

/// One warning for each of the rule's namespaces with collections that lack the index.
async fn missing(
    client: &Client,
    rules: &RuleSet,
    rule: &Rule,
    needed: &NeededIndex,
    present: &BTreeSet<Name>,
) -> Result<Vec<Diagnostic>, String> {
    let places = match &needed.collection {
        Some(collection) => vec![(collection, rule.name.span)],
        None => rule.namespaces.iter().map(|namespace| (&namespace.value, namespace.span)).collect(),
    };
    let mut found = Vec::new();
    for (pattern, span) in places {
        let mut lacking = Vec::new();
        for name in matching(pattern, present) {
            // Where a more specific rule speaks, the index is that one's to ask for.
            let speaks = rules.rules_for(&name.0, &name.1).is_some_and(|found| found.ids().contains(&rule.id));
            if speaks && !has_index(client, name, needed).await? {
                lacking.push(name);
            }
        }
        if let [first, others @ ..] = lacking.as_slice() {
            let (code, warning) = describe(rule, needed, first, others.len());
            found.push(Diagnostic::warning(code, span, warning).help(command(needed, first)));
        }
    }
    Ok(found)
}

async fn has_index(client: &Client, (database, collection): &Name, needed: &NeededIndex) -> Result<bool, String> {
    let refused = |error: &Error| refused(error, &format!("the indexes of `{database}.{collection}`"));
    // A collection has 64 indexes at the most.
    let question = doc! { "listIndexes": collection, "cursor": { "batchSize": 100 } };
    match client.database(database).run_command(question).await {
        Ok(reply) => Ok(first_batch(&reply).any(|index| serves(index, needed))),
        Err(error) => match &*error.kind {
            ErrorKind::Command(refused) if WITHOUT_INDEXES.contains(&refused.code) => Ok(true),
            _ => Err(refused(&error)),
        },
    }
}

/// `index` is one as listIndexes shows it.
fn serves(index: &Document, needed: &NeededIndex) -> bool {
    let is_set = |option| index.get_bool(option).unwrap_or(false);
    let is_ordered = |direction: &Bson| matches!(direction, Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_));
    let Ok(keys) = index.get_document("key") else { return false };
    let first = keys.iter().next().filter(|(field, _)| **field == needed.field).map(|(_, kind)| kind);
    let is_seen = !is_set("hidden");
    match needed.purpose {
        // The server does not list `unique` for the index on _id.
        IndexPurpose::Unique => keys.contains_key(&needed.field) && (is_set("unique") || needed.field == "_id"),
        IndexPurpose::Range => is_seen && first.is_some_and(is_ordered),
        IndexPurpose::Equality => {
            is_seen && first.is_some_and(|kind| is_ordered(kind) || kind.as_str() == Some("hashed"))
        }
    }
}

fn describe(rule: &Rule, needed: &NeededIndex, first: &Name, others: usize) -> (Code, String) {
    let (code, kind) = match needed.purpose {
        IndexPurpose::Unique => (Code::MissingUniqueIndex, "a unique index"),
        IndexPurpose::Range | IndexPurpose::Equality => (Code::MissingIndex, "an index"),
    };
    let further = if others == 0 { String::new() } else { format!(", as {others} more collections,") };
    let text = format!(
        "`{}` needs {kind} on `{}`, and {}.{}{further} has none: {}",
        rule.name.value, needed.field, first.0, first.1, needed.without
    );
    (code, text)
}

/// What to type in mongosh.
fn command(needed: &NeededIndex, (database, collection): &Name) -> String {
    let unique = if needed.purpose == IndexPurpose::Unique { ", {unique: true}" } else { "" };
    let field = &needed.field;
    format!("db.getSiblingDB({database:?}).getCollection({collection:?}).createIndex({{{field:?}: 1}}{unique})")
}
