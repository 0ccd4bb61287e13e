//! Overrides of rule modes in `docward.modes`, which all docward processes of a deployment follow, and the rules that
//! each process uses, so that the others know of a difference.
//!
//! `{_id: RULE, mode, until, set_at, reason, by}` and `{_id: {rules: BEHAVIOUR}, until, procedures: [SCOPE]}`. Time is the
//! server's (`$$NOW`), so that the clocks of the processes do not matter.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt as _;
use mongodb::Collection;
use mongodb::error::Error;
use mongodb::options::{ReturnDocument, WriteConcern};

use super::client::ServiceClient;
use super::pipeline::checked;
use super::{MongoService, ServerTime};
use crate::rules::{Mode, ModeOverride, ModeOverrides, ProcedureScope, RuleSet};

const DATABASE: &str = "docward";
const COLLECTION: &str = "modes";
/// In the `_id` of the documents about rule sets.
const RULES: &str = "rules";
/// How long an expired override stays stored, so that operators can look it up.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Overrides as the server stores them.
#[derive(Debug, Clone, Default)]
pub struct StoredOverrides {
    pub overrides: ModeOverrides,
    /// The server's clock, by which they end; `None`: there are none.
    pub time: Option<ServerTime>,
    /// The rule sets in use lately.
    pub published: Vec<PublishedRules>,
}

/// What other processes must know of a rule set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedRules {
    /// As [`RuleSet::behaviour`].
    pub behaviour: String,
    pub procedures: BTreeSet<ProcedureScope>,
}

impl PublishedRules {
    #[must_use]
    pub fn from_rules(rules: &RuleSet) -> Self {
        Self { behaviour: format!("{:016x}", rules.behaviour()), procedures: rules.procedure_scopes() }
    }

    fn parse(stored: &Document) -> Option<Self> {
        let behaviour = stored.get_document("_id").ok()?.get_str(RULES).ok()?.to_owned();
        let scopes = stored.get_array("procedures").ok()?.iter().filter_map(Bson::as_str);
        Some(Self { behaviour, procedures: scopes.map(ProcedureScope::parse).collect() })
    }
}

impl StoredOverrides {
    /// The overrides that have not expired by the server's clock.
    pub fn valid(&self) -> impl Iterator<Item = (&String, &Arc<ModeOverride>)> {
        let now = self.time.map_or(0, |time| time.now());
        self.overrides.iter().filter(move |(_, found)| found.until > now)
    }
}

/// Returns the overrides that have not expired. Documents that this version cannot read are omitted.
///
/// # Errors
/// The server or network error as text.
pub async fn load_overrides(service: &MongoService) -> Result<StoredOverrides, String> {
    let (server, modes) = modes(service)?;
    let valid = [doc! {"$match": {"$expr": {"$gt": ["$until", "$$NOW"]}}}, doc! {"$set": {"read_at": "$$NOW"}}];
    let found: Result<Vec<Document>, Error> = async { modes.aggregate(valid).await?.try_collect().await }.await;
    let found = found.map_err(|error| describe(&server, &error))?;
    let time = found.first().and_then(|stored| stored.get_datetime("read_at").ok());
    Ok(StoredOverrides {
        overrides: found.iter().filter_map(parse).collect(),
        time: time.map(|now| ServerTime::reported(*now)),
        published: found.iter().filter_map(PublishedRules::parse).collect(),
    })
}

/// Publishes that a process uses these rules, now and for `length`.
///
/// # Errors
/// The server or network error as text.
pub async fn publish(service: &MongoService, rules: &PublishedRules, length: Duration) -> Result<(), String> {
    let (server, modes) = modes(service)?;
    let length = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    let procedures: Vec<String> = rules.procedures.iter().map(ToString::to_string).collect();
    let fields = doc! {"until": {"$add": ["$$NOW", length]}, "procedures": {"$literal": procedures}};
    let written = async {
        remove_expired(&modes).await?;
        let update = modes.update_one(doc! {"_id": {RULES: &rules.behaviour}}, checked(vec![doc! {"$set": fields}])?);
        update.upsert(true).await
    };
    written.await.map(drop).map_err(|error| describe(&server, &error))
}

async fn remove_expired(modes: &Collection<Document>) -> Result<(), Error> {
    let expired = doc! {"$lt": ["$until", {"$subtract": ["$$NOW", KEPT.as_millis() as i64]}]};
    modes.delete_many(doc! {"$expr": expired}).await.map(drop)
}

/// Overrides the mode of `rule` for `length`; returns the override as stored, and the server's clock. Removes documents
/// that expired long ago.
///
/// # Errors
/// The server or network error as text.
pub async fn set(
    service: &MongoService,
    rule: &str,
    (mode, length): (Mode, Duration),
    (reason, by): (&str, &str),
) -> Result<(ModeOverride, ServerTime), String> {
    let (server, modes) = modes(service)?;
    let length = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    let fields = doc! {
        "mode": mode.as_str(),
        "until": {"$add": ["$$NOW", length]},
        "set_at": "$$NOW",
        "reason": {"$literal": reason},
        "by": {"$literal": by},
    };
    let written = async {
        remove_expired(&modes).await?;
        let update = modes.find_one_and_update(doc! {"_id": rule}, checked(vec![doc! {"$set": fields}])?);
        update.upsert(true).return_document(ReturnDocument::After).await
    };
    let stored = written.await.map_err(|error: Error| describe(&server, &error))?;
    let stored = stored.as_ref().and_then(|stored| {
        let (_, found) = parse(stored)?;
        Some((Arc::unwrap_or_clone(found), ServerTime::reported(*stored.get_datetime("set_at").ok()?)))
    });
    stored.ok_or_else(|| "docward.modes: the document could not be read back".to_owned())
}

/// Removes the override of `rule`; returns whether there was one.
///
/// # Errors
/// The server or network error as text.
pub async fn clear(service: &MongoService, rule: &str) -> Result<bool, String> {
    let valid = doc! {"_id": rule, "$expr": {"$gt": ["$until", "$$NOW"]}};
    let (server, modes) = modes(service)?;
    let removed = modes.delete_one(valid).await.map_err(|error| describe(&server, &error))?;
    Ok(removed.deleted_count > 0)
}

fn modes(service: &MongoService) -> Result<(Arc<ServiceClient>, Collection<Document>), String> {
    let server = service.server();
    let client = server.client().map_err(|error| error.to_string())?;
    let options = mongodb::options::CollectionOptions::builder().write_concern(WriteConcern::majority()).build();
    let modes = client.database(DATABASE).collection_with_options(COLLECTION, options);
    Ok((server, modes))
}

fn describe(server: &ServiceClient, error: &Error) -> String {
    format!("{DATABASE}.{COLLECTION}: {}", server.describe(error))
}

fn parse(stored: &Document) -> Option<(String, Arc<ModeOverride>)> {
    let text = |key| stored.get_str(key).ok().map(str::to_owned);
    let found = ModeOverride {
        mode: Mode::parse(stored.get_str("mode").ok()?)?,
        until: u64::try_from(stored.get_datetime("until").ok()?.timestamp_millis()).ok()?,
        reason: text("reason").unwrap_or_default(),
        by: text("by").unwrap_or_default(),
        shared: true,
    };
    Some((text("_id")?, Arc::new(found)))
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::*;

    #[test]
    fn an_override_ends_by_the_clock_of_the_server() {
        // This machine's clock is decades ahead.
        let override_until = |until: i64| {
            let stored = doc! {"_id": "rule", "mode": "shadow", "until": DateTime::from_millis(until)};
            let time = Some(ServerTime::reported(DateTime::from_millis(60_000)));
            StoredOverrides { overrides: parse(&stored).into_iter().collect(), time, published: Vec::new() }
        };
        assert_eq!(override_until(3_660_000).valid().count(), 1);
        assert_eq!(override_until(60_000).valid().count(), 0);
    }
}
