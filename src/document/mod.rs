//! Raw BSON: documents are read and rewritten as bytes, without decoding what nobody asks for.
//!
//! [`Document::parse`] checks a whole document once (structure, lengths, depth); everything that takes a
//! [`Document`] afterwards can rely on it. [`Writer`] builds documents, [`Path`] reaches into them,
//! [`edit`] changes one field and copies the rest. No policy, no I/O. Next floor: [`crate::command`].

mod check;
mod cursor;
pub mod edit;
mod number;
mod owned;
mod path;
mod template;
mod value;
mod whole;
mod writer;

pub use check::{Checked, MAX_DEPTH, Malformed};
pub use cursor::{Document, DuplicateField, Element, Elements, peek};
pub use number::{compare_numbers, is_finite};
pub use owned::CowDocument;
pub use path::{Lookup, Path};
pub(crate) use template::{Filling, NUMBER_HOLE, TEXT_HOLE, Template, VALUE_HOLE};
pub use value::{Kind, OwnedValue, Value};
pub use writer::{ArrayWriter, Slot, Writer, document};
