//! An original as its server stores it.

use bson::RawDocumentBuf;

use crate::document::{Document, PathLookup, Value};
use crate::patterns::copies::CopiedField;

/// The copied fields of an original, and its `_id`.
pub(super) struct Original(RawDocumentBuf);

impl Original {
    pub(super) fn new(document: RawDocumentBuf) -> Self {
        Self(document)
    }

    pub(super) fn document(&self) -> Document<'_> {
        // The driver has checked the length, and the document comes from the server.
        Document::parse(self.0.as_bytes()).unwrap_or(Document::EMPTY)
    }

    pub(super) fn id(&self) -> Option<Value<'_>> {
        self.document().get("_id")
    }

    /// The value that copies of this field must have; `None` if the original lacks it.
    pub(super) fn value(&self, field: &CopiedField) -> Option<Value<'_>> {
        match field.original.lookup(self.document()) {
            PathLookup::Found(value) => Some(value),
            PathLookup::Missing | PathLookup::Blocked(_) => None,
        }
    }
}
