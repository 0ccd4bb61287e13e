//! Nothing but docward changes the collection with the previous states: every command that could remove or change it is
//! rejected, unless the rule excepts the client.

use super::*;

#[tokio::test]
async fn no_command_through_docward_destroys_the_stored_states() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    let direct = mongod.client().await.database("shop");
    let rules = rule("shop", "enforce", "100").replace("mode: enforce", "except: { apps: [dba] }");
    let docward = Docward::start(&mongod, &rules);
    docward.wait_for_log(WORKS);
    wait_for_beginning(&mongod, "shop");
    let seed = async || {
        orders(&direct).insert_one(doc! {"_id": bson::oid::ObjectId::new()}).await.unwrap();
        direct.collection::<Document>("plain").insert_one(doc! {}).await.unwrap();
        let deadline = Instant::now() + WITHIN;
        while entries(&direct).await.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        direct.run_command(doc! {"listIndexes": "orders_history"}).await.unwrap();
    };
    let index = || doc! {"key": {"at": 1}, "name": "soon", "expireAfterSeconds": 1};
    let commands = [
        ("shop", doc! {"drop": "orders_history"}),
        ("shop", doc! {"dropDatabase": 1}),
        ("shop", doc! {"collMod": "orders_history", "validator": {"never": 1}}),
        ("shop", doc! {"createIndexes": "orders_history", "indexes": [index()]}),
        ("shop", doc! {"createSearchIndexes": "orders_history", "indexes": [{"name": "s", "definition": {}}]}),
        ("shop", doc! {"dropIndexes": "orders_history", "index": "*"}),
        ("shop", doc! {"create": "orders_history", "capped": true, "size": 4096}),
        ("shop", doc! {"convertToCapped": "orders_history", "size": 4096}),
        ("shop", doc! {"aggregate": "plain", "pipeline": [{"$out": "orders_history"}], "cursor": {}}),
        ("shop", doc! {"delete": "orders_history", "deletes": [{"q": {}, "limit": 0}]}),
        ("shop", doc! {"insert": "orders_history", "documents": [{"_id": {"of": 1, "revision": 9}}]}),
        ("admin", doc! {"renameCollection": "shop.orders_history", "to": "shop.elsewhere"}),
        ("admin", doc! {"renameCollection": "shop.plain", "to": "shop.orders_history", "dropTarget": true}),
    ];
    let through = docward.client().await;
    for (database, command) in &commands {
        seed().await;
        let before = entries(&direct).await;
        let rejected = match through.database(database).run_command(command.clone()).await {
            Err(error) => (code(&error), message(&error)),
            Ok(reply) => {
                let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
                (error.get_i32("code").unwrap(), error.get_str("errmsg").unwrap().to_owned())
            }
        };
        assert_eq!(rejected.0, 121, "{command}");
        assert!(rejected.1.contains("order-history"), "{command}: {}", rejected.1);
        assert!(entries(&direct).await.starts_with(&before[..1]), "{command}");
        let indexes = direct.collection::<Document>("orders_history").list_index_names().await.unwrap();
        assert_eq!(indexes, ["_id_"], "{command}");
    }
    // Other collections, and the one whose history it is, can be changed.
    through.database("shop").run_command(doc! {"drop": "plain"}).await.unwrap();
    through.database("shop").run_command(doc! {"createIndexes": "orders", "indexes": [index()]}).await.unwrap();
    // The anomaly, by a client that the rule excepts.
    let uri = format!("mongodb://{}/?directConnection=true&appName=dba", docward.address());
    let dba = mongodb::Client::with_uri_str(uri).await.unwrap();
    dba.database("shop").run_command(doc! {"drop": "orders_history"}).await.unwrap();
    assert_eq!(entries(&direct).await, [] as [Document; 0]);
}
