//! The rule author's tools: `docward explain` and `docward test`, called as a DBA does.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::process::{docward_executable, docward_with_input as docward};

const RULES: &str = "\
version: 1
rules:
  - name: no-replace
    why: They erase each other's fields.
    namespace: shop.orders
    except: { apps: [migrator-*], users: [admin.root] }
    replacement: {}
    tests:
      - { given: 'db.orders.replaceOne({}, {a: 1})', expect: rejected }
      - { given: 'db.orders.replaceOne({}, {a: 1})', as: { app: migrator-7 }, expect: unchanged }
      - { given: 'db.orders.replaceOne({}, {a: 1})', as: { user: admin.root }, expect: unchanged }
  - name: promo
    namespace: shop.promo
    only: { apps: [promo-*] }
    replacement: {}
    tests:
      - { given: 'db.promo.replaceOne({}, {a: 1})', expect: unchanged }
      - { given: 'db.promo.replaceOne({}, {a: 1})', as: { app: promo-7 }, expect: rejected }
  - name: inbox
    namespace: shop.inbox
    mode: shadow
    bucket: { array: m, count: n, limit: 3, opened: t }
    tests:
      - given: 'db.inbox.updateOne({o: 1}, {$push: {m: 1}})'
        at: 2026-02-01T00:00:00Z
        becomes: >-
          db.inbox.updateOne({o: 1, n: {$lte: 2, $not: {$type: 'array'}}},
            {$push: {m: 1}, $inc: {n: 1}, $setOnInsert: {t: new Date()}}, {upsert: true})
";

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Creates a folder with these files; returns the path of the first.
fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let first = folder.path().join(files[0].0);
    (folder, first)
}

fn explain(more: &[&str], input: &str) -> Value {
    let (_folder, rules) = folder(&[("rules.yaml", RULES)]);
    let fixed = ["explain", "--db", "shop", "--format", "json", "--rules", rules.to_str().unwrap()];
    let done = docward(&[&fixed, more].concat(), input);
    assert!(done.status.success(), "{}", text(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn notes_show_what_depends_on_stored_documents() {
    let notes = |command| explain(&["--as-user", "shop.ada", command], "")["notes"].as_array().unwrap().clone();
    let upsert = "db.orders.replaceOne({_id: 1}, {a: 1}, {upsert: true})";
    assert_eq!(
        notes(upsert),
        [
            json!(
                "docward rejects it only if this query finds a document: db.orders.find({_id: 1}, {_id: 1}).limit(1)"
            ),
            json!(
                "if the query finds none, docward sends \
                 db.orders.replaceOne({_id: 1, $and: [{_id: {$exists: false}}]}, {a: 1}, {upsert: true})"
            ),
        ]
    );
    let update = "db.orders.replaceOne({_id: 1}, {a: 1})";
    assert_eq!(notes(update)[1], json!("if the query finds none, the client gets n: 0"));
    let unknown =
        "docward does not know the command `newCommand`, and forwards it because it names no protected collection";
    assert_eq!(notes("db.runCommand({newCommand: 1})"), [json!(unknown)]);
    assert!(notes("db.orders.updateOne({_id: 1}, {$set: {a: 1}})").is_empty());
    assert_eq!(notes("db.order.updateOne({_id: 1}, {$set: {a: 1}})"), [json!("no rule applies to shop.order")]);
    assert!(notes("db.adminCommand({createRole: 'order', privileges: [], roles: []})").is_empty());
}

#[test]
fn explain_answers_in_json() {
    const REPLACE: &str = "db.orders.replaceOne({_id: 1}, {a: 1})";
    let rejected = explain(&[REPLACE], "");
    assert_eq!(
        (&rejected["verdict"], &rejected["shell"], &rejected["command"]),
        (&json!("reject"), &json!(null), &json!(null))
    );
    let rule = &rejected["rules"][0];
    let keys: Vec<&String> = rule.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["name", "pattern", "outcome", "reason", "hint"]);
    assert_eq!(
        (&rule["name"], &rule["pattern"], &rule["outcome"]),
        (&json!("no-replace"), &json!("replacement"), &json!("reject"))
    );
    assert!(rule["hint"].as_str().unwrap().contains("updateOne"), "{rule}");
    for client in [["--as-app", "migrator-1"], ["--as-user", "admin.root"]] {
        let excepted = explain(&[&client[..], &[REPLACE]].concat(), "");
        assert_eq!(
            (&excepted["verdict"], &excepted["rules"][0]["outcome"]),
            (&json!("forward"), &json!("except-reject"))
        );
        assert_eq!(excepted["shell"], json!(REPLACE));
    }
    assert_eq!(explain(&["--as-app", "shop", REPLACE], "")["verdict"], "reject");

    let others = explain(&["--as-app", "shop", "db.promo.replaceOne({}, {a: 1})"], "");
    assert_eq!((&others["verdict"], &others["rules"]), (&json!("forward"), &json!([])));
    assert_eq!(others["notes"], json!(["not applied to appName shop (`only`): 'promo'"]));

    // Two commands give a list, in which each statement has its own verdict.
    let bulk = "db.orders.bulkWrite([{insertOne: {document: {_id: 1}}}, {deleteOne: {filter: {}}}, {deleteMany: {filter: {}}}])";
    let explained = explain(&[bulk], "");
    assert_eq!((&explained["verdict"], explained["command"].as_array().unwrap().len()), (&json!("forward"), 2));
    assert_eq!(explained["statements"].as_array().unwrap().len(), 2);
    let shadow = explain(&["db.inbox.updateOne({o: 1}, {$push: {m: 1}})"], "");
    assert_eq!((&shadow["verdict"], &shadow["rules"][0]["outcome"]), (&json!("forward"), &json!("shadow-rewrite")));
    assert!(shadow["rules"][0]["reason"].as_str().unwrap().contains("with room"), "{shadow}");
}

/// The output on a terminal.
fn on_a_terminal(command: &str) -> String {
    let command = format!("{} {command}", docward_executable().display());
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
    let done = script.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    text(&done.stdout)
}

#[test]
fn a_terminal_gets_colours_and_progress_and_a_pipe_does_not() {
    const EXPLAIN: &str = "explain --rules rules/bounds.yaml --db library 'db.books.updateOne({_id: 1}, \
                           {$inc: {available: -1}, $push: {checkout: 1}})'";
    let seen = on_a_terminal(EXPLAIN);
    assert!(seen.contains("\u{1b}[31m-   {_id: 1},") && seen.contains("\u{1b}[32m+   {_id: 1, available"), "{seen}");
    let piped = on_a_terminal(&format!("{EXPLAIN} | cat"));
    assert!(piped.contains("-   {_id: 1},") && !piped.contains('\u{1b}'), "{piped}");
    let seen = on_a_terminal("check docs/examples/warnings.yaml");
    assert!(seen.contains("warning[R0029]") && seen.contains('\u{1b}'), "{seen}");
    const AUDIT: &str = "audit --rules rules/bounds.yaml docs/examples/mongod.log";
    let seen = on_a_terminal(AUDIT);
    assert!(seen.contains(" %  ") && seen.contains("books-no-oversell"), "{seen}");
    let piped = on_a_terminal(&format!("{AUDIT} 2>&1 | cat"));
    assert!(!piped.contains(" %  ") && piped.contains("books-no-oversell"), "{piped}");
}

#[test]
fn explain_reads_stdin_extended_json_and_the_time() {
    let command = r#"{"insert": "x", "documents": [{"_id": {"$numberLong": "5"}}], "$db": "other"}"#;
    let explained = explain(&[], command);
    assert_eq!(explained["shell"], json!("db.getSiblingDB(\"other\").x.insertOne({_id: Long(\"5\")})"));
    assert_eq!(explained["command"]["documents"][0]["_id"]["$numberLong"], "5");
    let explained = explain(&["--at", "2026-02-01T00:00:00Z", "db.x.insertOne({at: new Date()})"], "");
    assert_eq!(explained["shell"], json!("db.x.insertOne({at: ISODate(\"2026-02-01T00:00:00Z\")})"));
}

#[test]
fn a_command_that_is_not_utf_8_is_refused() {
    let (_folder, rules) = folder(&[("rules.yaml", RULES)]);
    let latin = rules.with_file_name("latin");
    std::fs::write(&latin, b"db.orders.find({a: '\xe9'})").unwrap();
    let mut explain = Command::new(docward_executable());
    explain.args(["explain", "--rules", rules.to_str().unwrap()]).stdin(std::fs::File::open(latin).unwrap());
    let done = explain.output().unwrap();
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(1), String::new()));
    assert!(text(&done.stderr).contains("from stdin: it is not UTF-8; convert it first"), "{}", text(&done.stderr));
}

#[test]
fn explain_reports_errors_in_its_arguments() {
    const LOGGED: &str =
        r#"{"t": {"$date": "2026-01-31T12:00:00Z"}, "s": "I", "c": "COMMAND", "id": 51803, "attr": {}}"#;
    let (_folder, rules) = folder(&[("rules.yaml", RULES), ("docward.yaml", "rules: [rules.yaml]\n")]);
    let config = rules.with_file_name("docward.yaml");
    let rules = rules.to_str().unwrap();
    for (arguments, code, message) in [
        (vec!["--rules", rules, "db.orders.find("], 1, "--> command:1:16"),
        (vec!["--rules", rules], 1, "there is no command"),
        (vec!["db.orders.find()"], 64, "--rules"),
        (vec!["--rules", "nowhere", "db.orders.find()"], 64, "no such file"),
        (vec!["--rules", rules, "--at", "noon", "db.orders.find()"], 64, "2026-01-31T12:00:00Z"),
        (vec!["--rules", rules, "--as-user", "root", "db.orders.find()"], 64, "AUTHDB.USER"),
        (vec!["--rules", rules, "--db", "library.books", "db.orders.find()"], 1, "'library.books' cannot be the name"),
        (vec!["--rules", rules, "--db", "", "db.orders.find()"], 1, "'' cannot be the name of a database"),
        (vec!["--rules", rules, "use a/b\ndb.orders.find()"], 1, "'a/b' cannot be the name of a database"),
        (vec!["--rules", rules, "db.getSiblingDB('a.b').orders.find()"], 1, "the name of a database"),
        (vec!["--rules", rules, "{find: 'orders', $db: 'a.b'}"], 1, "the name of a database"),
        (vec!["--rules", rules, LOGGED], 1, "read it with `docward audit`"),
        (vec!["--rules", rules, r#"{"op": "query", "ns": "a.b", "command": {"find": "b"}}"#], 1, "docward audit"),
        (vec!["--config", config.to_str().unwrap(), "db.orders.find()"], 0, ""),
    ] {
        let done = docward(&[&["explain"][..], &arguments].concat(), "");
        assert_eq!(done.status.code(), Some(code), "{arguments:?}");
        assert!(text(&done.stderr).contains(message), "{}", text(&done.stderr));
    }
    let done = docward(&["explain", "--rules", rules, "--format", "json", "db.orders.fnd()"], "");
    let diagnostics: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(
        (&diagnostics[0]["line"], &diagnostics[0]["column"], &diagnostics[0]["help"]),
        (&json!(1), &json!(11), &json!("did you mean `find`?"))
    );
}

#[test]
fn the_rules_that_come_with_docward_pass_their_own_tests() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
    let done = docward(&["test", rules.to_str().unwrap()], "");
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    // Each rule has tests.
    for file in std::fs::read_dir(&rules).unwrap().map(|entry| entry.unwrap().path()) {
        let content = std::fs::read_to_string(&file).unwrap();
        let tested = content.matches("\n    tests:").count();
        assert_eq!(content.matches("\n  - name: ").count(), tested, "{}", file.display());
    }
}

#[test]
fn a_failed_test_reports_the_difference_and_its_position() {
    let good = ("rules.yaml", RULES);
    let (_folder, rules) = folder(&[good]);
    let done = docward(&["test", rules.to_str().unwrap()], "");
    assert_eq!(text(&done.stdout), "6 tests passed\n", "{}", text(&done.stderr));

    let broken = RULES.replace("{$lte: 2,", "{$lt: 3,").replace("app: migrator-7", "app: other");
    let (_folder, rules) = folder(&[("rules.yaml", &broken)]);
    let rules = rules.to_str().unwrap();
    let done = docward(&["test", rules], "");
    assert_eq!(done.status.code(), Some(1));
    let printed = text(&done.stdout);
    for part in [
        &format!("FAILED {rules}:10:9 (rule 'no-replace')"),
        "expected no change, but it is rejected: docward rule 'no-replace'",
        &format!("FAILED {rules}:24:9 (rule 'inbox')"),
        "    -   {o: 1, n: {$lt: 3, $not: {$type: \"array\"}}},\n    +   {o: 1, n: {$lte: 2, $not: {$type: \"array\"}}},\n",
        "6 tests: 4 passed, 2 failed",
    ] {
        assert!(printed.contains(part), "{part} is not in: {printed}");
    }
    let done = docward(&["test", rules, "--format", "json"], "");
    let results: Value = serde_json::from_slice(&done.stdout).unwrap();
    let passed: Vec<_> = results.as_array().unwrap().iter().map(|one| one["passed"].as_bool().unwrap()).collect();
    assert_eq!(passed, [true, false, true, true, true, false]);
}

#[test]
fn each_kind_of_failure_reports_the_actual_result() {
    let rule = |pattern: &str, test: &str| {
        format!(
            "version: 1\nrules:\n  - name: r\n    namespace: d.c\n    {pattern}\n    tests:\n      - {{ {test} }}\n"
        )
    };
    for (pattern, test, message) in [
        ("replacement: {}", "given: 'db.c.find()', expect: rejected", "expected a rejection, but it is sent unchanged"),
        (
            "replacement: {}",
            "given: 'db.c.find()', becomes: 'db.c.drop()'",
            "but it is sent unchanged\n    - db.c.drop()\n    + db.c.find(\n",
        ),
        (
            "bounds: { field: n, min: 0 }",
            "given: 'db.c.updateOne({}, {$inc: {n: -1}})', expect: unchanged",
            "expected no change, but it is sent as\n",
        ),
        (
            "bounds: { field: n, min: 0 }",
            "given: 'db.c.updateOne({}, {$inc: {n: -1}})', expect: rejected",
            "expected a rejection, but it is sent as\n",
        ),
        (
            "tree: {}",
            "given: 'db.c.insertOne({parent: 1, _id: 2})', becomes: 'db.c.insertOne({parent: 1, _id: 2})'",
            "the result depends on the server: docward first reads stored documents: db.c.find(",
        ),
    ] {
        let (_folder, rules) = folder(&[("rules.yaml", &rule(pattern, test))]);
        let done = docward(&["test", rules.to_str().unwrap()], "");
        assert_eq!(done.status.code(), Some(1), "{test}");
        assert!(text(&done.stdout).contains(message), "{message} is not in: {}", text(&done.stdout));
    }
}

#[test]
fn statements_after_a_rejected_one_are_not_executed() {
    let rule = "version: 1\nrules:\n  - { name: r, namespace: d.c, bounds: { field: n, min: 0 } }\n";
    let (_folder, rules) = folder(&[("rules.yaml", rule)]);
    for (ordered, last) in [("true", "not executed, because the batch is ordered"), ("false", "forward")] {
        let command = format!("db.c.insertMany([{{n: 1}}, {{n: -1}}, {{n: 2}}], {{ordered: {ordered}}})");
        let done = docward(&["explain", "--rules", rules.to_str().unwrap(), "--db", "d", &command], "");
        let shown = text(&done.stdout);
        let expected = format!(
            "statement 1 of 3: forward\nstatement 2 of 3: reject (rule 'r' rejects it)\nstatement 3 of 3: {last}\n"
        );
        assert!(shown.contains(&expected), "{shown}");
    }
}

#[test]
fn a_test_of_a_collection_without_the_rule_has_a_note() {
    let rule = "version: 1\nrules:\n  - name: r\n    namespace: d.c\n    replacement: {}\n    tests:\n      \
                - { given: 'db.c.find()', expect: unchanged }\n      - { given: 'db.d.replaceOne({}, {a: 1})', expect: unchanged }\n";
    let (_folder, rules) = folder(&[("rules.yaml", rule)]);
    let done = docward(&["test", rules.to_str().unwrap()], "");
    let shown = text(&done.stdout);
    assert!(done.status.success() && shown.contains(":8:9: the rule does not apply to d.d:"), "{shown}");
    assert!(shown.ends_with("2 tests passed\n") && shown.matches("does not apply").count() == 1, "{shown}");
}

#[test]
fn test_files_use_all_rules_of_their_folder() {
    let tests = "version: 1\ndatabase: shop\ntests:\n  - { given: 'db.orders.replaceOne({}, {a: 1})', expect: rejected }\n  \
                 - { given: 'db.inbox.updateOne({o: 1}, {$push: {m: 1}})', expect: unchanged }\n";
    let (folder, rules) = folder(&[("rules.yaml", RULES), ("all.test.yaml", tests)]);
    // A rule in shadow mode changes nothing here, unlike in its own test.
    for path in [rules.parent().unwrap(), &rules.with_file_name("all.test.yaml")] {
        let done = docward(&["test", path.to_str().unwrap()], "");
        assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    }
    std::fs::write(
        folder.path().join("none.test.yaml"),
        "version: 1\nrules: [other.yaml]\ntests: [{given: db.c.drop(), expect: unchanged}]\n",
    )
    .unwrap();
    let done = docward(&["test", folder.path().to_str().unwrap()], "");
    assert_eq!(done.status.code(), Some(64));
    let error = text(&done.stderr);
    assert!(error.contains("none.test.yaml:2:9") && error.contains("other.yaml"), "{error}");
}

#[test]
fn a_rule_in_shadow_mode_shows_what_it_would_send() {
    let (_kept, rules) = folder(&[("rules.yaml", RULES)]);
    let push = "db.inbox.updateOne({o: 1}, {$push: {m: 1}})";
    let shown = |more: &[&str]| {
        let arguments = [&["explain", "--rules", rules.to_str().unwrap(), "--db", "shop", push], more].concat();
        text(&docward(&arguments, "").stdout)
    };
    let shown_text = shown(&[]);
    let (as_it_is, if_enforced) = shown_text.split_once("if these rules were enforced: ").expect("nothing is printed");
    assert!(as_it_is.starts_with("forward: ") && !as_it_is.contains("$lte"), "{as_it_is}");
    assert!(if_enforced.starts_with("rewrite: ") && if_enforced.contains("n: {$lte: 2, $not"), "{if_enforced}");
    let json: Value = serde_json::from_str(&shown(&["--format", "json"])).unwrap();
    assert_eq!((&json["verdict"], &json["enforced"][0]["verdict"]), (&json!("forward"), &json!("rewrite")));
    assert_eq!((&json["difference"], &json["shell"]), (&Value::Null, &json!(push)));
    let enforced = |key: &str| json["enforced"][0][key].as_str().unwrap();
    let difference = enforced("difference");
    let has = |sign: char, part: &str| difference.lines().any(|line| line.starts_with(sign) && line.contains(part));
    assert!(has('-', "{o: 1},") && has('+', "n: {$lte: 2, $not"), "{difference}");
    assert!(enforced("shell").contains("n: {$lte: 2, $not"), "{json:#}");
}
