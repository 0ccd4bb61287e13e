//! Removes the timestamps of a `timestamps` rule from every collection it applies to.

use bson::{Document, RawDocumentBuf, doc};
use mongodb::Database;
use mongodb::error::Error;

use super::MongoService;
use super::listing::{self, applying, first_batch};
use super::own_reads;
use crate::rules::{Rule, RuleSet};

/// Unsets `store` in all documents, with majority write concern; with `dry_run` only counts. `report` gets each
/// collection and its number of documents with timestamps.
///
/// # Errors
/// The server or network error as text. Completed collections remain changed.
pub async fn reset(
    service: &MongoService,
    rules: &RuleSet,
    rule: &Rule,
    store: &str,
    dry_run: bool,
    mut report: impl FnMut(&str, u64),
) -> Result<(), String> {
    let server = service.server();
    let client = &server.client().map_err(|error| error.to_string())?;
    let namespaces = applying(&server, rules, rule).await?;
    for (database, collection) in namespaces {
        let timestamped = doc! { store: { "$exists": true } };
        let count = match dry_run {
            true => count(&client.database(&database), &collection, timestamped).await,
            false => {
                let documents = client.database(&database).collection::<RawDocumentBuf>(&collection);
                let unset = documents.update_many(timestamped, doc! { "$unset": { store: "" } });
                unset.await.map(|done| done.modified_count)
            }
        };
        let count = count.map_err(|error| format!("{database}.{collection}: {}", server.describe(&error)))?;
        report(&format!("{database}.{collection}"), count);
    }
    Ok(())
}

/// Counts the documents that match.
async fn count(database: &Database, collection: &str, filter: Document) -> Result<u64, Error> {
    let pipeline = vec![doc! { "$match": filter }, doc! { "$count": "n" }];
    let command = doc! { "aggregate": collection, "pipeline": pipeline, "cursor": {} };
    let reply = database.run_command(own_reads::of_current(command)).await?;
    // Without a matching document the reply has no count.
    Ok(first_batch(&reply).next().map_or(0, |found| listing::count(found, "n")))
}
