//! Checks whether docward's own user has the privileges that rules need. The check runs at start, so that a missing
//! privilege does not first show as a failed insert.
//!
//! [`needs`] is the list in the documentation. connectionStatus reports the privileges of the logged-in user. Without
//! a login, a read shows whether the server requires one.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::error::{Error, ErrorKind};
use tokio::time::{sleep, timeout};

use super::MongoService;
use super::client::ServiceClient;
use super::error_kind::{is_passing, is_unauthorized};
use crate::patterns::Privilege;
use crate::rules::Mode;
use crate::rules::{Rule, RuleSet};

/// How long the check may take at start.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before the check is repeated if no server answered or the rules changed.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The result of the check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceAccess {
    Granted,
    /// The login fails or privileges are missing; a retry does not help.
    Refused(String),
    /// No server answered.
    Unknown(String),
}

/// Privileges on one namespace that a rule needs for docward's own operations.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NeededPrivilege<'r> {
    rule: &'r str,
    privilege: Privilege,
}

/// Checks whether the server grants all privileges that the enforced `rules` need.
pub async fn check(service: &MongoService, rules: &RuleSet) -> ServiceAccess {
    let needs: Vec<NeededPrivilege<'_>> =
        rules.rules().iter().filter(|rule| rule.mode == Mode::Enforce).flat_map(needs).collect();
    let Some(first) = needs.first() else { return ServiceAccess::Granted };
    let server = service.server();
    let asked = async {
        let client = &server.client().map_err(|error| ServiceAccess::Refused(error.to_string()))?;
        ask(client, &needs).await.map_err(|error| classify(&server, &error, first))
    };
    let unknown = || {
        let silent = || format!("no server answered docward's own connection within {TIMEOUT:?}");
        ServiceAccess::Unknown(server.observed().unreachable().unwrap_or_else(silent))
    };
    tokio::select! {
        reply = timeout(TIMEOUT, asked) => match reply {
            Ok(Ok(access) | Err(access)) => access,
            Err(_) => unknown(),
        },
        // The listeners open at once, although the driver would search for longer.
        () = server.is_down() => unknown(),
    }
}

/// Checks that a new connection can log in, and that its user has all privileges that the `rules` need.
///
/// # Errors
/// A message for the user: why the connection cannot be used.
pub async fn try_connection(service: &MongoService, rules: &RuleSet) -> Result<(), String> {
    let server = service.server();
    let asked = async {
        let client = server.client().map_err(|error| error.to_string())?;
        privileges(&client).await.map_err(|error| server.describe(&error))
    };
    let silent = || format!("no server answered docward's own connection within {TIMEOUT:?}");
    timeout(TIMEOUT, asked).await.map_err(|_| server.observed().unreachable().unwrap_or_else(silent))??;
    match check(service, rules).await {
        ServiceAccess::Granted => Ok(()),
        ServiceAccess::Refused(reason) | ServiceAccess::Unknown(reason) => Err(reason),
    }
}

/// Repeats the check until its result is known, and whenever the rules change. It logs the result and never returns.
pub async fn watch(service: &MongoService, rules: &ArcSwap<RuleSet>) {
    let mut granted: Option<Arc<RuleSet>> = None;
    let mut logged = String::new();
    loop {
        sleep(RETRY_INTERVAL).await;
        let current = rules.load_full();
        if granted.as_ref().is_some_and(|granted| Arc::ptr_eq(granted, &current)) {
            continue;
        }
        match check(service, &current).await {
            ServiceAccess::Granted => {
                if !std::mem::take(&mut logged).is_empty() {
                    tracing::info!("docward's own user now has the privileges that the rules need");
                }
                granted = Some(current);
            }
            ServiceAccess::Refused(reason) if reason != logged => {
                tracing::error!("{reason}");
                logged = reason;
            }
            ServiceAccess::Refused(_) | ServiceAccess::Unknown(_) => {}
        }
    }
}

async fn ask(client: &Client, needs: &[NeededPrivilege<'_>]) -> Result<ServiceAccess, Error> {
    let Some(privileges) = privileges(client).await? else {
        // Only a server that requires a login rejects this.
        if let Some(need) = needs.first() {
            let probe = doc! {"find": &need.privilege.collection, "limit": 1, "projection": {"_id": 1}};
            client.database(&need.privilege.database).run_command(probe).await?;
        }
        return Ok(ServiceAccess::Granted);
    };
    let privileges: Vec<&Document> = privileges.iter().filter_map(Bson::as_document).collect();
    let missing: Vec<String> = needs.iter().filter_map(|need| need.described(&privileges)).collect();
    if missing.is_empty() {
        return Ok(ServiceAccess::Granted);
    }
    Ok(ServiceAccess::Refused(format!(
        "docward's own user (--service) lacks privileges that rules need: {}; grant them with a role, see docs/tls.md",
        missing.join("; ")
    )))
}

/// The privileges of the logged-in user; `None` without a login.
async fn privileges(client: &Client) -> Result<Option<Vec<Bson>>, Error> {
    let status = client.database("admin").run_command(doc! {"connectionStatus": 1, "showPrivileges": true}).await?;
    let info = status.get_document("authInfo").cloned().unwrap_or_default();
    let list = |key| info.get_array(key).cloned().unwrap_or_default();
    Ok((!list("authenticatedUsers").is_empty()).then(|| list("authenticatedUserPrivileges")))
}

/// Returns the actions of `privilege` that docward's own user may not do.
pub(super) async fn missing(client: &Client, privilege: Privilege) -> Result<Vec<&'static str>, Error> {
    let Some(privileges) = privileges(client).await? else { return Ok(Vec::new()) };
    let privileges: Vec<&Document> = privileges.iter().filter_map(Bson::as_document).collect();
    Ok(NeededPrivilege { rule: "", privilege }.missing(&privileges))
}

impl NeededPrivilege<'_> {
    /// Describes the missing actions; `None`: all are granted.
    fn described(&self, privileges: &[&Document]) -> Option<String> {
        let actions = self.missing(privileges);
        let Privilege { database, collection, .. } = &self.privilege;
        let namespace = if collection.is_empty() { database.clone() } else { format!("{database}.{collection}") };
        (!actions.is_empty()).then(|| format!("{} on {namespace} (rule '{}')", actions.join(", "), self.rule))
    }

    fn missing(&self, privileges: &[&Document]) -> Vec<&'static str> {
        let granted = |action: &str| {
            privileges.iter().any(|privilege| {
                let resource = privilege.get_document("resource").ok();
                let actions = privilege.get_array("actions").map(Vec::as_slice).unwrap_or_default();
                resource.is_some_and(|resource| self.is_within(resource))
                    && actions.iter().any(|granted| granted.as_str() == Some(action))
            })
        };
        self.privilege.actions.iter().copied().filter(|action| !granted(action)).collect()
    }

    /// An empty name in a resource matches all names.
    fn is_within(&self, resource: &Document) -> bool {
        let names = |key, name: &str| resource.get_str(key).is_ok_and(|granted| granted.is_empty() || granted == name);
        resource.get_bool("anyResource").unwrap_or(false)
            || (names("db", &self.privilege.database) && names("collection", &self.privilege.collection))
    }
}

/// The privileges a rule needs, as far as it names databases without `*`.
fn needs(rule: &Rule) -> impl Iterator<Item = NeededPrivilege<'_>> {
    let privileges = rule.pattern.privileges(&rule.namespaces);
    privileges.into_iter().map(|privilege| NeededPrivilege { rule: &rule.name.value, privilege })
}

fn classify(server: &ServiceClient, error: &Error, first: &NeededPrivilege<'_>) -> ServiceAccess {
    let text = server.observed().describe(error);
    match &*error.kind {
        ErrorKind::Authentication { .. } => ServiceAccess::Refused(format!(
            "docward's own user (--service) cannot log in, but rule '{}' needs it: {text}",
            first.rule
        )),
        _ if is_unauthorized(error) => ServiceAccess::Refused(format!(
            "the upstream requires a login, and rule '{}' needs docward's own user: give it one with --service \
             (service: in docward.yaml)",
            first.rule
        )),
        _ if is_passing(error) => ServiceAccess::Unknown(text),
        _ => ServiceAccess::Refused(format!("docward's own connection (--service) does not work: {text}")),
    }
}
