//! Tests of errors and their spans, of round trips, and of hostile input. `tests/command_line/mongosh.rs` shows that the parser
//! builds the commands that mongosh sends.

use bson::{Bson, RawDocumentBuf, doc};
use proptest::prelude::*;

use super::{ShellContext, extended_json, is_same, parse, render};
use crate::document::{CowDocument, Document, Value};
use support::cpu_time::CpuTimer;

const DATABASE: &str = "shop";

fn commands(text: &str) -> Vec<bson::Document> {
    let parsed = parse(text, DATABASE).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    parsed.commands.iter().map(|command| to_bson(command.as_document())).collect()
}

fn to_bson(document: Document<'_>) -> bson::Document {
    bson::Document::from_reader(document.as_bytes()).unwrap()
}

fn from_bson(document: &bson::Document) -> Vec<u8> {
    RawDocumentBuf::try_from(document).unwrap().into_bytes()
}

/// Returns the text in the error's span, and its message and help.
fn mistake(text: &str) -> (String, String) {
    let error = parse(text, DATABASE).expect_err(text);
    let marked = text.get(error.span.clone()).unwrap_or_else(|| panic!("{text}: {error:?}"));
    (marked.to_owned(), format!("{} | {}", error.message, error.help.unwrap_or_default()))
}

#[test]
fn errors_have_a_span_and_a_message() {
    for (text, marked, message) in [
        ("", "", "there is no command"),
        ("orders.find()", "orders", "expected `db`, or `{` of a command document, found `orders`"),
        ("db.orders.find(", "", "expected a value, found the end"),
        ("{find: 'c', skip: 1, limit: 2, skip: 3}", "skip", "the field `skip` occurs twice"),
        ("db.orders.find({a 1})", "1", "expected `:` and a value, found a number"),
        ("db.orders.find({a: })", "}", "expected a value, found `}`"),
        ("db.orders.find({a: 1 b: 2})", "b", "expected `,` or `}`, found `b`"),
        ("db.orders.find([1 2])", "2", "expected `,` or `]`, found a number"),
        ("db.orders.find({}) db.orders.find({})", "db", "write one command at a time"),
        ("db.orders", "", "expected `.` and a method, found the end"),
        ("db.orders.updteOne({}, {})", "updteOne", "did you mean `updateOne`?"),
        ("db.orders.createIndex({a: 1})", "createIndex", "db.runCommand({…})"),
        ("db.orders.updateOne({}, {$set: {a: 1}}, {upsrt: true})", "upsrt", "did you mean `upsert`?"),
        ("db.orders.updateOne({}, {$set: {a: 1}}, {upsert: 1})", "1", "`upsert` must be true or false"),
        ("db.orders.updateOne({}, {a: 1})", "{a: 1}", "write {$set: {…}}, or use replaceOne"),
        ("db.orders.replaceOne({}, {$set: {a: 1}})", "{$set: {a: 1}}", "use updateOne"),
        ("db.orders.updateOne({})", ")", "`updateOne` needs an update"),
        ("db.orders.deleteMany()", ")", "`deleteMany` needs a filter"),
        ("db.orders.insertOne([])", "[]", "takes a document here, not an array"),
        ("db.orders.insertMany([])", "insertMany", "the list of documents is empty"),
        ("db.orders.find({}, {}, {}, 5)", "5", "does not take this argument"),
        ("db.orders.bulkWrite([{upsertOne: {}}])", "{upsertOne: {}}", "a bulkWrite operation must be one of"),
        ("db.orders.bulkWrite([{deleteOne: {}}])", "{}", "`deleteOne` needs `filter`"),
        ("db.orders.find({}).srt({a: 1})", "srt", "did you mean `sort`?"),
        ("db.orders.find({a: ObjectID(\"12\")})", "\"12\"", "24 hexadecimal digits"),
        ("db.orders.find({a: ObjectIdd(\"12\")})", "ObjectIdd", "did you mean `ObjectId`?"),
        ("db.orders.find({a: id})", "id", "docward does not evaluate variables and calculations"),
        ("db.orders.find({a: 5 * 60})", "*", "expected `,` or `}`"),
        ("db.orders.find({a: NumberInt(2147483648)})", "2147483648", "from -2147483648 to 2147483647"),
        ("db.orders.find({a: NumberLong(\"abc\")})", "\"abc\"", "a whole number"),
        ("db.orders.find({a: ISODate(\"2026-02-30\")})", "\"2026-02-30\"", "is not a valid date"),
        ("db.orders.find({a: new Date(\"2026-02-03T04:05\")})", "\"2026-02-03T04:05\"", "without a time zone"),
        ("db.orders.find({a: Date(\"2026-02-03\")})", "Date", "new Date"),
        ("db.orders.find({a: Date()})", "Date", "new Date"),
        ("db.orders.find({a: 99999999999999999999n})", "99999999999999999999n", "invalid number"),
        ("db.orders.find({a: 010})", "010", "octal"),
        ("db.orders.find({a: \"x})", "\"", "no closing \""),
        ("db.orders.find({a: `${b}`})", "${", "substitution"),
        ("db.orders.find({a: /x})", "/", "no closing /"),
        ("db.orders.find({a: /x/q})", "q", "invalid flags `q`"),
        ("db.orders.find({}) /* x", "/*", "not closed"),
        ("db.orders.find({__proto__: 1})", "__proto__", "would be lost"),
        ("db.orders.find({$where: function() { return 1 }.x", ".", "expected `,` or `}`"),
        ("db.orders.find({$where: function() { return 1", "function", "this function is not closed"),
        ("db.orders.find({$where: async (é", "async", "this function is not closed"),
        ("use shop db.orders.find()", "use shop db.orders.find()", "write the command on the next line"),
        ("{}", "{}", "the command is empty"),
        ("db.runCommand(\"a\\0\")", "\"a\\0\"", "cannot contain NUL"),
        ("db.c.runCommand('a\\0')", "'a\\0'", "cannot contain NUL"),
        ("db.c.find({'a\\0': 1})", "'a\\0'", "cannot contain NUL"),
        ("db.c.find({a: new RegExp('\\0')})", "'\\0'", "cannot contain NUL"),
        ("{find: \"a\", filter: {_id: {$oid: \"1\"}}}", "{$oid: \"1\"}", "507f1f77bcf86cd799439011"),
    ] {
        let (found, reported) = mistake(text);
        assert_eq!(found, marked, "{text}: {reported}");
        assert!(reported.contains(message), "{text}: {reported}");
    }
}

#[test]
fn methods_of_older_shells_and_generated_values_are_parsed() {
    for (text, command) in [
        // Methods of the old shell.
        ("db.c.save({a: 1})", doc! {"insert": "c", "documents": [{"a": 1}], "ordered": true, "$db": "shop"}),
        (
            "db.c.save({_id: 1, a: 1})",
            doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"_id": 1, "a": 1}, "upsert": true}], "ordered": true, "$db": "shop"},
        ),
        (
            "db.c.update({_id: 1}, {a: 1})",
            doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"a": 1}}], "ordered": true, "$db": "shop"},
        ),
        (
            "db.c.update({}, {$set: {a: 1}}, true, true)",
            doc! {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}, "upsert": true, "multi": true}], "ordered": true, "$db": "shop"},
        ),
        ("use other\ndb.dropDatabase()", doc! {"dropDatabase": 1, "$db": "other"}),
        ("use  other\ndb.c.drop();", doc! {"drop": "c", "$db": "other"}),
        ("db.c.find().project({a: 1})", doc! {"find": "c", "filter": {}, "projection": {"a": 1}, "$db": "shop"}),
    ] {
        assert_eq!(commands(text), [command], "{text}");
    }
    let at = ShellContext { database: DATABASE, now: 1_700_000_000_123 };
    let parsed = parse("db.c.insertOne({a: new Date(), b: ISODate(), c: ObjectId(), d: ObjectId()})", at).unwrap();
    let command = to_bson(parsed.commands[0].as_document());
    let document = command.get_array("documents").unwrap()[0].as_document().unwrap();
    let now = Bson::DateTime(bson::DateTime::from_millis(at.now));
    assert_eq!((document.get("a"), document.get("b")), (Some(&now), Some(&now)));
    let id = |key| document.get_object_id(key).unwrap();
    assert_eq!((id("c").timestamp().timestamp_millis(), id("c") == id("d")), (1_700_000_000_000, false));
}

#[test]
fn what_is_not_evaluated_is_an_error() {
    for (text, part) in [
        ("db.c.find({}).forEach(function(d) { d.x = 1; db.c.save(d) })", "forEach"),
        ("db.c.find().map(d => d.x)", "map"),
        ("db.c.find().forEach(printjson)", "forEach"),
        ("db.c.aggregate([]).map(save)", "map"),
        ("db.c.find().toArray().length", "length"),
        ("db.c.find().next().x", "x"),
        ("db.c.find().explain().queryPlanner", "queryPlanner"),
        ("db.c.find().toArray()[0]", "["),
        ("db.c.findOne({_id: 1}).status", "."),
        ("db.c.find().hasNext() && db.c.drop()", "&"),
        ("db.c.find().count(function() { db.c.drop() })", "function() { db.c.drop() }"),
        ("db.c.find().allowPartialResults(5)", "5"),
        ("db.c.find().readPref('secondary', [], {}, 5)", "5"),
        ("db.c.find().maxAwaitTimeMS(5, 6)", "6"),
        ("db.c.update({}, {$set: {a: 1}}, true, 5)", "5"),
        ("db.c.update({}, {$set: {a: 1}}, true, true, 5)", "5"),
        ("db.c.remove({}, true, 5)", "5"),
        ("db.c.bulkWrite([{insertOne: {document: {a: 1}, x: 5}}])", "x"),
        ("db.c.renameCollection('d', 5)", "5"),
        ("db.c.drop(); db.d.drop()", "db"),
        ("var x = 1; db.c.drop()", "var"),
        ("for (;;) db.c.drop()", "for"),
        ("[{find: 'c'}, {find: 'd'}]", "["),
        ("{find: 'c'} {find: 'd'}", "{"),
        ("{q: {_id: 1}, u: {$set: {a: 1}}}", "q"),
        ("{_id: 1, status: 'paid'}", "_id"),
        ("{Update: 'c', updates: []}", "Update"),
        ("{updates: [], update: 'c'}", "updates"),
        ("{t: {$date: '2026-01-01T00:00:00Z'}, attr: {command: {find: 'c'}}}", "t"),
    ] {
        let error = parse(text, DATABASE).unwrap_err();
        assert_eq!(&text[error.span.clone()], part, "{text}: {error}");
        assert!(!error.message.is_empty());
    }
    let help = |text: &str| parse(text, DATABASE).unwrap_err().help.unwrap();
    assert!(help("{q: {}, u: {a: 1}}").contains("updates: [{q"));
    assert_eq!(help("{Update: 'c'}"), "did you mean `update`?");
    assert!(help("{newCommand: 'c'}").contains("db.runCommand({newCommand: …})"));
    assert_eq!(commands("db.runCommand({newCommand: 'c'})"), [doc! {"newCommand": "c", "$db": "shop"}]);
}

#[test]
fn extended_json_keeps_types_and_order() {
    let oid = bson::oid::ObjectId::parse_str("507f1f77bcf86cd799439011").unwrap();
    for (text, command) in [
        (
            r#"{"find": "c", "filter": {"b": 5, "2": 5.0, "1": 5000000000, "d": {"$date": "2026-01-01T00:00:00Z"}}, "$db": "x"}"#,
            doc! {"find": "c", "filter": {"b": 5, "2": 5.0, "1": 5_000_000_000_i64, "d": bson::DateTime::from_millis(1_767_225_600_000)}, "$db": "x"},
        ),
        (
            r#"{delete: 'c', deletes: [{q: {_id: {$oid: "507f1f77bcf86cd799439011"}}, limit: {$numberInt: "1"}}]}"#,
            doc! {"delete": "c", "deletes": [{"q": {"_id": oid}, "limit": 1}], "$db": "shop"},
        ),
        (
            r#"{"find": "c", "filter": {"a": {"$regex": "^a", "$options": "i"}, "n": {"$numberDouble": "-0.0"}}}"#,
            doc! {"find": "c", "filter": {"a": {"$regex": "^a", "$options": "i"}, "n": -0.0}, "$db": "shop"},
        ),
    ] {
        let parsed = parse(text, DATABASE).unwrap();
        assert_eq!(parsed.commands[0].as_document().as_bytes(), from_bson(&command), "{text}");
    }
}

#[test]
fn commands_are_rendered_as_mongosh_methods() {
    for text in [
        "db.orders.insertOne({_id: 1, \"a.b\": Double(5), c: Long(\"5\"), d: 2147483648, e: -0, f: 1e300})",
        "db.orders.insertMany([{_id: 1}, {_id: 2}], {ordered: false})",
        "db.orders.updateOne({_id: 1}, {$set: {a: ISODate(\"2026-01-01T00:00:00Z\")}}, {upsert: true})",
        "db.orders.updateMany({}, [{$set: {a: \"$b\"}}], {writeConcern: {w: 0}})",
        "db.orders.replaceOne({_id: ObjectId(\"507f1f77bcf86cd799439011\")}, {a: /^a\\/b/im})",
        "db.orders.deleteOne({a: UUID(\"01234567-89ab-cdef-0123-456789abcdef\")}, {hint: \"a_1\"})",
        "db.orders.deleteMany({a: {$in: [MinKey(), Timestamp({t: 5, i: 1}), Decimal128(\"1.50\"), NaN]}})",
        "db.orders.findOneAndUpdate({a: 1}, {$inc: {n: 1}}, {returnDocument: \"after\", upsert: true})",
        "db.orders.findOneAndReplace({a: 1}, {n: 1})",
        "db.orders.findOneAndDelete({a: 1}, {projection: {_id: 1}})",
        "db.orders.find({a: 1})",
        "db.orders.find({a: 1}, {b: 1}).sort({a: -1}).skip(2).limit(5).maxTimeMS(100)",
        "db.orders.find({}, {}, {readConcern: {level: \"majority\"}})",
        "db.orders.count({})",
        "db.orders.estimatedDocumentCount()",
        "db.orders.distinct(\"a\", {})",
        "db.orders.aggregate([{$match: {a: 1}}, {$out: \"x\"}], {allowDiskUse: true})",
        "db.orders.renameCollection(\"x\", true)",
        "db.getSiblingDB(\"other\").getCollection(\"a.b\").drop()",
        "db.getCollection(\"stats\").find({})",
        "db.orders.explain(\"queryPlanner\").find({a: 1})",
        "db.adminCommand({replSetGetStatus: 1})",
        "db.runCommand({mapReduce: \"c\", map: Code(\"f()\"), reduce: Code(\"g()\", {x: 1}), out: \"o\"})",
    ] {
        let parsed = parse(text, DATABASE).unwrap();
        let shown = render(parsed.commands[0].as_document(), DATABASE);
        assert_eq!(shown, text);
    }
    let long = format!("db.orders.updateOne({{_id: 1}}, {{$set: {{title: \"{}\"}}}})", "x".repeat(70));
    let parsed = parse(&long, DATABASE).unwrap();
    let lines = "db.orders.updateOne(\n  {_id: 1},\n  {$set: {title: \"";
    assert!(render(parsed.commands[0].as_document(), DATABASE).starts_with(lines));
}

#[test]
fn commands_that_javascript_cannot_express_are_rendered_as_extended_json() {
    for command in [
        doc! {"find": "c", "filter": {"a": 1, "1": 2}, "$db": "shop"},
        doc! {"find": "c", "filter": {"a": Bson::Undefined}, "$db": "shop"},
        doc! {"find": "c", "filter": {"__proto__": 1}, "$db": "shop"},
    ] {
        let bytes = from_bson(&command);
        let command = Document::parse(&bytes).unwrap();
        let shown = render(command, DATABASE);
        assert!(shown.starts_with("{\"find\""), "{shown}");
        assert!(is_same(parse(&shown, DATABASE).unwrap().commands[0].as_document(), command), "{shown}");
    }
}

#[test]
fn hostile_texts_are_parsed_in_bounded_time() {
    let many = 200_000;
    for text in [
        "[".repeat(many),
        "db.a.find(".to_owned() + &"[".repeat(many),
        "db.a.find(".to_owned() + &"{a:".repeat(many / 3),
        "db.a.find(".to_owned() + &"(".repeat(many),
        "db.a.find(".to_owned() + &"-".repeat(many),
        "db.a.find(".to_owned() + &"new ".repeat(many / 4),
        "db.a.find(".to_owned() + &"Code(".repeat(many / 5),
        "db.a.find(".to_owned() + &"function(){".repeat(many / 11),
        "db".to_owned() + &".a".repeat(many / 2),
        "db.a.find()".to_owned() + &".sort({})".repeat(many / 9),
        "/*".repeat(many / 2),
        "{\"a\": ".repeat(many / 6),
        "{find: 'c'".to_owned() + &(0..many / 10).map(|n| format!(",a{n}:1")).collect::<String>() + "}",
        "db.a.find({".to_owned() + &"a:1,".repeat(many / 4) + "})",
        "db.a.find({".to_owned() + &(0..many / 10).map(|n| format!("a{n}:1,")).collect::<String>() + "})",
        "db.a.find(\"".to_owned() + &"\\".repeat(many) + "\")",
    ] {
        let started = CpuTimer::start();
        let parsed = parse(&text, DATABASE);
        if let Ok(parsed) = parsed {
            parsed.commands.iter().for_each(|command| _ = render(command.as_document(), DATABASE));
        }
        assert!(started.elapsed().as_secs() < 10, "{}", &text[..30]);
    }
    assert!(parse(&" ".repeat(super::MAX_TEXT_BYTES + 1), DATABASE).is_err());
    // A test for quadratic work: each part of a collection name was once copied with every further part.
    let path = format!("db{}.find()", ".a".repeat(450_000));
    let started = CpuTimer::start();
    assert!(parse(&path, DATABASE).is_ok());
    assert!(started.elapsed().as_secs() < 5);
    for depth in [super::MAX_NESTING - 1, crate::document::MAX_DEPTH - 5] {
        // Without the bson crate, which needs more stack than the rest.
        let mut nested = CowDocument::build(|_| {});
        for _ in 1..depth {
            nested = CowDocument::build(|w| w.value("a", Value::document(nested.as_document())));
        }
        let command = CowDocument::build(|w| {
            w.string("find", "c");
            w.value("filter", Value::document(nested.as_document()));
            w.string("$db", DATABASE);
        });
        let shown = render(command.as_document(), DATABASE);
        assert_eq!(parse(&shown, DATABASE).is_ok(), depth < super::MAX_NESTING, "{shown}");
    }
}

/// Values of all types. Documents may have keys that JavaScript would reorder.
fn value() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        any::<i32>().prop_map(Bson::Int32),
        any::<i64>().prop_map(Bson::Int64),
        any::<f64>().prop_map(Bson::Double),
        prop_oneof![Just(0.0), Just(-0.0), Just(5.0), Just(2147483648.0), Just(-2147483649.0)].prop_map(Bson::Double),
        ".{0,6}".prop_map(Bson::String),
        any::<i64>().prop_map(|ms| Bson::DateTime(bson::DateTime::from_millis(ms % 8_640_000_000_000_000))),
        any::<[u8; 12]>().prop_map(|bytes| Bson::ObjectId(bytes.into())),
        any::<bool>().prop_map(Bson::Boolean),
        Just(Bson::Null),
        Just(Bson::Undefined),
        Just(Bson::MinKey),
        Just(Bson::MaxKey),
        any::<(u32, u32)>().prop_map(|(time, increment)| Bson::Timestamp(bson::Timestamp { time, increment })),
        (any::<u8>(), prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(subtype, bytes)| { Bson::Binary(bson::Binary { subtype: subtype.into(), bytes }) }),
        any::<[u8; 16]>().prop_map(|bytes| bson::Uuid::from_bytes(bytes).into()),
        ("[a/\\[\\]^\\\\*\\n]{0,5}", "[imsx]{0,2}").prop_filter_map("C strings", |(pattern, options)| {
            let (pattern, options) = (pattern.try_into().ok()?, options.try_into().ok()?);
            Some(Bson::RegularExpression(bson::Regex { pattern, options }))
        }),
        ".{0,6}".prop_map(Bson::JavaScriptCode),
        ".{0,6}".prop_map(Bson::Symbol),
        "-?[0-9]{1,5}(\\.[0-9]{1,3})?(E-?[0-9]{1,3})?".prop_map(|text| Bson::Decimal128(text.parse().unwrap())),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            document(inner.clone()).prop_map(Bson::Document),
            (".{0,4}", document(inner)).prop_map(|(code, scope)| {
                Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope { code, scope })
            }),
        ]
    })
}

fn document(value: impl Strategy<Value = Bson>) -> impl Strategy<Value = bson::Document> {
    prop::collection::vec(("[a-z$.0-9\"é ]{0,4}", value), 0..4).prop_map(|fields| fields.into_iter().collect())
}

fn command() -> impl Strategy<Value = bson::Document> {
    let options = prop::sample::subsequence(
        vec!["comment", "maxTimeMS", "hint", "let", "writeConcern", "sort", "limit", "ordered", "new", "lsid"],
        0..4,
    );
    let name = prop_oneof![Just("orders"), Just("a.b"), Just("stats"), Just("über x"), Just("_id")];
    (name, 0..9_u8, document(value()), value(), any::<bool>(), options, value()).prop_map(
        |(name, kind, filter, update, flag, options, option)| {
            let mut command = match kind {
                0 => doc! {"insert": name, "documents": [filter.clone()], "ordered": flag},
                1 => doc! {"insert": name, "documents": [filter.clone(), {}], "ordered": true},
                2 => doc! {"update": name, "updates": [{"q": filter.clone(), "u": {"$set": {"a": update}}, "multi": flag}], "ordered": true},
                3 => doc! {"update": name, "updates": [{"q": filter.clone(), "u": {"a": update}, "upsert": flag}, {"q": {}, "u": [{"$unset": "a"}]}], "ordered": flag},
                4 => doc! {"delete": name, "deletes": [{"q": filter.clone(), "limit": i32::from(flag)}], "ordered": true},
                5 => doc! {"findAndModify": name, "query": filter.clone(), "remove": flag, "new": false, "upsert": false},
                6 => doc! {"find": name, "filter": filter.clone(), "limit": 5},
                7 => doc! {"aggregate": name, "pipeline": [{"$match": filter.clone()}, {"$set": {"a": update}}], "cursor": {}},
                _ => doc! {"whatever": update, "filter": filter.clone()},
            };
            options.into_iter().for_each(|name| _ = command.insert(name, option.clone()));
            command.insert("$db", if flag { "shop" } else { "admin" });
            command
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn rendered_commands_are_parsed_as_the_same_command(command in command()) {
        let bytes = from_bson(&command);
        let command = Document::parse(&bytes).unwrap();
        let shown = render(command, DATABASE);
        let parsed = parse(&shown, DATABASE);
        prop_assert!(parsed.is_ok(), "{shown}: {parsed:?}");
        let commands = parsed.unwrap().commands;
        prop_assert_eq!(commands.len(), 1);
        prop_assert!(is_same(commands[0].as_document(), command), "{}", shown);
        let extended = extended_json(command).to_string();
        let parsed = parse(&extended, DATABASE);
        prop_assert!(parsed.is_ok(), "{}: {:?}", extended, parsed);
        prop_assert!(is_same(parsed.unwrap().commands[0].as_document(), command), "{}", extended);
    }

    #[test]
    fn no_text_causes_a_panic(text in "(db\\.(c|getCollection)|use |\\{|\\[|\\(|[a-z$]{1,3}|[0-9.eE+_-]{1,4}|[\"'`/\\\\]|:|,|\\)|\\]|\\}|new |Date|ObjectId|find|updateOne|\\PC|\\n){0,25}") {
        if let Ok(parsed) = parse(&text, DATABASE) {
            for command in parsed.commands {
                let shown = render(command.as_document(), DATABASE);
                let again = CowDocument::build(|w| w.elements(command.as_document()));
                prop_assert!(!shown.is_empty() && is_same(again.as_document(), command.as_document()));
            }
        }
    }
}
