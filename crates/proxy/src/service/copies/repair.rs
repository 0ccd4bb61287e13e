//! Checks every document with copies, and repairs stale ones.
//!
//! Copies are compared here and written by their `_id`, so that no index is needed and every stale one is counted.
//! Concurrent changes are left to the worker that follows them.

use std::collections::{HashMap, HashSet};
use std::fmt;

use bson::RawDocumentBuf;

use super::original::Original;
use super::repairer::{Repairer, project};
use crate::document::{Document, OwnedValue, PathLookup, Value, document};
use crate::patterns::copies::{Copies, CopiesEntry, Reference};
use crate::service::MongoService;
use crate::service::id::IdKey;
use crate::service::own_reads;
use crate::service::pause::{BATCH, Pause};
use crate::service::worker::{Stop, raw};

/// The progress of a repair, in references. A document that refers to one original several times counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepairCounts {
    pub looked_at: u64,
    /// References whose copies differ from the original.
    pub stale: u64,
    /// Stale references that were repaired. The server rejected the others, or an application has changed them
    /// meanwhile.
    pub repaired: u64,
    /// Writes rejected by the server, for instance by a validator; each is logged.
    pub rejected: u64,
    /// References without an original; they are not changed.
    pub orphans: u64,
    /// Documents that cannot hold copies as the rule defines them: the key is an array, or a field around the key or a
    /// copy is a scalar or an array of another form.
    pub misshapen: u64,
}

/// What a repair reports while it runs.
#[derive(Debug)]
pub enum RepairEvent<'e> {
    /// The collection with the copies, and how many of its documents were checked.
    Progress { namespace: &'e str, documents: u64, counts: &'e RepairCounts },
    /// A document with a stale copy, in the collection of this name; only in a dry run.
    Stale { namespace: String, id: Value<'e> },
}

impl fmt::Display for RepairCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { looked_at, stale, repaired, rejected, orphans, misshapen } = self;
        write!(f, "checked {looked_at}, stale {stale}, repaired {repaired}, without original {orphans}")?;
        if *rejected > 0 {
            write!(f, ", rejected by the server {rejected}")?;
        }
        if *misshapen > 0 {
            write!(f, ", unable to hold the copies {misshapen}")?;
        }
        Ok(())
    }
}

/// Repairs the copies of the rule of this name, whatever its mode; with `dry_run` only counts and
/// reports the stale ones. Pauses after each batch.
///
/// # Errors
/// The server or network error as text. Completed repairs remain.
pub async fn run(
    service: &MongoService,
    rule: &str,
    copies: &Copies,
    dry_run: bool,
    report: impl FnMut(RepairEvent<'_>),
) -> Result<RepairCounts, String> {
    let server = service.server();
    let client = &server.client().map_err(|error| error.to_string())?;
    let result = repair(&Repairer::new(client, copies, rule), dry_run, Some(Pause::default()), report).await;
    result.map_err(|stop| stop.describe(&server))
}

pub(super) async fn repair(
    repairer: &Repairer<'_>,
    dry_run: bool,
    mut pause: Option<Pause>,
    mut report: impl FnMut(RepairEvent<'_>),
) -> Result<RepairCounts, Stop> {
    let mut counts = RepairCounts::default();
    for entry in &repairer.copies.entries {
        let (namespace, mut documents) = (entry.into.to_string(), 0);
        let command = document(|w| {
            w.string("find", &entry.into.name);
            w.nested("filter", |w| w.nested(entry.key.as_str(), |w| w.boolean("$exists", true)));
            let paths = entry.paths();
            w.nested("projection", |w| project(w, paths));
            own_reads::write(w, own_reads::LOCAL);
        });
        let database = repairer.client.database(&entry.into.database);
        let mut cursor = database.run_raw_cursor_command(raw(command)?).await?;
        let mut batch = Vec::with_capacity(BATCH as usize);
        loop {
            let has_next = cursor.advance().await?;
            if has_next {
                batch.push(cursor.current().to_owned());
            }
            if has_next && batch.len() < BATCH as usize {
                continue;
            }
            check(repairer, entry, &batch, dry_run, (&mut counts, &mut report)).await?;
            documents += batch.len() as u64;
            report(RepairEvent::Progress { namespace: &namespace, documents, counts: &counts });
            if !has_next {
                break;
            }
            batch.clear();
            if let Some(pause) = &mut pause {
                pause.after_batch().await;
            }
        }
    }
    Ok(counts)
}

async fn check(
    repairer: &Repairer<'_>,
    entry: &CopiesEntry,
    batch: &[RawDocumentBuf],
    dry_run: bool,
    (counts, report): (&mut RepairCounts, &mut impl FnMut(RepairEvent<'_>)),
) -> Result<(), Stop> {
    let copies: Vec<_> = batch.iter().filter_map(|copy| Document::parse(copy.as_bytes()).ok()).collect();
    let copies: Vec<_> = copies.into_iter().map(|copy| (copy, references(entry, copy))).collect();
    let mut asked = HashSet::new();
    let ids = copies.iter().flat_map(|(_, references)| &references.found);
    let ids: Vec<OwnedValue> =
        ids.filter(|(id, _)| asked.insert(*id)).map(|(_, holders)| holders.key.clone()).collect();
    let originals = repairer.originals(&ids, None).await?;
    let mut work = repairer.work();
    for (copy, references) in &copies {
        let mut stale = false;
        let mut misshapen = references.misshapen;
        for (id, holders) in &references.found {
            counts.looked_at += 1;
            let Some(original) = originals.get(id) else {
                counts.orphans += 1;
                continue;
            };
            let compared: Vec<_> = holders.documents.iter().map(|holder| compare(entry, *holder, original)).collect();
            misshapen |= compared.contains(&CopyState::Misshapen);
            if compared.contains(&CopyState::Stale) {
                counts.stale += 1;
                stale = true;
                work.add(entry, original, copy.get("_id").map(OwnedValue::from).as_ref());
            }
        }
        counts.misshapen += u64::from(misshapen);
        if let Some(id) = copy.get("_id").filter(|_| dry_run && stale) {
            let namespace = format!("{}.{}", entry.into.database, entry.into.name);
            report(RepairEvent::Stale { namespace, id });
        }
    }
    if !dry_run {
        let written = work.write().await?;
        counts.repaired += written.changed;
        counts.rejected += written.rejected;
    }
    Ok(())
}

/// The references in a document.
struct References<'d> {
    found: HashMap<IdKey, ReferringSubdocuments<'d>>,
    /// A value has the wrong form for a reference.
    misshapen: bool,
}

/// The subdocuments that refer to one original.
struct ReferringSubdocuments<'d> {
    key: OwnedValue,
    documents: Vec<Document<'d>>,
}

fn references<'d>(entry: &CopiesEntry, copy: Document<'d>) -> References<'d> {
    let holders = entry.holders(copy);
    let mut references = References { found: HashMap::new(), misshapen: holders.nested };
    for holder in holders.documents {
        match entry.reference(holder) {
            Reference::Nothing => {}
            Reference::Misshapen => references.misshapen = true,
            Reference::To(key) => {
                let found = references.found.entry(IdKey::from(key));
                let found = found.or_insert_with(|| ReferringSubdocuments { key: key.into(), documents: Vec::new() });
                found.documents.push(holder);
            }
        }
    }
    references
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyState {
    Current,
    Stale,
    Misshapen,
}

fn compare(entry: &CopiesEntry, holder: Document<'_>, original: &Original) -> CopyState {
    let mut compared = CopyState::Current;
    for field in &entry.fields {
        let copied = match field.local.lookup(holder) {
            PathLookup::Found(value) => Some(value),
            PathLookup::Missing => None,
            PathLookup::Blocked(_) => return CopyState::Misshapen,
        };
        if original.value(field) != copied {
            compared = CopyState::Stale;
        }
    }
    compared
}
