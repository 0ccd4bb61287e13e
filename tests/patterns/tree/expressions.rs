//! Searches by a regular expression on the path.

use bson::{Bson, Document, doc};
use futures_util::StreamExt;
use mongodb::Database;
use mongodb::error::Error;
use support::driver::{Views, code, scaled};
use support::mongod::Mongod;
use support::proxy::Docward;
use support::random::Random;

use super::{REJECTED, categories, rejected, rules};

fn regex(pattern: &str, options: &str) -> Bson {
    let (pattern, options) = (pattern.to_owned(), options.to_owned());
    Bson::RegularExpression(bson::Regex { pattern: pattern.try_into().unwrap(), options: options.try_into().unwrap() })
}

#[tokio::test]
async fn reads_by_unanchored_expressions() {
    let regex = |pattern: &str| regex(pattern, "");
    let ids = |database: &Database, filter: Document| {
        let categories = database.collection::<Document>("categories");
        async move {
            let found = categories.find(filter).sort(doc! { "_id": 1 }).await?;
            let ids = found.map(|node| node.unwrap().get_str("_id").unwrap().to_owned());
            Ok::<_, Error>(ids.collect::<Vec<_>>().await)
        }
    };
    for setting in ["warn", "reject", "rewrite"] {
        let docward = Docward::start(Mongod::shared(), &rules(&format!("unanchored: {setting}")));
        let views = Views::of(Mongod::shared(), &docward).await;
        categories(&views).await;
        let anchored = ids(&views.through, doc! { "path": regex("^,Books,Programming,") }).await.unwrap();
        assert_eq!(anchored, ["Databases", "Languages", "MongoDB"]);
        let unanchored = doc! { "path": regex(",Programming,") };
        if setting == "reject" {
            rejected(ids(&views.through, unanchored).await, "not anchored");
            continue;
        }
        views.direct.run_command(doc! { "profile": 2 }).await.unwrap();
        assert_eq!(ids(&views.through, unanchored.clone()).await.unwrap(), anchored);
        let count = views.through.collection::<Document>("categories").count_documents(unanchored).await.unwrap();
        assert_eq!(count, 3);
        let profile = views.direct.collection::<Document>("system.profile");
        let found = profile.find_one(doc! { "command.find": "categories", "command.sort": { "$exists": true } });
        let sent = found.sort(doc! { "ts": -1 }).await.unwrap().unwrap();
        let filter = sent.get_document("command").unwrap().get_document("filter").unwrap().clone();
        if setting == "rewrite" {
            assert_eq!(filter, doc! { "path": { "$regex": "^,Books,Programming," } });
        } else {
            assert_eq!(filter, doc! { "path": regex(",Programming,") });
            docward.wait_for_log("not anchored");
        }
        assert_eq!(ids(&views.through, doc! { "path": regex("gramm") }).await.unwrap(), anchored);
        docward.wait_for_log("not anchored");
    }
}

fn expression(random: &mut Random) -> (String, String) {
    const PARTS: [&str; 26] = [
        ",", ",", ",", "B", "a", "é", "?", "*", "+", "{0,1}", "|", "\\|", "\\\\|", "\\,", "\\d", "\\Q", "\\E",
        "\\Q,\\E", ".", ".*", "$", "[,]", "(,)", " ", "#", "/",
    ];
    let start = *random.pick(&["^", "^", "^", "\\A", ""]);
    let parts: String = (0..=random.below(4)).map(|_| *random.pick(&PARTS)).collect();
    (format!("{start}{parts}"), random.pick(&["", "", "", "x", "s", "m", "i", "sx"]).to_string())
}

/// Whether the server searches a part of the index only; `None` if the expression is invalid.
async fn limits_the_search(database: &Database, filter: &Document) -> Option<bool> {
    let find = doc! { "find": "categories", "filter": filter, "hint": { "path": 1 } };
    let plan = database.run_command(doc! { "explain": find, "verbosity": "queryPlanner" }).await.ok()?;
    let winning = plan.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
    let bounds = winning.get_document("inputStage").unwrap().get_document("indexBounds").unwrap();
    // Beside the range of texts there is always one of expressions.
    let all_texts = Bson::from(r#"["", {})"#);
    Some(!bounds.get_array("path").unwrap().contains(&all_texts))
}

#[tokio::test]
async fn an_expression_is_anchored_if_the_server_uses_the_index_for_it() {
    let docward = Docward::start(Mongod::shared(), &rules("unanchored: reject"));
    let views = Views::of(Mongod::shared(), &docward).await;
    categories(&views).await;
    let index = doc! { "key": { "path": 1 }, "name": "path" };
    views.direct.run_command(doc! { "createIndexes": "categories", "indexes": [index] }).await.unwrap();
    let seed = std::env::var("DOCWARD_TEST_SEED").map_or(1, |text| text.parse().unwrap());
    println!("DOCWARD_TEST_SEED={seed}");
    let (mut random, mut wrong, mut seen) = (Random(seed), Vec::new(), [0, 0]);
    for _ in 0..scaled(300) {
        let (pattern, options) = expression(&mut random);
        let filter = doc! { "path": regex(&pattern, &options) };
        let Some(is_limited) = limits_the_search(&views.direct, &filter).await else { continue };
        let through = views.through.run_command(doc! { "find": "categories", "filter": filter }).await;
        let is_anchored = match through {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(code(&error), REJECTED, "{error}");
                false
            }
        };
        seen[usize::from(is_limited)] += 1;
        if is_anchored != is_limited {
            wrong.push(format!("/{pattern}/{options}: the server limits the search: {is_limited}"));
        }
    }
    assert!(wrong.is_empty(), "{} findings\n{}", wrong.len(), wrong.join("\n"));
    assert!(seen.iter().all(|count| *count > scaled(40)), "{seen:?}");
}
