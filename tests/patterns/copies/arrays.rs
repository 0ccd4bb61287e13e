//! References in arrays: `hobbies: [{id: 100, n: "Computers"}]`. docward updates them element by element, also beside
//! documents with a single reference, and for every numeric type of a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bson::{Bson, Decimal128, Document, doc};
use mongodb::Database;

use super::{WITHIN, repair};
use support::driver::{all, code};
use support::mongod::Mongod;
use support::proxy::Docward;

const CHECKED: &str = "checked all copies";

pub(crate) fn rule(database: &str, more: &str) -> String {
    format!(
        "version: 1
rules:
  - name: hobby-names
    namespace: {database}.hobbies
    copies: [{{ into: {database}.people, key: hobbies.id, fields: {{ name: hobbies.n }}{more} }}]
"
    )
}

/// Waits until a collection holds these documents.
pub(crate) async fn expect(database: &Database, collection: &str, expected: &[Document]) {
    let deadline = Instant::now() + WITHIN;
    loop {
        let stored = all(database, collection).await;
        if stored == expected || Instant::now() > deadline {
            assert_eq!(stored, expected);
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

/// People with the hobbies 100 and 200 under these names, in every form.
fn people(computers: &str, chess: &str) -> Vec<Document> {
    vec![
        doc! {"_id": 1, "hobbies": [{"id": 100, "n": computers}, {"id": 200, "n": chess, "since": 1990}]},
        doc! {"_id": 2, "hobbies": {"id": 100, "n": computers}},
        doc! {"_id": 3, "hobbies": [{"id": 100_i64, "n": computers}, {"id": 100.0, "n": computers, "again": true}]},
        doc! {"_id": 4, "hobbies": [{"id": decimal("100"), "n": computers}, {"id": decimal("1.00E+2"), "n": computers}]},
        doc! {"_id": 5, "hobbies": {"id": decimal("100.0"), "n": computers}},
        doc! {"_id": 6, "hobbies": [5, Bson::Null, {"n": "?"}, {"id": Bson::Null, "n": "?"}, {"id": 100, "n": computers}]},
        // Documents without references, which must not prevent updates of others.
        doc! {"_id": 7, "hobbies": []},
        doc! {"_id": 8, "hobbies": 100},
        doc! {"_id": 9, "hobbies": [[{"id": 100, "n": "?"}], {"id": [100], "n": "?"}, {"id": 100, "n": computers}]},
        doc! {"_id": 10, "hobbies": {"id": [100, 200], "n": "?"}},
    ]
}

async fn store_hobbies(database: &Database) {
    let hobbies = [doc! {"_id": 100, "name": "Computers"}, doc! {"_id": 200, "name": "Chess"}];
    database.collection("hobbies").insert_many(hobbies).await.unwrap();
}

async fn rename(database: &Database, id: impl Into<Bson>, name: &str) {
    let renamed = database
        .collection::<Document>("hobbies")
        .update_one(doc! {"_id": id.into()}, doc! {"$set": {"name": name}})
        .await
        .unwrap();
    assert_eq!(renamed.modified_count, 1);
}

#[tokio::test]
async fn only_elements_that_refer_to_the_changed_original_are_updated() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    store_hobbies(&direct).await;
    direct.collection("people").insert_many(people("Computers", "Chess")).await.unwrap();
    let docward = Docward::start(mongod, &rule(direct.name(), ""));
    docward.wait_for_log(CHECKED);
    rename(&direct, 100, "Machines").await;
    expect(&direct, "people", &people("Machines", "Chess")).await;
    rename(&docward.client().await.database(direct.name()), 200, "Go").await;
    expect(&direct, "people", &people("Machines", "Go")).await;
    // Fields that the original no longer has are removed from the elements.
    direct
        .collection::<Document>("hobbies")
        .update_one(doc! {"_id": 200}, doc! {"$unset": {"name": ""}})
        .await
        .unwrap();
    let mut expected = people("Machines", "");
    expected[0] = doc! {"_id": 1, "hobbies": [{"id": 100, "n": "Machines"}, {"id": 200, "since": 1990}]};
    expect(&direct, "people", &expected).await;
}

#[tokio::test]
async fn elements_are_written_with_their_copies() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    store_hobbies(&direct).await;
    let docward = Docward::start(mongod, &rule(direct.name(), ""));
    docward.wait_for_log(CHECKED);
    let people = docward.client().await.database(direct.name()).collection::<Document>("people");
    let computers = || doc! {"id": 100, "n": "Computers"};
    people.insert_one(doc! {"_id": 1, "hobbies": [computers()]}).await.unwrap();
    let update = async |update: Document| people.update_one(doc! {"_id": 1}, update).await.map(|_| ());
    for alone in [
        doc! {"$push": {"hobbies": {"id": 200}}},
        doc! {"$addToSet": {"hobbies": {"$each": [computers(), {"id": 200}]}}},
        doc! {"$set": {"hobbies.0.id": 200}},
        doc! {"$set": {"hobbies.0.n": "Chess"}},
        doc! {"$set": {"hobbies": [{"id": 200}]}},
    ] {
        assert_eq!(code(&update(alone).await.unwrap_err()), 121);
    }
    assert_eq!(code(&people.replace_one(doc! {"_id": 1}, doc! {"hobbies": [{"id": 1}]}).await.unwrap_err()), 121);
    assert_eq!(all(&direct, "people").await, [doc! {"_id": 1, "hobbies": [computers()]}]);

    // A stale name is accepted and corrected: pushed, set by position, by a filtered position, or in a whole array.
    update(doc! {"$push": {"hobbies": {"id": 200, "n": "old"}}}).await.unwrap();
    let chess = doc! {"id": 200, "n": "Chess"};
    expect(&direct, "people", &[doc! {"_id": 1, "hobbies": [computers(), &chess]}]).await;
    update(doc! {"$set": {"hobbies.0.id": 200, "hobbies.0.n": "old"}}).await.unwrap();
    expect(&direct, "people", &[doc! {"_id": 1, "hobbies": [&chess, &chess]}]).await;
    let second = doc! {"$set": {"hobbies.$[h].id": 100, "hobbies.$[h].n": "old"}};
    people.update_one(doc! {"_id": 1}, second).array_filters([doc! {"h.id": 200}]).await.unwrap();
    expect(&direct, "people", &[doc! {"_id": 1, "hobbies": [computers(), computers()]}]).await;
    update(doc! {"$set": {"hobbies": {"id": 200, "n": "old"}}}).await.unwrap();
    expect(&direct, "people", &[doc! {"_id": 1, "hobbies": &chess}]).await;
    // An application may still correct the copies itself.
    update(doc! {"$set": {"hobbies": [computers(), &chess]}}).await.unwrap();
    let own = doc! {"$set": {"hobbies.$.n": "Computers"}};
    people.update_many(doc! {"hobbies.id": 100}, own).await.unwrap();
    update(doc! {"$pull": {"hobbies": {"id": 100}}}).await.unwrap();
    expect(&direct, "people", &[doc! {"_id": 1, "hobbies": [&chess]}]).await;
}

/// The reference 1 inside `fields`, in an array at the field with this number. The array has another, long element: the
/// change event of an element in a short array has the whole array.
fn nested(fields: &[&str], array: usize, name: &str) -> Bson {
    let Some((field, rest)) = fields.split_first() else { return doc! {"id": 1, "n": name}.into() };
    let inner = nested(rest, array.wrapping_sub(1), name);
    let inner = if array == 0 { vec![inner, doc! {"text": "x".repeat(500)}.into()].into() } else { inner };
    doc! {*field: inner}.into()
}

/// Every write of a stale copy is followed, by whatever path it changes the array or what is in it.
#[tokio::test]
async fn changes_are_followed_wherever_the_array_is() {
    const FIELDS: [&str; 3] = ["x", "y", "z"];
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let name = direct.name();
    let rules = format!(
        "version: 1
rules:
  - {{ name: deep, namespace: {name}.originals, copies: [{{ into: {name}.copies, key: x.y.z.id, fields: {{ name: x.y.z.n }} }}] }}
"
    );
    let document = |id: &str, array: usize| {
        let mut document = doc! {"_id": id};
        document.extend(nested(&FIELDS, array, "new").as_document().unwrap().clone());
        document
    };
    // Each document with the update that makes it stale, and its array filters.
    let (mut stored, mut expected, mut updates) = (Vec::new(), Vec::new(), Vec::new());
    for array in 0..FIELDS.len() {
        let inside: String = FIELDS[array + 1..].iter().map(|field| format!(".{field}")).collect();
        for (depth, element) in (array + 1..=FIELDS.len()).flat_map(|depth| ["0", "$[e]", "$"].map(|one| (depth, one)))
        {
            let parts = FIELDS.iter().take(depth).enumerate();
            let parts =
                parts.map(|(at, field)| if at == array { format!("{field}.{element}") } else { (*field).to_owned() });
            let path = parts.collect::<Vec<_>>().join(".");
            let id = format!("{array}-{depth}-{element}");
            stored.push(document(&id, array));
            expected.push(document(&id, array));
            let filters = if element == "$[e]" { vec![doc! {format!("e{inside}.id"): 1}] } else { Vec::new() };
            let filter = if element == "$" {
                doc! {"_id": id, "x.y.z.id": 1}
            } else {
                doc! {"_id": id}
            };
            updates.push((filter, doc! {"$set": {path: nested(&FIELDS[depth..], usize::MAX, "old")}}, filters));
        }
        let id = format!("{array}-push");
        stored.push(document(&id, array));
        let mut after = document(&id, array);
        let around =
            FIELDS[..array].iter().fold(&mut after, |document, field| document.get_document_mut(field).unwrap());
        let element = |name| nested(&FIELDS[array + 1..], usize::MAX, name);
        around.get_array_mut(FIELDS[array]).unwrap().push(element("new"));
        expected.push(after);
        updates.push((doc! {"_id": id}, doc! {"$push": {FIELDS[..=array].join("."): element("old")}}, Vec::new()));
    }
    direct.collection("originals").insert_one(doc! {"_id": 1, "name": "new"}).await.unwrap();
    direct.collection("copies").insert_many(stored).await.unwrap();
    let docward = Docward::start(mongod, &rules);
    docward.wait_for_log(CHECKED);
    let copies = docward.client().await.database(name).collection::<Document>("copies");
    for (filter, update, filters) in updates {
        let updated = copies.update_one(filter, update.clone()).array_filters(filters).await.unwrap();
        assert_eq!(updated.modified_count, 1, "{update}");
    }
    expected.sort_by_key(|document| document.get_str("_id").unwrap().to_owned());
    expect(&direct, "copies", &expected).await;
}

#[tokio::test]
async fn the_reference_may_be_in_a_document_inside_the_element() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let name = direct.name();
    let rules = format!(
        "version: 1
rules:
  - name: product-names
    namespace: {name}.products
    copies: [{{ into: {name}.orders, key: items.product.id, fields: {{ name: items.product.name, tag.de: items.product.label.de }} }}]
"
    );
    let orders = |name: &str, label: Bson| {
        let product = doc! {"id": 1, "name": name, "label": label};
        vec![
            // The label cannot be written there, and an array of arrays holds no references.
            doc! {"_id": 1, "items": [{"product": {"id": 1, "name": "?", "label": 5}}]},
            doc! {"_id": 2, "items": [{"product": [{"id": 1, "name": "?"}]}]},
            doc! {"_id": 3, "items": [{"product": &product, "n": 2}, {"product": 7}, {"product": {"id": 2}}]},
            doc! {"_id": 4, "items": {"product": [&product, {"id": 2}]}},
            doc! {"_id": 5, "items": {"product": &product}},
        ]
    };
    direct.collection("orders").insert_many(orders("Tea", doc! {"de": "Tee"}.into())).await.unwrap();
    direct.collection("products").insert_one(doc! {"_id": 1, "name": "Tea", "tag": {"de": "Tee"}}).await.unwrap();
    let docward = Docward::start(mongod, &rules);
    docward.wait_for_log(CHECKED);
    let change = doc! {"$set": {"name": "Green tea", "tag.de": "Grüntee"}};
    direct.collection::<Document>("products").update_one(doc! {"_id": 1}, change).await.unwrap();
    expect(&direct, "orders", &orders("Green tea", doc! {"de": "Grüntee"}.into())).await;
}

#[tokio::test]
async fn repair_finds_and_corrects_stale_elements() {
    let mongod = Mongod::shared();
    let database = mongod.client().await.database(&mongod.fresh_database());
    store_hobbies(&database).await;
    let mut stale = people("old", "Chess");
    stale.push(doc! {"_id": 11, "hobbies": [{"id": 300, "n": "never there"}, {"id": 200, "n": "Chess"}]});
    database.collection::<Document>("people").insert_many(&stale).await.unwrap();
    let run = |more: &[&str]| {
        let output = repair(mongod, &rule(database.name(), ""), more);
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    // A document that refers to one original twice counts once; 9 and 10 also have other elements.
    let printed = run(&["--rule", "hobby-names", "--dry-run"]);
    let counted = "checked 10, stale 7, repaired 0, without original 1, unable to hold the copies 2";
    assert!(printed.contains(counted), "{printed}");
    let listed = printed.lines().filter(|line| line.starts_with(&format!("{}.people: stale in _id ", database.name())));
    assert!(listed.clone().count() > 0 && listed.clone().all(|line| !line.ends_with(" 11")), "{printed}");
    assert_eq!(all(&database, "people").await, stale);
    let printed = run(&["--rule", "hobby-names"]);
    assert!(printed.contains("stale 7, repaired 7, without original 1"), "{printed}");
    let mut corrected = people("Computers", "Chess");
    corrected.push(stale.pop().unwrap());
    assert_eq!(all(&database, "people").await, corrected);
    let printed = run(&["--rule", "hobby-names"]);
    assert!(printed.contains("stale 0, repaired 0, without original 1"), "{printed}");
}

/// Equal numbers are the same key everywhere, including the `_id`s of originals.
#[tokio::test]
async fn equal_numbers_of_different_types_are_one_key() {
    let mongod = Mongod::shared();
    let database = mongod.client().await.database(&mongod.fresh_database());
    let ids: [(Bson, [Bson; 4]); 4] = [
        (1.into(), [1.into(), 1_i64.into(), 1.0.into(), decimal("1.0")]),
        (decimal("2.5"), [2.5.into(), decimal("2.5"), decimal("2.50"), decimal("25E-1")]),
        (f64::INFINITY.into(), [f64::INFINITY.into(), decimal("Infinity"), decimal("Inf"), decimal("+Infinity")]),
        (
            doc! {"a": 1, "b": 2.0}.into(),
            [
                doc! {"a": 1.0, "b": 2}.into(),
                doc! {"a": 1_i64, "b": decimal("2")}.into(),
                doc! {"a": decimal("1E0"), "b": 2}.into(),
                doc! {"a": 1, "b": 2_i64}.into(),
            ],
        ),
    ];
    let people = |name: &str| -> Vec<Document> {
        let keys = ids.iter().flat_map(|(_, keys)| keys);
        let person = |(at, key): (usize, &Bson)| match at % 2 {
            0 => doc! {"_id": at as i32, "hobbies": [{"id": key, "n": name}, {"id": key, "n": name}]},
            _ => doc! {"_id": at as i32, "hobbies": {"id": key, "n": name}},
        };
        keys.enumerate().map(person).collect()
    };
    let hobbies = ids.iter().map(|(id, _)| doc! {"_id": id, "name": "new"});
    database.collection("hobbies").insert_many(hobbies).await.unwrap();
    // A double that does not exactly equal a decimal or a long is another key.
    let others = [(decimal("0.1"), Bson::from(0.1)), (i64::MAX.into(), (i64::MAX as f64).into())];
    for (at, (id, key)) in others.iter().enumerate() {
        database.collection("hobbies").insert_one(doc! {"_id": id, "name": "another"}).await.unwrap();
        let person = doc! {"_id": 100 + at as i32, "hobbies": [{"id": key, "n": "without original"}]};
        database.collection("people").insert_one(person).await.unwrap();
    }
    database.collection("people").insert_many(people("old")).await.unwrap();
    let rules = rule(database.name(), "");
    let output = repair(mongod, &rules, &["--rule", "hobby-names"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("checked 18, stale 16, repaired 16, without original 2"), "{printed}");
    let without_original = all(&database, "people").await.split_off(16);
    let people = |name: &str| [people(name), without_original.clone()].concat();
    assert_eq!(all(&database, "people").await, people("new"));

    let docward = Docward::start(mongod, &rules);
    docward.wait_for_log(CHECKED);
    // Every write of a copy looks up the key with the type that the write has.
    let stale = people("old");
    for person in &stale {
        let stored = database.collection::<Document>("people");
        stored.replace_one(doc! {"_id": person.get("_id").unwrap()}, person).await.unwrap();
    }
    expect(&database, "people", &people("new")).await;
    for (id, _) in &others {
        rename(&database, id.clone(), "not theirs").await;
    }
    for (id, _) in &ids {
        rename(&database, id.clone(), "newest").await;
    }
    expect(&database, "people", &people("newest")).await;
}

/// Hobbies are renamed while people add and remove them, sometimes with stale names.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn elements_follow_while_their_documents_change() {
    const HOBBIES: i32 = 10;
    const PEOPLE: i32 = 20;
    const RENAMES: i32 = 400;
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let hobbies = (0..HOBBIES).map(|id| doc! {"_id": id, "name": format!("name {id}")});
    direct.collection("hobbies").insert_many(hobbies).await.unwrap();
    direct.collection("people").insert_many((0..PEOPLE).map(|id| doc! {"_id": id, "hobbies": []})).await.unwrap();
    let rules = rule(direct.name(), "");
    let docwards = [Docward::start(mongod, &rules), Docward::start(mongod, &rules)];
    let through = |at: usize| {
        let (docward, name) = (&docwards[at], direct.name().to_owned());
        async move { docward.client().await.database(&name) }
    };
    let done = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..4_i32 {
        let (database, done) = (through(writer as usize % 2).await, done.clone());
        writers.push(tokio::spawn(async move {
            let people = database.collection::<Document>("people");
            let mut number = writer;
            while !done.load(Ordering::Relaxed) {
                number += 7;
                let hobbies = database.collection::<Document>("hobbies");
                let hobby = hobbies.find_one(doc! {"_id": number % HOBBIES}).await.unwrap().unwrap();
                let element = || doc! {"id": i64::from(number % HOBBIES), "n": hobby.get("name").unwrap()};
                tokio::time::sleep(Duration::from_millis(3)).await;
                let person = doc! {"_id": number % PEOPLE};
                let update = match number % 5 {
                    0 | 1 => doc! {"$push": {"hobbies": {"$each": [element()], "$slice": -5}}},
                    2 => doc! {"$pull": {"hobbies": {"id": number % HOBBIES}}},
                    3 => doc! {"$set": {"hobbies.0": element()}},
                    _ => doc! {"$set": {"hobbies": [element(), element()]}},
                };
                people.update_one(person, update).await.unwrap();
            }
            number
        }));
    }
    let renaming = through(1).await;
    for number in 0..RENAMES {
        let database = if number % 2 == 0 { &renaming } else { &direct };
        rename(database, (number * 3) % HOBBIES, &format!("renamed {number}")).await;
    }
    done.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await.unwrap() > 100);
    }
    let names = all(&direct, "hobbies").await;
    let deadline = Instant::now() + WITHIN;
    let stale = loop {
        let people = all(&direct, "people").await;
        let elements = people.iter().flat_map(|person| person.get_array("hobbies").unwrap().clone());
        let elements: Vec<Document> = elements.map(|element| element.as_document().unwrap().clone()).collect();
        assert!(elements.len() > 10);
        let name = |id: i64| names.iter().find(|hobby| hobby.get_i32("_id").map(i64::from).ok() == Some(id)).unwrap();
        let stale = |element: &Document| {
            let id = element.get_i64("id").unwrap();
            element.get("n") != name(id).get("name")
        };
        let stale = elements.into_iter().filter(stale).count();
        if stale == 0 || Instant::now() > deadline {
            break stale;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(stale, 0);
    let output = repair(mongod, &rules, &["--rule", "hobby-names", "--dry-run"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("stale 0,"), "{printed}");
}
