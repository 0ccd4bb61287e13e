//! Text from clients and servers in log lines, errors and reports.

use std::io::{self, ErrorKind};

/// Returns `text` without line breaks, control characters and changes of direction, so that it cannot forge lines.
#[must_use]
pub fn one_line(text: &str) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if breaks(c) { ' ' } else { c }).collect()
}

/// Cuts `text` to `limit` bytes at a character boundary and appends "…".
pub fn shorten(text: &mut String, limit: usize) {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
        text.push('…');
        text.shrink_to_fit();
    }
}

/// Why a connection failed, without the system's numbers of errors: "connection refused".
#[must_use]
pub fn io_reason(error: &io::Error) -> String {
    let kind = error.kind();
    match kind {
        ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::TimedOut
            // An error that docward or a library made contains more.
            if error.raw_os_error().is_some() || kind == ErrorKind::TimedOut =>
        {
            kind.to_string()
        }
        _ => error.to_string(),
    }
}

/// A count and its noun: "1 command", "2 commands".
#[must_use]
pub fn plural(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
