//! Searches stored documents for what rules need and forbid (`docward check --data`), and sets what can be set safely
//! (`docward backfill`).
//!
//! The patterns declare the searches ([`DataCheck`]). One pass over a collection evaluates those of all rules. It reads
//! a secondary if there is one, and pauses after each batch for as long as the batch took.

mod backfill;
mod duplicates;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::error::Error;
use mongodb::options::{ReadPreference, SelectionCriteria};

use super::MongoService;
use super::client::ServiceClient;
use super::copies::repair::{self, RepairEvent};
use super::listing::{CollectionName, applying, count, first_batch, whole};
use super::own_reads;
use super::pattern_work::PatternWork;
use super::pause::Pause;
use crate::command::Namespace;
use crate::document::{Value, document};
use crate::engine::lookup::{CounterId, Maximum};
use crate::patterns::{DataCheck, Requirement, Search};
use crate::rules::{Mode, Rule, RuleId, RuleSet};

pub use backfill::{Filled, backfill};

/// `_id`s that are kept of the documents of one search.
const EXAMPLES: usize = 5;

/// The documents that one search found in one collection.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub rule: RuleId,
    /// `database.collection`
    pub collection: String,
    pub check: DataCheck,
    pub count: u64,
    /// `_id`s of some of them.
    pub examples: Vec<Bson>,
}

/// What is being read.
#[derive(Debug, Clone, Default)]
pub struct ScanProgress {
    pub collection: String,
    pub documents: u64,
}

impl ScanProgress {
    fn from_name((database, collection): &CollectionName) -> Self {
        Self { collection: format!("{database}.{collection}"), documents: 0 }
    }
}

impl fmt::Display for ScanProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} documents read", self.collection, self.documents)
    }
}

/// A check, and the rule that it belongs to.
struct RuleCheck {
    rule: RuleId,
    check: DataCheck,
}

/// Searches the collections of all enabled rules.
///
/// # Errors
/// The server cannot be asked, or does not permit it, as text.
pub async fn check(
    service: &MongoService,
    rules: &RuleSet,
    mut progress: impl FnMut(&ScanProgress),
) -> Result<Vec<Finding>, String> {
    let server = service.server();
    let client = &server.client().map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    let mut by_collection: BTreeMap<CollectionName, Vec<RuleCheck>> = BTreeMap::new();
    for rule in rules.rules().iter().filter(|rule| rule.mode != Mode::Disabled) {
        let mut checks = Vec::new();
        for name in applying(&server, rules, rule).await? {
            checks.extend(checks_of(rule, &name).into_iter().map(|check| (name.clone(), check)));
        }
        let mut copies = BTreeSet::new();
        for (name, check) in checks {
            if check.search != Search::Copies {
                by_collection.entry(name).or_default().push(RuleCheck { rule: rule.id, check });
            } else if copies.insert(rule.id) {
                found.extend(stale_copies(service, rule, &check, &mut progress).await?);
            }
        }
    }
    for (name, checks) in &by_collection {
        found.extend(search(client, name, checks, &mut progress).await.map_err(|error| failed(&server, &error, name))?);
    }
    found.sort_by_key(|finding| finding.rule);
    Ok(found)
}

fn checks_of(rule: &Rule, (database, collection): &CollectionName) -> Vec<DataCheck> {
    let mut checks = rule.pattern.data_checks(Namespace { database, collection });
    if rule.properties.requirements.contains(&Requirement::PipelineUpdates) {
        checks.extend(DataCheck::repeated_names());
    }
    checks
}

fn failed(server: &ServiceClient, error: &Error, (database, collection): &CollectionName) -> String {
    format!("`{database}.{collection}`: {}", server.describe(error))
}

/// Evaluates all checks on one collection.
async fn search(
    client: &Client,
    name: &CollectionName,
    checks: &[RuleCheck],
    progress: &mut impl FnMut(&ScanProgress),
) -> Result<Vec<Finding>, Error> {
    let mut counts: Vec<(u64, Vec<Bson>)> = vec![(0, Vec::new()); checks.len()];
    for scan in scan::scans(checks.iter().map(|one| &one.check)) {
        let mut cursor = scan.open(client, name, &[], secondary()).await?;
        let mut shown = ScanProgress::from_name(name);
        let mut pause = Pause::default();
        while let Some((id, matched)) = cursor.next().await? {
            shown.documents += 1;
            for check in matched {
                let Some((count, examples)) = counts.get_mut(check) else { continue };
                *count += 1;
                if examples.len() < EXAMPLES {
                    examples.extend(id.clone());
                }
            }
            if pause.after_document().await {
                progress(&shown);
            }
        }
    }
    for (one, counted) in checks.iter().zip(&mut counts) {
        *counted = match &one.check.search {
            Search::Duplicates { field } => duplicates::search(client, name, field, progress).await?,
            Search::Counter { .. } => above_counter(client, name, &one.check.search).await?,
            Search::Each(_) | Search::Related { .. } | Search::Copies => continue,
        };
    }
    let findings = checks.iter().zip(counts).filter(|(_, (count, _))| *count > 0);
    let findings = findings.map(|(RuleCheck { rule, check }, (count, examples))| Finding {
        rule: *rule,
        collection: format!("{}.{}", name.0, name.1),
        check: check.clone(),
        count,
        examples,
    });
    Ok(findings.collect())
}

/// The documents with a number above the counter.
async fn above_counter(client: &Client, name: &CollectionName, search: &Search) -> Result<(u64, Vec<Bson>), Error> {
    let (database, collection) = name;
    let Search::Counter { field, .. } = search else { return Ok((0, Vec::new())) };
    let Some(least) = last_number(client, search).await? else { return Ok((0, Vec::new())) };
    let above = numbers_above(name, field, least)?;
    let query = doc! {"find": collection, "filter": above.clone(), "projection": {"_id": 1}, "limit": EXAMPLES as i64};
    let reply = client.database(database).run_command(own_reads::of_current(query)).await?;
    let examples: Vec<Bson> = first_batch(&reply).filter_map(|found| found.get("_id").cloned()).collect();
    if examples.is_empty() {
        return Ok((0, examples));
    }
    let command = doc! {"count": collection, "query": above};
    let reply = client.database(database).run_command(own_reads::of_current(command)).await?;
    Ok((count(&reply, "n"), examples))
}

/// The filter for numbers above the last one of a counter, among those that count for it.
fn numbers_above((database, collection): &CollectionName, field: &str, last: i64) -> Result<Document, Error> {
    let (database, collection) = (database.clone(), collection.clone());
    let counting = Maximum { database, collection, field: field.to_owned() }.filter();
    let counting = Document::from_reader(counting.as_slice())?;
    Ok(doc! {"$and": [counting, {field: {"$gt": last}}]})
}

/// The last number of a counter; `None` if docward will find it when it creates the counter.
async fn last_number(client: &Client, search: &Search) -> Result<Option<i64>, Error> {
    let Search::Counter { database, collection, id, may_be_missing, .. } = search else { return Ok(None) };
    let find = doc! {"find": collection, "filter": {"_id": id}, "limit": 1};
    let reply = client.database(database).run_command(own_reads::of_current(find)).await?;
    let seq = first_batch(&reply).next().and_then(|counter| whole(counter.get("seq")));
    let counter = CounterId {
        database: database.as_str().into(),
        collection: collection.as_str().into(),
        id: id.as_str().into(),
    };
    let provided = counter.of_provided();
    let find = doc! {"find": &*provided.collection, "filter": {"_id": &*provided.id}, "limit": 1};
    // Without the privilege its user may not know them.
    let provided = client.database(&provided.database).run_command(own_reads::of_current(find)).await.ok();
    let provided = provided.and_then(|reply| whole(first_batch(&reply).next()?.get("seq")));
    let seq = seq.max(provided);
    Ok(seq.or((!may_be_missing).then_some(0)))
}

/// The documents with stale copies, by their collection.
async fn stale_copies(
    service: &MongoService,
    rule: &Rule,
    check: &DataCheck,
    progress: &mut impl FnMut(&ScanProgress),
) -> Result<Vec<Finding>, String> {
    let Some(PatternWork::Copies(copies)) = PatternWork::for_pattern(&rule.pattern) else { return Ok(Vec::new()) };
    let mut stale: BTreeMap<String, (u64, Vec<Bson>)> = BTreeMap::new();
    let report = |event: RepairEvent<'_>| match event {
        RepairEvent::Progress { namespace, documents, .. } => {
            progress(&ScanProgress { collection: namespace.to_owned(), documents });
        }
        RepairEvent::Stale { namespace, id } => {
            let (count, examples) = stale.entry(namespace).or_default();
            *count += 1;
            if examples.len() < EXAMPLES {
                examples.extend(to_bson(id));
            }
        }
    };
    repair::run(service, &rule.name.value, copies, true, report).await?;
    let finding =
        |(collection, (count, examples))| Finding { rule: rule.id, collection, check: check.clone(), count, examples };
    Ok(stale.into_iter().map(finding).collect())
}

fn to_bson(id: Value<'_>) -> Option<Bson> {
    let bytes = document(|w| w.value("_id", id));
    Document::from_reader(bytes.as_slice()).ok()?.remove("_id")
}

/// A secondary if there is one, so that the primary is left to the applications.
pub(super) fn secondary() -> SelectionCriteria {
    SelectionCriteria::ReadPreference(ReadPreference::SecondaryPreferred { options: None })
}
