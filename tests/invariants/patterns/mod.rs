//! One file for each pattern: random settings, and its promise told from stored documents. None uses docward's code.

mod bounds;
mod together;

pub(super) use bounds::Bounds;
pub(super) use together::Together;
