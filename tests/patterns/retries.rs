//! Retryable writes whose second send meets other rules than the first: in this docward after a change, or in another
//! one. mongod recognises a retry only in the session in which it executed the first send, and docward's transactions have
//! another one than direct writes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bson::{Bson, Document, doc};
use support::driver::write_errors;
use support::mongod::Mongod;
use support::process::{TIMEOUT, docward_executable, poll};
use support::proxy::{Builder, Docward};
use support::raw::Client;

/// A rule of each pattern that carries statements out in transactions.
fn rules(database: &str, mode: &str) -> String {
    format!(
        r#"
version: 1
rules:
  - {{ name: nodes, namespace: {database}.nodes, mode: {mode}, tree: {{ path: path, parent: parent }} }}
  - {{ name: events, namespace: {database}.events, mode: {mode}, timestamps: {{ source: at, type: long, fields: [title] }} }}
  - {{ name: loans, namespace: {database}.loans, mode: {mode}, together: [n, tags] }}
  - name: authors
    namespace: {database}.authors
    mode: {mode}
    copies: [{{ into: {database}.books, key: author_id, fields: {{ name: author_name }}, on_delete: reject }}]
"#
    )
}

const OTHER_RULES: &str = "version: 1\nrules: [{ name: other, namespace: other.c, together: [a, b] }]\n";

/// A client's session, whose writes are sent to one docward and then to another one.
struct Session {
    database: String,
    lsid: Document,
    number: i64,
    /// The name of the client's application.
    app: Option<&'static str>,
}

impl Session {
    fn new() -> Self {
        let database = Mongod::shared().fresh_database();
        let session = Self { database, lsid: doc! { "id": bson::Uuid::new() }, number: 0, app: None };
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
        Docward::start(Mongod::shared(), &rules(&self.database, mode))
    }

    /// Sends the next write to the first docward, and again to the second, as after a lost reply; returns both replies.
    fn write(&mut self, first: &Docward, second: &Docward, command: Document) -> [Document; 2] {
        self.number += 1;
        [first, second].map(|docward| self.send(docward, command.clone()))
    }

    fn send(&self, docward: &Docward, mut command: Document) -> Document {
        command.extend(doc! { "lsid": self.lsid.clone(), "txnNumber": self.number });
        let mut client = Client::connect(&docward.address());
        if let Some(name) = self.app {
            let driver = doc! { "name": "raw", "version": "1" };
            let about = doc! { "application": { "name": name }, "driver": driver, "os": { "type": "Linux" } };
            client.command("admin", doc! { "hello": 1, "client": about });
        }
        client.command(&self.database, command)
    }

    fn stored(&self, collection: &str, id: impl Into<Bson>) -> Option<Document> {
        let find = doc! { "find": collection, "filter": { "_id": id.into() } };
        let found = Mongod::shared().command(&self.database, find);
        let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().first().cloned();
        found.map(|found| found.as_document().unwrap().clone())
    }

    /// Sends writes of each pattern and kind to both, and checks that each was carried out once.
    fn check(&mut self, first: &Docward, second: &Docward) {
        self.prepare();
        let mut run = |command: Document| self.write(first, second, command);
        let counted = |replies: [Document; 2], n: i32| {
            for reply in replies {
                assert_eq!((reply.get_i32("n").ok(), write_errors(&reply).len()), (Some(n), 0), "{reply}");
            }
        };
        let increment = |id: Bson, more: Document| {
            let mut change = doc! { "$inc": { "n": 1 } };
            change.extend(more);
            doc! { "q": { "_id": id }, "u": change }
        };
        // tree
        let moved = |id: &str| increment(id.into(), doc! { "$set": { "parent": "root" } });
        counted(run(doc! { "update": "nodes", "updates": [moved("a")] }), 1);
        let documents: Vec<_> = (0..3).map(|n| doc! { "_id": format!("c{n}"), "parent": "root", "n": 0 }).collect();
        counted(run(doc! { "insert": "nodes", "documents": documents }), 3);
        let updates = (0..3).map(|n| moved(&format!("c{n}"))).collect::<Vec<_>>();
        counted(run(doc! { "update": "nodes", "updates": updates }), 3);
        counted(run(doc! { "delete": "nodes", "deletes": [{ "q": { "n": 1 }, "limit": 1 }] }), 1);
        let modify = doc! { "$inc": { "n": 1 }, "$set": { "parent": "root" } };
        run(doc! { "findAndModify": "nodes", "query": { "_id": "c2" }, "update": modify });
        // timestamps
        let pushed =
            |id: i32| increment(id.into(), doc! { "$set": { "at": 7_i64, "title": "t" }, "$push": { "tags": id } });
        counted(run(doc! { "update": "events", "updates": [pushed(0)] }), 1);
        counted(run(doc! { "update": "events", "updates": [pushed(1), pushed(2)], "ordered": false }), 2);
        let modify = pushed(3).remove("u").unwrap();
        run(doc! { "findAndModify": "events", "query": { "_id": 3 }, "update": modify });
        // together: computed fields are checked, and sent with plain statements
        let computed = || {
            let n = doc! { "$add": ["$n", 1] };
            vec![doc! { "$set": { "n": n, "tags": { "$concatArrays": ["$tags", [1]] } } }]
        };
        let checked = |id: i32| doc! { "q": { "_id": id }, "u": computed() };
        let plain = doc! { "q": { "_id": 2 }, "u": { "$inc": { "n": 1 }, "$push": { "tags": 1 } } };
        counted(run(doc! { "update": "loans", "updates": [checked(0)] }), 1);
        counted(run(doc! { "update": "loans", "updates": [checked(1), plain], "ordered": false }), 2);
        run(doc! { "findAndModify": "loans", "query": { "_id": 3 }, "update": computed() });
        // copies
        counted(run(doc! { "insert": "books", "documents": [{ "_id": 1, "author_id": 1, "author_name": "Ada" }] }), 1);
        let chosen = increment(1.into(), doc! { "$set": { "author_id": 1, "author_name": "Ada" } });
        counted(run(doc! { "update": "books", "updates": [chosen] }), 1);
        counted(run(doc! { "delete": "authors", "deletes": [{ "q": { "_id": 2 }, "limit": 1 }] }), 1);

        let n = |collection: &str, id: Bson| self.stored(collection, id).map(|one| one.get_i32("n").unwrap());
        assert_eq!(n("nodes", "a".into()), None, "one node was deleted, and only one");
        assert_eq!([n("nodes", "c0".into()), n("nodes", "c1".into())], [Some(1); 2]);
        assert_eq!(n("nodes", "c2".into()), Some(2));
        for (collection, id) in ["events", "loans"].into_iter().flat_map(|name| (0..4).map(move |id| (name, id))) {
            let stored = self.stored(collection, id).unwrap();
            assert_eq!((stored.get_i32("n").unwrap(), stored.get_array("tags").unwrap().len()), (1, 1), "{stored}");
        }
        assert_eq!(n("books", 1.into()), Some(1));
    }
}

/// Without a service connection docward knows nothing of others, and doubts for some minutes after its start.
#[test]
fn two_docwards_with_other_modes_carry_a_write_out_once() {
    let mut session = Session::new();
    let (enforce, shadow) = (session.docward("enforce"), session.docward("shadow"));
    session.check(&shadow, &enforce);
    session.check(&enforce, &shadow);
    session.check(&enforce, &enforce);
    // The server's own replies, where it has a record.
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
        Docward::start(Mongod::shared(), &format!("{}  - {saved}\n", rules(&session.database, mode)))
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
    let mut session = Session::new();
    let docward = session.docward("shadow");
    let rules = |mode| rules(&session.database, mode);
    let [shadow, enforce, disabled] = ["shadow", "enforce", "disabled"].map(rules);
    let moved = doc! { "q": { "_id": "a" }, "u": { "$inc": { "n": 1 }, "$set": { "parent": "root" } } };
    let command = doc! { "update": "nodes", "updates": [moved] };
    let mut loads = 0;
    // Also a rule that no longer exists.
    for (before, after) in
        [(&shadow, &enforce), (&enforce, &shadow), (&enforce, &OTHER_RULES.to_owned()), (&disabled, &enforce)]
    {
        let mut load = |rules: &String| {
            loads += 1;
            docward.rewrite_rules(&format!("# {loads}\n{rules}"));
            docward.signal("HUP");
            let is_loaded = || docward.log().iter().filter(|line| line.contains("rules loaded")).count() >= loads;
            poll(TIMEOUT, || is_loaded().then_some(())).expect("the rules are loaded");
        };
        session.prepare();
        load(before);
        session.number += 1;
        session.send(&docward, command.clone());
        load(after);
        let reply = session.send(&docward, command.clone());
        assert_eq!(reply.get_i32("n").ok(), Some(1), "{reply}");
        let stored = session.stored("nodes", "a").unwrap();
        assert_eq!(stored.get_i32("n").unwrap(), 1, "{before}\n{after}");
    }
}

/// A client whose application a rule leaves out is a client without the rule.
#[test]
fn an_exception_carries_a_write_out_once() {
    let mut session = Session::new();
    let enforce = session.docward("enforce");
    let except = rules(&session.database, "enforce").replace("mode: enforce, tree", "except: { apps: [batch] }, tree");
    let except = Docward::start(Mongod::shared(), &except);
    session.app = Some("batch");
    increment_node(&mut session, &enforce, &except);
    increment_node(&mut session, &except, &enforce);
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
    let node = doc! { "_id": &id, "path": null, "n": 0 };
    Mongod::shared().command(&session.database, doc! { "insert": "nodes", "documents": [node] });
    let moved = doc! { "q": { "_id": &id }, "u": { "$inc": { "n": 1 }, "$set": { "parent": "root" } } };
    let replies = session.write(first, second, doc! { "update": "nodes", "updates": [moved] });
    assert!(replies.iter().all(|reply| reply.get_i32("n").ok() == Some(1)), "{replies:?}");
    assert_eq!(session.stored("nodes", id).unwrap().get_i32("n").unwrap(), 1);
}

/// With a service connection each docward knows the rules of the others before they are used.
#[test]
fn docwards_know_each_others_rules() {
    const RULE: &str = "retries-known";
    let mut session = Session::new();
    // The overrides of all tests are in one collection.
    let rules = |mode| rules(&session.database, mode).replace("name: nodes", &format!("name: {RULE}"));
    let (shadow, enforce) = (rules("shadow"), rules("enforce"));
    let [first, second] = [(); 2].map(|()| with_service(&shadow).start());
    let both = |session: &mut Session| {
        increment_node(session, &first, &second);
        increment_node(session, &second, &first);
    };
    first.rewrite_rules(&enforce);
    first.wait_for_log("rules loaded");
    both(&mut session);
    let mode = |arguments: &[&str]| {
        let mut command = Command::new(docward_executable());
        command.arg("mode").arg(RULE).args(arguments).arg("--rules").arg(first.rules_file());
        let output = command.args(["--service", &Mongod::shared().uri()]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    // While both change, one sends a write to the other all the time.
    let end = std::time::Instant::now() + Duration::from_secs(8);
    mode(&["enforce", "--for", "5s", "--reason", "r"]);
    while std::time::Instant::now() < end {
        both(&mut session);
    }
    second.wait_for_log("the override of the rule's mode ended");
    both(&mut session);
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
        cutter.cut(docward, rules(&session.database, after));
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
