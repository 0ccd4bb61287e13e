//! Reads past traffic from files for `audit` and `suggest`: tells by its content what a file is, and shares it out
//! to two workers, everything of one connection to one of them, in its order.
//!
//! Memory is bounded whatever the file: lines go in batches through short queues, and a line or record that is
//! longer than any real one is skipped. What entries mean is up to `crate::audit`.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, Result, bail};
use flate2::read::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};

use crate::audit::log::LogReader;
use crate::audit::report::Source;
use crate::audit::{RecordedCommand, Unreadable, capture, log, profile};
use crate::command::{Class, Namespace, classify};
use crate::document::{Document, Value, peek};

/// Workers beside the thread that reads.
const WORKERS: usize = 2;
/// Bytes of a batch of lines.
const BATCH: usize = 256 * 1024;
/// Batches that wait for a worker.
const QUEUE: usize = 4;
/// Bytes read at a time.
const BLOCK: usize = 256 * 1024;
/// No line of a log or profile is longer: a document of 16 MiB as JSON.
const MAX_LINE: usize = 64 << 20;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What is made of past commands; each worker has its own.
pub(super) trait Worker: Send {
    /// See [`crate::audit::Wanted`].
    fn wants(&self, namespace: Namespace<'_>, class: Class, command: &[u8]) -> bool;

    fn take(&mut self, past: &RecordedCommand);
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Log,
    Profile,
    Capture,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Log => "mongod log",
            Self::Profile => "system.profile",
            Self::Capture => "capture",
        }
    }
}

/// Entries of one file: lines, each with its line break, or BSON documents.
struct Batch {
    source: usize,
    kind: Kind,
    bytes: Vec<u8>,
}

/// Entries of a file that could not be read, and what is wrong with the first.
type Faults = Vec<(u64, Option<String>)>;

/// Reads the files and gives what the workers have made of them.
///
/// # Errors
/// A file cannot be opened or read, or is none of those that are known.
pub(super) fn read<W: Worker>(files: &[PathBuf], make: impl Fn() -> W) -> Result<(Vec<W>, Vec<Source>)> {
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
        let read: Result<Vec<Source>> = files
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
        bail!("a worker failed, see above");
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

/// Only shown on a terminal.
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

fn read_file(source: usize, path: &Path, queues: &[SyncSender<Batch>], progress: &ProgressBar) -> Result<Source> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut raw = BufReader::with_capacity(BLOCK, progress.wrap_read(file));
    let start = first_bytes(&mut raw)?;
    let whole = std::io::Cursor::new(start.clone()).chain(raw);
    let mut reader: Box<dyn Read> =
        if start.starts_with(&GZIP) { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) };
    let mut sharing = Sharing { source, queues, batches: queues.iter().map(|_| Vec::new()).collect(), turn: 0 };
    let mut found = Source { name: path.display().to_string(), kind: "empty", bytes, ..Source::default() };
    let mut start = vec![0; capture::header().len()];
    let length = fill(&mut reader, &mut start)?;
    start.truncate(length);
    if start == capture::header() {
        found.kind = Kind::Capture.name();
        found.note = sharing.records(&mut reader)?;
    } else {
        let (kind, unreadable) = sharing.lines(&mut std::io::Cursor::new(start).chain(reader))?;
        found.kind = kind.map_or("empty", Kind::name);
        found.unreadable = unreadable;
    }
    Ok(found)
}

/// Enough to see how the file is packed.
fn first_bytes(reader: &mut impl Read) -> Result<Vec<u8>> {
    let mut start = vec![0; GZIP.len()];
    let length = fill(reader, &mut start)?;
    start.truncate(length);
    Ok(start)
}

/// As many bytes as there are, up to the buffer's length.
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

/// Gives entries to workers.
struct Sharing<'q> {
    source: usize,
    queues: &'q [SyncSender<Batch>],
    /// Entries not sent yet, for each worker.
    batches: Vec<Vec<u8>>,
    turn: u64,
}

impl Sharing<'_> {
    /// Lines up to the end; gives their kind, and how many were too long.
    fn lines(&mut self, reader: &mut impl Read) -> Result<(Option<Kind>, u64)> {
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

    fn line(&mut self, line: &[u8], kind: &mut Option<Kind>) -> Result<()> {
        // Containers' logs have a time or name before each line.
        let line = memchr::memchr(b'{', line).and_then(|start| line.get(start..)).unwrap_or_default();
        if line.is_empty() {
            return Ok(());
        }
        let kind = match *kind {
            Some(kind) => kind,
            None => *kind.insert(told_by(line)?),
        };
        let worker = match kind {
            Kind::Log if memchr::memmem::find(line, b"\"Slow query\"").is_none() => return Ok(()),
            Kind::Log => log::connection_of(line),
            _ => self.next_turn(),
        };
        self.give(worker, kind, &[line, b"\n"])
    }

    /// Records up to the end; says so when the last is not whole.
    fn records(&mut self, reader: &mut impl Read) -> Result<Option<String>> {
        const CUT: &str = "its last record is cut off";
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
                break Some("it is damaged; what comes behind the damage is not read".to_owned());
            }
            // Memory follows the bytes that are there, not the length that is claimed.
            let rest = length as u64 - 4;
            if reader.by_ref().take(rest).read_to_end(&mut record)? as u64 != rest {
                break Some(CUT.to_owned());
            }
            let connection =
                peek(&record).find(|element| element.key == b"conn").and_then(|conn| conn.value.as_raw_i64());
            self.give(connection.unwrap_or_default().cast_unsigned(), Kind::Capture, &[&record])?;
        };
        self.send_all(Kind::Capture)?;
        Ok(note)
    }

    fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    fn give(&mut self, worker: u64, kind: Kind, parts: &[&[u8]]) -> Result<()> {
        let worker = (worker % self.queues.len() as u64) as usize;
        let Some(batch) = self.batches.get_mut(worker) else { return Ok(()) };
        parts.iter().for_each(|part| batch.extend_from_slice(part));
        if batch.len() >= BATCH { self.send(worker, kind) } else { Ok(()) }
    }

    fn send_all(&mut self, kind: Kind) -> Result<()> {
        (0..self.queues.len()).try_for_each(|worker| self.send(worker, kind))
    }

    fn send(&mut self, worker: usize, kind: Kind) -> Result<()> {
        let (Some(batch), Some(queue)) = (self.batches.get_mut(worker), self.queues.get(worker)) else { return Ok(()) };
        let batch = Batch { source: self.source, kind, bytes: std::mem::take(batch) };
        queue.send(batch).ok().context("a worker failed")
    }
}

fn told_by(line: &[u8]) -> Result<Kind> {
    if log::is_line(line) {
        return Ok(Kind::Log);
    }
    if profile::is_line(line) {
        return Ok(Kind::Profile);
    }
    bail!(
        "this is neither a log of mongod 4.4 or later, nor documents of system.profile as JSON lines (mongoexport), nor \
         a capture of docward record"
    )
}

/// One worker's thread, to the end of the traffic.
fn work<W: Worker>(mut worker: W, batches: &Receiver<Batch>, sources: usize) -> (W, Faults) {
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
                Kind::Log => logs.read(entry, &wanted, &mut out),
                Kind::Profile => profile::read(entry, &wanted, &mut out),
                Kind::Capture => record(entry, &wanted, &mut out),
            };
            read.err().into_iter().for_each(&mut fault);
            out.drain(..).for_each(|past| worker.take(&past));
        }
    }
    logs.finish(&mut out);
    out.iter().for_each(|past| worker.take(past));
    (worker, faults)
}

/// The first entry of a batch, and what comes behind it.
fn split(batch: &[u8], kind: Kind) -> (&[u8], &[u8]) {
    let end = match kind {
        Kind::Capture => batch.first_chunk().map_or(batch.len(), |bytes| u32::from_le_bytes(*bytes) as usize),
        Kind::Log | Kind::Profile => memchr::memchr(b'\n', batch).map_or(batch.len(), |end| end + 1),
    };
    batch.split_at(end.clamp(1, batch.len()))
}

fn record(
    bytes: &[u8],
    wanted: &dyn Fn(Namespace<'_>, Class, &[u8]) -> bool,
    out: &mut Vec<RecordedCommand>,
) -> Result<(), Unreadable> {
    let record = Document::parse(bytes).map_err(|error| Unreadable(error.to_string()))?;
    let command = record.get("command").and_then(Value::as_document);
    let Some(first) = command.and_then(Document::first) else { return Ok(()) };
    let database = command.and_then(|command| command.get("$db")).and_then(Value::as_str).unwrap_or_default();
    let namespace = Namespace { database, collection: first.value.as_str().unwrap_or_default() };
    if wanted(namespace, classify(first.key), command.map(Document::as_bytes).unwrap_or_default()) {
        out.extend(capture::past(record));
    }
    Ok(())
}
