//! Command names as small numbers, so that whatever clients send there are only so many.

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::FixedState;

use super::catalogue::names;

/// What names are called that the catalogue does not have.
const OTHER: &str = "other";

/// A name in the catalogue, or any other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommandName(u16);

static NUMBERS: LazyLock<HashMap<&'static [u8], u16, FixedState>> =
    LazyLock::new(|| names().map(str::as_bytes).zip(1..).collect());

impl CommandName {
    /// Costs one look into a table.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        Self(NUMBERS.get(name).copied().unwrap_or_default())
    }

    /// Its place in [`command_names`].
    #[must_use]
    pub fn number(self) -> usize {
        self.0.into()
    }
}

/// All names there can be, by their numbers.
pub fn command_names() -> impl Iterator<Item = &'static str> {
    std::iter::once(OTHER).chain(names())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_not_in_the_catalogue_is_one_name() {
        let name = |text: &str| command_names().nth(CommandName::of(text.as_bytes()).number()).unwrap();
        for known in ["find", "findandmodify", "getMore", "hello", "ping"] {
            assert_eq!(name(known), known);
        }
        for unknown in ["", "Find", "find\n", "other", "x"] {
            assert_eq!(name(unknown), OTHER);
        }
        assert!(command_names().count() < 1000);
    }
}
