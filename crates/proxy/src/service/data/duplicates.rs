//! Documents that share the value of a field.
//!
//! One pass in the order of the field: with an index on it, the server reads only as fast as docward asks.

use bson::{Bson, doc};
use mongodb::Client;
use mongodb::error::Error;
use mongodb::options::RunCursorCommandOptions;

use super::super::listing::CollectionName;
use super::{EXAMPLES, ScanProgress, secondary, to_bson};
use crate::document::{Document, Kind};
use crate::service::id::IdKey;
use crate::service::pause::{BATCH, Pause};

/// Returns their number, and `_id`s of some of them.
///
/// # Errors
/// The driver's error.
pub(super) async fn search(
    client: &Client,
    name: &CollectionName,
    field: &str,
    progress: &mut impl FnMut(&ScanProgress),
) -> Result<(u64, Vec<Bson>), Error> {
    let pipeline = vec![
        doc! {"$match": {field: {"$ne": null}}},
        doc! {"$sort": {field: 1}},
        doc! {"$project": {"v": format!("${field}")}},
    ];
    let command =
        doc! {"aggregate": &name.1, "pipeline": pipeline, "cursor": {"batchSize": BATCH}, "allowDiskUse": true};
    let options = RunCursorCommandOptions::builder().batch_size(BATCH).selection_criteria(secondary()).build();
    let mut cursor = client.database(&name.0).run_cursor_command(command).with_options(options).await?;
    let (mut shown, mut pause) = (ScanProgress::from_name(name), Pause::default());
    let (mut count, mut examples) = (0, Vec::new());
    // The value of the last document, and its `_id` if that document is not counted yet.
    let mut last: Option<(IdKey, Option<Bson>)> = None;
    while cursor.advance().await? {
        shown.documents += 1;
        if pause.after_document().await {
            progress(&shown);
        }
        let Ok(found) = Document::parse(cursor.current().as_bytes()) else { continue };
        let (Some(value), id) = (found.get("v"), found.get("_id").and_then(to_bson)) else { continue };
        // The server sorts an array by one of its elements.
        if value.kind == Kind::Array {
            continue;
        }
        let key = IdKey::from(value);
        let Some((_, uncounted)) = last.as_mut().filter(|(last, _)| *last == key) else {
            last = Some((key, id));
            continue;
        };
        for id in [uncounted.take(), id].into_iter().flatten() {
            count += 1;
            if examples.len() < EXAMPLES {
                examples.push(id);
            }
        }
    }
    Ok((count, examples))
}
