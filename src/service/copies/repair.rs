//! Goes through every document with copies, and mends those that do not say what their original says.
//!
//! Copies are compared here and written by their `_id`, so that no index is needed and every stale one is
//! counted. What changes meanwhile is left to the worker that follows the changes.

use std::fmt;

use bson::RawDocumentBuf;

use super::Stop;
use super::mend::{Id, Mender, Original, project, raw};
use crate::document::{Document, Kind, Lookup, OwnedValue, Value, document};
use crate::patterns::copies::{Copies, Entry};
use crate::service::MongoService;

/// Documents compared in one go.
const BATCH: usize = 1000;

/// What a repair has seen so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Documents with a key.
    pub looked_at: u64,
    /// Those whose copies differ from the original.
    pub stale: u64,
    /// Those that were made true. The others were refused, or have been written by somebody else meanwhile.
    pub mended: u64,
    /// Writes that the server refused, for instance by a validator; each is in the log.
    pub refused: u64,
    /// Those whose original is not there; they are left alone.
    pub orphans: u64,
    /// Those that cannot carry copies as the rule names them: the key or a field around is an array or a scalar.
    pub misshapen: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { looked_at, stale, mended, refused, orphans, misshapen } = self;
        write!(f, "looked at {looked_at}, stale {stale}, mended {mended}, without original {orphans}")?;
        if *refused > 0 {
            write!(f, ", refused by the server {refused}")?;
        }
        if *misshapen > 0 {
            write!(f, ", unable to carry the copies {misshapen}")?;
        }
        Ok(())
    }
}

/// Mends the copies of the rule of this name, whatever its mode; with `dry_run` only counts.
///
/// # Errors
/// Text for people: the server's or the network's error. What was mended stays mended.
pub async fn run(
    service: &MongoService,
    rule: &str,
    copies: &Copies,
    dry_run: bool,
    progress: impl FnMut(&Counts),
) -> Result<Counts, String> {
    let server = service.server();
    let client = &server.client().map_err(|error| error.to_string())?;
    let result = repair(&Mender { client, copies, rule }, dry_run, progress).await;
    result.map_err(|stop| match stop {
        Stop::Failed(text) | Stop::HistoryLost(text) => text,
        Stop::Lost | Stop::Standalone => "the repair was interrupted".to_owned(),
    })
}

pub(super) async fn repair(
    mender: &Mender<'_>,
    dry_run: bool,
    mut progress: impl FnMut(&Counts),
) -> Result<Counts, Stop> {
    let mut counts = Counts::default();
    for entry in &mender.copies.entries {
        let command = document(|w| {
            w.string("find", &entry.into.name);
            w.nested("filter", |w| w.nested(entry.key.as_str(), |w| w.slot("$ne").null()));
            let paths = entry.fields.iter().map(|field| &field.copied).chain([&entry.key]);
            w.nested("projection", |w| project(w, paths));
        });
        let database = mender.client.database(&entry.into.database);
        let mut cursor = database.run_raw_cursor_command(raw(command)?).await?;
        let mut batch = Vec::with_capacity(BATCH);
        while cursor.advance().await? {
            batch.push(cursor.current().to_owned());
            if batch.len() == BATCH {
                check(mender, entry, &batch, dry_run, &mut counts).await?;
                progress(&counts);
                batch.clear();
            }
        }
        check(mender, entry, &batch, dry_run, &mut counts).await?;
        progress(&counts);
    }
    Ok(counts)
}

async fn check(
    mender: &Mender<'_>,
    entry: &Entry,
    batch: &[RawDocumentBuf],
    dry_run: bool,
    counts: &mut Counts,
) -> Result<(), Stop> {
    let copies: Vec<_> = batch.iter().filter_map(|copy| Document::parse(copy.as_bytes()).ok()).collect();
    counts.looked_at += batch.len() as u64;
    let keys = copies.iter().filter_map(|copy| key(entry, *copy));
    let mut ids: Vec<OwnedValue> = keys.map(OwnedValue::from).collect();
    ids.sort_unstable_by(|a, b| a.as_value().bytes.cmp(b.as_value().bytes));
    ids.dedup();
    let originals = mender.originals(&ids, None).await?;
    let mut work = mender.work();
    for copy in copies {
        let original = key(entry, copy).map(|key| originals.get(&Id::from(key)));
        match original.map(|original| original.map(|original| (original, compare(entry, copy, original)))) {
            None | Some(Some((_, Compared::Misshapen))) => counts.misshapen += 1,
            Some(None) => counts.orphans += 1,
            Some(Some((_, Compared::True))) => {}
            Some(Some((original, Compared::Stale))) => {
                counts.stale += 1;
                work.add(entry, original, copy.get("_id").map(OwnedValue::from).as_ref());
            }
        }
    }
    if !dry_run {
        let written = work.write().await?;
        counts.mended += written.changed;
        counts.refused += written.refused;
    }
    Ok(())
}

/// The one original a document points to.
fn key<'d>(entry: &Entry, copy: Document<'d>) -> Option<Value<'d>> {
    match entry.key.lookup(copy) {
        Lookup::Found(key) if !matches!(key.kind, Kind::Array | Kind::Regex | Kind::Undefined) => Some(key),
        _ => None,
    }
}

enum Compared {
    True,
    Stale,
    Misshapen,
}

fn compare(entry: &Entry, copy: Document<'_>, original: &Original) -> Compared {
    let mut compared = Compared::True;
    for field in &entry.fields {
        let said = match field.original.lookup(original.document()) {
            Lookup::Found(value) => Some(value),
            Lookup::Missing | Lookup::Blocked(_) => None,
        };
        let copied = match field.copied.lookup(copy) {
            Lookup::Found(value) => Some(value),
            Lookup::Missing => None,
            Lookup::Blocked(_) => return Compared::Misshapen,
        };
        if said != copied {
            compared = Compared::Stale;
        }
    }
    compared
}
