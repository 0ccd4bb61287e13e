//! Checks whether the server has what rules need: releases before 4.2, standalone servers and servers that are
//! compatible with MongoDB lack some of it, and would reject what docward sends.
//!
//! A hello shows the release and whether there is a replica set. A statement of the needed kind that matches nothing, in
//! docward's own database, shows whether the server accepts a pipeline or an operator: a server may accept the `explain`
//! of what it does not have. Without the privileges for it, the server explains the statement on the rule's collection. A
//! transaction that finds nothing and a change stream that is closed at once show whether it has these. Without the
//! privileges for these too, the release decides.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bson::{Bson, Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::{Client, Database};
use tokio::time::sleep;

use super::MongoService;
use super::error_kind::{is_passing, is_unauthorized};
use super::observed_servers::Capabilities;
use crate::patterns::Requirement;
use crate::rules::{Mode, Rule, RuleId, RuleSet};

/// Pause before the check is repeated if no server answered or the rules changed.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// CommandNotFound, CommandNotSupported, NotImplemented: the server cannot explain the statement, whatever it contains.
const NO_EXPLAIN: [i32; 3] = [59, 115, 238];
/// NamespaceNotFound, InvalidNamespace, CommandNotSupportedOnView, UserWritesBlocked: this collection cannot show it.
const OTHER_COLLECTION: [i32; 4] = [26, 73, 166, 371];
/// docward's own database, and a collection in it that need not exist.
const OWN: (&str, &str) = ("docward", "probes");

/// A rule and what the server lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmetRequirement {
    pub rule: RuleId,
    /// Without the rule's name.
    pub text: String,
    /// What to do.
    pub help: &'static str,
}

/// Returns what the enabled `rules` need and the server lacks.
///
/// # Errors
/// The server cannot be asked, as text.
pub async fn lacking(service: &MongoService, rules: &RuleSet) -> Result<Vec<UnmetRequirement>, String> {
    let enabled = rules.rules().iter().filter(|rule| rule.mode != Mode::Disabled);
    let needed: Vec<(&Rule, Requirement)> =
        enabled.flat_map(|rule| rule.properties.requirements.iter().map(move |needed| (rule, *needed))).collect();
    if needed.is_empty() {
        return Ok(Vec::new());
    }
    let server = service.server();
    // Its own client, which is closed afterwards: a rule that needs no connection of docward's keeps none open.
    let separate = server.separate_client().map_err(|error| error.to_string())?;
    match ask(&separate.client, &needed).await {
        // The driver uses no server that is too old for it, but its monitor has seen the hello.
        Err(error) => match separate.observed.too_old() {
            Some(seen) => Ok(by_hello(seen, &needed)),
            None => Err(separate.observed.describe(&error)),
        },
        Ok(found) => Ok(found),
    }
}

/// Logs what the server lacks, at once and whenever the rules change; never returns.
pub async fn watch(service: &MongoService, rules: &ArcSwap<RuleSet>) {
    let mut checked: Option<Arc<RuleSet>> = None;
    let mut logged = Vec::new();
    loop {
        let current = rules.load_full();
        if checked.as_ref().is_none_or(|checked| !Arc::ptr_eq(checked, &current))
            && let Ok(found) = lacking(service, &current).await
        {
            let found: Vec<String> = found
                .iter()
                .map(|lacking| {
                    let rule = current.rule(lacking.rule);
                    format!("rule '{}' ({}) {}; {}", rule.name.value, rule.pattern.name(), lacking.text, lacking.help)
                })
                .collect();
            for text in found.iter().filter(|text| !logged.contains(*text)) {
                tracing::error!("{text}");
            }
            tracing::debug!(lacking = found.len(), "checked whether the server has what the rules need");
            (logged, checked) = (found, Some(current));
        }
        sleep(RETRY_INTERVAL).await;
    }
}

async fn ask(client: &Client, needed: &[(&Rule, Requirement)]) -> Result<Vec<UnmetRequirement>, Error> {
    let server = Capabilities::from_hello(&client.database("admin").run_command(doc! { "hello": 1 }).await?);
    let mut found = by_hello(server, needed);
    let mut reasons: HashMap<Requirement, Option<String>> = HashMap::new();
    for (rule, needed) in needed.iter().filter(|(_, needed)| server.lacks(*needed).is_none()) {
        if !reasons.contains_key(needed) {
            reasons.insert(*needed, probe_error(client, rule, *needed).await?);
        }
        if let Some(Some(reason)) = reasons.get(needed) {
            let help = "use a server that supports it, or set the rule to `mode: disabled`";
            found.push(UnmetRequirement::new(rule, *needed, reason, help));
        }
    }
    Ok(found)
}

/// What the server lacks as far as its hello shows.
fn by_hello(server: Capabilities, needed: &[(&Rule, Requirement)]) -> Vec<UnmetRequirement> {
    let lacking = |(rule, needed): &(&Rule, Requirement)| {
        let (reason, help) = server.lacks(*needed)?;
        Some(UnmetRequirement::new(rule, *needed, &reason, help))
    };
    needed.iter().filter_map(lacking).collect()
}

impl UnmetRequirement {
    fn new(rule: &Rule, needed: Requirement, reason: &str, help: &'static str) -> Self {
        Self { rule: rule.id, text: text(needed, reason), help }
    }
}

fn text(needed: Requirement, reason: &str) -> String {
    format!("needs {needed}, and {reason}")
}

impl Capabilities {
    /// What the server lacks, and what to do.
    pub(super) fn lacks_any(self, needed: &[Requirement]) -> Option<(String, &'static str)> {
        let lacks = |needed: &Requirement| self.lacks(*needed).map(|(reason, help)| (text(*needed, &reason), help));
        needed.iter().find_map(lacks)
    }

    /// The reason why the server lacks this, and what to do.
    fn lacks(self, needed: Requirement) -> Option<(String, &'static str)> {
        let Self { wire_version, is_set } = self;
        if needed.needs_a_set() && !is_set {
            let help = "start mongod with --replSet, or set the rule to `mode: disabled`";
            return Some(("the upstream is a standalone server".to_owned(), help));
        }
        let help = "upgrade the server, or set the rule to `mode: disabled`";
        (wire_version < needed.since().wire_version)
            .then(|| (format!("the server is older (its maxWireVersion is {wire_version})"), help))
    }
}

/// The server's reply if it does not accept what is needed; `None`: it does, or it cannot be known.
async fn probe_error(client: &Client, rule: &Rule, needed: Requirement) -> Result<Option<String>, Error> {
    let Some(namespace) = rule.namespaces.first() else { return Ok(None) };
    let (database, collection) = namespace.value.example();
    let database = &client.database(&database);
    let probed = match needed {
        // It has answered the hello.
        Requirement::OwnConnection => Ok(()),
        Requirement::Transactions => run_transaction(client, database, &collection).await,
        Requirement::ChangeStreams => open_change_stream(database, &collection, doc! {}).await,
        Requirement::PreImages => {
            open_change_stream(database, &collection, doc! { "fullDocumentBeforeChange": "whenAvailable" }).await
        }
        Requirement::PipelineUpdates => {
            let update = doc! { "q": nothing(), "u": [{ "$set": { "a": set_field() } }] };
            execute(client, database, &collection, |name| doc! { "update": name, "updates": [update.clone()] }).await
        }
        Requirement::Operator("$setField") => project(client, database, &collection, set_field()).await,
        Requirement::Operator(name) => project(client, database, &collection, doc! { name: "$$ROOT" }).await,
        Requirement::ServerTime => project(client, database, &collection, "$$NOW").await,
    };
    match probed {
        Ok(()) => Ok(None),
        Err(error) if is_unauthorized(&error) => Ok(None),
        Err(error) if is_passing(&error) => Err(error),
        Err(error) => Ok(match &*error.kind {
            ErrorKind::Command(error) if OTHER_COLLECTION.contains(&error.code) => None,
            ErrorKind::Command(error) => Some(format!("the server replies: {} (code {})", error.message, error.code)),
            _ => None,
        }),
    }
}

async fn run_transaction(client: &Client, database: &Database, collection: &str) -> Result<(), Error> {
    let mut session = client.start_session().await?;
    session.start_transaction().await?;
    let nothing = doc! { "find": collection, "filter": nothing(), "limit": 1, "singleBatch": true };
    database.run_command(nothing).session(&mut session).await?;
    // A server may ignore what begins a transaction. The driver ignores the reply to its own abort.
    let abort = doc! { "abortTransaction": 1 };
    client.database("admin").run_command(abort).session(&mut session).await.map(drop)
}

async fn open_change_stream(database: &Database, collection: &str, options: Document) -> Result<(), Error> {
    let pipeline = vec![doc! { "$changeStream": options }];
    let command = doc! { "aggregate": collection, "pipeline": pipeline, "cursor": { "batchSize": 0 } };
    // Dropping the cursor closes it on the server.
    database.run_cursor_command(command).await.map(drop)
}

fn set_field() -> Document {
    doc! { "$setField": { "field": "a", "input": "$$ROOT", "value": 1 } }
}

async fn project(client: &Client, database: &Database, collection: &str, value: impl Into<Bson>) -> Result<(), Error> {
    let pipeline = [doc! { "$match": nothing() }, doc! { "$project": { "a": value } }].map(Bson::from).to_vec();
    let command = |name: &str| doc! { "aggregate": name, "pipeline": pipeline.clone(), "cursor": {} };
    execute(client, database, collection, command).await
}

/// Executes a command that matches nothing in docward's own database. If docward's user must not, the server explains
/// it for the rule's collection.
async fn execute(
    client: &Client,
    database: &Database,
    collection: &str,
    command: impl Fn(&str) -> Document,
) -> Result<(), Error> {
    match client.database(OWN.0).run_command(command(OWN.1)).await {
        Err(error) if is_unauthorized(&error) => explain(database, command(collection)).await,
        executed => executed.map(drop),
    }
}

/// A command that the server can only explain if it has what is needed.
async fn explain(database: &Database, command: Document) -> Result<(), Error> {
    match database.run_command(doc! { "explain": command, "verbosity": "queryPlanner" }).await {
        Err(error) if matches!(&*error.kind, ErrorKind::Command(error) if NO_EXPLAIN.contains(&error.code)) => Ok(()),
        explained => explained.map(drop),
    }
}

/// A filter that matches no document: none has an `_id` in an empty list.
fn nothing() -> Document {
    doc! { "_id": { "$in": [] } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_shows_old_and_standalone_servers() {
        let lacks =
            |wire_version, is_set, needed| Capabilities { wire_version, is_set }.lacks(needed).map(|lacks| lacks.0);
        let number = Requirement::Operator("$isNumber");
        assert_eq!(lacks(17, false, number), None);
        assert_eq!(lacks(9, true, number), None);
        let older = Some("the server is older (its maxWireVersion is 8)".to_owned());
        assert_eq!(lacks(8, true, number), older);
        assert_eq!(lacks(8, true, Requirement::ServerTime), None);
        let standalone = Some("the upstream is a standalone server".to_owned());
        assert_eq!(lacks(17, false, Requirement::Transactions), standalone);
        assert_eq!(lacks(17, true, Requirement::ChangeStreams), None);
        assert_eq!(lacks(17, true, Requirement::PreImages), None);
        let older = Some("the server is older (its maxWireVersion is 13)".to_owned());
        assert_eq!(lacks(13, true, Requirement::PreImages), older);
    }
}
