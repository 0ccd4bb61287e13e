//! Checks whether a deployment has the collections that rules name and the indexes they rely on.
//!
//! It serves `docward check --upstream`, only reads, and reports warnings with positions in the rule files. Each
//! pattern defines the indexes it needs (`needed_indexes`).

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::error::{Error, ErrorKind};

use super::client::ServiceClient;
use super::history::prepare::{self, PreImages, pre_images};
use super::listing::{CollectionName, collections, first_batch, listed, listing_error};
use super::own_reads;
use super::pattern_work::PatternWork;
use super::requirements::lacking;
use super::validators::drifted;
use super::{MongoService, access};
use crate::command::{CommandClass, Namespace, StatementKind};
use crate::config::{Code, Diagnostic, Located, NamespaceGlob};
use crate::patterns::history::History;
use crate::patterns::{Collection, ExpectedVersion, IndexPurpose, NeededIndex, Privilege};
use crate::rules::Mode;
use crate::rules::{Rule, RuleId, RuleSet};

/// NamespaceNotFound, CommandNotSupportedOnView: these have no indexes and need none.
const WITHOUT_INDEXES: [i32; 2] = [26, 166];

/// Returns warnings for collections and indexes that the enabled `rules` need and the deployment lacks.
///
/// # Errors
/// The server cannot be asked, or does not permit it, as text.
pub async fn inspect(service: &MongoService, rules: &RuleSet) -> Result<Vec<Diagnostic>, String> {
    let server = service.server();
    let client = server.client().map_err(|error| error.to_string())?;
    let enabled = || rules.rules().iter().filter(|rule| rule.mode != Mode::Disabled);
    let needed: Vec<(&Rule, &NeededIndex)> =
        enabled().flat_map(|rule| rule.properties.needed_indexes.iter().map(move |index| (rule, index))).collect();
    let named = enabled().flat_map(|rule| &rule.namespaces).map(|namespace| &namespace.value);
    let named: Vec<_> = named.chain(needed.iter().filter_map(|(_, index)| index.collection.as_ref())).collect();
    let present = collections(&server, &named).await?;
    let lacking = lacking(service, rules).await?;
    let without: Vec<RuleId> = lacking.iter().map(|lacking| lacking.rule).collect();
    let lacking = lacking.into_iter().map(|lacking| {
        let name = &rules.rule(lacking.rule).name;
        let message = format!("`{}` {}", name.value, lacking.text);
        Diagnostic::warning(Code::LackingServer, name.span, message).help(lacking.help)
    });
    let namespaces = enabled().flat_map(|rule| &rule.namespaces);
    let absent = namespaces.filter_map(|namespace| no_collection(namespace, &present));
    let views = listed(&server, &named, doc! { "type": "view" }).await?;
    let on_views = enabled().filter_map(|rule| writes_to_view(rule, &views));
    let mut found: Vec<Diagnostic> = lacking.chain(absent).chain(on_views).collect();
    for (rule, index) in &needed {
        found.extend(missing(&server, rules, rule, index, &present).await?);
    }
    for rule in enabled() {
        if let Some(expected) = &rule.properties.expected_version {
            found.extend(other_versions(&server, rule, expected, &present).await?);
        }
    }
    for rule in enabled().filter(|rule| !without.contains(&rule.id)) {
        if let Some(PatternWork::History(history)) = PatternWork::for_pattern(&rule.pattern) {
            found.extend(no_history(&client, rule, history).await.map_err(|error| server.describe(&error))?);
        }
    }
    found.extend(drifted(service, rules).await?);
    Ok(found)
}

/// The members that hold data, as the set's configuration names them; empty without a replica set.
///
/// # Errors
/// The server cannot be asked, as text.
pub async fn members(service: &MongoService) -> Result<Vec<String>, String> {
    let server = service.server();
    let client = server.client().map_err(|error| error.to_string())?;
    let hello =
        client.database("admin").run_command(doc! {"hello": 1}).await.map_err(|error| server.describe(&error))?;
    let names = |key| hello.get_array(key).into_iter().flatten().filter_map(Bson::as_str).map(str::to_owned);
    Ok(names("hosts").chain(names("passives")).collect())
}

/// Returns a warning if a deployment that has what the pattern needs cannot keep the rule's history.
async fn no_history(client: &Client, rule: &Rule, history: &History) -> Result<Option<Diagnostic>, Error> {
    let name = &rule.name.value;
    let warning = |why: &str, help: &str| {
        let message = format!("`{name}`: the history of {} cannot be kept: {why}", history.of);
        Some(Diagnostic::warning(Code::NoHistory, rule.name.span, message).help(help))
    };
    let (action, why): (&[&str], _) = match pre_images(client, &history.of).await? {
        PreImages::On => return Ok(None),
        PreImages::Off => (&["collMod"], "pre-images are off, and docward's own user may not switch them on"),
        PreImages::Missing => (&["createCollection"], "docward's own user may not create it with pre-images"),
        PreImages::Unsupported => return Ok(warning("it is a view or a time series", "name another collection")),
    };
    let Collection { database, name: collection, .. } = &history.of;
    let missing = access::missing(client, Privilege::new(database, collection, action)).await?;
    let help = format!("grant {} on {}, or run {}", action.join(", "), history.of, prepare::command(&history.of));
    Ok(if missing.is_empty() { None } else { warning(why, &help) })
}

/// Returns a warning if the rule evaluates only writes, and one of its namespaces is a view.
fn writes_to_view(rule: &Rule, views: &BTreeSet<CollectionName>) -> Option<Diagnostic> {
    let is_idle = |namespace: &&Located<NamespaceGlob>| {
        let Some((database, collection)) = namespace.exact() else { return false };
        let name = Namespace { database, collection };
        let reads = |class: &CommandClass| class.reads() && rule.pattern.evaluates_command(*class, None, name);
        views.contains(&(database.to_owned(), collection.to_owned()))
            && rule.pattern.analyses_writes(&StatementKind::ALL, name)
            && !CommandClass::REACHING.iter().any(reads)
    };
    let namespace = rule.namespaces.iter().find(is_idle)?;
    let message =
        format!("`{}` has no effect on the view `{}`: no write changes a view", rule.name.value, namespace.value);
    let warning = Diagnostic::warning(Code::NeverActs, namespace.span, message);
    Some(warning.help("name the collection that the view is on"))
}

fn no_collection(namespace: &Located<NamespaceGlob>, present: &BTreeSet<CollectionName>) -> Option<Diagnostic> {
    if matching(&namespace.value, present).next().is_some() {
        return None;
    }
    let message = match namespace.exact() {
        Some(_) => format!("the deployment has no collection `{}`", namespace.value),
        None => format!("`{}` matches no collection of the deployment", namespace.value),
    };
    let warning = Diagnostic::warning(Code::NoCollection, namespace.span, message);
    let names: Vec<String> = present.iter().map(|(database, collection)| format!("{database}.{collection}")).collect();
    let warning = warning.did_you_mean(&namespace.value.to_string(), names.iter().map(String::as_str));
    Some(warning.help("if it is not created yet, nothing is wrong: the rule applies from its first document on"))
}

fn matching<'p>(
    pattern: &'p NamespaceGlob,
    present: &'p BTreeSet<CollectionName>,
) -> impl Iterator<Item = &'p CollectionName> {
    present.iter().filter(|(database, collection)| pattern.matches(database.as_bytes(), collection.as_bytes()))
}

/// Returns one warning for each namespace of the rule with collections that lack the needed index.
async fn missing(
    server: &ServiceClient,
    rules: &RuleSet,
    rule: &Rule,
    needed: &NeededIndex,
    present: &BTreeSet<CollectionName>,
) -> Result<Vec<Diagnostic>, String> {
    let client = server.client().map_err(|error| error.to_string())?;
    let targets = match &needed.collection {
        Some(collection) => vec![(collection, rule.name.span)],
        None => rule.namespaces.iter().map(|namespace| (&namespace.value, namespace.span)).collect(),
    };
    let mut found = Vec::new();
    for (pattern, span) in targets {
        let mut lacking = Vec::new();
        for name in matching(pattern, present) {
            // A more specific rule applies there and needs its own index.
            if !rules.rules_for(&name.0, &name.1).is_some_and(|found| found.ids().contains(&rule.id)) {
                continue;
            }
            let Some(indexes) = indexes(server, &client, name).await? else { continue };
            match needed.purpose {
                IndexPurpose::NotUnique => lacking
                    .extend(indexes.iter().find(|index| forbids(index, needed)).map(|index| (name, index_name(index)))),
                _ if indexes.iter().any(|index| serves(index, needed)) => {}
                _ => lacking.push((name, String::new())),
            }
        }
        if let [(first, index), others @ ..] = lacking.as_slice() {
            let (code, warning) = describe(rule, needed, first, index, others.len());
            found.push(Diagnostic::warning(code, span, warning).help(command(needed, first, index)));
        }
    }
    Ok(found)
}

/// The versions that one warning lists.
const MOST_VERSIONS: i32 = 20;

/// Returns one warning for each collection with documents of other versions, with the number of each.
async fn other_versions(
    server: &ServiceClient,
    rule: &Rule,
    expected: &ExpectedVersion,
    present: &BTreeSet<CollectionName>,
) -> Result<Vec<Diagnostic>, String> {
    let client = server.client().map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for namespace in &rule.namespaces {
        for (database, collection) in matching(&namespace.value, present) {
            let reply = client.database(database).run_command(version_counts(collection, &expected.field)).await;
            let reply = reply
                .map_err(|error| format!("the documents of `{database}.{collection}`: {}", server.describe(&error)))?;
            let counts: Vec<(Bson, i64)> = first_batch(&reply).filter_map(version_count).collect();
            let is_expected = |value: &Bson| match value {
                Bson::Int32(version) => i64::from(*version) == expected.version,
                Bson::Int64(version) => *version == expected.version,
                Bson::Double(version) => *version == expected.version as f64,
                _ => false,
            };
            if counts.iter().all(|(value, _)| is_expected(value)) {
                continue;
            }
            let listed: Vec<String> = counts.iter().map(|(value, count)| format!("{count} with {value}")).collect();
            let message = format!(
                "`{}`: {database}.{collection} has documents of other versions than {}; by `{}`: {}",
                rule.name.value,
                expected.version,
                expected.field,
                listed.join(", ")
            );
            found.push(Diagnostic::warning(Code::OtherVersions, namespace.span, message));
        }
    }
    Ok(found)
}

/// Returns the command that counts the documents by version, newest first.
fn version_counts(collection: &str, field: &str) -> Document {
    let version = doc! { "$ifNull": [format!("${field}"), "no version"] };
    let pipeline = [
        doc! { "$group": { "_id": version, "count": { "$sum": 1_i64 } } },
        doc! { "$sort": { "_id": -1 } },
        doc! { "$limit": MOST_VERSIONS },
    ];
    own_reads::of_current(doc! { "aggregate": collection, "pipeline": pipeline.to_vec(), "cursor": {} })
}

fn version_count(counted: &Document) -> Option<(Bson, i64)> {
    Some((counted.get("_id")?.clone(), counted.get_i64("count").ok()?))
}

/// A collection's indexes; `None` if it has none and needs none.
async fn indexes(
    server: &ServiceClient,
    client: &Client,
    (database, collection): &CollectionName,
) -> Result<Option<Vec<Document>>, String> {
    let failed = |error: &Error| {
        listing_error(server, error, &format!("the indexes of `{database}.{collection}`"), Some(database))
    };
    // A collection has at most 64 indexes.
    let request = doc! { "listIndexes": collection, "cursor": { "batchSize": 100 } };
    match client.database(database).run_command(request).await {
        Ok(reply) => Ok(Some(first_batch(&reply).cloned().collect())),
        Err(error) => match &*error.kind {
            ErrorKind::Command(refused) if WITHOUT_INDEXES.contains(&refused.code) => Ok(None),
            _ => Err(failed(&error)),
        },
    }
}

fn index_name(index: &Document) -> String {
    index.get_str("name").unwrap_or_default().to_owned()
}

/// Whether a unique index forbids documents that the pattern needs. For a partial index docward cannot tell which
/// documents it covers.
fn forbids(index: &Document, needed: &NeededIndex) -> bool {
    let Ok(keys) = index.get_document("key") else { return false };
    index.get_bool("unique").unwrap_or(false)
        && !index.contains_key("partialFilterExpression")
        && !keys.contains_key("_id")
        && !keys.contains_key(&needed.field)
}

/// Whether `index`, as in listIndexes, serves the need.
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
        IndexPurpose::NotUnique => !forbids(index, needed),
    }
}

fn describe(rule: &Rule, needed: &NeededIndex, first: &CollectionName, index: &str, others: usize) -> (Code, String) {
    let (rule, field, without) = (&rule.name.value, &needed.field, needed.without);
    let further = if others == 0 { String::new() } else { format!(", as {others} more collections,") };
    let (code, kind) = match needed.purpose {
        IndexPurpose::NotUnique => {
            let text =
                format!("`{rule}`: {}.{}{} has the unique index `{index}`: {without}", first.0, first.1, further);
            return (Code::UnwantedUniqueIndex, text);
        }
        IndexPurpose::Unique => (Code::MissingUniqueIndex, "a unique index"),
        IndexPurpose::Range | IndexPurpose::Equality => (Code::MissingIndex, "an index"),
    };
    (code, format!("`{rule}` needs {kind} on `{field}`, and {}.{}{further} has none: {without}", first.0, first.1))
}

/// The mongosh command that creates or replaces the index.
fn command(needed: &NeededIndex, (database, collection): &CollectionName, index: &str) -> String {
    let collection = format!("db.getSiblingDB({database:?}).getCollection({collection:?})");
    let field = &needed.field;
    match needed.purpose {
        IndexPurpose::NotUnique => format!("{collection}.dropIndex({index:?}), and create it without `unique`"),
        IndexPurpose::Unique => format!("{collection}.createIndex({{{field:?}: 1}}, {{unique: true}})"),
        IndexPurpose::Range | IndexPurpose::Equality => format!("{collection}.createIndex({{{field:?}: 1}})"),
    }
}
