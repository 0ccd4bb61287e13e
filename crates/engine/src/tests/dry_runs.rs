//! Dry runs: results, outcomes and made-up replies.

use super::super::{AssumedLookup, DryRun, DryRunOutcome, Now, OutcomeKind, dry_run, statements};
use super::{ClientState, NOW, rules};
use crate::shell::{parse, render};

fn run_dry(rule: &str, command: &str, client_state: &mut ClientState) -> DryRun {
    let rules = rules(&[("d.c", rule), ("d.c", "defaults: { maxTimeMS: 9 }\nmode: disabled")]);
    let parsed = parse(command, "d").unwrap();
    dry_run(parsed.commands[0].as_document(), &rules, NOW, client_state)
}

/// Returns the result for a command of an unauthenticated client: the commands that are sent, or a word.
fn outcome(rule: &str, command: &str) -> String {
    let shown = |sent: &[crate::document::CowDocument<'static>]| {
        sent.iter().map(|command| render(command.as_document(), "d")).collect::<Vec<_>>().join("; ")
    };
    match run_dry(rule, command, &mut ClientState::default()).outcome {
        DryRunOutcome::Unchanged => "unchanged".to_owned(),
        DryRunOutcome::Undecided => "undecided".to_owned(),
        DryRunOutcome::Rewritten(sent) => shown(&sent),
        DryRunOutcome::Checked(sent) => format!("checked: {}", shown(&sent)),
        DryRunOutcome::Rejected { message, sent } => {
            let start: String = message.chars().take(40).collect();
            format!("{start}… {}", shown(&sent)).trim_end().to_owned()
        }
    }
}

#[test]
fn a_dry_run_has_a_result_for_every_kind_of_command() {
    const CHECK_VERSION: &str = "replacement: { policy: check_version, version: v }";
    const NUMBERS: &str = "sequence: { field: no, counter: no, start: 100 }";
    const UPSERTS: &str = "sequence: { field: no, counter: no, on_upsert: true }";
    const OPTIMISTIC: &str = "sequence: { field: no, strategy: optimistic }";
    const TREE: &str = "tree: {}";
    const BOTH: &str = "together: [a, b]";
    const REJECT: &str = "replacement: {}";
    for (rule, command, expected) in [
        (REJECT, "db.other.replaceOne({}, {a: 1})", "unchanged"),
        (REJECT, "db.c.updateOne({}, {$set: {a: 1}})", "unchanged"),
        (REJECT, "db.c.find()", "unchanged"),
        (REJECT, "db.runCommand({ping: 1})", "unchanged"),
        (REJECT, "db.adminCommand({hello: 1})", "unchanged"),
        (REJECT, "db.c.replaceOne({}, {a: 1})", "docward rule 'rule-0' rejects this repla…"),
        (REJECT, "db.c.findOneAndReplace({}, {a: 1})", "docward rule 'rule-0' rejects this repla…"),
        (
            REJECT,
            "db.runCommand({update: \"c\", updates: [{q: {}, u: {a: 1}, upsert: true}], lsid: {id: 1}, txnNumber: NumberLong(1)})",
            "docward rule 'rule-0' rejects this repla…",
        ),
        (REJECT, "db.c.renameCollection(\"x\")", "docward rule 'rule-0' rejects this renam…"),
        (REJECT, "db.x.aggregate([{$out: \"c\"}])", "docward rule 'rule-0' rejects this aggre…"),
        (REJECT, "db.c.explain().update({}, {a: 1})", "unchanged"),
        (REJECT, "db.runCommand({update: \"c\", updates: 5})", "docward rule 'rule-0' rejects this comma…"),
        (
            REJECT,
            "db.c.bulkWrite([{replaceOne: {filter: {}, replacement: {}}}, {updateOne: {filter: {}, update: {$set: {a: 1}}}}], {ordered: false})",
            "docward rule 'rule-0' rejects this repla… db.c.updateOne({}, {$set: {a: 1}}, {ordered: false})",
        ),
        (CHECK_VERSION, "db.c.replaceOne({}, {v: 1})", "db.c.replaceOne({v: 1}, {v: 2})"),
        (CHECK_VERSION, "db.c.findOneAndReplace({}, {v: 1})", "db.c.findOneAndReplace({v: 1}, {v: 2})"),
        (
            CHECK_VERSION,
            "db.c.bulkWrite([{replaceOne: {filter: {}, replacement: {v: 1}}}, {updateOne: {filter: {}, update: {$set: {a: 1}}}}])",
            "db.c.replaceOne({v: 1}, {v: 2}); db.c.updateOne({}, {$set: {a: 1}, $inc: {v: 1}})",
        ),
        (
            NUMBERS,
            "db.c.insertMany([{_id: 1}, {_id: 2, no: 5}, {_id: 3}])",
            "db.c.insertMany([{_id: 1, no: 100}, {_id: 2, no: 5}, {_id: 3, no: 101}])",
        ),
        // A number that is reserved for the document that it may insert is settled.
        (
            UPSERTS,
            "db.c.updateOne({_id: 1}, {$unset: {no: 1}}, {upsert: true})",
            "checked: db.c.updateOne({_id: 1}, {$unset: {no: 1}}, {upsert: true})",
        ),
        (OPTIMISTIC, "db.c.insertOne({_id: 1})", "db.c.insertOne({_id: 1, no: 1})"),
        (OPTIMISTIC, "db.c.insertOne({_id: 1, no: 7})", "unchanged"),
        (TREE, "db.c.insertOne({_id: 1})", "db.c.insertOne({_id: 1, path: null})"),
        (TREE, "db.c.insertOne({_id: 1, parent: 2})", "undecided"),
        (TREE, "db.c.deleteOne({_id: 1})", "undecided"),
        (BOTH, "db.c.updateOne({}, {$rename: {a: \"x\"}})", "checked: db.c.updateOne({}, {$rename: {a: \"x\"}})"),
        (BOTH, "db.c.updateOne({}, {$inc: {a: 1}})", "docward rule 'rule-0' rejects this updat…"),
        ("together: [a, b]\nmode: shadow", "db.c.updateOne({}, {$rename: {a: \"x\"}})", "unchanged"),
        ("defaults: { maxTimeMS: 5 }", "db.c.find({})", "db.c.find({}).maxTimeMS(5)"),
    ] {
        assert_eq!(outcome(rule, command), expected, "{command}");
    }
}

#[test]
fn a_dry_run_supports_the_bulk_write_command_of_mongodb_8() {
    let command = r#"{"bulkWrite": 1, "ops": [{"update": 0, "filter": {}, "updateMods": {"v": 1}}],
        "nsInfo": [{"ns": "d.c"}], "$db": "admin"}"#;
    let shown = outcome("replacement: { policy: check_version, version: v }", command);
    assert!(shown.contains("filter: {v: 1}, updateMods: {v: 2}"), "{shown}");
}

#[test]
fn a_dry_run_reports_the_answers_it_made_up() {
    let needs = |rule: &str, command: &str| {
        let needs = run_dry(rule, command, &mut ClientState::default()).needs;
        let name = |need: &AssumedLookup| match need {
            AssumedLookup::Users => "users".to_owned(),
            AssumedLookup::Numbers(request) => format!("{} numbers of {}", request.count, request.counter.id),
            AssumedLookup::Maximum(maximum) => format!("the largest {}", maximum.field),
            AssumedLookup::Permit(request) => format!("a permit of {}", request.rule),
            AssumedLookup::Documents(find) | AssumedLookup::Match(find) => render(find.as_document(), "d"),
        };
        needs.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(
        needs("replacement: {}\nexcept: { users: [admin.root] }", "db.c.replaceOne({}, {a: 1})"),
        "users, db.c.find({}, {_id: 1}).limit(1)"
    );
    let batch = "db.c.bulkWrite([{replaceOne: {filter: {_id: 1}, replacement: {}}}, {replaceOne: {filter: {a: 2}, replacement: {}}}])";
    let finds = "db.c.find({_id: 1}, {_id: 1}).limit(1), db.c.find({a: 2}, {_id: 1}).limit(1)";
    assert_eq!(needs("replacement: {}", batch), finds);
    assert_eq!(needs("sequence: { field: no, counter: k }", "db.c.insertMany([{}, {}])"), "2 numbers of k");
    assert_eq!(needs("throttle: { rate: 5/s, per: app }", "db.c.find()"), "a permit of rule-0");
    assert_eq!(needs("sequence: { field: no, strategy: optimistic }", "db.c.insertOne({})"), "the largest no");
    let looks = needs("tree: {}", "db.c.insertOne({_id: 1, parent: 2})");
    assert_eq!(looks, "db.c.find({_id: {$in: [2]}}, {_id: 1, path: 1, parent: 1}).limit(1)");
    let looks = needs("tree: { unanchored: rewrite }", "db.c.find({path: /,a,/})");
    assert_eq!(looks, "db.c.find({_id: {$in: [\"a\"]}}, {_id: 1, path: 1, parent: 1}).limit(2)");
}

#[test]
fn outcomes_depend_on_mode_and_client() {
    let outcomes_of = |rule: &str, client_state: &mut ClientState| {
        let outcomes = run_dry(rule, "db.c.replaceOne({}, {a: 1})", client_state).outcomes;
        outcomes.iter().map(|one| (one.kind, one.hint.is_empty())).collect::<Vec<_>>()
    };
    let root = || ClientState { users: Some(vec![("admin".to_owned(), "root".to_owned())]), ..ClientState::default() };
    let migrator = || ClientState { app_name: Some("migrator-1".into()), ..ClientState::default() };
    const RULE: &str = "replacement: {}\nexcept: { apps: [migrator-*], users: [admin.root] }";
    assert_eq!(outcomes_of(RULE, &mut ClientState::default()), [(OutcomeKind::Reject, false)]);
    assert_eq!(outcomes_of(RULE, &mut root()), [(OutcomeKind::ExceptReject, false)]);
    assert_eq!(outcomes_of(RULE, &mut migrator()), [(OutcomeKind::ExceptReject, false)]);
    assert_eq!(outcomes_of("replacement: {}\nmode: shadow", &mut root()), [(OutcomeKind::ShadowReject, false)]);
    for (rule, kind) in [
        ("together: [a, b]", OutcomeKind::Check),
        ("together: [a, b]\nmode: shadow", OutcomeKind::ShadowCheck),
        ("together: [a, b]\nexcept: { users: [admin.root] }", OutcomeKind::ExceptCheck),
    ] {
        let outcomes = run_dry(rule, "db.c.updateOne({}, {$rename: {a: \"x\"}})", &mut root()).outcomes;
        assert_eq!(outcomes.iter().map(|one| one.kind).collect::<Vec<_>>(), [kind]);
    }
    let defaults = run_dry("defaults: { maxTimeMS: 5 }", "db.c.find({})", &mut root()).outcomes;
    assert_eq!(defaults.iter().map(|one| one.kind).collect::<Vec<_>>(), [OutcomeKind::Rewrite]);
}

#[test]
fn a_batch_is_split_into_statements_for_dry_runs() {
    let rules = rules(&[("d.c", "replacement: {}")]);
    let text = "db.c.bulkWrite([{updateOne: {filter: {}, update: {$set: {a: 1}}}}, {replaceOne: {filter: {}, replacement: {}}}])";
    let parsed = parse(text, "d").unwrap();
    let singles = statements(parsed.commands[0].as_document()).collect::<Vec<_>>();
    let shown: Vec<String> = singles.iter().map(|single| render(single.as_document(), "d")).collect();
    assert_eq!(shown, ["db.c.updateOne({}, {$set: {a: 1}})", "db.c.replaceOne({}, {})"]);
    let now = Now { milliseconds: 0 };
    let of = |single: &crate::document::CowDocument<'_>| {
        matches!(
            dry_run(single.as_document(), &rules, now, &mut ClientState::default()).outcome,
            DryRunOutcome::Rejected { .. }
        )
    };
    assert_eq!(singles.iter().map(of).collect::<Vec<_>>(), [false, true]);
    assert!(statements(parse("db.c.insertOne({})", "d").unwrap().commands[0].as_document()).next().is_none());
}
