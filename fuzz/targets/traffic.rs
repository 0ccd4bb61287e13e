//! Recorded traffic, as `audit` and `suggest` read it: a log, an exported profile, or a capture.

use std::convert::Infallible;

use docward::audit::capture::CaptureReader;
use docward::audit::log::LogReader;
use docward::audit::objects::{Found, ObjectScanner};
use docward::audit::{
    Audit, CandidateRules, Habits, RecordedCommand, RecordedContent, TrafficConsumer, Unreadable, capture, log,
    profile, report,
};
use docward::command::{CommandClass, Namespace};

use super::load;
use super::plans::LOADED;

/// A file: each entry is parsed, or an error with a message. A parsed command has a database. The commands are
/// evaluated against rules and reported. Proposed rules form a rule file that loads.
pub fn traffic(bytes: &[u8]) {
    let mut commands = Vec::new();
    match bytes.strip_prefix(capture::header().as_slice()) {
        Some(records) => read_records(records, &mut commands),
        None => read_objects(bytes, &mut commands),
    }
    let (mut audit, mut habits) = (Audit::new(&LOADED), Habits::default());
    for one in &commands {
        if let RecordedContent::Command(command) = &one.content {
            assert!(command.as_document().get("$db").is_some_and(|database| database.as_str().is_some()), "{one:?}");
        }
        audit.add_command(one);
        habits.add_command(one);
    }
    let tally = audit.finish();
    assert!(tally.commands <= commands.len() as u64);
    assert!(!report::to_text(&tally, &LOADED, &[]).is_empty() && report::to_json(&tally, &LOADED, &[]).is_object());
    let proposed = proposed(&habits, &commands);
    if proposed.contains("\nrules:\n") {
        load(&proposed).unwrap_or_else(|report| panic!("{report}"));
    }
}

/// What `suggest` prints.
fn proposed(habits: &Habits, commands: &[RecordedCommand]) -> String {
    let candidates = CandidateRules::from_habits(habits);
    let mut evaluation = candidates.evaluation();
    commands.iter().for_each(|one| evaluation.add_command(one));
    let evaluated = evaluation.finish();
    let mut proposal = candidates.choose(evaluated);
    if let Some(rules) = proposal.rules() {
        let mut audit = Audit::new(rules);
        commands.iter().for_each(|one| audit.add_command(one));
        let tally = audit.finish();
        proposal.remove_breaking(tally);
    }
    proposal.to_text(&[])
}

/// Each record gives its own length, so records after a wrong one are not read.
fn read_records(mut records: &[u8], out: &mut Vec<RecordedCommand>) {
    let accept_all = |_: Namespace<'_>, _: CommandClass, _: &[u8]| true;
    let mut reader = CaptureReader::default();
    while let Some(length) = records.first_chunk().map(|length| u32::from_le_bytes(*length) as usize) {
        let Some((record, rest)) = records.split_at_checked(length) else { break };
        if reader.parse_record(record, &accept_all, out).is_err() {
            break;
        }
        records = rest;
    }
    reader.finish(out);
}

/// The objects do not depend on the blocks in which a text is read.
fn read_objects(bytes: &[u8], out: &mut Vec<RecordedCommand>) {
    let accept_all = |_: Namespace<'_>, _: CommandClass, _: &[u8]| true;
    let objects = objects_in(bytes.chunks(bytes.len().max(1)));
    assert_eq!(objects, objects_in(bytes.chunks(3)));
    let mut reader = LogReader::default();
    for (position, object) in objects {
        assert!(bytes.get(position as usize..).is_some_and(|rest| rest.starts_with(&object)));
        let read = match profile::is_line(&object) && !log::is_line(&object) {
            true => profile::parse_line(&object, &accept_all, out),
            false => reader.parse_line(&object, &accept_all, out),
        };
        assert!(!matches!(read, Err(Unreadable(words)) if words.is_empty()));
        let servers = log::servers(&object);
        assert!(servers.own.iter().chain(&servers.members).all(|server| !server.is_empty()));
    }
    reader.finish(out);
}

fn objects_in<'b>(blocks: impl Iterator<Item = &'b [u8]>) -> Vec<(u64, Vec<u8>)> {
    let mut objects = Vec::new();
    let mut scanner = ObjectScanner::default();
    let mut receive = |position: u64, found: Found<'_>| {
        if let Found::Object(object) = found {
            objects.push((position, object.to_vec()));
        }
        Ok::<(), Infallible>(())
    };
    for block in blocks {
        let Ok(()) = scanner.scan(block, &mut receive);
    }
    let Ok(()) = scanner.finish(&mut receive);
    objects
}
