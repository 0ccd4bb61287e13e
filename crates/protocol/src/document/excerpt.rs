//! The beginning of a long document, for texts that people read: its length does not depend on that of the document.

use std::borrow::Cow;

use super::{CowDocument, Document, Element, Kind, Value, ValueSlot, Writer};

/// Bytes of a value that is copied whole.
const SHORT: usize = 32;
/// Levels with room of their own, so that many values below do not displace the fields beside them: a command, its
/// statements, the fields of a statement, and all that is below.
const LEVELS: usize = 4;
/// What is shown for text and values that are omitted.
const OMITTED: &str = "…";

/// Returns a copy of at most about `2 * (LEVELS + 1) * length` bytes. Long texts are shortened, and long values of other kinds
/// are replaced by `…`. When a level of documents has `length` bytes of short values, others are omitted.
pub fn excerpt(document: Document<'_>, length: usize) -> CowDocument<'static> {
    let mut room = Room { short: [length; LEVELS], text: length };
    CowDocument::build(|w| room.write_fields(w, document, 0))
}

/// The bytes that may still be written.
struct Room {
    /// Keys and short values, by level.
    short: [usize; LEVELS],
    /// Parts of long texts.
    text: usize,
}

impl Room {
    fn write_fields(&mut self, w: &mut Writer<'_>, document: Document<'_>, level: usize) {
        for Element { key, value } in document.elements() {
            if !self.admits(key.len().min(SHORT), value, level) {
                return;
            }
            match key.len() {
                0..=SHORT => self.write_value(w.slot(key), value, level),
                _ => {
                    let key = self.text(key);
                    self.write_value(w.slot(key), value, level);
                }
            }
        }
    }

    /// Takes the room for a value and its key.
    fn admits(&mut self, key_length: usize, value: Value<'_>, level: usize) -> bool {
        let room = &mut self.short[level.min(LEVELS - 1)];
        // A nested document or a long text takes at least some bytes.
        let needed = key_length + value.bytes.len().min(SHORT);
        let fits = needed <= *room;
        *room = room.saturating_sub(needed);
        fits
    }

    fn write_value(&mut self, slot: ValueSlot<'_>, value: Value<'_>, level: usize) {
        match value.kind {
            Kind::Document => {
                let document = value.as_document().unwrap_or(Document::EMPTY);
                slot.nested(|w| self.write_fields(w, document, level + 1));
            }
            Kind::Array => {
                let list = value.as_array().unwrap_or(Document::EMPTY);
                slot.array(|a| {
                    for value in list.values() {
                        if !self.admits(0, value, level + 1) {
                            return;
                        }
                        self.write_value(a.slot(), value, level + 1);
                    }
                });
            }
            _ if value.bytes.len() <= SHORT => slot.value(value),
            Kind::String => {
                let text = self.text(value.as_string_bytes().unwrap_or_default());
                slot.string(text);
            }
            _ => slot.string(OMITTED),
        }
    }

    /// The beginning of a text.
    fn text(&mut self, text: &[u8]) -> String {
        let taken = text.len().min(self.text);
        self.text -= taken;
        // A character that is cut in two is shown as a replacement character.
        let shown = String::from_utf8_lossy(text.get(..taken).unwrap_or_default());
        if taken == text.len() { Cow::into_owned(shown) } else { format!("{shown}{OMITTED}") }
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, doc};

    use super::*;

    fn excerpt_of(document: &bson::Document, length: usize) -> bson::Document {
        let raw = RawDocumentBuf::try_from(document).unwrap();
        let excerpt = excerpt(Document::parse(raw.as_bytes()).unwrap(), length);
        bson::Document::from_reader(excerpt.as_document().as_bytes()).unwrap()
    }

    #[test]
    fn short_documents_are_unchanged() {
        let id = bson::oid::ObjectId::from_bytes([7; 12]);
        let text = "a text that is longer than short values are";
        let document = doc! {"_id": id, "a": [1, {"b": [null, true]}], "text": text, "c": {"d": 1.5}};
        assert_eq!(excerpt_of(&document, 1000), document);
    }

    #[test]
    fn long_texts_are_shortened_and_fields_beside_long_lists_stay() {
        let list: Vec<i32> = (0..100_000).collect();
        let text = "é".repeat(100_000);
        let binary = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0; 100_000] };
        let statement = doc! {"q": {"_id": {"$in": list}}, "u": {"text": &text, "bytes": binary}, "multi": true};
        let mut document = doc! {"update": "c", "updates": [statement], "ordered": false};
        document.insert("k".repeat(100_000), 1);
        let excerpt = excerpt_of(&document, 1001);
        assert!(excerpt.get_bool("ordered").is_ok_and(|ordered| !ordered));
        let statement = excerpt.get_array("updates").unwrap()[0].as_document().unwrap();
        assert!(statement.get_bool("multi").unwrap());
        let found = statement.get_document("q").unwrap().get_document("_id").unwrap().get_array("$in").unwrap();
        assert!((100..=250).contains(&found.len()), "{}", found.len());
        let bytes = bson::Document::to_vec(&excerpt).unwrap().len();
        assert!(bytes < 10_000, "{bytes}");
        let texts = excerpt_of(&doc! {"text": &text, "next": &text}, 101);
        assert_eq!(texts.get_str("text").unwrap(), format!("{}\u{fffd}…", "é".repeat(50)));
        assert_eq!(texts.get_str("next").unwrap(), "…");
    }

    #[test]
    fn many_documents_have_a_bounded_excerpt() {
        let many = vec![doc! {"a": {"b": {"c": {}}}}; 10_000];
        let bytes = bson::Document::to_vec(&excerpt_of(&doc! {"l": many}, 1000)).unwrap().len();
        assert!(bytes < 10_000, "{bytes}");
    }
}
