//! Overrides of rule modes in `docward.modes`, which all docward processes of a deployment follow; the rules that each
//! process uses, so that the others know of a difference; and drains.
//!
//! `{_id: RULE, mode, until, set_at, reason, by}` (`mode` of an override for some clients is `{mode, only}`: versions of
//! docward that do not know this cannot read the document, and so do not use the mode for all clients), `{_id: {rules: BEHAVIOUR}, until, procedures: [SCOPE]}` and
//! `{_id: {drain: ID}, until, at, addresses: [ADDRESS]}`. Time is the server's (`$$NOW`), so that the clocks of the
//! processes do not matter.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use futures_util::TryStreamExt as _;
use futures_util::future::try_join_all;
use mongodb::Collection;
use mongodb::error::Error;
use mongodb::options::{ReturnDocument, WriteConcern};
use serde::Deserialize;

use super::client::ServiceClient;
use super::pipeline::checked;
use super::{MongoService, ServerTime};
use crate::command::own::DATABASE;
use crate::rules::{ClientGlobs, ClientNames, Mode, ModeOverride, ModeOverrides, ProcedureScope, RuleSet};

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
    pub drains: Vec<AnnouncedDrain>,
}

/// The drain of a process whose clients may have connections to other processes, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnouncedDrain {
    /// When its drivers stop selecting its members, by the server's clock, in milliseconds since 1970 UTC.
    pub at: u64,
    /// The advertised addresses of its members.
    pub addresses: Vec<String>,
}

impl AnnouncedDrain {
    fn parse(stored: &Document) -> Option<Self> {
        let addresses = stored.get_array("addresses").ok()?.iter().filter_map(Bson::as_str).map(str::to_owned);
        Some(Self { at: milliseconds(stored.get_datetime("at").ok()?)?, addresses: addresses.collect() })
    }
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
    let found: Result<Vec<Document>, Error> =
        async { modes.aggregate(valid).max_time(Duration::ZERO).await?.try_collect().await }.await;
    let found = found.map_err(|error| describe(&server, &error))?;
    let time = found.first().and_then(|stored| stored.get_datetime("read_at").ok());
    Ok(StoredOverrides {
        overrides: found.iter().filter_map(parse).collect(),
        time: time.map(|now| ServerTime::reported(*now)),
        published: found.iter().filter_map(PublishedRules::parse).collect(),
        drains: found.iter().filter_map(AnnouncedDrain::parse).collect(),
    })
}

/// Publishes that a process uses these rules, now and for `length`.
///
/// # Errors
/// The server or network error as text.
pub async fn publish(service: &MongoService, rules: &PublishedRules, length: Duration) -> Result<(), String> {
    let procedures: Vec<String> = rules.procedures.iter().map(ToString::to_string).collect();
    let fields = doc! {"until": after(length), "procedures": {"$literal": procedures}};
    store(service, doc! {RULES: &rules.behaviour}, fields).await
}

/// Announces that this process begins to drain after `lead`, and ends `length` from now at the latest.
///
/// # Errors
/// The server or network error as text.
pub async fn announce_drain(
    service: &MongoService,
    addresses: &[String],
    lead: Duration,
    length: Duration,
) -> Result<(), String> {
    let fields = doc! {"until": after(length), "at": after(lead), "addresses": {"$literal": addresses}};
    store(service, doc! {"drain": ObjectId::new()}, fields).await
}

async fn store(service: &MongoService, id: Document, fields: Document) -> Result<(), String> {
    let (server, modes) = modes(service)?;
    let written = async {
        remove_expired(&modes).await?;
        modes.update_one(doc! {"_id": id}, checked(vec![doc! {"$set": fields}])?).upsert(true).await
    };
    written.await.map(drop).map_err(|error| describe(&server, &error))
}

/// An expression: the time so long from now.
fn after(length: Duration) -> Document {
    doc! {"$add": ["$$NOW", i64::try_from(length.as_millis()).unwrap_or(i64::MAX)]}
}

async fn remove_expired(modes: &Collection<Document>) -> Result<(), Error> {
    let expired = doc! {"$lt": ["$until", {"$subtract": ["$$NOW", KEPT.as_millis() as i64]}]};
    modes.delete_many(doc! {"$expr": expired}).await.map(drop)
}

/// Stores an override of the mode of each of these rules that ends after `length`; returns them as stored, and the server's
/// clock. Removes documents that expired long ago.
///
/// # Errors
/// The server or network error as text.
pub async fn set(
    service: &MongoService,
    rules: &[String],
    wanted: &ModeOverride,
    length: Duration,
) -> Result<(ModeOverrides, ServerTime), String> {
    let (server, modes) = modes(service)?;
    let ModeOverride { mode, only, reason, by, .. } = wanted;
    let fields = doc! {
        "mode": {"$literal": stored_mode(*mode, only)},
        "until": after(length),
        "set_at": "$$NOW",
        "reason": {"$literal": reason},
        "by": {"$literal": by},
    };
    let written = async {
        remove_expired(&modes).await?;
        let update = checked(vec![doc! {"$set": fields}])?;
        let set_one = async |rule: &String| {
            let update = modes.find_one_and_update(doc! {"_id": rule}, update.clone());
            update.upsert(true).return_document(ReturnDocument::After).await
        };
        try_join_all(rules.iter().map(set_one)).await
    };
    let stored = written.await.map_err(|error: Error| describe(&server, &error))?;
    let time = stored.iter().flatten().find_map(|stored| stored.get_datetime("set_at").ok());
    let found: ModeOverrides = stored.iter().flatten().filter_map(parse).collect();
    match time.filter(|_| found.len() == rules.len()) {
        Some(time) => Ok((found, ServerTime::reported(*time))),
        None => Err("docward.modes: the documents could not be read back".to_owned()),
    }
}

/// Removes the overrides of these rules.
///
/// # Errors
/// The server or network error as text.
pub async fn clear(service: &MongoService, rules: &[String]) -> Result<(), String> {
    let (server, modes) = modes(service)?;
    let removed = modes.delete_many(doc! {"_id": {"$in": rules}}).await;
    removed.map(drop).map_err(|error| describe(&server, &error))
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

fn milliseconds(time: &DateTime) -> Option<u64> {
    u64::try_from(time.timestamp_millis()).ok()
}

/// The mode in an override for some clients.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NarrowedMode {
    mode: String,
    only: ClientNames,
}

fn stored_mode(mode: Mode, only: &ClientGlobs) -> Bson {
    let ClientNames { apps, users } = only.names();
    match only.is_empty() {
        true => mode.as_str().into(),
        false => doc! {"mode": mode.as_str(), "only": {"apps": apps, "users": users}}.into(),
    }
}

/// Reads what [`stored_mode`] returns; `None`: a later version has narrowed the mode in another way.
fn parse_mode(stored: &Bson) -> Option<(Mode, ClientGlobs)> {
    match stored {
        Bson::String(mode) => Some((Mode::parse(mode)?, ClientGlobs::default())),
        narrowed => {
            let NarrowedMode { mode, only } = bson::deserialize_from_bson(narrowed.clone()).ok()?;
            let only = ClientGlobs::parse(&only).ok().filter(|only| !only.is_empty());
            Some((Mode::parse(&mode)?, only?))
        }
    }
}

fn parse(stored: &Document) -> Option<(String, Arc<ModeOverride>)> {
    let text = |key| stored.get_str(key).ok().map(str::to_owned);
    let (mode, only) = parse_mode(stored.get("mode")?)?;
    let found = ModeOverride {
        mode,
        only,
        until: milliseconds(stored.get_datetime("until").ok()?)?,
        reason: text("reason").unwrap_or_default(),
        by: text("by").unwrap_or_default(),
        shared: true,
    };
    Some((text("_id")?, Arc::new(found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_ends_by_the_clock_of_the_server() {
        // This machine's clock is decades ahead.
        let override_until = |until: i64| {
            let stored = doc! {"_id": "rule", "mode": "shadow", "until": DateTime::from_millis(until)};
            let time = Some(ServerTime::reported(DateTime::from_millis(60_000)));
            StoredOverrides { overrides: parse(&stored).into_iter().collect(), time, ..StoredOverrides::default() }
        };
        assert_eq!(override_until(3_660_000).valid().count(), 1);
        assert_eq!(override_until(60_000).valid().count(), 0);
    }

    #[test]
    fn an_override_for_clients_that_this_version_does_not_understand_applies_to_none() {
        let read = |mode: Bson| {
            let stored = doc! {"_id": "rule", "mode": mode, "until": DateTime::from_millis(1)};
            parse(&stored).map(|(_, found)| (found.mode, found.only.to_string()))
        };
        let names = ClientNames { apps: vec!["promo-*".into()], users: vec!["admin.ada".into()] };
        for only in [ClientGlobs::default(), ClientGlobs::parse(&names).unwrap()] {
            assert_eq!(read(stored_mode(Mode::Shadow, &only)), Some((Mode::Shadow, only.to_string())));
        }
        for only in [doc! {}, doc! {"hosts": ["db1"]}, doc! {"apps": ["x"], "hosts": ["db1"]}, doc! {"users": ["x"]}] {
            assert_eq!(read(doc! {"mode": "shadow", "only": only.clone()}.into()), None, "{only}");
        }
        assert_eq!(read(doc! {"mode": "shadow", "only": {"apps": ["x"]}, "from": "later"}.into()), None);
    }
}
