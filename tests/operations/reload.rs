//! Changes of rules and settings while docward runs: by file and by SIGHUP, all or nothing, without effect on client
//! connections.

use std::path::Path;
use std::time::Duration;

use bson::{Document, doc};
use support::driver::{Views, code};
use support::http::request;
use support::mongod::{Kind, Mongod};
use support::process::{TIMEOUT, free_port, poll};
use support::proxy::Docward;
use support::raw::Client;

fn rules(name: &str) -> String {
    format!("version: 1\nrules:\n  - {{ name: {name}, namespace: '*.orders', replacement: {{ policy: reject }} }}\n")
}

const NONE: &str =
    "version: 1\nrules:\n  - { name: none, namespace: '*.orders', mode: disabled, replacement: { policy: reject } }\n";
const BAD: &str = "version: 1\nrules:\n  - { name: new, namespace: '*.orders', replacment: {} }\n";

/// Whether an unversioned replacement is rejected, and by which rule.
fn rejected_by(docward: &Docward) -> Option<String> {
    let stored = doc! { "q": { "_id": 1 }, "u": { "$set": { "there": true } }, "upsert": true };
    Mongod::shared().command("reloaded", doc! { "update": "orders", "updates": [stored] });
    let replace = doc! { "update": "orders", "updates": [{ "q": { "_id": 1 }, "u": { "a": 1 } }] };
    let reply = Client::connect(&docward.address()).command("reloaded", replace);
    let error = reply.get_array("writeErrors").ok()?[0].as_document().unwrap();
    Some(error.get_str("errmsg").unwrap().to_owned())
}

fn await_rule(docward: &Docward, name: Option<&str>) {
    let applies = || match (rejected_by(docward), name) {
        (None, None) => Some(()),
        (Some(text), Some(name)) => text.contains(name).then_some(()),
        _ => None,
    };
    poll(TIMEOUT, applies).unwrap_or_else(|| panic!("not {name:?}, but {:?}", rejected_by(docward)));
}

#[test]
fn a_changed_file_is_reloaded_and_an_invalid_one_is_ignored() {
    let docward = Docward::start(Mongod::shared(), &rules("first"));
    await_rule(&docward, Some("'first'"));
    docward.rewrite_rules(&rules("second"));
    await_rule(&docward, Some("'second'"));
    docward.rewrite_rules(BAD);
    docward.wait_for_log("rules not reloaded; the 1 rules of set");
    // The same text as of `check`, with the position and a correction.
    docward.wait_for_log("rules.yaml:3:");
    docward.wait_for_log("replacment");
    docward.wait_for_log("replacement");
    await_rule(&docward, Some("'second'"));
    docward.rewrite_rules(NONE);
    await_rule(&docward, None);
    let refusals = docward.log().iter().filter(|line| line.contains("rules not reloaded")).count();
    assert_eq!(refusals, 1, "a bad file is reported once");
    assert!(!docward.log().iter().any(|line| line.contains("needs a restart")), "no key has changed");
}

#[test]
fn sighup_loads_at_once_and_docward_survives_a_folder_without_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.yaml");
    std::fs::write(&file, rules("first")).unwrap();
    let docward = Docward::before(&Mongod::shared().uri()).rules_path(folder.path()).start();
    std::fs::write(&file, rules("second")).unwrap();
    docward.signal("HUP");
    docward.wait_for_log("rules loaded");
    await_rule(&docward, Some("'second'"));
    std::fs::remove_file(&file).unwrap();
    docward.signal("HUP");
    docward.wait_for_log("this folder has no rule file");
    await_rule(&docward, Some("'second'"));
}

/// A Kubernetes volume: `rules.yaml` → `..data/rules.yaml`, `..data` → a folder that is swapped.
#[test]
fn swapped_links_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let link = |target: &Path, name: &str| {
        let new = folder.path().join("..new");
        std::os::unix::fs::symlink(target, &new).unwrap();
        std::fs::rename(new, folder.path().join(name)).unwrap();
    };
    for version in ["..first", "..second"] {
        std::fs::create_dir(folder.path().join(version)).unwrap();
        std::fs::write(folder.path().join(version).join("rules.yaml"), rules(&version[2..])).unwrap();
    }
    link(Path::new("..first"), "..data");
    link(Path::new("..data/rules.yaml"), "rules.yaml");
    let docward = Docward::before(&Mongod::shared().uri()).rules_path(folder.path()).start();
    await_rule(&docward, Some("'first'"));
    link(Path::new("..second"), "..data");
    await_rule(&docward, Some("'second'"));
}

#[test]
fn the_configuration_file_may_name_other_rules() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("first.yaml", &rules("first"));
    write("second.yaml", &rules("second"));
    write("docward.yml", "rules: [first.yaml]\n");
    let config = folder.path().join("docward.yml");
    // The flag's members are no change of the file.
    let member = format!("{}=127.0.0.1:{}", Mongod::shared().address(), free_port());
    let builder = Docward::before(&Mongod::shared().uri()).without_listen().argument("--member").argument(member);
    let docward = builder.argument("--config").argument(config.to_str().unwrap()).start();
    await_rule(&docward, Some("'first'"));
    for name in ["second", "first"] {
        write("docward.yml", &format!("rules: [{name}.yaml]\n"));
        await_rule(&docward, Some(&format!("'{name}'")));
    }
    assert!(!docward.log().iter().any(|line| line.contains("needs a restart")), "{:#?}", docward.log());
    write("docward.yml", "rules: [second.yaml]\npool: {size: 5}\ndrain_timeout: 5s\n");
    await_rule(&docward, Some("'second'"));
    for key in ["pool", "drain_timeout"] {
        docward.wait_for_log(&format!("`{key}` has changed; it needs a restart or a hand-over"));
    }
    let named = || docward.log().iter().filter(|line| line.contains("needs a restart")).count();
    docward.signal("HUP");
    let loads = |line: &String| line.contains("rules loaded");
    assert!(poll(TIMEOUT, || (docward.log().iter().filter(|line| loads(line)).count() == 4).then_some(())).is_some());
    assert_eq!(named(), 2, "each key is named once");
    write("docward.yml", "rulse: []\n");
    docward.wait_for_log("rulse");
    write("docward.yml", "");
    docward.wait_for_log("names no `rules` any more");
    await_rule(&docward, Some("'second'"));
}

/// Whether a connection is admitted.
fn is_admitted(client: &mut Client) -> bool {
    client.command("admin", doc! { "hello": 1 }).get_f64("ok").unwrap() == 1.0
}

#[test]
fn limits_the_log_level_and_the_token_change_or_nothing_does() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let configure = |limit: usize, level: &str, rules: &str| {
        let text = format!(
            "limits: {{connections_per_address: {limit}}}\nlog_level: {level}\nadmin: 127.0.0.1:0\n\
             admin_token_file: token\nrules: [{rules}.yaml]\n"
        );
        write("docward.yml", &text);
    };
    write("good.yaml", &rules("good"));
    write("bad.yaml", BAD);
    write("token", "the-first-token-of-all\n");
    configure(2, "warn", "good");
    let config = folder.path().join("docward.yml");
    let upstream = format!("{}&directConnection=true", Mongod::shared().uri());
    let docward = Docward::before(&upstream).argument("--config").argument(config.to_str().unwrap()).listeners(2);
    let docward = docward.start();
    let mut open: Vec<Client> = (0..2).map(|_| Client::connect(&docward.address())).collect();
    assert!(open.iter_mut().all(is_admitted));
    let connects = || is_admitted(&mut Client::connect(&docward.address()));
    let status = |token: &str| {
        let token = format!("Bearer {token}");
        let headers = [("Host", "localhost"), ("Authorization", &*token)];
        request(&docward.admin_address(), "GET", "/api/status", &headers, "")
    };
    assert!(!connects() && status("the-first-token-of-all").status == 200);
    assert!(!docward.log().iter().any(|line| line.contains(" INFO ")), "{:#?}", docward.log());

    // One mistake: neither the limit nor the token changes.
    write("token", "the-second-token-of-all\n");
    configure(3, "debug", "bad");
    docward.wait_for_log("rules not reloaded");
    assert!(!connects() && status("the-first-token-of-all").status == 200);
    // The other file was read with the mistake; it is not forgotten.
    configure(3, "debug", "good");
    docward.wait_for_log("limits loaded");
    assert!(poll(TIMEOUT, || connects().then_some(())).is_some());
    docward.wait_for_log("connected");
    docward.wait_for_log("the token of the admin address was replaced");
    assert_eq!(status("the-first-token-of-all").status, 401);
    assert_eq!(status("the-second-token-of-all").json()["reloads"]["failed"], 1);
    // A change of the file alone.
    write("token", "the-third-token-of-all\n");
    assert!(poll(TIMEOUT, || (status("the-third-token-of-all").status == 200).then_some(())).is_some());
    write("token", "\n");
    docward.wait_for_log("token: the file is empty");
    assert_eq!(status("the-third-token-of-all").status, 200);
    let log = docward.log().join("\n");
    assert!(!log.contains("-token-of-all"), "{log}");
}

/// To another user without a failed operation, and to another password.
#[tokio::test(flavor = "multi_thread")]
async fn the_credentials_of_docwards_own_connection_are_rotated() {
    let mongod = Mongod::start_with_access_control(Kind::ReplicaSet);
    let root = mongodb::Client::with_uri_str(mongod.uri().replace("://", "://root:secret@")).await.unwrap();
    let admin = root.database("admin");
    admin.run_command(doc! { "createUser": "one", "pwd": "f1rst/p@ss", "roles": ["root"] }).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (config, secret) = (folder.path().join("docward.yml"), folder.path().join("service"));
    let uri = |user: &str| mongod.uri().replace("://", &format!("://{user}@"));
    std::fs::write(&secret, uri("one:f1rst%2Fp%40ss")).unwrap();
    std::fs::write(&config, "service_file: service\n").unwrap();
    let rules = "version: 1\nrules:\n  \
                 - {name: numbered, namespace: shop.orders, sequence: {field: no, counter: o, block: 1}}\n  \
                 - name: copied\n    namespace: shop.customers\n    copies:\n      \
                 - {into: shop.orders, key: customer.id, fields: {name: customer.name}}\n";
    let docward = Docward::before(&mongod.uri()).rules(rules).argument("--config").argument(config.to_str().unwrap());
    let docward = docward.start();
    docward.wait_for_log("worker started");
    let shop = mongodb::Client::with_uri_str(docward.uri().replace("://", "://root:secret@")).await.unwrap();
    let collection = |name| shop.database("shop").collection::<Document>(name);
    let (orders, customers) = (collection("orders"), collection("customers"));
    customers.insert_one(doc! { "_id": 1, "name": "Ada" }).await.unwrap();
    // A number of `sequence`, and a change by the worker of `copies`.
    let works = async |id: i32, name: &str| {
        orders.insert_one(doc! { "_id": id, "customer": { "id": 1, "name": "Ada" } }).await.unwrap();
        customers.update_one(doc! { "_id": 1 }, doc! { "$set": { "name": name } }).await.unwrap();
        for _ in 0..600 {
            let stored = orders.find_one(doc! { "_id": id }).await.unwrap().unwrap();
            if stored.get_document("customer").unwrap().get_str("name").unwrap() == name {
                assert_eq!(stored.get_i32("no").unwrap(), id);
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the copies of {name} are not written");
    };
    // The connections of a user at the server.
    let connections = async |user: &str| {
        let of_user = doc! { "$match": { "effectiveUsers.user": user } };
        let pipeline = vec![doc! { "$currentOp": { "allUsers": true, "idleConnections": true } }, of_user];
        let command = doc! { "aggregate": 1, "pipeline": pipeline, "cursor": { "batchSize": 1000 } };
        let reply = admin.run_command(command).await.unwrap();
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len()
    };
    let loads = |count: usize| {
        let loaded = |line: &&String| line.contains("`service` loaded");
        let log = || (docward.log().iter().filter(loaded).count() == count).then_some(());
        tokio::task::block_in_place(|| poll(TIMEOUT, log)).unwrap_or_else(|| panic!("{:#?}", docward.log()));
    };
    works(1, "Eve").await;
    std::fs::write(&secret, uri("one:wrong")).unwrap();
    docward.wait_for_log("`service`: the connection before stays in use");
    works(2, "Joy").await;
    assert!(connections("one").await > 0);

    admin.run_command(doc! { "createUser": "two", "pwd": "second", "roles": ["root"] }).await.unwrap();
    std::fs::write(&secret, uri("two:second")).unwrap();
    loads(1);
    works(3, "Kim").await;
    let mut left = connections("one").await;
    for _ in 0..600 {
        if left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        left = connections("one").await;
    }
    assert_eq!(left, 0, "connections of the former user stay open");
    admin.run_command(doc! { "dropUser": "one" }).await.unwrap();
    works(4, "Lea").await;
    let log = docward.log();
    assert!(!log.iter().any(|line| line.contains("for now:")), "a worker failed: {log:#?}");

    admin.run_command(doc! { "updateUser": "two", "pwd": "third" }).await.unwrap();
    std::fs::write(&secret, uri("two:third")).unwrap();
    loads(2);
    works(5, "May").await;
    let log = docward.log().join("\n");
    assert!(!["f1rst", "wrong@", "second", "third"].iter().any(|password| log.contains(password)), "{log}");
}

/// Each statement is evaluated by one of the two sets, and gets the right reply.
#[tokio::test(flavor = "multi_thread")]
async fn rules_are_swapped_under_load() {
    let mongod = Mongod::shared();
    let docward = Docward::start(mongod, &rules("first"));
    let views = Views::of(mongod, &docward).await;
    let orders = views.collection("orders");
    orders.insert_one(doc! { "_id": 1 }).await.unwrap();
    let work = async {
        let (mut replaced, mut refused) = (0, 0);
        for number in 0.. {
            match orders.replace_one(doc! { "_id": 1 }, doc! { "n": number }).await {
                Ok(result) => replaced += result.modified_count,
                Err(error) => {
                    assert_eq!(code(&error), 121, "{error}");
                    refused += 1;
                }
            }
            if replaced > 20 && refused > 20 && number > 500 {
                break;
            }
        }
    };
    let swaps = async {
        loop {
            for text in [NONE.to_owned(), rules("first")] {
                docward.rewrite_rules(&text);
                docward.signal("HUP");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = swaps => {}
        () = tokio::time::sleep(TIMEOUT) => panic!("the rules were not swapped often enough"),
    }
    let stored: Vec<Document> = views.stored("orders").await;
    assert_eq!(stored.len(), 1);
}
