//! Reads recorded traffic from files for `audit` and `suggest`. One thread reads each file, another one interprets the
//! entries of all, in the order of their times: what a statement does depends on the earlier ones of all connections.
//!
//! Memory is bounded for any file: entries pass through short queues in batches. [`entries`] reads the files,
//! `crate::audit` interprets the entries.

pub(super) mod entries;

use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use self::entries::{CaptureDamage, EntryKind, TrafficEntries};
use crate::audit::capture::CaptureReader;
use crate::audit::log::LogReader;
use crate::audit::report::TrafficFile;
use crate::audit::{
    RecordedCommand, RepeatedStatements, TimeOrder, TrafficConsumer, Unreadable, is_between_servers, log, profile,
};
use crate::command::{CommandClass, Namespace, own};

/// The size of a batch in bytes.
const BATCH: usize = 256 * 1024;
/// The most batches of one file that wait for the consumer.
const QUEUE: usize = 4;

const WITH_LOG: &str = "a log is given too: if it is of this server and time, the same commands count twice";

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
    /// Commands that an earlier file has too.
    repeated: u64,
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
        let sources = all(read)?;
        let (consumer, counts) = done.ok().context("the worker thread failed; its error is above")?;
        anyhow::Ok((consumer, counts, sources))
    })?;
    progress.finish_and_clear();
    let has_log = sources.iter().any(|source| source.kind.contains("log"));
    let counted = sources.iter_mut().zip(counts).map(|(source, counts)| {
        let EntryCounts { readable, unreadable, own, first, order, repeated } = counts;
        if let (0, Some(first)) = (readable, &first) {
            bail!("{}: no entry can be read; {first}", source.name);
        }
        source.unreadable += unreadable;
        source.own += own;
        let repeated = (repeated > 0).then(|| format!("{repeated} commands are in another file too, and count twice"));
        let log = (has_log && source.kind.contains("profile")).then(|| WITH_LOG.to_owned());
        source.note = order.or(repeated).or(source.note.take()).or(first).or(log);
        Ok(())
    });
    all(counted)?;
    Ok((consumer, sources))
}

/// Checks that no file is given twice.
///
/// # Errors
/// Some are, do not exist, or are folders.
pub(super) fn check_distinct(files: &[PathBuf]) -> Result<()> {
    let mut known = HashSet::new();
    let checked = files.iter().map(|path| {
        let real = path.canonicalize().with_context(|| path.display().to_string())?;
        ensure!(!real.is_dir(), "{} is a folder: name the files in it", path.display());
        ensure!(known.insert(real), "{} is given twice, and its statements would count twice", path.display());
        Ok(())
    });
    all(checked).map(drop)
}

/// Returns all results.
///
/// # Errors
/// All errors, one a line.
fn all<T>(results: impl Iterator<Item = Result<T>>) -> Result<Vec<T>> {
    let (found, errors): (Vec<_>, Vec<_>) = results.partition(Result::is_ok);
    let errors: Vec<String> = errors.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(found.into_iter().flatten().collect())
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
            add(kind, &mut out, (order, ready), counts);
        }
    }

    fn finish(&mut self) {
        let Self { logs, captures, order, ready, counts, .. } = self;
        let mut out = Vec::new();
        logs.finish(&mut out);
        add(EntryKind::Log, &mut out, (order, ready), counts);
        order.finish(ready);
        captures.finish(&mut out);
        add(EntryKind::Capture, &mut out, (order, ready), counts);
        counts.order = order.flaw();
    }
}

/// Adds the commands of applications.
fn add(
    kind: EntryKind,
    commands: &mut Vec<RecordedCommand>,
    (order, ready): (&mut TimeOrder, &mut VecDeque<RecordedCommand>),
    counts: &mut EntryCounts,
) {
    for command in commands.drain(..) {
        match kind {
            _ if command.is_own() => counts.own += 1,
            // A capture has them in the order of their replies.
            EntryKind::Capture => ready.push_back(command),
            EntryKind::Log | EntryKind::Profile => order.add(command, ready),
        }
    }
}

/// Runs the consumer until the traffic ends.
fn work<W: TrafficConsumer>(mut consumer: W, mut sources: Vec<TrafficSource>) -> (W, Vec<EntryCounts>) {
    let mut repeated = RepeatedStatements::default();
    // The commands of the current millisecond, with the file.
    let (mut now, mut known) = (i64::MIN, HashMap::new());
    loop {
        let times = sources.iter_mut().enumerate();
        let times = times.filter_map(|(file, source)| Some((source.next_time(&consumer)?, file, source)));
        let Some((time, file, earliest)) = times.min_by_key(|(time, ..)| *time) else { break };
        let Some(next) = earliest.ready.pop_front() else { continue };
        if time > now {
            known.clear();
            now = time;
        }
        let first = next.fingerprint().map(|fingerprint| *known.entry(fingerprint).or_insert(file));
        earliest.counts.repeated += u64::from(first.is_some_and(|first| first != file));
        repeated.add(next, &mut |recorded| consumer.add_command(&recorded));
    }
    repeated.finish(&mut |recorded| consumer.add_command(&recorded));
    (consumer, sources.into_iter().map(|source| source.counts).collect())
}
