//! Sets what a rule needs in documents that lack it.
//!
//! Each update repeats the search's condition in its filter, so a concurrent change is never overwritten, and a second
//! run continues where the first one ended. Writes are acknowledged by a majority.

use std::fmt;

use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::error::Error;
use mongodb::options::{ReadPreference, SelectionCriteria};

use super::super::listing::{CollectionName, applying, count, first_batch, whole};
use super::scan::{self, Scan};
use super::{ScanProgress, checks_of, failed, last_number, numbers_above};
use crate::command::repeated_name_in;
use crate::patterns::{Backfill, DataCheck, Rejection, Search};
use crate::rules::{Rule, RuleSet};
use crate::service::MongoService;
use crate::service::copies::repair::{self, RepairEvent};
use crate::service::own_reads;
use crate::service::pattern_work::PatternWork;
use crate::service::pause::Pause;
use crate::service::pipeline::checked;

/// Statements in one update.
const STATEMENTS: usize = 500;
/// Passes over a collection whose documents depend on each other: each corrects one level of a tree.
const MAX_PASSES: usize = 200;

/// The result of one backfill on one collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filled {
    /// `database.collection`
    pub collection: String,
    /// Such as "`try: 0`".
    pub what: String,
    /// Documents that lacked it.
    pub found: u64,
    pub changed: u64,
    /// Writes that the server rejected, for instance by a validator or a unique index.
    pub rejected: u64,
    /// The first of these errors.
    pub error: Option<String>,
}

impl fmt::Display for Filled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collection, what, found, changed, rejected, error } = self;
        write!(f, "{collection}: {what}: found {found}, set {changed}")?;
        if *rejected > 0 {
            write!(f, ", rejected by the server {rejected} ({})", error.as_deref().unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Sets what `rule` needs, whatever its mode; with `dry_run` only counts. `report` gets the result of each step.
///
/// # Errors
/// The server or network error as text. Completed changes remain.
pub async fn backfill(
    service: &MongoService,
    rules: &RuleSet,
    rule: &Rule,
    dry_run: bool,
    mut report: impl FnMut(&Filled),
    mut progress: impl FnMut(&ScanProgress),
) -> Result<(), String> {
    let server = service.server();
    let client = &server.client().map_err(|error| error.to_string())?;
    if let Some(PatternWork::Copies(copies)) = PatternWork::for_pattern(&rule.pattern) {
        let report_copies = |event: RepairEvent<'_>| {
            if let RepairEvent::Progress { namespace, documents, .. } = event {
                progress(&ScanProgress { collection: namespace.to_owned(), documents });
            }
        };
        let counts = repair::run(service, &rule.name.value, copies, dry_run, report_copies).await?;
        report(&Filled {
            collection: copies.originals.to_string(),
            what: "copies of its documents".to_owned(),
            found: counts.stale,
            changed: counts.repaired,
            rejected: counts.rejected,
            error: (counts.rejected > 0).then(|| "see the log".to_owned()),
        });
        return Ok(());
    }
    for name in applying(&server, rules, rule).await? {
        for check in checks_of(rule, &name) {
            let mut step =
                CollectionBackfill { client, name: &name, check: &check, dry_run, filled: Filled::default() };
            if step.run(&mut progress).await.map_err(|error| failed(&server, &error, &name))? {
                report(&step.filled);
            }
        }
    }
    Ok(())
}

/// One backfill on one collection.
struct CollectionBackfill<'s> {
    client: &'s Client,
    name: &'s CollectionName,
    check: &'s DataCheck,
    dry_run: bool,
    filled: Filled,
}

impl CollectionBackfill<'_> {
    /// Returns false if nothing can be set.
    async fn run(&mut self, progress: &mut impl FnMut(&ScanProgress)) -> Result<bool, Error> {
        self.filled.collection = format!("{}.{}", self.name.0, self.name.1);
        match &self.check.backfill {
            Some(Backfill::Update { what, pipeline }) => {
                self.filled.what.clone_from(what);
                let Some((_, condition)) = scan::condition(self.check) else { return Ok(false) };
                let pipeline = checked(pipeline.clone())?;
                let statement = |found: &Document| {
                    let filter = doc! {"_id": {"$eq": found.get("_id")}, "$expr": condition.clone()};
                    doc! {"q": filter, "u": pipeline.clone()}
                };
                self.pass(&[], statement, progress).await?;
            }
            Some(Backfill::Computed { what, field, computed, unchanged }) => {
                self.filled.what.clone_from(what);
                let shown: Vec<String> = unchanged.iter().cloned().chain([(*computed).to_owned()]).collect();
                let statement = |found: &Document| computed_statement(found, field, unchanged);
                for _ in 0..MAX_PASSES {
                    let before = self.filled.changed;
                    self.pass(&shown, statement, progress).await?;
                    if self.filled.changed == before {
                        break;
                    }
                }
            }
            Some(Backfill::Counter) => self.raise_counter().await?,
            Some(Backfill::Copies) | None => return Ok(false),
        }
        Ok(true)
    }

    /// Updates the documents that fulfil the condition now.
    async fn pass(
        &mut self,
        shown: &[String],
        statement: impl Fn(&Document) -> Document,
        progress: &mut impl FnMut(&ScanProgress),
    ) -> Result<(), Error> {
        let scans: Vec<Scan<'_>> = scan::scans(std::iter::once(self.check));
        let mut statements = Vec::new();
        let mut reading = ScanProgress::from_name(self.name);
        let mut pause = Pause::default();
        for scan in &scans {
            let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
            let mut cursor = scan.open(self.client, self.name, shown, primary).await?;
            while let Some(found) = cursor.next_document().await? {
                reading.documents += 1;
                if whole(found.get("b")).unwrap_or(0) != 0 {
                    statements.push(statement(&found));
                }
                if statements.len() >= STATEMENTS {
                    self.write(std::mem::take(&mut statements)).await?;
                }
                if pause.after_document().await {
                    progress(&reading);
                }
            }
        }
        self.write(statements).await
    }

    async fn write(&mut self, statements: Vec<Document>) -> Result<(), Error> {
        self.filled.found += statements.len() as u64;
        if self.dry_run || statements.is_empty() {
            return Ok(());
        }
        let (database, collection) = self.name;
        let command = doc! {
            "update": collection, "updates": statements, "ordered": false, "writeConcern": {"w": "majority"},
        };
        let reply = self.client.database(database).run_command(command).await?;
        self.filled.changed += count(&reply, "nModified");
        let errors: Vec<&Document> =
            reply.get_array("writeErrors").into_iter().flatten().filter_map(Bson::as_document).collect();
        self.filled.rejected += errors.len() as u64;
        let first = errors.first().and_then(|error| error.get_str("errmsg").ok());
        if self.filled.error.is_none() {
            self.filled.error = first.map(|text| match repeated_name_in(text) {
                Some(id) => Rejection::repeated_name(id).reason,
                None => text.to_owned(),
            });
        }
        Ok(())
    }

    /// Raises the counter to the largest number. It is never lowered.
    async fn raise_counter(&mut self) -> Result<(), Error> {
        let Search::Counter { database, collection, id, field, .. } = &self.check.search else { return Ok(()) };
        self.filled.what = format!("the counter `{id}` to the largest `{field}`");
        let Some(last) = last_number(self.client, &self.check.search).await? else { return Ok(()) };
        let largest = doc! {
            "find": &self.name.1, "filter": numbers_above(self.name, field, last)?, "sort": {field: -1}, "limit": 1,
            "projection": {"_id": 0, "n": {"$toLong": {"$ceil": format!("${field}")}}},
        };
        let reply = self.client.database(&self.name.0).run_command(own_reads::of_current(largest)).await?;
        let largest = first_batch(&reply).next().and_then(|found| whole(found.get("n")));
        let Some(largest) = largest else { return Ok(()) };
        self.filled.found = 1;
        if self.dry_run {
            return Ok(());
        }
        let statement = doc! {"q": {"_id": id}, "u": {"$max": {"seq": largest}}, "upsert": true};
        let command = doc! {"update": collection, "updates": [statement], "writeConcern": {"w": "majority"}};
        let reply = self.client.database(database).run_command(command).await?;
        let inserted = reply.get_array("upserted").map_or(0, Vec::len) as u64;
        self.filled.changed = inserted + count(&reply, "nModified");
        Ok(())
    }
}

/// Sets a computed value if the fields that it depends on are as they were read.
fn computed_statement(found: &Document, field: &str, unchanged: &[String]) -> Document {
    let mut filter = doc! {"_id": {"$eq": found.get("_id")}};
    for (number, name) in unchanged.iter().enumerate() {
        let condition = match found.get(format!("v{number}")) {
            Some(value) => doc! {"$eq": value},
            None => doc! {"$exists": false},
        };
        filter.insert(name, condition);
    }
    let value = found.get(format!("v{}", unchanged.len())).cloned().unwrap_or(Bson::Null);
    doc! {"q": filter, "u": {"$set": {field: value}}}
}
