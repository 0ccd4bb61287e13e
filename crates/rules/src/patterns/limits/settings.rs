//! Reads the settings of `limits`.

use super::Limits;
use super::items::ItemLimit;
use crate::config::keys::{Constraint, DescribeSchema, Keys, ReadText, ReadValue, Setting, Size, ValueSchema};
use crate::config::{Code, Located, MapReader, Node, NodeValue, ReadContext};
use crate::patterns::field_path::{ChangingField, PATH};

const ITEMS: Setting<ItemLimits> =
    Setting::optional("items", ItemLimits, "Maps each array to the maximum number of its elements.");
const DOCUMENT: Setting<Size> =
    Setting::optional("document", Size, "The maximum size of a document.").examples(&["1MiB"]);
pub(super) const KEYS: Keys =
    Keys::new("Arrays and documents that stay small.", &[&ITEMS, &DOCUMENT]).constrained(&[Constraint::AtLeastOneKey]);

/// The server's own limit of a document.
const LARGEST_DOCUMENT: usize = 16 << 20;

/// A document with only an `_id`.
const SMALLEST_DOCUMENT: usize = 10;

/// An array of the largest document has fewer elements.
const MOST_ITEMS: std::ops::RangeInclusive<i64> = 1..=5_000_000;

impl Limits {
    pub(super) fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let (has_items, has_document) = (reader.has(&ITEMS), reader.has(&DOCUMENT));
        let (items, document) = (reader.get(&ITEMS), reader.get(&DOCUMENT));
        let span = reader.span();
        if !has_items && !has_document {
            reader.context().error(Code::MissingKey, span, "`items` or `document` is missing");
            return None;
        }
        if let Some(size) = document.as_ref().filter(|size| size.value > LARGEST_DOCUMENT) {
            let message = "`document` is more than 16MiB, the server's own limit";
            reader.context().error(Code::InvalidValue, size.span, message);
            return None;
        }
        if let Some(size) = document.as_ref().filter(|size| size.value < SMALLEST_DOCUMENT) {
            let message = format!("`document` is less than {SMALLEST_DOCUMENT}B: every document is larger");
            reader.context().error(Code::InvalidValue, size.span, message);
            return None;
        }
        if has_items && items.is_none() || has_document && document.is_none() {
            return None;
        }
        Some(Self { items: items.unwrap_or_default(), document: document.map(|size| size.value) })
    }
}

/// `{ ARRAY: MOST }`
#[derive(Clone, Copy, Debug)]
struct ItemLimits;

impl DescribeSchema for ItemLimits {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Pairs { names: &PATH, values: Box::new(ValueSchema::Whole(MOST_ITEMS)) }
    }
}

impl ReadValue for ItemLimits {
    type Value = Vec<ItemLimit>;

    fn read(&self, context: &mut ReadContext<'_>, _: &'static str, node: &Node) -> Option<Vec<ItemLimit>> {
        let NodeValue::Map(pairs) = &node.value else {
            context.error(Code::WrongType, node.span, "`items` must be a mapping from arrays to numbers of elements");
            return None;
        };
        if pairs.is_empty() {
            context.error(Code::InvalidValue, node.span, "`items` must name at least one array");
            return None;
        }
        let read = |(key, value): &(crate::config::MappingKey, Node)| {
            let array = ChangingField.read_text(context, "items", Located { value: key.text.clone(), span: key.span });
            let most = context.integer_in(&format!("items.{}", key.text), value, &MOST_ITEMS);
            Some(ItemLimit { array: array?, most: usize::try_from(most?.value).ok()? })
        };
        // All pairs are read before the function returns, so that every error is reported.
        let limits: Vec<_> = pairs.iter().map(read).collect();
        limits.into_iter().collect()
    }
}
