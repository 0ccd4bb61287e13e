//! Files of recorded traffic as people have them: what a container prints, what a tool exports, what `tail -c` leaves.

use std::io::Write;
use std::path::Path;

use serde_json::Value;
use support::process::{docward, repository};

const RULES: &str = "version: 1\nrules:\n  - { name: whole, namespace: shop.orders, replacement: {} }\n";

/// What an audit of a file reports: the counts of the rule, the kind, the numbers of unreadable entries and skipped lines.
fn audit(folder: &Path, content: &[u8]) -> Result<(Value, String, [u64; 2]), String> {
    let (rules, file) = (folder.join("rules.yaml"), folder.join("traffic"));
    std::fs::write(&rules, RULES).unwrap();
    std::fs::write(&file, content).unwrap();
    let rules = rules.to_str().unwrap();
    let done = docward(&["audit", "--format", "json", "--rules", rules, file.to_str().unwrap()]);
    if !done.status.success() {
        return Err(String::from_utf8(done.stderr).unwrap());
    }
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    let source = &report["sources"][0];
    let counts = ["unreadable", "skipped"].map(|name| source[name].as_u64().unwrap());
    Ok((report["rules"][0]["counts"].clone(), source["kind"].as_str().unwrap().to_owned(), counts))
}

/// Documents of system.profile, as mongoexport writes them.
const PROFILE: [&str; 3] = [
    r#"{"op":"update","ns":"shop.orders","command":{"q":{"_id":1},"u":{"status":"paid"},"multi":false,"upsert":false},"nMatched":1,"nModified":1,"millis":0,"ts":{"$date":"2026-11-28T08:44:24.190Z"},"client":"127.0.0.1","appName":"shop","allUsers":[],"user":""}"#,
    r#"{"op":"query","ns":"shop.orders","command":{"find":"orders","filter":{"ctx":"{","msg":"}"},"$db":"shop"},"ts":{"$date":"2026-11-28T08:44:24.191Z"},"client":"127.0.0.1"}"#,
    r#"{"op":"update","ns":"shop.orders","command":{"q":{"_id":1},"u":{"$set":{"a":[1,{"b":2}]}}},"ts":{"$date":"2026-11-28T08:44:24.192Z"},"client":"127.0.0.1"}"#,
];

#[test]
fn docwards_own_work_is_omitted() {
    let folder = tempfile::tempdir().unwrap();
    let [shop, ..] = PROFILE;
    let lease = shop.replace("shop.orders", "docward.leases");
    let marked = shop.replace(r#""_id":1"#, r#""_id":1,"$comment":"by docward: asks""#);
    let own = [lease, marked, shop.replace(r#""appName":"shop""#, r#""appName":"docward service""#)].join("\n");
    let (rules, file) = (folder.path().join("rules.yaml"), folder.path().join("traffic"));
    std::fs::write(&rules, RULES.replace("shop.orders", "'*.*'")).unwrap();
    std::fs::write(&file, format!("{shop}\n{own}\n")).unwrap();
    let [rules, path] = [&rules, &file].map(|path| path.to_str().unwrap());
    let done = docward(&["audit", "--format", "json", "--rules", rules, path]);
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&report["commands"], &report["sources"][0]["own"]), (&1.into(), &3.into()), "{report}");
    let shown = docward(&["audit", "--rules", rules, path]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("3 entries of docward's or the server's own work were omitted"), "{shown}");
    std::fs::write(&file, &own).unwrap();
    let replayed = docward(&["replay", "--to", "mongodb://127.0.0.1:1/", path]);
    let shown = String::from_utf8(replayed.stderr).unwrap();
    assert!(shown.contains("3 commands: docward sent it for its own work"), "{shown}");
}

/// The lines of one update in a log of mongod 6.0: the statement, then the command, with or without its statements.
fn logged(connection: u64, milliseconds: u64, set: &str, with_statements: bool) -> [String; 2] {
    let statement = format!(r#"{{"q":{{"_id":1}},"u":{{"$set":{{{set}}}}},"multi":false,"upsert":false}}"#);
    let statements = if with_statements { format!(r#""updates":[{statement}],"#) } else { String::new() };
    let command = format!(r#"{{"update":"devices",{statements}"ordered":true,"$db":"iot"}}"#);
    [("update", "iot.devices", statement), ("command", "iot.$cmd", command)].map(|(kind, namespace, command)| {
        format!(
            r#"{{"t":{{"$date":"2026-11-28T20:00:0{}.{:03}Z"}},"s":"I","c":"COMMAND","id":51803,"ctx":"conn{connection}","msg":"Slow query","attr":{{"type":"{kind}","ns":"{namespace}","command":{command},"nMatched":1,"nModified":1,"durationMillis":0,"remote":"127.0.0.1:{connection}"}}}}"#,
            milliseconds / 1000,
            milliseconds % 1000
        )
    })
}

#[test]
fn commands_are_evaluated_in_the_order_of_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let suggest = |files: &[Vec<String>]| {
        let paths = (0..files.len()).map(|number| folder.path().join(number.to_string()).display().to_string());
        let paths: Vec<String> = paths.collect();
        paths.iter().zip(files).for_each(|(path, lines)| std::fs::write(path, lines.join("\n")).unwrap());
        let arguments: Vec<&str> = std::iter::once("suggest").chain(paths.iter().map(String::as_str)).collect();
        String::from_utf8(docward(&arguments).stdout).unwrap()
    };
    let published = |second: u64| format!(r#""published_at":{{"$date":"2026-11-28T20:00:0{second}Z"}}"#);
    for with_statements in [false, true] {
        // The last update of each connection has no later line of its connection.
        let writes: Vec<[String; 2]> =
            (0..8).map(|n| logged(7 * n % 8, 300 * n, &published(n), with_statements)).collect();
        let lines: Vec<String> = writes.concat();
        let reversed: Vec<String> = lines.iter().rev().cloned().collect();
        let halves = lines.split_at(8);
        for files in [vec![lines.clone()], vec![reversed], vec![halves.1.to_vec(), halves.0.to_vec()]] {
            let text = suggest(&files);
            assert!(!text.contains("late"), "{with_statements} {}: {text}", files.len());
        }
        // The same with two older times, each after a newer one.
        let mut late = writes;
        late.push(logged(8, 2500, &published(1), with_statements));
        late.push(logged(9, 2600, &published(7), with_statements));
        late.push(logged(10, 2700, &published(2), with_statements));
        let text = suggest(&[late.concat()]);
        assert!(text.contains("2 writes were late"), "{text}");
    }
}

#[test]
fn what_servers_send_each_other_and_the_writes_of_merge_are_no_statements() {
    let folder = tempfile::tempdir().unwrap();
    let [statement, command] = logged(1, 0, r#""a":1"#, true);
    let sent = |name: &str| command.replace(r#""update":"devices""#, name).replace("updates", "x");
    let merged = statement.replace(r#""upsert":false"#, r#""upsert":true,"upsertSupplied":false"#);
    let merge =
        command.replace(r#""update":"devices""#, r#""aggregate":"raw","pipeline":[{"$merge":{"into":"devices"}}]"#);
    let lines = [
        sent(r#""voteCommitIndexBuild":"devices""#),
        sent(r#""_shardsvrMoveRange":"iot.devices""#),
        sent(r#""internalRenameIfOptionsAndIndexesMatch":1,"from":"iot.tmp","to":"iot.devices""#),
        merged.clone(),
        merged,
        merge,
        statement,
        command,
    ];
    let (rules, file) = (folder.path().join("rules.yaml"), folder.path().join("traffic"));
    std::fs::write(&rules, RULES.replace("shop.orders", "'iot.*'")).unwrap();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let [rules, path] = [&rules, &file].map(|path| path.to_str().unwrap());
    let report = docward(&["audit", "--format", "json", "--rules", rules, path]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!((&report["commands"], &report["sources"][0]["own"]), (&2.into(), &3.into()), "{report}");
}

/// As by a rotation of the log between them, or by grep for each component.
#[test]
fn a_command_in_another_file_than_its_statements_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let (rules, [first, second]) = (folder.path().join("rules.yaml"), ["1", "2"].map(|name| folder.path().join(name)));
    std::fs::write(&rules, RULES.replace("shop.orders", "iot.*")).unwrap();
    for with_statements in [false, true] {
        let pairs = [0, 1, 2, 5, 5000].map(|n| logged(n % 2, n, &format!(r#""a":{n}"#), with_statements));
        let [statements, commands] = [0, 1].map(|part| pairs.each_ref().map(|pair| pair[part].clone()).join("\n"));
        for (one, other) in [(&statements, &commands), (&commands, &statements)] {
            std::fs::write(&first, one).unwrap();
            std::fs::write(&second, other).unwrap();
            let [rules, first, second] = [&rules, &first, &second].map(|path| path.to_str().unwrap());
            let report = docward(&["audit", "--format", "json", "--rules", rules, first, second]);
            let report: Value = serde_json::from_slice(&report.stdout).unwrap();
            assert_eq!(
                (&report["commands"], &report["rules"][0]["counts"]["cannot_tell"]),
                (&5.into(), &0.into()),
                "{report}"
            );
        }
    }
}

#[test]
fn a_log_does_not_show_whether_a_rule_exempts_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let (rules, file) = (folder.path().join("rules.yaml"), folder.path().join("traffic"));
    std::fs::write(&file, logged(1, 0, r#""a":1"#, true).join("\n")).unwrap();
    let counts = |except: &str| {
        let rule = |name: &str, except: &str| {
            format!("  - {{name: {name}, namespace: iot.devices{except}, deny: {{operations: [update]}}}}\n")
        };
        std::fs::write(&rules, format!("version: 1\nrules:\n{}{}", rule("a", except), rule("b", ""))).unwrap();
        let [rules, path] = [&rules, &file].map(|path| path.to_str().unwrap());
        let report = docward(&["audit", "--format", "json", "--rules", rules, path]);
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        [0, 1].map(|rule| {
            ["reject", "cannot_tell", "forward"].map(|name| report["rules"][rule]["counts"][name].as_u64().unwrap())
        })
    };
    // The second rule does not evaluate what the first one rejects.
    assert_eq!(counts(""), [[1, 0, 0], [0, 0, 0]]);
    assert_eq!(counts(", except: {users: [admin.root]}"), [[0, 1, 0], [0, 0, 0]]);
    assert_eq!(counts(", only: {users: [admin.root]}"), [[0, 1, 0], [1, 0, 0]]);
    assert_eq!(counts(", only: {apps: [elsewhere]}"), [[0, 0, 0], [1, 0, 0]]);
}

fn pretty(json: &str) -> String {
    serde_json::to_string_pretty(&serde_json::from_str::<Value>(json).unwrap()).unwrap()
}

#[test]
fn files_are_read_as_people_have_them() {
    let folder = tempfile::tempdir().unwrap();
    let log = std::fs::read_to_string(repository("docs/examples/mongod.log")).unwrap();
    let log = log.replace(r#""status":"paid""#, r#""status":"it's \"paid\"""#);
    let lines: Vec<&str> = log.lines().collect();
    let each = |change: &dyn Fn(&str) -> String| lines.iter().map(|line| change(line) + "\n").collect::<String>();
    let (expected, ..) = audit(folder.path(), log.as_bytes()).unwrap();
    let utf16 =
        |text: &str| [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let gzip = |text: &str| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        gzip.finish().unwrap()
    };
    let (packed, halves) = (gzip(&format!("about to fork child process\n{log}")), log.split_at(log.len() / 2));
    let docker = |line: &str| serde_json::json!({"log": format!("{line}\n"), "stream": "stdout"}).to_string();
    let foreign = "foo { \"a\":";
    let parts = |text: &str| {
        let parts: Vec<String> = text.chars().collect::<Vec<_>>().chunks(100).map(String::from_iter).collect();
        let (last, before) = parts.split_last().map(|(last, before)| (last.clone(), before.to_vec())).unwrap();
        (before, last)
    };
    let docker_parts = |line: &str| {
        let (before, last) = parts(&format!("{line}\n"));
        let parts = before.into_iter().chain([last]);
        let entry = |log| serde_json::json!({"log": log, "stream": "stdout", "time": "2026-11-28T08:44:23Z"});
        let other = serde_json::json!({"log": "other output", "stream": "stderr"}).to_string();
        parts.flat_map(|part| [entry(part).to_string(), other.clone()]).collect::<Vec<_>>().join("\n")
    };
    let cri_parts = |line: &str| {
        let (before, last) = parts(line);
        let time = "2026-11-28T08:44:23.379Z stdout";
        before.iter().map(|part| format!("{time} P {part}\n")).collect::<String>() + &format!("{time} F {last}")
    };
    // serde_json sorts fields, and their order matters.
    let collected = |line: &str| format!("{{\"insertId\": \"1\", \"resource\": {{}}, \"jsonPayload\": {line}}}");
    let reply = serde_json::json!({"totalLinesWritten": 5, "log": lines, "ok": 1});
    let printed: Vec<String> =
        lines.iter().map(|line| format!("'{}'", line.replace('\\', "\\\\").replace('\'', "\\'"))).collect();
    let shown = |more: &str| {
        format!("{{\n  totalLinesWritten: 5,\n  log: [\n    {}{more}\n  ],\n  ok: 1\n}}", printed.join(",\n    "))
    };
    let coloured = |line: &str| pretty(line).replace('"', "\u{1b}[0;32m\"").replace('{', "\u{1b}[1;39m{\u{1b}[0m");
    let csv = |line: &str| format!("1795905120,\"{}\",mongo-0", line.replace('"', "\"\""));
    let beside = |line: &str| {
        let text = Value::from(line);
        format!("{{\"log\":{text},\"log_processed\":{line},\"event\":{{\"original\":{text}}}}}")
    };
    let shortened = |line: &str| line.split(",\"truncated\":").next().unwrap().trim_end_matches('}').to_owned() + "}}";
    let padded = |bytes: &[u8]| [&packed, bytes].concat();
    let unindented = |line: &str| pretty(line).lines().map(str::trim_start).collect::<Vec<_>>().join("\n");
    for (name, content, counts) in [
        ("as it is", log.clone().into_bytes(), [0, 0]),
        ("after what a container prints", format!("{{ ok: 1 }}\n{{\n  ok: 1\n}}\n{log}").into(), [0, 3]),
        ("between other output", each(&|line| format!("{line}\n(other)")).into(), [0, lines.len() as u64]),
        ("the end of a longer file", format!("{}\n{log}", &lines[0][300..]).into(), [0, 1]),
        ("a line is cut", format!("{}\n{log}", &lines[0][..300]).into(), [1, 0]),
        ("the last line is cut", format!("{log}{}", &lines[0][..300]).into(), [1, 0]),
        ("kubectl logs --prefix", each(&|line| format!("[pod/mongo{{0}}] {line}")).into(), [0, 0]),
        ("kubectl logs --timestamps", each(&|line| format!("2026-11-28T08:44:23.379Z {line}")).into(), [0, 0]),
        ("docker compose logs", each(&|line| format!("mongo-0  | {line}")).into(), [0, 0]),
        ("docker's own files", each(&docker).into(), [0, 0]),
        ("docker's own files, long lines", each(&docker_parts).into(), [0, 1]),
        ("Kubernetes' own files", each(&|line| format!("2026-11-28T08:44:23Z stdout F {line}")).into(), [0, 0]),
        ("Kubernetes' own files, long lines", each(&cri_parts).into(), [0, 0]),
        ("a collector of logs", each(&collected).into(), [0, 0]),
        ("a collector of logs, indented", each(&|line| collected(line).replace(": {", ":\n {")).into(), [0, 0]),
        ("getLog", reply.to_string().into(), [0, 0]),
        ("getLog, indented", format!("{reply:#}").into(), [0, 0]),
        ("getLog in mongosh", shown("").into(), [0, 4]),
        ("getLog in mongosh, only the first entries", shown(",\n    ... 924 more items").into(), [924, 4]),
        ("a list in Python", format!("[{}]", printed.join(", ")).into(), [0, 0]),
        ("CSV", format!("timestamp,message,host\n{}", each(&csv)).into(), [0, 1]),
        ("CSV without a last line end", csv(&lines.join("")).into(), [0, 0]),
        ("json.dumps with indent=0", each(&unindented).into(), [0, 0]),
        ("jq with colours", each(&coloured).into(), [0, 0]),
        (
            "grep with colours",
            log.replace("Slow query", "\u{1b}[01;31m\u{1b}[KSlow query\u{1b}[m\u{1b}[K").into(),
            [0, 0],
        ),
        ("the list of getLog", reply["log"].to_string().into(), [0, 0]),
        ("the list of getLog, indented", format!("{:#}", reply["log"]).into(), [0, 0]),
        (
            "a list of getLog, its end is cut",
            format!("{}{}", reply["log"], &reply["log"].to_string()[..400]).into(),
            [1, 0],
        ),
        ("lines that begin like an object", each(&|line| format!("{foreign}\n{line}")).into(), [lines.len() as u64, 0]),
        ("a list by line", format!("[\n{}\n]\n", lines.join(",\n")).into(), [0, 0]),
        ("a list on one line", format!("[{}]", lines.join(",")).into(), [0, 0]),
        ("jq", each(&pretty).into(), [0, 0]),
        ("CRLF", log.replace('\n', "\r\n").into(), [0, 0]),
        ("UTF-8 with BOM", format!("\u{feff}{log}").into(), [0, 0]),
        ("PowerShell", utf16(&log.replace('\n', "\r\n")), [0, 0]),
        ("PowerShell, an empty line first", utf16(&format!("\r\n{}", log.replace('\n', "\r\n"))), [0, 0]),
        ("gzip after other output", packed.clone(), [0, 1]),
        ("gzip with zeros behind it", padded(&[0; 512]), [0, 1]),
        ("gzip with other bytes behind it", padded(b"x"), [0, 1]),
        ("two gzip files in one", [gzip(halves.0), gzip(halves.1)].concat(), [0, 0]),
        ("a collector that keeps the line too", each(&beside).into(), [0, 0]),
        ("spaces before colons", each(&|line| pretty(line).replace("\": ", "\" : ")).into(), [0, 0]),
        ("jq that keeps some fields", each(&shortened).into(), [0, 0]),
    ] {
        let (found, kind, flaws) = audit(folder.path(), &content).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((&found, kind.as_str(), flaws), (&expected, "mongod log", counts), "{name}");
    }

    let (expected, ..) = audit(folder.path(), PROFILE.join("\n").as_bytes()).unwrap();
    assert_eq!(expected["reject"], 1);
    for (name, content) in [
        ("mongoexport --jsonArray", format!("[{}]\n", PROFILE.join(","))),
        ("mongoexport --pretty", PROFILE.map(pretty).join("\n")),
        ("Compass", format!("[\n{}\n]\n", PROFILE.map(pretty).join(",\n"))),
    ] {
        let (found, kind, flaws) = audit(folder.path(), content.as_bytes()).unwrap();
        assert_eq!((&found, kind.as_str(), flaws), (&expected, "system.profile", [0, 0]), "{name}");
    }

    let mixed = format!("{log}{}\n", PROFILE.join("\n"));
    let (found, kind, flaws) = audit(folder.path(), mixed.as_bytes()).unwrap();
    assert_eq!((kind.as_str(), flaws), ("mongod log, system.profile", [0, 0]));
    assert_eq!(found["reject"], 6, "five of the log, one of the profile: {found}");
}

/// `cut -c1-200`
#[test]
fn cut_lines_are_not_taken_for_a_quiet_server() {
    let folder = tempfile::tempdir().unwrap();
    let log = std::fs::read_to_string(repository("docs/examples/mongod.log")).unwrap();
    let cut: Vec<&str> = log.lines().map(|line| &line[..200]).collect();
    let (rules, file) = (folder.path().join("rules.yaml"), folder.path().join("traffic"));
    std::fs::write(&rules, RULES).unwrap();
    std::fs::write(&file, format!("{{\"ctx\":\"a\",\"msg\":\"b\"}}\n{}\n", cut.join("\n"))).unwrap();
    let [rules, path] = [&rules, &file].map(|path| path.to_str().unwrap());
    let audited = String::from_utf8(docward(&["audit", "--rules", rules, path]).stdout).unwrap();
    assert!(audited.contains("note: no command on the rules' collections could be read"), "{audited}");
    assert!(audited.contains("is cut off or not JSON"), "{audited}");
    let suggested = String::from_utf8(docward(&["suggest", path]).stdout).unwrap();
    assert!(suggested.contains("entries cannot be read"), "{suggested}");
    assert!(suggested.contains("what can be read of the traffic gives no reason for one"), "{suggested}");
}

#[test]
fn commands_that_reach_no_rule_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let [_, command] = logged(1, 0, r#""a":1"#, true);
    let sent = |fields: &str| command.replace(r#""update":"devices""#, fields).replace("updates", "x");
    let lines = [
        sent(r#""aggregate":"devices","pipeline":[{"$out":"others"}]"#),
        sent(r#""explain":{"update":"devices"}"#),
        sent(r#""renameCollection":"iot.devices","to":"iot.others""#),
        sent(r#""aggregate":"raw","pipeline":[{"$merge":{"into":"kept"}}]"#),
        sent(r#""explain":{"update":"kept"}"#),
    ];
    let (rules, file) = (folder.path().join("rules.yaml"), folder.path().join("traffic"));
    std::fs::write(&rules, RULES.replace("shop.orders", "iot.kept")).unwrap();
    let [rules, path] = [&rules, &file].map(|path| path.to_str().unwrap());
    for (lines, commands) in [(&lines[..], 2), (&lines[..3], 0)] {
        std::fs::write(&file, lines.join("\n")).unwrap();
        let shown = String::from_utf8(docward(&["audit", "--rules", rules, path]).stdout).unwrap();
        assert!(shown.contains(&format!("{commands} commands on the rules' collections\n")), "{shown}");
        assert_eq!(shown.contains("mongod logs only slow commands"), commands == 0, "{shown}");
    }
}

/// A copy of a file, rotated files that overlap, the log and the profile of one server.
#[test]
fn commands_in_several_files_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    let log = std::fs::read_to_string(repository("docs/examples/mongod.log")).unwrap();
    let (start, _) = log.split_at(log.match_indices('\n').nth(8).unwrap().0);
    let rules = folder.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let notes = |second: &str| {
        let files = [("first", log.as_str()), ("second", second)].map(|(name, content)| {
            std::fs::write(folder.path().join(name), content).unwrap();
            folder.path().join(name).to_str().unwrap().to_owned()
        });
        let rules = rules.to_str().unwrap();
        let done = docward(&["audit", "--format", "json", "--rules", rules, &files[0], &files[1]]);
        let report: Value = serde_json::from_slice(&done.stdout).unwrap();
        [0, 1].map(|file| report["sources"][file]["note"].as_str().unwrap_or_default().to_owned()).concat()
    };
    assert!(notes(start).contains("commands are in another file too, and count twice"), "{}", notes(start));
    assert_eq!(notes(&start.replace("127.0.0.1", "127.0.0.2").replace("shop.", "old.")), "");
    assert!(notes(PROFILE[0]).contains("a log is given too"), "{}", notes(PROFILE[0]));
}

#[test]
fn all_files_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("text"), "text").unwrap();
    std::fs::write(path("empty"), "").unwrap();
    let packed = [0x1f, 0x8b, 8, 0];
    std::fs::write(path("packed"), packed).unwrap();
    let shown = |files: &[&str]| {
        let files: Vec<String> = files.iter().map(|name| path(name)).collect();
        let files = files.iter().map(String::as_str);
        let done = docward(&["audit", "--rules", rules.to_str().unwrap()].into_iter().chain(files).collect::<Vec<_>>());
        String::from_utf8(done.stderr).unwrap()
    };
    let error = shown(&["text", "empty", "packed"]);
    for words in ["text: this is neither", "empty: the file is empty", "the gzip data is cut off or damaged"] {
        assert!(error.contains(words), "{error}");
    }
    let error = shown(&["", "nowhere"]);
    assert!(error.contains("is a folder: name the files in it") && error.contains("No such file"), "{error}");
}

#[test]
fn what_cannot_be_read_shows_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    for (content, words) in [
        (&b"PK\x03\x04...."[..], "this is a zip archive: extract it first"),
        (b"\x28\xb5\x2f\xfd....", "this is compressed by zstd: decompress it first"),
        (b"{\0\"\0t\0\"\0:\0", "this is UTF-16 without a byte order mark: convert it to UTF-8"),
        (b"\x16\x00\x00\x00\x02a\x00", "convert it with bsondump"),
        (b"\x2a\0\0\0\x02docward\0\x08\0\0\0capture\0\x10version\0\x02", "a capture of another version of docward"),
        (b"\x6d\xe2\x99\x81....", "export system.profile with mongoexport"),
        (
            b"[\n  {\n    op: 'update',\n    ns: 'shop.orders'\n  }\n]\n",
            "documents of system.profile as JSON (mongoexport)",
        ),
        (b"{\"a\": 1}\n", "neither a log of mongod 4.4 or later"),
        (b"2019-01-01T00:00:00.000+0000 I COMMAND  [conn1] command shop.orders\n", "neither a log of mongod 4.4"),
    ] {
        let error = audit(folder.path(), content).unwrap_err();
        assert!(error.contains(words) && error.lines().count() == 1, "{words} is not in {error}");
    }
}
