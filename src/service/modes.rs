//! Overrides of rule modes in `docward.modes`, which all docward processes of a deployment follow.
//!
//! `{_id: RULE, mode, until, set_at, reason, by}`. Time is the server's (`$$NOW`), so that the clocks of the processes
//! do not matter.

use std::sync::Arc;
use std::time::Duration;

use bson::{Document, doc};
use futures_util::TryStreamExt as _;
use mongodb::Collection;
use mongodb::error::Error;
use mongodb::options::{ReturnDocument, WriteConcern};

use super::MongoService;
use super::client::ServiceClient;
use crate::rules::{Mode, ModeOverride, ModeOverrides};

const DATABASE: &str = "docward";
const COLLECTION: &str = "modes";
/// How long an expired override stays stored, so that operators can look it up.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Returns the overrides that have not expired. Documents that this version cannot read are omitted.
///
/// # Errors
/// The server or network error as text.
pub async fn load_overrides(service: &MongoService) -> Result<ModeOverrides, String> {
    let (server, modes) = modes(service)?;
    let valid = doc! {"$match": {"$expr": {"$gt": ["$until", "$$NOW"]}}};
    let found: Result<Vec<Document>, Error> = async { modes.aggregate([valid]).await?.try_collect().await }.await;
    let found = found.map_err(|error| describe(&server, &error))?;
    Ok(found.iter().filter_map(parse).collect())
}

/// Overrides the mode of `rule` for `length`; returns the override as stored. Removes documents that expired long ago.
///
/// # Errors
/// The server or network error as text.
pub async fn set(
    service: &MongoService,
    rule: &str,
    (mode, length): (Mode, Duration),
    (reason, by): (&str, &str),
) -> Result<ModeOverride, String> {
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
        let expired = doc! {"$lt": ["$until", {"$subtract": ["$$NOW", KEPT.as_millis() as i64]}]};
        modes.delete_many(doc! {"$expr": expired}).await?;
        let update = modes.find_one_and_update(doc! {"_id": rule}, vec![doc! {"$set": fields}]);
        update.upsert(true).return_document(ReturnDocument::After).await
    };
    let stored = written.await.map_err(|error: Error| describe(&server, &error))?;
    let stored = stored.as_ref().and_then(parse).map(|(_, stored)| stored);
    stored.map(Arc::unwrap_or_clone).ok_or_else(|| "docward.modes: the document could not be read back".to_owned())
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
