//! Searches a smaller case with the same finding: fewer rules, documents, commands and fields; simpler values.

use std::time::{Duration, Instant};

use bson::{Bson, Document};

use super::case::{Case, Session};
use super::check::Finding;
use super::lab::{BothSides, Lab};
use super::race::Race;
use super::rules::{Rule, Set};
use super::{Run, show};

/// The time after which shrinking stops; a case that takes seconds is tried only a few times.
const TIMEOUT: Duration = Duration::from_secs(4);

/// The smallest case found that shows the same finding.
pub(super) fn smaller(case: &Case, finding: &Finding) -> (Case, Finding) {
    let began = Instant::now();
    let (rules, lab) = fewest_rules(case, finding);
    let mut best = Case { rules, ..case.clone() };
    let collection = lab.sets[0].0.clone();
    let mut both_sides = lab.both_sides();
    let mut found = finding.clone();
    let mut progress = true;
    while progress && began.elapsed() < TIMEOUT {
        progress = false;
        for candidate in candidates(&best) {
            if began.elapsed() > TIMEOUT {
                break;
            }
            if let Some(again) = shows(&mut both_sides, &collection, &candidate, finding) {
                (best, found, progress) = (candidate, again, true);
                break;
            }
        }
    }
    (best, found)
}

/// The case's finding of the same kind, if it has one.
fn shows(both_sides: &mut BothSides, collection: &str, case: &Case, wanted: &Finding) -> Option<Finding> {
    let found = Run { both_sides, collection }.case(case);
    found
        .into_iter()
        .find(|finding| finding.kind == wanted.kind && finding.pattern_is(wanted) && finding.resembles(wanted))
}

fn fewest_rules(case: &Case, finding: &Finding) -> (Vec<Rule>, Lab) {
    let count = case.rules.len();
    let mut subsets: Vec<Vec<Rule>> = (1..1_usize << count)
        .map(|mask| (0..count).filter(|at| mask >> at & 1 == 1).map(|at| case.rules[at].clone()).collect())
        .collect();
    subsets.sort_by_key(Vec::len);
    for rules in subsets {
        let lab = Lab::start(vec![Set { rules: rules.clone(), unique: case.unique }]);
        let (mut both_sides, smaller) = (lab.both_sides(), Case { rules: rules.clone(), ..case.clone() });
        if rules.len() == count || shows(&mut both_sides, &lab.sets[0].0, &smaller, finding).is_some() {
            return (rules, lab);
        }
    }
    unreachable!("all rules are a subset")
}

/// The structure of a small case without names and values: two cases with equal structure are one finding.
pub(super) fn signature(case: &Case, finding: &Finding) -> String {
    let rules: Vec<&str> = case.rules.iter().map(|rule| rule.name()).collect();
    let steps: Vec<String> = case.steps.iter().map(|step| shape(&Bson::Document(step.command.clone()))).collect();
    format!("{} {rules:?} {steps:?}", finding.kind)
}

fn shape(value: &Bson) -> String {
    match value {
        Bson::Document(document) => {
            let field = |(key, value): (&String, &Bson)| {
                let known = ["q", "u", "update", "query", "upsert", "multi", "remove", "_id"].contains(&key.as_str());
                let name = if known || key.starts_with('$') { key } else { "f" };
                format!("{name}{}", shape(value))
            };
            format!("{{{}}}", document.iter().map(field).collect::<Vec<_>>().join(","))
        }
        Bson::Array(items) => format!("[{}]", items.iter().map(shape).collect::<Vec<_>>().join(",")),
        _ => String::new(),
    }
}

/// Cases that are simpler in one way, the largest steps first.
fn candidates(case: &Case) -> Vec<Case> {
    let mut found = Vec::new();
    for index in (0..case.steps.len()).filter(|_| case.steps.len() > 1) {
        let mut smaller = case.clone();
        smaller.steps.remove(index);
        found.push(smaller);
    }
    for index in 0..case.stored.len() {
        let mut smaller = case.clone();
        smaller.stored.remove(index);
        found.push(smaller);
    }
    for index in (0..case.steps.len()).filter(|index| case.steps[*index].session != Session::None) {
        let mut smaller = case.clone();
        smaller.steps[index].session = Session::None;
        found.push(smaller);
    }
    for (index, race) in case.steps.iter().enumerate().filter_map(|(index, step)| Some((index, step.race.as_ref()?))) {
        let mut smaller = case.clone();
        smaller.steps[index].race = None;
        found.push(smaller);
        for document in simpler_documents(&race.document).into_iter().filter(|simpler| simpler.contains_key("_id")) {
            let mut smaller = case.clone();
            smaller.steps[index].race = Some(Race { document, ..race.clone() });
            found.push(smaller);
        }
    }
    for (index, document) in case.stored.iter().enumerate() {
        // Without an _id each side would generate a different one.
        for simpler in simpler_documents(document).into_iter().filter(|simpler| simpler.contains_key("_id")) {
            let mut smaller = case.clone();
            smaller.stored[index] = simpler;
            found.push(smaller);
        }
    }
    for (index, step) in case.steps.iter().enumerate() {
        for simpler in simpler_documents(&step.command) {
            let is_command = simpler.keys().next() == step.command.keys().next();
            if is_command {
                let mut smaller = case.clone();
                smaller.steps[index].command = simpler;
                found.push(smaller);
            }
        }
    }
    found
}

fn simpler_documents(document: &Document) -> Vec<Document> {
    let mut found = Vec::new();
    for key in document.keys() {
        let mut smaller = document.clone();
        smaller.remove(key);
        found.push(smaller);
    }
    for (key, value) in document {
        for simpler in simpler_values(value) {
            let mut smaller = document.clone();
            smaller.insert(key, simpler);
            found.push(smaller);
        }
    }
    found
}

fn simpler_values(value: &Bson) -> Vec<Bson> {
    match value {
        Bson::Document(document) => simpler_documents(document).into_iter().map(Bson::Document).collect(),
        Bson::Array(items) => {
            let mut found = Vec::new();
            for index in 0..items.len() {
                let mut smaller = items.clone();
                smaller.remove(index);
                found.push(Bson::Array(smaller));
            }
            for (index, item) in items.iter().enumerate() {
                for simpler in simpler_values(item) {
                    let mut smaller = items.clone();
                    smaller[index] = simpler;
                    found.push(Bson::Array(smaller));
                }
            }
            found
        }
        Bson::Int32(1) => Vec::new(),
        Bson::Boolean(_) | Bson::String(_) | Bson::Null => Vec::new(),
        _ if show::value(value).len() > 1 => vec![Bson::Int32(1)],
        _ => Vec::new(),
    }
}
