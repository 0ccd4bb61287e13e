//! `docward.yaml` on the command line: its errors have the same form as those of rule files, `check` and `serve`
//! report the same ones, and the documented example is correct.

use std::path::Path;

use support::process::{docward, repository};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A folder with this configuration, one good and one bad rule file.
fn folder(configuration: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("docward.yaml", configuration);
    write("good.yaml", "version: 1\nrules:\n  - {name: a, namespace: x.y, replacement: {}}\n");
    write("bad.yaml", "version: 2\nrules: []\n");
    write("empty", "\n");
    let path = folder.path().join("docward.yaml").display().to_string();
    (folder, path)
}

#[test]
fn all_errors_are_reported_together_with_their_positions() {
    let (_folder, path) = folder("listen: nowhere\nadvertize: x\nlimits: {connections: many}\nrules: [good.yaml]\n");
    for arguments in [&["check", "--config", &path][..], &["serve", "--config", &path]] {
        let output = docward(arguments);
        assert_eq!(output.status.code(), Some(if arguments[0] == "check" { 1 } else { 64 }));
        let shown = text(&output.stderr);
        for words in [
            "docward.yaml:1:9",
            "write HOST:PORT",
            "docward.yaml:2:1",
            "did you mean `advertise`?",
            "docward.yaml:3:23",
            "limits: {connections: many}",
            "3 errors",
        ] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
    }
    let flags = docward(&["serve", "--listen", "nowhere", "--upstream", "x:1", "--idle-timeout", "5"]);
    assert_eq!(flags.status.code(), Some(64));
    assert!(text(&flags.stderr).contains("write HOST:PORT"));
}

#[test]
fn mistakes_are_reported_in_the_log_format_that_the_file_names() {
    let (_folder, path) = folder("log_format: json\nlistn: x\n");
    let output = docward(&["serve", "--config", &path]);
    assert_eq!(output.status.code(), Some(64));
    let shown = text(&output.stderr);
    assert!(shown.contains("`listn`"), "{shown}");
    for line in shown.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[test]
fn check_reads_the_files_that_the_configuration_names() {
    for (configuration, code, words) in [
        ("rules: [good.yaml]\n", 0, "1 rule is fine"),
        ("rules: [good.yaml, bad.yaml]\n", 1, "bad.yaml:1:10"),
        ("rules: [missing.yaml]\n", 1, "missing.yaml"),
        ("tls: {certificate: missing.pem}\nrules: good.yaml\n", 1, "missing.pem cannot be read"),
        ("pool: {size: 0}\n", 1, "docward.yaml:1:14"),
        ("pool: {size: 4, reserve: 4}\n", 1, "`reserve` must be less than `size`, which is 4"),
        ("pool: {credentials: store}\n", 1, "docward.yaml:1:21"),
        ("pool: {sise: 4}\n", 1, "did you mean `size`?"),
        ("upstream: localhost:27017\n", 1, "docward.yaml:1:11"),
        ("listen: [\n", 1, "docward.yaml:1:9"),
        ("listen: 43990\n", 1, "write HOST:PORT"),
        ("listen: 127.0.0.1:7\nadmin: 127.0.0.1:7\n", 1, "docward.yaml:2:8"),
        ("listen: 0.0.0.0:7\nadmin: 127.0.0.1:7\n", 1, "`admin` and `listen` listen on one address"),
        ("query_listen: 127.0.0.1:7\nadmin: 127.0.0.1:7\n", 1, "`admin` and `query_listen` listen on one address"),
        ("members: {'a:1': {listen: '[::1]:7'}, 'b:1': {listen: '[::1]:7'}}\n", 1, "`members.b:1` and `members.a:1`"),
        ("listen: 0.0.0.0:7\nquery_listen: 0.0.0.0:7\nadmin: 127.0.0.1:7\n", 1, "2 errors"),
        ("admin: 127.0.0.1:27018\n", 1, "`admin` and `listen`, by default, listen on one address"),
        ("query_listen: 0.0.0.0:27018\n", 1, "docward.yaml:1:15"),
        ("listen: 127.0.0.1:7\nupstream: mongodb://localhost:7/?replicaSet=rs0\n", 1, "docward.yaml:2:11"),
        ("admin: '[::1]:7'\nupstream: mongodb://[::1]:7\n", 1, "`upstream` names docward itself: `admin` is [::1]:7"),
        ("query_listen: 0.0.0.0:7\nservice: mongodb://a:1,127.0.0.1:7\n", 1, "`service` names docward itself"),
        ("members: {'localhost:7': {listen: '127.0.0.1:7'}}\n", 1, "`members` names docward itself"),
        ("upstream: mongodb://127.0.0.1:27018\n", 1, "docward itself: `listen`, by default, is"),
        ("listen: 127.0.0.1:7\nupstream: mongodb://127.0.0.2:7\nrules: good.yaml\n", 0, "fine"),
        ("advertise: 0.0.0.0\n", 1, "clients cannot connect to this"),
        ("hand_over: /tmp\nrules: good.yaml\n", 0, "`hand_over`, /tmp, is a folder"),
        ("query_listen: 127.0.0.1:7\nrules: good.yaml\n", 0, "the query listener rejects every read"),
        ("tls: {certificate: a.pem, key: b.pem, client_ca: c.pem}\n", 1, "3 errors"),
        ("upstream: mongodb://h/?tlsCAFile=/a.pem&tlsCertificateKeyFile=/b.pem\n", 1, "2 errors"),
        ("admin: 127.0.0.1:7\nlimits: {connections: 1e3, connections: .inf}\nlistn: x\n", 1, "4 errors"),
        ("rules: [~/rules]\n", 1, "`~` is not your home folder"),
        ("listen: 127.0.0.1:7\nadmin: 127.0.0.1:8\nrules: good.yaml\n", 0, "fine"),
        (
            "upstream: mongodb://a/?replicaSet=s\nrules: good.yaml\n",
            0,
            "connect to mongodb://127.0.0.1:27018/?replicaSet=s",
        ),
        (
            "upstream: mongodb://a/?replicaSet=s\nrules: good.yaml\ntopology: router\n",
            0,
            "to mongodb://127.0.0.1:27018/\n",
        ),
        ("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nrules: good.yaml\n", 0, "fine"),
        ("hand_over: /no/such/folder/a.sock\nrules: good.yaml\n", 0, "/no/such/folder, does not exist"),
        ("upstream: mongodb://u:${NO_SUCH_VARIABLE}@h/\n", 1, "docward.yaml:1:23"),
        ("admin_token: ${NO_SUCH}\n", 1, "the environment variable `NO_SUCH` is not set"),
        ("admin_token: ${NO_SUCH}\nrules: ['${NO_2}']\nlisten: x\n", 1, "3 errors"),
        ("listen: ${PATH\n", 1, "docward.yaml:1:9"),
        ("upstream: mongodb://u:$${PASSWORD}@h/?bogus=1\n", 1, "bogus"),
        ("service_file: none\n", 1, "docward.yaml:1:15"),
        ("service_file: none\n", 1, "/none: No such file"),
        ("service_file: empty\n", 1, "/empty: the file is empty"),
        ("upstream_file: good.yaml\n", 1, "good.yaml: this is not a valid connection string"),
        ("admin: 127.0.0.1:7\nadmin_token_file: good.yaml\n", 1, "printable ASCII characters"),
        ("service: mongodb://h/\nservice_file: none\n", 1, "`service_file` cannot be used with `service`"),
        ("rules: ['*.yaml']\n", 1, "docward.yaml:1:9"),
        ("upstream: mongodb://h/?tls=true&ssl=false\n", 1, "tls (or ssl) is false beside another option"),
        ("limits: {connections: 5, connections_per_address: 6}\nrules: good.yaml\n", 0, "address` has no effect"),
        ("upstream: mongodb://h/?maxPoolSize=5\nrules: good.yaml\n", 0, "maxPoolSize in `upstream` has no effect on"),
        ("rules: [rules/*.yml]\n", 1, "name the folder"),
        (
            "upstream: mongodb://h/?timeoutMS=5&uuidRepresentation=standard\nrules: good.yaml\n",
            0,
            "timeoutMS in `upstream` has no",
        ),
    ] {
        let (_folder, path) = folder(configuration);
        let output = docward(&["check", "--config", &path]);
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{configuration}: {shown}");
        assert!(shown.contains(words), "{configuration}: {shown}");
        assert_eq!(shown.contains(" fine (set"), code == 0, "{configuration}: {shown}");
    }
    let (_folder, path) = folder("listn: x\nrules: [bad.yaml]\n");
    let output = docward(&["check", "--config", &path, "--format", "json"]);
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&list[0]["line"], &list[0]["column"]), (&1.into(), &1.into()), "{list}");
    // The rules are read in spite of a mistake elsewhere.
    assert!(list[1]["file"].as_str().is_some_and(|file| file.ends_with("bad.yaml")), "{list}");
    let (_folder, path) = folder("listn: x\nrules: [good.yaml]\n");
    let output = docward(&["check", "--config", &path]);
    let shown = text(&output.stderr);
    assert!(output.status.code() == Some(1) && !shown.contains("there are no rules"), "{shown}");
    // So are its certificates and its token, at their keys.
    let (_folder, path) = folder(
        "listn: x\ntls:\n  certificate: good.yaml\nadmin: 127.0.0.1:9216\nadmin_token_file: none\nrules: [good.yaml]\n",
    );
    let output = docward(&["check", "--config", &path]);
    let shown = text(&output.stderr);
    for words in [
        "docward.yaml:1:1",
        "docward.yaml:3:16",
        "good.yaml contains no certificate",
        "docward.yaml:5:19",
        "none: no such file",
        "3 errors",
    ] {
        assert!(shown.to_lowercase().contains(words), "{words}: {shown}");
    }
    // Mistakes in one rule do not hide what two others do to each other.
    let (own, path) = folder("rules: .\n");
    let rule = |name: &str, pattern: &str| format!("  - {{name: {name}, namespace: x.z, {pattern}}}\n");
    let rules = ["version: 1\nrules:\n".to_owned(), rule("b", "bounds: {field: v, max: 1}")];
    let rules = rules.concat() + &rule("v", "schema_version: {field: v, current: 2, minimum: 1}");
    std::fs::write(own.path().join("two.yaml"), rules).unwrap();
    std::fs::write(own.path().join("Old.YAML"), "").unwrap();
    std::fs::remove_file(&path).unwrap();
    let output = docward(&["check", own.path().to_str().unwrap()]);
    let shown = text(&output.stderr);
    for words in ["R0033", "version 2 of the rule language", "Old.YAML: rule files end with .yaml or .yml"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    // A mistake in one key of the admin address is no mistake in another one.
    let (_folder, path) = folder("admin: nowhere\nadmin_token: short\nrules: [good.yaml]\n");
    let shown = text(&docward(&["check", "--config", &path]).stderr);
    assert!(shown.contains("2 errors"), "{shown}");
    let missing = docward(&["check", "--config", "/no/such/docward.yaml"]);
    assert!(text(&missing.stderr).contains("no such file"));
}

/// Files that the configuration names, at their lines.
#[test]
fn check_and_serve_report_the_same_unusable_files() {
    let long = "a".repeat(108);
    for (key, value, words) in [
        ("upstream", "mongodb://h/?tls=true&tlsCAFile=/none.pem", "/none.pem cannot be read"),
        ("upstream", "mongodb://h/?tlsCertificateKeyFile=/none.pem", "/none.pem cannot be read"),
        ("service", "mongodb+srv://h.example.com/?tlsCAFile=/none.pem", "/none.pem cannot be read"),
        ("service", "mongodb://h/?tls=true&tlsCertificateKeyFile=/dev/null", "/dev/null cannot be read"),
        ("hand_over", &long, "that of a Unix socket at most 107"),
        ("rules", "[good.yaml, none.yaml]", "no such file or folder"),
        ("rules", "none", "no such file or folder"),
    ] {
        let (_folder, path) = folder(&format!("{key}: {value}\n"));
        let column = key.len() + if value.starts_with('[') { 15 } else { 3 };
        let output = docward(&["check", "--config", &path]);
        let shown = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{key}: {value}: {shown}");
        assert!(shown.contains(&format!("docward.yaml:1:{column}")) && shown.contains(words), "{value}: {shown}");
        assert!(shown.matches("no such file").count() < 2, "{shown}");
        // Name servers are asked first.
        if !value.contains("+srv") {
            let output = docward(&["serve", "--config", &path]);
            let shown = text(&output.stderr);
            assert!(output.status.code() == Some(64) && shown.contains(words), "{key}: {value}: {shown}");
        }
    }
    // Rules of the command line replace those of the file.
    let (folder, path) = folder("rules: [none.yaml]\n");
    let good = folder.path().join("good.yaml").display().to_string();
    let output = docward(&["explain", "--config", &path, "--rules", &good, "db.c.drop()"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let flag = docward(&["serve", "--hand-over", &long]);
    assert!(flag.status.code() == Some(64) && text(&flag.stderr).contains("at most 107"), "{flag:?}");
}

/// The example, including its commented-out settings.
#[test]
fn the_documented_example_is_correct() {
    let example = repository("docs/docward.yaml");
    let output = docward(&["check", "--config", example.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let whole: Vec<String> = std::fs::read_to_string(&example).unwrap().lines().map(uncommented).collect();
    let (folder, path) = folder(&whole.join("\n").replace("../rules/replacement.yaml", "good.yaml"));
    let output = docward(&["check", "--config", &path]);
    let shown = text(&output.stderr);
    // The only errors are the missing files.
    assert!(shown.contains("/etc/docward/tls/server.pem cannot be read") && shown.contains("4 errors"), "{shown}");
    assert!(shown.contains("`admin_token_file`: /etc/docward/admin-token: No such file"), "{shown}");
    assert!(Path::new(&path).starts_with(folder.path()));
}

/// Removes the comment sign from a line with a setting.
fn uncommented(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    match line.trim_start().strip_prefix("# ").filter(|rest| is_setting(rest)) {
        Some(rest) => " ".repeat(indent) + rest,
        None => line.to_owned(),
    }
}

fn is_setting(text: &str) -> bool {
    const KEYS: [&str; 20] = [
        "service:",
        "resolver:",
        "tls:",
        "certificate:",
        "key:",
        "client_ca:",
        "connections:",
        "connections_per_address:",
        "idle_timeout:",
        "admin:",
        "admin_token_file:",
        "log_format:",
        "log_documents:",
        "otlp:",
        "pool:",
        "size:",
        "reserve:",
        "max_wait:",
        "max_lifetime:",
        "credentials:",
    ];
    KEYS.iter().any(|key| text.trim_start().starts_with(key))
}
