//! Reads recorded traffic from files for `audit` and `suggest`. One thread reads each file, another one interprets the
//! entries of all, in the order of their times: what a statement does depends on the earlier ones of all connections.
//!
//! Memory is bounded for any file: entries pass through short queues in batches. [`entries`] reads the files,
//! `crate::audit` interprets the entries.

pub(super) mod entries;

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

use self::entries::{CaptureDamage, EntryKind, TrafficEntries};
use crate::audit::capture::CaptureReader;
use crate::audit::log::LogReader;
use crate::audit::report::TrafficFile;
use crate::audit::{RecordedCommand, RepeatedStatements, TimeOrder, Unreadable, is_between_servers, log, profile};
use crate::command::{CommandClass, Namespace, own};

/// The size of a batch in bytes.
const BATCH: usize = 256 * 1024;
/// The most batches of one file that wait for the consumer.
const QUEUE: usize = 4;

/// Processes recorded commands.
pub(super) trait TrafficConsumer: Send {
    /// See [`crate::audit::CommandFilter`].
    fn is_relevant(&self, namespace: Namespace<'_>, class: CommandClass, command: &[u8]) -> bool;

    fn add_command(&mut self, recorded: &RecordedCommand);
}

/// Entries of one file: JSON objects, or BSON documents.
#[derive(Default)]
struct EntryBatch {
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
    /// Entries of docward's own work, and of that of servers.
    own: u64,
    /// The error of the first unreadable one.
    first: Option<String>,
    /// What is wrong with their order.
    order: Option<String>,
}

/// Reads the files with the consumer; returns the consumer and the files' properties.
///
/// # Errors
/// A file cannot be opened or read, its kind is unknown, or nothing in it can be read.
pub(super) fn read_files<W: TrafficConsumer>(files: &[PathBuf], consumer: W) -> Result<(W, Vec<TrafficFile>)> {
    check_distinct(files)?;
    let progress = progress(files)?;
    let (consumer, counts, mut sources) = std::thread::scope(|scope| {
        let mut unread = Vec::new();
        let mut readers = Vec::new();
        for path in files {
            let (queue, batches) = sync_channel(QUEUE);
            unread.push(TrafficSource::new(batches, files.len()));
            let progress = &progress;
            let read = move || read_file(path, &queue, progress).with_context(|| path.display().to_string());
            readers.push(scope.spawn(read));
        }
        let done = scope.spawn(move || work(consumer, unread)).join();
        let read =
            readers.into_iter().map(|reader| reader.join().ok().context("a reader failed; its error is above")?);
        let sources = read.collect::<Result<Vec<TrafficFile>>>()?;
        let (consumer, counts) = done.ok().context("the worker thread failed; its error is above")?;
        anyhow::Ok((consumer, counts, sources))
    })?;
    progress.finish_and_clear();
    for (source, EntryCounts { readable, unreadable, own, first, order }) in sources.iter_mut().zip(counts) {
        if let (0, Some(first)) = (readable, &first) {
            bail!("{}: no entry can be read; {first}", source.name);
        }
        source.unreadable += unreadable;
        source.own += own;
        source.note = order.or(source.note.take()).or(first);
    }
    Ok((consumer, sources))
}

/// Checks that no file is given twice.
///
/// # Errors
/// One is, or does not exist.
pub(super) fn check_distinct(files: &[PathBuf]) -> Result<()> {
    let mut known = HashSet::new();
    for path in files {
        let is_new = known.insert(path.canonicalize().with_context(|| path.display().to_string())?);
        anyhow::ensure!(is_new, "{} is given twice, and its statements would count twice", path.display());
    }
    Ok(())
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

fn read_file(path: &Path, queue: &SyncSender<EntryBatch>, progress: &ProgressBar) -> Result<TrafficFile> {
    let entries = TrafficEntries::open(path, |file| Box::new(progress.wrap_read(file)))?;
    let mut batch = EntryBatch::default();
    let send = |batch: &mut EntryBatch| queue.send(std::mem::take(batch)).ok().context("the worker thread failed");
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

/// What the worker has of one file.
struct TrafficSource {
    batches: Receiver<EntryBatch>,
    logs: LogReader,
    captures: CaptureReader,
    order: TimeOrder,
    /// In the order of their times.
    ready: VecDeque<RecordedCommand>,
    counts: EntryCounts,
}

impl TrafficSource {
    fn new(batches: Receiver<EntryBatch>, files: usize) -> Self {
        Self {
            batches,
            logs: LogReader::default(),
            captures: CaptureReader::default(),
            order: TimeOrder::for_one_of(files),
            ready: VecDeque::new(),
            counts: EntryCounts::default(),
        }
    }

    /// Returns the time of the next command; `None` at the end of the file.
    fn next_time(&mut self, consumer: &impl TrafficConsumer) -> Option<i64> {
        while self.ready.is_empty() {
            match self.batches.recv() {
                Ok(batch) => self.read_batch(batch, consumer),
                Err(_) => {
                    self.finish();
                    break;
                }
            }
        }
        self.ready.front().map(|next| next.milliseconds.unwrap_or(i64::MIN))
    }

    fn read_batch(&mut self, batch: EntryBatch, consumer: &impl TrafficConsumer) {
        let Self { logs, captures, order, ready, counts, .. } = self;
        let mut rest = batch.bytes.as_slice();
        let mut out = Vec::new();
        for BatchEntry { kind, position, length } in batch.entries {
            let Some((entry, after)) = rest.split_at_checked(length) else { break };
            rest = after;
            let is_own = Cell::new(false);
            let wanted = |namespace: Namespace<'_>, class, command: &[u8]| {
                let can_be_internal = matches!(class, CommandClass::Unknown | CommandClass::RenameCollection);
                let is_internal = kind != EntryKind::Capture && can_be_internal && is_between_servers(command);
                is_own.set(namespace.database == own::DATABASE || is_internal);
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
            // A capture has them in the order of their replies.
            match kind {
                EntryKind::Capture => ready.extend(out.drain(..)),
                EntryKind::Log | EntryKind::Profile => out.drain(..).for_each(|command| order.add(command, ready)),
            }
        }
    }

    fn finish(&mut self) {
        let mut out = Vec::new();
        self.logs.finish(&mut out);
        out.drain(..).for_each(|command| self.order.add(command, &mut self.ready));
        self.order.finish(&mut self.ready);
        self.captures.finish(&mut out);
        self.ready.extend(out);
        self.counts.order = self.order.flaw();
    }
}

/// Runs the consumer until the traffic ends.
fn work<W: TrafficConsumer>(mut consumer: W, mut sources: Vec<TrafficSource>) -> (W, Vec<EntryCounts>) {
    let mut repeated = RepeatedStatements::default();
    loop {
        let times = sources.iter_mut().filter_map(|source| Some((source.next_time(&consumer)?, source)));
        let Some((_, earliest)) = times.min_by_key(|(time, _)| *time) else { break };
        let Some(next) = earliest.ready.pop_front() else { continue };
        repeated.add(next, &mut |recorded| consumer.add_command(&recorded));
    }
    repeated.finish(&mut |recorded| consumer.add_command(&recorded));
    (consumer, sources.into_iter().map(|source| source.counts).collect())
}
