//! If no rule matches, docward answers like mongod: the same random commands, valid, nearly valid and broken,
//! directly in one database and through docward in another.

use std::sync::OnceLock;

use bson::{Bson, Document, doc};

use super::invariants::{first_seed, restore_sources, uuid_of};
use super::random::{COLLECTIONS, Generator, seeds};
use super::{Link, Setting, mongod};
use support::driver::{ok, scaled};
use support::frame::{Frame, Message, OP_MSG, OP_REPLY};
use support::proxy::Docward;

const LENGTH: usize = 300;
const SEQUENCES: u32 = 2;

/// Reply fields about the time, the server or the session rather than the command.
const INCIDENTAL: [&str; 12] = [
    "$clusterTime",
    "electionId",
    "executionStats",
    "localTime",
    "opTime",
    "operationTime",
    "queryHash",
    "planCacheKey",
    "serverInfo",
    "stages",
    "topologyVersion",
    "queryPlanner",
];

/// Without rules, and with rules on collections that do not exist.
fn docwards() -> &'static [Docward; 2] {
    static DOCWARDS: OnceLock<[Docward; 2]> = OnceLock::new();
    DOCWARDS.get_or_init(|| {
        let elsewhere = "version: 1\nrules:\n  - { name: far, namespace: absent.collection, replacement: {} }\n";
        [Docward::start(mongod(), ""), Docward::start(mongod(), elsewhere)]
    })
}

/// Replies in a comparable form: without incidental fields, and with one name for both databases. A broken message is
/// an error on both sides, whichever process parses it first.
fn comparable(replies: Option<&Vec<Frame>>, database: &str, broken: bool) -> String {
    let Some(replies) = replies else { return if broken { "error" } else { "closed" }.to_owned() };
    let failed = |frame: &Frame| frame.op_code == OP_MSG && !ok(Message::parse(frame).body());
    // For an unacknowledged command docward reports an error by closing the connection; mongod does not report it.
    if broken && (replies.is_empty() || replies.iter().any(failed)) {
        return "error".to_owned();
    }
    let texts = replies.iter().map(|frame| match frame.op_code {
        OP_MSG => without_incidents(Message::parse(frame).body()).to_string(),
        OP_REPLY => without_incidents(&frame.reply_document()).to_string(),
        other => panic!("opcode {other} in a reply"),
    });
    texts.collect::<Vec<_>>().join("\n").replace(database, "DATABASE")
}

fn without_incidents(document: &Document) -> Document {
    let keep = |(key, _): &(&String, &Bson)| !INCIDENTAL.contains(&key.as_str());
    document.iter().filter(keep).map(|(key, value)| (key.clone(), without_ids(value))).collect()
}

/// ObjectIds, UUIDs and times that the server makes.
fn without_ids(value: &Bson) -> Bson {
    match value {
        Bson::Document(document) => Bson::Document(without_incidents(document)),
        Bson::Array(array) => Bson::Array(array.iter().map(without_ids).collect()),
        Bson::ObjectId(_) | Bson::Binary(_) | Bson::Timestamp(_) => Bson::Null,
        // Operation times, and values of $currentDate.
        Bson::DateTime(time) if time.timestamp_millis() > 1_600_000_000_000 => Bson::Null,
        // Error texts quote sessions, UUIDs and commands.
        Bson::String(text) => Bson::String(text.split_inclusive(' ').map(without_uuid).collect()),
        other => other.clone(),
    }
}

fn without_uuid(word: &str) -> &str {
    let hexadecimal = word.chars().filter(char::is_ascii_hexdigit).count();
    if hexadecimal >= 16 && word.len() < 60 { "ID " } else { word }
}

/// Whether the two sides may differ: docward itself answers legacy opcodes and names that are UUIDs; while it has
/// rules it rejects commands whose target it cannot determine; and a debugging stage picks documents at random.
fn may_differ(name: &str) -> bool {
    let undetermined =
        ["applyOps by UUID", "applyOps, drop", "applyOps, nested", "applyOps, nested twice", "$out: symbol"];
    let apart = name.starts_with("OP_") || name.contains("UUID") || name.starts_with("pipeline as");
    apart || undetermined.contains(&name) || name == "stageDebug"
}

/// Whether both replies have the same bytes apart from the names of the databases, so that the broken bytes were
/// equal.
fn same_but_for(name: &str, other_name: &str, one: &[Vec<u8>], other: &[Vec<u8>]) -> bool {
    let renamed = |frame: &Vec<u8>| {
        let mut frame = frame.clone();
        for at in 0..frame.len().saturating_sub(name.len()) {
            if frame[at..].starts_with(name.as_bytes()) {
                frame[at..at + name.len()].copy_from_slice(other_name.as_bytes());
            }
        }
        frame
    };
    one.iter().map(renamed).eq(other.iter().cloned())
}

fn compare(docward: &Docward, seed: u64) {
    let (mut plain, mut passed) = (Setting::new(), Setting::new());
    // Names of the same length, so that both generators make the same bytes.
    plain.database = format!("{}_{seed}_plain", plain.database).replace("test", "differ");
    passed.database = plain.database.replace("plain", "other");
    for collection in COLLECTIONS {
        plain.seed(collection, seeds(collection));
        passed.seed(collection, seeds(collection));
    }
    let mut directly = Link::new(mongod().address());
    let mut through = Link::new(docward.address());
    let mut generators = [Generator::new(seed, &plain.database), Generator::new(seed, &passed.database)];
    for index in 0..LENGTH {
        restore_sources(&mut plain, index);
        restore_sources(&mut passed, index);
        let [one, other] = &mut generators;
        let (one, other) = (one.next(|c| uuid_of(&mut plain, c)), other.next(|c| uuid_of(&mut passed, c)));
        let broken = one.name.starts_with("broken");
        let same = same_but_for(&plain.database, &passed.database, &one.frames, &other.frames);
        if may_differ(one.name.trim_start_matches("broken: ")) || (broken && !same) {
            continue;
        }
        let expected = directly.deliver(&one.frames);
        let seen = through.deliver(&other.frames);
        for (expected, seen) in expected.iter().zip(&seen) {
            let expected = comparable(expected.as_ref(), &plain.database, broken);
            let seen = comparable(seen.as_ref(), &passed.database, broken);
            assert_eq!(seen, expected, "seed {seed}, command {index} on {}: {}", one.collection, one.name);
        }
        let stored = |setting: &mut Setting| {
            let documents = setting.stored(one.collection);
            documents.iter().map(|d| without_incidents(d).to_string()).collect::<Vec<_>>()
        };
        assert_eq!(stored(&mut passed), stored(&mut plain), "seed {seed}, command {index}: {}", one.name);
    }
    for setting in [&mut plain, &mut passed] {
        setting.direct.command(&setting.database, doc! { "dropDatabase": 1 });
    }
}

#[test]
fn without_rules_docward_answers_as_mongod_does() {
    for seed in 0..u64::from(scaled(SEQUENCES)) {
        compare(&docwards()[0], first_seed() + seed);
    }
}

#[test]
fn rules_elsewhere_change_no_answer() {
    for seed in 0..u64::from(scaled(SEQUENCES)) {
        compare(&docwards()[1], 1000 + first_seed() + seed);
    }
}
