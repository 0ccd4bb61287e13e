//! Documents and `_id`s at the limits of the server: each change has an entry or a marker, and the worker continues
//! after it.

use std::time::{Duration, Instant};

use bson::{Bson, Decimal128, Document, RawDocumentBuf, Regex, doc, oid::ObjectId};
use support::driver::all;
use support::mongod::Mongod;

use super::{WITHIN, entries, expect_entries, markers, orders, short, start};

/// A document that the server can store, with this number of levels.
fn nested(levels: usize) -> Bson {
    (1..levels).fold(Bson::Int32(1), |inner, _| doc! {"a": inner}.into())
}

#[tokio::test]
async fn ids_of_every_type_have_a_history_of_their_own() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let decimal = |text: &str| Bson::Decimal128(text.parse::<Decimal128>().unwrap());
    let binary = |subtype, bytes: &[u8]| Bson::Binary(bson::Binary { subtype, bytes: bytes.to_vec() });
    let ids: Vec<Bson> = vec![
        Bson::Null,
        Bson::MinKey,
        Bson::MaxKey,
        true.into(),
        "".into(),
        "$of".into(),
        "$$ROOT".into(),
        ObjectId::new().into(),
        binary(bson::spec::BinarySubtype::Uuid, &[7; 16]),
        binary(bson::spec::BinarySubtype::Generic, &[]),
        Bson::Timestamp(bson::Timestamp { time: 0, increment: 0 }),
        Bson::DateTime(bson::DateTime::from_millis(-1)),
        f64::NAN.into(),
        f64::NEG_INFINITY.into(),
        (-0.0).into(),
        decimal("1.500"),
        i64::MIN.into(),
        0.1.into(),
        decimal("0.1"),
        doc! {}.into(),
        doc! {"of": 1, "revision": 2}.into(),
        doc! {"a": {"b": [1, {"c": null}]}}.into(),
        doc! {"a": [{"b": 1}, "$a"], "": 0}.into(),
        doc! {"a": Regex { pattern: "^a".try_into().unwrap(), options: "i".try_into().unwrap() }}.into(),
        Bson::JavaScriptCode("f()".into()),
        Bson::Symbol("symbol".into()),
    ];
    let _docward = start(mongod, direct.name(), "2");
    for id in &ids {
        orders(&direct).insert_one(doc! {"_id": id, "n": 0}).await.unwrap();
        for n in 1..4 {
            let changed = orders(&direct).update_one(doc! {"_id": {"$eq": id}}, doc! {"$set": {"n": n}}).await.unwrap();
            assert_eq!(changed.modified_count, 1, "{id:?}");
        }
    }
    // The same document for the server: -0.0, 1.500.
    for (id, n) in [(Bson::Int32(0), 4), (1.5.into(), 4)] {
        orders(&direct).delete_one(doc! {"_id": &id}).await.unwrap();
        orders(&direct).insert_one(doc! {"_id": id, "n": n}).await.unwrap();
    }
    let same = |one: &Bson, other: &Bson| {
        let raw = |value: &Bson| RawDocumentBuf::try_from(&doc! {"v": value}).unwrap();
        raw(one) == raw(other)
    };
    let kept = |id: &Bson, found: &[Document]| {
        let of_id = |entry: &&Document| same(entry.get_document("_id").unwrap().get("of").unwrap(), id);
        let of_id: Vec<Document> = found.iter().filter(of_id).cloned().collect();
        short(&of_id).into_iter().map(|(revision, _, state)| (revision, state.cloned())).collect::<Vec<_>>()
    };
    let deadline = Instant::now() + WITHIN;
    loop {
        let found = entries(&direct).await;
        let complete = found.len() == 2 * ids.len() && kept(&1.5.into(), &found).len() == 1;
        if complete || Instant::now() > deadline {
            for id in &ids {
                let state = |n: i32| Some(doc! {"_id": id, "n": n});
                let expected = match id {
                    Bson::Double(zero) if *zero == 0.0 => vec![(5, state(3))],
                    Bson::Decimal128(_) if same(id, &decimal("1.500")) => vec![(5, state(3))],
                    _ => vec![(3, state(1)), (4, state(2))],
                };
                assert_eq!(format!("{:?}", kept(id, &found)), format!("{expected:?}"), "{id:?}");
            }
            assert_eq!(kept(&0.into(), &found), [(6, None)]);
            assert_eq!(kept(&1.5.into(), &found), [(6, None)]);
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The driver reads nested documents recursively.
#[test]
fn a_document_that_fits_into_no_entry_does_not_stop_the_worker() {
    let with_stack = std::thread::Builder::new().stack_size(64 << 20).spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(store_what_fits_into_no_entry());
    });
    with_stack.unwrap().join().unwrap();
}

async fn store_what_fits_into_no_entry() {
    const LARGEST: usize = 16 << 20;
    /// The server stores no document with more levels.
    const DEEPEST: usize = 180;
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let docward = start(mongod, direct.name(), "100");
    // Nested too deeply, since an entry has one level more.
    orders(&direct).insert_one(doc! {"_id": 1, "a": nested(DEEPEST)}).await.unwrap();
    orders(&direct).update_one(doc! {"_id": 1}, doc! {"$set": {"a": nested(DEEPEST - 1)}}).await.unwrap();
    orders(&direct).update_one(doc! {"_id": 1}, doc! {"$set": {"a": 1}}).await.unwrap();
    let found = expect_entries(&direct, 3).await;
    assert!(found[1].get_str("unknown").unwrap().contains("levels of nesting"), "{}", found[1]);
    assert!(!found[2].contains_key("unknown"), "{}", found[2]);
    docward.wait_for_log("previous states are unknown");

    // The largest document, with an `_id` that the change event has three times: in its own `_id`, too.
    let id = "i".repeat(10_000);
    let large = doc! {"_id": &id, "t": "x".repeat(LARGEST - 10_100)};
    orders(&direct).insert_one(&large).await.unwrap();
    orders(&direct).update_one(doc! {"_id": &id}, doc! {"$set": {"t": 1}}).await.unwrap();
    orders(&direct).update_one(doc! {"_id": &id}, doc! {"$set": {"t": 2}}).await.unwrap();
    let found = expect_entries(&direct, 6).await;
    let of_large = &found[3..];
    assert!(of_large[1].get_str("unknown").unwrap().contains("no room"));
    assert_eq!(of_large[2].get_document("document").unwrap().get_i32("t").unwrap(), 1);

    // The server's change stream cannot even report the change. It is a single one: the worker could already continue
    // between two, and a second gap could include what is changed next.
    for (number, megabytes) in [(1, 6), (2, 7)] {
        let huge = doc! {"_id": "h".repeat(megabytes << 20)};
        orders(&direct).insert_one(huge).await.unwrap();
        let deadline = Instant::now() + WITHIN;
        while markers(&direct).await.len() < 1 + number && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let found = markers(&direct).await;
        assert!(found.len() > number && found.last().unwrap().contains_key("since"), "{found:?}");
        let n = 100 + number as i32;
        orders(&direct).insert_one(doc! {"_id": n}).await.unwrap();
        orders(&direct).update_one(doc! {"_id": n}, doc! {"$set": {"n": n}}).await.unwrap();
        let deadline = Instant::now() + WITHIN;
        while !all(&direct, "orders_history").await.iter().any(|entry| {
            entry.get_document("document").is_ok_and(|document| document.get_i32("_id").is_ok_and(|id| id == n))
        }) {
            assert!(Instant::now() < deadline, "{:?}", docward.log().last());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
