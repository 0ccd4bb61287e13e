//! Time-series collections: the server stores their documents in `system.buckets.NAME`, which is protected like NAME.

use bson::{Bson, DateTime, Document, doc};

use super::{Setting, errors};

const BUCKETS: &str = "system.buckets.series";

fn series(setting: &mut Setting) -> Document {
    let create = doc! { "create": "series", "timeseries": { "timeField": "t", "metaField": "m" } };
    setting.direct.command(&setting.database, create);
    let measured = doc! { "t": DateTime::from_millis(1_700_000_000_000), "m": 1, "v": 1 };
    setting.direct.command(&setting.database, doc! { "insert": "series", "documents": [measured] });
    setting.stored(BUCKETS).swap_remove(0)
}

fn writes(bucket: &Document, database: &str) -> Vec<Document> {
    let mut another = bucket.clone();
    another.insert("_id", bson::oid::ObjectId::new());
    let mut changed = bucket.clone();
    changed.insert("meta", 7);
    let set = doc! { "$set": { "meta": 2 } };
    let namespace = format!("{database}.{BUCKETS}");
    vec![
        doc! { "update": BUCKETS, "updates": [{ "q": {}, "u": set.clone() }] },
        doc! { "update": BUCKETS, "updates": [{ "q": {}, "u": changed }], "ordered": false },
        doc! { "findAndModify": BUCKETS, "query": {}, "update": set },
        doc! { "findAndModify": BUCKETS, "query": {}, "remove": true },
        doc! { "applyOps": [{ "op": "i", "ns": namespace, "o": another }] },
        doc! { "delete": BUCKETS, "deletes": [{ "q": {}, "limit": 0 }] },
    ]
}

#[test]
fn the_buckets_of_a_protected_time_series_are_protected() {
    let mut setting = Setting::new();
    let database = setting.database.clone();
    let count = writes(&Document::new(), &database).len();
    for index in 0..count {
        setting.direct.command(&database, doc! { "drop": "series" });
        let bucket = series(&mut setting);
        let before = setting.stored(BUCKETS);
        let write = writes(&bucket, &database).swap_remove(index);
        let reply = setting.through.command(&database, write.clone());
        let rejected = errors(&reply);
        assert_eq!(rejected.first().map(|error| error.0), Some(121), "{write}: {reply}");
        assert!(rejected[0].1.contains("docward rule 'series'"), "{reply}");
        assert_eq!(setting.stored(BUCKETS), before, "{write}");
        // These commands are real indirect writes: mongod would carry out those that docward forwards.
        let reply = setting.direct.command(&database, write.clone());
        assert_ne!(setting.stored(BUCKETS), before, "{write}: {reply}");
    }
}

/// A time series is evaluated under its own name like any collection; the rule does not affect other time series.
#[test]
fn a_time_series_accepts_what_its_rules_allow() {
    let mut setting = Setting::new();
    let mut bucket = series(&mut setting);
    // As mongorestore restores a time series. The rule is about deletes.
    bucket.insert("_id", bson::oid::ObjectId::new());
    let restore = doc! { "insert": BUCKETS, "documents": [bucket] };
    assert_eq!(setting.through.command(&setting.database, restore).get_i32("n").unwrap(), 1);
    let measured = || vec![doc! { "t": DateTime::from_millis(1_700_000_000_001), "m": 1, "v": 2 }];
    let insert = doc! { "insert": "series", "documents": measured() };
    assert_eq!(setting.through.command(&setting.database, insert).get_i32("n").unwrap(), 1);
    let delete = doc! { "delete": "series", "deletes": [{ "q": { "m": 1 }, "limit": 0 }] };
    assert_eq!(errors(&setting.through.command(&setting.database, delete))[0].0, 121);
    let create = doc! { "create": "others", "timeseries": { "timeField": "t", "metaField": "m" } };
    setting.direct.command(&setting.database, create);
    setting.direct.command(&setting.database, doc! { "insert": "others", "documents": measured() });
    let delete = doc! { "delete": "system.buckets.others", "deletes": [{ "q": {}, "limit": 0 }] };
    let reply = setting.through.command(&setting.database, delete);
    assert_eq!(reply.get("n"), Some(&Bson::Int32(1)), "{reply}");
}
