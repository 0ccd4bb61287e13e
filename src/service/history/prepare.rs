//! Prepares the collections of a `history` rule: pre-images of the changed one, and the expiry of states.

use bson::{Document, doc};
use mongodb::Client;
use mongodb::error::{Error, ErrorKind};

use crate::patterns::Collection;
use crate::patterns::history::{History, Keep};
use crate::service::listing::first_batch;
use crate::service::mongo::is_unauthorized;
use crate::service::worker::{Deployment, Stop};

/// MongoDB 6.0.
const PRE_IMAGES: i32 = 17;
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

/// # Errors
/// The server is too old.
pub(in crate::service) fn require_support(deployment: Deployment) -> Result<(), Stop> {
    if deployment.wire_version >= PRE_IMAGES {
        return Ok(());
    }
    let why =
        "pre-images of changes need MongoDB 6.0 or later; upgrade the server, or set the rule to `mode: disabled`";
    Err(Stop::Unsupported(why.to_owned()))
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
pub(super) async fn switch_on(client: &Client, history: &History, creates: bool) -> Result<bool, Stop> {
    let of = &history.of;
    let setting = doc! {"enabled": true};
    let change = match pre_images(client, of).await? {
        PreImages::On => return Ok(true),
        PreImages::Missing if !creates => return Ok(false),
        PreImages::Missing => doc! {"create": &of.name, "changeStreamPreAndPostImages": setting},
        PreImages::Off => doc! {"collMod": &of.name, "changeStreamPreAndPostImages": setting},
        PreImages::Unsupported => {
            let why = format!("{of} is a view or a time series, which has no pre-images");
            return Err(Stop::Unsupported(why));
        }
    };
    match client.database(&of.database).run_command(change).await {
        Ok(_) => {
            tracing::info!("switched on pre-images of {of}");
            Ok(true)
        }
        Err(error) if is_unauthorized(&error) => Err(Stop::Unsupported(format!(
            "pre-images of {of} are off, and docward's own user (--service) may not switch them on; grant it collMod and \
             createCollection, or run {}",
            command(of)
        ))),
        // Created meanwhile: this time they are only switched on.
        Err(error) if has_code(&error, NAMESPACE_EXISTS) => Err(Stop::Failed(format!("{of} was created meanwhile"))),
        Err(error) => Err(error.into()),
    }
}

/// Creates, changes or drops the index by which the server removes old entries.
pub(super) async fn expire(client: &Client, history: &History) -> Result<(), Stop> {
    let History { into, keep, .. } = history;
    let database = client.database(&into.database);
    let list = doc! {"listIndexes": &into.name, "cursor": {"batchSize": 100}};
    let listed = match database.run_command(list).await {
        Err(error) if has_code(&error, NAMESPACE_NOT_FOUND) => Document::new(),
        listed => listed?,
    };
    let index = first_batch(&listed).find(|index| index.get_str("name").is_ok_and(|name| name == EXPIRY));
    let change = match (keep, index) {
        (Keep::Revisions(_), None) => return Ok(()),
        (Keep::Revisions(_), Some(_)) => doc! {"dropIndexes": &into.name, "index": EXPIRY},
        (Keep::For(time), found) => {
            // The settings have at most 32 bits.
            let seconds = i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
            let set = found.and_then(|index| index.get("expireAfterSeconds"));
            let set = set.and_then(|set| set.as_i64().or_else(|| set.as_i32().map(i64::from)));
            match found {
                Some(_) if set == Some(i64::from(seconds)) => return Ok(()),
                Some(_) => {
                    let index = doc! {"name": EXPIRY, "expireAfterSeconds": seconds};
                    doc! {"collMod": &into.name, "index": index}
                }
                None => {
                    let index = doc! {"key": {"at": 1}, "name": EXPIRY, "expireAfterSeconds": seconds};
                    doc! {"createIndexes": &into.name, "indexes": [index]}
                }
            }
        }
    };
    database.run_command(change).await?;
    Ok(())
}

fn has_code(error: &Error, code: i32) -> bool {
    matches!(&*error.kind, ErrorKind::Command(command) if command.code == code)
}
