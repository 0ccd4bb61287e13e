//! What errors of the driver mean.

use mongodb::error::{Error, ErrorKind, RETRYABLE_WRITE_ERROR, WriteFailure};

/// Whether the user lacks the privilege, or is not logged in to a server that requires it.
pub(super) fn is_unauthorized(error: &Error) -> bool {
    const UNAUTHORIZED: i32 = 13;
    matches!(&*error.kind, ErrorKind::Command(command) if command.code == UNAUTHORIZED)
}

/// Whether the cause is the network or a change of the server's role, so that a retry can help.
pub(super) fn is_passing(error: &Error) -> bool {
    let passing = match &*error.kind {
        ErrorKind::Io(_)
        | ErrorKind::ServerSelection { .. }
        | ErrorKind::ConnectionPoolCleared { .. }
        | ErrorKind::DnsResolve { .. }
        | ErrorKind::Write(WriteFailure::WriteConcernError(_)) => true,
        ErrorKind::Command(command) => is_passing_code(command.code),
        _ => false,
    };
    passing || error.contains_label(RETRYABLE_WRITE_ERROR)
}

/// The same for a server's error code.
pub(super) fn is_passing_code(code: i32) -> bool {
    PASSING_CODES.contains(&code)
}

/// The retryable errors of the specification "Retryable Writes": the server changes its role, shuts down or cannot be
/// reached. MaxTimeMSExpired (50) and WriteConflict (112) are added.
const PASSING_CODES: [i32; 15] = [6, 7, 50, 89, 91, 112, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];
