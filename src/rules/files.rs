//! Finds and reads rule files: the only file of this layer that accesses the file system. Other layers use
//! [`read_file`] too.
//!
//! A path is a file or a folder. Of a folder and its subfolders all `*.yaml` and `*.yml` files are read, in the
//! order of their names. Skipped are `*.test.yaml`, which contain tests, and all names that start with a dot:
//! editors' backup files, and the `..data` links in which Kubernetes repeats every file of a volume.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::code::Code;
use super::diagnostic::{Diagnostic, DiagnosticPlace, Report};
use super::rule::Pattern;
use super::set::{RuleSet, RuleSetHash};
use super::shown::TextKind;
use super::source::{FileId, Source, Sources};
use super::test_file::TestFiles;
use super::yaml;

/// How deep folders are searched. Bounds the search when a link points to a parent folder.
const MAX_FOLDERS: usize = 16;

/// Reads one settings file; the second value has the mistakes found while reading it.
pub(super) fn single(path: &Path, public: &'static [&'static str]) -> (Sources, Vec<Diagnostic>) {
    let mut reading = Reading::default();
    reading.file(path);
    (Sources::of_kind(reading.sources, TextKind::Settings(public)), reading.found)
}

impl<P: Pattern> RuleSet<P> {
    /// Reads and checks the rule files at `paths`: files, and the files in folders. A file reached
    /// twice is read once.
    ///
    /// # Errors
    /// Every mistake found in any file, paths that cannot be read, folders without a rule file;
    /// then nothing is loaded.
    pub fn load(paths: &[PathBuf]) -> Result<Self, Report> {
        let mut reading = Reading::default();
        for path in paths {
            reading.path(path);
        }
        Self::check(Sources::of_kind(reading.sources, TextKind::Rules), reading.found)
    }

    /// The [`RuleSet::hash`] that these files would have now, if they load. If it did not change, a reload gives the
    /// same set.
    #[must_use]
    pub fn fingerprint(paths: &[PathBuf]) -> RuleSetHash {
        let mut reading = Reading::default();
        for path in paths {
            reading.path(path);
        }
        RuleSetHash::of(&Sources::new(reading.sources))
    }
}

impl TestFiles {
    /// Reads the test files at `paths`: files, and the files in folders and their subfolders.
    ///
    /// # Errors
    /// Every mistake found in any file, and paths that cannot be read.
    pub fn load(paths: &[PathBuf]) -> Result<Self, Report> {
        let mut reading = Reading::default();
        for path in paths {
            if !path.is_dir() {
                reading.file(path);
                continue;
            }
            let mut files = Vec::new();
            match list(path, MAX_FOLDERS, is_test_file, &mut files) {
                Ok(()) => files.iter().for_each(|file| reading.file(file)),
                Err((folder, error)) => reading.fail(&folder, Code::Unreadable, &describe(&error)),
            }
        }
        Self::check(Sources::of_kind(reading.sources, TextKind::Rules), reading.found)
    }
}

#[derive(Default)]
struct Reading {
    sources: Vec<Source>,
    found: Vec<Diagnostic>,
    /// Files already read, by their real path.
    seen: HashSet<PathBuf>,
}

impl Reading {
    fn path(&mut self, path: &Path) {
        if !path.is_dir() {
            self.file(path);
            return;
        }
        let mut files = Vec::new();
        if let Err((folder, error)) = list(path, MAX_FOLDERS, is_rule_file, &mut files) {
            self.fail(&folder, Code::Unreadable, &describe(&error));
            return;
        }
        if files.is_empty() {
            let message = "this folder has no rule file (`*.yaml`, `*.yml`)";
            self.fail(path, Code::EmptyFolder, message);
        }
        for file in files {
            self.file(&file);
        }
    }

    fn file(&mut self, path: &Path) {
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) => return self.fail(path, Code::Unreadable, &describe(&error)),
        };
        if !self.seen.insert(real) {
            return;
        }
        match read(path) {
            Ok(text) => {
                self.source(path, text);
            }
            Err(Failure::Io(error)) => self.fail(path, Code::Unreadable, &describe(&error)),
            Err(Failure::NotUtf8(at)) => {
                let message = format!("the file is not valid UTF-8: see the byte at offset {at}");
                self.fail(path, Code::NotUtf8, &message);
            }
            Err(Failure::TooLarge) => {
                let file = self.source(path, String::new());
                self.found.push(yaml::too_large(file));
            }
        }
    }

    fn fail(&mut self, path: &Path, code: Code, message: &str) {
        let file = self.source(path, String::new());
        let mistake = Diagnostic::error(code, DiagnosticPlace::File(file), message);
        self.found.push(mistake);
    }

    fn source(&mut self, path: &Path, text: String) -> FileId {
        let file = FileId(u32::try_from(self.sources.len()).unwrap_or(u32::MAX));
        let name = path.display().to_string();
        self.sources.push(Source { name, text });
        file
    }
}

/// Why a file could not be read as text.
enum Failure {
    Io(io::Error),
    /// The offset of the first invalid byte.
    NotUtf8(usize),
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

fn read(path: &Path) -> Result<String, Failure> {
    let bytes = read_file(path, yaml::MAX_FILE_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => Failure::TooLarge,
        _ => Failure::Io(error),
    })?;
    String::from_utf8(bytes).map_err(|error| Failure::NotUtf8(error.utf8_error().valid_up_to()))
}

/// Adds the `wanted` files under `folder`, at most `depth` folders deep. The error has the folder that failed.
fn list(
    folder: &Path,
    depth: usize,
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
    for path in paths.into_iter().filter(|path| !is_hidden(path)) {
        if path.is_dir() {
            list(&path, depth - 1, wanted, files)?;
        } else if wanted(&path) {
            files.push(path);
        }
    }
    Ok(())
}

fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(b".")
}

fn is_rule_file(path: &Path) -> bool {
    yaml_stem(path).is_some_and(|stem| !stem.ends_with(".test"))
}

/// Whether the file name is `*.test.yaml` or `*.test.yml`.
#[must_use]
pub fn is_test_file(path: &Path) -> bool {
    yaml_stem(path).is_some_and(|stem| stem.ends_with(".test"))
}

/// The name without `.yaml` or `.yml`.
fn yaml_stem(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(".yaml").or(name.strip_suffix(".yml"))
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied: docward cannot read this".to_owned(),
        _ => format!("cannot read this: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::super::stub::StubPattern;
    use super::RuleSet;

    type Rules = RuleSet<StubPattern>;

    fn rule(name: &str) -> String {
        format!("version: 1\nrules:\n  - {{name: {name}, namespace: a.{name}, together: [x, y]}}\n")
    }

    fn names(rules: &Rules) -> Vec<&str> {
        rules.rules().iter().map(|rule| rule.name.value.as_str()).collect()
    }

    #[test]
    fn the_rule_files_of_a_folder_load_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: String| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("b.yml", rule("b"));
        write("a.yaml", rule("a"));
        write("c/d.yaml", rule("d"));
        write("a.test.yaml", "not a rule file".to_owned());
        write(".hidden.yaml", "not a rule file".to_owned());
        write("..data/a.yaml", rule("a"));
        write("readme.md", "not a rule file".to_owned());
        let whole = folder.path().to_owned();
        let rules = Rules::load(&[whole.clone(), whole.join("a.yaml")]).unwrap();
        assert_eq!(names(&rules), ["a", "b", "d"]);
        let only = Rules::load(&[whole.join("a.test.yaml")]).unwrap_err();
        assert!(only.has_errors(), "an explicitly given file is read whatever its name");
    }

    #[test]
    fn unreadable_paths_are_reported_and_the_others_checked() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| -> PathBuf { folder.path().join(name) };
        fs::write(at("latin1.yaml"), b"version: 1 # caf\xe9").unwrap();
        fs::write(at("wrong.yaml"), "version: 2\nrules: []\n").unwrap();
        fs::write(at("large.yaml"), vec![b'#'; super::yaml::MAX_FILE_BYTES + 1]).unwrap();
        fs::create_dir(at("empty")).unwrap();
        let paths = ["latin1.yaml", "wrong.yaml", "large.yaml", "empty", "missing.yaml"].map(at);
        let report = Rules::load(&paths).unwrap_err();
        let codes: Vec<_> = report.diagnostics.iter().map(|one| one.code.as_str()).collect();
        assert_eq!(codes, ["R0003", "R0014", "R0015", "R0005", "R0004", "R0002"]);
        let text = report.render(false);
        assert!(text.contains("missing.yaml\n"), "{text}");
        let json = report.to_json();
        assert_eq!(json[5]["line"], serde_json::Value::Null);
        assert!(json[5]["file"].as_str().unwrap().ends_with("missing.yaml"));
    }

    #[cfg(unix)]
    #[test]
    fn a_circular_link_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("again")).unwrap();
        let report = Rules::load(&[folder.path().to_owned()]).unwrap_err();
        assert!(report.to_string().contains("circular"), "{report}");
    }
}
