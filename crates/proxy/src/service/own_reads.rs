//! What docward's own reads state, so that they do not depend on defaults of the deployment (`setDefaultRWConcern`,
//! `defaultMaxTimeMS`). Reads through the driver's own methods get the same from the client ([`super::mongo`]).

use bson::doc;

use crate::document::Writer;

/// Also what may be rolled back: the current state.
pub(super) const LOCAL: &str = "local";
/// Only what stays.
pub(super) const MAJORITY: &str = "majority";

/// Returns the command of a read of the current state, without a time limit.
pub(super) fn of_current(mut command: bson::Document) -> bson::Document {
    command.extend(doc! {"readConcern": {"level": LOCAL}, "maxTimeMS": 0});
    command
}

/// Writes the read concern, and that there is no time limit.
pub(super) fn write(w: &mut Writer<'_>, level: &str) {
    w.nested("readConcern", |w| w.string("level", level));
    w.int32("maxTimeMS", 0);
}
