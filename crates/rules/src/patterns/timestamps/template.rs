//! A BSON value that is written once and then copied, each time with another text, number and value in its holes.
//! Copying is cheaper than writing each nested document with a [`Writer`](crate::document::Writer).
//!
//! All offsets depend only on the length of the text, so the layout is computed once for each text length.

use std::sync::OnceLock;

use crate::document::{CowDocument, Element, Kind, Value, ValueSlot};

/// Layouts are cached for texts shorter than this. Longer field names are rare, so their layout is computed each
/// time.
const SHORT: usize = 64;

/// A BSON value with holes.
#[derive(Debug, Clone)]
pub(super) struct Template {
    /// The written value, as the only field of a document.
    model: CowDocument<'static>,
    /// The layouts by text length, computed on first use.
    layouts: Box<[OnceLock<Box<TemplateLayout>>]>,
}

/// The layout for texts of one length. All offsets are in bytes from its start.
#[derive(Debug, Clone)]
struct TemplateLayout {
    kind: Kind,
    /// The bytes of the value, with space for texts and numbers but not for the inserted value.
    bytes: Vec<u8>,
    texts: Vec<usize>,
    numbers: Vec<usize>,
    /// It comes after all texts and numbers.
    value: Option<ValueHole>,
    /// The offsets of the length prefixes around the inserted value, and their values without it.
    around: Vec<(usize, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct ValueHole {
    at: usize,
    tag: usize,
}

/// The content of the holes of one copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filling<'f> {
    pub(super) text: &'f str,
    /// A date, a long or a timestamp.
    pub(super) number: [u8; 8],
    pub(super) value: Value<'f>,
}

/// Marks the text hole at the end of a string. Paths cannot contain NUL.
pub(super) const TEXT_HOLE: &str = "\0";
/// Marks the number hole, as a date, a long or a timestamp.
pub(super) const NUMBER_HOLE: i64 = i64::MIN;
/// Marks the value hole. The type is deprecated, so no value of a rule has it.
pub(super) const VALUE_HOLE: Value<'static> = Value { kind: Kind::Undefined, bytes: &[] };

impl Template {
    /// Creates a template from a value with holes. No hole may follow the value hole.
    pub(super) fn new(write: impl FnOnce(ValueSlot<'_>)) -> Self {
        let model = CowDocument::build(|w| write(w.slot("")));
        Self { model, layouts: std::iter::repeat_with(OnceLock::new).take(SHORT).collect() }
    }

    /// Writes the value with its holes filled.
    pub(super) fn write(&self, slot: ValueSlot<'_>, filling: Filling<'_>) {
        let length = filling.text.len();
        match self.layouts.get(length) {
            Some(layout) => layout.get_or_init(|| Box::new(self.lay_out(length))).write(slot, filling),
            None => self.lay_out(length).write(slot, filling),
        }
    }

    #[cold]
    fn lay_out(&self, text_length: usize) -> TemplateLayout {
        let model = self.model.as_document().values().next().unwrap_or(VALUE_HOLE);
        let mut layout = TemplateLayout {
            kind: model.kind,
            bytes: Vec::new(),
            texts: Vec::new(),
            numbers: Vec::new(),
            value: None,
            around: Vec::new(),
        };
        layout.take(model, 0, text_length);
        layout
    }
}

impl TemplateLayout {
    /// Appends a value whose tag is at `tag`. The template bounds the recursion; clients cannot write one.
    fn take(&mut self, value: Value<'_>, tag: usize, text_length: usize) {
        let text = value.as_str().and_then(|text| text.strip_suffix(TEXT_HOLE));
        match (value.as_document_or_array(), text) {
            (Some(nested), _) => self.prefixed(0, |layout| {
                for Element { key, value } in nested.elements() {
                    let tag = layout.bytes.len();
                    layout.bytes.push(value.kind as u8);
                    layout.bytes.extend_from_slice(key);
                    layout.bytes.push(0);
                    layout.take(value, tag, text_length);
                }
                layout.bytes.push(0);
            }),
            (None, Some(text)) => self.prefixed(4, |layout| {
                layout.bytes.extend_from_slice(text.as_bytes());
                layout.texts.push(layout.bytes.len());
                layout.bytes.resize(layout.bytes.len() + text_length + 1, 0);
            }),
            (None, None) if value == VALUE_HOLE => self.value = Some(ValueHole { at: self.bytes.len(), tag }),
            (None, None) => {
                if value.as_raw_i64() == Some(NUMBER_HOLE) {
                    self.numbers.push(self.bytes.len());
                }
                self.bytes.extend_from_slice(value.bytes);
            }
        }
    }

    /// Appends a length prefix and the output of `write`. The length does not count `uncounted` bytes of the two.
    fn prefixed(&mut self, uncounted: usize, write: impl FnOnce(&mut Self)) {
        let (at, open) = (self.bytes.len(), self.value.is_none());
        self.bytes.extend_from_slice(&[0; 4]);
        write(self);
        let length = (self.bytes.len() - at - uncounted) as u32;
        put(&mut self.bytes, at, &length.to_le_bytes());
        if open && self.value.is_some() {
            self.around.push((at, length));
        }
    }

    /// Writes the value with its holes filled. The text must have the length of the layout.
    fn write(&self, slot: ValueSlot<'_>, filling: Filling<'_>) {
        let Filling { text, number, value } = filling;
        let out = slot.begin(self.kind);
        let start = out.len();
        let end = self.value.map_or(self.bytes.len(), |hole| hole.at);
        let (before, after) = self.bytes.split_at_checked(end).unwrap_or_default();
        out.extend_from_slice(before);
        let written = out.get_mut(start..).unwrap_or_default();
        self.texts.iter().for_each(|at| put(written, *at, text.as_bytes()));
        self.numbers.iter().for_each(|at| put(written, *at, &number));
        let Some(hole) = self.value else { return };
        put(written, hole.tag, &[value.kind as u8]);
        for (at, length) in &self.around {
            put(written, *at, &(length + value.bytes.len() as u32).to_le_bytes());
        }
        out.extend_from_slice(value.bytes);
        out.extend_from_slice(after);
    }
}

#[inline(always)]
fn put(written: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(target) = written.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
        target.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::document::{OwnedValue, document};

    /// `{n: 1, a: [{t: "$x.TEXT"}, DATE, "$x.TEXT"], c: {d: "TEXT"}, l: LONG, v: {in: [{of: VALUE}]}, e: "end"}`
    fn write(slot: ValueSlot<'_>, text: &str, number: i64, value: Value<'_>) {
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
        /// A filled template equals directly written BSON, with a new layout and with a cached one.
        #[test]
        fn a_filled_template_equals_written_bson(text in "[a-zä.]{0,9}|[a-z]{60,70}", other in "\\PC{0,9}", number in any::<i64>()) {
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
