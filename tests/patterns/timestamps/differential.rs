//! If no write is stale, docward's pipeline must do the same as the operators: random documents and updates, through
//! docward and directly. Either both give the same document apart from timestamps; or docward has rejected the
//! statement, or mongod has failed it, and nothing has changed.

use bson::{Bson, Document, doc};
use mongodb::error::Error;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::{time, views};
use support::driver::{Views, scaled, write_errors};

/// The store field of the rule `paths`.
const STORE: &str = "timestamps";
/// Protected fields of the rule `paths`, paths around and inside them, unprotected ones, and odd ones.
const PATHS: [&str; 20] = [
    "a", "a", "n.b", "n.b", "n.c", "d.x.y", "n.free", "n.q.r", "d.z", "d.x.z", "free", "free", "count", "f.g.h", "f.0",
    "n.0.b", "n.b.c", "d.x", "$a", "f..g",
];
const FREE: [&str; 6] = ["count", "free", "n.free", "f.g.h", "d.x.z", "n.b"];

/// Operators in the same statement as writes of protected fields.
const BESIDE: [&str; 13] = [
    "$push",
    "$push each",
    "$addToSet",
    "$addToSet each",
    "$pull",
    "$pullAll",
    "$pop",
    "$min",
    "$max",
    "$mul",
    "$bit",
    "$rename",
    "$setOnInsert",
];
const BESIDE_PATHS: [&str; 6] = ["beside", "free", "n.q", "f.h", "list", "d.z"];

#[derive(Clone, Debug)]
struct Case {
    /// `None`: the statement upserts.
    stored: Option<Document>,
    filter: Document,
    update: Document,
    find_and_modify: bool,
}

fn scalars() -> impl Strategy<Value = Bson> {
    prop_oneof![
        (-3..3i32).prop_map(Bson::Int32),
        Just(Bson::Int64(i64::MAX)),
        Just(Bson::Double(0.5)),
        Just(Bson::Null),
        Just(Bson::Boolean(true)),
        select(vec!["", "x", "$a", "$$ROOT", "$n.b"]).prop_map(Bson::from),
        Just(time(5)),
    ]
}

/// Values that have another meaning inside an expression.
fn values() -> impl Strategy<Value = Bson> {
    let key = select(vec!["b", "c", "x", "y", "free", "0", "$add", "a.b", "$literal", "z"]);
    scalars().prop_recursive(3, 12, 4, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Bson::Array),
            vec((key.clone(), inner), 0..4)
                .prop_map(|fields| Bson::Document(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

/// Mostly nested documents that the paths reach; also scalars and arrays on the paths.
fn stored() -> impl Strategy<Value = Document> {
    let nested = |names: &'static [&'static str]| {
        let fields = subsequence(names, 0..=names.len());
        fields.prop_flat_map(|names| {
            let values = vec(values(), names.len());
            values.prop_map(move |values| names.iter().map(|n| (*n).to_owned()).zip(values).collect::<Document>())
        })
    };
    let or_any = |strategy: BoxedStrategy<Document>| prop_oneof![6 => strategy.prop_map(Bson::Document), 1 => values(), 1 => vec(values(), 0..3).prop_map(Bson::Array)];
    let n = proptest::option::weighted(0.8, or_any(nested(&["b", "c", "free", "q"]).boxed()));
    let x = or_any(nested(&["y", "z"]).boxed());
    let d = (x, nested(&["z"])).prop_map(|(x, mut d)| {
        d.insert("x", x);
        d
    });
    let d = proptest::option::weighted(0.8, or_any(d.boxed()));
    let top = nested(&["a", "free", "count", "f"]);
    (top, n, d).prop_map(|(mut document, n, d)| {
        let nested = [("n", n), ("d", d)].into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        document.extend(nested);
        document
    })
}

fn updates() -> impl Strategy<Value = Document> {
    let sets = vec((select(PATHS.to_vec()), values()), 0..4);
    let unsets = vec(select(PATHS.to_vec()), 0..3);
    let added = prop_oneof![4 => (-3..3i32).prop_map(Bson::Int32), 1 => Just(Bson::Double(1.5)), 1 => scalars()];
    let adds = vec((select(FREE.to_vec()), added), 0..2);
    let dates = vec(select(FREE.to_vec()), 0..2);
    let beside = vec((select(BESIDE.to_vec()), select(BESIDE_PATHS.to_vec()), values()), 0..2);
    (sets, unsets, adds, dates, beside).prop_map(|(sets, unsets, adds, dates, beside)| {
        let collect =
            |fields: Vec<(&str, Bson)>| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Document>();
        let mut set = collect(sets);
        set.insert("at", time(0));
        let mut update = doc! { "$set": set };
        let others = [
            ("$unset", collect(unsets.into_iter().map(|path| (path, "".into())).collect())),
            ("$inc", collect(adds)),
            ("$currentDate", collect(dates.into_iter().map(|path| (path, true.into())).collect())),
        ];
        for (operator, path, value) in beside {
            let value = match (operator, value) {
                ("$pop", _) => Bson::from(-1),
                ("$bit", _) => doc! { "xor": 3 }.into(),
                ("$rename", _) => "renamed".into(),
                ("$pullAll", value) => vec![value].into(),
                ("$push each", value) => doc! { "$each": [value, 1], "$sort": 1, "$slice": 2 }.into(),
                ("$addToSet each", value) => doc! { "$each": [value, 1, 1] }.into(),
                (_, value) => value,
            };
            let operator = operator.split(' ').next().unwrap();
            let mut fields = update.get_document(operator).cloned().unwrap_or_default();
            fields.insert(path, value);
            update.insert(operator, fields);
        }
        update.extend(others.into_iter().filter(|(_, f)| !f.is_empty()).map(|(k, f)| (k.to_owned(), f.into())));
        update
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let more = prop_oneof![
        3 => Just(doc! {}),
        1 => values().prop_map(|value| doc! { "free": { "$eq": value } }),
        1 => scalars().prop_map(|value| doc! { "n.b": { "$eq": value } }),
    ];
    (proptest::option::weighted(0.8, stored()), more, updates(), any::<bool>()).prop_map(
        |(stored, more, update, find_and_modify)| {
            let mut filter = doc! { "_id": 1 };
            // The filter matches the stored document; without one, the upsert inserts the values that the filter
            // gives.
            if stored.is_none() {
                filter.extend(more);
            }
            Case { stored, filter, update, find_and_modify }
        },
    )
}

/// The result of a statement: the number of matched or inserted documents, or its error.
type Outcome = Result<i32, String>;

async fn send(database: &mongodb::Database, collection: &str, case: &Case) -> Outcome {
    let (filter, update, upsert) = (&case.filter, &case.update, case.stored.is_none());
    let failed = |error: Error| error.to_string();
    if case.find_and_modify {
        let command = doc! { "findAndModify": collection, "query": filter, "update": update, "upsert": upsert };
        let reply = database.run_command(command).await.map_err(failed)?;
        return Ok(reply.get_document("lastErrorObject").unwrap().get_i32("n").unwrap());
    }
    let updates = [doc! { "q": filter, "u": update, "upsert": upsert }];
    let reply = database.run_command(doc! { "update": collection, "updates": &updates[..] }).await.map_err(failed)?;
    match write_errors(&reply).is_empty() {
        true => Ok(reply.get_i32("n").unwrap()),
        false => Err(reply.to_string()),
    }
}

/// Runs both sides on the same document; returns the results and the stored documents.
async fn both(views: &Views, case: &Case) -> [(Outcome, Option<Document>); 2] {
    let mut results = Vec::new();
    for (database, collection) in [(&views.through, "paths"), (&views.direct, "plain")] {
        let past_docward = views.direct.collection::<Document>(collection);
        past_docward.delete_many(doc! {}).await.unwrap();
        if let Some(stored) = &case.stored {
            let mut document = stored.clone();
            document.insert("_id", 1);
            past_docward.insert_one(document).await.unwrap();
        }
        let outcome = send(database, collection, case).await;
        results.push((outcome, views.stored(collection).await.pop()));
    }
    results.try_into().unwrap()
}

/// The server's clock gave the two sides different times.
fn without_clock(value: &mut Bson) {
    match value {
        Bson::DateTime(date) if date.timestamp_millis() > 1_500_000_000_000 => *value = Bson::from("now"),
        Bson::Document(document) => document.iter_mut().for_each(|(_, value)| without_clock(value)),
        Bson::Array(array) => array.iter_mut().for_each(without_clock),
        _ => {}
    }
}

fn comparable(document: Option<Document>) -> Bson {
    let Some(mut document) = document else { return Bson::Null };
    document.remove(STORE);
    let mut document = Bson::Document(document);
    without_clock(&mut document);
    document
}

#[test]
fn pipelines_have_the_same_effect_as_the_operators() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let views = runtime.block_on(views());
    let (compared, rejected) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let cases_run = scaled(600);
    let config = Config { cases: cases_run, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let outcome = TestRunner::new(config).run(&cases(), |case| {
        let [(protected, protected_stored), (plain, plain_stored)] = runtime.block_on(both(&views, &case));
        match (&protected, &plain) {
            (Ok(_), Ok(_)) => {
                compared.set(compared.get() + 1);
                prop_assert!(
                    protected_stored.as_ref().is_some_and(|d| d.get_document(STORE).unwrap().contains_key("at"))
                );
            }
            (Ok(_), Err(error)) => {
                return Err(TestCaseError::fail(format!("it passed where mongod rejects: {error}")));
            }
            (Err(_), _) => {
                rejected.set(rejected.get() + 1);
                let before = case.stored.clone().map(|mut document| {
                    document.insert("_id", 1);
                    document
                });
                prop_assert_eq!(protected_stored, before, "a failed statement has changed something");
                return Ok(());
            }
        }
        prop_assert_eq!(protected, plain);
        prop_assert_eq!(comparable(protected_stored), comparable(plain_stored));
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let (compared, rejected) = (compared.get(), rejected.get());
    assert!(compared > cases_run / 5 && rejected > 0, "compared {compared}, rejected {rejected}");
}
