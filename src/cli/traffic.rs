//! Reads recorded traffic from files for `audit` and `suggest`. One thread reads the files, another one interprets the
//! entries, in their order: what a statement does depends on the earlier ones of all connections.
//!
//! Memory is bounded for any file: entries pass through a short queue in batches. [`entries`] reads the files,
//! `crate::audit` interprets the entries.

pub(super) mod entries;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};

use self::entries::{FileKind, TrafficEntries};
use crate::audit::capture::CaptureReader;
use crate::audit::log::LogReader;
use crate::audit::report::TrafficFile;
use crate::audit::{RecordedCommand, Unreadable, profile};
use crate::command::{CommandClass, Namespace};

/// The size of a batch in bytes.
const BATCH: usize = 256 * 1024;
/// The most batches in the queue of the consumer.
const QUEUE: usize = 4;

/// Processes recorded commands.
pub(super) trait TrafficConsumer: Send {
    /// See [`crate::audit::CommandFilter`].
    fn is_relevant(&self, namespace: Namespace<'_>, class: CommandClass, command: &[u8]) -> bool;

    fn take(&mut self, recorded: &RecordedCommand);
}

/// Entries of one file: lines with their line breaks, or BSON documents.
struct EntryBatch {
    source: usize,
    kind: FileKind,
    bytes: Vec<u8>,
}

/// For each file, the number of unreadable entries and the error of the first one.
type Faults = Vec<(u64, Option<String>)>;

/// Reads the files with the consumer; returns the consumer and the files' properties.
///
/// # Errors
/// A file cannot be opened or read, or its kind is unknown.
pub(super) fn read_files<W: TrafficConsumer>(files: &[PathBuf], consumer: W) -> Result<(W, Vec<TrafficFile>)> {
    let progress = progress(files)?;
    let (consumer, faults, mut sources) = std::thread::scope(|scope| {
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
        let (consumer, faults) = done.ok().context("the worker thread failed; its error is above")?;
        anyhow::Ok((consumer, faults, sources))
    })?;
    progress.finish_and_clear();
    for (source, (count, first)) in sources.iter_mut().zip(faults) {
        source.unreadable += count;
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
    let kind = entries.kind;
    let mut batch = Vec::new();
    let send = |bytes: &mut Vec<u8>| {
        let bytes = std::mem::take(bytes);
        queue.send(EntryBatch { source, kind, bytes }).ok().context("the worker thread failed")
    };
    let mut found = entries.describe(path)?;
    let read = entries.read_all(&mut |_, entry| {
        if kind == FileKind::Log && memchr::memmem::find(entry, b"\"Slow query\"").is_none() {
            return Ok(());
        }
        batch.extend_from_slice(entry);
        if kind != FileKind::Capture {
            batch.push(b'\n');
        }
        if batch.len() >= BATCH { send(&mut batch) } else { Ok(()) }
    })?;
    send(&mut batch)?;
    found.unreadable = read.too_long;
    found.note = read.flaw.map(|flaw| flaw.to_string());
    Ok(found)
}

/// Runs the consumer until the traffic ends.
fn work<W: TrafficConsumer>(mut consumer: W, batches: &Receiver<EntryBatch>, sources: usize) -> (W, Faults) {
    let mut faults: Faults = vec![(0, None); sources];
    let (mut logs, mut captures) = (LogReader::default(), CaptureReader::default());
    let mut current = None;
    let mut out = Vec::new();
    for batch in batches {
        if current != Some(batch.source) {
            logs.finish(&mut out);
            captures.finish(&mut out);
            current = Some(batch.source);
        }
        let mut fault = |unreadable: Unreadable| {
            if let Some((count, first)) = faults.get_mut(batch.source) {
                *count += 1;
                first.get_or_insert(unreadable.0);
            }
        };
        let mut rest = batch.bytes.as_slice();
        while !rest.is_empty() {
            let (entry, after) = split(rest, batch.kind);
            rest = after;
            let wanted =
                |namespace: Namespace<'_>, class, command: &[u8]| consumer.is_relevant(namespace, class, command);
            let read = match batch.kind {
                FileKind::Log => logs.parse_line(entry, &wanted, &mut out),
                FileKind::Profile | FileKind::Empty => profile::parse_line(entry, &wanted, &mut out),
                FileKind::Capture => captures.parse_record(entry, &wanted, &mut out),
            };
            read.err().into_iter().for_each(&mut fault);
            out.drain(..).for_each(|recorded| consumer.take(&recorded));
        }
    }
    logs.finish(&mut out);
    captures.finish(&mut out);
    out.iter().for_each(|recorded| consumer.take(recorded));
    (consumer, faults)
}

/// The first entry of a batch, and the rest.
fn split(batch: &[u8], kind: FileKind) -> (&[u8], &[u8]) {
    let end = match kind {
        FileKind::Capture => batch.first_chunk().map_or(batch.len(), |bytes| u32::from_le_bytes(*bytes) as usize),
        FileKind::Log | FileKind::Profile | FileKind::Empty => {
            memchr::memchr(b'\n', batch).map_or(batch.len(), |end| end + 1)
        }
    };
    batch.split_at(end.clamp(1, batch.len()))
}
