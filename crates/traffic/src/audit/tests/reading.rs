//! Reading entries of logs, profiles and captures.

use bson::doc;

use super::*;

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
        let super::log::LogServers { own, members } = super::log::servers(line.as_bytes());
        let named: Vec<String> = own.into_iter().chain(members).collect();
        assert_eq!(named, expected, "{line}");
    }
}

#[test]
fn missing_parts_of_a_log_entry_are_reported() {
    let insert = r#"{"insert":"c","ordered":true,"$db":"d"}"#;
    let inserted =
        line("a", "command", "d.c", insert, "").replace(r#""durationMillis""#, r#""ninserted":3,"durationMillis""#);
    let hint = line(
        "a",
        "update",
        "d.c",
        r#"{"q":{},"u":{"$inc":{"n":-1}},"hint":{"$hint":"_id_"},"multi":true,"upsert":false}"#,
        "",
    );
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
fn the_time_of_a_line_can_have_other_forms() {
    let text = line("a", "command", "d.c", r#"{"find":"c","$db":"d"}"#, "");
    let first = r#"{"$date":"2026-11-21T03:50:04.874+00:00"}"#;
    for (time, expected) in [
        (first, Some(1_795_233_004_874)),
        (r#""2026-11-21T03:50:04.874Z""#, Some(1_795_233_004_874)),
        (r#"{"$date":{"$numberLong":"5"}}"#, Some(5)),
        (r#"{"$date":5}"#, Some(5)),
        ("5", None),
        ("null", None),
    ] {
        let (mut reader, mut out) = (LogReader::default(), Vec::new());
        reader.parse_line(text.replace(first, time).as_bytes(), &everything, &mut out).unwrap();
        assert_eq!(out[0].milliseconds, expected, "{time}");
    }
    let (mut reader, mut out) = (LogReader::default(), Vec::new());
    for (wrong, reason) in [
        (text.replace("\"attr\"", "\"attributes\""), "its fields are not as the server writes them"),
        (text.replace("\"billing\"", "\"\\ud800\""), "it is not JSON in UTF-8"),
    ] {
        let read = reader.parse_line(wrong.as_bytes(), &everything, &mut out);
        assert_eq!(read, Err(Unreadable(reason.to_owned())), "{wrong}");
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
