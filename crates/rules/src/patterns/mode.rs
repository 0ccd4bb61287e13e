//! The modes of rules.

/// Whether a rule is enforced, in the order of what it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// It is checked at load time and otherwise ignored.
    Disabled,
    /// It only counts and logs its decisions.
    Shadow,
    /// It rewrites and rejects.
    #[default]
    Enforce,
}

impl Mode {
    pub const ALL: [Self; 3] = [Self::Enforce, Self::Shadow, Self::Disabled];

    /// The word for it in rule files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Disabled => "disabled",
        }
    }

    /// The mode of this word; `None`: there is none.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}
