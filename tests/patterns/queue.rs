//! The pattern `queue` on a real mongod: which claims take a job, and which later statements match one.
//! `tests/python/test_queue.py` has workers that are stopped past their lease.

use bson::{Bson, DateTime, Decimal128, Document, doc};
use mongodb::Collection;
use support::driver::{Views, code, message};
use support::mongod::Mongod;
use support::proxy::Docward;

const RULES: &str = r#"
version: 1
rules:
  - { name: jobs, namespace: "*.jobs", queue: { lease: 5m, max_attempts: 3 } }
  - { name: bounded, namespace: "*.bounded", queue: { lease: 5m } }
  - { name: range, namespace: "*.bounded", bounds: { field: budget, min: 0 } }
  - { name: saved, namespace: "*.saved", queue: { lease: 5m } }
  - { name: merged, namespace: "*.saved", replacement: { policy: merge } }
"#;

const HOUR: i64 = 3_600_000;

struct Setting {
    _docward: Docward,
    views: Views,
    jobs: Collection<Document>,
}

impl Setting {
    async fn new() -> Self {
        let docward = Docward::before(&Mongod::shared().uri()).rules(RULES).environment("RUST_LOG", "warn").start();
        let views = Views::of(Mongod::shared(), &docward).await;
        let jobs = views.collection("jobs");
        Self { _docward: docward, views, jobs }
    }

    /// Stores one job with `_id` 1, without docward.
    async fn job(&self, fields: Document) {
        let mut job = doc! { "_id": 1 };
        job.extend(fields);
        let direct = self.views.direct.collection::<Document>("jobs");
        direct.delete_many(doc! {}).await.unwrap();
        direct.insert_one(job).await.unwrap();
    }

    async fn stored(&self) -> Document {
        self.views.stored("jobs").await.swap_remove(0)
    }

    /// The number of jobs that a statement matched.
    async fn matched(&self, filter: Document, update: Document) -> u64 {
        self.jobs.update_one(filter, update).await.unwrap().matched_count
    }

    async fn rejected(&self, filter: Document, update: Document) -> String {
        let error = self.jobs.update_one(filter, update).await.unwrap_err();
        assert_eq!(code(&error), 121, "{error}");
        message(&error)
    }
}

fn now() -> i64 {
    DateTime::now().timestamp_millis()
}

#[tokio::test]
async fn a_job_is_claimed_once_for_every_kind_of_lock_value() {
    let setting = Setting::new().await;
    let id = || doc! { "_id": 1 };
    for lock in
        [Bson::from(true), 1.into(), 1.5.into(), "w1".into(), doc! { "by": "w1" }.into(), DateTime::now().into()]
    {
        for free in
            [Bson::from(false), Bson::Null, 0.into(), (-0.0).into(), "0E-8".parse::<Decimal128>().unwrap().into()]
        {
            setting.job(doc! { "locked": free, "try": 0 }).await;
            let claim = doc! { "$set": { "locked": lock.clone() } };
            assert_eq!(setting.matched(id(), claim.clone()).await, 1, "{lock}");
            assert_eq!(setting.matched(id(), claim).await, 0, "{lock} was claimed twice");
            let job = setting.stored().await;
            assert_eq!((job.get("locked"), job.get("try")), (Some(&lock), Some(&1.into())), "{job}");
            assert!(now() - job.get_datetime("tlocked").unwrap().timestamp_millis() < HOUR, "{job}");
        }
    }
    setting.job(doc! {}).await;
    setting.rejected(id(), doc! { "$set": { "locked": [false] } }).await;
    assert_eq!(setting.matched(id(), doc! { "$currentDate": { "locked": true } }).await, 1);
    assert_eq!(setting.matched(id(), doc! { "$currentDate": { "locked": true } }).await, 0);
}

#[tokio::test]
async fn a_lease_expires_for_every_type_of_its_time() {
    let setting = Setting::new().await;
    let claim = || doc! { "$set": { "locked": true } };
    for (age, matched) in [(HOUR, 1), (60_000, 0), (-HOUR, 0)] {
        let at = now() - age;
        let decimal: Decimal128 = at.to_string().parse().unwrap();
        for since in [Bson::from(DateTime::from_millis(at)), at.into(), (at as f64).into(), decimal.into()] {
            setting.job(doc! { "locked": true, "tlocked": since.clone(), "try": 1 }).await;
            for filter in [
                doc! { "_id": 1, "locked": false },
                doc! { "_id": 1, "locked": { "$ne": true } },
                doc! { "$and": [{ "_id": 1 }, { "locked": { "$in": [false, Bson::Null] } }] },
                doc! { "_id": 1, "$or": [{ "locked": false }, { "tlocked": { "$lt": DateTime::now() } }, { "tlocked": { "$lt": now() } }] },
            ] {
                setting.job(doc! { "locked": true, "tlocked": since.clone(), "try": 1 }).await;
                // A time in the future does not count as expired in the client's own filter either.
                assert_eq!(setting.matched(filter.clone(), claim()).await, matched, "{since} {filter}");
            }
        }
    }
    for (age, matched) in [(HOUR, 1), (60_000, 0), (-HOUR, 0)] {
        let at = now() - age;
        let timestamp = Bson::Timestamp(bson::Timestamp { time: (at / 1000) as u32, increment: 1 });
        let text = DateTime::from_millis(at).try_to_rfc3339_string().unwrap();
        for since in [timestamp, text.into()] {
            setting.job(doc! { "locked": true, "tlocked": since.clone(), "try": 1 }).await;
            assert_eq!(setting.matched(doc! { "_id": 1 }, claim()).await, matched, "{since}");
        }
    }
    // A lock without a time has expired, also with a value that is none: otherwise no worker could claim the job.
    for since in [Bson::Null, "soon".into(), f64::NAN.into(), doc! {}.into()] {
        setting.job(doc! { "locked": true, "tlocked": since.clone(), "try": 1 }).await;
        assert_eq!(setting.matched(doc! { "_id": 1 }, claim()).await, 1, "{since}");
    }
    setting.job(doc! { "locked": true }).await;
    assert_eq!(setting.matched(doc! { "_id": 1 }, claim()).await, 1);
}

#[tokio::test]
async fn a_claim_has_the_time_of_the_server_in_the_clients_form() {
    let setting = Setting::new().await;
    let ahead = now() + 100 * HOUR;
    let near = |since: i64| (now() - since).abs() < HOUR;
    let claim = |since: Bson| doc! { "$set": { "locked": true, "tlocked": since } };
    for since in [Bson::from(DateTime::from_millis(ahead)), Bson::Null] {
        setting.job(doc! {}).await;
        assert_eq!(setting.matched(doc! { "_id": 1 }, claim(since)).await, 1);
        assert!(near(setting.stored().await.get_datetime("tlocked").unwrap().timestamp_millis()));
    }
    setting.job(doc! {}).await;
    setting.matched(doc! { "_id": 1 }, claim(ahead.into())).await;
    assert!(near(setting.stored().await.get_i64("tlocked").unwrap()));
    setting.job(doc! {}).await;
    setting.matched(doc! { "_id": 1 }, claim((ahead as f64).into())).await;
    assert!(near(setting.stored().await.get_f64("tlocked").unwrap() as i64));
    for odd in [Bson::from("now"), 1_700_000_000.into(), 5.into()] {
        setting.rejected(doc! { "_id": 1 }, claim(odd)).await;
    }
}

#[tokio::test]
async fn jobs_from_before_the_rule_are_claimed_as_often_as_allowed() {
    let setting = Setting::new().await;
    for before in [doc! {}, doc! { "locked": false }, doc! { "tlocked": 5 }] {
        setting.job(before.clone()).await;
        for attempt in 1..=3 {
            assert_eq!(setting.matched(doc! { "_id": 1 }, doc! { "$set": { "locked": true } }).await, 1, "{before}");
            let done = doc! { "$set": { "locked": false } };
            assert_eq!(setting.matched(doc! { "_id": 1, "try": attempt }, done).await, 1, "{before}");
        }
        assert_eq!(setting.matched(doc! { "_id": 1 }, doc! { "$set": { "locked": true } }).await, 0, "{before}");
    }
}

#[tokio::test]
async fn two_workers_do_not_claim_one_job_by_replacements() {
    let setting = Setting::new().await;
    let free = || doc! { "kind": "mail", "locked": false, "tlocked": DateTime::MIN, "try": 0 };
    let replace = async |token: i32, locked: Bson, attempt: Bson| {
        let job = doc! { "kind": "mail", "locked": locked, "tlocked": DateTime::now(), "try": attempt };
        setting.jobs.replace_one(doc! { "_id": 1, "try": token }, job).await
    };
    // Without an attempts counter two workers cannot be distinguished.
    setting.job(free()).await;
    for _ in 0..2 {
        let error = replace(0, true.into(), 0.into()).await.unwrap_err();
        assert_eq!(code(&error), 121);
        assert!(message(&error).contains("without incrementing 'try'"), "{error}");
    }
    assert_eq!(setting.stored().await.get("locked"), Some(&false.into()));
    // With a counter, one worker wins.
    assert_eq!(replace(0, true.into(), 1.into()).await.unwrap().matched_count, 1);
    assert_eq!(replace(0, true.into(), 1.into()).await.unwrap().matched_count, 0);
    // The worker with the job saves it any number of times, with any type of the number.
    for attempt in [Bson::from(1), 1i64.into(), 1.0.into(), "1.0".parse::<Decimal128>().unwrap().into()] {
        assert_eq!(replace(1, true.into(), attempt).await.unwrap().matched_count, 1);
    }
    // No other worker takes it over meanwhile, even with the right number.
    assert_eq!(replace(1, true.into(), 2.into()).await.unwrap().matched_count, 0);
    assert_eq!(replace(1, false.into(), 1.into()).await.unwrap().matched_count, 1);
    assert_eq!(setting.stored().await.get("locked"), Some(&false.into()));
}

#[tokio::test]
async fn a_first_save_by_upsert_inserts_a_job_and_replaces_none() {
    let setting = Setting::new().await;
    let save = async || setting.jobs.replace_one(doc! { "_id": 1 }, doc! { "kind": "mail" }).upsert(true).await;
    let enqueue = async || {
        let new = doc! { "$setOnInsert": { "kind": "mail" } };
        setting.jobs.update_one(doc! { "_id": 2 }, new).upsert(true).await
    };
    assert!(save().await.unwrap().upserted_id.is_some());
    assert!(enqueue().await.unwrap().upserted_id.is_some());
    let stored = setting.views.stored("jobs").await;
    for job in &stored {
        assert_eq!((job.get("locked"), job.get("try")), (Some(&false.into()), Some(&0.into())), "{job}");
        assert!(job.get_datetime("tlocked").is_ok(), "{job}");
    }
    assert_eq!(code(&save().await.unwrap_err()), 121);
    assert_eq!(enqueue().await.unwrap().matched_count, 1);
    assert_eq!(setting.views.stored("jobs").await, stored);
}

#[tokio::test]
async fn statements_match_the_jobs_of_one_worker() {
    let setting = Setting::new().await;
    let held = |id: i32| doc! { "_id": id, "locked": true, "tlocked": DateTime::now(), "try": 1 };
    setting.views.store("jobs", (1..4).map(held)).await;
    let before = setting.views.stored("jobs").await;
    let set = doc! { "$set": { "done": true } };
    assert_eq!(code(&setting.jobs.update_many(doc! { "try": 1 }, set.clone()).await.unwrap_err()), 121);
    assert_eq!(code(&setting.jobs.delete_many(doc! { "try": 1 }).await.unwrap_err()), 121);
    assert_eq!(
        setting
            .jobs
            .update_one(doc! { "_id": 1 }, doc! { "$setOnInsert": { "locked": 1 } })
            .await
            .unwrap()
            .matched_count,
        1
    );
    assert_eq!(setting.views.stored("jobs").await, before);
    assert_eq!(setting.jobs.update_many(doc! { "_id": 1, "try": 1 }, set.clone()).await.unwrap().matched_count, 1);
    let tokens = [
        Bson::from(1.0),
        "1.00".parse::<Decimal128>().unwrap().into(),
        doc! { "$in": [1] }.into(),
        doc! { "$eq": 1i64 }.into(),
    ];
    for token in tokens {
        assert_eq!(setting.matched(doc! { "_id": 2, "try": token.clone() }, set.clone()).await, 1, "{token}");
    }
    assert_eq!(setting.jobs.delete_many(doc! { "_id": 2, "try": 1 }).await.unwrap().deleted_count, 1);
    assert_eq!(setting.jobs.delete_many(doc! { "locked": false }).await.unwrap().deleted_count, 0);
}

#[tokio::test]
async fn an_expired_job_is_claimed_beside_a_rule_about_a_number() {
    let setting = Setting::new().await;
    let expired =
        doc! { "_id": 1, "locked": true, "tlocked": DateTime::from_millis(now() - HOUR), "try": 1, "budget": 1 };
    setting.views.store("bounded", [expired]).await;
    let claim = async || {
        let update = doc! { "$set": { "locked": true }, "$inc": { "budget": -1 } };
        setting.views.collection("bounded").update_one(doc! { "locked": false }, update).await.unwrap().matched_count
    };
    assert_eq!((claim().await, claim().await), (1, 0));
    let job = setting.views.stored("bounded").await.swap_remove(0);
    assert_eq!((job.get_i32("try").unwrap(), job.get_i32("budget").unwrap()), (2, 0), "{job}");
    // At its bound the update fails whatever the lease is.
    let direct = setting.views.direct.collection::<Document>("bounded");
    direct.update_one(doc! {}, doc! { "$set": { "locked": false } }).await.unwrap();
    assert_eq!(claim().await, 0);
}

#[tokio::test]
async fn a_merged_save_keeps_its_workers_lock() {
    let setting = Setting::new().await;
    let jobs = setting.views.collection("saved");
    jobs.insert_one(doc! { "_id": 1, "kind": "mail" }).await.unwrap();
    let claim = doc! { "$set": { "locked": true } };
    let after = mongodb::options::ReturnDocument::After;
    let mut job = jobs.find_one_and_update(doc! { "_id": 1 }, claim).return_document(after).await.unwrap().unwrap();
    job.insert("step", 1);
    let save = async |job: &Document, token: i32| {
        jobs.replace_one(doc! { "_id": 1, "try": token }, job.clone()).await.map(|done| done.matched_count)
    };
    assert_eq!(save(&job, 1).await.unwrap(), 1);
    assert_eq!(setting.views.stored("saved").await, [job.clone()]);
    job.insert("locked", false);
    assert_eq!(save(&job, 1).await.unwrap(), 1);
    // A late save would lock the free job again.
    job.insert("locked", true);
    assert_eq!(code(&save(&job, 1).await.unwrap_err()), 121);
    job.insert("try", 5);
    job.insert("locked", false);
    assert_eq!(code(&save(&job, 1).await.unwrap_err()), 121);
    assert_eq!(setting.views.stored("saved").await[0].get("locked"), Some(&false.into()));
}
