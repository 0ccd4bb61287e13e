//! What errors of the driver mean.

use mongodb::error::{Error, ErrorKind, RETRYABLE_WRITE_ERROR, WriteFailure};

/// Whether the user lacks the privilege, or is not logged in to a server that requires it.
pub(super) fn is_unauthorized(error: &Error) -> bool {
    const UNAUTHORIZED: i32 = 13;
    matches!(&*error.kind, ErrorKind::Command(command) if command.code == UNAUTHORIZED)
}

/// Returns the privilege that the user lacks, such as `update on shop.orders`, as far as the server's message names the
/// command.
pub(super) fn denied(error: &Error) -> Option<String> {
    match &*error.kind {
        ErrorKind::Command(command) => denied_privilege(&command.message),
        _ => None,
    }
}

/// Parses `not authorized on DATABASE to execute command { NAME: "COLLECTION", …`.
fn denied_privilege(message: &str) -> Option<String> {
    let (database, command) = message.strip_prefix("not authorized on ")?.split_once(" to execute command { ")?;
    let (name, rest) = command.split_once(": ")?;
    let action = match name {
        "aggregate" | "count" | "distinct" | "getMore" => "find",
        "delete" => "remove",
        "findAndModify" => "find, insert and update",
        "update" => "update or insert",
        "create" => "createCollection",
        other => other,
    };
    let collection = rest.strip_prefix('"').and_then(|rest| rest.split_once('"')).map(|(collection, _)| collection);
    Some(match collection {
        Some(collection) => format!("{action} on {database}.{collection}"),
        None => format!("{action} on {database}"),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_message_shows_the_privilege() {
        let on = |command: &str| format!("not authorized on shop to execute command {{ {command}, $db: \"shop\" }}");
        for (message, expected) in [
            (on("aggregate: \"orders\", pipeline: []"), Some("find on shop.orders")),
            (on("update: \"orders\", ordered: false"), Some("update or insert on shop.orders")),
            (on("listCollections: 1"), Some("listCollections on shop")),
            ("command find requires authentication".to_owned(), None),
        ] {
            assert_eq!(denied_privilege(&message).as_deref(), expected, "{message}");
        }
    }
}
