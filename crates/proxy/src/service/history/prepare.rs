//! Prepares the collections of a `history` rule: pre-images of the changed one, and the expiry of states.

use bson::{DateTime, Document, Timestamp, doc};
use mongodb::Client;
use mongodb::error::{Error, ErrorKind};

use super::entries::{Gap, HistoryEntries};
use crate::patterns::Collection;
use crate::patterns::history::{History, Keep};
use crate::service::error_kind::is_unauthorized;
use crate::service::listing::first_batch;
use crate::service::worker::Stop;

/// The TTL index of `keep: 90d`.
const EXPIRY: &str = "docward_keep";

const NAMESPACE_NOT_FOUND: i32 = 26;
const NAMESPACE_EXISTS: i32 = 48;

/// What docward finds at the collection whose history it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::service) enum PreImages {
    On,
    Off,
    /// The collection does not exist.
    Missing,
    /// A view or a time series.
    Unsupported,
}

/// Returns whether the server keeps pre-images of the collection.
pub(in crate::service) async fn pre_images(client: &Client, of: &Collection) -> Result<PreImages, Error> {
    let list = doc! {"listCollections": 1, "filter": {"name": &of.name}};
    let reply = client.database(&of.database).run_command(list).await?;
    let Some(found) = first_batch(&reply).next() else { return Ok(PreImages::Missing) };
    if found.get_str("type").is_ok_and(|kind| kind != "collection") {
        return Ok(PreImages::Unsupported);
    }
    let option = found.get_document("options").and_then(|options| options.get_document("changeStreamPreAndPostImages"));
    let is_on = option.is_ok_and(|option| option.get_bool("enabled").unwrap_or(false));
    Ok(if is_on { PreImages::On } else { PreImages::Off })
}

/// The command that switches pre-images on.
pub(in crate::service) fn command(of: &Collection) -> String {
    format!(
        "db.getSiblingDB({:?}).runCommand({{collMod: {:?}, changeStreamPreAndPostImages: {{enabled: true}}}})",
        of.database, of.name
    )
}

/// Switches pre-images on. `creates`: if the collection is missing, it is created with them, so that they exist from
/// its first change on. Returns whether the collection exists.
pub(super) async fn switch_on(client: &Client, rule: &str, history: &History, creates: bool) -> Result<bool, Stop> {
    let of = &history.of;
    let setting = doc! {"enabled": true};
    let mut change = match pre_images(client, of).await? {
        PreImages::On => return Ok(true),
        PreImages::Missing if !creates => return Ok(false),
        PreImages::Missing => doc! {"create": &of.name, "changeStreamPreAndPostImages": setting},
        PreImages::Off => doc! {"collMod": &of.name, "changeStreamPreAndPostImages": setting},
        PreImages::Unsupported => {
            let why = format!("{of} is a view or a time series, which has no pre-images");
            return Err(Stop::Unsupported(why));
        }
    };
    change.insert("writeConcern", doc! {"w": "majority"});
    match client.database(&of.database).run_command(change).await {
        Ok(_) => {
            tracing::info!(rule, "switched on pre-images of {of}");
            Ok(true)
        }
        Err(error) if is_unauthorized(&error) => Err(Stop::Unsupported(format!(
            "pre-images of {of} are off, and docward's own user (--service) may not switch them on; grant it collMod and \
             createCollection, or run {}",
            command(of)
        ))),
        // Created meanwhile, so that they only have to be switched on; or dropped meanwhile.
        Err(error) if has_code(&error, NAMESPACE_EXISTS) => Box::pin(switch_on(client, rule, history, false)).await,
        Err(error) if has_code(&error, NAMESPACE_NOT_FOUND) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the cluster time and the clock of the server.
pub(super) async fn server_time(client: &Client) -> Result<(Timestamp, DateTime), Stop> {
    let hello = client.database("admin").run_command(doc! {"hello": 1}).await?;
    let missing = |error| Stop::Failed(format!("the server's reply to hello: {error}"));
    let time = hello.get_timestamp("operationTime").map_err(missing)?;
    Ok((time, *hello.get_datetime("localTime").map_err(missing)?))
}

/// Creates, changes or drops the index by which the server removes old entries.
pub(super) async fn expire(entries: &HistoryEntries<'_>) -> Result<(), Stop> {
    let HistoryEntries { client, history, .. } = entries;
    let History { into, keep, .. } = history;
    let database = client.database(&into.database);
    let list = doc! {"listIndexes": &into.name, "cursor": {"batchSize": 100}};
    let listed = match database.run_command(list).await {
        Err(error) if has_code(&error, NAMESPACE_NOT_FOUND) => Document::new(),
        listed => listed?,
    };
    let index = first_batch(&listed).find(|index| index.get_str("name").is_ok_and(|name| name == EXPIRY));
    let set = index.and_then(|index| index.get("expireAfterSeconds"));
    let set = set.and_then(|set| set.as_i64().or_else(|| set.as_i32().map(i64::from)));
    // The settings have at most 32 bits.
    let wanted = match keep {
        Keep::Revisions(_) => None,
        Keep::For(time) => Some(i32::try_from(time.as_secs()).unwrap_or(i32::MAX)),
    };
    if index.is_some() == wanted.is_some() && set == wanted.map(i64::from) {
        return Ok(());
    }
    if let Some(seconds) = set.filter(|set| wanted.is_none_or(|wanted| i64::from(wanted) > *set)) {
        mark_expired(entries, seconds).await?;
    }
    let mut change = match (wanted, index) {
        (None, _) => doc! {"dropIndexes": &into.name, "index": EXPIRY},
        (Some(seconds), Some(_)) => {
            doc! {"collMod": &into.name, "index": {"name": EXPIRY, "expireAfterSeconds": seconds}}
        }
        (Some(seconds), None) => {
            let index = doc! {"key": {"at": 1}, "name": EXPIRY, "expireAfterSeconds": seconds};
            doc! {"createIndexes": &into.name, "indexes": [index]}
        }
    };
    let command = change.keys().next().cloned().unwrap_or_default();
    change.insert("writeConcern", doc! {"w": "majority"});
    match database.run_command(change).await {
        Err(error) if is_unauthorized(&error) => Err(Stop::Failed(format!(
            "the index {EXPIRY} of {into} does not fit the rule's `keep`, and docward's own user (--service) may not \
             change it: grant it {command} on {into}, or drop the index"
        ))),
        done => Ok(done.map(|_| ())?),
    }
}

/// Marks the time whose entries were removed with a shorter `keep`.
async fn mark_expired(entries: &HistoryEntries<'_>, seconds: i64) -> Result<(), Stop> {
    let (_, now) = server_time(entries.client).await?;
    let until = DateTime::from_millis(now.timestamp_millis() - seconds * 1000);
    let time = u32::try_from(until.timestamp_millis() / 1000).unwrap_or(0);
    let end = Timestamp { time, increment: 0 };
    let reason = &format!("states were only kept for {seconds} s then");
    entries.mark(&Gap { end, until, operation: "expire", since: None, reason }).await
}

fn has_code(error: &Error, code: i32) -> bool {
    matches!(&*error.kind, ErrorKind::Command(command) if command.code == code)
}
