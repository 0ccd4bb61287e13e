//! What `docward explain` reports of generated statements: the verdict on a statement, and what rules do to it, agree.

use bson::Document;
use docward::engine::{AssumedLookup, ClientState, DryRun, DryRunOutcome, Now, OutcomeKind, dry_run, statements};

use super::dice::Dice;
use super::lab::PROTECTED;
use super::{generate, rules};

const CASES: u64 = 4000;

fn kinds(run: &DryRun) -> Vec<OutcomeKind> {
    run.outcomes.iter().map(|outcome| outcome.kind).collect()
}

/// The contradiction between the verdict and the rules, if there is one.
fn contradiction(run: &DryRun) -> Option<&'static str> {
    let has = |kind| kinds(run).contains(&kind);
    // The number that it assumes may be the one that the statement contains.
    let assumes = |need: &AssumedLookup| matches!(need, AssumedLookup::Numbers(_) | AssumedLookup::Maximum(_));
    let has_number = run.needs.iter().any(assumes);
    match &run.outcome {
        DryRunOutcome::Unchanged if has(OutcomeKind::Rewrite) && !has_number => Some("forward, and a rule rewrites it"),
        DryRunOutcome::Unchanged if has(OutcomeKind::Reject) => Some("forward, and a rule rejects it"),
        DryRunOutcome::Rewritten(_) if !has(OutcomeKind::Rewrite) => Some("rewrite, and no rule rewrites it"),
        DryRunOutcome::Checked(_) if !has(OutcomeKind::Check) => Some("check, and no rule checks it"),
        DryRunOutcome::Unchanged | DryRunOutcome::Rewritten(_) if has(OutcomeKind::Check) => Some("a rule checks it"),
        DryRunOutcome::Rejected { .. } if !has(OutcomeKind::Reject) => Some("reject, and no rule rejects it"),
        _ => None,
    }
}

#[test]
fn the_verdict_of_explain_agrees_with_what_rules_do() {
    let now = Now { milliseconds: 1_700_000_000_000 };
    let mut found = std::collections::BTreeMap::<&str, Vec<String>>::new();
    for seed in 0..CASES {
        let dice = &mut Dice::new(seed);
        let set = generate::set(dice);
        let text = rules::rule_file(PROTECTED, &[("c".to_owned(), &set.rules)]);
        let loaded = rules::loaded(text.clone()).expect("generated rules load");
        for step in generate::case(dice, &set).steps {
            let mut command: Document = step.to("c");
            command.insert("$db", "protected");
            let bytes = bson::serialize_to_vec(&command).unwrap();
            let command_document = docward::document::Document::parse(&bytes).unwrap();
            let whole = dry_run(command_document, &loaded, now, &mut ClientState::default());
            let each: Vec<DryRun> = statements(command_document)
                .map(|one| dry_run(one.as_document(), &loaded, now, &mut ClientState::default()))
                .collect();
            for run in each.iter().chain([&whole]) {
                if let Some(what) = contradiction(run) {
                    let case = format!("seed {seed}: {command}\n{text}\n{:?}", kinds(run));
                    found.entry(what).or_default().push(case);
                }
            }
        }
    }
    let shown = |(what, cases): (&&str, &Vec<String>)| format!("## {what} ({} times)\n{}\n", cases.len(), cases[0]);
    assert!(found.is_empty(), "{}", found.iter().map(shown).collect::<String>());
}
