//! A document that either borrows from the client's message or was written by docward.

use super::{Document, Malformed, Writer};

/// A document that is borrowed until it is changed.
#[derive(Debug, Clone)]
pub struct CowDocument<'a> {
    inner: Inner<'a>,
}

#[derive(Debug, Clone)]
enum Inner<'a> {
    Borrowed(Document<'a>),
    /// Written by [`Writer`] or copied from a checked document, so it is well formed.
    Owned(Vec<u8>),
}

impl<'a> CowDocument<'a> {
    /// Builds a document.
    pub fn build(write: impl FnOnce(&mut Writer<'_>)) -> Self {
        Self::from_writer(super::document(write))
    }

    /// Builds a document of about `capacity` bytes.
    pub fn build_of(capacity: usize, write: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        Writer::document(&mut bytes, write);
        Self::from_writer(bytes)
    }

    /// Takes bytes written by [`Writer`] or [`edit`](super::edit).
    pub fn from_writer(bytes: Vec<u8>) -> Self {
        // The document of a client may be as deep as allowed, and what docward writes around it is deeper.
        debug_assert!(
            matches!(Document::parse(&bytes), Ok(_) | Err(Malformed::TooDeep)),
            "the writer writes well-formed documents"
        );
        Self { inner: Inner::Owned(bytes) }
    }

    pub fn as_document(&self) -> Document<'_> {
        match &self.inner {
            Inner::Borrowed(document) => *document,
            Inner::Owned(bytes) => Document::trusted(bytes),
        }
    }

    /// Returns whether docward wrote this document. Its bytes can still equal those that the client sent.
    pub fn is_rewritten(&self) -> bool {
        matches!(self.inner, Inner::Owned(_))
    }

    /// Returns the length in bytes of a document that docward wrote, or 0 if it is the client's.
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

#[cfg(test)]
mod tests {
    use super::super::{Kind, MAX_DEPTH, Value};
    use super::*;

    #[test]
    fn a_document_around_the_deepest_of_a_client_is_deeper() {
        let around = |inner: &[u8]| CowDocument::build(|w| w.value("d", Value { kind: Kind::Document, bytes: inner }));
        let mut deepest = crate::document::document(|_| {});
        for _ in 0..=MAX_DEPTH {
            deepest = around(&deepest).as_document().as_bytes().to_vec();
        }
        assert_eq!(Document::parse(&deepest), Err(Malformed::TooDeep));
    }
}
