//! Whether docward's own user may do what the rules need it for: asked at start, so that a rule does not fail
//! at its first insert instead.
//!
//! [`needs`] is the list that the documentation shows. The server is asked by connectionStatus, which says what
//! the logged-in user may do; without a login a read that needs none of the user's roles tells whether the
//! server wants one.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::error::{Error, ErrorKind};
use tokio::time::{sleep, timeout};

use super::MongoService;
use super::mongo::{is_passing, is_unauthorized};
use crate::patterns::sequence::{Sequence, Start, Strategy};
use crate::patterns::{Pattern, Rule, RuleSet};
use crate::rules::Mode;

/// How long the question may take at start.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How soon a server is asked again that did not answer, and rules that changed are looked at.
const AGAIN: Duration = Duration::from_secs(10);

/// What became of the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    Granted,
    /// The login fails or privileges are missing; trying again does not help.
    Refused(String),
    /// Nobody answered.
    Unknown(String),
}

/// Something a rule has docward do by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Need<'r> {
    rule: &'r str,
    database: String,
    /// Empty: any collection of the database.
    collection: String,
    actions: &'static [&'static str],
}

/// Asks the server whether all that `rules` need is granted.
pub async fn check(service: &MongoService, rules: &RuleSet) -> Access {
    let needs: Vec<Need<'_>> = rules.rules().iter().filter(|rule| rule.mode == Mode::Enforce).flat_map(needs).collect();
    let Some(first) = needs.first() else { return Access::Granted };
    let asked = async {
        let server = service.server();
        let client = &server.client().map_err(|error| Access::Refused(error.to_string()))?;
        ask(client, &needs).await.map_err(|error| sorted(&error, first))
    };
    match timeout(TIMEOUT, asked).await {
        Ok(Ok(access) | Err(access)) => access,
        Err(_) => Access::Unknown(format!("no server answered docward's own connection within {TIMEOUT:?}")),
    }
}

/// Asks again until it is known, and whenever the rules change; the log gets what is found. Never ends.
pub async fn watch(service: &MongoService, rules: &ArcSwap<RuleSet>) {
    let mut granted: Option<Arc<RuleSet>> = None;
    let mut told = String::new();
    loop {
        sleep(AGAIN).await;
        let current = rules.load_full();
        if granted.as_ref().is_some_and(|granted| Arc::ptr_eq(granted, &current)) {
            continue;
        }
        match check(service, &current).await {
            Access::Granted => {
                if !std::mem::take(&mut told).is_empty() {
                    tracing::info!("docward's own user may do now what the rules need");
                }
                granted = Some(current);
            }
            Access::Refused(reason) if reason != told => {
                tracing::error!("{reason}");
                told = reason;
            }
            Access::Refused(_) | Access::Unknown(_) => {}
        }
    }
}

async fn ask(client: &Client, needs: &[Need<'_>]) -> Result<Access, Error> {
    let status = client.database("admin").run_command(doc! {"connectionStatus": 1, "showPrivileges": true}).await?;
    let info = status.get_document("authInfo").cloned().unwrap_or_default();
    let list = |key| info.get_array(key).map(Vec::as_slice).unwrap_or_default();
    if list("authenticatedUsers").is_empty() {
        // RejectedBy by a server that wants a login, and by no other.
        if let Some(need) = needs.first() {
            let probe = doc! {"find": &need.collection, "limit": 1, "projection": {"_id": 1}};
            client.database(&need.database).run_command(probe).await?;
        }
        return Ok(Access::Granted);
    }
    let privileges: Vec<&Document> = list("authenticatedUserPrivileges").iter().filter_map(Bson::as_document).collect();
    let missing: Vec<String> = needs.iter().filter_map(|need| need.missing(&privileges)).collect();
    if missing.is_empty() {
        return Ok(Access::Granted);
    }
    Ok(Access::Refused(format!(
        "docward's own user (--service) lacks privileges that rules need: {}; grant them with a role, see docs/tls.md",
        missing.join("; ")
    )))
}

impl Need<'_> {
    /// What of it no privilege grants, for people.
    fn missing(&self, privileges: &[&Document]) -> Option<String> {
        let granted = |action: &str| {
            privileges.iter().any(|privilege| {
                let resource = privilege.get_document("resource").ok();
                let actions = privilege.get_array("actions").map(Vec::as_slice).unwrap_or_default();
                resource.is_some_and(|resource| self.is_within(resource))
                    && actions.iter().any(|granted| granted.as_str() == Some(action))
            })
        };
        let actions: Vec<_> = self.actions.iter().copied().filter(|action| !granted(action)).collect();
        let missing = !actions.is_empty();
        missing
            .then(|| format!("{} on {}.{} (rule '{}')", actions.join(", "), self.database, self.collection, self.rule))
    }

    /// An empty name in a resource stands for all.
    fn is_within(&self, resource: &Document) -> bool {
        let names = |key, name: &str| resource.get_str(key).is_ok_and(|granted| granted.is_empty() || granted == name);
        resource.get_bool("anyResource").unwrap_or(false)
            || (names("db", &self.database) && names("collection", &self.collection))
    }
}

/// What a rule needs docward's own user for, as far as it names databases without `*`.
fn needs(rule: &Rule) -> Vec<Need<'_>> {
    let need = |database: &str, collection: &str, actions| Need {
        rule: &rule.name.value,
        database: database.to_owned(),
        collection: collection.to_owned(),
        actions,
    };
    match &rule.pattern {
        Pattern::Sequence(sequence) => sequence_needs(rule, sequence, &need),
        Pattern::Copies(copies) => {
            let originals = need(&copies.originals.database, &copies.originals.name, &["find", "changeStream"]);
            let into = copies
                .entries
                .iter()
                .map(|entry| need(&entry.into.database, &entry.into.name, &["find", "changeStream", "update"] as &[_]));
            let leases = need("docward", "leases", &["find", "insert", "update"]);
            [originals].into_iter().chain(into).chain([leases]).collect()
        }
        _ => Vec::new(),
    }
}

fn sequence_needs<'r>(
    rule: &'r Rule,
    sequence: &Sequence,
    need: &dyn Fn(&str, &str, &'static [&'static str]) -> Need<'r>,
) -> Vec<Need<'r>> {
    const COUNT: &[&str] = &["find", "insert", "update"];
    let mut needs = Vec::new();
    let reads_guarded = sequence.strategy == Strategy::Optimistic || sequence.start == Start::AfterMax;
    for namespace in &rule.namespaces {
        if let (true, Some((database, collection))) = (reads_guarded, namespace.exact()) {
            needs.push(need(database, collection, &["find"]));
        }
        let database = namespace.database().is_literal().then(|| namespace.database().as_str());
        let database = sequence.database.as_deref().or(database);
        if let (Strategy::Counter, Some(database)) = (sequence.strategy, database) {
            needs.push(need(database, &sequence.collection, COUNT));
        }
    }
    needs
}

fn sorted(error: &Error, first: &Need<'_>) -> Access {
    let text = error.kind.to_string();
    match &*error.kind {
        ErrorKind::Authentication { .. } => Access::Refused(format!(
            "docward's own user (--service) cannot log in, and rule '{}' needs it: {text}",
            first.rule
        )),
        _ if is_unauthorized(error) => Access::Refused(format!(
            "the upstream wants a login, and rule '{}' needs docward's own user: give it one with --service (service: \
             in docward.yaml)",
            first.rule
        )),
        _ if is_passing(error) => Access::Unknown(text),
        _ => Access::Refused(format!("docward's own connection (--service) does not work: {text}")),
    }
}
