//! The registers: fields with a timestamp of their own, and the paths that reach them.

use super::settings::{TimeSource, TimestampScope, TimestampedFields, Timestamps};
use crate::document::Path;
use crate::effect::{PathOverlap, touch};
use crate::patterns::{Context, Rejection};

/// How a touched path relates to the protected ones.
pub(super) enum TouchedKind {
    /// The path is a register.
    Protected,
    /// The path touches no register.
    Free,
    /// The path is the field with the timestamps, or inside it.
    Store,
    /// The path is a part of a register, or a field around one.
    Across(String),
}

/// Returns whether another rule decides by the field, or by one around it: it has no timestamp.
pub(super) fn decides(context: &Context<'_>, path: &[u8]) -> bool {
    context.deciding.iter().any(|field| field.covers(path))
}

impl Timestamps {
    /// Returns whether the field, or a part of it, has a timestamp separate from those of other fields.
    pub(super) fn has_own_timestamp(&self, field: &Path) -> bool {
        self.per == TimestampScope::Field && !matches!(self.reach(field.as_str().as_bytes()), TouchedKind::Free)
    }

    /// Returns the listed registers, and the source field if no listed one covers it: it must converge too.
    pub(super) fn registers(&self) -> impl Iterator<Item = &Path> {
        let listed = match &self.fields {
            TimestampedFields::All => &[][..],
            TimestampedFields::Listed(paths) => paths,
        };
        let source = match &self.source {
            TimeSource::Field(path) if !listed.iter().any(|l| l.overlaps(path.as_str().as_bytes())) => Some(path),
            _ => None,
        };
        listed.iter().chain(source)
    }

    pub(super) fn reach(&self, path: &[u8]) -> TouchedKind {
        let dot = path.iter().position(|byte| *byte == b'.');
        let root = path.get(..dot.unwrap_or(path.len())).unwrap_or_default();
        if root == self.store().as_bytes() {
            return TouchedKind::Store;
        }
        if root == b"_id" {
            return TouchedKind::Free;
        }
        match &self.fields {
            TimestampedFields::All if self.per == TimestampScope::Field && dot.is_some() => {
                TouchedKind::Across(String::from_utf8_lossy(root).into_owned())
            }
            TimestampedFields::All => TouchedKind::Protected,
            TimestampedFields::Listed(_) => {
                let reached = self.registers().map(|register| (register, touch(register, path)));
                match reached.into_iter().find(|(_, touch)| *touch != PathOverlap::Apart) {
                    None => TouchedKind::Free,
                    Some((_, PathOverlap::Exact)) => TouchedKind::Protected,
                    // With one timestamp for the whole document, parts of a field are protected like the field.
                    Some(_) if self.per == TimestampScope::Document => TouchedKind::Protected,
                    Some((register, _)) => TouchedKind::Across(register.as_str().to_owned()),
                }
            }
        }
    }

    /// Rejects a write of a register around a field by which another rule decides: a late write would not change it.
    pub(super) fn check_deciding(&self, context: &Context<'_>, path: &[u8]) -> Result<(), Rejection> {
        let inside = context.deciding.iter().find(|field| field.is_below(path));
        let Some(field) = inside.filter(|_| self.per == TimestampScope::Field) else { return Ok(()) };
        let path = String::from_utf8_lossy(path);
        Err(Rejection::new(
            format!("it writes '{path}' as a whole, and another rule compares '{field}', which has no timestamp"),
            format!("Write '{field}' with its own path."),
        ))
    }

    pub(super) fn across(&self, path: &[u8], register: &str) -> Rejection {
        let path = String::from_utf8_lossy(path);
        let hint = match self.fields {
            TimestampedFields::All => format!(
                "Write '{register}' as a whole. (For the DBA: list '{path}' under `fields` to give it \
                 its own timestamp.)"
            ),
            TimestampedFields::Listed(_) => format!("Write '{register}' as a whole, with its own path."),
        };
        Rejection::new(format!("'{path}' overlaps the protected field '{register}', which has one timestamp"), hint)
    }
}
