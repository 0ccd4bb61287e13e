//! Reads field paths in the settings of patterns.

use crate::config::keys::{DescribeSchema, NamedSchema, ReadValue, TEXT, TextSchema, ValueSchema};
use crate::config::{Code, Located, Node, ReadContext};
use crate::document::Path;

/// A field path: parts separated by dots, none of which is a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldPath;

pub(super) const PATH: NamedSchema = NamedSchema {
    name: "path",
    meaning: "A field path: parts separated by dots. A part must not be empty, start with $, or be a number.",
    schema: || {
        let pattern = r"^([^$.0-9][^.]*|[0-9]+[^.0-9][^.]*)(\.([^$.0-9][^.]*|[0-9]+[^.0-9][^.]*))*$";
        ValueSchema::Text(TextSchema::matching(pattern))
    },
};

impl DescribeSchema for FieldPath {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Shared(&PATH)
    }
}

impl ReadValue for FieldPath {
    type Value = Located<Path>;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<Self::Value> {
        let text = TEXT.read(context, key, node)?;
        located_path(context, text)
    }
}

/// Parses a field path. Reports an error if it is not one or has a numeric part.
pub(super) fn located_path(context: &mut ReadContext<'_>, text: Located<String>) -> Option<Located<Path>> {
    match Path::parse(&text.value) {
        Some(path) if path.as_str().split('.').all(|part| part.parse::<u64>().is_err()) => {
            Some(Located { value: path, span: text.span })
        }
        _ => {
            let message = format!("`{}` is not a field path", text.value);
            context.error(Code::InvalidValue, text.span, message);
            None
        }
    }
}
