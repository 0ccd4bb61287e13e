//! Compares the documents of a collection at two targets.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};

use super::{PlayerConnection, ReplayTarget, TargetError};
use crate::command::Reply;
use crate::document::{Document, OwnedValue, Path, Value};
use crate::replay::{StoredDifference, document_hash, value_hash, without_fields};
use crate::shell::value_text;

/// The most documents of a collection that are compared; of larger ones only the counts.
const MAX_DOCUMENTS: usize = 5_000_000;
/// Different documents whose fields are looked at.
const MAX_LOOKED_AT: usize = 1_000;
const MAX_EXAMPLES: usize = 5;
const BATCH: i32 = 1_000;

/// Compares the documents of a collection, by `_id`, without these fields.
///
/// # Errors
/// [`TargetError`]: a target cannot be read.
pub async fn compare(
    first: &ReplayTarget,
    second: &ReplayTarget,
    (database, collection): (&str, &str),
    without: &[Path],
) -> Result<StoredDifference, TargetError> {
    let namespace = format!("{database}.{collection}");
    let mut found = StoredDifference { namespace, ..StoredDifference::default() };
    let (mut one, mut other) = (first.connect(None).await?, second.connect(None).await?);
    let mut documents: HashMap<u64, u64> = HashMap::new();
    let [count, others] = &mut found.counts;
    each(&mut one, database, collection, |id, document| {
        *count += 1;
        if documents.len() < MAX_DOCUMENTS {
            documents.insert(value_hash(id), document_hash(document, without));
        }
    })
    .await?;
    let is_whole = *count <= MAX_DOCUMENTS as u64;
    let mut different: Vec<OwnedValue> = Vec::new();
    let mut examples = Vec::new();
    each(&mut other, database, collection, |id, document| {
        *others += 1;
        match documents.remove(&value_hash(id)) {
            Some(hash) if hash == document_hash(document, without) => {}
            Some(_) => {
                found.different += 1;
                if different.len() < MAX_LOOKED_AT {
                    different.push(id.into());
                }
            }
            None => {
                found.only[1] += 1;
                if examples.len() < MAX_EXAMPLES {
                    examples.push(format!("{} (only at the second target)", value_text(id)));
                }
            }
        }
    })
    .await?;
    if !is_whole {
        found.only = [0, 0];
        found.different = 0;
        found.note = Some(format!("only the counts were compared: it has more than {MAX_DOCUMENTS} documents"));
        return Ok(found);
    }
    found.only[0] = documents.len() as u64;
    if !documents.is_empty() {
        let mut left = MAX_EXAMPLES;
        each(&mut one, database, collection, |id, _| {
            if left > 0 && documents.contains_key(&value_hash(id)) {
                left -= 1;
                examples.push(format!("{} (only at the first target)", value_text(id)));
            }
        })
        .await?;
    }
    examples.extend(different.iter().take(MAX_EXAMPLES).map(|id| value_text(id.as_value())));
    found.examples = examples;
    for id in &different {
        let sides =
            [by_id(&mut one, database, collection, id).await?, by_id(&mut other, database, collection, id).await?];
        let [Some(one), Some(other)] = &sides else { continue };
        note_fields(one, other, without, &mut found.fields);
    }
    Ok(found)
}

/// Calls `see` with the `_id` and each document of a collection.
async fn each(
    connection: &mut PlayerConnection,
    database: &str,
    collection: &str,
    mut see: impl FnMut(Value<'_>, Document<'_>),
) -> Result<(), TargetError> {
    let mut reply = connection
        .command(database, |w| {
            w.string("find", collection);
            w.int32("batchSize", BATCH);
        })
        .await?;
    loop {
        let cursor = {
            let parsed = parse(&reply)?;
            let batch = parsed.cursor().map(|_| parsed.batch()).ok_or_else(|| failed(&parsed))?;
            for document in batch.unwrap_or(Document::EMPTY).values().filter_map(Value::as_document) {
                document.get("_id").into_iter().for_each(|id| see(id, document));
            }
            parsed.cursor_id().unwrap_or_default()
        };
        if cursor == 0 {
            return Ok(());
        }
        reply = connection
            .command(database, |w| {
                w.slot("getMore").int64(cursor);
                w.string("collection", collection);
                w.int32("batchSize", BATCH);
            })
            .await?;
    }
}

async fn by_id(
    connection: &mut PlayerConnection,
    database: &str,
    collection: &str,
    id: &OwnedValue,
) -> Result<Option<Vec<u8>>, TargetError> {
    let reply = connection
        .command(database, |w| {
            w.string("find", collection);
            w.nested("filter", |w| w.nested("_id", |w| w.value("$eq", id.as_value())));
            w.int32("limit", 1);
            w.boolean("singleBatch", true);
        })
        .await?;
    let found = parse(&reply)?.found().and_then(|found| found.first().map(|document| document.as_bytes().to_vec()));
    Ok(found)
}

/// Counts the fields that two documents do not have in common.
fn note_fields(one: &[u8], other: &[u8], without: &[Path], fields: &mut BTreeMap<String, u64>) {
    let [one, other] = [one, other].map(|document| without_fields(document.to_vec(), without));
    let (Ok(one), Ok(other)) = (Document::parse(&one), Document::parse(&other)) else { return };
    let mut names: Vec<&[u8]> = one.elements().chain(other.elements()).map(|element| element.key).collect();
    names.sort_unstable();
    names.dedup();
    let mut found = false;
    for name in names.into_iter().filter(|name| one.get(name) != other.get(name)) {
        found = true;
        *fields.entry(String::from_utf8_lossy(name).into_owned()).or_default() += 1;
    }
    if !found {
        *fields.entry("(the order of the fields)".to_owned()).or_default() += 1;
    }
}

fn parse(reply: &[u8]) -> Result<Reply<'_>, TargetError> {
    Ok(Reply::parse(reply).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?)
}

fn failed(reply: &Reply<'_>) -> TargetError {
    let text = reply.body.get("errmsg").and_then(Value::as_str).unwrap_or("the reply has no cursor");
    io::Error::other(text.to_owned()).into()
}
