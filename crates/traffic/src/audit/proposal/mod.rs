//! Proposes a rule file from [`Habits`]: each rule in `mode: shadow`, with its evidence as a comment above it.
//!
//! [`found`] makes candidates. Each is evaluated with the traffic that gave the reason for it ([`CandidateEvaluation`]);
//! one that would break the application becomes a comment with the reason ([`candidate_tally`]). [`Proposal`] is the
//! file.

mod candidate_tally;
mod found;

use std::collections::HashMap;
use std::fmt::Write as _;

use self::candidate_tally::CandidateTally;
use super::evaluation::{AuditedCommand, RuleKnowledge, TrafficEvaluation};
use super::habits::{Habits, uses_data};
use super::known_documents::KnownDocuments;
use super::recorded::{RecordedCommand, TrafficConsumer};
use super::report::TrafficFile;
use super::tally::AuditTally;
use super::target::target;
use crate::command::{CommandClass, Namespace};
use crate::config::SourceFile;
use crate::rules::RuleSet;
use crate::text::{one_line, plural};

const OPENING: &str = "version: 1\nrules:\n";

/// A rule that the traffic gives a reason for, in one or more variants.
#[derive(Debug)]
struct CandidateRule {
    namespace: String,
    /// What it is: the name of its rule ends with it.
    what: &'static str,
    evidence: Vec<String>,
    /// The best one first.
    variants: Vec<Variant>,
    /// Other collections whose statements it evaluates.
    others: Vec<String>,
    /// What to change in the application, if no variant fits.
    hint: Option<String>,
}

/// One way to write a rule.
#[derive(Debug)]
struct Variant {
    what: &'static str,
    /// `replacement: { policy: merge }`
    pattern: String,
    note: String,
    /// It is proposed only if recorded statements show that it works.
    needs_confirmation: bool,
    /// Why it cannot be proposed, if that is known already.
    excluded: Option<String>,
    /// The variant before it with `unsupported: allow`.
    allows: bool,
    rules: Option<RuleSet>,
}

impl CandidateRule {
    fn new(namespace: &str, what: &'static str, evidence: Vec<String>) -> Self {
        let namespace = namespace.to_owned();
        Self { namespace, what, evidence, variants: Vec::new(), others: Vec::new(), hint: None }
    }

    fn add(&mut self, pattern: String, note: String) {
        self.add_named(self.what, pattern, note);
    }

    fn add_named(&mut self, what: &'static str, pattern: String, note: String) {
        let allowing = format!("unsupported: allow\n    {pattern}");
        let can_allow = self.add_variant(what, pattern, note.clone(), false);
        if can_allow {
            self.add_variant(what, allowing, note, true);
        }
    }

    /// Returns whether its pattern tolerates `unsupported: allow`.
    fn add_variant(&mut self, what: &'static str, pattern: String, note: String, allows: bool) -> bool {
        let rules = match self.namespace.contains('*') {
            true => Err("a namespace with `*` means all collections with such a name".to_owned()),
            false => load(&rule("candidate", &self.namespace, &pattern, "enforce")),
        };
        let excluded = rules.as_ref().err().map(|mistake| format!("it does not fit a rule file: {mistake}"));
        let rules = rules.ok();
        let tolerates = rules.iter().flat_map(RuleSet::rules).any(|rule| rule.properties.tolerates_unsupported);
        self.variants.push(Variant { what, pattern, note, needs_confirmation: false, excluded, allows, rules });
        tolerates
    }

    fn add_confirmed(&mut self, pattern: String, note: String) {
        let before = self.variants.len();
        self.add(pattern, note);
        self.variants.iter_mut().skip(before).for_each(|variant| variant.needs_confirmation = true);
    }

    /// Adds a variant that cannot be proposed.
    fn exclude(&mut self, pattern: &str, reason: String) {
        let (what, pattern, note) = (self.what, pattern.to_owned(), String::new());
        let (excluded, rules) = (Some(reason), None);
        let (needs_confirmation, allows) = (false, false);
        self.variants.push(Variant { what, pattern, note, needs_confirmation, excluded, allows, rules });
    }
}

/// The rules that the traffic gives a reason for.
#[derive(Debug)]
pub struct CandidateRules {
    candidates: Vec<CandidateRule>,
    /// By reason: statements that the source does not contain.
    unknown: Vec<(&'static str, u64)>,
}

impl CandidateRules {
    #[must_use]
    pub fn from_habits(habits: &Habits) -> Self {
        let unknown = habits.counts.unknown.iter().map(|(reason, count)| (*reason, *count)).collect();
        Self { candidates: found::candidates(habits), unknown }
    }

    /// Evaluates the candidates with the same traffic.
    #[must_use]
    pub fn evaluation(&self) -> CandidateEvaluation<'_> {
        let mut evaluation = CandidateEvaluation::default();
        for candidate in &self.candidates {
            for rules in candidate.variants.iter().filter_map(|variant| variant.rules.as_ref()) {
                let number = evaluation.evaluations.len();
                evaluation.evaluations.push(TrafficEvaluation::new(rules));
                for namespace in candidate.others.iter().chain([&candidate.namespace]) {
                    evaluation.by_namespace.entry(namespace.as_str()).or_default().push(number);
                }
            }
        }
        evaluation
    }

    /// Chooses the first variant of each candidate that does not break the application.
    #[must_use]
    pub fn choose(self, evaluated: EvaluatedCandidates) -> Proposal {
        let mut evaluated = evaluated.0.into_iter();
        let unknown = self.unknown;
        let mut proposal = Proposal { proposed: Vec::new(), declined: Vec::new(), unknown, rules: None };
        for CandidateRule { namespace, evidence, variants, hint, .. } in self.candidates {
            let (mut chosen, mut declined) = (None, Vec::new());
            for variant in variants {
                let result = variant.rules.as_ref().and_then(|_| evaluated.next());
                let counted = CandidateTally::new(result.unwrap_or_default());
                match variant.excluded.clone().or_else(|| counted.reason_against(variant.needs_confirmation)) {
                    _ if chosen.is_some() => {}
                    None => chosen = Some((variant, counted)),
                    Some(_) if variant.allows => {}
                    Some(reason) => declined.push((variant, reason)),
                }
            }
            let name = |what: &str| name(&namespace, what);
            // The first comment shows the evidence, if no rule does.
            let mut shown = if chosen.is_some() { (Vec::new(), None) } else { (evidence.clone(), hint) };
            for (variant, reason) in declined {
                let (evidence, hint) = std::mem::take(&mut shown);
                let (name, pattern) = (name(variant.what), variant.pattern);
                let namespace = namespace.clone();
                proposal.declined.push(DeclinedRule { name, namespace, pattern, evidence, reason, hint });
            }
            if let Some((variant, counted)) = chosen {
                let mut evidence = evidence;
                evidence.extend((!variant.note.is_empty()).then_some(variant.note));
                evidence.push(counted.summary());
                let (name, pattern) = (name(variant.what), variant.pattern);
                proposal.proposed.push(ProposedRule { name, namespace, pattern, evidence });
            }
        }
        proposal.combine();
        proposal
    }
}

/// Evaluates candidates, each as if its rule was the only one.
#[derive(Debug, Default)]
pub struct CandidateEvaluation<'c> {
    evaluations: Vec<TrafficEvaluation<'c>>,
    by_namespace: HashMap<&'c str, Vec<usize>>,
    stored: KnownDocuments,
}

/// The results, in the order of the variants.
#[derive(Debug)]
pub struct EvaluatedCandidates(Vec<(AuditTally, Vec<RuleKnowledge>)>);

impl TrafficConsumer for CandidateEvaluation<'_> {
    /// Whether a candidate can match such a command, or it shows what is stored.
    fn is_relevant(&self, namespace: Namespace<'_>, class: CommandClass, command: &[u8]) -> bool {
        uses_data(namespace, class) || self.evaluations.iter().any(|one| one.is_relevant(namespace, class, command))
    }

    fn add_command(&mut self, recorded: &RecordedCommand) {
        let Self { evaluations, by_namespace, stored } = self;
        stored.evaluate_and_apply(recorded, |part, stored| {
            let namespace = match part {
                AuditedCommand::UnknownStatements(unknown) => {
                    Some(format!("{}.{}", unknown.database, unknown.collection))
                }
                AuditedCommand::Command(command, _) => match target(command.as_document()) {
                    Some((namespace, class, _)) if uses_data(namespace, class) && class != CommandClass::Aggregate => {
                        Some(namespace.to_string())
                    }
                    _ => None,
                },
            };
            match namespace.map(|namespace| by_namespace.get(namespace.as_str()).map_or(&[][..], Vec::as_slice)) {
                Some(numbers) => {
                    for number in numbers {
                        let one = evaluations.get_mut(*number);
                        one.into_iter().for_each(|one| one.add_command(part, recorded, stored));
                    }
                }
                // Such a command can reach any collection.
                None => evaluations.iter_mut().for_each(|one| one.add_command(part, recorded, stored)),
            }
        });
    }
}

impl CandidateEvaluation<'_> {
    /// The results.
    #[must_use]
    pub fn finish(self) -> EvaluatedCandidates {
        EvaluatedCandidates(self.evaluations.into_iter().map(TrafficEvaluation::finish).collect())
    }
}

/// A rule file.
#[derive(Debug)]
pub struct Proposal {
    proposed: Vec<ProposedRule>,
    declined: Vec<DeclinedRule>,
    /// By reason: statements that the source does not contain.
    unknown: Vec<(&'static str, u64)>,
    /// The proposed rules, enforced.
    rules: Option<RuleSet>,
}

/// A rule with its evidence.
#[derive(Debug)]
struct ProposedRule {
    /// `orders-replacement`
    name: String,
    namespace: String,
    pattern: String,
    evidence: Vec<String>,
}

/// A rule that is not proposed.
#[derive(Debug)]
struct DeclinedRule {
    name: String,
    namespace: String,
    pattern: String,
    /// Empty if another rule is proposed for the same habit.
    evidence: Vec<String>,
    reason: String,
    hint: Option<String>,
}

impl Proposal {
    /// The proposed rules as if they were enforced, to evaluate them together; `None` if there are none.
    #[must_use]
    pub fn rules(&self) -> Option<&RuleSet> {
        self.rules.as_ref()
    }

    /// Removes the rules that break the application together with the others. `tally` belongs to [`Self::rules`].
    pub fn remove_breaking(&mut self, tally: AuditTally) {
        let reasons = tally.rules.into_iter().map(|tally| {
            let counted = CandidateTally::new((AuditTally { rules: vec![tally], ..AuditTally::default() }, Vec::new()));
            counted.reason_against(false)
        });
        let mut kept = Vec::new();
        for (proposed, reason) in std::mem::take(&mut self.proposed).into_iter().zip(reasons) {
            match reason {
                None => kept.push(proposed),
                Some(reason) => self.declined.push(proposed.decline(format!("with the other rules, {reason}"))),
            }
        }
        self.proposed = kept;
    }

    /// Gives the rules unique names and removes those that contradict earlier ones.
    fn combine(&mut self) {
        let mut names = HashMap::new();
        for proposed in &mut self.proposed {
            let count: &mut u32 = names.entry(proposed.name.clone()).or_insert(0);
            *count += 1;
            if *count > 1 {
                proposed.name = format!("{}-{count}", proposed.name);
            }
        }
        // Rarely do any contradict each other. Loading them one after the other takes quadratic time.
        let all: String = self.proposed.iter().map(ProposedRule::enforced).collect();
        self.rules = load(&all).ok();
        if self.rules.is_some() {
            return;
        }
        let mut body = String::new();
        let mut kept = Vec::new();
        for proposed in std::mem::take(&mut self.proposed) {
            let rule = proposed.enforced();
            match load(&format!("{body}{rule}")) {
                Ok(rules) => {
                    body.push_str(&rule);
                    self.rules = Some(rules);
                    kept.push(proposed);
                }
                Err(mistake) => {
                    self.declined.push(proposed.decline(format!("it contradicts the rules above: {mistake}")));
                }
            }
        }
        self.proposed = kept;
    }

    /// A rule file that loads, or only comments if there is nothing to propose.
    #[must_use]
    pub fn to_text(&self, sources: &[TrafficFile]) -> String {
        let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
        let mut out = format!("# Proposed by docward suggest from {}.\n", one_line(&names.join(", ")));
        for source in sources.iter().filter(|source| source.unreadable > 0) {
            comment(&mut out, "", &format!("{}: {}.", source.name, source.flaws()));
        }
        for (reason, count) in &self.unknown {
            comment(&mut out, "", &format!("{} could not be considered: {reason}.", plural(*count, "statement")));
        }
        if self.proposed.is_empty() {
            let reason = match self.declined.is_empty() {
                true if sources.iter().any(|source| source.unreadable > 0) => {
                    "what can be read of the traffic gives no reason for one"
                }
                true => "the traffic gives no reason for one",
                false => "see below",
            };
            comment(&mut out, "", &format!("No rule proposed: {reason}."));
        } else {
            let mode = "All rules are in shadow mode: they count decisions and change nothing. Remove `mode` to enforce a rule.";
            comment(&mut out, "", mode);
            out.push_str(OPENING);
        }
        for ProposedRule { name, namespace, pattern, evidence } in &self.proposed {
            out.push('\n');
            evidence.iter().for_each(|line| comment(&mut out, "  ", line));
            out.push_str(&rule(name, namespace, pattern, "shadow"));
        }
        for DeclinedRule { name, namespace, pattern, evidence, reason, hint } in &self.declined {
            out.push('\n');
            let what = pattern.lines().last().and_then(|line| line.trim_start().split(':').next()).unwrap_or_default();
            comment(&mut out, "", &format!("Not proposed: {what} on {namespace}, because {reason}."));
            evidence.iter().chain(hint).for_each(|line| comment(&mut out, "", line));
            let rule = rule(name, namespace, pattern, "shadow");
            let is_rule = pattern.contains(':');
            rule.lines().filter(|_| is_rule).for_each(|line| _ = writeln!(out, "# {line}"));
        }
        out
    }
}

impl ProposedRule {
    fn enforced(&self) -> String {
        rule(&self.name, &self.namespace, &self.pattern, "enforce")
    }

    fn decline(self, reason: String) -> DeclinedRule {
        let Self { name, namespace, pattern, evidence } = self;
        DeclinedRule { name, namespace, pattern, evidence, reason, hint: None }
    }
}

fn comment(out: &mut String, indentation: &str, line: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{indentation}# {}", one_line(line));
}

/// # Errors
/// The first mistake, as a clause.
fn load(rules: &str) -> Result<RuleSet, String> {
    let text = format!("{OPENING}{rules}");
    RuleSet::from_sources(vec![SourceFile { name: "suggest".to_owned(), text }])
        .map_err(|report| report.diagnostics.first().map_or_else(String::new, |first| first.message.clone()))
}

/// `orders-replacement`
fn name(namespace: &str, what: &str) -> String {
    let collection = namespace.split_once('.').map_or(namespace, |(_, collection)| collection);
    let kebab: String = collection.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let kebab = kebab.trim_matches('-').to_ascii_lowercase();
    if kebab.is_empty() { what.to_owned() } else { format!("{kebab}-{what}") }
}

fn rule(name: &str, namespace: &str, pattern: &str, mode: &str) -> String {
    format!("  - name: {name}\n    namespace: {}\n    mode: {mode}\n    {pattern}\n", quoted(namespace))
}

/// `text` as a YAML string. JSON strings are valid YAML.
fn quoted(text: &str) -> String {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    let is_value = ["null", "true", "false"].iter().any(|value| text.eq_ignore_ascii_case(value));
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic()) && !is_value;
    if plain && word { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
