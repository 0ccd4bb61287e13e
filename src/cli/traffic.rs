//! Reads recorded traffic from files for `audit` and `suggest`. Detects the kind of a file from its content and
//! distributes the entries to two workers. All entries of a connection go to the same worker, in order.
//!
//! Memory is bounded for any file: lines pass through short queues in batches, and overlong lines or records are
//! skipped. `crate::audit` interprets the entries.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, Result, bail};
use flate2::read::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};

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
/// Bytes read at a time.
const BLOCK: usize = 256 * 1024;
/// The longest line of a log or profile: a document of 16 MiB as JSON.
const MAX_LINE: usize = 64 << 20;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Processes recorded commands; each thread has its own.
pub(super) trait Worker: Send {
    /// See [`crate::audit::Wanted`].
    fn wants(&self, namespace: Namespace<'_>, class: CommandClass, command: &[u8]) -> bool;

    fn take(&mut self, recorded: &RecordedCommand);
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Log,
    Profile,
    Capture,
}

impl FileKind {
    fn name(self) -> &'static str {
        match self {
            Self::Log => "mongod log",
            Self::Profile => "system.profile",
            Self::Capture => "capture",
        }
    }
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
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut raw = BufReader::with_capacity(BLOCK, progress.wrap_read(file));
    let start = first_bytes(&mut raw)?;
    let whole = std::io::Cursor::new(start.clone()).chain(raw);
    let mut reader: Box<dyn Read> =
        if start.starts_with(&GZIP) { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) };
    let mut sharing = Sharing { source, queues, batches: queues.iter().map(|_| Vec::new()).collect(), turn: 0 };
    let mut found = ReportSource { name: path.display().to_string(), kind: "empty", bytes, ..ReportSource::default() };
    let mut start = vec![0; capture::header().len()];
    let length = fill(&mut reader, &mut start)?;
    start.truncate(length);
    if start == capture::header() {
        found.kind = FileKind::Capture.name();
        found.note = sharing.records(&mut reader)?;
    } else {
        let (kind, unreadable) = sharing.lines(&mut std::io::Cursor::new(start).chain(reader))?;
        found.kind = kind.map_or("empty", FileKind::name);
        found.unreadable = unreadable;
    }
    Ok(found)
}

/// The first bytes, enough to detect compression.
fn first_bytes(reader: &mut impl Read) -> Result<Vec<u8>> {
    let mut start = vec![0; GZIP.len()];
    let length = fill(reader, &mut start)?;
    start.truncate(length);
    Ok(start)
}

/// Reads until the buffer is full or the input ends; returns the number of bytes.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match reader.read(rest)? {
            0 => break,
            count => length += count,
        }
    }
    Ok(length)
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
    /// Distributes all lines; returns their kind and the number of overlong lines.
    fn lines(&mut self, reader: &mut impl Read) -> Result<(Option<FileKind>, u64)> {
        let mut kind = None;
        let mut too_long = 0;
        let mut held: Vec<u8> = Vec::new();
        let mut skipping = false;
        let mut block = vec![0; BLOCK];
        loop {
            let length = reader.read(&mut block)?;
            let mut rest = block.get(..length).unwrap_or_default();
            while let Some(end) = memchr::memchr(b'\n', rest) {
                let (line, after) = rest.split_at(end);
                rest = after.get(1..).unwrap_or_default();
                if skipping {
                    skipping = false;
                } else if held.is_empty() {
                    self.line(line, &mut kind)?;
                } else {
                    held.extend_from_slice(line);
                    self.line(&held, &mut kind)?;
                    held.clear();
                }
            }
            if !skipping {
                held.extend_from_slice(rest);
            }
            if held.len() > MAX_LINE {
                (skipping, too_long, held) = (true, too_long + 1, Vec::new());
            }
            if length == 0 {
                self.line(&held, &mut kind)?;
                kind.into_iter().try_for_each(|kind| self.send_all(kind))?;
                return Ok((kind, too_long));
            }
        }
    }

    fn line(&mut self, line: &[u8], kind: &mut Option<FileKind>) -> Result<()> {
        // Container logs have a time or name before each line.
        let line = memchr::memchr(b'{', line).and_then(|start| line.get(start..)).unwrap_or_default();
        if line.is_empty() {
            return Ok(());
        }
        let kind = match *kind {
            Some(kind) => kind,
            None => *kind.insert(kind_of(line)?),
        };
        let worker = match kind {
            FileKind::Log if memchr::memmem::find(line, b"\"Slow query\"").is_none() => return Ok(()),
            FileKind::Log => log::connection_of(line),
            _ => self.next_turn(),
        };
        self.give(worker, kind, &[line, b"\n"])
    }

    /// Distributes all records; returns a note if the file is truncated or damaged.
    fn records(&mut self, reader: &mut impl Read) -> Result<Option<String>> {
        const CUT: &str = "the last record is truncated";
        let mut record = Vec::new();
        let note = loop {
            record.resize(4, 0);
            match fill(reader, &mut record)? {
                0 => break None,
                4 => {}
                _ => break Some(CUT.to_owned()),
            }
            let length = record.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
            if !(5..=capture::MAX_RECORD_LENGTH).contains(&length) {
                break Some("it is damaged; the rest is not read".to_owned());
            }
            // Allocate for the bytes that are present, not for the length that the record claims.
            let rest = length as u64 - 4;
            if reader.by_ref().take(rest).read_to_end(&mut record)? as u64 != rest {
                break Some(CUT.to_owned());
            }
            let connection =
                peek(&record).find(|element| element.key == b"conn").and_then(|conn| conn.value.as_raw_i64());
            self.give(connection.unwrap_or_default().cast_unsigned(), FileKind::Capture, &[&record])?;
        };
        self.send_all(FileKind::Capture)?;
        Ok(note)
    }

    fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
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

fn kind_of(line: &[u8]) -> Result<FileKind> {
    if log::is_line(line) {
        return Ok(FileKind::Log);
    }
    if profile::is_line(line) {
        return Ok(FileKind::Profile);
    }
    bail!(
        "this is neither a log of mongod 4.4 or later, nor documents of system.profile as JSON lines (mongoexport), \
         nor a capture of docward record"
    )
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
                FileKind::Profile => profile::parse_line(entry, &wanted, &mut out),
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
        FileKind::Log | FileKind::Profile => memchr::memchr(b'\n', batch).map_or(batch.len(), |end| end + 1),
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
