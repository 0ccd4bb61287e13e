//! Subcommands that use a deployment, without one: each prints the server's address and the reason in one line.

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

#[test]
fn the_address_and_the_reason_are_printed_instead_of_the_topology() {
    let folder = tempfile::tempdir().unwrap();
    let (rules, config) = (folder.path().join("rules.yaml"), folder.path().join("docward.yaml"));
    std::fs::write(&rules, RULES).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let uri = format!("mongodb://{address}/?serverSelectionTimeoutMS=500");
    std::fs::write(&config, format!("upstream: '{uri}'\nservice: '{uri}'\nrules: [{}]\n", rules.display())).unwrap();
    let (rules, config) = (rules.to_str().unwrap(), config.to_str().unwrap());
    let expected = format!("{address}: connection refused");
    for command in [
        &["check", rules, "--upstream", &uri][..],
        &["check", rules, "--upstream", &uri, "--data"],
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
    ] {
        let done = docward(command);
        let printed = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{command:?}: {printed}");
        assert!(printed.contains(&expected) && printed.lines().count() == 1, "{command:?}: {printed}");
        assert!(!printed.contains("Topology") && !printed.contains("Kind:"), "{command:?}: {printed}");
    }
}
