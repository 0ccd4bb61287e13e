//! Compares the shell parser with mongosh: one mongosh runs the whole corpus against a recording server, and docward
//! must build the command that mongosh sent for each text. The same holds for the texts that docward shows.
//!
//! The comparison ignores sessions, ids that drivers generate, and mongosh's own commands.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};

use bson::{Bson, Document, RawDocument, Utf8Lossy, doc};
use docward::shell::{ShellContext, parse, render};
use support::frame::{Frame, Message, Section};
use support::process::mongosh;
use support::scripted::{Peer, reply_to};

const CORPUS: &str = include_str!("../mongosh/corpus.txt");
const DATABASE: &str = "shop";

/// mongosh's own commands: before a drop, at its end, and about the server at any time.
const OWN: [&str; 7] =
    ["listCollections", "endSessions", "getParameter", "buildInfo", "getCmdLineOpts", "atlasVersion", "hostInfo"];

/// A command: its name, and its fields as bytes.
type Sent = (String, BTreeMap<String, Vec<u8>>);

#[test]
fn the_parser_builds_what_mongosh_sends() {
    let texts = with_shown(texts());
    let sent = run_in_mongosh(&texts);
    let mut wrong = String::new();
    for (index, text) in texts.iter().enumerate() {
        let sent = sent.get(&index).cloned().unwrap_or_default();
        let built = build(text);
        let comparable = |commands: &[Document]| commands.iter().map(comparable).collect::<Vec<_>>();
        if comparable(&sent) != comparable(&built) || sent.is_empty() {
            let show = |commands: &[Document]| commands.iter().map(|c| format!("    {c}\n")).collect::<String>();
            write!(wrong, "{text}\n  mongosh sent\n{}  docward built\n{}\n", show(&sent), show(&built)).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(texts.len() > 100, "{}", texts.len());
}

fn texts() -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for line in CORPUS.lines().filter(|line| !line.starts_with('#')) {
        match texts.last_mut() {
            Some(text) if !line.starts_with("db") => write!(text, "\n{line}").unwrap(),
            _ => texts.push(line.to_owned()),
        }
    }
    texts
}

/// The texts, followed by docward's rendering of each command, if JavaScript can express it.
fn with_shown(mut texts: Vec<String>) -> Vec<String> {
    let shown = |text: &String| {
        let commands = parse(text, DATABASE).map(|parsed| parsed.commands).unwrap_or_default();
        commands.iter().map(|command| render(command.as_document(), DATABASE)).collect::<Vec<_>>()
    };
    let shown: Vec<String> = texts.iter().flat_map(shown).filter(|text| text.starts_with("db")).collect();
    assert!(shown.len() > 150, "{}", shown.len());
    texts.extend(shown);
    texts
}

/// The commands sent for each text, by the text's index.
fn run_in_mongosh(texts: &[String]) -> BTreeMap<usize, Vec<Document>> {
    let peer = Peer::start(|request| vec![answer(&request)]);
    let script = tempfile::Builder::new().suffix(".js").tempfile().unwrap();
    std::fs::write(script.path(), program(texts)).unwrap();
    let uri = format!("{}{DATABASE}?directConnection=true", peer.uri());
    let done = Command::new(mongosh())
        .args(["--quiet", "--norc", &uri, "--file"])
        .arg(script.path())
        .env("TZ", "America/New_York")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut sent: BTreeMap<usize, Vec<Document>> = BTreeMap::new();
    let mut current = None;
    for request in peer.requests() {
        let command = whole(&request);
        match command.get("marker") {
            Some(marker) => current = Some(marker.as_i32().unwrap() as usize),
            None if command.keys().next().is_some_and(|name| OWN.contains(&name.as_str())) => {}
            None => current.into_iter().for_each(|text| sent.entry(text).or_default().push(command.clone())),
        }
    }
    sent
}

/// Every text after a marker. A cursor sends its command only when it is read.
fn program(texts: &[String]) -> String {
    let mut program = String::new();
    for (index, text) in texts.iter().enumerate() {
        writeln!(program, "try {{ db.adminCommand({{ping: 1, marker: {index}}}); var result = {text}").unwrap();
        program.push_str("if (result && typeof result.finish === 'function') result.finish();\n");
        program.push_str("else if (result && typeof result.toArray === 'function') result.toArray(); } catch (e) {}\n");
    }
    program
}

/// One reply for all commands.
fn answer(request: &Frame) -> Vec<u8> {
    let cursor = doc! {"id": 0_i64, "firstBatch": [], "ns": "shop.c"};
    reply_to(
        request,
        doc! {"ok": 1.0, "n": 1, "nModified": 0, "cursor": cursor, "value": null, "values": [], "queryPlanner": {}},
    )
}

/// The command with its document sequences as arrays.
fn whole(request: &Frame) -> Document {
    let message = Message::parse(request);
    let mut command = message.body().clone();
    for section in message.sections {
        if let Section::Sequence(name, documents) = section {
            command.insert(name, documents);
        }
    }
    ["lsid", "$clusterTime"].iter().for_each(|field| _ = command.remove(field));
    command
}

fn build(text: &str) -> Vec<Document> {
    let parsed = parse(text, ShellContext { database: DATABASE, now: 0 });
    let commands = parsed.unwrap_or_else(|error| panic!("{text}: {error:?}")).commands;
    // The parser that also reads frames: others sort the options of regular expressions.
    let read = |bytes: &[u8]| {
        let Utf8Lossy(document) = RawDocument::from_bytes(bytes).unwrap().try_into().unwrap();
        document
    };
    commands.iter().map(|command| read(command.as_document().as_bytes())).collect()
}

fn comparable(command: &Document) -> Sent {
    let name = command.keys().next().cloned().unwrap_or_default();
    let bytes = |value: &Bson| doc! {"": value.clone()}.to_vec().unwrap();
    let mut fields: BTreeMap<String, Vec<u8>> =
        command.iter().map(|(key, value)| (key.clone(), bytes(value))).collect();
    if let Ok(documents) = command.get_array("documents") {
        fields.insert("documents".to_owned(), bytes(&documents.iter().map(without_id).collect::<Vec<_>>().into()));
    }
    (name, fields)
}

/// Generated ids are last; ids written in the corpus are first, or not ObjectIds.
fn without_id(document: &Bson) -> Bson {
    let mut document = document.as_document().unwrap().clone();
    let generated = document.keys().last().is_some_and(|key| key == "_id") && document.get_object_id("_id").is_ok();
    if generated {
        document.remove("_id");
    }
    document.into()
}
