//! A value that is written once and then copied, each time with another text, number and value in its holes. Documents
//! in it then cost a copy and their lengths, where a [`Writer`](super::Writer) opens and closes each of them.

use super::{Document, Element, Kind, Slot, Value};

/// A value with holes.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    kind: Kind,
    /// The value without the texts and the value that go into its holes.
    bytes: Vec<u8>,
    /// Where the text goes: bytes of the template before it. Ascending.
    texts: Vec<usize>,
    /// Where the number goes.
    numbers: Vec<Place>,
    /// Where the value goes, behind all texts.
    value: Option<ValueHole>,
    /// The length prefixes that text or value change.
    lengths: Vec<Length>,
}

/// A place in what is written.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Bytes of the template before it.
    own: usize,
    /// Texts before it.
    texts: usize,
}

#[derive(Debug, Clone, Copy)]
struct ValueHole {
    at: usize,
    tag: Place,
}

/// The length prefix of a document, an array or a string.
#[derive(Debug, Clone, Copy)]
struct Length {
    at: Place,
    own: usize,
    texts: usize,
    values: usize,
}

/// What goes into the holes of one copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filling<'f> {
    pub(crate) text: &'f str,
    /// A date, a long or a timestamp.
    pub(crate) number: [u8; 8],
    pub(crate) value: Value<'f>,
}

/// At the end of a string: there the text goes. No path has a NUL.
pub(crate) const TEXT_HOLE: &str = "\0";
/// As a date, a long or a timestamp: there the number goes.
pub(crate) const NUMBER_HOLE: i64 = i64::MIN;
/// In place of the value. Servers have given this type up.
pub(crate) const VALUE_HOLE: Value<'static> = Value { kind: Kind::Undefined, bytes: &[] };

impl Template {
    /// The template of a value that is written with holes in it; behind the one for the value there is none for a text.
    pub(crate) fn new(write: impl FnOnce(Slot<'_>)) -> Self {
        let around = super::document(|w| write(w.slot("")));
        let value = Document::trusted(&around).values().next().unwrap_or(VALUE_HOLE);
        let mut template = Self {
            kind: value.kind,
            bytes: Vec::new(),
            texts: Vec::new(),
            numbers: Vec::new(),
            value: None,
            lengths: Vec::new(),
        };
        let start = template.here();
        template.take(value, start);
        template
    }

    fn here(&self) -> Place {
        Place { own: self.bytes.len(), texts: self.texts.len() }
    }

    /// Appends a value whose tag is at `tag`. Recursion ends with the template, which no client writes.
    fn take(&mut self, value: Value<'_>, tag: Place) {
        let text = value.as_str().and_then(|text| text.strip_suffix(TEXT_HOLE));
        match (value.as_document().or_else(|| value.as_array()), text) {
            (Some(nested), _) => self.prefixed(0, |template| {
                for Element { key, value } in nested.elements() {
                    let tag = template.here();
                    template.bytes.push(value.kind as u8);
                    template.bytes.extend_from_slice(key);
                    template.bytes.push(0);
                    template.take(value, tag);
                }
                template.bytes.push(0);
            }),
            (None, Some(text)) => self.prefixed(4, |template| {
                template.bytes.extend_from_slice(text.as_bytes());
                template.texts.push(template.bytes.len());
                template.bytes.push(0);
            }),
            (None, None) if value == VALUE_HOLE => self.value = Some(ValueHole { at: self.bytes.len(), tag }),
            (None, None) => {
                if value.as_raw_i64() == Some(NUMBER_HOLE) {
                    self.numbers.push(self.here());
                }
                self.bytes.extend_from_slice(value.bytes);
            }
        }
    }

    /// A length prefix and what `write` puts behind it; `uncounted` bytes of both are not part of the length.
    fn prefixed(&mut self, uncounted: usize, write: impl FnOnce(&mut Self)) {
        let (at, values) = (self.here(), usize::from(self.value.is_some()));
        self.bytes.extend_from_slice(&[0; 4]);
        write(self);
        let length = Length {
            at,
            own: self.bytes.len() - at.own - uncounted,
            texts: self.texts.len() - at.texts,
            values: usize::from(self.value.is_some()) - values,
        };
        if length.texts + length.values > 0 {
            self.lengths.push(length);
        } else if let Some(prefix) = self.bytes.get_mut(at.own..at.own + 4) {
            prefix.copy_from_slice(&(length.own as u32).to_le_bytes());
        }
    }

    /// Writes the value with its holes filled.
    pub(crate) fn write(&self, slot: Slot<'_>, filling: Filling<'_>) {
        let (text, value) = (filling.text.as_bytes(), filling.value);
        let out = slot.begin(self.kind);
        let start = out.len();
        out.reserve(self.bytes.len() + self.texts.len() * text.len() + value.bytes.len());
        let (mut rest, mut copied) = (self.bytes.as_slice(), 0);
        let texts = self.texts.iter().map(|at| (*at, text));
        for (at, filling) in texts.chain(self.value.map(|hole| (hole.at, value.bytes))) {
            let (before, after) = rest.split_at_checked(at - copied).unwrap_or_default();
            out.extend_from_slice(before);
            out.extend_from_slice(filling);
            (rest, copied) = (after, at);
        }
        out.extend_from_slice(rest);
        let written = out.get_mut(start..).unwrap_or_default();
        for Length { at, own, texts, values } in &self.lengths {
            let length = own + texts * text.len() + values * value.bytes.len();
            put(written, at.among(text), (length as u32).to_le_bytes());
        }
        for at in &self.numbers {
            put(written, at.among(text), filling.number);
        }
        if let Some(hole) = &self.value {
            put(written, hole.tag.among(text), [value.kind as u8]);
        }
    }
}

impl Place {
    /// The place, with this text before it as often as there are texts.
    #[inline(always)]
    fn among(self, text: &[u8]) -> usize {
        self.own + self.texts * text.len()
    }
}

#[inline(always)]
fn put<const N: usize>(written: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = written.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = bytes;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::document::{OwnedValue, document};

    /// `{n: 1, a: [{t: "$x.TEXT"}, DATE, "$x.TEXT"], c: {d: "TEXT"}, l: LONG, v: {in: [{of: VALUE}]}, e: "end"}`
    fn write(slot: Slot<'_>, text: &str, number: i64, value: Value<'_>) {
        slot.nested(|w| {
            w.int32("n", 1);
            w.array("a", |a| {
                a.nested(|w| w.slot("t").prefixed("$x.", text));
                a.slot().date(number);
                a.slot().prefixed("$x.", text);
            });
            w.nested("c", |w| w.string("d", text));
            w.slot("l").int64(number);
            w.nested("v", |w| w.array("in", |a| a.nested(|w| w.value("of", value))));
            w.string("e", "end");
        });
    }

    proptest! {
        /// Whatever fills it: the same as if it had been written.
        #[test]
        fn a_filled_template_is_what_a_writer_writes(text in "[a-zä.]{0,9}", other in "\\PC{0,9}", number in any::<i64>()) {
            let template = Template::new(|slot| write(slot, TEXT_HOLE, NUMBER_HOLE, VALUE_HOLE));
            for value in [OwnedValue::integer(number), OwnedValue::null(), OwnedValue::string(&other)] {
                let filling = Filling { text: &text, number: number.to_le_bytes(), value: value.as_value() };
                let filled = document(|w| template.write(w.slot("x"), filling));
                let expected = document(|w| write(w.slot("x"), &text, number, value.as_value()));
                prop_assert_eq!(filled, expected);
            }
        }
    }
}
