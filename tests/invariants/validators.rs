//! Validators that hold rules past docward: of documents that are inserted directly, the server accepts exactly those that
//! docward accepts.

use bson::doc;

use super::dice::Dice;
use super::lab::{Lab, PROTECTED, server};
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
