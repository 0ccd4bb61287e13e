//! One file for each pattern: random settings, and a check of its promise on stored documents. None uses docward's
//! code.

mod bounds;
mod bucket;
mod copies;
mod deny;
mod frozen;
mod history;
mod limits;
mod queue;
mod replacement;
mod schema_version;
mod sequence;
mod throttle;
mod timestamps;
mod together;
mod tree;

use bson::{Bson, Document};

pub(super) use bounds::Bounds;
pub(super) use bucket::Bucket;
pub(super) use copies::Copies;
pub(super) use deny::{Defaults, Deny};
pub(super) use frozen::Frozen;
pub(super) use history::History;
pub(super) use limits::Limits;
pub(super) use queue::Queue;
pub(super) use replacement::{Policy, Replacement};
pub(super) use schema_version::SchemaVersion;
pub(super) use sequence::Sequence;
pub(super) use throttle::Throttle;
pub(super) use timestamps::Timestamps;
pub(super) use together::Together;
pub(super) use tree::Tree;

use super::case::first;
use super::values::take;

/// Removes a path, and the enclosing document if it becomes empty.
pub(super) fn clear(document: &mut Document, path: &str) {
    take(document, path);
    let outer = first(path);
    if outer != path && document.get(outer).and_then(Bson::as_document).is_some_and(Document::is_empty) {
        document.remove(outer);
    }
}
