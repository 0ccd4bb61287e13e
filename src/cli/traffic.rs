//! Reads recorded traffic from files for `audit` and `suggest`. One thread reads the files, another one interprets the
//! entries, in their order: what a statement does depends on the earlier ones of all connections.
//!
//! Memory is bounded for any file: entries pass through a short queue in batches. [`entries`] reads the files,
//! `crate::audit` interprets the entries.

pub(super) mod entries;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

use self::entries::{CaptureDamage, EntryKind, TrafficEntries};
use crate::audit::capture::CaptureReader;
use crate::audit::log::LogReader;
use crate::audit::report::TrafficFile;
use crate::audit::{RecordedCommand, Unreadable, log, profile};
use crate::command::{CommandClass, Namespace, own};

/// The size of a batch in bytes.
const BATCH: usize = 256 * 1024;
/// The most batches in the queue of the consumer.
const QUEUE: usize = 4;

/// Processes recorded commands.
pub(super) trait TrafficConsumer: Send {
    /// See [`crate::audit::CommandFilter`].
    fn is_relevant(&self, namespace: Namespace<'_>, class: CommandClass, command: &[u8]) -> bool;

    fn add_command(&mut self, recorded: &RecordedCommand);
}

/// Entries of one file: JSON objects, or BSON documents.
struct EntryBatch {
    source: usize,
    bytes: Vec<u8>,
    entries: Vec<BatchEntry>,
}

struct BatchEntry {
    kind: EntryKind,
    /// Where it begins in the decompressed file.
    position: u64,
    length: usize,
}

/// What was read of the entries of one file.
#[derive(Debug, Clone, Default)]
struct EntryCounts {
    readable: u64,
    unreadable: u64,
    /// Entries of docward's own work.
    own: u64,
    /// The error of the first unreadable one.
    first: Option<String>,
}

/// Reads the files with the consumer; returns the consumer and the files' properties.
///
/// # Errors
/// A file cannot be opened or read, its kind is unknown, or nothing in it can be read.
pub(super) fn read_files<W: TrafficConsumer>(files: &[PathBuf], consumer: W) -> Result<(W, Vec<TrafficFile>)> {
    let progress = progress(files)?;
    let (consumer, counts, mut sources) = std::thread::scope(|scope| {
        let (queue, batches) = sync_channel(QUEUE);
        let running = scope.spawn(move || work(consumer, &batches, files.len()));
        let read: Result<Vec<TrafficFile>> = files
            .iter()
            .enumerate()
            .map(|(source, path)| {
                read_file(source, path, &queue, &progress).with_context(|| path.display().to_string())
            })
            .collect();
        drop(queue);
        let done = running.join();
        let sources = read?;
        let (consumer, counts) = done.ok().context("the worker thread failed; its error is above")?;
        anyhow::Ok((consumer, counts, sources))
    })?;
    progress.finish_and_clear();
    for (source, EntryCounts { readable, unreadable, own, first }) in sources.iter_mut().zip(counts) {
        if let (0, Some(first)) = (readable, &first) {
            bail!("{}: no entry can be read; {first}", source.name);
        }
        source.unreadable += unreadable;
        source.own += own;
        source.note = source.note.take().or(first);
    }
    Ok((consumer, sources))
}

/// A progress bar, visible only on a terminal.
fn progress(files: &[PathBuf]) -> Result<ProgressBar> {
    let mut bytes = 0;
    for path in files {
        bytes += std::fs::metadata(path).with_context(|| path.display().to_string())?.len();
    }
    let progress = ProgressBar::new(bytes);
    let style =
        ProgressStyle::with_template("{bar:40} {percent:>3} %  {bytes} of {total_bytes}  {bytes_per_sec}  {eta}");
    Ok(progress.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
}

fn read_file(
    source: usize,
    path: &Path,
    queue: &SyncSender<EntryBatch>,
    progress: &ProgressBar,
) -> Result<TrafficFile> {
    let entries = TrafficEntries::open(path, |file| Box::new(progress.wrap_read(file)))?;
    let mut batch = EntryBatch { source, bytes: Vec::new(), entries: Vec::new() };
    let send = |batch: &mut EntryBatch| {
        let empty = EntryBatch { source, bytes: Vec::new(), entries: Vec::new() };
        queue.send(std::mem::replace(batch, empty)).ok().context("the worker thread failed")
    };
    let read = entries.read_all(&mut |kind, position, entry| {
        if kind == EntryKind::Log && !log::is_command(entry) {
            return Ok(());
        }
        batch.entries.push(BatchEntry { kind, position, length: entry.len() });
        batch.bytes.extend_from_slice(entry);
        if batch.bytes.len() >= BATCH { send(&mut batch) } else { Ok(()) }
    })?;
    send(&mut batch)?;
    let note = match read.flaw {
        Some(damage @ CaptureDamage::Damaged { .. }) => bail!("{damage}"),
        cut => cut.map(|cut| cut.to_string()).or(read.first),
    };
    Ok(TrafficFile {
        name: path.display().to_string(),
        kind: read.kinds.name(),
        bytes: std::fs::metadata(path)?.len(),
        unreadable: read.unreadable,
        skipped: read.other,
        own: 0,
        note,
    })
}

/// Runs the consumer until the traffic ends.
fn work<W: TrafficConsumer>(mut consumer: W, batches: &Receiver<EntryBatch>, sources: usize) -> (W, Vec<EntryCounts>) {
    let mut counts = vec![EntryCounts::default(); sources];
    let (mut logs, mut captures) = (LogReader::default(), CaptureReader::default());
    let mut current = None;
    let mut out = Vec::new();
    for batch in batches {
        if current != Some(batch.source) {
            logs.finish(&mut out);
            captures.finish(&mut out);
            current = Some(batch.source);
        }
        let Some(counts) = counts.get_mut(batch.source) else { continue };
        let mut rest = batch.bytes.as_slice();
        for BatchEntry { kind, position, length } in batch.entries {
            let Some((entry, after)) = rest.split_at_checked(length) else { break };
            rest = after;
            let is_own = Cell::new(false);
            let wanted = |namespace: Namespace<'_>, class, command: &[u8]| {
                is_own.set(namespace.database == own::DATABASE);
                !is_own.get() && consumer.is_relevant(namespace, class, command)
            };
            let read = match kind {
                EntryKind::Log => logs.parse_line(entry, &wanted, &mut out),
                EntryKind::Profile => profile::parse_line(entry, &wanted, &mut out),
                EntryKind::Capture => captures.parse_record(entry, &wanted, &mut out),
            };
            match read {
                Ok(()) => counts.readable += 1,
                Err(Unreadable(reason)) => {
                    counts.unreadable += 1;
                    counts.first.get_or_insert_with(|| format!("the entry at byte {position}: {reason}"));
                }
            }
            counts.own += u64::from(is_own.get());
            out.drain(..).for_each(|recorded| consumer.add_command(&recorded));
        }
    }
    logs.finish(&mut out);
    captures.finish(&mut out);
    out.iter().for_each(|recorded| consumer.add_command(recorded));
    (consumer, counts)
}
