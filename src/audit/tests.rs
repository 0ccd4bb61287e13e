//! Reading entries of logs, profiles and captures, and evaluating them with rules.

use bson::doc;
use proptest::prelude::*;

use super::log::LogReader;
use super::*;
use crate::command::{CommandClass, Namespace};
use crate::config::SourceFile;
use crate::document::{CowDocument, Document};
use crate::rules::RuleSet;
use crate::shell::render_unbroken;

fn everything(_: Namespace<'_>, _: CommandClass, _: &[u8]) -> bool {
    true
}

/// A line as mongod 6.0 writes it, reduced to the fields that are read.
fn line(context: &str, kind: &str, namespace: &str, command: &str, more: &str) -> String {
    format!(
        r#"{{"t":{{"$date":"2026-11-21T03:50:04.874+00:00"}},"s":"I",  "c":"WRITE",    "id":51803,   "ctx":"{context}","msg":"Slow query","attr":{{"type":"{kind}","ns":"{namespace}","appName":"billing","command":{command},"durationMillis":0}}{more}}}"#
    )
}

/// The commands read from the lines: in mongosh syntax, or described if its statements are unknown.
fn read_commands(lines: &[String]) -> Vec<String> {
    let (mut reader, mut out) = (LogReader::default(), Vec::new());
    for line in lines {
        reader.parse_line(line.as_bytes(), &everything, &mut out).unwrap();
    }
    reader.finish(&mut out);
    out.iter().map(describe).collect()
}

fn describe(recorded: &RecordedCommand) -> String {
    let partial = if recorded.partial { " (partial)" } else { "" };
    match &recorded.content {
        RecordedContent::Command(command) => format!("{}{partial}", render_unbroken(command.as_document(), "d")),
        RecordedContent::UnknownStatements(UnknownStatements { collection, class, statements, reason, .. }) => {
            format!("{class:?} of {statements} on {collection}: {reason}")
        }
    }
}

const Q: &str = r#"{"q":{"_id":1},"u":{"a":5,"at":{"$date":"2026-01-01T00:00:00.005Z"}},"multi":false,"upsert":false}"#;
const UPDATE: &str = r#"{"update":"c","ordered":true,"comment":"hi","lsid":{"id":{"$uuid":"5d51fd93-1462-46ab-a19e-a0cd23eeb781"}},"txnNumber":2,"$db":"d"}"#;

#[test]
fn statements_and_their_command_are_joined_by_connection() {
    const WHOLE: &str =
        r#"db.c.replaceOne({_id: 1}, {a: 5, at: ISODate("2026-01-01T00:00:00.005Z")}, {comment: "hi"})"#;
    const PART: &str = r#"db.c.replaceOne({_id: 1}, {a: 5, at: ISODate("2026-01-01T00:00:00.005Z")}) (partial)"#;
    const TWICE: &str = "db.c.bulkWrite([{replaceOne: {filter: {_id: 1}, replacement: {a: 5, at: \
                         ISODate(\"2026-01-01T00:00:00.005Z\")}}}, {replaceOne: {filter: {_id: 1}, replacement: {a: 5, \
                         at: ISODate(\"2026-01-01T00:00:00.005Z\")}}}])";
    let write = |context| line(context, "update", "d.c", Q, "");
    let rest = |context| line(context, "command", "d.$cmd", UPDATE, "");
    let find = line("a", "command", "d.c", r#"{"find":"c","filter":{},"$db":"d"}"#, "").replace("04.874", "04.875");
    let remove = line("a", "remove", "d.c", r#"{"q":{"x":{"$gt":2}},"limit":0}"#, "");
    let cut = line(
        "a",
        "update",
        "d.c",
        r#"{"q":{"_id":1},"u":{}}"#,
        r#","truncated":{"command":{"u":{"a":{"type":"string"}}}}"#,
    );
    let body = r#"{"update":"c","updates":[{"q":{},"u":{"$set":{"a":1}}}],"$db":"d"}"#;
    let in_body = line("a", "command", "d.$cmd", body, "");
    let counted = line("a", "command", "d.$cmd", r#"{"update":"c","updates":2,"$db":"d"}"#, "");
    for (lines, expected) in [
        (vec![write("a"), rest("a")], vec![WHOLE]),
        // Lines of another connection are in between.
        (vec![write("a"), write("b"), rest("b"), rest("a")], vec![WHOLE, WHOLE]),
        (
            vec![rest("a")],
            vec!["Update of 1 on c: the source contains neither its documents or statements nor their number"],
        ),
        (vec![write("a")], vec![PART]),
        (vec![write("a"), find.clone()], vec![PART, "db.c.find({})"]),
        (vec![write("a"), remove.clone()], vec![PART, "db.c.deleteMany({x: {$gt: 2}}) (partial)"]),
        // Statements in the body are logged twice.
        (vec![write("a"), in_body], vec!["db.c.updateOne({}, {$set: {a: 1}})"]),
        (vec![write("a"), write("a"), counted.clone()], vec![TWICE]),
        (vec![counted], vec!["Update of 2 on c: the source does not contain its documents or statements"]),
        (vec![cut, rest("a")], vec!["Update of 1 on c: the source truncated it"]),
    ] {
        assert_eq!(read_commands(&lines), expected, "{lines:#?}");
    }
}

#[test]
fn a_command_line_can_come_before_its_statements() {
    let at = |line: String, time: &str| line.replace("03:50:04.874", time);
    let early = |line| at(line, "03:50:04.870");
    let late = |line| at(line, "03:50:05.000");
    let write = || line("a", "update", "d.c", Q, "");
    let rest = || line("a", "command", "d.$cmd", UPDATE, "");
    let body = || {
        let command = format!(r#"{{"update":"c","updates":[{Q}],"$db":"d"}}"#);
        line("a", "command", "d.$cmd", &command, "")
    };
    let other_server = |line: String| line.replace(r#""appName""#, r#""remote":"10.0.0.2:5","appName""#);
    let cut = || {
        let truncated = r#","truncated":{"command":{"u":{"a":{"type":"string"}}}}"#;
        line("a", "update", "d.c", r#"{"q":{"_id":1},"u":{}}"#, truncated)
    };
    let delete = || line("a", "remove", "d.c", r#"{"q":{"x":2},"limit":1}"#, "");
    let delete_rest = || line("a", "command", "d.$cmd", r#"{"delete":"c","ordered":true,"$db":"d"}"#, "");
    let deleted = "db.c.deleteOne({x: 2})".to_owned();
    let unknown =
        "Update of 1 on c: the source contains neither its documents or statements nor their number".to_owned();
    let whole = &read_commands(&[write(), rest()])[0];
    let plain = &read_commands(&[body()])[0];
    let part = &read_commands(&[write()])[0];
    for (lines, expected) in [
        (vec![rest(), write()], vec![whole]),
        (vec![rest(), early(write())], vec![whole]),
        (vec![rest(), cut()], vec![&"Update of 1 on c: the source truncated it".to_owned()]),
        (vec![body(), write()], vec![plain]),
        // The statement is one of a later command.
        (vec![rest(), late(write())], vec![&unknown, part]),
        (vec![rest(), late(write()), late(rest())], vec![&unknown, whole]),
        // Lines of one millisecond, sorted by their texts.
        (vec![delete_rest(), rest(), delete(), write()], vec![whole, &deleted]),
        // Another server's connection has the same number.
        (vec![rest(), other_server(write())], vec![&unknown, part]),
        (vec![write(), other_server(write()), rest(), other_server(rest())], vec![whole, whole]),
    ] {
        let (mut read, mut expected): (Vec<String>, Vec<&String>) = (read_commands(&lines), expected);
        read.sort();
        expected.sort();
        assert_eq!(read.iter().collect::<Vec<_>>(), expected, "{lines:#?}");
    }
}

#[test]
fn masked_values_are_not_values() {
    const MASKED: &str = "Update of 1 on c: the source masks its values";
    let write = || {
        let statement = r####"{"q":{"_id":"###"},"u":{"$set":{"a":"###"}},"multi":"###","upsert":"###"}"####;
        line("a", "update", "d.c", statement, "")
    };
    let command = |namespace: &str, command: &str| line("a", "command", namespace, command, "");
    let rest = || command("d.$cmd", r####"{"update":"###","ordered":"###","$db":"###"}"####);
    let find = command("d.c", r####"{"find":"###","filter":{"_id":"###"},"$db":"###"}"####);
    let nested = command("d.c", r####"{"find":"c","filter":{"a":{"$in":[1,{"ssn":"###"}]}},"$db":"d"}"####);
    let shortened = line("a", "update", "d.c", r#"{"q":{"_id":1},"u":{"text":"..."}}"#, "");
    for (lines, expected) in [
        (vec![write(), rest()], MASKED),
        (vec![write()], MASKED),
        (vec![find], "Find of 1 on c: the source masks its values"),
        (vec![nested], "Find of 1 on c: the source masks its values"),
        (vec![shortened], MASKED),
    ] {
        assert_eq!(read_commands(&lines), [expected], "{lines:#?}");
    }
    let (mut reader, mut out) = (LogReader::default(), Vec::new());
    let read = reader.parse_line(rest().as_bytes(), &everything, &mut out);
    assert_eq!(read, Err(Unreadable("the source masks the name of the collection".to_owned())));
    let sorted = command("d.c", r#"{"$db":"d","filter":{},"find":"c"}"#);
    let read = reader.parse_line(sorted.as_bytes(), &everything, &mut out);
    assert!(read.is_err_and(|Unreadable(reason)| reason.contains("are sorted")));
    let hello = command("admin.$cmd", r####"{"hello":"###","$db":"###"}"####);
    assert_eq!(reader.parse_line(hello.as_bytes(), &|_, _, _| false, &mut out), Ok(()));
    let profile = r####"{"op":"update","ns":"d.c","command":{"q":{"_id":"###"},"u":{"$set":{"a":1}}}}"####;
    profile::parse_line(profile.as_bytes(), &everything, &mut out).unwrap();
    assert_eq!(out.iter().map(describe).collect::<Vec<_>>(), [MASKED]);
}

#[test]
fn a_log_names_its_server() {
    let starting = r#"{"t":{},"c":"CONTROL","ctx":"initandlisten","msg":"MongoDB starting","attr":{"pid":5,"port":27018,"host":"db1"}}"#;
    let rotated =
        r#"{"t":{},"ctx":"initandlisten","msg":"Process Details","attr":{"pid":"5","port":"27018","host":"db1"}}"#;
    let config = r#"{"t":{},"ctx":"conn2","msg":"New replica set config in use","attr":{"config":{"_id":"rs0","members":[{"_id":0,"host":"a:1"},{"_id":1,"host":"b:2"}]}}}"#;
    let other = r#"{"t":{},"ctx":"conn2","msg":"client metadata","attr":{"host":"db1","port":1}}"#;
    for (line, expected) in
        [(starting, &["db1:27018"][..]), (rotated, &["db1:27018"]), (config, &["a:1", "b:2"]), (other, &[])]
    {
        assert_eq!(super::log::servers(line.as_bytes()), expected, "{line}");
    }
}

#[test]
fn missing_parts_of_a_log_entry_are_reported() {
    let insert = r#"{"insert":"c","ordered":true,"$db":"d"}"#;
    let inserted =
        line("a", "command", "d.c", insert, "").replace(r#""durationMillis""#, r#""ninserted":3,"durationMillis""#);
    let hint = line("a", "update", "d.c", r#"{"q":{},"u":{"$inc":{"n":-1}},"hint":{"$hint":"_id_"},"multi":true}"#, "");
    assert_eq!(
        read_commands(&[inserted]),
        ["Insert of 3 on c: the source does not contain its documents or statements"]
    );
    assert_eq!(read_commands(&[hint]), ["db.c.updateMany({}, {$inc: {n: -1}}) (partial)"]);
}

#[test]
fn an_unreadable_line_is_an_error_and_gives_no_command() {
    let nul = r#"{"q":{"a\u0000b":1},"u":{"$set":{"a":1}}}"#;
    let deep = format!(r#"{{"q":{}1{},"u":{{"a":1}}}}"#, r#"{"a":"#.repeat(300), "}".repeat(300));
    let wrong = r#"{"q":{"_id":{"$oid":"short"}},"u":{"a":1}}"#;
    for command in [nul, &deep, wrong, "[1]", "5"] {
        let (mut reader, mut out) = (LogReader::default(), Vec::new());
        let text = line("a", "update", "d.c", command, "");
        assert!(reader.parse_line(text.as_bytes(), &everything, &mut out).is_err(), "{command}");
        reader.finish(&mut out);
        assert!(out.is_empty(), "{command}");
    }
}

#[test]
fn held_statements_are_bounded() {
    let (mut reader, mut out) = (LogReader::default(), Vec::new());
    for _ in 0..2500 {
        reader.parse_line(line("a", "update", "d.c", Q, "").as_bytes(), &everything, &mut out).unwrap();
    }
    assert_eq!(out.len(), 2000, "a long batch is released in parts");
}

#[test]
fn profile_documents_are_read_relaxed_and_canonical() {
    let users = r#""allUsers":[{"user":"root","db":"admin"}],"appName":"a""#;
    let read = |text: String| {
        let mut out = Vec::new();
        profile::parse_line(text.as_bytes(), &everything, &mut out).unwrap();
        assert_eq!(out[0].client.users, Some(vec![("admin".to_owned(), "root".to_owned())]));
        describe(&out[0])
    };
    for (entry, expected) in [
        (
            r#""op":"update","command":{"q":{"_id":{"$numberInt":"1"}},"u":{"n":{"$numberLong":"5"}}}"#,
            r#"db.c.replaceOne({_id: 1}, {n: Long("5")}) (partial)"#,
        ),
        (r#""op":"remove","command":{"q":{"_id":1},"limit":1}"#, "db.c.deleteOne({_id: 1}) (partial)"),
        (
            r#""op":"insert","ninserted":{"$numberInt":"2"},"command":{"insert":"c","$db":"d"}"#,
            "Insert of 2 on c: the source does not contain its documents or statements",
        ),
        (r#""op":"query","command":{"find":"c","filter":{},"$db":"d"}"#, "db.c.find({})"),
        (
            r#""op":"update","command":{"$truncated":"{ q: { _id: 1 }, u: { big: \"yy...\" }"}"#,
            "Update of 1 on c: the source truncated it",
        ),
        (
            r#""op":"command","command":{"$truncated":"{ findAndModify: \"c\", query: {}"}"#,
            "FindAndModify of 1 on c: the source truncated it",
        ),
    ] {
        assert_eq!(read(format!(r#"{{"ns":"d.c",{entry},{users}}}"#)), expected);
    }
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let command =
        bson::raw::RawDocumentBuf::try_from(&doc! {"insert": "c", "documents": [{"a": 1_i64}], "lsid": {}, "$db": "d"});
    let command = command.unwrap();
    let users = vec![("admin".to_owned(), "root".to_owned())];
    let sender = capture::CapturedClient {
        connection: -7,
        client: "127.0.0.1:5",
        app: Some("a"),
        users: Some(&users),
        milliseconds: 9,
    };
    let record = capture::record(&sender, Document::parse(command.as_bytes()).unwrap());
    let recorded = capture::parse_record(Document::parse(&record).unwrap()).unwrap();
    assert_eq!(describe(&recorded), r#"db.c.insertOne({a: Long("1")})"#);
    let Client { app, users: recorded_users, connection } = recorded.client;
    assert_eq!((app.as_deref(), recorded_users, recorded.milliseconds), (Some("a"), Some(users), Some(9)));
    assert_eq!(connection, (-7_i64).cast_unsigned());
}

fn rules(pattern: &str) -> RuleSet {
    let text = format!("version: 1\nrules:\n  - name: r\n    namespace: d.c\n    {pattern}\n");
    RuleSet::from_sources(vec![SourceFile { name: "r.yaml".to_owned(), text }]).unwrap()
}

/// The counts of a rule for a log: reject, rewrite, cannot_tell, forward.
fn counts(pattern: &str, lines: &[String]) -> (u64, u64, u64, u64) {
    let rules = rules(pattern);
    let mut audit = Audit::new(&rules);
    let (mut reader, mut out) = (LogReader::default(), Vec::new());
    for line in lines {
        reader
            .parse_line(line.as_bytes(), &|ns, class, command| audit.is_relevant(ns, class, command), &mut out)
            .unwrap();
    }
    reader.finish(&mut out);
    out.iter().for_each(|recorded| audit.add_command(recorded));
    let OutcomeCounts { reject, rewrite, cannot_tell, forward, .. } = audit.finish().rules[0].counts;
    (reject, rewrite, cannot_tell, forward)
}

#[test]
fn outcomes_are_counted_by_statement() {
    let write = |q: &str| line("a", "update", "d.c", q, "");
    let rest = line("a", "command", "d.$cmd", UPDATE, "");
    let set = r#"{"q":{"_id":1},"u":{"$set":{"a":1}}}"#;
    let insert = line("a", "command", "d.c", r#"{"insert":"c","$db":"d"}"#, "");
    let out = line("a", "command", "d.x", r#"{"aggregate":"x","pipeline":[{"$out":"c"}],"cursor":{},"$db":"d"}"#, "");
    let elsewhere = line("a", "update", "d.other", Q, "");
    let commented = write(r#"{"q":{"_id":1},"u":{"$set":{"a":1}},"comment":{"at":{"$date":"2026-01-01T00:00:00Z"}}}"#);
    let both = [write(Q), write(set), rest.clone()];
    for (pattern, lines, expected) in [
        ("replacement: {}", &both[..], (1, 0, 0, 0)),
        ("replacement: { policy: merge }", &both, (0, 1, 0, 0)),
        ("mode: shadow\n    replacement: {}", &both, (1, 0, 0, 0)),
        ("bounds: { field: n, min: 0 }", &both, (0, 0, 0, 2)),
        ("sequence: { field: nr, counter: n }", std::slice::from_ref(&insert), (0, 0, 1, 0)),
        ("replacement: {}", std::slice::from_ref(&insert), (0, 0, 0, 0)),
        ("replacement: {}", &[out], (1, 0, 0, 0)),
        ("replacement: {}", &[elsewhere], (0, 0, 0, 0)),
        // The rest of the command is on another line, which mongod does not log for a fast command.
        ("timestamps: { source: $comment.at }", &both[..2], (0, 0, 2, 0)),
        ("timestamps: { source: $comment.at }", &both, (1, 0, 0, 0)),
        ("timestamps: { source: $comment.at }", &[commented], (0, 1, 0, 0)),
        ("defaults: { maxTimeMS: 5 }", &both[..2], (0, 0, 2, 0)),
        ("tree: {}", &[write(r#"{"q":{"_id":1},"u":{"$set":{"parent":2}}}"#)], (0, 0, 1, 0)),
    ] {
        assert_eq!(counts(pattern, lines), expected, "{pattern} {lines:?}");
    }
}

#[test]
fn ops_of_a_bulk_write_count_for_their_own_collections() {
    let rules = rules("replacement: {}");
    let op =
        |namespace: i32, change: bson::Document| doc! {"update": namespace, "filter": {"_id": 1}, "updateMods": change};
    let ops = vec![op(0, doc! {"a": 1}), op(1, doc! {"a": 1}), op(1, doc! {"$set": {"a": 1}}), op(1, doc! {"b": 1})];
    // An ordered batch ends at the first rejection.
    for (ordered, rejected) in [(false, 2), (true, 1)] {
        let names = [doc! {"ns": "d.other"}, doc! {"ns": "d.c"}];
        let command = doc! {"bulkWrite": 1, "ops": &ops, "nsInfo": names, "ordered": ordered, "$db": "admin"};
        let command = bson::raw::RawDocumentBuf::try_from(&command).unwrap();
        let sender = capture::CapturedClient { connection: 1, client: "", app: None, users: None, milliseconds: 9 };
        let record = capture::record(&sender, Document::parse(command.as_bytes()).unwrap());
        let mut audit = Audit::new(&rules);
        audit.add_command(&capture::parse_record(Document::parse(&record).unwrap()).unwrap());
        let counts = audit.finish().rules[0].counts;
        assert_eq!((counts.reject, counts.forward, counts.cannot_tell), (rejected, 0, 0));
    }
}

#[test]
fn a_text_report_has_no_control_characters_of_the_traffic() {
    let rules = rules("replacement: {}");
    let mut audit = Audit::new(&rules);
    let client = Client { app: Some("a\u{1b}[2J\nrule 'x'".to_owned()), ..Client::default() };
    let command = crate::shell::parse("db.c.replaceOne({}, {'\u{1b}[2J': 1})", "d").unwrap().commands.remove(0);
    audit.add_command(&RecordedCommand {
        client,
        milliseconds: None,
        line: 0,
        took: None,
        content: RecordedContent::Command(command),
        partial: false,
        reply: None,
    });
    let tally = audit.finish();
    let text = report::to_text(&tally, &rules, &[]);
    assert!(text.contains("would reject 1") && !text.contains('\u{1b}') && !text.contains("\nrule 'x'"), "{text}");
    assert_eq!(report::to_json(&tally, &rules, &[])["rules"][0]["counts"]["reject"], 1);
}

#[test]
fn counts_are_bounded_and_can_be_merged() {
    let note = |tally: &mut RuleTally, number: usize| {
        let app = format!("app{number}");
        let noted = CountedOutcome {
            outcome: ReportedOutcome::Reject,
            statements: 1,
            app: Some(&app),
            users: None,
            at: None,
            namespace: "d.c",
            reason: "",
        };
        tally.count_example(&noted, format!("shape{number}"), ExampleText::default);
    };
    let (mut one, mut other) = (RuleTally::default(), RuleTally::default());
    (0..1000).for_each(|number| note(&mut one, number));
    (500..1500).for_each(|number| note(&mut other, number));
    one.merge(other);
    assert_eq!(one.counts.reject, 2000);
    assert_eq!(one.apps().iter().map(|(_, counts)| counts.reject).sum::<u64>(), 2000);
    assert!(one.apps().len() <= 101 && one.examples().len() <= 40);
    assert_eq!(one.apps()[0].0, "(others)");
}

#[test]
fn shapes_have_names_and_no_values() {
    for (text, expected) in [
        ("db.c.replaceOne({_id: 'secret'}, {a: 'secret', b: {c: 1}})", "replaceOne({_id}, {a, b: {c}})"),
        (
            "db.c.updateMany({n: {$gt: 5}}, {$inc: {n: -1}}, {upsert: true})",
            "updateMany({n: {$gt}}, {$inc: {n}}, {upsert})",
        ),
        ("db.c.updateOne({}, [{$set: {a: 'secret'}}])", "updateOne({}, [{$set: {a}}])"),
        ("db.c.deleteMany({a: ['secret', 'secret', 1, 2, 3, 4]})", "deleteMany({a: [?, ?, ?, ?, …]})"),
        ("db.c.insertOne({a: 'secret'})", "insertOne({a})"),
        ("db.c.findOneAndReplace({_id: 1}, {a: 1})", "findAndModify({_id}, {a})"),
        ("db.c.find({a: {b: {c: {d: {e: 'secret'}}}}})", "find({a: {b: {c: {d: …}}}})"),
        ("db.c.renameCollection('secret')", "renameCollection"),
    ] {
        let command = &crate::shell::parse(text, "d").unwrap().commands[0];
        assert_eq!(shape(command.as_document()), expected);
    }
}

/// The proposal for these commands, all from one connection. It is the same for bulkWrite.
fn proposed(commands: &[&str]) -> String {
    let mut recorded: Vec<RecordedCommand> = commands.iter().map(|text| recorded(text, 1, None)).collect();
    let text = proposed_for(&recorded);
    recorded.iter_mut().for_each(|one| one.content = as_bulk_write(&one.content));
    assert_eq!(proposed_for(&recorded), text);
    text
}

/// The same command as a bulkWrite, if it can be one.
fn as_bulk_write(content: &RecordedContent) -> RecordedContent {
    let RecordedContent::Command(command) = content else { return content.clone() };
    let command = bson::Document::from_reader(command.as_document().as_bytes()).unwrap();
    let (name, collection) = command.iter().next().map(|(name, value)| (name.clone(), value.clone())).unwrap();
    let list = ["documents", "updates", "deletes"].into_iter().find(|list| command.contains_key(list));
    let Some(list) = list.map(|list| command.get_array(list).unwrap().clone()) else { return content.clone() };
    let op = |statement: bson::Bson| {
        let mut op = bson::Document::from_iter([(name.clone(), bson::Bson::Int32(1))]);
        if name == "insert" {
            op.insert("document", statement);
            return op;
        }
        for (key, value) in statement.as_document().unwrap().clone() {
            let (key, value) = match key.as_str() {
                "q" => ("filter", value),
                "u" => ("updateMods", value),
                "limit" => ("multi", (value == bson::Bson::Int32(0)).into()),
                other => (other, value),
            };
            op.insert(key, value);
        }
        op
    };
    let ops: Vec<bson::Document> = list.into_iter().map(op).collect();
    let names = ["other", collection.as_str().unwrap()].map(|name| doc! {"ns": format!("d.{name}")});
    let command = doc! {"bulkWrite": 1, "ops": ops, "nsInfo": names.to_vec(), "$db": "admin"};
    let raw = bson::raw::RawDocumentBuf::try_from(&command).unwrap();
    RecordedContent::Command(CowDocument::from_writer(raw.into_bytes()))
}

fn recorded(text: &str, connection: u64, reply: Option<ReplySummary>) -> RecordedCommand {
    let command = crate::shell::parse(text, "d").unwrap().commands.remove(0);
    let client = Client { app: Some("shop\n- x".to_owned()), connection, ..Client::default() };
    let content = RecordedContent::Command(command);
    RecordedCommand { client, milliseconds: None, line: 0, took: None, content, partial: false, reply }
}

fn proposed_for(traffic: &[RecordedCommand]) -> String {
    let mut habits = Habits::default();
    traffic.iter().for_each(|one| habits.add_command(one));
    let candidates = CandidateRules::from_habits(&habits);
    let mut evaluation = candidates.evaluation();
    traffic.iter().for_each(|one| evaluation.add_command(one));
    let evaluated = evaluation.finish();
    let mut proposal = candidates.choose(evaluated);
    if let Some(rules) = proposal.rules() {
        let mut audit = Audit::new(rules);
        traffic.iter().for_each(|one| audit.add_command(one));
        let tally = audit.finish();
        proposal.remove_breaking(tally);
    }
    let text = proposal.to_text(&["a.log".to_owned()]);
    let loaded = RuleSet::from_sources(vec![SourceFile { name: "s.yaml".to_owned(), text: text.clone() }]);
    assert!(loaded.is_ok() || text.contains("No rule proposed"), "{text}\n{}", loaded.unwrap_err());
    text
}

const SAVE: &str = "db.c.replaceOne({_id: 1}, {a: 1, version: 4})";
const READ: &str = "db.c.find({_id: 1})";

#[test]
fn numbers_of_groups_and_numbers_stored_elsewhere_get_no_sequence() {
    let numbered = |filter: &str, more: &str, child: &str| {
        let texts = (100..106).flat_map(|number| {
            [
                format!("db.orders.find({filter}).sort({{no: -1}}).limit(1)"),
                format!("db.orders.insertOne({{no: {number}, shop: 1{}}})", more.replace('#', &number.to_string())),
                format!("db.lines.insertOne({{sku: 1{}}})", child.replace('#', &number.to_string())),
            ]
        });
        proposed_for(&texts.map(|text| recorded(&text, 1, None)).collect::<Vec<_>>())
    };
    assert!(numbered("", "", "").contains("sequence: {"), "{}", numbered("", "", ""));
    let grouped = numbered("{shop: 1}", "", "");
    assert!(!grouped.contains("sequence"), "{grouped}");
    for (more, child, place) in [
        (", code: 'INV-0#'", "", "code"),
        (", _id: #", "", "_id"),
        ("", ", order: {no: #}", "lines.order.no"),
        ("", ", order: 'INV-#'", "lines.order"),
    ] {
        let text = numbered("", more, child);
        assert!(!text.contains("\n    sequence: {") && text.contains(&format!("in '{place}'")), "{text}");
    }
}

#[test]
fn habits_become_rules_that_load() {
    let pushes = vec!["db.c.updateOne({o: 1}, {$push: {l: 1}})"; 25];
    let upserts = vec!["db.c.updateOne({o: 1}, {$push: {l: 1}}, {upsert: true})"; 25];
    let filtered =
        [&pushes[..], &["db.c.updateOne({o: 1}, [{$set: {l: {$filter: {input: '$l', cond: {$gt: ['$$this', 1]}}}}}])"]]
            .concat();
    let counted = [&pushes[..], &["db.c.updateOne({o: 1}, [{$set: {n: {$size: '$l'}}}])"]].concat();
    let renamed = [&pushes[..], &["db.c.updateOne({o: 1}, {$rename: {l: 'old'}})"]].concat();
    let sliced = [&pushes[..], &["db.c.updateOne({o: 1}, {$push: {l: {$each: [1], $slice: 5}}})"]].concat();
    for (commands, expected, absent) in [
        (
            vec!["db.c.find({_id: 1})", "db.c.replaceOne({_id: 1}, {a: 1})"],
            "other than _id, after the same connection had read it",
            "check_version",
        ),
        (vec![READ, SAVE, READ, SAVE], "    replacement: { policy: check_version, version: version }", "Not proposed"),
        // The version of the stored document is not known.
        (vec![SAVE], "    replacement: { policy: merge }", "\n    replacement: { policy: check_version"),
        (vec!["db.c.replaceOne({_id: 1, version: 3}, {a: 1, version: 4})"], "No rule proposed", "replacement:"),
        (vec!["db.c.updateOne({_id: 1}, {$inc: {n: -2}})"], "bounds: { field: n, min: 0 }", "replacement:"),
        (vec!["db.c.updateOne({_id: 1, n: {$gte: 2}}, {$inc: {n: -2}})"], "No rule proposed", "bounds:"),
        (
            vec!["db.c.updateOne({_id: 1, n: {$lt: 9}}, {$inc: {n: -2}})"],
            "bounds: { field: n, min: 0 }",
            "replacement:",
        ),
        (vec!["db.c.updateOne({_id: 1}, {$inc: {n: 2}})"], "No rule proposed", "bounds:"),
        (pushes, "limits: { items: { l: 1000 } }", "bucket:"),
        (upserts, "bucket: { array: l, count: l_count, limit: 100 }", "limits:"),
        (sliced, "No rule proposed", "bucket:"),
        (filtered, "No rule proposed", "limits:"),
        (renamed, "No rule proposed", "limits:"),
        (counted, "limits: { items: { l: 1000 } }", "bucket:"),
        (vec!["db.c.deleteMany({})"], "deny: { operations: [delete], when: { filter: empty } }", "update,"),
        (
            vec!["db.c.updateMany({}, {$set: {a: 1}})", "db.c.deleteMany({})"],
            "operations: [update, delete]",
            "replacement:",
        ),
    ] {
        let text = proposed(&commands);
        assert!(text.contains(expected) && !text.contains(absent), "{commands:?}\n{text}");
    }
}

#[test]
fn a_time_without_late_writes_gives_no_rule() {
    let set = |time: &str| {
        format!("db.c.updateOne({{_id: 1}}, {{$set: {{updated_at: ISODate('2026-01-01T00:00:{time}Z')}}}})")
    };
    let times = |times: &[&str]| times.iter().map(|time| set(time)).collect::<Vec<_>>();
    let on_time = times(&["00", "10", "20", "19.900", "30"]);
    let late = times(&["00", "20", "10", "30", "25"]);
    let of = |commands: &[String]| proposed(&commands.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(of(&on_time).contains("No rule proposed"), "{}", of(&on_time));
    assert!(of(&late).contains("timestamps: { source: updated_at"), "{}", of(&late));
}

#[test]
fn a_rule_that_breaks_the_application_is_not_proposed() {
    // It counts its own version up.
    let saves: Vec<String> = (1..9).map(|n| format!("db.c.replaceOne({{_id: 1}}, {{a: 1, version: {n}}})")).collect();
    let counting: Vec<&str> = saves.iter().flat_map(|save| [READ, save.as_str()]).collect();
    // It changes the document by an update between reading and saving it.
    let views = "db.c.updateOne({_id: 1}, {$inc: {views: 1}})";
    let between = [READ, views, SAVE].repeat(5);
    // It saves the same document again without reading it.
    let again = [READ, SAVE, SAVE, SAVE].to_vec();
    for commands in [counting, between, again] {
        let text = proposed(&commands);
        assert!(text.contains("would meet a version conflict"), "{commands:?}\n{text}");
        assert!(text.contains("\n    replacement: { policy: merge }"), "{commands:?}\n{text}");
    }
    // A save that removes a field would keep it with merge.
    let removing = ["db.c.insertOne({_id: 1, a: 1, b: 1})", "db.c.replaceOne({_id: 1}, {a: 2})"];
    let text = proposed(&removing);
    assert!(text.contains("No rule proposed") && text.contains("remove a field ('b')"), "{text}");
    // A temperature is below zero.
    let cold = ["db.c.updateOne({_id: 1}, {$inc: {n: -1}})", "db.c.insertOne({_id: 2, n: -5})"];
    let text = proposed(&cold);
    assert!(text.contains("No rule proposed") && text.contains("it would reject 1 of 2 statements"), "{text}");
    // A decrement below zero that succeeded is rare for a stock, and normal for a balance that may be negative.
    let sold = |stock: usize| {
        [
            vec![format!("db.c.insertOne({{_id: 1, n: {stock}}})")],
            vec!["db.c.updateOne({_id: 1}, {$inc: {n: -1}})".to_owned(); 10],
        ]
        .concat()
    };
    for (stock, expected) in [(9, "1 would change nothing"), (3, "7 of 10 statements would change nothing")] {
        let text = proposed(&sold(stock).iter().map(String::as_str).collect::<Vec<_>>());
        assert!(text.contains(expected) && text.contains("No rule proposed") == (stock == 3), "{text}");
    }
    for (amount, lost) in [("NumberLong(-1)", 3), ("-1.5", 4), ("NumberDecimal('-1.5')", 4)] {
        let update = format!("db.c.updateOne({{_id: 1}}, {{$inc: {{n: {amount}}}}})");
        let sold = [vec!["db.c.insertOne({_id: 1, n: 2})"], vec![&update; 5]].concat();
        let text = proposed(&sold);
        assert!(text.contains(&format!("{lost} of 5 statements would change nothing")), "{amount}\n{text}");
    }
    // What is stored is not known after a drop, nor after an aggregation into the collection.
    const INSERT: &str = "db.c.insertOne({_id: 1, n: 0})";
    const UPDATE: &str = "db.c.updateOne({_id: 1}, {$inc: {n: -1}})";
    assert!(proposed(&[INSERT, UPDATE]).contains("1 of 1 statements would change nothing"));
    let aggregate = "db.o.aggregate([{$match: {}}, {$unionWith: {coll: 'p'}}, {$merge: {into: 'c'}}])";
    for between in ["db.c.drop()", "db.o.aggregate([{$out: 'c'}])", aggregate] {
        let text = proposed(&[INSERT, between, UPDATE]);
        assert!(text.contains("1 rewritten with a condition that the traffic cannot confirm"), "{text}");
    }
    // A pipeline would be checked.
    let pipeline =
        ["db.c.updateOne({_id: 1}, {$inc: {n: -1}})", "db.c.updateOne({_id: 1}, [{$set: {n: {$max: ['$n', 0]}}}])"];
    let text = proposed(&pipeline);
    assert!(text.contains("    bounds:") && !text.contains("Not proposed"), "{text}");
}

#[test]
fn a_proposal_is_contradicted_by_the_traffic_that_it_comes_from() {
    let numbered = |n: usize| {
        [
            "db.c.find().sort({no: -1}).limit(1)".to_owned(),
            format!("db.c.insertOne({{_id: '{}', no: {n}}})", "x".repeat(n)),
        ]
    };
    let numbers: Vec<String> = (1..=6).flat_map(numbered).collect();
    let imported = "db.c.insertMany([{_id: 'i', no: 900}, {_id: 'j', no: 850}])".to_owned();
    let before_import = [numbers.clone(), vec![imported.clone()]].concat();
    let pushes = vec!["db.c.updateOne({o: 1}, {$push: {l: 1}}, {upsert: true})".to_owned(); 25];
    let renamed = [pushes.clone(), vec!["db.c.updateOne({o: 1}, {$set: {title: 'x'}})".to_owned()]].concat();
    let at = |set: &str, time: &str| {
        format!("db.c.updateOne({{_id: 1}}, {{$set: {{{set}, updated_at: ISODate('2026-01-01T00:00:{time}Z')}}}})")
    };
    let sensors = vec![at("t: 1", "00"), at("t: 2", "30"), at("h: 1", "10"), at("t: 3", "50"), at("h: 2", "40")];
    let editor = [at("t: 1", "30"), READ.to_owned(), at("t: 2", "10"), READ.to_owned(), at("t: 3", "05")].to_vec();
    let replaced = vec!["db.c.replaceOne({_id: 1}, {a: 1})".to_owned()];
    let compared = [vec!["db.c.insertOne({_id: 1, a: 0})".to_owned()], replaced.clone()].concat();
    let both = [compared.clone(), vec!["db.c.replaceOne({_id: 7}, {a: 1})".to_owned()]].concat();
    for (commands, expected, absent) in [
        (numbers, "    sequence: { field: no,", "Not proposed"),
        (before_import, "2 of 8 inserts have another number than the next one", "\n    sequence:"),
        (pushes, "    bucket:", "    limits:"),
        (renamed, "    limits:", "bucket:"),
        (sensors, "    timestamps: { source: updated_at, without_source: pass }", "per: document"),
        (editor, "the application sets it back on purpose", "\n    timestamps:"),
        (replaced, "The traffic does not show whether the recorded ones remove a field", "remove no field"),
        (compared, "The recorded ones remove no field.", "does not show"),
        (both, "1 of the 2 recorded ones remove no field; the traffic does not show it of the others", "The recorded"),
        (
            vec!["db.c.updateOne({_id: 1}, {$inc: {n: -1}})".to_owned()],
            "1 rewritten with a condition that the traffic cannot confirm",
            "Not proposed",
        ),
    ] {
        let text = proposed(&commands.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(text.contains(expected) && !text.contains(absent), "{commands:#?}\n{text}");
    }
}

#[test]
fn a_proposal_counts_what_the_source_does_not_contain() {
    let (mut reader, mut out) = (LogReader::default(), Vec::new());
    let masked = line("a", "update", "d.c", r####"{"q":{"_id":"###"},"u":{"a":"###"}}"####, "");
    reader.parse_line(masked.as_bytes(), &everything, &mut out).unwrap();
    reader.finish(&mut out);
    let text = proposed_for(&out);
    assert!(text.contains("# 1 statement could not be considered: the source masks its values.\n"), "{text}");
}

#[test]
fn an_audit_counts_conflicts_with_what_is_stored() {
    let rules = rules("mode: shadow\n    replacement: { policy: check_version, version: version }");
    let failed = ReplySummary { write_errors: vec![121], ..ReplySummary::default() };
    let unmatched = ReplySummary { n: Some(0), ..ReplySummary::default() };
    let save = |version: i32| format!("db.c.replaceOne({{_id: 1}}, {{version: {version}}})");
    let mut audit = Audit::new(&rules);
    for (text, connection, reply) in [
        ("db.c.insertOne({_id: 1, version: 1})".to_owned(), 1, None),
        (save(1), 1, None),
        // Neither changed anything.
        (save(7), 2, Some(failed)),
        (save(8), 2, Some(unmatched)),
        (READ.to_owned(), 1, None),
        (READ.to_owned(), 2, None),
        (save(1), 1, None),
        // A lost update: the other connection has saved it since.
        (save(1), 2, None),
        (READ.to_owned(), 2, None),
        (save(1), 2, None),
    ] {
        audit.add_command(&recorded(&text, connection, reply));
    }
    let tally = audit.finish();
    let OutcomeCounts { rewrite, conflict, no_match, .. } = tally.rules[0].counts;
    assert_eq!((rewrite, conflict, no_match), (3, 2, 1));
    let text = report::to_text(&tally, &rules, &[]);
    for part in [
        "    - db.c.replaceOne({_id: 1}, {version: 1})\n    + db.c.replaceOne({_id: 1, version: 1}, {version: 2})\n",
        "reports a conflict for 2",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn an_audit_counts_upserts_that_check_version_does_not_insert() {
    let rules = rules("mode: shadow\n    replacement: { policy: check_version, version: version }");
    let inserted = ReplySummary { n: Some(1), modified: Some(0), upserted: 1, ..ReplySummary::default() };
    let mut audit = Audit::new(&rules);
    for (text, reply) in [
        ("db.c.replaceOne({_id: 1}, {version: 1}, {upsert: true})", Some(inserted.clone())),
        // The rule gives it its first version.
        ("db.c.replaceOne({_id: 2}, {a: 1}, {upsert: true})", Some(inserted)),
        ("db.c.replaceOne({_id: 3}, {version: 1}, {upsert: true})", None),
    ] {
        audit.add_command(&recorded(text, 1, reply));
    }
    let OutcomeCounts { rewrite, no_match, .. } = audit.finish().rules[0].counts;
    assert_eq!((rewrite, no_match), (2, 1));
}

#[test]
fn proposals_of_all_kinds_load_together() {
    let mut commands = vec!["db.c.updateOne({o: 1}, {$push: {l: 1}})"; 25];
    commands.extend([
        "db.c.replaceOne({_id: 1}, {a: 1, version: 4, updated_at: ISODate('2026-01-01T00:00:00Z')})",
        "db.c.updateOne({_id: 1}, {$inc: {'n.#x: y': -2, n: -1, 'yes': -1}})",
        "db.getCollection('C').deleteMany({})",
        "db.getCollection('c').deleteMany({})",
        "db.getCollection('a: b #').deleteMany({})",
    ]);
    proposed(&commands);
}

proptest! {
    #[test]
    fn no_line_makes_it_panic(at in 0..600_usize, with in any::<u8>(), cut in 0..600_usize) {
        let text = line("a", "update", "d.c", Q, "");
        let mut bytes = text.into_bytes();
        let length = bytes.len();
        bytes[at % length] = with;
        bytes.truncate(length - cut % 50);
        let (mut reader, mut out) = (LogReader::default(), Vec::new());
        let _ = reader.parse_line(&bytes, &everything, &mut out);
        let _ = profile::parse_line(&bytes, &everything, &mut out);
        reader.finish(&mut out);
        let rules = rules("replacement: {}");
        let mut audit = Audit::new(&rules);
        out.iter().for_each(|recorded| audit.add_command(recorded));
    }
}
