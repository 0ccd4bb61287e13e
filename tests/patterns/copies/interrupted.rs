//! Workers that cannot go on: the position in a change stream was lost, or the server rejects corrections.

use std::time::{Duration, Instant};

use bson::{Document, doc};
use mongodb::Database;

use super::WITHIN;
use super::arrays::{expect, rule};
use support::driver::code;
use support::mongod::Mongod;
use support::proxy::Docward;

const CHECKED: &str = "checked all copies";

fn person(id: i32, hobbies: &[i32], name: &str) -> Document {
    let reference = |id: &i32| doc! {"id": id, "n": name};
    doc! {"_id": id, "hobbies": hobbies.iter().map(reference).collect::<Vec<_>>()}
}

async fn store(database: &Database, hobbies: std::ops::Range<i32>, people: Vec<Document>) {
    let hobbies = hobbies.map(|id| doc! {"_id": id, "name": "old"});
    database.collection("hobbies").insert_many(hobbies).await.unwrap();
    database.collection("people").insert_many(people).await.unwrap();
}

/// Stops docward, and changes the position of a stream to one that the server rejects.
async fn lose_position(mongod: &Mongod, docward: &mut Docward, database: &Database, stream: usize) {
    let leases = mongod.client().await.database("docward").collection::<Document>("leases");
    let token = format!("tokens.{stream}._data");
    let ours = doc! {
        "_id": {"$regex": database.name()}, "repaired": true, "tokens.0._data": {"$exists": true},
        "tokens.1._data": {"$exists": true},
    };
    let deadline = Instant::now() + WITHIN;
    while leases.find_one(ours.clone()).await.unwrap().is_none() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(docward.terminate().success());
    let lease = leases.find_one(ours.clone()).await.unwrap().unwrap();
    let data = lease.get_document("tokens").unwrap().get_document(stream.to_string()).unwrap();
    let data = data.get_str("_data").unwrap();
    let lost = format!("{}{}", &data[..2], &data[18..]);
    leases.update_one(ours, doc! {"$set": {token: lost}}).await.unwrap();
}

#[tokio::test]
async fn deletes_are_followed_although_the_position_in_another_collection_was_lost() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    store(&direct, 1..4, vec![person(1, &[1, 2, 3], "old")]).await;
    let rules = rule(direct.name(), ", on_delete: unset");
    let mut docward = Docward::start(mongod, &rules);
    docward.wait_for_log(CHECKED);
    let hobbies = direct.collection::<Document>("hobbies");
    // The position in the copies is lost, and the one in the originals is not.
    lose_position(mongod, &mut docward, &direct, 1).await;
    hobbies.delete_one(doc! {"_id": 1}).await.unwrap();
    hobbies.update_one(doc! {"_id": 2}, doc! {"$set": {"name": "new"}}).await.unwrap();
    let mut docward = Docward::start(mongod, &rules);
    docward.wait_for_log("changes may have been missed");
    let element = |id: i32, name: &str| doc! {"id": id, "n": name};
    expect(&direct, "people", &[doc! {"_id": 1, "hobbies": [element(2, "new"), element(3, "old")]}]).await;

    // Without the position in the originals nothing shows that this one was deleted. Its reference stays and is counted.
    lose_position(mongod, &mut docward, &direct, 0).await;
    hobbies.delete_one(doc! {"_id": 2}).await.unwrap();
    hobbies.update_one(doc! {"_id": 3}, doc! {"$set": {"name": "new"}}).await.unwrap();
    let docward = Docward::start(mongod, &rules);
    docward.wait_for_log("without original 1");
    expect(&direct, "people", &[doc! {"_id": 1, "hobbies": [element(2, "new"), element(3, "new")]}]).await;
    hobbies.delete_one(doc! {"_id": 3}).await.unwrap();
    expect(&direct, "people", &[doc! {"_id": 1, "hobbies": [element(2, "new")]}]).await;
}

/// A key that the server would read as a condition, from before the rule and written by others.
#[tokio::test]
async fn a_key_that_no_original_can_have_does_not_stop_the_worker() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let keys = [doc! {"$gt": 0}, doc! {"$ref": "hobbies"}, doc! {"$id": 1, "$ref": "hobbies"}, doc! {"$a": 1}];
    let odd =
        |id: i32| doc! {"_id": id, "hobbies": keys.iter().map(|key| doc! {"id": key, "n": "old"}).collect::<Vec<_>>()};
    store(&direct, 1..2, vec![odd(1), person(2, &[1], "old")]).await;
    let docward = Docward::start(mongod, &rule(direct.name(), ", on_delete: unset"));
    docward.wait_for_log(CHECKED);
    let people = direct.collection::<Document>("people");
    people.insert_one(odd(3)).await.unwrap();
    let rename = doc! {"$set": {"name": "new"}};
    direct.collection::<Document>("hobbies").update_one(doc! {"_id": 1}, rename).await.unwrap();
    expect(&direct, "people", &[odd(1), person(2, &[1], "new"), odd(3)]).await;
    let through = docward.client().await.database(direct.name()).collection::<Document>("people");
    assert_eq!(code(&through.insert_one(odd(4)).await.unwrap_err()), 121);
    // A DBRef is a value.
    let reference = doc! {"$ref": "hobbies", "$id": 1};
    through.insert_one(doc! {"_id": 5, "hobbies": {"id": reference, "n": "old"}}).await.unwrap();
}

#[tokio::test]
async fn the_log_has_the_errors_of_rejected_corrections_and_stays_short() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let last = 200;
    store(&direct, 0..last + 1, (0..=last).map(|id| person(id, &[id], "old")).collect()).await;
    let validator = doc! {"hobbies.n": {"$ne": "forbidden"}};
    direct.run_command(doc! {"collMod": "people", "validator": validator}).await.unwrap();
    let docward = Docward::start(mongod, &rule(direct.name(), ""));
    docward.wait_for_log(CHECKED);
    let hobbies = direct.collection::<Document>("hobbies");
    let forbid = doc! {"$set": {"name": "forbidden"}};
    hobbies.update_many(doc! {"_id": {"$lt": last}}, forbid).await.unwrap();
    hobbies.update_one(doc! {"_id": last}, doc! {"$set": {"name": "new"}}).await.unwrap();
    let mut expected: Vec<Document> = (0..last).map(|id| person(id, &[id], "old")).collect();
    expected.push(person(last, &[last], "new"));
    expect(&direct, "people", &expected).await;
    let logged = docward.wait_for_log("the server rejected the correction of a copy in");
    for part in ["Document failed validation (code 121)", "failingDocumentId", "$ne", "suppressed="] {
        assert!(logged.contains(part), "{part}: {logged}");
    }
    let lines = docward.log().iter().filter(|line| line.contains("rejected the correction")).count();
    assert!(lines < 20, "{lines} lines");
}
