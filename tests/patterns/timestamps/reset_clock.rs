//! `docward reset-clock`: after a source's clock was set back, its writes win again.

use std::process::{Command, Output};

use bson::doc;

use super::{time, views};
use support::mongod::Mongod;
use support::process::docward_executable;

fn reset_clock(rules: &str, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, rules).unwrap();
    let mut command = Command::new(docward_executable());
    command.arg("reset-clock").args(["--upstream", &Mongod::shared().uri()]).arg("--rules").arg(file).args(more);
    command.output().unwrap()
}

#[tokio::test]
async fn later_writes_win_after_a_reset() {
    let views = views().await;
    let fields = views.collection("fields");
    let update = async |n: i64, value: i32| {
        fields.update_one(doc! { "_id": 1 }, doc! { "$set": { "a": value, "at": time(n) } }).await.unwrap();
        fields.find_one(doc! { "_id": 1 }).await.unwrap().unwrap().get_i32("a").unwrap()
    };
    // The source's clock was fast and has been corrected, so its present times are older than the stored timestamps.
    fields.insert_one(doc! { "_id": 1, "a": 1, "at": time(1000) }).await.unwrap();
    assert_eq!(update(10, 2).await, 1);

    let name = views.direct.name();
    let rules = format!(
        "version: 1\nrules:\n  - {{ name: fields, namespace: \"{name}.*\", timestamps: {{ source: at }} }}\n  \
         - {{ name: others, namespace: {name}.others, timestamps: {{ source: at }} }}\n"
    );
    views.store("others", [doc! { "_id": 1, "last_modified": { "a": time(1) } }]).await;
    let counted = reset_clock(&rules, &["--rule", "fields", "--dry-run"]);
    let printed = String::from_utf8(counted.stdout).unwrap();
    assert!(
        counted.status.success() && printed.contains(&format!("{name}.fields: 1 documents have timestamps")),
        "{printed}"
    );
    assert_eq!(update(11, 3).await, 1, "a dry run changes nothing");

    let reset = reset_clock(&rules, &["--rule", "fields"]);
    assert!(reset.status.success(), "{}", String::from_utf8_lossy(&reset.stderr));
    assert_eq!(update(12, 4).await, 4);
    assert_eq!(update(9, 5).await, 4, "afterwards the newest time must win again");
    // A more specific rule keeps its own timestamps.
    assert!(views.stored("others").await[0].contains_key("last_modified"));

    let wrong = reset_clock(&rules, &["--rule", "felds"]);
    assert_eq!(wrong.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("no loaded rule is named"));
}
