//! Reads the entries of one file of recorded traffic: lines of a log or profile, or records of a capture. Detects the
//! kind of the file from its content.
//!
//! Memory is bounded for any file: overlong lines are skipped, and a record that claims more bytes than it has is not
//! allocated.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::read::MultiGzDecoder;

use crate::audit::report::TrafficFile;
use crate::audit::{capture, log, profile};

/// Bytes read at a time.
const BLOCK: usize = 256 * 1024;
/// The longest line of a log or profile: a document of 16 MiB as JSON.
const MAX_LINE: usize = 64 << 20;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum FileKind {
    Log,
    Profile,
    Capture,
}

impl FileKind {
    pub(in crate::cli) fn name(self) -> &'static str {
        match self {
            Self::Log => "mongod log",
            Self::Profile => "system.profile",
            Self::Capture => "capture",
        }
    }
}

/// A file whose kind is known.
pub(in crate::cli) struct TrafficEntries {
    pub(in crate::cli) kind: FileKind,
    reader: Box<dyn Read>,
    /// What has been read to detect the kind.
    start: Vec<u8>,
}

/// What was found beside the entries.
#[derive(Debug, Default)]
pub(in crate::cli) struct FileRead {
    /// Lines that were skipped because of their length.
    pub(in crate::cli) too_long: u64,
    pub(in crate::cli) flaw: Option<CaptureDamage>,
}

/// What is wrong with a capture. Positions are those of the decompressed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum CaptureDamage {
    /// The record that begins here is not whole: the recorder was killed, or still writes.
    Truncated { byte: u64 },
    /// What begins here is not a record.
    Damaged { byte: u64 },
}

impl fmt::Display for CaptureDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { byte } => write!(f, "the last record, at byte {byte}, is truncated"),
            Self::Damaged { byte } => write!(f, "the capture is damaged at byte {byte}; remove its end from there"),
        }
    }
}

/// Where a file cannot be read: the bytes before it, decompressed.
struct Position(u64);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it cannot be read after byte {}", self.0)
    }
}

/// Receives the position of each entry, and the entry: a line without its break, or a record.
type Receive<'r> = dyn FnMut(u64, &[u8]) -> Result<()> + 'r;

impl TrafficEntries {
    /// Opens a file and detects its kind. `wrap` may observe what is read.
    ///
    /// # Errors
    /// It cannot be opened or read, it has no entries, or its kind is unknown.
    pub(in crate::cli) fn open(path: &Path, wrap: impl FnOnce(File) -> Box<dyn Read>) -> Result<Self> {
        let mut raw = BufReader::with_capacity(BLOCK, wrap(File::open(path)?));
        let start = first_bytes(&mut raw, GZIP.len())?;
        let is_packed = start == GZIP;
        let whole = Cursor::new(start).chain(raw);
        let mut reader: Box<dyn Read> = if is_packed { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) };
        let header = capture::header();
        let start = first_bytes(&mut reader, header.len()).context(Position(0))?;
        if start == header {
            return Ok(Self { kind: FileKind::Capture, reader, start: Vec::new() });
        }
        // The first four bytes of a text are not the length of the header.
        if start.len() >= 4 && header.starts_with(&start) {
            bail!("the capture's header is truncated at byte {}", start.len());
        }
        Self::of_lines(reader, start)
    }

    /// Reads up to the first line with content.
    fn of_lines(mut reader: Box<dyn Read>, mut start: Vec<u8>) -> Result<Self> {
        loop {
            let mut lines = start.split(|byte| *byte == b'\n');
            let last = lines.next_back().unwrap_or_default();
            if let Some(line) = lines.map(content).find(|line| !line.is_empty()) {
                let kind = kind_of(line)?;
                return Ok(Self { kind, reader, start });
            }
            let more = first_bytes(&mut reader, BLOCK).context(Position(start.len() as u64))?;
            if more.is_empty() {
                let line = content(last);
                match (start.len(), line.is_empty()) {
                    (0, _) => bail!("the file is empty"),
                    (length, true) => bail!("the file has {length} bytes, but no entry of recorded traffic"),
                    (_, false) => return Ok(Self { kind: kind_of(line)?, reader, start }),
                }
            }
            if start.len() > MAX_LINE {
                let kind = kind_of(content(last))?;
                return Ok(Self { kind, reader: Box::new(Cursor::new(more).chain(reader)), start });
            }
            start.extend_from_slice(&more);
        }
    }

    /// # Errors
    /// The file's size cannot be read.
    pub(in crate::cli) fn describe(&self, path: &Path) -> Result<TrafficFile> {
        let bytes = std::fs::metadata(path)?.len();
        Ok(TrafficFile { name: path.display().to_string(), kind: self.kind.name(), bytes, ..TrafficFile::default() })
    }

    /// Reads all entries.
    ///
    /// # Errors
    /// The file cannot be read, or an error of `receive`.
    pub(in crate::cli) fn read_all(self, receive: &mut Receive<'_>) -> Result<FileRead> {
        let Self { kind, mut reader, start } = self;
        match kind {
            FileKind::Capture => Ok(FileRead { too_long: 0, flaw: records(&mut reader, receive)? }),
            FileKind::Log | FileKind::Profile => {
                Ok(FileRead { too_long: lines(&mut Cursor::new(start).chain(reader), receive)?, flaw: None })
            }
        }
    }
}

/// Returns the number of overlong lines.
fn lines(reader: &mut impl Read, receive: &mut Receive<'_>) -> Result<u64> {
    let mut too_long = 0;
    let mut held: Vec<u8> = Vec::new();
    let mut skipping = false;
    let mut block = vec![0; BLOCK];
    let (mut position, mut taken) = (0, 0);
    let mut line = |bytes: &[u8]| {
        let at = position;
        position += bytes.len() as u64 + 1;
        let line = content(bytes);
        if line.is_empty() { Ok(()) } else { receive(at, line) }
    };
    loop {
        let length = reader.read(&mut block).context(Position(taken))?;
        taken += length as u64;
        let mut rest = block.get(..length).unwrap_or_default();
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (own, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if skipping {
                skipping = false;
            } else if held.is_empty() {
                line(own)?;
            } else {
                held.extend_from_slice(own);
                line(&held)?;
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
            line(&held)?;
            return Ok(too_long);
        }
    }
}

/// Returns what is wrong if the file is truncated or damaged.
///
/// # Errors
/// The file cannot be read, it has no whole record, or an error of `receive`.
fn records(reader: &mut impl Read, receive: &mut Receive<'_>) -> Result<Option<CaptureDamage>> {
    let mut record = Vec::new();
    let first = capture::header().len() as u64;
    let mut position = first;
    loop {
        record.resize(4, 0);
        match fill(reader, &mut record).context(Position(position))? {
            0 if position == first => bail!("the capture has no records after its header of {first} bytes"),
            0 => return Ok(None),
            4 => {}
            _ => return Ok(Some(CaptureDamage::Truncated { byte: position })),
        }
        let length = record.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
        if !(5..=capture::MAX_RECORD_LENGTH).contains(&length) {
            return Ok(Some(CaptureDamage::Damaged { byte: position }));
        }
        // Allocate for the bytes that are present, not for the length that the record claims.
        let rest = length as u64 - 4;
        if reader.by_ref().take(rest).read_to_end(&mut record).context(Position(position))? as u64 != rest {
            return Ok(Some(CaptureDamage::Truncated { byte: position }));
        }
        receive(position, &record)?;
        position += length as u64;
    }
}

/// A line from its first brace on: container logs have a time or name before each line.
fn content(line: &[u8]) -> &[u8] {
    memchr::memchr(b'{', line).and_then(|start| line.get(start..)).unwrap_or_default()
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

/// The first bytes, at most `length`.
fn first_bytes(reader: &mut impl Read, length: usize) -> Result<Vec<u8>> {
    let mut start = vec![0; length];
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
