//! Validators that hold rules past docward: of documents that are inserted directly, the server accepts exactly those that
//! docward accepts, and no statement that changes something without them fails with them.

use bson::{Document, doc};

use super::case::{Session, Step};
use super::dice::Dice;
use super::lab::{BothSides, Lab, Outcome, PROTECTED, documents, server};
use super::reply::{errors, rejection_of_validator};
use super::rules::{Change, Rule, Set};
use super::{first_findings, generate, show};
use support::driver::ok;
use support::raw::Client;

/// Patterns whose promise for an inserted document is about this document alone.
const HELD: [&str; 4] = ["bounds", "limits", "together", "schema_version"];
const SETS: usize = 24;
const DOCUMENTS: usize = 25;

fn set(dice: &mut Dice) -> Set {
    let mut rules = std::iter::repeat_with(|| Rule::random(dice));
    Set { rules: rules.find(|rule| HELD.contains(&rule.name())).into_iter().collect(), unique: None }
}

fn round(seed: u64) -> Vec<String> {
    let dice = &mut Dice::new(seed);
    let lab = Lab::start_held((0..SETS).map(|_| set(dice)).collect());
    let [mut through, mut direct] = [lab.address(), server().address()].map(|address| Client::connect(&address));
    let (mut found, mut accepted, mut rejected) = (Vec::new(), 0, 0);
    for (collection, set) in &lab.sets {
        for document in generate::documents(dice, set, DOCUMENTS) {
            let insert = doc! { "insert": collection, "documents": [document.clone()] };
            let replies = [&mut through, &mut direct].map(|client| client.command(PROTECTED, insert.clone()));
            let [by_docward, by_validator] = replies.each_ref().map(|reply| ok(reply) && errors(reply).is_empty());
            let change = Change { before: &[], after: std::slice::from_ref(&document), statements: &[], reply: None };
            let broken = set.rules.iter().find_map(|rule| rule.broken(&change)).filter(|_| by_validator);
            let is_stricter = rejection_of_validator(&replies[0]).is_some();
            (accepted, rejected) = (accepted + usize::from(by_validator), rejected + usize::from(!by_validator));
            if by_docward != by_validator || is_stricter || broken.is_some() {
                let settings = set.rules[0].settings();
                let [one, other] = replies.each_ref().map(show::document);
                let document = show::document(&document);
                found.push(format!("seed {seed}: {settings}: {document}\n  {broken:?} {one}\n  {other}\n"));
            }
        }
    }
    let is_mixed = accepted > 100 && rejected > 100;
    assert!(is_mixed || !found.is_empty(), "{accepted} accepted, {rejected} rejected");
    found
}

#[test]
fn validators_accept_the_documents_that_docward_accepts() {
    let found = first_findings(round);
    assert!(found.is_empty(), "{} documents:\n{}", found.len(), found.concat());
}

const STATEMENTS: usize = 16;

/// Runs the step without the collection's validator, and with it.
fn without_and_with(both: &mut BothSides, collection: &str, stored: &[Document], step: &Step) -> [Outcome; 2] {
    let client = &mut Client::connect(&server().address());
    let of_collection = doc! { "listCollections": 1, "filter": { "name": collection } };
    let options = documents(&client.command(PROTECTED, of_collection)).pop().unwrap();
    let level = options.get_document("options").unwrap().get_str("validationLevel").unwrap_or("strict").to_owned();
    ["off", &level].map(|level| {
        let reply = client.command(PROTECTED, doc! { "collMod": collection, "validationLevel": level });
        assert!(ok(&reply), "{reply}");
        both.store(collection, stored);
        both.run(collection, stored, step)
    })
}

/// What is wrong if a statement changes something without the validator, and fails with it.
fn stricter(set: &Set, [without, with]: &[Outcome; 2]) -> Option<String> {
    let [free, held] = [without, with].map(|outcome| outcome.through.reply.as_ref());
    let failed = held.is_some_and(|reply| errors(reply).iter().any(|(_, code)| *code == 121));
    let rejection = held.and_then(rejection_of_validator);
    let is_allowed = free.is_some_and(|reply| errors(reply).is_empty()) && without.stored != without.before;
    // A bucket finds room by its count; where that is too low, docward lets a push exceed the limit.
    let before = Change { before: &[], after: &without.before, statements: &[], reply: None };
    let by = rejection.as_ref().map_or("no rule", |rejection| &rejection.pattern);
    let is_miscounted = |rule: &Rule| rule.name() == by && rule.name() == "bucket";
    let is_excused = set.rules.iter().any(|rule| is_miscounted(rule) && rule.broken(&before).is_some());
    let reason = rejection.as_ref().map_or("no text of a rule", |rejection| &rejection.reason);
    (failed && is_allowed && !is_excused).then(|| format!("{by}: {reason}"))
}

/// Whether a validator holds a part of the rule.
fn is_held(rule: &Rule) -> bool {
    HELD.contains(&rule.name()) || ["bucket", "queue", "sequence", "tree"].contains(&rule.name())
}

fn round_of_statements(seed: u64) -> Vec<String> {
    let dice = &mut Dice::new(seed);
    let sets = std::iter::repeat_with(|| generate::set(dice)).filter(|set| set.rules.iter().any(is_held));
    let lab = Lab::start_held(sets.take(SETS).collect());
    let (mut both, mut found, mut changed, mut refused) = (lab.both_sides(), Vec::new(), 0, 0);
    for (collection, set) in &lab.sets {
        for _ in 0..STATEMENTS {
            let case = generate::case(dice, set);
            let is_alone = |step: &&Step| step.session == Session::None && step.statements().len() == 1;
            let Some(step) = case.steps.iter().find(is_alone).filter(|step| step.race.is_none()) else { continue };
            if set.rules.iter().any(|rule| rule.counter()) {
                both.begin_counting(collection, false);
            }
            let outcomes = without_and_with(&mut both, collection, &case.stored, step);
            changed += usize::from(outcomes[0].stored != outcomes[0].before);
            refused += usize::from(outcomes[1].through.reply.as_ref().and_then(rejection_of_validator).is_some());
            if let Some(wrong) = stricter(set, &outcomes) {
                let settings: Vec<String> = set.rules.iter().map(|rule| rule.settings().to_string()).collect();
                let stored: Vec<String> = case.stored.iter().map(show::document).collect();
                let (step, rules) = (show::document(&step.command), settings.join("; "));
                found.push(format!("seed {seed}: {rules}: {stored:?}\n  {step}\n  {wrong}\n"));
            }
        }
    }
    eprintln!("validators: {changed} statements changed something, {refused} were refused by a validator");
    assert!(changed > 30 || !found.is_empty(), "only {changed} statements changed something");
    found
}

#[test]
fn validators_let_pass_the_statements_that_docward_lets_pass() {
    let found = first_findings(round_of_statements);
    assert!(found.is_empty(), "{} statements:\n{}", found.len(), found.concat());
}
