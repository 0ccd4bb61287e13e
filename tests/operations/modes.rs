//! Modes that operators override at run time: in every process, for a limited time, and seen wherever the rule is seen.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use bson::doc;
use serde_json::{Value, json};
use support::http::{HttpReply, get, request};
use support::mongod::Mongod;
use support::process::{TIMEOUT, docward_executable, poll};
use support::proxy::{Builder, Docward};
use support::raw::Client;

const TOKEN: &str = "0123456789abcdef";
/// Other docwards get 5 s to learn of a rule that is enforced again and has statements executed in transactions.
const FOLLOWED: Duration = Duration::from_secs(8);

fn rule(name: &str, more: &str) -> String {
    format!(
        "version: 1\nrules:\n  - {{ name: {name}, namespace: modes.{name}, replacement: {{ policy: reject }} }}\n{more}"
    )
}

/// Whether an unversioned replacement in the collection of this name is rejected.
fn rejects(docward: &Docward, name: &str) -> bool {
    rejects_from(&mut Client::connect(&docward.address()), name)
}

/// Like [`rejects`], for a client with this application name.
fn rejects_app(docward: &Docward, name: &str, app: &str) -> bool {
    let mut client = Client::connect(&docward.address());
    let about =
        doc! { "application": { "name": app }, "driver": { "name": "d", "version": "1" }, "os": { "type": "Linux" } };
    client.command("admin", doc! { "hello": 1, "client": about });
    rejects_from(&mut client, name)
}

fn rejects_from(client: &mut Client, name: &str) -> bool {
    let stored = doc! { "q": { "_id": 1 }, "u": { "$set": { "there": true } }, "upsert": true };
    Mongod::shared().command("modes", doc! { "update": name, "updates": [stored] });
    let replace = doc! { "update": name, "updates": [{ "q": { "_id": 1 }, "u": { "a": 1 } }] };
    let reply = client.command("modes", replace);
    match reply.get_array("writeErrors").map(|errors| errors[0].clone()) {
        Ok(error) => {
            assert!(error.to_string().contains("docward"), "{error}");
            true
        }
        Err(_) => false,
    }
}

fn await_rejects(docward: &Docward, name: &str, expected: bool, within: Duration) {
    let is_expected = || (rejects(docward, name) == expected).then_some(());
    poll(within, is_expected).unwrap_or_else(|| panic!("{name} is not followed within {within:?}"));
}

/// With a service connection and an admin address with a token.
fn before(rules: &str) -> Builder {
    with_token(rules).argument("--service").argument(Mongod::shared().uri())
}

fn with_token(rules: &str) -> Builder {
    Docward::before(&Mongod::shared().uri()).rules(rules).admin().argument("--admin-token").argument(TOKEN)
}

/// Runs `docward mode` with the rules of `docward`.
fn mode(docward: &Docward, arguments: &[&str]) -> Output {
    let mut command = Command::new(docward_executable());
    command.arg("mode").args(arguments).arg("--rules").arg(docward.rules_file());
    command.args(["--service", &Mongod::shared().uri()]).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn ask(docward: &Docward, method: &str, path: &str, body: &Value) -> HttpReply {
    let authorization = format!("Bearer {TOKEN}");
    let headers =
        [("Host", "localhost"), ("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    request(&docward.admin_address(), method, path, &headers, &body)
}

#[test]
fn every_process_follows_an_override_and_it_expires() {
    const RULE: &str = "follows-and-expires";
    let rules = rule(RULE, "");
    let processes = [before(&rules).start(), before(&rules).start()];
    assert!(processes.iter().all(|docward| rejects(docward, RULE)));
    let began = Instant::now();
    let set = mode(&processes[0], &[RULE, "shadow", "--for", "6s", "--reason", "incident 12"]);
    assert!(set.status.success() && text(&set).contains("follows within 2 s"), "{}", text(&set));
    for docward in &processes {
        await_rejects(docward, RULE, false, Duration::from_secs(2));
        let line = docward.wait_for_log("the rule's mode is overridden");
        assert!(["shadow", "incident 12", RULE].iter().all(|word| line.contains(word)), "{line}");
    }
    // It is shown wherever the rule is shown.
    let shown = ask(&processes[1], "GET", "/api/rules", &Value::Null).json();
    let written = &shown["rules"][0]["written"];
    assert_eq!((&written["mode"], &written["override"]["file_mode"]), (&json!("shadow"), &json!("enforce")));
    assert_eq!(written["override"]["reason"], "incident 12");
    let metrics = ask(&processes[1], "GET", "/metrics", &Value::Null).body;
    assert!(
        metrics.contains(&format!("docward_rule_mode_overrides{{rule=\"{RULE}\",mode=\"shadow\"}} 1")),
        "{metrics}"
    );
    processes[1].signal("USR1");
    let line = processes[1].wait_for_log(&format!("rule '{RULE}' has mode shadow instead of enforce until 20"));
    assert!(line.contains("incident 12"), "{line}");
    let listed = text(&mode(&processes[0], &["--list"]));
    assert!(listed.lines().any(|line| line.contains(RULE) && line.contains("enforce") && line.contains("incident 12")));
    // A process that starts now uses it from the first statement on.
    let late = before(&rules).start();
    assert!(!rejects(&late, RULE), "an override survives a restart");
    for docward in &processes {
        await_rejects(docward, RULE, true, TIMEOUT);
        docward.wait_for_log("the override of the rule's mode ended");
    }
    let lasted = began.elapsed();
    assert!(lasted > Duration::from_secs(5), "{lasted:?}");
    assert!(!text(&mode(&processes[0], &["--list"])).contains(RULE));
}

#[test]
fn an_override_for_some_clients_leaves_the_others() {
    const RULE: &str = "for-some-clients";
    let rules = rule(RULE, "");
    let processes = [before(&rules).start(), before(&rules).start()];
    let of_promo = ["--app", "promo-*", "--app", "web", "--user", "admin.ada"];
    let set = mode(&processes[0], &[&[RULE, "shadow", "--for", "1h", "--reason", "flood"][..], &of_promo].concat());
    const ONLY: &str = "apps promo-*, web; users admin.ada";
    assert!(text(&set).starts_with(&format!("{RULE}: shadow for {ONLY} until 20")), "{}", text(&set));
    for docward in &processes {
        poll(TIMEOUT, || (!rejects_app(docward, RULE, "promo-7")).then_some(())).expect("the override is not followed");
        assert!(rejects_app(docward, RULE, "shop") && rejects(docward, RULE));
        let line = docward.wait_for_log("the rule's mode is overridden");
        assert!(line.contains(ONLY), "{line}");
    }
    // It is shown wherever the override is shown.
    let only = json!({ "apps": ["promo-*", "web"], "users": ["admin.ada"] });
    let shown = ask(&processes[1], "GET", "/api/rules", &Value::Null).json();
    let written = &shown["rules"][0]["written"];
    assert_eq!((&written["mode"], &written["override"]["mode"]), (&json!("enforce"), &json!("shadow")));
    let list = ask(&processes[1], "GET", "/api/modes", &Value::Null).json();
    let listed = list["overrides"].as_array().unwrap().iter().find(|one| one["rule"] == RULE).unwrap();
    assert_eq!((&written["override"]["only"], &listed["only"]), (&only, &only));
    let listed = text(&mode(&processes[0], &["--list"]));
    assert!(listed.lines().any(|line| line.contains(RULE) && line.ends_with(&format!("flood; only for {ONLY}"))));
    let command =
        format!("db.{RULE}.replaceOne({{_id: 1}}, {{a: 1}})").replace(RULE, &format!("getCollection('{RULE}')"));
    for (app, verdict) in [("promo-7", "forward"), ("shop", "reject")] {
        let asked = json!({ "command": command, "database": "modes", "app": app });
        let explained = ask(&processes[1], "POST", "/api/explain", &asked).json();
        assert_eq!(explained["verdict"], verdict, "{explained}");
        assert!(explained["notes"].to_string().contains(&format!("has mode shadow for {ONLY} instead of enforce")));
    }
    processes[1].signal("USR1");
    processes[1].wait_for_log(&format!("rule '{RULE}' has mode shadow for {ONLY} instead of enforce until 20"));
    // A docward that reads only the mode, as versions before this one do, finds none that it could use for all clients.
    let stored = Mongod::shared().command("docward", doc! { "find": "modes", "filter": { "_id": RULE } });
    let stored = stored.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0].as_document().unwrap();
    assert!(stored.get_str("mode").is_err() && stored.get_document("mode").is_ok(), "{stored}");
    // The next override of the rule replaces it.
    assert!(mode(&processes[0], &[RULE, "shadow", "--for", "1h", "--reason", "r", "--app", "shop"]).status.success());
    poll(TIMEOUT, || rejects_app(&processes[0], RULE, "promo-7").then_some(())).expect("the override is not replaced");
    assert!(!rejects_app(&processes[0], RULE, "shop"));
    assert!(mode(&processes[0], &[RULE, "--clear"]).status.success());
    poll(TIMEOUT, || rejects_app(&processes[0], RULE, "shop").then_some(())).expect("the override does not end");
    for (wrong, words) in
        [(["--app", ""], "names no application"), (["--user", "ada"], "`ada` has no authentication database")]
    {
        let done = mode(&processes[0], &[&[RULE, "shadow", "--for", "1h", "--reason", "r"][..], &wrong].concat());
        assert!(done.status.code() == Some(1) && text(&done).contains(words), "{}", text(&done));
    }
}

#[test]
fn an_override_ends_on_request() {
    const RULE: &str = "ends-on-request";
    let docward = before(&rule(RULE, "")).start();
    let set = mode(&docward, &[RULE, "disabled", "--for", "1h", "--reason", "r"]);
    assert!(set.status.success(), "{}", text(&set));
    await_rejects(&docward, RULE, false, FOLLOWED);
    assert!(mode(&docward, &[RULE, "--clear"]).status.success());
    await_rejects(&docward, RULE, true, FOLLOWED);
    let again = mode(&docward, &[RULE, "--clear"]);
    assert!(again.status.code() == Some(1) && text(&again).contains("is not overridden"), "{}", text(&again));
    let unknown = mode(&docward, &["ends-on-requst", "shadow", "--for", "1h", "--reason", "r"]);
    assert!(text(&unknown).contains("did you mean `ends-on-request`?"), "{}", text(&unknown));
    let long = mode(&docward, &[RULE, "shadow", "--for", "31d", "--reason", "r"]);
    assert!(text(&long).contains("at most 30d"), "{}", text(&long));
}

#[test]
fn without_a_service_connection_only_one_process_has_the_override_and_it_needs_a_token() {
    const RULE: &str = "in-one-process";
    let rules = rule(RULE, "");
    let processes = [with_token(&rules).start(), with_token(&rules).start()];
    let wanted = json!({ "rule": RULE, "mode": "shadow", "for": "1h", "reason": "r", "by": "ada" });
    let set = ask(&processes[0], "POST", "/api/modes", &wanted).json();
    assert_eq!(set["shared"], false);
    assert!(set["note"].as_str().unwrap().contains("no `service` connection"), "{set}");
    assert!(!rejects(&processes[0], RULE) && rejects(&processes[1], RULE));
    let list = ask(&processes[0], "GET", "/api/modes", &Value::Null).json();
    assert_eq!((&list["overrides"][0]["by"], &list["overrides"][0]["file_mode"]), (&json!("ada"), &json!("enforce")));
    // `docward mode` asks that process.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let mut command = Command::new(docward_executable());
    command.args(["mode", RULE, "--clear", "--admin", &processes[0].admin_address(), "--admin-token-file"]).arg(file);
    let cleared = command.output().unwrap();
    assert!(cleared.status.success() && text(&cleared).contains("override ended"), "{}", text(&cleared));
    assert!(rejects(&processes[0], RULE));
    for (wrong, words) in [
        (json!({ "rule": "x", "mode": "shadow", "for": "1h", "reason": "r" }), "no loaded rule is named `x`"),
        (json!({ "rule": RULE, "mode": "of", "for": "1h", "reason": "r" }), "write enforce, shadow or disabled"),
        (json!({ "rule": RULE, "mode": "shadow", "reason": "r" }), "`for` is missing"),
        (json!({ "rule": RULE, "mode": "shadow", "for": "1h" }), "`reason` is missing"),
    ] {
        let reply = ask(&processes[0], "POST", "/api/modes", &wrong);
        assert!(reply.status == 422 && reply.body.contains(words), "{reply:?}");
    }
    // Without a token, any page in a browser on this machine could send the request.
    let open = Docward::before(&Mongod::shared().uri()).rules(&rules).admin().start();
    let headers = [("Host", "localhost"), ("Content-Type", "application/json")];
    let refused = request(&open.admin_address(), "POST", "/api/modes", &headers, &wanted.to_string());
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(get(&open.admin_address(), "/api/modes").status, 200);
    assert!(rejects(&open, RULE));
}

#[test]
fn a_reload_keeps_an_override_and_names_removed_rules() {
    const RULE: &str = "kept-by-reload";
    let docward = before(&rule(RULE, "")).start();
    assert!(mode(&docward, &[RULE, "shadow", "--for", "1h", "--reason", "r"]).status.success());
    await_rejects(&docward, RULE, false, Duration::from_secs(2));
    let other = "  - { name: other, namespace: modes.other, replacement: { policy: reject } }\n";
    docward.rewrite_rules(&rule(RULE, other));
    docward.wait_for_log("the reload keeps the override of the rule's mode");
    assert!(!rejects(&docward, RULE) && rejects(&docward, "other"));
    docward.rewrite_rules(&format!("version: 1\nrules:\n{other}"));
    let line = docward.wait_for_log("rules that no longer apply");
    assert!(line.contains(RULE), "{line}");
    docward.wait_for_log("after the reload, the override of a rule's mode has no effect");
    mode(&docward, &[RULE, "--clear"]);
}

#[test]
fn an_override_that_contradicts_another_rule_is_rejected() {
    const RULE: &str = "contradicts";
    let shadow = "  - { name: second, namespace: modes.contradicts, mode: shadow, replacement: { policy: merge } }\n";
    let docward = before(&rule(RULE, shadow)).start();
    let wrong = mode(&docward, &["second", "enforce", "--for", "1h", "--reason", "r"]);
    assert!(wrong.status.code() == Some(1) && text(&wrong).contains("rules.yaml:4"), "{}", text(&wrong));
    let wanted = json!({ "rule": "second", "mode": "enforce", "for": "1h", "reason": "r" });
    assert_eq!(ask(&docward, "POST", "/api/modes", &wanted).status, 422);
    // After the other one is off, both fit.
    assert!(mode(&docward, &[RULE, "disabled", "--for", "1h", "--reason", "r"]).status.success());
    let fits = mode(&docward, &["second", "enforce", "--for", "1h", "--reason", "r"]);
    assert!(fits.status.success(), "{}", text(&fits));
    for rule in [RULE, "second"] {
        mode(&docward, &[rule, "--clear"]);
    }
}

#[test]
fn all_rules_change_at_once_after_a_question_with_what_that_means() {
    const FIRST: &str = "all-first";
    let more = "  - { name: all-second, namespace: modes.all-first, bounds: { field: n, min: 0 } }\n  \
                - { name: all-third, namespace: modes.all-third, mode: disabled, together: [a, b] }\n  \
                - { name: all-fourth, namespace: modes.all-fourth, mode: shadow, together: [a, b] }\n";
    let docward = before(&rule(FIRST, more)).start();
    let all = |arguments: &[&str]| mode(&docward, &[&["--all"][..], arguments].concat());
    const SHADOW: [&str; 5] = ["shadow", "--for", "1h", "--reason", "incident 15"];
    let asked = all(&SHADOW);
    for words in [
        "Mode shadow, for 1h, of 2 rules:",
        "  replacement: all-first\n    Saves of whole documents",
        "  bounds: all-second\n    Numbers can leave their range.",
        "nothing is changed: give --yes",
    ] {
        assert!(asked.status.code() == Some(1) && text(&asked).contains(words), "{words}: {}", text(&asked));
    }
    assert!(rejects(&docward, FIRST));
    // An override that a rule has already is replaced, and named.
    let single = mode(&docward, &["all-fourth", "enforce", "--for", "1h", "--reason", "incident 12"]);
    assert!(single.status.success(), "{}", text(&single));
    let done = all(&[&SHADOW[..], &["--yes"]].concat());
    assert!(text(&done).contains("3 rules: shadow until 20"), "{}", text(&done));
    assert!(text(&done).contains("rule 'all-fourth' has mode enforce instead of shadow until"), "{}", text(&done));
    await_rejects(&docward, FIRST, false, FOLLOWED);
    let list = ask(&docward, "GET", "/api/modes", &Value::Null).json();
    let of_all = |one: &&Value| one["reason"] == "incident 15" && one["mode"] == "shadow";
    assert_eq!(list["overrides"].as_array().unwrap().iter().filter(of_all).count(), 3, "{list}");
    // For one application.
    let narrowed = all(&[&SHADOW[..], &["--yes", "--app", "promo-*"]].concat());
    assert!(text(&narrowed).contains("3 rules: shadow for apps promo-* until 20"), "{}", text(&narrowed));
    await_rejects(&docward, FIRST, true, FOLLOWED);
    assert!(!rejects_app(&docward, FIRST, "promo-1"));
    // At the admin address.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let at_process = |arguments: &[&str]| {
        let mut command = Command::new(docward_executable());
        command.args(["mode", "--all"]).args(arguments).args(["--admin", &docward.admin_address()]);
        command.arg("--admin-token-file").arg(&file).output().unwrap()
    };
    let asked = at_process(&["--clear"]);
    assert!(text(&asked).contains("The overrides of 3 rules end"), "{}", text(&asked));
    assert!(asked.status.code() == Some(1) && !rejects_app(&docward, FIRST, "promo-1"), "{}", text(&asked));
    let ended = at_process(&["--clear", "--yes"]);
    assert!(ended.status.success() && text(&ended).contains("3 rules: the overrides ended"), "{}", text(&ended));
    assert!(rejects_app(&docward, FIRST, "promo-1"));
    let again = all(&["--clear", "--yes"]);
    assert!(again.status.code() == Some(1) && text(&again).contains("no loaded rule's mode"), "{}", text(&again));
    for wrong in [&[][..], &["shadow", "--clear"], &["shadow", "--clear", "--yes"]] {
        assert_eq!(all(wrong).status.code(), Some(64), "{wrong:?}");
    }
}

/// `script` of util-linux runs a command on a terminal.
#[test]
fn on_a_terminal_a_change_of_all_rules_is_confirmed() {
    const RULE: &str = "asked-on-a-terminal";
    let docward = before(&rule(RULE, "")).start();
    let answered = |answer: &str| {
        let rules = docward.rules_file();
        let typed = format!(
            "{} mode --all shadow --for 1h --reason r --rules {} --service '{}'",
            docward_executable().display(),
            rules.display(),
            Mongod::shared().uri()
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &typed, "/dev/null"]);
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        script.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        let done = script.wait_with_output().unwrap();
        assert!(text(&done).contains("Continue? [y/N]"), "{}", text(&done));
        done.status.success()
    };
    assert!(!answered("n\n") && rejects(&docward, RULE));
    assert!(answered("y\n"));
    await_rejects(&docward, RULE, false, FOLLOWED);
    assert!(mode(&docward, &[RULE, "--clear"]).status.success());
}
