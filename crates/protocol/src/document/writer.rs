//! Builds BSON from front to back in one buffer. Nested documents are written in place and their length prefixes are
//! patched afterwards, so a rewrite needs one allocation.

use super::{Document, Element, Kind, Value};

/// Appends fields to an open document in `out`.
#[derive(Debug)]
pub struct Writer<'b> {
    out: &'b mut Vec<u8>,
}

/// Appends values to an open array in `out`.
#[derive(Debug)]
pub struct ArrayWriter<'b> {
    out: &'b mut Vec<u8>,
    next: usize,
}

/// Room for exactly one value. It is null if nothing is written.
#[derive(Debug)]
pub struct ValueSlot<'b> {
    out: &'b mut Vec<u8>,
    tag_at: usize,
}

/// Returns a new document.
pub fn document(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    Writer::document(&mut out, write);
    out
}

impl<'b> Writer<'b> {
    /// Appends one complete document to `out`.
    pub fn document(out: &mut Vec<u8>, write: impl FnOnce(&mut Writer<'_>)) {
        enclosed(out, |out| write(&mut Writer { out }));
    }

    /// Starts a field; the caller writes exactly one value.
    pub fn slot(&mut self, key: impl AsRef<[u8]>) -> ValueSlot<'_> {
        let key = key.as_ref();
        self.named(key, |out| out.extend_from_slice(key))
    }

    /// Starts a field whose name is `prefix` followed by `key`.
    pub fn prefixed_slot(&mut self, prefix: &str, key: impl AsRef<[u8]>) -> ValueSlot<'_> {
        let key = key.as_ref();
        self.named(key, |out| {
            out.extend_from_slice(prefix.as_bytes());
            out.extend_from_slice(key);
        })
    }

    #[inline(always)]
    fn named(&mut self, key: &[u8], write_name: impl FnOnce(&mut Vec<u8>)) -> ValueSlot<'_> {
        debug_assert!(!key.contains(&0), "names come from BSON or from checked rules");
        let tag_at = self.out.len();
        self.out.push(Kind::Null as u8);
        write_name(self.out);
        self.out.push(0);
        ValueSlot { out: self.out, tag_at }
    }

    /// Copies a field.
    pub fn element(&mut self, element: Element<'_>) {
        self.value(element.key, element.value);
    }

    /// Copies all fields of `document`.
    pub fn elements(&mut self, document: Document<'_>) {
        self.fields(document.elements().as_bytes());
    }

    /// Copies consecutive fields of a document.
    pub(super) fn fields(&mut self, fields: &[u8]) {
        self.out.extend_from_slice(fields);
    }

    pub fn value(&mut self, key: impl AsRef<[u8]>, value: Value<'_>) {
        self.slot(key).value(value);
    }

    pub fn string(&mut self, key: impl AsRef<[u8]>, text: impl AsRef<[u8]>) {
        self.slot(key).string(text);
    }

    pub fn int32(&mut self, key: impl AsRef<[u8]>, number: i32) {
        self.slot(key).int32(number);
    }

    /// Writes an int32 if the number fits, otherwise an int64, as mongod's `$inc` does.
    pub fn integer(&mut self, key: impl AsRef<[u8]>, number: i64) {
        self.slot(key).integer(number);
    }

    pub fn double(&mut self, key: impl AsRef<[u8]>, number: f64) {
        self.slot(key).double(number);
    }

    pub fn boolean(&mut self, key: impl AsRef<[u8]>, value: bool) {
        self.slot(key).boolean(value);
    }

    pub fn null(&mut self, key: impl AsRef<[u8]>) {
        self.slot(key).null();
    }

    pub fn nested(&mut self, key: impl AsRef<[u8]>, write: impl FnOnce(&mut Writer<'_>)) {
        self.slot(key).nested(write);
    }

    pub fn array(&mut self, key: impl AsRef<[u8]>, write: impl FnOnce(&mut ArrayWriter<'_>)) {
        self.slot(key).array(write);
    }
}

impl<'b> ArrayWriter<'b> {
    /// Appends one complete array to `out`.
    fn array_in(out: &mut Vec<u8>, write: impl FnOnce(&mut ArrayWriter<'_>)) {
        enclosed(out, |out| write(&mut ArrayWriter { out, next: 0 }));
    }

    /// Appends the document that `write` appends to the buffer.
    pub fn document(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut slot = self.slot();
        slot.kind(Kind::Document);
        write(slot.out);
    }

    /// Starts the next element; the caller writes exactly one value.
    pub fn slot(&mut self) -> ValueSlot<'_> {
        let tag_at = self.out.len();
        self.out.push(Kind::Null as u8);
        push_decimal(self.out, self.next);
        self.out.push(0);
        self.next += 1;
        ValueSlot { out: self.out, tag_at }
    }

    pub fn value(&mut self, value: Value<'_>) {
        self.slot().value(value);
    }

    pub fn string(&mut self, text: impl AsRef<[u8]>) {
        self.slot().string(text);
    }

    pub fn int32(&mut self, number: i32) {
        self.slot().int32(number);
    }

    pub fn nested(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        self.slot().nested(write);
    }

    pub fn array(&mut self, write: impl FnOnce(&mut ArrayWriter<'_>)) {
        self.slot().array(write);
    }
}

impl<'b> ValueSlot<'b> {
    /// Sets the kind and returns the buffer. The caller appends exactly one well-formed value of that kind.
    pub fn begin(mut self, kind: Kind) -> &'b mut Vec<u8> {
        self.kind(kind);
        self.out
    }

    fn kind(&mut self, kind: Kind) {
        if let Some(tag) = self.out.get_mut(self.tag_at) {
            *tag = kind as u8;
        }
    }

    /// Copies a value.
    pub fn value(mut self, value: Value<'_>) {
        self.kind(value.kind);
        self.out.extend_from_slice(value.bytes);
    }

    pub fn string(mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        self.kind(Kind::String);
        self.out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
        self.out.extend_from_slice(text);
        self.out.push(0);
    }

    /// Writes a string of two parts.
    pub fn prefixed(mut self, prefix: &str, text: &str) {
        self.kind(Kind::String);
        self.out.extend_from_slice(&((prefix.len() + text.len()) as u32 + 1).to_le_bytes());
        self.out.extend_from_slice(prefix.as_bytes());
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(0);
    }

    pub fn int32(mut self, number: i32) {
        self.kind(Kind::Int32);
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    pub fn int64(mut self, number: i64) {
        self.kind(Kind::Int64);
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    /// Writes a UUID (BSON: binary of subtype 4).
    pub fn uuid(mut self, uuid: [u8; 16]) {
        const UUID: u8 = 4;
        self.kind(Kind::Binary);
        self.out.extend_from_slice(&16_u32.to_le_bytes());
        self.out.push(UUID);
        self.out.extend_from_slice(&uuid);
    }

    /// Writes an int32 if the number fits, otherwise an int64.
    pub fn integer(self, number: i64) {
        match i32::try_from(number) {
            Ok(narrow) => self.int32(narrow),
            Err(_) => self.int64(number),
        }
    }

    pub fn double(mut self, number: f64) {
        self.kind(Kind::Double);
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    pub fn boolean(mut self, value: bool) {
        self.kind(Kind::Boolean);
        self.out.push(u8::from(value));
    }

    pub fn null(mut self) {
        self.kind(Kind::Null);
    }

    /// Milliseconds since 1970 UTC.
    pub fn date(mut self, milliseconds: i64) {
        self.kind(Kind::DateTime);
        self.out.extend_from_slice(&milliseconds.to_le_bytes());
    }

    pub fn nested(mut self, write: impl FnOnce(&mut Writer<'_>)) {
        self.kind(Kind::Document);
        Writer::document(self.out, write);
    }

    pub fn array(mut self, write: impl FnOnce(&mut ArrayWriter<'_>)) {
        self.kind(Kind::Array);
        ArrayWriter::array_in(self.out, write);
    }
}

/// Appends a length prefix, the output of `write` and a terminator.
fn enclosed(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    out.push(0);
    let length = (out.len() - start) as u32;
    if let Some(prefix) = out.get_mut(start..start + 4) {
        prefix.copy_from_slice(&length.to_le_bytes());
    }
}

fn push_decimal(out: &mut Vec<u8>, number: usize) {
    if number >= 10 {
        push_decimal(out, number / 10);
    }
    out.push(b'0' + (number % 10) as u8);
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc, raw::RawDocumentBuf};

    use super::*;

    #[test]
    fn documents_equal_those_of_the_bson_crate() {
        let ours = document(|w| {
            w.string("s", "x");
            w.int32("i", -1);
            w.integer("j", 1 << 40);
            w.double("d", 0.5);
            w.boolean("b", true);
            w.null("n");
            w.slot("t").date(5);
            w.slot("p").prefixed("$", "a.b");
            w.nested("o", |w| w.integer("k", 2));
            w.array("a", |a| {
                a.int32(1);
                a.string("y");
                a.nested(|w| w.null("z"));
                a.array(|a| (0..12).for_each(|_| a.int32(0)));
            });
        });
        let theirs = doc! {
            "s": "x", "i": -1, "j": 1i64 << 40, "d": 0.5, "b": true, "n": Bson::Null,
            "t": bson::DateTime::from_millis(5), "p": "$a.b", "o": {"k": 2},
            "a": [1, "y", {"z": Bson::Null}, vec![0; 12]],
        };
        assert_eq!(ours, RawDocumentBuf::try_from(&theirs).unwrap().into_bytes());
        assert!(Document::parse(&ours).is_ok());
    }

    #[test]
    fn copied_fields_are_unchanged() {
        let source = document(|w| {
            w.string("a", "x");
            w.nested("b", |w| w.null("c"));
        });
        let parsed = Document::parse(&source).unwrap();
        assert_eq!(document(|w| w.elements(parsed)), source);
        assert_eq!(document(|w| parsed.elements().for_each(|e| w.element(e))), source);
    }
}
