//! The documents that a checked statement applies to, by their `_id`s.

use std::collections::{HashMap, VecDeque};

use crate::command::Reply;
use crate::document::{CowDocument, Document, OwnedValue, Value};
use crate::effect::is_equal;
use crate::patterns::BeforeAndAfter;

/// Bytes of the server's replies with the `_id`s for one statement at most: about a million documents.
pub(super) const MAX_SELECTED_LENGTH: usize = 64 << 20;
/// How often a select begins again because its cursor was lost.
pub(super) const MAX_LOST_CURSORS: u32 = 3;
/// Documents of one transaction at most.
const PIECE_DOCUMENTS: usize = 1000;
/// Their bytes at most, unless one alone is larger.
const PIECE_BYTES: i64 = 8 << 20;

/// Documents to which a statement applies in one transaction.
#[derive(Debug, Clone, Default)]
pub(super) struct SelectedDocuments(pub(super) Vec<OwnedValue>);

impl SelectedDocuments {
    /// Returns the condition that a document is one of these.
    pub(super) fn condition<'a>(&self) -> CowDocument<'a> {
        CowDocument::build(|w| {
            w.nested("_id", |w| w.array("$in", |a| self.0.iter().for_each(|id| a.value(id.as_value()))));
        })
    }
}

/// Returns the `_id`s that a select found, with the sizes of their documents.
pub(super) fn sized_ids(reply: &Reply<'_>) -> Vec<(OwnedValue, i64)> {
    let documents = reply.batch().unwrap_or(Document::EMPTY).values().filter_map(Value::as_document);
    let sized = |document: Document<'_>| {
        Some((document.get("_id")?.into(), document.get("size").and_then(Value::as_integer).unwrap_or(0)))
    };
    documents.filter_map(sized).collect()
}

/// Divides documents into pieces; there is at least one.
pub(super) fn divided(selected: Vec<(OwnedValue, i64)>) -> VecDeque<SelectedDocuments> {
    let (mut pieces, mut piece, mut bytes) = (VecDeque::new(), SelectedDocuments::default(), 0);
    for (id, size) in selected {
        if piece.0.len() >= PIECE_DOCUMENTS || (bytes + size > PIECE_BYTES && !piece.0.is_empty()) {
            pieces.push_back(std::mem::take(&mut piece));
            bytes = 0;
        }
        bytes += size;
        piece.0.push(id);
    }
    pieces.push_back(piece);
    pieces
}

/// Returns the documents of finds by their `_id`s.
pub(super) fn by_id(frames: &[Vec<u8>]) -> HashMap<OwnedValue, Document<'_>> {
    let replies = frames.iter().filter_map(|frame| Reply::parse(frame).ok());
    let documents = replies.flat_map(|reply| reply.batch().unwrap_or(Document::EMPTY).values());
    let documents = documents.filter_map(Value::as_document);
    documents.filter_map(|document| Some((document.get("_id")?.into(), document))).collect()
}

/// Returns one of these documents. A statement may have replaced its `_id` by an equal number of another type.
pub(super) fn document_with<'d>(
    documents: &HashMap<OwnedValue, Document<'d>>,
    id: &OwnedValue,
) -> Option<Document<'d>> {
    let is_it = |found: &&Document<'d>| found.get("_id").is_some_and(|found| is_equal(found, id.as_value()));
    documents.get(id).or_else(|| documents.values().find(is_it)).copied()
}

/// Returns a written document as it is after it was settled; `None` if it was not.
pub(super) fn settled_of<'d>(
    settled: &HashMap<OwnedValue, Document<'d>>,
    (before, after): BeforeAndAfter<'_>,
) -> Option<Document<'d>> {
    let id = after.or(before)?.get("_id")?;
    settled.get(&OwnedValue::from(id)).copied()
}
