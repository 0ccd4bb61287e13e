//! The server fails one of the commands that docward sends for a client's command: a part, a query, a transaction's end.
//! Whatever it is, what is stored is what the reply shows, also after the driver's retry.

use bson::{Bson, Document, doc};
use support::driver::{ok, scaled, write_errors};
use support::mongod::{Kind, Mongod};
use support::process::TIMEOUT;
use support::proxy::Docward;
use support::random::Random;
use support::raw::Client;

const RULES: &str = r#"
version: 1
rules:
  - { name: stock, namespace: "*.stock", bounds: { field: n, max: 100, on_no_room: error } }
  - { name: saves, namespace: "*.saves", replacement: { policy: check_version, version: version } }
  - { name: categories, namespace: "*.categories", tree: { path: path, parent: parent } }
  - { name: jobs, namespace: "*.jobs", queue: { lease: 5m } }
  - { name: counted, namespace: "*.counted", sequence: { field: no, counter: no } }
  - { name: pairs, namespace: "*.pairs", together: [n, m] }
  - { name: users, namespace: "*.limited", except: { users: [admin.other] }, bounds: { field: n, max: 100 } }
"#;

/// A command whose statement number `i` is executed once if `executions` of document `i` returns 1.
struct CommandCase {
    name: &'static str,
    stored: Vec<Document>,
    command: Document,
    statements: usize,
    /// The statement that a rule rejects.
    rejected: Option<usize>,
    executions: fn(Option<&Document>) -> i32,
    /// Drivers give it no number.
    is_multi: bool,
    /// The server's commands that may fail.
    parts: &'static [&'static str],
}

fn increment(id: i32) -> Document {
    doc! { "q": { "_id": id }, "u": { "$inc": { "n": 1 } } }
}

fn documents(count: i32) -> Vec<Document> {
    (0..count).map(|id| doc! { "_id": id, "n": 0, "version": 1 }).collect()
}

fn commands() -> Vec<CommandCase> {
    let n = |document: Option<&Document>| document.map_or(0, |document| document.get_i32("n").unwrap_or(0));
    let exists = |document: Option<&Document>| i32::from(document.is_some());
    let is_deleted = |document: Option<&Document>| i32::from(document.is_none());
    let version = |document: Option<&Document>| document.unwrap().get_i32("version").unwrap() - 1;
    let full = || vec![doc! { "_id": 0, "n": 0 }, doc! { "_id": 1, "n": 100 }, doc! { "_id": 2, "n": 0 }];
    let below_full = |document: Option<&Document>| document.unwrap().get_i32("n").unwrap() % 100;
    let upsert = |id: i32| doc! { "q": { "_id": id }, "u": { "_id": id, "work": "mail" }, "upsert": true };
    let base = CommandCase {
        name: "bounded",
        stored: documents(3),
        command: doc! { "update": "stock", "updates": [increment(0), increment(1), increment(2)] },
        statements: 3,
        rejected: None,
        executions: n,
        is_multi: false,
        parts: &["update"],
    };
    let unordered = |command: Document| {
        let mut command = command;
        command.insert("ordered", false);
        command
    };
    let mixed = vec![
        increment(0),
        increment(1),
        doc! { "q": { "_id": 2, "version": 1 }, "u": { "a": 1 } },
        increment(3),
        increment(4),
    ];
    let saves = doc! { "update": "saves", "updates": mixed };
    let nodes = doc! { "insert": "categories", "documents": [{ "_id": 0 }, { "_id": 1 }, { "_id": 2 }] };
    let many = doc! { "update": "saves", "updates": [{ "q": {}, "u": { "$inc": { "n": 1 } }, "multi": true }] };
    let find_and_modify = |upsert: bool| doc! { "findAndModify": "stock", "query": { "_id": 0 }, "update": { "$inc": { "n": 1 } }, "upsert": upsert };
    let stock = base.command.clone();
    // Checked: executed in a transaction, and compared.
    let added = |fields: &[&str]| {
        let sums = fields.iter().map(|field| ((*field).to_owned(), doc! { "$add": [format!("${field}"), 1] }.into()));
        vec![doc! { "$set": sums.collect::<Document>() }]
    };
    let checked = |id: i32| doc! { "q": { "_id": id }, "u": added(&["n", "m"]) };
    let pairs = || (0..3).map(|id| doc! { "_id": id, "n": 0, "m": 0 }).collect::<Vec<_>>();
    let pair = || doc! { "update": "pairs", "updates": [checked(0), checked(1), checked(2)] };
    let breaks = doc! { "q": { "_id": 1 }, "u": added(&["n"]) };
    let merged = || vec![doc! { "$replaceWith": { "$mergeObjects": ["$$ROOT", { "a": 1 }] } }];
    let settled = |id: i32| doc! { "q": { "_id": id }, "u": merged() };
    let all = doc! { "update": "pairs", "updates": [{ "q": {}, "u": added(&["n", "m"]), "multi": true }] };
    let pair_parts = &["findAndModify", "find", "update", "commitTransaction"];
    let roots = || (0..3).map(|id| doc! { "_id": id, "path": null }).collect::<Vec<_>>();
    let jobs = || (0..3).map(|id| doc! { "_id": id, "locked": false, "try": 0 }).collect::<Vec<_>>();
    let deletes = |name: &str, more: Document| {
        let filter = |id: i32| std::iter::once(("_id".to_owned(), id.into())).chain(more.clone()).collect::<Document>();
        let deletes = (0..3).map(|id| doc! { "q": filter(id), "limit": 1 }).collect::<Vec<_>>();
        doc! { "delete": name, "deletes": deletes }
    };
    let without_token = |mut command: Document| {
        let delete = command.get_array_mut("deletes").unwrap()[1].as_document_mut().unwrap();
        delete.get_document_mut("q").unwrap().remove("try");
        command
    };
    vec![
        CommandCase { name: "checked", stored: pairs(), command: pair(), parts: pair_parts, ..copy(&base) },
        CommandCase {
            name: "checked unordered",
            stored: pairs(),
            command: unordered(doc! { "update": "pairs", "updates": [checked(0), breaks, checked(2)] }),
            rejected: Some(1),
            parts: &["findAndModify", "find", "commitTransaction", "abortTransaction"],
            ..copy(&base)
        },
        CommandCase {
            name: "checked beside plain",
            command: doc! { "update": "saves", "updates": [increment(0), settled(1), increment(2)] },
            executions: version,
            parts: pair_parts,
            ..copy(&base)
        },
        CommandCase {
            name: "checked findAndModify",
            stored: pairs(),
            statements: 1,
            command: doc! { "findAndModify": "pairs", "query": { "_id": 0 }, "update": added(&["n", "m"]) },
            parts: pair_parts,
            ..copy(&base)
        },
        CommandCase {
            name: "checked many",
            stored: pairs(),
            statements: 1,
            command: all,
            is_multi: true,
            parts: &["update", "find", "commitTransaction"],
            ..copy(&base)
        },
        CommandCase {
            name: "tree deletes",
            stored: roots(),
            executions: is_deleted,
            command: unordered(deletes("categories", doc! {})),
            parts: &["delete", "find", "commitTransaction"],
            ..copy(&base)
        },
        CommandCase {
            name: "tree remove",
            stored: roots(),
            statements: 1,
            executions: is_deleted,
            command: doc! { "findAndModify": "categories", "query": { "_id": 0 }, "remove": true },
            parts: &["findAndModify", "find", "commitTransaction"],
            ..copy(&base)
        },
        CommandCase {
            name: "deletes",
            stored: jobs(),
            executions: is_deleted,
            command: unordered(without_token(deletes("jobs", doc! { "try": 0 }))),
            rejected: Some(1),
            parts: &["delete"],
            ..copy(&base)
        },
        CommandCase { name: "unordered", command: unordered(stock.clone()), ..copy(&base) },
        CommandCase {
            name: "full",
            stored: full(),
            rejected: Some(1),
            executions: below_full,
            command: unordered(stock),
            parts: &["update", "find"],
            ..copy(&base)
        },
        CommandCase {
            name: "mixed",
            stored: documents(5),
            statements: 5,
            executions: version,
            command: saves.clone(),
            ..copy(&base)
        },
        CommandCase {
            name: "mixed unordered",
            stored: documents(5),
            statements: 5,
            executions: version,
            command: unordered(saves),
            ..copy(&base)
        },
        CommandCase {
            name: "tree",
            stored: vec![],
            executions: exists,
            command: nodes.clone(),
            parts: &["insert", "find", "update", "commitTransaction"],
            ..copy(&base)
        },
        CommandCase {
            name: "tree unordered",
            stored: vec![],
            executions: exists,
            command: unordered(nodes),
            parts: &["insert", "find", "commitTransaction", "abortTransaction"],
            ..copy(&base)
        },
        CommandCase {
            name: "jobs",
            stored: vec![],
            statements: 2,
            executions: exists,
            command: doc! { "update": "jobs", "updates": [upsert(0), upsert(1)] },
            parts: &["update", "find"],
            ..copy(&base)
        },
        CommandCase {
            name: "counted",
            stored: vec![],
            executions: exists,
            command: doc! { "insert": "counted", "documents": [{ "_id": 0 }, { "_id": 1 }, { "_id": 2 }] },
            parts: &["insert", "connectionStatus", "explain"],
            ..copy(&base)
        },
        CommandCase {
            name: "limited",
            command: doc! { "update": "limited", "updates": [increment(0), increment(1), increment(2)] },
            parts: &["update", "connectionStatus"],
            ..copy(&base)
        },
        CommandCase {
            name: "findAndModify",
            statements: 1,
            command: find_and_modify(false),
            parts: &["findAndModify"],
            ..copy(&base)
        },
        CommandCase {
            name: "findAndModify upsert",
            stored: vec![],
            statements: 1,
            command: find_and_modify(true),
            parts: &["findAndModify", "find"],
            ..copy(&base)
        },
        CommandCase {
            name: "many",
            stored: vec![
                doc! { "_id": 0, "n": 0, "version": 1 },
                doc! { "_id": 1, "n": 0, "version": "x" },
                doc! { "_id": 2, "n": 0 },
            ],
            command: many,
            statements: 1,
            is_multi: true,
            ..copy(&base)
        },
        base,
    ]
}

fn copy(case: &CommandCase) -> CommandCase {
    CommandCase { stored: case.stored.clone(), command: case.command.clone(), ..*case }
}

/// Error codes with the labels that the failpoint adds; `None`: those that the server adds itself.
const ERRORS: [(i32, Option<&[&str]>); 8] = [
    (462, Some(&["SystemOverloadedError", "RetryableError", "NoWritesPerformed"])),
    (462, Some(&["SystemOverloadedError", "RetryableError"])),
    (91, None),
    (10107, None),
    (13435, None),
    (11602, None),
    (262, None),
    (1, None),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Numbered,
    Transaction,
}

struct Scene {
    mongod: Mongod,
    docward: Docward,
    direct: Client,
}

impl Scene {
    fn start() -> Scene {
        let mongod = Mongod::start(Kind::ReplicaSet);
        let docward = Docward::before(&mongod.uri()).rules(RULES).environment("RUST_LOG", "error").start();
        let direct = Client::connect(&mongod.address());
        Scene { mongod, docward, direct }
    }

    fn fail(&mut self, mode: impl Into<Bson>, data: Document) {
        let command = doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data };
        let reply = self.direct.command("admin", command);
        assert!(ok(&reply), "{reply}");
    }

    /// How often each statement was executed.
    fn executions(&mut self, database: &str, case: &CommandCase) -> Vec<i32> {
        let collection = case.command.values().next().unwrap().as_str().unwrap();
        let found = self.direct.command(database, doc! { "find": collection, "sort": { "_id": 1 } });
        let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        let document = |id: usize| {
            let mut found = found.iter().map(|document| document.as_document().unwrap());
            found.find(|document| document.get_i32("_id").ok() == Some(id as i32))
        };
        (0..expected(case).len()).map(|id| (case.executions)(document(id))).collect()
    }
}

fn has_label(reply: &Document, label: &str) -> bool {
    reply.get_array("errorLabels").is_ok_and(|labels| labels.contains(&label.into()))
}

/// A command with its session, as a driver sends it.
fn with_session(command: &Document, form: Form, session: &Document, number: i64) -> Document {
    let mut command = command.clone();
    if form != Form::Plain {
        command.extend(doc! { "lsid": session, "txnNumber": number });
    }
    if form == Form::Transaction {
        command.extend(doc! { "startTransaction": true, "autocommit": false });
    }
    command
}

/// Each statement is executed as often as the reply shows: once, or never if it has an error. Where it reports that docward
/// does not know, both are right.
fn assert_true(reply: &Document, stored: &[i32], case: &CommandCase, what: &str) {
    assert!(!reply.contains_key("errorLabels"), "{what}: a label that allows a retry: {reply}");
    if case.command.contains_key("findAndModify") {
        let n = reply.get_document("lastErrorObject").unwrap().get_i32("n").unwrap();
        return assert_eq!(stored, [n], "{what}: {reply}");
    }
    let errors = reply.get_array("writeErrors").cloned().unwrap_or_default();
    let error = |index: usize| {
        errors
            .iter()
            .map(|error| error.as_document().unwrap())
            .find(|error| error.get_i32("index").unwrap() as usize == index)
    };
    let ordered = case.command.get_bool("ordered").unwrap_or(true);
    let first = write_errors(reply).first().map_or(usize::MAX, |(index, _)| *index as usize);
    let mut least = 0;
    for (index, count) in stored.iter().enumerate() {
        let statement = if case.is_multi { 0 } else { index };
        let reported = error(statement);
        let is_known = reported.is_none_or(|error| {
            !error.get_str("errmsg").unwrap_or("").contains("known")
                && !error.get_str("errmsg").unwrap_or("").contains("not show")
        });
        match reported {
            Some(_) if case.is_multi || !is_known => assert!(*count <= 1, "{what}: {stored:?}, {reply}"),
            Some(_) => assert_eq!(*count, 0, "{what}: statement {index} of {stored:?}, {reply}"),
            None if ordered && statement > first => {
                // A group that was sent together with the first that failed.
                let together = error(first).unwrap().get_str("errmsg").unwrap_or("").contains("not show");
                assert!(*count == 0 || together && *count == 1, "{what}: {stored:?}, {reply}");
            }
            None => {
                assert_eq!(*count, 1, "{what}: statement {index} of {stored:?}, {reply}");
                least += 1;
            }
        }
    }
    assert!(reply.get_i32("n").unwrap() >= least, "{what}: {stored:?}, {reply}");
}

fn expected(case: &CommandCase) -> Vec<i32> {
    let length = if case.is_multi { 3 } else { case.statements };
    (0..length).map(|index| i32::from(case.rejected != Some(index))).collect()
}

fn run(
    scene: &mut Scene,
    case: &CommandCase,
    part: &str,
    skip: i32,
    (code, labels): (i32, Option<&[&str]>),
    form: Form,
) {
    let what = format!("{} {form:?}: {part} {skip} fails with {code} {labels:?}", case.name);
    let database = scene.mongod.fresh_database();
    let collection = case.command.values().next().unwrap().as_str().unwrap().to_owned();
    if !case.stored.is_empty() {
        scene.direct.command(&database, doc! { "insert": &collection, "documents": case.stored.clone() });
    }
    let mut client = Client::connect(&scene.docward.address());
    client.command("admin", doc! { "hello": 1 });
    let session = doc! { "id": bson::Uuid::new() };
    let mut data = doc! { "failCommands": [part], "errorCode": code };
    if let Some(labels) = labels {
        data.insert("errorLabels", labels.to_vec());
    }
    let mut command = with_session(&case.command, form, &session, 1);
    if labels.is_some() {
        // Bounds the time for which docward repeats a part.
        command.insert("maxTimeMS", 150);
    }
    scene.fail(doc! { "skip": skip }, data);
    let reply = client.try_command(&database, command, TIMEOUT);
    scene.fail("off", doc! {});
    if form == Form::Transaction {
        return finish_transaction(scene, case, &database, &session, reply, &what);
    }
    let stored = scene.executions(&database, case);
    let is_retried = match &reply {
        Some(reply) if ok(reply) => return assert_true(reply, &stored, case, &what),
        None => {
            assert!(stored.iter().all(|count| *count <= 1), "{what}: closed, {stored:?}");
            form == Form::Numbered
        }
        Some(reply) => {
            let is_retried = has_label(reply, "RetryableError") || has_label(reply, "RetryableWriteError");
            if form == Form::Plain || has_label(reply, "NoWritesPerformed") || !is_retried {
                assert!(stored.iter().all(|count| *count == 0), "{what}: {stored:?}, but {reply}");
            }
            // A write does not get this code. (The server itself has a find that looks for a retry.)
            let is_query = form == Form::Plain && matches!(part, "find" | "connectionStatus" | "explain");
            assert!(!is_query || reply.get_i32("code").unwrap() != 13435, "{what}: the code of a read: {reply}");
            // InternalError, MaxTimeMSExpired of a slow machine, and that 300 attempts at docward's transaction failed.
            let is_passing = !matches!(reply.get_i32("code").unwrap(), 1 | 50 | 112);
            assert!(form == Form::Plain || !is_passing || is_retried, "{what}: no driver retries {reply}");
            is_retried
        }
    };
    if is_retried {
        // The driver sends the same command again, on another connection after a network error.
        let mut client = Client::connect(&scene.docward.address());
        let again = client.command(&database, with_session(&case.command, form, &session, 1));
        let stored = scene.executions(&database, case);
        assert!(ok(&again), "{what}: {again}");
        assert_eq!(stored, expected(case), "{what}: after a retry, {reply:?} then {again}");
    }
}

/// Ends a client's transaction as a driver does, and begins it again if the error has the label for it.
fn finish_transaction(
    scene: &mut Scene,
    case: &CommandCase,
    database: &str,
    session: &Document,
    reply: Option<Document>,
    what: &str,
) {
    let mut client = Client::connect(&scene.docward.address());
    let end = |client: &mut Client, name: &str, number: i64| {
        client.command("admin", doc! { name: 1, "lsid": session, "txnNumber": number, "autocommit": false })
    };
    let succeeded = |reply: &Document| ok(reply) && write_errors(reply).is_empty();
    let mut reply = reply.unwrap_or_else(|| doc! { "ok": 0.0, "errorLabels": ["TransientTransactionError"] });
    let mut number = 1;
    if has_label(&reply, "RetryableError") {
        // The same command again, in the same transaction.
        let mut again = with_session(&case.command, Form::Transaction, session, number);
        let is_first = scene.executions(database, case).iter().all(|count| *count == 0);
        assert!(is_first, "{what}: visible outside the transaction");
        reply = client.command(database, again.clone());
        if !ok(&reply) && !has_label(&reply, "TransientTransactionError") {
            again.remove("startTransaction");
            reply = client.command(database, again);
        }
    }
    if !succeeded(&reply) && has_label(&reply, "TransientTransactionError") {
        end(&mut client, "abortTransaction", number);
        number += 1;
        reply = client.command(database, with_session(&case.command, Form::Transaction, session, number));
    }
    if succeeded(&reply) {
        assert!(ok(&end(&mut client, "commitTransaction", number)), "{what}: {reply}");
        assert_eq!(scene.executions(database, case), expected(case), "{what}: {reply}");
    } else {
        // An application that ignores the error and commits must not commit a part.
        end(&mut client, "commitTransaction", number);
        let stored = scene.executions(database, case);
        assert!(stored.iter().all(|count| *count == 0), "{what}: {stored:?}, {reply}");
    }
}

#[test]
fn what_is_stored_is_what_the_reply_shows() {
    let mut scene = Scene::start();
    let mut cases = Vec::new();
    let commands = commands();
    for case in &commands {
        for part in case.parts {
            for skip in 0..4 {
                for error in ERRORS {
                    for form in [Form::Plain, Form::Numbered, Form::Transaction] {
                        let is_sent = match form {
                            Form::Plain => true,
                            Form::Numbered => !case.is_multi,
                            Form::Transaction => !part.ends_with("Transaction") && case.rejected.is_none(),
                        };
                        if is_sent {
                            cases.push((case, *part, skip, error, form));
                        }
                    }
                }
            }
        }
    }
    let mut random = Random(47);
    for _ in 0..scaled(120).min(cases.len() as u32) {
        let (case, part, skip, error, form) = cases.swap_remove(random.below(cases.len()));
        run(&mut scene, case, part, skip, error, form);
    }
}

/// docward repeats a part until the server is no longer overloaded: the client does not notice.
#[test]
fn a_part_is_repeated_while_the_server_is_overloaded() {
    let mut scene = Scene::start();
    for case in commands() {
        for part in case.parts {
            if case.statements < 2 || matches!(*part, "connectionStatus" | "explain") {
                continue;
            }
            let database = scene.mongod.fresh_database();
            let collection = case.command.values().next().unwrap().as_str().unwrap().to_owned();
            if !case.stored.is_empty() {
                scene.direct.command(&database, doc! { "insert": &collection, "documents": case.stored.clone() });
            }
            let skip = if *part == "abortTransaction" { 0 } else { 1 };
            let data = doc! { "failCommands": [*part], "errorCode": 462, "errorLabels": ERRORS[0].1.unwrap().to_vec() };
            scene.fail(doc! { "skip": skip }, data);
            let address = scene.docward.address();
            let (sent, name) = (case.command.clone(), database.clone());
            let client = std::thread::spawn(move || Client::connect(&address).command(&name, sent));
            std::thread::sleep(std::time::Duration::from_millis(60));
            scene.fail("off", doc! {});
            let reply = client.join().unwrap();
            let what = format!("{} {part}", case.name);
            let stored = scene.executions(&database, &case);
            if ok(&reply) {
                assert_true(&reply, &stored, &case, &what);
                assert_eq!(stored, expected(&case), "{what}: {reply}");
            } else {
                // Nothing was executed before this part.
                assert!(has_label(&reply, "RetryableError"), "{what}: {reply}");
                assert!(stored.iter().all(|count| *count == 0), "{what}: {stored:?}, {reply}");
            }
        }
    }
}

/// Also those of the commit and of the abort.
#[test]
fn repeats_end_with_the_time_limit_of_the_client() {
    let mut scene = Scene::start();
    let database = scene.mongod.fresh_database();
    let ends = ["commitTransaction", "abortTransaction"];
    let data = doc! { "failCommands": ends.to_vec(), "errorCode": 462, "errorLabels": ERRORS[0].1.unwrap().to_vec() };
    scene.fail("alwaysOn", data);
    let nodes = vec![doc! { "_id": 0 }, doc! { "_id": 1, "parent": 0 }];
    let begun = std::time::Instant::now();
    let insert = doc! { "insert": "categories", "documents": nodes, "maxTimeMS": 100 };
    let reply = Client::connect(&scene.docward.address()).command(&database, insert);
    let elapsed = begun.elapsed();
    scene.fail("off", doc! {});
    assert!(elapsed < std::time::Duration::from_millis(900), "{elapsed:?} {reply}");
    let stored = scene.direct.command(&database, doc! { "count": "categories", "query": { "_id": { "$gte": 0 } } });
    let counts = [&reply, &stored].map(|reply| reply.get_i32("n").unwrap());
    assert_eq!((counts, write_errors(&reply).len()), ([1, 1], 1), "{reply}");
}

/// The first write of a connection at a member that has stepped down, whatever docward asks before it.
#[test]
fn after_a_step_down_the_error_is_the_one_of_the_write() {
    let mut scene = Scene::start();
    let database = scene.mongod.fresh_database();
    // The connections that know a primary are closed by it.
    let mut through: Vec<Client> = Vec::new();
    let sent: Vec<(CommandCase, Form)> = commands()
        .iter()
        .flat_map(|case| [Form::Plain, Form::Numbered, Form::Transaction].map(|form| (copy(case), form)))
        .filter(|(case, form)| !case.is_multi || *form == Form::Plain)
        .collect();
    through.extend(sent.iter().map(|_| Client::connect(&scene.docward.address())));
    let stepped_down = scene.direct.command("admin", doc! { "replSetStepDown": 60, "force": true });
    assert!(ok(&stepped_down), "{stepped_down}");
    let error = |reply: &Document| {
        ["ok", "code", "codeName", "errmsg", "errorLabels"].map(|field| (field, reply.get(field).cloned()))
    };
    for ((case, form), mut through) in sent.into_iter().zip(through) {
        let command = with_session(&case.command, form, &doc! { "id": bson::Uuid::new() }, 1);
        let direct = Client::connect(&scene.mongod.address()).command(&database, command.clone());
        let reply = through.command(&database, command);
        assert_eq!(direct.get_i32("code").unwrap(), 10107, "{direct}");
        assert_eq!(error(&reply), error(&direct), "{} {form:?}", case.name);
    }
}
