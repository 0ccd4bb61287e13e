//! The error for a message that cannot be carried out.

use crate::command::{CommandError, code};
use crate::document::Malformed;
use crate::patterns::MAX_REASON_LENGTH;
use crate::text::shorten;

/// The error for a message that cannot be carried out.
pub(super) struct MessageError {
    pub(super) code: i32,
    pub(super) text: String,
}

impl From<CommandError> for MessageError {
    fn from(error: CommandError) -> Self {
        let mut text = error.to_string();
        shorten(&mut text, MAX_REASON_LENGTH);
        let code = match error {
            // The server's own code (seen on 6.0).
            CommandError::NotBson { fault: Malformed::TooDeep, .. } => code::OVERFLOW,
            _ => code::FAILED_TO_PARSE,
        };
        Self { code, text }
    }
}
