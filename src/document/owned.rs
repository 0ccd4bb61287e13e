//! A document that is either a slice of the client's message or one that was written here.

use super::{Document, Writer};

/// Borrowed as long as nobody changes it.
#[derive(Debug, Clone)]
pub struct CowDocument<'a> {
    inner: Inner<'a>,
}

#[derive(Debug, Clone)]
enum Inner<'a> {
    Borrowed(Document<'a>),
    /// Written by [`Writer`] or cut from a checked document, hence well formed.
    Owned(Vec<u8>),
}

impl<'a> CowDocument<'a> {
    /// A document built now.
    pub fn build(write: impl FnOnce(&mut Writer<'_>)) -> Self {
        Self::from_writer(super::document(write))
    }

    /// The same for a document of about `capacity` bytes.
    pub(crate) fn build_of(capacity: usize, write: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        Writer::document(&mut bytes, write);
        Self::from_writer(bytes)
    }

    /// Takes bytes that [`Writer`] or [`edit`](super::edit) made.
    pub(crate) fn from_writer(bytes: Vec<u8>) -> Self {
        debug_assert!(Document::parse(&bytes).is_ok(), "the writer writes well-formed documents");
        Self { inner: Inner::Owned(bytes) }
    }

    pub fn as_document(&self) -> Document<'_> {
        match &self.inner {
            Inner::Borrowed(document) => *document,
            Inner::Owned(bytes) => Document::trusted(bytes),
        }
    }

    /// Whether this is no longer what the client sent.
    pub fn is_rewritten(&self) -> bool {
        matches!(self.inner, Inner::Owned(_))
    }

    /// Bytes of what was written here; none while it is the client's.
    pub fn rewritten_length(&self) -> usize {
        match &self.inner {
            Inner::Borrowed(_) => 0,
            Inner::Owned(bytes) => bytes.len(),
        }
    }
}

impl<'a> From<Document<'a>> for CowDocument<'a> {
    fn from(document: Document<'a>) -> Self {
        Self { inner: Inner::Borrowed(document) }
    }
}
