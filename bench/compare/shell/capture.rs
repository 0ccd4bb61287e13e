//! A capture as messages that can be sent repeatedly.
//!
//! A capture stores a command's document sequence as an array. This module restores the frame that a driver sends:
//! the sequence follows the body, each connection has its own session and transaction numbers, and there is no
//! cluster time. Ids and times that the client generates change with every pass; keys that all shells share stay the
//! same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document};

use super::super::cycle::{Fresh, Message};
use super::super::frames;
use super::{Recorded, capture_file};

/// Placeholder of a retryable write's transaction number; occurs nowhere else.
const NUMBER: i64 = 0x0000_0191_7A57_0001;
/// Readings are one minute apart; so are consecutive passes.
const MINUTE: i64 = 60_000;

/// The commands of one workload, by recorded connection.
pub(crate) struct Capture {
    connections: Vec<Vec<Document>>,
    /// How far dates advance with each pass.
    span: i64,
}

/// The target of a command, as far as its reply matters.
#[derive(Clone, PartialEq)]
pub(crate) struct Target {
    pub(crate) command: String,
    pub(crate) collection: String,
}

/// The first document of a capture, and its records.
pub(crate) fn read(file: &Path) -> Result<(Document, Vec<Document>)> {
    let mut reader = BufReader::new(File::open(file).with_context(|| file.display().to_string())?);
    let header = Document::from_reader(&mut reader)?;
    let mut records = Vec::new();
    while !std::io::BufRead::fill_buf(&mut reader)?.is_empty() {
        records.push(Document::from_reader(&mut reader)?);
    }
    Ok((header, records))
}

/// Whether a command reads or writes the workload's documents, which are in the database of the same name.
pub(crate) fn belongs_to(record: &Document, workload: &str) -> bool {
    command(record).is_some_and(|command| command.get_str("$db").is_ok_and(|own| own == workload))
}

fn command(record: &Document) -> Option<&Document> {
    record.get_document("command").ok()
}

impl Capture {
    pub(crate) fn load(workload: &str, of: Recorded) -> Result<Self> {
        let (_, records) = read(&capture_file(workload, of))?;
        let mut connections: BTreeMap<i64, Vec<Document>> = BTreeMap::new();
        let mut dates = BTreeSet::new();
        for record in &records {
            let command = command(record).context("a record without a command")?;
            values(command, &mut |value| dates.extend(value.as_datetime().map(|date| date.timestamp_millis())));
            connections.entry(record.get_i64("conn")?).or_default().push(command.clone());
        }
        ensure!(!connections.is_empty(), "the capture of {workload} is empty");
        let span = dates.first().zip(dates.last()).map_or(0, |(first, last)| last - first + MINUTE);
        Ok(Self { connections: connections.into_values().collect(), span })
    }

    /// The messages that the nth connection of a replay sends, copied from a recorded connection, and their targets.
    pub(crate) fn messages(&self, nth: usize, session: [u8; 16]) -> (Vec<Message>, Vec<Target>) {
        let commands = &self.connections[nth % self.connections.len()];
        commands.iter().map(|command| (self.message(command, session), Target::of(command))).unzip()
    }

    fn message(&self, command: &Document, session: [u8; 16]) -> Message {
        let mut body = command.clone();
        body.remove("$clusterTime");
        if body.contains_key("txnNumber") {
            body.insert("txnNumber", NUMBER);
        }
        let id = Binary { subtype: BinarySubtype::Uuid, bytes: session.to_vec() };
        body.insert("lsid", bson::doc! { "id": id });
        let list = ["documents", "updates", "deletes"].into_iter().find(|list| body.contains_key(list));
        let statements: Vec<Document> = match list.and_then(|list| body.remove(list)) {
            Some(Bson::Array(statements)) => {
                statements.into_iter().filter_map(|each| each.as_document().cloned()).collect()
            }
            _ => Vec::new(),
        };
        let frame = frames::message(&body, list.unwrap_or_default(), &statements);
        let marks = self.marks(command);
        let marks: Vec<(&[u8], Fresh)> = marks.iter().map(|(mark, fresh)| (mark.as_slice(), *fresh)).collect();
        Message::new(frame, &marks)
    }

    fn marks(&self, command: &Document) -> Vec<(Vec<u8>, Fresh)> {
        let mut marks = BTreeMap::from([(NUMBER.to_le_bytes().to_vec(), Fresh::Count { from: 0 })]);
        values(command, &mut |value| {
            if let Bson::ObjectId(id) = value {
                marks.insert(id.bytes().to_vec(), Fresh::Id);
            } else if let Bson::DateTime(date) = value {
                let original = date.timestamp_millis();
                marks.insert(original.to_le_bytes().to_vec(), Fresh::Date { original, span: self.span });
            }
        });
        marks.into_iter().collect()
    }
}

impl Target {
    fn of(command: &Document) -> Self {
        let (name, collection) = command.iter().next().map_or(("", ""), |(k, v)| (k, v.as_str().unwrap_or_default()));
        Self { command: name.to_owned(), collection: collection.to_owned() }
    }
}

/// Calls `see` with every value of a document, including nested ones.
fn values(document: &Document, see: &mut impl FnMut(&Bson)) {
    document.values().for_each(|each| value(each, see));
}

fn value(each: &Bson, see: &mut impl FnMut(&Bson)) {
    see(each);
    match each {
        Bson::Document(document) => values(document, see),
        Bson::Array(array) => array.iter().for_each(|each| value(each, see)),
        _ => {}
    }
}
