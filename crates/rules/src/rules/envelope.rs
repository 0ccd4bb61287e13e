//! Reads the parts of rule files that all patterns share.
//!
//! A mistake in a rule does not stop reading it, so that one load reports all mistakes. [`AnyPattern::read_settings`]
//! reads the settings under the pattern key, `rule_test.rs` reads tests, and `conflict.rs` compares rules with each
//! other.

use std::collections::HashSet;
use std::sync::Arc;

use super::clients::{AppName, ClientGlobs, UserName};
use super::rule::{Mode, Rule, RuleId, Unsupported};
use super::rule_test;
use crate::config::keys::{
    Constraint, DeclaredScalar, DescribeSchema, Keys, Keywords, Mapping, NamedSchema, ReadText, ReadValue, Setting,
    TEXT, Text, TextOrList, TextSchema, ValueList, ValueSchema, WholeNumber,
};
use crate::config::{
    self, Code, Diagnostic, FileId, Located, MapReader, MappingKey, NamespaceGlob, Node, NodeValue, PatternSettings,
    ReadContext, SourceFiles, Span, unknown_key,
};
use crate::patterns::AnyPattern;
use crate::suggest;

/// The supported version of the rule language.
const VERSION: i64 = 1;
/// The longest rule name, in bytes. Names appear in error messages, logs and metric labels.
const MAX_NAME_BYTES: usize = 100;

/// A rule file.
pub const RULE_FILE: NamedSchema = NamedSchema {
    name: "ruleFile",
    meaning: "Rules that docward enforces.",
    schema: || ValueSchema::Mapping(&FILE_KEYS),
};
pub(super) const VERSION_KEY: Setting<Version> =
    Setting::required("version", Version, "The version of the rule language.");
const RULES: Setting<ValueList> =
    Setting::required("rules", ValueList { items: &RULE, at_least: 1 }, "The rules, in any order.");
const FILE_KEYS: Keys = Keys::new("", &[&VERSION_KEY, &RULES]);

/// A rule without its pattern: a rule has one more key, the name of a pattern.
pub const RULE: NamedSchema = NamedSchema {
    name: "rule",
    meaning: "A rule: where it applies, its mode, and exactly one pattern.",
    schema: || ValueSchema::Mapping(&RULE_KEYS),
};
const NAME: Setting<Text> = Setting::required(
    "name",
    Text(TextSchema { longest: Some(MAX_NAME_BYTES), ..TextSchema::matching("^[a-z0-9]+(-[a-z0-9]+)*$") }),
    "Unique in all loaded files; used in errors, logs and metrics.",
);
const WHY: Setting<Text> =
    Setting::optional("why", TEXT, "Shown to the application when the rule rejects one of its statements.");
const NAMESPACES: Setting<TextOrList<NamespaceText>> = Setting::required(
    "namespace",
    TextOrList(NamespaceText),
    "database.collection, a list of these, or globs: shop.*, \"*.orders\", \"*.*\".",
)
.examples(&["shop.orders"]);
const NAMESPACE: NamedSchema = NamedSchema {
    name: "namespace",
    meaning: "",
    schema: || {
        let pattern = r#"^[^./\\ "$,;|?{}\[\]\^]+\.[^.$,;|?{}\[\]\^][^$,;|?{}\[\]\^]*$"#;
        ValueSchema::Text(TextSchema { longest: Some(255), ..TextSchema::matching(pattern) })
    },
};
/// `DB.COLLECTION`, of which both may be globs.
#[derive(Clone, Copy, Debug)]
struct NamespaceText;

impl DescribeSchema for NamespaceText {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&NAMESPACE)
    }
}

impl ReadText for NamespaceText {
    type Value = Located<NamespaceGlob>;

    fn read_text(&self, context: &mut ReadContext<'_>, _: &str, text: Located<String>) -> Option<Self::Value> {
        Some(Located { value: context.namespace(&text)?, span: text.span })
    }
}

const MODE: Setting<Keywords<Mode>> = Setting::with_default(
    "mode",
    Keywords(&[
        ("enforce", Mode::Enforce, "The rule rewrites and rejects."),
        ("shadow", Mode::Shadow, "The rule counts and logs what it would do, and forwards the statements unchanged."),
        ("disabled", Mode::Disabled, "The rule is checked when loaded, and otherwise ignored."),
    ]),
    DeclaredScalar::Text("enforce"),
    "What the rule does with its verdicts.",
);
const EXCEPT: Setting<Mapping> = Setting::optional(
    "except",
    Mapping(&CLIENT_KEYS),
    "Clients that the rule does not apply to; every use is counted and logged.",
);
const ONLY: Setting<Mapping> = Setting::optional(
    "only",
    Mapping(&CLIENT_KEYS),
    "The only clients that the rule applies to, unless they are in `except`.",
);
const APPS: Setting<TextOrList<AppName>> =
    Setting::optional("apps", TextOrList(AppName), "Globs for the appName of the connection string.");
const USERS: Setting<TextOrList<UserName>> =
    Setting::optional("users", TextOrList(UserName), "Globs for authenticated users: \"authDb.user\".");
const CLIENT_KEYS: Keys = Keys::new("", &[&APPS, &USERS]).constrained(&[Constraint::AtLeastOneKey]);
const UNSUPPORTED: Setting<Keywords<Unsupported>> = Setting::with_default(
    "unsupported",
    Keywords(&[
        ("reject", Unsupported::Reject, "The write is rejected with a reason."),
        ("allow", Unsupported::Allow, "The write is forwarded and counted."),
    ]),
    DeclaredScalar::Text("reject"),
    "The action for a write that the rule cannot analyse.",
);
const TESTS: Setting<ValueList> =
    Setting::optional("tests", ValueList { items: &rule_test::TEST, at_least: 0 }, "Examples, run by `docward test`.");
const RULE_KEYS: Keys = Keys::new("", &[&NAME, &WHY, &NAMESPACES, &MODE, &EXCEPT, &ONLY, &UNSUPPORTED, &TESTS]);

/// The content of the files.
pub(super) struct RuleFileContent {
    /// The valid rules.
    pub(super) rules: Vec<Rule>,
    /// The names of all rules, including invalid ones.
    pub(super) names: Vec<Located<String>>,
}

/// Reads the rules of all files that could be read; adds mistakes to `found`.
pub(super) fn read_rules(sources: &SourceFiles, found: &mut Vec<Diagnostic>) -> RuleFileContent {
    let mut read = RuleFileContent { rules: Vec::new(), names: Vec::new() };
    // A file that could not be read has no text to check.
    let unread: HashSet<FileId> = found.iter().map(|one| one.location.file()).collect();
    for file in sources.files().filter(|file| !unread.contains(file)) {
        let Some(tree) = config::parse(file, sources.text(file), found) else { continue };
        for node in read_file(&tree, found) {
            let id = RuleId(u32::try_from(read.rules.len()).unwrap_or(u32::MAX));
            read.names.extend(name_of(node));
            read.rules.extend(read_rule(id, node, sources, found));
        }
    }
    read
}

/// The nodes of the rules in one file; empty if there are none.
fn read_file<'t>(tree: &'t Node, found: &mut Vec<Diagnostic>) -> &'t [Node] {
    if tree.value == NodeValue::Null {
        let start = Span::new(tree.span.file, 0, 0);
        let mistake = Diagnostic::error(Code::NoRules, start, "this file has no content");
        found.push(mistake.help("start with `version: 1` and a list of `rules`, or remove the file"));
        return &[];
    }
    if let NodeValue::List(_) = tree.value {
        let mistake =
            Diagnostic::error(Code::WrongType, tree.span, "a rule file must be a mapping").note("found a list");
        found.push(mistake.help("write `version: 1` and `rules:` above the list"));
        return &[];
    }
    if let Some(key) = key_among(tree, &["upstream", "listen", "query_listen", "members"]) {
        let mistake = Diagnostic::error(Code::UnknownKey, key.span, "this is a configuration file, not a rule file");
        found.push(mistake.help("name it with --config"));
        return &[];
    }
    if let Some(key) = key_among(tree, &["tests"]) {
        let mistake = Diagnostic::error(Code::UnknownKey, key.span, "this is a test file; run `docward test`");
        found.push(mistake.help("a rule's own tests are under its `tests` key; name test files `*.test.yaml`"));
        return &[];
    }
    let mut context = ReadContext::new(found);
    let Some(mut file) = context.map(tree).map(|file| file.declared(&FILE_KEYS)) else { return &[] };
    file.get(&VERSION_KEY);
    let rules = file.list(&RULES);
    if let (Some([]), Some((_, node))) = (rules, file.entry(RULES.name)) {
        file.context().error(Code::NoRules, node.span, "this file has no rules");
    }
    file.finish();
    rules.unwrap_or_default()
}

/// The first key of a file that only files of another kind have.
fn key_among<'t>(tree: &'t Node, names: &[&str]) -> Option<&'t MappingKey> {
    let NodeValue::Map(entries) = &tree.value else { return None };
    entries.iter().map(|(key, _)| key).find(|key| names.contains(&key.text.as_str()))
}

/// The version of the rule language.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version;

impl DescribeSchema for Version {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Constant(DeclaredScalar::Integer(VERSION))
    }
}

impl ReadValue for Version {
    type Value = ();

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<()> {
        let version = WholeNumber(i64::MIN..=i64::MAX).read(context, key, node)?;
        if version.value != VERSION {
            let message = format!("version {} of the rule language is not supported", version.value);
            let mistake = Diagnostic::error(Code::UnsupportedVersion, version.span, message);
            context.push(mistake.help(format!("this docward supports `version: {VERSION}`")));
        }
        Some(())
    }
}

/// The name of a rule, valid or not.
fn name_of(rule: &Node) -> Option<Located<String>> {
    let NodeValue::Map(entries) = &rule.value else { return None };
    let (_, node) = entries.iter().find(|(key, _)| key.text == "name")?;
    match &node.value {
        NodeValue::Text(name) => Some(Located { value: name.clone(), span: node.span }),
        _ => None,
    }
}

fn read_rule(id: RuleId, node: &Node, sources: &SourceFiles, found: &mut Vec<Diagnostic>) -> Option<Rule> {
    let mut context = ReadContext::new(found);
    let mut rule = context.map(node)?.declared(&RULE_KEYS);
    let name = rule.get(&NAME);
    if let Some(name) = &name {
        check_name(name, rule.context());
    }
    let why = rule.get(&WHY).map(|why| why.value);
    let namespaces = rule.get(&NAMESPACES);
    let mode = rule.get_or_default(&MODE);
    let except = read_except(&mut rule);
    let only = read_clients(&mut rule, &ONLY).map(|(only, _)| only).unwrap_or_default();
    let unsupported = rule.get_or_default(&UNSUPPORTED);
    let database = namespaces.as_deref().and_then(rule_test::database);
    let tests = rule_test::read_all(&mut rule, &TESTS, database, sources);
    let pattern = find_pattern(rule);
    // The settings are checked even if something else in the rule is wrong.
    let pattern = pattern.and_then(|(name, key, settings)| {
        let known = namespaces.as_deref().unwrap_or_default();
        let beside: Vec<_> = RULE_KEYS.settings.iter().map(|setting| setting.name()).collect();
        let settings_of =
            PatternSettings { span: settings.span, key, example: AnyPattern::example(name), beside: &beside };
        let mut context = ReadContext::for_settings(found, known, settings_of);
        AnyPattern::read_settings(name, settings, &mut context)
    });
    let (name, mode) = (name?, mode?.value);
    Some(Rule {
        id,
        location: sources.location(node.span),
        name: name.map(Arc::from),
        why,
        namespaces: namespaces?,
        mode,
        file_mode: mode,
        mode_override: None,
        except,
        only,
        unsupported: unsupported?.value,
        properties: pattern.as_ref()?.properties(),
        pattern: pattern?,
        tests,
    })
}

fn check_name(name: &Located<String>, context: &mut ReadContext<'_>) {
    let word = |word: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        !word.is_empty() && word.chars().all(plain)
    };
    if name.len() > MAX_NAME_BYTES {
        let message = format!("a rule name has at most {MAX_NAME_BYTES} bytes");
        context.error(Code::InvalidName, name.span, message);
        return;
    }
    if name.split('-').all(word) {
        return;
    }
    let message = format!("`{}` is not kebab-case", name.value);
    let mut mistake = Diagnostic::error(Code::InvalidName, name.span, message)
        .help("use lower-case letters and digits, with single hyphens between words");
    let better = to_kebab_case(name);
    if !better.is_empty() {
        mistake = mistake.note(format!("did you mean `{better}`?"));
    }
    context.push(mistake);
}

fn to_kebab_case(name: &str) -> String {
    let mut kebab = String::new();
    let mut after_lower = false;
    for character in name.chars() {
        let starts_word = character.is_ascii_uppercase() && after_lower;
        if (starts_word || !character.is_ascii_alphanumeric()) && !kebab.ends_with('-') {
            kebab.push('-');
        }
        if character.is_ascii_alphanumeric() {
            kebab.push(character.to_ascii_lowercase());
        }
        after_lower = character.is_ascii_lowercase() || character.is_ascii_digit();
    }
    kebab.trim_matches('-').to_owned()
}

fn read_clients(rule: &mut MapReader<'_, '_, '_>, key: &Setting<Mapping>) -> Option<(ClientGlobs, Span)> {
    let mut clients = rule.nested(key)?;
    let span = clients.span();
    let apps = clients.get(&APPS).unwrap_or_default();
    let users = clients.get(&USERS).unwrap_or_default();
    if !clients.has(&APPS) && !clients.has(&USERS) {
        let message = format!("`{}` has neither `apps` nor `users`", key.name);
        clients.context().error(Code::InvalidException, span, message);
    }
    clients.finish();
    Some((ClientGlobs { apps, users }, span))
}

/// Warns about an exception that exempts all applications or all users.
fn read_except(rule: &mut MapReader<'_, '_, '_>) -> ClientGlobs {
    let Some((except, span)) = read_clients(rule, &EXCEPT) else { return ClientGlobs::default() };
    let apps = except.apps.iter().any(|app| app.0.as_str() == "*");
    let users = except.users.iter().any(|user| [&user.database, &user.user].iter().all(|glob| glob.as_str() == "*"));
    for (exempts_all, glob, clients) in
        [(apps, "*", "every application that sends a name"), (users, "*.*", "every authenticated user")]
    {
        if exempts_all {
            let message = format!("`{glob}` exempts {clients}: the rule has no effect for them");
            let help =
                "list the clients to exempt; use `mode: disabled` to turn the rule off, or `mode: shadow` to try it";
            rule.context().push(Diagnostic::warning(Code::NeverActs, span, message).help(help));
        }
    }
    except
}

/// The pattern key of a rule, and the settings under it.
type PatternEntry<'n> = (&'static str, &'n MappingKey, &'n Node);

/// The pattern of a rule. All other keys must have been read; unknown keys are reported here.
fn find_pattern<'n>(mut rule: MapReader<'n, '_, '_>) -> Option<PatternEntry<'n>> {
    let mut present: Vec<PatternEntry<'n>> = Vec::new();
    for name in AnyPattern::NAMES {
        if let Some((key, node)) = rule.entry(name) {
            present.push((name, key, node));
        }
    }
    present.sort_by_key(|(_, key, _)| key.span);
    let (first, first_key, _) = match present.as_slice() {
        [] => {
            report_no_pattern(rule, AnyPattern::NAMES);
            return None;
        }
        [one, ..] => *one,
    };
    for (name, key, _) in &present[1..] {
        let message = format!("a rule has exactly one pattern; this one has `{first}` and `{name}`");
        let mistake = Diagnostic::error(Code::SeveralPatterns, key.span, message)
            .label(first_key.span, "the first pattern")
            .help("split it into two rules with different names");
        rule.context().push(mistake);
    }
    let (context, unknown, allowed) = rule.finish_quietly();
    for key in unknown {
        let mut mistake = unknown_key(key, &allowed);
        if AnyPattern::keys(first).any(|setting| setting == key.text) {
            mistake = mistake.note(format!("a key of `{first}`: move it into that mapping"));
        }
        context.push(mistake);
    }
    (present.len() == 1).then(|| present.remove(0))
}

fn report_no_pattern(rule: MapReader<'_, '_, '_>, patterns: &[&'static str]) {
    let span = rule.span();
    let (context, unknown, allowed) = rule.finish_quietly();
    let meant = meant_as_pattern(&unknown, &allowed, patterns);
    for key in &unknown {
        context.push(match meant {
            Some(pattern) if pattern == *key => unknown_pattern(key, patterns),
            _ => unknown_key(key, &allowed),
        });
    }
    if meant.is_none() {
        let mistake = Diagnostic::error(Code::NoPattern, span, "this rule has no pattern");
        let patterns = suggest::one_of(patterns.iter().copied());
        context.push(mistake.help(format!("add one of {patterns}")));
    }
}

/// The unknown key that is probably meant as the pattern: the one most similar to a pattern, or one that is not
/// similar to any known key.
fn meant_as_pattern<'n>(
    unknown: &[&'n MappingKey],
    allowed: &[&'static str],
    patterns: &[&'static str],
) -> Option<&'n MappingKey> {
    let nearest = |key: &MappingKey| suggest::nearest(&key.text, allowed.iter().copied());
    let is_pattern = |key: &MappingKey| nearest(key).is_some_and(|word| patterns.contains(&word));
    let similar = unknown.iter().find(|key| is_pattern(key));
    let dissimilar = || unknown.iter().find(|key| nearest(key).is_none());
    similar.or_else(dissimilar).copied()
}

fn unknown_pattern(key: &MappingKey, patterns: &[&'static str]) -> Diagnostic {
    let message = format!("unknown pattern `{}`", key.text);
    let mistake = Diagnostic::error(Code::UnknownPattern, key.span, message);
    let mistake = mistake.did_you_mean(&key.text, patterns.iter().copied());
    mistake.help(format!("the patterns are {}", suggest::all_of(patterns.iter().copied())))
}
