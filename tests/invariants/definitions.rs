//! Commands that define collections and indexes, with `deny` rules: a denied one changes nothing, and each other one has
//! the direct reply and effect.

use bson::{Bson, Document, doc};

use super::dice::Dice;
use super::lab::{Lab, server};
use super::patterns::{Bounds, Deny};
use super::rules::{Rule, Set};
use super::{first_findings, show};
use support::driver::ok;
use support::raw::Client;

/// Not those of other tests, because `dropDatabase` is one of the commands.
const DATABASES: [&str; 2] = ["defined", "defined_plain"];
const SETS: usize = 12;
/// Cases per set, and commands per case.
const CASES: usize = 6;
const COMMANDS: usize = 6;

/// A `deny` rule, sometimes with another one.
fn set(dice: &mut Dice) -> Set {
    let mut rules = vec![Rule::Deny(Deny::of_definitions(dice))];
    match dice.below(4) {
        0 => rules.push(Rule::Deny(Deny::of_definitions(dice))),
        1 => rules.push(Rule::Bounds(Bounds::random(dice))),
        _ => {}
    }
    Set { rules, unique: None }
}

/// The collection that `renameCollection` renames to; no rule applies to it.
fn renamed(collection: &str) -> String {
    format!("{collection}_renamed")
}

fn index(dice: &mut Dice) -> Document {
    let keys = dice.pick(&[doc! { "a": 1 }, doc! { "b": -1 }, doc! { "a": 1, "b": 1 }]);
    let mut index = doc! { "key": keys, "name": dice.pick(&["one", "two"]) };
    if dice.percent(25) {
        index.insert("unique", true);
    }
    index
}

/// A command on the collection, which is named `c` in it.
fn command(dice: &mut Dice) -> Document {
    let mut command = match dice.below(18) {
        0..4 => {
            let indexes: Vec<Document> = (0..dice.pick(&[1, 1, 2])).map(|_| index(dice)).collect();
            doc! { "createIndexes": "c", "indexes": indexes }
        }
        4..7 => {
            let by_name: [Bson; 4] = ["one".into(), "two".into(), "*".into(), vec!["one", "two"].into()];
            let index = if dice.percent(20) { doc! { "a": 1 }.into() } else { dice.pick(&by_name) };
            doc! { dice.pick(&["dropIndexes", "dropIndexes", "deleteIndexes"]): "c", "index": index }
        }
        7..9 => doc! { "collMod": "c", "index": { "name": dice.pick(&["one", "two"]), "hidden": dice.percent(70) } },
        9 => doc! { "collMod": "c", "validator": { "a": { "$gte": 0 } }, "validationLevel": "moderate" },
        10 => doc! { "drop": "c" },
        11 => doc! { "create": "c" },
        12 => doc! { "create": "c", "capped": true, "size": 4096 },
        13 | 14 => {
            let names = if dice.percent(70) { ("DB.c", "DB.r") } else { ("DB.r", "DB.c") };
            doc! { "renameCollection": names.0, "to": names.1, "dropTarget": dice.percent(50) }
        }
        15 => doc! { "dropDatabase": 1 },
        _ => doc! { "insert": "c", "documents": [{ "a": dice.below(3) as i32 - 1 }] },
    };
    if dice.percent(30) {
        command.insert("comment", "generated");
    }
    command
}

/// The command for this collection of one side.
fn addressed(command: &Document, database: &'static str, collection: &str) -> (&'static str, Document) {
    let place = |value: &mut Bson| {
        let other = renamed(collection);
        *value = match value.as_str() {
            Some("c") => collection.into(),
            Some("DB.c") => format!("{database}.{collection}").into(),
            Some("DB.r") => format!("{database}.{other}").into(),
            _ => return,
        };
    };
    let mut command = command.clone();
    command.iter_mut().for_each(|(_, value)| place(value));
    (if command.contains_key("renameCollection") { "admin" } else { database }, command)
}

/// Whether docward must reject the command on this collection; `dropDatabase` drops all of them.
fn is_rejected(sets: &[(String, Set)], collection: &str, command: &Document) -> bool {
    let name = command.keys().next().map_or("", String::as_str);
    let operation = if name == "deleteIndexes" { "dropIndexes" } else { name };
    let is_affected = |one: &&(String, Set)| one.0 == collection || operation == "dropDatabase";
    sets.iter().filter(is_affected).flat_map(|(_, set)| &set.rules).any(|rule| match rule {
        Rule::Deny(rule) => rule.denies_command(operation, command),
        // No rule can analyse which documents come into the collection.
        _ => operation == "renameCollection",
    })
}

/// Options, indexes and documents of both collections, as text.
fn state(store: &mut Client, database: &str, collection: &str) -> String {
    [collection.to_owned(), renamed(collection)].iter().map(|name| part(store, database, name)).collect()
}

fn part(store: &mut Client, database: &str, name: &str) -> String {
    let mut list = |command: Document| -> Vec<Document> {
        let reply = store.command(database, command);
        let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        batch.into_iter().flatten().filter_map(Bson::as_document).cloned().collect()
    };
    let collections = list(doc! { "listCollections": 1, "filter": { "name": name } });
    let options: Vec<Document> =
        collections.iter().filter_map(|one| one.get_document("options").ok()).cloned().collect();
    let (indexes, documents) = (list(doc! { "listIndexes": name }), list(doc! { "find": name }));
    let values = documents.into_iter().map(|mut document| {
        document.remove("_id");
        document
    });
    let shown = |documents: Vec<Document>| {
        let mut lines: Vec<String> = documents.iter().map(show::document).collect();
        lines.sort();
        lines.join(", ")
    };
    format!("\n    options [{}] indexes [{}] documents [{}]", shown(options), shown(indexes), shown(values.collect()))
}

/// Whether it succeeded, with the code of the error.
fn result(reply: &Document) -> (bool, i32) {
    let error = reply.get_array("writeErrors").ok().and_then(|errors| errors.first()?.as_document());
    (ok(reply), error.unwrap_or(reply).get_i32("code").unwrap_or(0))
}

/// What is wrong with one command.
fn wrong(command: &Document, sets: &[(String, Set)], collection: &str, clients: &mut [Client; 3]) -> Option<String> {
    let [protected, plain] = DATABASES;
    let [through, direct, store] = clients;
    let before = state(store, protected, collection);
    let (database, sent) = addressed(command, protected, collection);
    let reply = through.command(database, sent);
    let after = state(store, protected, collection);
    if is_rejected(sets, collection, command) {
        let is_own = reply.get_document("errInfo").is_ok_and(|info| info.contains_key("docward"));
        let is_right = is_own && result(&reply) == (false, 121) && before == after;
        return (!is_right).then(|| format!("must be rejected: {reply}\n  before:{before}\n  after:{after}"));
    }
    let (database, sent) = addressed(command, plain, collection);
    let direct_reply = direct.command(database, sent);
    let expected = state(store, plain, collection);
    let is_right = result(&reply) == result(&direct_reply) && after == expected;
    (!is_right)
        .then(|| format!("replies {reply}\n  directly {direct_reply}\n  stored:{after}\n  instead of:{expected}"))
}

/// One round of cases; returns what is wrong with them.
fn round(seed: u64) -> Vec<String> {
    let dice = &mut Dice::new(seed);
    let lab = Lab::start_in(DATABASES, (0..SETS).map(|_| set(dice)).collect());
    let mut clients = [lab.address(), server().address(), server().address()].map(|address| Client::connect(&address));
    let mut found = Vec::new();
    for (collection, Set { rules, .. }) in &lab.sets {
        for _ in 0..CASES {
            for (database, name) in DATABASES
                .into_iter()
                .flat_map(|database| [collection.clone(), renamed(collection)].map(|name| (database, name)))
            {
                clients[2].command(database, doc! { "drop": &name });
            }
            for database in DATABASES {
                let documents = vec![doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 1, "b": 2 }];
                clients[2].command(database, doc! { "insert": collection, "documents": documents });
            }
            let mut sent = String::new();
            for _ in 0..COMMANDS {
                let command = command(dice);
                sent += &format!("\n    {}", show::document(&command));
                if let Some(wrong) = wrong(&command, &lab.sets, collection, &mut clients) {
                    let settings: String = rules.iter().map(|rule| format!("\n    {}", rule.settings())).collect();
                    found.push(format!("seed {seed}\n  rules:{settings}\n  commands:{sent}\n  {wrong}\n"));
                    break;
                }
            }
        }
        for database in DATABASES {
            clients[2].command(database, doc! { "drop": renamed(collection) });
        }
    }
    found
}

#[test]
fn definitions_beside_deny_have_the_direct_effect_or_none() {
    let found = first_findings(round);
    assert!(found.is_empty(), "{} cases:\n{}", found.len(), found.concat());
}
