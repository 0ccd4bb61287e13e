//! Compares the effect model with a real mongod: for generated filters, updates and documents, the server stores what
//! the model predicts, or something that the model leaves open. `DOCWARD_TEST_SCALE` makes it run longer;
//! `DOCWARD_TEST_SEED` gives other cases.

use bson::{Bson, Decimal128, Document as Bsons, RawDocumentBuf, doc};
use docward::command::{Conditions, Modification, Operation, Update};
use docward::document::{CowDocument, Document, Kind, Path, PathLookup, Value};
use docward::effect::{Change, ImageValue, change, equality, inserted};
use support::driver::scaled;
use support::mongod::Mongod;
use support::random::Random;
use support::raw::Client;

/// The paths that are compared, whatever a statement writes.
const PATHS: [&str; 7] = ["a", "b", "a.n", "a.m", "a.n.k", "b.0", "c"];
const CASES: u32 = 2000;

fn cases() -> usize {
    scaled(CASES) as usize
}

struct Generator {
    random: Random,
}

impl Generator {
    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        self.random.pick(of).clone()
    }

    fn scalar(&mut self) -> Bson {
        let decimal = |text: &str| Bson::Decimal128(text.parse::<Decimal128>().unwrap());
        self.pick(&[
            Bson::Int32(1),
            Bson::Int32(-3),
            Bson::Int64(1),
            Bson::Int32(i32::MAX),
            Bson::Int64(i64::MAX),
            Bson::Double(1.0),
            Bson::Double(-0.0),
            Bson::Double(0.5),
            Bson::Double(f64::NAN),
            Bson::Double(f64::INFINITY),
            decimal("1E+3"),
            decimal("1.0"),
            decimal("0E-8"),
            Bson::Boolean(true),
            Bson::Null,
            Bson::String("x".to_owned()),
            Bson::String("$a".to_owned()),
            Bson::DateTime(bson::DateTime::from_millis(5)),
        ])
    }

    fn value(&mut self, depth: usize) -> Bson {
        match self.random.below(if depth > 1 { 6 } else { 10 }) {
            6 => Bson::Array((0..self.random.below(3)).map(|_| self.value(depth + 1)).collect()),
            7 | 8 => Bson::Document(self.document(&["n", "m", "k"], depth + 1)),
            9 => Bson::Array(vec![Bson::Document(self.document(&["n", "k"], depth + 1))]),
            _ => self.scalar(),
        }
    }

    fn document(&mut self, names: &[&str], depth: usize) -> Bsons {
        let mut document = Bsons::new();
        for name in names {
            if self.random.below(3) > 0 {
                document.insert(*name, self.value(depth));
            }
        }
        document
    }

    fn condition(&mut self) -> Bson {
        let value = self.value(1);
        match self.random.below(13) {
            0 => doc! {"$eq": value}.into(),
            1 => doc! {"$in": [value]}.into(),
            2 => doc! {"$in": [value.clone(), value]}.into(),
            3 => doc! {"$in": [value, self.scalar()]}.into(),
            4 => doc! {"$all": [value]}.into(),
            5 => doc! {"$gte": value}.into(),
            6 => doc! {"$exists": self.random.below(2) == 0}.into(),
            7 => doc! {"$not": {"$eq": value}}.into(),
            8 => doc! {"$elemMatch": {"$eq": 1}}.into(),
            _ => value,
        }
    }

    fn filter(&mut self, depth: usize) -> Bsons {
        let mut filter = Bsons::new();
        for _ in 0..self.random.below(3) {
            match self.random.below(if depth > 2 { 4 } else { 8 }) {
                4 => filter.insert("$and", vec![self.filter(depth + 1), doc! {"z": {"$exists": false}}]),
                5 => filter.insert("$or", vec![self.filter(depth + 1)]),
                6 => filter.insert("$or", vec![self.filter(depth + 1), self.filter(depth + 1)]),
                7 => filter.insert("$nor", vec![doc! {"a": self.scalar()}]),
                _ => {
                    let path = self.pick(&PATHS);
                    filter.insert(path, self.condition())
                }
            };
        }
        // The server rejects an empty list of branches, but accepts an empty branch.
        filter
    }

    fn operators(&mut self) -> Bsons {
        let mut update = Bsons::new();
        for _ in 0..1 + self.random.below(2) {
            let path = self.pick(&["a", "b", "a.n", "a.m", "a.n.k", "b.0", "c", "a.0.n"]);
            let value = self.value(1);
            let (operator, argument) = match self.random.below(20) {
                0..=5 => ("$set", value),
                6 | 7 => ("$unset", Bson::Int32(1)),
                8 | 9 => ("$inc", self.scalar()),
                10 => ("$mul", self.scalar()),
                11 => ("$min", value),
                12 => ("$max", value),
                13 => ("$setOnInsert", value),
                14 => ("$currentDate", Bson::Boolean(true)),
                15 => ("$push", value),
                16 => ("$addToSet", doc! {"$each": [value]}.into()),
                17 => ("$pull", self.scalar()),
                18 => ("$pop", Bson::Int32(1)),
                _ => ("$rename", Bson::String(self.pick(&["a", "b", "c", "a.m", "c.d"]).to_owned())),
            };
            let entry = update.entry(operator.to_owned()).or_insert_with(|| Bson::Document(Bsons::new()));
            entry.as_document_mut().unwrap().insert(path, argument);
        }
        update
    }
}

fn bytes(document: &Bsons) -> Vec<u8> {
    RawDocumentBuf::try_from(document).unwrap().into_bytes()
}

/// What the server stores; `None` if it rejects the command.
fn stored(
    client: &mut Client,
    database: &str,
    filter: &Bsons,
    update: &Bsons,
    before: Option<&Bsons>,
) -> Option<Bsons> {
    let run = |client: &mut Client, command: Bsons| client.command(database, command);
    run(client, doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}]});
    let (selection, upsert) = match before {
        Some(before) => {
            run(client, doc! {"insert": "c", "documents": [before.clone()]});
            (doc! {"_id": 1}, false)
        }
        None => (filter.clone(), true),
    };
    let statement = doc! {"q": selection, "u": update.clone(), "upsert": upsert};
    let reply = run(client, doc! {"update": "c", "updates": [statement]});
    if reply.get_f64("ok").unwrap() != 1.0 || reply.contains_key("writeErrors") {
        return None;
    }
    let found = run(client, doc! {"find": "c", "filter": {}, "limit": 1});
    let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.first().map(|document| document.as_document().unwrap().clone())
}

/// Whether the model allows this result of an upsert at a path.
fn agrees(held: ImageValue<'_>, found: PathLookup<'_>) -> bool {
    match (held, found) {
        (ImageValue::Unknown, _) => true,
        (ImageValue::Value(value), PathLookup::Found(found)) => value == found || both_nan(value, found),
        (ImageValue::Some(None), PathLookup::Found(_)) | (ImageValue::Missing, PathLookup::Missing) => true,
        (ImageValue::Some(Some(kind)), PathLookup::Found(found)) => kind == found.kind,
        (ImageValue::Blocked(kind), PathLookup::Blocked(found)) => kind == found,
        _ => false,
    }
}

fn both_nan(one: Value<'_>, other: Value<'_>) -> bool {
    let nan = |value: Value<'_>| value.as_f64().is_some_and(f64::is_nan);
    nan(one) && nan(other)
}

/// Whether the model allows an update to change the value at a path to this one.
fn follows(change: Change<'_>, before: PathLookup<'_>, after: PathLookup<'_>) -> bool {
    let is = |value: Value<'_>| matches!(after, PathLookup::Found(found) if found == value || both_nan(found, value));
    match change {
        Change::Untouched => before == after,
        Change::Set(value) => is(value),
        Change::Removed => !matches!(after, PathLookup::Found(_)),
        Change::Incremented(amount) => match before {
            PathLookup::Missing => is(amount),
            _ => matches!(after, PathLookup::Found(found) if is_number(found.kind)),
        },
        Change::Either(value) => is(value) || before == after,
        Change::Now => matches!(after, PathLookup::Found(found) if found.kind == Kind::DateTime),
        Change::Inside(_) | Change::Unclear(_) => true,
    }
}

fn is_number(kind: Kind) -> bool {
    matches!(kind, Kind::Int32 | Kind::Int64 | Kind::Double | Kind::Decimal128)
}

/// The same in every run, unless a seed is given.
fn seed() -> u64 {
    std::env::var("DOCWARD_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_122)
}

#[test]
fn an_upsert_inserts_what_the_model_predicts() {
    let seed = seed();
    let mut generator = Generator { random: Random(seed) };
    let mongod = Mongod::shared();
    let (mut client, database) = (Client::connect(&mongod.address()), mongod.fresh_database());
    let (mut made, mut predicted) = (0, 0);
    for case in 0..cases() {
        let (filter, update) = (generator.filter(0), generator.operators());
        let after = stored(&mut client, &database, &filter, &update, None);
        let (q, u) = (bytes(&filter), bytes(&update));
        let operation = Operation::Update(Update {
            filter: CowDocument::from(Document::parse(&q).unwrap()),
            conditions: Conditions::new(),
            modification: Modification::Operators(CowDocument::from(Document::parse(&u).unwrap())),
            upsert: true,
            multi: false,
            array_filters: false,
        });
        let context = format!("seed {seed}, case {case}: update({filter}, {update}) -> {after:?}");
        let Some(after) = after else { continue };
        let Some(model) = inserted(&operation) else { panic!("the server did not fail: {context}") };
        let raw = bytes(&after);
        let document = Document::parse(&raw).unwrap();
        made += 1;
        for path in PATHS.map(|path| Path::parse(path).unwrap()) {
            let held = model.at(&path);
            predicted += usize::from(held != ImageValue::Unknown);
            assert!(agrees(held, path.lookup(document)), "'{path}' is predicted as {held:?}: {context}");
        }
    }
    // Most cases must have a definite prediction, because a model that leaves everything open is always right.
    assert!(made * 3 > cases(), "only {made} upserts inserted (seed {seed})");
    assert!(
        predicted * 10 > made * PATHS.len() * 8,
        "only {predicted} of {} fields were predicted (seed {seed})",
        made * PATHS.len()
    );
}

#[test]
fn an_update_stores_what_the_model_predicts() {
    let seed = seed();
    let mut generator = Generator { random: Random(seed) };
    let mongod = Mongod::shared();
    let (mut client, database) = (Client::connect(&mongod.address()), mongod.fresh_database());
    let mut changed = 0;
    for case in 0..cases() {
        let mut before = doc! {"_id": 1};
        before.extend(generator.document(&["a", "b", "c"], 0));
        let update = generator.operators();
        let Some(after) = stored(&mut client, &database, &Bsons::new(), &update, Some(&before)) else { continue };
        let u = bytes(&update);
        let operation = Operation::Update(Update {
            filter: CowDocument::from(Document::EMPTY),
            conditions: Conditions::new(),
            modification: Modification::Operators(CowDocument::from(Document::parse(&u).unwrap())),
            upsert: false,
            multi: false,
            array_filters: false,
        });
        let (raw_before, raw_after) = (bytes(&before), bytes(&after));
        let (old, new) = (Document::parse(&raw_before).unwrap(), Document::parse(&raw_after).unwrap());
        for path in PATHS.map(|path| Path::parse(path).unwrap()) {
            let predicted = change(&operation, &path);
            changed += usize::from(predicted != Change::Untouched);
            assert!(
                follows(predicted, path.lookup(old), path.lookup(new)),
                "'{path}' is predicted as {predicted:?}: seed {seed}, case {case}: {before} by {update} -> {after}"
            );
        }
    }
    assert!(changed > cases() / 4, "only {changed} changes (seed {seed})");
}

#[test]
fn an_equality_holds_for_every_document_that_matches() {
    let seed = seed();
    let mut generator = Generator { random: Random(seed) };
    let mongod = Mongod::shared();
    let (mut client, database) = (Client::connect(&mongod.address()), mongod.fresh_database());
    let documents: Vec<Bsons> = (0..60)
        .map(|id| {
            let mut document = doc! {"_id": id};
            document.extend(generator.document(&["a", "b", "c"], 0));
            document
        })
        .collect();
    client.command(&database, doc! {"insert": "c", "documents": documents});
    let mut pinned = 0;
    for case in 0..cases() {
        let filter = generator.filter(0);
        let q = bytes(&filter);
        for field in ["a", "b", "a.n", "c"] {
            let Some(value) = equality(Document::parse(&q).unwrap(), field) else { continue };
            pinned += 1;
            let value = bytes(&bson_of(value));
            let value = Bsons::from_reader(value.as_slice()).unwrap().remove("v").unwrap();
            // No document matches the filter without the equal value.
            let others = doc! {"$and": [filter.clone(), {"$nor": [{field: {"$eq": value}}]}]};
            let reply = client.command(&database, doc! {"find": "c", "filter": others.clone(), "limit": 1});
            let Ok(cursor) = reply.get_document("cursor") else { continue };
            let found = cursor.get_array("firstBatch").unwrap();
            assert!(found.is_empty(), "seed {seed}, case {case}: {others} finds {found:?}");
        }
    }
    assert!(pinned > cases() / 20, "only {pinned} equalities (seed {seed})");
}

fn bson_of(value: Value<'_>) -> Bsons {
    let written = docward::document::document(|w| w.value("v", value));
    Bsons::from_reader(written.as_slice()).unwrap()
}
