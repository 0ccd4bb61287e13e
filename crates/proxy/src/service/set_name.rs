//! Whether a server is a member of the replica set that a connection string names (`replicaSet=`).
//!
//! Drivers use no other server (specification "Server Discovery And Monitoring"), and report only that they can select
//! none, so docward names the server and its set.

/// Describes a server whose replica set is not the `wanted` one; `None` if it is. `set`: the server's `setName`, empty for
/// a member that has no configuration yet, because it may join the set; `None` for a server outside replica sets.
#[must_use]
pub fn other_set(wanted: &str, address: &str, set: Option<&str>) -> Option<String> {
    let is = match set {
        Some(set) if set.is_empty() || set == wanted => return None,
        Some(set) => format!("is a member of the replica set '{set}'"),
        None => "is not a member of a replica set".to_owned(),
    };
    Some(format!("{address} {is}, but the connection string has replicaSet={wanted}; correct one of them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_another_set_is_named() {
        for (set, expected) in [
            (Some("rs"), ""),
            (Some(""), ""),
            (Some("Rs"), "a:1 is a member of the replica set 'Rs'"),
            (None, "a:1 is not a member of a replica set"),
        ] {
            let printed = other_set("rs", "a:1", set).unwrap_or_default();
            assert!(printed.starts_with(expected) && printed.is_empty() == expected.is_empty(), "{set:?}: {printed}");
        }
    }
}
