//! `hide: true` with generated projections: docward's reply is the direct one without the timestamps.
//! `DOCWARD_TEST_SCALE` makes more of them; `DOCWARD_TEST_SEED` makes others.

use bson::{Bson, Document, doc};
use support::driver::{Views, scaled};
use support::random::Random;

use super::{time, views};

const NAMES: [&str; 10] = ["list", "in", "a", "docs", "in.list", "in.a", "docs.a", "_id", "_id.a", "none"];

fn flag(random: &mut Random) -> Bson {
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    let zeros = [0.into(), false.into(), (-0.0).into(), 0_i64.into(), decimal("0"), decimal("-0E+3")];
    let others = [1.into(), true.into(), 0.5.into(), (-1).into(), decimal("0.1")];
    if random.below(2) == 0 { random.pick(&zeros).clone() } else { random.pick(&others).clone() }
}

fn value(random: &mut Random, depth: usize) -> Bson {
    match random.below(10) {
        0..=3 => flag(random),
        4 | 5 => doc! { "$slice": *random.pick(&[1, -1]) }.into(),
        6 => random.pick(&[doc! { "$elemMatch": { "$gt": 1 } }, doc! { "$elemMatch": { "a": 1 } }]).clone().into(),
        7 => random
            .pick::<Bson>(&["$a".into(), doc! { "$literal": 1 }.into(), doc! { "$meta": "recordId" }.into()])
            .clone(),
        _ if depth > 2 => flag(random),
        _ => (0..=random.below(2))
            .map(|_| (random.pick(&["list", "a", "_id"]).to_string(), value(random, depth + 1)))
            .collect::<Document>()
            .into(),
    }
}

fn projection(random: &mut Random) -> Document {
    (0..=random.below(4)).map(|_| (random.pick(&NAMES).to_string(), value(random, 0))).collect()
}

/// The documents that a command returns, or the code of its error.
async fn read(database: &mongodb::Database, command: Document) -> Result<Vec<Document>, i32> {
    let reply = match database.run_command(command).await {
        Ok(reply) => reply,
        Err(error) => match *error.kind {
            mongodb::error::ErrorKind::Command(error) => return Err(error.code),
            other => panic!("{other}"),
        },
    };
    let read = match reply.get_document("cursor") {
        Ok(cursor) => cursor.get_array("firstBatch").unwrap().clone(),
        Err(_) => vec![reply.get("value").unwrap().clone()],
    };
    Ok(read.into_iter().map(|document| document.as_document().unwrap().clone()).collect())
}

async fn compare(views: &Views, command: Document) -> Result<bool, String> {
    let mut direct = read(&views.direct, command.clone()).await;
    let through = read(&views.through, command.clone()).await;
    direct.iter_mut().flatten().for_each(|document| _ = document.remove("last_modified"));
    if direct == through {
        Ok(direct.is_ok())
    } else {
        Err(format!("{command}\n  directly {direct:?}\n  docward {through:?}"))
    }
}

#[tokio::test]
async fn generated_projections_return_what_they_return_directly_except_timestamps() {
    let views = views().await;
    let stored = doc! { "_id": 1, "list": [1, 2], "in": { "list": [1, 2], "a": 1 }, "a": 1, "docs": [{ "a": 1 }, { "a": 2 }], "at": time(1) };
    views.collection("hiding").insert_one(stored).await.unwrap();
    let seed = std::env::var("DOCWARD_TEST_SEED").map_or(1, |text| text.parse().unwrap());
    println!("DOCWARD_TEST_SEED={seed}");
    let mut random = Random(seed);
    let (mut wrong, mut read) = (Vec::new(), 0);
    for _ in 0..scaled(400) {
        let projection = projection(&mut random);
        // It matches nothing that it could change.
        let find_and_modify = doc! { "findAndModify": "hiding", "query": {}, "update": { "$setOnInsert": { "b": 1 } }, "fields": &projection };
        for command in [doc! { "find": "hiding", "projection": &projection }, find_and_modify] {
            match compare(&views, command).await {
                Ok(is_read) => read += u32::from(is_read),
                Err(finding) => wrong.push(finding),
            }
        }
    }
    assert!(wrong.is_empty(), "{} findings\n{}", wrong.len(), wrong.join("\n"));
    assert!(read > scaled(200), "only {read} projections were valid");
}
