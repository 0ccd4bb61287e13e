//! The pattern `copies` in front of a real replica set: copies follow every rename, even if a docward dies, and stay
//! stale without the rule; `docward repair` finds and corrects stale copies. `arrays` tests references in arrays,
//! `on_delete` deleted originals, `interrupted` workers whose position was lost and corrections that the
//! server rejects.

mod arrays;
mod interrupted;
mod on_delete;
mod random;

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bson::{Document, doc};
use mongodb::Database;
use support::driver::{all, code, connect};
use support::mongod::{Kind, Mongod};
use support::process::{TIMEOUT, docward_executable};
use support::proxy::Docward;

const PEOPLE: i32 = 100;
const RENAMES: i32 = 500;
/// Time for a killed worker's lease to expire, its successor to start, and a machine under load.
const WITHIN: Duration = TIMEOUT;

fn rule(database: &str, mode: &str) -> String {
    format!(
        "version: 1
rules:
  - name: friend-names
    namespace: {database}.people
    mode: {mode}
    copies:
      - {{ into: {database}.people, key: best_friend.id, fields: {{ name: best_friend.name }} }}
      - {{ into: {database}.letters, key: from, fields: {{ name: from_name, city: from_city }} }}
"
    )
}

/// Each rule waits for changes on its own connection, and numbers are reserved by the same user.
#[tokio::test]
async fn many_rules_that_wait_for_changes_do_not_delay_reservations() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let name = direct.name();
    let mut rules = format!(
        "version: 1\nrules:\n  - {{name: numbers, namespace: {name}.orders, sequence: {{field: no, counter: orders}}}}\n"
    );
    for number in 0..40 {
        direct.collection(&format!("people{number}")).insert_one(doc! {"_id": 1, "name": "Ada"}).await.unwrap();
        rules += &format!(
            "  - {{name: copies-{number}, namespace: {name}.people{number}, copies: [{{into: {name}.letters{number}, \
             key: from, fields: {{name: from_name}}}}]}}\n"
        );
    }
    let docward = Docward::start(mongod, &rules);
    for number in 0..40 {
        docward.wait_for_log(&format!("copies-{number}"));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let through = docward.client().await.database(name);
    let began = Instant::now();
    for id in 0..20 {
        through.collection("orders").insert_one(doc! {"_id": id}).await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(5), "20 inserts took {:?}", began.elapsed());
}

/// The best friend of each person is the next one.
async fn populate(database: &Database) {
    let person = |id: i32| {
        let friend = (id + 1) % PEOPLE;
        doc! {"_id": id, "name": format!("name {id}"), "best_friend": {"id": friend, "name": format!("name {friend}")}}
    };
    database.collection("people").insert_many((0..PEOPLE).map(person)).await.unwrap();
    let letter = |id: i32| doc! {"_id": id, "from": i64::from(id), "from_name": format!("name {id}")};
    database.collection("letters").insert_many((0..PEOPLE).map(letter)).await.unwrap();
}

/// The `_id`s of documents whose copies differ from the original.
async fn stale(database: &Database) -> Vec<String> {
    let people = all(database, "people").await;
    let original = |id: i64| people.iter().find(|person| i64::from(person.get_i32("_id").unwrap()) == id).unwrap();
    let friends = people.iter().filter(|person| {
        let friend = person.get_document("best_friend").unwrap();
        friend.get("name") != original(i64::from(friend.get_i32("id").unwrap())).get("name")
    });
    let friends = friends.map(|person| format!("people {}", person.get_i32("_id").unwrap())).collect::<Vec<_>>();
    let letters = all(database, "letters").await;
    let letters = letters.iter().filter(|letter| {
        let from = original(letter.get_i64("from").unwrap());
        letter.get("from_name") != from.get("name") || letter.get("from_city") != from.get("city")
    });
    friends.into_iter().chain(letters.map(|letter| format!("letters {}", letter.get("_id").unwrap()))).collect()
}

/// The documents that are still stale after this time.
async fn stale_after(database: &Database, timeout: Duration) -> Vec<String> {
    let deadline = Instant::now() + timeout;
    loop {
        let stale = stale(database).await;
        if stale.is_empty() || Instant::now() > deadline {
            return stale;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The log line of the elected worker.
const WORKS: &str = "worker started: keeps the copies consistent";

fn works(docward: &Docward) -> bool {
    docward.log().iter().any(|line| line.contains(WORKS))
}

/// Renames all people repeatedly, every second time without docward, while letters with possibly stale names are
/// written; runs `halfway` in between.
async fn rename_all(through: [Database; 2], direct: &Database, renames: i32, halfway: impl FnOnce()) {
    let done = Arc::new(AtomicBool::new(false));
    let writers = through.clone().into_iter().enumerate().map(|(writer, through)| {
        let done = done.clone();
        tokio::spawn(async move {
            for number in 0.. {
                if done.load(Ordering::Relaxed) {
                    return number;
                }
                let from = (number * 7) % PEOPLE;
                let found = through.collection::<Document>("people").find_one(doc! {"_id": from}).await;
                // The docward of this client may have been killed.
                let Ok(Some(person)) = found else { return number };
                tokio::time::sleep(Duration::from_millis(5)).await;
                let mut letter = doc! {"_id": format!("{writer} {number}"), "from": i64::from(from)};
                letter.insert("from_name", person.get_str("name").unwrap());
                letter.insert("from_city", person.get_str("city").unwrap_or(""));
                let _ = through.collection("letters").insert_one(letter).await;
            }
            unreachable!()
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut halfway = Some(halfway);
    for number in 0..renames {
        let id = (number * 13) % PEOPLE;
        let rename = doc! {"$set": {"name": format!("renamed {number}"), "city": format!("city {number}")}};
        let database = if number % 2 == 0 { &through[1] } else { direct };
        let renamed = database.collection::<Document>("people").update_one(doc! {"_id": id}, rename).await.unwrap();
        assert_eq!(renamed.modified_count, 1);
        if number == renames / 2
            && let Some(halfway) = halfway.take()
        {
            halfway();
        }
    }
    done.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await.unwrap() > 10, "letters were written meanwhile");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn copies_follow_all_renames_after_a_worker_dies() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    populate(&direct).await;
    let rules = rule(direct.name(), "enforce");
    let mut worker = Docward::start(mongod, &rules);
    worker.wait_for_log("checked all copies");
    let standby = Docward::start(mongod, &rules);
    let through = async |docward: &Docward, options| connect(&docward.address(), options).await.database(direct.name());
    // Clients of the killed docward must not wait for it for long.
    let through = [through(&worker, "serverSelectionTimeoutMS=5000").await, through(&standby, "").await];
    assert!(works(&worker) && !works(&standby), "one is elected");

    rename_all(through, &direct, RENAMES, || worker.kill()).await;
    assert_eq!(stale_after(&direct, WITHIN).await, [""; 0]);
    // The other worker took over, and continued at the resume token.
    standby.wait_for_log(WORKS);
    assert!(!standby.log().iter().any(|line| line.contains("checked all copies")));
}

/// The `_id`s of letters from person 1 with a name other than this one.
async fn misnamed(letters: &Database, name: &str) -> u64 {
    let other = doc! {"from_name": {"$ne": name}};
    letters.collection::<Document>("letters").count_documents(other).await.unwrap()
}

#[tokio::test]
async fn a_worker_that_outlives_its_lease_writes_no_stale_copies() {
    let mongod = Mongod::shared();
    let client = mongod.client().await;
    let database = mongod.fresh_database();
    let (originals, letters) = (client.database(&database), client.database(&format!("{database}_mail")));
    let people = originals.collection::<Document>("people");
    let rename = async |name: &str| {
        let named = doc! {"$set": {"name": name}};
        people.update_one(doc! {"_id": 1}, named).upsert(true).await.unwrap();
    };
    let named = async |name: &str| {
        let deadline = Instant::now() + WITHIN;
        while misnamed(&letters, name).await > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(misnamed(&letters, name).await, 0, "letters that are not from {name}");
    };
    let many = (0..2000).map(|id| doc! {"_id": id, "from": 1, "from_name": "?"});
    letters.collection("letters").insert_many(many).await.unwrap();
    // In another database than the originals.
    let rules = format!(
        "version: 1
rules:
  - name: senders
    namespace: {database}.people
    copies: [{{ into: {database}_mail.letters, key: from, fields: {{ name: from_name }} }}]
"
    );
    let sleeper = Docward::start(mongod, &rules);
    rename("Ada").await;
    sleeper.wait_for_log("checked all copies");
    named("Ada").await;
    let standby = Docward::start(mongod, &rules);
    // The worker is stopped in the middle of its work.
    for name in ["Grace", "Edsger", "Barbara"] {
        rename(name).await;
    }
    sleeper.signal("STOP");
    named("Barbara").await;
    standby.wait_for_log(WORKS);
    for name in ["Alan", "Emmy"] {
        rename(name).await;
    }
    sleeper.signal("CONT");
    tokio::time::sleep(Duration::from_secs(2)).await;
    named("Emmy").await;
    let leases = client.database("docward").collection::<Document>("leases");
    let lease = leases.find_one(doc! {"_id": {"$regex": &database}}).await.unwrap().unwrap();
    assert_eq!(lease.get_i64("fence").unwrap(), 2, "the other worker must keep the lease");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_the_rule_copies_stay_stale() {
    let mongod = Mongod::shared();
    for (mode, renames) in [("disabled", RENAMES), ("shadow", PEOPLE)] {
        let direct = mongod.client().await.database(&mongod.fresh_database());
        populate(&direct).await;
        let docward = Docward::start(mongod, &rule(direct.name(), mode));
        let through = docward.client().await.database(direct.name());
        rename_all([through.clone(), through], &direct, renames, || ()).await;
        assert!(stale_after(&direct, Duration::from_secs(2)).await.len() > 100, "{mode}");
    }
}

fn repair(mongod: &Mongod, rules: &str, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, rules).unwrap();
    let mut command = Command::new(docward_executable());
    command.arg("repair").args(["--upstream", &mongod.uri()]).arg("--rules").arg(file).args(more);
    command.output().unwrap()
}

#[tokio::test]
async fn repair_finds_and_corrects_stale_copies() {
    let mongod = Mongod::shared();
    let database = mongod.client().await.database(&mongod.fresh_database());
    populate(&database).await;
    let people = database.collection::<Document>("people");
    let letters = database.collection::<Document>("letters");
    // The key of one letter is an array, which is not a reference.
    // Three people are friends of renamed people, three letters are from them, and one document has a copy but no
    // reference.
    for id in [3, 50, 77] {
        people.update_one(doc! {"_id": id}, doc! {"$set": {"name": format!("new {id}")}}).await.unwrap();
    }
    letters.update_one(doc! {"_id": 9}, doc! {"$set": {"from_city": "nowhere"}}).await.unwrap();
    let strange = [doc! {"_id": "orphan", "from": 4_000_i64, "from_name": "?"}, doc! {"_id": "list", "from": [1, 2]}];
    letters.insert_many(&strange).await.unwrap();
    let counted = "checked 201, stale 7, repaired";
    let run = |more: &[&str]| {
        let output = repair(mongod, &rule(database.name(), "shadow"), more);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };

    let before = all(&database, "letters").await;
    let (status, printed) = run(&["--rule", "friend-names", "--dry-run"]);
    assert_eq!(status, Some(0));
    assert!(printed.contains(&format!("{counted} 0, without original 1, unable to hold the copies 1")), "{printed}");
    assert_eq!(all(&database, "letters").await, before);

    let (status, printed) = run(&["--rule", "friend-names"]);
    assert_eq!(status, Some(0));
    assert!(printed.contains(&format!("{counted} 7")), "{printed}");
    for odd in strange {
        let stored = letters.find_one_and_delete(doc! {"_id": odd.get("_id").unwrap()}).await.unwrap();
        assert_eq!(stored, Some(odd), "must stay unchanged");
    }
    assert_eq!(stale(&database).await, [""; 0]);
    let (status, printed) = run(&["--rule", "friend-names"]);
    assert!(status == Some(0) && printed.contains("stale 0, repaired 0"), "{printed}");

    assert_eq!(run(&["--rule", "friends"]).0, Some(64));
    let validator = doc! {"collMod": "letters", "validator": {"from_name": {"$ne": "forbidden"}}};
    database.run_command(validator).await.unwrap();
    people.update_one(doc! {"_id": 5}, doc! {"$set": {"name": "forbidden"}}).await.unwrap();
    let (status, printed) = run(&["--rule", "friend-names"]);
    assert!(
        status == Some(1) && printed.contains("repaired 1") && printed.contains("rejected by the server 1"),
        "{printed}"
    );
}

#[tokio::test]
async fn references_are_written_with_their_copies() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    populate(&direct).await;
    let docward = Docward::start(mongod, &rule(direct.name(), "enforce"));
    docward.wait_for_log("checked all copies");
    let through = docward.client().await.database(direct.name());
    let people = through.collection::<Document>("people");
    let update = async |update: Document| people.update_one(doc! {"_id": 1}, update).await.map(|_| ());
    for alone in [doc! {"best_friend.id": 5}, doc! {"best_friend": {"id": 5}}, doc! {"best_friend.name": "x"}] {
        assert_eq!(code(&update(doc! {"$set": alone}).await.unwrap_err()), 121);
    }
    update(doc! {"$set": {"best_friend": {"id": 5, "name": "an old name"}}}).await.unwrap();
    update(doc! {"$unset": {"nothing": ""}}).await.unwrap();
    through.collection("letters").insert_one(doc! {"_id": 500, "from": 7_i64}).await.unwrap_err();
    // docward accepts and corrects a stale value, and removes a field that the original lacks.
    let stale_letter = doc! {"_id": 501, "from": 7_i64, "from_name": "old", "from_city": "old"};
    through.collection("letters").insert_one(stale_letter).await.unwrap();
    assert_eq!(stale_after(&direct, WITHIN).await, [""; 0]);
    let letter = direct.collection::<Document>("letters").find_one(doc! {"_id": 501}).await.unwrap();
    assert_eq!(letter, Some(doc! {"_id": 501, "from": 7_i64, "from_name": "name 7"}));
}

#[tokio::test]
async fn every_kind_of_change_is_followed() {
    let mongod = Mongod::shared();
    let database = mongod.client().await.database(&mongod.fresh_database());
    let name = database.name();
    let docward = Docward::start(
        mongod,
        &format!(
            "version: 1
rules:
  - name: cards
    namespace: {name}.people
    copies: [{{ into: {name}.cards, key: of, fields: {{ address: at, job.title: motto, tags: tags }} }}]
"
        ),
    );
    docward.wait_for_log("checked all copies");
    let people = database.collection::<Document>("people");
    let cards = database.collection::<Document>("cards");
    cards.insert_one(doc! {"_id": 1, "of": {"country": 1, "no": 2}}).await.unwrap();
    // A second reference in an array, and a scalar instead of a document, must not block the update.
    cards.insert_one(doc! {"_id": 2, "of": [{"country": 1, "no": 2}]}).await.unwrap();
    let expect = async |card: Document| {
        let mut expected = doc! {"_id": 1, "of": {"country": 1, "no": 2}};
        expected.extend(card);
        let mut stored = Document::new();
        let deadline = Instant::now() + WITHIN;
        while stored != expected && Instant::now() < deadline {
            stored = cards.find_one(doc! {"_id": 1}).await.unwrap().unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(stored, expected);
    };
    let id = doc! {"_id": {"country": 1, "no": 2}};
    let mut person = id.clone();
    person.extend(doc! {"address": {"city": "Turin", "$odd": 1}, "tags": ["a", "b", "c"]});
    people.insert_one(&person).await.unwrap();
    let odd = doc! {"city": "Turin", "$odd": 1};
    expect(doc! {"at": &odd, "tags": ["a", "b", "c"]}).await;
    let update = async |update: Document| people.update_one(id.clone(), update).await.unwrap();
    update(doc! {"$set": {"address.city": "Paris"}}).await;
    let paris = doc! {"city": "Paris", "$odd": 1};
    expect(doc! {"at": &paris, "tags": ["a", "b", "c"]}).await;
    update(doc! {"$set": {"job": {"title": "poet"}}}).await;
    expect(doc! {"at": &paris, "tags": ["a", "b", "c"], "motto": "poet"}).await;
    update(doc! {"$pop": {"tags": 1}}).await;
    expect(doc! {"at": &paris, "tags": ["a", "b"], "motto": "poet"}).await;
    people.update_one(id.clone(), vec![doc! {"$set": {"tags": ["a"]}}]).await.unwrap();
    expect(doc! {"at": &paris, "tags": ["a"], "motto": "poet"}).await;
    update(doc! {"$unset": {"job": ""}, "$set": {"age": 3}}).await;
    expect(doc! {"at": &paris, "tags": ["a"]}).await;
    people.replace_one(id.clone(), doc! {"address": 7}).await.unwrap();
    expect(doc! {"at": 7}).await;
    people.delete_one(id.clone()).await.unwrap();
    people.insert_one(doc! {"_id": 9, "address": 8}).await.unwrap();
    cards.update_one(doc! {"_id": 2}, doc! {"$set": {"of": 9_i64}}).await.unwrap();
    // The copy of the deleted original stays unchanged.
    expect(doc! {"at": 7}).await;
}

#[tokio::test]
async fn lost_history_and_dropped_collections_are_repaired() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    populate(&direct).await;
    let rules = rule(direct.name(), "enforce");
    let mut docward = Docward::start(mongod, &rules);
    docward.wait_for_log("checked all copies");
    direct.collection::<Document>("people").drop().await.unwrap();
    direct.collection::<Document>("letters").drop().await.unwrap();
    docward.wait_for_log("changes may have been missed");
    populate(&direct).await;
    direct.collection::<Document>("people").update_one(doc! {"_id": 2}, doc! {"$set": {"name": "new"}}).await.unwrap();
    assert_eq!(stale_after(&direct, WITHIN).await, [""; 0]);

    // A stopped worker releases its lease. Its successor finds an invalid token: one from before the oplog begins,
    // then one that no server made.
    let leases = mongod.client().await.database("docward").collection::<Document>("leases");
    let ours = doc! {
        "_id": {"$regex": direct.name()}, "repaired": true, "tokens.0._data": {"$exists": true}, "tokens.1": {"$exists": true},
    };
    for at in ["0000000100000001", ""] {
        // The worker has stored its position.
        let deadline = Instant::now() + WITHIN;
        while leases.find_one(ours.clone()).await.unwrap().is_none() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(docward.terminate().success());
        let lease = leases.find_one(ours.clone()).await.unwrap().unwrap();
        let token = lease.get_document("tokens").unwrap().get_document("0").unwrap().get_str("_data").unwrap();
        let token = format!("{}{at}{}", &token[..2], &token[18..]);
        leases.update_one(ours.clone(), doc! {"$set": {"tokens.0._data": token}}).await.unwrap();
        let rename = doc! {"$set": {"name": format!("renamed {at}")}};
        direct.collection::<Document>("people").update_one(doc! {"_id": 2}, rename).await.unwrap();
        docward = Docward::start(mongod, &rules);
        docward.wait_for_log("changes may have been missed");
        assert_eq!(stale_after(&direct, WITHIN).await, [""; 0]);
    }
}

#[tokio::test]
async fn a_standalone_is_a_clear_error() {
    let mongod = Mongod::start(Kind::Standalone);
    let docward = Docward::start(&mongod, &rule("d", "enforce"));
    docward.wait_for_log("and the upstream is a standalone server");
}
