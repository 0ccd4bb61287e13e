//! Reads the settings of `copies` strictly.
//!
//! The rule's namespace holds the originals. Each entry names a collection whose documents contain copies.
//! `contradictions.rs` checks for conflicts between rules of this pattern.

use std::fmt;

use crate::config::keys::{
    Declaration, DeclaredScalar, DescribeSchema, Keys, Keywords, ReadText, ReadValue, Setting, ValueSchema,
};
use crate::config::{Code, Diagnostic, Located, Node, NodeValue, ReadContext, Span};
use crate::document::Path;
use crate::patterns::collection::{Collection, OneCollection};
use crate::patterns::field_path::{FieldPath, PATH};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Copies {
    pub originals: Collection,
    /// At least one.
    pub entries: Vec<CopiesEntry>,
}

/// Documents that contain copies: those of `into` whose `key` equals an original's `_id`.
#[derive(Debug, Clone)]
pub struct CopiesEntry {
    pub into: Collection,
    pub key: Path,
    /// At least one; no copied field overlaps another or the key.
    pub fields: Vec<CopiedField>,
    pub on_delete: OnOriginalDelete,
    /// The innermost field around the key and all copied fields, if there is one. It, or a field around it, may be
    /// an array of references.
    pub holder: Option<Path>,
    /// The key as it is named inside the holder.
    pub local_key: Path,
}

/// A field of the original and where its copy is.
#[derive(Debug, Clone)]
pub struct CopiedField {
    pub original: Path,
    pub copied: Path,
    /// The copied field as it is named inside the entry's holder.
    pub local: Path,
    pub(super) span: Span,
}

/// What happens to copies when their original is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnOriginalDelete {
    /// They stay as they are.
    Keep,
    /// The reference and its copied fields are removed.
    Unset,
    /// The delete is rejected as long as there are references.
    Reject,
}

/// Returns the same text for equal settings: stored progress of the copies is found by it.
impl fmt::Display for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.originals)?;
        for entry in &self.entries {
            write!(f, " -> {} by {}", entry.into, entry.key)?;
            for field in &entry.fields {
                write!(f, ", {} as {}", field.original, field.copied)?;
            }
            match entry.on_delete {
                OnOriginalDelete::Keep => {}
                OnOriginalDelete::Unset => f.write_str(", unset")?,
                OnOriginalDelete::Reject => f.write_str(", held")?,
            }
        }
        Ok(())
    }
}

const INTO: Setting<OneCollection> =
    Setting::required("into", OneCollection, "The collection whose documents contain copies: one collection.");
const KEY: Setting<FieldPath> = Setting::required(
    "key",
    FieldPath,
    "The field of the copy's document that holds the original's _id. A field around it and the copied fields may be an \
     array of references.",
);
const FIELDS: Setting<CopiedFields> =
    Setting::required("fields", CopiedFields, "Maps each field of the original to the field with its copy.");
const ON_DELETE: Setting<Keywords<OnOriginalDelete>> = Setting::with_default(
    "on_delete",
    Keywords(&[
        ("keep", OnOriginalDelete::Keep, ""),
        ("unset", OnOriginalDelete::Unset, ""),
        ("reject", OnOriginalDelete::Reject, ""),
    ]),
    DeclaredScalar::Text("keep"),
    "What happens to copies when their original is deleted: they stay; the reference and its copied fields are removed; \
     or the delete is rejected as long as there are references.",
);
const ENTRY: Keys = Keys::new("Collections whose documents contain copies.", &[&INTO, &KEY, &FIELDS, &ON_DELETE]);

pub(super) fn declaration() -> Declaration {
    Declaration {
        meaning: "Denormalized fields that docward updates. The rule's namespace is the one collection with the originals.",
        schema: ValueSchema::List { items: Box::new(ValueSchema::Mapping(&ENTRY)), at_least: 1, distinct: false },
        example: "[{ into: shop.orders, key: customer_id, fields: { name: customer_name } }]",
    }
}

impl Copies {
    pub(super) fn read_list(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        let originals = Collection::only(context, "copies", "the originals");
        let listed = match &settings.value {
            NodeValue::List(listed) if !listed.is_empty() => listed,
            _ => {
                let mistake = Diagnostic::error(
                    Code::WrongType,
                    settings.span,
                    "`copies` must be a list of collections with copies",
                );
                context.push(mistake.help("write `- { into: DB.COLLECTION, key: FIELD, fields: { FIELD: COPY } }`"));
                return None;
            }
        };
        let entries: Vec<_> = listed.iter().map(|entry| read_entry(entry, context)).collect();
        let copies = Self { originals: originals?, entries: entries.into_iter().collect::<Option<_>>()? };
        copies.check_apart(context).then_some(copies)
    }

    /// Returns whether no two copied fields overlap.
    fn check_apart(&self, context: &mut ReadContext<'_>) -> bool {
        let all = || self.entries.iter().flat_map(|entry| entry.fields.iter().map(move |field| (entry, field)));
        for (at, (entry, field)) in all().enumerate() {
            let mut earlier = all().take(at).filter(|(other, _)| other.into == entry.into);
            let overlapping = earlier.find(|(_, other)| other.copied.overlaps(field.copied.as_str().as_bytes()));
            if let Some((_, other)) = overlapping {
                let message = format!("the copied fields `{}` and `{}` overlap", other.copied, field.copied);
                let mistake = Diagnostic::error(Code::ConflictingSettings, field.span, message);
                context.push(mistake.label(other.span, "the other one"));
                return false;
            }
        }
        true
    }
}

fn read_entry(node: &Node, context: &mut ReadContext<'_>) -> Option<CopiesEntry> {
    let mut reader = context.map(node)?.declared(&ENTRY);
    let (into, key, fields) = (reader.get(&INTO), reader.get(&KEY), reader.get(&FIELDS));
    let on_delete = reader.get_or_default(&ON_DELETE);
    reader.finish();
    let (into, key, fields) = (into?, key?, fields?);
    if key.root() == "_id" {
        let message = "the key cannot be `_id`: it must be a field that holds the original's `_id`";
        context.error(Code::InvalidValue, key.span, message);
        return None;
    }
    if let Some(field) = fields.iter().find(|field| field.copied.overlaps(key.as_str().as_bytes())) {
        let message = format!("the copied field `{}` overlaps the key `{}`", field.copied, key.value);
        let mistake = Diagnostic::error(Code::ConflictingSettings, field.span, message);
        context.push(mistake.label(key.span, "the key"));
        return None;
    }
    let on_delete = on_delete?.value;
    let holder = holder(&key.value, &fields);
    let local = |path: &Path| match &holder {
        Some(holder) => path.as_str().get(holder.as_str().len() + 1..).and_then(Path::parse),
        None => Some(path.clone()),
    };
    let local_key = local(&key.value)?;
    let fields = fields.into_iter().map(|field| Some(CopiedField { local: local(&field.copied)?, ..field }));
    Some(CopiesEntry { into, local_key, fields: fields.collect::<Option<_>>()?, on_delete, key: key.value, holder })
}

/// Returns the innermost field around all of them. No field equals or contains another.
fn holder(key: &Path, fields: &[CopiedField]) -> Option<Path> {
    let mut parts: Vec<&str> = key.parts().collect();
    for field in fields {
        let common = parts.iter().zip(field.copied.parts()).take_while(|(one, other)| **one == *other).count();
        parts.truncate(common);
    }
    Path::parse(&parts.join("."))
}

/// `{ ORIGINAL: COPY }`
#[derive(Clone, Copy, Debug)]
struct CopiedFields;

impl DescribeSchema for CopiedFields {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Pairs { names: &PATH, values: Box::new(ValueSchema::Shared(&PATH)) }
    }
}

impl ReadValue for CopiedFields {
    type Value = Vec<CopiedField>;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<Vec<CopiedField>> {
        let NodeValue::Map(pairs) = &node.value else {
            let message = "`fields` must be a mapping from fields of the original to their copies";
            context.error(Code::WrongType, node.span, message);
            return None;
        };
        if pairs.is_empty() {
            context.error(Code::InvalidValue, node.span, "`fields` must name at least one field");
            return None;
        }
        let read = |(original, copied): &(crate::config::MappingKey, Node)| {
            let name = Located { value: original.text.clone(), span: original.span };
            let (original, copied) = (FieldPath.read_text(context, key, name), FieldPath.read(context, key, copied));
            let (original, copied) = (original?, copied?);
            for field in [&original, &copied] {
                if field.root() == "_id" {
                    context.error(Code::InvalidValue, field.span, "`_id` never changes; its copy is the key");
                    return None;
                }
            }
            let (original, span) = (original.value, copied.span);
            Some(CopiedField { original, local: copied.value.clone(), copied: copied.value, span })
        };
        // All pairs are read before the function returns, so that every error is reported.
        let fields: Vec<_> = pairs.iter().map(read).collect();
        fields.into_iter().collect()
    }
}
