//! Updates by pipeline: a document that has a field twice must fail them, because mongod would end.

use bson::{Document, RawDocumentBuf};
use mongodb::error::Error;

use crate::command::{StageOrigin, repeated_name_check};
use crate::document;

/// Returns the stages with the check before them.
///
/// # Errors
/// A stage is no valid BSON.
pub(super) fn checked(stages: Vec<Document>) -> Result<Vec<Document>, Error> {
    let raw: Vec<RawDocumentBuf> = stages.iter().map(RawDocumentBuf::try_from).collect::<Result<_, _>>()?;
    let parsed = raw.iter().filter_map(|stage| document::Document::parse(stage.as_bytes()).ok());
    let check = Document::from_reader(repeated_name_check(parsed, StageOrigin::Tool).as_document().as_bytes())?;
    Ok(std::iter::once(check).chain(stages).collect())
}
