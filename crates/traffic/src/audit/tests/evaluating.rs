//! Evaluating recorded commands with rules.

use bson::doc;

use super::*;

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
    let logged = |q: &str| line("a", "update", "d.c", q, "");
    let write = |q: &str| logged(&q.replace("}}}", r#"}},"multi":false,"upsert":false}"#));
    let rest = line("a", "command", "d.$cmd", UPDATE, "");
    let set = r#"{"q":{"_id":1},"u":{"$set":{"a":1}}}"#;
    let insert = line("a", "command", "d.c", r#"{"insert":"c","$db":"d"}"#, "");
    let out = line("a", "command", "d.x", r#"{"aggregate":"x","pipeline":[{"$out":"c"}],"cursor":{},"$db":"d"}"#, "");
    let elsewhere = line("a", "update", "d.other", Q, "");
    let commented = logged(
        r#"{"q":{"_id":1},"u":{"$set":{"a":1}},"upsert":false,"comment":{"at":{"$date":"2026-01-01T00:00:00Z"}}}"#,
    );
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
fn an_audit_counts_what_is_rejected_because_the_condition_is_not_satisfied() {
    for (on_no_room, expected) in [("ignore", (0, 1)), ("error", (1, 0))] {
        for mode in ["enforce", "shadow"] {
            let rules = rules(&format!("mode: {mode}\n    bounds: {{ field: n, min: 0, on_no_room: {on_no_room} }}"));
            let mut audit = Audit::new(&rules);
            let done = ReplySummary { n: Some(1), modified: Some(1), ..ReplySummary::default() };
            audit.add_command(&recorded("db.c.insertOne({_id: 1, n: 2})", 1, None));
            audit.add_command(&recorded("db.c.updateOne({_id: 1}, {$inc: {n: -3}})", 1, Some(done)));
            let OutcomeCounts { reject, no_match, .. } = audit.finish().rules[0].counts;
            assert_eq!((reject, no_match), expected, "{mode}, {on_no_room}");
        }
    }
}

#[test]
fn an_audit_counts_a_missing_option_once_for_a_command() {
    for (without, expected) in [("maxTimeMS", 1), ("hint", 3)] {
        let rules = rules(&format!("mode: shadow\n    deny: {{ operations: update, when: {{ without: {without} }} }}"));
        let mut audit = Audit::new(&rules);
        let each = "{updateOne: {filter: {a: 1}, update: {$set: {b: 1}}}}";
        audit.add_command(&recorded(&format!("db.c.bulkWrite([{each}, {each}, {each}])"), 1, None));
        assert_eq!(audit.finish().rules[0].counts.reject, expected, "{without}");
    }
}
