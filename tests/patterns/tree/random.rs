//! Random updates of a small tree, through docward and directly. The expectation is the walk to the root over the
//! direct result: if that is a tree, docward must store the same with correct paths and reply the same; if not,
//! docward must reject the statement and change nothing.

use std::collections::HashMap;

use bson::{Bson, Document, doc};

use super::{Dice, REJECTED, faults, rules};
use support::driver::{Views, code, scaled};
use support::mongod::Mongod;
use support::proxy::Docward;

fn seeds() -> Vec<Document> {
    vec![
        doc! { "_id": "a", "parent": null, "path": null, "n": 1 },
        doc! { "_id": "b", "parent": "a", "path": ",a,", "above": "d", "n": 2 },
        doc! { "_id": "c", "parent": "b", "path": ",a,b,", "above": "missing" },
        doc! { "_id": "d", "path": null, "above": 5 },
    ]
}

fn pick<T: Clone>(dice: &mut Dice, from: &[T]) -> T {
    from[dice.below(from.len() as u64) as usize].clone()
}

fn node(dice: &mut Dice) -> &'static str {
    pick(dice, &["a", "b", "c", "d", "e", "f"])
}

fn value(dice: &mut Dice) -> Bson {
    match dice.below(12) {
        0 => Bson::Null,
        1 => Bson::Int32(7),
        2 => vec![Bson::from("a")].into(),
        3 => doc! { "x": 1 }.into(),
        4 => "missing".into(),
        5 => "a,b".into(),
        _ => node(dice).into(),
    }
}

/// Conditions that may or may not be an equality on `field`.
fn condition(dice: &mut Dice, field: &str, value: Bson) -> Document {
    match dice.below(8) {
        0 => doc! { field: { "$in": [value] } },
        1 => doc! { field: { "$eq": value } },
        2 => doc! { "$or": [{ field: value }] },
        3 => doc! { "$and": [{ field: value }] },
        4 => doc! { "$or": [{ field: value }, { field: "zzz" }] },
        _ => doc! { field: value },
    }
}

fn filter(dice: &mut Dice) -> Document {
    let mut parts = Vec::new();
    if dice.below(5) > 0 {
        let id = node(dice).into();
        parts.push(condition(dice, "_id", id));
    }
    if dice.below(3) == 0 {
        let parent = value(dice);
        parts.push(condition(dice, "parent", parent));
    }
    if parts.is_empty() || dice.below(4) == 0 {
        parts.push(doc! { "n": dice.below(3) as i32 });
    }
    if parts.len() == 1 {
        parts.remove(0)
    } else {
        doc! { "$and": parts }
    }
}

fn operators(dice: &mut Dice) -> Document {
    let mut update = Document::new();
    for _ in 0..=dice.below(2) {
        let (operator, field, operand) = match dice.below(16) {
            0..4 => ("$set", "parent", value(dice)),
            4 => ("$setOnInsert", "parent", value(dice)),
            5 => ("$setOnInsert", "_id", node(dice).into()),
            6 => ("$unset", "parent", 1.into()),
            7 => ("$min", "parent", value(dice)),
            8 => ("$max", "parent", value(dice)),
            9 => ("$rename", "above", "parent".into()),
            10 => ("$rename", "parent", "above".into()),
            11 => ("$set", pick(dice, &["parent.x", "parent.0", "parent.$[]"]), 1.into()),
            12 => (pick(dice, &["$push", "$inc"]), "parent", value(dice)),
            13 => ("$set", "path", pick(dice, &[",a,", ",a,b,", ",d,", "nonsense"]).into()),
            14 => (pick(dice, &["$unset", "$rename"]), "path", "way".into()),
            _ => ("$inc", "n", 1.into()),
        };
        let mut fields = update.get_document(operator).cloned().unwrap_or_default();
        fields.insert(field, operand);
        update.insert(operator, fields);
    }
    update
}

fn replacement(dice: &mut Dice) -> Document {
    let mut document = doc! { "n": 9 };
    if dice.below(2) == 0 {
        document.insert("parent", value(dice));
    }
    if dice.below(4) == 0 {
        document.insert("_id", node(dice));
    }
    if dice.below(6) == 0 {
        document.insert("path", pick(dice, &[",a,", ",a,b,", "nonsense"]));
    }
    document
}

/// An update, or the equivalent findAndModify.
fn command(dice: &mut Dice, collection: &str) -> Document {
    let (filter, upsert) = (filter(dice), dice.below(2) == 0);
    let update = if dice.below(3) == 0 { replacement(dice) } else { operators(dice) };
    if dice.below(4) == 0 {
        return doc! { "findAndModify": collection, "query": filter, "update": update, "upsert": upsert };
    }
    doc! { "update": collection, "updates": [{ "q": filter, "u": update, "upsert": upsert }] }
}

/// The application's view of a reply: counts, or the error code.
async fn outcome(database: &mongodb::Database, command: &Document) -> Result<Document, i32> {
    let mut reply = database.run_command(command.clone()).await.map_err(|error| code(&error))?;
    if let Some(error) = reply.get_array("writeErrors").ok().and_then(|errors| errors.first()) {
        return Err(error.as_document().unwrap().get_i32("code").unwrap());
    }
    reply.retain(|key, _| ["n", "nModified", "upserted", "lastErrorObject"].contains(&key));
    Ok(reply)
}

trait Retain {
    fn retain(&mut self, keep: impl Fn(&str, &Bson) -> bool);
}

impl Retain for Document {
    fn retain(&mut self, keep: impl Fn(&str, &Bson) -> bool) {
        let kept = std::mem::take(self).into_iter().filter(|(key, value)| keep(key, value));
        self.extend(kept.collect::<Vec<_>>());
    }
}

/// ObjectIds that the server makes differ every time.
fn normalized(document: &Document) -> String {
    let text = document.to_string();
    let Some(start) = text.find("ObjectId(\"") else { return text };
    let mut text = text;
    text.replace_range(start + 10..start + 34, "made");
    text
}

/// The nodes with their correct paths; `None` if they are not a tree.
fn as_tree(nodes: &[Document]) -> Option<Vec<Document>> {
    let by_id: HashMap<String, &Document> = nodes.iter().map(|n| (n.get("_id").unwrap().to_string(), n)).collect();
    let with_path = |node: &Document| {
        let (mut walk, mut at) = (String::new(), node);
        for _ in 0..=nodes.len() {
            let parent = match at.get("parent") {
                None | Some(Bson::Null) => {
                    let path = if walk.is_empty() { Bson::Null } else { format!(",{walk}").into() };
                    let mut node = node.clone();
                    node.insert("path", path);
                    return Some(node);
                }
                Some(parent) => parent.as_str()?,
            };
            let above = by_id.get(&Bson::from(parent).to_string())?;
            if at.get("_id")?.element_type() != above.get("_id")?.element_type() || parent.contains(',') {
                return None;
            }
            walk = format!("{parent},{walk}");
            at = above;
        }
        None
    };
    nodes.iter().map(with_path).collect()
}

fn sorted(nodes: &[Document]) -> Vec<String> {
    let mut texts: Vec<String> = nodes
        .iter()
        .map(|node| {
            let mut fields: Vec<_> = node.clone().into_iter().collect();
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            normalized(&fields.into_iter().collect())
        })
        .collect();
    texts.sort();
    texts
}

async fn check(views: &Views, dice: &mut Dice) -> Result<bool, String> {
    for collection in ["categories", "plain"] {
        let stored = views.direct.collection::<Document>(collection);
        stored.delete_many(doc! {}).await.unwrap();
        stored.insert_many(seeds()).await.unwrap();
    }
    let command = command(dice, "categories");
    let mut on_plain = command.clone();
    let (name, _) = command.iter().next().unwrap();
    on_plain.insert(name, "plain");
    let direct = outcome(&views.direct, &on_plain).await;
    let through = outcome(&views.through, &command).await;
    let (left, stored) = (views.stored("plain").await, views.stored("categories").await);
    let wrong = |what: &str| {
        Err(format!("{what}: {command}\n  directly {direct:?} {left:?}\n  through {through:?} {stored:?}"))
    };
    if !faults(&stored).is_empty() {
        return wrong("the tree is broken");
    }
    let unchanged = sorted(&stored) == sorted(&seeds());
    let rejected = through == Err(REJECTED);
    if through.is_err() && !unchanged {
        return wrong("an error, but documents changed");
    }
    let writes_path = command.to_string().contains("path");
    match (&direct, as_tree(&left)) {
        (Err(code), _) if through != Err(*code) && !rejected => wrong("another error"),
        (Err(_), _) => Ok(false),
        // It would write a value that is not a place, if it matched.
        (Ok(_), _) if rejected && sorted(&left) == sorted(&seeds()) => Ok(false),
        // Its path may differ from the parent's, or determine the parent.
        (Ok(_), _) if writes_path => Ok(through.is_ok()),
        (Ok(_), None) if !rejected => wrong("the direct result is not a tree, but docward accepts the statement"),
        (Ok(_), None) => Ok(false),
        (Ok(reply), Some(expected)) => match &through {
            Ok(reply_directly)
                if sorted(std::slice::from_ref(reply)) != sorted(std::slice::from_ref(reply_directly)) =>
            {
                wrong("another reply")
            }
            Ok(_) if sorted(&expected) != sorted(&stored) => wrong("another document"),
            Ok(_) => Ok(true),
            Err(_) => wrong("the direct result is a tree, but docward rejects the statement"),
        },
    }
}

#[tokio::test]
async fn random_updates_leave_a_tree_or_are_rejected() {
    let docward = Docward::before(&Mongod::shared().uri()).rules(&rules("")).environment("RUST_LOG", "error").start();
    let views = Views::of(Mongod::shared(), &docward).await;
    let seed = std::env::var("DOCWARD_TEST_SEED").map_or(1, |text| text.parse().unwrap());
    println!("DOCWARD_TEST_SEED={seed}");
    let mut dice = Dice(seed);
    let (mut wrong, mut done) = (Vec::new(), 0);
    for _ in 0..scaled(400) {
        match check(&views, &mut dice).await {
            Ok(carried_out) => done += u32::from(carried_out),
            Err(finding) => wrong.push(finding),
        }
    }
    assert!(wrong.is_empty(), "{} findings\n{}", wrong.len(), wrong.join("\n"));
    assert!(done > scaled(100), "only {done} updates were carried out");
}
