//! Retryable writes whose second send meets other rules than the first: in this docward after a change, or in another
//! one. mongod recognises a retry only in the session in which it executed the first send, and docward's transactions have
//! another one than direct writes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bson::{Bson, Document, doc};
use serde_json::Value;
use support::driver::write_errors;
use support::http::get;
use support::mongod::Mongod;
use support::process::{TIMEOUT, docward_executable, poll};
use support::proxy::{Builder, Docward};
use support::raw::Client;

mod cases;
mod statements;

use cases::{Cases, rules};
use statements::{PROTECTED, Protected};

const OTHER_RULES: &str = "version: 1\nrules: [{ name: other, namespace: other.c, together: [a, b] }]\n";

/// A client's session, whose writes are sent to one docward and then to another one.
struct Session {
    database: String,
    lsid: Document,
    number: i64,
}

impl Session {
    fn new() -> Self {
        let database = Mongod::shared().fresh_database();
        let session = Self { database, lsid: doc! { "id": bson::Uuid::new() }, number: 0 };
        session.prepare();
        session
    }

    fn prepare(&self) {
        Mongod::shared().command(&self.database, doc! { "dropDatabase": 1 });
        for (collection, documents) in [
            ("nodes", vec![doc! { "_id": "root", "path": null }, doc! { "_id": "a", "path": null, "n": 0 }]),
            ("loans", (0..4).map(|id| doc! { "_id": id, "n": 0, "tags": [] }).collect()),
            ("events", (0..4).map(|id| doc! { "_id": id, "n": 0, "tags": [] }).collect()),
            ("authors", vec![doc! { "_id": 1, "name": "Ada" }, doc! { "_id": 2, "name": "Bob" }]),
        ] {
            Mongod::shared().command(&self.database, doc! { "insert": collection, "documents": documents });
        }
    }

    /// A docward with all rules in this mode.
    fn docward(&self, mode: &str) -> Docward {
        Docward::start(Mongod::shared(), &rules(&self.database, &format!("mode: {mode}")))
    }

    /// Sends the next write to the first docward, and again to the second, as after a lost reply; returns both replies.
    fn write(&mut self, first: &Docward, second: &Docward, command: Document) -> [Document; 2] {
        self.number += 1;
        [first, second].map(|docward| self.send(docward, command.clone()))
    }

    fn send(&self, docward: &Docward, mut command: Document) -> Document {
        command.extend(doc! { "lsid": self.lsid.clone(), "txnNumber": self.number });
        let mut client = Client::connect(&docward.address());
        client.command(&self.database, command)
    }

    fn stored(&self, collection: &str, id: impl Into<Bson>) -> Option<Document> {
        let find = doc! { "find": collection, "filter": { "_id": id.into() } };
        let found = Mongod::shared().command(&self.database, find);
        let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().first().cloned();
        found.map(|found| found.as_document().unwrap().clone())
    }
}

/// Sends all cases to both: some are carried out by the second only, and the first then gets a retry too.
fn send_to_both(database: &str, app: Option<&'static str>, sides: [(&str, &Docward); 2]) {
    let mut cases = Cases::new(database, app);
    for (what, docward) in [sides[0], sides[1], sides[0]] {
        cases.send(docward, what);
    }
    cases.finish(&format!("{}, then {}", sides[0].0, sides[1].0));
}

/// Without a service connection docward knows nothing of others, and doubts for some minutes after its start.
#[test]
fn two_docwards_with_other_modes_carry_a_write_out_once() {
    let database = Mongod::shared().fresh_database();
    let docward = |mode| Docward::before(&Mongod::shared().uri()).rules(&rules(&database, mode)).admin();
    // Only one of them shares server connections.
    let enforce = docward("mode: enforce").argument("--pool-size").argument("4").start();
    let shadow = docward("mode: shadow").without_test_pool().start();
    send_to_both(&database, None, [("shadow", &shadow), ("enforce", &enforce)]);
    send_to_both(&database, None, [("enforce", &enforce), ("shadow", &shadow)]);
    // The table has what it promises; of `tree` and `on_delete` the outcome is another one.
    let counted = get(&enforce.admin_address(), "/api/rules").json();
    for Protected { collection, rules, checked, .. } in PROTECTED {
        let is_own = |rule: &&Value| rule["name"].as_str().unwrap().starts_with(&format!("{collection}-"));
        let rules_of = counted["rules"].as_array().unwrap().iter().filter(is_own);
        let count: u64 = rules_of.map(|rule| rule["counts"]["check"].as_u64().unwrap_or(0)).sum();
        let has_outcome = !rules.is_empty() && !matches!(*collection, "nodes" | "authors");
        assert!(!has_outcome || (count > 0) != checked.is_empty(), "{collection}: {count} are checked");
    }
}

#[test]
fn the_reply_is_the_servers_where_it_has_a_record() {
    let mut session = Session::new();
    let (enforce, shadow) = (session.docward("enforce"), session.docward("shadow"));
    session.prepare();
    let modify = doc! { "$inc": { "n": 1 }, "$set": { "parent": "root" } };
    let command = doc! { "findAndModify": "nodes", "query": { "_id": "a" }, "update": modify, "new": true };
    let [first, second] = session.write(&shadow, &enforce, command.clone());
    assert_eq!(first.get("value"), second.get("value"));
    session.prepare();
    let [_, second] = session.write(&enforce, &shadow, command);
    assert_eq!(second.get_i32("code").ok(), Some(217), "{second}");
}

/// Rejections after a question to the server, and beside statements of transactions.
#[test]
fn a_rejection_is_not_the_reply_to_what_was_carried_out() {
    let mut session = Session::new();
    let rules = |mode: &str| {
        let saved =
            format!("{{ name: saved, namespace: {}.loans, mode: {mode}, replacement: {{}} }}", session.database);
        let all = rules(&session.database, &format!("mode: {mode}"));
        Docward::start(Mongod::shared(), &format!("{all}  - {saved}\n"))
    };
    let (enforced, disabled) = (rules("enforce"), rules("disabled"));
    let replaced = doc! { "q": { "_id": 1 }, "u": { "n": 2, "tags": [] } };
    let pushed = doc! { "q": { "_id": 1 }, "u": { "$set": { "at": 7_i64, "title": "t" }, "$push": { "tags": 1 } } };
    let without_source = doc! { "q": { "_id": 1 }, "u": { "$set": { "title": "u" } } };
    for (command, n) in [
        (doc! { "update": "loans", "updates": [replaced] }, 1),
        (doc! { "update": "events", "updates": [pushed, without_source], "ordered": false }, 2),
    ] {
        let [first, second] = session.write(&disabled, &enforced, command);
        assert_eq!((first.get_i32("n").ok(), second.get_i32("n").ok()), (Some(n), Some(n)), "{first} {second}");
        assert!(write_errors(&second).is_empty(), "{second}");
    }
}

/// The server keeps no record of a statement that matched nothing, or that failed.
#[test]
fn what_had_no_effect_under_other_rules_has_a_result() {
    let mut session = Session::new();
    let (enforced, disabled) = (session.docward("enforce"), session.docward("disabled"));
    let moved = |id: &str| doc! { "q": { "_id": id }, "u": { "$set": { "parent": "root" } } };
    let chosen = |id: i32| doc! { "q": { "_id": id }, "u": { "$set": { "author_id": 1, "author_name": "Ada" } } };
    session.write(&disabled, &disabled, doc! { "insert": "books", "documents": [{ "_id": 1 }] });
    for (command, n) in [
        (doc! { "update": "nodes", "updates": [moved("absent")] }, 0),
        (
            doc! { "insert": "nodes", "documents": [{ "_id": "b", "parent": "root" }, { "_id": "a", "parent": "root" }] },
            1,
        ),
        (doc! { "update": "books", "updates": [chosen(1), chosen(7)], "ordered": false }, 1),
    ] {
        let [first, second] = session.write(&disabled, &enforced, command);
        assert_eq!((first.get_i32("n").unwrap(), second.get_i32("n").unwrap()), (n, n), "{first} {second}");
        let codes: Vec<_> = write_errors(&second).iter().map(|(_, code)| *code).collect();
        assert_eq!(codes, [217], "{second}");
    }
}

#[test]
fn a_reload_between_two_sends_carries_a_write_out_once() {
    let database = Mongod::shared().fresh_database();
    let [shadow, enforce] = ["mode: shadow", "mode: enforce"].map(|mode| rules(&database, mode));
    let docward = Docward::start(Mongod::shared(), &shadow);
    let mut loads = 0;
    // Also rules that no longer exist, or are new.
    for (what, [before, after]) in [
        ("shadow to enforce", [&shadow, &enforce]),
        ("enforce to none", [&enforce, &OTHER_RULES.to_owned()]),
        ("none to enforce", [&OTHER_RULES.to_owned(), &enforce]),
    ] {
        let mut cases = Cases::new(&database, None);
        for rules in [before, after] {
            loads += 1;
            docward.rewrite_rules(&format!("# {loads}\n{rules}"));
            docward.signal("HUP");
            wait_for_lines(&docward, "rules loaded", loads);
            cases.send(&docward, what);
        }
        cases.finish(what);
    }
}

fn wait_for_lines(docward: &Docward, text: &str, count: usize) {
    let found = || docward.log().iter().filter(|line| line.contains(text)).count();
    poll(TIMEOUT, || (found() >= count).then_some(())).unwrap_or_else(|| panic!("{text}: {} of {count}", found()));
}

/// A client whose application a rule leaves out is a client without the rule.
#[test]
fn an_exception_carries_a_write_out_once() {
    let database = Mongod::shared().fresh_database();
    let docward = |settings| Docward::start(Mongod::shared(), &rules(&database, settings));
    let (enforce, except) = (docward("mode: enforce"), docward("except: { apps: [batch] }"));
    send_to_both(&database, Some("batch"), [("enforce", &enforce), ("except", &except)]);
    send_to_both(&database, Some("batch"), [("except", &except), ("enforce", &enforce)]);
}

#[test]
fn a_batch_goes_on_after_a_statement_that_was_carried_out_before_the_rule_rejected_it() {
    let mut session = Session::new();
    let rules = |mode: &str| {
        format!(
            "version: 1\nrules:\n  - {{ name: b, namespace: {}.events, mode: {mode}, bounds: {{ field: n, min: 0 }} }}\n",
            session.database
        )
    };
    let [enforce, shadow] = ["enforce", "shadow"].map(|mode| Docward::start(Mongod::shared(), &rules(mode)));
    let set = |id: i32, n: i32| doc! { "q": { "_id": id }, "u": { "$set": { "n": n }, "$push": { "tags": n } } };
    let [_, reply] = session.write(&shadow, &enforce, doc! { "update": "events", "updates": [set(0, -1), set(1, 1)] });
    assert_eq!((reply.get_i32("n").ok(), write_errors(&reply).len()), (Some(2), 0), "{reply}");
    let tags = |id: i32| session.stored("events", id).unwrap().get_array("tags").unwrap().len();
    assert_eq!([tags(0), tags(1)], [1, 1]);
    // What was not carried out is rejected.
    session.number += 1;
    let reply = session.send(&enforce, doc! { "update": "events", "updates": [set(0, -1), set(1, 1)] });
    assert_eq!((reply.get_i32("n").ok(), write_errors(&reply).len()), (Some(0), 1), "{reply}");
}

/// With a connection of docward's own, on which the processes learn of each other.
fn with_service(rules: &str) -> Builder {
    Docward::before(&Mongod::shared().uri()).rules(rules).argument("--service").argument(Mongod::shared().uri())
}

/// Sends an update of a new node to both.
fn increment_node(session: &mut Session, first: &Docward, second: &Docward) {
    let id = format!("n{}", session.number);
    let nodes = [&id, "root"].map(|id| doc! { "_id": id, "path": null, "n": 0, "owner": 0 });
    Mongod::shared().command(&session.database, doc! { "insert": "nodes", "documents": nodes.to_vec() });
    let moved = doc! { "q": { "_id": &id }, "u": { "$inc": { "n": 1 }, "$set": { "parent": "root" } } };
    let replies = session.write(first, second, doc! { "update": "nodes", "updates": [moved] });
    assert!(replies.iter().all(|reply| reply.get_i32("n").ok() == Some(1)), "{replies:?}");
    assert_eq!(session.stored("nodes", id).unwrap().get_i32("n").unwrap(), 1);
}

/// With a service connection each docward knows the rules of the others before they are used.
#[test]
fn docwards_know_each_others_rules() {
    const ENDED: &str = "the override of the rule's mode ended";
    let mut session = Session::new();
    let database = session.database.clone();
    // The overrides of all tests are in one collection.
    let rules = |mode: &str| rules(&database, mode).replace("- { name: ", "- { name: known-");
    let (shadow, enforce) = (rules("mode: shadow"), rules("mode: enforce"));
    let [first, second] = [(); 2].map(|()| with_service(&shadow).start());
    first.rewrite_rules(&enforce);
    first.wait_for_log("rules loaded");
    send_to_both(&database, None, [("first", &first), ("second", &second)]);
    let mut before = Cases::new(&database, None);
    before.send(&second, "before the override");
    let names: Vec<&str> = shadow.lines().filter_map(|line| line.split_once("name: ")?.1.split(',').next()).collect();
    let mode = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(docward_executable());
        command.args(["mode", name, "--service", &Mongod::shared().uri(), "--rules"]).arg(first.rules_file());
        command.args(arguments).stdout(Stdio::null()).spawn().unwrap()
    };
    let mut both = || {
        increment_node(&mut session, &first, &second);
        increment_node(&mut session, &second, &first);
    };
    // While both change, one sends a write to the other all the time.
    let mut wait = |running: Vec<Child>| {
        for mut process in running {
            assert!(process.wait().unwrap().success());
            both();
        }
    };
    // One ends by itself.
    let length = |name: &str| if name == "known-nodes-0" { "5s" } else { "5m" };
    let begin = |name: &&str| mode(name, &["enforce", "--for", length(name), "--reason", "r"]);
    wait(names.iter().map(begin).collect());
    wait_for_lines(&second, "the rule's mode is overridden", names.len());
    before.send(&second, "overridden");
    before.finish("shadow, then an override");
    let mut during = Cases::new(&database, None);
    during.send(&second, "overridden");
    wait_for_lines(&second, ENDED, 1);
    wait(names.iter().filter(|name| length(name) == "5m").map(|name| mode(name, &["--clear"])).collect());
    wait_for_lines(&second, ENDED, names.len());
    during.send(&second, "after the override");
    during.finish("an override, then shadow");
}

/// A driver repeats a write whose connection breaks before the reply.
#[tokio::test]
async fn a_driver_that_loses_the_reply_during_a_reload_writes_once() {
    for (before, after) in [("shadow", "enforce"), ("enforce", "shadow")] {
        let session = Session::new();
        let docward = session.docward(before);
        let cutter = Cutter::start(&docward.address());
        let client = mongodb::Client::with_uri_str(format!("mongodb://{}/?directConnection=true", cutter.address));
        let nodes = client.await.unwrap().database(&session.database).collection::<Document>("nodes");
        nodes.find_one(doc! {}).await.unwrap();
        let change = doc! { "$inc": { "n": 1 }, "$set": { "parent": "root" } };
        cutter.cut(docward, rules(&session.database, &format!("mode: {after}")));
        let updated = nodes.update_one(doc! { "_id": "a" }, change).await.unwrap();
        assert_eq!(updated.matched_count, 1);
        assert!(cutter.has_cut(), "the reply was not lost");
        assert_eq!(session.stored("nodes", "a").unwrap().get_i32("n").ok(), Some(1), "{before} to {after}");
    }
}

/// A TCP proxy that loses one reply to an update, and then lets docward reload its rules.
struct Cutter {
    address: String,
    shared: Arc<CutterState>,
}

#[derive(Default)]
struct CutterState {
    armed: std::sync::Mutex<Option<(Docward, String)>>,
    /// The docward whose rules are changed runs on.
    kept: std::sync::Mutex<Option<Docward>>,
    has_cut: AtomicBool,
}

impl Cutter {
    fn start(upstream: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(CutterState::default());
        let (state, upstream) = (shared.clone(), upstream.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(&upstream).unwrap();
                let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let is_update = Arc::new(AtomicBool::new(false));
                let (seen, state) = (is_update.clone(), state.clone());
                std::thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(length @ 1..) = from_client.read(&mut buffer) {
                        let is_update = buffer[..length].windows(8).any(|name| name == b"\x02update\0");
                        seen.store(is_update, Ordering::SeqCst);
                        if to_server.write_all(&buffer[..length]).is_err() {
                            break;
                        }
                    }
                });
                std::thread::spawn(move || state.forward_replies(server, client, &is_update));
            }
        });
        Self { address, shared }
    }

    fn cut(&self, docward: Docward, rules: String) {
        *self.shared.armed.lock().unwrap() = Some((docward, rules));
    }

    fn has_cut(&self) -> bool {
        self.shared.has_cut.load(Ordering::SeqCst)
    }
}

impl CutterState {
    fn forward_replies(&self, mut server: TcpStream, mut client: TcpStream, is_update: &AtomicBool) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = server.read(&mut buffer) {
            if is_update.load(Ordering::SeqCst)
                && let Some((docward, rules)) = self.armed.lock().unwrap().take()
            {
                docward.rewrite_rules(&rules);
                docward.signal("HUP");
                docward.wait_for_log("rules loaded");
                *self.kept.lock().unwrap() = Some(docward);
                self.has_cut.store(true, Ordering::SeqCst);
                break;
            }
            if client.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(std::net::Shutdown::Both);
    }
}
