//! Test files, `*.test.yaml`: tests that run against several rules together.
//!
//! This file has the types and reads them; `files.rs` finds the files. `docward test` runs the tests.

use super::envelope::VERSION_KEY;
use super::rule::RuleTest;
use super::rule_test;
use crate::command::may_name_database;
use crate::config::keys::{Keys, NamedSchema, Setting, TEXT, Text, TextOrList, ValueList, ValueSchema};
use crate::config::{
    self, Code, Diagnostic, FileId, Located, Node, NodeValue, ReadContext, Report, SourceFile, SourceFiles, Span,
};
use crate::shell;

/// A test file.
pub const TEST_FILE: NamedSchema = NamedSchema {
    name: "testFile",
    meaning: "Tests of rules together (*.test.yaml), run by docward test.",
    schema: || ValueSchema::Mapping(&KEYS),
};
const DATABASE: Setting<Text> =
    Setting::optional("database", TEXT, "The database that `db` stands for in the commands. Default: test.");
const RULES: Setting<TextOrList<Text>> = Setting::optional(
    "rules",
    TextOrList(TEXT),
    "The rule files and folders to test, besides this file. Default: everything in its folder.",
);
const TESTS: Setting<ValueList> = Setting::required(
    "tests",
    ValueList { items: &rule_test::TEST, at_least: 1 },
    "Commands and the expected results.",
);
const KEYS: Keys = Keys::new("", &[&VERSION_KEY, &DATABASE, &RULES, &TESTS]);

/// One test file.
#[derive(Clone, Debug)]
pub struct TestFile {
    /// Its index in the sources.
    pub file: FileId,
    /// The rule files and folders it tests, as written. Empty: those of its own folder.
    pub rules: Vec<Located<String>>,
    /// At least one.
    pub tests: Vec<RuleTest>,
}

/// Test files with their texts.
#[derive(Clone, Debug, Default)]
pub struct TestFiles {
    /// In the order they were found.
    pub files: Vec<TestFile>,
    /// The texts they were read from.
    pub sources: SourceFiles,
}

impl TestFiles {
    /// Reads test files given as text.
    ///
    /// # Errors
    /// Every mistake found in any of them.
    pub fn from_sources(sources: Vec<SourceFile>) -> Result<Self, Report> {
        Self::check(SourceFiles::new(sources), Vec::new())
    }

    /// Like [`Self::from_sources`], for `sources` in which reading the files already `found` mistakes.
    pub(super) fn check(sources: SourceFiles, mut found: Vec<Diagnostic>) -> Result<Self, Report> {
        let unread: Vec<FileId> = found.iter().map(|one| one.location.file()).collect();
        let mut files = Vec::new();
        for file in sources.files().filter(|file| !unread.contains(file)) {
            let tree = config::parse(file, sources.text(file), &mut found);
            files.extend(tree.and_then(|tree| read_test_file(file, &tree, &sources, &mut found)));
        }
        let report = Report::new(found, sources);
        if report.has_errors() { Err(report) } else { Ok(Self { files, sources: report.sources }) }
    }
}

fn read_test_file(file: FileId, tree: &Node, sources: &SourceFiles, found: &mut Vec<Diagnostic>) -> Option<TestFile> {
    if tree.value == NodeValue::Null {
        let start = Span::new(file, 0, 0);
        let mistake = Diagnostic::error(Code::InvalidTest, start, "this file has no content");
        found.push(mistake.help("start with `version: 1` and a list of `tests`, or remove the file"));
        return None;
    }
    let mut context = ReadContext::new(found);
    let mut settings = context.map(tree)?.declared(&KEYS);
    settings.get(&VERSION_KEY);
    let rules = settings.get(&RULES).unwrap_or_default();
    let mut database = settings.get(&DATABASE);
    if let Some(invalid) = database.take_if(|database| !may_name_database(&database.value)) {
        settings.context().error(Code::InvalidTest, invalid.span, shell::not_a_database(&invalid.value));
    }
    let database = database.map(|database| database.value);
    let tests = rule_test::read_all(&mut settings, &TESTS, database.as_deref(), sources);
    if let Some((_, Node { value: NodeValue::List(list), span })) = settings.entry(TESTS.name)
        && list.is_empty()
    {
        settings.context().error(Code::InvalidTest, *span, "this file has no tests");
    }
    settings.finish();
    Some(TestFile { file, rules, tests })
}

#[cfg(test)]
mod tests {
    use super::{SourceFile, TestFiles};

    fn load(text: &str) -> Result<TestFiles, super::Report> {
        TestFiles::from_sources(vec![SourceFile { name: "shop.test.yaml".to_owned(), text: text.to_owned() }])
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
    }

    #[test]
    fn diagnostics_point_at_the_mistake() {
        for (text, span, message) in [
            ("", "shop.test.yaml:1:1", "this file has no content"),
            ("version: 1\ntests: []", "shop.test.yaml:2:8", "this file has no tests"),
            ("version: 1", "shop.test.yaml:1:1", "`tests` is missing"),
            ("version: 2\ntests: []", "shop.test.yaml:1:10", "version 2 of the rule language is not supported"),
            (
                "version: 1\ndatabase: a.b\ntests: [{given: db.c.drop(), expect: rejected}]",
                "shop.test.yaml:2:11",
                "cannot be the name of a database",
            ),
            ("version: 1\ntest: []\ntests: []", "shop.test.yaml:2:1", "did you mean `tests`?"),
            (
                "version: 1\ntests: [{given: db.c.drp(), expect: rejected}]",
                "shop.test.yaml:2:22",
                "did you mean `drop`?",
            ),
        ] {
            let report = load(text).unwrap_err().render(false);
            assert!(report.contains(span) && report.contains(message), "{report}");
        }
    }
}
