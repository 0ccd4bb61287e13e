//! Finds and reads files: the only file of the lower layers that accesses the file system. Other layers use
//! [`read_file`] too.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "files of rules are read here and nowhere else"
)]

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::code::Code;
use super::diagnostic::{Diagnostic, DiagnosticLocation};
use super::shown::TextKind;
use super::source::{FileId, SourceFile, SourceFiles};
use super::yaml;

/// How deep folders are searched. Bounds the search when a link points to a parent folder.
const MAX_FOLDERS: usize = 16;

/// Reads files into sources, each file once.
#[derive(Default)]
pub(crate) struct FileReader {
    sources: Vec<SourceFile>,
    found: Vec<Diagnostic>,
    /// Files already read, by their real path.
    seen: HashSet<PathBuf>,
}

impl FileReader {
    /// Reads a file, or the `wanted` files in a folder and its subfolders in the order of their names; names that start
    /// with a dot are skipped. Reports a folder without files if `empty` is a message.
    pub(crate) fn add(&mut self, path: &Path, wanted: fn(&Path) -> bool, empty: Option<&str>) {
        if !path.is_dir() {
            self.file(path);
            return;
        }
        let mut files = Vec::new();
        if let Err((folder, error)) = list(path, MAX_FOLDERS, is_hidden, wanted, &mut files) {
            self.fail(&folder, Code::Unreadable, &describe(&error));
            return;
        }
        if let Some(message) = empty.filter(|_| files.is_empty()) {
            self.fail(path, Code::EmptyFolder, message);
        }
        for file in files {
            self.file(&file);
        }
    }

    /// The texts of rule files or test files, and the mistakes found while reading them.
    pub(crate) fn finish(self) -> (SourceFiles, Vec<Diagnostic>) {
        (SourceFiles::of_kind(self.sources, TextKind::Rules), self.found)
    }

    /// Reads one settings file. Reports show only the values of the top-level keys in `public`.
    pub(super) fn settings(path: &Path, public: &'static [&'static str]) -> (SourceFiles, Vec<Diagnostic>) {
        let mut reader = Self::default();
        reader.file(path);
        (SourceFiles::of_kind(reader.sources, TextKind::Settings(public)), reader.found)
    }

    fn file(&mut self, path: &Path) {
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) => {
                return self.fail(path, Code::Unreadable, &format!("{}{}", describe(&error), path_hint(path)));
            }
        };
        if !self.seen.insert(real) {
            return;
        }
        match read_text(path) {
            Ok(text) => {
                self.source(path, text);
            }
            Err(ReadFailure::Io(error)) => self.fail(path, Code::Unreadable, &describe(&error)),
            Err(ReadFailure::NotUtf8 { line, found }) => {
                self.fail(path, Code::NotUtf8, &format!("the file is not valid UTF-8: {found} in line {line}"));
                let saved = "save it as UTF-8, for example with `iconv -t UTF-8 -f` and its encoding";
                self.found.last_mut().into_iter().for_each(|mistake| mistake.help = Some(saved.to_owned()));
            }
            Err(ReadFailure::TooLarge) => {
                let file = self.source(path, String::new());
                self.found.push(yaml::too_large(file));
            }
        }
    }

    fn fail(&mut self, path: &Path, code: Code, message: &str) {
        let file = self.source(path, String::new());
        let mistake = Diagnostic::error(code, DiagnosticLocation::File(file), message);
        self.found.push(mistake);
    }

    fn source(&mut self, path: &Path, text: String) -> FileId {
        let file = FileId(u32::try_from(self.sources.len()).unwrap_or(u32::MAX));
        let name = path.display().to_string();
        self.sources.push(SourceFile { name, text });
        file
    }
}

/// What to do about a path that does not exist, if it is one for a shell.
pub fn path_hint(path: &Path) -> &'static str {
    let text = path.as_os_str().as_encoded_bytes();
    if text.contains(&b'*') {
        "; name the folder: docward reads all its `*.yaml` and `*.yml` files"
    } else if path.iter().any(|part| part.as_encoded_bytes().starts_with(b"~")) {
        "; `~` is not your home folder here: write the path in full"
    } else {
        ""
    }
}

/// Why a file could not be read as text.
enum ReadFailure {
    Io(io::Error),
    NotUtf8 {
        /// Of the first invalid byte.
        line: usize,
        found: &'static str,
    },
    TooLarge,
}

/// The content of a regular file of at most `limit` bytes.
///
/// # Errors
/// Those of the operating system; `FileTooLarge`; `InvalidInput` if it is not a regular file: opening a FIFO waits
/// for a writer, and a device may never end.
pub fn read_file(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let kind = fs::metadata(path)?.file_type();
    if !kind.is_file() {
        let message = format!("it is {}, not a regular file", describe_kind(kind));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut bytes = Vec::new();
    // The size in the metadata is not a limit: files of /proc report 0.
    File::open(path)?.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        let message = format!("it is larger than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

fn describe_kind(kind: fs::FileType) -> &'static str {
    if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

fn read_text(path: &Path) -> Result<String, ReadFailure> {
    let bytes = read_file(path, yaml::MAX_FILE_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => ReadFailure::TooLarge,
        _ => ReadFailure::Io(error),
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let (valid, rest) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
        let line = memchr::memchr_iter(b'\n', valid).count() + 1;
        let is_utf_16 = valid.is_empty() && (rest.starts_with(&[0xff, 0xfe]) || rest.starts_with(&[0xfe, 0xff]));
        let found = if is_utf_16 { "there is the mark of UTF-16" } else { "there is a character of another encoding" };
        ReadFailure::NotUtf8 { line, found }
    })
}

/// Adds the `wanted` files under `folder`, at most `depth` folders deep. The error has the folder that failed.
fn list(
    folder: &Path,
    depth: usize,
    is_skipped: fn(&Path) -> bool,
    wanted: fn(&Path) -> bool,
    files: &mut Vec<PathBuf>,
) -> Result<(), (PathBuf, io::Error)> {
    let here = |error| (folder.to_owned(), error);
    if depth == 0 {
        let message = format!("folders are nested more than {MAX_FOLDERS} deep; check for a circular link");
        return Err(here(io::Error::other(message)));
    }
    let entries = fs::read_dir(folder).map_err(here)?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(here)?.path());
    }
    paths.sort();
    for path in paths.into_iter().filter(|path| !is_skipped(path)) {
        if path.is_dir() {
            list(&path, depth - 1, is_skipped, wanted, files)?;
        } else if wanted(&path) {
            files.push(path);
        }
    }
    Ok(())
}

/// The files under `folder` that [`FileReader::add`] skips although they are `similar` to the `wanted` ones. Folders whose names
/// begin with two dots are omitted: Kubernetes keeps the versions of a volume there.
pub(crate) fn skipped_files(folder: &Path, similar: fn(&Path) -> bool, wanted: fn(&Path) -> bool) -> Vec<PathBuf> {
    let is_version = |path: &Path| path.file_name().unwrap_or_default().as_encoded_bytes().starts_with(b"..");
    let (mut all, mut read) = (Vec::new(), Vec::new());
    let listed = list(folder, MAX_FOLDERS, is_version, similar, &mut all)
        .and_then(|()| list(folder, MAX_FOLDERS, is_hidden, wanted, &mut read));
    let read: HashSet<PathBuf> = read.into_iter().collect();
    all.retain(|file| listed.is_ok() && !read.contains(file));
    all
}

fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(b".")
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied: docward cannot read this".to_owned(),
        _ => format!("cannot read this: {error}"),
    }
}
