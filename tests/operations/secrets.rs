//! Passwords and tokens: docward's output and replies never show them, whatever is wrong with them.

use std::process::{Command, Output};

use bson::doc;
use support::certificates::Authority;
use support::frame::Message;
use support::http::{get, request};
use support::login::log_in;
use support::mongod::{Kind, Mongod};
use support::process::{TIMEOUT, docward_executable, poll, repository};
use support::proxy::Docward;
use support::random::Random;
use support::raw::Client;

/// No other text has four of these letters in sequence.
const SECRET: &str = "QxVzWkJpRyHfUbMd";

/// An environment variable with a secret.
const VARIABLE: &str = "PASSWORD_OF_DOCWARD";

const RULES: &str = "version: 1\nrules:\n  - {name: timestamped, namespace: shop.a, timestamps: {source: at}}\n  \
    - name: copied\n    namespace: shop.a\n    copies: [{into: shop.b, key: a, fields: {name: n}}]\n  \
    - {name: numbered, namespace: shop.c, sequence: {field: no, counter: c}}\n";

fn shows_secret(bytes: &[u8]) -> bool {
    let shown = |part: &[u8]| bytes.windows(part.len()).any(|other| other == part);
    SECRET.as_bytes().windows(4).any(shown)
}

fn docward(arguments: &[&str]) -> Output {
    let mut command = Command::new(docward_executable());
    command.args(arguments).env("RUST_LOG", "trace").env(VARIABLE, format!("{SECRET}@{SECRET}"));
    command.output().unwrap()
}

/// Runs a command that must fail; returns what is wrong with its output.
fn leak(arguments: &[&str]) -> Option<String> {
    let output = docward(arguments);
    assert!(!output.status.success(), "{arguments:?} succeeds");
    shown_by(arguments, output)
}

fn shown_by(arguments: &[&str], Output { stdout, stderr, .. }: Output) -> Option<String> {
    let written = [stdout, stderr].concat();
    shows_secret(&written).then(|| format!("{arguments:?} wrote {}", String::from_utf8_lossy(&written)))
}

/// Fails with the complete list, so that one run shows every leak.
fn none(leaks: impl IntoIterator<Item = Option<String>>) {
    let leaks: Vec<String> = leaks.into_iter().flatten().collect();
    assert!(leaks.is_empty(), "{} leaks:\n{}", leaks.len(), leaks.join("\n"));
}

/// Connection strings with an error: a character removed, inserted or replaced.
fn mistakes(count: usize) -> Vec<String> {
    const PUT: [&str; 14] = ["", "@", ":", "/", "?", "#", "[", "%", "&", "=", ",", " ", "'", "\n"];
    let mut random = Random(0x5ec2e7);
    let strings =
        ["mongodb", "mongodb+srv"].map(|scheme| format!("{scheme}://user:{SECRET}@a.invalid/db?tls=false&bogus=1"));
    let mut made = vec![
        format!("mongodb://user:{SECRET}@h/?bogus=1"),
        format!("mongodb://user:{}%2F{}@h/?bogus=1", &SECRET[..8], &SECRET[8..]),
        format!("mongodb://user:{SECRET}@"),
        format!("mongodb://user:{SECRET}"),
        format!("user:{SECRET}@h"),
        SECRET.to_owned(),
        format!("mongodb://h/?authMechanismProperties={SECRET}"),
        format!("mongodb://h/?tlsCertificateKeyFilePassword={SECRET}&bogus=1"),
    ];
    while made.len() < count {
        let string = random.pick(&strings);
        let at = random.below(string.len());
        let end = at + random.below(2);
        let put = *random.pick(&PUT);
        made.push(format!("{}{put}{}", &string[..at], &string[end..]));
    }
    made
}

/// The flags of every subcommand that takes a connection string.
#[test]
fn flags_with_mistakes_do_not_show_passwords() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (rules, capture) = (file("rules.yaml"), file("capture"));
    std::fs::write(&rules, RULES).unwrap();
    none(mistakes(66).iter().enumerate().map(|(at, uri)| {
        let with_equals = format!("--upstream={uri}");
        let commands: [&[&str]; 11] = [
            &["replay", &capture, "--to", uri],
            &["replay", &capture, "--to", "mongodb://127.0.0.1:1", "--compare", uri],
            &["serve", "--upstream", uri],
            &["serve", &with_equals],
            &["serve", "--service", uri],
            &["check", &rules, "--upstream", uri],
            &["check", &rules, "--upstream", "mongodb://127.0.0.1:1", "--service", uri],
            &["record", "--upstream", uri, &capture],
            &["repair", "--rule", "copied", "--rules", &rules, "--upstream", uri],
            &["reset-clock", "--rule", "timestamped", "--rules", &rules, "--service", uri],
            &["serve", "--otlp", uri],
        ];
        leak(commands[at % commands.len()])
    }));
}

/// Secrets typed in the wrong position.
#[test]
fn misplaced_arguments_do_not_show_passwords() {
    let uri = format!("mongodb://user:{SECRET}@h/");
    let (flag, misspelled) = (format!("--upstream={uri}"), format!("--upstraem={uri}"));
    let token = format!("--admin-token={SECRET} {SECRET}");
    let http = format!("http://user:{SECRET}@h/?a=b");
    let commands: [&[&str]; 28] = [
        &["replay", &uri, "--to", &uri],
        &["replay", "--to", "mongodb://127.0.0.1:1", "--comparison", &uri],
        &["mode", "--list", "--admin", "127.0.0.1:1", "--admin-token-file", &uri],
        &["mode", "--list", "--admin", "127.0.0.1:1", "--admin-token", SECRET],
        &[&uri],
        &["serve", &uri],
        &["serve", &misspelled],
        &["serve", "--upstraem", &uri],
        &["serve", &flag, &flag],
        &["serve", "--rules", &uri],
        &["serve", "--config", &uri],
        &["serve", "--listen", &uri],
        &["serve", "--advertise", &uri],
        &["serve", "--member", &uri],
        &["serve", "--otlp", &http],
        &["serve", "--tls-certificate", &uri],
        &["serve", "--admin-token", "Qx VzWk", SECRET],
        &["serve", "--admin", "127.0.0.1:0", "--admin-token", &SECRET[..8]],
        &["serve", "--admin", "127.0.0.1:0", &token],
        &["serve", "--admin-token", SECRET, SECRET],
        &["serve", "--upstream", "mongodb://user:", SECRET, "@h/"],
        &["serve", "--admin-token-file", &uri, "--admin", "127.0.0.1:0"],
        &["check", &uri],
        &["test", &uri],
        &["audit", "--rules", &uri, &uri],
        &["suggest", &uri],
        &["explain", "--rules", &uri, "db.c.find()"],
        &["health", "--config", &uri],
    ];
    none(commands.into_iter().map(leak));
}

/// Configuration files, each with another error, read by every command that reads them.
#[test]
fn configuration_files_with_mistakes_do_not_show_passwords() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("docward.yaml");
    let rules = folder.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    std::fs::write(folder.path().join("secret"), SECRET).unwrap();
    Authority::new(folder.path(), "authority").sign_with_password("key", &["h"], "other", &[]);
    let uri = format!("mongodb://user:{SECRET}@h/");
    std::fs::write(folder.path().join("malformed"), format!("{uri}?bogus=1 {SECRET}")).unwrap();
    let mut files: Vec<String> = [
        "upstream: URI?bogus=1",
        "upstream: 'URI?bogus=1'\nlisten: here",
        "\"upstream\": URI?bogus=1",
        "upstream : URI?bogus=1",
        "{listen: here, upstream: URI}",
        "{listen: 127.0.0.1:1, upstrem: URI}",
        "upstrem: URI",
        "upstreem: SECRET",
        "upstream:\n  URI?bogus=1",
        "upstream: >-\n  URI?bogus=1",
        "upstream: URI: x",
        "upstream: \"URI",
        "upstream: [URI]",
        "upstream: {URI: 1}",
        "upstream: URI\nupstream: URI",
        "upstream: !SECRET x",
        "upstream: &SECRET x",
        "upstream: *SECRET",
        "upstream: !<SECRET x",
        "\tupstream: URI",
        "upstream: mongodb://h\n\tadmin_token: SECRET",
        "listen: URI",
        "members: {URI: {listen: here}}",
        "members: {'a:1': {listen: URI}}",
        "advertise: user:SECRET@h",
        "rules: [URI]",
        "rules: URI",
        "log_format: URI",
        "drain_timeout: URI",
        "otlp: http://user:SECRET@h:1/?x=y",
        "tls: {certificate: URI}",
        "tls: {certifcate: URI}",
        "admin: 127.0.0.1:0\nadmin_token: SECRET SECRET",
        "admin: 127.0.0.1:0\nadmin_tokn: SECRET",
        "admin: 127.0.0.1:0\nadmin_token: [SECRET]",
        "admin: 127.0.0.1:0\nadmin_token: {a: SECRET",
        "admin: {address: 127.0.0.1:0, token: SECRET}",
        "URI",
        "- URI",
        "# URI\nlisten: here",
        "listen: here # URI",
        "<<: {upstream: URI}\nlisten: x",
        "---\nupstream: URI\n---\nupstream: URI",
        "upstream: mongodb://user:VARIABLE@h/?bogus=1",
        "upstream: VARIABLE",
        "upstream: mongodb://h/VARIABLE?bogus=VARIABLE",
        "admin_token: VARIABLE x",
        "listen: VARIABLE",
        "advertise: a:VARIABLE",
        "members: {'a:1': {listen: 'VARIABLE'}}",
        "log_format: VARIABLE",
        "drain_timeout: VARIABLE",
        "limits: {connections: VARIABLE, memory: VARIABLE}",
        "pool: {credentials: VARIABLE}",
        "rules: [VARIABLE, VARIABLE]",
        "upstream_file: secret",
        "service_file: malformed",
        "service: URI\nservice_file: malformed",
        "admin: 127.0.0.1:0\nadmin_token_file: malformed",
        "tls: {certificate: none.pem, key_password: SECRET}",
        "tls: {certificate: none.pem, key_password: [SECRET]}",
        "tls:\n  certificate: none.pem\n  key_pasword: SECRET",
        "tls:\n  certificate: none.pem\n  key_password: >-\n    SECRET\n  key_password_file: secret",
        "tls:\n  certificate: none.pem\n  key_password:\n  - SECRET",
        "tls:\n  certificate: none.pem\n  passphrase: SECRET",
        "tls: {certificate: key.pem, key_password: SECRET}",
        "tls: {certificate: key.pem, key_password: VARIABLE}",
        "tls: {certificate: key.pem, key_password: SECRET, key_password_file: secret}",
        "tls: {certificate: key.pem, key_password_file: secret}",
        "upstream: mongodb://h/?tls=true&tlsCertificateKeyFile=FOLDER/key.pem&tlsCertificateKeyFilePassword=SECRET",
        "service: mongodb://h/?tls=true&tlsCertificateKeyFile=FOLDER/key.pem&tlsCertificateKeyFilePassword=VARIABLE",
    ]
    .map(|text| text.replace("VARIABLE", &format!("${{{VARIABLE}}}")).replace("URI", &uri).replace("SECRET", SECRET))
    .map(|text| text.replace("FOLDER", &folder.path().display().to_string()))
    .into();
    files.extend(mistakes(40).iter().map(|wrong| format!("listen: here\nupstream: {wrong}\nservice: {wrong}\n")));
    none(files.iter().enumerate().flat_map(|(at, text)| {
        std::fs::write(&path, text).unwrap();
        let (file, rules) = (path.to_str().unwrap(), rules.to_str().unwrap());
        let as_settings: [&[&str]; 6] = [
            &["serve", "--config", file],
            &["check", "--config", file],
            &["check", "--config", file, "--format", "json"],
            &["repair", "--rule", "copied", "--rules", rules, "--config", file],
            &["explain", "--config", file, "db.c.find()"],
            &["health", "--config", file],
        ];
        // Given by mistake.
        let as_rules: [&[&str]; 4] = [
            &["check", file],
            &["check", file, "--format", "json"],
            &["test", file],
            &["explain", "--rules", file, "db.c.find()"],
        ];
        // Some errors turn the rest into a comment or another key.
        let settings = as_settings[at % as_settings.len()];
        [shown_by(settings, docward(settings)), leak(as_rules[at % as_rules.len()])]
    }));
}

#[test]
fn errors_about_refused_logins_do_not_show_passwords() {
    let mongod = Mongod::start_with_access_control(Kind::ReplicaSet);
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let rules = rules.to_str().unwrap();
    let plain = format!("mongodb://{}/", mongod.address());
    let options = "serverSelectionTimeoutMS=300";
    let uris = [
        format!("mongodb://root:{SECRET}@{}/?replicaSet=rs0&authSource=admin", mongod.address()),
        format!("mongodb://root:{SECRET}@{}/?replicaSet=rs0&authSource=admin&authMechanism=PLAIN", mongod.address()),
        format!("mongodb://root:{SECRET}@{}/?directConnection=true&tls=true&{options}", mongod.address()),
        format!("mongodb://root:{SECRET}@{}/?replicaSet=other&{options}", mongod.address()),
        format!("mongodb://root:{SECRET}@127.0.0.1:1/?{options}"),
        format!("mongodb://root:{SECRET}@a.invalid/?{options}"),
        format!("mongodb+srv://root:{SECRET}@a.invalid/?{options}"),
    ];
    none(uris.iter().flat_map(|uri| {
        let commands: [&[&str]; 3] = [
            &["check", rules, "--upstream", &plain, "--service", uri],
            &["repair", "--rule", "copied", "--rules", rules, "--upstream", &plain, "--service", uri],
            &["reset-clock", "--rule", "timestamped", "--rules", rules, "--upstream", &plain, "--service", uri],
        ];
        commands.map(leak)
    }));
    // Its traffic is real, so each login is tried.
    let recorded = repository("fuzz/targets/profile.jsonl");
    let recorded = recorded.to_str().unwrap();
    let elsewhere = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=300";
    none(uris.iter().flat_map(|uri| {
        let commands: [&[&str]; 3] = [
            &["replay", recorded, "--to", uri, "--speed", "max"],
            &["replay", recorded, "--to", uri, "--compare", elsewhere, "--speed", "max"],
            &["replay", recorded, "--to", elsewhere, "--compare", uri, "--speed", "max", "--format", "json"],
        ];
        commands.map(|arguments| shown_by(arguments, docward(arguments)))
    }));
    let refused = Docward::before(&plain).rules(RULES).environment("RUST_LOG", "trace").argument("--service");
    let printed = refused.argument(&uris[0]).try_start().err().unwrap();
    assert!(printed.contains("cannot log in") && !shows_secret(printed.as_bytes()), "{printed}");
}

/// The token in a file: unreadable as a token, unknown to the process, and the right one.
#[test]
fn a_token_in_a_file_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let [malformed, other, right] = [
        write("malformed", &format!("{SECRET} {SECRET}")),
        write("other", &format!("{SECRET}{SECRET}")),
        write("right", SECRET),
    ];
    let docward = Docward::before("mongodb://127.0.0.1:1/").rules(RULES).admin().argument("--admin-token-file");
    let docward = docward.argument(&right).environment("RUST_LOG", "trace").start();
    let admin = docward.admin_address();
    let listed = ["mode", "--list", "--admin", &admin, "--admin-token-file", &right];
    let listed = self::docward(&listed);
    assert!(listed.status.success(), "{listed:?}");
    none([shown_by(&["mode", "--list"], listed)]);
    let changes = ["mode", "numbered", "shadow", "--for", "1h", "--reason", "tried"];
    none([&malformed, &other].into_iter().flat_map(|file| {
        let of = ["--admin", &admin, "--admin-token-file", file];
        let unreachable = ["mode", "--list", "--admin", "127.0.0.1:1", "--admin-token-file", file];
        [leak(&[&["mode", "--list"][..], &of].concat()), leak(&[&changes[..], &of].concat()), leak(&unreachable)]
    }));
    let log = docward.log().join("\n");
    assert!(!shows_secret(log.as_bytes()), "{log}");
}

/// What clients send: passwords of users that they create, and values of documents.
#[test]
fn lists_of_connections_and_statements_show_no_values() {
    let mongod = Mongod::start_with_access_control(Kind::ReplicaSet);
    let token = "0123456789abcdef";
    let rules =
        "version: 1\nrules:\n  - {name: bounded, namespace: shop.free, mode: shadow, bounds: {field: n, min: 0}}\n";
    let docward = Docward::before(&mongod.uri()).rules(rules).admin().argument("--admin-token").argument(token);
    let docward = docward.environment("RUST_LOG", "trace").start();
    let bearer = format!("Bearer {token}");
    let ask = |path: &str| {
        let reply =
            request(&docward.admin_address(), "GET", path, &[("Host", "localhost"), ("Authorization", &bearer)], "");
        assert_eq!(reply.status, 200, "{path}");
        assert!(!shows_secret(format!("{reply:?}").as_bytes()), "{reply:?}");
        reply.json()
    };
    let mut client = Client::connect(&docward.address());
    log_in(&mut client, "root", "secret");
    for (name, pwd) in [("someone", SECRET.to_owned()), ("slow", SECRET.repeat(2))] {
        client.command("admin", doc! { "createUser": name, "pwd": pwd, "roles": [] });
    }
    client.command("shop", doc! { "insert": "free", "documents": [{ "_id": SECRET, "text": SECRET }] });
    let slow = doc! { "_id": SECRET, "$where": format!("sleep(500) || '{SECRET}' != ''") };
    client.command("shop", doc! { "find": "free", "filter": slow, "comment": SECRET });
    client.wait_until_counted();
    let mut waiting = Client::connect(&docward.address());
    log_in(&mut waiting, "root", "secret");
    let wait = doc! { "find": "free", "filter": { "$where": format!("sleep(3000) || '{SECRET}'") }, "$db": "shop" };
    waiting.send(&Message::new(wait));
    let in_flight = poll(TIMEOUT, || {
        let listed = ask("/api/connections");
        listed["connections"].as_array()?.iter().any(|one| !one["command"].is_null()).then_some(())
    });
    assert!(in_flight.is_some());
    assert!(!ask("/api/slowest")["statements"].as_array().unwrap().is_empty());
    ask("/api/rules");
    let log = docward.log().join("\n");
    assert!(!shows_secret(log.as_bytes()), "{log}");
}

/// While docward serves: its log, its metrics and all replies of the admin address, with an unreachable server and a
/// configuration that becomes invalid.
#[test]
fn a_running_docward_shows_no_passwords() {
    let uri = format!("mongodb://user:{SECRET}@127.0.0.1:1/?serverSelectionTimeoutMS=200");
    for (format, secrets) in [
        ("text", "service: 'URI'\nadmin_token: SECRET\n"),
        ("json", "service: 'URI'\nadmin_token: SECRET\n"),
        ("text", "service: mongodb://user:${WHOLE}@127.0.0.1:1/\nadmin_token: ${WHOLE}\n"),
        ("json", "service_file: ${FOLDER}/uri\nadmin_token_file: token\n"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("uri"), format!("{uri}\n")).unwrap();
        std::fs::write(folder.path().join("token"), format!("{SECRET}\n")).unwrap();
        let config = folder.path().join("docward.yaml");
        let write = |more: &str| {
            let text = format!("{secrets}admin: 127.0.0.1:0\n{more}");
            std::fs::write(&config, text.replace("URI", &uri).replace("SECRET", SECRET)).unwrap();
        };
        write("");
        let upstream = format!("mongodb://other:{SECRET}@127.0.0.1:1/");
        let docward = Docward::before(&upstream)
            .rules(RULES)
            .argument("--config")
            .argument(config.to_str().unwrap())
            .argument("--log-format")
            .argument(format)
            .environment("RUST_LOG", "trace")
            .environment("WHOLE", SECRET)
            .environment("FOLDER", folder.path().to_str().unwrap())
            .listeners(2)
            .start();
        let admin = docward.admin_address();
        let bearer = format!("Bearer {SECRET}");
        let ask = |path: &str, token: &str| {
            let reply = request(&admin, "GET", path, &[("Host", "localhost"), ("Authorization", token)], "");
            assert!(!shows_secret(format!("{reply:?}").as_bytes()), "{reply:?}");
            reply
        };
        let paths = [
            "/metrics",
            "/api/status",
            "/api/rules",
            "/api/connections",
            "/api/slowest",
            "/api/modes",
            "/readyz",
            "/api/none",
        ];
        for path in paths {
            ask(path, &bearer);
            assert_ne!(ask(path, &format!("{bearer}x")).status, 200);
        }
        assert_eq!(get(&admin, "/healthz").status, 200);
        write(&format!("upstream: mongodb://user:{SECRET}@h/?bogus=1\nrulez: {SECRET}\n"));
        let broken = poll(TIMEOUT, || {
            let status = ask("/api/status", &bearer).json();
            status["reloads"]["last_error"].as_str().map(str::to_owned)
        });
        assert!(broken.unwrap().contains("docward.yaml:4"));
        docward.signal("USR1");
        docward.wait_for_log("refused");
        let log = docward.log().join("\n");
        assert!(!shows_secret(log.as_bytes()), "{log}");
    }
}
