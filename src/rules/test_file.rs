//! Test files, `*.test.yaml`: tests of many rules together, apart from the rules themselves.
//!
//! Types and their reading; `files.rs` finds the files. What the tests are about, `docward test` runs.

use super::context::{Located, ReadContext};
use super::diagnostic::{Diagnostic, Report};
use super::node::{Node, Value};
use super::rule::RuleTest;
use super::source::{FileId, Source, Sources, Span};
use super::{Code, rule_test, yaml};

/// The version of the test language that is read here; the rule language's.
const VERSION: i64 = 1;

/// One test file.
#[derive(Clone, Debug)]
pub struct TestFile {
    /// Where it is among the sources.
    pub file: FileId,
    /// The rule files and folders it is about, as written; none: those of its own folder.
    pub rules: Vec<Located<String>>,
    /// At least one.
    pub tests: Vec<RuleTest>,
}

/// Test files with their texts.
#[derive(Clone, Debug, Default)]
pub struct TestFiles {
    /// In the order they were found.
    pub files: Vec<TestFile>,
    /// What they were read from.
    pub sources: Sources,
}

impl TestFiles {
    /// Reads test files given as text.
    ///
    /// # Errors
    /// Every mistake found in any of them.
    pub fn from_sources(sources: Vec<Source>) -> Result<Self, Report> {
        Self::check(Sources::new(sources), Vec::new())
    }

    /// The same, with the mistakes already made in reading the files.
    pub(super) fn check(sources: Sources, mut found: Vec<Diagnostic>) -> Result<Self, Report> {
        let unread: Vec<FileId> = found.iter().map(|one| one.place.file()).collect();
        let mut files = Vec::new();
        for file in sources.files().filter(|file| !unread.contains(file)) {
            match yaml::parse(file, sources.text(file)) {
                Ok(tree) => files.extend(read(file, &tree, &sources, &mut found)),
                Err(mistake) => found.push(*mistake),
            }
        }
        let report = Report::new(found, sources);
        if report.has_errors() { Err(report) } else { Ok(Self { files, sources: report.sources }) }
    }
}

fn read(file: FileId, tree: &Node, sources: &Sources, found: &mut Vec<Diagnostic>) -> Option<TestFile> {
    if tree.value == Value::Null {
        let start = Span::new(file, 0, 0);
        let mistake = Diagnostic::error(Code::InvalidTest, start, "there is nothing in this file");
        found.push(mistake.help("begin with `version: 1` and a list of `tests`, or remove the file"));
        return None;
    }
    let mut context = ReadContext::new(found);
    let mut settings = context.map(tree)?;
    let version = settings.required_integer("version");
    if let Some(version) = version.filter(|version| version.value != VERSION) {
        let message = format!("version {} of the rule language is unknown", version.value);
        let mistake = Diagnostic::error(Code::UnsupportedVersion, version.span, message);
        settings.context().push(mistake.help("this docward reads `version: 1`"));
    }
    let rules = settings.texts("rules").unwrap_or_default();
    let database = settings.text("database").map(|database| database.value);
    settings.required_node("tests");
    let tests = rule_test::read_all(&mut settings, database.as_deref(), sources);
    settings.finish();
    Some(TestFile { file, rules, tests })
}

#[cfg(test)]
mod tests {
    use super::{Source, TestFiles};

    fn load(text: &str) -> Result<TestFiles, super::Report> {
        TestFiles::from_sources(vec![Source { name: "shop.test.yaml".to_owned(), text: text.to_owned() }])
    }

    #[test]
    fn a_test_file_names_its_rules_and_its_database() {
        let text =
            "version: 1\ndatabase: shop\nrules: [a.yaml, more]\ntests: [{given: db.c.drop(), expect: unchanged}]\n";
        let loaded = load(text).unwrap();
        let [file] = loaded.files.as_slice() else { panic!() };
        let rules: Vec<&str> = file.rules.iter().map(|path| path.value.as_str()).collect();
        assert_eq!(rules, ["a.yaml", "more"]);
        assert_eq!(file.tests[0].database, "shop");
        assert_eq!(load("version: 1\ntests: []").unwrap().files[0].tests, []);
    }

    #[test]
    fn mistakes_are_shown_at_their_places() {
        for (text, place, message) in [
            ("", "shop.test.yaml:1:1", "nothing in this file"),
            ("version: 1", "shop.test.yaml:1:1", "`tests` is missing"),
            ("version: 2\ntests: []", "shop.test.yaml:1:10", "version 2 of the rule language is unknown"),
            ("version: 1\ntest: []\ntests: []", "shop.test.yaml:2:1", "did you mean `tests`?"),
            (
                "version: 1\ntests: [{given: db.c.drp(), expect: rejected}]",
                "shop.test.yaml:2:22",
                "did you mean `drop`?",
            ),
        ] {
            let report = load(text).unwrap_err().render(false);
            assert!(report.contains(place) && report.contains(message), "{report}");
        }
    }
}
