//! The file that `docward record` writes: it continues an existing capture, and starts a new file at a size limit.
//!
//! A full file is renamed as logrotate does: FILE becomes FILE.1, FILE.1 becomes FILE.2. Every file is a whole capture.

use std::fs::{File, OpenOptions, rename};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::audit::capture::{self, CaptureEnd};

/// Bytes that are written at once.
const BUFFER: usize = 1 << 20;

/// The limits of a capture.
#[derive(Debug, Clone, Copy)]
pub(super) struct CaptureLimits {
    /// Bytes of one file.
    pub(super) size: u64,
    /// Full files that are kept; with 0 recording ends when the file is full.
    pub(super) kept: usize,
}

/// The result of writing a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteResult {
    Whole,
    /// It was not written: the file is full, and no other one may follow.
    Full,
}

/// A capture that is being written.
#[derive(Debug)]
pub(super) struct CaptureFile {
    path: PathBuf,
    limits: CaptureLimits,
    file: BufWriter<File>,
    /// Bytes of the current file.
    size: u64,
    /// The beginning of every file.
    header: Vec<u8>,
}

impl CaptureFile {
    /// Opens a new capture, or an existing one at its end. Only its owner can read it, because it contains documents.
    ///
    /// # Errors
    /// I/O errors; or the file is not a capture, or is damaged.
    pub(super) fn open(path: &Path, limits: CaptureLimits) -> Result<Self> {
        let mut file = options().create(true).truncate(false).open(path)?;
        let header = capture::header();
        let length = file.metadata()?.len();
        let size = if length == 0 {
            file.write_all(&header)?;
            header.len() as u64
        } else {
            let end = end_of_capture(&mut file, length)?;
            // A killed process may have left a partial record.
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
            end
        };
        Ok(Self { path: path.to_owned(), limits, file: BufWriter::with_capacity(BUFFER, file), size, header })
    }

    /// Adds a record to the header of every file.
    ///
    /// # Errors
    /// I/O errors of the file.
    pub(super) fn add_to_header(&mut self, record: &[u8]) -> io::Result<()> {
        self.header.extend_from_slice(record);
        self.size += record.len() as u64;
        self.file.write_all(record)
    }

    /// Writes a record, to a new file if this one is full.
    ///
    /// # Errors
    /// I/O errors of the file.
    pub(super) fn write(&mut self, record: &[u8]) -> io::Result<WriteResult> {
        let length = record.len() as u64;
        // There is always room for the end.
        if self.size + length + capture::MAX_END_LENGTH as u64 > self.limits.size {
            if self.limits.kept == 0 {
                return Ok(WriteResult::Full);
            }
            // A record that is larger than the limit has a file of its own.
            if self.size > self.header.len() as u64 {
                self.rotate()?;
            }
        }
        self.file.write_all(record)?;
        self.size += length;
        Ok(WriteResult::Whole)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Writes the end of the capture.
    ///
    /// # Errors
    /// I/O errors of the file.
    pub(super) fn finish(&mut self, end: &CaptureEnd) -> io::Result<()> {
        self.file.write_all(&end.record())?;
        self.flush()
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        for number in (0..self.limits.kept).rev() {
            match rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                other => other?,
            }
        }
        let file = options().create_new(true).open(&self.path)?;
        self.file = BufWriter::with_capacity(BUFFER, file);
        self.file.write_all(&self.header)?;
        self.size = self.header.len() as u64;
        Ok(())
    }

    /// FILE, or FILE.1 and so on.
    fn numbered(&self, number: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        name.into()
    }

    #[cfg(test)]
    pub(super) fn writing_to(file: File) -> Self {
        let limits = CaptureLimits { size: u64::MAX, kept: 0 };
        Self { path: PathBuf::new(), limits, file: BufWriter::with_capacity(BUFFER, file), size: 0, header: Vec::new() }
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// The offset at which the last whole record of an existing capture ends.
fn end_of_capture(file: &mut File, length: u64) -> Result<u64> {
    let mut reader = BufReader::new(file);
    let mut start = vec![0; capture::header().len()];
    let read = reader.read_exact(&mut start);
    if read.is_err() || start != capture::header() {
        bail!("the file exists and is not a capture; choose another name");
    }
    end_of_last(&mut reader, length)
}

/// The offset at which the last whole record ends. The reader is positioned after the header.
fn end_of_last(reader: &mut BufReader<&mut File>, length: u64) -> Result<u64> {
    let mut end = capture::header().len() as u64;
    let mut prefix = [0; 4];
    loop {
        match reader.read_exact(&mut prefix) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(end),
            other => other?,
        }
        let record = u64::from(u32::from_le_bytes(prefix));
        if !(5..=capture::MAX_RECORD_LENGTH as u64).contains(&record) {
            bail!("the capture is damaged at byte {end}; choose another name");
        }
        if end + record > length {
            return Ok(end);
        }
        end += record;
        reader.seek_relative(i64::try_from(record).unwrap_or(i64::MAX) - 4)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(path: &Path) -> Vec<u8> {
        let header = capture::header();
        let bytes = std::fs::read(path).unwrap();
        bytes.strip_prefix(header.as_slice()).expect("every file is a capture").to_vec()
    }

    #[test]
    fn full_files_are_renamed_and_the_oldest_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.bson");
        let limits = CaptureLimits { size: (capture::header().len() + capture::MAX_END_LENGTH) as u64 + 20, kept: 2 };
        let mut file = CaptureFile::open(&path, limits).unwrap();
        for number in 0..7 {
            assert_eq!(file.write(&[number; 10]).unwrap(), WriteResult::Whole);
        }
        // Larger than a file may be.
        assert_eq!(file.write(&[7; 30]).unwrap(), WriteResult::Whole);
        file.flush().unwrap();
        let numbered = |end: &str| folder.path().join(format!("c.bson{end}"));
        assert_eq!(content(&numbered("")), [7; 30]);
        assert_eq!(content(&numbered(".1")), [6; 10]);
        assert_eq!(content(&numbered(".2")), [[4; 10], [5; 10]].concat());
        assert!(!numbered(".3").exists());
    }

    #[test]
    fn without_rotation_a_full_file_ends_the_recording() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.bson");
        let limits = CaptureLimits { size: (capture::header().len() + capture::MAX_END_LENGTH) as u64 + 20, kept: 0 };
        let mut file = CaptureFile::open(&path, limits).unwrap();
        let written: Vec<WriteResult> = (0..3).map(|_| file.write(&[0; 10]).unwrap()).collect();
        assert_eq!(written, [WriteResult::Whole, WriteResult::Whole, WriteResult::Full]);
    }
}
