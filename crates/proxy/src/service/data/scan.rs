//! One pass over a collection that evaluates several conditions on each document.

use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::Client;
use mongodb::Cursor;
use mongodb::error::Error;
use mongodb::options::{RunCursorCommandOptions, SelectionCriteria};

use super::super::listing::{CollectionName, whole};
use crate::patterns::{DataCheck, Search};
use crate::service::own_reads;
use crate::service::pause::BATCH;

/// Conditions in one pass: each is a bit of an integer.
const MAX_CONDITIONS: usize = 31;

/// Checks that need the same stages, evaluated together.
pub(super) struct Scan<'c> {
    stages: &'c [Document],
    /// The index of each check, and its condition.
    conditions: Vec<(usize, &'c Bson)>,
}

/// Returns the passes that are necessary for `checks`. Searches of other kinds are omitted.
pub(super) fn scans<'c>(checks: impl Iterator<Item = &'c DataCheck>) -> Vec<Scan<'c>> {
    let mut scans: Vec<Scan<'c>> = Vec::new();
    for (index, check) in checks.enumerate() {
        let Some((stages, condition)) = condition(check) else { continue };
        let fits = |scan: &&mut Scan<'_>| scan.stages == stages && scan.conditions.len() < MAX_CONDITIONS;
        match scans.iter_mut().find(fits) {
            Some(scan) => scan.conditions.push((index, condition)),
            None => scans.push(Scan { stages, conditions: vec![(index, condition)] }),
        }
    }
    scans
}

/// The stages and the condition of a search for single documents.
pub(super) fn condition(check: &DataCheck) -> Option<(&[Document], &Bson)> {
    match &check.search {
        Search::Each(condition) => Some((&[], condition)),
        Search::Related { stages, condition } => Some((stages, condition)),
        Search::Duplicates { .. } | Search::Counter { .. } | Search::Copies => None,
    }
}

/// The documents of a pass.
pub(super) struct ScannedDocuments {
    cursor: Cursor<Document>,
    conditions: Vec<usize>,
}

impl Scan<'_> {
    /// Starts the pass. `shown` are fields that are returned too, under the names `v0`, `v1` and so on.
    ///
    /// # Errors
    /// The driver's error.
    pub(super) async fn open(
        &self,
        client: &Client,
        (database, collection): &CollectionName,
        shown: &[String],
        criteria: SelectionCriteria,
    ) -> Result<ScannedDocuments, Error> {
        let bits = self
            .conditions
            .iter()
            .enumerate()
            .map(|(bit, (_, condition))| Bson::from(doc! {"$cond": [(*condition).clone(), 1_i64 << bit, 0_i64]}));
        let sum = doc! {"$add": bits.collect::<Vec<_>>()};
        let mut result = doc! {"_id": {"$cond": [{"$gt": ["$b", 0]}, "$_id", "$$REMOVE"]}, "b": 1};
        let mut computed = doc! {"b": sum};
        for (number, field) in shown.iter().enumerate() {
            computed.insert(format!("v{number}"), format!("${field}"));
            result
                .insert(format!("v{number}"), doc! {"$cond": [{"$gt": ["$b", 0]}, format!("$v{number}"), "$$REMOVE"]});
        }
        let last = [doc! {"$project": computed}, doc! {"$project": result}];
        let pipeline: Vec<Document> = self.stages.iter().cloned().chain(last).collect();
        let command = doc! {"aggregate": collection, "pipeline": pipeline, "cursor": {"batchSize": BATCH}};
        let options = RunCursorCommandOptions::builder().batch_size(BATCH).selection_criteria(criteria).build();
        let command = RawDocumentBuf::try_from(&own_reads::of_current(command)).map_err(Error::custom)?;
        let cursor = client.database(database).run_raw_cursor_command(command).with_options(options).await?;
        let conditions = self.conditions.iter().map(|(index, _)| *index).collect();
        Ok(ScannedDocuments { cursor, conditions })
    }
}

impl ScannedDocuments {
    /// Returns the next document: its `_id` if a condition is true, and the checks whose condition is true.
    ///
    /// # Errors
    /// The driver's error.
    pub(super) async fn next(&mut self) -> Result<Option<(Option<Bson>, Vec<usize>)>, Error> {
        let Some(document) = self.next_document().await? else { return Ok(None) };
        let bits = whole(document.get("b")).unwrap_or(0);
        let matched = self.conditions.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
        Ok(Some((document.get("_id").cloned(), matched.map(|(_, index)| *index).collect())))
    }

    /// Returns the next document as the pass returns it.
    ///
    /// # Errors
    /// The driver's error.
    pub(super) async fn next_document(&mut self) -> Result<Option<Document>, Error> {
        if !self.cursor.advance().await? {
            return Ok(None);
        }
        Document::try_from(self.cursor.current()).map(Some).map_err(Error::custom)
    }
}
