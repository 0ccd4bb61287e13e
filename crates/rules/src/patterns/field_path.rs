//! Reads field paths in the settings of patterns.

use crate::config::keys::{DescribeSchema, NamedSchema, ReadText, TextSchema, ValueSchema};
use crate::config::names::{NameKind, doubt};
use crate::config::{Code, Diagnostic, Located, ReadContext};
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

/// Reports an error if the text is not a field path or has a numeric part, and warns if it probably is not the
/// intended field.
impl ReadText for FieldPath {
    type Value = Located<Path>;

    fn read_text(&self, context: &mut ReadContext<'_>, _: &str, text: Located<String>) -> Option<Self::Value> {
        let doubt = doubt(&text.value, NameKind::Field);
        let path = match (Path::parse(&text.value), wrong_part(&text.value)) {
            (Some(path), None) => path,
            (_, wrong) => {
                let message = format!("`{}` is not a field path", text.value);
                let mut mistake = Diagnostic::error(Code::InvalidValue, text.span, message);
                mistake.help = doubt.map(|doubt| doubt.help).or(wrong);
                context.push(mistake);
                return None;
            }
        };
        if let Some((namespace, field)) = below_namespace(context, &text.value) {
            let message = format!("`{}` begins with the name of the collection `{namespace}`", text.value);
            let help = format!("paths begin in the document; write `{field}`");
            context.push(Diagnostic::warning(Code::DoubtfulName, text.span, message).help(help));
        }
        if let Some(doubt) = doubt {
            context.push(Diagnostic::warning(Code::DoubtfulName, text.span, doubt.message).help(doubt.help));
        }
        Some(Located { value: path, span: text.span })
    }
}

/// The path of a field that statements change: not in `_id`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChangingField;

impl DescribeSchema for ChangingField {
    fn schema(&self) -> ValueSchema {
        FieldPath.schema()
    }
}

impl ReadText for ChangingField {
    type Value = Located<Path>;

    fn read_text(&self, context: &mut ReadContext<'_>, key: &str, text: Located<String>) -> Option<Self::Value> {
        let path = FieldPath.read_text(context, key, text)?;
        if path.value.root() == "_id" {
            let message = format!("`{key}` must be another field: `_id` of a stored document never changes");
            context.error(Code::InvalidValue, path.span, message);
            return None;
        }
        Some(path)
    }
}

/// The namespace of the rule with which a path begins, and the rest of the path. The collection alone can be a field.
fn below_namespace<'t>(context: &ReadContext<'_>, text: &'t str) -> Option<(String, &'t str)> {
    context.namespaces().iter().find_map(|namespace| {
        let (name, _) = (namespace.value.to_string(), namespace.exact()?);
        let field = text.strip_prefix(&name)?.strip_prefix('.')?;
        Some((name, field))
    })
}

/// Returns the first field that is an earlier one, inside it or around it, and the earlier one.
pub(super) fn overlap(fields: &[Located<Path>]) -> Option<(&Located<Path>, &Located<Path>)> {
    fields.iter().enumerate().find_map(|(index, field)| {
        let mut earlier = fields.iter().take(index);
        Some((field, earlier.find(|other| other.value.overlaps(field.value.as_str().as_bytes()))?))
    })
}

/// What to write instead of the first part that no path of a rule has.
fn wrong_part(text: &str) -> Option<String> {
    text.split('.').find_map(|part| match part {
        "" => Some("write names of fields with one dot between them: `address.city`".to_owned()),
        _ if part.starts_with('$') => {
            Some(format!("no part of a path begins with `$`: `{part}` is not the name of a field"))
        }
        _ if part.parse::<u64>().is_ok() => {
            Some(format!("`{part}` would be a position in an array, and the paths of rules have no positions"))
        }
        _ => None,
    })
}
