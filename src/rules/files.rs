//! Finds and reads rule files: the only file of the layer that touches the file system. [`read_file`] also reads what
//! other layers have in files.
//!
//! A path is a file, or a folder whose `*.yaml` and `*.yml` files are taken, also from folders
//! below, in the order of their names. Left out are `*.test.yaml`, which hold tests, and all
//! names that begin with a dot: editors' leftovers, and the `..data` links through which
//! Kubernetes shows every file of a volume a second time.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::code::Code;
use super::diagnostic::{Diagnostic, Place, Report};
use super::rule::Pattern;
use super::set::{RuleSet, RuleSetHash};
use super::shown::Kind;
use super::source::{FileId, Source, Sources};
use super::test_file::TestFiles;
use super::yaml;

/// How deep folders are searched: links to a folder above would otherwise never end.
const MAX_FOLDERS: usize = 16;

/// Reads one file of settings; mistakes in reading it are in the second place.
pub(super) fn single(path: &Path, public: &'static [&'static str]) -> (Sources, Vec<Diagnostic>) {
    let mut reading = Reading::default();
    reading.file(path);
    (Sources::of_kind(reading.sources, Kind::Settings(public)), reading.found)
}

impl<P: Pattern> RuleSet<P> {
    /// Reads and checks the rule files at `paths`: files, and folders full of them. A file reached
    /// twice counts once.
    ///
    /// # Errors
    /// Every mistake found in any file, paths that cannot be read, folders without a rule file;
    /// then nothing is loaded.
    pub fn load(paths: &[PathBuf]) -> Result<Self, Report> {
        let mut reading = Reading::default();
        for path in paths {
            reading.path(path);
        }
        Self::check(Sources::of_kind(reading.sources, Kind::Rules), reading.found)
    }

    /// What [`RuleSet::hash`] of these files would be now, if they load: tells whether loading them again could
    /// give another set.
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
    /// Reads the test files at `paths`: files, and those in folders and folders below.
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
        Self::check(Sources::of_kind(reading.sources, Kind::Rules), reading.found)
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
            let message = "there is no rule file (`*.yaml`, `*.yml`) in this folder";
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
                let message = format!("the file is not UTF-8 text: look at byte {at}");
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
        let mistake = Diagnostic::error(code, Place::File(file), message);
        self.found.push(mistake);
    }

    fn source(&mut self, path: &Path, text: String) -> FileId {
        let file = FileId(u32::try_from(self.sources.len()).unwrap_or(u32::MAX));
        let name = path.display().to_string();
        self.sources.push(Source { name, text });
        file
    }
}

/// Why a file gives no text.
enum Failure {
    Io(io::Error),
    /// The offset of the first byte that is not.
    NotUtf8(usize),
    TooLarge,
}

/// The content of a regular file of at most `limit` bytes.
///
/// # Errors
/// The system's; `InvalidInput` for what is no regular file: to open a FIFO waits for a writer, and a device may never end;
/// `FileTooLarge`.
pub fn read_file(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let kind = fs::metadata(path)?.file_type();
    if !kind.is_file() {
        let message = format!("it is {}, and only a regular file is read", describe_kind(kind));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut bytes = Vec::new();
    // The size a file claims is no limit: those of /proc claim none.
    File::open(path)?.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        let message = format!("it has more than {limit} bytes");
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

/// Adds the files under `folder` that are `wanted`, at most `depth` folders down; on failure says where.
fn list(
    folder: &Path,
    depth: usize,
    wanted: fn(&Path) -> bool,
    files: &mut Vec<PathBuf>,
) -> Result<(), (PathBuf, io::Error)> {
    let here = |error| (folder.to_owned(), error);
    if depth == 0 {
        let message = format!("more than {MAX_FOLDERS} folders in each other; is a link circular?");
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

/// Whether its name is that of a test file, `*.test.yaml`.
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
        io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
        io::ErrorKind::PermissionDenied => "the permission to read this is missing".to_owned(),
        _ => format!("this cannot be read: {error}"),
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
    fn takes_the_rule_files_of_a_folder_in_order() {
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
        assert!(only.has_errors(), "a file that is named is read whatever its name");
    }

    #[test]
    fn says_what_cannot_be_read_and_checks_the_rest() {
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
