//! What each rule makes of every command that can reach its collections: `docward check --coverage`.
//!
//! Nothing is listed here a second time: commands come from the catalogue, what a pattern looks at from
//! [`Evaluate`](crate::patterns::Evaluate), what becomes of other ways in from the plan's own decision. It knows
//! no statements, so `enforced` says that the rule looks at each, not what it finds.

use super::evaluation::Enforcement;
use super::indirect_writes::{BUCKET_WRITE, on_indirect_write};
use super::outcome::OutcomeKind;
use crate::command::{Class, Form, Namespace, StatementKind};
use crate::patterns::{Concern, Rule, RuleSet};
use crate::rules::NamespacePattern;

/// What becomes of what comes by one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The rule evaluates each statement or read.
    Enforced,
    /// RejectedBy with a reason, always.
    Rejected,
    /// It would be refused, but for `unsupported: allow`.
    Allowed,
    /// No concern of the rule.
    Passes,
}

/// A way to the documents of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// "replacement", "renameCollection of it": what comes by it.
    pub what: String,
    /// The commands it comes by; empty for those that are not known by name.
    pub commands: Vec<&'static str>,
    pub outcome: Outcome,
}

/// One rule on some of its namespaces.
#[derive(Debug, Clone)]
pub struct Coverage<'r> {
    pub rule: &'r Rule,
    /// All with the same ways.
    pub namespaces: Vec<NamespacePattern>,
    pub ways: Vec<Way>,
}

/// What comes by every way, for every rule, disabled ones too. `mode` and `except` are not counted in: it is
/// what the rule does when it is enforced.
pub fn coverage(rules: &RuleSet) -> Vec<Coverage<'_>> {
    let mut found: Vec<Coverage<'_>> = Vec::new();
    for rule in rules.rules() {
        let further = rule.pattern.also_evaluates();
        let own = rule.namespaces.iter().map(|namespace| namespace.value.clone());
        let first = found.len();
        for namespace in own.chain(further) {
            let ways = ways(rule, &namespace);
            match found.iter_mut().skip(first).find(|known| known.ways == ways) {
                Some(known) if known.namespaces.contains(&namespace) => {}
                Some(known) => known.namespaces.push(namespace),
                None => found.push(Coverage { rule, namespaces: vec![namespace], ways }),
            }
        }
    }
    found
}

const STATEMENTS: [(StatementKind, &str); 5] = [
    (StatementKind::Insert, "insert"),
    (StatementKind::Operators, "update by operators"),
    (StatementKind::Replacement, "replacement"),
    (StatementKind::Pipeline, "update by pipeline"),
    (StatementKind::Delete, "delete"),
];

fn ways(rule: &Rule, namespace: &NamespacePattern) -> Vec<Way> {
    // Patterns compare names; whichever a glob stands for is the same to them.
    let namespace = Namespace { database: namespace.database().as_str(), collection: namespace.collection().as_str() };
    let statements = STATEMENTS.iter().flat_map(|(kind, what)| {
        let carries = |class: &Class| Form::of(*class).is_some_and(|form| form.carries(*kind));
        by_outcome(what, carries, |class| match rule.pattern.concern(*kind, namespace) {
            Concern::Unsupported => unanalysed(rule),
            Concern::Each => Outcome::Enforced,
            // An option of the whole command may be its concern, or what findAndModify returns.
            Concern::Nothing => evaluated(rule.pattern.evaluates_command(class, Some(*kind))),
        })
    });
    let reads =
        by_outcome("read", |class| class.reads(), |class| evaluated(rule.pattern.evaluates_command(class, None)));
    let indirect_write = |what: &str, commands: Vec<&'static str>| Way {
        what: format!("{what} it"),
        commands,
        outcome: unanalysed(rule),
    };
    let indirect_writes =
        Class::REACHING.into_iter().filter_map(|class| Some(indirect_write(class.indirect_write()?, class.names())));
    let buckets = indirect_write(BUCKET_WRITE, Vec::new());
    let other = |what: &str, commands: &[&'static str], outcome| Way {
        what: what.to_owned(),
        commands: commands.to_vec(),
        outcome,
    };
    let legacy = other("legacy opcode", &LEGACY, Outcome::Rejected);
    let definitions = other("definition of it", &DEFINITIONS, Outcome::Passes);
    statements.chain(reads).chain(indirect_writes).chain([buckets, legacy, definitions]).collect()
}

/// One way for each outcome that the classes have.
fn by_outcome(what: &str, concerned: impl Fn(&Class) -> bool, outcome: impl Fn(Class) -> Outcome) -> Vec<Way> {
    let mut ways: Vec<Way> = Vec::new();
    for class in Class::REACHING.into_iter().filter(concerned) {
        let outcome = outcome(class);
        match ways.iter_mut().find(|way| way.outcome == outcome) {
            Some(way) => way.commands.extend(class.names()),
            None => ways.push(Way { what: what.to_owned(), commands: class.names(), outcome }),
        }
    }
    ways
}

/// Messages that the plan refuses before it looks for rules.
const LEGACY: [&str; 4] = ["OP_INSERT", "OP_UPDATE", "OP_DELETE", "OP_QUERY"];

/// Of [`Class::Harmless`] those that end or reshape a whole collection.
const DEFINITIONS: [&str; 5] = ["collMod", "create", "createIndexes", "drop", "dropDatabase"];

fn evaluated(it_is: bool) -> Outcome {
    if it_is { Outcome::Enforced } else { Outcome::Passes }
}

fn unanalysed(rule: &Rule) -> Outcome {
    if !rule.pattern.evaluates() {
        return Outcome::Passes;
    }
    match on_indirect_write(rule, Enforcement::Enforce) {
        OutcomeKind::Allow => Outcome::Allowed,
        _ => Outcome::Rejected,
    }
}
