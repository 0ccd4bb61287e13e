//! Validators of collections that hold what rules require of one document, also for clients that bypass docward: `docward
//! validators`.
//!
//! The rules render the clauses ([`RuleSet::validator`]); `options.rs` joins them to what a collection has.

mod options;

use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::Client;
use mongodb::error::Error;

use super::MongoService;
use super::client::ServiceClient;
use super::data::secondary;
use super::listing::{CollectionName, applying, count, databases, first_batch, is_docwards, listing_error};
use super::own_reads;
use crate::command::Namespace;
use crate::config::{Code, Diagnostic, Located, NamespaceGlob};
use crate::rules::{Mode, RuleId, RuleSet, Validator};

pub use options::ValidatorOptions;

/// What to do with the validators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// They hold what the rules require. `enforce`: they reject documents instead of logging them.
    Held { enforce: bool },
    /// docward's part is removed.
    Removed,
}

/// A collection and what becomes of its validator.
#[derive(Debug)]
pub struct ValidatorPlan {
    database: String,
    collection: String,
    pub found: ValidatorOptions,
    /// What it becomes, or why it stays: as half a sentence.
    pub wanted: Result<ValidatorOptions, String>,
    /// The rules that are not in it, each with the reason.
    pub omitted: Vec<(RuleId, String)>,
    /// Stored documents that fail what a rule requires.
    pub failing: Vec<(RuleId, u64)>,
}

impl ValidatorPlan {
    /// `database.collection`
    #[must_use]
    pub fn namespace(&self) -> String {
        format!("{}.{}", self.database, self.collection)
    }

    /// What the options become, if they change.
    #[must_use]
    pub fn change(&self) -> Option<&ValidatorOptions> {
        self.wanted.as_ref().ok().filter(|wanted| !wanted.is_same(&self.found))
    }

    /// The command that makes the change, with its database in `$db`.
    #[must_use]
    pub fn command(&self) -> Option<Document> {
        let mut command = doc! {"collMod": &self.collection};
        command.extend(self.change()?.fields());
        command.insert("$db", &self.database);
        Some(command)
    }

    /// Makes the change.
    ///
    /// # Errors
    /// The server does not make it, as text.
    pub async fn apply(&self, service: &MongoService) -> Result<(), String> {
        let Some(mut command) = self.command() else { return Ok(()) };
        command.remove("$db");
        command.insert("writeConcern", doc! {"w": "majority"});
        let server = service.server();
        let client = server.client().map_err(|error| error.to_string())?;
        let failed = |error: Error| format!("`{}`: {}", self.namespace(), server.describe(&error));
        let infos = infos(&client, &self.database, doc! {"name": &self.collection}).await.map_err(failed)?;
        if !infos.first().map(options_in).unwrap_or_default().is_same(&self.found) {
            return Err(format!("`{}`: its validator has changed meanwhile; run the command again", self.namespace()));
        }
        client.database(&self.database).run_command(command).await.map(drop).map_err(failed)
    }
}

/// Plans the validators of all collections that the rules name, and of those in their databases that have a part of these
/// rules. Those with a part of other rules may belong to another rule set.
///
/// # Errors
/// The server cannot be asked, or does not permit it, as text.
pub async fn plan(service: &MongoService, rules: &RuleSet, goal: Goal) -> Result<Vec<ValidatorPlan>, String> {
    let server = service.server();
    let client = server.client().map_err(|error| error.to_string())?;
    let mut named = BTreeSet::new();
    for rule in rules.rules().iter().filter(|rule| rule.mode != Mode::Disabled) {
        named.extend(applying(&server, rules, rule).await?);
    }
    let present = described(&server, &client, rules).await?;
    let marked = present.iter().filter(|(_, info)| options_in(info).is_of(rules)).map(|(name, _)| name.clone());
    let names: BTreeSet<CollectionName> = match goal {
        Goal::Held { .. } => named.into_iter().chain(marked).collect(),
        Goal::Removed => marked.collect(),
    };
    let mut plans = Vec::new();
    for name in names {
        plans.extend(plan_one((&server, &client), rules, goal, &name, present.get(&name)).await);
    }
    Ok(plans)
}

async fn plan_one(
    (server, client): (&ServiceClient, &Client),
    rules: &RuleSet,
    goal: Goal,
    name: &CollectionName,
    info: Option<&Document>,
) -> Option<ValidatorPlan> {
    let (database, collection) = name.clone();
    let found = info.map(options_in).unwrap_or_default();
    let Goal::Held { enforce } = goal else {
        let wanted = found.check_own(rules).map(|()| found.without_own());
        return Some(ValidatorPlan { database, collection, found, wanted, omitted: Vec::new(), failing: Vec::new() });
    };
    let validator = required(rules, name, enforce);
    let is_idle = validator.clauses.is_empty() && !found.is_of(rules);
    if is_idle && validator.omitted.is_empty() {
        return None;
    }
    let unsuitable = unsuitable(info).filter(|_| !is_idle);
    // Of what a glob matches, only collections are meant.
    let is_named = |namespace: &Located<NamespaceGlob>| namespace.value.exact() == Some((&database, &collection));
    if unsuitable.is_some() && !rules.rules().iter().flat_map(|rule| &rule.namespaces).any(is_named) {
        return None;
    }
    let (mut failing, mut wanted) = (Vec::new(), unsuitable.map_or(Ok(found.clone()), Err));
    if wanted.is_ok() && !is_idle {
        wanted = match count_failing(client, name, &validator).await {
            Err(error) => Err(format!("its documents cannot be counted: {}", server.describe(&error))),
            Ok(counted) => {
                failing = counted;
                joined(rules, &found, &validator, enforce, !failing.is_empty())
            }
        };
    }
    Some(ValidatorPlan { database, collection, found, wanted, omitted: validator.omitted, failing })
}

/// What the rules require of a collection's documents. docward writes its own past the rules.
fn required(rules: &RuleSet, name: &CollectionName, enforce: bool) -> Validator {
    match is_docwards(rules, name) {
        true => Validator::default(),
        false => rules.validator(Namespace { database: &name.0, collection: &name.1 }, enforce),
    }
}

/// The options with docward's part. `fails`: stored documents fail it.
fn joined(
    rules: &RuleSet,
    found: &ValidatorOptions,
    validator: &Validator,
    enforce: bool,
    fails: bool,
) -> Result<ValidatorOptions, String> {
    found.check_own(rules)?;
    let wanted = found.with_own(validator.clauses.iter().map(|(_, clause)| clause.clone()), enforce)?;
    // The server looks at both parts as one: a document that fails one of them could then break the other, or not be
    // changed at all.
    if enforce && fails && wanted.is_joined() {
        return Err(
            "it has a validator of its own, which would not be kept for the stored documents that fail the rules. \
                    Correct them first"
                .to_owned(),
        );
    }
    Ok(wanted)
}

/// Why a collection cannot have a validator of docward's.
fn unsuitable(info: Option<&Document>) -> Option<String> {
    let Some(info) = info else {
        return Some("there is no such collection: create it, and run the command again".to_owned());
    };
    match info.get_str("type").unwrap_or("collection") {
        "collection" => None,
        "view" => Some("it is a view, which stores no documents".to_owned()),
        kind => Some(format!("it is a {kind}, which has no validator")),
    }
}

/// Counts the stored documents that fail what each rule requires, in one pass over the collection.
async fn count_failing(
    client: &Client,
    (database, collection): &CollectionName,
    validator: &Validator,
) -> Result<Vec<(RuleId, u64)>, Error> {
    let mut by_rule: BTreeMap<RuleId, Vec<Bson>> = BTreeMap::new();
    for (rule, clause) in &validator.clauses {
        by_rule.entry(*rule).or_default().push(clause.clone().into());
    }
    if by_rule.is_empty() {
        return Ok(Vec::new());
    }
    let facet = |(rule, clauses): (&RuleId, &Vec<Bson>)| {
        let stages = [doc! {"$match": {"$nor": [{"$and": clauses.clone()}]}}, doc! {"$count": "n"}];
        (format!("r{}", rule.0), Bson::from(stages.to_vec()))
    };
    let facets: Document = by_rule.iter().map(facet).collect();
    let command = doc! {"aggregate": collection, "pipeline": [{"$facet": facets}], "cursor": {}};
    let reply =
        client.database(database).run_command(own_reads::of_current(command)).selection_criteria(secondary()).await?;
    let counts = first_batch(&reply).next().cloned().unwrap_or_default();
    let failing = by_rule.keys().map(|rule| {
        let counted = counts.get_array(format!("r{}", rule.0)).ok().and_then(|counted| counted.first()?.as_document());
        (*rule, counted.map_or(0, |counted| count(counted, "n")))
    });
    Ok(failing.filter(|(_, failing)| *failing > 0).collect())
}

/// Returns warnings for collections whose part of docward's is not what the rules require now.
///
/// # Errors
/// As [`plan`].
pub(super) async fn drifted(service: &MongoService, rules: &RuleSet) -> Result<Vec<Diagnostic>, String> {
    let server = service.server();
    let client = server.client().map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for (name, info) in described(&server, &client, rules).await? {
        let stored = options_in(&info);
        let validator = required(rules, &name, stored.is_enforcing());
        let wanted = joined(rules, &stored, &validator, stored.is_enforcing(), false);
        let is_own = stored.is_of(rules) || stored.is_marked() && !validator.clauses.is_empty();
        if !is_own || wanted.is_ok_and(|wanted| wanted.is_same(&stored)) {
            continue;
        }
        let first = validator.clauses.first().map_or(RuleId(0), |(rule, _)| *rule);
        let message = format!("the validator of `{}.{}` is not what the rules require", name.0, name.1);
        let warning = Diagnostic::warning(Code::DriftedValidator, rules.rule(first).name.span, message);
        found.push(warning.help("`docward validators` shows the difference"));
    }
    Ok(found)
}

/// Returns what listCollections returns for each collection in the databases of the rules.
async fn described(
    server: &ServiceClient,
    client: &Client,
    rules: &RuleSet,
) -> Result<BTreeMap<CollectionName, Document>, String> {
    let globs: Vec<&NamespaceGlob> =
        rules.rules().iter().flat_map(|rule| &rule.namespaces).map(|namespace| &namespace.value).collect();
    let mut present = BTreeMap::new();
    for database in databases(server, client, &globs).await? {
        if !globs.iter().any(|glob| glob.matches_database(database.as_bytes())) {
            continue;
        }
        let infos = infos(client, &database, doc! {}).await.map_err(|error| {
            listing_error(server, &error, &format!("the collections of `{database}`"), Some(&database))
        })?;
        let named = infos.into_iter().filter_map(|info| Some((info.get_str("name").ok()?.to_owned(), info)));
        present.extend(named.map(|(name, info)| ((database.clone(), name), info)));
    }
    Ok(present)
}

async fn infos(client: &Client, database: &str, filter: Document) -> Result<Vec<Document>, Error> {
    let command = RawDocumentBuf::try_from(&doc! {"listCollections": 1, "filter": filter, "cursor": {}})
        .map_err(Error::custom)?;
    let mut cursor = client.database(database).run_raw_cursor_command(command).await?;
    let mut infos = Vec::new();
    while cursor.advance().await? {
        infos.push(Document::try_from(cursor.current()).map_err(Error::custom)?);
    }
    Ok(infos)
}

fn options_in(info: &Document) -> ValidatorOptions {
    info.get_document("options").map(ValidatorOptions::from_options).unwrap_or_default()
}
