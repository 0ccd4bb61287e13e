//! What a pattern needs of the server. `crate::service::requirements` finds out whether the server has it.

use std::fmt;

/// A capability of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Requirement {
    /// Updates with an aggregation pipeline that begins with docward's check for repeated names, which uses `$setField`.
    PipelineUpdates,
    /// An operator of aggregation expressions, with its `$`.
    Operator(&'static str),
    /// The variable `$$NOW`, the server's time.
    ServerTime,
    /// The driver of docward's own connection: MongoDB 4.4 or later.
    OwnConnection,
    Transactions,
    ChangeStreams,
    /// The documents before changes, in change streams.
    PreImages,
}

/// The operators and the first version of MongoDB that has each
/// (<https://www.mongodb.com/docs/manual/reference/operator/aggregation/>).
const OPERATORS: [(&str, ServerRelease); 4] = [
    ("$toLong", ServerRelease { name: "4.0", wire_version: 7 }),
    ("$isNumber", ServerRelease { name: "4.4", wire_version: 9 }),
    ("$bsonSize", ServerRelease { name: "4.4", wire_version: 9 }),
    ("$setField", ServerRelease { name: "5.0", wire_version: 13 }),
];

/// A release of MongoDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerRelease {
    pub name: &'static str,
    /// `maxWireVersion` in its hello replies (`src/mongo/db/wire_version.h` of the server).
    pub wire_version: i64,
}

impl Requirement {
    /// Returns the first release that has it.
    #[must_use]
    pub fn since(self) -> ServerRelease {
        match self {
            Self::ServerTime => ServerRelease { name: "4.2", wire_version: 8 },
            Self::PipelineUpdates => ServerRelease { name: "5.0", wire_version: 13 },
            Self::Operator(name) => {
                let known = OPERATORS.iter().find(|(operator, _)| *operator == name);
                known.map_or(ServerRelease { name: "3.6", wire_version: 6 }, |(_, release)| *release)
            }
            Self::OwnConnection => ServerRelease { name: "4.4", wire_version: 9 },
            Self::Transactions => ServerRelease { name: "4.0", wire_version: 7 },
            Self::ChangeStreams => ServerRelease { name: "3.6", wire_version: 6 },
            Self::PreImages => ServerRelease { name: "6.0", wire_version: 17 },
        }
    }

    /// Returns whether a standalone server lacks it.
    #[must_use]
    pub fn needs_a_set(self) -> bool {
        matches!(self, Self::Transactions | Self::ChangeStreams | Self::PreImages)
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PipelineUpdates => f.write_str("updates with an aggregation pipeline and $setField")?,
            Self::Operator(name) => write!(f, "the operator {name}")?,
            Self::ServerTime => f.write_str("the variable $$NOW")?,
            Self::OwnConnection => f.write_str("docward's own connection")?,
            Self::Transactions => f.write_str("transactions")?,
            Self::ChangeStreams => f.write_str("change streams")?,
            Self::PreImages => f.write_str("change streams with pre-images")?,
        }
        write!(f, " (MongoDB {} or later)", self.since().name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_has_a_release() {
        for (name, release) in OPERATORS {
            assert_eq!(Requirement::Operator(name).since(), release);
        }
    }
}
