//! Raw BSON: reads and rewrites documents as bytes, and decodes only the fields that are needed.
//!
//! [`Document::parse`] checks a whole document once (structure, lengths, depth). All functions that take a
//! [`Document`] rely on that check. [`Writer`] builds documents, [`Path`] finds nested fields, [`edit`] changes one
//! field and copies the rest. This layer has no rules and no I/O. The next layer is [`crate::command`].
//!
//! `check`, `cursor` and `value` import each other: a document consists of values, and a value can be a document.

mod check;
mod cursor;
pub mod edit;
mod excerpt;
mod number;
mod owned;
mod path;
mod value;
mod whole;
mod writer;

pub use check::{Checked, MAX_DEPTH, Malformed};
pub use cursor::{AmbiguousName, Document, Element, Elements, peek};
pub use excerpt::excerpt;
pub use number::{add_numbers, as_double, compare_numbers, compare_sum, is_finite, may_overflow};
pub use owned::CowDocument;
pub use path::{Path, PathLookup, is_at_or_below, look_below, parents, paths_overlap, rest_below, root_of};
pub use value::{Kind, OwnedValue, Value};
pub use writer::{ArrayWriter, ValueSlot, Writer, document};
