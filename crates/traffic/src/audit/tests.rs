//! Reading entries of logs, profiles and captures, and evaluating them with rules.

mod evaluating;
mod proposing;
mod reading;

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

fn rules(pattern: &str) -> RuleSet {
    let text = format!("version: 1\nrules:\n  - name: r\n    namespace: d.c\n    {pattern}\n");
    RuleSet::from_sources(vec![SourceFile { name: "r.yaml".to_owned(), text }]).unwrap()
}

fn recorded(text: &str, connection: u64, reply: Option<ReplySummary>) -> RecordedCommand {
    let command = crate::shell::parse(text, "d").unwrap().commands.remove(0);
    let client = Client { app: Some("shop\n- x".to_owned()), connection, ..Client::default() };
    let content = RecordedContent::Command(command);
    RecordedCommand { client, milliseconds: None, line: 0, took: None, content, partial: false, reply }
}

const SAVE: &str = "db.c.replaceOne({_id: 1}, {a: 1, version: 4})";
const READ: &str = "db.c.find({_id: 1})";

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
