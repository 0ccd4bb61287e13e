//! One morning of a DBA, from bad data to an enforced rule and through an incident. docs/morning.md shows its output.

use std::path::Path;

use bson::{Document, doc};
use mongodb::Collection;
use mongodb::error::Error;
use support::driver::{code, connect};
use support::mongod::{Kind, Mongod};
use support::process::docward;
use support::proxy::Docward;

const RULES: &str = "\
version: 1
rules:
  - name: orders-versions
    why: Two services save whole orders.
    namespace: shop.orders
    mode: shadow
    replacement: { policy: check_version, version: version }
";
/// The code of a version conflict.
const CONFLICT: i32 = 112;

/// Runs docward, and keeps the commands with what they print.
struct Terminal {
    /// Texts of this machine, and what stands for them.
    names: Vec<(String, &'static str)>,
    transcript: String,
}

impl Terminal {
    /// Returns the output of a command that ends with this exit code.
    fn run(&mut self, arguments: &[&str], expected: i32) -> String {
        let done = docward(arguments);
        let text = String::from_utf8(done.stderr).unwrap() + &String::from_utf8(done.stdout).unwrap();
        assert_eq!(done.status.code(), Some(expected), "{arguments:?}: {text}");
        let quoted =
            |word: &&str| if word.contains([' ', '?', '&']) { format!("{word:?}") } else { (*word).to_owned() };
        let command: Vec<String> = arguments.iter().map(quoted).collect();
        let text = self.named(text);
        self.transcript += &self.named(format!("$ docward {}\n{text}", command.join(" ")));
        text
    }

    fn named(&self, text: String) -> String {
        self.names.iter().fold(text, |text, (found, name)| text.replace(found, name))
    }
}

async fn orders(address: &str, app: &str) -> Collection<Document> {
    connect(address, &format!("directConnection=true&appName={app}")).await.database("shop").collection("orders")
}

/// Saves the whole order as the application read it, with another status.
async fn save(orders: &Collection<Document>, read: &Document, status: &str) -> Result<u64, Error> {
    let mut changed = read.clone();
    changed.insert("status", status);
    let id = doc! {"_id": read.get("_id")};
    orders.replace_one(id, changed).await.map(|done| done.modified_count)
}

async fn read(orders: &Collection<Document>, id: i32) -> Document {
    orders.find_one(doc! {"_id": id}).await.unwrap().unwrap()
}

/// The nightly invoices as they were: a whole order without its version.
async fn invoice(orders: &Collection<Document>, id: i32) -> Result<u64, Error> {
    let whole = doc! {"_id": id, "status": "new", "invoiced": true};
    orders.replace_one(doc! {"_id": id}, whole).await.map(|done| done.modified_count)
}

/// The same after its correction.
async fn invoice_corrected(orders: &Collection<Document>, id: i32) -> Result<u64, Error> {
    let set = doc! {"$set": {"invoiced": true}};
    orders.update_one(doc! {"_id": id}, set).await.map(|done| done.modified_count)
}

fn stored(mongod: &Mongod) -> Vec<Document> {
    let reply = mongod.command("shop", doc! {"find": "orders", "sort": {"_id": 1}});
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|order| order.as_document().unwrap().clone()).collect()
}

fn versions(mongod: &Mongod) -> Vec<Option<i32>> {
    stored(mongod).iter().map(|order| order.get_i32("version").ok()).collect()
}

/// Restores a copy of the orders.
fn restore(mongod: &Mongod, orders: &[Document]) {
    mongod.command("shop", doc! {"drop": "orders"});
    let done = mongod.command("shop", doc! {"insert": "orders", "documents": orders});
    assert_eq!(done.get_i32("n").unwrap() as usize, orders.len(), "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_is_adopted_and_survives_an_incident() {
    let (database, plain, ruled) =
        (Mongod::start(Kind::ReplicaSet), Mongod::start(Kind::ReplicaSet), Mongod::start(Kind::ReplicaSet));
    let folder = tempfile::tempdir().unwrap();
    let proxy = Docward::before(&database.uri()).rules(RULES).argument("--service").argument(database.uri()).start();
    let tested = Docward::before(&ruled.uri()).rules(&RULES.replace("    mode: shadow\n", "")).start();
    let (rules, uri) = (proxy.rules_file(), database.uri());
    let (rules, uri) = (rules.to_str().unwrap(), uri.as_str());
    let tested_uri = format!("mongodb://{}/?directConnection=true", tested.address());
    let mut terminal = Terminal {
        names: vec![
            (rules.to_owned(), "rules.yaml"),
            (uri.to_owned(), "mongodb://db.example.com/?replicaSet=rs0"),
            (plain.uri(), "mongodb://copy1.example.com/?replicaSet=rs0"),
            (tested_uri.clone(), "mongodb://docward-test.example.com/"),
            (plain.address(), "copy1.example.com:27017"),
            (tested.address(), "docward-test.example.com:27017"),
            (format!("{}/", folder.path().display()), ""),
        ],
        transcript: String::new(),
    };
    let configuration = folder.path().join("docward.yaml");
    let yaml = format!("upstream: '{uri}'\nservice: '{uri}'\nrules: ['{rules}']\n");
    std::fs::write(&configuration, yaml).unwrap();
    let connection = ["--config", configuration.to_str().unwrap()];

    // A new collection, and what is stored in it already.
    let bad = doc! {"insert": "orders", "documents": [
        {"_id": 1, "status": "new"}, {"_id": 2, "status": "new", "version": 3}, {"_id": 3, "status": "new"},
    ]};
    assert_eq!(database.command("shop", bad).get_i32("n").unwrap(), 3);
    let printed = terminal.run(&["check", rules, "--upstream", uri, "--data"], 0);
    assert!(
        printed.contains("`orders-versions`: 2 documents of shop.orders without `version` (_id: 1, 3)"),
        "{printed}"
    );
    assert!(printed.contains("docward backfill orders-versions sets"), "{printed}");
    let printed = terminal.run(&[&["backfill", "orders-versions"], &connection[..]].concat(), 0);
    assert!(printed.contains("found 2, set 2"), "{printed}");
    assert_eq!(versions(&database), [Some(1), Some(3), Some(1)]);

    // In shadow mode nothing is changed, and the only application that works by day counts as rewritten.
    let desk = orders(&proxy.address(), "desk").await;
    let old = read(&desk, 1).await;
    assert_eq!(save(&desk, &old, "packed").await.unwrap(), 1);
    assert_eq!(versions(&database), [Some(1), Some(3), Some(1)], "the rule is in shadow mode");
    let line = proxy.wait_for_log("outcome=\"shadow-rewrite\"");
    assert!(line.contains("rule=\"orders-versions\"") && line.contains("app=\"desk\""), "{line}");

    // Enforced: the second of two saves of one order is a conflict.
    proxy.rewrite_rules(&RULES.replace("    mode: shadow\n", ""));
    proxy.signal("HUP");
    proxy.wait_for_log("rules loaded");
    let old = read(&desk, 1).await;
    assert_eq!(save(&desk, &old, "sent").await.unwrap(), 1);
    assert_eq!(code(&save(&desk, &old, "lost").await.unwrap_err()), CONFLICT);
    assert_eq!(stored(&database)[0], doc! {"_id": 1, "status": "sent", "version": 2});

    // The incident: at night the invoices fail.
    let invoices = orders(&proxy.address(), "invoices").await;
    let error = invoice(&invoices, 3).await.unwrap_err();
    assert!(code(&error) == CONFLICT && error.to_string().contains("orders-versions"), "{error}");
    assert_eq!(stored(&database)[2], doc! {"_id": 3, "status": "new", "version": 1});
    let reason = "incident 12: the invoices fail";
    let wanted = ["mode", "orders-versions", "shadow", "--for", "1h", "--reason", reason];
    let printed = terminal.run(&[&wanted, &connection[..]].concat(), 0);
    assert!(printed.contains("every docward of the deployment follows within 2 s"), "{printed}");
    let line = proxy.wait_for_log("the rule's mode is overridden");
    assert!(line.contains(reason), "{line}");
    assert_eq!(invoice(&invoices, 3).await.unwrap(), 1);
    let printed = terminal.run(&[&["mode", "--list"], &connection[..]].concat(), 0);
    assert!(printed.contains("orders-versions") && printed.contains(reason), "{printed}");

    // The same applications through a recorder, and their traffic to two copies of the data.
    let (incident, corrected) = (folder.path().join("incident.bson"), folder.path().join("corrected.bson"));
    let record = async |file: &Path, is_corrected: bool| {
        let copy = stored(&database);
        let recorder = Docward::before(uri).subcommand("record").argument(file.to_str().unwrap());
        let mut recorder = recorder.start();
        let desk = orders(&recorder.address(), "desk").await;
        let old = read(&desk, 1).await;
        let status = if is_corrected { "delivered" } else { "received" };
        assert_eq!(save(&desk, &old, status).await.unwrap(), 1);
        let invoices = orders(&recorder.address(), "invoices").await;
        let done = if is_corrected { invoice_corrected(&invoices, 1).await } else { invoice(&invoices, 2).await };
        assert_eq!(done.unwrap(), 1);
        assert!(recorder.terminate().success(), "{}", recorder.log().join("\n"));
        [&plain, &ruled].iter().for_each(|target| restore(target, &copy));
    };
    let plain_uri = plain.uri();
    let replay = |file: &Path, terminal: &mut Terminal| {
        let file = file.to_str().unwrap();
        terminal.run(&["replay", file, "--to", &plain_uri, "--compare", &tested_uri, "--speed", "max"], 2)
    };
    record(&incident, false).await;
    let printed = replay(&incident, &mut terminal);
    assert!(printed.contains("1 × update shop.orders"), "{printed}");
    assert!(
        printed.contains("orders-versions") && printed.contains("replaceOne({_id}, {_id, status, invoiced})"),
        "{printed}"
    );
    // The application is corrected: it sets its field only. The rule adds the versions, and nothing else differs.
    terminal.transcript += "# the invoices are corrected: updateOne with $set\n";
    record(&corrected, true).await;
    let printed = replay(&corrected, &mut terminal);
    assert!(printed.contains("compared replies: 3 of 3 are equal"), "{printed}");
    assert!(printed.contains("fields that differ: version (1)"), "{printed}");

    // What was saved without a version meanwhile gets one, and the rule is enforced again.
    let printed = terminal.run(&["check", rules, "--upstream", uri, "--data"], 0);
    assert!(
        printed.contains("`orders-versions`: 2 documents of shop.orders without `version` (_id: 2, 3)"),
        "{printed}"
    );
    terminal.run(&[&["backfill", "orders-versions"], &connection[..]].concat(), 0);
    terminal.run(&[&["mode", "orders-versions", "--clear"], &connection[..]].concat(), 0);
    proxy.wait_for_log("the override of the rule's mode ended");
    let old = read(&desk, 1).await;
    assert_eq!(save(&desk, &old, "returned").await.unwrap(), 1);
    assert_eq!(code(&save(&desk, &old, "lost").await.unwrap_err()), CONFLICT);
    assert_eq!(invoice_corrected(&invoices, 1).await.unwrap(), 1);
    assert_eq!(
        stored(&database)[0],
        doc! {"_id": 1, "status": "returned", "version": 4, "invoiced": true},
        "a save and an update, each with a version of its own"
    );
    println!("{}", terminal.transcript);
}
