//! Subcommands that use a deployment and cannot: each prints the server's address and the reason in one line, and the flag
//! to correct.

use std::time::{Duration, Instant};

use bson::doc;
use support::mongod::Mongod;
use support::process::{docward, free_port};

const RULES: &str = "\
version: 1
rules:
  - { name: jobs, namespace: d.jobs, queue: { lease: 5m } }
  - { name: all, namespace: 'd.*s', replacement: { policy: check_version, version: version } }
  - { name: devices, namespace: d.devices, timestamps: { source: at, per: document } }
  - { name: names, namespace: d.users, copies: [{ into: d.posts, key: user, fields: { name: user_name } }] }
  - { name: people, namespace: d.people, schema_version: { field: v, current: 3, minimum: 2 } }
  - { name: books, namespace: d.books, history: { into: d.books_history, keep: 30d } }
";

/// Every subcommand that uses a deployment.
fn subcommands<'a>(rules: &'a str, uri: &'a str, config: &'a str) -> Vec<Vec<&'a str>> {
    let each: [&[&str]; 12] = [
        &["check", rules, "--upstream", uri, "--service", uri],
        &["check", rules, "--upstream", uri, "--service", uri, "--data"],
        &["backfill", "jobs", "--config", config],
        &["backfill", "all", "--config", config],
        &["backfill", "names", "--config", config],
        &["mode", "jobs", "shadow", "--for", "1h", "--reason", "incident 12", "--config", config],
        &["mode", "jobs", "--clear", "--config", config],
        &["mode", "--list", "--config", config],
        &["reset-clock", "--rule", "devices", "--config", config],
        &["reset-clock", "--rule", "devices", "--dry-run", "--config", config],
        &["repair", "--rule", "names", "--config", config],
        &["history", "d.books", "1", "--config", config],
    ];
    each.iter().map(|command| command.to_vec()).collect()
}

/// Runs every subcommand with this connection string; returns each one with its exit code and what it prints to stderr.
fn run_all(uri: &str) -> Vec<(String, Option<i32>, String)> {
    let folder = tempfile::tempdir().unwrap();
    let (rules, config) = (folder.path().join("rules.yaml"), folder.path().join("docward.yaml"));
    std::fs::write(&rules, RULES).unwrap();
    std::fs::write(&config, format!("upstream: '{uri}'\nservice: '{uri}'\nrules: [{}]\n", rules.display())).unwrap();
    let commands = subcommands(rules.to_str().unwrap(), uri, config.to_str().unwrap());
    let run = |command: &Vec<&str>| {
        let done = docward(command);
        (command.join(" "), done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    commands.iter().map(run).collect()
}

#[test]
fn the_address_and_the_reason_are_printed_instead_of_the_topology() {
    let address = format!("127.0.0.1:{}", free_port());
    let expected = format!("{address}: connection refused");
    for (command, code, printed) in run_all(&format!("mongodb://{address}/?serverSelectionTimeoutMS=500")) {
        assert_eq!(code, Some(1), "{command}: {printed}");
        assert!(printed.contains(&expected) && printed.lines().count() == 1, "{command}: {printed}");
        assert!(!printed.contains("Topology") && !printed.contains("Kind:"), "{command}: {printed}");
    }
}

#[test]
fn a_wrong_set_name_is_named_at_once() {
    let address = Mongod::shared().address();
    let expected = format!(
        "--service: {address} is a member of the replica set 'rs0', but the connection string has replicaSet=rs7; correct \
         one of them"
    );
    for options in ["replicaSet=rs7", "replicaSet=rs7&directConnection=true"] {
        let began = Instant::now();
        let all = run_all(&format!("mongodb://{address}/?{options}"));
        let took = began.elapsed() / all.len() as u32;
        assert!(took < Duration::from_secs(2), "{took:?} for each");
        for (command, code, printed) in all {
            let usage = if command.starts_with("check") { 1 } else { 64 };
            assert!(code == Some(usage) && printed.contains(&expected), "{command}: {code:?} {printed}");
        }
    }
}

/// The flag, and what the user lacks.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_lacks_something_is_named_with_its_flag() {
    let protected = Mongod::shared_with_access_control();
    let root = connect_as(protected, "root:secret").await;
    let create = doc! {"createUser": "bystander", "pwd": "secret", "roles": [{"role": "read", "db": "other"}]};
    root.database("admin").run_command(create).await.unwrap();
    let uri = |user: &str| format!("mongodb://{user}{}/?authSource=admin&directConnection=true", protected.address());
    let lists = |command: &str| command.starts_with("check") || command.contains(" all ");
    let privilege = |command: &str| match command {
        _ if command.contains("jobs shadow") => "the privilege find on docward.modes",
        _ if command.contains("--list") || command.contains("--clear") => "the privilege find on docward.modes",
        _ if command.contains("names") => "the privilege find on d.posts",
        _ if command.contains("--dry-run") => "the privilege find on d.devices",
        _ if command.contains("devices") => "the privilege update or insert on d.devices",
        _ if command.contains("books") => "the privilege find on d.books",
        _ => "the privilege find on d.jobs",
    };
    for (user, words) in [
        ("bystander:wrong@", Some("cannot log in")),
        ("", Some("the server requires a login: give docward's own user with --service")),
        ("bystander:secret@", None),
    ] {
        for (command, code, printed) in run_all(&uri(user)) {
            let expected = match words {
                Some("cannot log in") => "docward's own user (--service) cannot log in: ",
                _ if lists(&command) => "give --service a user with the role read",
                Some(words) => words,
                None => privilege(&command),
            };
            assert!(code == Some(1) && printed.contains(expected), "{user} {command}: {printed}");
            assert!(printed.lines().count() == 1, "{user} {command}: {printed}");
        }
    }
}

async fn connect_as(mongod: &Mongod, user: &str) -> mongodb::Client {
    mongodb::Client::with_uri_str(format!("mongodb://{user}@{}/?directConnection=true", mongod.address()))
        .await
        .unwrap()
}

#[test]
fn missing_rules_are_named_with_their_flag() {
    for command in [&["backfill", "jobs"][..], &["repair", "--rule", "jobs"], &["reset-clock", "--rule", "jobs"]] {
        let done = docward(command);
        let printed = String::from_utf8(done.stderr).unwrap();
        let expected = "no rule is named `jobs`: name rule files with --rules (rules: in docward.yaml)";
        assert!(done.status.code() == Some(64) && printed.contains(expected), "{command:?}: {printed}");
    }
}
