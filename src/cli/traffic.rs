//! Reads recorded traffic from files for `audit` and `suggest`, and distributes the entries to two workers. All entries of
//! a connection go to the same worker, in order.
//!
//! Memory is bounded for any file: lines pass through short queues in batches. [`entries`] reads the files,
//! `crate::audit` interprets the entries.

pub(super) mod entries;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

use self::entries::{Entries, FileKind};
use crate::audit::log::LogReader;
use crate::audit::report::ReportSource;
use crate::audit::{RecordedCommand, Unreadable, capture, log, profile};
use crate::command::{CommandClass, Namespace, classify};
use crate::document::{Document, Value, peek};

/// Worker threads, in addition to the reading thread.
const WORKERS: usize = 2;
/// The size of a batch in bytes.
const BATCH: usize = 256 * 1024;
/// The most batches in the queue of a worker.
const QUEUE: usize = 4;

/// Processes recorded commands; each thread has its own.
pub(super) trait Worker: Send {
    /// See [`crate::audit::Wanted`].
    fn wants(&self, namespace: Namespace<'_>, class: CommandClass, command: &[u8]) -> bool;

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

/// Reads the files and returns the workers and the files' properties.
///
/// # Errors
/// A file cannot be opened or read, or its kind is unknown.
pub(super) fn read_files<W: Worker>(files: &[PathBuf], make: impl Fn() -> W) -> Result<(Vec<W>, Vec<ReportSource>)> {
    let progress = progress(files)?;
    let workers: Vec<W> = (0..WORKERS).map(|_| make()).collect();
    let (workers, mut sources) = std::thread::scope(|scope| {
        let mut queues = Vec::new();
        let mut running = Vec::new();
        for worker in workers {
            let (queue, batches) = sync_channel(QUEUE);
            queues.push(queue);
            running.push(scope.spawn(move || work(worker, &batches, files.len())));
        }
        let read: Result<Vec<ReportSource>> = files
            .iter()
            .enumerate()
            .map(|(source, path)| {
                read_file(source, path, &queues, &progress).with_context(|| path.display().to_string())
            })
            .collect();
        drop(queues);
        let done: Vec<(W, Faults)> = running.into_iter().filter_map(|worker| worker.join().ok()).collect();
        read.map(|sources| (done, sources))
    })?;
    progress.finish_and_clear();
    if workers.len() != WORKERS {
        bail!("a worker thread failed; its error is above");
    }
    let mut made = Vec::new();
    for (worker, faults) in workers {
        made.push(worker);
        for (source, (count, first)) in sources.iter_mut().zip(faults) {
            source.unreadable += count;
            source.note = source.note.take().or(first);
        }
    }
    Ok((made, sources))
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
    queues: &[SyncSender<EntryBatch>],
    progress: &ProgressBar,
) -> Result<ReportSource> {
    let mut sharing = Sharing { source, queues, batches: queues.iter().map(|_| Vec::new()).collect(), turn: 0 };
    let entries = Entries::open(path, |file| Box::new(progress.wrap_read(file)))?;
    let kind = entries.kind;
    let mut found = entries.describe(path)?;
    let read = entries.read(&mut |_, entry| sharing.share(kind, entry))?;
    sharing.send_all(kind)?;
    found.unreadable = read.too_long;
    found.note = read.flaw.map(|flaw| flaw.to_string());
    Ok(found)
}

/// Distributes entries to workers.
struct Sharing<'q> {
    source: usize,
    queues: &'q [SyncSender<EntryBatch>],
    /// Unsent entries for each worker.
    batches: Vec<Vec<u8>>,
    turn: u64,
}

impl Sharing<'_> {
    /// All entries of a connection go to the same worker.
    fn share(&mut self, kind: FileKind, entry: &[u8]) -> Result<()> {
        match kind {
            FileKind::Log if memchr::memmem::find(entry, b"\"Slow query\"").is_none() => Ok(()),
            FileKind::Log => self.give(log::connection_of(entry), kind, &[entry, b"\n"]),
            FileKind::Capture => {
                let connection =
                    peek(entry).find(|element| element.key == b"conn").and_then(|conn| conn.value.as_raw_i64());
                self.give(connection.unwrap_or_default().cast_unsigned(), kind, &[entry])
            }
            FileKind::Profile | FileKind::Empty => {
                self.turn += 1;
                self.give(self.turn, kind, &[entry, b"\n"])
            }
        }
    }

    fn give(&mut self, worker: u64, kind: FileKind, parts: &[&[u8]]) -> Result<()> {
        let worker = (worker % self.queues.len() as u64) as usize;
        let Some(batch) = self.batches.get_mut(worker) else { return Ok(()) };
        parts.iter().for_each(|part| batch.extend_from_slice(part));
        if batch.len() >= BATCH { self.send(worker, kind) } else { Ok(()) }
    }

    fn send_all(&mut self, kind: FileKind) -> Result<()> {
        (0..self.queues.len()).try_for_each(|worker| self.send(worker, kind))
    }

    fn send(&mut self, worker: usize, kind: FileKind) -> Result<()> {
        let (Some(batch), Some(queue)) = (self.batches.get_mut(worker), self.queues.get(worker)) else { return Ok(()) };
        let batch = EntryBatch { source: self.source, kind, bytes: std::mem::take(batch) };
        queue.send(batch).ok().context("a worker thread failed")
    }
}

/// Runs one worker until the traffic ends.
fn work<W: Worker>(mut worker: W, batches: &Receiver<EntryBatch>, sources: usize) -> (W, Faults) {
    let mut faults: Faults = vec![(0, None); sources];
    let mut logs = LogReader::default();
    let mut current = None;
    let mut out = Vec::new();
    for batch in batches {
        if current != Some(batch.source) {
            logs.finish(&mut out);
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
            let wanted = |namespace: Namespace<'_>, class, command: &[u8]| worker.wants(namespace, class, command);
            let read = match batch.kind {
                FileKind::Log => logs.parse_line(entry, &wanted, &mut out),
                FileKind::Profile | FileKind::Empty => profile::parse_line(entry, &wanted, &mut out),
                FileKind::Capture => record(entry, &wanted, &mut out),
            };
            read.err().into_iter().for_each(&mut fault);
            out.drain(..).for_each(|recorded| worker.take(&recorded));
        }
    }
    logs.finish(&mut out);
    out.iter().for_each(|recorded| worker.take(recorded));
    (worker, faults)
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

fn record(
    bytes: &[u8],
    wanted: &dyn Fn(Namespace<'_>, CommandClass, &[u8]) -> bool,
    out: &mut Vec<RecordedCommand>,
) -> Result<(), Unreadable> {
    let record = Document::parse(bytes).map_err(|error| Unreadable(error.to_string()))?;
    let command = record.get("command").and_then(Value::as_document);
    let Some(first) = command.and_then(Document::first) else { return Ok(()) };
    let database = command.and_then(|command| command.get("$db")).and_then(Value::as_str).unwrap_or_default();
    let namespace = Namespace { database, collection: first.value.as_str().unwrap_or_default() };
    if wanted(namespace, classify(first.key), command.map(Document::as_bytes).unwrap_or_default()) {
        out.extend(capture::parse_record(record));
    }
    Ok(())
}
