//! Command names as small numbers. All unknown names share one number, so clients cannot add names without limit.

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::FixedState;

use super::catalogue::names;

/// The name for all commands that are not in the catalogue.
const OTHER: &str = "other";

/// The number of a command name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommandName(u16);

static NUMBERS: LazyLock<HashMap<&'static [u8], u16, FixedState>> =
    LazyLock::new(|| names().map(str::as_bytes).zip(1..).collect());

static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| command_names().collect());

impl CommandName {
    /// Returns the number of a name. It needs one hash lookup.
    #[must_use]
    pub fn from_bytes(name: &[u8]) -> Self {
        Self(NUMBERS.get(name).copied().unwrap_or_default())
    }

    /// Returns the name, or "other" for an unknown one.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        NAMES.get(self.number()).copied().unwrap_or(OTHER)
    }

    /// Returns the index in [`command_names`].
    #[must_use]
    pub fn number(self) -> usize {
        self.0.into()
    }
}

/// Returns all names, in the order of their numbers.
pub fn command_names() -> impl Iterator<Item = &'static str> {
    std::iter::once(OTHER).chain(names())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_share_one_number() {
        let name = |text: &str| command_names().nth(CommandName::from_bytes(text.as_bytes()).number()).unwrap();
        for known in ["find", "findandmodify", "getMore", "hello", "ping"] {
            assert_eq!(name(known), known);
        }
        for unknown in ["", "Find", "find\n", "other", "x"] {
            assert_eq!(name(unknown), OTHER);
        }
        assert!(command_names().count() < 1000);
    }
}
