//! `docward validators` on a real mongod: collections with and without validators of their own, rules that change, and for
//! each rule the documents that the server accepts and rejects past docward.

use std::process::Output;

use bson::{Bson, Document, doc};
use serde_json::Value;
use support::mongod::Mongod;
use support::process::docward;
use support::proxy::Docward;
use support::raw::Client;

struct Estate {
    database: String,
    folder: tempfile::TempDir,
}

const RULES: &str = "\
version: 1
rules:
  - { name: stock, namespace: 'DB.*', bounds: { field: available, min: 0 } }
  - { name: record, namespace: DB.books, together: [available, checkout] }
  - { name: exempt, namespace: DB.books, except: { apps: [batch] }, bounds: { field: pages, min: 1 } }
  - { name: kept, namespace: DB.books, frozen: isbn }
";

impl Estate {
    fn new(rules: &str) -> Self {
        let estate = Self { database: Mongod::shared().fresh_database(), folder: tempfile::tempdir().unwrap() };
        estate.write_rules(rules);
        estate
    }

    fn write_rules(&self, rules: &str) {
        std::fs::write(self.folder.path().join("rules.yaml"), rules.replace("DB", &self.database)).unwrap();
    }

    fn command(&self, command: Document) -> Document {
        Mongod::shared().command(&self.database, command)
    }

    fn create(&self, collection: &str, options: Document) {
        let mut create = doc! {"create": collection};
        create.extend(options);
        let reply = self.command(create);
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
    }

    fn run(&self, subcommand: &str, more: &[&str]) -> Output {
        let rules = self.folder.path().join("rules.yaml");
        // By the name, failpoints are of one estate.
        let uri = format!("{}&appName={}", Mongod::shared().uri(), self.database);
        docward(&[&[subcommand, rules.to_str().unwrap(), "--upstream", &uri], more].concat())
    }

    /// The output, which must have this exit code.
    fn validators(&self, code: i32, more: &[&str]) -> String {
        let done = self.run("validators", more);
        let text = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert_eq!(done.status.code(), Some(code), "{more:?}: {text}");
        text.replace(&self.database, "DB")
    }

    /// The options of each collection that are about its validator; the server's defaults by name.
    fn options(&self) -> Vec<(String, Vec<u8>)> {
        let reply = self.command(doc! {"listCollections": 1, "cursor": {"batchSize": 100}});
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        let entry = |info: &Bson| {
            let info = info.as_document().unwrap();
            let options = info.get_document("options").unwrap();
            let text = |key, default| options.get_str(key).unwrap_or(default).to_owned();
            let (level, action) = (text("validationLevel", "strict"), text("validationAction", "error"));
            let validator = options.get_document("validator").cloned().unwrap_or_default();
            let all = doc! {"validator": validator, "level": level, "action": action};
            (info.get_str("name").unwrap().to_owned(), all.to_vec().unwrap())
        };
        let mut options: Vec<_> = batch.iter().map(entry).collect();
        options.sort();
        options
    }

    /// The code of the first error of an insert; 0: none.
    fn insert(&self, collection: &str, document: Document) -> i32 {
        code(&self.command(doc! {"insert": collection, "documents": [document]}))
    }

    fn drifted(&self) -> Vec<String> {
        let done = self.run("check", &["--format", "json"]);
        assert!(done.status.success(), "{done:?}");
        let found: Value = serde_json::from_slice(&done.stdout).unwrap();
        let drifted = found.as_array().unwrap().iter().filter(|one| one["code"] == "R0040");
        let mut drifted: Vec<_> =
            drifted.map(|one| one["message"].as_str().unwrap().replace(&self.database, "DB")).collect();
        drifted.sort();
        drifted
    }
}

/// The code of the first error in a reply; 0: none.
fn code(reply: &Document) -> i32 {
    let errors = reply.get_array("writeErrors");
    errors.map_or(0, |errors| errors[0].as_document().unwrap().get_i32("code").unwrap())
}

#[test]
fn an_estate_with_its_own_validators_gets_the_rules_and_gets_rid_of_them() {
    let estate = Estate::new(RULES);
    let theirs = doc! {"$jsonSchema": {"required": ["title"]}, "$comment": "ours"};
    let encrypted = doc! {"$jsonSchema": {"properties": {"ssn": {"encrypt": {"bsonType": "string"}}}}};
    let algorithm = "AEAD_AES_256_CBC_HMAC_SHA_512-Random";
    let metadata = doc! {"algorithm": algorithm, "keyId": [bson::Uuid::from_bytes([1; 16])]};
    let mut people = encrypted.clone();
    people.get_document_mut("$jsonSchema").unwrap().insert("encryptMetadata", metadata);
    estate.create("books", doc! {});
    estate.create("quiet", doc! {"validationAction": "warn"});
    estate.create("strict", doc! {"validator": theirs.clone()});
    estate.create("moderate", doc! {"validator": theirs.clone(), "validationLevel": "moderate"});
    estate.create("warns", doc! {"validator": theirs.clone(), "validationAction": "warn"});
    estate.create("off", doc! {"validator": theirs, "validationLevel": "off"});
    estate.create("people", doc! {"validator": people});
    estate.create("seen", doc! {"viewOn": "books", "pipeline": []});
    estate.create("hours", doc! {"timeseries": {"timeField": "at"}});
    let before = estate.options();

    // A dry run shows all and changes nothing.
    let shown = estate.validators(1, &[]);
    for part in [
        "+     \"$comment\": {",
        "without `exempt`: `except` exempts clients",
        "without `kept`: a document does not show what was inserted",
        "DB.strict: its own validator rejects documents, and a collection has one action",
        "DB.people: its own validator defines client-side encryption",
        "DB.off: its own validator is off",
    ] {
        assert!(shown.contains(part), "{part} is missing in {shown}");
    }
    assert!(!shown.contains("DB.seen") && !shown.contains("DB.hours"), "{shown}");
    assert_eq!(estate.options(), before);

    // First only warnings.
    estate.validators(1, &["--apply"]);
    assert_eq!((estate.insert("books", doc! {"available": -1}), estate.insert("warns", doc! {})), (0, 0));
    assert_eq!(estate.drifted(), [] as [&str; 0]);
    let applied = estate.options();
    let again = estate.validators(1, &["--apply"]);
    assert!(
        again.contains("DB.books: stays as it is") && again.contains("`record` is not kept by 1 stored document"),
        "{again}"
    );
    assert_eq!(estate.options(), applied);

    // Then rejections. An own validator that only warns stays without them.
    let refused = estate.validators(1, &["--apply", "--enforce"]);
    assert!(refused.contains("DB.warns: its own validator only warns"), "{refused}");
    for (collection, document, expected) in [
        ("books", doc! {"available": -1}, 121),
        ("books", doc! {"available": 1}, 121),
        ("books", doc! {"available": 1, "checkout": []}, 0),
        ("quiet", doc! {"available": -1}, 121),
        ("strict", doc! {"title": "a", "available": -1}, 121),
        ("strict", doc! {"available": 1}, 121),
        ("strict", doc! {"title": "a", "available": 1}, 0),
        ("warns", doc! {"available": -1}, 0),
    ] {
        assert_eq!(estate.insert(collection, document.clone()), expected, "{collection}: {document}");
    }
    // A document from before the rule may stay as it is.
    let update = doc! {"update": "books", "updates": [{"q": {"available": -1}, "u": {"$set": {"seen": true}}}]};
    assert_eq!(estate.command(update).get_i32("nModified").unwrap(), 1);

    // The rules change, and the validators follow.
    assert_eq!(estate.drifted(), [] as [&str; 0]);
    estate.write_rules(&RULES.replace("min: 0", "min: 5").replace("'DB.*'", "DB.books"));
    let drifted: Vec<String> = ["books", "moderate", "quiet", "strict", "warns"]
        .map(|name| format!("the validator of `DB.{name}` is not what the rules require"))
        .into();
    assert_eq!(estate.drifted(), drifted);
    estate.validators(0, &["--apply", "--enforce"]);
    assert_eq!(estate.drifted(), [] as [&str; 0]);
    assert_eq!(estate.insert("books", doc! {"available": 4, "checkout": []}), 121);
    let changed: Vec<_> = estate.options().into_iter().zip(&before).filter(|(now, then)| now != *then).collect();
    assert!(matches!(&changed[..], [(now, _)] if now.0 == "books"), "{changed:?}");

    // Everything is as it was.
    let removed = estate.validators(0, &["--remove"]);
    assert!(removed.contains("changed 1 validator"), "{removed}");
    assert_eq!(estate.options(), before);
    assert!(estate.validators(0, &["--remove"]).contains("changed 0 validators"));
}

#[test]
fn stored_documents_that_fail_stop_an_own_validator_from_being_joined() {
    let estate = Estate::new(
        "version: 1\nrules:\n  - { name: stock, namespace: [DB.books, DB.none, DB.seen], bounds: { field: n, min: 0 } }\n",
    );
    estate.create("books", doc! {"validator": {"title": {"$exists": true}}});
    estate.create("seen", doc! {"viewOn": "books", "pipeline": []});
    for n in [-1, -2, 3] {
        assert_eq!(estate.insert("books", doc! {"title": "a", "n": n}), 0);
    }
    let before = estate.options();
    let refused = estate.validators(1, &["--apply", "--enforce"]);
    for part in [
        "DB.books: it has a validator of its own, which would not be kept for the stored documents that fail the rules",
        "`stock` is not kept by 2 stored documents",
        "DB.none: there is no such collection",
        "DB.seen: it is a view",
    ] {
        assert!(refused.contains(part), "{part} is missing in {refused}");
    }
    assert_eq!(estate.options(), before);
    let correct = doc! {"update": "books", "updates": [{"q": {}, "u": {"$set": {"n": 1}}, "multi": true}]};
    assert_eq!(code(&estate.command(correct)), 0);
    estate.validators(1, &["--apply", "--enforce"]);
    assert_eq!(estate.insert("books", doc! {"title": "a", "n": -1}), 121);
    assert_eq!(estate.insert("books", doc! {"n": 1}), 121);
}

#[test]
fn validators_of_rules_that_are_not_loaded_stay() {
    let rule = |name: &str| {
        format!(
            "version: 1\nrules:\n  - {{ name: {name}, namespace: DB.{name}, frozen: x }}\n  - {{ name: {name}-n, namespace: DB.{name}, limits: {{ document: 1KiB }} }}\n"
        )
    };
    let estate = Estate::new(&rule("one"));
    ["one", "two"].iter().for_each(|name| estate.create(name, doc! {}));
    let before = estate.options();
    estate.validators(0, &["--apply"]);
    let first = estate.options();
    estate.write_rules(&rule("two"));
    assert!(estate.validators(0, &["--apply"]).contains("changed 1 validator"));
    assert_eq!(estate.drifted(), [] as [&str; 0]);
    estate.validators(0, &["--remove"]);
    assert_eq!(estate.options(), first);
    estate.write_rules(&rule("one"));
    estate.validators(0, &["--remove"]);
    assert_eq!(estate.options(), before);
}

#[test]
fn parts_of_other_rules_and_changes_by_hand_stay() {
    let stock = "version: 1\nrules:\n  - { name: stock, namespace: DB.books, bounds: { field: n, min: 0 } }\n";
    let (pages, both) = (
        stock.replace("stock", "pages"),
        format!("{stock}{}", "  - { name: pages, namespace: DB.books, together: [a, b] }\n"),
    );
    let estate = Estate::new(stock);
    estate.create("books", doc! {});
    let before = estate.options();
    let refuses = |action: &str, why: &str| {
        let options = estate.options();
        let refused = estate.validators(1, &[action]);
        assert!(refused.contains(&format!("DB.books: {why}")), "{refused}");
        assert_eq!(estate.options(), options, "{refused}");
    };
    let other = "it has a part of other rules (`stock`); load them too";
    estate.validators(0, &["--apply"]);
    estate.write_rules(&pages);
    refuses("--apply", other);
    assert!(estate.validators(0, &["--remove"]).contains("changed 0 validators"));
    estate.write_rules(&both);
    estate.validators(0, &["--apply"]);
    estate.write_rules(&pages);
    refuses("--apply", other);
    refuses("--remove", other);

    estate.write_rules(&both);
    let options = Document::from_reader(&estate.options()[0].1[..]).unwrap();
    let made = options.get_document("validator").unwrap();
    let set = |validator: Document| _ = estate.command(doc! {"collMod": "books", "validator": validator});
    let theirs = Bson::from(doc! {"x": {"$exists": true}});
    let by_hand: [fn(&mut Document, Bson); 4] = [
        |validator, theirs| _ = validator.insert("$or", [theirs]),
        |validator, theirs| validator.get_array_mut("$and").unwrap().push(theirs),
        |validator, theirs| _ = validator.insert("$and", [theirs]),
        |validator, _| _ = validator.get_document_mut("$comment").unwrap().insert("note", 1),
    ];
    for change in by_hand {
        let mut changed = made.clone();
        change(&mut changed, theirs.clone());
        set(changed);
        refuses("--apply", "it was changed by hand");
        refuses("--remove", "it was changed by hand");
    }
    set(made.clone());
    estate.validators(0, &["--remove"]);
    assert_eq!(estate.options(), before);
}

#[test]
fn collections_that_docward_writes_get_no_validator() {
    let versions = "version: 1\nrules:\n  - { name: versions, namespace: 'DB.*', schema_version: { field: v, current: 3, minimum: 2 } }\n";
    let estate = Estate::new(versions);
    ["counters", "orders"].iter().for_each(|name| estate.create(name, doc! {}));
    let insert = || ["counters", "orders"].map(|name| estate.insert(name, doc! {"seq": 1}));
    estate.validators(0, &["--apply", "--enforce"]);
    assert_eq!(insert(), [121, 121]);
    let numbers = "  - { name: numbers, namespace: DB.orders, sequence: { field: n, counter: orders } }\n";
    estate.write_rules(&format!("{versions}{numbers}"));
    assert_eq!(estate.drifted(), ["the validator of `DB.counters` is not what the rules require"]);
    for _ in 0..2 {
        estate.validators(0, &["--apply", "--enforce"]);
        assert_eq!(insert(), [0, 121]);
    }
}

#[test]
fn one_collection_that_fails_does_not_stop_the_others() {
    let estate =
        Estate::new("version: 1\nrules:\n  - { name: stock, namespace: 'DB.*', bounds: { field: n, min: 0 } }\n");
    ["a", "b"].iter().for_each(|name| estate.create(name, doc! {}));
    let fail = |mode: Bson, more: Document| {
        let mut data = doc! {"appName": &estate.database};
        data.extend(more);
        let reply =
            Mongod::shared().command("admin", doc! {"configureFailPoint": "failCommand", "mode": mode, "data": data});
        reply.get_i32("count").unwrap()
    };
    let namespace = format!("{}.a", estate.database);
    fail("alwaysOn".into(), doc! {"failCommands": ["aggregate"], "namespace": namespace, "errorCode": 50});
    let shown = estate.validators(1, &[]);
    assert!(shown.contains("DB.a: its documents cannot be counted: "), "{shown}");
    assert!(shown.contains("dry run: --apply changes 1 validator"), "{shown}");

    // While the first is changed, somebody changes the second.
    let slow = doc! {"failCommands": ["collMod"], "blockConnection": true, "blockTimeMS": 2000};
    let entered = fail(doc! {"times": 1}.into(), slow);
    let applied = std::thread::scope(|scope| {
        let applied = scope.spawn(|| estate.validators(1, &["--apply"]));
        let wait = doc! {"waitForFailPoint": "failCommand", "timesEntered": entered + 1, "maxTimeMS": 60_000};
        Mongod::shared().command("admin", wait);
        estate.command(doc! {"collMod": "b", "validator": {"x": 1}});
        applied.join().unwrap()
    });
    assert!(applied.contains("`DB.b`: its validator has changed meanwhile"), "{applied}");
    assert!(applied.contains("changed 1 of 2 validators"), "{applied}");
    assert_eq!(estate.insert("b", doc! {"x": 1, "n": -1}), 0);
}

#[test]
fn printed_commands_do_what_apply_does() {
    let estate = Estate::new(RULES);
    let defaults = doc! {"validationLevel": "strict", "validationAction": "error"};
    estate.create("books", defaults.clone());
    let mut carts = doc! {"validator": {"a": {"$exists": false}}};
    carts.extend(defaults);
    estate.create("carts", carts);
    let printed = estate.run("validators", &["--print", "--enforce"]);
    assert!(printed.status.success(), "{printed:?}");
    for line in String::from_utf8(printed.stdout).unwrap().lines() {
        let parsed = docward::shell::parse(line, "none").unwrap_or_else(|error| panic!("{line}: {}", error.message));
        let mut command = Document::from_reader(parsed.commands[0].as_document().as_bytes()).unwrap();
        assert_eq!(command.remove("$db"), Some(estate.database.as_str().into()));
        let reply = estate.command(command);
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
    }
    let printed = estate.options();
    estate.validators(0, &["--remove"]);
    estate.validators(0, &["--apply", "--enforce"]);
    assert_eq!(estate.options(), printed);
    assert_eq!(estate.insert("carts", doc! {"available": -1}), 121);
}

/// The validators are those of stricter rules, so that they reject what docward forwards, rewrites or checks.
#[test]
fn through_docward_the_error_of_a_validator_has_the_text_of_the_rule() {
    let strict = "version: 1\nrules:\n  - { name: stock, namespace: DB.books, why: It cannot be lent., bounds: { field: n, min: 5 } }\n  - { name: small, namespace: DB.books, limits: { document: 100B } }\n  - { name: few, namespace: DB.tagged, limits: { items: { tags: 3 } } }\n";
    let estate = Estate::new(strict);
    estate.create("books", doc! {});
    estate.create("tagged", doc! {});
    estate.validators(0, &["--apply", "--enforce"]);
    let lax = strict.replace("min: 5", "min: 0").replace("100B", "1MiB").replace("tags: 3", "tags: 3000");
    let lax = lax.replace("DB", &estate.database);
    let docward = Docward::start(Mongod::shared(), &lax);
    let mut client = Client::connect(&docward.address());
    let id = doc! {"_id": 1};
    assert_eq!(code(&client.command(&estate.database, doc! {"insert": "books", "documents": [{"_id": 1, "n": 9}]})), 0);
    let update = |change: Document| doc! {"update": "books", "updates": [{"q": id.clone(), "u": change}]};
    let fails = "the collection's validator demands that";
    for (command, rule, reason) in [
        (
            doc! {"insert": "books", "documents": [{"n": 7}, {"n": 3}], "ordered": false},
            "stock",
            "`n` is missing or a number",
        ),
        (doc! {"insert": "books", "documents": [{"t": "x".repeat(200)}]}, "small", "it has at most 100 bytes"),
        // The server's details have the array.
        (
            doc! {"insert": "tagged", "documents": [{"tags": vec!["a tag of twenty bytes"; 2000]}]},
            "few",
            "`tags` has at most 3 elements",
        ),
        (update(doc! {"$inc": {"n": -6}}), "stock", "`n` is missing or a number"),
        (update(doc! {"$mul": {"n": 0}}), "stock", "`n` is missing or a number"),
        (update(doc! {"n": 1}), "stock", "`n` is missing or a number"),
        (doc! {"findAndModify": "books", "query": id.clone(), "update": {"$set": {"n": 2}}}, "stock", "`n` is missing"),
        (doc! {"findAndModify": "books", "query": id.clone(), "update": {"$mul": {"n": 0}}}, "stock", "`n` is missing"),
    ] {
        let reply = client.command(&estate.database, command.clone());
        let errors = reply.get_array("writeErrors");
        let error = errors.map_or(&reply, |errors| errors[0].as_document().unwrap());
        assert_eq!(error.get_i32("code").unwrap(), 121, "{command}: {reply}");
        let text = error.get_str("errmsg").unwrap();
        let is_right = text.starts_with(&format!("docward rule '{rule}' rejects this document: {fails} {reason}"));
        assert!(is_right && (rule != "stock" || text.contains("Why: It cannot be lent.")), "{command}: {text}");
        let info = error.get_document("errInfo").unwrap();
        assert_eq!(info.get_document("docward").unwrap().get_str("rule").unwrap(), rule, "{info}");
        assert!(info.contains_key("failingDocumentId") && info.contains_key("details"), "{info}");
    }
    // Past docward the error is the server's.
    let reply = estate.command(update(doc! {"$set": {"n": 1}}));
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(error.get_str("errmsg").unwrap(), "Document failed validation");
}

/// For each rule, documents that it allows, and documents that it does not.
#[test]
fn what_breaks_a_rule_is_rejected_past_docward() {
    let decimal = |text: &str| text.parse::<bson::Decimal128>().unwrap();
    let nested = |value: Bson| doc! {"a": {"n": value}};
    let in_array = |value: Bson| doc! {"a": [7, {"n": 1}, {"n": value}]};
    let infinite = f64::INFINITY;
    let cases: Vec<(&str, Vec<Document>, Vec<Document>)> = vec![
        (
            "bounds: { field: a.n, min: 0, max: 9.5 }",
            vec![
                doc! {},
                doc! {"a": 7},
                doc! {"a": []},
                doc! {"a.n": -1},
                nested(0.into()),
                nested(9.5.into()),
                nested(Bson::Int64(9)),
                nested(decimal("0E-3").into()),
                in_array(3.into()),
                doc! {"a": [[{"n": -1}]]},
            ],
            vec![
                nested((-1).into()),
                nested(9.6.into()),
                nested(f64::NAN.into()),
                nested(infinite.into()),
                nested(decimal("NaN").into()),
                nested(decimal("-0.0001").into()),
                nested(Bson::Null),
                nested("3".into()),
                nested(vec![3].into()),
                in_array((-1).into()),
            ],
        ),
        (
            "bounds: { field: n, min: -3 }",
            vec![doc! {"n": -3}, doc! {"n": i64::MAX}, doc! {"n": decimal("1E+6000")}],
            vec![doc! {"n": infinite}, doc! {"n": decimal("Infinity")}, doc! {"n": f64::NAN}, doc! {"n": -4}],
        ),
        (
            "limits: { items: { list: 2, a.n: 1 }, document: 200B }",
            vec![doc! {"list": [1, 2]}, doc! {"list": {"0": 1, "1": 1, "2": 1}}, in_array(vec![1].into())],
            vec![
                doc! {"list": [1, 2, 3]},
                nested(vec![1, 2].into()),
                in_array(vec![1, 2].into()),
                doc! {"t": "x".repeat(180)},
            ],
        ),
        (
            "together: [a.n, a.m, b]",
            vec![
                doc! {},
                doc! {"a": {"n": 1, "m": null}, "b": 1},
                doc! {"a": [{"n": 1, "m": 1}, {}, 7], "b": 1},
                doc! {"a": {"x": 1}},
            ],
            vec![
                doc! {"b": 1},
                doc! {"a": {"n": 1, "m": 1}},
                doc! {"a": {"n": 1}, "b": 1},
                doc! {"a": [{"n": 1, "m": 1}, {"n": 1}], "b": 1},
                doc! {"a": [{"n": 1}, {"m": 1}], "b": 1},
            ],
        ),
        (
            "together: [x.a.n, x.a.m, b]",
            vec![
                doc! {"x": 7},
                doc! {"x": {"a": [{"n": 1, "m": 1}, {}]}, "b": 1},
                doc! {"x": [{"a": [{"n": 1, "m": 1}]}, {}], "b": 1},
            ],
            vec![
                doc! {"x": {"a": [{"n": 1}, {"m": 1}]}, "b": 1},
                doc! {"x": [{"a": [{"n": 1}, {"m": 1}]}], "b": 1},
                doc! {"x": {"a": [{"n": 1, "m": 1}, {"n": 2}]}, "b": 1},
            ],
        ),
        (
            "schema_version: { field: a.n, current: 3, minimum: 2 }",
            vec![nested(2.into()), nested(3.0.into()), nested(Bson::Int64(3))],
            vec![
                doc! {},
                nested(1.into()),
                nested(4.into()),
                nested(2.5.into()),
                nested(decimal("2").into()),
                nested(f64::NAN.into()),
                in_array(2.into()),
            ],
        ),
        (
            "queue: { lease: 5m }",
            vec![doc! {}, doc! {"try": null, "locked": "w"}, doc! {"try": 3.5, "locked": null}],
            vec![
                doc! {"try": "x"},
                doc! {"try": f64::NAN},
                doc! {"try": [1]},
                doc! {"try": 1_i64 << 60},
                doc! {"locked": [1]},
            ],
        ),
        (
            "bucket: { array: a.n, count: c, limit: 2 }",
            vec![doc! {}, nested(vec![1, 2].into()), doc! {"a": {}}],
            vec![nested(vec![1, 2, 3].into()), nested("x".into()), nested(Bson::Null), doc! {"a": 7}, doc! {"a": []}],
        ),
        (
            "sequence: { field: n, counter: c, provided: reject }",
            vec![doc! {}, doc! {"n": 7}, doc! {"n": null}],
            vec![doc! {"n": "7"}, doc! {"n": [7]}],
        ),
        (
            "tree: { path: path, parent: parent, separator: '.' }",
            vec![
                doc! {},
                doc! {"path": null, "parent": null},
                doc! {"path": ".a.", "parent": "a"},
                doc! {"path": ".a\n.b c,.", "parent": bson::oid::ObjectId::new()},
            ],
            vec![
                doc! {"path": "a."},
                doc! {"path": ".a"},
                doc! {"path": ".."},
                doc! {"path": ".a..b."},
                doc! {"path": ".a.\n"},
                doc! {"path": 7},
                doc! {"parent": ["a"]},
                doc! {"parent": "a.b"},
                doc! {"parent": ""},
            ],
        ),
    ];
    let names = (0..cases.len()).map(|number| format!("c{number}"));
    let names: Vec<String> = names.collect();
    let rule = |(name, (settings, ..)): (&String, &(&str, Vec<Document>, Vec<Document>))| {
        format!("  - {{ name: {name}, namespace: DB.{name}, {settings} }}\n")
    };
    let rules: String = names.iter().zip(&cases).map(rule).collect();
    let estate = Estate::new(&format!("version: 1\nrules:\n{rules}"));
    names.iter().for_each(|name| estate.create(name, doc! {}));
    estate.validators(0, &["--apply", "--enforce"]);
    let mut wrong = Vec::new();
    for (name, (settings, kept, broken)) in names.iter().zip(cases) {
        for (documents, expected) in [(kept, 0), (broken, 121)] {
            for document in documents {
                let update = doc! {"q": {"_id": "u"}, "u": document.clone(), "upsert": true};
                let update = code(&estate.command(doc! {"update": name, "updates": [update]}));
                let inserted = estate.insert(name, document.clone());
                if (inserted, update) != (expected, expected) {
                    wrong.push(format!("{settings}: {document}: {inserted} {update}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
