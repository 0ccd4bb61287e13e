//! The limit of open files, and the limits of connections that depend on it.

use super::config_file::ConfigFile;
use crate::proxy::LimitSettings;

/// The limits of `serve`. They need open files, of which this raises the soft limit.
pub(super) fn limits(settings: &ConfigFile) -> LimitSettings {
    let limits = settings.limits.clone().settings();
    let files = raise_file_limit(limits.connections);
    LimitSettings { unauthenticated: unauthenticated(limits.connections, files), ..limits }
}

/// Raises the soft limit of open files to the hard limit and returns it. Each client takes two descriptors.
pub(super) fn raise_file_limit(connections: Option<usize>) -> Option<u64> {
    const OTHER_FILES: u64 = 100;
    let needed = connections.map(|count| 2 * count as u64 + OTHER_FILES);
    let limit = rlimit::increase_nofile_limit(rlimit::INFINITY);
    match &limit {
        Ok(limit) if needed.is_some_and(|needed| *limit < needed) => tracing::warn!(
            limit,
            needed,
            "the limit of open files is too low for limits.connections; raise it (ulimit -n, LimitNOFILE=)"
        ),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(
                "cannot raise the limit of open files: {error}; raise it yourself (ulimit -n, LimitNOFILE=)"
            );
        }
    }
    limit.ok()
}

/// The most unauthenticated connections where authentication is required: half of all allowed connections.
fn unauthenticated(connections: Option<usize>, files: Option<u64>) -> Option<usize> {
    let by_files = || files.and_then(|files| usize::try_from(files / 2).ok());
    connections.or_else(by_files).map(|all| all.div_ceil(2))
}
