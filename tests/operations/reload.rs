//! Rule changes while docward runs: by file and by SIGHUP, all or nothing, without effect on client connections.

use std::path::Path;
use std::time::Duration;

use bson::{Document, doc};
use support::driver::{Views, code};
use support::mongod::Mongod;
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
    assert!(!docward.log().iter().any(|line| line.contains("keys other than")), "no key has changed");
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
    assert!(!docward.log().iter().any(|line| line.contains("keys other than")), "{:#?}", docward.log());
    write("docward.yml", "rules: [second.yaml]\nadvertise: elsewhere\n");
    await_rule(&docward, Some("'second'"));
    docward.wait_for_log("keys other than `rules` and `members` have changed");
    write("docward.yml", "rulse: []\n");
    docward.wait_for_log("rulse");
    write("docward.yml", "");
    docward.wait_for_log("names no `rules` any more");
    await_rule(&docward, Some("'second'"));
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
