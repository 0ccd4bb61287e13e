//! Reads the entries of one file of recorded traffic: JSON objects of logs and profiles, or records of a capture. Each
//! entry shows what it is, so a file can have other content too: output of other programs, cut lines, both kinds.
//!
//! Memory is bounded for any file: overlong objects are skipped, and a record that claims more bytes than it has is not
//! allocated.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, ErrorKind, Read};
use std::path::Path;

use anstream::adapter::StripBytes;
use anyhow::{Context, Result, bail};
use encoding_rs_io::DecodeReaderBytesBuilder;
use flate2::bufread::GzDecoder;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::audit::capture::{self, CaptureEnd};
use crate::audit::objects::{Found, ObjectScanner};
use crate::audit::{log, profile};
use crate::text::plural;

/// Bytes read at a time.
const BLOCK: usize = 256 * 1024;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum EntryKind {
    Log,
    Profile,
    Capture,
}

impl EntryKind {
    fn of_object(object: &[u8]) -> Option<Self> {
        let kind = match (log::is_line(object), profile::is_line(object)) {
            (false, false) => return None,
            (true, _) => Self::Log,
            (false, true) => Self::Profile,
        };
        // As the server writes them.
        let is_first = |name: &[u8]| object.get(1..).is_some_and(|fields| fields.trim_ascii_start().starts_with(name));
        match kind {
            Self::Log if is_first(b"\"t\":") => return Some(kind),
            Self::Profile if is_first(b"\"op\":") => return Some(kind),
            _ => {}
        }
        // The names can be in a value.
        match serde_json::from_slice(object) {
            Ok(TopLevel { op: Some(_), .. }) => Some(Self::Profile),
            Ok(TopLevel { ctx: Some(_), .. }) => Some(Self::Log),
            Ok(_) => None,
            Err(_) => Some(kind),
        }
    }
}

/// The fields that only one kind of entry has.
#[derive(Deserialize)]
struct TopLevel {
    op: Option<IgnoredAny>,
    ctx: Option<IgnoredAny>,
}

/// A file of a kind that can have entries.
pub(in crate::cli) struct TrafficEntries {
    reader: Box<dyn Read>,
    is_capture: bool,
    /// The first bytes of a text.
    start: Vec<u8>,
}

/// What was found in a file.
#[derive(Debug, Default)]
pub(in crate::cli) struct FileRead {
    pub(in crate::cli) kinds: FoundKinds,
    /// Objects that are cut off or too long.
    pub(in crate::cli) unreadable: u64,
    /// Where the first of them is.
    pub(in crate::cli) first: Option<String>,
    /// Lines of a text without an entry, but with other content.
    pub(in crate::cli) other: u64,
    pub(in crate::cli) flaw: Option<CaptureDamage>,
}

/// The kinds of the entries in a file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) struct FoundKinds {
    log: bool,
    profile: bool,
    capture: bool,
}

impl FoundKinds {
    fn add(&mut self, kind: EntryKind) {
        match kind {
            EntryKind::Log => self.log = true,
            EntryKind::Profile => self.profile = true,
            EntryKind::Capture => self.capture = true,
        }
    }

    pub(in crate::cli) fn name(self) -> &'static str {
        match self {
            Self { capture: true, .. } => "capture",
            Self { log: true, profile: true, .. } => "mongod log, system.profile",
            Self { profile: true, .. } => "system.profile",
            Self { .. } => "mongod log",
        }
    }
}

/// What is wrong with a capture. Positions are those of the decompressed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum CaptureDamage {
    /// The record that begins here is not whole: the recorder was killed, or still writes.
    Truncated { byte: u64 },
    /// What begins here is not a record.
    Damaged { byte: u64 },
    /// The recorder was too slow for these.
    Omitted { commands: u64 },
}

impl fmt::Display for CaptureDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { byte } => write!(f, "the last record, at byte {byte}, is truncated"),
            Self::Damaged { byte } => write!(f, "the capture is damaged at byte {byte}; remove its end from there"),
            Self::Omitted { commands } => {
                write!(f, "the capture omits {}, which came faster than it was read", plural(*commands, "command"))
            }
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

/// Receives the kind and position of each entry, and the entry: an object, or a record.
type ReceiveEntry<'r> = dyn FnMut(EntryKind, u64, &[u8]) -> Result<()> + 'r;

impl TrafficEntries {
    /// Opens a file. `wrap` may observe what is read.
    ///
    /// # Errors
    /// It cannot be opened or read, or it has no entries that docward can read.
    pub(in crate::cli) fn open(path: &Path, wrap: impl FnOnce(File) -> Box<dyn Read>) -> Result<Self> {
        let mut raw = BufReader::with_capacity(BLOCK, wrap(File::open(path)?));
        let start = first_bytes(&mut raw, GZIP.len())?;
        let is_packed = start == GZIP;
        let whole = Cursor::new(start).chain(raw);
        let mut reader: Box<dyn Read> =
            if is_packed { Box::new(GzipMembers(Some(GzDecoder::new(whole)))) } else { Box::new(whole) };
        let header = capture::header();
        let start = first_bytes(&mut reader, header.len()).context(Position(0))?;
        if start == header {
            return Ok(Self { is_capture: true, reader, start: Vec::new() });
        }
        // The first four bytes of a text are not the length of the header.
        if start.len() >= 4 && header.starts_with(&start) {
            bail!("the capture's header is truncated at byte {}", start.len());
        }
        if let Some(advice) = advice(&start) {
            bail!("{advice}");
        }
        let whole = Cursor::new(start.clone()).chain(reader);
        let reader = DecodeReaderBytesBuilder::new().utf8_passthru(true).strip_bom(true).build(whole);
        Ok(Self { is_capture: false, reader: Box::new(reader), start })
    }

    /// Reads all entries.
    ///
    /// # Errors
    /// The file cannot be read, it has no entries, or an error of `receive`.
    pub(in crate::cli) fn read_all(self, receive: &mut ReceiveEntry<'_>) -> Result<FileRead> {
        let Self { is_capture, mut reader, start } = self;
        let mut read = FileRead::default();
        if is_capture {
            read.kinds.add(EntryKind::Capture);
            let mut omitted = 0;
            let damage = records(&mut reader, &mut |position, record| {
                omitted += CaptureEnd::parse(record).map_or(0, |end| end.omitted);
                receive(EntryKind::Capture, position, record)
            })?;
            let is_partial = (omitted > 0).then_some(CaptureDamage::Omitted { commands: omitted });
            read.flaw = damage.or(is_partial);
            return Ok(read);
        }
        let length = objects(&mut reader, &mut read, receive)?;
        match &read {
            FileRead { kinds, .. } if *kinds != FoundKinds::default() => Ok(read),
            FileRead { first: Some(first), .. } => bail!("no entry can be read; {first}"),
            _ if start.is_empty() => bail!("the file is empty"),
            FileRead { other: 0, .. } => bail!("the file has {length} bytes, but no entry of recorded traffic"),
            _ => bail!(
                "this is neither a log of mongod 4.4 or later, nor documents of system.profile as JSON (mongoexport), \
                 nor a capture of docward record"
            ),
        }
    }
}

/// The members of a gzip file. As in gzip itself, other bytes may follow them.
struct GzipMembers<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let damaged = |error| std::io::Error::other(format!("the gzip data is cut off or damaged ({error})"));
        while let Some(member) = &mut self.0 {
            let length = member.read(buffer).map_err(damaged)?;
            if length > 0 || buffer.is_empty() {
                return Ok(length);
            }
            let mut rest = self.0.take().map(GzDecoder::into_inner);
            let is_member = |rest: &mut R| Ok::<_, std::io::Error>(rest.fill_buf()?.first() == GZIP.first());
            if rest.as_mut().map(is_member).transpose()? == Some(true) {
                self.0 = rest.map(GzDecoder::new);
            }
        }
        Ok(0)
    }
}

/// The byte order mark of UTF-16 in little-endian order.
const UTF_16: [u8; 2] = [0xff, 0xfe];

/// What to do with a file that begins with these bytes and is not read; `None` if it can be a text.
fn advice(start: &[u8]) -> Option<&'static str> {
    const PACKED: [(&[u8], &str); 7] = [
        (&GZIP, "this is compressed by gzip twice: decompress it once"),
        (&[b'{', 0, b'"', 0], "this is UTF-16 without a byte order mark: convert it to UTF-8"),
        (b"PK\x03\x04", "this is a zip archive: extract it first"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "this is compressed by zstd: decompress it first"),
        (b"BZh", "this is compressed by bzip2: decompress it first"),
        (b"\xfd7zXZ", "this is compressed by xz: decompress it first"),
        (&[0x6d, 0xe2, 0x99, 0x81], "this is an archive of mongodump: export system.profile with mongoexport"),
    ];
    let packed = PACKED.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, advice)| *advice);
    // The length of a document has a zero byte, which no text has there, and is followed by the type of a field.
    let is_bson = matches!(start, [_, _, _, 0, kind, ..] if (1..=0x13).contains(kind)) && !start.starts_with(&UTF_16);
    let bson = match memchr::memmem::find(start, b"docward") {
        Some(_) => "this is a capture of another version of docward",
        None => {
            "these are BSON documents without the header of a capture of docward record. Of a dump, only system.profile \
             has commands: convert it with bsondump"
        }
    };
    packed.or(is_bson.then_some(bson))
}

/// Reads the objects of a text; returns the length of the text.
fn objects(reader: &mut impl Read, read: &mut FileRead, receive: &mut ReceiveEntry<'_>) -> Result<u64> {
    let streams = Default::default();
    let mut text = TextEntries { read, receive, record: None, has_entry: false, has_other: false, streams };
    let mut scanner = ObjectScanner::default();
    let mut block = vec![0; BLOCK];
    let (mut colours, mut has_colours) = (StripBytes::new(), false);
    let mut taken = 0;
    loop {
        let length = reader.read(&mut block).context(Position(taken))?;
        if length == 0 {
            scanner.finish(&mut |position, found| text.add(position, found))?;
            for stream in std::mem::take(&mut text.streams) {
                stream.finish(&mut |_, found| text.add(taken, found))?;
            }
            return Ok(taken);
        }
        let read = block.get(..length).unwrap_or_default();
        // JSON has no escape character.
        has_colours = has_colours || memchr::memchr(b'\x1b', read).is_some();
        let mut scan = |part: &[u8]| scanner.scan(part, &mut |position, found| text.add(position, found));
        if has_colours {
            colours.strip_next(read).try_for_each(scan)?
        } else {
            scan(read)?
        }
        taken += length as u64;
    }
}

/// Counts what is found in a text.
struct TextEntries<'t> {
    read: &'t mut FileRead,
    receive: &'t mut ReceiveEntry<'t>,
    /// The entries in a field of a record, which may hold the same in other fields.
    record: Option<Vec<(EntryKind, Vec<u8>)>>,
    /// The line has an entry, or a part of one.
    has_entry: bool,
    /// The line has an object that is no entry.
    has_other: bool,
    /// The texts of a container's stdout and stderr.
    streams: [ObjectScanner; 2],
}

/// What Docker stores of a line, or of a part of a long one, which has no line break.
#[derive(Deserialize)]
struct ContainerOutput<'o> {
    #[serde(borrow)]
    log: Cow<'o, str>,
    #[serde(borrow)]
    stream: Cow<'o, str>,
}

impl TextEntries<'_> {
    fn add(&mut self, position: u64, found: Found<'_>) -> Result<()> {
        match found {
            Found::Object(object) => match EntryKind::of_object(object) {
                Some(kind) => {
                    self.has_entry = true;
                    self.read.kinds.add(kind);
                    return self.give(kind, position, object);
                }
                None => match serde_json::from_slice(object) {
                    Ok(ContainerOutput { log, stream }) => return self.output(position, &log, &stream),
                    Err(_) if has_entry(object) => {
                        self.has_other = true;
                        return self.fields(position, object);
                    }
                    Err(_) => self.has_other = true,
                },
            },
            Found::Quoted(quoting, text) => match quoting.content(text) {
                Some(content) => return self.text(position, content.as_bytes()),
                None if has_entry(text) => return self.add(position, Found::Cut),
                None => self.has_other = true,
            },
            Found::Omitted(count) => {
                self.has_entry = true;
                self.read.unreadable += count;
                let reason = format!("the list was printed without {count} of its entries; EJSON.stringify prints all");
                self.read.first.get_or_insert(reason);
            }
            Found::Cut | Found::TooLong => {
                self.has_entry = true;
                self.read.unreadable += 1;
                let reason = if found == Found::Cut { "is cut off or not JSON" } else { "is too long" };
                self.read.first.get_or_insert_with(|| format!("the entry at byte {position} {reason}"));
            }
            Found::Line { other } => {
                let has_entry = std::mem::take(&mut self.has_entry);
                let has_other = std::mem::take(&mut self.has_other) || other;
                self.read.other += u64::from(has_other && !has_entry);
            }
        }
        Ok(())
    }

    fn give(&mut self, kind: EntryKind, position: u64, entry: &[u8]) -> Result<()> {
        match &mut self.record {
            Some(record) => record.push((kind, entry.to_vec())),
            None => (self.receive)(kind, position, entry)?,
        }
        Ok(())
    }

    /// Reads the fields of a record. Collectors of logs keep a line beside what they parse of it; it counts once.
    fn fields(&mut self, position: u64, object: &[u8]) -> Result<()> {
        let Ok(fields) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(object) else {
            return self.text(position, object.get(1..object.len().saturating_sub(1)).unwrap_or_default());
        };
        let outer = self.record.take();
        let mut entries: Vec<(EntryKind, Vec<u8>)> = Vec::new();
        for value in fields.values() {
            self.record = Some(Vec::new());
            self.text(position, value.get().as_bytes())?;
            let mut found = self.record.take().unwrap_or_default();
            found.retain(|(_, entry)| !entries.iter().any(|(_, known)| is_same(known, entry)));
            entries.append(&mut found);
        }
        self.record = outer;
        entries.into_iter().try_for_each(|(kind, entry)| self.give(kind, position, &entry))
    }

    /// Reads a text around which there is another one, as a container runtime, a collector of logs or getLog puts it around
    /// lines of a log.
    fn text(&mut self, position: u64, text: &[u8]) -> Result<()> {
        let mut add = |_: u64, found: Found<'_>| match found {
            Found::Line { .. } => Ok(()),
            found => self.add(position, found),
        };
        let mut scanner = ObjectScanner::default();
        scanner.scan(text, &mut add)?;
        scanner.finish(&mut add)
    }

    /// Continues the text that a container printed.
    fn output(&mut self, position: u64, text: &str, stream: &str) -> Result<()> {
        let index = usize::from(stream == "stderr");
        let mut scanner = std::mem::take(&mut self.streams[index]);
        let read = scanner.scan(text.as_bytes(), &mut |_, found| self.add(position, found));
        self.streams[index] = scanner;
        read
    }
}

/// Whether two texts are one entry, of which a collector may have removed fields.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    const FIELDS: [&str; 6] = ["t", "ts", "ctx", "ns", "attr", "command"];
    let [one, other] = [one, other].map(|entry| serde_json::from_slice::<serde_json::Value>(entry).unwrap_or_default());
    let is_equal = |field: &&str| one.get(field).zip(other.get(field)).is_none_or(|(one, other)| one == other);
    one.is_object() && other.is_object() && FIELDS.iter().all(is_equal)
}

/// Whether a text, which is not an entry itself, can contain one: also as a string, as in `{"log":"{\"t\":…}\n"}`.
fn has_entry(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"\\\"ctx\\\"").is_some() || log::is_line(text) || profile::is_line(text)
}

/// Reads the records of a capture after its header. `receive` gets the position of each, and the record. Returns what is
/// wrong if the capture is truncated or damaged.
///
/// # Errors
/// The capture cannot be read, it has no whole record, or an error of `receive`.
pub(in crate::cli) fn records(
    reader: &mut impl Read,
    receive: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<Option<CaptureDamage>> {
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
        match reader.read(rest) {
            // A signal, which a capture from a running docward ends with.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) => break,
            read => length += read?,
        }
    }
    Ok(length)
}
