//! Rules of every pattern over the fields of `values::PATHS`: their YAML, and what each promises, which its file in
//! `patterns` tells from what is stored before and after a command.

use std::sync::OnceLock;

use bson::Document;

use super::case::{Kind, Statement};
use super::dice::Dice;
use super::patterns::{Bounds, Together};

/// What became of one command, at one of the two sides.
pub(super) struct Change<'a> {
    pub(super) before: &'a [Document],
    pub(super) after: &'a [Document],
    pub(super) statements: &'a [Statement],
}

/// What the tests know of a pattern.
pub(super) trait Promise {
    /// The pattern's key in a rule file.
    fn name(&self) -> &'static str;

    /// Its settings, as YAML in one line.
    fn settings(&self) -> String;

    /// The fields that it looks at or keeps.
    fn fields(&self) -> Vec<String>;

    /// Makes a stored document one that keeps the promise.
    fn tidy(&self, dice: &mut Dice, document: &mut Document);

    /// What of its promise the change has broken.
    fn broken(&self, change: &Change<'_>) -> Option<String>;

    /// Whether a change that was made without docward is one that docward has no reason to prevent or to alter, apart
    /// from what `strip` takes away.
    fn harmless(&self, direct: &Change<'_>) -> bool {
        self.broken(direct).is_none()
    }

    /// Takes away what the pattern itself keeps in a document, so that both sides can be compared.
    fn strip(&self, _document: &mut Document) {}

    /// Whether it may modify a document that the statement alone leaves as it is.
    fn modifies(&self) -> bool {
        false
    }
}

#[derive(Clone, Debug)]
pub(super) enum Rule {
    Bounds(Bounds),
    Together(Together),
}

impl std::ops::Deref for Rule {
    type Target = dyn Promise;

    fn deref(&self) -> &Self::Target {
        match self {
            Rule::Bounds(rule) => rule,
            Rule::Together(rule) => rule,
        }
    }
}

impl Rule {
    pub(super) fn random(dice: &mut Dice) -> Rule {
        let chosen = chosen_pattern();
        loop {
            let rule = match dice.below(2) {
                0 => Rule::Bounds(Bounds::random(dice)),
                _ => Rule::Together(Together::random(dice)),
            };
            if chosen.is_none_or(|name| name == rule.name()) || dice.percent(10) {
                return rule;
            }
        }
    }
}

/// `DOCWARD_INVARIANTS_PATTERN`: look at this one above all.
fn chosen_pattern() -> Option<&'static str> {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("DOCWARD_INVARIANTS_PATTERN").ok()).as_deref()
}

/// A rule file in which each set of rules speaks for a collection of its own.
pub(super) fn rule_file(sets: &[(String, &[Rule])]) -> String {
    let mut yaml = "version: 1\nrules:\n".to_owned();
    for (collection, rules) in sets {
        for (index, rule) in rules.iter().enumerate() {
            let settings = rule.settings().replace("COLLECTION", collection);
            yaml += &format!("  - {{ name: {collection}-{index}, namespace: guarded.{collection}, {settings} }}\n");
        }
    }
    yaml
}

/// Whether docward takes the rules for one collection.
pub(super) fn load(rules: &[Rule]) -> bool {
    let text = rule_file(&[("c".to_owned(), rules)]);
    let source = docward::rules::Source { name: "rules.yaml".into(), text };
    docward::patterns::RuleSet::from_sources(vec![source]).is_ok()
}

impl Change<'_> {
    /// The documents that are not as they were, with what they were.
    pub(super) fn changed(&self) -> impl Iterator<Item = (Option<&Document>, &Document)> {
        self.after.iter().filter_map(|after| {
            let before = self.earlier(after);
            (before != Some(after)).then_some((before, after))
        })
    }

    pub(super) fn earlier(&self, document: &Document) -> Option<&Document> {
        self.before.iter().find(|before| before.get("_id") == document.get("_id"))
    }

    pub(super) fn removed(&self) -> impl Iterator<Item = &Document> {
        let gone = |document: &Document| !self.after.iter().any(|after| after.get("_id") == document.get("_id"));
        self.before.iter().filter(move |document| gone(document))
    }

    pub(super) fn updates(&self) -> impl Iterator<Item = &Statement> {
        self.statements.iter().filter(|statement| statement.kind == Kind::Update)
    }
}
