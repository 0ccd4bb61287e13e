//! Deletes and updates of the originals of `copies`: with `on_delete: reject` no delete leaves a reference to its
//! document, and what is not rejected has the direct effect. The worker then corrects the copies by `on_delete`.

use bson::{Bson, Document, doc};

use super::case::{End, Session, Step};
use super::dice::Dice;
use super::lab::{BothSides, Lab, Outcome, PLAIN, PROTECTED, server};
use super::patterns::Copies;
use super::reply::rejected_statements;
use super::rules::{Rule, Set};
use super::values::as_number;
use super::{first_findings, show};
use support::driver::ok;
use support::process::{TIMEOUT, poll};
use support::raw::Client;

/// Cases for each `on_delete` of a round.
const CASES: i32 = 25;
/// The `_id` of an original that is there before the cases.
const CANARY: &str = "canary";

fn originals_of(collection: &str) -> String {
    format!("{collection}_originals")
}

/// One command on originals, the first of which have these numbers, and documents with references.
struct Case {
    originals: Vec<Document>,
    references: Vec<Document>,
    step: Step,
}

/// Each case has its own numbers: the worker may still follow what happened to those of the previous one.
fn case(dice: &mut Dice, first: i32) -> Case {
    let numbers: Vec<i32> = (first..first + 5).collect();
    let name = |number: i32| format!("Ada {number}");
    let originals = numbers.iter().filter(|_| dice.percent(80)).copied().collect::<Vec<i32>>();
    let reference = |dice: &mut Dice| {
        let number = dice.pick(&numbers);
        let id = dice.pick(&[Bson::Int32(number), Bson::Int32(number), Bson::Int64(number.into())]);
        let mut reference = doc! { "id": id, "name": name(number) };
        if dice.percent(20) {
            reference.insert("since", 1990);
        }
        reference
    };
    let references = (0..dice.below(4) as i32).map(|index| {
        let held: Bson = match dice.below(3) {
            0 => (0..dice.below(4)).map(|_| reference(dice)).collect::<Vec<_>>().into(),
            _ => reference(dice).into(),
        };
        doc! { "_id": first + index, "ref": held }
    });
    let references = references.collect();
    let originals =
        originals.into_iter().map(|number| doc! { "_id": number, "name": name(number), "group": number % 2 });
    Case { originals: originals.collect(), references, step: step(dice, &numbers) }
}

fn filter(dice: &mut Dice, numbers: &[i32]) -> Document {
    let (one, other) = (dice.pick(numbers), dice.pick(numbers));
    match dice.below(8) {
        0 => doc! { "group": dice.below(2) as i32 },
        1 => doc! { "name": format!("Ada {one}") },
        2 => doc! { "_id": { "$in": [one, other] } },
        3 => doc! { "_id": { "$gte": one } },
        4 => doc! { "_id": i64::from(one) },
        5 if dice.percent(20) => doc! {},
        _ => doc! { "_id": one },
    }
}

fn step(dice: &mut Dice, numbers: &[i32]) -> Step {
    let count = dice.pick(&[1, 1, 1, 2, 3]);
    let mut command = match dice.below(10) {
        0 | 1 => {
            let mut command = doc! { "findAndModify": "c", "query": filter(dice, numbers) };
            if dice.percent(50) {
                command.insert("sort", doc! { "_id": dice.pick(&[1, -1]) });
            }
            command.insert("remove", true);
            command
        }
        2 | 3 => {
            let change = |dice: &mut Dice| match dice.below(3) {
                0 => doc! { "name": "Bea", "group": 1 },
                _ => doc! { "$set": { "name": dice.pick(&["Bea", "Cleo"]) } },
            };
            let update = |dice: &mut Dice| doc! { "q": filter(dice, numbers), "u": change(dice) };
            doc! { "update": "c", "updates": (0..count).map(|_| update(dice)).collect::<Vec<_>>() }
        }
        _ => {
            let delete = |dice: &mut Dice| doc! { "q": filter(dice, numbers), "limit": dice.pick(&[0, 1]) };
            doc! { "delete": "c", "deletes": (0..count).map(|_| delete(dice)).collect::<Vec<_>>() }
        }
    };
    if !command.contains_key("findAndModify") && dice.percent(25) {
        command.insert("ordered", false);
    }
    let session = match dice.below(10) {
        0 => Session::Resent,
        1 => Session::Transaction(End::Commit),
        2 => Session::Transaction(End::Abort),
        _ => Session::None,
    };
    let mut step = Step { command, session, race: None };
    if session.is_retryable() && step.statements().iter().any(|statement| statement.multi) {
        step.session = Session::None;
    }
    step
}

/// Whether it refers to one of these originals; a key may have another numeric type.
fn refers(reference: &Document, originals: &[Document]) -> bool {
    let number = |document: &Document, name: &str| document.get(name).and_then(as_number);
    let key = number(reference, "id");
    originals.iter().any(|original| number(original, "_id") == key)
}

/// The references of a document.
fn references_of(document: &Document) -> Vec<&Document> {
    match document.get("ref") {
        Some(Bson::Document(one)) => vec![one],
        Some(Bson::Array(elements)) => elements.iter().filter_map(Bson::as_document).collect(),
        _ => Vec::new(),
    }
}

fn removed(before: &[Document], after: &[Document]) -> Vec<Document> {
    let is_gone = |document: &&Document| !after.iter().any(|other| other.get("_id") == document.get("_id"));
    before.iter().filter(is_gone).cloned().collect()
}

/// A reference as the worker must make it; `None` if it must remove the reference.
fn corrected(reference: &Document, stored: &[Document], removed: &[Document], unsets: bool) -> Option<Document> {
    let mut reference = reference.clone();
    if unsets && refers(&reference, removed) {
        reference.remove("id");
        reference.remove("name");
        return (!reference.is_empty()).then_some(reference);
    }
    let key = reference.get("id").and_then(as_number);
    if let Some(original) = stored.iter().find(|original| original.get("_id").and_then(as_number) == key) {
        reference.insert("name", original.get("name").cloned().unwrap());
    }
    Some(reference)
}

/// The documents with references as the worker must make them: of an array it removes whole elements.
fn expected(references: &[Document], stored: &[Document], removed: &[Document], unsets: bool) -> Vec<Document> {
    let correct = |document: &Document| {
        let mut document = document.clone();
        let held = match document.get("ref") {
            Some(Bson::Array(elements)) => {
                let kept = elements.iter().filter_map(Bson::as_document).filter(|one| !unsets || !refers(one, removed));
                Bson::from(kept.filter_map(|one| corrected(one, stored, removed, unsets)).collect::<Vec<_>>())
            }
            Some(Bson::Document(one)) => corrected(one, stored, removed, unsets).unwrap_or_default().into(),
            _ => return document,
        };
        document.insert("ref", held);
        document
    };
    references.iter().map(correct).collect()
}

/// What is wrong with the command itself.
fn wrong(case: &Case, outcome: &Outcome, both_sides: &mut BothSides, name: &str, rejects: bool) -> Option<String> {
    let reply = outcome.through.reply.as_ref()?;
    let rejected = rejected_statements(reply);
    let is_referenced =
        |gone: &[Document]| case.references.iter().flat_map(references_of).any(|reference| refers(reference, gone));
    if !rejects && !rejected.is_empty() {
        return Some(format!("rejected: {reply}"));
    }
    if rejects && is_referenced(&removed(&outcome.before, &outcome.stored)) {
        return Some("it deleted an original that has references".to_owned());
    }
    if let Some(before) = &outcome.uncommitted
        && *before != outcome.visible
    {
        return Some("a transaction that is not committed has changed something".to_owned());
    }
    if outcome.again.as_ref().is_some_and(|again| again.stored != outcome.stored) {
        return Some("a retry has changed something".to_owned());
    }
    if !rejected.is_empty() && case.step.session.in_transaction() {
        return (outcome.stored != outcome.before).then(|| "a rejected statement has changed something".to_owned());
    }
    let others = case.step.only(&case.step.remaining(&rejected));
    let (direct, stored) =
        match others.statements().is_empty() || case.step.is_find_and_modify() && !rejected.is_empty() {
            true => (None, outcome.before.clone()),
            false => {
                let (answer, stored) = both_sides.directly(name, &outcome.before, &others);
                (answer.reply, stored)
            }
        };
    if stored != outcome.stored {
        return Some(format!(
            "originals{}\n  instead of{}",
            show::documents(&outcome.stored),
            show::documents(&stored)
        ));
    }
    if let Some(direct) = direct.filter(|direct| direct.get("n") != reply.get("n")) {
        return Some(format!("replies {reply}\n  directly {direct}"));
    }
    // A rejected statement would have deleted an original with references.
    rejected.iter().copied().find_map(|index| {
        let earlier: Vec<usize> = case.step.remaining(&rejected).into_iter().filter(|other| *other < index).collect();
        let mut alone = case.step.only(&earlier);
        alone.session = Session::None;
        let before = match earlier.is_empty() {
            true => outcome.before.clone(),
            false => both_sides.directly(name, &outcome.before, &alone).1,
        };
        let mut all = case.step.only(&[index]);
        all.session = Session::None;
        // Which one of several a server deletes is its own choice.
        for delete in all.command.get_array_mut("deletes").into_iter().flatten().filter_map(Bson::as_document_mut) {
            delete.insert("limit", 0);
        }
        let (_, after) = both_sides.directly(name, &before, &all);
        (!is_referenced(&removed(&before, &after)))
            .then(|| "it is rejected, and its originals have no references".to_owned())
    })
}

fn stored(client: &mut Client, collection: &str) -> Vec<Document> {
    let reply = client.command(PROTECTED, doc! { "find": collection, "sort": { "_id": 1 }, "batchSize": 1000 });
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().filter_map(Bson::as_document).cloned().collect()
}

fn insert(client: &mut Client, collection: &str, documents: Vec<Document>) {
    let reply = client.command(PROTECTED, doc! { "insert": collection, "documents": documents });
    assert!(ok(&reply) && !reply.contains_key("writeErrors"), "{reply}");
}

/// Waits until the worker follows the changes of originals.
fn await_worker(client: &mut Client, collection: &str) {
    let stale = doc! { "_id": CANARY, "ref": { "id": CANARY, "name": "stale" } };
    insert(client, collection, vec![stale]);
    insert(client, &originals_of(collection), vec![doc! { "_id": CANARY, "name": "Ada" }]);
    let is_corrected = |client: &mut Client| {
        stored(client, collection)[0].get_document("ref").unwrap().get_str("name").ok() == Some("Ada")
    };
    assert!(poll(TIMEOUT, || is_corrected(client).then_some(())).is_some(), "the worker does not begin");
    client.command(PROTECTED, doc! { "delete": collection, "deletes": [{ "q": {}, "limit": 0 }] });
}

/// One round of cases; returns what is wrong with them.
fn round(seed: u64) -> Vec<String> {
    let dice = &mut Dice::new(seed);
    let rules = ["keep", "unset", "reject"].map(|on_delete| Copies { on_delete, holder: "ref" });
    let sets = rules.iter().map(|rule| Set { rules: vec![Rule::Copies(rule.clone())], unique: None });
    let lab = Lab::start(sets.collect());
    let (mut client, mut both_sides) = (Client::connect(&server().address()), lab.both_sides());
    let mut found = Vec::new();
    for ((collection, _), Copies { on_delete, .. }) in lab.sets.iter().zip(&rules) {
        let name = originals_of(collection);
        for database in [PROTECTED, PLAIN] {
            client.command(database, doc! { "create": &name });
        }
        await_worker(&mut client, collection);
        for number in 0..CASES {
            let case = case(dice, 10 * (number + 1));
            both_sides.abort_open();
            both_sides.store(&name, &case.originals);
            client.command(PROTECTED, doc! { "delete": collection, "deletes": [{ "q": {}, "limit": 0 }] });
            if !case.references.is_empty() {
                insert(&mut client, collection, case.references.clone());
            }
            let outcome = both_sides.run(&name, &case.originals, &case.step);
            let gone = removed(&case.originals, &outcome.visible);
            let expected = expected(&case.references, &outcome.visible, &gone, *on_delete == "unset");
            let mut held = Vec::new();
            let mut is_right = || {
                held = stored(&mut client, collection);
                held == expected
            };
            let is_followed = poll(TIMEOUT, || is_right().then_some(())).is_some();
            let late = || {
                (!is_followed).then(|| {
                    format!("references{}\n  instead of{}", show::documents(&held), show::documents(&expected))
                })
            };
            if let Some(wrong) = wrong(&case, &outcome, &mut both_sides, &name, *on_delete == "reject").or_else(late) {
                found.push(format!(
                    "seed {seed}, on_delete: {on_delete}\n  originals:{}\n  references:{}\n  command ({:?}): {}\n  {wrong}\n",
                    show::documents(&case.originals),
                    show::documents(&case.references),
                    case.step.session,
                    show::document(&case.step.command),
                ));
                break;
            }
        }
        for database in [PROTECTED, PLAIN] {
            client.command(database, doc! { "drop": &name });
        }
    }
    found
}

#[test]
fn commands_on_originals_follow_on_delete() {
    let found = first_findings(round);
    assert!(found.is_empty(), "{} cases:\n{}", found.len(), found.concat());
}
