//! Rules of every pattern over the fields of `values::PATHS`: their YAML, and each pattern's promise, which its file
//! in `patterns` checks on the documents before and after a command.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock};

use bson::Document;

use super::case::Statement;
use super::dice::Dice;
use super::lab::PROTECTED;
use super::patterns::{
    Bounds, Bucket, Copies, Defaults, Deny, Frozen, History, Limits, Queue, Replacement, SchemaVersion, Sequence,
    Throttle, Timestamps, Together, Tree,
};
use super::values::as_number;

/// The change by one command, on one of the two sides.
pub(super) struct Change<'a> {
    pub(super) before: &'a [Document],
    pub(super) after: &'a [Document],
    pub(super) statements: &'a [Statement],
    pub(super) reply: Option<&'a Document>,
}

/// The tests' model of a pattern.
pub(super) trait Promise {
    /// The pattern's key in a rule file.
    fn name(&self) -> &'static str;

    /// Its settings, as YAML in one line.
    fn settings(&self) -> String;

    /// The fields that the pattern reads or writes.
    fn fields(&self) -> Vec<String>;

    /// Changes a stored document so that it keeps the promise.
    fn tidy(&self, dice: &mut Dice, document: &mut Document);

    /// The same for conditions on several documents.
    fn tidy_all(&self, _dice: &mut Dice, _documents: &mut [Document]) {}

    /// A filter and an update that the pattern's applications typically send.
    fn idiom(&self, _dice: &mut Dice) -> Option<(Document, Document)> {
        None
    }

    /// The parts of the promise that the change has broken.
    fn broken(&self, change: &Change<'_>) -> Option<String>;

    /// Whether docward has no reason to prevent or alter a change that was made without it, apart from what `strip`
    /// removes.
    fn harmless(&self, direct: &Change<'_>) -> bool {
        self.broken(direct).is_none()
    }

    /// Whether docward may send the statement in another form because of the rule, or with a condition.
    fn alters(&self, statement: &Statement) -> bool {
        statement.upsert || self.fields().iter().any(|field| statement.touches(field))
    }

    /// The fields by which the rule decides what a statement may change: they have no timestamps.
    fn deciding(&self) -> Vec<String> {
        Vec::new()
    }

    /// Removes the fields that the pattern itself writes, so that both sides can be compared.
    fn strip(&self, _document: &mut Document) {}

    /// Whether the pattern may modify a document that the statement alone leaves unchanged.
    fn modifies(&self) -> bool {
        false
    }

    /// Whether docward sends a statement once for each kind of these documents. So a statement in a transaction may change
    /// another one of several that it matches, and one that fails may have changed others before.
    fn splits(&self, _documents: &[Document]) -> bool {
        false
    }

    /// The field that has a unique index on both sides.
    fn unique(&self) -> Option<&str> {
        None
    }

    /// Whether it counts in `protected.counters`, by the collection's name.
    fn counter(&self) -> bool {
        false
    }

    /// The collection that the rule names.
    fn collection(&self, collection: &str) -> String {
        collection.to_owned()
    }
}

#[derive(Clone, Debug)]
pub(super) enum Rule {
    Replacement(Replacement),
    Together(Together),
    Frozen(Frozen),
    Bounds(Bounds),
    Queue(Queue),
    Bucket(Bucket),
    Tree(Tree),
    Timestamps(Timestamps),
    Sequence(Sequence),
    Limits(Limits),
    SchemaVersion(SchemaVersion),
    Copies(Copies),
    Deny(Deny),
    Defaults(Defaults),
    Throttle(Throttle),
    History(History),
}

impl std::ops::Deref for Rule {
    type Target = dyn Promise;

    fn deref(&self) -> &Self::Target {
        match self {
            Rule::Replacement(rule) => rule,
            Rule::Together(rule) => rule,
            Rule::Frozen(rule) => rule,
            Rule::Bounds(rule) => rule,
            Rule::Queue(rule) => rule,
            Rule::Bucket(rule) => rule,
            Rule::Tree(rule) => rule,
            Rule::Timestamps(rule) => rule,
            Rule::Sequence(rule) => rule,
            Rule::Limits(rule) => rule,
            Rule::SchemaVersion(rule) => rule,
            Rule::Copies(rule) => rule,
            Rule::Deny(rule) => rule,
            Rule::Defaults(rule) => rule,
            Rule::Throttle(rule) => rule,
            Rule::History(rule) => rule,
        }
    }
}

impl Rule {
    /// A sequence, and a limit that its number can exceed.
    pub(super) fn numbered(dice: &mut Dice) -> Vec<Rule> {
        let sequence = Rule::Sequence(Sequence::random(dice));
        vec![sequence, Rule::Limits(Limits { document: Some(200), ..Limits::random(dice) })]
    }

    pub(super) fn random(dice: &mut Dice) -> Rule {
        let chosen = chosen_pattern();
        loop {
            let rule = match dice.below(126) {
                0..10 => Rule::Bounds(Bounds::random(dice)),
                10..20 => Rule::Together(Together::random(dice)),
                20..32 => Rule::Replacement(Replacement::random(dice)),
                32..44 => Rule::Queue(Queue::random(dice)),
                44..54 => Rule::Bucket(Bucket::random(dice)),
                54..64 => Rule::Tree(Tree::random(dice)),
                64..75 => Rule::Timestamps(Timestamps::random(dice)),
                75..85 => Rule::Sequence(Sequence::random(dice)),
                85..95 => Rule::Limits(Limits::random(dice)),
                95..105 => Rule::SchemaVersion(SchemaVersion::random(dice)),
                // Each has its own worker.
                105..108 => Rule::Copies(Copies::random(dice)),
                108..111 => Rule::Deny(Deny::random(dice)),
                111 => Rule::Defaults(Defaults),
                112..115 => Rule::Throttle(Throttle::random(dice)),
                115..125 => Rule::Frozen(Frozen::random(dice)),
                // Each has its own worker.
                _ => Rule::History(History),
            };
            if chosen.is_none_or(|name| name == rule.name()) || dice.percent(10) {
                assert_loads(&rule);
                return rule;
            }
        }
    }
}

/// Checks that docward loads the rule alone. A setting that no longer loads would take its pattern out of the test.
fn assert_loads(rule: &Rule) {
    static LOADED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let settings = rule.settings();
    let is_new = LOADED.lock().unwrap().insert(settings.clone());
    assert!(!is_new || load(std::slice::from_ref(rule)), "docward does not load: {settings}");
}

/// `DOCWARD_INVARIANTS_PATTERN`: the pattern of most rules.
fn chosen_pattern() -> Option<&'static str> {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("DOCWARD_INVARIANTS_PATTERN").ok()).as_deref()
}

/// What applies to one collection.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) rules: Vec<Rule>,
    /// A field with a unique index that has nothing to do with the rules.
    pub(super) unique: Option<&'static str>,
}

impl Set {
    /// The fields with unique indexes.
    pub(super) fn unique_fields(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().filter_map(|rule| rule.unique()).chain(self.unique)
    }
}

/// A rule file in which each set of rules has its own collection of this database.
pub(super) fn rule_file(database: &str, sets: &[(String, &[Rule])]) -> String {
    let mut yaml = "version: 1\nrules:\n".to_owned();
    for (collection, rules) in sets {
        for (index, rule) in rules.iter().enumerate() {
            let settings = rule.settings().replace("COLLECTION", collection);
            let namespace = format!("{database}.{}", rule.collection(collection));
            yaml += &format!("  - {{ name: {collection}-{index}, namespace: {namespace}, {settings} }}\n");
        }
    }
    yaml
}

/// Whether docward loads the rules for one collection without warning of a conflict.
pub(super) fn load(rules: &[Rule]) -> bool {
    let loaded = loaded(rule_file(PROTECTED, &[("c".to_owned(), rules)]));
    loaded.is_some_and(|rules| docward::engine::incompatible_rules(&rules).is_empty())
}

/// Whether docward loads rules with these settings for one collection.
pub(super) fn can_load(settings: &[String]) -> bool {
    let rule =
        |(number, settings): (usize, &String)| format!("  - {{ name: r{number}, namespace: d.c, {settings} }}\n");
    loaded(format!("version: 1\nrules:\n{}", settings.iter().enumerate().map(rule).collect::<String>())).is_some()
}

pub(super) fn loaded(text: String) -> Option<docward::rules::RuleSet> {
    let source = docward::config::SourceFile { name: "rules.yaml".into(), text };
    docward::rules::RuleSet::from_sources(vec![source]).ok()
}

impl Change<'_> {
    /// The changed documents, with their earlier content.
    pub(super) fn changed(&self) -> impl Iterator<Item = (Option<&Document>, &Document)> {
        self.after.iter().filter_map(|after| {
            let before = self.earlier(after);
            before.is_none_or(|before| !same(before, after)).then_some((before, after))
        })
    }

    pub(super) fn earlier(&self, document: &Document) -> Option<&Document> {
        self.before.iter().find(|before| same_id(before, document))
    }

    pub(super) fn removed(&self) -> impl Iterator<Item = &Document> {
        let gone = |document: &Document| !self.after.iter().any(|after| same_id(after, document));
        self.before.iter().filter(move |document| gone(document))
    }
}

/// Compares bytes; treats NaN as equal to itself.
fn same(one: &Document, other: &Document) -> bool {
    one == other || one.to_vec().unwrap() == other.to_vec().unwrap()
}

/// Equal numbers of all types are the same `_id` for the server.
fn same_id(one: &Document, other: &Document) -> bool {
    let number = |document: &Document| document.get("_id").and_then(as_number);
    one.get("_id") == other.get("_id") || number(one).is_some() && number(one) == number(other)
}
