//! Lists what each rule does with every command that can reach its collections: `docward check --coverage`.
//!
//! The commands come from the catalogue, the evaluated statements from [`Pattern`](crate::patterns::Pattern), and
//! the outcomes of indirect writes from the plan itself. There are no statements here, so `evaluate` means
//! that the rule evaluates each one, not with which verdict.

use super::applicable_rules::Enforcement;
use super::indirect_writes::on_indirect_write;
use super::message_plan::BUCKET_WRITE;
use super::outcome::OutcomeKind;
use crate::command::{CommandClass, Namespace, StatementKind, WriteForm};
use crate::config::NamespaceGlob;
use crate::patterns::Applicability;
use crate::rules::{Rule, RuleSet};

/// What happens to statements or commands on one access path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoverageOutcome {
    /// The rule evaluates each statement or read.
    Evaluate,
    /// Always rejected with a reason.
    Reject,
    /// It would be rejected without `unsupported: allow`.
    Allow,
    /// The rule does not apply, and forwards it.
    Forward,
}

/// A way to access the documents of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The kind of access: "replacement", "renameCollection of it".
    pub what: String,
    /// The commands with this access; empty for unknown commands.
    pub commands: Vec<&'static str>,
    pub outcome: CoverageOutcome,
}

/// The coverage of one rule on some of its namespaces.
#[derive(Debug, Clone)]
pub struct Coverage<'r> {
    pub rule: &'r Rule,
    /// Namespaces with the same accesses.
    pub namespaces: Vec<NamespaceGlob>,
    pub accesses: Vec<Access>,
}

/// Returns the coverage of every rule, including disabled ones. Ignores `mode` and `except`: it describes the
/// enforced rule.
pub fn coverage(rules: &RuleSet) -> Vec<Coverage<'_>> {
    let mut found: Vec<Coverage<'_>> = Vec::new();
    for rule in rules.rules() {
        let further = rule.properties.also_evaluates.iter().cloned();
        let own = rule.namespaces.iter().map(|namespace| namespace.value.clone());
        let first = found.len();
        for namespace in own.chain(further) {
            let accesses = accesses(rule, &namespace);
            match found.iter_mut().skip(first).find(|known| known.accesses == accesses) {
                Some(known) if known.namespaces.contains(&namespace) => {}
                Some(known) => known.namespaces.push(namespace),
                None => found.push(Coverage { rule, namespaces: vec![namespace], accesses }),
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

fn accesses(rule: &Rule, namespace: &NamespaceGlob) -> Vec<Access> {
    // Patterns compare names, so the glob itself stands for every name that it matches.
    let namespace = Namespace { database: namespace.database().as_str(), collection: namespace.collection().as_str() };
    let statements = STATEMENTS.iter().flat_map(|(kind, what)| {
        let carries = |class: &CommandClass| WriteForm::for_class(*class).is_some_and(|form| form.carries(*kind));
        by_outcome(what, carries, |class| match rule.pattern.applicability(*kind, namespace) {
            Applicability::Each => CoverageOutcome::Evaluate,
            // The rule may evaluate an option of the whole command, or what findAndModify returns.
            Applicability::None => evaluated(rule.pattern.evaluates_command(class, Some(*kind), namespace)),
        })
    });
    let reads = by_outcome(
        "read",
        |class| class.reads(),
        |class| evaluated(rule.pattern.evaluates_command(class, None, namespace)),
    );
    let input = Access {
        what: "aggregation that reads it".to_owned(),
        commands: CommandClass::Aggregate.names(),
        outcome: evaluated(rule.applies_to_inputs()),
    };
    let indirect_write =
        |what: &str, commands: Vec<&'static str>, outcome| Access { what: format!("{what} it"), commands, outcome };
    let indirect_writes = CommandClass::REACHING.into_iter().filter_map(|class| {
        let outcome = match unanalysed(rule, namespace) {
            // The rule evaluates the command before it allows what it cannot analyse.
            CoverageOutcome::Allow | CoverageOutcome::Forward
                if !class.reads() && rule.pattern.evaluates_command(class, None, namespace) =>
            {
                CoverageOutcome::Evaluate
            }
            outcome => outcome,
        };
        Some(indirect_write(class.indirect_write()?, class.names(), outcome))
    });
    let buckets = indirect_write(BUCKET_WRITE, Vec::new(), unanalysed(rule, namespace));
    let other = |what: &str, commands: &[&'static str], outcome| Access {
        what: what.to_owned(),
        commands: commands.to_vec(),
        outcome,
    };
    let legacy = other("legacy opcode", &LEGACY, CoverageOutcome::Reject);
    let definitions = group_by_outcome("definition of it", CommandClass::DEFINING.into_iter(), |class| {
        evaluated(rule.pattern.evaluates_command(class, None, namespace))
    });
    statements.chain(reads).chain([input]).chain(indirect_writes).chain([buckets, legacy]).chain(definitions).collect()
}

/// Returns one access for each outcome among the classes.
fn by_outcome(
    what: &str,
    applies: impl Fn(&CommandClass) -> bool,
    outcome: impl Fn(CommandClass) -> CoverageOutcome,
) -> Vec<Access> {
    group_by_outcome(what, CommandClass::REACHING.into_iter().filter(applies), outcome)
}

fn group_by_outcome(
    what: &str,
    classes: impl Iterator<Item = CommandClass>,
    outcome: impl Fn(CommandClass) -> CoverageOutcome,
) -> Vec<Access> {
    let mut accesses: Vec<Access> = Vec::new();
    for class in classes {
        let outcome = outcome(class);
        match accesses.iter_mut().find(|access| access.outcome == outcome) {
            Some(access) => access.commands.extend(class.names()),
            None => accesses.push(Access { what: what.to_owned(), commands: class.names(), outcome }),
        }
    }
    accesses
}

/// Messages that the plan answers with an error before it looks for rules.
const LEGACY: [&str; 4] = ["OP_INSERT", "OP_UPDATE", "OP_DELETE", "OP_QUERY"];

fn evaluated(it_is: bool) -> CoverageOutcome {
    if it_is { CoverageOutcome::Evaluate } else { CoverageOutcome::Forward }
}

/// What happens to a write that no rule can analyse.
fn unanalysed(rule: &Rule, namespace: Namespace<'_>) -> CoverageOutcome {
    match rule.pattern.analyses_writes(&StatementKind::ALL, namespace) {
        true => unsupported(rule),
        false => evaluated(rule.needs_permits()),
    }
}

fn unsupported(rule: &Rule) -> CoverageOutcome {
    match on_indirect_write(rule, Enforcement::Enforce) {
        OutcomeKind::Allow => CoverageOutcome::Allow,
        _ => CoverageOutcome::Reject,
    }
}
