//! Captures of a running `docward serve`, by `docward record --from` and by the admin address itself.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use bson::{Document, doc};
use futures_util::TryStreamExt;
use serde_json::{Value, json};
use support::http::{HttpReply, request};
use support::login::log_in;
use support::mongod::{Kind, Mongod};
use support::process::{ChildGuard, Lines, TIMEOUT, docward as run_docward, docward_executable, poll};
use support::proxy::{Builder, Docward};
use support::raw::Client;
use support::replica_set::ReplicaSet;

const TOKEN: &str = "0123456789abcdef";
const RULES: &str = "\
version: 1
rules:
  - { name: merged, namespace: '*.orders', replacement: { policy: merge } }
  - { name: stock, namespace: '*.books', bounds: { field: available, min: 0 } }
";

fn before(upstream: &str) -> Builder {
    Docward::before(upstream).rules(RULES).admin().argument("--admin-token").argument(TOKEN)
}

/// A `docward record --from` that runs.
struct Recorder {
    process: ChildGuard,
    output: Lines,
    log: Lines,
    folder: tempfile::TempDir,
}

impl Recorder {
    /// Starts it and waits until the capture runs.
    fn start(docward: &Docward, arguments: &[&str]) -> Recorder {
        let folder = tempfile::tempdir().unwrap();
        let mut command = record(docward, TOKEN, folder.path(), arguments);
        let mut process = ChildGuard::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()), folder.path());
        let output = Lines::collect(process.child().stdout.take().unwrap());
        let log = Lines::collect(process.child().stderr.take().unwrap());
        let runs = || (capture(docward)["ended"].is_null() && !capture(docward).is_null()).then_some(());
        poll(TIMEOUT, runs).unwrap_or_else(|| panic!("{:?}", log.all()));
        Recorder { process, output, log, folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("capture.bson")
    }

    /// Its last line, after it has exited with success.
    fn finish(&mut self) -> String {
        assert!(self.process.wait().success(), "{:?}", self.log.all());
        self.output.wait_for("recorded", 1, TIMEOUT).remove(0)
    }
}

fn record(docward: &Docward, token: &str, folder: &Path, arguments: &[&str]) -> Command {
    let token_file = folder.join("token");
    std::fs::write(&token_file, token).unwrap();
    let mut command = Command::new(docward_executable());
    command.args(["record", "--from", &docward.admin_address()]).args(arguments);
    command.arg("--admin-token-file").arg(token_file).arg(folder.join("capture.bson"));
    command
}

fn ask(docward: &Docward, method: &str, path: &str, body: &Value) -> HttpReply {
    let authorization = format!("Bearer {TOKEN}");
    let headers =
        [("Host", "localhost"), ("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    request(&docward.admin_address(), method, path, &headers, &body.to_string())
}

/// The capture that runs, or the last one.
fn capture(docward: &Docward) -> Value {
    ask(docward, "GET", "/api/capture", &Value::Null).json()["capture"].clone()
}

fn end(docward: &Docward) {
    assert_eq!(ask(docward, "POST", "/api/capture/end", &json!({"by": "ada"})).status, 200);
}

/// The documents of a capture after its header.
fn documents(bytes: &[u8]) -> Vec<Document> {
    let mut rest = bytes;
    let mut all = Vec::new();
    while !rest.is_empty() {
        all.push(Document::from_reader(&mut rest).unwrap());
    }
    assert_eq!(all.remove(0), doc! {"docward": "capture", "version": 1});
    all
}

fn name_of(record: &Document) -> Option<&str> {
    record.get_document("command").ok()?.keys().next().map(String::as_str)
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Traffic of one application in every form that docward treats in its own way. Returns the names of the commands that
/// are to be recorded, in order.
async fn traffic(uri: &str, app: &str) -> Vec<&'static str> {
    let separator = if uri.contains('?') { '&' } else { '?' };
    let client = mongodb::Client::with_uri_str(format!("{uri}{separator}appName={app}")).await.unwrap();
    let database = client.database(&format!("captured_{app}"));
    database.drop().await.unwrap();
    let orders = database.collection::<Document>("orders");
    // Plain, with a cursor, rewritten by a rule, rejected by a rule, in a transaction, large.
    orders.insert_many((0..250).map(|id| doc! {"_id": id, "text": "x".repeat(1000)})).await.unwrap();
    let found: Vec<Document> = orders.find(doc! {}).batch_size(100).await.unwrap().try_collect().await.unwrap();
    assert_eq!(found.len(), 250);
    orders.replace_one(doc! {"_id": 1}, doc! {"status": "paid"}).await.unwrap();
    assert!(orders.find_one(doc! {"_id": 1}).await.unwrap().unwrap().contains_key("text"), "the rule has merged");
    let books = database.collection::<Document>("books");
    books.insert_one(doc! {"_id": 1, "available": 1}).await.unwrap();
    books.insert_one(doc! {"_id": 2, "available": -1}).await.unwrap_err();
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    books.update_one(doc! {"_id": 1}, doc! {"$inc": {"available": -1}}).session(&mut session).await.unwrap();
    session.commit_transaction().await.unwrap();
    books.insert_one(doc! {"_id": 3, "available": 1, "text": "x".repeat(1 << 20)}).await.unwrap();
    database.run_command(doc! {"createUser": app, "pwd": "a secret", "roles": []}).await.unwrap();
    database.run_command(doc! {"dropUser": app}).await.unwrap();
    database.run_command(doc! {"ping": 1}).await.unwrap();
    let mut changes = books.watch().await.unwrap();
    books.delete_one(doc! {"_id": 1}).await.unwrap();
    assert!(changes.next_if_any().await.is_ok());
    let first = ["dropDatabase", "insert", "find", "getMore", "getMore", "update", "find", "insert", "insert"];
    let rest = ["update", "commitTransaction", "insert", "aggregate", "delete", "getMore"];
    first.into_iter().chain(rest).collect()
}

async fn records_what_clients_sent(builder: Builder, uri: impl Fn(&Docward) -> String) {
    let docward = builder.start();
    traffic(&uri(&docward), "before").await;
    let mut recorder = Recorder::start(&docward, &["--for", "10m"]);
    let shown = capture(&docward);
    assert!(shown["by"].as_str().unwrap().contains('@') && shown["size"] == 1 << 30, "{shown}");
    let sent = [traffic(&uri(&docward), "billing").await, traffic(&uri(&docward), "promo").await];
    end(&docward);
    let last = recorder.finish();
    traffic(&uri(&docward), "after").await;

    let bytes = std::fs::read(recorder.file()).unwrap();
    assert!(!bytes.windows(8).any(|part| part == b"a secret"), "commands of users are not recorded");
    let records = documents(&bytes);
    let of_app = |app: &str| -> Vec<&Document> {
        records
            .iter()
            .filter(|record| record.get_str("app").ok() == Some(app) && record.contains_key("command"))
            .collect()
    };
    for (app, sent) in ["billing", "promo"].iter().zip(&sent) {
        let names: Vec<&str> = of_app(app).into_iter().filter_map(name_of).collect();
        assert!(names.starts_with(&sent[..sent.len() - 1]), "{names:?}\n{sent:?}");
        let of_change_stream = names[sent.len() - 1..].iter().all(|name| ["getMore", "killCursors"].contains(name));
        assert!(of_change_stream, "{names:?}");
        let update = of_app(app)[5].get_document("command").unwrap();
        let replacement = update.get_array("updates").unwrap()[0].as_document().unwrap().get_document("u").unwrap();
        assert_eq!(replacement, &doc! {"status": "paid"}, "as the client sent it, not as the rule changed it");
    }
    let commands = records.iter().filter(|record| record.contains_key("command")).count();
    assert_eq!((of_app("before").len(), of_app("after").len()), (0, 0));
    let end = records.last().unwrap().get_document("end").unwrap();
    let counted = doc! {"reason": "operator", "commands": commands as i64, "omitted": 0_i64};
    assert_eq!(end, &counted);
    assert!(
        last.starts_with(&format!("recorded {commands} commands ("))
            && last.ends_with("; 0 omitted; the capture was ended"),
        "{last}"
    );
    assert_eq!((&capture(&docward)["ended"], &capture(&docward)["commands"]), (&json!("operator"), &json!(commands)));
    // Replies: of plain, rewritten and rejected commands.
    let of_reply = |record: &&Document| record.get_document("reply").ok().cloned();
    let replies: Vec<Document> = records.iter().filter_map(|record| of_reply(&record)).collect();
    assert!(
        replies.len() >= commands - 2 && replies.iter().any(|reply| reply.get_i64("cursor").is_ok_and(|id| id != 0))
    );
    assert!(replies.iter().any(|reply| reply.get_array("errors").is_ok_and(|codes| codes[0] == 121.into())));

    let rules = docward.rules_file();
    let file = recorder.file();
    let audit = run_docward(&["audit", "--format", "json", "--rules", rules.to_str().unwrap(), file.to_str().unwrap()]);
    let report: Value = serde_json::from_slice(&audit.stdout).unwrap_or_else(|_| panic!("{}", error_of(&audit)));
    let counts = |rule: usize, outcome: &str| report["rules"][rule]["counts"][outcome].clone();
    assert_eq!((counts(0, "rewrite"), counts(1, "reject")), (json!(2), json!(2)), "{report:#}");

    let target = Mongod::start(Kind::ReplicaSet);
    let replay = run_docward(&["replay", "--to", &target.uri(), "--speed", "100x", file.to_str().unwrap()]);
    assert!(replay.status.success(), "{}", error_of(&replay));
    let replayed = target.client().await.database("captured_billing").collection::<Document>("orders");
    assert_eq!(replayed.count_documents(doc! {}).await.unwrap(), 250);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_has_what_clients_sent() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    records_what_clients_sent(before(&mongod.uri()), |docward| docward.uri()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_has_what_clients_sent_by_pools_and_several_listeners() {
    let set = ReplicaSet::start(2);
    let builder = before(&set.uri()).argument("--pool-size").argument("3").listeners(3);
    records_what_clients_sent(builder, |docward| {
        format!("mongodb://{}/?replicaSet=rs0", docward.addresses().join(","))
    })
    .await;
}

#[test]
fn a_capture_names_users_and_has_no_logins() {
    let mongod = Mongod::shared_with_access_control();
    let docward = before(&mongod.uri()).start();
    let mut recorder = Recorder::start(&docward, &["--for", "10m"]);
    let mut client = Client::connect(&docward.address());
    log_in(&mut client, "root", "secret");
    let found = client.command("captured", doc! {"find": "c"});
    assert_eq!(found.get_f64("ok").unwrap(), 1.0, "{found}");
    client.command("admin", doc! {"logout": 1});
    recorder.process.signal("INT");
    let last = recorder.finish();
    assert!(last.starts_with("recorded 1 command ("), "{last}");
    let records = documents(&std::fs::read(recorder.file()).unwrap());
    assert_eq!(records.iter().filter_map(name_of).collect::<Vec<_>>(), ["find"]);
    let find = records.iter().find(|record| record.contains_key("command")).unwrap();
    assert_eq!(find.get_array("users").unwrap(), &[doc! {"user": "root", "db": "admin"}.into()]);
}

#[test]
fn a_capture_requires_the_token_and_only_one_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.bson");
    let mut open = Docward::before(&Mongod::shared().uri()).admin().start();
    let refused = record(&open, TOKEN, folder.path(), &["--for", "1m"]).output().unwrap();
    assert!(
        error_of(&refused)
            .contains("returned 403: a capture contains documents and requires a token: set admin_token_file"),
        "{refused:?}"
    );
    open.kill();
    let docward = before(&Mongod::shared().uri()).start();
    let wrong = record(&docward, "another-token-of-16", folder.path(), &["--for", "1m"]).output().unwrap();
    assert!(
        error_of(&wrong).contains("returned 401: ") && error_of(&wrong).contains("--admin-token-file"),
        "{wrong:?}"
    );
    let without = run_docward(&["record", "--from", &docward.admin_address(), "--for", "1m", file.to_str().unwrap()]);
    assert!(error_of(&without).contains("returned 401: "), "{without:?}");
    let long = record(&docward, TOKEN, folder.path(), &["--for", "25h"]).output().unwrap();
    assert!(error_of(&long).contains("at most 24h"), "{long:?}");
    assert!([&refused, &wrong, &without, &long].iter().all(|output| output.status.code() == Some(64)));
    assert_eq!(ask(&docward, "POST", "/api/capture/end", &json!({})).status, 404);

    let mut recorder = Recorder::start(&docward, &["--for", "10m"]);
    let second = record(&docward, TOKEN, folder.path(), &["--for", "1m"]).output().unwrap();
    assert!(error_of(&second).contains("another capture runs"), "{second:?}");
    assert!(!file.exists(), "a refused capture leaves no file");
    // The client that asked for it has gone.
    recorder.process.kill();
    poll(TIMEOUT, || (capture(&docward)["ended"] == "client").then_some(())).unwrap();
    docward.wait_for_log("capture ended");
    drop(Recorder::start(&docward, &["--for", "10m"]));
}

#[test]
fn a_capture_ends_at_its_time_and_at_its_size_and_can_be_of_one_application() {
    let docward = before(&Mongod::shared().uri()).start();
    let mut recorder = Recorder::start(&docward, &["--for", "2s", "--app", "promo-*"]);
    for app in ["promo-web", "billing"] {
        let mut client = Client::connect(&docward.address());
        let hello = doc! {"hello": 1, "client": {"application": {"name": app}, "driver": {"name": "raw", "version": "1"}, "os": {"type": "x"}}};
        client.command("admin", hello);
        client.command("captured", doc! {"find": app});
    }
    let last = recorder.finish();
    assert!(last.starts_with("recorded 1 command (") && last.ends_with("; 0 omitted; the time is over"), "{last}");
    let records = documents(&std::fs::read(recorder.file()).unwrap());
    let commands: Vec<&str> =
        records.iter().filter_map(|record| record.get_document("command").ok()?.get_str("find").ok()).collect();
    assert_eq!(commands, ["promo-web"]);

    let mut recorder = Recorder::start(&docward, &["--for", "10m", "--max-size", "100KiB"]);
    let mut client = Client::connect(&docward.address());
    for _ in 0..30 {
        client.command("captured", doc! {"insert": "c", "documents": [{"text": "x".repeat(10_000)}]});
    }
    let last = recorder.finish();
    let length = std::fs::metadata(recorder.file()).unwrap().len();
    assert!((80 << 10..=100 << 10).contains(&length), "{length}");
    assert!(
        last.contains("recorded 10 commands (")
            && last.ends_with("the capture has reached its largest size (--max-size)"),
        "{last}"
    );
}

/// A client that asks for a capture and then does not read.
#[test]
fn a_slow_reader_delays_no_command_and_the_commands_that_are_omitted_are_counted() {
    const COMMANDS: usize = 120;
    let docward = before(&Mongod::shared().uri()).start();
    let mut reader = TcpStream::connect(docward.admin_address()).unwrap();
    reader.set_read_timeout(Some(TIMEOUT)).unwrap();
    let body = json!({"for": "10m"}).to_string();
    let head = format!("POST /api/capture HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n");
    let length = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    reader.write_all((head + &length + &body).as_bytes()).unwrap();
    poll(TIMEOUT, || (!capture(&docward).is_null()).then_some(())).unwrap();

    let mut client = Client::connect(&docward.address());
    let began = Instant::now();
    let mut received = Vec::new();
    for number in 0..COMMANDS {
        let text = "x".repeat(1 << 20);
        let reply = client.command("captured", doc! {"insert": "large", "documents": [{"text": text}]});
        assert_eq!(reply.get_i32("n").unwrap(), 1, "{reply}");
        // Just enough that docward does not end the connection.
        if number % 20 == 0 {
            let mut some = vec![0; 1000];
            reader.read_exact(&mut some).unwrap();
            received.extend(some);
        }
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let waiting = capture(&docward);
    assert!(waiting["omitted"].as_u64() > Some(30), "{waiting}");
    end(&docward);
    reader.read_to_end(&mut received).unwrap();
    let start = received.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
    let records = documents(&received[start..]);
    let commands = records.iter().filter(|record| record.contains_key("command")).count();
    let end = records.last().unwrap().get_document("end").unwrap();
    assert_eq!(end.get_i64("commands").unwrap(), commands as i64);
    assert_eq!(commands as i64 + end.get_i64("omitted").unwrap(), COMMANDS as i64);
    Mongod::shared().command("captured", doc! {"drop": "large"});

    // The tools report it.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.bson");
    std::fs::write(&file, &received[start..]).unwrap();
    let audit = docward_audit(&docward, &file);
    assert!(audit.contains("commands, which came faster than it was read"), "{audit}");
}

fn docward_audit(docward_process: &Docward, file: &Path) -> String {
    let rules = docward_process.rules_file();
    let output = run_docward(&["audit", "--rules", rules.to_str().unwrap(), file.to_str().unwrap()]);
    String::from_utf8_lossy(&output.stdout).into_owned() + &error_of(&output)
}
