//! `reads`: collections that the query listener may read from secondaries.
//!
//! A rule of this pattern evaluates nothing on any listener. It names collections for the query listener, and how far
//! the secondary may be behind the primary. `crate::engine::queries` decides which commands are allowed there.

use std::time::Duration;

use super::{Applicability, Pattern, Properties};
use crate::command::{Namespace, StatementKind};
use crate::config::keys::{self, Declaration, DeclaredScalar, Keys, Keywords, Setting};
use crate::config::{Code, MapReader, Node, ReadContext};

/// The minimum. docward cannot measure less: a primary without writes advances its last write only every ten seconds,
/// and members are asked for theirs every two seconds.
const SHORTEST_STALENESS: Duration = Duration::from_secs(15);

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Reads {
    max_staleness: Duration,
}

const PREFER: Setting<Keywords<()>> = Setting::with_default(
    "prefer",
    Keywords(&[("secondary", (), "A secondary that is recent enough, or else the primary.")]),
    DeclaredScalar::Text("secondary"),
    "The server that replies.",
);
/// The default is the shortest that MongoDB's drivers allow.
const MAX_STALENESS: Setting<keys::Duration> = Setting::with_default(
    "max_staleness",
    keys::Duration,
    DeclaredScalar::Text("90s"),
    "How far the secondary may be behind the primary; at least 15s.",
);
const KEYS: Keys = Keys::new(
    "Collections that the query listener may read from secondaries; it may read no others.",
    &[&PREFER, &MAX_STALENESS],
);

impl Pattern for Reads {
    fn declaration() -> Declaration {
        Declaration::mapping(&KEYS)
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &KEYS, Self::read_keys)
    }

    fn properties(&self) -> Properties {
        Properties {
            exclusive: true,
            only_names: true,
            max_staleness: Some(self.max_staleness),
            ..Properties::default()
        }
    }

    fn applicability(&self, _: StatementKind, _: Namespace<'_>) -> Applicability {
        Applicability::None
    }
}

impl Reads {
    fn read_keys(reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        reader.get(&PREFER);
        let written = reader.get_or_default(&MAX_STALENESS)?;
        if written.value < SHORTEST_STALENESS {
            let message = format!("`max_staleness` must be at least {}s", SHORTEST_STALENESS.as_secs());
            reader.context().error(Code::InvalidValue, written.span, message);
            return None;
        }
        Some(Self { max_staleness: written.value })
    }
}
