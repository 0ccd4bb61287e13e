//! Loads rules and tests from paths.
//!
//! A path is a file or a folder. Of a folder and its subfolders all `*.yaml` and `*.yml` files are read, in the
//! order of their names. Skipped are `*.test.yaml` and `*.test.yml`, which contain tests, and all names that start with a dot:
//! editors' backup files, and the `..data` links in which Kubernetes repeats every file of a volume.

use std::path::{Path, PathBuf};

use super::hash::RuleSetHash;
use super::mode_override::ModeOverrides;
use super::set::RuleSet;
use super::test_file::TestFiles;
use crate::config::{self, Diagnostic, FileId, FileReader, Node, NodeValue, Report, SourceFiles, skipped_files};

impl RuleSet {
    /// Reads and checks the rule files at `paths`: files, and the files in folders. A file reached
    /// twice is read once.
    ///
    /// # Errors
    /// Every mistake found in any file, paths that cannot be read, folders without a rule file;
    /// then nothing is loaded.
    pub fn load(paths: &[PathBuf]) -> Result<Self, Report> {
        let (sources, found) = read_rules(paths);
        Self::check(sources, found, &ModeOverrides::new())
    }

    /// Like [`Self::load`], without the rules and files that have mistakes: [`RuleSet::warnings`] includes the errors.
    #[must_use]
    pub fn load_in_part(paths: &[PathBuf]) -> Self {
        let (sources, found) = read_rules(paths);
        Self::check_in_part(sources, found, &ModeOverrides::new())
    }

    /// The [`RuleSet::hash`] that these files would have now, if they load. If it did not change, a reload gives the
    /// same set.
    #[must_use]
    pub fn fingerprint(paths: &[PathBuf]) -> RuleSetHash {
        RuleSetHash::from_sources(&read_rules(paths).0)
    }
}

impl TestFiles {
    /// Reads the test files at `paths`: files, and the files in folders and their subfolders.
    ///
    /// # Errors
    /// Every mistake found in any file, and paths that cannot be read.
    pub fn load(paths: &[PathBuf]) -> Result<Self, Report> {
        let mut reader = FileReader::default();
        paths.iter().for_each(|path| reader.add(path, is_test_file, None));
        let (sources, found) = reader.finish();
        Self::check(sources, found)
    }
}

/// The files in these folders that look like rule or test files, and that are not read.
#[must_use]
pub fn skipped_rule_files(paths: &[PathBuf]) -> Vec<PathBuf> {
    let folders = paths.iter().filter(|path| path.is_dir());
    folders.flat_map(|folder| skipped_files(folder, is_like_yaml, |path| yaml_stem(path).is_some())).collect()
}

/// Whether the file is, by its name, a YAML file, a copy of one (`rules.yaml.bak`), or one with swapped letters.
fn is_like_yaml(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_ascii_lowercase();
    let is_ending = |part: &str| ["yaml", "yml", "ymal", "ylm"].contains(&part.trim_end_matches('~'));
    name.to_str().is_some_and(|name| name.split('.').skip(1).any(is_ending))
}

/// The files in these folders that have the name of a test file and contain rules.
#[must_use]
pub fn misnamed_rule_files(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut reader = FileReader::default();
    paths.iter().filter(|path| path.is_dir()).for_each(|path| reader.add(path, is_test_file, None));
    let (sources, _) = reader.finish();
    let has_rules = |file: &FileId| {
        let tree = config::parse(*file, sources.text(*file), &mut Vec::new());
        let Some(NodeValue::Map(entries)) = tree.map(|tree| tree.value) else { return false };
        // The `rules` of a test file are paths.
        let is_rule = |node: &Node| matches!(node.value, NodeValue::Map(_));
        entries.iter().any(|(key, node)| {
            key.text == "rules" && matches!(&node.value, NodeValue::List(rules) if rules.iter().any(is_rule))
        })
    };
    sources.files().filter(has_rules).map(|file| sources.name(file).into()).collect()
}

fn read_rules(paths: &[PathBuf]) -> (SourceFiles, Vec<Diagnostic>) {
    let empty = "this folder has no rule file (`*.yaml`, `*.yml`)";
    let mut reader = FileReader::default();
    paths.iter().for_each(|path| reader.add(path, is_rule_file, Some(empty)));
    reader.finish()
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

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "the tests write the files that are read")]

    use std::fs;
    use std::path::PathBuf;

    use super::{RuleSet, misnamed_rule_files, skipped_rule_files};
    use crate::config::MAX_FILE_BYTES;

    fn rule(name: &str) -> String {
        format!("version: 1\nrules:\n  - {{name: {name}, namespace: a.{name}, together: [x, y]}}\n")
    }

    fn names(rules: &RuleSet) -> Vec<&str> {
        rules.rules().iter().map(|rule| &*rule.name.value).collect()
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
        let rules = RuleSet::load(&[whole.clone(), whole.join("a.yaml")]).unwrap();
        assert_eq!(names(&rules), ["a", "b", "d"]);
        write("c/E.YAML", "skipped".to_owned());
        write(".old/f.yml", "skipped".to_owned());
        write("F.test.YML", "skipped".to_owned());
        write("G.Test.yaml", "read as a rule file, because of its name".to_owned());
        let skipped = skipped_rule_files(std::slice::from_ref(&whole));
        assert_eq!(skipped, [".hidden.yaml", ".old/f.yml", "F.test.YML", "c/E.YAML"].map(|name| whole.join(name)));
        let similar = ["a.ymal", "a.yaml.bak", "a.yml~"];
        similar.iter().for_each(|name| write(name, rule("similar")));
        let skipped = skipped_rule_files(std::slice::from_ref(&whole));
        assert!(similar.iter().all(|name| skipped.contains(&whole.join(name))), "{skipped:?}");
        write("paths.test.yaml", "version: 1\nrules: [a.yaml]\ntests: []\n".to_owned());
        assert!(misnamed_rule_files(std::slice::from_ref(&whole)).is_empty());
        write("c/prod.test.yaml", rule("misnamed"));
        assert_eq!(misnamed_rule_files(std::slice::from_ref(&whole)), [whole.join("c/prod.test.yaml")]);
        let only = RuleSet::load(&[whole.join("a.test.yaml")]).unwrap_err();
        assert!(only.has_errors(), "an explicitly given file is read whatever its name");
    }

    #[test]
    fn unreadable_paths_are_reported_and_the_others_checked() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| -> PathBuf { folder.path().join(name) };
        fs::write(at("latin1.yaml"), b"version: 1 # caf\xe9").unwrap();
        fs::write(at("wrong.yaml"), "version: 2\nrules: []\n").unwrap();
        fs::write(at("large.yaml"), vec![b'#'; MAX_FILE_BYTES + 1]).unwrap();
        fs::create_dir(at("empty")).unwrap();
        let paths = ["latin1.yaml", "wrong.yaml", "large.yaml", "empty", "missing.yaml"].map(at);
        let report = RuleSet::load(&paths).unwrap_err();
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
        let report = RuleSet::load(&[folder.path().to_owned()]).unwrap_err();
        assert!(report.to_string().contains("circular"), "{report}");
    }
}
